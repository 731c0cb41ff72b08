//! `backfill`: every primary of a table is brought in step, with a look at each of its items.
//!
//! ```text
//!   the rows of the table      ─▶ a pass each, which looks at every item that its footprint lists
//!   the table's footprints     ─▶ a pass for each whose primary is gone
//! ```
//!
//! It is a `sync` of each, by the same passes: it may run beside workers and clients, be repeated and be
//! interrupted anywhere. It goes on from its cursor, which its message carries: a part takes about [`PART`], then the
//! message is released with the new cursor. A primary that cannot be brought in step for a reason of its own does not
//! hold up the others: a `sync` job of it is queued, which will end in the poison queue and say why.
//!
//! What it does not find: items of primaries whose partition key is so long that their footprint's is a hash, and that
//! are gone; rows that no footprint lists, which only a hand can have written.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use serde_json::{Map, Value, json};

use super::engine::{Engine, Unknown};
use super::execute::{Delivery, Failure, FailureClass, Outcome, Summary};
use super::failure::{permanent, storage};
use super::footprint;
use super::pass::Pass;
use crate::catalog::TableRef;
use crate::model::backfill::{Backfill, BackfillCursor, BackfillPart, BackfillScope};
use crate::model::item::{SOURCE_PROPERTY, VIEW_PROPERTY, is_derived_within};
use crate::model::job::{Looks, Primary};
use crate::model::{Comparison, EntityKey, Filter, Row, body};
use crate::ports::{Continuation, Page, Query, Ttl};

/// How long one delivery goes on before it saves its progress: well within `drain` (25 s as shipped), so that a
/// shutdown loses none of it.
const PART: Duration = Duration::from_secs(10);
/// Rows of one page.
const PAGE: u32 = 100;
/// Passes at once.
const AT_ONCE: usize = 16;

/// What one part of a backfill did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillPass {
    /// How far it has come.
    pub cursor: BackfillCursor,
    /// Whether that is the end.
    pub ended: bool,
    /// What happened to items.
    pub summary: Summary,
}

impl Engine {
    /// Brings primaries in step from a cursor on, for about ten seconds or to the end. Nothing where the table has no views.
    pub async fn backfill(&self, backfill: &Backfill, delivery: &Delivery) -> Result<Option<BackfillPass>, Failure> {
        let source = source(self, &backfill.scope)?;
        if !self.catalog.has_views(source) {
            return Ok(None);
        }
        part(Run { engine: self, source, delivery }, backfill.cursor.clone()).await.map(Some)
    }
}

pub(super) async fn run(engine: &Engine, backfill: &Backfill, delivery: &Delivery) -> Result<Outcome, Failure> {
    Ok(match engine.backfill(backfill, delivery).await? {
        None => Outcome::Skipped { reason: format!("nothing is derived from {}", backfill.scope), summary: Summary::default() },
        Some(BackfillPass { ended: true, summary, .. }) => Outcome::Done(summary),
        Some(BackfillPass { cursor, summary, .. }) => {
            Outcome::Advanced { fields: Map::from_iter([("cursor".to_owned(), json!(cursor))]), summary }
        }
    })
}

async fn part(run: Run<'_>, mut cursor: BackfillCursor) -> Result<BackfillPass, Failure> {
    let began = run.engine.clock.monotonic();
    let mut summary = Summary::default();
    loop {
        let page = run.page(&cursor).await?;
        let primaries = match cursor.part {
            BackfillPart::Primaries => run.primaries(page.rows),
            BackfillPart::Footprints => run.without_primary(page.rows).await?,
        };
        run.bring_in_step(primaries, &mut cursor, &mut summary).await?;
        let ended = page.continuation.is_none();
        (cursor.next_pk, cursor.next_rk) =
            page.continuation.map_or((None, None), |next| (Some(next.next_partition_key), next.next_row_key));
        match cursor.part {
            BackfillPart::Footprints if ended => return Ok(BackfillPass { cursor, ended, summary }),
            BackfillPart::Primaries if ended => cursor.part = BackfillPart::Footprints,
            BackfillPart::Primaries | BackfillPart::Footprints => {}
        }
        if run.engine.clock.monotonic().saturating_sub(began) >= PART {
            return Ok(BackfillPass { cursor, ended: false, summary });
        }
    }
}

/// The table whose primaries are meant.
fn source<'e>(engine: &'e Engine, scope: &BackfillScope) -> Result<&'e TableRef, Failure> {
    match scope {
        BackfillScope::Table(table) => engine.table(table),
        BackfillScope::View(name) => {
            let view = engine.catalog.views.get(name);
            view.map(|view| &view.source).ok_or_else(|| permanent("finding the view", Unknown::View(name.clone())))
        }
    }
}

struct Run<'e> {
    engine: &'e Engine,
    source: &'e TableRef,
    delivery: &'e Delivery,
}

impl Run<'_> {
    async fn page(&self, cursor: &BackfillCursor) -> Result<Page, Failure> {
        let (table, filter, select) = match cursor.part {
            BackfillPart::Primaries => (self.source.table.clone(), None, vec![SOURCE_PROPERTY.to_owned(), VIEW_PROPERTY.to_owned()]),
            // `~` stands in no table's name, so that this range is this table's.
            BackfillPart::Footprints => {
                let at = |op, end: &str| Filter::compare("PartitionKey", op, format!("{}{end}", self.source.table));
                let range = at(Comparison::GreaterOrEqual, "~").and(at(Comparison::Less, "\u{a0}"));
                (footprint::table(), Some(range), vec!["Settled".to_owned()])
            }
        };
        let continuation =
            cursor.next_pk.clone().map(|next_partition_key| Continuation { next_partition_key, next_row_key: cursor.next_rk.clone() });
        let query = Query { filter, select: Some(select), top: Some(PAGE), continuation };
        let page = self.engine.account(self.source)?.tables.query(&table, &query).await;
        page.map_err(|error| storage(format!("reading a page of {table}"), error))
    }

    /// The rows that are primaries: not those that were derived into the same table.
    fn primaries(&self, rows: Vec<Row>) -> Vec<EntityKey> {
        let rows = rows.into_iter().filter(|row| !is_derived_within(&self.source.table, &row.entity));
        rows.map(|row| row.entity.key).collect()
    }

    /// The primaries of footprints that do not exist: those that do were brought in step before.
    async fn without_primary(&self, rows: Vec<Row>) -> Result<Vec<EntityKey>, Failure> {
        let tables = &self.engine.account(self.source)?.tables;
        let keys: Vec<EntityKey> = rows.iter().filter_map(|row| footprint::owner(&self.source.table, &row.entity.key)).collect();
        let select = [VIEW_PROPERTY.to_owned()];
        let reads: Vec<_> = keys.iter().map(|key| tables.get(&self.source.table, key, Some(&select))).collect();
        let rows: Vec<_> = stream::iter(reads).buffered(AT_ONCE).collect().await;
        let mut gone = Vec::new();
        for (key, row) in keys.into_iter().zip(rows) {
            if row.map_err(|error| storage(format!("reading {}{key}", self.source), error))?.is_none() {
                gone.push(key);
            }
        }
        Ok(gone)
    }

    async fn bring_in_step(&self, keys: Vec<EntityKey>, cursor: &mut BackfillCursor, summary: &mut Summary) -> Result<(), Failure> {
        let passes: Vec<_> = keys.into_iter().map(|key| self.pass(key)).collect();
        let mut passes = stream::iter(passes).buffer_unordered(AT_ONCE);
        while let Some((primary, ended)) = passes.next().await {
            match ended {
                Ok(done) => {
                    cursor.done += 1;
                    summary.changes.extend(done.changes);
                    summary.extra_rounds += done.extra_rounds;
                }
                Err(failure) if failure.class == FailureClass::Permanent => {
                    cursor.failed += 1;
                    tracing::warn!(%primary, error = failure.chain(), "a primary could not be brought in step: its sync job is queued");
                    self.queue_sync(&primary).await?;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    fn pass(&self, key: EntityKey) -> BoxFuture<'_, (Primary, Result<Summary, Failure>)> {
        let primary = Primary { table: self.source.table.clone(), key };
        let mut pass = Pass::new(self.engine, self.source, primary.clone(), Some(self.delivery));
        pass.looks = Looks::Everything;
        Box::pin(async move { (primary, pass.reconcile().await) })
    }

    async fn queue_sync(&self, primary: &Primary) -> Result<(), Failure> {
        let account = self.engine.stores.account(&self.delivery.account);
        let queues = &account.map_err(|error| permanent("finding the account of the queue", error))?.queues;
        let job: Value = json!({"op": "sync", "table": primary.table, "pk": primary.key.pk, "rk": primary.key.rk, "thorough": true});
        let put = queues.put(&self.delivery.queue, &body::encode(&job.to_string()), Duration::ZERO, Ttl::Never).await;
        put.map(|_| ()).map_err(|error| storage(format!("queueing a sync of {primary}"), error))
    }
}
