//! Reads derived items from rows and blobs, and the lists of items from footprints. This is a second, simple
//! implementation, which does not use the program's code.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use base64::Engine as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::archives;
use evenkeel_account::company::{base, located};
use evenkeel_model::range_overlay::RANGE_OVERLAYS;
use evenkeel_model::{AccountName, EdmValue, Entity, EntityKey};
use evenkeel_storage::Blob;

pub(super) type Address = (String, EntityKey);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ItemPlace {
    Row(String, EntityKey),
    /// The name of the container, as [`located`] returns it, and the name of the blob.
    Blob(String, String),
    File(String, String),
    Document(String, String),
}

/// An item. First, the row, blob, file or document that contains the item. Second, the part of this content that is the
/// item, as JSON. The part is empty if the item is the whole content.
pub(super) type Item = (ItemPlace, String);

type ListedItem = (
    String,
    u32,
    String,
    Vec<String>,
    Option<serde_json::Value>,
    Option<String>,
    u8,
);

pub(super) type Properties = BTreeMap<String, EdmValue>;
pub(super) type MemberValues = Vec<String>;

impl fmt::Display for ItemPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Row(table, key) => write!(f, "{table}{key}"),
            Self::Blob(place, name) | Self::File(place, name) | Self::Document(place, name) => {
                write!(f, "{place}/{name}")
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct HeldItem {
    pub(super) item: Item,
    pub(super) owner: Address,
    /// The properties of the item. They are empty for a member of a list, because the JSON in `item` contains the
    /// values of the member.
    pub(super) says: Properties,
}

/// Returns the primary of the footprint with this key. A long partition key would be replaced by a hash, but the
/// simulation has only short keys.
pub(super) fn primary_of(key: &EntityKey) -> Address {
    let (table, pk) = key.pk.as_str().split_once('~').unwrap_or_default();
    let key = EntityKey::new(pk, key.rk.as_str()).unwrap_or_else(|_| key.clone());
    (table.to_owned(), key)
}

pub(super) fn listed(footprint: &Entity) -> Result<BTreeMap<Item, bool>, String> {
    let unreadable = || {
        format!(
            "the footprint {} cannot be read: {footprint:?}",
            footprint.key
        )
    };
    let mut text = footprint.text("Items").ok_or_else(unreadable)?.to_owned();
    for piece in (1..).map_while(|number| footprint.text(&format!("Items_{number}"))) {
        text.push_str(piece);
    }
    let items: Vec<ListedItem> = serde_json::from_str(&text).map_err(|_| unreadable())?;
    let mut listed = BTreeMap::new();
    for (_, _, account, site, part, _, changing) in items {
        let account = AccountName::new(account).map_err(|_| unreadable())?;
        let part = part.map(|part| part.to_string()).unwrap_or_default();
        let site: Vec<&str> = site.iter().map(String::as_str).collect();
        let place = match site.as_slice() {
            ["row", table, pk, rk] => ItemPlace::Row(
                located(&account, table),
                EntityKey::new(*pk, *rk).map_err(|_| unreadable())?,
            ),
            ["blob", container, name] => {
                ItemPlace::Blob(located(&account, container), (*name).to_owned())
            }
            ["file", dir, name] => ItemPlace::File((*dir).to_owned(), (*name).to_owned()),
            ["document", collection, key] => {
                ItemPlace::Document((*collection).to_owned(), (*key).to_owned())
            }
            _ => return Err(unreadable()),
        };
        listed.insert((place, part), changing != 0);
    }
    Ok(listed)
}

pub(super) fn member(texts: &[String]) -> String {
    serde_json::json!({"member": texts}).to_string()
}

/// Returns the items that a row contains, or an error if the row is inconsistent.
pub(super) fn held(table: &str, row: &Entity) -> Result<Vec<HeldItem>, String> {
    let sets = sets(table, row)?;
    if row.text("ek_view").is_none() {
        return Ok(sets);
    }
    let source: Vec<String> = row
        .text("ek_source")
        .and_then(|source| serde_json::from_str(source).ok())
        .unwrap_or_default();
    match source.as_slice() {
        [source, pk, rk] => {
            let Ok(key) = EntityKey::new(pk.as_str(), rk.as_str()) else {
                return Ok(Vec::new());
            };
            let says = row
                .properties
                .iter()
                .filter(|(name, _)| !name.starts_with("ek_"))
                .map(|(n, v)| (n.clone(), v.clone()))
                .collect();
            Ok(vec![HeldItem {
                item: (
                    ItemPlace::Row(table.to_owned(), row.key.clone()),
                    String::new(),
                ),
                owner: (source.clone(), key),
                says,
            }])
        }
        [source] => members(table, source, row),
        _ => Ok(Vec::new()),
    }
}

fn sets(table: &str, row: &Entity) -> Result<Vec<HeldItem>, String> {
    let wrong = || {
        format!(
            "the properties that views set on {table}{} are inconsistent: {row:?}",
            row.key
        )
    };
    let mut held = Vec::new();
    let mut known = BTreeSet::from(["Name".to_owned()]);
    for (_, owner) in row
        .properties
        .iter()
        .filter(|(name, _)| name.starts_with("ek_owner_"))
    {
        let owner: serde_json::Value = owner
            .as_str()
            .and_then(|owner| serde_json::from_str(owner).ok())
            .ok_or_else(wrong)?;
        let names: Vec<String> =
            serde_json::from_value(owner["set"].clone()).map_err(|_| wrong())?;
        if owner["by_range"] == true {
            // A range overlay has set these properties. Then the overlay is the item, and not the properties on each
            // entity.
            continue;
        }
        let source = &owner["source"];
        let of = source["table"].as_str().ok_or_else(wrong)?;
        let key = serde_json::from_value(json!({"pk": source["pk"], "rk": source["rk"]}))
            .map_err(|_| wrong())?;
        let says: Option<Properties> = names
            .iter()
            .map(|name| Some((name.clone(), row.get(name)?.clone())))
            .collect();
        let item = (
            ItemPlace::Row(table.to_owned(), row.key.clone()),
            set_part(),
        );
        held.push(HeldItem {
            item,
            owner: (of.to_owned(), key),
            says: says.ok_or_else(wrong)?,
        });
        known.extend(names);
    }
    let nobodys = |name: &String| !name.starts_with("ek_") && !known.contains(name);
    if table == "Departments" && row.properties.keys().any(nobodys) {
        Err(wrong())
    } else {
        Ok(held)
    }
}

pub(super) fn set_part() -> String {
    "\"properties\"".to_owned()
}

fn members(table: &str, source: &str, row: &Entity) -> Result<Vec<HeldItem>, String> {
    let wrong = || format!("the list {table}{} is inconsistent: {row:?}", row.key);
    let list = row
        .text("ek_list")
        .and_then(|property| row.text(property))
        .ok_or_else(wrong)?;
    let members: Vec<MemberValues> = serde_json::from_str(list).map_err(|_| wrong())?;
    let tokens: Vec<String> = row
        .text("ek_tokens")
        .and_then(|tokens| serde_json::from_str(tokens).ok())
        .ok_or_else(wrong)?;
    let sorted: BTreeSet<&MemberValues> = members.iter().collect();
    if !members.iter().eq(sorted) || tokens.len() != members.len() || members.is_empty() {
        return Err(wrong());
    }
    counted(table, row, &members)?;
    members_of(
        &ItemPlace::Row(table.to_owned(), row.key.clone()),
        (source, row.key.pk.as_str()),
        &members,
    )
}

/// Checks that the counters of a row match the members that the row lists.
fn counted(table: &str, row: &Entity, members: &[MemberValues]) -> Result<(), String> {
    let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
    let mut wanted = vec![("ek_count", EdmValue::Int64(count))];
    if base(table) == "Groups" {
        let versions = members
            .iter()
            .flatten()
            .filter_map(|text| text.strip_prefix("Version=i")?.parse::<i64>().ok())
            .sum();
        wanted.extend([
            ("Headcount", EdmValue::Int64(count)),
            ("Versions", EdmValue::Int64(versions)),
        ]);
    }
    match wanted
        .iter()
        .find(|(name, value)| row.get(name) != Some(value))
    {
        None => Ok(()),
        Some(_) => Err(format!(
            "the list {table}{} is inconsistent: {row:?}",
            row.key
        )),
    }
}

pub(super) fn members_of(
    place: &ItemPlace,
    (source, pk): (&str, &str),
    members: &[MemberValues],
) -> Result<Vec<HeldItem>, String> {
    let is_overlays = matches!(place, ItemPlace::Row(table, _) if base(table) == RANGE_OVERLAYS);
    let held = members.iter().map(|texts| {
        let key = match texts.as_slice() {
            [overlay] if is_overlays => serde_json::from_str::<Value>(overlay)
                .ok()
                .and_then(|overlay| serde_json::from_value(overlay["owner"].clone()).ok()),
            // A list in the partition of its primaries may omit the partition key.
            [rk] => EntityKey::new(pk, rk.as_str()).ok(),
            [pk, rk, ..] => EntityKey::new(pk.as_str(), rk.as_str()).ok(),
            [] => None,
        };
        let key =
            key.ok_or_else(|| format!("{place} has a member without a valid key: {texts:?}"))?;
        Ok(HeldItem {
            item: (place.clone(), member(texts)),
            owner: (source.to_owned(), key),
            says: Properties::new(),
        })
    });
    held.collect()
}

/// Returns the name of the virtual table of an archive. The primaries of archived large values are in this table.
pub(super) fn filing(archive: &str) -> String {
    let capital = |word: &str| {
        word.chars()
            .take(1)
            .flat_map(char::to_uppercase)
            .chain(word.chars().skip(1))
            .collect::<String>()
    };
    let name: String = archive.split('_').map(capital).collect();
    format!(
        "EvenkeelArchive{name}{}",
        hex::encode(&Sha256::digest(archive)[..4])
    )
}

/// Returns the primary of a large value that is stored next to its document. The name of the value is
/// `pk/rk.json%values/…`.
pub(super) fn value_owner(archive: &str, name: &str) -> Option<Address> {
    let (document, _) = name.split_once(".json%values/")?;
    let (pk, rk) = document.split_once('/')?;
    Some((filing(archive), EntityKey::new(pk, rk).ok()?))
}

pub(super) fn document_key(key: &str) -> Option<Address> {
    let json = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(key)
        .ok()?;
    let [table, pk, rk]: [String; 3] = serde_json::from_slice(&json).ok()?;
    let table = archives::SOURCES
        .into_iter()
        .find(|source| source.eq_ignore_ascii_case(&table))?;
    Some((table.to_owned(), EntityKey::new(pk, rk).ok()?))
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum BlobContent {
    List(String, Vec<MemberValues>),
    Value(Address),
    Other,
}

/// Returns the items that a blob contains, or an error if the blob is inconsistent.
pub(super) fn content(place: &ItemPlace, blob: &Blob) -> Result<BlobContent, String> {
    let metadata = |name: &str| blob.properties.metadata.get(name);
    let wrong = || {
        format!(
            "{place} is inconsistent: {:?}",
            String::from_utf8_lossy(&blob.content)
        )
    };
    let source: MemberValues = match metadata("ek_source").filter(|_| metadata("ek_view").is_some())
    {
        None => return Ok(BlobContent::Other),
        Some(source) => serde_json::from_str(source).map_err(|_| wrong())?,
    };
    match source.as_slice() {
        [table, pk, rk] => Ok(BlobContent::Value((
            table.clone(),
            EntityKey::new(pk.as_str(), rk.as_str()).map_err(|_| wrong())?,
        ))),
        [table] => {
            let text = std::str::from_utf8(&blob.content).map_err(|_| wrong())?;
            let mut lines = text.lines();
            let head: Value = lines
                .next()
                .and_then(|head| serde_json::from_str(head).ok())
                .ok_or_else(wrong)?;
            let members = lines.map(|line| {
                serde_json::from_str::<(MemberValues, String)>(line).map(|(member, _)| member)
            });
            let members: Vec<MemberValues> =
                members.collect::<Result<_, _>>().map_err(|_| wrong())?;
            let count = members.len();
            let told = metadata("ek_count").is_some_and(|told| *told == count.to_string())
                && head["ek_count"] == count;
            if told && members.is_sorted_by(|one, next| one < next) {
                Ok(BlobContent::List(table.clone(), members))
            } else {
                Err(wrong())
            }
        }
        _ => Err(wrong()),
    }
}
