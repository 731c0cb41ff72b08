//! When a request was sent.

use std::time::Duration;

use jiff::Timestamp;

use evenkeel_storage::{Clock, Deadline};

/// When that was, by the wall and by the steady clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SentAt(Timestamp, Duration);

impl SentAt {
    pub(crate) fn now(clock: &dyn Clock) -> Self {
        Self(clock.now(), clock.monotonic())
    }

    /// The end of a time that began then.
    pub(crate) fn deadline(self, within: Duration) -> Deadline {
        let Self(wall, steady) = self;
        Deadline::after(wall, steady, within)
    }

    /// How long ago that was, by the clock that says more: the steady one may stand while the machine is suspended.
    pub(crate) fn elapsed(self, clock: &dyn Clock) -> Duration {
        let Self(wall, steady) = self;
        let by_wall = Duration::try_from(clock.now().duration_since(wall)).unwrap_or_default();
        by_wall.max(clock.monotonic().saturating_sub(steady))
    }
}
