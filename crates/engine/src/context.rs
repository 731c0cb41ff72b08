//! What jobs work with, beside the environment of their passes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::encryption::Encryption;
use super::env::Env;
use super::log_lane::LogLanes;
use evenkeel_model::catalog::TableRef;
use evenkeel_storage::sealing::HashKey;

/// The means of jobs.
pub(super) struct JobContext {
    pub(super) env: Env,
    /// How long one part of a walk over a table takes.
    pub(super) part: Duration,
    /// Lines of logs that wait to be appended together.
    pub(super) lanes: LogLanes,
    /// Keys of hashes, once they were needed.
    pub(super) hash_keys: Mutex<BTreeMap<TableRef, HashKey>>,
}

impl JobContext {
    /// Encrypted properties.
    pub(super) const fn encryption(&self) -> Encryption<'_> {
        Encryption {
            env: &self.env,
            hash_keys: &self.hash_keys,
        }
    }
}
