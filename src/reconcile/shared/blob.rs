//! A list in a blob: read as far as it takes, written under its ETag.

use std::collections::BTreeSet;

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _, stream};

use crate::model::item::{self, Owner, VIEW_PROPERTY, shared_source_text};
use crate::model::{BlobName, ContainerName, ETag, Site};
use crate::planted::{Bug, planted};
use crate::ports::{BlobCondition, BlobStore, BlobUpload, BlockId, Chance, ErrorClass, StoreError};
use crate::reconcile::execute::Failure;
use crate::reconcile::failure::{lost_race, permanent, storage};
use crate::reconcile::memory::{MemoryBudget, MemoryGrant, MemoryShare};
use crate::shared::Nonsense;
use crate::shared::blocks::{BlockedList, ListWrite, OpenedList};

/// How much of a blob is read at first, as a part of a block: 64 KiB, the head of a list of some hundred thousand members, and a small
/// list whole.
const BEGINNING: u64 = 4;
/// Requests for one blob under way at once.
const AT_ONCE: usize = 8;
/// Longest beginning in which a head may end: that of a list of more than fifty million members.
const HEAD_BYTES: u64 = 16 << 20;
/// Largest block that is read. Those of evenkeel have [`LIST_BLOCK_BYTES`](crate::model::limits::LIST_BLOCK_BYTES), or one line.
const BLOCK_MOST: u64 = 1 << 20;
/// Bytes of blocks held at once: a whole group of 300,000 members. Changes with more are made one by one.
pub(super) const BLOCKS_MOST: u64 = 16 << 20;
/// A block is there as bytes, as its members with their lines, and as bytes once more when written.
const LIST_COPIES: u64 = 6;
/// Times that a blob may change while it is read.
const ROUNDS: u32 = 10;
/// Lines of JSON.
const CONTENT_TYPE: &str = "application/x-ndjson";
/// The metadata that says how many members there are.
const COUNT: &str = "ek_count";
/// The metadata of a blob with a list that is being moved elsewhere: it stays as it is.
const MOVED: &str = "ek_moved";

/// Where a list lies.
pub(in crate::reconcile) struct ListBlob<'e> {
    pub(in crate::reconcile) blobs: &'e dyn BlobStore,
    pub(in crate::reconcile) container: ContainerName,
    pub(in crate::reconcile) name: BlobName,
    /// Most bytes of lines in a block.
    pub(in crate::reconcile) block_bytes: u64,
    pub(in crate::reconcile) memory: &'e MemoryBudget,
}

/// Content found at a site.
pub(in crate::reconcile) enum Lies {
    Nothing,
    /// Content other than a list; its owner, where named.
    Other(Option<Owner>),
    List(ListRead),
}

/// A list, as far as it was read.
pub(in crate::reconcile) struct ListRead {
    pub(in crate::reconcile) list: BlockedList,
    pub(in crate::reconcile) etag: ETag,
    /// It is being moved elsewhere, and must not be changed.
    pub(in crate::reconcile) moved: bool,
    /// Its part of the memory.
    pub(in crate::reconcile) grant: Option<MemoryGrant>,
}

/// How a write ended.
pub(in crate::reconcile) enum Wrote {
    Done,
    /// Another writer was faster.
    Lost,
    /// Unknown outcome.
    Unanswered,
}

impl ListBlob<'_> {
    /// The blob, as a site.
    pub(in crate::reconcile) fn site(&self) -> Site {
        Site::Blob { container: self.container.clone(), name: self.name.clone() }
    }

    fn step(&self, doing: &str) -> String {
        format!("{doing} {}/{}", self.container, self.name)
    }

    fn nonsense(&self, problem: String) -> Failure {
        permanent(self.step("reading"), Nonsense { site: self.site(), problem })
    }

    async fn get(&self, from: u64, to: u64) -> Result<Option<crate::ports::Blob>, Failure> {
        let blob = self.blobs.get(&self.container, &self.name, Some(from..to)).await;
        blob.map_err(|error| storage(self.step("reading"), error))
    }

    /// Reads the head of the list, and those blocks of it that are asked for.
    pub(in crate::reconcile) async fn read(&self, wanted: impl Fn(&BlockedList) -> BTreeSet<usize>) -> Result<Lies, Failure> {
        let beginning = self.block_bytes / BEGINNING;
        let mut first = beginning;
        for _ in 0..ROUNDS {
            let mut grant = None;
            self.hold(&mut grant, first.saturating_sub(beginning)).await;
            let Some(blob) = self.get(0, first).await? else { return Ok(Lies::Nothing) };
            let (metadata, etag) = (&blob.properties.metadata, blob.properties.etag.clone());
            let owner = Owner::of_blob(metadata);
            let Some(view) = metadata.get(VIEW_PROPERTY).filter(|_| owner.is_none()) else { return Ok(Lies::Other(owner)) };
            let list = match BlockedList::open(&blob.content, blob.properties.length).map_err(|problem| self.nonsense(problem))? {
                OpenedList::More(more) if first < HEAD_BYTES => {
                    first = more.min(HEAD_BYTES);
                    continue;
                }
                OpenedList::More(_) => return Err(self.nonsense(format!("its head does not end within {HEAD_BYTES} bytes"))),
                OpenedList::List(list) => list.in_blocks_of(self.block_bytes),
            };
            if list.view().as_str() != view {
                return Err(self.nonsense(format!("its metadata names the view {view}, and its head {}", list.view())));
            }
            let mut read = ListRead { etag, moved: metadata.contains_key(MOVED), list, grant };
            let wanted = wanted(&read.list);
            if self.fill(&mut read, wanted).await? {
                return Ok(Lies::List(read));
            }
        }
        Err(lost_race(self.step("reading"), ROUNDS))
    }

    /// Waits for memory for so many bytes more. What was held is given back before: whoever waits holds nothing of the share.
    async fn hold(&self, grant: &mut Option<MemoryGrant>, bytes: u64) {
        if bytes > 0 {
            let before = grant.take().map_or(0, |grant| grant.bytes());
            *grant = Some(self.memory.take(MemoryShare::Documents, before.saturating_add(bytes.saturating_mul(LIST_COPIES))).await);
        }
    }

    /// Reads some blocks more. `false` where the blob is another one by now.
    pub(in crate::reconcile) async fn fill(&self, read: &mut ListRead, slots: BTreeSet<usize>) -> Result<bool, Failure> {
        let sizes = slots.iter().map(|slot| read.list.range(*slot)).map(|range| range.end.saturating_sub(range.start));
        if let Some(size) = sizes.clone().find(|size| *size > BLOCK_MOST) {
            return Err(self.nonsense(format!("a block of it has {size} bytes, more than {BLOCK_MOST}")));
        }
        let bytes = sizes.sum();
        if bytes > BLOCKS_MOST {
            let problem =
                format!("{bytes} bytes of it are needed at once, and at most {BLOCKS_MOST} are read: spread it over more entities");
            return Err(self.nonsense(problem));
        }
        self.hold(&mut read.grant, bytes).await;
        let list = &read.list;
        let blocks = slots.into_iter().map(|slot| {
            let range = list.range(slot);
            async move { Ok::<_, Failure>((slot, self.get(range.start, range.end).await?)) }
        });
        let blocks: Vec<_> = stream::iter(blocks.collect::<Vec<_>>()).buffered(AT_ONCE).try_collect().await?;
        for (slot, blob) in blocks {
            let Some(blob) = blob.filter(|blob| blob.properties.etag == read.etag) else { return Ok(false) };
            read.list.fill(slot, &blob.content).map_err(|problem| self.nonsense(problem))?;
        }
        Ok(true)
    }

    /// Brings the list into shape. `false` where the blob is another one by now.
    pub(in crate::reconcile) async fn reshape(&self, read: &mut ListRead) -> Result<bool, Failure> {
        loop {
            let unread = read.list.reshape();
            if unread.is_empty() {
                return Ok(true);
            }
            if !self.fill(read, unread).await? {
                return Ok(false);
            }
        }
    }

    /// Writes a list that is in shape.
    pub(in crate::reconcile) async fn write(
        &self,
        list: &mut BlockedList,
        condition: BlobCondition,
        chance: &dyn Chance,
    ) -> Result<Wrote, Failure> {
        let condition = if planted(Bug::UnconditionalList) { BlobCondition::None } else { condition };
        let before = list.ids();
        let mut metadata = item::metadata(&shared_source_text(list.source()), list.view());
        metadata.insert(COUNT.to_owned(), list.count().to_string());
        let upload = BlobUpload { condition, content_type: Some(CONTENT_TYPE.to_owned()), cache_control: None, metadata };
        let result = match list.write(|| u128::from(chance.next_u64()) << 64 | u128::from(chance.next_u64())) {
            ListWrite::Whole(content) => self.blobs.put(&self.container, &self.name, content.into(), &upload).await,
            ListWrite::Blocks { new, all } => {
                let puts = new.into_iter().map(|(id, content)| self.put_block(id, content.into()));
                stream::iter(puts.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await?;
                let all: Vec<BlockId> = all.into_iter().map(block_id).collect();
                let result = self.blobs.put_block_list(&self.container, &self.name, &all, &upload).await;
                if let (Err(error), BlobCondition::Matches(etag)) = (&result, &upload.condition)
                    && error.class == ErrorClass::Precondition
                {
                    self.check_blocks(etag, &before).await?;
                }
                result
            }
        };
        self.wrote(result.map(drop))
    }

    async fn put_block(&self, id: u128, content: Bytes) -> Result<(), Failure> {
        let put = self.blobs.put_block(&self.container, &self.name, block_id(id), content).await;
        put.map_err(|error| storage(self.step("uploading a block of"), error))
    }

    /// A list with missing blocks at an unchanged ETag was uploaded by another program.
    async fn check_blocks(&self, etag: &ETag, ids: &[u128]) -> Result<(), Failure> {
        let there = self.blobs.block_list(&self.container, &self.name).await;
        let there = there.map_err(|error| storage(self.step("reading the blocks of"), error))?;
        let gone = |id: &u128| {
            there.as_ref().is_some_and(|there| there.etag == *etag && !there.blocks.iter().any(|block| block.id == block_id(*id)))
        };
        match ids.iter().find(|id| gone(id)) {
            Some(id) => Err(self.nonsense(format!("it is not made of the blocks that its head names; {id:032x} is none"))),
            None => Ok(()),
        }
    }

    /// Marks the list as being moved elsewhere, so that no writer changes it any more. `None` where another writer was
    /// faster, or may have been.
    pub(in crate::reconcile) async fn mark_moved(&self, read: &ListRead) -> Result<Option<ETag>, Failure> {
        let mut metadata = item::metadata(&shared_source_text(read.list.source()), read.list.view());
        metadata.insert(COUNT.to_owned(), read.list.count().to_string());
        metadata.insert(MOVED.to_owned(), "1".to_owned());
        match self.blobs.set_metadata(&self.container, &self.name, &metadata, &read.etag).await {
            Ok(etag) => Ok(Some(etag)),
            Err(error) if error.may_have_lost() => Ok(None),
            Err(error) => Err(storage(self.step("marking"), error)),
        }
    }

    /// Deletes the blob at an ETag; absent is fine.
    pub(in crate::reconcile) async fn delete(&self, etag: &ETag) -> Result<Wrote, Failure> {
        match self.blobs.delete(&self.container, &self.name, Some(etag)).await {
            Err(error) if error.is_missing_item() => Ok(Wrote::Done),
            result => self.wrote(result.map(drop)),
        }
    }

    fn wrote(&self, result: Result<(), StoreError>) -> Result<Wrote, Failure> {
        match result {
            Ok(()) => Ok(Wrote::Done),
            Err(error) if error.is_lost_race() => Ok(Wrote::Lost),
            Err(error) if error.class == ErrorClass::Ambiguous => Ok(Wrote::Unanswered),
            Err(error) => Err(storage(self.step("writing"), error)),
        }
    }
}

const fn block_id(id: u128) -> BlockId {
    BlockId(id.to_be_bytes())
}
