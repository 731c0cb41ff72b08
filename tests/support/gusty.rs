//! Weather in which contracts hold all the same.

use async_trait::async_trait;
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo};
use evenkeel_storage::ErrorClass;

/// Every fifth request is refused, or fails without having been executed; of those that change nothing, some lose their answer.
/// None of it may be seen through retries.
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
