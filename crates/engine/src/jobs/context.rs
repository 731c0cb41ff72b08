//! The context of jobs: the environment of their passes, and state that all jobs of a process share.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use crate::encryption::Encryption;
use crate::env::Env;
use crate::jobs::log::lane::LogLanes;
use evenkeel_model::catalog::TableRef;
use evenkeel_storage::encryption::HashKey;

pub(crate) struct JobContext {
    pub(crate) env: Env,
    pub(crate) part: Duration,
    pub(crate) lanes: LogLanes,
    /// Keys for keyed hashes, cached after their first use.
    pub(crate) hash_keys: Mutex<BTreeMap<TableRef, HashKey>>,
}

impl JobContext {
    pub(crate) const fn encryption(&self) -> Encryption<'_> {
        Encryption {
            env: &self.env,
            hash_keys: &self.hash_keys,
        }
    }
}
