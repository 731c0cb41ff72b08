//! Measures the time from the write of a primary to the end of its job, while workers are busy.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_model::EntityKey;

/// First, the write time of each primary whose job has not ended. Second, for each of the other primaries, the time
/// from the write to the end of its job.
#[derive(Debug, Default)]
pub(super) struct Arrivals(Mutex<(BTreeMap<EntityKey, Duration>, Vec<Duration>)>);

impl Arrivals {
    pub(super) fn was_written(&self, key: EntityKey, now: Duration) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .0
            .insert(key, now);
    }

    pub(super) fn is_found(&self, key: &EntityKey, now: Duration) {
        let mut arrivals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(written) = arrivals.0.remove(key) {
            arrivals.1.push(now.saturating_sub(written));
        }
    }

    /// Returns a percentile over the middle half of the primaries. The first and the last quarter are left out, because
    /// workers start and stop then.
    pub(super) fn percentile(&self, of_a_hundred: usize) -> Option<Duration> {
        let found = &self.0.lock().unwrap_or_else(PoisonError::into_inner).1;
        let mut middle = found.get(found.len() / 4..found.len() * 3 / 4)?.to_vec();
        middle.sort_unstable();
        middle
            .get(
                (middle.len() * of_a_hundred)
                    .div_ceil(100)
                    .saturating_sub(1),
            )
            .copied()
    }
}
