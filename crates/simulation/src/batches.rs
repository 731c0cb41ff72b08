//! Batch jobs, which clients send in every third seed. The list of a batch contains existing keys, absent keys,
//! duplicates and invalid keys.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::client::{ClientAction, ClientMessage, ClientStep, ConditionKind, EMPLOYEES};
use super::content::PutContent;
use super::expectation::{EntityJob, Expectation, JobCondition, ListedKeys};
use super::fault_plan::{Draw, FaultPlan, rng};
use super::history::VERSION;
use evenkeel_account::company::ARCHIVE;
use evenkeel_model::EntityKey;

/// Number of the random sequence for batches.
const PART: u64 = 80;
/// Batches put entities with versions above this number. The ordinary steps of a script use versions below it.
const VERSIONS: i64 = 500_000;
const OTHERS: usize = 16;
const IMPOSSIBLE: [&str; 3] = ["a/b", "1#2", "?"];
const OPS: [&str; 5] = ["sync", "put", "delete", "archive", "restore"];
const MISTAKES: [&str; 4] = [
    r#"{"op":"sync","table":"Employees","pk":"Sales","rks":[]}"#,
    r#"{"op":"delete","table":"Employees","pk":"Sales","rks":["b1","b1"]}"#,
    r#"{"op":"archive","archive":"former","pk":"Sales","rks":["b1"],"if_match":"W/\"none\""}"#,
    r#"{"op":"restore","archive":"former","keys":[["Sales","b1"],["Sales"]]}"#,
];

#[derive(Debug, Clone)]
pub(super) struct BatchMessage {
    op: &'static str,
    /// `replace` or `merge`, used only by puts.
    mode: &'static str,
    condition: Option<ConditionKind>,
    /// Used only by syncs.
    thorough: bool,
    by_row_keys: bool,
    items: Vec<ListedItem>,
}

#[derive(Debug, Clone)]
struct ListedItem {
    keys: ListedKeys,
    put: Option<(i64, Value)>,
}

impl BatchMessage {
    pub(super) fn json(&self) -> Value {
        let mut json = json!({"op": self.op});
        let (field, name) = if matches!(self.op, "archive" | "restore") {
            ("archive", ARCHIVE)
        } else {
            ("table", EMPLOYEES)
        };
        json[field] = name.into();
        match self.condition {
            Some(ConditionKind::Absent) => json["if_absent"] = true.into(),
            Some(ConditionKind::Newer) => json["newer_by"] = VERSION.into(),
            Some(ConditionKind::Match) | None => {}
        }
        if self.thorough {
            json["thorough"] = true.into();
        }
        let entities: Vec<&Value> = self
            .items
            .iter()
            .filter_map(|item| item.put.as_ref().map(|(_, entity)| entity))
            .collect();
        let pks: BTreeSet<&String> = self.items.iter().map(|item| &item.keys.0).collect();
        if !entities.is_empty() {
            (json["mode"], json["entities"]) = (self.mode.into(), json!(entities));
        } else if let (true, 1, Some(pk)) = (self.by_row_keys, pks.len(), pks.first()) {
            json["pk"] = pk.as_str().into();
            json["rks"] = self
                .items
                .iter()
                .map(|item| item.keys.1.as_str())
                .collect::<Vec<_>>()
                .into();
        } else {
            json["keys"] = json!(self.items.iter().map(|item| &item.keys).collect::<Vec<_>>());
        }
        json
    }

    pub(super) fn expectation(&self) -> Expectation {
        let mut jobs: Vec<(ListedKeys, Expectation)> = Vec::new();
        for item in &self.items {
            if !jobs.iter().any(|(keys, _)| *keys == item.keys) {
                jobs.push((
                    item.keys.clone(),
                    self.job_of(item)
                        .map_or(Expectation::Poison("permanent"), Expectation::Job),
                ));
            }
        }
        Expectation::Batch(jobs)
    }

    fn job_of(&self, item: &ListedItem) -> Option<EntityJob> {
        let key = EntityKey::new(item.keys.0.as_str(), item.keys.1.as_str()).ok()?;
        let guard = match (self.condition, &item.put) {
            (Some(ConditionKind::Absent), _) => Some(JobCondition::Absent),
            (Some(ConditionKind::Newer), Some((version, _))) => Some(JobCondition::Newer(*version)),
            _ => None,
        };
        let put_content = item
            .put
            .as_ref()
            .map(|(_, entity)| Arc::new(PutContent::of(self.mode, entity, std::iter::empty())));
        Some(EntityJob {
            guard,
            put_content,
            thorough: self.thorough,
            ..EntityJob::plain(self.op, EMPLOYEES, key)
        })
    }

    /// Returns the versions that this batch puts. The flag is true if the put replaces all existing properties.
    pub(super) fn versions(&self) -> impl Iterator<Item = (i64, bool)> {
        self.items
            .iter()
            .filter_map(|item| Some((item.put.as_ref()?.0, self.mode == "replace")))
    }
}

/// Returns the steps that send the batches of a seed. Their step groups are numbered from `step_groups` + 1. `entity`
/// returns the content of an employee at a version. The last argument of `entity` is false if only batches have jobs
/// for this employee.
pub(super) fn steps(
    seed: u64,
    fault_plan: &FaultPlan,
    keys: &[EntityKey],
    step_groups: usize,
    entity: impl Fn(&Draw<'_>, &EntityKey, i64, bool) -> Value,
) -> Vec<ClientStep> {
    let rng = rng(seed, PART);
    let draw = Draw(&rng);
    if draw.below(3) > 0 {
        return Vec::new();
    }
    let home = keys.first().map_or("Sales", |key| key.pk.as_str());
    let others = (0..OTHERS).filter_map(|n| EntityKey::new(home, format!("b{n}")).ok());
    let all: Vec<EntityKey> = keys.iter().cloned().chain(others).collect();
    let mut version = VERSIONS;
    let batches = (1..=1 + draw.below(4)).map(|nth| {
        let at = draw.moment(fault_plan.storm);
        let message = if draw.happens(0.08) {
            ClientMessage::Broken((*draw.of(&MISTAKES)).to_owned(), "permanent")
        } else {
            ClientMessage::Batch(Box::new(batch(
                &draw,
                &all,
                keys.len(),
                &mut version,
                &entity,
            )))
        };
        ClientStep::new(at, step_groups + nth, ClientAction::Send(message))
    });
    batches.collect()
}

fn batch(
    draw: &Draw<'_>,
    all: &[EntityKey],
    known: usize,
    version: &mut i64,
    entity: &impl Fn(&Draw<'_>, &EntityKey, i64, bool) -> Value,
) -> BatchMessage {
    let op = *draw.of(&OPS);
    let size = *draw.of(&[2, 3, 5, 8, 13, 20]);
    let mut places: Vec<usize> = Vec::new();
    while places.len() < size.min(all.len()) {
        // The first `known` employees also have other jobs. These employees are chosen more often, so that jobs of the
        // same employee run at the same time.
        let place = if draw.happens(0.4) {
            draw.below(known)
        } else {
            draw.below(all.len())
        };
        if !places.contains(&place) || draw.happens(0.2) && op == "sync" {
            places.push(place);
        } else if places.len() >= known {
            places.push(
                (0..all.len())
                    .find(|place| !places.contains(place))
                    .unwrap_or(place),
            );
        }
    }
    let mut items: Vec<ListedItem> = Vec::new();
    for place in places {
        let key = &all[place];
        *version += 1;
        let put = (op == "put").then(|| (*version, entity(draw, key, *version, place < known)));
        items.push(ListedItem {
            keys: (key.pk.to_string(), key.rk.to_string()),
            put,
        });
    }
    if draw.happens(0.25) {
        let (at, rk) = (draw.below(items.len()), *draw.of(&IMPOSSIBLE));
        rk.clone_into(&mut items[at].keys.1);
        if let Some((_, entity)) = &mut items[at].put {
            entity["RowKey"] = rk.into();
        }
    }
    let condition = (op == "put" && draw.happens(0.25))
        .then(|| *draw.of(&[ConditionKind::Absent, ConditionKind::Newer]));
    BatchMessage {
        op,
        mode: draw.of::<&str>(&["replace", "merge"]),
        condition,
        thorough: op == "sync" && draw.happens(0.3),
        by_row_keys: draw.happens(0.5),
        items,
    }
}
