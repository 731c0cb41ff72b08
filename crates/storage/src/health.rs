use async_trait::async_trait;
use jiff::Timestamp;

use super::Service;
use evenkeel_model::AccountName;

/// Health of the stores, as the adapters see it. A worker receives no messages while a service is unavailable as a whole. A single
/// throttled partition does not count.
#[async_trait]
pub trait StoreHealth: Send + Sync {
    fn open_circuits(&self) -> Vec<OpenCircuit>;

    /// Sends one cheap request to each service with an open circuit breaker, and closes the breaker if it answers.
    async fn probe(&self);
}

/// A service that is unavailable as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenCircuit {
    pub account: AccountName,
    pub service: Service,
    pub since: Timestamp,
    /// The last failure, in words.
    pub reason: String,
}
