//! Whether the stores answer at all.

use async_trait::async_trait;
use jiff::Timestamp;

use super::Service;
use evenkeel_model::AccountName;

/// The adapters' view of the stores' health: a worker receives nothing while a store as a whole
/// refuses. A single throttled partition is not that.
#[async_trait]
pub trait StoreHealth: Send + Sync {
    /// The services with an open circuit breaker.
    fn open_circuits(&self) -> Vec<OpenCircuit>;

    /// Asks each service with an open circuit breaker one cheap question, and closes the breaker where it answers.
    async fn probe(&self);
}

/// A service that refuses as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCircuit {
    /// The account.
    pub account: AccountName,
    /// The service.
    pub service: Service,
    /// Since when.
    pub since: Timestamp,
    /// The last failure, in words.
    pub reason: String,
}
