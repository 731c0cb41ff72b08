//! A network that fails occasionally, for tests on an account without faults of its own.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::sleep;

use super::layer::{Layer, Request};
use evenkeel_model::AccountName;
use evenkeel_storage::{ErrorClass, Rng, StoreError};

const FAULT_PROBABILITY: f64 = 0.02;
const MAX_DELAY_SECONDS: f64 = 1.0;

pub struct Unreliable {
    account: AccountName,
    rng: Arc<dyn Rng>,
    met: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkFault {
    /// Not sent; the service seems busy (503).
    Busy,
    /// Not sent; no connection can be made.
    Unconnected,
    AnswerLost,
    Late,
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

    /// Maps a random number from 0 to 1 to a fault, or to `None` for most numbers.
    fn draw(number: f64) -> Option<Self> {
        let upper = (1..=Self::ALL.len())
            .map(|kinds| FAULT_PROBABILITY * f64::from(u8::try_from(kinds).unwrap_or(u8::MAX)));
        Self::ALL
            .into_iter()
            .zip(upper)
            .find(|(_, upper)| number < *upper)
            .map(|(fault, _)| fault)
    }
}

impl Unreliable {
    pub fn new(account: AccountName, rng: Arc<dyn Rng>) -> Self {
        Self {
            account,
            rng,
            met: AtomicU64::new(0),
        }
    }

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
        sleep(Duration::from_secs_f64(
            self.rng.between(0.0, MAX_DELAY_SECONDS),
        ))
        .await;
    }
}

impl Layer for Unreliable {
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        let Some(fault) = NetworkFault::draw(self.rng.unit()) else {
            return send().await;
        };
        self.met.fetch_add(1, Ordering::Relaxed);
        match fault {
            NetworkFault::Busy => Err(self.error(
                &request,
                ErrorClass::Throttled { retry_after: None },
                Some(503),
                "injected fault: busy",
            )),
            NetworkFault::Unconnected => Err(self.error(
                &request,
                ErrorClass::Refused,
                None,
                "injected fault: no connection",
            )),
            NetworkFault::AnswerLost => {
                // The request is executed, but its caller must not learn the result.
                drop(send().await);
                Err(self.error(
                    &request,
                    ErrorClass::Ambiguous,
                    None,
                    "injected fault: the answer was lost",
                ))
            }
            NetworkFault::Late => {
                self.late().await;
                send().await
            }
            NetworkFault::AnswerLate => {
                let answer = send().await;
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
    fn each_kind_of_fault_has_its_probability() {
        let draw = |number| NetworkFault::draw(number);
        assert_eq!(
            (draw(0.0), draw(0.019), draw(0.021)),
            (
                Some(NetworkFault::Busy),
                Some(NetworkFault::Busy),
                Some(NetworkFault::Unconnected)
            )
        );
        assert_eq!(
            (draw(0.099), draw(0.101), draw(0.999)),
            (Some(NetworkFault::AnswerLate), None, None)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_whose_answer_is_lost_was_executed() {
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
