//! The interface between a worker and the engine: executors, outcomes, failures.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::Recheck;
use evenkeel_model::allowed::AllowedTables;
use evenkeel_model::job::Stamp;
use evenkeel_model::{AccountName, Job, QueueName, ViewName, cause};

/// Executes work. The worker uses nothing else of the protocol.
#[async_trait]
pub trait Execute: Send + Sync {
    /// Executes one piece of work from the beginning, however often it was tried before. Dropping the future at any
    /// point is safe: it leaves the same state as a crash.
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure>;

    /// Gives up work that did not end. It goes to the poison queue and may be sent again from there as a new message,
    /// which has no record of the requests of this message's deliveries. A second call does no harm.
    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure>;
}

/// Encrypts what people must not read in the body of a poison message.
#[async_trait]
pub trait SealBodies: Send + Sync {
    /// Returns the body after the values of encrypted properties in it are encrypted, or `None` if the body has no such
    /// values.
    async fn seal_body(&self, body: &str) -> Result<Option<String>, Failure>;
}

#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    Job(Job),
    Recheck(Recheck),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The message's id, and when it was first enqueued.
    pub stamp: Stamp,
    /// How often the message was received, this time included.
    pub dequeue_count: u32,
    pub account: AccountName,
    /// The queue for carries: the job queue (shard) that the message came from, or that its recheck queue belongs to.
    /// If that queue does not accept carries, it is `recheck_queue`, which only workers write.
    pub carry_queue: QueueName,
    /// The queue for syncs of other primaries, by the same rule.
    pub sync_queue: QueueName,
    pub recheck_queue: QueueName,
    /// The tables that its job may be about; `None` allows all.
    pub tables: Option<AllowedTables>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Done(Summary),
    /// The job did not do what it asks for, because a condition is unmet or a later change has overtaken it. A skipped
    /// relocation may leave a copy at its target.
    Skipped {
        reason: String,
        /// Changes made by the reconcile, which follows in any case.
        summary: Summary,
    },
    /// A part is done. A later delivery of the same message does the rest.
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
    /// Changes that are not listed.
    pub further: usize,
    /// How many of the changes were made by passes over other primaries: followers, and holders of wanted keys.
    pub others: usize,
    /// Rounds beyond the first. Each followed a lost race, items that had to be looked at first or were left to the
    /// next round, or passes over holders of wanted keys.
    pub extra_rounds: u32,
    /// Time from the primary's last write until everything derived from it was in step. `None` if it is unknown, if
    /// everything was in step before, and for runs over many primaries.
    pub found_after: Option<Duration>,
}

impl Summary {
    pub const fn changed(&self) -> usize {
        self.changes.len() + self.further
    }

    pub const fn has_changed_its_own(&self) -> bool {
        self.changed() > self.others
    }

    /// Whether an item was inserted, or written over another holder's.
    pub fn has_created(&self) -> bool {
        self.changes
            .iter()
            .any(|change| change.action == Action::Create)
    }

    /// Lists only the first changes, and counts the others.
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
    /// It was inserted, or written over the item of another holder of its key.
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

#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct Failure {
    pub class: FailureClass,
    /// The step that failed (`reading the primary Employees("Sales", "7")`).
    pub step: String,
    /// The views whose items are out of step because of this failure, if they are known.
    pub views: Vec<ViewName>,
    #[source]
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    Permanent,
    /// The store failed, or a race was lost. The message is released, and the next attempt follows after at least this
    /// time.
    Transient {
        retry_after: Option<Duration>,
    },
    /// A request was not sent, because its partition is paused or its service does not answer. The message is released,
    /// and the next attempt follows after at least this time. The job is not at fault.
    Withheld {
        retry_after: Option<Duration>,
    },
    /// A catalog newer than this worker's is recorded, or the data was written with one. The message is released.
    OutdatedCatalog,
}

impl Failure {
    pub fn new(
        class: FailureClass,
        step: impl Into<String>,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
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
        format!("{}: {}", self.step, cause::chain(self.cause.as_ref()))
    }
}
