//! A list in a blob, as far as it has been read.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::BLOCK_BYTES;
use super::block::MemberBlock;
use super::head::{BlockEntry, Head, separator};
use crate::model::{ETag, Member, Part, TableName, ViewName};
use crate::shared::list::List;
use crate::shared::{ChangeEnd, Edit, PartChange};

/// A list in a blob: its head, and those of its blocks that were read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockedList {
    view: ViewName,
    source: TableName,
    slots: Vec<BlockSlot>,
    changed: bool,
    /// Most bytes of lines in a block, and of a list that is written in one request.
    block_bytes: u64,
}

/// A block and its place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct BlockSlot {
    from: Member,
    /// Under which it is stored; nothing for a new one, and for one that was written with its head.
    id: Option<u128>,
    /// Where its lines begin in the blob.
    at: u64,
    bytes: u64,
    members: u64,
    /// Its lines, once they are read.
    block: Option<MemberBlock>,
}

/// Result of reading the beginning of a blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OpenedList {
    /// The head is longer: so many bytes, at most, are to be read.
    More(u64),
    /// The list.
    List(BlockedList),
}

/// How a list is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListWrite {
    /// In one request.
    Whole(Vec<u8>),
    /// As blocks.
    Blocks {
        /// Those to upload.
        new: Vec<(u128, Vec<u8>)>,
        /// All that the blob is made of, in order.
        all: Vec<u128>,
    },
}

impl BlockSlot {
    fn new(from: Member, block: MemberBlock) -> Self {
        Self { from, id: None, at: 0, bytes: block.bytes(), members: block.len(), block: Some(block) }
    }

    /// Brings the figures in step with lines that have changed.
    fn change(&mut self, change: impl FnOnce(&mut MemberBlock)) {
        if let Some(block) = &mut self.block {
            change(block);
            (self.id, self.bytes, self.members) = (None, block.bytes(), block.len());
        }
    }
}

impl BlockedList {
    /// A list without members.
    pub fn new(view: ViewName, source: TableName) -> Self {
        Self {
            view,
            source,
            slots: vec![BlockSlot::new(Member(Vec::new()), MemberBlock::default())],
            changed: false,
            block_bytes: BLOCK_BYTES,
        }
    }

    /// A list that lay elsewhere until now.
    pub fn of(view: ViewName, source: TableName, list: List) -> Self {
        let mut block = MemberBlock::default();
        list.members.into_iter().for_each(|(member, token)| block.insert(member, token));
        Self { view, source, slots: vec![BlockSlot::new(Member(Vec::new()), block)], changed: true, block_bytes: BLOCK_BYTES }
    }

    /// Reads the beginning of a blob that is `length` bytes long in all.
    pub fn open(beginning: &[u8], length: u64) -> Result<OpenedList, String> {
        let Some(end) = beginning.iter().position(|byte| *byte == b'\n') else {
            let read = beginning.len() as u64;
            return if read < length { Ok(OpenedList::More(length.min(read * 16))) } else { Err("it has no head".to_owned()) };
        };
        let head = Head::parse(&beginning[..end])?;
        let mut at = end as u64 + 1;
        let mut slots = Vec::with_capacity(head.blocks.len());
        for BlockEntry { id, bytes, members, from } in head.blocks {
            slots.push(BlockSlot { from, id, at, bytes, members, block: None });
            at = at.saturating_add(bytes);
        }
        if at != length {
            return Err(format!("its head speaks of {at} bytes, and it has {length}"));
        }
        let mut list = Self { view: head.view, source: head.source, slots, changed: false, block_bytes: BLOCK_BYTES };
        for slot in 0..list.slots.len() {
            let Range { start, end } = list.range(slot);
            let read = usize::try_from(start).ok().zip(usize::try_from(end).ok()).and_then(|(start, end)| beginning.get(start..end));
            if let Some(lines) = read {
                list.fill(slot, lines)?;
            }
        }
        Ok(OpenedList::List(list))
    }

    /// With blocks of at most so many bytes from now on.
    #[must_use]
    pub const fn in_blocks_of(mut self, bytes: u64) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// For another blob, where none of its blocks is stored. All of them have been read.
    #[must_use]
    pub fn for_another_blob(mut self) -> Self {
        self.slots.iter_mut().for_each(|slot| slot.id = None);
        self
    }

    /// How full blocks are made, so that the next members do not split them at once.
    const fn full_bytes(&self) -> u64 {
        self.block_bytes / 4 * 3
    }

    /// A changed block with less is joined to a neighbour, where one has room.
    const fn least_bytes(&self) -> u64 {
        self.block_bytes / 4
    }

    /// The view of the list.
    pub const fn view(&self) -> &ViewName {
        &self.view
    }

    /// The table of its primaries.
    pub const fn source(&self) -> &TableName {
        &self.source
    }

    /// How many members.
    pub fn count(&self) -> u64 {
        self.slots.iter().map(|slot| slot.members).sum()
    }

    /// The bytes of all its lines.
    pub fn bytes(&self) -> u64 {
        self.slots.iter().map(|slot| slot.bytes).sum()
    }

    /// Whether it is no longer as it was read.
    pub const fn is_changed(&self) -> bool {
        self.changed
    }

    /// The blocks that have to be read before these members can be looked at.
    pub fn unread_of<'m>(&self, members: impl IntoIterator<Item = &'m Member>) -> BTreeSet<usize> {
        members.into_iter().map(|member| self.slot_of(member)).filter(|slot| self.slots[*slot].block.is_none()).collect()
    }

    /// The blocks that have not been read.
    pub fn unread(&self) -> BTreeSet<usize> {
        (0..self.slots.len()).filter(|slot| self.slots[*slot].block.is_none()).collect()
    }

    /// Where a block's lines lie in the blob.
    pub fn range(&self, slot: usize) -> Range<u64> {
        self.slots.get(slot).map_or(0..0, |slot| slot.at..slot.at + slot.bytes)
    }

    /// Takes in the lines of a block.
    pub fn fill(&mut self, slot: usize, lines: &[u8]) -> Result<(), String> {
        let block = MemberBlock::parse(lines)?;
        let next = self.slots.get(slot + 1).map(|next| next.from.clone());
        let Some(slot) = self.slots.get_mut(slot) else { return Err(format!("it has no block {slot}")) };
        let first_fits = block.first().is_none_or(|first| *first >= slot.from);
        let last_fits = next.as_ref().zip(block.last()).is_none_or(|(next, last)| last < next);
        if block.bytes() != slot.bytes || block.len() != slot.members || !first_fits || !last_fits {
            return Err(format!("the block from {} on is not what the head says of it", slot.from));
        }
        slot.block = Some(block);
        Ok(())
    }

    /// A member's token; `None` where there is no such member.
    pub fn token(&self, member: &Member) -> Result<Option<&ETag>, String> {
        let slot = &self.slots[self.slot_of(member)];
        let block = slot.block.as_ref().ok_or_else(|| format!("the block from {} on was not read", slot.from))?;
        Ok(block.token(member))
    }

    /// Applies a change to the member that it is about.
    pub fn apply(&mut self, change: &PartChange) -> Result<ChangeEnd, String> {
        let Some(Part::Member(member)) = &change.address.part else { return Ok(ChangeEnd::Lost) };
        let there = self.token(member)?;
        let slot = self.slot_of(member);
        Ok(match &change.write {
            Edit::Put { over, token } if over.as_ref() == there => {
                self.slots[slot].change(|block| block.insert(member.clone(), token.clone()));
                self.changed = true;
                ChangeEnd::Done
            }
            Edit::Drop(at) if Some(at) == there => {
                self.slots[slot].change(|block| block.remove(member));
                self.changed = true;
                ChangeEnd::Done
            }
            Edit::Drop(_) if there.is_none() => ChangeEnd::Done,
            Edit::Put { .. } | Edit::Drop(_) => ChangeEnd::Lost,
        })
    }

    /// Brings the blocks into shape: splits blocks that have grown too large, joins those that have become small. Returns the blocks that
    /// have to be read first; none once all is in shape.
    pub fn reshape(&mut self) -> BTreeSet<usize> {
        if self.slots.len() > 1 && self.bytes() <= self.block_bytes {
            let unread = self.unread();
            while unread.is_empty() && self.slots.len() > 1 {
                self.join(0);
            }
            return unread;
        }
        while let Some(empty) = self.slots.iter().position(|slot| slot.members == 0 && self.slots.len() > 1) {
            self.slots.remove(empty);
            // The first block has no beginning.
            self.slots[0].from = Member(Vec::new());
        }
        // One that is left alone is written with the head, and has to be here, however long it is.
        if self.slots.len() == 1 && self.slots[0].block.is_none() {
            return self.unread();
        }
        let mut unread = BTreeSet::new();
        let mut at = 0;
        while at < self.slots.len() {
            match self.neighbour(at) {
                Some(left) if self.slots[left].block.is_some() && self.slots[left + 1].block.is_some() => {
                    self.join(left);
                    at = left;
                }
                Some(left) => {
                    unread.extend([left, left + 1].into_iter().filter(|slot| self.slots[*slot].block.is_none()));
                    at += 1;
                }
                None => at += 1,
            }
        }
        if unread.is_empty() {
            self.split();
        }
        unread
    }

    /// Where a changed block is small: the left one of the two that are to be joined.
    fn neighbour(&self, at: usize) -> Option<usize> {
        let slot = self.slots.get(at).filter(|slot| slot.id.is_none() && slot.bytes < self.least_bytes())?;
        let room = |other: &usize| self.slots.get(*other).is_some_and(|other| other.bytes + slot.bytes <= self.full_bytes());
        let beside = [at.checked_sub(1), Some(at + 1)].into_iter().flatten().filter(room);
        beside.min_by_key(|other| self.slots[*other].bytes).map(|other| other.min(at))
    }

    /// Joins a block with the one behind it; both have been read.
    fn join(&mut self, left: usize) {
        let right = self.slots.remove(left + 1);
        if let Some(lines) = right.block {
            self.slots[left].change(|block| block.append(lines));
        }
    }

    fn split(&mut self) {
        let (most, full) = (self.block_bytes, self.full_bytes());
        let mut slots = Vec::with_capacity(self.slots.len());
        for mut slot in std::mem::take(&mut self.slots) {
            match slot.block.take() {
                Some(block) if slot.bytes > most => {
                    let mut last: Option<Member> = None;
                    for part in block.split(full) {
                        let from =
                            last.as_ref().zip(part.first()).map_or_else(|| slot.from.clone(), |(last, first)| separator(last, first));
                        last = part.last().cloned();
                        slots.push(BlockSlot::new(from, part));
                    }
                }
                block => {
                    slot.block = block;
                    slots.push(slot);
                }
            }
        }
        self.slots = slots;
    }

    /// Whether it is written in one request.
    pub fn is_whole(&self) -> bool {
        self.slots.len() == 1
    }

    /// How it is to be written, once it is in shape. New blocks and the head get ids from `id`.
    pub fn write(&mut self, mut id: impl FnMut() -> u128) -> ListWrite {
        let entry = |slot: &BlockSlot| BlockEntry { id: slot.id, bytes: slot.bytes, members: slot.members, from: slot.from.clone() };
        let head =
            |slots: &[BlockSlot]| Head { view: self.view.clone(), source: self.source.clone(), blocks: slots.iter().map(entry).collect() };
        if let [slot] = self.slots.as_mut_slice() {
            slot.id = None;
            let mut content = head(&self.slots).render();
            self.blocks().for_each(|block| block.render(&mut content));
            return ListWrite::Whole(content);
        }
        let mut new = Vec::new();
        for slot in &mut self.slots {
            if let (None, Some(block)) = (slot.id, &slot.block) {
                let fresh = id();
                let mut lines = Vec::new();
                block.render(&mut lines);
                new.push((fresh, lines));
                slot.id = Some(fresh);
            }
        }
        let own = id();
        let all = std::iter::once(own).chain(self.slots.iter().filter_map(|slot| slot.id)).collect();
        new.push((own, head(&self.slots).render()));
        ListWrite::Blocks { new, all }
    }

    /// The ids of its blocks, without the head's: none where it was written in one request.
    pub fn ids(&self) -> Vec<u128> {
        self.slots.iter().filter_map(|slot| slot.id).collect()
    }

    /// The members of the blocks that were read, in order, and their tokens.
    pub fn members(&self) -> impl Iterator<Item = (&Member, &ETag)> + Clone {
        self.blocks().flat_map(MemberBlock::members)
    }

    /// The list as it lies in a row.
    pub fn to_list(&self) -> List {
        List { members: self.members().map(|(member, token)| (member.clone(), token.clone())).collect::<BTreeMap<_, _>>() }
    }

    fn blocks(&self) -> impl Iterator<Item = &MemberBlock> + Clone {
        self.slots.iter().filter_map(|slot| slot.block.as_ref())
    }

    /// The block that a member belongs in.
    fn slot_of(&self, member: &Member) -> usize {
        self.slots.partition_point(|slot| slot.from <= *member).saturating_sub(1)
    }
}
