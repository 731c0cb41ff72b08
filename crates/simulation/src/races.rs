//! Races between runs. Records the last write of each caller, and the deletion of each message. A run must not report a
//! lost race if it has no rival, and must not begin a job that is done.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fault_plan::JOBS;
use super::ledger::{Expectation, Ledger};
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_storage::Service;

/// A worker that has not noticed the deletion of a message may still start the message's job. Maximum time from the
/// deletion to this start. It covers the age of the last confirmation of the pop receipt, an answer in flight, and the
/// wait in the worker's queue.
const UNNOTICED: Duration = Duration::from_secs(3);
/// Maximum time by which a fault delays an answer.
const LONGEST_DELAY: Duration = Duration::from_mins(2);

#[derive(Debug, Default)]
pub(super) struct Races {
    /// Tick of each caller's last change outside the queues. Late requests do not count.
    changed: BTreeMap<u32, u64>,
    /// For each worker, the tick at which a run last began or ended, and the number of active runs.
    turned: BTreeMap<u32, (u64, usize)>,
    done: BTreeMap<String, Duration>,
    /// Tick of the last fault or late request.
    pub(super) last_fault: u64,
    delayed: BTreeMap<u32, Duration>,
}

impl Races {
    pub(super) fn record_changes(&mut self, execution: &Execution<'_>, tick: u64, now: Duration) {
        if execution.late {
            self.last_fault = tick;
        } else if !execution.changes.is_empty()
            && execution.operation.what.service() != Service::Queue
        {
            self.changed.insert(execution.caller, tick);
        }
        for change in execution.changes {
            if let ObservedChange::Deleted { queue, id } = change
                && queue.as_str() == JOBS
            {
                self.done.insert(id.clone(), now);
            }
        }
    }

    pub(super) fn delayed(&mut self, caller: u32, now: Duration) {
        self.delayed.insert(caller, now);
    }

    pub(super) fn begins(&mut self, caller: u32, tick: u64) {
        let (turned, active) = self.turned.entry(caller).or_default();
        (*turned, *active) = (tick, *active + 1);
    }

    pub(super) fn ends(&mut self, caller: u32, tick: u64) {
        let (turned, active) = self.turned.entry(caller).or_default();
        (*turned, *active) = (tick, active.saturating_sub(1));
    }

    /// Whether no other caller has written, no other run of this worker was active, and no fault occurred since this
    /// run began.
    pub(super) fn was_alone(&self, caller: u32, began: u64) -> bool {
        let others = self
            .changed
            .iter()
            .any(|(by, at)| *by != caller && *at >= began);
        let beside = self
            .turned
            .get(&caller)
            .is_some_and(|(at, active)| *at > began || *active > 1);
        !others && !beside && self.last_fault < began
    }

    /// Checks that a run does not begin long after its message was deleted, because another delivery has done the job.
    /// Syncs may be repeated, so they are exempt. Workers that a fault has delayed are exempt, too.
    pub(super) fn may_begin(
        &self,
        caller: u32,
        message: &str,
        now: Duration,
        ledger: &Ledger,
    ) -> Result<(), String> {
        let once = matches!(ledger.expectation_of(message), Some(Expectation::Job(asked)) if asked.op != "sync");
        let Some(done) = self.done.get(message).filter(|_| once) else {
            return Ok(());
        };
        let ago = now.saturating_sub(*done);
        let delayed = self
            .delayed
            .get(&caller)
            .is_some_and(|at| now.saturating_sub(*at) <= ago + LONGEST_DELAY);
        if ago <= UNNOTICED || delayed {
            return Ok(());
        }
        Err(format!(
            "the job of message {message} begins {ago:?} after another delivery finished it"
        ))
    }
}
