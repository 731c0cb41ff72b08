//! Faults under which a store must still keep its contract.

use async_trait::async_trait;
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo};
use evenkeel_storage::ErrorClass;

/// Refuses every fifth request, or fails it without executing it. Some reads are executed, and their answer is lost.
/// With retries, none of this may be visible.
pub struct Gusty;

#[async_trait]
impl FaultPolicy for Gusty {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        match operation.number % 15 {
            0 => FaultDecision::Fail(ErrorClass::Refused),
            5 => FaultDecision::Fail(ErrorClass::Transient { retry_after: None }),
            10 if !operation.writes => FaultDecision::LoseAnswer,
            _ => FaultDecision::Execute,
        }
    }
}
