//! Simulated blobs.

use std::collections::BTreeMap;
use std::ops::Range;

use async_trait::async_trait;
use bytes::Bytes;

use super::world::{Inner, SimWorld, State};
use crate::model::{BlobName, ContainerName, ETag, limits};
use crate::ports::{Blob, BlobCondition, BlobItem, BlobPage, BlobProperties, BlobStore, BlobUpload, ErrorClass, Missing, StoreError, What};

/// All containers.
#[derive(Default)]
pub(super) struct Containers(BTreeMap<ContainerName, BTreeMap<BlobName, Stored>>);

#[derive(Clone)]
struct Stored {
    content: Bytes,
    etag: ETag,
    content_type: String,
    metadata: BTreeMap<String, String>,
    kind: Kind,
}

/// What a blob is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Blocks: it is written whole.
    Block,
    /// What can be appended to.
    Append,
}

/// Most blobs on one page of a listing (Azure: 5,000).
const PAGE_BLOBS: usize = 5_000;

type Refusal = (ErrorClass, &'static str);

impl Containers {
    fn of(&mut self, container: &ContainerName) -> Result<&mut BTreeMap<BlobName, Stored>, Refusal> {
        self.0.get_mut(container).ok_or((ErrorClass::NotFound(Missing::Container), "the container does not exist"))
    }
}

impl Stored {
    fn properties(&self) -> BlobProperties {
        BlobProperties {
            etag: self.etag.clone(),
            length: self.content.len() as u64,
            content_type: self.content_type.clone(),
            metadata: self.metadata.clone(),
        }
    }
}

fn etag(state: &mut State) -> Result<ETag, Refusal> {
    ETag::new(format!("\"sim-{}\"", state.next_serial())).map_err(|_| (ErrorClass::Permanent, "no ETag"))
}

fn check_metadata(metadata: &BTreeMap<String, String>) -> Result<(), Refusal> {
    let identifier = |name: &str| crate::model::entity::valid_property_name(name);
    let printable = |value: &str| value.bytes().all(|b| (b' '..=b'~').contains(&b)) && value.trim() == value;
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > limits::METADATA_BYTES {
        Err((ErrorClass::TooLarge, "the metadata has more than 8 KiB"))
    } else if metadata.iter().all(|(name, value)| identifier(name) && printable(value)) {
        Ok(())
    } else {
        Err((ErrorClass::Permanent, "metadata names are identifiers, values printable ASCII without outer blanks"))
    }
}

/// Whether a blob may be written in the place of what is there.
fn admit(condition: &BlobCondition, stored: Option<&Stored>) -> Result<(), Refusal> {
    match (condition, stored) {
        (BlobCondition::Absent, Some(_)) => Err((ErrorClass::Conflict, "the blob exists already")),
        (BlobCondition::Matches(wanted), stored) if stored.is_none_or(|stored| stored.etag != *wanted) => {
            Err((ErrorClass::Precondition, "the blob is at another ETag"))
        }
        (BlobCondition::None | BlobCondition::Absent | BlobCondition::Matches(_), _) => Ok(()),
    }
}

fn refuse(inner: &Inner, name: &'static str, what: &What) -> impl Fn(Refusal) -> StoreError {
    move |(class, message)| inner.error(class, name, what.clone(), message)
}

/// Names of metadata as the service keeps them.
fn lowered(metadata: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    metadata.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())).collect()
}

impl SimWorld {
    /// Writes a blob in the place of what is there.
    async fn upload(
        &self,
        operation: &'static str,
        (container, name): (&ContainerName, &BlobName),
        upload: &BlobUpload,
        (kind, content): (Kind, Bytes),
    ) -> Result<ETag, StoreError> {
        let what = What::Blob(container.clone(), name.clone());
        check_metadata(&upload.metadata).map_err(refuse(&self.inner, operation, &what))?;
        let (container, name, upload, subject) = (container.clone(), name.clone(), upload.clone(), what.clone());
        let put = self.send(operation, what, true, move |state, inner| {
            let refuse = refuse(inner, operation, &subject);
            let etag = etag(state).map_err(&refuse)?;
            let blobs = state.containers.of(&container).map_err(&refuse)?;
            admit(&upload.condition, blobs.get(&name)).map_err(&refuse)?;
            let metadata = lowered(&upload.metadata);
            let content_type = upload.content_type.unwrap_or_else(|| "application/octet-stream".to_owned());
            blobs.insert(name, Stored { content, etag: etag.clone(), content_type, metadata, kind });
            Ok(etag)
        });
        put.await
    }
}

#[async_trait]
impl BlobStore for SimWorld {
    async fn create_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let name = container.clone();
        let created = self.send("Create Container", What::Container(container.clone()), true, move |state, _| {
            let new = !state.containers.0.contains_key(&name);
            state.containers.0.entry(name).or_default();
            Ok(new)
        });
        created.await
    }

    async fn delete_container(&self, container: &ContainerName) -> Result<bool, StoreError> {
        let name = container.clone();
        let what = What::Container(container.clone());
        self.send("Delete Container", what, true, move |state, _| Ok(state.containers.0.remove(&name).is_some())).await
    }

    async fn put(&self, container: &ContainerName, name: &BlobName, content: Bytes, upload: &BlobUpload) -> Result<ETag, StoreError> {
        self.upload("Put Blob", (container, name), upload, (Kind::Block, content)).await
    }

    async fn create_append(&self, container: &ContainerName, name: &BlobName, upload: &BlobUpload) -> Result<ETag, StoreError> {
        self.upload("Put Append Blob", (container, name), upload, (Kind::Append, Bytes::new())).await
    }

    async fn append(&self, container: &ContainerName, name: &BlobName, content: Bytes, position: u64) -> Result<ETag, StoreError> {
        const NAME: &str = "Append Block";
        let what = What::Blob(container.clone(), name.clone());
        if content.len() > limits::APPEND_BYTES {
            return Err(refuse(&self.inner, NAME, &what)((ErrorClass::TooLarge, "more than 4 MiB at once")));
        }
        let (container, name, subject) = (container.clone(), name.clone(), what.clone());
        let appended = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &subject);
            let etag = etag(state).map_err(&refuse)?;
            let stored = state.containers.of(&container).map_err(&refuse)?.get_mut(&name);
            let stored = stored.ok_or_else(|| refuse((ErrorClass::NotFound(Missing::Item), "the blob does not exist")))?;
            if stored.kind != Kind::Append {
                return Err(refuse((ErrorClass::Permanent, "the blob is no append blob")));
            }
            if stored.content.len() as u64 != position {
                return Err(refuse((ErrorClass::Precondition, "the blob has another length")));
            }
            stored.content = [stored.content.as_ref(), content.as_ref()].concat().into();
            stored.etag = etag.clone();
            Ok(etag)
        });
        appended.await
    }

    async fn set_metadata(
        &self,
        container: &ContainerName,
        name: &BlobName,
        metadata: &BTreeMap<String, String>,
        if_match: &ETag,
    ) -> Result<ETag, StoreError> {
        const NAME: &str = "Set Blob Metadata";
        let what = What::Blob(container.clone(), name.clone());
        check_metadata(metadata).map_err(refuse(&self.inner, NAME, &what))?;
        let (container, name, wanted, subject) = (container.clone(), name.clone(), if_match.clone(), what.clone());
        let metadata = lowered(metadata);
        let set = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &subject);
            let etag = etag(state).map_err(&refuse)?;
            match state.containers.of(&container).map_err(&refuse)?.get_mut(&name) {
                Some(stored) if stored.etag == wanted => {
                    (stored.metadata, stored.etag) = (metadata, etag.clone());
                    Ok(etag)
                }
                _ => Err(refuse((ErrorClass::Precondition, "the blob is at another ETag"))),
            }
        });
        set.await
    }

    async fn get(&self, container: &ContainerName, name: &BlobName, range: Option<Range<u64>>) -> Result<Option<Blob>, StoreError> {
        const NAME: &str = "Get Blob";
        let what = What::Blob(container.clone(), name.clone());
        let (container, name, subject) = (container.clone(), name.clone(), what.clone());
        let got = self.send(NAME, what, false, move |state, inner| {
            let blobs = state.containers.of(&container).map_err(refuse(inner, NAME, &subject))?;
            Ok(blobs.get(&name).map(|stored| {
                let length = stored.content.len();
                let at = |position: u64| usize::try_from(position).unwrap_or(usize::MAX).min(length);
                let range = range.map_or(0..length, |range| at(range.start)..at(range.end).max(at(range.start)));
                Blob { content: stored.content.slice(range), properties: stored.properties() }
            }))
        });
        got.await
    }

    async fn properties(&self, container: &ContainerName, name: &BlobName) -> Result<Option<BlobProperties>, StoreError> {
        const NAME: &str = "Get Blob Properties";
        let what = What::Blob(container.clone(), name.clone());
        let (container, name, subject) = (container.clone(), name.clone(), what.clone());
        let properties = self.send(NAME, what, false, move |state, inner| {
            Ok(state.containers.of(&container).map_err(refuse(inner, NAME, &subject))?.get(&name).map(Stored::properties))
        });
        properties.await
    }

    async fn delete(&self, container: &ContainerName, name: &BlobName, if_match: Option<&ETag>) -> Result<bool, StoreError> {
        const NAME: &str = "Delete Blob";
        let what = What::Blob(container.clone(), name.clone());
        let (container, name, wanted, subject) = (container.clone(), name.clone(), if_match.cloned(), what.clone());
        let deleted = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &subject);
            let blobs = state.containers.of(&container).map_err(&refuse)?;
            match blobs.get(&name) {
                None => Ok(false),
                Some(stored) if wanted.is_some_and(|wanted| wanted != stored.etag) => {
                    Err(refuse((ErrorClass::Precondition, "the blob is at another ETag")))
                }
                Some(_) => Ok(blobs.remove(&name).is_some()),
            }
        });
        deleted.await
    }

    async fn copy(&self, from: (&ContainerName, &BlobName), to: (&ContainerName, &BlobName)) -> Result<ETag, StoreError> {
        const NAME: &str = "Copy Blob";
        let what = What::Blob(to.0.clone(), to.1.clone());
        let (from, to) = ((from.0.clone(), from.1.clone()), (to.0.clone(), to.1.clone()));
        let source = What::Blob(from.0.clone(), from.1.clone());
        let copied = self.send(NAME, what, true, move |state, inner| {
            let refuse = refuse(inner, NAME, &source);
            let etag = etag(state).map_err(&refuse)?;
            let stored = state.containers.of(&from.0).map_err(&refuse)?.get(&from.1).cloned();
            let stored = stored.ok_or_else(|| refuse((ErrorClass::NotFound(Missing::Item), "the source does not exist")))?;
            let target = state.containers.of(&to.0).map_err(&refuse)?;
            target.insert(to.1, Stored { etag: etag.clone(), ..stored });
            Ok(etag)
        });
        copied.await
    }

    async fn list(&self, container: &ContainerName, prefix: &str, marker: Option<&str>) -> Result<BlobPage, StoreError> {
        const NAME: &str = "List Blobs";
        let what = What::Container(container.clone());
        let (container, prefix, marker, subject) = (container.clone(), prefix.to_owned(), marker.map(str::to_owned), what.clone());
        let page = self.send(NAME, what, false, move |state, inner| {
            let blobs = state.containers.of(&container).map_err(refuse(inner, NAME, &subject))?;
            let from = marker.as_deref().unwrap_or_default();
            let mut rest = blobs.iter().filter(|(name, _)| name.as_str().starts_with(&prefix) && name.as_str() >= from);
            let item = |(name, stored): (&BlobName, &Stored)| BlobItem {
                name: name.clone(),
                etag: stored.etag.clone(),
                length: stored.content.len() as u64,
            };
            let blobs = rest.by_ref().take(PAGE_BLOBS).map(item).collect();
            Ok(BlobPage { blobs, marker: rest.next().map(|(name, _)| name.to_string()) })
        });
        page.await
    }
}
