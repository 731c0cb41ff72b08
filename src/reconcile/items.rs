//! Writing and dropping items, each under its condition: rows here, whole blobs in `blob`, parts by their documents; and documents of
//! sinks, which know no conditions, in `sink`.

use std::collections::BTreeMap;

use futures::StreamExt as _;
use futures::stream;

use super::execute::{Action, Failure, ItemChange};
use super::failure::{permanent, storage};
use super::pass::Pass;
use super::plan::{Plan, Write};
use super::shared::{Answer, Document};
use crate::model::{AccountName, ETag, ItemAddress, Part, Site, TableName, ViewName};
use crate::patterns::Content;
use crate::planted::{Bug, planted};
use crate::ports::{Condition, ErrorClass, FilePlace, StoreError, TableOperation};
use crate::shared::{self, Change};

/// Requests of one pass under way at once.
const CONCURRENT_REQUESTS: usize = 16;

/// Why an item was not written or dropped.
pub(super) enum ItemFailure {
    /// Another writer was faster, or the answer is missing: look again.
    Lost {
        /// It was an insert, or a write of a sink, and it may still arrive.
        unanswered_insert: bool,
    },
    /// Anything else.
    Failed(Failure),
}

impl ItemFailure {
    fn of(error: StoreError, insert: bool, view: &ViewName, step: impl FnOnce() -> String) -> Self {
        if error.is_lost_race() {
            Self::Lost { unanswered_insert: false }
        } else if error.class == ErrorClass::Ambiguous {
            Self::Lost { unanswered_insert: insert }
        } else {
            Self::Failed(storage(step(), error).of_views([view.clone()]))
        }
    }
}

/// One thing to do to an item, and how it ended.
#[derive(Clone, Copy)]
pub(super) enum Deed<'p> {
    Write(&'p Write),
    Drop(&'p ItemAddress, &'p ETag),
}

/// How a deed ended; a write with its new ETag or token.
type Ended<'p> = (Deed<'p>, Result<Option<ETag>, ItemFailure>);

impl<'p> Deed<'p> {
    /// Everything that a plan does to items.
    pub(super) fn of(plan: &'p Plan) -> Vec<Self> {
        let drops = plan.drops.iter().map(|(address, etag)| Self::Drop(address, etag));
        plan.writes.iter().map(Self::Write).chain(drops).collect()
    }

    /// The conditional operation that does it to a row; `None` where it is about a part of one, or a blob.
    pub(super) fn operation(self) -> Option<TableOperation> {
        match self {
            Self::Write(write) => write.operation(),
            Self::Drop(address, etag) if address.part.is_none() => {
                let (_, key) = address.site.row()?;
                Some(TableOperation::Delete(key.clone(), Condition::Matches(etag.clone())))
            }
            Self::Drop(..) => None,
        }
    }

    pub(super) const fn address(self) -> &'p ItemAddress {
        match self {
            Self::Write(write) => &write.address,
            Self::Drop(address, _) => address,
        }
    }

    pub(super) const fn action(self) -> Action {
        match self {
            Self::Write(write) => write.action(),
            Self::Drop(..) => Action::Delete,
        }
    }
}

/// The part of a plan done in one request, or in one read-modify-write.
struct Errand<'p> {
    deeds: Vec<Deed<'p>>,
}

/// Rows and blobs one by one, parts by their documents. The second list has the errands that only drop: an item that
/// moves is in its new place before it leaves the old one.
fn errands<'p>(deeds: Vec<Deed<'p>>) -> (Vec<Errand<'p>>, Vec<Errand<'p>>) {
    let mut errands: Vec<Errand<'p>> = Vec::new();
    let mut documents: BTreeMap<(&AccountName, &Site), Errand<'p>> = BTreeMap::new();
    for deed in deeds {
        let address = deed.address();
        match address.part {
            None => errands.push(Errand { deeds: vec![deed] }),
            Some(_) => {
                documents.entry((&address.account, &address.site)).or_insert_with(|| Errand { deeds: Vec::new() }).deeds.push(deed);
            }
        }
    }
    errands.extend(documents.into_values());
    errands.into_iter().partition(|errand| errand.deeds.iter().any(|deed| matches!(deed, Deed::Write(_))))
}

impl<'e> Pass<'e> {
    /// Writes and drops items. `done` has the ETags of those that a transaction has written already; items that a
    /// transaction has dropped are not in the plan any more. Nothing where a race was lost.
    pub(super) async fn carry_out(
        &mut self,
        plan: &Plan,
        done: BTreeMap<ItemAddress, ETag>,
    ) -> Result<Option<BTreeMap<ItemAddress, ETag>>, Failure> {
        let (first, second) = errands(Deed::of(plan).into_iter().filter(|deed| !done.contains_key(deed.address())).collect());

        let mut written = done;
        let mut again = false;
        let mut failed = None;
        for errands in [first, second] {
            let ended: Vec<Vec<Ended<'_>>> = gather(errands.into_iter().map(|errand| self.run(errand)).collect()).await;
            for (deed, result) in ended.into_iter().flatten() {
                match result {
                    Ok(etag) => {
                        self.count(deed.address(), deed.action());
                        written.extend(etag.map(|etag| (deed.address().clone(), etag)));
                    }
                    Err(ItemFailure::Lost { unanswered_insert }) => {
                        if !planted(Bug::NoLookAfterLostRace) {
                            self.touched.insert(deed.address().clone());
                        }
                        self.unanswered |= unanswered_insert && !planted(Bug::UnansweredInsertForgotten);
                        again = true;
                    }
                    Err(ItemFailure::Failed(failure)) => failed = Some(first_of(failed, failure)),
                }
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

    async fn run<'p>(&self, errand: Errand<'p>) -> Vec<Ended<'p>> {
        match errand.deeds.as_slice() {
            [deed] if deed.address().part.is_none() => vec![(*deed, self.request(*deed).await)],
            _ => self.change_document(errand.deeds).await,
        }
    }

    /// Writes or drops a row, a blob or a document of a sink.
    pub(super) async fn request(&self, deed: Deed<'_>) -> Result<Option<ETag>, ItemFailure> {
        let address = deed.address();
        // Requests that may be applied out of order: inserts, and all requests to a sink.
        let late = matches!(deed.action(), Action::Create) || address.site.is_document();
        if address.site.is_document() && !self.is_in_time() {
            return Err(ItemFailure::Lost { unanswered_insert: false });
        }
        let result = match &address.site {
            Site::Row { table, .. } => self.request_row(deed, table).await,
            Site::Blob { container, name } => self.request_blob(deed, (container, name)).await,
            Site::File { dir, name } => self.request_file(deed, FilePlace { dir: dir.clone(), name: name.clone() }).await,
            Site::Document { collection, key } => self.request_document(deed, (collection, key)).await,
        };
        match (result.map_err(|failure| ItemFailure::Failed(failure.of_views([address.view.clone()])))?, deed) {
            (Ok(Some(etag)), Deed::Write(_)) => Ok(Some(etag)),
            // A write that succeeded without an ETag: look again.
            (Ok(None), Deed::Write(_)) => Err(ItemFailure::Lost { unanswered_insert: false }),
            (Ok(_), Deed::Drop(..)) => Ok(None),
            (Err(error), Deed::Drop(..)) if error.is_missing_item() || (planted(Bug::LostDropIsDone) && error.is_lost_race()) => Ok(None),
            (Err(error), Deed::Write(_)) => {
                Err(ItemFailure::of(error, late, &address.view, || format!("writing {address}, derived from {}", self.primary)))
            }
            (Err(error), Deed::Drop(..)) => {
                let late = address.site.is_document();
                Err(ItemFailure::of(error, late, &address.view, || format!("dropping {address}, derived from {}", self.primary)))
            }
        }
    }

    async fn request_row(&self, deed: Deed<'_>, table: &TableName) -> Result<Result<Option<ETag>, StoreError>, Failure> {
        let Some(operation) = deed.operation() else {
            return Err(permanent(format!("writing {}", deed.address()), "what its view derives is no row"));
        };
        Ok(self.target(&deed.address().account)?.tables.apply(table, &operation).await)
    }

    /// Writes and drops parts of one document.
    async fn change_document<'p>(&self, deeds: Vec<Deed<'p>>) -> Vec<Ended<'p>> {
        let Some(address) = deeds.first().map(|deed| deed.address()) else { return Vec::new() };
        let document = match self.document(&address.account, &address.site) {
            Ok(document) => document,
            Err(failure) => return vec![(deeds[0], Err(ItemFailure::Failed(failure)))],
        };
        let changes: Vec<Change> = deeds.iter().map(|deed| self.change(*deed)).collect();
        let tokens: Vec<Option<ETag>> = changes.iter().map(|change| change.write.token().cloned()).collect();
        let answers = self.engine.turns.change(&document, changes).await;
        let ended = deeds.into_iter().zip(tokens).zip(answers).map(|((deed, token), answer)| {
            let insert = matches!(deed.action(), Action::Create);
            let result = match answer {
                Answer::Done => Ok(token),
                Answer::Lost => Err(ItemFailure::Lost { unanswered_insert: false }),
                Answer::Unanswered => Err(ItemFailure::Lost { unanswered_insert: insert && !planted(Bug::UnansweredPartForgotten) }),
                Answer::Failed(shared) => Err(ItemFailure::Failed(shared.failure().of_views([deed.address().view.clone()]))),
            };
            (deed, result)
        });
        ended.collect()
    }

    /// The document at a site, which items are parts of.
    pub(super) fn document(&self, account: &AccountName, site: &Site) -> Result<Document<'e>, Failure> {
        let (target, catalog, chance) = (self.target(account)?, &self.engine.catalog, self.engine.chance.as_ref());
        Ok(Document { account: account.clone(), site: site.clone(), target, catalog, chance })
    }

    pub(super) fn change(&self, deed: Deed<'_>) -> Change {
        let write = match deed {
            Deed::Write(write) => shared::Write::Put { over: write.over.clone(), token: ETag::token(self.engine.chance.next_u64()) },
            Deed::Drop(_, token) => shared::Write::Drop(token.clone()),
        };
        let says = match deed {
            Deed::Write(Write { content: Content::Properties(values), .. }) => Some((self.primary.clone(), values.clone())),
            Deed::Drop(ItemAddress { part: Some(Part::Properties), .. }, _) => Some((self.primary.clone(), BTreeMap::new())),
            Deed::Write(_) | Deed::Drop(..) => None,
        };
        Change { address: deed.address().clone(), write, says }
    }
}

impl Write {
    /// The kind of change, for counting.
    pub(super) const fn action(&self) -> Action {
        if self.over.is_none() { Action::Create } else { Action::Update }
    }

    /// The conditional operation that writes this item, where it is a row.
    pub(super) fn operation(&self) -> Option<TableOperation> {
        let Content::Row(entity) = &self.content else { return None };
        Some(match &self.over {
            _ if planted(Bug::UnconditionalWrite) => TableOperation::InsertOrReplace(entity.clone()),
            Some(etag) => TableOperation::Replace(entity.clone(), Condition::Matches(etag.clone())),
            None => TableOperation::Insert(entity.clone()),
        })
    }
}

/// The first of several failures, put down to the views of all.
fn first_of(first: Option<Failure>, next: Failure) -> Failure {
    let Some(mut first) = first else { return next };
    let new = next.views.into_iter().filter(|view| !first.views.contains(view)).collect::<Vec<_>>();
    first.views.extend(new);
    first
}

/// Runs requests side by side, some at a time, and returns their answers in order.
pub(super) async fn gather<F: Future>(requests: Vec<F>) -> Vec<F::Output> {
    stream::iter(requests).buffered(CONCURRENT_REQUESTS).collect().await
}
