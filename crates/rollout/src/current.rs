//! The catalog of a worker, the lease on its record, and the engine that executes the worker's
//! jobs. A worker has one catalog for its whole life; another catalog gets another worker.
//!
//! When a run ends, the last read of the record must be recent and must have found the run's
//! catalog. Otherwise the run is not acknowledged, and its message is delivered again. Before a job
//! fails permanently, the record is read again, because a newer catalog may know names that the
//! run's catalog does not know.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::time::timeout;

use super::lease::{CatalogLease, CatalogStatus, RECORD_TIMEOUT, RecordUnreadable};
use super::prepare::RecordedCatalog;
use crate::migrations::CatalogRecord;
use evenkeel_engine::{
    Delivery, EncryptBodies, Engine, Execute, Failure, FailureClass, Outcome, OutdatedCatalog,
    Work, exclude_from_timeout, record_unreported,
};
use evenkeel_model::catalog::{Catalog, Generations};
use evenkeel_model::job::{JobSubject, Primary};
use evenkeel_model::{ETag, Job, ViewName};
use evenkeel_storage::Clock;

/// The catalog's record as of the last read.
struct SeenRecord {
    /// The record's ETag. It is compared because a record that was lost and recreated can have the
    /// same number.
    version: Option<ETag>,
    generations: Generations,
}

pub struct CurrentCatalog {
    engine: Arc<Engine>,
    lease: Arc<CatalogLease>,
    record: ArcSwap<SeenRecord>,
    /// For each view, the latest generation that a job has found in an item. Only generations that
    /// are later than the catalog's are kept.
    later_generations: Mutex<BTreeMap<ViewName, u32>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "another catalog is recorded (generation {recorded}). A worker with that catalog will run the job"
)]
struct OtherCatalogRecorded {
    recorded: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "jobs about whole tables wait while workers with an older catalog may still acknowledge jobs"
)]
struct OlderWorkersRemain;

impl CurrentCatalog {
    /// Adds the recorded generations to the configured catalog, and begins to use it. `before` is
    /// the previous catalog of this process.
    pub fn begin(
        RecordedCatalog { record, sent }: &RecordedCatalog,
        catalog: &Catalog,
        before: Option<&Catalog>,
        engine: impl FnOnce(Arc<Catalog>) -> Arc<Engine>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let mut catalog = Catalog::clone(catalog);
        catalog.generations = record.generations(&catalog);
        if let Some(before) = before {
            keep_generations(&mut catalog, before);
        }
        let seen = SeenRecord {
            version: record.etag.clone(),
            generations: catalog.generations.clone(),
        };
        // If this process has used a catalog before, other workers may still use that catalog, even
        // if the record was recreated and is marked as the first of its account.
        let first = record.first && before.is_none();
        let lease = CatalogLease::new(first, *sent, Arc::clone(clock));
        Self::new(engine(Arc::new(catalog)), lease, seen)
    }

    fn new(engine: Arc<Engine>, lease: CatalogLease, record: SeenRecord) -> Self {
        let lease = Arc::new(lease);
        engine.stop_when_replaced(Arc::<CatalogLease>::clone(&lease));
        Self {
            engine,
            lease,
            record: ArcSwap::from_pointee(record),
            later_generations: Mutex::default(),
        }
    }

    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub fn lease(&self) -> &CatalogLease {
        &self.lease
    }

    pub(super) fn has_seen(&self, version: &ETag) -> bool {
        self.record.load().version.as_ref() == Some(version)
    }

    /// Adopts another record of the same views, which was found by a read that began at `sent`.
    /// Does nothing and returns `false` if the record differs from the engine's catalog in one of
    /// three ways: a view has a later generation, other views are retired, or other dated tables
    /// follow a source.
    pub(super) fn adopt(&self, record: &CatalogRecord, sent: Duration) -> bool {
        let own = &self.engine.catalog().generations;
        let generations = record.generations(self.engine.catalog());
        // If the record was restored from a backup, its generations are lower. The engine's catalog
        // then keeps its higher generations.
        let is_behind = |(view, recorded): (&ViewName, &u32)| *recorded <= own.of(view);
        if generations.retired != own.retired
            || generations.followed != own.followed
            || !generations.current.iter().all(is_behind)
        {
            return false;
        }
        self.record.store(Arc::new(SeenRecord {
            version: record.etag.clone(),
            generations,
        }));
        self.lease.adopt(sent);
        true
    }

    /// Returns the later generations that were not reported yet, and forgets them.
    pub fn take_later_generations(&self) -> BTreeMap<ViewName, u32> {
        std::mem::take(
            &mut *self
                .later_generations
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
    }

    /// See [`Engine::forms_of`].
    pub fn forms_of(&self, job: &Job) -> Vec<Primary> {
        self.engine.forms_of(job)
    }

    /// Remembers a generation that is later than the catalog's, and requests a read of the record.
    fn note_later_generation(&self, failure: &Failure) {
        if let Some(OutdatedCatalog { view, found, .. }) = failure.cause.downcast_ref() {
            let mut later_generations = self
                .later_generations
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let latest = later_generations.entry(view.clone()).or_default();
            *latest = (*latest).max(*found);
        }
        self.lease.request_read();
    }

    /// Compares the catalog with the record. If `by_now` is set, the read that confirms the catalog
    /// must begin after this call.
    async fn status(&self, by_now: bool) -> Result<CatalogStatus, Failure> {
        let looked = async {
            if by_now {
                self.lease.status_now().await
            } else {
                self.lease.status().await
            }
        };
        let step = "comparing the catalog with the recorded one";
        exclude_from_timeout(timeout(RECORD_TIMEOUT, looked))
            .await
            .map_err(|_| {
                Failure::new(
                    FailureClass::Withheld { retry_after: None },
                    step,
                    RecordUnreadable,
                )
            })
    }

    /// Checks whether a job may begin. A job about a whole table needs the recorded catalog, and
    /// waits until no worker with an older catalog can acknowledge jobs. Otherwise such a worker
    /// could write a primary that the walk has already passed, and the new views would not have
    /// this primary.
    async fn may_begin(&self, work: &Work) -> Result<(), Failure> {
        if !matches!(work, Work::Job(job) if matches!(job.operation().subject(), JobSubject::Table(_) | JobSubject::View(_) | JobSubject::Source(_)))
        {
            return Ok(());
        }
        if let CatalogStatus::Outdated(recorded) = self.status(true).await? {
            return Err(other_catalog_recorded(recorded));
        }
        match self.lease.time_until_older_workers_end() {
            Some(left) => Err(Failure::new(
                FailureClass::Withheld {
                    retry_after: Some(left),
                },
                "waiting for older workers",
                OlderWorkersRemain,
            )),
            None => Ok(()),
        }
    }

    /// Makes a permanent failure transient if another recorded catalog has the job's archive or
    /// table. While the job is retried, workers with that catalog can receive it.
    fn leave_to_other_workers(&self, failure: Failure, subject: JobSubject<'_>) -> Failure {
        if failure.class != FailureClass::Permanent
            || !self
                .engine
                .catalog()
                .is_of_other_catalog(subject, &self.record.load().generations)
        {
            return failure;
        }
        let step = format!(
            "{} (retried, because another recorded catalog has this archive or table)",
            failure.step
        );
        Failure::new(
            FailureClass::Transient { retry_after: None },
            step,
            failure.cause,
        )
    }
}

/// Keeps the generation of each unchanged view at least at its previous value, even if the record
/// was restored from a backup.
fn keep_generations(catalog: &mut Catalog, before: &Catalog) {
    let is_same = |view: &ViewName| match (catalog.views.get(view), before.views.get(view)) {
        (Some(now), Some(then)) => now.definition() == then.definition(),
        _ => match (catalog.dated_views.get(view), before.dated_views.get(view)) {
            (Some(now), Some(then)) => now.definition() == then.definition(),
            _ => false,
        },
    };
    let mut current = std::mem::take(&mut catalog.generations.current);
    for (view, generation) in &mut current {
        if is_same(view) {
            *generation = before.generations.of(view).max(*generation);
        }
    }
    catalog.generations.current = current;
}

fn other_catalog_recorded(recorded: u32) -> Failure {
    Failure::new(
        FailureClass::OutdatedCatalog,
        "comparing the catalog with the recorded one",
        OtherCatalogRecorded { recorded },
    )
}

/// Keeps the changes of a run whose outcome is dropped, so that the changes are still reported.
fn record_dropped_changes(ended: Result<Outcome, Failure>) {
    if let Ok(mut outcome) = ended {
        record_unreported(std::mem::take(&mut outcome.summary_mut().changes));
    }
}

fn subject(work: &Work) -> JobSubject<'_> {
    match work {
        Work::Job(job) => job.operation().subject(),
        Work::Recheck(recheck) => JobSubject::Primary(&recheck.primary.table, &recheck.primary.key),
    }
}

#[async_trait]
impl Execute for CurrentCatalog {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        self.may_begin(work).await?;
        let ended = self.engine.execute(work, delivery).await;
        // A permanent failure may mean that only a newer catalog knows a name. So the record is
        // read again before a permanent failure is returned.
        let by_now = match &ended {
            Err(failure) => match failure.class {
                FailureClass::Transient { .. } | FailureClass::Withheld { .. } => return ended,
                FailureClass::OutdatedCatalog => {
                    self.note_later_generation(failure);
                    return ended;
                }
                FailureClass::Permanent => true,
            },
            Ok(_) => false,
        };
        match self.status(by_now).await {
            Ok(CatalogStatus::Recorded) => {
                ended.map_err(|failure| self.leave_to_other_workers(failure, subject(work)))
            }
            Ok(CatalogStatus::Outdated(recorded)) => {
                record_dropped_changes(ended);
                Err(other_catalog_recorded(recorded))
            }
            Err(unconfirmed) => {
                record_dropped_changes(ended);
                Err(unconfirmed)
            }
        }
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.engine.give_up(work, delivery).await
    }
}

#[async_trait]
impl EncryptBodies for CurrentCatalog {
    async fn encrypt_body(&self, body: &str) -> Result<Option<String>, Failure> {
        self.engine.encrypt_body(body).await
    }
}

#[cfg(test)]
mod tests;
