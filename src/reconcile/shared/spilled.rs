//! Rows with a list in a blob: moving it there, changing it, and taking it back.
//!
//! ```text
//!   out     the blob, under a fresh name ─▶ the row names it, at the ETag that it was read at ─▶ what is left over is deleted (`tidy`)
//!   change  the blob, at its ETag ─▶ the row's count and figures
//!   back    the blob is marked as moved, at its ETag ─▶ the row holds the list, at its ETag ─▶ the blob is deleted
//! ```
//!
//! A stop after any step leaves a list that is where its row says. A marked blob takes no more changes: the next writer
//! carries on with the move. A row that is behind its blob (the count, the figures) is brought up to date by the next
//! look, and a blob that no row names is deleted; a writer that stopped in between has left a footprint that makes its job look.

use super::blob::{BLOCKS_MOST, Lies, ListBlob, ListRead, Wrote};
use super::write::{Answer, Round, SharedEntity, answers, operation};
use crate::model::{BlobName, ContainerName, Entity, EntityKey, ItemAddress, Member, Part, Row, TableName, ViewName};
use crate::planted::{Bug, planted};
use crate::ports::{BlobCondition, ErrorClass, IfMatch, TableOperation};
use crate::reconcile::execute::Failure;
use crate::reconcile::failure::{lost_race, permanent, storage};
use crate::shared::blocks::BlockedList;
use crate::shared::spilled::{self, COUNT, Elsewhere};
use crate::shared::{self, Becomes, ChangeEnd, Nonsense, PartChange};

/// Times that a row may change while it is brought up to date.
const ROUNDS: u32 = 10;

/// A group would have more members than can be read at once.
#[derive(Debug, thiserror::Error)]
#[error("its members would take {0} bytes, and figures are made of at most {BLOCKS_MOST}: spread it over more entities")]
struct TooManyMembers(u64);

impl<'e> SharedEntity<'e> {
    pub(super) fn place(&self, elsewhere: &Elsewhere) -> ListBlob<'e> {
        self.place_of(elsewhere.container.clone(), elsewhere.name.clone())
    }

    pub(super) fn place_of(&self, container: ContainerName, name: BlobName) -> ListBlob<'e> {
        ListBlob {
            blobs: self.target.blobs.as_ref(),
            container,
            name,
            block_bytes: self.catalog.list_sizes.block_bytes,
            memory: self.memory,
        }
    }

    pub(super) fn nonsense(&self, nonsense: Nonsense) -> Failure {
        permanent(format!("reading {}", self.site), nonsense)
    }

    /// Where a row says that its list lies, in the container of such lists and under a name made for the row. A row that names another
    /// blob was forged: that one is neither read nor written.
    pub(super) fn elsewhere(&self, row: &Row) -> Result<Option<Elsewhere>, Failure> {
        let named = Elsewhere::of(&self.site, &row.entity).map_err(|nonsense| self.nonsense(nonsense))?;
        let Some(elsewhere) = named else { return Ok(None) };
        if elsewhere.container.as_str() == spilled::CONTAINER && spilled::is_of(&elsewhere.name, &elsewhere.view, &self.site) {
            return Ok(Some(elsewhere));
        }
        let problem = format!("ek_blob names {}/{}, where no list of this row lies", elsewhere.container, elsewhere.name);
        Err(self.nonsense(Nonsense { site: self.site.clone(), problem }))
    }

    /// A row that names a blob in which there is no list. Nothing where the row is another one by now.
    async fn check_row(&self, row: &Row, elsewhere: &Elsewhere) -> Result<(), Failure> {
        let now = self.row().await?;
        if now.is_some_and(|now| now.etag == row.etag) {
            let problem = format!("its list is not in {}/{}, where ek_blob says", elsewhere.container, elsewhere.name);
            return Err(self.nonsense(Nonsense { site: self.site.clone(), problem }));
        }
        Ok(())
    }

    /// The list that a row says lies elsewhere, with the blocks that these changes or looks are about. Nothing where the row is
    /// another one by now.
    pub(super) async fn read_elsewhere(
        &self,
        row: &Row,
        elsewhere: &Elsewhere,
        addresses: &[&ItemAddress],
    ) -> Result<Option<ListRead>, Failure> {
        let place = self.place(elsewhere);
        let all = spilled::needs_all(self.catalog, &self.site, &row.entity, &elsewhere.view).map_err(|nonsense| self.nonsense(nonsense))?;
        let members = spilled::members_of(addresses.iter().copied(), &elsewhere.view);
        let wanted = |list: &BlockedList| if all { list.unread() } else { list.unread_of(members.iter().copied()) };
        match place.read(wanted).await? {
            Lies::List(read) if *read.list.view() == elsewhere.view => Ok(Some(read)),
            Lies::List(_) | Lies::Nothing | Lies::Other(_) => self.check_row(row, elsewhere).await.map(|()| None),
        }
    }

    /// Moves the list of a row into a blob. `row` is the row as read, `list` the new list, `base` the rest of the new
    /// row.
    pub(super) async fn move_out(&self, row: &Row, base: Entity, list: BlockedList, ended: &[ChangeEnd]) -> Result<Round, Failure> {
        let step = || format!("moving the list of {} into a blob", self.site);
        let container = ContainerName::new(spilled::CONTAINER).map_err(|error| permanent(step(), error))?;
        let name = spilled::fresh_name(self.catalog, list.view(), &self.site, &row.etag, self.chance.next_u64());
        let name = name.ok_or_else(|| permanent(step(), "no blob name can be made for it"))?;
        let place = self.place_of(container, name);
        // Blocks of the blob that it comes from are none of the new one's. Everything is there, so that nothing has to be read.
        let mut list = list.for_another_blob();
        list.reshape();
        // Before the blob is written: a row that cannot be made leaves none.
        let entity = spilled::pointing(self.catalog, &self.site, base, &list, (&place.container, &place.name));
        let entity = entity.map_err(|nonsense| self.nonsense(nonsense))?;
        entity.check().map_err(|error| permanent(step(), error))?;
        match place.write(&mut list, BlobCondition::Absent, self.chance).await? {
            Wrote::Done => {}
            // Only this move uses the name: where the blob is there already, a repetition has met its own first request.
            Wrote::Lost | Wrote::Unanswered => return Ok(left_over(ended)),
        }
        let wrote = self.apply(operation(Becomes::Entity(entity), Some(row), self.key()?).as_ref()).await?;
        if matches!(wrote, Wrote::Unanswered) {
            return Ok(left_over(ended));
        }
        // Where the row went elsewhere, or this is the blob that it names, a blob made for an earlier move is of no use.
        Ok(if self.leaves_nothing(self.tidied(list.view()).await) { round(&wrote, ended) } else { left_over(ended) })
    }

    /// Whether tidying up has gone well.
    fn leaves_nothing(&self, tidied: Result<bool, Failure>) -> bool {
        tidied.unwrap_or_else(|failure| {
            tracing::warn!(list = %self.site, error = failure.chain(), "blobs that no row names may be left over until its next pass");
            false
        })
    }

    /// Everything that a view lists in a row, wherever the list lies: as it was at some moment after this was called.
    pub(in crate::reconcile) async fn members(&self, view: &ViewName) -> Result<Vec<Member>, Failure> {
        for _ in 0..ROUNDS {
            let Some(row) = self.row().await? else { return Ok(Vec::new()) };
            let elsewhere = self.elsewhere(&row)?;
            let Some(elsewhere) = elsewhere.filter(|elsewhere| elsewhere.view == *view) else {
                return shared::members(&self.site, view, &row.entity).map_err(|nonsense| self.nonsense(nonsense));
            };
            let Some(mut read) = self.read_elsewhere(&row, &elsewhere, &[]).await? else { continue };
            let unread = read.list.unread();
            if self.place(&elsewhere).fill(&mut read, unread).await? {
                return Ok(read.list.members().map(|(member, _)| member.clone()).collect());
            }
        }
        Err(lost_race(format!("reading {}", self.site), ROUNDS))
    }

    /// Changes a list that lies elsewhere, and the rest of its row.
    pub(super) async fn change_elsewhere(&self, row: &Row, elsewhere: &Elsewhere, changes: &[PartChange]) -> Result<Round, Failure> {
        let addresses: Vec<_> = changes.iter().map(|change| &change.address).collect();
        let Some(mut read) = self.read_elsewhere(row, elsewhere, &addresses).await? else { return Ok(Round::Again) };
        let place = self.place(elsewhere);
        let bytes_before = read.list.bytes();
        let wrong = |problem: String| self.nonsense(Nonsense { site: place.site(), problem });
        let mut ended = vec![ChangeEnd::Lost; changes.len()];
        let is_own = |change: &PartChange| change.address.view == elsewhere.view && matches!(change.address.part, Some(Part::Member(_)));
        let (own, others): (Vec<_>, Vec<_>) = changes.iter().enumerate().partition(|(_, change)| is_own(change));
        for (at, change) in own {
            ended[at] = read.list.apply(change).map_err(wrong)?;
        }
        let (indexes, others): (Vec<usize>, Vec<PartChange>) = others.into_iter().map(|(at, change)| (at, change.clone())).unzip();
        let (becomes, others) =
            shared::change(self.catalog, &self.site, Some(&row.entity), &others).map_err(|nonsense| self.nonsense(nonsense))?;
        indexes.into_iter().zip(others).for_each(|(at, end)| ended[at] = end);
        let base = match becomes {
            Becomes::Entity(entity) => entity,
            Becomes::Same | Becomes::Gone => row.entity.clone(),
        };
        let bytes = read.list.bytes();
        // It could not be read to take a member out again.
        if bytes > BLOCKS_MOST
            && bytes > bytes_before
            && spilled::needs_all(self.catalog, &self.site, &row.entity, &elsewhere.view).map_err(|nonsense| self.nonsense(nonsense))?
        {
            return Err(permanent(format!("writing {}", self.site), TooManyMembers(bytes)));
        }

        if read.list.is_changed() || read.moved {
            if read.moved {
                let unread = read.list.unread();
                if !place.fill(&mut read, unread).await? {
                    return Ok(Round::Again);
                }
            }
            if !place.reshape(&mut read).await? {
                return Ok(Round::Again);
            }
            if read.moved || read.list.is_whole() {
                let returned =
                    spilled::returned(self.catalog, &self.site, base.clone(), &read.list).map_err(|nonsense| self.nonsense(nonsense))?;
                if read.list.is_whole() && returned.as_ref().is_none_or(|row| spilled::has_room(row, self.catalog.list_sizes)) {
                    return self.take_back(row, &place, read, returned.map_or(Becomes::Gone, Becomes::Entity), &ended).await;
                }
                if read.moved {
                    return self.move_out(row, base, read.list, &ended).await;
                }
            }
            let etag = read.etag.clone();
            match place.write(&mut read.list, BlobCondition::Matches(etag), self.chance).await? {
                Wrote::Done => {}
                wrote => return Ok(round(&wrote, &ended)),
            }
        }
        let committed = read.list.is_changed();
        let entity = spilled::pointing(self.catalog, &self.site, base, &read.list, (&place.container, &place.name));
        let entity = entity.map_err(|nonsense| self.nonsense(nonsense))?;
        if committed || entity != row.entity {
            match self.apply(Some(&saying(entity, row))).await? {
                Wrote::Done => {}
                wrote => {
                    // Given back before another list is read.
                    drop(read);
                    // An unanswered write does not arrive at the row's new ETag.
                    self.bring_up(committed || matches!(wrote, Wrote::Unanswered)).await?;
                    // A part that is no member may not be written.
                    let unsure = changes.iter().zip(&mut ended).filter(|(change, _)| !is_own(change));
                    unsure.for_each(|(_, end)| *end = ChangeEnd::Lost);
                }
            }
        }
        Ok(Round::Over(answers(&ended, &Answer::Done)))
    }

    /// Takes a list back into its row, or deletes the row where there is no member left.
    async fn take_back(
        &self,
        row: &Row,
        place: &ListBlob<'_>,
        read: ListRead,
        becomes: Becomes,
        ended: &[ChangeEnd],
    ) -> Result<Round, Failure> {
        let etag = if read.moved { Some(read.etag) } else { place.mark_moved(&read).await? };
        let Some(etag) = etag else { return Ok(Round::Again) };
        if planted(Bug::ListDeletedFirst) {
            place.delete(&etag).await?;
        }
        let wrote = self.apply(operation(becomes, Some(row), self.key()?).as_ref()).await?;
        let gone = match wrote {
            Wrote::Done => self.leaves_nothing(place.delete(&etag).await.map(|deleted| matches!(deleted, Wrote::Done))),
            // Whoever was faster sees to the blob.
            Wrote::Lost => true,
            Wrote::Unanswered => false,
        };
        Ok(if gone { round(&wrote, ended) } else { left_over(ended) })
    }

    /// Brings a row up to date with its list, wherever that lies: the count, and the figures of a group.
    pub(in crate::reconcile) async fn catch_up(&self) -> Result<(), Failure> {
        self.bring_up(false).await
    }

    /// Brings a row up to date with the list that it holds itself. `false` where the row is another one by now.
    async fn restate(&self, row: &Row) -> Result<bool, Failure> {
        let Some(view) = shared::list_view(&row.entity) else { return Ok(true) };
        let restated = shared::restated(self.catalog, &self.site, &view, &row.entity).map_err(|nonsense| self.nonsense(nonsense))?;
        match restated {
            Some(entity) if self.fits(&entity) => {
                let operation = TableOperation::Replace(entity, IfMatch::Matches(row.etag.clone()));
                Ok(matches!(self.apply(Some(&operation)).await?, Wrote::Done))
            }
            Some(_) | None => Ok(true),
        }
    }

    /// As [`catch_up`](Self::catch_up). A writer of the list writes the row in any case, after reading first the row
    /// and then the list: so a writer that changed the list before, and still holds an older count, loses the race for
    /// the row, and one that changes it afterwards writes the row in turn.
    async fn bring_up(&self, in_any_case: bool) -> Result<(), Failure> {
        for _ in 0..ROUNDS {
            let Some(row) = self.row().await? else { return Ok(()) };
            let elsewhere = self.elsewhere(&row)?;
            let Some(elsewhere) = elsewhere else {
                if self.restate(&row).await? {
                    return Ok(());
                }
                continue;
            };
            let Some(read) = self.read_elsewhere(&row, &elsewhere, &[]).await? else { continue };
            let entity = match self.behind(&row, &elsewhere, &read)? {
                Some(entity) => entity,
                None if in_any_case => row.entity.clone(),
                None => return Ok(()),
            };
            match self.apply(Some(&saying(entity, &row))).await? {
                Wrote::Done => return Ok(()),
                Wrote::Lost | Wrote::Unanswered => {}
            }
        }
        Err(lost_race(format!("bringing {} up to date", self.site), ROUNDS))
    }

    /// The row brought up to date with its list; `None` where it is already.
    pub(super) fn behind(&self, row: &Row, elsewhere: &Elsewhere, read: &ListRead) -> Result<Option<Entity>, Failure> {
        let place = (&elsewhere.container, &elsewhere.name);
        let entity = spilled::pointing(self.catalog, &self.site, row.entity.clone(), &read.list, place);
        let entity = entity.map_err(|nonsense| self.nonsense(nonsense))?;
        Ok((entity != row.entity).then_some(entity))
    }

    pub(super) async fn row(&self) -> Result<Option<Row>, Failure> {
        let (table, key) = self.table_and_key()?;
        let row = self.target.tables.get(table, key, None).await;
        row.map_err(|error| storage(format!("reading {}", self.site), error))
    }

    fn table_and_key(&self) -> Result<(&TableName, &EntityKey), Failure> {
        self.site.row().ok_or_else(|| permanent(format!("reading {}", self.site), "it is no row"))
    }

    pub(super) fn key(&self) -> Result<&EntityKey, Failure> {
        Ok(self.table_and_key()?.1)
    }

    /// Writes the row, where there is something to write.
    pub(super) async fn apply(&self, operation: Option<&TableOperation>) -> Result<Wrote, Failure> {
        let Some(operation) = operation else { return Ok(Wrote::Done) };
        match self.target.tables.apply(self.table_and_key()?.0, operation).await {
            Ok(_) => Ok(Wrote::Done),
            Err(error) if error.is_lost_race() => Ok(Wrote::Lost),
            Err(error) if error.class == ErrorClass::Ambiguous => Ok(Wrote::Unanswered),
            Err(error) => Err(storage(format!("writing {}", self.site), error)),
        }
    }
}

/// The write that brings a row up to date with its list; it gets a new ETag even where nothing differs.
pub(super) fn saying(entity: Entity, row: &Row) -> TableOperation {
    let at = IfMatch::Matches(row.etag.clone());
    let before = &row.entity.properties;
    if before.keys().any(|name| !entity.properties.contains_key(name)) {
        return TableOperation::Replace(entity, at);
    }
    let mut changes = entity;
    changes.properties.retain(|name, value| name == COUNT || before.get(name) != Some(value));
    TableOperation::Merge(changes, at)
}

/// How a round ends that may leave a blob which no row names.
fn left_over(ended: &[ChangeEnd]) -> Round {
    Round::Over(answers(ended, &Answer::LeftOver))
}

/// How a round ends with a write.
pub(super) fn round(wrote: &Wrote, ended: &[ChangeEnd]) -> Round {
    match wrote {
        Wrote::Lost => Round::Again,
        Wrote::Unanswered => Round::Over(answers(ended, &Answer::Unanswered)),
        Wrote::Done => Round::Over(answers(ended, &Answer::Done)),
    }
}
