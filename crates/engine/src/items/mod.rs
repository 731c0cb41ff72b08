//! Reads and writes derived items where they are stored. Each kind of location has one driver, and no other module
//! distinguishes the kinds.
//!
//! This module also contains large values, entities stored as documents, and entities shared by many primaries. It may
//! use `env`, and these modules of the protocol: `scope`, `change`, `steps`, `footprint`, `actual`, `observed_item` and
//! `unanswered`. It uses no job and starts no pass.
//!
//! | driver | item |
//! | --- | --- |
//! | [`row`] | a row |
//! | [`blob`] | a blob with a large value |
//! | [`mod@file`] | a file with a large value, in a shared folder |
//! | [`search`] | a document of a search index |
//! | [`part`] | a part of an entity that many primaries share: a list member, or properties set on another entity |

mod blob;
mod confirm;
pub(crate) mod document;
mod file;
mod part;
mod row;
mod search;
pub(crate) mod shared;
pub(crate) mod value;

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;

use crate::execute::{Action, Failure, ItemChange};
use crate::failure::storage;
use crate::items::value::RunValues;
use crate::protocol::footprint::Footprint;
use crate::protocol::observed_item::ObservedItem;
use crate::protocol::scope::Scope;
use crate::protocol::steps::{Plan, Write};
use crate::protocol::unanswered::UnansweredWrites;
use evenkeel_model::{AccountName, ETag, EdmValue, ItemAddress, Site};
use evenkeel_storage::{ErrorClass, FilePlace, StoreError, TableOperation};

pub(crate) use confirm::Stays;
pub(crate) use part::{change, document};

const CONCURRENT_REQUESTS: usize = 16;

/// Driver of one location. All addresses and operations passed to it belong to that location.
#[async_trait]
trait ItemStore: Send + Sync {
    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<LookResults, Failure>;

    /// Writes and drops items. The result of a write is the new ETag or token.
    async fn apply(
        &self,
        by: &WriteContext<'_, '_>,
        operations: &[ItemOperation<'_>],
    ) -> Vec<Result<Option<ETag>, ItemFailure>>;

    /// Whether a planned write would change the stored item. `listed` is the version in the footprint.
    async fn differs(
        &self,
        scope: &Scope<'_>,
        write: &Write,
        listed: Option<&ETag>,
    ) -> Result<bool, Failure>;
}

/// A location that holds exactly one item, so that each operation is one request.
#[async_trait]
trait WholeItem: Send + Sync {
    /// Whether every request is conditional. Even then, a late insert may take effect. Without conditions, a late
    /// update or drop may take effect, too.
    const CONDITIONAL: bool = true;

    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<Vec<ObservedItem>, Failure>;

    async fn request(
        &self,
        by: &WriteContext<'_, '_>,
        operation: ItemOperation<'_>,
    ) -> Result<Result<Option<ETag>, StoreError>, Failure>;

    async fn differs(
        &self,
        scope: &Scope<'_>,
        write: &Write,
        listed: Option<&ETag>,
    ) -> Result<bool, Failure>;

    async fn apply_one(
        &self,
        by: &WriteContext<'_, '_>,
        operation: ItemOperation<'_>,
    ) -> Result<Option<ETag>, ItemFailure> {
        let view = &operation.address().view;
        if !Self::CONDITIONAL && !by.unanswered.is_in_time(by.scope.env) {
            return Err(ItemFailure::Lost {
                may_still_create: false,
            });
        }
        let result = self
            .request(by, operation)
            .await
            .map_err(|failure| ItemFailure::Failed(failure.of_views([view.clone()])))?;
        let (doing, ended) = match (result, operation) {
            (Ok(Some(etag)), ItemOperation::Write(_)) => return Ok(Some(etag)),
            // The write succeeded, but its new version is unknown, so the item must be read again.
            (Ok(None), ItemOperation::Write(_)) => {
                return Err(ItemFailure::Lost {
                    may_still_create: false,
                });
            }
            (Ok(_), ItemOperation::Drop(..)) => return Ok(None),
            (Err(error), ItemOperation::Drop(..)) if error.is_missing_item() => {
                return Ok(None);
            }
            (Err(error), ItemOperation::Write(_)) => ("writing", error),
            (Err(error), ItemOperation::Drop(..)) => ("dropping", error),
        };
        let may_still_create = !Self::CONDITIONAL || operation.action() == Action::Create;
        Err(if ended.is_lost_race() {
            ItemFailure::Lost {
                may_still_create: false,
            }
        } else if ended.class == ErrorClass::Ambiguous {
            ItemFailure::Lost { may_still_create }
        } else {
            let step = format!(
                "{doing} {}, derived from {}",
                operation.address(),
                by.scope.primary
            );
            ItemFailure::Failed(storage(step, ended).of_views([view.clone()]))
        })
    }
}

fn store_of(address: &ItemAddress) -> Box<dyn ItemStore + '_> {
    match &address.site {
        site if address.part.is_some() => Box::new(part::PartStore {
            account: &address.account,
            site,
        }),
        Site::Row { table, key } => Box::new(row::RowStore {
            account: &address.account,
            table,
            key,
        }),
        Site::Blob { container, name } => Box::new(blob::ValueBlob {
            account: &address.account,
            container,
            name,
        }),
        Site::File { dir, name } => Box::new(file::ValueFile {
            place: FilePlace {
                dir: dir.clone(),
                name: name.clone(),
            },
        }),
        Site::Document { collection, key } => Box::new(search::DocumentStore {
            sink: &address.account,
            collection,
            key,
        }),
    }
}

#[derive(Clone, Copy)]
pub(crate) struct LookContext<'p, 'e> {
    pub(crate) scope: &'p Scope<'e>,
    pub(crate) footprint: &'p Footprint,
    pub(crate) touched: &'p BTreeSet<ItemAddress>,
}

#[derive(Clone, Copy)]
pub(crate) struct WriteContext<'p, 'e> {
    pub(crate) scope: &'p Scope<'e>,
    pub(crate) values: &'p RunValues,
    pub(crate) unanswered: &'p UnansweredWrites,
}

#[derive(Default)]
pub(crate) struct LookResults {
    pub(crate) observed: Vec<(ItemAddress, ObservedItem)>,
    pub(crate) property_values: Vec<(ItemAddress, BTreeMap<String, EdmValue>)>,
    /// List members. In the row of their list, the count or an aggregate does not match the list.
    pub(crate) behind: Vec<ItemAddress>,
}

pub(crate) enum ItemFailure {
    /// Another writer was faster, or the answer is missing. The item must be read again.
    Lost {
        /// Whether the request may still create the item, because it is an insert, a write over another holder's item,
        /// or has no condition.
        may_still_create: bool,
    },
    Failed(Failure),
}

#[derive(Clone, Copy)]
pub(crate) enum ItemOperation<'p> {
    Write(&'p Write),
    Drop(&'p ItemAddress, &'p ETag),
}

/// An operation and its result. The result of a write is the new ETag or token.
pub(crate) type OperationResult<'p> = (ItemOperation<'p>, Result<Option<ETag>, ItemFailure>);

pub(crate) enum OperationResults<'p> {
    Each(Vec<OperationResult<'p>>),
    /// No operation was sent, because these items differ although the plan expects them unchanged.
    NotSent(Vec<ItemAddress>),
}

impl<'p> ItemOperation<'p> {
    pub(crate) fn of(plan: &'p Plan) -> Vec<Self> {
        let drops = plan
            .drops
            .iter()
            .map(|(address, etag)| Self::Drop(address, etag));
        plan.writes.iter().map(Self::Write).chain(drops).collect()
    }

    pub(crate) fn on_row(self) -> Option<TableOperation> {
        row::operation(self)
    }

    pub(crate) const fn address(self) -> &'p ItemAddress {
        match self {
            Self::Write(write) => &write.address,
            Self::Drop(address, _) => address,
        }
    }

    pub(crate) const fn action(self) -> Action {
        match self {
            Self::Write(write) if write.creates() => Action::Create,
            Self::Write(_) => Action::Update,
            Self::Drop(..) => Action::Delete,
        }
    }

    pub(crate) fn done(self) -> ItemChange {
        let ItemAddress { view, account, .. } = self.address();
        ItemChange {
            view: view.clone(),
            account: account.clone(),
            action: self.action(),
        }
    }
}

#[async_trait]
impl<T: WholeItem> ItemStore for T {
    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<LookResults, Failure> {
        let observed = WholeItem::look(self, from, addresses).await?;
        Ok(LookResults {
            observed: addresses
                .iter()
                .map(|address| (*address).clone())
                .zip(observed)
                .collect(),
            ..LookResults::default()
        })
    }

    async fn apply(
        &self,
        by: &WriteContext<'_, '_>,
        operations: &[ItemOperation<'_>],
    ) -> Vec<Result<Option<ETag>, ItemFailure>> {
        let mut ended = Vec::with_capacity(operations.len());
        for operation in operations {
            ended.push(self.apply_one(by, *operation).await);
        }
        ended
    }

    async fn differs(
        &self,
        scope: &Scope<'_>,
        write: &Write,
        listed: Option<&ETag>,
    ) -> Result<bool, Failure> {
        WholeItem::differs(self, scope, write, listed).await
    }
}

pub(crate) async fn look(
    from: LookContext<'_, '_>,
    addresses: BTreeSet<&ItemAddress>,
) -> Result<LookResults, Failure> {
    let mut places: BTreeMap<(&AccountName, &Site, bool), Vec<&ItemAddress>> = BTreeMap::new();
    for address in addresses {
        places
            .entry((&address.account, &address.site, address.part.is_some()))
            .or_default()
            .push(address);
    }
    let observed = places
        .into_values()
        .map(|addresses| async move { store_of(addresses[0]).look(&from, &addresses).await });
    let mut all = LookResults::default();
    for looked in gather(observed.collect()).await {
        let looked = looked?;
        all.observed.extend(looked.observed);
        all.property_values.extend(looked.property_values);
        all.behind.extend(looked.behind);
    }
    Ok(all)
}

pub(crate) async fn apply(
    by: WriteContext<'_, '_>,
    operation: ItemOperation<'_>,
) -> Result<Option<ETag>, ItemFailure> {
    store_of(operation.address())
        .apply(&by, &[operation])
        .await
        .pop()
        .unwrap_or(Err(ItemFailure::Lost {
            may_still_create: false,
        }))
}

/// First looks again at the items that the plan leaves as they are (`stays`), and sends nothing if one of them has
/// changed. Then applies the writes before the drops, so that an item that moves exists at its new location before it
/// leaves the old one. Operations on parts of the same shared entity are sent together.
pub(crate) async fn apply_in_order<'p>(
    by: WriteContext<'_, '_>,
    from: LookContext<'_, '_>,
    stays: Stays<'_>,
    operations: Vec<ItemOperation<'p>>,
) -> Result<OperationResults<'p>, Failure> {
    let differ = confirm::differing(from, stays).await?;
    if !differ.is_empty() {
        return Ok(OperationResults::NotSent(differ));
    }
    let (whole, parts): (Vec<_>, Vec<_>) = operations
        .into_iter()
        .partition(|operation| operation.address().part.is_none());
    let mut documents: BTreeMap<(&AccountName, &Site), Vec<ItemOperation<'p>>> = BTreeMap::new();
    for operation in parts {
        let address = operation.address();
        documents
            .entry((&address.account, &address.site))
            .or_default()
            .push(operation);
    }
    let together = whole
        .into_iter()
        .map(|operation| vec![operation])
        .chain(documents.into_values());
    let writes = |operations: &Vec<ItemOperation<'p>>| {
        operations
            .iter()
            .any(|operation| matches!(operation, ItemOperation::Write(_)))
    };
    let (first, second): (Vec<_>, Vec<_>) = together.partition(writes);
    let mut ended = Vec::new();
    for steps in [first, second] {
        let run = |operations: Vec<ItemOperation<'p>>| async move {
            let outcomes = store_of(operations[0].address())
                .apply(&by, &operations)
                .await;
            operations.into_iter().zip(outcomes).collect::<Vec<_>>()
        };
        ended.extend(
            gather(steps.into_iter().map(run).collect())
                .await
                .into_iter()
                .flatten(),
        );
    }
    Ok(OperationResults::Each(ended))
}

pub(crate) async fn differs(
    scope: &Scope<'_>,
    write: &Write,
    listed: Option<&ETag>,
) -> Result<bool, Failure> {
    store_of(&write.address).differs(scope, write, listed).await
}

async fn gather<F: Future>(requests: Vec<F>) -> Vec<F::Output> {
    stream::iter(requests)
        .buffered(CONCURRENT_REQUESTS)
        .collect()
        .await
}
