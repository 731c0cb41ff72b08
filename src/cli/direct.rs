//! Accounts for measurements.

use std::sync::Arc;

use evenkeel_ops::state::StorageMeter;
use evenkeel_storage::Stores;

/// The configured accounts, with each request sent once, alone, and counted. Retries, grouping and pacing would hide
/// how the service answers.
pub struct DirectAccess {
    /// The accounts, and the sinks with their retries.
    pub stores: Stores,
    /// Requests of this process.
    pub meter: Arc<dyn StorageMeter>,
}
