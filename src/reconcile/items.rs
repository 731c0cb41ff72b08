//! Writing and dropping items, each under its condition.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::stream;

use super::execute::{Action, Failure, ItemChange};
use super::failure::storage;
use super::pass::Pass;
use super::plan::{Plan, Write};
use crate::model::{ETag, ItemAddress};
use crate::ports::{Condition, ErrorClass, StoreError, TableOperation};

/// Requests of one pass under way at once.
const CONCURRENT_REQUESTS: usize = 16;

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

impl Pass<'_> {
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

/// Runs requests side by side, some at a time, and returns their answers in order.
pub(super) async fn gather<F: Future>(requests: Vec<F>) -> Vec<F::Output> {
    stream::iter(requests).buffered(CONCURRENT_REQUESTS).collect().await
}
