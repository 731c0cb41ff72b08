//! The interface between a worker and the engine: executors, outcomes, failures.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::Recheck;
use evenkeel_model::allowed::AllowedTables;
use evenkeel_model::job::Stamp;
use evenkeel_model::{AccountName, Job, QueueName, ViewName, cause};
use evenkeel_storage::error::Cause;

/// The only part of the protocol that the worker uses.
#[async_trait]
pub trait Execute: Send + Sync {
    /// Executes one piece of work from the beginning, however often it was tried before. Dropping the future at any
    /// point is safe: it leaves the same state as a crash.
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure>;

    /// Queues rechecks of the job's primaries before its message is moved to the poison queue. Requests of earlier
    /// deliveries may still arrive after that. If the message is sent again from the poison queue, its new run does not
    /// know of these requests. May be called repeatedly.
    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure>;
}

/// Encrypts confidential values in the bodies of poison messages, because people read these messages.
#[async_trait]
pub trait EncryptBodies: Send + Sync {
    /// Encrypts the plain values of encrypted properties, and returns the new body. `None` if the body has no such
    /// values.
    async fn encrypt_body(&self, body: &str) -> Result<Option<String>, Failure>;
}

#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Job(Job),
    Recheck(Recheck),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The message's id, the time when it was first enqueued, and a digest of the job.
    pub stamp: Stamp,
    /// Number of times that the message was received, including this time.
    pub dequeue_count: u32,
    pub account: AccountName,
    /// The queue for `propagate` jobs. If the message was received from a job queue (shard), it is this queue. If the
    /// message was received from a recheck queue, it is the first shard of the job queue. If the job queue does not
    /// accept `propagate` jobs of all tables, it is `recheck_queue` in both cases, because only workers write to that
    /// queue.
    pub propagation_queue: QueueName,
    /// The queue for syncs of other primaries, chosen in the same way as `propagation_queue`.
    pub sync_queue: QueueName,
    pub recheck_queue: QueueName,
    /// The tables that the job may be about; `None` allows all tables.
    pub tables: Option<AllowedTables>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done(Summary),
    /// The job did not make its change, because a condition is unmet or a later change has overtaken it. A skipped
    /// relocation may leave a copy at its target.
    Skipped {
        reason: String,
        /// Changes to derived items. A skipped job brings them in step, too.
        summary: Summary,
    },
    /// A part of the job is done. A later delivery of the same message does the rest.
    Advanced {
        fields: Map<String, Value>,
        summary: Summary,
    },
}

impl Outcome {
    pub const fn summary_mut(&mut self) -> &mut Summary {
        match self {
            Self::Done(summary)
            | Self::Skipped { summary, .. }
            | Self::Advanced { summary, .. } => summary,
        }
    }

    pub const fn summary(&self) -> &Summary {
        match self {
            Self::Done(summary)
            | Self::Skipped { summary, .. }
            | Self::Advanced { summary, .. } => summary,
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    pub changes: Vec<ItemChange>,
    /// Number of changes that `changes` does not list.
    pub further: usize,
    /// Number of changes that were made by passes over other primaries: followers, and holders of wanted keys.
    pub others: usize,
    /// Number of rounds after the first. Their causes are lost races, items that had to be read before anything was
    /// written, items that a round left to the next one, and passes over holders of wanted keys.
    pub extra_rounds: u32,
    /// Time from the primary's last write until everything derived from it was in step. `None` if that time is unknown,
    /// if everything was in step before the run, and for runs over many primaries.
    pub found_after: Option<Duration>,
}

impl Summary {
    pub const fn changed(&self) -> usize {
        self.changes.len() + self.further
    }

    pub const fn has_changed_its_own(&self) -> bool {
        self.changed() > self.others
    }

    /// Whether an item was inserted, or was written over another holder's item.
    pub fn has_created(&self) -> bool {
        self.changes
            .iter()
            .any(|change| change.action == Action::Create)
    }

    /// Keeps the first `most` changes, and adds the number of the others to `further`.
    pub fn shorten(&mut self, most: usize) {
        self.further += self.changes.len().saturating_sub(most);
        self.changes.truncate(most);
        self.changes.shrink_to_fit();
    }

    pub fn add(&mut self, other: Self) {
        self.changes.extend(other.changes);
        self.further += other.further;
        self.others += other.others;
        self.extra_rounds += other.extra_rounds;
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemChange {
    pub view: ViewName,
    pub account: AccountName,
    pub action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The item was inserted, or was written over the item of another holder of its key.
    Create,
    Update,
    Delete,
}

impl Action {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

#[derive(Debug, Clone, thiserror::Error)]
#[error("{step}")]
pub struct Failure {
    pub class: FailureClass,
    /// The step that failed, for example `reading the primary Employees("Sales", "7")`.
    pub step: String,
    /// The views whose items are out of step because of this failure, if they are known.
    pub views: Vec<ViewName>,
    #[source]
    pub cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    Permanent,
    /// The store failed, or a race was lost. The message is released. The next attempt follows after at least
    /// `retry_after`.
    Transient {
        retry_after: Option<Duration>,
    },
    /// A request was not sent, because its partition is paused or its service does not answer. The message is released.
    /// The next attempt follows after at least `retry_after`. The job is not at fault.
    Withheld {
        retry_after: Option<Duration>,
    },
    /// A catalog newer than this worker's is recorded, or the data was written with a newer catalog. The message is
    /// released.
    OutdatedCatalog,
}

impl Failure {
    pub fn new(class: FailureClass, step: impl Into<String>, cause: impl Into<Cause>) -> Self {
        Self {
            class,
            step: step.into(),
            views: Vec::new(),
            cause: cause.into(),
        }
    }

    #[must_use]
    pub fn of_views(self, views: impl IntoIterator<Item = ViewName>) -> Self {
        Self {
            views: views.into_iter().collect(),
            ..self
        }
    }

    pub fn chain(&self) -> String {
        format!("{}: {}", self.step, cause::chain(&*self.cause))
    }
}
