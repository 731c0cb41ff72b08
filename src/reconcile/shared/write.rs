//! One read-modify-write of a shared entity: a row, a blob, or a row with its list in a blob (`spilled`).

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::blob::{Lies, ListBlob, ListRead, Wrote};
use super::spilled::round;
use crate::catalog::Catalog;
use crate::model::item::Owner;
use crate::model::{AccountName, ETag, EdmValue, Entity, EntityKey, ItemAddress, Part, Row, Site, ViewName};
use crate::ports::{Account, BlobCondition, Chance, IfMatch, StoreError, TableOperation};
use crate::reconcile::execute::{Failure, FailureClass};
use crate::reconcile::failure::{lost_race, permanent};
use crate::reconcile::memory::MemoryBudget;
use crate::shared::blocks::BlockedList;
use crate::shared::spilled;
use crate::shared::{self, AtSite, Becomes, ChangeEnd, Nonsense, Owned, PartChange};

/// Times that a row may change while its list is read.
const ROUNDS: u32 = 10;

/// A shared entity, or a list in a blob, and where it lies.
pub(in crate::reconcile) struct SharedEntity<'e> {
    pub(in crate::reconcile) account: AccountName,
    pub(in crate::reconcile) site: Site,
    pub(in crate::reconcile) target: &'e Account,
    pub(in crate::reconcile) catalog: &'e Catalog,
    pub(in crate::reconcile) memory: &'e MemoryBudget,
    pub(in crate::reconcile) chance: &'e dyn Chance,
}

/// How a change of a part ended.
#[derive(Debug, Clone)]
pub(in crate::reconcile) enum Answer {
    /// As it was meant to.
    Done,
    /// The part differs from its expected state: look again.
    Lost,
    /// Unknown outcome: look again, it may still arrive.
    Unanswered,
    /// Unknown outcome, and a blob that no row names may be there, or still come to be: look again, and tidy up.
    LeftOver,
    /// It cannot be made; the failure may be that of every pass with changes in one write.
    Failed(SharedFailure),
}

/// A failure shared by all callers of one entity.
#[derive(Debug, Clone)]
pub(in crate::reconcile) struct SharedFailure(Arc<Failure>);

impl SharedFailure {
    /// The failure for one of them.
    pub(in crate::reconcile) fn failure(&self) -> Failure {
        Failure::new(self.0.class, self.0.step.clone(), Cause(Arc::clone(&self.0))).of_views(self.0.views.iter().cloned())
    }

    /// Whether the same changes will fail again.
    pub(super) fn is_permanent(&self) -> bool {
        self.0.class == FailureClass::Permanent
    }
}

/// The cause below a shared failure.
#[derive(Debug)]
struct Cause(Arc<Failure>);

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0.cause, f)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.cause.source()
    }
}

/// The store error behind a failure, shared or not.
pub(in crate::reconcile) fn store_error(failure: &Failure) -> Option<&StoreError> {
    let cause = failure.cause.as_ref();
    cause.downcast_ref().or_else(|| store_error(&cause.downcast_ref::<Cause>()?.0))
}

/// How the changes of a row are written: in a transaction, or by themselves.
pub(in crate::reconcile) enum PreparedWrite {
    /// One operation does.
    Together {
        /// The conditional operation; `None` where all is so already.
        operation: Option<TableOperation>,
        /// How each change ends with it.
        ended: Vec<ChangeEnd>,
    },
    /// The list lies in a blob, or is about to: it is changed in a write of its own.
    Apart,
}

/// How one round ended.
pub(super) enum Round {
    /// With an answer to each change.
    Over(Vec<Answer>),
    /// Another writer was faster.
    Again,
    /// With a failure of the write that they share.
    Failed(SharedFailure),
}

/// Content at a document's site, as far as some parts of it are asked for.
pub(in crate::reconcile) struct Sight {
    row: Option<Row>,
    list: Option<BlockedList>,
    /// The content is none of evenkeel's documents.
    other: bool,
    /// The owner named by the content.
    pub(in crate::reconcile) owner: Option<Owner>,
    /// The row disagrees with its list in a blob.
    pub(in crate::reconcile) behind: bool,
}

impl Sight {
    /// The values of a view's properties on the entity that has them.
    pub(in crate::reconcile) fn said(&self, address: &ItemAddress) -> Result<Option<BTreeMap<String, EdmValue>>, Nonsense> {
        let (Some(row), Some(Part::Properties)) = (&self.row, &address.part) else { return Ok(None) };
        Ok(Owned::read(&address.site, &row.entity, &address.view)?.map(|owned| owned.said(&row.entity)))
    }

    /// The view of the list that was found.
    pub(in crate::reconcile) fn list_view(&self) -> Option<ViewName> {
        let in_row = || self.row.as_ref().and_then(|row| shared::list_view(&row.entity));
        self.list.as_ref().map(|list| list.view().clone()).or_else(in_row)
    }

    /// The content at a part's site.
    pub(in crate::reconcile) fn find(&self, address: &ItemAddress) -> Result<AtSite, Nonsense> {
        match (&self.list, &address.site) {
            (Some(list), _) => spilled::find_in(address, self.row.as_ref().map(|row| &row.entity), list),
            (None, Site::Row { .. }) => shared::find(address, self.row.as_ref().map(|row| &row.entity)),
            (None, Site::Blob { .. } | Site::File { .. } | Site::Document { .. }) => {
                Ok(if self.other { AtSite::Foreign } else { AtSite::Absent })
            }
        }
    }
}

impl<'e> SharedEntity<'e> {
    pub(in crate::reconcile) fn turn(&self) -> (AccountName, Site) {
        (self.account.clone(), self.site.clone())
    }

    /// Whether a row holds its list itself.
    pub(super) fn fits(&self, entity: &Entity) -> bool {
        spilled::fits(entity, self.catalog.list_sizes)
    }

    fn own_place(&self) -> Option<ListBlob<'e>> {
        let (container, name) = self.site.blob()?;
        Some(self.place_of(container.clone(), name.clone()))
    }

    /// Reads as much of the document as these parts need.
    pub(in crate::reconcile) async fn look(&self, addresses: &[&ItemAddress]) -> Result<Sight, Failure> {
        let mut sight = Sight { row: None, list: None, other: false, owner: None, behind: false };
        if let Some(place) = self.own_place() {
            let wanted = |list: &BlockedList| list.unread_of(spilled::members_of(addresses.iter().copied(), list.view()));
            match place.read(wanted).await? {
                Lies::Nothing => {}
                Lies::Other(owner) => (sight.other, sight.owner) = (true, owner),
                Lies::List(read) => sight.list = Some(read.list),
            }
            return Ok(sight);
        }
        for _ in 0..ROUNDS {
            let row = self.row().await?;
            if let Some(row) = &row
                && let Some(elsewhere) = self.elsewhere(row)?
            {
                let Some(read) = self.read_elsewhere(row, &elsewhere, addresses).await? else { continue };
                sight.behind = self.behind(row, &elsewhere, &read)?.is_some();
                sight.list = Some(read.list);
            }
            if let Some(row) = &row
                && sight.list.is_none()
            {
                sight.behind = self.restated(row, addresses)?.is_some();
            }
            sight.owner = row.as_ref().and_then(|row| Owner::of(&row.entity));
            sight.row = row;
            return Ok(sight);
        }
        Err(lost_race(format!("reading {}", self.site), ROUNDS))
    }

    /// A row that holds these lists itself, brought up to date with them; `None` where it is already.
    pub(super) fn restated(&self, row: &Row, addresses: &[&ItemAddress]) -> Result<Option<Entity>, Failure> {
        let members = addresses.iter().filter(|address| matches!(address.part, Some(Part::Member(_))));
        for view in members.map(|address| &address.view).collect::<BTreeSet<_>>() {
            let restated = shared::restated(self.catalog, &self.site, view, &row.entity).map_err(|nonsense| self.nonsense(nonsense))?;
            if restated.is_some() {
                return Ok(restated);
            }
        }
        Ok(None)
    }

    /// Reads a row, and decides the write that makes the changes.
    pub(in crate::reconcile) async fn prepare(&self, changes: &[PartChange]) -> Result<PreparedWrite, Failure> {
        let row = self.row().await?;
        if let Some(row) = &row
            && self.elsewhere(row)?.is_some()
        {
            return Ok(PreparedWrite::Apart);
        }
        let (becomes, ended) = self.changed(row.as_ref(), changes)?;
        Ok(match becomes {
            Becomes::Entity(entity) if !self.fits(&entity) => PreparedWrite::Apart,
            becomes => PreparedWrite::Together { operation: operation(becomes, row.as_ref(), self.key()?), ended },
        })
    }

    fn changed(&self, row: Option<&Row>, changes: &[PartChange]) -> Result<(Becomes, Vec<ChangeEnd>), Failure> {
        shared::change(self.catalog, &self.site, row.map(|row| &row.entity), changes)
            .map_err(|nonsense| permanent(format!("changing {}", self.site), nonsense))
    }

    /// Reads the document, applies the changes, and writes it at the ETag read.
    pub(super) async fn round(&self, changes: &[PartChange]) -> Round {
        match self.attempt(changes).await {
            Ok(round) => round,
            Err(failure) => Round::Failed(SharedFailure(Arc::new(failure))),
        }
    }

    async fn attempt(&self, changes: &[PartChange]) -> Result<Round, Failure> {
        if let Some(place) = self.own_place() {
            return self.change_blob(&place, changes).await;
        }
        let row = self.row().await?;
        if let Some(row) = &row
            && let Some(elsewhere) = self.elsewhere(row)?
        {
            return self.change_elsewhere(row, &elsewhere, changes).await;
        }
        let (becomes, ended) = self.changed(row.as_ref(), changes)?;
        if let Becomes::Entity(entity) = &becomes
            && !self.fits(entity)
        {
            let out = spilled::moved_out(self.catalog, &self.site, entity).map_err(|nonsense| self.nonsense(nonsense))?;
            match (&row, out, first_member(changes)) {
                (Some(row), Some(list), _) => return self.move_out(row, entity.clone(), list, &ended).await,
                (None, Some(_), Some((first, rest))) => return self.begin(first, rest).await,
                (_, None, _) | (None, _, None) => drop(entity.check().map_err(|error| permanent(format!("writing {}", self.site), error))?),
            }
        }
        let wrote = self.apply(operation(becomes, row.as_ref(), self.key()?).as_ref()).await?;
        Ok(round(&wrote, &ended))
    }

    /// A list that is too large for its row from its first moment on begins with one member, so that there is a row, with an ETag, to
    /// move it out of.
    async fn begin(&self, first: &[PartChange], rest: &[PartChange]) -> Result<Round, Failure> {
        let Round::Over(mut answers) = Box::pin(self.attempt(first)).await? else { return Ok(Round::Again) };
        if answers.iter().any(|answer| matches!(answer, Answer::Unanswered | Answer::LeftOver)) {
            // It may still arrive, so that it is no part of another round.
            answers.resize(first.len() + rest.len(), Answer::Lost);
            return Ok(Round::Over(answers));
        }
        let Round::Over(others) = Box::pin(self.attempt(rest)).await? else { return Ok(Round::Again) };
        answers.extend(others);
        Ok(Round::Over(answers))
    }

    /// Changes a list that its view keeps in a blob.
    async fn change_blob(&self, place: &ListBlob<'_>, changes: &[PartChange]) -> Result<Round, Failure> {
        let addresses: Vec<&ItemAddress> = changes.iter().map(|change| &change.address).collect();
        let wanted = |list: &BlockedList| list.unread_of(spilled::members_of(addresses.iter().copied(), list.view()));
        let (mut read, condition) = match place.read(wanted).await? {
            Lies::Other(_) => (None, BlobCondition::Absent),
            Lies::List(read) => {
                let condition = BlobCondition::Matches(read.etag.clone());
                (Some(read), condition)
            }
            Lies::Nothing => (self.new_list(changes), BlobCondition::Absent),
        };
        let wrong = |problem: String| self.nonsense(Nonsense { site: self.site.clone(), problem });
        let mut ended = Vec::with_capacity(changes.len());
        for change in changes {
            ended.push(match &mut read {
                Some(read) if *read.list.view() == change.address.view => read.list.apply(change).map_err(wrong)?,
                // Another program's blob, or none: parts to be written are not written, and parts to be taken out are
                // not there.
                _ if change.write.token().is_none() => ChangeEnd::Done,
                _ => ChangeEnd::Lost,
            });
        }
        let Some(mut read) = read.filter(|read| read.list.is_changed()) else {
            return Ok(Round::Over(answers(&ended, &Answer::Done)));
        };
        if !place.reshape(&mut read).await? {
            return Ok(Round::Again);
        }
        let wrote = match condition {
            BlobCondition::Matches(etag) if read.list.count() == 0 => place.delete(&etag).await?,
            _ if read.list.count() == 0 => Wrote::Done,
            condition => place.write(&mut read.list, condition, self.chance).await?,
        };
        Ok(round(&wrote, &ended))
    }

    /// An empty list, of the view of the first change that writes.
    fn new_list(&self, changes: &[PartChange]) -> Option<ListRead> {
        let view = &changes.iter().find(|change| change.write.token().is_some())?.address.view;
        let source = self.catalog.views.get(view)?.source.table.clone();
        // It has no ETag: nothing lies there.
        let list = BlockedList::new(view.clone(), source).in_blocks_of(self.catalog.list_sizes.block_bytes);
        Some(ListRead { list, etag: ETag::token(0), moved: false, grant: None })
    }
}

/// Changes up to the first that makes a member, and those after it; `None` where none is left.
fn first_member(changes: &[PartChange]) -> Option<(&[PartChange], &[PartChange])> {
    let first = changes.iter().position(|change| change.write.token().is_some())?;
    Some(changes.split_at(first + 1)).filter(|(_, rest)| !rest.is_empty())
}

pub(super) fn answers(ended: &[ChangeEnd], of_written: &Answer) -> Vec<Answer> {
    let answer = |ended: &ChangeEnd| match ended {
        ChangeEnd::Done => of_written.clone(),
        ChangeEnd::Lost => Answer::Lost,
    };
    ended.iter().map(answer).collect()
}

/// The operation that makes a document so; `None` where it is so already. A merge sends changed properties only, where nothing is taken
/// away.
pub(in crate::reconcile) fn operation(becomes: Becomes, row: Option<&Row>, key: &EntityKey) -> Option<TableOperation> {
    let at = |row: &Row| IfMatch::Matches(row.etag.clone());
    match (becomes, row) {
        (Becomes::Same, _) | (Becomes::Gone, None) => None,
        (Becomes::Entity(entity), None) => Some(TableOperation::Insert(entity)),
        (Becomes::Entity(mut entity), Some(row)) => {
            let before = &row.entity.properties;
            if before.keys().any(|name| !entity.properties.contains_key(name)) {
                return Some(TableOperation::Replace(entity, at(row)));
            }
            entity.properties.retain(|name, value| before.get(name) != Some(value));
            Some(TableOperation::Merge(entity, at(row)))
        }
        (Becomes::Gone, Some(row)) => Some(TableOperation::Delete(key.clone(), at(row))),
    }
}
