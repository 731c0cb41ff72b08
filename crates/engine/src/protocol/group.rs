//! The entity group transaction that writes a primary together with the items in its partition. Such an item is a row,
//! or a part of a *document*. Here, a document is an entity that several primaries share, for example a list with its
//! members.
//!
//! A document is written at the ETag that was read. If another writer was faster, the transaction fails and the round
//! begins anew.

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
    /// Number of operations on the primary.
    pub(crate) own: usize,
    /// For each operation on items, the items that it changes. A write of a document can change several items.
    pub(crate) effects: Vec<Vec<ItemEffect>>,
    bytes: usize,
    /// Locks on the documents that the transaction writes. Other runs in this process wait until the transaction has
    /// ended.
    turns: Vec<HeldTurn<'e>>,
}

pub(crate) struct ItemEffect {
    pub(crate) address: ItemAddress,
    pub(crate) change: ItemChange,
    /// The new token if the item is a part of a document; `None` for a row, because the store returns the row's ETag.
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

/// Upper limit on the size of an operation in the request of a transaction.
pub(crate) fn bytes_of(operation: &TableOperation) -> usize {
    limits::OPERATION_OVERHEAD_BYTES + operation.entity().map_or(0, odata::encoded_len)
}

/// Groups the primary's operations with as many items of its partition as fit in one transaction. The inner `Err` has
/// the parts of documents that differ from what the plan expects.
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
    // Documents are locked in the order of their sites, so that two runs cannot deadlock.
    for operations in documents.into_values() {
        let lost = add_document(scope, &mut group, &operations).await?;
        if !lost.is_empty() {
            return Ok(Err(lost));
        }
    }
    // A row can have the same key as a document, for example after a view changed its kind. Such a row is written after
    // the transaction, because a transaction accepts each key only once.
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

/// Adds a single write that makes all planned changes to a document. If some parts differ from what the plan expects,
/// adds nothing and returns their addresses.
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
