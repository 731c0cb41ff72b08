//! Settings of `[worker]` reloadable at run time.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use evenkeel_model::settings::{Backoff, PollInterval, WorkerSettings};

/// The reloadable settings, at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReloadableSettings {
    /// How long an empty queue is left alone.
    pub poll: PollInterval,
    /// How long a failed job waits before its next try.
    pub retry_delay: Backoff,
    /// How long transient failures are retried.
    pub give_up_after: Duration,
    /// Attempts after which a message is poisoned.
    pub max_dequeue_count: u32,
}

/// Settings reloadable at run time; readers must not cache them.
#[derive(Debug)]
pub struct Tuning(ArcSwap<ReloadableSettings>);

impl ReloadableSettings {
    /// Of these settings.
    pub const fn of(settings: &WorkerSettings) -> Self {
        let WorkerSettings {
            poll,
            retry_delay,
            give_up_after,
            max_dequeue_count,
            ..
        } = *settings;
        Self {
            poll,
            retry_delay,
            give_up_after,
            max_dequeue_count,
        }
    }
}

impl Tuning {
    pub(crate) fn new(tuned: ReloadableSettings) -> Self {
        Self(ArcSwap::from_pointee(tuned))
    }

    /// As it is now.
    pub fn now(&self) -> ReloadableSettings {
        **self.0.load()
    }

    /// From now on.
    pub fn change(&self, tuned: ReloadableSettings) {
        self.0.store(Arc::new(tuned));
    }
}
