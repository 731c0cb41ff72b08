//! The catalog that a worker works by, from when it was found recorded until another one is: its engine, which executes the worker's
//! jobs, and its lease. It is never exchanged: a worker with another catalog is another worker.
//!
//! A run may be acknowledged where its catalog is the recorded one when it ends, by a look that is young enough; otherwise its message
//! comes again. Before a job is given up for good the record is looked at anew: a newer catalog may know names that this one does not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::time::timeout;

use super::lease::{CatalogLease, PATIENCE, RecordUnread, Standing};
use super::prepare::OnRecord;
use crate::migrations::CatalogRecord;
use evenkeel_engine::{
    Delivery, Engine, Execute, Failure, FailureClass, Outcome, OutdatedCatalog, SealBodies, Work,
    aside, note_untold,
};
use evenkeel_model::catalog::{Catalog, Generations};
use evenkeel_model::job::{JobSubject, Primary};
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::{ETag, Job, ViewName};
use evenkeel_storage::Clock;

/// The record as it was seen last.
struct SeenRecord {
    /// Its version: one that was lost and made anew may come to the same number.
    version: Option<ETag>,
    /// What it says about the catalog.
    generations: Generations,
}

/// A catalog that is worked by.
pub struct Current {
    engine: Arc<Engine>,
    lease: Arc<CatalogLease>,
    record: ArcSwap<SeenRecord>,
    /// Generations that items were found to be of and that are later than the catalog's.
    met: Mutex<BTreeMap<ViewName, u32>>,
}

/// The catalog of a run is not the recorded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "generation {recorded} of the catalog is recorded, and this worker's is another one: the job is left to a worker that has it"
)]
struct NotRecorded {
    recorded: u32,
}

/// Older catalogs may still be worked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the catalog is so new that a worker with an older one may still acknowledge jobs: whole tables wait until none can"
)]
struct TooNew;

impl Current {
    /// A catalog that is on record, at the generations of the record. `before` was worked by before it in this process.
    pub fn begin(
        OnRecord { record, sent }: &OnRecord,
        catalog: &Catalog,
        before: Option<&Catalog>,
        engine: impl FnOnce(Arc<Catalog>) -> Arc<Engine>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let mut catalog = Catalog::clone(catalog);
        catalog.generations = record.generations(&catalog);
        if let Some(before) = before {
            remember(&mut catalog, before);
        }
        let seen = SeenRecord {
            version: record.etag.clone(),
            generations: catalog.generations.clone(),
        };
        // A record that was lost and made anew is the first of its account, and not of its workers.
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
            met: Mutex::default(),
        }
    }

    /// Its engine.
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Its lease.
    pub fn lease(&self) -> &CatalogLease {
        &self.lease
    }

    /// Whether this is the version of the record that was seen last.
    pub(super) fn has_seen(&self, version: &ETag) -> bool {
        self.record.load().version.as_ref() == Some(version)
    }

    /// Whether another record of the same views, which a look begun at `sent` found, changes nothing that the engine goes by. It is the
    /// record of this catalog from then on, and what it names belongs to other workers' catalogs.
    pub(super) fn takes_over(&self, record: &CatalogRecord, sent: Duration) -> bool {
        let own = &self.engine.catalog().generations;
        let generations = record.generations(self.engine.catalog());
        // A record that was restored from a copy has lost count: the catalog's own generations are not another's.
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
        self.lease.take_over(sent);
        true
    }

    /// Takes the generations that were met and not told yet.
    pub fn take_met(&self) -> BTreeMap<ViewName, u32> {
        std::mem::take(&mut *self.met.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The primary that a job is about; then, of an archived one, the primaries that it was.
    pub fn forms_of(&self, job: &Job) -> Vec<Primary> {
        self.engine.forms_of(job)
    }

    /// Notes a generation that the catalog is too old for, and asks for a look at the record.
    fn note(&self, failure: &Failure) {
        if let Some(OutdatedCatalog { view, found, .. }) = failure.cause.downcast_ref() {
            let mut met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
            let latest = met.entry(view.clone()).or_default();
            *latest = (*latest).max(*found);
        }
        self.lease.ask();
    }

    /// How the catalog stands, by a look from now on or by one that is fresh enough.
    async fn standing(&self, by_now: bool) -> Result<Standing, Failure> {
        let looked = async {
            if by_now {
                self.lease.standing_now().await
            } else {
                self.lease.standing().await
            }
        };
        let step = "comparing the catalog with the recorded one";
        aside(timeout(PATIENCE, looked)).await.map_err(|_| {
            Failure::new(
                FailureClass::Withheld { retry_after: None },
                step,
                RecordUnread,
            )
        })
    }

    /// Whole tables are worked on for a catalog's sake: by the recorded one, and when no worker acknowledges by an older one any more.
    async fn may_begin(&self, work: &Work) -> Result<(), Failure> {
        if !matches!(work, Work::Job(job) if matches!(job.operation().subject(), JobSubject::Table(_) | JobSubject::View(_) | JobSubject::Source(_)))
        {
            return Ok(());
        }
        if planted(Bug::WalkByAnyCatalog) {
            return Ok(());
        }
        if let Standing::Outdated(recorded) = self.standing(true).await? {
            return Err(not_recorded(recorded));
        }
        match self.lease.older_ones_for() {
            Some(left) if !planted(Bug::WalkAtOnce) => Err(Failure::new(
                FailureClass::Withheld {
                    retry_after: Some(left),
                },
                "waiting for older workers",
                TooNew,
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// The failure of a job: in passing where another recorded catalog has the job's archive or table, whose workers take the job as long
    /// as it is tried.
    fn left_to_others(&self, failure: Failure, subject: JobSubject<'_>) -> Failure {
        if failure.class != FailureClass::Permanent
            || !self
                .engine
                .catalog()
                .is_of_other_catalog(subject, &self.record.load().generations)
        {
            return failure;
        }
        let step = format!(
            "{}: another recorded catalog has it, and this worker leaves it to others",
            failure.step
        );
        Failure::new(
            FailureClass::Transient { retry_after: None },
            step,
            failure.cause,
        )
    }
}

/// Items of views that are what they were are of no earlier generation than before, whatever a record says that was restored from a copy.
fn remember(catalog: &mut Catalog, before: &Catalog) {
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

fn not_recorded(recorded: u32) -> Failure {
    Failure::new(
        FailureClass::OutdatedCatalog,
        "comparing the catalog with the recorded one",
        NotRecorded { recorded },
    )
}

/// Counts the changes of an outcome that does not become its message's.
fn count_untold(ended: Result<Outcome, Failure>) {
    if let Ok(mut outcome) = ended {
        note_untold(std::mem::take(&mut outcome.summary_mut().changes));
    }
}

/// The subject of work.
fn subject(work: &Work) -> JobSubject<'_> {
    match work {
        Work::Job(job) => job.operation().subject(),
        Work::Recheck(recheck) => JobSubject::Primary(&recheck.primary.table, &recheck.primary.key),
    }
}

#[async_trait]
impl Execute for Current {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        self.may_begin(work).await?;
        let ended = self.engine.execute(work, delivery).await;
        // A name that is unknown to an older catalog may be no mistake of the sender.
        let by_now = match &ended {
            Err(failure) => match failure.class {
                FailureClass::Transient { .. } | FailureClass::Withheld { .. } => return ended,
                FailureClass::OutdatedCatalog => {
                    self.note(failure);
                    return ended;
                }
                FailureClass::Permanent => !planted(Bug::PoisonedByAnOldCatalog),
            },
            Ok(_) => false,
        };
        if planted(Bug::RecordNotCompared) {
            return ended;
        }
        match self.standing(by_now).await {
            Ok(Standing::Holds) => {
                ended.map_err(|failure| self.left_to_others(failure, subject(work)))
            }
            Ok(Standing::Outdated(recorded)) => {
                count_untold(ended);
                Err(not_recorded(recorded))
            }
            Err(unconfirmed) => {
                count_untold(ended);
                Err(unconfirmed)
            }
        }
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.engine.give_up(work, delivery).await
    }
}

#[async_trait]
impl SealBodies for Current {
    async fn seal_body(&self, body: &str) -> Result<Option<String>, Failure> {
        self.engine.seal_body(body).await
    }
}

#[cfg(test)]
mod tests;
