//! Observers of the worker, such as a dashboard.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::decide::{Ran, describe};
use super::deliver::{Concluded, Times, is_awaited};
use super::delivery::DeliveryFacts;
use super::examine::Examined;
use super::keys::EndedKeys;
use super::settle::SettleOutcome;
use super::walked::walked;
use evenkeel_engine::{ItemChange, Outcome, Summary, Work};
use evenkeel_model::cause;
use evenkeel_model::job::{Primary, WalkProgress};
use evenkeel_model::{QueueName, ViewName};
use evenkeel_telemetry::trail::{self, Trail};

/// Most changes reported of one delivery: a footprint holds a thousand items.
pub(super) const CHANGES: usize = 64;
/// Longest error reported, in bytes.
const ERROR_BYTES: usize = 1_024;
/// Longest message id, client's id or step reported, in bytes.
const TEXT_BYTES: usize = 256;

/// Observer of the worker, called from inside its tasks: must neither wait nor fail. Without an observer, no reports
/// are built.
pub trait Observer: Send + Sync {
    /// A delivery ended.
    fn ended(&self, delivery: Delivered);

    /// A run changed items: told once for all jobs that shared it.
    fn changed(&self, changes: &[ItemChange]);

    /// Everything derived from a primary was in step this long after its last write.
    fn found(&self, after: Duration);
}

/// How a delivery ended, in the terms of metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ending {
    /// The requested state holds.
    Done,
    /// A condition was unmet, or a later change had overtaken it.
    Skipped,
    /// It comes again: for another try, or since only a part of it is done.
    Retried,
    /// It is on the poison queue.
    Poisoned,
    /// It was not settled: another receiver has the message, or will.
    Lost,
}

impl Ending {
    /// Every ending, in order.
    pub const ALL: [Self; 5] = [
        Self::Done,
        Self::Skipped,
        Self::Retried,
        Self::Poisoned,
        Self::Lost,
    ];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Retried => "retried",
            Self::Poisoned => "poisoned",
            Self::Lost => "lost",
        }
    }

    /// By the settlement of the message, where the run that decided it was skipped or not.
    pub(super) const fn of(settled: SettleOutcome, skipped: bool) -> Self {
        match settled {
            SettleOutcome::Deleted if skipped => Self::Skipped,
            SettleOutcome::Deleted => Self::Done,
            SettleOutcome::Released => Self::Retried,
            SettleOutcome::Poisoned(_) => Self::Poisoned,
            SettleOutcome::Lost => Self::Lost,
        }
    }
}

/// A delivery that ended.
#[derive(Debug, Clone)]
pub struct Delivered {
    /// When.
    pub at: Timestamp,
    /// The queue, or its shard.
    pub queue: QueueName,
    /// The operation: one of a closed set.
    pub op: &'static str,
    /// Its primary, where known.
    pub primary: Option<Primary>,
    /// How many jobs the message has: more than one of a batch.
    pub jobs: usize,
    /// The keys of a batch, each with the ending of its job; as many as fit into 16 KiB.
    pub keys: EndedKeys,
    /// How it ended.
    pub ending: Ending,
    /// The same, finer: the label `outcome` in metrics.
    pub outcome: &'static str,
    /// How often the message was got.
    pub deliveries: u32,
    /// From received to settled.
    pub took: Duration,
    /// From enqueued to converged; only of jobs about one entity that ended well.
    pub lag: Option<Duration>,
    /// Changes that its run made to items, in order; at most 64 of them.
    pub changes: Vec<ItemChange>,
    /// How many changes there were in all.
    pub changed: usize,
    /// Requests that it sent to the stores; a run shared by several jobs is reported with the job that ran.
    pub trail: Trail,
    /// The step that failed, where it did not end well.
    pub step: Option<String>,
    /// Why it did not end well or was skipped, with all causes.
    pub error: Option<String>,
    /// The views with items out of step because of that; at most 64 of them.
    pub views: Vec<ViewName>,
    /// How far it is, where it goes over a whole table and has more to do.
    pub walked: Option<WalkProgress>,
    /// The message's id.
    pub message_id: String,
    /// The client's own name for the job.
    pub id: Option<String>,
    /// The client's W3C trace context.
    pub traceparent: Option<String>,
}

fn one(examined: &Examined) -> Option<&Work> {
    examined.work.as_ref().ok()?.single()
}

/// The report of an ended delivery to an observer, with its outcome in metrics.
pub(super) fn delivered(
    delivery: &DeliveryFacts<'_>,
    concluded: &Concluded,
    keys: EndedKeys,
    outcome: &'static str,
    times: &Times,
) -> Delivered {
    let DeliveryFacts {
        context,
        source,
        message,
        examined,
        ..
    } = delivery;
    let Concluded { end, settled, .. } = concluded;
    let settled = *settled;
    let skipped = matches!(end.outcome(), Some(Outcome::Skipped { .. }));
    let ending = Ending::of(settled, skipped);
    let (step, error) = match ending {
        Ending::Done => (None, None),
        // A part is done, and it goes on.
        Ending::Retried if end.outcome().is_some() => (None, None),
        Ending::Skipped => (None, Some(describe(end).1)),
        Ending::Retried | Ending::Poisoned | Ending::Lost => {
            let (step, error) = describe(end);
            (Some(step), Some(error))
        }
    };
    let summary = end.ran().map(Ran::summary);
    let changes = summary.map_or(&[][..], |summary| &summary.changes);
    let lag =
        (settled == SettleOutcome::Deleted && is_awaited(source, examined)).then_some(times.age);
    Delivered {
        at: context.clock.now(),
        queue: source.queue.clone(),
        op: examined.op,
        primary: one(examined).and_then(|work| context.key(work)),
        jobs: keys.all.max(1),
        keys,
        ending,
        outcome,
        deliveries: message.dequeue_count,
        took: times.took,
        lag,
        changes: changes.iter().take(CHANGES).cloned().collect(),
        changed: summary.map_or(0, Summary::changed),
        trail: trail::take(),
        step: step.map(|step| cause::shortened(&step, TEXT_BYTES)),
        error: error.map(|error| cause::shortened(&error, ERROR_BYTES)),
        views: end.views().iter().take(CHANGES).cloned().collect(),
        walked: one(examined)
            .zip(end.outcome())
            .and_then(|(work, outcome)| walked(work, outcome)),
        message_id: cause::shortened(&message.id, TEXT_BYTES),
        id: examined.id.clone(),
        traceparent: examined.traceparent.clone(),
    }
}
