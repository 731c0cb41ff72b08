//! Simulated blobs.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::witness::ObservedChange;
use super::world::{AccountState, Inner, SimWorld};
use evenkeel_model::{BlobName, ContainerName, ETag, limits};
use evenkeel_storage::{
    Blob, BlobCondition, BlobCopy, BlobItem, BlobPage, BlobProperties, BlobStore, BlobUpload,
    BlockId, ErrorClass, Missing, Resource, StoreError,
};

#[derive(Default)]
pub(super) struct Containers(
    BTreeMap<ContainerName, BTreeMap<BlobName, StoredBlob>>,
    UncommittedBlocks,
);

/// Uncommitted blocks by blob.
type UncommittedBlocks = BTreeMap<(ContainerName, BlobName), BTreeMap<BlockId, Bytes>>;

#[derive(Clone)]
struct StoredBlob {
    content: Bytes,
    etag: ETag,
    content_type: String,
    cache_control: Option<String>,
    metadata: BTreeMap<String, String>,
    kind: BlobKind,
    blocks: Vec<(BlockId, Bytes)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlobKind {
    Block,
    Append,
}

/// The kind of a blob, its bytes, and the blocks that they consist of.
type Content = (BlobKind, Bytes, Vec<(BlockId, Bytes)>);

/// The source of a blob's new content.
enum NewContent {
    /// The body of the request.
    Bytes(Bytes),
    /// An empty append blob.
    EmptyAppend,
    /// Uncommitted blocks, or blocks of the present blob.
    Blocks(Vec<BlockId>),
}

impl NewContent {
    fn content(
        self,
        before: Option<&StoredBlob>,
        uncommitted: &BTreeMap<BlockId, Bytes>,
    ) -> Result<Content, Refusal> {
        let ids = match self {
            Self::Bytes(content) => return Ok((BlobKind::Block, content, Vec::new())),
            Self::EmptyAppend => return Ok((BlobKind::Append, Bytes::new(), Vec::new())),
            Self::Blocks(ids) => ids,
        };
        require_block_blob(before)?;
        let had = before
            .map(|stored| stored.blocks.as_slice())
            .unwrap_or_default();
        let find = |id: BlockId| {
            let block = uncommitted.get(&id).or_else(|| {
                had.iter()
                    .find(|(had, _)| *had == id)
                    .map(|(_, bytes)| bytes)
            });
            block.cloned().map(|bytes| (id, bytes)).ok_or((
                ErrorClass::Precondition,
                "a block is neither uncommitted nor in the blob",
            ))
        };
        let blocks = ids.into_iter().map(find).collect::<Result<Vec<_>, _>>()?;
        let content = blocks
            .iter()
            .map(|(_, bytes)| bytes.as_ref())
            .collect::<Vec<_>>()
            .concat();
        Ok((BlobKind::Block, content.into(), blocks))
    }
}

fn require_block_blob(stored: Option<&StoredBlob>) -> Result<(), Refusal> {
    match stored {
        Some(stored) if stored.kind == BlobKind::Append => {
            Err((ErrorClass::Permanent, "the blob is not a block blob"))
        }
        _ => Ok(()),
    }
}

/// Maximum number of blobs in a page of a listing (Azure: 5,000).
const PAGE_BLOBS: usize = 5_000;

type Refusal = (ErrorClass, &'static str);

impl Containers {
    fn of(
        &mut self,
        container: &ContainerName,
    ) -> Result<&mut BTreeMap<BlobName, StoredBlob>, Refusal> {
        self.0.get_mut(container).ok_or((
            ErrorClass::NotFound(Missing::Container),
            "the container does not exist",
        ))
    }
}

impl StoredBlob {
    fn properties(&self) -> BlobProperties {
        BlobProperties {
            etag: self.etag.clone(),
            length: self.content.len() as u64,
            content_type: self.content_type.clone(),
            cache_control: self.cache_control.clone(),
            metadata: self.metadata.clone(),
        }
    }
}

impl SimWorld {
    /// All blobs of a container, for assertions. It is not an operation of the store.
    #[must_use]
    pub fn blobs(&self, container: &ContainerName) -> Vec<(BlobName, Blob)> {
        let mut state = self.inner.lock();
        let blobs = state.containers.of(container);
        blobs.map_or_else(
            |_| Vec::new(),
            |blobs| {
                blobs
                    .iter()
                    .map(|(name, stored)| (name.clone(), stored.blob()))
                    .collect()
            },
        )
    }
}

impl StoredBlob {
    fn blob(&self) -> Blob {
        Blob {
            content: self.content.clone(),
            properties: self.properties(),
        }
    }

    /// A range of the bytes, cut at the end of the blob.
    fn part(&self, range: Range<u64>) -> Bytes {
        let length = self.content.len();
        let at = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).min(length);
        self.content
            .slice(at(range.start)..at(range.end).max(at(range.start)))
    }
}

fn etag(state: &mut AccountState) -> Result<ETag, Refusal> {
    ETag::new(format!("\"sim-{}\"", state.next_serial()))
        .map_err(|_| (ErrorClass::Permanent, "no ETag"))
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let identifier =
        |name: &str| name.is_ascii() && evenkeel_model::entity::valid_property_name(name);
    let printable =
        |value: &str| value.bytes().all(|b| (b' '..=b'~').contains(&b)) && value.trim() == value;
    let bytes: usize = metadata
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum();
    if bytes > limits::METADATA_BYTES {
        Err((ErrorClass::TooLarge, "the metadata has more than 8 KiB"))
    } else if metadata
        .iter()
        .all(|(name, value)| identifier(name) && printable(value))
    {
        Ok(())
    } else {
        Err((
            ErrorClass::Permanent,
            "metadata names must be identifiers, and values printable ASCII without outer blanks",
        ))
    }
}

/// Checks the condition of a write against the present blob.
fn admit(condition: &BlobCondition, stored: Option<&StoredBlob>) -> Result<(), Refusal> {
    match (condition, stored) {
        (BlobCondition::Absent, Some(_)) => Err((ErrorClass::Conflict, "the blob already exists")),
        (BlobCondition::Matches(wanted), stored)
            if stored.is_none_or(|stored| stored.etag != *wanted) =>
        {
            Err((ErrorClass::Precondition, "the blob has another ETag"))
        }
        (BlobCondition::None | BlobCondition::Absent | BlobCondition::Matches(_), _) => Ok(()),
    }
}

fn refuse(inner: &Inner, name: &'static str, what: &Resource) -> impl Fn(Refusal) -> StoreError {
    move |(class, message)| inner.error(class, name, what.clone(), message)
}

/// The service stores metadata names in lower case.
fn lower_case_names(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    metadata
        .iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
        .collect()
}

impl SimWorld {
    /// Writes or replaces a blob.
    async fn upload(
        &self,
        operation: &'static str,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
        new_content: NewContent,
    ) -> Result<ETag, StoreError> {
        let what = Resource::Blob(container.clone(), name.clone());
        check_metadata(&upload.metadata).map_err(refuse(&self.inner, operation, &what))?;
        let (container, name, upload, subject) = (
            container.clone(),
            name.clone(),
            upload.clone(),
            what.clone(),
        );
        let put = self.send(operation, what, true, move |state, inner| {
            let refuse = refuse(inner, operation, &subject);
            let etag = etag(state).map_err(&refuse)?;
            let place = (container, name);
            let uncommitted = state.containers.1.get(&place).cloned().unwrap_or_default();
            let blobs = state.containers.of(&place.0).map_err(&refuse)?;
            let before = blobs.get(&place.1);
            admit(&upload.condition, before).map_err(&refuse)?;
            let (kind, content, blocks) =
                new_content.content(before, &uncommitted).map_err(&refuse)?;
            let metadata = lower_case_names(&upload.metadata);
            let content_type = upload
                .content_type
                .unwrap_or_else(|| "application/octet-stream".to_owned());
            let stored = StoredBlob {
                content,
                etag: etag.clone(),
                content_type,
                cache_control: upload.cache_control,
                metadata,
                kind,
                blocks,
            };
            let blob = stored.blob();
            blobs.insert(place.1.clone(), stored);
            state.containers.1.remove(&place);
            let (container, name) = place;
            state.record_change(|| ObservedChange::Blob {
                container,
                name,
                blob: Some(blob),
            });
            Ok(etag)
        });
        put.await
    }
}

#[async_trait]
impl BlobStore for SimWorld {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let name = container.clone();
        let created = self.send(
            "Create Container",
            Resource::Container(container.clone()),
            true,
            move |state, _| {
                let new = !state.containers.0.contains_key(&name);
                state.containers.0.entry(name).or_default();
                Ok(new)
            },
        );
        created.await
    }

    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let name = container.clone();
        let what = Resource::Container(container.clone());
        self.send("Delete Container", what, true, move |state, _| {
            state
                .containers
                .1
                .retain(|(container, _), _| *container != name);
            Ok(state.containers.0.remove(&name).is_some())
        })
        .await
    }

    async fn put(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        self.upload(
            "Put Blob",
            container,
            name,
            upload,
            NewContent::Bytes(content),
        )
        .await
    }

    async fn create_append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        self.upload(
            "Put Append Blob",
            container,
            name,
            upload,
            NewContent::EmptyAppend,
        )
        .await
    }

    async fn append(
        &self,
        container: &ContainerName,
        name: &BlobName,
        content: Bytes,
        position: u64,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Append Block";
        let what = Resource::Blob(container.clone(), name.clone());
        if content.is_empty() {
            return Err(refuse(&self.inner, NAME, &what)((
                ErrorClass::Permanent,
                "the append has no bytes",
            )));
        }
        if content.len() > limits::APPEND_BYTES {
            return Err(refuse(&self.inner, NAME, &what)((
                ErrorClass::TooLarge,
                "the append has more than 4 MiB",
            )));
        }
        let (container, name, subject) = (container.clone(), name.clone(), what.clone());
        let appended = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &subject);
            let etag = etag(state).map_err(&refuse)?;
            let stored = state
                .containers
                .of(&container)
                .map_err(&refuse)?
                .get_mut(&name);
            let stored = stored.ok_or_else(|| {
                refuse((
                    ErrorClass::NotFound(Missing::Item),
                    "the blob does not exist",
                ))
            })?;
            if stored.kind != BlobKind::Append {
                return Err(refuse((
                    ErrorClass::Permanent,
                    "the blob is not an append blob",
                )));
            }
            if stored.content.len() as u64 != position {
                return Err(refuse((
                    ErrorClass::Precondition,
                    "the blob has another length",
                )));
            }
            stored.content = [stored.content.as_ref(), content.as_ref()].concat().into();
            stored.etag = etag.clone();
            let blob = stored.blob();
            state.record_change(|| ObservedChange::Blob {
                container,
                name,
                blob: Some(blob),
            });
            Ok(etag)
        });
        appended.await
    }

    async fn put_block(
        &self,
        container: &ContainerName,
        name: &BlobName,
        block: BlockId,
        content: Bytes,
    ) -> Result<(), StoreError> {
        const NAME: &str = "Put Block";
        let what = Resource::Blob(container.clone(), name.clone());
        let refusal = match content.len() {
            0 => Some((ErrorClass::Permanent, "the block has no bytes")),
            1..=limits::BLOCK_BYTES => None,
            _ => Some((ErrorClass::TooLarge, "the block has more than 100 MiB")),
        };
        if let Some(refusal) = refusal {
            return Err(refuse(&self.inner, NAME, &what)(refusal));
        }
        let (place, subject) = ((container.clone(), name.clone()), what.clone());
        let kept = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &subject);
            require_block_blob(
                state
                    .containers
                    .of(&place.0)
                    .map_err(&refuse)?
                    .get(&place.1),
            )
            .map_err(&refuse)?;
            state
                .containers
                .1
                .entry(place)
                .or_default()
                .insert(block, content);
            Ok(())
        });
        kept.await
    }

    async fn put_block_list(
        &self,
        container: &ContainerName,
        name: &BlobName,
        blocks: &[BlockId],
        upload: &BlobUpload,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Put Block List";
        if blocks.len() > limits::BLOCKS {
            let what = Resource::Blob(container.clone(), name.clone());
            return Err(refuse(&self.inner, NAME, &what)((
                ErrorClass::TooLarge,
                "the list has more than 50,000 blocks",
            )));
        }
        self.upload(
            NAME,
            container,
            name,
            upload,
            NewContent::Blocks(blocks.to_vec()),
        )
        .await
    }

    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Set Blob Metadata";
        let what = Resource::Blob(container.clone(), name.clone());
        check_metadata(metadata).map_err(refuse(&self.inner, NAME, &what))?;
        let (container, name, wanted, subject) = (
            container.clone(),
            name.clone(),
            if_match.clone(),
            what.clone(),
        );
        let metadata = lower_case_names(metadata);
        let set = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &subject);
            let etag = etag(state).map_err(&refuse)?;
            match state
                .containers
                .of(&container)
                .map_err(&refuse)?
                .get_mut(&name)
            {
                Some(stored) if stored.etag == wanted => {
                    (stored.metadata, stored.etag) = (metadata, etag.clone());
                    let blob = stored.blob();
                    state.record_change(|| ObservedChange::Blob {
                        container,
                        name,
                        blob: Some(blob),
                    });
                    Ok(etag)
                }
                _ => Err(refuse((
                    ErrorClass::Precondition,
                    "the blob has another ETag",
                ))),
            }
        });
        set.await
    }

    async fn get(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Option<Range<u64>>,
    ) -> Result<Option<Blob>, StoreError> {
        const NAME: &str = "Get Blob";
        let what = Resource::Blob(container.clone(), name.clone());
        let (container, name, subject) = (container.clone(), name.clone(), what.clone());
        let got = self.send(NAME, what, false, move |state, inner| {
            let blobs = state
                .containers
                .of(&container)
                .map_err(refuse(inner, NAME, &subject))?;
            Ok(blobs.get(&name).map(|stored| {
                let content =
                    range.map_or_else(|| stored.content.clone(), |range| stored.part(range));
                Blob {
                    content,
                    properties: stored.properties(),
                }
            }))
        });
        got.await
    }

    async fn get_at(
        &self,
        container: &ContainerName,
        name: &BlobName,
        range: Range<u64>,
        etag: &ETag,
    ) -> Result<Bytes, StoreError> {
        const NAME: &str = "Get Blob";
        let what = Resource::Blob(container.clone(), name.clone());
        let (container, name, wanted, subject) =
            (container.clone(), name.clone(), etag.clone(), what.clone());
        let got = self.send(NAME, what, false, move |state, inner| {
            let refuse = refuse(inner, NAME, &subject);
            let stored = state
                .containers
                .of(&container)
                .map_err(&refuse)?
                .get(&name)
                .filter(|stored| stored.etag == wanted);
            let stored = stored.ok_or_else(|| {
                refuse((
                    ErrorClass::Precondition,
                    "the blob has another ETag or does not exist",
                ))
            })?;
            Ok(stored.part(range))
        });
        got.await
    }

    async fn properties(
        &self,
        container: &ContainerName,
        name: &BlobName,
    ) -> Result<Option<BlobProperties>, StoreError> {
        const NAME: &str = "Get Blob Properties";
        let what = Resource::Blob(container.clone(), name.clone());
        let (container, name, subject) = (container.clone(), name.clone(), what.clone());
        let properties = self.send(NAME, what, false, move |state, inner| {
            Ok(state
                .containers
                .of(&container)
                .map_err(refuse(inner, NAME, &subject))?
                .get(&name)
                .map(StoredBlob::properties))
        });
        properties.await
    }

    async fn delete(
        &self,
        container: &ContainerName,
        name: &BlobName,
        if_match: Option<&ETag>,
    ) -> Result<bool, StoreError> {
        const NAME: &str = "Delete Blob";
        let what = Resource::Blob(container.clone(), name.clone());
        let (container, name, wanted, subject) = (
            container.clone(),
            name.clone(),
            if_match.cloned(),
            what.clone(),
        );
        let deleted = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &subject);
            let blobs = state.containers.of(&container).map_err(&refuse)?;
            match blobs.get(&name) {
                None => Ok(false),
                Some(stored) if wanted.is_some_and(|wanted| wanted != stored.etag) => Err(refuse(
                    (ErrorClass::Precondition, "the blob has another ETag"),
                )),
                Some(_) => {
                    blobs.remove(&name);
                    state
                        .containers
                        .1
                        .remove(&(container.clone(), name.clone()));
                    state.record_change(|| ObservedChange::Blob {
                        container,
                        name,
                        blob: None,
                    });
                    Ok(true)
                }
            }
        });
        deleted.await
    }

    async fn copy(
        &self,
        from: (&ContainerName, &BlobName),
        to: (&ContainerName, &BlobName),
        copying: &BlobCopy,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Copy Blob";
        let what = Resource::Blob(to.0.clone(), to.1.clone());
        check_metadata(copying.metadata.as_ref().unwrap_or(&BTreeMap::new())).map_err(refuse(
            &self.inner,
            NAME,
            &what,
        ))?;
        let (from, to, copying) = (
            (from.0.clone(), from.1.clone()),
            (to.0.clone(), to.1.clone()),
            copying.clone(),
        );
        let source = Resource::Blob(from.0.clone(), from.1.clone());
        let copied = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &source);
            let etag = etag(state).map_err(&refuse)?;
            let stored = state
                .containers
                .of(&from.0)
                .map_err(&refuse)?
                .get(&from.1)
                .cloned();
            let stored = stored.ok_or_else(|| {
                refuse((
                    ErrorClass::NotFound(Missing::Item),
                    "the source does not exist",
                ))
            })?;
            let target = state.containers.of(&to.0).map_err(&refuse)?;
            admit(&copying.condition, target.get(&to.1)).map_err(&refuse)?;
            let metadata = copying
                .metadata
                .as_ref()
                .map_or_else(|| stored.metadata.clone(), lower_case_names);
            let stored = StoredBlob {
                etag: etag.clone(),
                metadata,
                ..stored
            };
            let blob = stored.blob();
            target.insert(to.1.clone(), stored);
            state.containers.1.remove(&to);
            let (container, name) = to;
            state.record_change(|| ObservedChange::Blob {
                container,
                name,
                blob: Some(blob),
            });
            Ok(etag)
        });
        copied.await
    }

    async fn list(
        &self,
        container: &ContainerName,
        prefix: &str,
        marker: Option<&str>,
    ) -> Result<BlobPage, StoreError> {
        const NAME: &str = "List Blobs";
        let what = Resource::Container(container.clone());
        let (container, prefix, marker, subject) = (
            container.clone(),
            prefix.to_owned(),
            marker.map(str::to_owned),
            what.clone(),
        );
        let page = self.send(NAME, what, false, move |state, inner| {
            let blobs = state
                .containers
                .of(&container)
                .map_err(refuse(inner, NAME, &subject))?;
            let from = marker.as_deref().unwrap_or_default();
            let mut rest = blobs
                .iter()
                .filter(|(name, _)| name.as_str().starts_with(&prefix) && name.as_str() >= from);
            let item = |(name, stored): (&BlobName, &StoredBlob)| BlobItem {
                name: name.clone(),
                etag: stored.etag.clone(),
                length: stored.content.len() as u64,
            };
            let blobs = rest.by_ref().take(PAGE_BLOBS).map(item).collect();
            Ok(BlobPage {
                blobs,
                marker: rest.next().map(|(name, _)| name.to_string()),
            })
        });
        page.await
    }
}
