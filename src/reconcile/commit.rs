//! Writing a primary: in one entity group transaction with those of its items that lie in its own
//! partition, then on to the items elsewhere.
//!
//! The transaction is conditional on the primary's ETag, so it is also the pass's reading of the primary:
//! later steps rest on the written state, not on one that may have changed since.

use std::collections::BTreeMap;

use super::document::Filed;
use super::execute::Failure;
use super::failure::storage;
use super::group::{Done, Group};
use super::observation::Observation;
use super::pass::{Pass, Round};
use super::plan::{Plan, State};
use crate::model::{ETag, Entity, EntityKey, ItemAddress, TableName};
use crate::planted::{Bug, planted};
use crate::ports::{Condition, ErrorClass, StoreError, TableOperation, TableStore};

/// The intended change of the primary.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// It is absent, and is inserted.
    Insert(Entity),
    /// It is replaced at its ETag.
    Replace(Entity, ETag),
    /// Some of its properties are set at its ETag.
    Merge {
        /// The properties sent.
        changes: Entity,
        /// The resulting entity.
        merged: Entity,
        /// Its ETag.
        etag: ETag,
    },
    /// It is deleted at its ETag.
    Delete(EntityKey, ETag),
}

/// How a commit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Commit {
    /// The primary is written, and every item is in step.
    Closed,
    /// The primary is written; the rest lost a race and is to be reconciled.
    Committed,
    /// The primary was not written: look again.
    Lost,
    /// Unknown outcome: look again.
    Unanswered,
}

impl Change {
    /// The resulting primary.
    pub(super) const fn result(&self) -> Option<&Entity> {
        match self {
            Self::Insert(entity) | Self::Replace(entity, _) | Self::Merge { merged: entity, .. } => Some(entity),
            Self::Delete(..) => None,
        }
    }

    /// The properties that are sent; none where it is deleted.
    pub(super) const fn sent(&self) -> Option<&Entity> {
        match self {
            Self::Insert(entity) | Self::Replace(entity, _) | Self::Merge { changes: entity, .. } => Some(entity),
            Self::Delete(..) => None,
        }
    }

    /// With these texts for these properties.
    #[must_use]
    pub(super) fn with_texts(self, texts: &BTreeMap<String, String>) -> Self {
        let set = |mut entity: Entity| {
            entity.properties.extend(texts.iter().map(|(name, text)| (name.clone(), text.as_str().into())));
            entity
        };
        match self {
            Self::Insert(entity) => Self::Insert(set(entity)),
            Self::Replace(entity, etag) => Self::Replace(set(entity), etag),
            Self::Merge { changes, merged, etag } => Self::Merge { changes: set(changes), merged: set(merged), etag },
            delete @ Self::Delete(..) => delete,
        }
    }

    pub(super) fn operation(&self) -> TableOperation {
        match self.clone() {
            Self::Insert(entity) => TableOperation::Insert(entity),
            Self::Replace(entity, etag) => TableOperation::Replace(entity, Condition::Matches(etag)),
            Self::Merge { changes, etag, .. } => TableOperation::Merge(changes, Condition::Matches(etag)),
            Self::Delete(key, _) if planted(Bug::DeletedAtAnyVersion) => TableOperation::Delete(key, Condition::Any),
            Self::Delete(key, etag) => TableOperation::Delete(key, Condition::Matches(etag)),
        }
    }
}

impl Pass<'_> {
    /// Writes the primary as `change` says, based on the observation, and brings its items in step.
    pub(super) async fn commit(&mut self, seen: &Observation, change: &Change) -> Result<Commit, Failure> {
        if !self.has_views() {
            return self.commit_alone(seen, change).await;
        }
        self.catch_up(seen).await?;
        let own = self.operations(&seen.rows, change)?;
        let wanted = self.derive(change.result())?;
        let state = change.result().map_or(State::Absent, |_| State::Present(None));
        let plan = self.plan(&self.situation(seen, &wanted, state))?;
        let Some(plan) = self.resolve(plan).await? else { return Ok(Commit::Lost) };
        // Keys of items written before the primary, or with it, must be free.
        if plan.taken.iter().any(|taken| self.is_own_partition(&taken.address) || taken.address.site.row().is_none()) {
            return Err(self.refuse_taken(seen, &plan).await);
        }
        if !self.pointers_lead(seen, &plan)? {
            return Ok(Commit::Lost);
        }
        let Some(etag) = self.announce(seen, &plan).await? else { return Ok(Commit::Lost) };
        let Some(mut written) = self.upload_values(&plan).await? else { return Ok(Commit::Lost) };

        let Some(group) = self.group(own, &plan).await? else { return Ok(Commit::Lost) };
        let etags = match &self.document {
            Some(document) => match document.carry_out(change).await? {
                Filed::Done(etag) => vec![etag],
                Filed::Lost => return Ok(Commit::Lost),
                Filed::Unanswered => return Ok(self.without_answer()),
            },
            None => match self.send(self.tables()?, &group.operations).await {
                Ok(etags) => etags,
                Err(error) => return self.lost(&group, error),
            },
        };
        self.may_have_written = true;
        // The version of the whole is its first row's.
        let state = match etags.first().cloned().flatten() {
            Some(etag) => State::Present(Some(etag)),
            None => State::Absent,
        };
        for (done, etag) in group.about.iter().zip(etags.into_iter().skip(group.own)) {
            for Done { address, action, token } in done {
                self.count(address, *action);
                let version = if address.part.is_some() { token } else { &etag };
                written.extend(version.clone().map(|version| (address.clone(), version)));
            }
        }
        let rest = plan.without_drops(&group);
        // The following steps wait for keyed queues of their own.
        drop(group);
        let Some(written) = self.carry_out(&rest, written).await? else { return Ok(Commit::Committed) };
        // The claims of others on an entity are read once it exists.
        let awaits = self.receives() && change.result().is_some();
        Ok(match self.finish(seen, &wanted, state, &plan, etag, &written).await? {
            Round::Closed if awaits => Commit::Committed,
            Round::Closed => Commit::Closed,
            Round::Again => Commit::Committed,
        })
    }

    /// Writes a primary without items, or with items that are to follow.
    pub(super) async fn commit_alone(&mut self, seen: &Observation, change: &Change) -> Result<Commit, Failure> {
        let operations = self.operations(&seen.rows, change)?;
        match self.send(self.tables()?, &operations).await {
            Ok(_) => {
                self.may_have_written = true;
                Ok(if self.receives() && change.result().is_some() { Commit::Committed } else { Commit::Closed })
            }
            Err(error) if error.is_lost_race() => {
                self.rows_in_the_way |= error.index != Some(0) && operations.len() > 1;
                Ok(Commit::Lost)
            }
            Err(error) if error.class == ErrorClass::Ambiguous => {
                self.may_have_written = true;
                // It may still arrive, with no run left to derive its items.
                self.unanswered = true;
                Ok(Commit::Unanswered)
            }
            Err(error) => Err(storage(format!("writing the primary {}", self.primary), error)),
        }
    }

    /// Whether an item lies in the primary's own partition, so that it is written with it.
    pub(super) fn is_own_partition(&self, address: &ItemAddress) -> bool {
        let here = |(table, key): (&TableName, &EntityKey)| *table == self.source.table && key.pk == self.primary.key.pk;
        address.account == self.source.account && address.site.row().is_some_and(here)
    }

    /// A key in the primary's own partition is taken: nothing is written, and the announcement for the refused state is
    /// withdrawn.
    async fn refuse_taken(&mut self, seen: &Observation, plan: &Plan) -> Failure {
        let refused = self.taken_failure(plan);
        match self.settle_from(seen).await {
            Ok(()) => refused,
            Err(failure) => failure,
        }
    }

    async fn send(&self, tables: &dyn TableStore, operations: &[TableOperation]) -> Result<Vec<Option<ETag>>, StoreError> {
        match operations {
            rows if planted(Bug::RowsWrittenApart) => {
                let mut etags = Vec::with_capacity(rows.len());
                for row in rows {
                    etags.push(tables.apply(&self.source.table, row).await?);
                }
                Ok(etags)
            }
            [alone] => tables.apply(&self.source.table, alone).await.map(|etag| vec![etag]),
            operations => tables.transact(&self.source.table, &self.primary.key.pk, operations).await,
        }
    }

    fn lost(&mut self, group: &Group<'_>, error: StoreError) -> Result<Commit, Failure> {
        if error.is_lost_race() {
            let own = group.own.saturating_sub(usize::from(planted(Bug::NextRowIsBlamed)));
            match error.index.map(|index| (index, index.checked_sub(own).and_then(|item| group.about.get(item)))) {
                Some((0, _)) => {}
                Some((_, Some(about))) => self.touched.extend(about.iter().map(|done| done.address.clone())),
                Some((index, None)) if index < group.own => self.rows_in_the_way = true,
                // The store does not say which: look at all.
                _ => {
                    self.rows_in_the_way |= group.own > 1;
                    self.touched.extend(group.addresses().cloned());
                }
            }
            return Ok(Commit::Lost);
        }
        if error.class == ErrorClass::Ambiguous {
            self.touched.extend(group.addresses().cloned());
            return Ok(self.without_answer());
        }
        Err(storage(format!("writing the primary {} and its items in the same partition", self.primary), error))
    }

    /// It may still arrive: an insert of the primary at any time, anything else while the primary is at its ETag. By
    /// then there may be no run to derive its items. And it may arrive just after the looks and before the primary is
    /// read, so that the looks have missed the items that it inserts.
    const fn without_answer(&mut self) -> Commit {
        self.may_have_written = true;
        self.unanswered = true;
        Commit::Unanswered
    }
}

impl Plan {
    /// This plan without the drops that are done already.
    fn without_drops(&self, done: &Group<'_>) -> Self {
        let mut rest = self.clone();
        rest.drops.retain(|(address, _)| !done.addresses().any(|done| done == address));
        rest
    }
}
