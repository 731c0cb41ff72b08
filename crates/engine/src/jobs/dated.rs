//! Decides the outcome of a job that fails because a dated table or one of its followers is missing. The followers of a
//! dated table are its footprint table, and the target tables of its views. These targets have the same date.
//!
//! ```text
//!   missing                         job                        outcome
//!   the table                       sync, delete or recheck    skipped: nothing is left to do
//!                                   put or move                permanent: its write would be lost
//!                                   put or move, if the table  transient: a worker is about to create it
//!                                   should exist by now
//!   a follower, but not the table   any                        transient: a worker is about to create it,
//!                                                              or the table is being dropped, followers first
//! ```
//!
//! No table is created here, because a late job must not bring back a dropped table.

use crate::env::Env;
use crate::execute::{Failure, FailureClass, Outcome, Summary, Work};
use crate::failure::storage;
use evenkeel_model::TableName;
use evenkeel_model::catalog::{Retention, TableRef};
use evenkeel_model::job::{Effect, JobSubject};
use evenkeel_storage::{ErrorClass, Missing, Query, Resource, StoreError};

/// The tables that a job or recheck concerns. Empty for an `archive` or a `restore`, because neither the source nor the
/// target of an archive is dated. Empty for `drop_table`, because it handles missing tables itself.
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

/// Returns `true` if the work writes to the table: without the table, its write is lost. Any other work has nothing
/// left to sync without the table.
fn is_lost(work: &Work) -> bool {
    matches!(work, Work::Job(job) if job.effect() == Effect::Writes)
}

fn missing(failure: &Failure) -> Option<&TableName> {
    let error = failure
        .cause
        .downcast_ref::<StoreError>()
        .filter(|error| error.class == ErrorClass::NotFound(Missing::Container))?;
    match &error.subject.resource {
        Resource::Table(table) | Resource::Partition(table, _) | Resource::Entity(table, _) => {
            Some(table)
        }
        _ => None,
    }
}

struct MissingTable<'e> {
    missing: TableName,
    source: &'e TableRef,
    retention: &'e Retention,
}

impl<'e> MissingTable<'e> {
    /// The missing table that made work on `table` fail; `None` if the work failed for another reason.
    fn of(env: &'e Env, table: &TableName, failure: &Failure) -> Option<Self> {
        let missing = missing(failure)?.clone();
        let (source, retention) = dated(env, table)
            .filter(|(source, retention)| is_or_follows(env, retention, source, &missing))?;
        Some(Self {
            missing,
            source,
            retention,
        })
    }

    /// Classifies the failure: transient if the table exists and a follower is missing, otherwise permanent.
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
        // If this read fails, the table counts as existing, and the next try reads again.
        if *missing == source.table || !exists(env, source).await.unwrap_or(true) {
            return failure;
        }
        let step = format!(
            "syncing {source}: derived table {missing} does not exist. A worker creates it for [retention.{}] within an hour, unless {source} \
             is being dropped",
            retention.name
        );
        Failure {
            class: FailureClass::Transient { retry_after: None },
            step,
            ..failure
        }
    }
}

/// Decides the outcome of a failure, if a missing dated table or a missing follower of a dated table has caused it.
pub(crate) async fn judge(env: &Env, work: &Work, failure: Failure) -> Result<Outcome, Failure> {
    // Work that failed transiently, or with an outdated catalog, is retried in any case.
    if matches!(
        failure.class,
        FailureClass::Transient { .. } | FailureClass::OutdatedCatalog
    ) {
        return Err(failure);
    }
    let Some(want) = subjects(work)
        .into_iter()
        .find_map(|table| MissingTable::of(env, table, &failure))
    else {
        return Err(failure);
    };
    let failure = want.explain(env, failure).await;
    if failure.class != FailureClass::Permanent {
        return Err(failure);
    }
    if !is_lost(work) {
        let reason = format!(
            "table {} does not exist, so nothing is derived from it",
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
            "{}; a worker is about to create it for [retention.{}]",
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

pub(crate) async fn explained(env: &Env, table: &TableName, failure: Failure) -> Failure {
    match MissingTable::of(env, table, &failure) {
        Some(want) => want.explain(env, failure).await,
        None => failure,
    }
}

fn dated<'e>(env: &'e Env, table: &TableName) -> Option<(&'e TableRef, &'e Retention)> {
    env.catalog
        .dated_table(table)
        .zip(env.catalog.retention_of(table))
}

fn is_or_follows(env: &Env, retention: &Retention, source: &TableRef, table: &TableName) -> bool {
    *table == source.table || follows(env, retention, source, table)
}

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
        Err(error) => Err(storage(
            format!("checking whether table {table} exists"),
            error,
        )),
    }
}
