//! What jobs work with, beside the environment of their passes.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::encryption::Encryption;
use crate::env::Env;
use crate::jobs::log::lane::LogLanes;
use evenkeel_model::catalog::TableRef;
use evenkeel_storage::sealing::HashKey;

/// The means of jobs.
pub(crate) struct JobContext {
    pub(crate) env: Env,
    /// How long one part of a walk over a table takes.
    pub(crate) part: Duration,
    /// Lines of logs that wait to be appended together.
    pub(crate) lanes: LogLanes,
    /// Keys of hashes, once they were needed.
    pub(crate) hash_keys: Mutex<BTreeMap<TableRef, HashKey>>,
}

impl JobContext {
    /// Encrypted properties.
    pub(crate) const fn encryption(&self) -> Encryption<'_> {
        Encryption {
            env: &self.env,
            hash_keys: &self.hash_keys,
        }
    }
}
