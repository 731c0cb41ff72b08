//! Items where they lie: one driver for each kind of place, and nothing else knows which there are.
//!
//! Here are also large values, entities kept as documents, and the documents that many primaries share. This room may name `env`, and of the
//! protocol the scope of a pass, the steps of its plan and its footprint. It names no job and starts no pass.
//!
//! | driver | item |
//! | --- | --- |
//! | [`row`] | a row |
//! | [`blob`] | a blob with a large value |
//! | [`mod@file`] | a file with a large value, in a shared folder |
//! | [`search`] | a document of a search index |
//! | [`part`] | a part of a document that many primaries share: a member of a list, properties of another's entity |

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
use crate::protocol::doubt::Doubt;
use crate::protocol::footprint::Footprint;
use crate::protocol::look::Look;
use crate::protocol::scope::Scope;
use crate::protocol::steps::{Plan, Write};
use evenkeel_model::{AccountName, ETag, EdmValue, ItemAddress, Site};
use evenkeel_storage::{ErrorClass, FilePlace, StoreError, TableOperation};

pub(crate) use confirm::Stays;
pub(crate) use part::{change, document};

/// Requests of one pass under way at once.
const CONCURRENT_REQUESTS: usize = 16;

/// A place where items lie. Addresses and operations passed to it lie there.
#[async_trait]
trait ItemStore: Send + Sync {
    /// Looks at items, with one reading of the place.
    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<Looked, Failure>;

    /// Writes and drops items, with the outcome of each: a write's with the new ETag or token.
    async fn apply(
        &self,
        by: &WriteContext<'_, '_>,
        operations: &[ItemOperation<'_>],
    ) -> Vec<Result<Option<ETag>, ItemFailure>>;

    /// Whether the stored item differs from a planned write, which may write it as it is. `listed` is the version in the footprint.
    async fn differs(
        &self,
        scope: &Scope<'_>,
        write: &Write,
        listed: Option<&ETag>,
    ) -> Result<bool, Failure>;
}

/// A place with one item, whole: a request for each operation.
#[async_trait]
trait WholeItem: Send + Sync {
    /// Whether every request is conditional; otherwise any of them may be executed late, not only those that create.
    const CONDITIONAL: bool = true;

    async fn look(
        &self,
        from: &LookContext<'_, '_>,
        addresses: &[&ItemAddress],
    ) -> Result<Vec<Look>, Failure>;

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
        if !Self::CONDITIONAL && !by.doubt.is_in_time(by.scope.env) {
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
            // A write that succeeded without an ETag: look again.
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

/// The driver of the place of an item.
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
        Site::Document { collection, key } => Box::new(search::Indexed {
            sink: &address.account,
            collection,
            key,
        }),
    }
}

/// The state of a pass that a look depends on.
#[derive(Clone, Copy)]
pub(crate) struct LookContext<'p, 'e> {
    pub(crate) scope: &'p Scope<'e>,
    pub(crate) footprint: &'p Footprint,
    /// Keys that this run has touched.
    pub(crate) touched: &'p BTreeSet<ItemAddress>,
}

/// The state of a pass that a write depends on.
#[derive(Clone, Copy)]
pub(crate) struct WriteContext<'p, 'e> {
    pub(crate) scope: &'p Scope<'e>,
    pub(crate) values: &'p RunValues,
    pub(crate) doubt: &'p Doubt,
}

/// Results of looks.
#[derive(Default)]
pub(crate) struct Looked {
    pub(crate) looks: Vec<(ItemAddress, Look)>,
    /// Contents of the properties kept on the entities of others.
    pub(crate) said: Vec<(ItemAddress, BTreeMap<String, EdmValue>)>,
    /// Members of lists whose row says another count or figure than the list makes it.
    pub(crate) behind: Vec<ItemAddress>,
}

/// Why an item was not written or dropped.
pub(crate) enum ItemFailure {
    /// Another writer was faster, or the answer is missing: look again.
    Lost {
        /// The item may still come to be by the request: an insert, a write over another holder's item, or any without a condition.
        may_still_create: bool,
    },
    /// Anything else.
    Failed(Failure),
}

/// An operation on one item.
#[derive(Clone, Copy)]
pub(crate) enum ItemOperation<'p> {
    Write(&'p Write),
    Drop(&'p ItemAddress, &'p ETag),
}

/// An operation, and how it ended; a write with its new ETag or token.
pub(crate) type Ended<'p> = (ItemOperation<'p>, Result<Option<ETag>, ItemFailure>);

/// How the items of a plan were written and dropped.
pub(crate) enum Ran<'p> {
    /// Each of them, as it ended.
    Each(Vec<Ended<'p>>),
    /// None: these were to stay as they are, and differ.
    Nothing(Vec<ItemAddress>),
}

impl<'p> ItemOperation<'p> {
    /// Everything that a plan does to items.
    pub(crate) fn of(plan: &'p Plan) -> Vec<Self> {
        let drops = plan
            .drops
            .iter()
            .map(|(address, etag)| Self::Drop(address, etag));
        plan.writes.iter().map(Self::Write).chain(drops).collect()
    }

    /// The conditional operation that does it to a row; `None` where it is about a part of one, or lies elsewhere.
    pub(crate) fn on_row(self) -> Option<TableOperation> {
        row::operation(self)
    }

    pub(crate) const fn address(self) -> &'p ItemAddress {
        match self {
            Self::Write(write) => &write.address,
            Self::Drop(address, _) => address,
        }
    }

    /// The kind of change, for counting.
    pub(crate) const fn action(self) -> Action {
        match self {
            Self::Write(write) if write.creates() => Action::Create,
            Self::Write(_) => Action::Update,
            Self::Drop(..) => Action::Delete,
        }
    }

    /// The change made by it.
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
    ) -> Result<Looked, Failure> {
        let looks = WholeItem::look(self, from, addresses).await?;
        Ok(Looked {
            looks: addresses
                .iter()
                .map(|address| (*address).clone())
                .zip(looks)
                .collect(),
            ..Looked::default()
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

/// Looks at items, each place read once.
pub(crate) async fn look(
    from: LookContext<'_, '_>,
    addresses: BTreeSet<&ItemAddress>,
) -> Result<Looked, Failure> {
    let mut places: BTreeMap<(&AccountName, &Site, bool), Vec<&ItemAddress>> = BTreeMap::new();
    for address in addresses {
        places
            .entry((&address.account, &address.site, address.part.is_some()))
            .or_default()
            .push(address);
    }
    let looks = places
        .into_values()
        .map(|addresses| async move { store_of(addresses[0]).look(&from, &addresses).await });
    let mut all = Looked::default();
    for looked in gather(looks.collect()).await {
        let looked = looked?;
        all.looks.extend(looked.looks);
        all.said.extend(looked.said);
        all.behind.extend(looked.behind);
    }
    Ok(all)
}

/// Writes or drops one item.
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

/// Writes items, then drops those that are only dropped: an item that moves is in its new place before it leaves the old one. Parts of one
/// document go together. Nothing where an item differs that is to stay as it is.
pub(crate) async fn apply_in_order<'p>(
    by: WriteContext<'_, '_>,
    from: LookContext<'_, '_>,
    stays: Stays<'_>,
    operations: Vec<ItemOperation<'p>>,
) -> Result<Ran<'p>, Failure> {
    let differ = confirm::differing(from, stays).await?;
    if !differ.is_empty() {
        return Ok(Ran::Nothing(differ));
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
    Ok(Ran::Each(ended))
}

/// Whether the stored item differs from a planned write, which may write it as it is. `listed` is the version in the footprint.
pub(crate) async fn differs(
    scope: &Scope<'_>,
    write: &Write,
    listed: Option<&ETag>,
) -> Result<bool, Failure> {
    store_of(&write.address).differs(scope, write, listed).await
}

/// Runs requests side by side, some at a time, and returns their answers in order.
async fn gather<F: Future>(requests: Vec<F>) -> Vec<F::Output> {
    stream::iter(requests)
        .buffered(CONCURRENT_REQUESTS)
        .collect()
        .await
}
