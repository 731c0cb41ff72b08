//! What happens to each operation.

use std::time::Duration;

use async_trait::async_trait;

use evenkeel_model::EntityKey;
use evenkeel_storage::{ErrorClass, Resource};

/// Decides what happens to each operation. Called before every one, in the order in which they are sent.
#[async_trait]
pub trait FaultPolicy: Send + Sync {
    /// What happens to this operation. May wait; never returning is a caller that crashed.
    async fn before(&self, operation: &OperationInfo) -> FaultDecision;

    /// How many rows a page of a query has at most, where it is to be short; it may have none, and names a continuation all the same.
    fn page(&self, what: &Resource) -> Option<usize> {
        let _ = what;
        None
    }
}

/// An operation about to be executed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperationInfo {
    /// How many operations came before it.
    pub number: u64,
    /// The operation, in the service's words.
    pub name: &'static str,
    /// What it is about.
    pub what: Resource,
    /// Whether it changes anything.
    pub writes: bool,
    /// The rows that a transaction is about, in its order; none for what is no transaction.
    pub rows: Vec<EntityKey>,
}

/// What happens to an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultDecision {
    /// It is executed and answered.
    Execute,
    /// It is not executed, and fails with this class.
    Fail(ErrorClass),
    /// It is not executed, and fails with this class because of one row: in a transaction, the one at this index.
    RefuseRow(ErrorClass, Option<usize>),
    /// It is executed, and its answer is lost.
    LoseAnswer,
    /// Its sender is told nothing; it arrives when this many more operations have been executed.
    ArriveLater(u64),
    /// It is on its way for a while, and is executed then whether its sender still waits or not, as a request is
    /// that is on the wire. A sender that has waited for all its patience is told nothing.
    Delayed {
        /// How long it is on its way.
        arrives: Duration,
        /// How long its sender waits.
        patience: Duration,
    },
    /// It is executed at once, and its answer is on its way for a while.
    AnswerLate {
        /// How long the answer is on its way.
        answers: Duration,
        /// How long its sender waits.
        patience: Duration,
    },
    /// It is executed, and its sender never hears of it: it crashed.
    NeverAnswer,
}

/// Everything is executed and answered.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoFaults;

#[async_trait]
impl FaultPolicy for NoFaults {
    async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
        FaultDecision::Execute
    }
}
