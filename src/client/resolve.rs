//! From a row as it lies in its table to what it means: blobs in the place of pointers, the pieces of a list put together.

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::{ClientError, lists};
use crate::catalog::TableRef;
use crate::model::item::VIEW_PROPERTY;
use crate::model::{BlobName, ContainerName, EdmValue, Entity, Row, Site, ViewName};
use crate::ports::Account;
use crate::shared;

/// Joins the pieces of a list, wherever they lie.
pub(super) async fn joined(account: &Account, table: &TableRef, entity: Entity) -> Result<Entity, ClientError> {
    let view = entity.text(VIEW_PROPERTY).and_then(|view| ViewName::new(view).ok());
    if !view.is_some_and(|view| shared::is_list_of(&view, &entity)) {
        return Ok(entity);
    }
    let site = Site::Row { table: table.table.clone(), key: entity.key.clone() };
    let (list, _) = lists::of_row(account, &site, &entity).await?;
    Ok(list.join(entity))
}

/// Puts the content of blobs where properties point to them.
pub(super) async fn resolve(account: &Account, row: &mut Row) -> Result<(), ClientError> {
    let pointers: Vec<(String, Pointer)> =
        row.entity.properties.iter().filter_map(|(name, value)| Some((name.clone(), Pointer::read(value)?))).collect();
    for (name, pointer) in pointers {
        let found = account.blobs.get(&pointer.container, &pointer.blob, None).await;
        let blob = found.map_err(ClientError::store(format!("reading the blob of property {name}")))?;
        let broken = |what| ClientError::Broken(format!("property {name} points to {}/{}, {what}", pointer.container, pointer.blob));
        let blob = blob.ok_or_else(|| broken("which does not exist"))?;
        if hex::encode(Sha256::digest(&blob.content)) != pointer.sha256 {
            return Err(broken("whose content is not what was written"));
        }
        let content = blob.content.to_vec();
        let value = if blob.properties.content_type.starts_with("text/") {
            String::from_utf8(content).map_or_else(|error| EdmValue::Binary(error.into_bytes()), EdmValue::String)
        } else {
            EdmValue::Binary(content)
        };
        row.entity.properties.insert(name, value);
    }
    Ok(())
}

/// A property whose value lies in a blob: `{"$blob": "container/name", "bytes": n, "sha256": …}` as a string.
#[derive(Debug, PartialEq, Eq)]
struct Pointer {
    container: ContainerName,
    blob: BlobName,
    sha256: String,
}

impl Pointer {
    fn read(value: &EdmValue) -> Option<Self> {
        let text = value.as_str().filter(|text| text.starts_with('{'))?;
        let object: Map<String, Value> = serde_json::from_str(text).ok()?;
        let (container, blob) = object.get("$blob")?.as_str()?.split_once('/')?;
        let sha256 = object.get("sha256")?.as_str()?.to_owned();
        Some(Self { container: ContainerName::new(container).ok()?, blob: BlobName::new(blob).ok()?, sha256 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_pointer_is_followed() {
        let pointer = EdmValue::from(r#"{"$blob":"employee-large/Sales/7/abc","bytes":3,"sha256":"00"}"#);
        assert_eq!(Pointer::read(&pointer).unwrap().blob.as_str(), "Sales/7/abc");
        for text in ["", "{", "{}", r#"{"$blob":"x"}"#, r#"{"$blob":"employee-large/a"}"#, r#"["$blob"]"#] {
            assert_eq!(Pointer::read(&text.into()), None, "{text}");
        }
    }
}
