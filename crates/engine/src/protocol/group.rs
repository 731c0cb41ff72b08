//! The entity group transaction of a primary and the items in its partition. These items are whole rows, and parts of
//! documents that several primaries share, for example members of lists.
//!
//! A document is written at the ETag that was read. If another writer was faster, the transaction fails and the round
//! begins anew. A primary and a list in the primary's partition therefore always change together.

use std::collections::{BTreeMap, BTreeSet};

use crate::execute::{Failure, ItemChange};
use crate::items::shared::{HeldTurn, PreparedWrite};
use crate::items::{self, ItemOperation};
use crate::protocol::scope::Scope;
use crate::protocol::steps::Plan;
use evenkeel_model::shared::ChangeOutcome;
use evenkeel_model::{ETag, ItemAddress, Site, limits, odata};
use evenkeel_storage::TableOperation;

/// The part of a plan that is written in the primary's own transaction.
pub(crate) struct Group<'e> {
    /// The operations on the primary, then the operations on items.
    pub(crate) operations: Vec<TableOperation>,
    pub(crate) own: usize,
    /// For each operation after those on the primary, the items that it changes. A write of a document changes several
    /// items.
    pub(crate) effects: Vec<Vec<ItemEffect>>,
    bytes: usize,
    /// The turns (locks of this process) on the group's documents, held until the transaction has ended.
    turns: Vec<HeldTurn<'e>>,
}

pub(crate) struct ItemEffect {
    pub(crate) address: ItemAddress,
    pub(crate) change: ItemChange,
    /// The new token, if the item is part of a document. The ETag of a whole row comes with the store's answer.
    pub(crate) token: Option<ETag>,
}

impl Group<'_> {
    fn of(operations: Vec<TableOperation>) -> Self {
        let bytes = operations.iter().map(bytes_of).sum();
        Self {
            own: operations.len(),
            operations,
            effects: Vec::new(),
            bytes,
            turns: Vec::new(),
        }
    }

    fn add(&mut self, operation: TableOperation, effects: Vec<ItemEffect>) {
        let bytes = self.bytes + bytes_of(&operation);
        if self.operations.len() < limits::TRANSACTION_OPERATIONS
            && bytes <= limits::TRANSACTION_BYTES
        {
            self.bytes = bytes;
            self.operations.push(operation);
            self.effects.push(effects);
        }
    }

    pub(crate) fn addresses(&self) -> impl Iterator<Item = &ItemAddress> {
        self.effects.iter().flatten().map(|effect| &effect.address)
    }
}

/// Upper limit on the bytes that an operation takes in the request of a transaction.
pub(crate) fn bytes_of(operation: &TableOperation) -> usize {
    limits::OPERATION_OVERHEAD_BYTES + operation.entity().map_or(0, odata::encoded_len)
}

/// Groups the primary's operations with as many items of its partition as fit in one transaction. If parts of documents
/// differ from what the plan expects, the inner `Err` has their addresses.
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
    // Turns are taken in the order of the sites, so that two runs that need the same turns cannot deadlock.
    for operations in documents.into_values() {
        let lost = add_document(scope, &mut group, &operations).await?;
        if !lost.is_empty() {
            return Ok(Err(lost));
        }
    }
    // A row of the plan can have the key of a document, for example after a view changed its kind. Such a row is
    // written after the transaction, because a transaction accepts each key once.
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

/// Adds one write for all planned changes to the parts of a document. Returns the items that differ from what the plan
/// expects.
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
        let effects = operations
            .iter()
            .zip(&changes)
            .map(|(operation, change)| ItemEffect {
                address: operation.address().clone(),
                change: operation.done(),
                token: change.write.token().cloned(),
            });
        group.add(write, effects.collect());
    }
    Ok(lost)
}
