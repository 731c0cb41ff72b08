//! Jobs of tables by date that met a table that is not there: what becomes of them.
//!
//! ```text
//!   the table itself                     a sync, delete, recheck: nothing is left to do        skipped
//!                                        a put or move: would be lost                          permanent
//!                                        ... but into one that is to exist by now              transient: it is about to be created
//!   one that follows it, while it is     it is about to be created, or the table is being
//!   there itself                         dropped, and what follows it goes first               transient
//! ```
//!
//! Nothing is created here: a job that comes too late must not bring back what was dropped.

use super::engine::Engine;
use super::execute::{Failure, FailureClass, Outcome, Summary, Work};
use super::failure::storage;
use super::shared::store_error;
use crate::catalog::{Retention, TableRef};
use crate::model::backfill::BackfillScope;
use crate::model::{Job, TableName};
use crate::ports::{ErrorClass, Missing, Query, What};

/// The tables that a piece of work is about, and whether it may end without having written anything.
fn subjects(work: &Work) -> (Vec<&TableName>, Without) {
    match work {
        Work::Recheck(recheck) => (vec![&recheck.primary.table], Without::Skips),
        Work::Job(Job::Sync { primary, .. } | Job::Delete { primary, .. }) => (vec![&primary.table], Without::Skips),
        Work::Job(Job::Audit(audit)) => (vec![&audit.table], Without::Skips),
        Work::Job(Job::Backfill(backfill)) => match &backfill.scope {
            BackfillScope::Table(table) => (vec![table], Without::Skips),
            BackfillScope::View(_) => (Vec::new(), Without::Skips),
        },
        Work::Job(Job::Put(put)) => (vec![&put.table], Without::Fails),
        Work::Job(Job::Move { primary, to }) => (vec![&primary.table, &to.table], Without::Fails),
        // Neither source nor target of an archive is a table by date; what drops one sees to what is not there itself.
        Work::Job(Job::Archive { .. } | Job::Restore { .. } | Job::Carry(_) | Job::DropTable(_)) => (Vec::new(), Without::Fails),
    }
}

/// How work ends whose table is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Without {
    /// There is nothing left to be in step with.
    Skips,
    /// What it carries would be lost.
    Fails,
}

/// The table that was not there.
fn missing(failure: &Failure) -> Option<&TableName> {
    let error = store_error(failure).filter(|error| error.class == ErrorClass::NotFound(Missing::Container))?;
    match &error.subject.what {
        What::Table(table) | What::Partition(table, _) | What::Entity(table, _) => Some(table),
        What::Service(_) | What::Queue(_) | What::Message(..) | What::Container(_) | What::Blob(..) | What::File(..) => None,
    }
}

/// Ends work that has failed, where that was for want of a table by date, or of one that follows it.
pub(super) async fn judge(engine: &Engine, work: &Work, failure: Failure) -> Result<Outcome, Failure> {
    let (tables, without) = subjects(work);
    let Some(missing) = missing(&failure).cloned() else { return Err(failure) };
    for table in tables {
        let Some((source, retention)) = engine.catalog.dated_table(table).zip(engine.catalog.retention_of(table)) else { continue };
        let is_there = if missing == source.table {
            false
        } else if follows(engine, retention, source, &missing) {
            exists(engine, source).await?
        } else {
            continue;
        };
        if is_there {
            let step = format!(
                "{}: {missing} goes with {source}, and is not there: [retention.{}] is about to create it, or {source} is being dropped",
                failure.step, retention.name
            );
            return Err(Failure { class: FailureClass::Transient { retry_after: None }, step, ..failure });
        }
        return match without {
            Without::Skips => Ok(Outcome::Skipped {
                reason: format!("the table {source} does not exist: nothing is derived from it"),
                summary: Summary::default(),
            }),
            Without::Fails if retention.wanted(engine.clock.now()).contains(&source.table) => {
                let step = format!("{}; [retention.{}] is about to create it", failure.step, retention.name);
                Err(Failure { class: FailureClass::Transient { retry_after: None }, step, ..failure })
            }
            Without::Fails => Err(failure),
        };
    }
    Err(failure)
}

/// Whether a table goes with this one.
fn follows(engine: &Engine, retention: &Retention, source: &TableRef, table: &TableName) -> bool {
    let Some((begins, _)) = retention.tables.period(&source.table) else { return false };
    engine.catalog.followers(retention).all().any(|follower| follower.at(begins).table == *table)
}

async fn exists(engine: &Engine, table: &TableRef) -> Result<bool, Failure> {
    let one = Query { top: Some(1), select: Some(Vec::new()), ..Query::default() };
    match engine.account(table)?.tables.query(&table.table, &one).await {
        Ok(_) => Ok(true),
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => Ok(false),
        Err(error) => Err(storage(format!("looking for the table {table}"), error)),
    }
}
