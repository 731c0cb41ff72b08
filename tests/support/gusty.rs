//! Weather in which contracts hold all the same.

use async_trait::async_trait;
use evenkeel::adapters::sim::{OperationInfo, Verdict, Weather};
use evenkeel::ports::ErrorClass;

/// Every fifth request is refused, or fails without having been executed; of those that change nothing, some lose their answer.
/// None of it may be seen through retries.
pub struct Gusty;

#[async_trait]
impl Weather for Gusty {
    async fn before(&self, operation: &OperationInfo) -> Verdict {
        match operation.number % 15 {
            0 => Verdict::Fail(ErrorClass::Refused),
            5 => Verdict::Fail(ErrorClass::Transient { retry_after: None }),
            10 if !operation.writes => Verdict::LoseAnswer,
            _ => Verdict::Execute,
        }
    }
}
