//! `delete_where` and `archive_where`: find the entities of a table that satisfy a condition, page by page, and delete
//! or archive each of them as a single `delete` or `archive` job would.
//!
//! ```text
//!   a page of rows      ─▶ those that satisfy `when` ─▶ `delete` or `archive` of each, a hundred at once; each reads its row and tests `when` again
//!   the footprints      ─▶ if a delivery was interrupted: a pass for each footprint that has no primary
//!   the archived table  ─▶ if a delivery was interrupted: a pass over each copy whose items may be incomplete
//! ```
//!
//! Up to a hundred concurrent deletions in one partition are sent as one transaction. Like a backfill, a sweep
//! continues from the cursor in its message.
//!
//! If a worker is killed after it deleted a row, no later page contains the row, and only its footprint lists its
//! items. So the footprints are walked after the rows. If a worker is killed after it wrote a copy to the archive, the
//! copy may lack items. A later delivery does not complete the copy if its source was changed or deleted meanwhile. So
//! the copies in the archived table are walked last.
//!
//! An entity that cannot be deleted or archived does not stop the others. The job fails after all others are processed,
//! and reports the first failure.

use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use serde_json::{Map, json};

use crate::env::Env;
use crate::env::waiting::RunSummary;
use crate::execute::{Delivery, Failure, FailureClass, Outcome, Work};
use crate::failure::{is_lost_race, permanent, storage};
use crate::jobs::backfill;
use crate::jobs::context::JobContext;
use crate::jobs::dated;
use crate::jobs::walk::{PagePosition, PrimaryPage, Walk, place};
use crate::jobs::{RunJob, execute};
use crate::protocol::run::passes::pass_over;
use evenkeel_model::backfill::{Backfill, BackfillCursor, BackfillPart, BackfillScope};
use evenkeel_model::catalog::{ArchiveTarget, TableRef};
use evenkeel_model::condition::Condition;
use evenkeel_model::item::{SOURCE_PROPERTY, VIEW_PROPERTY, is_derived_within};
use evenkeel_model::job::Primary;
use evenkeel_model::patterns::sample;
use evenkeel_model::sweep::{Sweep, SweepAction, SweepCursor, SweepPart};
use evenkeel_model::{EntityKey, Filter, Row, limits};
use evenkeel_storage::wide::is_continuation;
use evenkeel_storage::{Continuation, Query};

/// Number of entities that are processed concurrently. One transaction can delete as many.
const AT_ONCE: usize = limits::TRANSACTION_OPERATIONS;
/// Maximum number of seconds that a page takes at the pace of `per_second`. It is less than `drain` (25 s by default),
/// so that a worker completes its page before it stops.
const PAGE_SECONDS: u32 = 20;
/// Maximum length of the text about the first failure, in characters. The text is kept in the message.
const FAILURE_CHARS: usize = 1_000;

#[derive(Debug, Clone, PartialEq)]
pub struct SweepPage {
    /// Entities that satisfy the condition, with the properties that the condition compares. If the table has wide
    /// entities, `rows` contains all entities, and the condition is tested when each entity is processed.
    pub rows: Vec<Row>,
    pub seen: u64,
    /// Start of the next page; `(None, None)` at the end.
    pub next: (Option<String>, Option<String>),
}

#[derive(Debug, thiserror::Error)]
#[error("{failed} of {seen} entities failed. The first failure: {first}")]
struct FailedEntities {
    failed: u64,
    seen: u64,
    first: String,
}

impl RunJob for Sweep {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let source = swept(&cx.env, self)?;
        let condition = cx
            .env
            .condition_at(source, self.when.as_ref(), delivery.stamp.enqueued)?;
        // The jobs of the entities have a delivery count of their own. It counts from the delivery that wrote the
        // cursor, because earlier deliveries did not reach the remaining entities. Once a delivery was interrupted, the
        // count is at least two, because that delivery may have processed some of the remaining entities.
        let least = 1 + u32::from(self.cursor.disturbed);
        let deliveries = delivery
            .dequeue_count
            .saturating_sub(self.cursor.delivery)
            .max(least);
        let mut run = SweepRun {
            cx,
            source,
            sweep: self,
            condition,
            delivery: Delivery {
                dequeue_count: deliveries,
                ..delivery.clone()
            },
            cursor: SweepCursor {
                delivery: delivery.dequeue_count,
                disturbed: self.cursor.disturbed || deliveries > 1,
                ..self.cursor.clone()
            },
            summary: RunSummary::default(),
        };
        let ended = match run.part().await {
            Ok(ended) => ended,
            Err(failure) => return Err(dated::explained(&cx.env, &source.table, failure).await),
        };
        let SweepRun {
            cursor,
            mut summary,
            ..
        } = run;
        if !ended {
            return Ok(Outcome::Advanced {
                fields: Map::from_iter([("cursor".to_owned(), json!(cursor))]),
                summary: summary.take(),
            });
        }
        let SweepCursor {
            seen,
            done,
            left,
            failed,
            failure,
            ..
        } = cursor;
        tracing::info!(action = %self.action, seen, done, left, failed, "completed the sweep of {}", self.action);
        match failure {
            Some(first) => Err(permanent(
                format!("sweeping the entities of {}", self.action),
                FailedEntities {
                    failed,
                    seen,
                    first,
                },
            )),
            None => Ok(Outcome::Done(summary.take())),
        }
    }
}

fn swept<'e>(env: &'e Env, sweep: &Sweep) -> Result<&'e TableRef, Failure> {
    let table = match &sweep.action {
        SweepAction::Delete(table) => env.table(table)?,
        SweepAction::Archive(archive) => &env.archive(archive)?.source,
    };
    env.refuse_view_tables(&table.table).map(|()| table)
}

/// Returns one page of the entities that a sweep would process if it were sent now. Writes nothing.
pub(crate) async fn would_sweep(
    env: &Env,
    sweep: &Sweep,
    from: &(Option<String>, Option<String>),
) -> Result<SweepPage, Failure> {
    let source = swept(env, sweep)?;
    let condition = env.condition_at(source, sweep.when.as_ref(), env.clock.now())?;
    sweep_page(
        env,
        sweep,
        source,
        condition.as_ref(),
        limits::PAGE_ROWS,
        from,
    )
    .await
}

/// Returns probable mistakes in the condition of a sweep, such as a property that no entity has. [`sample::unmet`]
/// finds them in the first page of the sweep's range.
pub(crate) async fn sweep_unmet(env: &Env, sweep: &Sweep) -> Result<Vec<String>, Failure> {
    let source = swept(env, sweep)?;
    let condition = env.condition_at(source, sweep.when.as_ref(), env.clock.now())?;
    let Some(condition) = condition.filter(|_| !env.catalog.wide.contains(source)) else {
        return Ok(Vec::new());
    };
    let query = Query {
        filter: sweep.range.filter(),
        top: Some(limits::PAGE_ROWS),
        ..Query::default()
    };
    let page = env
        .account(source)?
        .tables
        .query(&source.table, &query)
        .await;
    let page = page.map_err(|error| storage(format!("reading a page of {source}"), error))?;
    let primaries = page
        .rows
        .into_iter()
        .map(|row| row.entity)
        .filter(|entity| !is_derived_within(&source.table, entity));
    Ok(sample::unmet(
        source.table.as_str(),
        &condition,
        &primaries.collect::<Vec<_>>(),
    ))
}

async fn sweep_page(
    env: &Env,
    sweep: &Sweep,
    source: &TableRef,
    condition: Option<&Condition>,
    rows: u32,
    from: &PagePosition,
) -> Result<SweepPage, Failure> {
    let wide = env.catalog.wide.contains(source);
    let condition = condition.filter(|_| !wide);
    let prefilter = condition.and_then(Condition::prefilter);
    let filter = sweep
        .range
        .filter()
        .into_iter()
        .chain(prefilter)
        .reduce(Filter::and);
    let own = [SOURCE_PROPERTY, VIEW_PROPERTY];
    let select = own
        .into_iter()
        .chain(condition.into_iter().flat_map(Condition::selected))
        .map(str::to_owned)
        .collect();
    let continuation = Continuation::of_parts(from.0.as_ref(), from.1.as_ref());
    let query = Query {
        filter,
        select: Some(select),
        top: Some(rows),
        continuation,
    };
    let page = env
        .account(source)?
        .tables
        .query(&source.table, &query)
        .await;
    let page = page.map_err(|error| storage(format!("reading a page of {source}"), error))?;
    let primary = |row: &Row| {
        !(is_derived_within(&source.table, &row.entity)
            || wide && is_continuation(&row.entity.key.rk))
    };
    let mut found: Vec<Row> = page.rows.into_iter().filter(primary).collect();
    let seen = found.len() as u64;
    found.retain(|row| condition.is_none_or(|condition| condition.holds_of(row)));
    Ok(SweepPage {
        rows: found,
        seen,
        next: place(page.continuation),
    })
}

struct SweepRun<'e> {
    cx: &'e JobContext,
    source: &'e TableRef,
    sweep: &'e Sweep,
    condition: Option<Condition>,
    /// The delivery that is passed to each entity's job.
    delivery: Delivery,
    cursor: SweepCursor,
    summary: RunSummary,
}

impl SweepRun<'_> {
    /// Processes pages until the sweep is complete or the time of one part (`JobContext::part`) is over. Returns
    /// whether the sweep is complete.
    async fn part(&mut self) -> Result<bool, Failure> {
        let clock = &self.cx.env.clock;
        let began = clock.monotonic();
        loop {
            let from = (self.cursor.next_pk.take(), self.cursor.next_rk.take());
            let next = match self.cursor.part {
                SweepPart::Rows => self.rows(&from).await?,
                SweepPart::Footprints => self.footprints(from).await?,
                SweepPart::Archived => self.archived(&from).await?,
            };
            let ended = next.0.is_none();
            (self.cursor.next_pk, self.cursor.next_rk) = next;
            match self.cursor.part {
                SweepPart::Rows if ended && self.cursor.disturbed => {
                    self.cursor.part = SweepPart::Footprints;
                }
                SweepPart::Footprints if ended && self.archived_in().is_some() => {
                    self.cursor.part = SweepPart::Archived;
                }
                SweepPart::Rows | SweepPart::Footprints | SweepPart::Archived if ended => {
                    return Ok(true);
                }
                SweepPart::Rows | SweepPart::Footprints | SweepPart::Archived => {}
            }
            if clock.monotonic().saturating_sub(began) >= self.cx.part {
                return Ok(false);
            }
        }
    }

    async fn rows(&mut self, from: &PagePosition) -> Result<PagePosition, Failure> {
        let pace = self.sweep.per_second;
        let most = pace.saturating_mul(PAGE_SECONDS).min(limits::PAGE_ROWS);
        let page = sweep_page(
            &self.cx.env,
            self.sweep,
            self.source,
            self.condition.as_ref(),
            most,
            from,
        )
        .await?;
        self.cursor.seen += page.seen;
        let keys: Vec<EntityKey> = page.rows.into_iter().map(|row| row.entity.key).collect();
        for keys in keys.chunks(AT_ONCE.min(usize::try_from(pace).unwrap_or(AT_ONCE))) {
            let began = self.cx.env.clock.monotonic();
            self.act(keys).await?;
            let least = Duration::from_secs(keys.len() as u64) / pace;
            tokio::time::sleep((began + least).saturating_sub(self.cx.env.clock.monotonic())).await;
        }
        Ok(page.next)
    }

    /// Processes the entities concurrently. Entities that lost a race are then processed again, one by one.
    async fn act(&mut self, keys: &[EntityKey]) -> Result<(), Failure> {
        let runs: Vec<_> = keys
            .iter()
            .map(|key| self.one(key, &self.delivery))
            .collect();
        let ended: Vec<_> = stream::iter(runs).buffered(AT_ONCE).collect().await;
        let mut slower = Vec::new();
        for (key, ended) in keys.iter().zip(ended) {
            match ended {
                Err(failure) if is_lost_race(&failure) => slower.push(key),
                ended => self.count(key, ended)?,
            }
        }
        // The second try counts as a redelivery, because the first one may have copied the entity or may have requests
        // under way.
        let again = Delivery {
            dequeue_count: self.delivery.dequeue_count + 1,
            ..self.delivery.clone()
        };
        for key in slower {
            let ended = self.one(key, &again).await;
            self.cursor.disturbed |= !matches!(ended, Ok(Outcome::Done(_)));
            self.count(key, ended)?;
        }
        Ok(())
    }

    async fn one(&self, key: &EntityKey, delivery: &Delivery) -> Result<Outcome, Failure> {
        if let (SweepPart::Archived, Some(table)) = (self.cursor.part, self.archived_in()) {
            let copy = Primary {
                table: table.table.clone(),
                key: key.clone(),
            };
            return pass_over(&self.cx.env, &copy, Some(delivery))?
                .reconcile()
                .await
                .map(Outcome::Done);
        }
        let job = self.sweep.job_of(&self.source.table, key.clone());
        execute(self.cx, &Work::Job(job), delivery).await
    }

    fn count(&mut self, key: &EntityKey, ended: Result<Outcome, Failure>) -> Result<(), Failure> {
        match ended {
            Ok(Outcome::Done(summary)) => {
                self.cursor.done += u64::from(self.cursor.part == SweepPart::Rows);
                self.summary.0.add(summary);
            }
            Ok(Outcome::Skipped { summary, .. } | Outcome::Advanced { summary, .. }) => {
                self.cursor.left += 1;
                self.summary.0.add(summary);
            }
            Err(failure) if failure.class == FailureClass::Permanent => {
                self.cursor.failed += 1;
                let text = || {
                    format!("{key}: {}", failure.chain())
                        .chars()
                        .take(FAILURE_CHARS)
                        .collect()
                };
                tracing::warn!(action = %self.sweep.action, %key, error = failure.chain(), "could not process entity {key} in the sweep of {}; skipping it", self.sweep.action);
                self.cursor.failure.get_or_insert_with(text);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Syncs primaries that an interrupted delivery may have deleted without deleting their items.
    async fn footprints(&mut self, from: PagePosition) -> Result<PagePosition, Failure> {
        let (next_pk, next_rk) = from;
        let cursor = BackfillCursor {
            part: BackfillPart::Footprints,
            next_pk,
            next_rk,
            ..BackfillCursor::default()
        };
        let backfill = Backfill {
            scope: BackfillScope::Table(self.source.table.clone()),
            cursor,
        };
        let Some(pass) = backfill::backfill(self.cx, &backfill, &self.delivery).await? else {
            return Ok(PagePosition::default());
        };
        self.summary.0.add(pass.summary);
        Ok(if pass.ended {
            PagePosition::default()
        } else {
            (pass.cursor.next_pk, pass.cursor.next_rk)
        })
    }

    /// The table of the archived copies, if views derive items from the copies. For an archive of documents with large
    /// values, this is the table that represents the documents in the catalog.
    fn archived_in(&self) -> Option<&TableRef> {
        let SweepAction::Archive(archive) = &self.sweep.action else {
            return None;
        };
        let catalog = &self.cx.env.catalog;
        match (
            catalog.archived_values_of(archive),
            &catalog.archives.get(archive)?.target,
        ) {
            (Some(archived), _) => Some(&archived.table),
            (None, ArchiveTarget::Table(table)) => {
                Some(table).filter(|table| catalog.has_views(table))
            }
            (None, ArchiveTarget::Blob(_) | ArchiveTarget::File(_) | ArchiveTarget::Log(_)) => None,
        }
    }

    /// Syncs archived copies whose items an interrupted delivery may have left incomplete.
    async fn archived(&mut self, from: &PagePosition) -> Result<PagePosition, Failure> {
        let Some(table) = self.archived_in() else {
            return Ok(PagePosition::default());
        };
        let PrimaryPage { keys, next, .. } = Walk {
            cx: self.cx,
            source: table,
            delivery: &self.delivery,
        }
        .unsettled(from)
        .await?;
        self.act(&keys).await.map(|()| next)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Engine, EngineParts};
    use evenkeel_account::company::{Shape, TABLES, catalog, queue, table};
    use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
    use evenkeel_model::job::{Job, Stamp, decode};
    use evenkeel_model::{AccountName, Entity};
    use evenkeel_storage::system::{SeededRng, SystemClock};
    use evenkeel_storage::{Account, Clock, Stores, TableOperation};

    struct Calm;

    #[async_trait::async_trait]
    impl FaultPolicy for Calm {
        async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
            FaultDecision::Execute
        }
    }

    async fn engine() -> (Engine, Account, Delivery) {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let account =
            SimWorld::new(AccountName::main(), Arc::clone(&clock), Arc::new(Calm)).account();
        for name in TABLES {
            account.tables.create_table(&table(name)).await.unwrap();
        }
        account
            .queues
            .create_queue(&queue("jobs-recheck"))
            .await
            .unwrap();
        let engine = Engine::new(EngineParts {
            stores: Stores::new([(AccountName::main(), account.clone())].into()),
            catalog: Arc::new(catalog(Shape::default())),
            clock: Arc::clone(&clock),
            rng: Arc::new(SeededRng::new(7)),
            recheck_after: Duration::from_mins(26),
        });
        let delivery = Delivery {
            stamp: Stamp {
                message_id: "m".to_owned(),
                enqueued: clock.now(),
                job: None,
            },
            dequeue_count: 1,
            account: AccountName::main(),
            tables: None,
            propagation_queue: queue("jobs"),
            sync_queue: queue("jobs"),
            recheck_queue: queue("jobs-recheck"),
        };
        (engine, account, delivery)
    }

    async fn write(account: &Account, rk: &str, name: &str) {
        let employee = Entity::new(EntityKey::new("Sales", rk).unwrap())
            .with("LastName", name)
            .with("Email", format!("{rk}@contoso.com"));
        account
            .tables
            .apply(
                &table("Employees"),
                &TableOperation::InsertOrReplace(employee),
            )
            .await
            .unwrap();
    }

    fn sweep(json: &serde_json::Value) -> Sweep {
        match decode(&json.to_string()).unwrap().job {
            Job::DeleteWhere(sweep) | Job::ArchiveWhere(sweep) => *sweep,
            other => panic!("{other:?} is no sweep"),
        }
    }

    /// One row changes after its page was read and before the row is processed.
    #[tokio::test(start_paused = true)]
    async fn a_row_that_no_longer_satisfies_the_condition_stays() {
        for message in [
            json!({"op": "delete_where", "table": "Employees", "when": "LastName == \"King\""}),
            json!({"op": "archive_where", "archive": "former", "when": "LastName == \"King\""}),
        ] {
            let (engine, account, delivery) = engine().await;
            for rk in ["1", "2", "3"] {
                write(&account, rk, "King").await;
            }
            let sweep = sweep(&message);
            let source = swept(&engine.context().env, &sweep).unwrap();
            let condition = engine
                .context()
                .env
                .condition_at(source, sweep.when.as_ref(), delivery.stamp.enqueued)
                .unwrap();
            let page = sweep_page(
                &engine.context().env,
                &sweep,
                source,
                condition.as_ref(),
                100,
                &PagePosition::default(),
            )
            .await
            .unwrap();
            let keys: Vec<EntityKey> = page.rows.into_iter().map(|row| row.entity.key).collect();
            assert_eq!((keys.len(), page.seen), (3, 3));
            write(&account, "2", "Lovelace").await;
            let summary = RunSummary::default();
            let mut run = SweepRun {
                cx: engine.context(),
                source,
                sweep: &sweep,
                condition,
                delivery,
                cursor: SweepCursor::default(),
                summary,
            };
            run.act(&keys).await.unwrap();
            assert_eq!(
                (run.cursor.done, run.cursor.left, run.cursor.failed),
                (2, 1, 0),
                "{message}"
            );
            let left = account
                .tables
                .get(&table("Employees"), &keys[1], None)
                .await
                .unwrap();
            assert!(
                left.is_some_and(|row| row.entity.text("LastName") == Some("Lovelace")),
                "{message}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_keeps_the_requested_pace() {
        let (engine, account, delivery) = engine().await;
        for rk in 0..60 {
            write(&account, &rk.to_string(), "King").await;
        }
        let began = engine.context().env.clock.monotonic();
        let mut sweep = sweep(
            &json!({"op": "delete_where", "table": "Employees", "range": {"pk": "Sales"}, "per_second": 2}),
        );
        let mut parts = 0;
        loop {
            match sweep.run(engine.context(), &delivery).await.unwrap() {
                Outcome::Advanced { fields, .. } => {
                    sweep.cursor = serde_json::from_value(fields["cursor"].clone()).unwrap();
                }
                Outcome::Done(_) => break,
                Outcome::Skipped { reason, .. } => panic!("{reason}"),
            }
            parts += 1;
        }
        let took = engine.context().env.clock.monotonic().saturating_sub(began);
        assert!(
            took >= Duration::from_secs(30) && parts > 0,
            "{took:?} in {parts} parts"
        );
    }
}
