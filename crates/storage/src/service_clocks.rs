//! The clocks of an account's services, estimated from their answers.
//!
//! Each answer contains the service's time, truncated to seconds, at some moment between the sending of the request and the arrival of the
//! answer. Each answer narrows the range of offsets that are consistent with all answers:
//!
//! ```text
//!   service's clock less ours    ├────────────┤             first answer
//!                                      ├───────────┤        second
//!                                      ├──────┤             both
//! ```
//!
//! An answer that contradicts the earlier ones replaces them, because the clock was set.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::Service;

/// Services return times truncated to seconds.
const RESOLUTION: SignedDuration = SignedDuration::from_secs(1);

/// The clocks of the services of one account, relative to this process's monotonic clock. A store without services has one clock, and
/// reports no times.
#[derive(Default)]
pub struct ServiceClocks {
    /// The monotonic clock that times requests and answers; `None` if none are timed.
    monotonic: Option<Box<dyn Fn() -> Duration + Send + Sync>>,
    tables: Mutex<Option<Offset>>,
    queues: Mutex<Option<Offset>>,
}

impl fmt::Debug for ServiceClocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceClocks")
            .field("tables", &self.tables)
            .field("queues", &self.queues)
            .finish_non_exhaustive()
    }
}

/// How far a service's clock, in time since 1970, is ahead of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Offset {
    least: SignedDuration,
    most: SignedDuration,
}

/// How far the clock of a queue service is ahead of that of a table service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSkew {
    pub least: SignedDuration,
    pub most: SignedDuration,
}

impl Offset {
    /// The offset according to one answer, with the monotonic times of its request and its arrival.
    fn of(time: Timestamp, (sent, arrived): (Duration, Duration)) -> Self {
        let ahead_of = |monotonic: Duration| {
            let monotonic = SignedDuration::try_from(monotonic).unwrap_or(SignedDuration::MAX);
            time.as_duration().saturating_sub(monotonic)
        };
        Self {
            least: ahead_of(arrived),
            most: ahead_of(sent).saturating_add(RESOLUTION),
        }
    }

    /// The offset according to this answer and the earlier ones.
    fn after(self, earlier: Option<Self>) -> Self {
        let both = earlier.map(|earlier| Self {
            least: self.least.max(earlier.least),
            most: self.most.min(earlier.most),
        });
        both.filter(|both| both.least <= both.most).unwrap_or(self)
    }
}

impl ServiceClocks {
    pub fn timed_by(monotonic: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self {
            monotonic: Some(Box::new(monotonic)),
            ..Self::default()
        }
    }

    /// Records the time in an answer, with the monotonic times of its request and its arrival.
    pub fn record(&self, service: Service, time: Timestamp, (sent, arrived): (Duration, Duration)) {
        let clock = match service {
            Service::Table => &self.tables,
            Service::Queue => &self.queues,
            Service::Blob | Service::Search => return,
        };
        let mut clock = clock.lock().unwrap_or_else(PoisonError::into_inner);
        *clock = Some(Offset::of(time, (sent, arrived)).after(*clock));
    }

    /// The current time of the table service, in the middle of the possible range; `None` if it has reported no time.
    pub fn tables_now(&self) -> Option<Timestamp> {
        self.now(&self.tables)
    }

    /// The current time of the queue service, as in [`tables_now`](Self::tables_now).
    pub fn queues_now(&self) -> Option<Timestamp> {
        self.now(&self.queues)
    }

    fn now(&self, clock: &Mutex<Option<Offset>>) -> Option<Timestamp> {
        let now = SignedDuration::try_from(self.monotonic.as_ref()?()).ok()?;
        let Offset { least, most } = (*clock.lock().unwrap_or_else(PoisonError::into_inner))?;
        let offset = least.saturating_add(most.saturating_sub(least) / 2);
        Timestamp::from_duration(offset.saturating_add(now)).ok()
    }
}

impl ClockSkew {
    pub const NOT: Self = Self {
        least: SignedDuration::ZERO,
        most: SignedDuration::ZERO,
    };

    /// Compares the queues of one account with the tables of the same or another one. If one of them has reported no time, the clocks count
    /// as equal.
    pub fn between(queues: &Arc<ServiceClocks>, tables: &Arc<ServiceClocks>) -> Self {
        let read =
            |clock: &Mutex<Option<Offset>>| *clock.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((queues, tables)) = read(&queues.queues).zip(read(&tables.tables)) else {
            return Self::NOT;
        };
        Self {
            least: queues.least.saturating_sub(tables.most),
            most: queues.most.saturating_sub(tables.least),
        }
    }

    /// The width of the possible range.
    pub fn within(self) -> SignedDuration {
        self.most.saturating_sub(self.least)
    }

    /// The minimum difference: zero if the clocks may be equal.
    pub fn surely(self) -> SignedDuration {
        SignedDuration::ZERO.clamp(self.least, self.most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + millis).unwrap()
    }

    /// The skew after `requests`, each given as the times of sending and arrival. The services answer halfway between the two times. `off`
    /// is how far the clocks of the queue and the table service are ahead. All times are milliseconds.
    fn heard(off: (i64, i64), requests: &[(u64, u64)]) -> ClockSkew {
        let clocks = Arc::new(ServiceClocks::default());
        for (sent, arrived) in requests {
            let between = (
                Duration::from_millis(*sent),
                Duration::from_millis(*arrived),
            );
            let given = i64::try_from(u64::midpoint(*sent, *arrived)).unwrap();
            for (service, off) in [(Service::Queue, off.0), (Service::Table, off.1)] {
                let reported = Timestamp::from_second(at(given + off).as_second()).unwrap();
                clocks.record(service, reported, between);
            }
        }
        ClockSkew::between(&clocks, &clocks)
    }

    #[test]
    fn the_true_offset_is_in_the_possible_range_which_answers_narrow() {
        let requests: Vec<(u64, u64)> = (0..40)
            .map(|number| (number * 1_170, number * 1_170 + 20 + number % 7))
            .collect();
        for (queues, tables) in [
            (0, 0),
            (40_000, 0),
            (0, 40_000),
            (51_300, -36_200),
            (700, 400),
        ] {
            let truth = SignedDuration::from_millis(queues - tables);
            let mut wide = SignedDuration::from_secs(3);
            for count in [1, 5, 40] {
                let apart = heard((queues, tables), &requests[..count]);
                assert!(
                    apart.least <= truth && truth <= apart.most,
                    "{apart:?} after {count}"
                );
                assert!(apart.most - apart.least <= wide, "{apart:?} after {count}");
                wide = apart.most - apart.least;
            }
            assert!(wide < SignedDuration::from_millis(300), "{wide}");
        }
    }

    #[test]
    fn the_time_of_a_service_is_in_the_middle_of_the_possible_range() {
        let clocks = ServiceClocks::timed_by(|| Duration::from_secs(10));
        assert_eq!(clocks.tables_now(), None);
        clocks.record(
            Service::Table,
            at(40_000),
            (Duration::from_millis(100), Duration::from_millis(300)),
        );
        assert_eq!(
            clocks.tables_now().unwrap(),
            at(50_300),
            "the service's clock was at 40 to 41 s when ours was at 0.1 to 0.3 s"
        );
        assert_eq!(clocks.queues_now(), None, "another service");
        clocks.record(
            Service::Queue,
            at(70_000),
            (Duration::from_millis(100), Duration::from_millis(300)),
        );
        assert_eq!(clocks.queues_now().unwrap(), at(80_300));
    }

    #[test]
    fn a_slow_answer_is_correct_but_less_precise() {
        let apart = heard((40_000, 0), &[(0, 30_000)]);
        assert!(
            apart.least <= SignedDuration::from_secs(40)
                && SignedDuration::from_secs(40) <= apart.most
        );
        assert_eq!(
            heard((40_000, 0), &[(0, 30_000), (31_000, 31_010)]),
            heard((40_000, 0), &[(31_000, 31_010)])
        );
    }

    #[test]
    fn a_clock_that_is_set_is_believed() {
        let clocks = Arc::new(ServiceClocks::default());
        let now = (Duration::ZERO, Duration::from_millis(10));
        clocks.record(Service::Table, at(0), now);
        clocks.record(Service::Queue, at(0), now);
        clocks.record(Service::Queue, at(60_000), now);
        assert!(ClockSkew::between(&clocks, &clocks).least > SignedDuration::from_secs(58));
    }

    #[test]
    fn clocks_that_may_be_equal_have_no_minimum_difference() {
        let apart = |least, most| ClockSkew {
            least: SignedDuration::from_secs(least),
            most: SignedDuration::from_secs(most),
        };
        for (apart, surely) in [
            (apart(-1, 2), 0),
            (apart(3, 5), 3),
            (apart(-5, -3), -3),
            (ClockSkew::NOT, 0),
        ] {
            assert_eq!(
                apart.surely(),
                SignedDuration::from_secs(surely),
                "{apart:?}"
            );
        }
        let unknown = Arc::new(ServiceClocks::default());
        assert_eq!(ClockSkew::between(&unknown, &unknown), ClockSkew::NOT);
    }
}
