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
//! the items it touched. A pass dropped anywhere leaves its unfinished changes marked in the footprint for the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::document::Document;
use super::engine::Engine;
use super::execute::{Delivery, Failure, Summary};
use super::failure::{lost_race, permanent, storage};
use super::footprint::{self, Footprint};
use super::memory::MemoryGrant;
use super::observation::Observation;
use super::plan::{self, Plan, Situation, State};
use super::receive::Said;
use super::value::Supply;
use crate::catalog::TableRef;
use crate::model::job::{Looks, Primary};
use crate::model::large::Folder;
use crate::model::{AccountName, ETag, Entity, ItemAddress, Part, Site, TableName, ViewName, cause};
use crate::patterns::{self, Derivation, DeriveError, Item};
use crate::planted::{Bug, planted};
use crate::ports::{Account, Condition, ErrorClass, TableOperation, TableStore};

/// Rounds after which a run gives up and releases its job: another writer is busy with this primary.
pub(super) const ROUNDS: u32 = 5;

/// How a round ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Round {
    /// The footprint is closed, or nothing was to be done.
    Closed,
    /// A race was lost: look again.
    Again,
}

/// Why views cannot derive their items, each with its causes.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Underived(String);

impl Underived {
    fn of<'a>(errors: impl Iterator<Item = &'a Box<DeriveError>>) -> Self {
        let errors: Vec<String> = errors.map(|error| cause::chain(error.as_ref())).collect();
        Self(errors.join("; "))
    }
}

/// One pass.
#[expect(clippy::struct_excessive_bools, reason = "each has happened in this run or not, whatever else has")]
pub(super) struct Pass<'e> {
    pub(super) engine: &'e Engine,
    pub(super) source: &'e TableRef,
    pub(super) primary: Primary,
    /// The table that keeps its footprint.
    pub(super) footprints: TableName,
    pub(super) delivery: Option<&'e Delivery>,
    /// The document in place of the primary's row, where it is an archived one.
    pub(super) document: Option<Document<'e>>,
    /// Where its large values lie.
    pub(super) folder: Folder,
    /// Keys to look at before the primary is read.
    pub(super) touched: BTreeSet<ItemAddress>,
    /// Which others.
    pub(super) looks: Looks,
    /// Whether it reads the claims of others on the primary.
    pub(super) said: Said,
    /// An insert of an item, or a write of the primary, has no answer in this run: it may still arrive.
    pub(super) unanswered: bool,
    /// A write of the footprint has no answer in this run: it may still arrive while the footprint is at the version that it was for.
    pub(super) unheard: bool,
    /// This run has announced over another pass's open announcement: from then on that is its own, and the content of
    /// that announcement is not forgotten in later rounds.
    pub(super) disturbed: bool,
    /// A request of this run to write the primary was executed, or may have been.
    pub(super) may_have_written: bool,
    /// A row that the primary's first row does not tell of was in the way of a new one.
    pub(super) rows_in_the_way: bool,
    /// Where the contents of large values come from that this run brings.
    pub(super) supplies: BTreeMap<ItemAddress, Supply>,
    /// Which those are.
    pub(super) supplied: BTreeSet<ItemAddress>,
    /// Held from its first announcement on by a pass that carries large values.
    pub(super) value_slot: Option<MemoryGrant>,
    /// The blobs that the primary points to, in the state that items were last derived from.
    referred: BTreeSet<Site>,
    /// Items of others that this run met at a key which it wants, and that their owners' footprints did not list.
    pub(super) unlisted: BTreeSet<ItemAddress>,
    /// Views that could not derive their items from that state, and why.
    pub(super) underived: BTreeMap<ViewName, Box<DeriveError>>,
    /// The ETag of this run's own last announcement.
    pub(super) announced: Option<ETag>,
    /// When it was sent, by the wall and by the steady clock.
    pub(super) announced_at: Option<(Timestamp, Duration)>,
    pub(super) summary: Summary,
    pub(super) rounds: u32,
    /// How many passes this one is nested in.
    pub(super) depth: u8,
}

impl<'e> Pass<'e> {
    pub(super) fn new(engine: &'e Engine, source: &'e TableRef, primary: Primary, delivery: Option<&'e Delivery>) -> Self {
        Self {
            engine,
            source,
            folder: Folder::of(&primary),
            document: None,
            primary,
            footprints: footprint::table_of(&engine.catalog, source),
            delivery,
            looks: Looks::Doubtful,
            touched: BTreeSet::new(),
            said: Said::Ask,
            unanswered: false,
            unheard: false,
            disturbed: false,
            may_have_written: false,
            rows_in_the_way: false,
            supplies: BTreeMap::new(),
            supplied: BTreeSet::new(),
            value_slot: None,
            referred: BTreeSet::new(),
            unlisted: BTreeSet::new(),
            underived: BTreeMap::new(),
            announced: None,
            announced_at: None,
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
        if !self.has_views() && !self.receives() {
            return Ok(());
        }
        loop {
            self.next_round()?;
            let mut seen = self.observe().await?;
            if !self.receive(&mut seen).await? {
                continue;
            }
            if !self.has_views() {
                // A write of it that may still arrive implies nothing about the claims of others.
                return if self.unanswered { self.queue_recheck(&[]).await } else { Ok(()) };
            }
            if self.advance(&seen).await? == Round::Closed || planted(Bug::LostRaceIsDone) {
                return Ok(());
            }
        }
    }

    /// As [`settle`](Self::settle), from the given observation.
    pub(super) async fn settle_from(&mut self, seen: &Observation) -> Result<(), Failure> {
        if self.receives() {
            // The claims of others are read after the primary.
            return self.settle().await;
        }
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

    /// An account that items lie in.
    pub(super) fn target(&self, account: &AccountName) -> Result<&'e Account, Failure> {
        let found = self.engine.stores.account(account);
        found.map_err(|error| permanent(format!("finding the account of items of {}", self.primary), error))
    }

    /// Derives the items of a state of the primary, as far as its views can.
    pub(super) fn derive(&mut self, entity: Option<&Entity>) -> Result<BTreeMap<ItemAddress, Item>, Failure> {
        self.referred = entity.into_iter().flat_map(|entity| self.sites(entity)).collect();
        let catalog = &self.engine.catalog;
        let derived = match catalog.filing(self.source) {
            Some(filing) => patterns::values(catalog, &self.primary, (&filing.view, &filing.shelf), &self.folder, entity)
                .map(|items| Derivation { items, ..Derivation::default() }),
            None => patterns::derive(catalog, self.source, entity),
        };
        let derived = derived.map_err(|error| permanent(format!("deriving the items of {}", self.primary), error))?;
        self.underived = derived.failed;
        Ok(derived.items)
    }

    /// The failure of a job with views that cannot derive their items.
    pub(super) fn underived_failure(&self) -> Failure {
        let step = format!("deriving the items of {}; all others are in step", self.primary);
        permanent(step, Underived::of(self.underived.values())).of_views(self.underived.keys().cloned())
    }

    /// The situation that a plan is for.
    pub(super) fn situation<'s>(&'s self, seen: &'s Observation, wanted: &'s BTreeMap<ItemAddress, Item>, state: State) -> Situation<'s> {
        Situation {
            catalog: &self.engine.catalog,
            source: self.source,
            footprint: &seen.footprint,
            primary: &self.primary,
            looks: &seen.looks,
            said: &seen.said,
            state,
            wanted,
            supplied: &self.supplied,
            referred: &self.referred,
            underived: &self.underived,
            disturbed: self.unanswered || self.disturbed || self.meets_a_stranger(seen),
            now: self.engine.clock.now(),
            taint_for: self.engine.taint_for(),
        }
    }

    /// Whether another pass's announcement is open. Changes that this run announced itself are no sign of one; a crash
    /// or another pass is.
    fn meets_a_stranger(&self, seen: &Observation) -> bool {
        let own = self.announced.is_some() && self.announced == seen.etag;
        seen.footprint.is_changing() && !own
    }

    pub(super) fn plan(&self, situation: &Situation<'_>) -> Result<Plan, Failure> {
        plan::plan(situation)
            .map_err(|error| Failure::new(super::FailureClass::OutdatedCatalog, format!("planning {}", self.primary), error))
    }

    /// Goes from an observation to a closed footprint.
    pub(super) async fn advance(&mut self, seen: &Observation) -> Result<Round, Failure> {
        if seen.is_derived() && seen.etag.is_none() {
            return Ok(Round::Closed);
        }
        self.catch_up(seen).await?;
        let state = seen.row.as_ref().map_or(State::Absent, |row| State::Present(Some(row.etag.clone())));
        let wanted = self.derive(seen.row.as_ref().map(|row| &row.entity))?;
        let plan = self.plan(&self.situation(seen, &wanted, state.clone()))?;
        if plan.settled {
            if self.looks == Looks::Everything {
                self.queue_carries(wanted.keys()).await?;
            }
            if self.unheard {
                // Nothing is written over it.
                self.queue_recheck(&[]).await?;
            }
            return Ok(Round::Closed);
        }
        let Some(plan) = self.resolve(plan).await? else { return Ok(Round::Again) };
        let Some(etag) = self.announce(seen, &plan).await? else { return Ok(Round::Again) };
        let Some(written) = self.carry_out(&plan, BTreeMap::new()).await? else { return Ok(Round::Again) };
        self.finish(seen, &wanted, state, &plan, etag, &written).await
    }

    /// Brings rows up to date with their lists in blobs, where another writer stopped halfway.
    pub(super) async fn catch_up(&self, seen: &Observation) -> Result<(), Failure> {
        for (account, site) in &seen.behind {
            self.document(account, site)?.catch_up().await?;
        }
        Ok(())
    }

    /// Writes the announcement, where the plan has one. Returns the ETag under which to close; nothing where
    /// another pass was faster.
    pub(super) async fn announce(&mut self, seen: &Observation, plan: &Plan) -> Result<Option<Option<ETag>>, Failure> {
        // Before anything is announced, so that the waiting time counts against no deadline.
        self.take_value_slot().await;
        let Some(footprint) = &plan.announce else { return Ok(Some(seen.etag.clone())) };
        let stranger = self.meets_a_stranger(seen);
        let sent = (self.engine.clock.now(), self.engine.clock.monotonic());
        let etag = self.write_footprint(footprint, seen.etag.as_ref(), "announcing changes in").await?;
        if etag.is_some() {
            self.announced_at = Some(sent);
            self.disturbed |= stranger;
            self.announced.clone_from(&etag);
        }
        Ok(etag.map(Some))
    }

    /// Writes the footprint at its ETag, or inserts it. Nothing where the condition failed, or may have.
    pub(super) async fn write_footprint(
        &mut self,
        footprint: &Footprint,
        over: Option<&ETag>,
        doing: &str,
    ) -> Result<Option<ETag>, Failure> {
        let step = || format!("{doing} the footprint of {}", self.primary);
        let entity = footprint.encode(&self.primary).map_err(|error| permanent(step(), error))?;
        let operation = match over {
            _ if planted(Bug::UnconditionalFootprint) => TableOperation::InsertOrReplace(entity),
            Some(etag) => TableOperation::Replace(entity, Condition::Matches(etag.clone())),
            None => TableOperation::Insert(entity),
        };
        match self.tables()?.apply(&self.footprints, &operation).await {
            Ok(etag) => Ok(etag),
            Err(error) if error.may_have_lost() => {
                self.unheard |= error.class == ErrorClass::Ambiguous;
                Ok(None)
            }
            Err(error) => Err(storage(step(), error)),
        }
    }

    /// Syncs the primaries derived into the source of another view, queues rechecks, and closes the footprint.
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
        // Before the footprint is closed: until then the next pass does so again.
        let all = wanted.keys().filter(|_| self.looks == Looks::Everything);
        self.queue_carries(plan.changed().chain(all)).await?;
        let absent = state == State::Absent;
        let close = plan::close(&self.situation(seen, wanted, state), plan, written);
        if absent || plan.disturbed || !close.again.is_empty() {
            // Before the footprint forgets them. A tombstone is removed by the same second look; and the pass that
            // disturbed this one may have been about to write the primary, which may still happen long after the end of
            // its job.
            self.queue_recheck(&close.again).await?;
        }
        self.tell_contenders(seen, plan, &close.footprint).await?;
        if self.write_footprint(&close.footprint, etag.as_ref(), "closing").await?.is_none() {
            self.touched.extend(plan.writes.iter().map(|write| write.address.clone()));
            self.touched.extend(plan.drops.iter().map(|(address, _)| address.clone()));
            return Ok(Round::Again);
        }
        if plan.deferred || (!plan.taken.is_empty() && plan.frees_what_was_taken()) {
            Ok(Round::Again)
        } else if !plan.taken.is_empty() {
            Err(self.taken_failure(plan))
        } else if !self.underived.is_empty() {
            Err(self.underived_failure())
        } else {
            Ok(Round::Closed)
        }
    }

    /// A derived row in a table that is itself the source of views is a primary there: its items follow.
    async fn sync_on(&self, plan: &Plan) -> Result<(), Failure> {
        if planted(Bug::NoSyncOn) {
            return Ok(());
        }
        for address in plan.changed() {
            let Some((table, key)) = address.site.row() else { continue };
            let target = TableRef { account: address.account.clone(), table: table.clone() };
            // Rows that are derived within their own table are no primaries there; rows with properties set on them
            // are.
            let is_primary = target != *self.source || address.part == Some(Part::Properties);
            let catalog = &self.engine.catalog;
            if is_primary && (catalog.has_views(&target) || catalog.ranges_over(&target).next().is_some()) {
                let derived = Primary { table: target.table.clone(), key: key.clone() };
                self.engine.nested(&derived, None, self.delivery, self.depth + 1).await?;
            }
        }
        Ok(())
    }
}
