//! The layer that asks the scopes before it sends.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::holds::{PaceAdmission, Sent, ThrottleHolds, Verdict};
use crate::adapters::layer::{Evidence, Layer, Request, ThrottleScope};
use crate::model::AccountName;
use crate::ports::{Chance, Clock, ErrorClass, StoreError, Withheld};

/// The `code` of the error of a request that was not sent because its scope is held.
pub const LANE_HELD: &str = "LaneHeld";

/// Paces the requests to one account.
pub struct Pace {
    account: AccountName,
    clock: Arc<dyn Clock>,
    chance: Arc<dyn Chance>,
    holds: Mutex<ThrottleHolds>,
}

impl Pace {
    /// Paces the requests to one account. Nothing is held at first.
    pub fn new(account: &AccountName, clock: Arc<dyn Clock>, chance: Arc<dyn Chance>) -> Self {
        Self { account: account.clone(), clock, chance, holds: Mutex::default() }
    }

    /// The scopes that are held now, and for how long still: those that are held longest first.
    pub fn holds(&self) -> Vec<(ThrottleScope, Duration)> {
        let mut holds = self.locked().held(self.clock.monotonic());
        holds.sort_by_key(|(_, remaining)| std::cmp::Reverse(*remaining));
        holds
    }

    fn locked(&self) -> MutexGuard<'_, ThrottleHolds> {
        // Every change of a scope is one assignment, so a panic leaves nothing half done.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, scope: ThrottleScope, probe: Option<Sent>, verdict: Verdict) {
        self.locked().settle(scope, probe, verdict, self.clock.monotonic(), self.chance.unit());
    }
}

impl Layer for Pace {
    async fn call<T: Send>(&self, request: Request<'_>, send: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
        // While nothing is held, which is nearly always, a request costs one look and no copy of its key.
        let admission = {
            let mut holds = self.locked();
            if holds.is_empty() { PaceAdmission::Free } else { holds.admit(&request.target.scope(), self.clock.monotonic()) }
        };
        let probe = match admission {
            PaceAdmission::Free => None,
            PaceAdmission::Probe(sent) => Some(Probe { pace: self, sent, scope: Some(request.target.scope()) }),
            PaceAdmission::Held(remaining) => {
                let class = ErrorClass::Throttled { retry_after: Some(remaining) };
                let message = format!("not sent: throttled, and left alone for {} ms more", remaining.as_millis());
                let error = StoreError::new(class, request.op.operation(), request.target.subject(&self.account), message);
                return Err(error.not_sent(Withheld::Held, LANE_HELD));
            }
        };
        let result = send.await;
        let verdict = match Evidence::of(&result) {
            Evidence::Answered => Verdict::Answered,
            Evidence::Throttled => Verdict::Throttled(result.as_ref().err().and_then(|error| error.class.retry_after())),
            Evidence::Refused | Evidence::Failed => Verdict::Unknown,
            // The scope was not asked: its state stays as it is.
            Evidence::None => return result,
        };
        match (probe, verdict) {
            (Some(probe), verdict) => probe.settle(verdict),
            (None, Verdict::Throttled(_)) => self.settle(request.target.scope(), None, verdict),
            (None, Verdict::Answered | Verdict::Unknown) => {}
        }
        result
    }
}

/// The one request that may ask whether a held scope is free again. Dropped unsettled, it makes place for
/// another.
struct Probe<'a> {
    pace: &'a Pace,
    sent: Sent,
    scope: Option<ThrottleScope>,
}

impl Probe<'_> {
    fn settle(mut self, verdict: Verdict) {
        if let Some(scope) = self.scope.take() {
            self.pace.settle(scope, Some(self.sent), verdict);
        }
    }
}

impl Drop for Probe<'_> {
    fn drop(&mut self) {
        if let Some(scope) = self.scope.take() {
            self.pace.locked().abandon(&scope, self.sent);
        }
    }
}
