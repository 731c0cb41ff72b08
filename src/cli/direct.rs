//! Accounts as a measurement needs them.

use std::sync::Arc;

use crate::ops::board::StorageMeter;
use crate::ports::Stores;

/// The accounts of the configuration with each request sent once and alone, and counted. Retries, grouping and
/// pace would hide how the service answers.
pub struct DirectAccess {
    /// The accounts, and the sinks with their retries.
    pub stores: Stores,
    /// The requests that this process has sent.
    pub meter: Arc<dyn StorageMeter>,
}
