//! The layers that apply rates, crowds and holds.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use super::crowd::{AccessKind, Crowds};
use super::holds::{PaceAdmission, ProbeTime, ThrottleHolds, Verdict};
use super::rates::{PacedScope, Rates, Scopes};
use crate::layer::{Evidence, Layer, Op, Request, Target, ThrottleScope};
use evenkeel_model::AccountName;
use evenkeel_model::settings::PaceCeilings;
use evenkeel_storage::{Clock, ErrorClass, Rng, Service, StoreError, Withheld};
use evenkeel_telemetry::job_trace::{self, JobMark, Urgency};

/// Error code of a request that was not sent because its scope is held.
pub const SCOPE_HELD: &str = "ScopeHeld";

pub struct Pace {
    account: AccountName,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    holds: Mutex<ThrottleHolds>,
    /// `None` if the account has no ceilings.
    rates: Option<Mutex<(Rates, Crowds)>>,
}

impl Pace {
    pub fn new(
        account: &AccountName,
        ceilings: Option<PaceCeilings>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
    ) -> Self {
        let rates = ceilings.map(|ceilings| {
            Mutex::new((Rates::new(ceilings, clock.monotonic()), Crowds::default()))
        });
        Self {
            account: account.clone(),
            clock,
            rng,
            holds: Mutex::default(),
            rates,
        }
    }

    /// The scopes held now and their remaining times, longest first.
    pub fn holds(&self) -> Vec<(ThrottleScope, Duration)> {
        let mut holds = self.locked().held(self.clock.monotonic());
        holds.sort_by_key(|(_, remaining)| std::cmp::Reverse(*remaining));
        holds
    }

    /// The scopes that requests have recently waited for, slowest first.
    pub fn paced(&self) -> Vec<PacedScope> {
        self.with_rates(|(rates, _), now| rates.paced(now))
            .unwrap_or_default()
    }

    /// Current request rate limit of the account, per second; `None` if it is not paced.
    pub fn account_rate(&self) -> Option<f64> {
        self.with_rates(|(rates, _), _| rates.account())
    }

    fn with_rates<T>(&self, see: impl FnOnce(&mut (Rates, Crowds), Duration) -> T) -> Option<T> {
        let rates = self.rates.as_ref()?;
        // The state consists of numbers only, so a panic cannot leave it inconsistent.
        Some(see(
            &mut rates.lock().unwrap_or_else(PoisonError::into_inner),
            self.clock.monotonic(),
        ))
    }

    fn held(&self, request: &Request<'_>, remaining: Duration) -> StoreError {
        let class = ErrorClass::Throttled {
            retry_after: Some(remaining),
        };
        let message = format!(
            "not sent: the service throttles; requests are paused for another {} ms",
            remaining.as_millis()
        );
        StoreError::new(
            class,
            request.op.operation(),
            request.target.subject(&self.account),
            message,
        )
        .not_sent(Withheld::Paused, SCOPE_HELD)
    }

    fn remaining(&self, target: &Target<'_>) -> Option<Duration> {
        let holds = self.locked();
        if holds.is_empty() {
            None
        } else {
            holds.remaining(&target.scope(), self.clock.monotonic())
        }
    }

    fn locked(&self) -> MutexGuard<'_, ThrottleHolds> {
        // Each scope changes by one assignment, so a panic cannot leave it inconsistent.
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn settle(&self, scope: ThrottleScope, probe: Option<ProbeTime>, verdict: Verdict) {
        self.locked().settle(
            scope,
            probe,
            verdict,
            self.clock.monotonic(),
            self.rng.unit(),
        );
    }
}

impl Layer for Pace {
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        let booked = request.entities.max(1);
        // A request that is withheld does not use up the rate, and its wait does not make the rate grow.
        if let Some(remaining) = self.remaining(&request.target) {
            return Err(self.held(&request, remaining));
        }
        if let Some(wait) =
            self.with_rates(|(rates, _), now| rates.admit(&request.target, booked, now))
        {
            pause(wait).await;
        }
        // Usually nothing is held, and then the key need not be copied.
        let admission = {
            let mut holds = self.locked();
            if holds.is_empty() {
                PaceAdmission::Free
            } else {
                holds.admit(&request.target.scope(), self.clock.monotonic())
            }
        };
        let probe = match admission {
            PaceAdmission::Free => None,
            PaceAdmission::Probe(sent) => Some(Probe {
                pace: self,
                sent,
                scope: Some(request.target.scope()),
            }),
            PaceAdmission::Held(remaining) => return Err(self.held(&request, remaining)),
        };
        let sent = self.clock.monotonic();
        let result = send().await;
        let error = request.error(&result);
        let verdict = match Evidence::of(error) {
            Evidence::Answered => Verdict::Answered,
            Evidence::Throttled => {
                Verdict::Throttled(error.and_then(|error| error.class.retry_after()))
            }
            Evidence::Refused | Evidence::Failed => Verdict::Unknown,
            // The scope was not reached, so its state stays as it is.
            Evidence::None => return result,
        };
        self.with_rates(|(rates, _), now| match verdict {
            Verdict::Answered => rates.answered(
                &request.target,
                request.weight() - booked,
                now.saturating_sub(sent),
                now,
            ),
            Verdict::Throttled(_) => rates.refused(&request.target, now),
            Verdict::Unknown => {}
        });
        match (probe, verdict) {
            (Some(probe), verdict) => probe.settle(verdict),
            (None, Verdict::Throttled(_)) => self.settle(request.target.scope(), None, verdict),
            (None, Verdict::Answered | Verdict::Unknown) => {}
        }
        result
    }
}

/// The layer above `group`, where the job of a request is known: live work goes first, and an overloaded partition delays new jobs.
pub struct PaceEntrance(Arc<Pace>);

impl PaceEntrance {
    pub const fn new(pace: Arc<Pace>) -> Self {
        Self(pace)
    }
}

impl Layer for PaceEntrance {
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        let pace = self.0.as_ref();
        let (target, entities, job) = (&request.target, request.entities.max(1), job_trace::job());
        if let Some(JobMark {
            urgency: Urgency::Background,
            ..
        }) = job
        {
            let wait = pace.with_rates(|(rates, _), now| rates.wait_behind(target, entities, now));
            pause(wait.unwrap_or_default()).await;
            return send().await;
        }
        let scopes = Scopes::of(target);
        let is_table = request.op.service() == Service::Table;
        let kind = if matches!(request.op, Op::GetEntity | Op::QueryEntities) {
            AccessKind::Read
        } else {
            AccessKind::Write
        };
        let entered = pace.with_rates(|(rates, crowds), now| {
            rates.note_live(target, entities, now);
            match (job, scopes.own.filter(|_| is_table)) {
                (Some(job), Some(own)) => crowds
                    .enter(
                        own,
                        job.number,
                        (kind, entities),
                        rates.expected(scopes),
                        now,
                    )
                    .map(|()| Some((own, job.number))),
                // A command has no message that could be delayed, so it waits in place.
                (None, _) | (_, None) => Ok(None),
            }
        });
        let _inside = match entered {
            Some(Err(away)) => return Err(pace.held(&request, away)),
            Some(Ok(Some((own, job)))) => Some(CrowdGuard {
                pace,
                own,
                job,
                entities,
            }),
            Some(Ok(None)) | None => None,
        };
        send().await
    }
}

/// Skips a zero wait, because a timer takes at least a millisecond.
async fn pause(wait: Duration) {
    if !wait.is_zero() {
        sleep(wait).await;
    }
}

struct CrowdGuard<'a> {
    pace: &'a Pace,
    own: u64,
    job: u64,
    entities: usize,
}

impl Drop for CrowdGuard<'_> {
    fn drop(&mut self) {
        self.pace
            .with_rates(|(_, crowds), now| crowds.leave(self.own, self.job, self.entities, now));
    }
}

/// The one request that may test whether a held scope is free again. If it is dropped before it is settled, another request may
/// become the probe.
struct Probe<'a> {
    pace: &'a Pace,
    sent: ProbeTime,
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
