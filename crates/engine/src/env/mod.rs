//! The environment that every pass and every job shares: the stores, the catalog, a clock, and what this process keeps
//! in memory.
//!
//! The environment also has the memory budget, the sizes of rows, the queue of rechecks, and the signing secret. This
//! module uses nothing of the protocol and no job. Of `items`, it uses only [shared entities](crate::items::shared),
//! which in turn use only `memory` and `failure`.

pub(crate) mod memory;
pub(crate) mod recheck_message;
pub(crate) mod recheck_queue;
pub(crate) mod row_memory;
pub(crate) mod secret;
pub(crate) mod signature;
pub(crate) mod waiting;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use crate::env::memory::MemoryBudget;
use crate::env::recheck_queue::RecheckQueues;
use crate::env::row_memory::RowSizes;
use crate::env::secret::SigningSecret;
use crate::execute::{Delivery, Failure, FailureClass};
use crate::failure::permanent;
use crate::items::shared::DocumentTurns;
use evenkeel_model::catalog::{Archive, Catalog, TableRef};
use evenkeel_model::condition::{Condition, TimedCondition};
use evenkeel_model::job::Primary;
use evenkeel_model::limits::LATE_REQUEST;
use evenkeel_model::nearest::nearest;
use evenkeel_model::{TableName, ViewName};
use evenkeel_storage::{Account, Clock, ClockSkew, Rng, Stores};

/// Maximum difference between the clocks of two workers. A taint lasts this much longer than a request can live.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_mins(30);

/// A job that runs in parts saves its progress after this time. This is well within `drain` (25 s by default), so that
/// a shutdown loses no progress.
pub(crate) const PART: Duration = Duration::from_secs(10);

/// Maximum length of a chain of views, in which the target of each view is the source of the next view.
pub(crate) const LONGEST_CHAIN: usize = 8;

pub type Unread = Box<dyn std::error::Error + Send + Sync>;

#[async_trait]
pub trait CatalogHold: Send + Sync {
    /// Whether the engine's catalog is still the recorded one. An error means that the recorded catalog could not be
    /// read.
    async fn holds(&self) -> Result<bool, Unread>;
}

pub(crate) struct Env {
    pub(crate) stores: Stores,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rng: Arc<dyn Rng>,
    pub(crate) recheck_after: Duration,
    pub(crate) turns: DocumentTurns,
    pub(crate) memory: Arc<MemoryBudget>,
    pub(crate) row_sizes: RowSizes,
    pub(crate) rechecks: RecheckQueues,
    pub(crate) secret: Arc<SigningSecret>,
    /// Checks that the catalog is still the recorded one. A pass that changed items uses this check before its close,
    /// and commands use it before each part of a walk. If unset, the catalog counts as the recorded one.
    pub(crate) recorded: OnceLock<Arc<dyn CatalogHold>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "catalog replaced during the run; a worker with the recorded catalog will continue the job"
)]
struct CatalogReplaced;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unknown {
    #[error("the catalog has no table {name:?}: {}", match .meant { Some(meant) => format!("did you mean {meant:?}?"), None => format!("name it as a view's or archive's source, or declare [tables.{name}]") })]
    Table {
        name: TableName,
        meant: Option<String>,
    },
    #[error("the catalog has no archive {name:?}: {}", match .meant { Some(meant) => format!("did you mean {meant:?}?"), None => format!("declare [archives.{name}]") })]
    Archive {
        name: ViewName,
        meant: Option<String>,
    },
    #[error("the catalog has no view {name:?}: {}", match .meant { Some(meant) => format!("did you mean {meant:?}?"), None => format!("declare [views.{name}]") })]
    View {
        name: ViewName,
        meant: Option<String>,
    },
    #[error(
        "view {view} covers several dated tables, {tables}. Name one of them as `table` instead of `view`"
    )]
    WhichTable { view: ViewName, tables: String },
    #[error(
        "{property} of {table} is encrypted and cannot be compared. Compare another property, or its keyed hash"
    )]
    Encrypted { table: TableName, property: String },
    #[error("views are chained more than {LONGEST_CHAIN} deep at {0}")]
    Chain(Primary),
}

impl Unknown {
    pub(crate) fn table(catalog: &Catalog, name: &TableName) -> Self {
        Self::Table {
            name: name.clone(),
            meant: meant(name.as_str(), catalog.tables.keys().map(TableName::as_str)),
        }
    }

    pub(crate) fn view(catalog: &Catalog, name: &ViewName) -> Self {
        Self::View {
            name: name.clone(),
            meant: meant(name.as_str(), catalog.views.keys().map(ViewName::as_str)),
        }
    }

    pub(crate) fn archive(catalog: &Catalog, name: &ViewName) -> Self {
        Self::Archive {
            name: name.clone(),
            meant: meant(name.as_str(), catalog.archives.keys().map(ViewName::as_str)),
        }
    }
}

fn meant<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    nearest(name, known).map(str::to_owned)
}

impl Env {
    /// Fails if the engine's catalog is no longer the recorded one, or if the recorded one cannot be read.
    pub(crate) async fn refuse_replaced(
        &self,
        step: impl FnOnce() -> String,
    ) -> Result<(), Failure> {
        let Some(recorded) = self.recorded.get() else {
            return Ok(());
        };
        match recorded.holds().await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::new(
                FailureClass::OutdatedCatalog,
                step(),
                CatalogReplaced,
            )),
            Err(unread) => Err(Failure::new(
                FailureClass::Withheld { retry_after: None },
                step(),
                unread,
            )),
        }
    }

    pub(crate) fn new_mark(&self) -> String {
        format!("{:016x}", self.rng.next_u64())
    }

    pub(crate) fn table(&self, name: &TableName) -> Result<&TableRef, Failure> {
        self.catalog
            .table(name)
            .ok_or_else(|| permanent("finding the table", Unknown::table(&self.catalog, name)))
    }

    pub(crate) fn refuse_view_tables(&self, name: &TableName) -> Result<(), Failure> {
        self.catalog
            .refuse_view_table(self.table(name)?)
            .map_err(|error| permanent("finding the table", error))
    }

    pub(crate) fn condition_at(
        &self,
        table: &TableRef,
        when: Option<&TimedCondition>,
        now: Timestamp,
    ) -> Result<Option<Condition>, Failure> {
        let Some(when) = when else { return Ok(None) };
        let condition = when
            .at(now)
            .map_err(|error| permanent("reading \"when\"", error.without_values()))?;
        let property = self.catalog.encrypted.get(table).and_then(|encrypted| {
            condition
                .properties()
                .into_iter()
                .find(|name| encrypted.contains(*name))
        });
        match property {
            Some(name) => Err(permanent(
                "reading \"when\"",
                Unknown::Encrypted {
                    table: table.table.clone(),
                    property: name.to_owned(),
                },
            )),
            None => Ok(Some(condition)),
        }
    }

    pub(crate) fn archive(&self, name: &ViewName) -> Result<&Archive, Failure> {
        let archive = self.catalog.archives.get(name);
        archive
            .map(AsRef::as_ref)
            .ok_or_else(|| permanent("finding the archive", Unknown::archive(&self.catalog, name)))
    }

    pub(crate) fn account(&self, table: &TableRef) -> Result<&Account, Failure> {
        self.stores
            .account(&table.account)
            .map_err(|error| permanent("finding the account", error))
    }

    /// The time by which the clock of the job's queue is ahead of the clock of a table.
    pub(crate) fn clocks_apart(&self, delivery: &Delivery, table: &TableRef) -> ClockSkew {
        let clocks = |account| {
            self.stores
                .account(account)
                .map(|account| Arc::clone(&account.clocks))
        };
        match (clocks(&delivery.account), clocks(&table.account)) {
            (Ok(queues), Ok(tables)) => ClockSkew::between(&queues, &tables),
            _ => ClockSkew::NOT,
        }
    }

    pub(crate) fn taint_for(&self) -> SignedDuration {
        taint_for(self.recheck_after)
    }

    /// After its announcement, a pass may write to a sink for this long. If another pass finds the announcement open,
    /// it queues a recheck, which is due `recheck_after` later. When the recheck is due, no write of the first pass may
    /// be under way.
    pub(crate) fn may_write_for(&self) -> Duration {
        self.recheck_after.saturating_sub(LATE_REQUEST)
    }
}

fn taint_for(recheck_after: Duration) -> SignedDuration {
    SignedDuration::try_from(recheck_after)
        .unwrap_or(SignedDuration::MAX)
        .saturating_add(CLOCK_SKEW)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taint_outlasts_an_old_request_even_if_clocks_differ_by_half_an_hour() {
        let recheck_after = Duration::from_mins(26);
        assert!(taint_for(recheck_after) >= SignedDuration::from_mins(26 + 30));
        assert_eq!(taint_for(Duration::MAX), SignedDuration::MAX);
    }
}
