//! The attempts of one request.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use backoff::backoff::Backoff;
use futures::future::BoxFuture;

use super::rules::{NextStep, Unanswered};
use crate::layer::Op;
use evenkeel_model::settings::RetryPolicy;
use evenkeel_storage::{ErrorClass, Rng, StoreError, Withheld};

/// How long a request waits in place for a scope that is held. Every request of a throttled partition meets the
/// same hold, and each that waits takes a slot from the jobs of other partitions: once the hold has grown beyond
/// this, they go back to their queue.
const HELD_PATIENCE: Duration = Duration::from_millis(500);

/// A port with retries: itself the same port.
pub struct Retry<S: ?Sized> {
    pub(super) inner: Arc<S>,
    policy: Arc<ArcSwap<RetryPolicy>>,
    rng: Arc<dyn Rng>,
    counts: Retried,
}

/// Is told of each repetition: the operation, and the class of the error before it.
pub type Retried = fn(Op, ErrorClass);

/// How a request ended, and whether one of its attempts before the last went unanswered.
pub(super) struct RequestEnd<T> {
    pub(super) result: Result<T, StoreError>,
    pub(super) unanswered: bool,
}

impl<S: ?Sized> Retry<S> {
    /// Puts retries around a port.
    pub fn new(inner: Arc<S>, policy: RetryPolicy, rng: Arc<dyn Rng>) -> Self {
        Self::by(inner, Arc::new(ArcSwap::from_pointee(policy)), rng)
    }

    /// Puts retries around a port, by a policy that may be changed meanwhile.
    pub fn by(inner: Arc<S>, policy: Arc<ArcSwap<RetryPolicy>>, rng: Arc<dyn Rng>) -> Self {
        Self {
            inner,
            policy,
            rng,
            counts: |_, _| {},
        }
    }

    /// With a count of the repetitions.
    #[must_use]
    pub fn counting(self, counts: Retried) -> Self {
        Self { counts, ..self }
    }

    /// As [`attempts`](Self::attempts), where the operation alone says what no answer means.
    pub(super) async fn request<'a, T: Send + 'a>(
        &'a self,
        op: Op,
        attempt: impl FnMut() -> BoxFuture<'a, Result<T, StoreError>> + Send,
    ) -> RequestEnd<T> {
        self.attempts(op, Unanswered::of(op), attempt).await
    }

    /// Runs attempts until one succeeds, one may not be repeated, or they are used up.
    pub(super) async fn attempts<'a, T: Send + 'a>(
        &'a self,
        op: Op,
        rule: Unanswered,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T, StoreError>> + Send,
    ) -> RequestEnd<T> {
        let course = Course::default();
        let policy = **self.policy.load();
        let waits = RetryWaits {
            policy,
            rng: self.rng.as_ref(),
            course: &course,
            made: 1,
            waited: 0,
            at_once: false,
        };
        let try_once = || {
            let attempt = attempt();
            let course = &course;
            async move {
                attempt.await.map_err(|error| {
                    course.failed(&error);
                    match rule.after(error.class) {
                        NextStep::Repeat => backoff::Error::transient(error),
                        NextStep::End => backoff::Error::permanent(error),
                    }
                })
            }
        };
        let notify = |error: StoreError, wait: Duration| {
            (self.counts)(op, error.class);
            tracing::debug!(op = op.label(), class = error.class.name(), wait_ms = wait.as_millis(), %error, "trying again");
        };
        let result = backoff::future::retry_notify(waits, try_once, notify).await;
        let unanswered = course.unanswered_before_the_last(result.is_err());
        let result = result.map_err(|mut error| {
            error.class = rule.ends_with(error.class, unanswered);
            if course.sent() && error.withheld != Some(Withheld::TableMissing) {
                error.withheld = None;
            }
            error
        });
        RequestEnd { result, unanswered }
    }
}

impl RequestEnd<bool> {
    /// For a creation or a deletion: a thing that exists, or is gone or going, after an unanswered attempt was created or deleted by it.
    pub(super) fn done(self) -> Result<bool, StoreError> {
        self.result.map(|done| done || self.unanswered)
    }
}

/// The attempts so far. The driver of the attempts passes nothing from the operation to the waits, so both
/// share this.
#[derive(Default)]
struct Course(Mutex<AttemptFailures>);

#[derive(Default)]
struct AttemptFailures {
    last: Option<ErrorClass>,
    held: bool,
    /// An attempt was sent, with any result.
    sent: bool,
    unanswered: u32,
}

impl Course {
    fn lock(&self) -> MutexGuard<'_, AttemptFailures> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: &StoreError) {
        let mut failures = self.lock();
        failures.last = Some(error.class);
        failures.held = error.withheld == Some(Withheld::Paused);
        failures.sent |= error.withheld.is_none();
        failures.unanswered += u32::from(error.class == ErrorClass::Ambiguous);
    }

    /// Whether the last attempt was not even sent, since its scope is held.
    fn held(&self) -> bool {
        self.lock().held
    }

    fn sent(&self) -> bool {
        self.lock().sent
    }

    fn last(&self) -> Option<ErrorClass> {
        self.lock().last
    }

    fn unanswered_before_the_last(&self, ended_in_failure: bool) -> bool {
        let failures = self.lock();
        let last = u32::from(ended_in_failure && failures.last == Some(ErrorClass::Ambiguous));
        failures.unanswered > last
    }
}

/// The waits of one request: a Retry-After is kept, within bounds.
struct RetryWaits<'a> {
    policy: RetryPolicy,
    rng: &'a dyn Rng,
    course: &'a Course,
    made: u32,
    waited: u32,
    at_once: bool,
}

impl Backoff for RetryWaits<'_> {
    fn next_backoff(&mut self) -> Option<Duration> {
        let last = self.course.last();
        if self.made >= self.policy.attempts() {
            return None;
        }
        self.made += 1;
        // A connection is refused while a server restarts or a pooled one has just been closed: the next
        // address or moment may do.
        if last == Some(ErrorClass::Refused) && !self.at_once {
            self.at_once = true;
            return Some(Duration::ZERO);
        }
        self.waited += 1;
        let asked = last.and_then(ErrorClass::retry_after).unwrap_or_default();
        let longest = self.policy.longest();
        let patience = if self.course.held() {
            HELD_PATIENCE.min(longest)
        } else {
            longest
        };
        if asked > patience {
            return None;
        }
        Some(self.policy.wait(self.waited, self.rng.unit()).max(asked))
    }
}
