//! What clients ask for: what the simulation expects of each message.

use std::sync::Arc;

use super::content::Brings;
use super::listed::listed;
use evenkeel_model::job::{JobRequest, SyncJob};
use evenkeel_model::{EntityKey, Job, job};

/// The tables whose primaries a worker may queue a sync of.
const SYNCED: [&str; 4] = ["Employees", "FormerEmployees", "Teams", "Managers"];

/// The condition of a job, as its client meant it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum JobCondition {
    /// Only over this ETag.
    Match(String),
    /// Only where there is nothing.
    Absent,
    /// Only over an older version than this.
    Newer(i64),
}

/// A job about one entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EntityJob {
    /// Its operation.
    pub(super) op: &'static str,
    /// The table of the primary.
    pub(super) table: &'static str,
    /// The primary's key.
    pub(super) key: EntityKey,
    /// Where it goes, where it moves.
    pub(super) to: Option<EntityKey>,
    /// What may make it skip.
    pub(super) guard: Option<JobCondition>,
    /// The blobs that were staged for it.
    pub(super) staged: Vec<String>,
    /// What it is to write, of a put.
    pub(super) brings: Option<Arc<Brings>>,
    /// Whether it is a sync that looks at every item.
    pub(super) thorough: bool,
}

impl EntityJob {
    /// A job without a condition that writes nothing of its own.
    pub(super) const fn plain(op: &'static str, table: &'static str, key: EntityKey) -> Self {
        Self {
            op,
            table,
            key,
            to: None,
            guard: None,
            staged: Vec::new(),
            brings: None,
            thorough: false,
        }
    }

    /// A sync of a primary.
    pub(super) const fn sync(table: &'static str, key: EntityKey) -> Self {
        Self::plain("sync", table, key)
    }

    /// A sync of a primary that looks at every item.
    pub(super) fn thorough_sync(table: &'static str, key: EntityKey) -> Self {
        Self {
            thorough: true,
            ..Self::sync(table, key)
        }
    }
}

/// PartitionKey and RowKey as a list spells them: maybe none that an entity can have.
pub(super) type ListedKeys = (String, String);

/// What a client expects of a message that it sends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expectation {
    /// A job about one entity.
    Job(EntityJob),
    /// A job for each of many primaries.
    Batch(Vec<(ListedKeys, Self)>),
    /// A job of this operation about many.
    Whole(&'static str),
    /// Something that is no job: poisoned for this reason.
    Poison(&'static str),
    /// A second look, sent by a worker.
    Recheck,
}

impl Expectation {
    /// What a message asks for that a worker has put on a queue of jobs.
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
            Job::Carry(_) => Ok(Self::Whole("carry")),
            Job::DropTable(_) => Ok(Self::Whole("drop_table")),
            Job::Sync(SyncJob { primary, .. }) => {
                let table = SYNCED
                    .into_iter()
                    .find(|table| *table == primary.table.as_str());
                let table =
                    table.ok_or_else(|| format!("a worker has queued a sync of {primary}"))?;
                Ok(Self::Job(EntityJob::sync(table, primary.key)))
            }
            other => Err(format!("a worker has queued {other:?}")),
        }
    }
}
