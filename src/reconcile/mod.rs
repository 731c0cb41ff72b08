//! The protocol that keeps every item of a primary in step with it, and the jobs that are built on it.

mod execute;
mod recheck;

pub use execute::{Action, Delivery, Execute, Failure, FailureClass, ItemChange, Outcome, Summary, Work};
pub use recheck::{Recheck, RecheckError};
