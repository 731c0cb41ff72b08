//! Computes the expected end state of the `patterns` world from scratch. This computation uses neither the program's
//! catalog, templates and patterns nor its readers of lists, pointers and wide entities.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::script::{ExpectedValues, LARGE_PROPERTIES};
use super::{FORMER_LARGE, LARGE, LEAD, PatternsShape, SKILLED, TEAM};
use crate::history::{VERSION, is_continuation};
use crate::items::{
    Address, BlobContent, HeldItem, Item, ItemPlace, MemberValues, Properties, content, held,
    member, members_of, set_part,
};
use crate::oracle::{Judgement, compare, footprints};
use crate::world::{Blobs, FinalState};
use evenkeel_model::large::STAGING;
use evenkeel_model::settled::FOOTPRINTS;
use evenkeel_model::{EdmValue, Entity, EntityKey, Row};
use evenkeel_storage::Blob;

/// What the client sent, and the deviations from the expected state that are not faults of the program.
pub(crate) struct Excused<'a> {
    /// Primaries whose jobs have expired, perhaps half-way.
    pub(crate) expired: BTreeSet<Address>,
    pub(crate) staged: BTreeSet<&'a str>,
    pub(crate) sent: &'a BTreeMap<i64, ExpectedValues>,
}

type Found = BTreeMap<Item, (Address, Properties)>;

pub(crate) fn judge(
    seen: &FinalState,
    shape: PatternsShape,
    excused: &Excused<'_>,
) -> Result<Judgement, String> {
    let (mut found, mut wanted) = (Found::new(), Found::new());
    let mut judgement = Judgement::default();
    for (table, rows) in seen
        .tables
        .iter()
        .filter(|(table, _)| !matches!(table.as_str(), FOOTPRINTS | "EvenkeelAudits"))
    {
        for row in rows {
            found.extend(
                held(table, &row.entity)?
                    .into_iter()
                    .map(|HeldItem { item, owner, says }| (item, (owner, says))),
            );
        }
        for entity in primaries(table, rows)? {
            let address = (table.clone(), entity.key.clone());
            let has_views = match table.as_str() {
                "Employees" => {
                    shape.lists
                        || shape.near
                        || shape.groups
                        || shape.skilled
                        || shape.large
                        || shape.has_teams_within()
                }
                "FormerEmployees" => shape.large,
                "Teams" => shape.ranges && !shape.together,
                _ => false,
            };
            if has_views {
                judgement.primaries.insert(address.clone());
            }
            let mut items = expected(table, &entity, shape);
            if shape.large {
                items.extend(values(&address, &entity, &seen.blobs, excused)?);
            }
            wanted.extend(
                items
                    .into_iter()
                    .map(|item| (item, (address.clone(), Properties::new()))),
            );
            wanted.extend(
                led(seen, &address, &entity, shape)
                    .map(|(item, says)| (item, (address.clone(), says))),
            );
        }
    }
    found.extend(
        in_blobs(&seen.blobs)?
            .into_iter()
            .map(|HeldItem { item, owner, says }| (item, (owner, says))),
    );
    no_orphaned_blobs(seen, excused)?;
    ranges(seen, shape)?;
    compare(
        "derived data differs from a second computation",
        &found,
        &wanted,
    )?;
    footprints(
        &seen.tables,
        &judgement.primaries,
        (&found.keys().cloned().collect(), &BTreeSet::new()),
        &found,
    )?;
    Ok(judgement)
}

fn in_blobs(blobs: &Blobs) -> Result<Vec<HeldItem>, String> {
    let mut items = Vec::new();
    for ((container, name), blob) in blobs
        .iter()
        .filter(|((container, _), _)| container != STAGING)
    {
        let place = ItemPlace::Blob(container.clone(), name.clone());
        match content(&place, blob)? {
            BlobContent::List(_, members) if members.is_empty() => {
                return Err(format!("{place} is an empty list"));
            }
            BlobContent::List(source, members) => {
                items.extend(members_of(&place, (&source, ""), &members)?);
            }
            BlobContent::Value(owner) => items.push(HeldItem {
                item: (place, String::new()),
                owner,
                says: Properties::new(),
            }),
            BlobContent::Other => return Err(format!("{place} has no owner")),
        }
    }
    Ok(items)
}

fn primaries(table: &str, rows: &[Row]) -> Result<Vec<Entity>, String> {
    if !matches!(table, "Employees" | "FormerEmployees" | "Teams") {
        return Ok(Vec::new());
    }
    let own = rows
        .iter()
        .filter(|row| row.entity.text("ek_view").is_none());
    let (further, first): (Vec<&Row>, Vec<&Row>) =
        own.partition(|row| is_continuation(&row.entity.key.rk));
    let mut further: BTreeMap<EntityKey, &Row> = further
        .into_iter()
        .map(|row| (row.entity.key.clone(), row))
        .collect();
    let mut entities = Vec::new();
    for row in first {
        let mut entity = row.entity.clone();
        let tokens: MemberValues = match entity.properties.remove("ek_rows") {
            None => MemberValues::new(),
            Some(tokens) => tokens
                .as_str()
                .and_then(|tokens| serde_json::from_str(tokens).ok())
                .unwrap_or_default(),
        };
        for (number, token) in (1..).zip(tokens) {
            let key = EntityKey::new(
                entity.key.pk.as_str(),
                format!("{}~{number}", entity.key.rk),
            )
            .map_err(|error| error.to_string())?;
            let part = further.remove(&key).ok_or_else(|| {
                format!("row {table}{key} is missing, but the entity's first row lists it")
            })?;
            if part.entity.text("ek_row") != Some(&token) {
                return Err(format!(
                    "row {table}{key} is not of the same version as the entity's first row"
                ));
            }
            let own = part
                .entity
                .properties
                .iter()
                .filter(|(name, _)| *name != "ek_row");
            entity
                .properties
                .extend(own.map(|(name, value)| (name.clone(), value.clone())));
        }
        entities.push(entity);
    }
    match further.into_keys().next() {
        None => Ok(entities),
        Some(key) => Err(format!("row {table}{key} belongs to no entity")),
    }
}

fn expected(table: &str, entity: &Entity, shape: PatternsShape) -> Vec<Item> {
    let mut items = Vec::new();
    let (pk, rk) = (entity.key.pk.to_string(), entity.key.rk.to_string());
    let text = |name: &str| {
        entity
            .text(name)
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let row = |table: &str, pk: &str, rk: &str| {
        EntityKey::new(pk, rk)
            .ok()
            .map(|key| ItemPlace::Row(shape.placement.name_of(table, pk), key))
    };
    if table == "Employees" {
        let noted = |note: String| member(&[pk.clone(), rk.clone(), note]);
        if let Some(name) = text("LastName") {
            let place = row("Lists", "list", &name).filter(|_| shape.lists);
            items.extend(place.zip(text("Note").map(noted)));
            let place = row("Employees", &pk, &format!("list_{name}")).filter(|_| shape.near);
            items.extend(place.zip(text("Note").map(noted)));
        }
        if let Some(skill) = text("Skill").filter(|_| shape.skilled) {
            let name = format!("{}{skill}.jsonl", if shape.anew { "anew/" } else { "" });
            let place = ItemPlace::Blob(shape.placement.name_of(SKILLED, &name), name);
            items.extend(text("Note").map(noted).map(|member| (place, member)));
        }
        let version = if let Some(EdmValue::Int64(version)) = entity.get(VERSION) {
            Some(format!("Version=i{version}"))
        } else {
            None
        };
        let place = row("Groups", "group", &pk).filter(|_| shape.groups);
        items.extend(place.map(|place| {
            (
                place,
                member(
                    &[pk.clone(), rk.clone()]
                        .into_iter()
                        .chain(version)
                        .collect::<MemberValues>(),
                ),
            )
        }));
    }
    if table == shape.teams()
        && shape.ranges
        && let (Some(name), Some(prefix)) = (text("Name"), text("Prefix"))
    {
        let behind =
            |prefix: &str| char::from(prefix.bytes().next().unwrap_or_default() + 1).to_string();
        let before = if shape.together {
            String::new()
        } else {
            format!(",\"before\":\"{}\"", behind(&prefix))
        };
        let overlay = format!(
            "{{\"v\":1,\"owner\":{{\"pk\":\"{pk}\",\"rk\":\"{rk}\"}},\"range\":{{\"account\":\"main\",\"table\":\"Employees\",\"pk\":\"{pk}\",\"from\":\"{prefix}\"{before}}},\"set\":{{\"Team\":\"{name}\"}}}}"
        );
        let place = row(
            "EvenkeelRangeOverlays",
            &format!("team_name~Employees~{pk}"),
            "overlays",
        );
        items.extend(place.map(|place| (place, member(&[overlay]))));
    }
    items
}

/// Returns the blobs to which a primary points. Each blob must exist, belong to the primary, and match its pointer and
/// what the client sent.
fn values(
    address: &Address,
    entity: &Entity,
    blobs: &Blobs,
    excused: &Excused<'_>,
) -> Result<Vec<Item>, String> {
    let (table, key) = address;
    let container = if table == "Employees" {
        LARGE
    } else {
        FORMER_LARGE
    };
    let sent = match entity.get(VERSION) {
        Some(EdmValue::Int64(version)) => excused.sent.get(version),
        _ => None,
    };
    let mut items = Vec::new();
    for property in LARGE_PROPERTIES {
        let wrong = |what: &str| {
            Err(format!(
                "{property} of {table}{key} {what}: {:?}",
                entity.get(property)
            ))
        };
        let value = entity.text(property);
        let pointer = value
            .and_then(|text| serde_json::from_str::<Value>(text).ok())
            .filter(|pointer| pointer["$blob"].is_string());
        let text = match pointer {
            None => value.map(str::to_owned),
            Some(pointer) => {
                let place = pointer["$blob"]
                    .as_str()
                    .and_then(|place| place.split_once('/'));
                let Some((within, name)) = place else {
                    return wrong("has an invalid pointer");
                };
                let folder = format!("{}/{}/{}/{property}-", table.to_lowercase(), key.pk, key.rk);
                if within != container || !name.starts_with(&folder) {
                    return wrong("points to a blob of another primary");
                }
                let Some(blob) = blobs.get(&(within.to_owned(), name.to_owned())) else {
                    return wrong("points to a blob that does not exist");
                };
                let Blob { content, .. } = blob;
                let sha256 = hex::encode(Sha256::digest(content));
                if pointer["sha256"] != sha256.as_str()
                    || pointer["bytes"] != content.len()
                    || name != format!("{folder}{sha256}")
                {
                    return wrong("points to a blob that does not match the pointer");
                }
                items.push((
                    ItemPlace::Blob(within.to_owned(), name.to_owned()),
                    String::new(),
                ));
                Some(String::from_utf8_lossy(content).into_owned())
            }
        };
        if let Some(sent) = sent
            && (sent.whole || sent.values.contains_key(property))
            && sent.values.get(property) != text.as_ref()
        {
            return wrong(&format!("differs from what the client sent, {sent:?}"));
        }
    }
    Ok(items)
}

/// Checks that no staged blob is left after its job is done.
fn no_orphaned_blobs(seen: &FinalState, excused: &Excused<'_>) -> Result<(), String> {
    for (container, name) in seen.blobs.keys() {
        if container == STAGING && !excused.staged.contains(name.as_str()) {
            return Err(format!(
                "{container}/{name} was not deleted, although its job is done"
            ));
        }
    }
    Ok(())
}

fn led(
    seen: &FinalState,
    (table, key): &Address,
    entity: &Entity,
    shape: PatternsShape,
) -> Option<(Item, Properties)> {
    let team = EntityKey::new(key.pk.as_str(), TEAM).ok()?;
    let is_lead = shape.has_teams_within() && table == shape.teams() && key.rk.as_str() == LEAD;
    seen.tables
        .get(table)?
        .iter()
        .find(|row| is_lead && row.entity.key == team)?;
    let says = Properties::from([("Lead".to_owned(), entity.get(VERSION)?.clone())]);
    Some(((ItemPlace::Row(table.clone(), team), set_part()), says))
}

/// Checks that every employee in the range of a team has the name of the team, and that no other row has a team name.
fn ranges(seen: &FinalState, shape: PatternsShape) -> Result<(), String> {
    let none = Vec::new();
    let rows = |table: &str| seen.tables.get(table).unwrap_or(&none);
    let teams = rows(shape.teams());
    for row in rows("Employees")
        .iter()
        .filter(|row| row.entity.text("ek_view").is_none() && !is_continuation(&row.entity.key.rk))
    {
        let key = &row.entity.key;
        let team = teams
            .iter()
            .filter(|_| shape.ranges)
            .find(|team| shape.means(&team.entity, key));
        let owner = row.entity.text("ek_owner_team_name");
        let right = match team {
            Some(team) => row.entity.text("Team") == team.entity.text("Name") && owner.is_some(),
            // Clients do not set `Team`, so the property must be absent from a row outside all ranges.
            None => owner.is_none() && row.entity.get("Team").is_none(),
        };
        if !right {
            return Err(format!(
                "Employees{key} has a wrong team name: found {row:?}, expected the name of team {team:?}"
            ));
        }
    }
    Ok(())
}
