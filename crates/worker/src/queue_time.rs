//! Estimates the time by the queue's clock from one delivery.

use std::time::Duration;

use jiff::Timestamp;

use evenkeel_storage::Message;

/// Ages and expiries are measured by the queue's clock, because a worker's wall clock may be off by
/// minutes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueTime {
    at_get: Timestamp,
    sent: Duration,
}

impl QueueTime {
    /// Derives the queue's time from a message. The message was received with this visibility
    /// timeout, by a request that was sent at `sent` (monotonic).
    pub(crate) fn of(message: &Message, visibility: Duration, sent: Duration) -> Self {
        Self {
            at_get: message
                .next_visible
                .checked_sub(visibility)
                .unwrap_or(message.inserted),
            sent,
        }
    }

    /// The queue's time at a monotonic time. The result may be ahead of the queue's clock by up to
    /// the duration of one request.
    pub(crate) fn at(&self, monotonic: Duration) -> Timestamp {
        self.at_get
            .checked_add(monotonic.saturating_sub(self.sent))
            .unwrap_or(Timestamp::MAX)
    }

    pub(crate) fn since(&self, earlier: Timestamp, monotonic: Duration) -> Duration {
        between(earlier, self.at(monotonic))
    }

    pub(crate) fn until(&self, later: Timestamp, monotonic: Duration) -> Duration {
        between(self.at(monotonic), later)
    }
}

/// The time from `earlier` to `later`; zero if `later` is not later.
pub(crate) fn between(earlier: Timestamp, later: Timestamp) -> Duration {
    Duration::try_from(later.duration_since(earlier)).unwrap_or_default()
}
