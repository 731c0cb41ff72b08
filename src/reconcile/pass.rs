//! One pass over one primary: see, decide, announce, write, close; and again where a race was lost.
//!
//! ```text
//!   observe   footprint → looks → primary        always in this order
//!   plan      (pure)
//!   announce  the footprint, at its ETag         before anything is created or dropped
//!   carry out writes, then drops, each conditional
//!   close     the footprint, at its ETag
//! ```
//!
//! The footprint is read before the primary, so a later successful write of it never rests on an older
//! state of the primary. A write that fails its condition sends the pass back to `observe`, with a look at
//! what it touched. Dropping a pass anywhere leaves what the next one finds marked in the footprint.

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt as _;
use futures::stream;

use super::engine::Engine;
use super::execute::{Action, Delivery, Failure, ItemChange, Summary};
use super::failure::{lost_race, permanent, storage};
use super::footprint::{self, Footprint};
use super::observation::Observation;
use super::plan::{self, Look, Plan, Situation, State, Taken, Write};
use super::recheck::Recheck;
use crate::catalog::{TableRef, ViewStatus};
use crate::model::item::{self, Owner};
use crate::model::job::Primary;
use crate::model::{ETag, Entity, ItemAddress, limits};
use crate::patterns::{self, Item};
use crate::ports::{Condition, ErrorClass, StoreError, TableOperation, TableStore, Ttl};

/// Rounds after which a run gives up and releases its job: somebody else is busy with this primary.
pub(super) const ROUNDS: u32 = 5;
/// Requests of one pass under way at once.
const CONCURRENT_REQUESTS: usize = 16;
/// A recheck message stays well below the limit of a queue message, Base64 included.
const RECHECK_ITEMS_BYTES: usize = limits::QUEUE_BODY_BYTES / 2;

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// The footprint is closed, or nothing was to be done.
    Closed,
    /// A race was lost: look again.
    Again,
}

/// One pass.
pub(super) struct Pass<'e> {
    pub(super) engine: &'e Engine,
    pub(super) source: &'e TableRef,
    pub(super) primary: Primary,
    delivery: Option<&'e Delivery>,
    /// Keys to look at before the primary is read.
    pub(super) touched: BTreeSet<ItemAddress>,
    /// An insert of this run has no answer: it may still arrive.
    pub(super) unanswered: bool,
    /// The ETag of this run's own last announcement.
    announced: Option<ETag>,
    pub(super) summary: Summary,
    rounds: u32,
    /// How many passes this one is nested in.
    pub(super) depth: u8,
}

/// A key that another primary has, and keeps.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakenKey {
    #[error("{address} is taken by {} (view {}), which still derives it: change one of the two, or let the view say on_conflict = \"last_writer\"", .owner.primary, .owner.view)]
    ByPrimary { address: ItemAddress, owner: Owner },
    #[error("{address} is taken by a row that evenkeel did not write: delete it, or give the view another key")]
    ByForeignRow { address: ItemAddress },
}

impl<'e> Pass<'e> {
    pub(super) fn new(engine: &'e Engine, source: &'e TableRef, primary: Primary, delivery: Option<&'e Delivery>) -> Self {
        Self {
            engine,
            source,
            primary,
            delivery,
            touched: BTreeSet::new(),
            unanswered: false,
            announced: None,
            summary: Summary::default(),
            rounds: 0,
            depth: 0,
        }
    }

    /// Brings every item of the primary in step with its present state.
    pub(super) async fn reconcile(mut self) -> Result<Summary, Failure> {
        self.settle().await?;
        Ok(self.summary)
    }

    /// As [`reconcile`](Self::reconcile), for a pass that goes on afterwards.
    pub(super) async fn settle(&mut self) -> Result<(), Failure> {
        if !self.has_views() {
            return Ok(());
        }
        loop {
            self.next_round()?;
            let seen = self.observe().await?;
            if self.advance(&seen).await? == Round::Closed {
                return Ok(());
            }
        }
    }

    /// As [`settle`](Self::settle), going on from what was seen last.
    pub(super) async fn settle_from(&mut self, seen: &Observation) -> Result<(), Failure> {
        if !self.has_views() || self.advance(seen).await? == Round::Closed { Ok(()) } else { self.settle().await }
    }

    /// Counts a round.
    pub(super) fn next_round(&mut self) -> Result<(), Failure> {
        self.rounds += 1;
        self.summary.extra_rounds = self.rounds - 1;
        if self.rounds > ROUNDS { Err(lost_race(format!("reconciling {}", self.primary), ROUNDS)) } else { Ok(()) }
    }

    pub(super) fn has_views(&self) -> bool {
        self.engine.catalog.has_views(self.source)
    }

    pub(super) fn tables(&self) -> Result<&'e dyn TableStore, Failure> {
        Ok(self.engine.account(self.source)?.tables.as_ref())
    }

    /// Reads the footprint, then the keys to look at, then the primary.
    pub(super) async fn observe(&mut self) -> Result<Observation, Failure> {
        let mut seen = Observation::blank();
        if self.has_views() {
            let key = footprint::key(&self.primary);
            let step = || format!("reading the footprint of {}", self.primary);
            let row = self.tables()?.get(&footprint::table(), &key, None).await.map_err(|error| storage(step(), error))?;
            if let Some(row) = row {
                seen.footprint = Footprint::decode(&self.primary, &row.entity).map_err(|error| permanent(step(), error))?;
                seen.etag = Some(row.etag);
                seen.written = row.timestamp;
            }
            seen.looks = self.look(&seen.footprint).await?;
        }
        let step = || format!("reading the primary {}", self.primary);
        let row = self.tables()?.get(&self.source.table, &self.primary.key, None).await.map_err(|error| storage(step(), error))?;
        match row {
            // A row derived from its own table is nobody's source of truth.
            Some(row) if item::is_derived_within(&self.source.table, &row.entity) => seen.derived_from = Owner::of(&row.entity),
            row => seen.row = row,
        }
        Ok(seen)
    }

    /// Looks at what some pass has announced and at what this run has touched.
    async fn look(&self, footprint: &Footprint) -> Result<BTreeMap<ItemAddress, Look>, Failure> {
        let catalog = &self.engine.catalog;
        let changing = footprint.items.iter().filter(|(_, entry)| entry.changing).map(|(address, _)| address);
        let mut addresses: BTreeSet<&ItemAddress> = changing.chain(&self.touched).collect();
        // What an unknown view made is left alone.
        addresses.retain(|address| {
            let generation = footprint.items.get(*address).map_or(0, |entry| entry.generation);
            catalog.generations.status(&address.view, generation, catalog.views.contains_key(&address.view)) != ViewStatus::Newer
        });
        let select = [item::SOURCE_PROPERTY.to_owned(), item::VIEW_PROPERTY.to_owned()];
        let looks = addresses.into_iter().map(|address| self.look_at(address, &select)).collect();
        gather(looks).await.into_iter().collect()
    }

    async fn look_at(&self, address: &ItemAddress, select: &[String]) -> Result<(ItemAddress, Look), Failure> {
        let row = self.target(address)?.get(&address.table, &address.key, Some(select)).await;
        let row = row.map_err(|error| storage(format!("looking at {address}"), error))?;
        Ok((address.clone(), plan::look(address, &self.primary, row)))
    }

    fn target(&self, address: &ItemAddress) -> Result<&'e dyn TableStore, Failure> {
        let account = self.engine.stores.account(&address.account);
        Ok(account.map_err(|error| permanent(format!("finding the account of {address}"), error))?.tables.as_ref())
    }

    /// Derives the items of a state of the primary.
    pub(super) fn derive(&self, entity: Option<&Entity>) -> Result<BTreeMap<ItemAddress, Item>, Failure> {
        patterns::derive(&self.engine.catalog, self.source, entity)
            .map_err(|error| permanent(format!("deriving the items of {}", self.primary), error))
    }

    /// The situation that a plan is for.
    pub(super) fn situation<'s>(&'s self, seen: &'s Observation, wanted: &'s BTreeMap<ItemAddress, Item>, state: State) -> Situation<'s> {
        // Changes that this run announced itself are no sign of somebody else; a crash or another pass is.
        let own = self.announced.is_some() && self.announced == seen.etag;
        Situation {
            catalog: &self.engine.catalog,
            source: self.source,
            footprint: &seen.footprint,
            looks: &seen.looks,
            state,
            wanted,
            disturbed: self.unanswered || (seen.footprint.is_changing() && !own),
            now: self.engine.clock.now(),
            taint_for: self.engine.taint_for(),
        }
    }

    pub(super) fn plan(&self, situation: &Situation<'_>) -> Result<Plan, Failure> {
        plan::plan(situation)
            .map_err(|error| Failure::new(super::FailureClass::OutdatedCatalog, format!("planning {}", self.primary), error))
    }

    /// Goes from what was seen to a closed footprint.
    pub(super) async fn advance(&mut self, seen: &Observation) -> Result<Round, Failure> {
        if seen.derived_from.is_some() && seen.etag.is_none() {
            return Ok(Round::Closed);
        }
        let state = seen.row.as_ref().map_or(State::Absent, |row| State::Present(Some(row.etag.clone())));
        let wanted = self.derive(seen.row.as_ref().map(|row| &row.entity))?;
        let plan = self.plan(&self.situation(seen, &wanted, state.clone()))?;
        if plan.settled {
            return Ok(Round::Closed);
        }
        let Some(plan) = self.resolve(plan).await? else { return Ok(Round::Again) };
        let Some(etag) = self.announce(seen, &plan).await? else { return Ok(Round::Again) };
        let Some(written) = self.carry_out(&plan, BTreeMap::new()).await? else { return Ok(Round::Again) };
        self.finish(seen, &wanted, state, &plan, etag, &written).await
    }

    /// Sees to keys that somebody else has: an owner that no longer wants its key is reconciled first, and
    /// then the round begins anew. What is left is taken for good.
    pub(super) async fn resolve(&mut self, plan: Plan) -> Result<Option<Plan>, Failure> {
        let mut freed = false;
        for Taken { address, owner } in &plan.taken {
            let Some(owner) = owner else { continue };
            if owner.primary == self.primary {
                // An old item of this very primary under another view: it goes in this pass if the footprint
                // lists it, and is looked at in the next round if not.
                let own = ItemAddress { view: owner.view.clone(), ..address.clone() };
                let declared = self.engine.catalog.views.contains_key(&own.view);
                if self.engine.catalog.generations.status(&own.view, 0, declared) != ViewStatus::Newer && !self.touched.contains(&own) {
                    self.touched.insert(own);
                    freed = true;
                }
            } else if self.depth == 0 && !self.still_wants(owner, address).await? {
                // Whatever keeps the owner from being wholly in step is its own job's matter, unless the store is at fault.
                match self.engine.nested(&owner.primary, self.delivery, self.depth + 1).await {
                    Err(failure) if failure.class != super::FailureClass::Permanent => return Err(failure),
                    Ok(_) | Err(_) => {}
                }
                self.touched.insert(address.clone());
                freed = true;
            }
        }
        Ok((!freed).then_some(plan))
    }

    /// Whether the owner of a key still derives it. An owner that cannot be judged keeps its key.
    async fn still_wants(&self, owner: &Owner, address: &ItemAddress) -> Result<bool, Failure> {
        let Some(source) = self.engine.catalog.table(&owner.primary.table) else { return Ok(true) };
        if self.engine.catalog.views.get(&owner.view).is_none_or(|view| view.source != *source) {
            return Ok(true);
        }
        let tables = &self.engine.account(source)?.tables;
        let row = tables.get(&source.table, &owner.primary.key, None).await;
        let row = row.map_err(|error| storage(format!("reading {}, which owns {address}", owner.primary), error))?;
        let row = row.filter(|row| !item::is_derived_within(&source.table, &row.entity));
        let Ok(wanted) = patterns::derive(&self.engine.catalog, source, row.as_ref().map(|row| &row.entity)) else { return Ok(true) };
        Ok(wanted.contains_key(&ItemAddress { view: owner.view.clone(), ..address.clone() }))
    }

    /// Writes the announcement, where the plan has one. Returns the ETag under which to close; nothing where
    /// another pass was faster.
    pub(super) async fn announce(&mut self, seen: &Observation, plan: &Plan) -> Result<Option<Option<ETag>>, Failure> {
        let Some(footprint) = &plan.announce else { return Ok(Some(seen.etag.clone())) };
        let etag = self.write_footprint(footprint, seen.etag.as_ref(), "announcing changes in").await?;
        if etag.is_some() {
            self.announced.clone_from(&etag);
        }
        Ok(etag.map(Some))
    }

    /// Writes the footprint at its ETag, or inserts it. Nothing where the condition failed, or may have.
    async fn write_footprint(&self, footprint: &Footprint, over: Option<&ETag>, doing: &str) -> Result<Option<ETag>, Failure> {
        let step = || format!("{doing} the footprint of {}", self.primary);
        let entity = footprint.encode(&self.primary).map_err(|error| permanent(step(), error))?;
        let operation = match over {
            Some(etag) => TableOperation::Replace(entity, Condition::Matches(etag.clone())),
            None => TableOperation::Insert(entity),
        };
        match self.tables()?.apply(&footprint::table(), &operation).await {
            Ok(etag) => Ok(etag),
            Err(error) if error.is_lost_race() || error.class == ErrorClass::Ambiguous => Ok(None),
            Err(error) => Err(storage(step(), error)),
        }
    }

    /// Writes and drops items. `done` has the ETags of those that a transaction has written already; what a
    /// transaction has dropped is not in the plan any more. Nothing where a race was lost.
    pub(super) async fn carry_out(
        &mut self,
        plan: &Plan,
        done: BTreeMap<ItemAddress, ETag>,
    ) -> Result<Option<BTreeMap<ItemAddress, ETag>>, Failure> {
        let mut written = done;
        let mut again = false;
        let mut failed = None;

        let todo: Vec<&Write> = plan.writes.iter().filter(|write| !written.contains_key(&write.address)).collect();
        let results = gather(todo.iter().map(|write| self.write_item(write)).collect()).await;
        for (write, result) in todo.into_iter().zip(results) {
            match result {
                Ok(etag) => {
                    self.count(&write.address, if write.over.is_none() { Action::Create } else { Action::Update });
                    written.insert(write.address.clone(), etag);
                }
                Err(ItemFailure::Lost { unanswered_insert }) => {
                    self.touched.insert(write.address.clone());
                    self.unanswered |= unanswered_insert;
                    again = true;
                }
                Err(ItemFailure::Failed(failure)) => failed = failed.or(Some(failure)),
            }
        }

        let results = gather(plan.drops.iter().map(|(address, etag)| self.drop_item(address, etag)).collect()).await;
        for ((address, _), result) in plan.drops.iter().zip(results) {
            match result {
                Ok(()) => self.count(address, Action::Delete),
                Err(ItemFailure::Lost { .. }) => {
                    self.touched.insert(address.clone());
                    again = true;
                }
                Err(ItemFailure::Failed(failure)) => failed = failed.or(Some(failure)),
            }
        }
        match failed {
            Some(failure) => Err(failure),
            None => Ok((!again).then_some(written)),
        }
    }

    pub(super) fn count(&mut self, address: &ItemAddress, action: Action) {
        self.summary.changes.push(ItemChange { view: address.view.clone(), action });
    }

    async fn write_item(&self, write: &Write) -> Result<ETag, ItemFailure> {
        let operation = write.operation();
        let result = self.target(&write.address).map_err(ItemFailure::Failed)?.apply(&write.address.table, &operation).await;
        match result {
            Ok(Some(etag)) => Ok(etag),
            // A write that succeeded without an ETag: look at what there is.
            Ok(None) => Err(ItemFailure::Lost { unanswered_insert: false }),
            Err(error) => Err(ItemFailure::of(error, write.over.is_none(), || format!("writing {}", write.address))),
        }
    }

    async fn drop_item(&self, address: &ItemAddress, etag: &ETag) -> Result<(), ItemFailure> {
        let operation = TableOperation::Delete(address.key.clone(), Condition::Matches(etag.clone()));
        match self.target(address).map_err(ItemFailure::Failed)?.apply(&address.table, &operation).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_missing_item() => Ok(()),
            Err(error) => Err(ItemFailure::of(error, false, || format!("dropping {address}"))),
        }
    }

    /// Syncs on what was derived into the source of another view, queues rechecks, and closes the footprint.
    pub(super) async fn finish(
        &mut self,
        seen: &Observation,
        wanted: &BTreeMap<ItemAddress, Item>,
        state: State,
        plan: &Plan,
        etag: Option<ETag>,
        written: &BTreeMap<ItemAddress, ETag>,
    ) -> Result<Round, Failure> {
        self.sync_on(plan).await?;
        let absent = state == State::Absent;
        let close = plan::close(&self.situation(seen, wanted, state), plan, written);
        let forgotten = if close.footprint.tainted_until.is_some() { close.removed.as_slice() } else { &[] };
        if absent || !forgotten.is_empty() {
            // Before the footprint forgets them. A tombstone is removed by the same second look.
            self.queue_recheck(forgotten).await?;
        }
        if self.write_footprint(&close.footprint, etag.as_ref(), "closing").await?.is_none() {
            self.touched.extend(plan.writes.iter().map(|write| write.address.clone()));
            self.touched.extend(plan.drops.iter().map(|(address, _)| address.clone()));
            return Ok(Round::Again);
        }
        if plan.taken.is_empty() { Ok(Round::Closed) } else { Err(self.taken_failure(plan)) }
    }

    /// The failure of a job whose primary wants a key that somebody else keeps.
    pub(super) fn taken_failure(&self, plan: &Plan) -> Failure {
        let step = format!("reconciling {}", self.primary);
        match plan.taken.first() {
            Some(Taken { address, owner: Some(owner) }) => {
                permanent(step, TakenKey::ByPrimary { address: address.clone(), owner: owner.clone() })
            }
            Some(Taken { address, owner: None }) => permanent(step, TakenKey::ByForeignRow { address: address.clone() }),
            None => lost_race(step, self.rounds),
        }
    }

    /// A derived row whose table is itself the source of views is a primary there: its items follow.
    async fn sync_on(&self, plan: &Plan) -> Result<(), Failure> {
        let changed =
            plan.writes.iter().map(|write| &write.address).chain(plan.drops.iter().map(|(address, _)| address)).chain(&plan.forget);
        for address in changed {
            let target = TableRef { account: address.account.clone(), table: address.table.clone() };
            if target != *self.source && self.engine.catalog.has_views(&target) {
                let derived = Primary { table: address.table.clone(), key: address.key.clone() };
                self.engine.nested(&derived, self.delivery, self.depth + 1).await?;
            }
        }
        Ok(())
    }

    /// Queues second looks, visible after `recheck_after`.
    async fn queue_recheck(&self, items: &[ItemAddress]) -> Result<(), Failure> {
        let Some(delivery) = self.delivery else { return Ok(()) };
        let account = self.engine.stores.account(&delivery.account);
        let queues = &account.map_err(|error| permanent("finding the account of the recheck queue", error))?.queues;
        let mut messages: Vec<Vec<ItemAddress>> = vec![Vec::new()];
        let mut bytes = 0;
        for address in items {
            // Six times each character covers what JSON escapes; keys of ordinary text take far less.
            bytes += 200 + 6 * (address.key.pk.as_str().len() + address.key.rk.as_str().len());
            if bytes > RECHECK_ITEMS_BYTES && messages.last().is_some_and(|last| !last.is_empty()) {
                messages.push(Vec::new());
                bytes = 0;
            }
            if let Some(last) = messages.last_mut() {
                last.push(address.clone());
            }
        }
        for items in messages {
            let recheck = Recheck { primary: self.primary.clone(), items };
            queues
                .put(&delivery.recheck_queue, &recheck.encode(), self.engine.recheck_after, Ttl::Never)
                .await
                .map_err(|error| storage(format!("queueing a recheck of {}", self.primary), error))?;
        }
        Ok(())
    }

    /// A second look: what was dropped while an old insert might still arrive, and tombstones that have
    /// served their time.
    pub(super) async fn recheck(mut self, recheck: &Recheck) -> Result<Summary, Failure> {
        self.touched.extend(recheck.items.iter().cloned());
        loop {
            self.next_round()?;
            let seen = self.observe().await?;
            let nothing_there = seen.row.is_none() && seen.looks.values().all(|look| !matches!(look, Look::Ours(_)));
            if nothing_there && seen.footprint.items.is_empty() {
                match &seen.etag {
                    None => return Ok(self.summary),
                    Some(etag) if self.has_served(&seen) => {
                        if self.remove_tombstone(etag).await? {
                            return Ok(self.summary);
                        }
                        continue;
                    }
                    // Younger than this recheck: the pass that wrote it has queued one of its own.
                    Some(_) if seen.footprint.settled == footprint::Settled::Absent => return Ok(self.summary),
                    Some(_) => {}
                }
            }
            if self.advance(&seen).await? == Round::Closed {
                return Ok(self.summary);
            }
        }
    }

    /// Whether a tombstone was last written no later than just after this recheck was queued, so that it is
    /// `recheck_after` old by the services' own clocks.
    fn has_served(&self, seen: &Observation) -> bool {
        let (Some(delivery), Some(written)) = (self.delivery, seen.written) else { return false };
        let margin = SERVED_MARGIN;
        seen.footprint.settled == footprint::Settled::Absent
            && delivery.stamp.enqueued.saturating_add(margin).is_ok_and(|latest| written.timestamp() <= latest)
    }

    async fn remove_tombstone(&self, etag: &ETag) -> Result<bool, Failure> {
        let operation = TableOperation::Delete(footprint::key(&self.primary), Condition::Matches(etag.clone()));
        match self.tables()?.apply(&footprint::table(), &operation).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_lost_race() || error.class == ErrorClass::Ambiguous => Ok(false),
            Err(error) => Err(storage(format!("removing the tombstone of {}", self.primary), error)),
        }
    }
}

/// Runs requests side by side, some at a time, and returns their answers in order.
async fn gather<F: Future>(requests: Vec<F>) -> Vec<F::Output> {
    stream::iter(requests).buffered(CONCURRENT_REQUESTS).collect().await
}

/// How long after its recheck was queued a tombstone may have been written: the close follows the queueing,
/// on another service's clock.
const SERVED_MARGIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(60);

/// Why an item was not written or dropped.
enum ItemFailure {
    /// Somebody else was there, or the answer is missing: look again.
    Lost {
        /// It was an insert, and it may still arrive.
        unanswered_insert: bool,
    },
    /// Anything else.
    Failed(Failure),
}

impl ItemFailure {
    fn of(error: StoreError, insert: bool, step: impl FnOnce() -> String) -> Self {
        if error.is_lost_race() {
            Self::Lost { unanswered_insert: false }
        } else if error.class == ErrorClass::Ambiguous {
            Self::Lost { unanswered_insert: insert }
        } else {
            Self::Failed(storage(step(), error))
        }
    }
}

impl Write {
    /// The conditional operation that writes this item.
    pub(super) fn operation(&self) -> TableOperation {
        match &self.over {
            Some(etag) => TableOperation::Replace(self.entity.clone(), Condition::Matches(etag.clone())),
            None => TableOperation::Insert(self.entity.clone()),
        }
    }
}
