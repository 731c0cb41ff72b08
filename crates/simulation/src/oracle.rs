//! Computes the expected end state of the `company` world from scratch, by a second, simple implementation. It does not
//! use the program's catalog, templates and patterns, or its reader of footprints.

use std::collections::{BTreeMap, BTreeSet};

use super::items::{
    Address, HeldItem, Item, ItemPlace, Properties, held, listed, member, primary_of, set_part,
};
use evenkeel_account::company::Shape;
use evenkeel_account::company::base;
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::{EdmValue, EntityKey, Row};

pub type Tables = BTreeMap<String, Vec<Row>>;

#[derive(Debug, Default)]
pub struct Judgement {
    /// Items that several primaries want. Exactly one primary owns each item, and the others are in `losers` or
    /// `overwritten`.
    pub contested: BTreeSet<Item>,
    /// Primaries that did not get an item. Their jobs are poisoned.
    pub losers: BTreeSet<Address>,
    /// Primaries that have lost an item to a later writer. They are not notified.
    pub overwritten: BTreeSet<Address>,
    pub primaries: BTreeSet<Address>,
}

/// Escapes a text for a key. Each `%` and each character that Azure forbids in keys is replaced by `%` and the
/// hexadecimal code of each of its bytes.
pub(super) fn escaped(text: &str) -> String {
    let forbidden = |c: char| matches!(c, '%' | '/' | '\\' | '#' | '?') || c.is_control();
    let mut key = String::new();
    for c in text.chars() {
        if forbidden(c) {
            key.extend(
                c.encode_utf8(&mut [0; 4])
                    .bytes()
                    .flat_map(|byte| ['%', hex(byte >> 4), hex(byte & 15)]),
            );
        } else {
            key.push(c);
        }
    }
    key
}

fn hex(digit: u8) -> char {
    char::from_digit(u32::from(digit), 16)
        .unwrap_or_default()
        .to_ascii_uppercase()
}

fn own(row: &Row) -> Properties {
    row.entity
        .properties
        .iter()
        .filter(|(name, _)| !name.starts_with("ek_"))
        .map(|(n, v)| (n.clone(), v.clone()))
        .collect()
}

/// Returns the items that a primary should have in the `company` world, computed without the catalog.
pub(super) fn expected(
    table: &str,
    row: &Row,
    shape: Shape,
    departments: &BTreeSet<EntityKey>,
) -> Vec<(Item, Properties)> {
    let (pk, rk) = (row.entity.key.pk.as_str(), row.entity.key.rk.as_str());
    let own = own(row);
    let only = |names: &[&str]| {
        own.iter()
            .filter(|(name, _)| names.contains(&name.as_str()))
            .map(|(n, v)| (n.clone(), v.clone()))
            .collect()
    };
    let text = |name: &str| row.entity.text(name).filter(|text| !text.is_empty());
    let mut items: Vec<((&str, String, String), Properties)> = Vec::new();
    let mut parts: Vec<((&str, String, String), String, Properties)> = Vec::new();
    match table {
        "Employees" => {
            if let Some(email) = text("Email") {
                let prefix = if shape.anew { "mail" } else { "email" };
                items.push((
                    (
                        "ByEmail",
                        format!("{prefix}_{}", escaped(pk)),
                        escaped(&email.to_lowercase()),
                    ),
                    only(&["FirstName", "Email"]),
                ));
            }
            if shape.twins {
                items.push((
                    ("Employees", pk.to_owned(), format!("badge_{}", escaped(rk))),
                    own.clone(),
                ));
            }
            if let Some(name) = text("LastName") {
                if !shape.apart {
                    items.push((
                        (
                            "Employees",
                            pk.to_owned(),
                            format!("name_{name}_{}", escaped(rk)),
                        ),
                        own.clone(),
                    ));
                }
                if shape.near {
                    let list = ("Employees", pk.to_owned(), format!("list_{name}"));
                    parts.push((list, member(&[rk.to_owned()]), Properties::new()));
                }
                if shape.lists {
                    let list = ("Lists", format!("list_{name}"), "list".to_owned());
                    parts.push((
                        list,
                        member(&[pk.to_owned(), rk.to_owned()]),
                        Properties::new(),
                    ));
                }
            }
            if row.entity.get("IsManager") == Some(&EdmValue::Bool(true)) {
                items.push((
                    (
                        "Managers",
                        "managers".to_owned(),
                        escaped(&format!("{pk}_{rk}")),
                    ),
                    only(if shape.anew {
                        &["LastName", "FirstName"]
                    } else {
                        &["LastName"]
                    }),
                ));
                let name =
                    text("LastName").map(|name| ("ManagerName".to_owned(), EdmValue::from(name)));
                let email = text("Email").map(|email| {
                    (
                        "ManagerEmail".to_owned(),
                        EdmValue::from(format!("mailto:{}", email.to_lowercase())),
                    )
                });
                let set: Properties = name.into_iter().chain(email).collect();
                let home =
                    EntityKey::new(pk, "department").is_ok_and(|key| departments.contains(&key));
                if shape.sets && home && !set.is_empty() {
                    parts.push((
                        ("Departments", pk.to_owned(), "department".to_owned()),
                        set_part(),
                        set,
                    ));
                }
            }
            if shape.groups {
                let version = row.entity.get("Version").and_then(|version| {
                    if let EdmValue::Int64(version) = version {
                        Some(version)
                    } else {
                        None
                    }
                });
                let texts: Vec<String> = [pk.to_owned(), rk.to_owned()]
                    .into_iter()
                    .chain(version.map(|version| format!("Version=i{version}")))
                    .collect();
                parts.push((
                    ("Groups", "group".to_owned(), pk.to_owned()),
                    member(&texts),
                    Properties::new(),
                ));
            }
        }
        "FormerEmployees" if shape.former_index => {
            if let Some(email) = text("Email") {
                items.push((
                    (
                        "FormerByEmail",
                        escaped(&format!("former_{}", email.to_lowercase())),
                        escaped(&format!("{pk}_{rk}")),
                    ),
                    only(&["Email"]),
                ));
            }
        }
        "Managers" if shape.chain => {
            if let Some(name) = text("LastName") {
                items.push((
                    ("ManagersByName", name.to_owned(), escaped(rk)),
                    only(&["LastName"]),
                ));
            }
        }
        _ => {}
    }
    let rows = items
        .into_iter()
        .map(|(row, says)| (row, String::new(), says));
    let keyed = rows
        .chain(parts)
        .filter_map(|((table, pk, rk), part, says)| {
            let place = shape.placement.name_of(table, &pk);
            let key = EntityKey::new(pk, rk).ok()?;
            Some(((ItemPlace::Row(place, key), part), says))
        });
    keyed.collect()
}

pub fn judge(tables: &Tables, shape: Shape) -> Result<Judgement, String> {
    let mut judgement = Judgement::default();
    let mut wanted: BTreeMap<Item, (Address, Properties)> = BTreeMap::new();
    let mut wanting: BTreeMap<Item, Vec<Address>> = BTreeMap::new();
    let mut found: BTreeMap<Item, (Address, Properties)> = BTreeMap::new();
    let sources = ["Employees"]
        .into_iter()
        .chain(shape.former_index.then_some("FormerEmployees"))
        .chain(shape.chain.then_some("Managers"));
    let sources: BTreeSet<&str> = sources.collect();
    let departments = tables
        .get("Departments")
        .into_iter()
        .flatten()
        .map(|row| row.entity.key.clone())
        .collect();
    for (table, rows) in tables.iter().filter(|(table, _)| *table != FOOTPRINTS) {
        for row in rows {
            let address = (table.clone(), row.entity.key.clone());
            let held = held(table, &row.entity)?;
            let within = held.iter().any(|held| held.owner.0 == *table);
            if sources.contains(table.as_str()) && !within {
                judgement.primaries.insert(address.clone());
                for (item, properties) in expected(table, row, shape, &departments) {
                    wanting
                        .entry(item.clone())
                        .or_default()
                        .push(address.clone());
                    wanted.insert(item, (address.clone(), properties));
                }
            }
            found.extend(
                held.into_iter()
                    .map(|HeldItem { item, owner, says }| (item, (owner, says))),
            );
        }
    }
    let existing: BTreeSet<Item> = found.keys().cloned().collect();
    for (item, wanting) in wanting.into_iter().filter(|(_, wanting)| wanting.len() > 1) {
        let owner = found.remove(&item).map(|(owner, _)| owner);
        match owner {
            Some(owner) if wanting.contains(&owner) => {
                let silent = shape.last_writer
                    && matches!(&item.0, ItemPlace::Row(table, _) if base(table) == "ByEmail");
                let others = wanting.into_iter().filter(|primary| *primary != owner);
                if silent {
                    judgement.overwritten.extend(others);
                } else {
                    judgement.losers.extend(others);
                }
            }
            Some(owner) => {
                return Err(format!(
                    "contested item {item:?} belongs to {owner:?}, which does not want it"
                ));
            }
            None => return Err(format!("contested item {item:?} has no owner")),
        }
        wanted.remove(&item);
        judgement.contested.insert(item);
    }
    compare(
        "derived data differs from a second computation",
        &found,
        &wanted,
    )?;
    let shared = if shape.last_writer {
        judgement.contested.clone()
    } else {
        BTreeSet::new()
    };
    footprints(tables, &judgement.primaries, (&existing, &shared), &found)?;
    Ok(judgement)
}

/// Checks that the footprints list exactly the existing items, each once. `shared` are items that a former owner may
/// still list, because the owner was not notified of the loss.
pub(super) fn footprints(
    tables: &Tables,
    primaries: &BTreeSet<Address>,
    (existing, shared): (&BTreeSet<Item>, &BTreeSet<Item>),
    found: &BTreeMap<Item, (Address, Properties)>,
) -> Result<(), String> {
    let mut all: BTreeMap<Item, Address> = BTreeMap::new();
    // Records of log lines are in the same table, but are no footprints.
    let records = |row: &&Row| row.entity.key.pk.as_str().starts_with('~');
    for row in tables
        .get(FOOTPRINTS)
        .into_iter()
        .flatten()
        .filter(|row| !records(row))
    {
        let primary = primary_of(&row.entity.key);
        let items = listed(&row.entity)?;
        if items.values().any(|changing| *changing) {
            return Err(format!(
                "the footprint of {primary:?} still has an announced change"
            ));
        }
        if !primaries.contains(&primary) && !items.is_empty() {
            return Err(format!(
                "the footprint of the deleted primary {primary:?} still lists {items:?}"
            ));
        }
        for item in items.into_keys() {
            if found.get(&item).is_some_and(|(owner, _)| *owner != primary) {
                return Err(format!(
                    "the footprint of {primary:?} lists item {item:?} of another primary"
                ));
            }
            if let Some(other) = all.insert(item.clone(), primary.clone())
                && !shared.contains(&item)
            {
                return Err(format!(
                    "the footprints of {primary:?} and {other:?} both list item {item:?}"
                ));
            }
        }
    }
    let listed: BTreeMap<&Item, &str> = all.keys().map(|item| (item, "listed")).collect();
    compare(
        "the footprints do not match the existing items",
        &existing.iter().map(|item| (item, "listed")).collect(),
        &listed,
    )
}

pub(super) fn compare<K: Ord + std::fmt::Debug, V: PartialEq + std::fmt::Debug>(
    what: &str,
    found: &BTreeMap<K, V>,
    wanted: &BTreeMap<K, V>,
) -> Result<(), String> {
    let missing: Vec<_> = wanted
        .iter()
        .filter(|(key, _)| !found.contains_key(key))
        .collect();
    let excess: Vec<_> = found
        .iter()
        .filter(|(key, _)| !wanted.contains_key(key))
        .collect();
    let other: Vec<_> = found
        .iter()
        .filter_map(|(key, value)| {
            wanted
                .get(key)
                .filter(|w| *w != value)
                .map(|w| (key, value, w))
        })
        .collect();
    if missing.is_empty() && excess.is_empty() && other.is_empty() {
        return Ok(());
    }
    Err(format!(
        "{what}: missing {missing:?}; unexpected {excess:?}; different (actual, expected) {other:?}"
    ))
}
