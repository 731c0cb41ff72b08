//! The attempts of one request.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use backoff::backoff::Backoff;

use super::rules::NextStep;
use crate::layer::{Layer, Op, Request};
use evenkeel_model::settings::RetryPolicy;
use evenkeel_storage::{ErrorClass, Rng, StoreError, Withheld};

/// Maximum time that a request waits in place for a held scope. All requests of a throttled partition meet the same hold, and
/// each waiting one occupies a slot that jobs of other partitions need. With a longer hold, the jobs return to their queue.
const MAX_HELD_WAIT: Duration = Duration::from_millis(500);

/// The layer that repeats requests.
pub struct Retry {
    policy: Arc<ArcSwap<RetryPolicy>>,
    rng: Arc<dyn Rng>,
    counts: RetryCallback,
}

/// Called for each retry with the operation and the class of the preceding error.
pub type RetryCallback = fn(Op, ErrorClass);

impl Retry {
    /// The policy may be changed at runtime.
    pub fn new(policy: Arc<ArcSwap<RetryPolicy>>, rng: Arc<dyn Rng>) -> Self {
        Self {
            policy,
            rng,
            counts: |_, _| {},
        }
    }

    #[must_use]
    pub fn counting(self, counts: RetryCallback) -> Self {
        Self { counts, ..self }
    }
}

impl Layer for Retry {
    /// Repeats a request until it succeeds, must not be repeated, or has no attempts left.
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        let (op, rule) = (request.op, request.if_unanswered);
        let course = &AttemptHistory::default();
        let policy = **self.policy.load();
        let waits = RetryWaits {
            policy,
            rng: self.rng.as_ref(),
            course,
            made: 1,
            waited: 0,
            at_once: false,
        };
        let try_once = move || {
            let attempt = send();
            async move {
                attempt.await.map_err(|error| {
                    course.failed(&error);
                    match rule.after(error.class) {
                        NextStep::Repeat => backoff::Error::transient(error),
                        NextStep::GiveUp => backoff::Error::permanent(error),
                    }
                })
            }
        };
        let notify = |error: StoreError, wait: Duration| {
            (self.counts)(op, error.class);
            tracing::debug!(op = op.label(), class = error.class.name(), wait_ms = wait.as_millis(), %error,
                    "retrying {} in {} ms: {error}", op.label(), wait.as_millis());
        };
        let result = backoff::future::retry_notify(waits, try_once, notify).await;
        let unanswered = course.unanswered_before_the_last(result.is_err());
        if unanswered {
            request.note_unanswered();
        }
        result.map_err(|mut error| {
            error.class = rule.ends_with(error.class, unanswered);
            if course.sent() && error.withheld != Some(Withheld::TableMissing) {
                error.withheld = None;
            }
            error
        })
    }
}

/// The attempts so far. `backoff` passes no errors to its policy, so each attempt records its failure here, and
/// `RetryWaits` reads it.
#[derive(Default)]
struct AttemptHistory(Mutex<AttemptFailures>);

#[derive(Default)]
struct AttemptFailures {
    last: Option<ErrorClass>,
    held: bool,
    sent: bool,
    unanswered: u32,
}

impl AttemptHistory {
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

    /// Whether the last attempt was withheld because its scope is held.
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

/// The waits of one request. A Retry-After is a minimum if it is short enough.
struct RetryWaits<'a> {
    policy: RetryPolicy,
    rng: &'a dyn Rng,
    course: &'a AttemptHistory,
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
        // Servers refuse connections while they restart, and pooled connections get closed, so an immediate retry often
        // succeeds.
        if last == Some(ErrorClass::Refused) && !self.at_once {
            self.at_once = true;
            return Some(Duration::ZERO);
        }
        self.waited += 1;
        let retry_after = last.and_then(ErrorClass::retry_after).unwrap_or_default();
        let longest = self.policy.longest();
        let max_wait = if self.course.held() {
            MAX_HELD_WAIT.min(longest)
        } else {
            longest
        };
        if retry_after > max_wait {
            return None;
        }
        Some(
            self.policy
                .wait(self.waited, self.rng.unit())
                .max(retry_after),
        )
    }
}
