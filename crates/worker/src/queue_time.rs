//! The queue's own clock, as one delivery shows it.

use std::time::Duration;

use jiff::Timestamp;

use evenkeel_storage::Message;

/// The queue's time, read off a delivery: ages and expiries are the queue's, and a worker's wall clock may be
/// off by minutes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueTime {
    at_get: Timestamp,
    sent: Duration,
}

impl QueueTime {
    /// From a message got with this visibility timeout by a request sent at `sent` (monotonic).
    pub(crate) fn of(message: &Message, visibility: Duration, sent: Duration) -> Self {
        Self {
            at_get: message
                .next_visible
                .checked_sub(visibility)
                .unwrap_or(message.inserted),
            sent,
        }
    }

    /// The queue's time at a monotonic time: at most a request's duration ahead of it.
    pub(crate) fn at(&self, monotonic: Duration) -> Timestamp {
        self.at_get
            .checked_add(monotonic.saturating_sub(self.sent))
            .unwrap_or(Timestamp::MAX)
    }

    /// From `earlier` to a monotonic time, by the queue's clock.
    pub(crate) fn since(&self, earlier: Timestamp, monotonic: Duration) -> Duration {
        between(earlier, self.at(monotonic))
    }

    /// From a monotonic time to `later`, by the queue's clock.
    pub(crate) fn until(&self, later: Timestamp, monotonic: Duration) -> Duration {
        between(self.at(monotonic), later)
    }
}

/// From one time to a later one; zero where it is not later.
pub(crate) fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}
