//! Races between runs: the last write of each caller, and the deletion of each message. No run may report a lost race without a
//! rival, and none may begin a finished job.

use std::collections::BTreeMap;
use std::time::Duration;

use super::fault_plan::JOBS;
use super::ledger::{Expectation, Ledger};
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_storage::Service;

/// A worker begins a job at most so long after its message was deleted by another: the age of the word that it is its own, an answer under
/// way, and the turn.
const UNNOTICED: Duration = Duration::from_secs(3);
/// A fault holds up an answer for so long at most.
const HELD_UP: Duration = Duration::from_mins(2);

/// Writes, runs and deleted messages.
#[derive(Debug, Default)]
pub(super) struct Races {
    /// When each caller has changed anything last, late requests apart.
    changed: BTreeMap<u32, u64>,
    /// When a run of each worker began or ended last, and how many are under way.
    turned: BTreeMap<u32, (u64, usize)>,
    /// When each message of a job was deleted.
    done: BTreeMap<String, Duration>,
    /// When a fault struck last, or a late request arrived.
    pub(super) struck: u64,
    /// When a fault struck a request of each worker last.
    held_up: BTreeMap<u32, Duration>,
}

impl Races {
    /// Takes in the changes of one operation.
    pub(super) fn take_in(&mut self, execution: &Execution<'_>, tick: u64, now: Duration) {
        if execution.late {
            self.struck = tick;
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

    /// A fault strikes a request of a worker.
    pub(super) fn held_up(&mut self, caller: u32, now: Duration) {
        self.held_up.insert(caller, now);
    }

    /// A run begins.
    pub(super) fn begins(&mut self, caller: u32, tick: u64) {
        let (turned, active) = self.turned.entry(caller).or_default();
        (*turned, *active) = (tick, *active + 1);
    }

    /// A run has ended.
    pub(super) fn ends(&mut self, caller: u32, tick: u64) {
        let (turned, active) = self.turned.entry(caller).or_default();
        (*turned, *active) = (tick, active.saturating_sub(1));
    }

    /// Whether nobody but one run has written anything since it began, and nothing has gone wrong.
    pub(super) fn was_alone(&self, caller: u32, began: u64) -> bool {
        let others = self
            .changed
            .iter()
            .any(|(by, at)| *by != caller && *at >= began);
        let beside = self
            .turned
            .get(&caller)
            .is_some_and(|(at, active)| *at > began || *active > 1);
        !others && !beside && self.struck < began
    }

    /// Where a job acts once, its run does not begin when its message is gone for long: another delivery has done it. What a fault has
    /// held up may.
    pub(super) fn may_begin(
        &self,
        caller: u32,
        message: &str,
        now: Duration,
        ledger: &Ledger,
    ) -> Result<(), String> {
        let once =
            matches!(ledger.asked(message), Some(Expectation::Job(asked)) if asked.op != "sync");
        let Some(done) = self.done.get(message).filter(|_| once) else {
            return Ok(());
        };
        let ago = now.saturating_sub(*done);
        let held_up = self
            .held_up
            .get(&caller)
            .is_some_and(|at| now.saturating_sub(*at) <= ago + HELD_UP);
        if ago <= UNNOTICED || held_up {
            return Ok(());
        }
        Err(format!(
            "the job of the message {message} begins {ago:?} after another delivery had done it"
        ))
    }
}
