//! Handles one delivery, from the message to its settlement.
//!
//! ```text
//!   memory ──▶ decode ──▶ attempts left? ──▶ key ──▶ recorded ──▶ run ──▶ decide ──▶ settle
//!   └ under      │            │           └───── under the lease ─────┘   ▲
//!     the lease  └─ rejected ─┴─ exhausted ───────────────────────────────┘
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

use super::batch::{JobOutcome, RunLimit};
use super::consumer::{QueueConsumer, QueueKind};
use super::context::{RunContext, WorkerTally};
use super::decide::{Interruption, RunOutcome, Settlement, decide, describe};
use super::decode::{self, DecodedMessage, Payload, decode};
use super::delivery::{DeliveryFacts, OpenDelivery};
use super::key_outcomes::KeyOutcomes;
use super::lease::{Lease, LeaseOutcome, LeaseStart};
use super::observer::delivered;
use super::poison::Reason;
use super::queue_time::QueueTime;
use super::settle::SettleOutcome;
use super::status::InFlight;
use super::weight;
use super::{batch, job_metrics};
use evenkeel_engine::{MemoryShare, Outcome, Work};
use evenkeel_model::body::RawBody;
use evenkeel_model::cause;
use evenkeel_storage::{Message, MessageText};
use evenkeel_telemetry::job_trace::{self, Recording, Urgency};
use evenkeel_telemetry::traces;

/// Handles one message, then frees its slot. The request that received the message was sent at
/// `sent` (monotonic).
pub(crate) async fn deliver(
    context: Arc<RunContext>,
    consumer: Arc<QueueConsumer>,
    message: Message,
    sent: Duration,
    place: InFlight,
) {
    let began = context.now();
    let queue_time = QueueTime::of(&message, context.settings.lease, sent);
    let expires = message
        .expires
        .map(|expires| began + queue_time.until(expires, began));
    let mut lease = begin_lease(&context, &consumer, &message, sent, expires);
    let raw = decode::open_body(&message);
    let extent = raw.as_ref().map(RawBody::extent).unwrap_or_default();
    let weight = weight::decoding(&message, extent);
    // The memory is reserved before decoding, because a small message may expand to a large one.
    let mut memory = match lease
        .hold_past_expiry(context.memory.take(MemoryShare::Messages, weight))
        .await
    {
        LeaseOutcome::Finished(memory) => memory,
        LeaseOutcome::Lost | LeaseOutcome::Expired => {
            tracing::warn!(queue = %consumer.queue, message_id = message.id, "could not decode message {}: its lease ended while it waited for memory; it will be redelivered", message.id);
            WorkerTally::add(&context.tally.lost);
            return;
        }
    };
    // If a text makes the decoder panic, the message is rejected. Otherwise each of its deliveries
    // would panic, and the message would never be settled.
    let decoded = catch_unwind(AssertUnwindSafe(|| {
        decode(
            &message,
            raw,
            consumer.kind,
            &consumer.allowed,
            &context.events,
        )
    }))
    .unwrap_or_else(|payload| {
        DecodedMessage::rejected(
            &message,
            Reason::Undecodable,
            format!("decoding panicked: {}", cause::panic(&*payload)),
        )
    });
    memory.shrink(weight::kept(&message, decoded.work.as_ref().ok(), extent));
    let span = tracing::info_span!(
        "job", queue = %consumer.queue, op = decoded.op, message_id = message.id, id = decoded.id, traceparent = decoded.traceparent
    );
    traces::set_parent(&span, decoded.traceparent.as_deref());
    let keeping = if context.observer.is_some() {
        Recording::On
    } else {
        Recording::Off
    };
    let urgency = if is_table_walk(&decoded) {
        Urgency::Background
    } else {
        Urgency::Live
    };
    job_trace::scope(
        keeping,
        urgency,
        work_on(OpenDelivery {
            facts: DeliveryFacts {
                context: &context,
                consumer: &consumer,
                message: &message,
                decoded: &decoded,
                queue_time,
                sent,
                began,
            },
            lease,
        }),
    )
    .instrument(span)
    .await;
    drop(memory);
    // The slot is freed only now, because the message is in flight until it is settled.
    drop(place);
}

fn begin_lease(
    context: &RunContext,
    consumer: &Arc<QueueConsumer>,
    message: &Message,
    sent: Duration,
    expires: Option<Duration>,
) -> Lease {
    let text = match &message.text {
        MessageText::Readable(text) => Some(text.clone()),
        MessageText::Unreadable { .. } => None,
    };
    let leased = LeaseStart {
        id: message.id.clone(),
        receipt: message.pop_receipt.clone(),
        text,
        visibility: context.settings.lease,
        sent,
        expires,
    };
    Lease::new(
        Arc::clone(consumer),
        Arc::clone(&context.clock),
        Arc::clone(&context.rng),
        leased,
    )
}

pub(super) struct Completion {
    /// The outcome of the run. For a batch, it is the outcome that stands for the whole delivery.
    pub(super) end: RunOutcome,
    pub(super) ended: Duration,
    pub(super) settlement: Settlement,
    pub(super) settled: SettleOutcome,
    pub(super) jobs: Option<JobCounts>,
    /// The keys for the observer; empty if there is no observer.
    pub(super) keys: KeyOutcomes,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct JobCounts {
    pub(super) done: usize,
    pub(super) skipped: usize,
    pub(super) poisoned: usize,
    pub(super) left: usize,
}

async fn work_on(mut delivery: OpenDelivery<'_>) {
    let DeliveryFacts {
        context, decoded, ..
    } = delivery.facts;
    let most = context.limits().max_dequeue_count;
    let concluded = match &decoded.work {
        Ok(payload) => {
            let run_limit = RunLimit::of(payload.len(), &decoded.deliveries, most);
            let ran = delivery.run(payload, run_limit).await;
            match payload {
                Payload::Single(_) => delivery.conclude(single_outcome(ran)).await,
                Payload::Batch(batch) => batch::settle(&mut delivery, batch, run_limit, ran).await,
            }
        }
        Err(rejection) => {
            delivery
                .conclude(RunOutcome::Rejected(rejection.clone()))
                .await
        }
    };
    delivery.facts.report_completion(concluded);
}

/// The outcome of a message's only job. If there is no outcome, the worker stopped before the job
/// began.
fn single_outcome(ran: Result<Vec<JobOutcome>, RunOutcome>) -> RunOutcome {
    let ended = ran.map(|mut ends| ends.pop().map(|job| job.end));
    ended.map_or_else(
        |end| end,
        |end| end.unwrap_or(RunOutcome::Interrupted(Interruption::Drain)),
    )
}

impl OpenDelivery<'_> {
    /// Settles a message by one outcome: the outcome of its single job, or that of a whole batch.
    pub(super) async fn conclude(&mut self, end: RunOutcome) -> Completion {
        let DeliveryFacts { context, .. } = self.facts;
        let ended = context.now();
        self.facts.record_obstacles([&end]);
        let settlement = decide(&end, &self.facts.input([&end]), &context.limits());
        let settled = self.settle(&settlement).await;
        Completion {
            end,
            ended,
            settlement,
            settled,
            jobs: None,
            keys: KeyOutcomes::default(),
        }
    }
}

pub(crate) struct DeliveryTimes {
    /// Time from enqueuing the message to the end of the run.
    pub(crate) age: Duration,
    /// Time from receiving the message to settling it.
    pub(crate) took: Duration,
}

impl DeliveryFacts<'_> {
    /// Reports a settled delivery to the metrics, the observer, the trace and the log.
    fn report_completion(&self, mut concluded: Completion) {
        let Self {
            context,
            message,
            queue_time,
            sent,
            began,
            ..
        } = self;
        let keys = std::mem::take(&mut concluded.keys);
        let now = context.now();
        context.tally.worked(*sent, now);
        let times = DeliveryTimes {
            age: queue_time.since(message.inserted, concluded.ended),
            took: now.saturating_sub(*began),
        };
        let outcome = self.record(&concluded, &times);
        if let Some(observer) = &context.observer {
            observer.ended(delivered(self, &concluded, keys, outcome, &times));
        }
        if traces::enabled() {
            let failed = matches!(
                concluded.settled,
                SettleOutcome::Released | SettleOutcome::Poisoned(_) | SettleOutcome::Lost
            )
            .then(|| describe(&concluded.end).1);
            traces::record_outcome(outcome, failed.as_deref());
        }
        self.report(&concluded);
    }

    fn record(&self, concluded: &Completion, times: &DeliveryTimes) -> &'static str {
        let Self {
            context,
            consumer,
            decoded,
            ..
        } = self;
        let Completion {
            end, settled, jobs, ..
        } = concluded;
        let settled = *settled;
        let tally = &context.tally;
        let finished = match end.outcome() {
            Some(Outcome::Done(_)) => Some((&tally.done, "done")),
            Some(Outcome::Skipped { .. }) => Some((&tally.skipped, "skipped")),
            Some(Outcome::Advanced { .. }) | None => None,
        };
        let (counter, outcome) = match (settled, finished) {
            (SettleOutcome::Deleted, Some(finished)) => finished,
            (SettleOutcome::Deleted, None) => (&tally.done, "done"),
            (SettleOutcome::Poisoned(reason), _) => (&tally.poisoned, reason.name()),
            (SettleOutcome::Released, _) => (&tally.released, released_outcome(end)),
            (SettleOutcome::Lost, _) => (&tally.lost, "lost"),
        };
        job_metrics::job(consumer, decoded.op, outcome, times.took);
        if let Some(JobCounts {
            done,
            skipped,
            poisoned,
            left,
        }) = *jobs
            && settled == SettleOutcome::Lost
        {
            // The message was not settled, so it will be redelivered. Each of its jobs then runs
            // again, unless the job has a poison message.
            WorkerTally::add(&tally.lost);
            WorkerTally::add_many(&tally.poisoned, poisoned);
            job_metrics::keys(
                consumer,
                decoded.op,
                [("poisoned", poisoned), ("lost", done + skipped + left)],
            );
        } else if let Some(JobCounts {
            done,
            skipped,
            poisoned,
            left,
        }) = *jobs
        {
            for (counter, ended) in [
                (&tally.done, done),
                (&tally.skipped, skipped),
                (&tally.poisoned, poisoned),
            ] {
                WorkerTally::add_many(counter, ended);
            }
            if settled == SettleOutcome::Released {
                WorkerTally::add(&tally.released);
            }
            let ended = [
                ("done", done),
                ("skipped", skipped),
                ("poisoned", poisoned),
                ("retried", left),
            ];
            job_metrics::keys(consumer, decoded.op, ended);
            if counts_as_lag(consumer, decoded) {
                (0..done + skipped).for_each(|_| job_metrics::lag(consumer, times.age));
            }
        } else {
            WorkerTally::add(counter);
            let ending = match settled {
                SettleOutcome::Poisoned(_) => "poisoned",
                SettleOutcome::Released => "retried",
                SettleOutcome::Deleted | SettleOutcome::Lost => outcome,
            };
            job_metrics::keys(consumer, decoded.op, [(ending, 1)]);
        }
        job_metrics::unknown_fields(consumer, decoded.unknown_fields);
        if jobs.is_none() && settled == SettleOutcome::Deleted && counts_as_lag(consumer, decoded) {
            job_metrics::lag(consumer, times.age);
        }
        outcome
    }

    /// Logs a delivery, at debug if it succeeded, otherwise at warn with the error and its causes.
    fn report(&self, concluded: &Completion) {
        let Completion {
            end,
            settlement,
            settled,
            ..
        } = concluded;
        let id = &self.message.id;
        let deliveries = self.message.dequeue_count;
        let attempts = self.decoded.deliveries.attempts();
        let (step, error) = describe(end);
        match settlement {
            Settlement::Delete => {
                tracing::debug!(?settled, deliveries, outcome = error, "job finished");
            }
            Settlement::Advance(_) => {
                tracing::debug!(
                    ?settled,
                    deliveries,
                    "saved the progress of the job in message {id}; it continues in a later delivery"
                );
            }
            Settlement::Release { .. } if matches!(end, RunOutcome::Interrupted(_)) => {
                tracing::info!(
                    ?settled,
                    step,
                    reason = error,
                    "interrupted the job in message {id}: {error}; it will be redelivered"
                );
            }
            Settlement::Release { delay, .. } => tracing::warn!(
                ?settled,
                step,
                error,
                deliveries,
                attempts,
                delay_seconds = delay.as_secs_f64(),
                "the job in message {id} failed; retrying in {} s",
                delay.as_secs()
            ),
            Settlement::Poison(verdict) => tracing::warn!(
                ?settled,
                reason = verdict.reason.name(),
                step,
                error = verdict.error,
                deliveries,
                attempts,
                op = self.decoded.op_text,
                "moved the job in message {id} to the poison queue"
            ),
            Settlement::Abandon => {
                tracing::warn!(
                    ?settled,
                    step,
                    error,
                    "abandoned the job in message {id}: its lease was lost; another worker may have it"
                );
            }
        }
    }
}

/// Whether the age of a message counts as lag. Rechecks are late by design. A walk over a whole
/// table (backfill, audit, propagate, `drop_table`) takes longer for a larger table, so its age
/// does not show how far behind an entity is.
pub(crate) fn counts_as_lag(consumer: &QueueConsumer, decoded: &DecodedMessage) -> bool {
    consumer.kind == QueueKind::Jobs && !is_table_walk(decoded)
}

fn is_table_walk(decoded: &DecodedMessage) -> bool {
    let single = decoded.work.as_ref().ok().and_then(Payload::single);
    matches!(single, Some(Work::Job(job)) if job.key().is_none())
}

/// The `outcome` label of a delivery that is retried.
fn released_outcome(end: &RunOutcome) -> &'static str {
    match end {
        RunOutcome::Panicked(_) => "panic",
        RunOutcome::TimedOut(_) => "timeout",
        RunOutcome::Interrupted(_) => "interrupted",
        RunOutcome::Returned(_) if end.outcome().is_some() => "advanced",
        RunOutcome::Returned(_)
        | RunOutcome::Rejected(_)
        | RunOutcome::Exhausted(_)
        | RunOutcome::LeaseLost => "transient",
    }
}
