//! One delivery, from the message to its settlement.
//!
//! ```text
//!   memory ──▶ examine ──▶ attempts left? ──▶ turn ──▶ noted ──▶ run ──▶ decide ──▶ settle
//!   └ under      │             │           └───── under the lease ─────┘   ▲
//!     the lease  └─ rejected ──┴─ exhausted ───────────────────────────────┘
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument as _;

use super::batch::{JobEnd, Tries};
use super::context::{RunContext, WorkerTally};
use super::decide::{End, Interruption, Settlement, decide, describe};
use super::delivery::{DeliveryFacts, OpenDelivery};
use super::examine::{self, Examined, Payload, examine};
use super::keys::EndedKeys;
use super::lease::{Lease, LeaseOutcome, Leased};
use super::observer::delivered;
use super::poison::Reason;
use super::settle::SettleOutcome;
use super::source::{Carries, Intake};
use super::status::InFlight;
use super::times::QueueTime;
use super::weight;
use super::{batch, count};
use evenkeel_engine::{MemoryShare, Outcome, Work};
use evenkeel_model::body::RawBody;
use evenkeel_model::cause;
use evenkeel_storage::{Message, MessageText};
use evenkeel_telemetry::traces;
use evenkeel_telemetry::trail::{self, Keeping, Urgency};

/// Works on one message that was got by a request sent at `sent` (monotonic). The slot is free afterwards.
pub(crate) async fn deliver(
    context: Arc<RunContext>,
    source: Arc<Intake>,
    message: Message,
    sent: Duration,
    place: InFlight,
) {
    let began = context.now();
    let queue_time = QueueTime::of(&message, context.settings.lease, sent);
    let expires = message
        .expires
        .map(|expires| began + queue_time.until(expires, began));
    let mut lease = begin_lease(&context, &source, &message, sent, expires);
    let raw = examine::open(&message);
    let extent = raw.as_ref().map(RawBody::extent).unwrap_or_default();
    let weight = weight::examining(&message, extent);
    // Before it is decoded: a small message may hold much.
    let mut memory = match lease
        .hold_past_expiry(context.memory.take(MemoryShare::Messages, weight))
        .await
    {
        LeaseOutcome::Finished(memory) => memory,
        LeaseOutcome::Lost | LeaseOutcome::Over => {
            tracing::warn!(queue = %source.queue, message_id = message.id, "message not examined: its lease ended first; it comes again");
            WorkerTally::add(&context.tally.lost);
            return;
        }
    };
    // A text that makes the decoder panic must not take the receiver down with every delivery.
    let examined = catch_unwind(AssertUnwindSafe(|| {
        examine(
            &message,
            raw,
            source.carries,
            &source.allowed,
            &context.events,
        )
    }))
    .unwrap_or_else(|payload| {
        Examined::rejected(
            &message,
            Reason::Undecodable,
            format!("decoding panicked: {}", cause::panic(&*payload)),
        )
    });
    memory.shrink(weight::kept(&message, examined.work.as_ref().ok(), extent));
    let span = tracing::info_span!(
        "job", queue = %source.queue, op = examined.op, message_id = message.id, id = examined.id, traceparent = examined.traceparent
    );
    traces::follow(&span, examined.traceparent.as_deref());
    let keeping = if context.observer.is_some() {
        Keeping::Kept
    } else {
        Keeping::Unkept
    };
    let urgency = if walks(&examined) {
        Urgency::Background
    } else {
        Urgency::Live
    };
    trail::scope(
        keeping,
        urgency,
        work_on(OpenDelivery {
            facts: DeliveryFacts {
                context: &context,
                source: &source,
                message: &message,
                examined: &examined,
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
    // Only now: a message is in flight until it is settled.
    drop(place);
}

fn begin_lease(
    context: &RunContext,
    source: &Arc<Intake>,
    message: &Message,
    sent: Duration,
    expires: Option<Duration>,
) -> Lease {
    let text = match &message.text {
        MessageText::Readable(text) => Some(text.clone()),
        MessageText::Unreadable { .. } => None,
    };
    let leased = Leased {
        id: message.id.clone(),
        receipt: message.pop_receipt.clone(),
        text,
        visibility: context.settings.lease,
        sent,
        expires,
    };
    Lease::new(
        Arc::clone(source),
        Arc::clone(&context.clock),
        Arc::clone(&context.rng),
        leased,
    )
}

/// A delivery that came to its settlement.
pub(super) struct Concluded {
    /// The end of its run; of a batch, the one that says most.
    pub(super) end: End,
    /// When it ended (monotonic).
    pub(super) ended: Duration,
    pub(super) settlement: Settlement,
    pub(super) settled: SettleOutcome,
    /// How its jobs ended, where they are many.
    pub(super) jobs: Option<JobsEnded>,
    /// Their keys, for an observer.
    pub(super) keys: EndedKeys,
}

/// How many jobs of a batch ended, by their ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobsEnded {
    pub(super) done: usize,
    pub(super) skipped: usize,
    pub(super) poisoned: usize,
    /// Those that come again.
    pub(super) left: usize,
}

async fn work_on(mut delivery: OpenDelivery<'_>) {
    let DeliveryFacts {
        context, examined, ..
    } = delivery.facts;
    let most = context.limits().max_dequeue_count;
    let concluded = match &examined.work {
        Ok(payload) => {
            let tries = Tries::of(payload.len(), &examined.deliveries, most);
            let ran = delivery.run(payload, tries).await;
            match payload {
                Payload::Single(_) => delivery.conclude(of_one(ran)).await,
                Payload::Batch(batch) => batch::settle(&mut delivery, batch, tries, ran).await,
            }
        }
        Err(rejection) => delivery.conclude(End::Rejected(rejection.clone())).await,
    };
    delivery.facts.tell(concluded);
}

/// The end of a message's only job. If it has none, the worker stopped before the job began.
fn of_one(ran: Result<Vec<JobEnd>, End>) -> End {
    let ended = ran.map(|mut ends| ends.pop().map(|job| job.end));
    ended.map_or_else(
        |end| end,
        |end| end.unwrap_or(End::Interrupted(Interruption::Drain)),
    )
}

impl OpenDelivery<'_> {
    /// Settles a message by one end: of its one job, or of a batch as a whole.
    pub(super) async fn conclude(&mut self, end: End) -> Concluded {
        let DeliveryFacts { context, .. } = self.facts;
        let ended = context.now();
        self.facts.notice([&end]);
        let settlement = decide(&end, &self.facts.situation([&end]), &context.limits());
        let settled = self.settle(&settlement).await;
        Concluded {
            end,
            ended,
            settlement,
            settled,
            jobs: None,
            keys: EndedKeys::default(),
        }
    }
}

/// How long a delivery took.
pub(crate) struct Times {
    /// From enqueued to the end of the run.
    pub(crate) age: Duration,
    /// From received to settled.
    pub(crate) took: Duration,
}

impl DeliveryFacts<'_> {
    /// Counts a delivery that is settled, and tells of it: the observer, the trace, the log.
    fn tell(&self, mut concluded: Concluded) {
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
        let times = Times {
            age: queue_time.since(message.inserted, concluded.ended),
            took: now.saturating_sub(*began),
        };
        let outcome = self.record(&concluded, &times);
        if let Some(observer) = &context.observer {
            observer.ended(delivered(self, &concluded, keys, outcome, &times));
        }
        if traces::on() {
            let failed = matches!(
                concluded.settled,
                SettleOutcome::Released | SettleOutcome::Poisoned(_) | SettleOutcome::Lost
            )
            .then(|| describe(&concluded.end).1);
            traces::ended(outcome, failed.as_deref());
        }
        self.report(&concluded);
    }

    /// Counts a delivery; its outcome in metrics.
    fn record(&self, concluded: &Concluded, times: &Times) -> &'static str {
        let Self {
            context,
            source,
            examined,
            ..
        } = self;
        let Concluded {
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
            (SettleOutcome::Released, _) => (&tally.released, released_as(end)),
            (SettleOutcome::Lost, _) => (&tally.lost, "lost"),
        };
        count::job(source, examined.op, outcome, times.took);
        if let Some(JobsEnded {
            done,
            skipped,
            poisoned,
            left,
        }) = *jobs
            && settled == SettleOutcome::Lost
        {
            // Jobs without a poison message of their own come again.
            WorkerTally::add(&tally.lost);
            WorkerTally::add_many(&tally.poisoned, poisoned);
            count::keys(
                source,
                examined.op,
                [("poisoned", poisoned), ("lost", done + skipped + left)],
            );
        } else if let Some(JobsEnded {
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
            count::keys(source, examined.op, ended);
            if is_awaited(source, examined) {
                (0..done + skipped).for_each(|_| count::lag(source, times.age));
            }
        } else {
            WorkerTally::add(counter);
            let ending = match settled {
                SettleOutcome::Poisoned(_) => "poisoned",
                SettleOutcome::Released => "retried",
                SettleOutcome::Deleted | SettleOutcome::Lost => outcome,
            };
            count::keys(source, examined.op, [(ending, 1)]);
        }
        count::unknown_fields(source, examined.unknown_fields);
        if jobs.is_none() && settled == SettleOutcome::Deleted && is_awaited(source, examined) {
            count::lag(source, times.age);
        }
        outcome
    }

    /// One line for each delivery: at debug where all is well, else at warn with the causes.
    fn report(&self, concluded: &Concluded) {
        let Concluded {
            end,
            settlement,
            settled,
            ..
        } = concluded;
        let deliveries = self.message.dequeue_count;
        let attempts = self.examined.deliveries.attempts();
        let (step, error) = describe(end);
        match settlement {
            Settlement::Delete => {
                tracing::debug!(?settled, deliveries, outcome = error, "job finished");
            }
            Settlement::Advance(_) => {
                tracing::debug!(
                    ?settled,
                    deliveries,
                    "job advanced, goes on in a later delivery"
                );
            }
            Settlement::Release { .. } if matches!(end, End::Interrupted(_)) => {
                tracing::info!(?settled, step, reason = error, "job interrupted");
            }
            Settlement::Release { delay, .. } => tracing::warn!(
                ?settled,
                step,
                error,
                deliveries,
                attempts,
                delay_seconds = delay.as_secs_f64(),
                "job failed, tried again later"
            ),
            Settlement::Poison(verdict) => tracing::warn!(
                ?settled,
                reason = verdict.reason.name(),
                step,
                error = verdict.error,
                deliveries,
                attempts,
                op = self.examined.spelled,
                "job poisoned"
            ),
            Settlement::Abandon => tracing::warn!(?settled, step, error, "job abandoned"),
        }
    }
}

/// Whether the time until a message's end counts as lag. A recheck is late by design, and a walk over a whole table
/// (backfill, audit, carry, drop_table) takes as long as the table is large, and says nothing about how far behind an entity is.
pub(crate) fn is_awaited(source: &Intake, examined: &Examined) -> bool {
    source.carries == Carries::Jobs && !walks(examined)
}

/// Whether a message walks over whole tables.
fn walks(examined: &Examined) -> bool {
    let single = examined.work.as_ref().ok().and_then(Payload::single);
    matches!(single, Some(Work::Job(job)) if job.key().is_none())
}

/// The outcome in metrics of a delivery that comes again.
fn released_as(end: &End) -> &'static str {
    match end {
        End::Panicked(_) => "panic",
        End::TimedOut(_) => "timeout",
        End::Interrupted(_) => "interrupted",
        End::Ran(_) if end.outcome().is_some() => "advanced",
        End::Ran(_) | End::Rejected(_) | End::Exhausted(_) | End::LeaseLost => "transient",
    }
}
