//! What lies derived in rows and what footprints list, read by simple means of its own.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{EdmValue, Entity, EntityKey};

/// A row: its table and key.
pub(super) type Address = (String, EntityKey);

/// An item: its table, its key, and which part of what lies there it is, as JSON; empty where it is all of it.
pub(super) type Item = (String, EntityKey, String);

/// A whole row as a footprint spells it: view, generation, account, table, pk, rk, ETag, changing.
type ListedRow = (String, u32, String, String, String, String, Option<String>, u8);
/// Any item: view, generation, account, site, part, ETag or token, changing.
type ListedItem = (String, u32, String, Vec<String>, Option<serde_json::Value>, Option<String>, u8);

pub(super) type Properties = BTreeMap<String, EdmValue>;

/// One item that lies in a row.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Held {
    pub(super) item: Item,
    /// The primary that it belongs to.
    pub(super) owner: Address,
    /// What it says; nothing for a member, which its address says all of.
    pub(super) says: Properties,
}

/// The primary whose footprint lies under this key. No partition key here is so long that it is hashed.
pub(super) fn primary_of(key: &EntityKey) -> Address {
    let (table, pk) = key.pk.as_str().split_once('~').unwrap_or_default();
    let key = EntityKey::new(pk, key.rk.as_str()).unwrap_or_else(|_| key.clone());
    (table.to_owned(), key)
}

/// The items that a footprint lists, and whether each is changing.
pub(super) fn listed(footprint: &Entity) -> Result<BTreeMap<Item, bool>, String> {
    let unreadable = || format!("the footprint {} cannot be read: {footprint:?}", footprint.key);
    let text = footprint.text("Items").ok_or_else(unreadable)?;
    let items: Vec<ListedItem> = if footprint.get("Version") == Some(&EdmValue::Int32(1)) {
        let rows: Vec<ListedRow> = serde_json::from_str(text).map_err(|_| unreadable())?;
        let item = |(view, generation, account, table, pk, rk, etag, changing): ListedRow| {
            (view, generation, account, vec!["row".to_owned(), table, pk, rk], None, etag, changing)
        };
        rows.into_iter().map(item).collect()
    } else {
        serde_json::from_str(text).map_err(|_| unreadable())?
    };
    let mut listed = BTreeMap::new();
    for (_, _, _, site, part, _, changing) in items {
        let [kind, table, pk, rk] = site.as_slice() else { return Err(unreadable()) };
        if kind != "row" {
            return Err(unreadable());
        }
        let part = part.map(|part| part.to_string()).unwrap_or_default();
        let key = EntityKey::new(pk.as_str(), rk.as_str()).map_err(|_| unreadable())?;
        listed.insert((table.clone(), key, part), changing != 0);
    }
    Ok(listed)
}

/// The part that a member is.
pub(super) fn member(texts: &[String]) -> String {
    serde_json::json!({"member": texts}).to_string()
}

/// The items that lie in a row. An error where it contradicts itself.
pub(super) fn held(table: &str, row: &Entity) -> Result<Vec<Held>, String> {
    let sets = sets(table, row)?;
    if row.text("ek_view").is_none() {
        return Ok(sets);
    }
    let source: Vec<String> = row.text("ek_source").and_then(|source| serde_json::from_str(source).ok()).unwrap_or_default();
    match source.as_slice() {
        [source, pk, rk] => {
            let Ok(key) = EntityKey::new(pk.as_str(), rk.as_str()) else { return Ok(Vec::new()) };
            let says = row.properties.iter().filter(|(name, _)| !name.starts_with("ek_")).map(|(n, v)| (n.clone(), v.clone())).collect();
            Ok(vec![Held { item: (table.to_owned(), row.key.clone(), String::new()), owner: (source.clone(), key), says }])
        }
        [source] => members(table, source, row),
        _ => Ok(Vec::new()),
    }
}

/// The properties that somebody else keeps on a row.
fn sets(table: &str, row: &Entity) -> Result<Vec<Held>, String> {
    let wrong = || format!("what is set on {table}{} contradicts itself: {row:?}", row.key);
    let mut held = Vec::new();
    let mut known = BTreeSet::from(["Name".to_owned()]);
    for (_, owner) in row.properties.iter().filter(|(name, _)| name.starts_with("ek_owner_")) {
        let owner: serde_json::Value = owner.as_str().and_then(|owner| serde_json::from_str(owner).ok()).ok_or_else(wrong)?;
        let texts = |name: &str| serde_json::from_value::<Vec<String>>(owner[name].clone()).map_err(|_| wrong());
        let (source, names) = (texts("source")?, texts("set")?);
        let [source, pk, rk] = source.as_slice() else { return Err(wrong()) };
        let key = EntityKey::new(pk.as_str(), rk.as_str()).map_err(|_| wrong())?;
        let says: Option<Properties> = names.iter().map(|name| Some((name.clone(), row.get(name)?.clone()))).collect();
        let item = (table.to_owned(), row.key.clone(), set_part());
        held.push(Held { item, owner: (source.clone(), key), says: says.ok_or_else(wrong)? });
        known.extend(names);
    }
    let nobodys = |name: &String| !name.starts_with("ek_") && !known.contains(name);
    if table == "Departments" && row.properties.keys().any(nobodys) { Err(wrong()) } else { Ok(held) }
}

/// The part that properties are.
pub(super) fn set_part() -> String {
    "\"properties\"".to_owned()
}

fn members(table: &str, source: &str, row: &Entity) -> Result<Vec<Held>, String> {
    let wrong = || format!("the list {table}{} contradicts itself: {row:?}", row.key);
    let list = row.text("ek_list").and_then(|property| row.text(property)).ok_or_else(wrong)?;
    let members: Vec<Vec<String>> = serde_json::from_str(list).map_err(|_| wrong())?;
    let tokens: Vec<String> = row.text("ek_tokens").and_then(|tokens| serde_json::from_str(tokens).ok()).ok_or_else(wrong)?;
    let sorted: BTreeSet<&Vec<String>> = members.iter().collect();
    let count = i64::try_from(members.len()).unwrap_or(i64::MAX);
    if !members.iter().eq(sorted) || tokens.len() != members.len() || row.get("ek_count") != Some(&EdmValue::Int64(count)) || count == 0 {
        return Err(wrong());
    }
    if table == "Groups" {
        let versions = members.iter().flatten().filter_map(|text| text.strip_prefix("Version=i")?.parse::<i64>().ok()).sum();
        let wanted = [("Headcount", EdmValue::Int64(count)), ("Versions", EdmValue::Int64(versions))];
        if wanted.iter().any(|(name, value)| row.get(name) != Some(value)) {
            return Err(wrong());
        }
    }
    let held = members.iter().map(|texts| {
        // In the primaries' own partition the list need not tell it.
        let (pk, rk) = match texts.as_slice() {
            [rk] => (row.key.pk.as_str(), rk),
            [pk, rk, ..] => (pk.as_str(), rk),
            [] => return Err(wrong()),
        };
        let key = EntityKey::new(pk, rk.as_str()).map_err(|_| wrong())?;
        let item = (table.to_owned(), row.key.clone(), member(texts));
        Ok(Held { item, owner: (source.to_owned(), key), says: Properties::new() })
    });
    held.collect()
}
