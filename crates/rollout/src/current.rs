//! The engine in force, which executes the worker's jobs. Exchanged when the catalog grows while the program runs, and
//! when another generation is recorded that the catalog fits.
//!
//! A run may be acknowledged where its engine is in force and its catalog recorded when it ends. A run with an engine exchanged
//! meanwhile is followed by a `sync` with the new one; one with a catalog that is not the recorded one any more comes again. Before a
//! job is given up for good the record is looked at anew: a newer catalog may know names that this one does not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use tokio::time::timeout;

use super::lease::{CatalogLease, HeldCatalog, PATIENCE, RecordUnread, Standing};
use super::prepare::OnRecord;
use evenkeel_engine::{
    Delivery, Engine, Execute, Failure, FailureClass, Outcome, OutdatedCatalog, SealBodies, Work,
    aside, note_untold,
};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::{Effect, JobSubject, Primary};
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::{ETag, Job, ViewName};
use evenkeel_storage::Clock;

/// An engine and the recorded generation of its catalog.
#[derive(Clone)]
pub struct InForce {
    pub engine: Arc<Engine>,
    pub generation: u32,
    /// The record's version: one that was lost and made anew may come to the same generation.
    pub version: Option<ETag>,
}

/// The engine in force.
pub struct Current {
    in_force: ArcSwap<InForce>,
    lease: Arc<CatalogLease>,
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
    /// The engine that a worker begins with: that of its catalog, at the generations of the record.
    pub fn begin(
        prepared: &OnRecord,
        catalog: &Catalog,
        engine: impl FnOnce(Arc<Catalog>) -> Arc<Engine>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let OnRecord { record, sent } = prepared;
        let mut catalog = Catalog::clone(catalog);
        catalog.generations = record.generations(&catalog);
        let in_force = InForce {
            engine: engine(Arc::new(catalog)),
            generation: record.generation,
            version: record.etag.clone(),
        };
        Self::new(in_force, record.first, *sent, Arc::clone(clock))
    }

    /// An engine with the recorded catalog, and perhaps the first of all, by a look begun at `sent`.
    pub fn new(in_force: InForce, first: bool, sent: Duration, clock: Arc<dyn Clock>) -> Self {
        let lease = Arc::new(CatalogLease::new(in_force.generation, first, sent, clock));
        in_force.engine.stop_when_replaced(Arc::new(HeldCatalog {
            lease: Arc::clone(&lease),
            generation: in_force.generation,
        }));
        Self {
            in_force: ArcSwap::from_pointee(in_force),
            lease,
            met: Mutex::default(),
        }
    }

    /// The engine in force now, and its generation.
    pub fn in_force(&self) -> InForce {
        InForce::clone(&self.in_force.load())
    }

    /// The engine in force now.
    pub fn engine(&self) -> Arc<Engine> {
        self.in_force().engine
    }

    /// The lease of its catalog.
    pub fn lease(&self) -> &CatalogLease {
        &self.lease
    }

    /// Puts another engine into force; a look begun at `sent` found its catalog recorded.
    pub fn exchange(&self, next: InForce, sent: Duration) {
        let generation = next.generation;
        next.engine.stop_when_replaced(Arc::new(HeldCatalog {
            lease: Arc::clone(&self.lease),
            generation,
        }));
        self.in_force.store(Arc::new(next));
        self.lease.take_over(generation, sent);
    }

    /// Takes the generations that were met and not told yet.
    pub fn take_met(&self) -> BTreeMap<ViewName, u32> {
        std::mem::take(&mut *self.met.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The primary that a job is about; then, of an archived one, the primaries that it was.
    pub fn forms_of(&self, job: &Job) -> Vec<Primary> {
        self.engine().forms_of(job)
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

    /// How a run by a generation stands, by a look from now on or by one that is fresh enough.
    async fn standing(&self, generation: u32, by_now: bool) -> Result<Standing, Failure> {
        let looked = async {
            if by_now {
                self.lease.standing_now(generation).await
            } else {
                self.lease.standing(generation).await
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
        while let standing @ (Standing::Exchanged | Standing::Outdated(_)) =
            self.standing(self.in_force().generation, true).await?
        {
            if let Standing::Outdated(recorded) = standing {
                return Err(not_recorded(recorded));
            }
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
}

fn not_recorded(recorded: u32) -> Failure {
    Failure::new(
        FailureClass::OutdatedCatalog,
        "comparing the catalog with the recorded one",
        NotRecorded { recorded },
    )
}

/// The follow-up of a run with an engine exchanged meanwhile: the new engine handles the views that the old one did not
/// know.
async fn follow(
    engine: &Engine,
    work: &Work,
    delivery: &Delivery,
    ended: Result<Outcome, Failure>,
) -> Result<Outcome, Failure> {
    let Work::Job(job) = work else {
        return engine.execute(work, delivery).await;
    };
    if job.effect() == Effect::Drops {
        return ended;
    }
    let ended = ended.map(untold);
    if ended.is_err()
        || job.effect() == Effect::Derives
        || job.key().is_none()
        || job.operation().erases().is_some()
    {
        // Half done or refused by the replaced catalog, over primaries without a name by now, or over every archive: once more, as after a
        // delivery without an end in order.
        return engine
            .execute(
                work,
                &Delivery {
                    dequeue_count: delivery.dequeue_count.saturating_add(1),
                    ..delivery.clone()
                },
            )
            .await;
    }
    for primary in engine.primaries_of(job) {
        untold(
            engine
                .execute(&Work::Job(Job::sync(primary)), delivery)
                .await?,
        );
    }
    ended
}

/// An outcome that does not become its message's, or with others: its changes are counted here.
fn untold(mut outcome: Outcome) -> Outcome {
    note_untold(std::mem::take(&mut outcome.summary_mut().changes));
    outcome
}

/// The subject of work.
fn subject(work: &Work) -> JobSubject<'_> {
    match work {
        Work::Job(job) => job.operation().subject(),
        Work::Recheck(recheck) => JobSubject::Primary(&recheck.primary.table, &recheck.primary.key),
    }
}

/// The failure of a job: in passing where another recorded catalog has the job's archive or table, whose workers take the job as long as it is
/// tried.
fn left_to_others(failure: Failure, catalog: &Catalog, subject: JobSubject<'_>) -> Failure {
    if failure.class != FailureClass::Permanent || !catalog.lacks(subject) {
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

#[async_trait]
impl Execute for Current {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        self.may_begin(work).await?;
        let mut ran = self.in_force();
        let mut ended = ran.engine.execute(work, delivery).await;
        loop {
            if ended.as_ref().is_err_and(|failure| {
                matches!(
                    failure.class,
                    FailureClass::Transient { .. } | FailureClass::Withheld { .. }
                )
            }) {
                return ended;
            }
            let now = self.in_force();
            if !Arc::ptr_eq(&now.engine, &ran.engine) && planted(Bug::ExchangedNotFollowed) {
                return ended;
            }
            if !Arc::ptr_eq(&now.engine, &ran.engine) {
                ended = follow(&now.engine, work, delivery, ended).await;
                ran = now;
                continue;
            }
            if let Err(failure) = &ended
                && failure.class == FailureClass::OutdatedCatalog
            {
                self.note(failure);
                return ended;
            }
            if planted(Bug::RecordNotCompared) {
                return ended;
            }
            // A name that is unknown to an older catalog may be no mistake of the sender.
            let by_now = ended
                .as_ref()
                .is_err_and(|failure| failure.class == FailureClass::Permanent);
            let standing = match self
                .standing(
                    ran.generation,
                    by_now && !planted(Bug::PoisonedByAnOldCatalog),
                )
                .await
            {
                Ok(standing) => standing,
                Err(unconfirmed) => {
                    drop(ended.map(untold));
                    return Err(unconfirmed);
                }
            };
            match standing {
                Standing::Holds => {
                    return ended.map_err(|failure| {
                        left_to_others(failure, ran.engine.catalog(), subject(work))
                    });
                }
                Standing::Outdated(recorded) => {
                    drop(ended.map(untold));
                    return Err(not_recorded(recorded));
                }
                Standing::Exchanged => {}
            }
        }
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.engine().give_up(work, delivery).await
    }
}

#[async_trait]
impl SealBodies for Current {
    async fn seal_body(&self, body: &str) -> Result<Option<String>, Failure> {
        self.engine().seal_body(body).await
    }
}

#[cfg(test)]
mod tests;
