//! `backfill`: every primary of a table is brought in step, with a look at each of its items.
//!
//! ```text
//!   the rows of the table      ─▶ a pass each, which looks at every item that its footprint lists
//!   the table's footprints     ─▶ a pass for each without a primary
//! ```
//!
//! It is a `sync` of each, by the same passes: it may run beside workers and clients, be repeated and be
//! interrupted anywhere. It goes on from its cursor, which its message carries: a part takes about ten seconds, then the
//! message is released with the new cursor. A primary that cannot be brought in step for a reason of its own does not
//! hold up the others: a `sync` job of it is queued, which will end in the poison queue and say why.
//!
//! Not found: items of deleted primaries with a partition key so long that the footprint's key is a hash; rows listed
//! by no footprint, which only a manual write can have created.

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _};
use serde_json::{Map, json};

use super::dated;
use super::engine::{Engine, Unknown};
use super::execute::{Delivery, Failure, FailureClass, Outcome, Summary};
use super::failure::permanent;
use super::jobs::RunJob;
use super::reconciler::Reconciler;
use super::walk::{AT_ONCE, Primaries, Walk};
use crate::catalog::TableRef;
use crate::model::EntityKey;
use crate::model::backfill::{Backfill, BackfillCursor, BackfillPart, BackfillScope};
use crate::model::job::{Looks, Primary};

/// Result of one part of a backfill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillPass {
    /// How far it has come.
    pub cursor: BackfillCursor,
    /// Whether that is the end.
    pub ended: bool,
    /// Changes made to items.
    pub summary: Summary,
}

impl Engine {
    /// Brings primaries in step from a cursor on, for about ten seconds or to the end. `None` where the table has no views.
    pub async fn backfill(&self, backfill: &Backfill, delivery: &Delivery) -> Result<Option<BackfillPass>, Failure> {
        let source = source(self, &backfill.scope)?;
        if !self.catalog.has_views(source) && self.catalog.ranges_over(source).next().is_none() {
            return Ok(None);
        }
        match part(&Walk { engine: self, source, delivery }, backfill.cursor.clone()).await {
            Ok(pass) => Ok(Some(pass)),
            Err(failure) => Err(dated::explained(self, &source.table, failure).await),
        }
    }
}

impl RunJob for Backfill {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        Ok(match engine.backfill(self, delivery).await? {
            None => Outcome::Skipped { reason: format!("nothing is derived from {}", self.scope), summary: Summary::default() },
            Some(BackfillPass { ended: true, summary, .. }) => Outcome::Done(summary),
            Some(BackfillPass { cursor, summary, .. }) => {
                Outcome::Advanced { fields: Map::from_iter([("cursor".to_owned(), json!(cursor))]), summary }
            }
        })
    }
}

async fn part(walk: &Walk<'_>, mut cursor: BackfillCursor) -> Result<BackfillPass, Failure> {
    let began = walk.engine.clock.monotonic();
    let mut summary = Summary::default();
    loop {
        let from = (cursor.next_pk.take(), cursor.next_rk.take());
        let Primaries { keys, next } = match cursor.part {
            BackfillPart::Primaries => walk.existing(&from).await?,
            BackfillPart::Footprints => walk.gone(&from).await?,
        };
        bring_in_step(walk, keys, &mut cursor, &mut summary).await?;
        let ended = next.0.is_none();
        (cursor.next_pk, cursor.next_rk) = next;
        match cursor.part {
            BackfillPart::Footprints if ended => return Ok(BackfillPass { cursor, ended, summary }),
            BackfillPart::Primaries if ended => cursor.part = BackfillPart::Footprints,
            BackfillPart::Primaries | BackfillPart::Footprints => {}
        }
        if walk.engine.clock.monotonic().saturating_sub(began) >= walk.engine.part {
            return Ok(BackfillPass { cursor, ended: false, summary });
        }
    }
}

/// The table of the primaries in scope.
fn source<'e>(engine: &'e Engine, scope: &BackfillScope) -> Result<&'e TableRef, Failure> {
    match scope {
        BackfillScope::Table(table) => engine.table(table),
        BackfillScope::View(name) => {
            let catalog = &engine.catalog;
            if let Some(view) = catalog.dated_views.get(name) {
                let unknown = Unknown::WhichTable { view: name.clone(), tables: view.source.tables.to_string() };
                return Err(permanent("finding the table", unknown));
            }
            let view = catalog.views.get(name);
            view.map(|view| &view.source).ok_or_else(|| permanent("finding the view", Unknown::View(name.clone())))
        }
    }
}

async fn bring_in_step(walk: &Walk<'_>, keys: Vec<EntityKey>, cursor: &mut BackfillCursor, summary: &mut Summary) -> Result<(), Failure> {
    let passes: Vec<_> = keys.into_iter().map(|key| pass(walk, key)).collect();
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
                walk.engine.queue_sync(&primary, walk.delivery).await?;
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(())
}

fn pass<'w>(walk: &'w Walk<'_>, key: EntityKey) -> BoxFuture<'w, (Primary, Result<Summary, Failure>)> {
    let primary = walk.primary(key);
    let mut reconciler = Reconciler::new(walk.engine, walk.source, primary.clone(), Some(walk.delivery));
    reconciler.pass.looks = Looks::Everything;
    Box::pin(async move { (primary, reconciler.reconcile().await) })
}
