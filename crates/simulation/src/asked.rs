//! What clients ask for: what the simulation expects of each message.

use std::sync::Arc;

use super::content::Brings;
use evenkeel::model::EntityKey;

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
        Self { op, table, key, to: None, guard: None, staged: Vec::new(), brings: None, thorough: false }
    }

    /// A sync of a primary.
    pub(super) const fn sync(table: &'static str, key: EntityKey) -> Self {
        Self::plain("sync", table, key)
    }

    /// A sync of a primary that looks at every item.
    pub(super) fn thorough_sync(table: &'static str, key: EntityKey) -> Self {
        Self { thorough: true, ..Self::sync(table, key) }
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
