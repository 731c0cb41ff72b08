//! A network that fails now and then, in front of a service that does not: for tests of an account that has no faults of its own.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::layer::{Layer, Request};
use evenkeel_model::AccountName;
use evenkeel_storage::{ErrorClass, Rng, StoreError};

/// The share of requests that meet each kind of fault.
const EACH: f64 = 0.02;
/// The longest that a request is late.
const LATEST: f64 = 1.0;

/// Draws a fault for some requests.
pub struct Unreliable {
    account: AccountName,
    rng: Arc<dyn Rng>,
    met: AtomicU64,
}

/// A fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkFault {
    /// It is not sent, as where the service is busy (503).
    Busy,
    /// It is not sent: there is no connection.
    Unconnected,
    /// It is sent, and its answer is lost.
    AnswerLost,
    /// It is sent late.
    Late,
    /// Its answer is late.
    AnswerLate,
}

impl NetworkFault {
    const ALL: [Self; 5] = [
        Self::Busy,
        Self::Unconnected,
        Self::AnswerLost,
        Self::Late,
        Self::AnswerLate,
    ];

    /// The fault of this number from 0 to 1; none for most.
    fn drawn(number: f64) -> Option<Self> {
        let upper = (1..=Self::ALL.len())
            .map(|kinds| EACH * f64::from(u8::try_from(kinds).unwrap_or(u8::MAX)));
        Self::ALL
            .into_iter()
            .zip(upper)
            .find(|(_, upper)| number < *upper)
            .map(|(fault, _)| fault)
    }
}

impl Unreliable {
    /// Faults by chance.
    pub fn new(account: AccountName, rng: Arc<dyn Rng>) -> Self {
        Self {
            account,
            rng,
            met: AtomicU64::new(0),
        }
    }

    /// How many requests have met one.
    pub fn met(&self) -> u64 {
        self.met.load(Ordering::Relaxed)
    }

    fn error(
        &self,
        request: &Request<'_>,
        class: ErrorClass,
        status: Option<u16>,
        words: &str,
    ) -> StoreError {
        let subject = request.target.subject(&self.account);
        StoreError {
            status,
            ..StoreError::new(class, request.op.operation(), subject, words)
        }
    }

    async fn late(&self) {
        sleep(Duration::from_secs_f64(self.rng.between(0.0, LATEST))).await;
    }
}

impl Layer for Unreliable {
    async fn call<T: Send>(
        &self,
        request: Request<'_>,
        send: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let Some(fault) = NetworkFault::drawn(self.rng.unit()) else {
            return send.await;
        };
        self.met.fetch_add(1, Ordering::Relaxed);
        match fault {
            NetworkFault::Busy => Err(self.error(
                &request,
                ErrorClass::Throttled { retry_after: None },
                Some(503),
                "planted: busy",
            )),
            NetworkFault::Unconnected => Err(self.error(
                &request,
                ErrorClass::Refused,
                None,
                "planted: no connection",
            )),
            NetworkFault::AnswerLost => {
                // Its outcome stays unknown to the sender.
                drop(send.await);
                Err(self.error(
                    &request,
                    ErrorClass::Ambiguous,
                    None,
                    "planted: the answer was lost",
                ))
            }
            NetworkFault::Late => {
                self.late().await;
                send.await
            }
            NetworkFault::AnswerLate => {
                let answer = send.await;
                self.late().await;
                answer
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::layered;
    use evenkeel_account::{NoFaults, SimWorld};
    use evenkeel_model::QueueName;
    use evenkeel_storage::system::{SeededRng, SystemClock};

    #[test]
    fn each_kind_is_met_by_its_share() {
        let drawn = |number| NetworkFault::drawn(number);
        assert_eq!(
            (drawn(0.0), drawn(0.019), drawn(0.021)),
            (
                Some(NetworkFault::Busy),
                Some(NetworkFault::Busy),
                Some(NetworkFault::Unconnected)
            )
        );
        assert_eq!(
            (drawn(0.099), drawn(0.101), drawn(0.999)),
            (Some(NetworkFault::AnswerLate), None, None)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_answer_is_one_of_a_request_that_was_executed() {
        let world = SimWorld::new(
            AccountName::main(),
            Arc::new(SystemClock::new()),
            Arc::new(NoFaults),
        );
        let unreliable = Arc::new(Unreliable::new(
            AccountName::main(),
            Arc::new(SeededRng::new(7)),
        ));
        let queues = layered(&world.account(), &unreliable).queues;
        let (mut ambiguous, mut unsent) = (0, 0);
        for number in 0..1_000 {
            let before = world.operations();
            let queue = QueueName::new(format!("queue-{number}")).unwrap();
            match queues.create_queue(&queue).await {
                Err(error) if error.class == ErrorClass::Ambiguous => {
                    ambiguous += 1;
                    assert_eq!(world.operations(), before + 1, "{error}");
                }
                Err(error) => {
                    unsent += 1;
                    assert_eq!(world.operations(), before, "{error}");
                }
                Ok(created) => assert!(created),
            }
        }
        assert!(
            (10..30).contains(&ambiguous) && (25..55).contains(&unsent),
            "{ambiguous} {unsent}"
        );
        assert!(
            (70..130).contains(&unreliable.met()),
            "{}",
            unreliable.met()
        );
    }
}
