//! Accounts as a measurement needs them.

use std::sync::Arc;

use evenkeel_ops::board::StorageMeter;
use evenkeel_storage::Stores;

/// The accounts of the configuration with each request sent once and alone, and counted. Retries, grouping and
/// pace would hide how the service answers.
pub struct DirectAccess {
    /// The accounts, and the sinks with their retries.
    pub stores: Stores,
    /// The requests that this process has sent.
    pub meter: Arc<dyn StorageMeter>,
}
