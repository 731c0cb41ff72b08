//! The hold of a busy queue, as the judge allows it: leases may be lost for its time, and no longer.

use std::collections::BTreeMap;
use std::time::Duration;

/// Half of the first hold, jitter included; each answer "busy" doubles it.
const SHORTEST: Duration = Duration::from_millis(200);
/// The longest hold.
const LONGEST: Duration = Duration::from_secs(20);
/// After such a pause holds begin anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// Time for the probe and the withheld requests after a hold.
const AFTERWARDS: Duration = Duration::from_secs(5);

/// Answers "busy", by worker.
#[derive(Debug, Default)]
pub(super) struct BusyQueues(BTreeMap<u32, Vec<Duration>>);

impl BusyQueues {
    /// A queue answers "busy".
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

    /// Whether a hold explains a lease's end at this time.
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
