//! The entity group transaction of a primary and those of its items that lie in its partition: rows, and whole documents
//! that it shares with others there.
//!
//! A document goes in as it was read, under its ETag: a faster writer fails the transaction, and everything
//! starts over. So a list in the source's partition is never seen without the primary that is in it.

use std::collections::{BTreeMap, BTreeSet};

use crate::execute::{Failure, ItemChange};
use crate::items::shared::{HeldTurn, PreparedWrite};
use crate::items::{self, ItemOperation};
use crate::protocol::scope::Scope;
use crate::protocol::steps::Plan;
use evenkeel_model::shared::ChangeOutcome;
use evenkeel_model::{ETag, ItemAddress, Site, limits, odata};
use evenkeel_storage::TableOperation;

/// The part of a plan that goes into the primary's own transaction.
pub(crate) struct Group<'e> {
    /// The primary's operations, then the others.
    pub(crate) operations: Vec<TableOperation>,
    /// How many are the primary's.
    pub(crate) own: usize,
    /// Effects of each operation after those: several where it writes a document.
    pub(crate) about: Vec<Vec<ItemEffect>>,
    bytes: usize,
    /// The turns of the documents in it, until it has ended.
    turns: Vec<HeldTurn<'e>>,
}

/// Effect of an operation on an item.
pub(crate) struct ItemEffect {
    pub(crate) address: ItemAddress,
    pub(crate) change: ItemChange,
    /// The token of a part from then on; a row's ETag comes with the answer.
    pub(crate) token: Option<ETag>,
}

impl Group<'_> {
    fn of(operations: Vec<TableOperation>) -> Self {
        let bytes = operations.iter().map(bytes_of).sum();
        Self {
            own: operations.len(),
            operations,
            about: Vec::new(),
            bytes,
            turns: Vec::new(),
        }
    }

    /// Adds an operation, where the transaction takes one more.
    fn add(&mut self, operation: TableOperation, about: Vec<ItemEffect>) {
        let bytes = self.bytes + bytes_of(&operation);
        if self.operations.len() < limits::TRANSACTION_OPERATIONS
            && bytes <= limits::TRANSACTION_BYTES
        {
            self.bytes = bytes;
            self.operations.push(operation);
            self.about.push(about);
        }
    }

    /// Every item that it is about.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &ItemAddress> {
        self.about.iter().flatten().map(|done| &done.address)
    }
}

/// The bytes that an operation takes, at most.
pub(crate) fn bytes_of(operation: &TableOperation) -> usize {
    limits::OPERATION_OVERHEAD_BYTES + operation.entity().map_or(0, odata::encoded_len)
}

/// The primary, by its operations, and own-partition items, as many as one transaction takes. Otherwise the items of documents that differ
/// from the plan's view of them.
pub(crate) async fn group<'e>(
    scope: &Scope<'e>,
    own: Vec<TableOperation>,
    plan: &Plan,
) -> Result<Result<Group<'e>, Vec<ItemAddress>>, Failure> {
    let mut group = Group::of(own);
    let items: Vec<ItemOperation<'_>> = ItemOperation::of(plan)
        .into_iter()
        .filter(|operation| scope.is_own_partition(operation.address()))
        .collect();
    let mut documents: BTreeMap<&Site, Vec<ItemOperation<'_>>> = BTreeMap::new();
    for operation in items
        .iter()
        .filter(|operation| operation.address().part.is_some())
    {
        documents
            .entry(&operation.address().site)
            .or_default()
            .push(*operation);
    }
    let shared: BTreeSet<&Site> = documents.keys().copied().collect();
    // In their order, so that two that need the same turns never wait for each other.
    for operations in documents.into_values() {
        let lost = add_document(scope, &mut group, &operations).await?;
        if !lost.is_empty() {
            return Ok(Err(lost));
        }
    }
    // A row at the key of a document, as where a view has changed its kind, follows after the transaction: that takes each key once.
    let apart = |address: &ItemAddress| address.part.is_none() && !shared.contains(&address.site);
    for operation in items
        .into_iter()
        .filter(|operation| apart(operation.address()))
    {
        if let Some(on_row) = operation.on_row() {
            group.add(
                on_row,
                vec![ItemEffect {
                    address: operation.address().clone(),
                    change: operation.done(),
                    token: None,
                }],
            );
        }
    }
    Ok(Ok(group))
}

/// Adds the operations on parts of one document. Returns the items that it has otherwise than planned.
async fn add_document<'e>(
    scope: &Scope<'e>,
    group: &mut Group<'e>,
    operations: &[ItemOperation<'_>],
) -> Result<Vec<ItemAddress>, Failure> {
    let Some(first) = operations.first() else {
        return Ok(Vec::new());
    };
    let document = items::document(scope, &first.address().account, &first.address().site)?;
    group
        .turns
        .push(scope.env.turns.hold(document.turn()).await);
    let changes: Vec<_> = operations
        .iter()
        .map(|operation| items::change(scope, *operation))
        .collect();
    let PreparedWrite {
        operation: write,
        ended,
    } = document.prepare(&changes).await?;
    let lost = operations
        .iter()
        .zip(&ended)
        .filter(|(_, ended)| **ended == ChangeOutcome::Lost);
    let lost: Vec<ItemAddress> = lost
        .map(|(operation, _)| operation.address().clone())
        .collect();
    if let Some(write) = write.filter(|_| lost.is_empty()) {
        let about = operations
            .iter()
            .zip(&changes)
            .map(|(operation, change)| ItemEffect {
                address: operation.address().clone(),
                change: operation.done(),
                token: change.write.token().cloned(),
            });
        group.add(write, about.collect());
    }
    Ok(lost)
}
