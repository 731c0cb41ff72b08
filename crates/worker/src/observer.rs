//! Reports to observers of the worker, such as a dashboard.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::decide::{RunResult, describe};
use super::decode::DecodedMessage;
use super::deliver::{Completion, DeliveryTimes, counts_as_lag};
use super::delivery::DeliveryFacts;
use super::key_outcomes::KeyOutcomes;
use super::progress::walked;
use super::settle::SettleOutcome;
use evenkeel_engine::{ItemChange, Outcome, Summary, Work};
use evenkeel_model::cause;
use evenkeel_model::job::{Primary, WalkProgress};
use evenkeel_model::{QueueName, ViewName};
use evenkeel_telemetry::job_trace::{self, JobTrace};

/// Maximum number of changes in one report. A footprint may hold a thousand items.
pub(super) const CHANGES: usize = 64;
const ERROR_BYTES: usize = 1_024;
const TEXT_BYTES: usize = 256;

/// Receives reports about the worker. It is called from inside the worker's tasks, so it must
/// neither block nor fail. If there is no observer, no reports are built.
pub trait Observer: Send + Sync {
    fn ended(&self, delivery: DeliveryReport);

    /// Called once for each run, even if several jobs shared the run.
    fn changed(&self, changes: &[ItemChange]);

    /// Reports that everything derived from a primary was in step `after` its last write.
    fn found(&self, after: Duration);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryStatus {
    Done,
    /// The job was skipped, because its condition was not met or a later change had overtaken it.
    Skipped,
    /// The job is retried, or only a part of the job is done.
    Retried,
    Poisoned,
    /// The message was not settled. Another receiver has it, or will get it.
    Lost,
}

impl DeliveryStatus {
    pub const ALL: [Self; 5] = [
        Self::Done,
        Self::Skipped,
        Self::Retried,
        Self::Poisoned,
        Self::Lost,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Retried => "retried",
            Self::Poisoned => "poisoned",
            Self::Lost => "lost",
        }
    }

    /// A message that was deleted counts as skipped if `skipped` is true, and otherwise as done.
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

#[derive(Debug, Clone)]
pub struct DeliveryReport {
    pub at: Timestamp,
    pub queue: QueueName,
    pub op: &'static str,
    pub primary: Option<Primary>,
    pub jobs: usize,
    /// The keys of a batch with the outcome of each job. Only as many keys are kept as fit into 16
    /// KiB.
    pub keys: KeyOutcomes,
    pub ending: DeliveryStatus,
    /// The label `outcome` in metrics, which distinguishes more cases than `ending`.
    pub outcome: &'static str,
    pub deliveries: u32,
    /// Time from receiving the message to settling it.
    pub took: Duration,
    /// Time from enqueuing to convergence; `None` unless the job was about a single entity and
    /// succeeded.
    pub lag: Option<Duration>,
    /// Changes of items, in order; at most 64.
    pub changes: Vec<ItemChange>,
    /// Number of all changes, including those that are not in `changes`.
    pub changed: usize,
    /// The run's requests to the stores. If several jobs shared the run, only the job that ran
    /// reports them.
    pub trace: JobTrace,
    pub step: Option<String>,
    pub error: Option<String>,
    /// At most 64 views whose items are out of step because of the failure.
    pub views: Vec<ViewName>,
    /// Progress of a job that walks over a whole table and is not finished; otherwise `None`.
    pub walked: Option<WalkProgress>,
    pub message_id: String,
    pub id: Option<String>,
    pub traceparent: Option<String>,
}

fn one(decoded: &DecodedMessage) -> Option<&Work> {
    decoded.work.as_ref().ok()?.single()
}

pub(super) fn delivered(
    delivery: &DeliveryFacts<'_>,
    concluded: &Completion,
    keys: KeyOutcomes,
    outcome: &'static str,
    times: &DeliveryTimes,
) -> DeliveryReport {
    let DeliveryFacts {
        context,
        consumer,
        message,
        decoded,
        ..
    } = delivery;
    let Completion { end, settled, .. } = concluded;
    let settled = *settled;
    let skipped = matches!(end.outcome(), Some(Outcome::Skipped { .. }));
    let ending = DeliveryStatus::of(settled, skipped);
    let (step, error) = match ending {
        DeliveryStatus::Done => (None, None),
        // A part of the job is done, and the job continues with the next delivery.
        DeliveryStatus::Retried if end.outcome().is_some() => (None, None),
        DeliveryStatus::Skipped => (None, Some(describe(end).1)),
        DeliveryStatus::Retried | DeliveryStatus::Poisoned | DeliveryStatus::Lost => {
            let (step, error) = describe(end);
            (Some(step), Some(error))
        }
    };
    let summary = end.ran().map(RunResult::summary);
    let changes = summary.map_or(&[][..], |summary| &summary.changes);
    let lag = (settled == SettleOutcome::Deleted && counts_as_lag(consumer, decoded))
        .then_some(times.age);
    DeliveryReport {
        at: context.clock.now(),
        queue: consumer.queue.clone(),
        op: decoded.op,
        primary: one(decoded).and_then(|work| context.key(work)),
        jobs: keys.all.max(1),
        keys,
        ending,
        outcome,
        deliveries: message.dequeue_count,
        took: times.took,
        lag,
        changes: changes.iter().take(CHANGES).cloned().collect(),
        changed: summary.map_or(0, Summary::changed),
        trace: job_trace::take(),
        step: step.map(|step| cause::shortened(&step, TEXT_BYTES)),
        error: error.map(|error| cause::shortened(&error, ERROR_BYTES)),
        views: end.views().iter().take(CHANGES).cloned().collect(),
        walked: one(decoded)
            .zip(end.outcome())
            .and_then(|(work, outcome)| walked(work, outcome)),
        message_id: cause::shortened(&message.id, TEXT_BYTES),
        id: decoded.id.clone(),
        traceparent: decoded.traceparent.clone(),
    }
}
