//! `sync`: brings the items of a primary in step with the primary.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Effect, Job, JobFields, JobSubject, Operation, primary};
use crate::job::{JobError, Listing, Primary};

/// A `sync` job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncJob {
    /// The primary.
    pub primary: Primary,
    /// The items whose stored state is read.
    pub reads: ItemReads,
}

impl Job {
    /// Creates a plain `sync` of a primary.
    pub const fn sync(primary: Primary) -> Self {
        Self::Sync(SyncJob {
            primary,
            reads: ItemReads::Uncertain,
        })
    }
}

/// The items whose stored state a pass reads before it reads the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ItemReads {
    /// Items whose last write has an unknown outcome, and items that the run touched.
    #[default]
    Uncertain,
    /// Every item in the footprint. This finds items that another program has changed or deleted.
    All,
}

/// Fields of a `sync` job.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(title = "sync")]
pub(super) struct SyncFields {
    /// The primary's table.
    table: String,
    /// The primary's PartitionKey.
    pk: String,
    /// The primary's RowKey.
    rk: String,
    /// Read every item, even if the primary has not changed. This finds and repairs items that another program changed or deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    thorough: bool,
}

impl JobFields for SyncFields {
    const OP: &'static str = "sync";
    const EFFECT: Effect = Effect::Derives;
    const LISTING: Option<Listing> = Some(Listing::Keys);
    type Job = SyncJob;

    fn job(self) -> Result<Self::Job, JobError> {
        let reads = if self.thorough {
            ItemReads::All
        } else {
            ItemReads::Uncertain
        };
        Ok(SyncJob {
            primary: primary(Self::OP, self.table, self.pk, self.rk)?,
            reads,
        })
    }
}

impl Operation for SyncJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Primary(&self.primary.table, &self.primary.key)
    }

    /// Only plain `sync` jobs share a run, because a run of a plain `sync` cannot serve a full one.
    fn folds(&self) -> bool {
        self.reads == ItemReads::Uncertain
    }
}
