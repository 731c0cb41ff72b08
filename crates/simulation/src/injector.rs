//! The faults of one worker, from the start of the worker to its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::client::EMPLOYEES;
use super::cuts::CutChance;
use super::fault::FaultKind;
use super::fault_plan::{Draw, FaultPlan, FaultScope, OutageKind, seconds};
use super::hazards::{FIRST_ATTEMPT, REFUSALS};
use super::history::is_primary;
use super::hosts::HostTrouble;
use super::shared_state::{GET_MESSAGES, SharedState, WORKERS, about};
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo};
use evenkeel_model::EntityKey;
use evenkeel_storage::{ErrorClass, Resource, Rng as _, Service};

/// The service accepts a request for this many seconds after it was signed (Azure: Shared Key).
const OLDEST_REQUEST: f64 = 15.0 * 60.0;
const TIMEOUT: Duration = Duration::from_secs(30);
const SLOWEST: f64 = 90.0;
/// Share of the requests that a gateway answers with 503 during its period.
const GATEWAY_SHARE: f64 = 0.5;
const TOO_LATE: FaultDecision = FaultDecision::AnswerLate {
    answers: Duration::from_mins(1),
    timeout: TIMEOUT,
};

pub(super) struct FaultInjector {
    shared_state: Arc<SharedState>,
    fault_plan: Arc<FaultPlan>,
    caller: u32,
    rng: CutChance,
    life: Arc<WorkerLife>,
    wait_until: Mutex<BTreeMap<FaultScope, Duration>>,
    /// Operation and resource of the requests whose last attempt failed. The next equal request is most likely another
    /// attempt.
    failed: Mutex<BTreeSet<(&'static str, String)>>,
    /// Employees whose delete request was lost, and who were then changed. The next attempt to delete them is not lost.
    changed: Mutex<BTreeSet<EntityKey>>,
    refuses: bool,
}

#[derive(Default)]
struct WorkerLife {
    dead: AtomicBool,
    crashed: Notify,
}

impl FaultInjector {
    pub(super) fn new(
        shared_state: Arc<SharedState>,
        fault_plan: Arc<FaultPlan>,
        caller: u32,
        rng: CutChance,
    ) -> Self {
        Self::over(shared_state, fault_plan, caller, rng, Arc::default())
    }

    /// The faults of the same worker in another account.
    pub(super) fn beside(&self, fault_plan: Arc<FaultPlan>, rng: CutChance) -> Self {
        Self::over(
            Arc::clone(&self.shared_state),
            fault_plan,
            self.caller,
            rng,
            Arc::clone(&self.life),
        )
    }

    fn over(
        shared_state: Arc<SharedState>,
        fault_plan: Arc<FaultPlan>,
        caller: u32,
        rng: CutChance,
        life: Arc<WorkerLife>,
    ) -> Self {
        let refuses = REFUSALS
            .iter()
            .any(|(fault, _)| fault_plan.ever_has(*fault));
        Self {
            shared_state,
            fault_plan,
            caller,
            rng,
            life,
            wait_until: Mutex::default(),
            failed: Mutex::default(),
            changed: Mutex::default(),
            refuses,
        }
    }

    pub(super) async fn crashed(&self) {
        self.life.crashed.notified().await;
    }

    fn rate(&self, fault: FaultKind) -> f64 {
        self.fault_plan.rate(fault, self.shared_state.elapsed())
    }

    fn injects(&self, fault: FaultKind, operation: &OperationInfo) -> bool {
        self.injects_at_rate(self.rate(fault), fault, operation)
    }

    fn injects_at_rate(&self, rate: f64, fault: FaultKind, operation: &OperationInfo) -> bool {
        let injects = rate > 0.0 && self.rng.unit() < rate && self.shared_state.inject(fault);
        if injects {
            self.shared_state
                .record_fault(fault, self.caller, operation);
        }
        injects
    }

    /// Returns the fault to inject if the service, the partition or the queue refuses every request at present.
    fn refused(&self, operation: &OperationInfo) -> Option<FaultDecision> {
        let now = self.shared_state.elapsed();
        let service = operation.what.service();
        let away = self
            .fault_plan
            .away
            .iter()
            .map(|outage| (FaultKind::Away, outage));
        let mut outages = away.chain(
            self.fault_plan
                .outages
                .iter()
                .map(|outage| (FaultKind::Outage, outage)),
        );
        let outage = outages.find(|(_, outage)| {
            outage.during.contains(&now) && outage.service.is_none_or(|s| s == service)
        });
        if let Some((kind, outage)) = outage {
            let fault = if matches!(outage.refusal, OutageKind::Reset | OutageKind::Deaf) {
                FaultKind::DeafOutage
            } else {
                kind
            };
            if self.shared_state.inject(fault) {
                self.shared_state
                    .record_fault(fault, self.caller, operation);
                return Some(outage.refusal.verdict());
            }
        }
        if let Some(verdict) = self.lost_poll(operation, now) {
            return Some(verdict);
        }
        let burst =
            self.fault_plan.bursts.iter().find(|burst| {
                burst.during.contains(&now) && burst.scope.carries(&operation.what)
            })?;
        let fault = if burst.retry_after.is_some() {
            FaultKind::RetryAfter
        } else {
            FaultKind::Throttling
        };
        let injects = self.shared_state.inject(fault);
        if injects {
            self.shared_state
                .record_fault(fault, self.caller, operation);
        }
        if injects && let Some(wait) = burst.retry_after {
            self.wait_until
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(burst.scope, now + wait);
            if operation.what.service() == Service::Queue {
                self.shared_state.asked_to_wait(self.caller, wait);
            }
        }
        injects.then_some(FaultDecision::Fail(ErrorClass::Throttled {
            retry_after: burst.retry_after,
        }))
    }

    fn at_this_host(&self, operation: &OperationInfo) -> Option<FaultDecision> {
        let slot = usize::try_from(self.caller.checked_sub(WORKERS)?).ok()?;
        let now = self.shared_state.elapsed();
        let spells = self
            .fault_plan
            .hosts
            .iter()
            .filter(|spell| spell.slot == slot && spell.during.contains(&now));
        spells
            .map(|spell| &spell.trouble)
            .find_map(|trouble| match trouble {
                HostTrouble::Cut(scope, refusal) => (scope.carries(&operation.what)
                    && self.injects_at_rate(1.0, FaultKind::HostCut, operation))
                .then(|| refusal.verdict()),
                HostTrouble::Slow(_) if operation.what.service() == Service::Queue => None,
                HostTrouble::Slow(takes) => self
                    .injects_at_rate(1.0, FaultKind::HostSlow, operation)
                    .then(|| {
                        let draw = Draw(&self.rng);
                        let takes = seconds(draw.magnitude(takes.start, takes.end));
                        if draw.happens(0.5) {
                            FaultDecision::Delayed {
                                arrives: takes,
                                timeout: TIMEOUT,
                            }
                        } else {
                            FaultDecision::AnswerLate {
                                answers: takes,
                                timeout: TIMEOUT,
                            }
                        }
                    }),
            })
    }

    /// Returns a fault in two kinds of periods: answers of Get Messages are lost, or a gateway answers with 503.
    fn lost_poll(&self, operation: &OperationInfo, now: Duration) -> Option<FaultDecision> {
        let hazards = &self.fault_plan.hazards;
        let lost_polls = hazards
            .lost_polls
            .iter()
            .find(|lost_polls| operation.name == GET_MESSAGES && lost_polls.during.contains(&now));
        if let Some(lost_polls) = lost_polls
            && self.injects_at_rate(1.0, FaultKind::PollAnswerLost, operation)
        {
            return Some(if lost_polls.slow {
                TOO_LATE
            } else {
                FaultDecision::LoseAnswer
            });
        }
        let gateway = hazards.gateways.iter().any(|during| during.contains(&now));
        // A 503 of a gateway leaves the outcome of a write unknown. For a read, it has the same effect as a 503 of the
        // service.
        let verdict = if operation.writes {
            FaultDecision::LoseAnswer
        } else {
            FaultDecision::Fail(ErrorClass::Throttled { retry_after: None })
        };
        (gateway && self.injects_at_rate(GATEWAY_SHARE, FaultKind::Gateway, operation))
            .then_some(verdict)
    }

    /// Returns a refusal of this request, such as 403 or 413. `repeated` means that the previous attempt failed.
    fn refusal(&self, operation: &OperationInfo, repeated: bool) -> Option<FaultDecision> {
        let refusal = REFUSALS.into_iter().find(|(fault, _)| {
            let rate = self.rate(*fault) * if repeated { 1.0 } else { FIRST_ATTEMPT };
            (operation.writes || *fault != FaultKind::TooLarge)
                && self.injects_at_rate(rate, *fault, operation)
        });
        refusal.map(|(_, class)| FaultDecision::Fail(class))
    }

    fn refused_row(&self, operation: &OperationInfo) -> Option<FaultDecision> {
        let row =
            self.fault_plan.hazards.refused_row.as_ref().filter(|row| {
                operation.writes && row.during.contains(&self.shared_state.elapsed())
            })?;
        let index = match &operation.what {
            Resource::Entity(table, key) if row.is(table, key) => None,
            Resource::Partition(table, _) => {
                Some(operation.rows.iter().position(|key| row.is(table, key))?)
            }
            _ => return None,
        };
        self.injects_at_rate(1.0, FaultKind::RefusedRow, operation)
            .then_some(FaultDecision::RefuseRow(ErrorClass::Permanent, index))
    }

    /// Loses the answer of a request that may delete an employee. If the request deletes the employee, the client
    /// recreates the employee.
    fn recreated(&self, operation: &OperationInfo) -> Option<FaultDecision> {
        let may_delete = match &operation.what {
            Resource::Entity(table, _) => {
                operation.name == "Delete Entity" && table.as_str() == EMPLOYEES
            }
            Resource::Partition(table, _) => operation.writes && table.as_str() == EMPLOYEES,
            _ => false,
        };
        let rate = self.rate(FaultKind::Recreated);
        let may_recreate =
            may_delete && rate > 0.0 && self.shared_state.is_allowed(FaultKind::Recreated);
        if !may_recreate || !self.injects_at_rate(rate, FaultKind::AnswerLost, operation) {
            return None;
        }
        self.shared_state
            .recreate_what_is_deleted_by(operation.number);
        Some(FaultDecision::LoseAnswer)
    }

    fn changed(&self, operation: &OperationInfo) -> Option<FaultDecision> {
        let Resource::Entity(table, key) = &operation.what else {
            return None;
        };
        let rate = self.rate(FaultKind::Changed);
        let deletes =
            operation.name == "Delete Entity" && table.as_str() == EMPLOYEES && is_primary(key);
        if !deletes || rate <= 0.0 || !self.shared_state.is_allowed(FaultKind::Changed) {
            return None;
        }
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.remove(key) || !self.injects_at_rate(rate, FaultKind::RequestLost, operation) {
            return None;
        }
        changed.insert(key.clone());
        drop(changed);
        self.shared_state
            .queue_client_change(FaultKind::Changed, key);
        Some(FaultDecision::Fail(ErrorClass::Ambiguous))
    }

    /// Checks that a worker that was asked to wait sends nothing before the wait is over.
    fn was_asked_to_wait(&self, operation: &OperationInfo) {
        let now = self.shared_state.elapsed();
        let wait_until = self
            .wait_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some((_, until)) = wait_until
            .iter()
            .find(|(scope, until)| **until > now && scope.carries(&operation.what))
        {
            self.shared_state.violated(format!(
                "{} was sent {:?} before the end of the store's Retry-After",
                operation.name,
                until.saturating_sub(now)
            ));
        }
    }

    fn random_fault(&self, operation: &OperationInfo) -> Option<FaultDecision> {
        let draw = Draw(&self.rng);
        let later = || {
            if self.fault_plan.latest && draw.happens(0.5) {
                seconds(draw.0.between(0.7 * OLDEST_REQUEST, OLDEST_REQUEST))
            } else {
                seconds(draw.magnitude(0.05, OLDEST_REQUEST))
            }
        };
        if let (Some((slow, rate)), Resource::Entity(table, _)) =
            (self.fault_plan.slow, &operation.what)
            && table.as_str() == slow
            && self.injects_at_rate(rate, FaultKind::SlowRequest, operation)
        {
            return Some(FaultDecision::Delayed {
                arrives: seconds(draw.magnitude(1.0, TIMEOUT.as_secs_f64())),
                timeout: TIMEOUT,
            });
        }
        if let (Some((slow, rate)), Resource::Entity(table, _)) =
            (self.fault_plan.slow_answers, &operation.what)
            && table.as_str() == slow
            && self.injects_at_rate(rate, FaultKind::SlowAnswer, operation)
        {
            return Some(FaultDecision::AnswerLate {
                answers: seconds(draw.0.between(1.0, 15.0)),
                timeout: TIMEOUT,
            });
        }
        if operation.name == GET_MESSAGES
            && self.injects_at_rate(self.fault_plan.slow_gets, FaultKind::SlowRequest, operation)
        {
            return Some(FaultDecision::Delayed {
                arrives: seconds(draw.0.between(1.0, TIMEOUT.as_secs_f64())),
                timeout: TIMEOUT,
            });
        }
        if self.injects(FaultKind::ErrorBefore, operation) {
            let retry_after = draw
                .happens(0.3)
                .then(|| seconds(draw.magnitude(1.0, 20.0).round()));
            let class = *draw.of(&[
                ErrorClass::Refused,
                ErrorClass::Transient { retry_after: None },
                ErrorClass::Throttled { retry_after },
            ]);
            if let (
                ErrorClass::Throttled {
                    retry_after: Some(wait),
                },
                Service::Queue,
            ) = (class, operation.what.service())
            {
                self.shared_state.asked_to_wait(self.caller, wait);
            }
            return Some(FaultDecision::Fail(class));
        }
        if self.injects(FaultKind::RequestLost, operation) {
            return Some(FaultDecision::Fail(ErrorClass::Ambiguous));
        }
        if self.injects(FaultKind::AnswerLost, operation) {
            return Some(FaultDecision::LoseAnswer);
        }
        if operation.writes && self.injects(FaultKind::LateArrival, operation) {
            let timeout = if draw.happens(0.5) {
                Duration::ZERO
            } else {
                TIMEOUT
            };
            return Some(FaultDecision::Delayed {
                arrives: timeout + later(),
                timeout,
            });
        }
        if self.injects(FaultKind::SlowRequest, operation) {
            return Some(FaultDecision::Delayed {
                arrives: seconds(draw.magnitude(1.0, SLOWEST)),
                timeout: TIMEOUT,
            });
        }
        if self.injects(FaultKind::SlowAnswer, operation) {
            return Some(FaultDecision::AnswerLate {
                answers: seconds(draw.magnitude(1.0, SLOWEST)),
                timeout: TIMEOUT,
            });
        }
        if self.injects(FaultKind::CrashAfter, operation) {
            self.die();
            return Some(FaultDecision::NeverAnswer);
        }
        if operation.writes && self.injects(FaultKind::CrashInFlight, operation) {
            self.die();
            let arrives = later();
            return Some(FaultDecision::Delayed {
                arrives,
                timeout: arrives,
            });
        }
        None
    }

    fn die(&self) {
        self.life.dead.store(true, Ordering::Relaxed);
        self.life.crashed.notify_one();
    }

    async fn unless_dead(&self) {
        if self.life.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl FaultPolicy for FaultInjector {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        self.unless_dead().await;
        self.was_asked_to_wait(operation);
        self.shared_state.sends(self.caller, operation);
        sleep(seconds(self.rng.between(
            self.fault_plan.latency.start,
            self.fault_plan.latency.end,
        )))
        .await;
        self.unless_dead().await;
        if self.shared_state.is_calm() {
            return FaultDecision::Execute;
        }
        if self.injects(FaultKind::CrashBefore, operation) {
            self.die();
            std::future::pending::<()>().await;
        }
        let request = self.refuses.then(|| (operation.name, about(operation)));
        let failed = || self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let repeated = request
            .as_ref()
            .is_some_and(|request| failed().remove(request));
        let verdict = self
            .refused(operation)
            .or_else(|| self.at_this_host(operation))
            .or_else(|| self.refusal(operation, repeated));
        let verdict = verdict
            .or_else(|| self.refused_row(operation))
            .or_else(|| self.recreated(operation))
            .or_else(|| self.changed(operation));
        let verdict = verdict.or_else(|| self.random_fault(operation));
        if verdict.is_some() {
            failed().extend(request);
        }
        verdict.unwrap_or(FaultDecision::Execute)
    }

    fn page(&self, _what: &Resource) -> Option<usize> {
        let rate = self.rate(FaultKind::ShortPage);
        let short =
            rate > 0.0 && self.rng.unit() < rate && self.shared_state.inject(FaultKind::ShortPage);
        short.then(|| Draw(&self.rng).below(3))
    }
}

impl OutageKind {
    const fn verdict(self) -> FaultDecision {
        match self {
            Self::Refused => FaultDecision::Fail(ErrorClass::Refused),
            Self::Failing => FaultDecision::Fail(ErrorClass::Transient { retry_after: None }),
            Self::Busy => FaultDecision::Fail(ErrorClass::Throttled { retry_after: None }),
            Self::Silent => FaultDecision::Fail(ErrorClass::Ambiguous),
            Self::Reset => FaultDecision::LoseAnswer,
            Self::Deaf => TOO_LATE,
        }
    }
}

/// Delays each operation a little, and injects no faults.
pub(super) struct FaultlessDelays(pub(super) CutChance);

#[async_trait]
impl FaultPolicy for FaultlessDelays {
    async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
        sleep(seconds(self.0.between(0.001, 0.01))).await;
        FaultDecision::Execute
    }
}

impl FaultScope {
    fn carries(&self, what: &Resource) -> bool {
        match (self, what) {
            (Self::Partition(table, pk), Resource::Partition(other, key)) => {
                other.as_str() == *table && key.as_str() == *pk
            }
            (Self::Partition(table, pk), Resource::Entity(other, key)) => {
                other.as_str() == *table && key.pk.as_str() == *pk
            }
            (Self::Queue(name), Resource::Queue(queue) | Resource::Message(queue, _)) => {
                queue.as_str() == *name
            }
            _ => false,
        }
    }
}
