//! `sync`: brings the items of a primary in step with it.

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
    pub looks: Looks,
}

impl Job {
    /// A plain `sync` of a primary.
    pub const fn sync(primary: Primary) -> Self {
        Self::Sync(SyncJob {
            primary,
            looks: Looks::Doubtful,
        })
    }
}

/// The items whose stored state a pass reads before it reads the primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Looks {
    /// Items of unknown outcome, and those that the run touched.
    #[default]
    Doubtful,
    /// Every item in the footprint. This finds items that another program has changed or deleted.
    Everything,
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
        let looks = if self.thorough {
            Looks::Everything
        } else {
            Looks::Doubtful
        };
        Ok(SyncJob {
            primary: primary(Self::OP, self.table, self.pk, self.rk)?,
            looks,
        })
    }
}

impl Operation for SyncJob {
    fn subject(&self) -> JobSubject<'_> {
        JobSubject::Primary(&self.primary.table, &self.primary.key)
    }

    /// A run of a plain `sync` cannot serve a full one.
    fn folds(&self) -> bool {
        self.looks == Looks::Doubtful
    }
}
