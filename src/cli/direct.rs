//! Direct access to the accounts, for commands that measure the service.

use std::sync::Arc;

use evenkeel_ops::state::StorageMeter;
use evenkeel_storage::Stores;

/// The configured accounts. Each request is sent once, alone, and counted, because retries,
/// grouping and pacing would hide how the service answers.
pub struct DirectAccess {
    /// The accounts, and the sinks. Only requests to sinks are retried.
    pub stores: Stores,
    /// Counts the requests of this process.
    pub meter: Arc<dyn StorageMeter>,
}
