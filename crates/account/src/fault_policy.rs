//! Decides what happens to each operation.

use std::time::Duration;

use async_trait::async_trait;

use evenkeel_model::EntityKey;
use evenkeel_storage::{ErrorClass, Resource};

/// Decides what happens to each operation.
#[async_trait]
pub trait FaultPolicy: Send + Sync {
    /// Called before each operation, in the order in which they are sent. It may wait. If it never returns, the caller has crashed.
    async fn before(&self, operation: &OperationInfo) -> FaultDecision;

    /// Maximum number of rows in a page of a query, to make pages short. A page may have no rows and still have a continuation.
    fn page(&self, what: &Resource) -> Option<usize> {
        let _ = what;
        None
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationInfo {
    /// Number of operations before this one.
    pub number: u64,
    /// The service's name of the operation.
    pub name: &'static str,
    pub what: Resource,
    pub writes: bool,
    /// The rows of a transaction in its order; empty for other operations.
    pub rows: Vec<EntityKey>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultDecision {
    Execute,
    /// Not executed; fails with this class.
    Fail(ErrorClass),
    /// Not executed; fails with this class because of one row. In a transaction, it is the row at this index.
    RefuseRow(ErrorClass, Option<usize>),
    /// Executed, but the answer is lost.
    LoseAnswer,
    /// The sender gets no answer. The request arrives after this many more operations.
    ArriveLater(u64),
    /// The request arrives later and is executed whether its sender still waits or not. A sender that has waited for `timeout` gets no
    /// answer.
    Delayed {
        /// Time until the request arrives.
        arrives: Duration,
        /// Time that the sender waits.
        timeout: Duration,
    },
    /// Executed at once; the answer arrives later.
    AnswerLate {
        /// Time until the answer arrives.
        answers: Duration,
        /// Time that the sender waits.
        timeout: Duration,
    },
    /// Executed, but the sender never gets an answer because it crashed.
    NeverAnswer,
}

/// Every operation is executed and answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

#[async_trait]
impl FaultPolicy for NoFaults {
    async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
        FaultDecision::Execute
    }
}
