//! The settings of `[worker]` that can change while the worker runs.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use evenkeel_model::settings::{Backoff, PollInterval, WorkerSettings};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReloadableSettings {
    pub poll: PollInterval,
    pub retry_delay: Backoff,
    pub give_up_after: Duration,
    pub max_dequeue_count: u32,
}

/// Shared by all readers, which must not cache the values.
#[derive(Debug)]
pub struct Tuning(ArcSwap<ReloadableSettings>);

impl ReloadableSettings {
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

    pub fn now(&self) -> ReloadableSettings {
        **self.0.load()
    }

    pub fn change(&self, tuned: ReloadableSettings) {
        self.0.store(Arc::new(tuned));
    }
}
