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

/// Most changes in one report. A footprint may hold a thousand items.
pub(super) const CHANGES: usize = 64;
const ERROR_BYTES: usize = 1_024;
const TEXT_BYTES: usize = 256;

/// Called from inside the worker's tasks, so it must neither block nor fail. Without an observer no
/// reports are built.
pub trait Observer: Send + Sync {
    fn ended(&self, delivery: DeliveryReport);

    /// Called once for a run, even if several jobs shared it.
    fn changed(&self, changes: &[ItemChange]);

    /// Everything derived from a primary was in step this long after its last write.
    fn found(&self, after: Duration);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeliveryStatus {
    Done,
    /// A condition was not met, or a later change had overtaken the job.
    Skipped,
    /// The job is retried, or only a part of it is done.
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

    /// `skipped` is whether the run that decided the settlement was skipped.
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
    /// The keys of a batch with the outcome of each job; as many as fit into 16 KiB.
    pub keys: KeyOutcomes,
    pub ending: DeliveryStatus,
    /// The label `outcome` in metrics, which is finer than `ending`.
    pub outcome: &'static str,
    pub deliveries: u32,
    /// From receiving to settling.
    pub took: Duration,
    /// From enqueuing to convergence; only for jobs about single entities that ended well.
    pub lag: Option<Duration>,
    /// Changes of items, in order; at most 64.
    pub changes: Vec<ItemChange>,
    /// Number of changes, including those not in `changes`.
    pub changed: usize,
    /// Requests to the stores. A run that several jobs shared is reported with the job that ran.
    pub trace: JobTrace,
    pub step: Option<String>,
    pub error: Option<String>,
    /// Views whose items are out of step because of the failure; at most 64.
    pub views: Vec<ViewName>,
    /// Progress of a job that walks over a whole table and is not done.
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
        // A part is done, and the job continues.
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
