//! The time at which a request was sent, and deadlines that count from it.

use std::time::Duration;

use jiff::Timestamp;

use evenkeel_storage::{Clock, Deadline};

/// The wall-clock time, and the monotonic time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentAt(Timestamp, Duration);

impl SentAt {
    pub(crate) fn now(clock: &dyn Clock) -> Self {
        Self(clock.now(), clock.monotonic())
    }

    pub(crate) fn deadline(self, within: Duration) -> Deadline {
        let Self(wall, steady) = self;
        Deadline::after(wall, steady, within)
    }

    /// Time since the request was sent. The longer of the two clocks' times counts, because the monotonic clock may
    /// stop while the machine is suspended.
    pub(crate) fn elapsed(self, clock: &dyn Clock) -> Duration {
        let Self(wall, steady) = self;
        let by_wall = Duration::try_from(clock.now().duration_since(wall)).unwrap_or_default();
        by_wall.max(clock.monotonic().saturating_sub(steady))
    }
}
