//! Turns a stored row into a complete entity: pointers are replaced by the content of their blobs, and the pieces of a
//! list are joined.
//!
//! Anyone who can write a row can put a pointer to any blob into it. Therefore a pointer is followed only to a blob in
//! the container that the catalog declares, and only if the blob belongs to the same entity or to the primary that the
//! row is a copy of. The content of the blob is used only if its length and hash match the pointer.

use sha2::{Digest as _, Sha256};

use super::{Client, ClientError, lists};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::job::Primary;
use evenkeel_model::large::{self, Pointer, ValueFolder};
use evenkeel_model::shared;
use evenkeel_model::{AccountName, ContainerName, EdmValue, Entity, Row, Site};
use evenkeel_storage::{BlobProperties, BlobStore, ErrorClass, StoreError};

pub(super) fn joined(table: &TableRef, entity: Entity) -> Result<Entity, ClientError> {
    if shared::list_view(&entity).is_none() {
        return Ok(entity);
    }
    let site = Site::Row {
        table: table.table.clone(),
        key: entity.key.clone(),
    };
    Ok(lists::of_row(&site, &entity)?.join(entity))
}

/// The account, container and folder of an entity's large values.
struct ValuePlace {
    account: AccountName,
    container: ContainerName,
    /// Prefix of the blob names.
    folder: ValueFolder,
}

impl Client {
    /// Returns the location of the blobs that a row may point to. For a copy, these are the blobs of its primary,
    /// otherwise those of the row's own entity. `None` if the primary does not exist or no longer has this copy. Also
    /// `None` if the table of that entity or primary has no large values.
    async fn value_place(
        &self,
        table: &TableRef,
        row: &Entity,
    ) -> Result<Option<ValuePlace>, ClientError> {
        let (origin, _) = self.origin(table, row).await?;
        Ok(origin.and_then(|origin| {
            let (_, large) = self.catalog.large_values_of(&origin.table)?;
            let home = Primary {
                table: origin.table.table.clone(),
                key: origin.entity.key.clone(),
            };
            Some(ValuePlace {
                account: large.account.clone(),
                container: large.container.clone(),
                folder: ValueFolder::of(&home),
            })
        }))
    }
}

/// Replaces pointers in a row by the content of their blobs.
pub(super) async fn resolve(
    client: &Client,
    table: &TableRef,
    row: &mut Row,
) -> Result<(), ClientError> {
    large::known_pointers(&row.entity).map_err(|error| {
        ClientError::Broken(format!("{}{}: {error}", table.table, row.entity.key))
    })?;
    let pointers: Vec<(String, Pointer)> = row
        .entity
        .properties
        .iter()
        .filter_map(|(name, value)| Some((name.clone(), Pointer::of(value)?)))
        .collect();
    if pointers.is_empty() {
        return Ok(());
    }
    let place = client.value_place(table, &row.entity).await?;
    for (name, pointer) in pointers {
        let mut content = Vec::new();
        let found = StoredValue::find(client, place.as_ref(), &name, &pointer).await?;
        found
            .read_parts(|part| {
                content.extend_from_slice(part);
                Ok(())
            })
            .await?;
        let value = if found.found.content_type.starts_with("text/") {
            String::from_utf8(content).map_or_else(
                |error| EdmValue::Binary(error.into_bytes()),
                EdmValue::String,
            )
        } else {
            EdmValue::Binary(content)
        };
        row.entity.properties.insert(name, value);
    }
    Ok(())
}

/// Reads the blob that a property points to, in parts, and returns its length. No part is passed on before the hash of
/// the whole content is verified, so a blob above `PART_BYTES` is read twice.
pub(super) async fn read(
    client: &Client,
    table: &TableRef,
    row: &Entity,
    property: &str,
    pointer: &Pointer,
    mut take: impl FnMut(&[u8]) -> std::io::Result<()> + Send,
) -> Result<u64, ClientError> {
    let place = client.value_place(table, row).await?;
    let value = StoredValue::find(client, place.as_ref(), property, pointer).await?;
    let mut whole = None;
    let is_one_part = value.found.length <= PART_BYTES;
    value
        .read_parts(|part| {
            whole = is_one_part.then(|| part.to_vec());
            Ok(())
        })
        .await?;
    match whole {
        Some(whole) => take(&whole).map_err(ClientError::Output)?,
        None => value.read_parts(take).await?,
    }
    Ok(value.found.length)
}

const PART_BYTES: u64 = 4 << 20;

/// The blob that a property points to. It has been found at one version, with the length that the pointer states.
struct StoredValue<'c> {
    property: &'c str,
    pointer: &'c Pointer,
    blobs: &'c dyn BlobStore,
    found: BlobProperties,
}

impl<'c> StoredValue<'c> {
    async fn find(
        client: &'c Client,
        place: Option<&ValuePlace>,
        property: &'c str,
        pointer: &'c Pointer,
    ) -> Result<Self, ClientError> {
        let name = &pointer.name;
        let Some(container) = &pointer.container else {
            return Err(ClientError::Broken(format!(
                "property {property} points to file {name}, which can be found only through its archived document"
            )));
        };
        let own =
            place.filter(|place| pointer.is_of(&place.folder) && place.container == *container);
        let Some(ValuePlace { account, .. }) = own else {
            return Err(broken(
                property,
                pointer,
                "which is not a blob of this entity in the present catalog; the pointer is not followed",
            ));
        };
        let blobs = client.account(account)?.blobs.as_ref();
        let found = blobs
            .properties(container, name)
            .await
            .map_err(failed(property))?;
        let found = found.ok_or_else(|| broken(property, pointer, "which does not exist"))?;
        if found.length != pointer.bytes {
            return Err(broken(
                property,
                pointer,
                &format!(
                    "which has {} bytes, expected {}",
                    found.length, pointer.bytes
                ),
            ));
        }
        Ok(Self {
            property,
            pointer,
            blobs,
            found,
        })
    }

    /// Reads the whole blob once and passes on its parts. The hash is compared at the end.
    async fn read_parts(
        &self,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()> + Send,
    ) -> Result<(), ClientError> {
        let broken = |what| broken(self.property, self.pointer, what);
        let Some(container) = &self.pointer.container else {
            return Err(broken("which is not a blob"));
        };
        let (mut hash, mut at) = (Sha256::new(), 0);
        // An empty blob has no part, but its hash must be compared as well.
        loop {
            let end = self.found.length.min(at + PART_BYTES);
            let part = self
                .blobs
                .get_at(container, &self.pointer.name, at..end, &self.found.etag)
                .await
                .map_err(|error| {
                    let is_gone = error.class == ErrorClass::Precondition;
                    if is_gone {
                        broken("which was changed or deleted during the read")
                    } else {
                        failed(self.property)(error)
                    }
                })?;
            hash.update(&part);
            take(&part).map_err(ClientError::Output)?;
            at = end;
            if at >= self.found.length {
                break;
            }
        }
        if hex::encode(hash.finalize()) == self.pointer.sha256 {
            Ok(())
        } else {
            Err(broken("whose content does not match its SHA-256"))
        }
    }
}

fn broken(property: &str, pointer: &Pointer, what: &str) -> ClientError {
    let container = pointer
        .container
        .as_ref()
        .map_or_else(String::new, |container| format!("{container}/"));
    ClientError::Broken(format!(
        "property {property} points to {container}{}, {what}",
        pointer.name
    ))
}

fn failed(property: &str) -> impl FnOnce(StoreError) -> ClientError {
    ClientError::store(format!("could not read the blob of property {property}"))
}
