//! The state of a queue, and its measures of one hour.

use std::collections::VecDeque;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::histogram::DurationHistogram;
use super::{RECENT, SLOT, SLOTS};
use evenkeel_worker::{DeliveryReport, DeliveryStatus, QueueKind, QueueStatus, ReceiverState};

#[derive(Debug, Default)]
pub(super) struct QueueSeries {
    slots: VecDeque<TimeSlot>,
    renewals: u64,
}

#[derive(Debug, Clone, Default)]
struct TimeSlot {
    number: u64,
    endings: [u32; DeliveryStatus::ALL.len()],
    lags: DurationHistogram,
    messages: Option<u64>,
    oldest: Option<u64>,
    in_flight: usize,
    renewals: u64,
}

/// The state of a queue.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "queue")]
pub struct QueueNow {
    /// The queue, or its shard.
    pub queue: String,
    /// `jobs` or `rechecks`.
    pub kind: &'static str,
    /// State of its receiver: `receiving`, `paused_by_store`, `answers_lost`, `draining` or `stopped`.
    pub state: &'static str,
    /// Approximate number of messages, including hidden ones; null before the first measurement.
    pub messages: Option<u64>,
    /// Age of the oldest of the first 32 visible messages, in seconds. It is null if no message is visible; hidden
    /// messages may still be waiting.
    pub oldest_age_seconds: Option<u64>,
    /// Messages that were received and are not settled yet.
    pub in_flight: usize,
    /// Maximum of `in_flight` for all shards of the queue together: the configured value, or the present value of
    /// `auto`.
    pub concurrency: usize,
    /// Completed deliveries per second in the last minute.
    pub per_second: f64,
    /// Jobs done or skipped per second in the last minute.
    pub finished_per_second: f64,
    /// Median time from enqueued to converged in the last five minutes, in seconds.
    pub lag_p50_seconds: Option<f64>,
    /// 99th percentile of the time from enqueued to converged in the last five minutes, in seconds.
    pub lag_p99_seconds: Option<f64>,
    /// Deliveries of the last hour by outcome.
    pub endings: Endings,
    /// Leases renewed since the program started.
    pub renewals: u64,
    /// Renewals that failed or came after the lease was lost, since the program started.
    pub failed_renewals: u64,
    /// When the queue last answered (RFC 3339).
    pub last_poll: Option<String>,
    /// Seconds since then.
    pub last_poll_seconds_ago: Option<f64>,
    /// Seconds since its messages were counted.
    pub measured_seconds_ago: Option<f64>,
    /// Why the last request for messages failed; null after one succeeds.
    pub last_error: Option<String>,
}

/// Deliveries by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(title = "endings")]
pub struct Endings {
    /// The requested state has been reached.
    pub done: u64,
    /// A condition was not met, or a later change superseded the job.
    pub skipped: u64,
    /// Will be tried again.
    pub retried: u64,
    /// Moved to the poison queue.
    pub poisoned: u64,
    /// Not settled, because another receiver has or will get the message.
    pub lost: u64,
}

/// Ten seconds of one queue, or of several together.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "queue_slot")]
pub struct QueueSlot {
    /// Seconds since the slot began.
    pub ago_seconds: u64,
    /// Deliveries with this outcome per second.
    pub done: f64,
    /// See `done`.
    pub skipped: f64,
    /// See `done`.
    pub retried: f64,
    /// See `done`.
    pub poisoned: f64,
    /// See `done`.
    pub lost: f64,
    /// Messages in the queue; null if not measured.
    pub messages: Option<u64>,
    /// Age of the oldest of the first 32 visible messages, in seconds; null if no message was visible.
    pub oldest_age_seconds: Option<u64>,
    /// Messages in flight.
    pub in_flight: usize,
    /// Median lag, in seconds; null if no job ended.
    pub lag_p50_seconds: Option<f64>,
    /// 99th percentile of the lag, in seconds.
    pub lag_p99_seconds: Option<f64>,
    /// Leases renewed.
    pub renewals: u64,
}

impl TimeSlot {
    fn is_busy(&self) -> bool {
        self.in_flight > 0
            || self.messages.is_some_and(|messages| messages > 0)
            || self.endings.iter().any(|count| *count > 0)
    }
}

impl QueueSeries {
    pub(super) fn ended(&mut self, number: u64, delivery: &DeliveryReport) {
        let slot = self.slot(number);
        let ending = &mut slot.endings[delivery.ending as usize];
        *ending = ending.saturating_add(1);
        if let Some(lag) = delivery.lag {
            slot.lags.add(lag);
        }
    }

    pub(super) fn sampled(&mut self, number: u64, status: &QueueStatus) {
        let renewed = status.renewals.saturating_sub(self.renewals);
        self.renewals = status.renewals;
        let slot = self.slot(number);
        slot.messages = status.backlog.map(|backlog| backlog.messages);
        slot.oldest = status
            .backlog
            .and_then(|backlog| backlog.oldest_age_seconds);
        slot.in_flight = status.in_flight;
        slot.renewals += renewed;
    }

    /// Returns the slot with this number, and adds it if it is missing. Usually it is the last slot. It is an earlier
    /// one only if a measure arrives after its slot has ended.
    fn slot(&mut self, number: u64) -> &mut TimeSlot {
        let before = self.slots.iter().rposition(|slot| slot.number <= number);
        let mut at = before.map_or(0, |at| {
            if self.slots[at].number == number {
                at
            } else {
                at + 1
            }
        });
        if self.slots.get(at).is_none_or(|slot| slot.number != number) {
            self.slots.insert(
                at,
                TimeSlot {
                    number,
                    ..TimeSlot::default()
                },
            );
        }
        while self.slots.len() > SLOTS && at > 0 {
            self.slots.pop_front();
            at -= 1;
        }
        &mut self.slots[at]
    }

    fn since(&self, first: u64) -> impl Iterator<Item = &TimeSlot> {
        self.slots.iter().filter(move |slot| slot.number >= first)
    }

    fn endings(&self, first: u64) -> [u64; DeliveryStatus::ALL.len()] {
        let mut sum = [0; DeliveryStatus::ALL.len()];
        for slot in self.since(first) {
            for (sum, count) in sum.iter_mut().zip(slot.endings) {
                *sum += u64::from(count);
            }
        }
        sum
    }

    /// Returns the number of jobs finished per second since the queue was last idle, averaged over at most one minute.
    /// `running` is the time in seconds since the program started. The slot in which work began is not counted, because
    /// the work may have begun at any time within it. The result is `None` until a later slot has ended and jobs have
    /// been finished.
    pub(super) fn pace(&self, number: u64, running: f64) -> Option<f64> {
        let oldest = (number + 1).saturating_sub(RECENT);
        let busy = |number: u64| {
            self.slots
                .iter()
                .any(|slot| slot.number == number && slot.is_busy())
        };
        let begun = (oldest..number)
            .rev()
            .take_while(|number| busy(*number))
            .last()?;
        // If the queue was busy in all complete slots of the minute, its work is assumed to have begun before the
        // oldest of these slots. Then the queue was busy during the whole oldest slot, so this slot counts. Slot 0
        // never counts, because no work begins before it.
        let first = if begun == oldest && oldest > 0 {
            begun
        } else {
            begun + 1
        };
        let seconds = running - SLOT.as_secs_f64() * float(first);
        let endings = self.endings(first);
        let finished =
            endings[DeliveryStatus::Done as usize] + endings[DeliveryStatus::Skipped as usize];
        (first < number && finished > 0).then(|| float(finished) / seconds.max(1.0))
    }

    /// Returns the state of the queue. `running` is the time in seconds since the program started.
    pub(super) fn now(
        &self,
        number: u64,
        running: f64,
        status: &QueueStatus,
        at: Timestamp,
    ) -> QueueNow {
        let ago = |past: Timestamp| at.duration_since(past).as_secs_f64().max(0.0);
        // The current slot is incomplete, so rates include the slots before it.
        let seconds = running.min(SLOT.as_secs_f64() * float(RECENT)).max(1.0);
        let recent = self.endings((number + 1).saturating_sub(RECENT));
        let mut lags = DurationHistogram::default();
        self.since((number + 1).saturating_sub(5 * RECENT))
            .for_each(|slot| lags.merge(&slot.lags));
        let [done, skipped, retried, poisoned, lost] =
            self.endings((number + 1).saturating_sub(SLOTS as u64));
        QueueNow {
            queue: status.queue.to_string(),
            kind: match status.kind {
                QueueKind::Jobs => "jobs",
                QueueKind::Rechecks => "rechecks",
            },
            state: match status.state {
                ReceiverState::Stopped => "stopped",
                ReceiverState::Receiving => "receiving",
                ReceiverState::PausedByStore => "paused_by_store",
                ReceiverState::AnswersLost => "answers_lost",
                ReceiverState::Draining => "draining",
            },
            messages: status.backlog.map(|backlog| backlog.messages),
            oldest_age_seconds: status
                .backlog
                .and_then(|backlog| backlog.oldest_age_seconds),
            in_flight: status.in_flight,
            concurrency: status.concurrency,
            per_second: float(recent.iter().sum()) / seconds,
            finished_per_second: float(
                recent[DeliveryStatus::Done as usize] + recent[DeliveryStatus::Skipped as usize],
            ) / seconds,
            lag_p50_seconds: lags.quantile(0.5),
            lag_p99_seconds: lags.quantile(0.99),
            endings: Endings {
                done,
                skipped,
                retried,
                poisoned,
                lost,
            },
            renewals: status.renewals,
            failed_renewals: status.failed_renewals,
            last_poll: status.last_poll.map(|at| at.to_string()),
            last_poll_seconds_ago: status.last_poll.map(ago),
            measured_seconds_ago: status.backlog.map(|backlog| ago(backlog.at)),
            last_error: status.last_error.as_ref().map(|last| last.error.clone()),
        }
    }
}

/// Adds up the slots of several queues, the oldest first. The current slot is left out, and so are slots from before
/// the program started.
pub(super) fn together<'a>(
    series: impl Iterator<Item = &'a QueueSeries>,
    number: u64,
) -> Vec<QueueSlot> {
    let first = number.saturating_sub(SLOTS as u64);
    let mut sums: Vec<TimeSlot> = (first..number)
        .map(|number| TimeSlot {
            number,
            ..TimeSlot::default()
        })
        .collect();
    for series in series {
        for slot in series.since(first).filter(|slot| slot.number < number) {
            let Some(sum) = usize::try_from(slot.number - first)
                .ok()
                .and_then(|at| sums.get_mut(at))
            else {
                continue;
            };
            for (sum, count) in sum.endings.iter_mut().zip(slot.endings) {
                *sum += count;
            }
            sum.lags.merge(&slot.lags);
            sum.messages = sum.messages.map_or(slot.messages, |so_far| {
                Some(so_far + slot.messages.unwrap_or(0))
            });
            sum.oldest = sum.oldest.max(slot.oldest);
            sum.in_flight += slot.in_flight;
            sum.renewals += slot.renewals;
        }
    }
    sums.into_iter().map(|slot| shown(&slot, number)).collect()
}

fn shown(slot: &TimeSlot, number: u64) -> QueueSlot {
    let rate =
        |ending: DeliveryStatus| f64::from(slot.endings[ending as usize]) / SLOT.as_secs_f64();
    QueueSlot {
        ago_seconds: (number - slot.number) * SLOT.as_secs(),
        done: rate(DeliveryStatus::Done),
        skipped: rate(DeliveryStatus::Skipped),
        retried: rate(DeliveryStatus::Retried),
        poisoned: rate(DeliveryStatus::Poisoned),
        lost: rate(DeliveryStatus::Lost),
        messages: slot.messages,
        oldest_age_seconds: slot.oldest,
        in_flight: slot.in_flight,
        lag_p50_seconds: slot.lags.quantile(0.5),
        lag_p99_seconds: slot.lags.quantile(0.99),
        renewals: slot.renewals,
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of jobs stay below 2^52")]
const fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::super::tests::{delivered, status};
    use super::*;

    #[test]
    fn an_hour_is_kept_and_older_slots_are_forgotten() {
        let mut series = QueueSeries::default();
        for number in 0..SLOTS as u64 + 100 {
            series.ended(number, &delivered("m", DeliveryStatus::Done));
        }
        assert_eq!(series.slots.len(), SLOTS);
        let slots = together([&series].into_iter(), 460);
        assert_eq!(
            (slots.len(), slots[0].ago_seconds, slots[359].ago_seconds),
            (360, 3_600, 10)
        );
        assert!(slots.iter().all(|slot| (slot.done - 0.1).abs() < 1e-9));
    }

    #[test]
    fn a_late_sample_counts_for_its_own_slot() {
        let mut series = QueueSeries::default();
        series.ended(10, &delivered("m", DeliveryStatus::Done));
        series.ended(12, &delivered("m", DeliveryStatus::Done));
        series.sampled(11, &status("q", Some(5)));
        series.sampled(10, &status("q", Some(4)));
        let slots = together([&series].into_iter(), 13);
        let measured: Vec<_> = slots[10..]
            .iter()
            .map(|slot| (slot.messages, slot.done > 0.0))
            .collect();
        assert_eq!(measured, [(Some(4), true), (Some(5), false), (None, true)]);
    }

    #[test]
    fn rates_are_averaged_over_the_last_minute_or_the_age_of_the_program() {
        let mut series = QueueSeries::default();
        for _ in 0..30 {
            series.ended(100, &delivered("m", DeliveryStatus::Done));
        }
        let now = |number, running| {
            series
                .now(
                    number,
                    running,
                    &status("q", Some(3)),
                    Timestamp::UNIX_EPOCH,
                )
                .finished_per_second
        };
        assert!((now(100, 1_000.0) - 0.5).abs() < 1e-9);
        assert!((now(100, 10.0) - 3.0).abs() < 1e-9);
        assert!(
            now(106, 1_000.0).abs() < 1e-9,
            "deliveries older than a minute do not count"
        );
    }

    #[test]
    fn the_pace_ignores_idle_time_and_is_unknown_for_ten_seconds() {
        let mut series = QueueSeries::default();
        let mut idle = status("q", Some(0));
        idle.in_flight = 0;
        for number in 90..103 {
            series.sampled(number, &idle);
        }
        let mut finish = |number: u64, count: usize| {
            (0..count).for_each(|_| series.ended(number, &delivered("m", DeliveryStatus::Done)));
            series.sampled(number, &status("q", Some(600)));
            let pace = |running| series.pace(number, running);
            [
                pace(float(number) * 10.0 + 1.0),
                pace(float(number) * 10.0 + 5.0),
            ]
        };
        // After a minute without work, 600 jobs arrive in the middle of a slot, and 15 jobs are finished per second.
        assert_eq!(finish(103, 75), [None; 2]);
        assert_eq!(
            finish(104, 150),
            [None; 2],
            "the slot in which work began does not count"
        );
        let [_, later] = finish(105, 75);
        assert!((later.unwrap() - 15.0).abs() < 1e-9, "{later:?}");
        finish(105, 75);
        for number in 106..110 {
            finish(number, 150);
        }
        let [_, steady] = finish(110, 75);
        assert!((14.9..16.5).contains(&steady.unwrap()), "{steady:?}");
    }

    #[test]
    fn shards_add_up() {
        let (mut one, mut other) = (QueueSeries::default(), QueueSeries::default());
        one.sampled(5, &status("q-00", Some(3)));
        other.sampled(5, &status("q-01", Some(4)));
        one.ended(5, &delivered("m", DeliveryStatus::Poisoned));
        let slots = together([&one, &other].into_iter(), 6);
        let last = slots.last().unwrap();
        assert_eq!((last.messages, last.in_flight), (Some(7), 2));
        assert!((last.poisoned - 0.1).abs() < 1e-9 && last.lag_p50_seconds.is_some());
        assert_eq!(slots[0].messages, None, "an unmeasured count is not zero");
    }
}
