//! What the simulation expects of each message.

use std::sync::Arc;

use super::content::PutContent;
use super::listed::listed;
use evenkeel_model::job::{JobRequest, SyncJob};
use evenkeel_model::{EntityKey, Job, job};

/// A worker may queue syncs only for primaries in these tables.
const SYNCED: [&str; 4] = ["Employees", "FormerEmployees", "Teams", "Managers"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobCondition {
    Match(String),
    Absent,
    Newer(i64),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntityJob {
    pub(super) op: &'static str,
    pub(super) table: &'static str,
    pub(super) key: EntityKey,
    pub(super) to: Option<EntityKey>,
    pub(super) guard: Option<JobCondition>,
    pub(super) staged: Vec<String>,
    pub(super) put_content: Option<Arc<PutContent>>,
    pub(super) thorough: bool,
}

impl EntityJob {
    /// A job without a condition and without content.
    pub(super) const fn plain(op: &'static str, table: &'static str, key: EntityKey) -> Self {
        Self {
            op,
            table,
            key,
            to: None,
            guard: None,
            staged: Vec::new(),
            put_content: None,
            thorough: false,
        }
    }

    pub(super) const fn sync(table: &'static str, key: EntityKey) -> Self {
        Self::plain("sync", table, key)
    }

    pub(super) fn thorough_sync(table: &'static str, key: EntityKey) -> Self {
        Self {
            thorough: true,
            ..Self::sync(table, key)
        }
    }
}

/// `PartitionKey` and `RowKey` as a batch lists them. They may be invalid as keys of an entity.
pub(super) type ListedKeys = (String, String);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expectation {
    Job(EntityJob),
    Batch(Vec<(ListedKeys, Self)>),
    Whole(&'static str),
    /// The message is invalid, and must be poisoned with this reason.
    Poison(&'static str),
    Recheck,
}

impl Expectation {
    /// The expectation for a message that a worker has put on a job queue.
    pub(super) fn of_worker(text: &str) -> Result<Self, String> {
        let object = job::decode_object(text).map_err(|error| error.to_string())?;
        match job::decode_request(object).map_err(|error| error.to_string())? {
            JobRequest::Job(envelope) => Self::queued(envelope.job),
            JobRequest::Batch(batch) => {
                let jobs = (0..batch.len())
                    .map(|at| Self::queued(batch.job(at).map_err(|error| error.to_string())?.job));
                let keys = listed(text).unwrap_or_default();
                Ok(Self::Batch(
                    keys.into_iter()
                        .zip(jobs.collect::<Result<Vec<_>, _>>()?)
                        .collect(),
                ))
            }
        }
    }

    fn queued(job: Job) -> Result<Self, String> {
        match job {
            Job::Propagate(_) => Ok(Self::Whole("propagate")),
            Job::DropTable(_) => Ok(Self::Whole("drop_table")),
            Job::Sync(SyncJob { primary, .. }) => {
                let table = SYNCED
                    .into_iter()
                    .find(|table| *table == primary.table.as_str());
                let table = table
                    .ok_or_else(|| format!("a worker queued an unexpected sync of {primary}"))?;
                Ok(Self::Job(EntityJob::sync(table, primary.key)))
            }
            other => Err(format!("a worker queued an unexpected job: {other:?}")),
        }
    }
}
