//! Large values: where the content behind a pointer comes from, and how it is written to a blob or file.
//!
//! A value exists before anything points to it, and is deleted after the last pointer to it is gone:
//!
//! ```text
//!   announce ──▶ upload, if absent ──▶ write the primary ──▶ drop the values it no longer points to ──▶ close
//! ```
//!
//! Only the run that writes a pointer has the content. Any other pass keeps a value that the primary points to, and
//! drops a value that it does not point to. Such a pass cannot create a missing value, so it leaves the item waiting. A
//! pass may drop an uploaded blob just before its pointer is written. It announces the drop first, so the run that
//! writes the pointer finds the footprint changed, reads the blob again, and uploads it again before its job is done.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use sha2::{Digest as _, Sha256};

use crate::env::memory::{MemoryGrant, MemoryShare};
use crate::execute::{Failure, FailureClass};
use crate::failure::{permanent, storage};
use crate::protocol::change::Change;
use crate::protocol::scope::Scope;
use evenkeel_model::catalog::ValueLocation;
use evenkeel_model::job::Primary;
use evenkeel_model::large::{self, Pointer, ValueFolder};
use evenkeel_model::patterns::{computed_from, large_entity};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, ETag, Entity, ItemAddress, Site, limits,
};
use evenkeel_storage::{
    BlobCopy, BlobProperties, BlobStore, BlobUpload, BlockId, FilePlace, FileStore, StoreError,
};

/// Bytes of a large value that one request reads or writes: one block of its blob.
pub(crate) const BLOCK_BYTES: u64 = 4 << 20;
const BLOCKS_AT_ONCE: usize = 4;
/// Memory that a pass takes to copy large values of any size, one after the other. This is enough for four concurrent
/// blocks. Half as much is added, because the service may send a block in pieces that must be joined.
pub(crate) const VALUE_BYTES: u64 = BLOCKS_AT_ONCE as u64 * BLOCK_BYTES * 3 / 2;
/// A blob is named by the hash of its content, so it never changes.
const CACHE_CONTROL: &str = "max-age=31536000, immutable";

#[derive(Debug, Clone)]
pub(crate) enum Supply {
    Bytes {
        content: Bytes,
        content_type: String,
    },
    Staged(Staged),
    /// The value of another primary, with the same content.
    Copy {
        account: AccountName,
        container: ContainerName,
        pointer: Pointer,
    },
    File {
        place: FilePlace,
        content_type: Option<String>,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Staged {
    pub(crate) account: AccountName,
    pub(crate) container: ContainerName,
    pub(crate) name: BlobName,
    pub(crate) etag: ETag,
    /// Length in bytes.
    pub(crate) length: u64,
    pub(crate) content_type: String,
}

impl Staged {
    pub(crate) fn of(
        account: AccountName,
        container: ContainerName,
        name: BlobName,
        found: BlobProperties,
    ) -> Self {
        Self {
            account,
            container,
            name,
            etag: found.etag,
            length: found.length,
            content_type: found.content_type,
        }
    }
}

pub(crate) struct ValueOrigin {
    location: ValueLocation,
    folder: ValueFolder,
}

#[derive(Default)]
pub(crate) struct RunValues {
    pub(crate) supplies: BTreeMap<ItemAddress, Supply>,
    /// Memory for copying values between blobs. A pass that copies takes this memory before its first announcement, and
    /// keeps it.
    slot: Option<MemoryGrant>,
}

#[derive(Debug, thiserror::Error)]
#[error("{}/{} is not a large value of {primary}: it is outside the archive's folder for large values", .place.dir, .place.name)]
struct ForeignFile {
    place: FilePlace,
    primary: Primary,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum PointerError {
    #[error(
        "property {property:?} points to {to}, which is not a blob of this entity. Send the value itself, or stage it"
    )]
    Foreign { property: String, to: String },
    #[error("it points to {0}, which does not exist. Send the value itself, or stage it")]
    Dangling(Site),
    #[error("{0} already exists, and evenkeel did not write it. Delete it")]
    Taken(Site),
    #[error(
        "no large_entity view has the table as its source. Declare one, so that values can be stored in blobs"
    )]
    NoView,
}

impl ValueOrigin {
    fn supply(&self, pointer: Pointer) -> Option<Supply> {
        Some(match self.location.site(&pointer)? {
            Site::Blob { container, .. } => Supply::Copy {
                account: self.location.account().clone(),
                container,
                pointer,
            },
            Site::File { dir, name } => Supply::File {
                place: FilePlace { dir, name },
                content_type: pointer.content_type,
            },
            Site::Row { .. } | Site::Document { .. } => return None,
        })
    }
}

impl RunValues {
    /// Moves large values out of a change and leaves pointers in their place. `staged` maps properties to the staged
    /// blobs that contain their values.
    pub(crate) fn take_out(
        &mut self,
        scope: &Scope<'_>,
        change: Change,
        staged: &BTreeMap<String, (Staged, String)>,
    ) -> Result<Change, Failure> {
        let Some((view, large)) = scope.env.catalog.large_values_of(scope.source) else {
            return if staged.is_empty() {
                Ok(change)
            } else {
                Err(permanent(writing(scope), PointerError::NoView))
            };
        };
        let Some(whole) = change.result() else {
            return Ok(change);
        };
        let mut pointers: BTreeMap<String, (Pointer, Supply)> = BTreeMap::new();
        let to = |property: &str, bytes: u64, sha256: String| {
            Pointer::to(&scope.folder, &large.container, property, bytes, sha256)
                .map_err(|error| permanent(writing(scope), error))
        };
        let mut rest = whole.clone();
        for (property, (staged, sha256)) in staged {
            let pointer = to(property, staged.length, sha256.clone())?;
            rest.properties
                .insert(property.clone(), pointer.to_string().into());
            pointers.insert(property.clone(), (pointer, Supply::Staged(staged.clone())));
        }
        let computed = computed_from(&scope.env.catalog, scope.source, &rest);
        if let Some(property) = staged.keys().find(|property| computed.contains(*property)) {
            return Err(permanent(
                writing(scope),
                large_entity::ComputedPropertyError(property.clone()),
            ));
        }
        // A wide entity is split into as many rows as it needs, so its size is not limited here.
        let room = if scope.env.catalog.wide.contains(scope.source) {
            usize::MAX
        } else {
            limits::ENTITY_BYTES
        };
        let brought = |name: &str| {
            change
                .sent()
                .is_some_and(|sent| sent.properties.contains_key(name))
        };
        let outgoing = large_entity::outgoing(large, &rest, room, &computed, brought);
        for property in outgoing.map_err(|error| permanent(writing(scope), error))? {
            let Some(value) = rest.properties.remove(&property) else {
                continue;
            };
            let content_type = large_entity::content_type(&value).to_owned();
            let Some(content) = large_entity::content(value) else {
                continue;
            };
            let pointer = to(&property, content.len() as u64, large::hash(&content))?;
            pointers.insert(
                property,
                (
                    pointer,
                    Supply::Bytes {
                        content,
                        content_type,
                    },
                ),
            );
        }
        let mut values = BTreeMap::new();
        let mut texts = BTreeMap::new();
        for (property, (pointer, supply)) in pointers {
            let site = Site::Blob {
                container: large.container.clone(),
                name: pointer.name.clone(),
            };
            values.insert(
                ItemAddress::whole(view.clone(), large.account.clone(), site),
                supply,
            );
            texts.insert(property, pointer.to_string());
        }
        self.supply(values);
        Ok(change.with_texts(&texts))
    }

    /// Changes the pointers of an entity that comes from another primary, so that they lead to values of this primary.
    /// The contents are copied later, when these values are uploaded.
    pub(crate) async fn take_in(
        &mut self,
        scope: &Scope<'_>,
        from: Option<&ValueOrigin>,
        mut entity: Entity,
    ) -> Result<Entity, Failure> {
        let Some(from) = from else { return Ok(entity) };
        large::known_pointers(&entity).map_err(|error| permanent(writing(scope), error))?;
        let found: Vec<(String, Pointer)> = large::pointers(&from.folder, &entity)
            .map(|(name, pointer)| (name.to_owned(), pointer))
            .collect();
        if found.is_empty() {
            return Ok(entity);
        }
        let Some((view, location)) = scope.env.catalog.value_location_of(scope.source) else {
            return Err(permanent(writing(scope), PointerError::NoView));
        };
        let mut values = BTreeMap::new();
        for (property, pointer) in found {
            let moved = location.pointer(
                &scope.folder,
                &property,
                pointer.bytes,
                pointer.sha256.clone(),
            );
            let mut moved = moved.map_err(|error| permanent(writing(scope), error))?;
            if let (ValueLocation::Files { .. }, Some(container)) = (&location, &pointer.container)
            {
                // The value is moved from a blob to a file, which has no content type. So the pointer records the
                // content type of the blob.
                let version =
                    version(scope, from.location.account(), container, &pointer.name).await?;
                moved.content_type = version.map(|version| version.content_type);
            }
            let (Some(site), Some(supply)) = (location.site(&moved), from.supply(pointer)) else {
                continue;
            };
            entity.properties.insert(property, moved.to_string().into());
            values.insert(
                ItemAddress::whole(view.clone(), location.account().clone(), site),
                supply,
            );
        }
        self.supply(values);
        Ok(entity)
    }

    pub(crate) fn supply(&mut self, values: BTreeMap<ItemAddress, Supply>) {
        self.supplies = values;
    }

    /// Waits for memory if this pass must copy large values itself. Contents that arrived with the job need no more
    /// memory, because they are already counted with the job's message or the staged entity. Copies that the service
    /// makes need no memory.
    pub(crate) async fn take_slot(&mut self, scope: &Scope<'_>) {
        let carried = |(address, supply): (&ItemAddress, &Supply)| match supply {
            Supply::Bytes { .. } => false,
            Supply::Copy { account, .. } => {
                *account != address.account || !matches!(address.site, Site::Blob { .. })
            }
            Supply::Staged(_) | Supply::File { .. } => true,
        };
        if self.slot.is_none() && self.supplies.iter().any(carried) {
            self.slot = Some(
                scope
                    .env
                    .memory
                    .take_untimed(MemoryShare::Values, VALUE_BYTES)
                    .await,
            );
        }
    }

    /// Creates the blob of a value if it does not exist.
    pub(crate) async fn upload(
        &self,
        scope: &Scope<'_>,
        address: &ItemAddress,
        to: (&ContainerName, &BlobName),
        mut upload: BlobUpload,
    ) -> Result<Result<ETag, StoreError>, Failure> {
        let blobs = scope.target(&address.account)?.blobs.as_ref();
        upload.cache_control = Some(CACHE_CONTROL.to_owned());
        let Some(supply) = self.supplies.get(address) else {
            return Err(permanent(
                format!("writing {address}"),
                PointerError::Dangling(address.site.clone()),
            ));
        };
        match supply {
            Supply::Bytes {
                content,
                content_type,
            } => {
                upload.content_type = Some(content_type.clone());
                Ok(blobs.put(to.0, to.1, content.clone(), &upload).await)
            }
            Supply::Staged(staged) => {
                upload.content_type = Some(staged.content_type.clone());
                let from = scope.target(&staged.account)?.blobs.as_ref();
                Ok(carry(from, staged, blobs, to, &upload).await)
            }
            Supply::Copy {
                account,
                container,
                pointer,
            } if *account == address.account => {
                let copying = BlobCopy {
                    condition: upload.condition,
                    metadata: Some(upload.metadata),
                };
                match blobs.copy((container, &pointer.name), to, &copying).await {
                    Err(error) if error.is_missing_item() => Err(missing_blob(address, pointer)),
                    copied => Ok(copied),
                }
            }
            Supply::Copy {
                account,
                container,
                pointer,
            } => {
                let staged = version(scope, account, container, &pointer.name).await?;
                let Some(staged) = staged else {
                    return Err(missing_blob(address, pointer));
                };
                upload.content_type = Some(staged.content_type.clone());
                let from = scope.target(account)?.blobs.as_ref();
                Ok(carry(from, &staged, blobs, to, &upload).await)
            }
            Supply::File {
                place,
                content_type,
            } => {
                upload.content_type.clone_from(content_type);
                // The file belongs to the archived entity, so `own_files` would refuse it. No check is needed, because
                // `take_in` has selected only pointers into the folder of that entity.
                let files = scope.env.stores.files();
                let files = files.map_err(|error| {
                    permanent(format!("finding the folder of {address}"), error)
                })?;
                let found = files.find(place).await;
                let found = found.map_err(|error| {
                    storage(format!("reading {}/{}", place.dir, place.name), error)
                })?;
                let Some(found) = found else {
                    return Err(missing_file(address, place));
                };
                let mark = &found.mark;
                let read = |range: Range<u64>| files.read_at(place, range, mark);
                Ok(carry_by(read, found.length, blobs, to.0, to.1, &upload).await)
            }
        }
    }

    /// Creates the file of a value if it does not exist.
    pub(crate) async fn bring_into_file(
        &self,
        scope: &Scope<'_>,
        address: &ItemAddress,
        place: &FilePlace,
    ) -> Result<Result<ETag, StoreError>, Failure> {
        let files = own_files(scope, place)?;
        let Some(supply) = self.supplies.get(address) else {
            return Err(permanent(
                format!("writing {address}"),
                PointerError::Dangling(address.site.clone()),
            ));
        };
        match supply {
            Supply::Copy {
                account,
                container,
                pointer,
            } => {
                let Some(staged) = version(scope, account, container, &pointer.name).await? else {
                    return Err(missing_blob(address, pointer));
                };
                let from = scope.target(account)?.blobs.as_ref();
                let staged = &staged;
                let read = move |range: Range<u64>| {
                    from.get_at(&staged.container, &staged.name, range, &staged.etag)
                };
                let pieces = stream::iter(ranges(staged.length).map(read))
                    .buffered(BLOCKS_AT_ONCE)
                    .boxed();
                Ok(files.write_pieces(place, pieces).await)
            }
            Supply::Bytes { content, .. } => Ok(files
                .write_pieces(place, stream::iter([Ok(content.clone())]).boxed())
                .await),
            Supply::Staged(_) | Supply::File { .. } => Err(permanent(
                format!("writing {address}"),
                "staged values and files cannot be copied into a folder",
            )),
        }
    }
}

/// Where the large values of this primary are stored. Another primary that takes over the entity copies them from
/// there. `None` if entities of the table cannot have large values.
pub(crate) fn origin(scope: &Scope<'_>) -> Option<ValueOrigin> {
    let (_, location) = scope.env.catalog.value_location_of(scope.source)?;
    Some(ValueOrigin {
        location,
        folder: scope.folder.clone(),
    })
}

/// Rejects a client's pointer if it leads to a blob of another entity.
pub(crate) fn refuse_foreign(scope: &Scope<'_>, entity: Option<&Entity>) -> Result<(), Failure> {
    if scope.env.catalog.large_values_of(scope.source).is_none() {
        return Ok(());
    }
    let foreign = entity
        .into_iter()
        .flat_map(Entity::user_properties)
        .find_map(|(property, value)| {
            let pointer = Pointer::of(value)
                .filter(|pointer| !pointer.is_of(&scope.folder) || pointer.container.is_none())?;
            let to = pointer
                .container
                .iter()
                .map(|container| format!("{container}/"))
                .chain([pointer.name.to_string()])
                .collect();
            Some(PointerError::Foreign {
                property: property.clone(),
                to,
            })
        });
    foreign.map_or(Ok(()), |error| Err(permanent(writing(scope), error)))
}

fn writing(scope: &Scope<'_>) -> String {
    format!("writing the primary {}", scope.primary)
}

async fn version(
    scope: &Scope<'_>,
    account: &AccountName,
    container: &ContainerName,
    name: &BlobName,
) -> Result<Option<Staged>, Failure> {
    let found = scope
        .target(account)?
        .blobs
        .properties(container, name)
        .await;
    let found = found.map_err(|error| storage(format!("reading {container}/{name}"), error))?;
    Ok(found.map(|found| Staged::of(account.clone(), container.clone(), name.clone(), found)))
}

/// Returns the file store if the file at `place` belongs to this entity, that is, if the file is in the folder of the
/// entity's archive, and in the entity's own subfolder.
pub(crate) fn own_files<'e>(
    scope: &Scope<'e>,
    place: &FilePlace,
) -> Result<&'e dyn FileStore, Failure> {
    let step = || format!("finding the folder of {}", scope.primary);
    let archived = scope.env.catalog.archived_values_in(scope.source);
    let is_here = archived.is_some_and(
        |archived| matches!(&archived.location, ValueLocation::Files { dir, .. } if *dir == place.dir),
    );
    if !is_here || !scope.folder.has(&place.name) {
        return Err(permanent(
            step(),
            ForeignFile {
                place: place.clone(),
                primary: scope.primary.clone(),
            },
        ));
    }
    scope
        .env
        .stores
        .files()
        .map_err(|error| permanent(step(), error))
}

/// The failure is transient, because the entity of the missing value may just have been deleted. The next delivery
/// detects the deletion.
fn missing_blob(address: &ItemAddress, pointer: &Pointer) -> Failure {
    let site = match &pointer.container {
        Some(container) => Site::Blob {
            container: container.clone(),
            name: pointer.name.clone(),
        },
        None => address.site.clone(),
    };
    missing_value(address, site)
}

fn missing_file(address: &ItemAddress, place: &FilePlace) -> Failure {
    missing_value(
        address,
        Site::File {
            dir: place.dir.clone(),
            name: place.name.clone(),
        },
    )
}

fn missing_value(address: &ItemAddress, site: Site) -> Failure {
    Failure::new(
        FailureClass::Transient { retry_after: None },
        format!("writing {address}"),
        PointerError::Dangling(site),
    )
}

async fn carry(
    from: &dyn BlobStore,
    staged: &Staged,
    blobs: &dyn BlobStore,
    to: (&ContainerName, &BlobName),
    upload: &BlobUpload,
) -> Result<ETag, StoreError> {
    let read =
        |range: Range<u64>| from.get_at(&staged.container, &staged.name, range, &staged.etag);
    carry_by(read, staged.length, blobs, to.0, to.1, upload).await
}

async fn carry_by<R: Future<Output = Result<Bytes, StoreError>>>(
    read: impl Fn(Range<u64>) -> R,
    length: u64,
    blobs: &dyn BlobStore,
    container: &ContainerName,
    name: &BlobName,
    upload: &BlobUpload,
) -> Result<ETag, StoreError> {
    if length <= BLOCK_BYTES {
        return blobs
            .put(container, name, read(0..length).await?, upload)
            .await;
    }
    let block = |(number, range): (u128, Range<u64>)| {
        let (id, content) = (BlockId::numbered(number), read(range));
        async move {
            blobs
                .put_block(container, name, id, content.await?)
                .await
                .map(|()| id)
        }
    };
    let blocks: Vec<BlockId> = stream::iter((0..).zip(ranges(length)).map(block))
        .buffered(BLOCKS_AT_ONCE)
        .try_collect()
        .await?;
    blobs.put_block_list(container, name, &blocks, upload).await
}

pub(crate) async fn hash(blobs: &dyn BlobStore, staged: &Staged) -> Result<String, StoreError> {
    let read =
        |range: Range<u64>| blobs.get_at(&staged.container, &staged.name, range, &staged.etag);
    let blocks = stream::iter(ranges(staged.length).map(read)).buffered(BLOCKS_AT_ONCE);
    let hash = blocks.try_fold(Sha256::new(), |hash, block| {
        std::future::ready(Ok(hash.chain_update(block)))
    });
    Ok(hex::encode(hash.await?.finalize()))
}

fn ranges(length: u64) -> impl Iterator<Item = Range<u64>> {
    (0..length.div_ceil(BLOCK_BYTES))
        .map(move |number| number * BLOCK_BYTES..((number + 1) * BLOCK_BYTES).min(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_copied_in_consecutive_blocks() {
        let of = |length| ranges(length).collect::<Vec<_>>();
        assert!(of(0).is_empty());
        assert_eq!(of(BLOCK_BYTES), vec![0..BLOCK_BYTES]);
        assert_eq!(
            of(2 * BLOCK_BYTES + 1).last(),
            Some(&(2 * BLOCK_BYTES..2 * BLOCK_BYTES + 1))
        );
    }
}
