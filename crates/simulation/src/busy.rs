//! How long a worker stops calling a queue that has answered "busy". Meanwhile the worker cannot renew leases, so a
//! lost lease is not a violation.

use std::collections::BTreeMap;
use std::time::Duration;

/// Half of the maximum first pause. Jitter is included. Each further answer "busy" doubles the pause.
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(20);
/// If the queue has not answered "busy" for this long, the next pause is again the shortest.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
const AFTERWARDS: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct BusyQueues(BTreeMap<u32, Vec<Duration>>);

impl BusyQueues {
    pub(super) fn answered(&mut self, caller: u32, now: Duration) {
        let answers = self.0.entry(caller).or_default();
        if answers
            .last()
            .is_some_and(|last| now.saturating_sub(*last) > FORGOTTEN_AFTER)
        {
            answers.clear();
        }
        answers.push(now);
    }

    pub(super) fn explain(&self, caller: u32, now: Duration) -> bool {
        self.0.get(&caller).is_some_and(|answers| {
            let times = u32::try_from(answers.len()).unwrap_or(u32::MAX).min(16);
            let alone = (SHORTEST * 2_u32.pow(times)).min(LONGEST);
            answers
                .last()
                .is_some_and(|last| now <= *last + alone + AFTERWARDS)
        })
    }
}
