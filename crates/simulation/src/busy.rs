//! How long a worker may leave a queue alone that has answered "busy": leases that end meanwhile may be lost, and no others.

use std::collections::BTreeMap;
use std::time::Duration;

/// The shortest time for which a busy queue is left alone, jitter included; each answer "busy" after the first doubles it.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest.
const LONGEST: Duration = Duration::from_secs(20);
/// An answer so long after the one before it begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// Requests that were held back arrive within this time, one that asks whether the queue is free again among them.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// When queues answered "busy" to each worker.
#[derive(Debug, Default)]
pub(super) struct BusyQueues(BTreeMap<u32, Vec<Duration>>);

impl BusyQueues {
    /// A queue answers "busy".
    pub(super) fn answered(&mut self, caller: u32, now: Duration) {
        let answers = self.0.entry(caller).or_default();
        if answers.last().is_some_and(|last| now.saturating_sub(*last) > FORGOTTEN_AFTER) {
            answers.clear();
        }
        answers.push(now);
    }

    /// Whether a lease that ends now may have ended for that.
    pub(super) fn explain(&self, caller: u32, now: Duration) -> bool {
        self.0.get(&caller).is_some_and(|answers| {
            let times = u32::try_from(answers.len()).unwrap_or(u32::MAX).min(16);
            let alone = (SHORTEST * 2_u32.pow(times)).min(LONGEST);
            answers.last().is_some_and(|last| now <= *last + alone + AFTERWARDS)
        })
    }
}
