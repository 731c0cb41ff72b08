//! `evenkeel get`

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::row::RowJson;
use super::{Context, Exit, Output, args, help};
use crate::catalog::TableRef;
use crate::model::item::VIEW_PROPERTY;
use crate::model::{BlobName, ContainerName, EdmValue, Entity, EntityKey, Key, Row, Site, ViewName};
use crate::ports::Account;
use crate::shared::{self, List};
use crate::wide;

/// Arguments of `get`.
#[derive(Debug, Args)]
#[command(after_help = help::after(&[
    ("evenkeel get Employees Sales 000223", "the entity, with its ETag and the EDM types that JSON lacks"),
    ("evenkeel get archive:FormerEmployees Sales 000223", "from a table of another account"),
    ("evenkeel get Employees Sales 000223 --resolve", "with the content of properties that lie in blobs"),
    ("evenkeel get EmployeeIndex last_name Kim --resolve", "a list in one piece, however long it is"),
]))]
pub struct GetArgs {
    /// The table, in any case; ACCOUNT:TABLE for another account than the catalog's or main
    #[arg(value_name = "TABLE")]
    pub table: String,
    /// The PartitionKey
    #[arg(value_name = "PK", value_parser = args::key, allow_hyphen_values = true)]
    pub pk: Key,
    /// The RowKey
    #[arg(value_name = "RK", value_parser = args::key, allow_hyphen_values = true)]
    pub rk: Key,
    /// Replace properties that point to a blob by the blob's content, and join the pieces of lists and the rows of wide entities
    #[arg(long)]
    pub resolve: bool,
}

/// Prints one entity.
pub async fn get(args: &GetArgs, context: &Context, out: &mut Output) -> anyhow::Result<Exit> {
    let table = context.table(&args.table)?;
    let key = EntityKey { pk: args.pk.clone(), rk: args.rk.clone() };
    let account = context.stores.account(&table.account)?;
    let reading = || format!("reading {table}{key}");
    let row = if args.resolve && context.catalog.wide.contains(&table) {
        wide::read(account.tables.as_ref(), &table.table, &key, false).await.with_context(reading)?.joined()
    } else {
        account.tables.get(&table.table, &key, None).await.with_context(reading)?
    };
    let Some(mut row) = row else { bail!(absent(&table, &key)) };
    if args.resolve {
        resolve(account, &mut row).await?;
        row.entity = joined(&table, row.entity)?;
    }
    out.value(&RowJson::of(&row))?;
    Ok(Exit::Done)
}

fn absent(table: &TableRef, key: &EntityKey) -> anyhow::Error {
    anyhow!("there is no entity {table}{key}")
}

/// Joins the pieces of a list.
fn joined(table: &TableRef, entity: Entity) -> anyhow::Result<Entity> {
    let view = entity.text(VIEW_PROPERTY).and_then(|view| ViewName::new(view).ok());
    if !view.is_some_and(|view| shared::is_list_of(&view, &entity)) {
        return Ok(entity);
    }
    let site = Site::Row { table: table.table.clone(), key: entity.key.clone() };
    Ok(List::join(&site, entity)?)
}

/// Puts the content of blobs where properties point to them.
async fn resolve(account: &Account, row: &mut Row) -> anyhow::Result<()> {
    let pointers: Vec<(String, Pointer)> =
        row.entity.properties.iter().filter_map(|(name, value)| Some((name.clone(), Pointer::read(value)?))).collect();
    for (name, pointer) in pointers {
        let found = account.blobs.get(&pointer.container, &pointer.blob, None).await;
        let blob = found.with_context(|| format!("reading the blob of property {name}"))?;
        let blob = blob.ok_or_else(|| anyhow!("property {name} points to {}/{}, which does not exist", pointer.container, pointer.blob))?;
        if hex::encode(Sha256::digest(&blob.content)) != pointer.sha256 {
            bail!("property {name} points to {}/{}, whose content is not what was written", pointer.container, pointer.blob);
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
