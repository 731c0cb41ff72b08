//! `propagate`: applies the range overlay of one entity, its owner, to every entity of the range. A range overlay
//! consists of the property values that a view sets on all entities of the range.
//!
//! ```text
//!   pass over the owner:  write its overlay ─▶ queue the job ─▶ close the owner's footprint
//!   the job:              a page of entities ─▶ the overlays on them ─▶ write them at the ETags read, in one transaction
//!                         after the last page: remove the job's mark from the owner's footprint (`propagations`)
//!   pass over an entity:  read it ─▶ the overlays on it ─▶ write it at the ETag read       (`overlays`)
//! ```
//!
//! The job writes every entity that exists when its page is read. An entity that is created later reads the overlay in
//! its own pass. An entity is written even if it has the values already. This changes its ETag, so a writer with an
//! older overlay fails. If the overlay changes meanwhile, that change queues its own job.
//!
//! The owner may be in its own range. The overlay does not apply to the owner, so the job does not write it. A
//! redelivered job syncs the owner's items, because a worker with an older catalog may have closed its footprint. Views
//! of other entities in the range may set properties on the owner. The configuration check ensures that the owner's
//! overlay is not computed from such properties. So the overlay does not change, and no further job is queued.
//!
//! A job continues from the cursor in its message, as a backfill does. An entity that cannot be written does not stop
//! the others. The job queues a `sync` job of this entity, which fails and reports the reason. The mark stays in the
//! owner's footprint. If the view is deleted, a `sync` job would not clear the properties of the view, so the
//! `propagate` job itself fails at its end.

use std::collections::BTreeSet;

use futures::stream::{self, StreamExt as _};
use serde_json::{Map, json};

use crate::env::waiting::RunSummary;
use crate::env::{PART, Unknown};
use crate::execute::{Action, Delivery, Failure, FailureClass, ItemChange, Outcome, Summary};
use crate::failure::{ROUNDS, lost_race, permanent, storage};
use crate::items::shared::operation;
use crate::jobs::RunJob;
use crate::jobs::context::JobContext;
use crate::jobs::walk::AT_ONCE;
use crate::protocol::footprint::propagations::remove_mark;
use crate::protocol::group::bytes_of;
use crate::protocol::overlays::{listed, overlaid, overlays_on};
use crate::protocol::queueing::queue_syncs;
use crate::protocol::queueing::queue_whole_recheck;
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::{OverlayReading, PassOptions};
use evenkeel_model::catalog::{TableRef, View};
use evenkeel_model::item::VIEW_PROPERTY;
use evenkeel_model::job::{ItemReads, Primary};
use evenkeel_model::propagation::{Propagation, PropagationCursor};
use evenkeel_model::range_overlay::RangeOverlay;
use evenkeel_model::shared::{self, DocumentUpdate};
use evenkeel_model::{ETag, Entity, EntityKey, Row, Site, TableName, ViewName, limits};
use evenkeel_storage::{Continuation, ErrorClass, IfMatch, Missing, Page, Query, TableOperation};

/// Log text for an entity in the range of a declared view. The sync job fails and reports the reason.
const SYNCED: &str = "its sync job is queued";
/// Entities of one page: as many as one transaction writes.
const PAGE: u32 = 100;

#[derive(Debug, thiserror::Error)]
#[error(
    "the range overlay of {holder} already applies to {taken} entities of {range}. Change one of the two primaries, so that their ranges do not overlap"
)]
struct TakenRange {
    taken: u64,
    range: String,
    holder: Primary,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "{failed} entities of {range} could not be cleared. The worker's log has the reason for each"
)]
struct UnclearedEntities {
    failed: u64,
    range: String,
}

#[derive(Debug, thiserror::Error)]
#[error("view {view} sets no properties on ranges of {table}; no worker has queued this job")]
struct NoRange {
    view: ViewName,
    table: TableName,
}

impl RunJob for Propagation {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let generations = &cx.env.catalog.generations;
        let declared = cx.env.catalog.views.get(&self.view);
        if declared.is_none() && !generations.retired.contains_key(&self.view) {
            return Err(permanent(
                "finding the view",
                Unknown::view(&cx.env.catalog, &self.view),
            ));
        }
        let target = TableRef {
            account: self.range.account.clone(),
            table: self.range.table.clone(),
        };
        let over =
            declared.filter(|view| view.range().is_some_and(|range| range.target.has(&target)));
        // Only a view with ranges over the table can have queued the job. The view may have changed or been deleted
        // since.
        let has_left = over.is_none() && (declared.is_none() || generations.of(&self.view) > 1);
        let target = match cx.env.table(&target.table) {
            Ok(table) if *table == target && (over.is_some() || has_left) => table.clone(),
            // If the catalog no longer has the view, the table may have been removed from the catalog, too.
            Err(_) if has_left && cx.env.catalog.has_recorded_table(&target.table) => target,
            Ok(table) => {
                return Err(permanent(
                    "finding the range",
                    NoRange {
                        view: self.view.clone(),
                        table: table.table.clone(),
                    },
                ));
            }
            Err(unknown) => return Err(unknown),
        };
        let run = PropagationRun {
            cx,
            delivery,
            propagation: self,
            view: over.map(AsRef::as_ref),
            target,
        };
        run.part(self.cursor.clone()).await
    }
}

struct PropagationRun<'e> {
    cx: &'e JobContext,
    delivery: &'e Delivery,
    propagation: &'e Propagation,
    /// The view; `None` if it has no ranges over this table any more.
    view: Option<&'e View>,
    target: TableRef,
}

struct EntityDecision {
    write: TableOperation,
    /// The owner whose overlay applies in place of the overlay of this job.
    holder: Option<EntityKey>,
}

impl PropagationRun<'_> {
    async fn part(&self, mut cursor: PropagationCursor) -> Result<Outcome, Failure> {
        let began = self.cx.env.clock.monotonic();
        let mut summary = RunSummary::default();
        loop {
            let page = self.page(&cursor).await?;
            let (rows, next) =
                page.map_or_else(Default::default, |page| (page.rows, page.continuation));
            self.write_page(rows, &mut cursor, &mut summary.0).await?;
            match next {
                Some(next) => (cursor.next_pk, cursor.next_rk) = next.into_parts(),
                None if self.is_complete(&cursor).await? => {
                    return Ok(Outcome::Done(summary.take()));
                }
                // The other owner's overlay no longer applies to a part of the range, so the range is walked again.
                None => cursor = PropagationCursor::default(),
            }
            if self.cx.env.clock.monotonic().saturating_sub(began) >= PART {
                let fields = Map::from_iter([("cursor".to_owned(), json!(cursor))]);
                return Ok(Outcome::Advanced {
                    fields,
                    summary: summary.take(),
                });
            }
        }
    }

    /// Whether the job is complete after the last page. Fails if another owner's overlay applied to a part of the
    /// range, and still does.
    async fn is_complete(&self, cursor: &PropagationCursor) -> Result<bool, Failure> {
        if self.view.is_none() && cursor.failed > 0 {
            let cause = UnclearedEntities {
                failed: cursor.failed,
                range: self.propagation.range.to_string(),
            };
            return Err(permanent(
                format!("clearing the properties of view {}", self.propagation.view),
                cause,
            ));
        }
        if let (Some(view), Some(holder)) = (self.view, &cursor.taken_by) {
            let holds = self
                .overlays()
                .await?
                .iter()
                .any(|overlay| overlay.owner == *holder);
            let overlays = self.stored_overlays(view).await?;
            let still_covers =
                |owner: &EntityKey| overlays.iter().any(|overlay| overlay.owner == *owner);
            match (
                still_covers(&self.propagation.owner),
                holds && still_covers(holder),
            ) {
                (true, true) => {
                    let primary = |key: &EntityKey| Primary {
                        table: view.source.table.clone(),
                        key: key.clone(),
                    };
                    let cause = TakenRange {
                        taken: cursor.taken,
                        range: self.propagation.range.to_string(),
                        holder: primary(holder),
                    };
                    return Err(permanent(
                        format!(
                            "applying the range overlay of {} (view {})",
                            primary(&self.propagation.owner),
                            view.name
                        ),
                        cause,
                    ));
                }
                (true, false) => return Ok(false),
                (false, _) => {}
            }
        }
        // Entities that could not be written lack the overlay, so the mark stays in the owner's footprint.
        if cursor.failed == 0 {
            remove_mark(&self.cx.env, self.propagation, self.delivery).await?;
        }
        Ok(true)
    }

    /// A page of the range; `None` if the table is gone together with the view.
    async fn page(&self, cursor: &PropagationCursor) -> Result<Option<Page>, Failure> {
        let continuation = Continuation::of_parts(cursor.next_pk.as_ref(), cursor.next_rk.as_ref());
        let query = Query {
            filter: Some(self.propagation.range.filter()),
            select: None,
            top: Some(PAGE),
            continuation,
        };
        match self
            .cx
            .env
            .account(&self.target)?
            .tables
            .query(&self.target.table, &query)
            .await
        {
            Ok(page) => Ok(Some(page)),
            Err(error)
                if error.class == ErrorClass::NotFound(Missing::Container)
                    && self.view.is_none() =>
            {
                Ok(None)
            }
            Err(error) => Err(storage(
                format!("reading a page of {}", self.propagation.range),
                error,
            )),
        }
    }

    /// The range overlays that the footprints of their owners list. If the view is gone, there are none.
    async fn overlays(&self) -> Result<Vec<RangeOverlay>, Failure> {
        let Some(view) = self.view else {
            return Ok(Vec::new());
        };
        let overlays = self.stored_overlays(view).await?;
        listed(&self.cx.env, view, overlays).await
    }

    /// The stored range overlays whose ranges overlap the job's range, including those that no footprint lists.
    async fn stored_overlays(&self, view: &View) -> Result<Vec<RangeOverlay>, Failure> {
        let range = &self.propagation.range;
        let mut overlays = overlays_on(
            &self.cx.env,
            &view.name,
            &range.account,
            &range.table,
            &range.pk,
        )
        .await?;
        overlays.retain(|overlay| overlay.range.overlaps(range));
        Ok(overlays)
    }

    /// Writes the entities of a page, and syncs their derived items. The overlays are read after the entities.
    async fn write_page(
        &self,
        rows: Vec<Row>,
        cursor: &mut PropagationCursor,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        let (mut owner, rows): (Vec<Row>, Vec<Row>) = rows
            .into_iter()
            .filter(|row| row.entity.get(VIEW_PROPERTY).is_none())
            .partition(|row| self.is_owner(&row.entity.key));
        // In another worker's catalog, the view may be retired. That worker clears every row of the range, including
        // the owner's row, and closes the owner's footprint by its own catalog. Its run is refused, and the message is
        // redelivered to a worker that has the view. So only a redelivery syncs the owner.
        if self.delivery.dequeue_count < 2 {
            owner.clear();
        }
        if rows.is_empty() && owner.is_empty() {
            return Ok(());
        }
        let overlays = self.overlays().await?;
        let (mut writes, mut failed, mut ended) = (Vec::new(), BTreeSet::new(), Vec::new());
        for row in &rows {
            match self.decide(row, &overlays) {
                Ok(decided) => {
                    if let Some(holder) = decided.holder {
                        cursor.taken += 1;
                        cursor.taken_by = Some(holder);
                    }
                    writes.push(decided.write);
                }
                Err(failure) => ended.push((row.entity.key.clone(), Err(failure))),
            }
        }
        for transaction in transactions(writes) {
            let sent = self.send(transaction).await?;
            let (view, account) = (&self.propagation.view, &self.target.account);
            let change = |_| ItemChange {
                view: view.clone(),
                account: account.clone(),
                action: Action::Update,
            };
            summary
                .changes
                .extend(sent.iter().filter(|(_, ended)| ended.is_ok()).map(change));
            ended.extend(sent);
        }
        let consequence = if self.view.is_some() {
            SYNCED
        } else {
            "it keeps the view's properties"
        };
        for (key, ended) in ended {
            ended.or_else(|failure| self.leave_out(key, failure, consequence, &mut failed))?;
        }
        let uncleared = if self.view.is_none() {
            failed.clone()
        } else {
            BTreeSet::new()
        };
        let followed: Vec<&EntityKey> = rows
            .iter()
            .chain(&owner)
            .map(|row| &row.entity.key)
            .collect();
        self.follow(&followed, &mut failed, summary).await?;
        let left_out: BTreeSet<Primary> = failed
            .difference(&uncleared)
            .map(|key| self.primary(key))
            .collect();
        // These syncs are not thorough. A thorough sync of an entity propagates its own overlays again, so two entities
        // that are in each other's ranges would queue each other's syncs forever.
        queue_syncs(&self.cx.env, &left_out, ItemReads::Uncertain, self.delivery).await?;
        cursor.failed += if self.view.is_some() {
            failed.len()
        } else {
            uncleared.len()
        } as u64;
        cursor.done += (followed.len() - failed.len()) as u64;
        Ok(())
    }

    /// Whether this is the owner of the overlay. Always `false` if the view is gone or now has another source table.
    fn is_owner(&self, key: &EntityKey) -> bool {
        *key == self.propagation.owner && self.view.is_some_and(|view| view.source == self.target)
    }

    fn decide(&self, row: &Row, overlays: &[RangeOverlay]) -> Result<EntityDecision, Failure> {
        let Some(view) = self.view else {
            return self.clear(row);
        };
        let overlaid = overlaid(&self.cx.env, view, &self.target, &row.entity, overlays)?;
        overlaid.entity.check().map_err(|error| {
            permanent(format!("writing {}{}", self.target, row.entity.key), error)
        })?;
        let is_overridden = overlaid.other_owners.contains(&self.propagation.owner);
        Ok(EntityDecision {
            write: write_at_etag(overlaid.entity, row),
            holder: overlaid.owner.filter(|_| is_overridden),
        })
    }

    fn clear(&self, row: &Row) -> Result<EntityDecision, Failure> {
        let site = Site::Row {
            table: self.target.table.clone(),
            key: row.entity.key.clone(),
        };
        let cleared = shared::apply_range_overlays(
            &site,
            &row.entity,
            &self.propagation.view,
            &self.target,
            &[],
            &ETag::token(0),
        );
        let cleared = cleared.map_err(|error| {
            permanent(
                format!(
                    "clearing the properties of view {} on {site}",
                    self.propagation.view
                ),
                error,
            )
        })?;
        // The row is written even if nothing changes, so that an outstanding write of the view's last overlays fails.
        Ok(EntityDecision {
            write: write_at_etag(cleared.entity, row),
            holder: None,
        })
    }

    async fn send(
        &self,
        operations: Vec<TableOperation>,
    ) -> Result<Vec<(EntityKey, Result<(), Failure>)>, Failure> {
        let tables = &self.cx.env.account(&self.target)?.tables;
        let keys: Vec<EntityKey> = operations
            .iter()
            .map(|operation| operation.key().clone())
            .collect();
        let mut unanswered = false;
        if operations.len() > 1 {
            match tables
                .transact(&self.target.table, &self.propagation.range.pk, &operations)
                .await
            {
                Ok(_) => return Ok(keys.into_iter().map(|key| (key, Ok(()))).collect()),
                Err(error)
                    if matches!(
                        error.class,
                        ErrorClass::Throttled { .. }
                            | ErrorClass::Transient { .. }
                            | ErrorClass::Refused
                    ) =>
                {
                    return Err(storage(
                        format!("writing entities of {}", self.propagation.range),
                        error,
                    ));
                }
                // One of the operations is at fault, or the outcome is unknown. Each entity is written separately, from
                // its present state.
                Err(error) => unanswered = error.class == ErrorClass::Ambiguous,
            }
        }
        let one_by_one = keys.into_iter().map(|key| async move {
            let ended = self.write_one(&key, unanswered).await;
            (key, ended)
        });
        Ok(stream::iter(one_by_one.collect::<Vec<_>>())
            .buffered(AT_ONCE)
            .collect()
            .await)
    }

    /// Writes one entity from its present state. If a write got no answer and a later attempt fails permanently, the
    /// unanswered write may still arrive, even after the next sync of the entity. So a recheck is queued.
    async fn write_one(&self, key: &EntityKey, mut unanswered: bool) -> Result<(), Failure> {
        let ended = self.write_in_rounds(key, &mut unanswered).await;
        if unanswered
            && ended
                .as_ref()
                .is_err_and(|failure| failure.class == FailureClass::Permanent)
        {
            queue_whole_recheck(self.pass_over(key, OverlayReading::Read).scope(), None).await?;
        }
        ended
    }

    async fn write_in_rounds(&self, key: &EntityKey, unanswered: &mut bool) -> Result<(), Failure> {
        let step = || format!("writing {}{key}", self.target);
        let tables = &self.cx.env.account(&self.target)?.tables;
        for _ in 0..ROUNDS {
            let row = tables
                .get(&self.target.table, key, None)
                .await
                .map_err(|error| storage(step(), error))?;
            let Some(row) = row else { return Ok(()) };
            let overlays = self.overlays().await?;
            let write = self.decide(&row, &overlays)?.write;
            match tables.apply(&self.target.table, &write).await {
                Ok(_) => return Ok(()),
                Err(error) if error.may_have_lost() => {
                    *unanswered |= error.class == ErrorClass::Ambiguous;
                }
                Err(error) => return Err(storage(step(), error)),
            }
        }
        let lost = lost_race(step(), ROUNDS);
        // If the view is declared, each writer of the entity also queues a job for it, which applies the overlays.
        Err(if self.view.is_some() {
            Failure {
                class: FailureClass::Permanent,
                ..lost
            }
        } else {
            lost
        })
    }

    async fn follow(
        &self,
        keys: &[&EntityKey],
        failed: &mut BTreeSet<EntityKey>,
        summary: &mut Summary,
    ) -> Result<(), Failure> {
        if !self.cx.env.catalog.has_views(&self.target) {
            return Ok(());
        }
        let keys = keys
            .iter()
            .map(|key| (*key).clone())
            .filter(|key| !failed.contains(key));
        let passes = keys.map(|key| {
            let reading = if self.is_owner(&key) {
                OverlayReading::Read
            } else {
                OverlayReading::Applied
            };
            let reconciler = self.pass_over(&key, reading);
            async move { (key, Box::pin(self.follow_one(reconciler)).await) }
        });
        let mut ended: Vec<_> = stream::iter(passes.collect::<Vec<_>>())
            .buffered(AT_ONCE)
            .collect()
            .await;
        // A transient failure ends the run, so it is handled after all changes are recorded.
        ended.sort_by_key(|(_, ended)| ended.is_err());
        for (key, ended) in ended {
            match ended {
                Ok(done) => summary.add(done),
                Err(failure) => self.leave_out(key, failure, SYNCED, failed)?,
            }
        }
        Ok(())
    }

    /// Syncs the items of one entity. The run of an earlier delivery may write the entity after this sync, at a new
    /// ETag. It may then end without a sync of its own, because its message is gone. So a redelivery queues a recheck,
    /// which is due when such a write can no longer arrive.
    async fn follow_one(&self, mut reconciler: Reconciler<'_>) -> Result<Summary, Failure> {
        reconciler.settle().await?;
        if self.delivery.dequeue_count > 1 && !reconciler.has_queued_a_recheck() {
            queue_whole_recheck(reconciler.scope(), None).await?;
        }
        Ok(reconciler.take_summary())
    }

    fn primary(&self, key: &EntityKey) -> Primary {
        Primary {
            table: self.target.table.clone(),
            key: key.clone(),
        }
    }

    fn pass_over(&self, key: &EntityKey, overlays: OverlayReading) -> Reconciler<'_> {
        let options = PassOptions {
            overlays,
            ..PassOptions::default()
        };
        Reconciler::new(
            &self.cx.env,
            &self.target,
            self.primary(key),
            Some(self.delivery),
            options,
        )
    }

    fn leave_out(
        &self,
        key: EntityKey,
        failure: Failure,
        consequence: &str,
        failed: &mut BTreeSet<EntityKey>,
    ) -> Result<(), Failure> {
        if failure.class != FailureClass::Permanent {
            return Err(failure);
        }
        let primary = self.primary(&key);
        tracing::warn!(%primary, error = failure.chain(), "could not write {primary}, an entity of a range; {consequence}");
        failed.insert(key);
        Ok(())
    }
}

/// An entity that does not change is merged with no properties. This changes its ETag, so a writer with an older
/// overlay fails.
fn write_at_etag(entity: Entity, row: &Row) -> TableOperation {
    let empty_merge = || {
        TableOperation::Merge(
            Entity::new(row.entity.key.clone()),
            IfMatch::Matches(row.etag.clone()),
        )
    };
    operation(DocumentUpdate::Entity(entity), Some(row), &row.entity.key)
        .unwrap_or_else(empty_merge)
}

fn transactions(operations: Vec<TableOperation>) -> Vec<Vec<TableOperation>> {
    let mut transactions: Vec<Vec<TableOperation>> = Vec::new();
    let mut bytes = limits::TRANSACTION_BYTES + 1;
    for operation in operations {
        let more = bytes_of(&operation);
        bytes += more;
        match transactions.last_mut() {
            Some(last)
                if bytes <= limits::TRANSACTION_BYTES
                    && last.len() < limits::TRANSACTION_OPERATIONS =>
            {
                last.push(operation);
            }
            _ => {
                bytes = more;
                transactions.push(vec![operation]);
            }
        }
    }
    transactions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_takes_100_operations_and_4_mib() {
        let of = |count: usize, bytes: usize| {
            let write = |n: usize| {
                let entity = Entity::new(EntityKey::new("p", n.to_string()).unwrap())
                    .with("T", "x".repeat(bytes));
                TableOperation::Insert(entity)
            };
            transactions((0..count).map(write).collect())
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(of(0, 1), [0_usize; 0]);
        assert_eq!(of(101, 1), [100, 1]);
        assert_eq!(of(5, 1 << 20), [3, 2]);
    }
}
