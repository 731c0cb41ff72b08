//! The weather that one worker lives in, from its start to its end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::climate::{Climate, Draw, Lane, Refusal, seconds};
use super::fault::Fault;
use super::stage::Stage;
use crate::adapters::sim::{OperationInfo, Verdict, Weather};
use crate::adapters::system::SeededChance;
use crate::ports::{Chance as _, ErrorClass, Service, What};

/// The service accepts a request for so long after it was signed (Azure: Shared Key).
const OLDEST_REQUEST: f64 = 15.0 * 60.0;
/// How long a caller waits for an answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest a slow request or answer takes.
const SLOWEST: f64 = 90.0;

/// The weather of one worker, from its start to its end.
pub(super) struct Sky {
    stage: Arc<Stage>,
    climate: Arc<Climate>,
    caller: u32,
    chance: SeededChance,
    dead: AtomicBool,
    crashed: Notify,
    /// Until when a lane has asked this worker to wait.
    asked: Mutex<BTreeMap<Lane, Duration>>,
}

impl Sky {
    pub(super) fn new(stage: Arc<Stage>, climate: Arc<Climate>, caller: u32, chance: SeededChance) -> Self {
        Self { stage, climate, caller, chance, dead: AtomicBool::new(false), crashed: Notify::new(), asked: Mutex::default() }
    }

    /// Waits until the worker crashes.
    pub(super) async fn crashed(&self) {
        self.crashed.notified().await;
    }

    /// Whether this fault strikes this operation.
    fn strikes(&self, fault: Fault, operation: &OperationInfo) -> bool {
        let rate = self.climate.rates[fault as usize];
        let strikes = rate > 0.0 && self.chance.unit() < rate && self.stage.strike(fault);
        if strikes {
            self.stage.struck(fault, self.caller, operation);
        }
        strikes
    }

    /// What the service as a whole, or the partition, does to every request now.
    fn refused(&self, operation: &OperationInfo) -> Option<Verdict> {
        let now = self.stage.elapsed();
        let service = operation.what.service();
        let outage = self.climate.outages.iter().find(|outage| outage.during.contains(&now) && outage.service.is_none_or(|s| s == service));
        if let Some(outage) = outage
            && self.stage.strike(Fault::Outage)
        {
            self.stage.struck(Fault::Outage, self.caller, operation);
            return Some(Verdict::Fail(match outage.refusal {
                Refusal::Refused => ErrorClass::Refused,
                Refusal::Failing => ErrorClass::Transient { retry_after: None },
                Refusal::Busy => ErrorClass::Throttled { retry_after: None },
                Refusal::Silent => ErrorClass::Ambiguous,
            }));
        }
        let burst = self.climate.bursts.iter().find(|burst| burst.during.contains(&now) && burst.lane.carries(&operation.what))?;
        let fault = if burst.retry_after.is_some() { Fault::RetryAfter } else { Fault::Throttling };
        let strikes = self.stage.strike(fault);
        if strikes {
            self.stage.struck(fault, self.caller, operation);
        }
        if strikes && let Some(wait) = burst.retry_after {
            self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(burst.lane, now + wait);
            if operation.what.service() == Service::Queue {
                self.stage.asked_to_wait(self.caller, wait);
            }
        }
        strikes.then_some(Verdict::Fail(ErrorClass::Throttled { retry_after: burst.retry_after }))
    }

    /// A worker that was asked to wait sends nothing before its time.
    fn was_asked_to_wait(&self, operation: &OperationInfo) {
        let now = self.stage.elapsed();
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, until)) = asked.iter().find(|(lane, until)| **until > now && lane.carries(&operation.what)) {
            self.stage.violated(format!("{} was sent {:?} before the store asked for it", operation.name, until.saturating_sub(now)));
        }
    }

    /// What strikes this one request.
    fn strike(&self, operation: &OperationInfo) -> Option<Verdict> {
        let draw = Draw(&self.chance);
        let later = || seconds(draw.magnitude(0.05, OLDEST_REQUEST));
        if self.strikes(Fault::ErrorBefore, operation) {
            let retry_after = draw.happens(0.3).then(|| seconds(draw.magnitude(1.0, 20.0).round()));
            let class =
                *draw.of(&[ErrorClass::Refused, ErrorClass::Transient { retry_after: None }, ErrorClass::Throttled { retry_after }]);
            if let (ErrorClass::Throttled { retry_after: Some(wait) }, Service::Queue) = (class, operation.what.service()) {
                self.stage.asked_to_wait(self.caller, wait);
            }
            return Some(Verdict::Fail(class));
        }
        if self.strikes(Fault::RequestLost, operation) {
            return Some(Verdict::Fail(ErrorClass::Ambiguous));
        }
        if self.strikes(Fault::AnswerLost, operation) {
            return Some(Verdict::LoseAnswer);
        }
        if operation.writes && self.strikes(Fault::LateArrival, operation) {
            let patience = if draw.happens(0.5) { Duration::ZERO } else { PATIENCE };
            return Some(Verdict::Delayed { arrives: patience + later(), patience });
        }
        if self.strikes(Fault::SlowRequest, operation) {
            return Some(Verdict::Delayed { arrives: seconds(draw.magnitude(1.0, SLOWEST)), patience: PATIENCE });
        }
        if self.strikes(Fault::SlowAnswer, operation) {
            return Some(Verdict::AnswerLate { answers: seconds(draw.magnitude(1.0, SLOWEST)), patience: PATIENCE });
        }
        if self.strikes(Fault::CrashAfter, operation) {
            self.die();
            return Some(Verdict::NeverAnswer);
        }
        if operation.writes && self.strikes(Fault::CrashInFlight, operation) {
            self.die();
            let arrives = later();
            return Some(Verdict::Delayed { arrives, patience: arrives });
        }
        None
    }

    fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.crashed.notify_one();
    }

    async fn unless_dead(&self) {
        if self.dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Weather for Sky {
    async fn before(&self, operation: &OperationInfo) -> Verdict {
        self.unless_dead().await;
        self.was_asked_to_wait(operation);
        sleep(seconds(self.chance.between(self.climate.latency.start, self.climate.latency.end))).await;
        self.unless_dead().await;
        if self.stage.is_calm() {
            return Verdict::Execute;
        }
        if self.strikes(Fault::CrashBefore, operation) {
            self.die();
            std::future::pending::<()>().await;
        }
        self.refused(operation).or_else(|| self.strike(operation)).unwrap_or(Verdict::Execute)
    }
}

/// Fair weather, with a wait before each operation.
pub(super) struct Breeze(pub(super) SeededChance);

#[async_trait]
impl Weather for Breeze {
    async fn before(&self, _operation: &OperationInfo) -> Verdict {
        sleep(seconds(self.0.between(0.001, 0.01))).await;
        Verdict::Execute
    }
}

impl Lane {
    fn carries(&self, what: &What) -> bool {
        match (self, what) {
            (Self::Partition(table, pk), What::Partition(other, key)) => other.as_str() == *table && key.as_str() == *pk,
            (Self::Partition(table, pk), What::Entity(other, key)) => other.as_str() == *table && key.pk.as_str() == *pk,
            (Self::Queue(name), What::Queue(queue) | What::Message(queue, _)) => queue.as_str() == *name,
            _ => false,
        }
    }
}
