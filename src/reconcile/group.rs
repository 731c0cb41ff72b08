//! The entity group transaction of a primary and those of its items that lie in its partition: rows, and whole documents
//! that it shares with others there.
//!
//! A document goes in as it was read, under its ETag: a faster writer fails the transaction, and everything
//! starts over. So a list in the source's partition is never seen without the primary that is in it.

use std::collections::BTreeMap;

use super::execute::{Action, Failure};
use super::items::Deed;
use super::pass::Pass;
use super::plan::Plan;
use super::shared::{Held, Prepared};
use crate::model::{ETag, ItemAddress, Site, limits, odata};
use crate::ports::TableOperation;
use crate::shared::Ended;

/// The part of a plan that goes into the primary's own transaction.
pub(super) struct Group<'e> {
    /// The primary's operations, then the others.
    pub(super) operations: Vec<TableOperation>,
    /// How many are the primary's.
    pub(super) own: usize,
    /// Effects of each operation after those: several where it writes a document.
    pub(super) about: Vec<Vec<Done>>,
    bytes: usize,
    /// The turns of the documents in it, until it has ended.
    turns: Vec<Held<'e>>,
}

/// Effect of an operation on an item.
pub(super) struct Done {
    pub(super) address: ItemAddress,
    pub(super) action: Action,
    /// The token of a part from then on; a row's ETag comes with the answer.
    pub(super) token: Option<ETag>,
}

impl Group<'_> {
    fn of(operations: Vec<TableOperation>) -> Self {
        let bytes = operations.iter().map(bytes_of).sum();
        Self { own: operations.len(), operations, about: Vec::new(), bytes, turns: Vec::new() }
    }

    /// Adds an operation, where the transaction takes one more.
    fn add(&mut self, operation: TableOperation, about: Vec<Done>) {
        let bytes = self.bytes + bytes_of(&operation);
        if self.operations.len() < limits::TRANSACTION_OPERATIONS && bytes <= limits::TRANSACTION_BYTES {
            self.bytes = bytes;
            self.operations.push(operation);
            self.about.push(about);
        }
    }

    /// Every item that it is about.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &ItemAddress> {
        self.about.iter().flatten().map(|done| &done.address)
    }
}

/// The bytes that an operation takes, at most.
pub(super) fn bytes_of(operation: &TableOperation) -> usize {
    limits::OPERATION_OVERHEAD_BYTES + operation.entity().map_or(0, odata::encoded_len)
}

impl<'e> Pass<'e> {
    /// The primary, by its operations, and own-partition items, as many as one transaction takes. `None` where a
    /// document differs from the plan's view of it.
    pub(super) async fn group(&mut self, own: Vec<TableOperation>, plan: &Plan) -> Result<Option<Group<'e>>, Failure> {
        let mut group = Group::of(own);
        let deeds: Vec<Deed<'_>> = Deed::of(plan).into_iter().filter(|deed| self.is_own_partition(deed.address())).collect();
        let mut documents: BTreeMap<&Site, Vec<Deed<'_>>> = BTreeMap::new();
        for deed in deeds.iter().filter(|deed| deed.address().part.is_some()) {
            documents.entry(&deed.address().site).or_default().push(*deed);
        }
        // In their order, so that two that need the same turns never wait for each other.
        for deeds in documents.into_values() {
            if !self.add_document(&mut group, &deeds).await? {
                return Ok(None);
            }
        }
        for deed in deeds.into_iter().filter(|deed| deed.address().part.is_none()) {
            if let Some(operation) = deed.operation() {
                group.add(operation, vec![Done { address: deed.address().clone(), action: deed.action(), token: None }]);
            }
        }
        Ok(Some(group))
    }

    async fn add_document(&mut self, group: &mut Group<'e>, deeds: &[Deed<'_>]) -> Result<bool, Failure> {
        let Some(first) = deeds.first() else { return Ok(true) };
        let document = self.document(&first.address().account, &first.address().site)?;
        group.turns.push(self.engine.turns.hold(document.turn()).await);
        let changes: Vec<_> = deeds.iter().map(|deed| self.change(*deed)).collect();
        let Prepared::Together { operation, ended } = document.prepare(&changes).await? else {
            // It follows after the transaction, and takes its turn then.
            drop(group.turns.pop());
            return Ok(true);
        };
        let lost = deeds.iter().zip(&ended).filter(|(_, ended)| **ended == Ended::Lost);
        let lost: Vec<ItemAddress> = lost.map(|(deed, _)| deed.address().clone()).collect();
        if !lost.is_empty() {
            self.touched.extend(lost);
            return Ok(false);
        }
        if let Some(operation) = operation {
            let about = deeds.iter().zip(&changes).map(|(deed, change)| Done {
                address: deed.address().clone(),
                action: deed.action(),
                token: change.write.token().cloned(),
            });
            group.add(operation, about.collect());
        }
        Ok(true)
    }
}
