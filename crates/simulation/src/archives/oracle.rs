//! Computes the expected end state of the `archives` world from scratch. This computation uses neither the program's
//! catalog, templates and patterns nor its readers of documents, lines and pointers.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::content::pointed_to;
use super::history::{document_name, is_value};
use super::{
    ArchiveHistory, ArchivesShape, DOCUMENTS, EVENTS, FOLDER, INDEX, LARGE, LARGE_PROPERTY, PAPERS,
    RECORDS, SOURCES, TITLES, archive_of,
};
use crate::history::VERSION;
use crate::items::{
    Address, BlobContent, HeldItem, Item, ItemPlace, Properties, content, document_key, filing,
    held, value_owner,
};
use crate::oracle::{Judgement, Tables, compare, footprints};
use crate::world::FinalState;
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::{EdmValue, EntityKey, Row};

type Found = BTreeMap<Item, (Address, Properties)>;

/// Compares derived items, archived rows and archives with the entities and their history.
pub(crate) fn judge(
    seen: &FinalState,
    shape: ArchivesShape,
    expired: &BTreeSet<Address>,
    history: &ArchiveHistory,
    now: Timestamp,
) -> Result<Judgement, String> {
    history.sources_are_deleted(expired)?;
    history.dated.judge(now)?;
    let mut tables: Tables = seen.tables.clone();
    for (table, rows) in &history.dated.tables {
        let rows = rows.values().cloned();
        if table.starts_with(FOOTPRINTS) {
            tables
                .entry(FOOTPRINTS.to_owned())
                .or_default()
                .extend(rows);
        } else {
            tables.entry(table.clone()).or_default().extend(rows);
        }
    }
    let (mut found, mut wanted) = (elsewhere(seen, history)?, Found::new());
    let (mut judgement, mut filings) = (Judgement::default(), BTreeSet::new());
    for (table, rows) in tables.iter().filter(|(table, _)| *table != FOOTPRINTS) {
        for row in rows {
            found.extend(
                held(table, &row.entity)?
                    .into_iter()
                    .map(|HeldItem { item, owner, says }| (item, (owner, says))),
            );
            let attempt = table.starts_with("Attempts");
            if row.entity.text("ek_view").is_some()
                || !(attempt || SOURCES.contains(&table.as_str()))
            {
                continue;
            }
            let address = (table.clone(), row.entity.key.clone());
            let has_views = match table.as_str() {
                EVENTS => shape.kinds,
                PAPERS => shape.titles || shape.found || shape.large,
                RECORDS => shape.found || shape.large,
                _ => shape.by_user,
            };
            if has_views {
                judgement.primaries.insert(address.clone());
            }
            wanted.extend(
                expected(table, row, shape)
                    .into_iter()
                    .map(|(item, says)| (item, (address.clone(), says))),
            );
            if let Some(place) = row
                .entity
                .text(LARGE_PROPERTY)
                .and_then(pointed_to)
                .filter(|_| table != EVENTS)
            {
                let place = place.split_once('/').map(|(container, name)| {
                    ItemPlace::Blob(container.to_owned(), name.to_owned())
                });
                let place = place.ok_or_else(|| {
                    format!("{table}{} has an unreadable pointer: {row:?}", address.1)
                })?;
                value(
                    seen,
                    history,
                    &address,
                    place,
                    row.entity.text(LARGE_PROPERTY),
                    &mut wanted,
                )?;
            }
        }
    }
    for ((table, key), filed) in &history.filed {
        let owner = (filing(archive_of(table)), key.clone());
        filings.insert(owner.clone());
        if let Some(place) = &filed.says.value {
            let place = match place
                .split_once('/')
                .filter(|(container, _)| table == PAPERS && *container == DOCUMENTS)
            {
                Some((container, name)) => ItemPlace::Blob(container.to_owned(), name.to_owned()),
                None => ItemPlace::File(FOLDER.to_owned(), place.clone()),
            };
            value(
                seen,
                history,
                &owner,
                place,
                filed.says.content.get(LARGE_PROPERTY).map(String::as_str),
                &mut wanted,
            )?;
        }
    }
    compare(
        "derived data differs from a second computation",
        &found,
        &wanted,
    )?;
    let primaries = judgement.primaries.union(&filings).cloned().collect();
    footprints(
        &tables,
        &primaries,
        (&found.keys().cloned().collect(), &BTreeSet::new()),
        &found,
    )?;
    Ok(judgement)
}

/// Checks that the large value of a pointer exists and matches the pointer, and adds the value to `wanted`.
fn value(
    seen: &FinalState,
    history: &ArchiveHistory,
    owner: &Address,
    place: ItemPlace,
    says: Option<&str>,
    wanted: &mut Found,
) -> Result<(), String> {
    let content = match &place {
        ItemPlace::Blob(container, name) => seen
            .blobs
            .get(&(container.clone(), name.clone()))
            .map(|blob| blob.content.clone()),
        ItemPlace::File(dir, name) => history
            .files
            .iter()
            .find(|(place, _)| place.dir == *dir && place.name.as_str() == name)
            .map(|(_, content)| content.clone()),
        ItemPlace::Row(..) | ItemPlace::Document(..) => None,
    };
    let Some(content) = content else {
        return Err(format!(
            "{}{} points to {place}, which does not exist",
            owner.0, owner.1
        ));
    };
    if !says.is_some_and(|says| says.contains(&hex::encode(Sha256::digest(&content)))) {
        return Err(format!(
            "{}{} points to {place}, which does not match the pointer: {says:?}",
            owner.0, owner.1
        ));
    }
    wanted.insert((place, String::new()), (owner.clone(), Properties::new()));
    Ok(())
}

/// Returns the derived items in blobs, files and the search index. An error names an item without an owner.
fn elsewhere(seen: &FinalState, history: &ArchiveHistory) -> Result<Found, String> {
    let mut found = Found::new();
    let documents = |of: &str| -> BTreeSet<String> {
        history
            .filed
            .keys()
            .filter(|(table, _)| table == of)
            .map(|(_, key)| document_name(key))
            .collect()
    };
    let (papers, records) = (documents(PAPERS), documents(RECORDS));
    for ((container, name), blob) in seen
        .blobs
        .iter()
        .filter(|((container, _), _)| matches!(container.as_str(), DOCUMENTS | LARGE))
    {
        let place = ItemPlace::Blob(container.clone(), name.clone());
        match content(&place, blob)? {
            BlobContent::Value(owner) => {
                drop(found.insert((place, String::new()), (owner, Properties::new())));
            }
            _ if papers.contains(name) => {}
            _ => return Err(format!("{place} has no owner")),
        }
    }
    if !seen.files.iter().eq(history.files.keys()) {
        return Err(format!(
            "found files {:?}, expected those of the observed changes",
            seen.files
        ));
    }
    for file in history.files.keys().filter(|file| file.dir == FOLDER) {
        let (place, name) = (
            ItemPlace::File(file.dir.clone(), file.name.to_string()),
            file.name.as_str(),
        );
        match value_owner(archive_of(RECORDS), name).filter(|_| is_value(name)) {
            Some(owner) => drop(found.insert((place, String::new()), (owner, Properties::new()))),
            None if records.contains(name) => {}
            None => return Err(format!("{place} has no owner")),
        }
    }
    for (key, document) in &seen.documents {
        let place = ItemPlace::Document(INDEX.to_owned(), key.to_string());
        let owner = document_key(key.as_str()).ok_or_else(|| format!("{place} has no owner"))?;
        found.insert(
            (place, String::new()),
            (owner, document_property(&document.0)),
        );
    }
    Ok(found)
}

fn document_property(fields: &BTreeMap<String, Value>) -> Properties {
    Properties::from([(
        "document".to_owned(),
        EdmValue::from(json!(fields).to_string()),
    )])
}

fn expected(table: &str, row: &Row, shape: ArchivesShape) -> Vec<(Item, Properties)> {
    let entity = &row.entity;
    let (pk, rk) = (entity.key.pk.as_str(), entity.key.rk.as_str());
    let text = |name: &str| entity.text(name).filter(|text| !text.is_empty());
    let own: Properties = entity
        .properties
        .iter()
        .filter(|(name, _)| !name.starts_with("ek_"))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let copy = |table: &str, pk: &str, rk: &str| {
        EntityKey::new(pk, rk)
            .ok()
            .map(|key| (ItemPlace::Row(table.to_owned(), key), String::new()))
    };
    let mut items = Vec::new();
    let title = text("Title");
    match (table, title) {
        (EVENTS, Some(title)) if shape.kinds => {
            items.extend(copy(EVENTS, pk, &format!("kind_{title}_{rk}")).zip(Some(own.clone())));
        }
        (PAPERS, Some(title)) if shape.titles => {
            let mut says = own.clone();
            says.retain(|name, _| matches!(name.as_str(), "Title" | VERSION));
            items.extend(
                copy(TITLES, &format!("title_{title}"), &format!("{pk}_{rk}")).zip(Some(says)),
            );
        }
        _ => {}
    }
    if matches!(table, PAPERS | RECORDS) && shape.found && title.is_some() {
        let version = if let Some(EdmValue::Int64(version)) = entity.get(VERSION) {
            json!(version)
        } else {
            Value::Null
        };
        let fields = BTreeMap::from([
            ("title".to_owned(), json!(title)),
            ("version".to_owned(), version),
        ]);
        items.push((
            (
                ItemPlace::Document(INDEX.to_owned(), key_of(table, &entity.key)),
                String::new(),
            ),
            document_property(&fields),
        ));
    }
    if let (true, Some(user), Some(hour)) =
        (shape.by_user, text("User"), table.strip_prefix("Attempts"))
    {
        items.extend(copy(&format!("ByUser{hour}"), user, &format!("{pk}_{rk}")).zip(Some(own)));
    }
    items
}

fn key_of(table: &str, key: &EntityKey) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD
        .encode(json!([table.to_lowercase(), key.pk, key.rk]).to_string())
}
