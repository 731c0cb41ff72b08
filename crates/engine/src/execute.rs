//! The interface between a worker and the work: executors, outcomes, failures.

use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::Recheck;
use evenkeel_model::allowed::AllowedTables;
use evenkeel_model::job::Stamp;
use evenkeel_model::{AccountName, Job, QueueName, ViewName, cause};

/// Executes work. The worker knows no more of the protocol than this.
#[async_trait]
pub trait Execute: Send + Sync {
    /// Executes one piece of work, from the beginning, however often it was tried before. Dropping the
    /// future at any point is safe: it leaves the same state as a crash.
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure>;

    /// Gives work up that did not come to an end: it goes to the poison queue, and may be sent again from there as a new message,
    /// which has no record of the requests that deliveries of this one have sent. Doing so twice is harmless.
    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure>;
}

/// Seals what people must not read in the body of a poison message.
#[async_trait]
pub trait SealBodies: Send + Sync {
    /// The body with the encrypted properties of its entities sealed; `None` if it has none.
    async fn seal_body(&self, body: &str) -> Result<Option<String>, Failure>;
}

/// One piece of work.
#[derive(Debug, Clone, PartialEq)]
pub enum Work {
    /// A job that a client sent.
    Job(Job),
    /// A second look that an earlier pass asked for.
    Recheck(Recheck),
}

/// How the work arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The message's id and when it was first enqueued.
    pub stamp: Stamp,
    /// How often the message was got, this time included.
    pub dequeue_count: u32,
    /// The account of the queue it came from.
    pub account: AccountName,
    /// Where a carry is queued: the queue of jobs that it came from, its shard where it has some, of a recheck the one that it belongs to; or
    /// `recheck_queue`, to which workers alone write, where that does not carry it.
    pub carry_queue: QueueName,
    /// Where a sync of another primary is queued, likewise.
    pub sync_queue: QueueName,
    /// Where a recheck is queued: `<queue>-recheck`.
    pub recheck_queue: QueueName,
    /// The tables that its job may be about; all where absent.
    pub tables: Option<AllowedTables>,
}

/// How work ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The requested state holds.
    Done(Summary),
    /// A condition of the job is unmet, or a later change has overtaken it: nothing was to be done.
    Skipped {
        /// Why, in words.
        reason: String,
        /// Changes made meanwhile (a reconcile follows in any case).
        summary: Summary,
    },
    /// A part is done, and the rest is for a later delivery of the same message.
    Advanced {
        /// Fields that the message is to carry from now on: where to go on.
        fields: Map<String, Value>,
        /// Changes made by this part.
        summary: Summary,
    },
}

impl Outcome {
    /// The same to write on.
    pub const fn summary_mut(&mut self) -> &mut Summary {
        match self {
            Self::Done(summary)
            | Self::Skipped { summary, .. }
            | Self::Advanced { summary, .. } => summary,
        }
    }

    /// Changes made by the run.
    pub const fn summary(&self) -> &Summary {
        match self {
            Self::Done(summary)
            | Self::Skipped { summary, .. }
            | Self::Advanced { summary, .. } => summary,
        }
    }
}

/// Changes made by a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Changes to items, in order.
    pub changes: Vec<ItemChange>,
    /// Further ones that are not kept.
    pub further: usize,
    /// How many of the changes were made by passes over other primaries: those that follow, and holders of keys that were wanted.
    pub others: usize,
    /// Rounds beyond the first: races that were lost and run again.
    pub extra_rounds: u32,
    /// Time from the primary's last write until everything derived from it was in step; `None` where that is not known, where it was in step
    /// before, and of runs over many primaries.
    pub found_after: Option<Duration>,
}

impl Summary {
    /// How many changes there were.
    pub const fn changed(&self) -> usize {
        self.changes.len() + self.further
    }

    /// Whether the run has changed an item of its own primary.
    pub const fn has_changed_its_own(&self) -> bool {
        self.changed() > self.others
    }

    /// Whether an item was inserted, or written over another holder's.
    pub fn has_created(&self) -> bool {
        self.changes
            .iter()
            .any(|change| change.action == Action::Create)
    }

    /// Keeps the first changes, so many at most.
    pub fn shorten(&mut self, most: usize) {
        self.further += self.changes.len().saturating_sub(most);
        self.changes.truncate(most);
        self.changes.shrink_to_fit();
    }

    /// With the changes of another run.
    pub fn add(&mut self, other: Self) {
        self.changes.extend(other.changes);
        self.further += other.further;
        self.others += other.others;
        self.extra_rounds += other.extra_rounds;
    }
}

/// A change to one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemChange {
    /// The item's view.
    pub view: ViewName,
    /// The account that the item lies in.
    pub account: AccountName,
    /// Kind of change.
    pub action: Action,
}

/// Kinds of change to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It was inserted, or written over the item of another holder of its key.
    Create,
    /// It was replaced.
    Update,
    /// It was deleted.
    Delete,
}

impl Action {
    /// The action's name in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }
}

/// How work ended badly.
#[derive(Debug, thiserror::Error)]
#[error("{step}")]
pub struct Failure {
    /// Class of the failure: how a worker may react.
    pub class: FailureClass,
    /// The step that failed, in words ("reading the primary Employees(\"Sales\", \"7\")").
    pub step: String,
    /// The views with items out of step because of it, where that can be told.
    pub views: Vec<ViewName>,
    /// Why it failed.
    #[source]
    pub cause: Box<dyn std::error::Error + Send + Sync>,
}

/// How a worker may react to a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// Will fail again: poison.
    Permanent,
    /// The store's fault, or a lost race: release and try later, at least this long.
    Transient {
        /// How long the store asked to wait.
        retry_after: Option<Duration>,
    },
    /// A request was not sent, since its partition is left alone for a while or its service does not answer: release and try
    /// later, at least this long. It says nothing about the job.
    Withheld {
        /// How long until it may be sent.
        retry_after: Option<Duration>,
    },
    /// The data was written by a newer catalog than this worker's, or a newer one is recorded: release.
    OutdatedCatalog,
}

impl Failure {
    /// A failure of a step.
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

    /// The same, of these views.
    #[must_use]
    pub fn of_views(self, views: impl IntoIterator<Item = ViewName>) -> Self {
        Self {
            views: views.into_iter().collect(),
            ..self
        }
    }

    /// The step and every cause below it, on one line.
    pub fn chain(&self) -> String {
        format!("{}: {}", self.step, cause::chain(self.cause.as_ref()))
    }
}
