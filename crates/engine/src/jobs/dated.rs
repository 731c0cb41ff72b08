//! Outcome of jobs of tables by date that met a missing table.
//!
//! ```text
//!   the table itself                     a sync, delete, recheck: nothing is left to do        skipped
//!                                        a put or move: would be lost                          permanent
//!                                        ... but into one that is to exist by now              transient: it is about to be created
//!   one that follows it, while it is     it is about to be created, or the table is being
//!   there itself                         dropped, and its derived tables go first              transient
//! ```
//!
//! Nothing is created here: a job that comes too late must not bring back a dropped table.

use crate::env::Env;
use crate::execute::{Failure, FailureClass, Outcome, Summary, Work};
use crate::failure::storage;
use crate::items::shared::store_error;
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Retention, TableRef};
use evenkeel_model::job::{Effect, JobSubject};
use evenkeel_storage::{ErrorClass, Missing, Query, Resource};

/// The tables that a piece of work is about. Neither source nor target of an archive is a table by date; `drop_table` handles missing tables
/// itself.
fn subjects(work: &Work) -> Vec<&TableName> {
    match work {
        Work::Recheck(recheck) => vec![&recheck.primary.table],
        Work::Job(job) => match job.operation().subject() {
            JobSubject::Primary(table, _) | JobSubject::Table(table) => vec![table],
            JobSubject::Moved(from, to) => vec![&from.table, &to.table],
            JobSubject::Archived(..)
            | JobSubject::Restored(..)
            | JobSubject::View(_)
            | JobSubject::Source(_)
            | JobSubject::Range(_)
            | JobSubject::DatedTable(_) => Vec::new(),
        },
    }
}

/// Whether the writes of the work would be lost without its table. Otherwise nothing is left to be in step with.
fn is_lost(work: &Work) -> bool {
    matches!(work, Work::Job(job) if job.effect() == Effect::Writes)
}

/// The table that was not there.
fn missing(failure: &Failure) -> Option<&TableName> {
    let error = store_error(failure)
        .filter(|error| error.class == ErrorClass::NotFound(Missing::Container))?;
    match &error.subject.resource {
        Resource::Table(table) | Resource::Partition(table, _) | Resource::Entity(table, _) => {
            Some(table)
        }
        _ => None,
    }
}

/// A table by date that is the one that was not there, or that this one follows.
struct Want<'e> {
    missing: TableName,
    source: &'e TableRef,
    retention: &'e Retention,
}

impl<'e> Want<'e> {
    /// The missing table that work about a table failed for; `None` where the reason was another.
    fn of(env: &'e Env, table: &TableName, failure: &Failure) -> Option<Self> {
        let missing = missing(failure)?.clone();
        let (source, retention) = dated(env, table)
            .filter(|(source, retention)| goes(env, retention, source, &missing))?;
        Some(Self {
            missing,
            source,
            retention,
        })
    }

    /// The failure, which passes where the table is there and one that follows it is missing, and stays where its time is over.
    async fn explain(&self, env: &Env, failure: Failure) -> Failure {
        let Self {
            missing,
            source,
            retention,
        } = self;
        let failure = Failure {
            class: FailureClass::Permanent,
            ..failure
        };
        // Where that cannot be found out now, the next try will.
        if *missing == source.table || !exists(env, source).await.unwrap_or(true) {
            return failure;
        }
        let step = format!(
            "bringing {source} in step: {missing}, which goes with it, is not there; a worker creates it for [retention.{}] at its start and every \
             hour, or {source} is being dropped",
            retention.name
        );
        Failure {
            class: FailureClass::Transient { retry_after: None },
            step,
            ..failure
        }
    }
}

/// Handles a failure for a missing table by date, or a missing one that follows it.
pub(crate) async fn judge(env: &Env, work: &Work, failure: Failure) -> Result<Outcome, Failure> {
    // Transient failures were explained before.
    if matches!(
        failure.class,
        FailureClass::Transient { .. } | FailureClass::OutdatedCatalog
    ) {
        return Err(failure);
    }
    let Some(want) = subjects(work)
        .into_iter()
        .find_map(|table| Want::of(env, table, &failure))
    else {
        return Err(failure);
    };
    let failure = want.explain(env, failure).await;
    if failure.class != FailureClass::Permanent {
        return Err(failure);
    }
    if !is_lost(work) {
        let reason = format!(
            "the table {} does not exist: nothing is derived from it",
            want.source
        );
        return Ok(Outcome::Skipped {
            reason,
            summary: Summary::default(),
        });
    }
    if want
        .retention
        .required(env.clock.now())
        .contains(&want.source.table)
    {
        let step = format!(
            "{}; [retention.{}] is about to create it",
            failure.step, want.retention.name
        );
        return Err(Failure {
            class: FailureClass::Transient { retry_after: None },
            step,
            ..failure
        });
    }
    Err(failure)
}

/// A failure of work about a table, which passes where that is there and one that follows it is missing.
pub(crate) async fn explained(env: &Env, table: &TableName, failure: Failure) -> Failure {
    match Want::of(env, table, &failure) {
        Some(want) => want.explain(env, failure).await,
        None => failure,
    }
}

fn dated<'e>(env: &'e Env, table: &TableName) -> Option<(&'e TableRef, &'e Retention)> {
    env.catalog
        .dated_table(table)
        .zip(env.catalog.retention_of(table))
}

/// Whether a table is this one, or goes with it.
fn goes(env: &Env, retention: &Retention, source: &TableRef, table: &TableName) -> bool {
    *table == source.table || follows(env, retention, source, table)
}

/// Whether a table goes with this one.
fn follows(env: &Env, retention: &Retention, source: &TableRef, table: &TableName) -> bool {
    let Some((begins, _)) = retention.tables.period(&source.table) else {
        return false;
    };
    env.catalog
        .followers(retention)
        .all()
        .any(|follower| follower.at(begins).table == *table)
}

async fn exists(env: &Env, table: &TableRef) -> Result<bool, Failure> {
    let one = Query {
        top: Some(1),
        select: Some(Vec::new()),
        ..Query::default()
    };
    match env.account(table)?.tables.query(&table.table, &one).await {
        Ok(_) => Ok(true),
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => Ok(false),
        Err(error) => Err(storage(format!("looking for the table {table}"), error)),
    }
}
