//! From a row in its table to a resolved entity: blobs in the place of pointers, the pieces of a list put together.

use std::collections::BTreeMap;

use sha2::{Digest as _, Sha256};

use super::{Client, ClientError, lists};
use evenkeel_model::catalog::TableRef;
use evenkeel_model::model::large::{self, Pointer, SPILLED};
use evenkeel_model::model::{EdmValue, Entity, Row, Site};
use evenkeel_model::ports::{Account, BlobProperties, ErrorClass};
use evenkeel_model::shared;

/// Joins the pieces of a list, wherever they lie.
pub(super) async fn joined(account: &Account, table: &TableRef, entity: Entity) -> Result<Entity, ClientError> {
    if shared::list_view(&entity).is_none() {
        return Ok(entity);
    }
    let site = Site::Row { table: table.table.clone(), key: entity.key.clone() };
    let (list, _) = lists::of_row(account, &site, &entity).await?;
    Ok(list.join(entity))
}

/// Puts properties that have left their row back into it. And the requests that it took.
pub(super) async fn rejoined(client: &Client, table: &TableRef, entity: Entity) -> Result<(Entity, u64), ClientError> {
    let Some(pointer) = entity.get(SPILLED).and_then(Pointer::of) else { return Ok((large::rejoined(entity, BTreeMap::new()), 0)) };
    let mut content = Vec::new();
    let taken = read(client, table, SPILLED, &pointer, |part, _| {
        content.extend_from_slice(part);
        Ok(())
    });
    let requests = taken.await?.requests;
    Ok((with_spilled(entity, &pointer, &content)?, requests))
}

/// An entity with the properties in this content, which have left its row.
pub(super) fn with_spilled(entity: Entity, pointer: &Pointer, content: &[u8]) -> Result<Entity, ClientError> {
    let broken = |problem| ClientError::Broken(format!("property {SPILLED} points to {}: {problem}", pointer.name));
    Ok(large::rejoined(entity, large::spilled(pointer, content).map_err(broken)?))
}

/// Puts the content of blobs where properties of a table's row point to them.
pub(super) async fn resolve(client: &Client, table: &TableRef, row: &mut Row) -> Result<(), ClientError> {
    let pointers: Vec<(String, Pointer)> =
        row.entity.properties.iter().filter_map(|(name, value)| Some((name.clone(), Pointer::of(value)?))).collect();
    for (name, pointer) in pointers {
        let (mut content, mut content_type) = (Vec::new(), String::new());
        let taken = read(client, table, &name, &pointer, |part, properties| {
            content.extend_from_slice(part);
            content_type.clone_from(&properties.content_type);
            Ok(())
        });
        taken.await?;
        let value = if content_type.starts_with("text/") {
            String::from_utf8(content).map_or_else(|error| EdmValue::Binary(error.into_bytes()), EdmValue::String)
        } else {
            EdmValue::Binary(content)
        };
        row.entity.properties.insert(name, value);
    }
    Ok(())
}

/// Bytes of a value that are read at once.
const PART_BYTES: u64 = 4 << 20;

/// A content that was read.
pub(super) struct ReadContent {
    /// Its length in bytes.
    pub(super) bytes: u64,
    /// Storage requests that it took.
    pub(super) requests: u64,
}

/// Reads the content that a property points to, part by part, and checks its hash at the end.
pub(super) async fn read(
    client: &Client,
    table: &TableRef,
    property: &str,
    pointer: &Pointer,
    mut take: impl FnMut(&[u8], &BlobProperties) -> std::io::Result<()> + Send,
) -> Result<ReadContent, ClientError> {
    let name = &pointer.name;
    let Some(container) = &pointer.container else {
        return Err(ClientError::Broken(format!(
            "property {property} points to the file {name}, which only its document knows where to find"
        )));
    };
    let broken = |what| ClientError::Broken(format!("property {property} points to {container}/{name}, {what}"));
    let failed = || ClientError::store(format!("reading the blob of property {property}"));
    let (mut found, mut requests) = (None, 0);
    // Names tell contents: whichever account has it, has this one.
    for account in client.accounts_of(table, container) {
        let blobs = &client.account(account)?.blobs;
        requests += 1;
        if let Some(properties) = blobs.properties(container, name).await.map_err(failed())? {
            found = Some((blobs, properties));
            break;
        }
    }
    let (blobs, found) = found.ok_or_else(|| broken("which does not exist"))?;
    let (mut hash, mut at) = (Sha256::new(), 0);
    // An empty one is a part of nothing.
    loop {
        let end = found.length.min(at + PART_BYTES);
        requests += 1;
        let part = blobs.get_at(container, name, at..end, &found.etag).await.map_err(|error| {
            let is_gone = error.class == ErrorClass::Precondition;
            if is_gone { broken("which went away while it was read") } else { failed()(error) }
        })?;
        hash.update(&part);
        take(&part, &found).map_err(ClientError::Output)?;
        at = end;
        if at >= found.length {
            break;
        }
    }
    if hex::encode(hash.finalize()) != pointer.sha256 {
        return Err(broken("whose content is not what was written"));
    }
    Ok(ReadContent { bytes: found.length, requests })
}
