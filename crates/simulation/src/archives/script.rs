use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::content::{self, Content};
use super::{
    ArchivesShape, EVENTS, LARGE_PROPERTY, OVER, PAPERS, PRESENT, RECORDS, archive_of, source_of,
};
use crate::client::{
    ClientAction, ClientMessage, ClientStep, ConditionKind, broken, chosen, script,
};
use crate::fault_plan::{Draw, FaultPlan, rng, seconds};
use crate::history::VERSION;
use crate::ledger::{EntityJob, JobCondition};
use evenkeel_model::{Entity, EntityKey, odata};

const TITLES: [&str; 3] = ["Index", "Ledger", ""];
const VALUES: [&str; 4] = [
    "",
    "short",
    "the first of the long values",
    "the second of the long values",
];
/// Values of `At`, the own time of an event. The first two are in the hour in which the run begins.
const HOURS: [&str; 3] = [
    "2026-11-18T11:10:00Z",
    "2026-11-18T11:50:00Z",
    "2026-11-18T09:30:00Z",
];
const USERS: [&str; 2] = ["ada", "eve"];

/// First version of the entities that `archive_everything` writes. It is far above the versions of all other writes.
const FIRST_HARVESTED: i64 = 1_000;

#[derive(Debug, Clone)]
pub(crate) struct SentContent {
    /// Whether the content is complete, so that all other properties must be absent.
    pub(super) whole: bool,
    pub(super) content: Content,
}

pub(crate) fn sent_contents(steps: &[ClientStep]) -> BTreeMap<i64, SentContent> {
    let version = |content: &Content| {
        content
            .get(VERSION)?
            .strip_prefix("Edm.Int64 ")?
            .parse()
            .ok()
    };
    let wordings = steps.iter().filter_map(|step| match &step.action {
        ClientAction::Write(_, entity) => Some((true, content::of_entity(entity))),
        ClientAction::Send(ClientMessage::Spelled { json, .. }) if json["op"] == "put" => {
            Some((json["mode"] == "replace", content::of_json(&json["entity"])))
        }
        _ => None,
    });
    wordings
        .filter_map(|(whole, content)| Some((version(&content)?, SentContent { whole, content })))
        .collect()
}

fn attempt(rk: &str, user: &str) -> Entity {
    let key = EntityKey {
        pk: constant("web"),
        rk: constant(rk),
    };
    Entity::new(key).with("User", user)
}

#[expect(clippy::expect_used, reason = "a wrong constant fails every run")]
fn constant(text: &str) -> evenkeel_model::Key {
    evenkeel_model::Key::new(text).expect("a key")
}

/// The initial entities. They are in the dated tables whose retention time passes during the run.
pub(crate) fn founded() -> Vec<(&'static str, Entity)> {
    let attempts = OVER.into_iter().flat_map(|table| {
        USERS
            .into_iter()
            .enumerate()
            .map(move |(n, user)| (table, attempt(&n.to_string(), user)))
    });
    attempts.collect()
}

pub(crate) fn steps(seed: u64, fault_plan: &FaultPlan, shape: ArchivesShape) -> Vec<ClientStep> {
    let rng = rng(seed, 31);
    let draw = Draw(&rng);
    let of_each = 1 + draw.below(5);
    let key = |letter: char, n: usize| {
        EntityKey::new(if n < 3 { "Sales" } else { "Ops" }, format!("{letter}{n}")).ok()
    };
    let keys: Vec<EntityKey> = ['e', 'p', 'r']
        .into_iter()
        .flat_map(|letter| (0..of_each).filter_map(move |n| key(letter, n)))
        .collect();
    // Each kind of action is frequent in some seeds and absent in others.
    let mut weights: Vec<f64> = (0..10)
        .map(|_| {
            if draw.happens(0.25) {
                0.0
            } else {
                draw.magnitude(0.1, 1.0)
            }
        })
        .collect();
    weights[0] += 0.5;
    weights[4] += 0.5;
    // Workers create the table of the present hour. If no worker runs for hours, the client cannot write to that table.
    if !fault_plan.hazards.backlog.is_zero() {
        weights[8] = 0.0;
    }
    let only = draw.happens(0.5).then(|| *draw.of(&['e', 'p', 'r']));
    let keys: Vec<EntityKey> = keys
        .into_iter()
        .filter(|key| only.is_none_or(|only| key.rk.as_str().starts_with(only)))
        .collect();
    let client = ArchiveScript {
        draw: &draw,
        keys: &keys,
        shape,
        weights: &weights,
    };
    let mut steps = script(fault_plan.storm, &draw, |version| client.action(version));
    client.founded(&mut steps);
    client.archive_everything(fault_plan.storm, &mut steps);
    steps.sort_by_key(|step| step.at);
    steps
}

struct ArchiveScript<'a> {
    draw: &'a Draw<'a>,
    keys: &'a [EntityKey],
    shape: ArchivesShape,
    weights: &'a [f64],
}

impl ArchiveScript<'_> {
    fn founded(&self, steps: &mut Vec<ClientStep>) {
        let step_group = steps.iter().map(|step| step.step_group).max().unwrap_or(0);
        for (nth, (table, Entity { key, .. })) in (1..).zip(founded()) {
            let sync = ClientMessage::Job {
                op: "sync",
                table,
                key,
                to: None,
                condition: None,
            };
            steps.push(ClientStep::new(
                self.draw.moment(seconds(5.0)),
                step_group + nth,
                ClientAction::Send(sync),
            ));
        }
    }

    /// Writes and archives all entities at about the same time, up to three times, so that workers append several log
    /// lines together.
    fn archive_everything(&self, storm: Duration, steps: &mut Vec<ClientStep>) {
        let draw = self.draw;
        let step_group = steps.iter().map(|step| step.step_group).max().unwrap_or(0);
        for nth in 1..=draw.below(4) {
            let start = draw.moment(storm);
            for (key, version) in self
                .keys
                .iter()
                .zip(FIRST_HARVESTED * i64::try_from(nth).unwrap_or(1)..)
            {
                let (written, archived) = (
                    start + draw.moment(seconds(0.2)),
                    start + seconds(0.5) + draw.moment(seconds(0.05)),
                );
                let step_group = step_group + nth;
                let (table, entity) = (source_of(key), self.entity(key.clone(), version));
                steps.push(ClientStep::new(
                    written,
                    step_group,
                    ClientAction::Write(table, entity),
                ));
                steps.push(ClientStep::new(
                    archived,
                    step_group,
                    job_message("archive", key.clone(), None),
                ));
            }
        }
    }

    fn action(&self, version: i64) -> ClientAction {
        let key = self.draw.of(self.keys).clone();
        let table = source_of(&key);
        let some_if =
            |kinds: &[ConditionKind]| self.draw.happens(0.2).then(|| *self.draw.of(kinds));
        match chosen(self.draw, self.weights) {
            Some(1) => ClientAction::Remove(table, key),
            Some(2) => self.put(
                key,
                version,
                some_if(&[
                    ConditionKind::Match,
                    ConditionKind::Absent,
                    ConditionKind::Newer,
                ]),
            ),
            Some(3) => job_message("delete", key, some_if(&[ConditionKind::Match])),
            Some(4 | 9) => job_message("archive", key, some_if(&[ConditionKind::Match])),
            Some(5) if table == EVENTS => {
                let json = json!({"op": "restore", "archive": archive_of(table), "pk": key.pk, "rk": key.rk});
                ClientAction::Send(ClientMessage::Broken(json.to_string(), "permanent"))
            }
            Some(5) => job_message("restore", key, None),
            Some(6) => job_message("sync", key, None),
            Some(7) if self.draw.happens(0.3) => broken(self.draw),
            Some(7) => {
                let to = self.draw.of(self.keys).clone();
                if to == key {
                    job_message("sync", key, None)
                } else {
                    moved(key, to)
                }
            }
            Some(8) => {
                let entity = attempt(
                    &(10 + self.draw.below(4)).to_string(),
                    self.draw.of::<&str>(&USERS),
                );
                if self.draw.happens(0.2) {
                    ClientAction::Remove(PRESENT, entity.key)
                } else {
                    ClientAction::Write(PRESENT, entity)
                }
            }
            _ => ClientAction::Write(table, self.entity(key, version)),
        }
    }

    fn entity(&self, key: EntityKey, version: i64) -> Entity {
        let draw = self.draw;
        let table = source_of(&key);
        let scan = if self.shape.large && matches!(table, PAPERS | RECORDS) {
            *draw.of::<&str>(&VALUES)
        } else {
            ""
        };
        let at = if table == EVENTS {
            *draw.of::<&str>(&HOURS)
        } else {
            ""
        };
        let texts = [
            ("Title", *draw.of::<&str>(&TITLES)),
            (LARGE_PROPERTY, scan),
            ("At", at),
        ];
        let entity = Entity::new(key)
            .with(VERSION, version)
            .with("Urgent", draw.happens(0.5));
        texts
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .fold(entity, |entity, (name, value)| entity.with(name, value))
    }

    fn put(&self, key: EntityKey, version: i64, condition: Option<ConditionKind>) -> ClientAction {
        let entity = Value::Object(odata::encode(&self.entity(key.clone(), version)));
        let mode = if self.draw.happens(0.6) {
            "replace"
        } else {
            "merge"
        };
        let mut json =
            json!({"op": "put", "table": source_of(&key), "mode": mode, "entity": entity});
        let mut asked = asked("put", key);
        match condition {
            Some(ConditionKind::Absent) => {
                json["if_absent"] = true.into();
                asked.guard = Some(JobCondition::Absent);
            }
            Some(ConditionKind::Newer) => {
                json["newer_by"] = VERSION.into();
                asked.guard = Some(JobCondition::Newer(version));
            }
            Some(ConditionKind::Match) | None => {}
        }
        ClientAction::Send(ClientMessage::Spelled {
            json,
            asked: Box::new(asked),
            at_its_etag: condition == Some(ConditionKind::Match),
        })
    }
}

fn asked(op: &'static str, key: EntityKey) -> EntityJob {
    EntityJob::plain(op, source_of(&key), key)
}

fn job_message(op: &'static str, key: EntityKey, condition: Option<ConditionKind>) -> ClientAction {
    let (field, name) = match op {
        "archive" | "restore" => ("archive", archive_of(source_of(&key))),
        _ => ("table", source_of(&key)),
    };
    let json = json!({"op": op, field: name, "pk": key.pk, "rk": key.rk});
    ClientAction::Send(ClientMessage::Spelled {
        json,
        asked: Box::new(asked(op, key)),
        at_its_etag: condition.is_some(),
    })
}

fn moved(key: EntityKey, to: EntityKey) -> ClientAction {
    let json = json!({
        "op": "move", "table": source_of(&key), "pk": key.pk, "rk": key.rk,
        "to_table": source_of(&to), "to_pk": to.pk, "to_rk": to.rk,
    });
    ClientAction::Send(ClientMessage::Spelled {
        json,
        asked: Box::new(EntityJob {
            to: Some(to),
            ..asked("move", key)
        }),
        at_its_etag: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_json_equals_that_of_rows() {
        let entity = attempt("1", "ada")
            .with(VERSION, 7_i64)
            .with("Urgent", true)
            .with(LARGE_PROPERTY, "a value");
        let says = content::of_entity(&entity);
        assert_eq!(says.get(VERSION).map(String::as_str), Some("Edm.Int64 7"));
        assert_eq!(
            says,
            content::of_json(&Value::Object(odata::encode(&entity)))
        );
    }
}
