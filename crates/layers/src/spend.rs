//! Limits the cost of requests and records created names, for tests on an account that costs money.

use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::layer::{Layer, Op, Request};
use super::observe::bill;
use evenkeel_model::AccountName;
use evenkeel_storage::{ErrorClass, StoreError};
use evenkeel_telemetry::job_trace::Billed;

/// Withholds requests once the budget is used up. Requests are counted before they are sent and priced as on the operations page.
#[derive(Debug)]
pub struct Spend {
    account: AccountName,
    /// US dollars.
    budget: f64,
    spent: Mutex<SpendTally>,
}

/// Requests sent, and names to delete.
#[derive(Debug, Clone, Default)]
pub struct SpendTally {
    /// The requests, including the later deletions of created names.
    pub billed: Billed,
    pub over: bool,
    /// Tables, queues and containers that were created or may have been.
    pub created: Vec<(Op, String)>,
}

impl Spend {
    /// `budget` is in US dollars.
    pub fn new(account: AccountName, budget: f64) -> Self {
        Self {
            account,
            budget,
            spent: Mutex::default(),
        }
    }

    pub fn spent(&self) -> SpendTally {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, SpendTally> {
        self.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a request if it is within the budget. Returns whether it is.
    fn admit(&self, request: &Request<'_>) -> bool {
        let mut spent = self.lock();
        let mut then = spent.billed;
        then.add(bill(request.op), 1);
        let creates = matches!(
            request.op,
            Op::CreateTable | Op::CreateQueue | Op::CreateContainer
        );
        if creates {
            // The deletion is charged in advance, so that the cleanup is possible when the budget is used up.
            then.add(bill(request.op), 1);
        }
        if then.dollars() > self.budget {
            spent.over = true;
            return false;
        }
        spent.billed = then;
        if creates {
            spent
                .created
                .push((request.op, request.target.name().to_owned()));
        }
        true
    }
}

impl Layer for Spend {
    async fn call<T: Send, F: Future<Output = Result<T, StoreError>> + Send>(
        &self,
        request: Request<'_>,
        send: impl Fn() -> F + Send,
    ) -> Result<T, StoreError> {
        if self.admit(&request) {
            return send().await;
        }
        let subject = request.target.subject(&self.account);
        Err(StoreError::new(
            ErrorClass::Permanent,
            request.op.operation(),
            subject,
            "not sent: the budget is used up",
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::stack::layered;
    use evenkeel_account::{NoFaults, SimWorld};
    use evenkeel_model::{QueueName, prices};
    use evenkeel_storage::system::SystemClock;

    #[tokio::test]
    async fn the_budget_is_never_exceeded_and_a_creation_pays_for_its_deletion() {
        let world = SimWorld::new(
            AccountName::main(),
            Arc::new(SystemClock::new()),
            Arc::new(NoFaults),
        );
        let spend = Arc::new(Spend::new(
            AccountName::main(),
            5.5 * prices::QUEUE / 10_000.0,
        ));
        let queues = layered(&world.account(), &spend).queues;
        let queue = QueueName::new("scratch").unwrap();
        queues.create_queue(&queue).await.unwrap();
        for _ in 0..3 {
            queues.approximate_count(&queue).await.unwrap();
        }
        assert!(!spend.spent().over);
        let error = queues.approximate_count(&queue).await.unwrap_err();
        assert!(
            error.to_string().contains("the budget is used up") && world.operations() == 4,
            "{error}"
        );
        let spent = spend.spent();
        assert_eq!(
            (spent.over, spent.billed.queue, spent.created),
            (true, 5, vec![(Op::CreateQueue, "scratch".to_owned())])
        );
    }
}
