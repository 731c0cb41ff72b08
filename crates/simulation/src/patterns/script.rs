use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::{LEAD, PatternsShape, TEAM};
use crate::batches;
use crate::client::{
    ClientAction, ClientMessage, ClientStep, ConditionKind, EMPLOYEES, EmployeePut, broken, chosen,
    script,
};
use crate::encryption;
use crate::fault_plan::{Draw, FaultPlan, rng, seconds};
use crate::history::VERSION;
use evenkeel_account::company::SSN;
use evenkeel_model::{BlobName, Entity, EntityKey, odata};

const NAMES: [&str; 3] = ["King", "Byron", ""];
const SKILLS: [&str; 3] = ["Rust", "C", ""];
/// Values of large properties. Only the last two exceed the threshold and are stored in blobs.
const VALUES: [&str; 5] = [
    "",
    "",
    "short",
    "the first of the values",
    "the second of the values",
];
/// Possible lengths of a note. Periods with short notes alternate with periods with long notes.
const NOTES: [[usize; 3]; 2] = [[1, 1, 1], [120, 300, 500]];
/// Number of versions in each period of `NOTES`.
const TIMES: i64 = 8;
/// Number of additional properties that do not fit into one row. Their names sort after `Version`, so that `Version`
/// stays in the first row.
const MANY: usize = 270;
/// Versions in bursts are greater than this number, and less than the versions of recreated entities.
const BURSTS: i64 = 700_000;
pub(crate) const LARGE_PROPERTIES: [&str; 2] = ["Photo", "Resume"];

/// The large values that a client has sent for an employee at one version.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExpectedValues {
    /// Whether the values are complete, so that all other values must be absent.
    pub(super) whole: bool,
    pub(super) values: BTreeMap<&'static str, String>,
}

pub(crate) fn sent_values(steps: &[ClientStep]) -> BTreeMap<i64, ExpectedValues> {
    let mut sent = BTreeMap::new();
    for step in steps {
        match &step.action {
            ClientAction::Write(EMPLOYEES, entity) => {
                let values = LARGE_PROPERTIES
                    .into_iter()
                    .filter_map(|name| Some((name, entity.text(name)?.to_owned())))
                    .collect();
                if let Some(evenkeel_model::EdmValue::Int64(version)) = entity.get(VERSION) {
                    sent.insert(
                        *version,
                        ExpectedValues {
                            whole: true,
                            values,
                        },
                    );
                }
            }
            ClientAction::Send(ClientMessage::Put(put)) => {
                let own = LARGE_PROPERTIES
                    .into_iter()
                    .filter_map(|name| Some((name, put.entity[name].as_str()?.to_owned())));
                let staged = put
                    .staged
                    .iter()
                    .filter_map(|(name, _, content)| Some(((*name)?, content.clone())));
                sent.insert(
                    put.version,
                    ExpectedValues {
                        whole: put.mode == "replace",
                        values: own.chain(staged).collect(),
                    },
                );
            }
            ClientAction::Send(ClientMessage::Batch(batch)) => {
                sent.extend(batch.versions().map(|(version, whole)| {
                    (
                        version,
                        ExpectedValues {
                            whole,
                            ..ExpectedValues::default()
                        },
                    )
                }));
            }
            _ => {}
        }
    }
    sent
}

pub(crate) fn steps(seed: u64, fault_plan: &FaultPlan, shape: PatternsShape) -> Vec<ClientStep> {
    let rng = rng(seed, 21);
    let draw = Draw(&rng);
    let employees = 2 + draw.below(8);
    let keys: Vec<EntityKey> = (0..employees)
        .filter_map(|n| {
            EntityKey::new(
                if n + 1 < employees || n < 3 {
                    "Sales"
                } else {
                    "Ops"
                },
                n.to_string(),
            )
            .ok()
        })
        .collect();
    // Each kind of action is frequent in some seeds and absent in others.
    let mut weights: Vec<f64> = (0..12)
        .map(|_| {
            if draw.happens(0.25) {
                0.0
            } else {
                draw.magnitude(0.1, 1.0)
            }
        })
        .collect();
    weights[10] = match (shape.ranges, shape.restless) {
        (false, _) => 0.0,
        (true, true) => 3.0,
        (true, false) => weights[10],
    };
    let client = EmployeeScript {
        draw: &draw,
        keys: &keys,
        shape,
        weights: &weights,
    };
    let mut steps = script(fault_plan.storm, &draw, |version| client.action(version));
    let step_groups = steps.iter().map(|step| step.step_group).max().unwrap_or(0);
    let content_of = |draw: &Draw<'_>, key: &EntityKey, version, _| {
        // A batch message has no room for large values and wide entities.
        let client = EmployeeScript {
            draw,
            shape: PatternsShape {
                large: false,
                wide: false,
                ..shape
            },
            ..client
        };
        client.json(&client.entity(key.clone(), version), version)
    };
    if shape.bursts {
        let rng = self::rng(seed, 26);
        let draw = Draw(&rng);
        let client = EmployeeScript {
            draw: &draw,
            shape: PatternsShape {
                large: false,
                ..shape
            },
            ..client
        };
        steps.extend(bursts(fault_plan, &client, step_groups));
    }
    let step_groups = steps.iter().map(|step| step.step_group).max().unwrap_or(0);
    if shape.has_teams_within() {
        // If a client replaces or deletes a team, the property that the lead has set on the team is lost. A thorough
        // sync of the lead sets the property again.
        let told = steps.iter().filter_map(|step| match &step.action {
            ClientAction::Write(EMPLOYEES, Entity { key, .. })
            | ClientAction::Remove(EMPLOYEES, key)
                if key.rk.as_str() == TEAM =>
            {
                let lead = EntityKey::new(key.pk.as_str(), LEAD).ok()?;
                let at = step.at + seconds(draw.magnitude(0.02, 20.0));
                Some(ClientStep::new(
                    at,
                    step.step_group,
                    ClientAction::Send(ClientMessage::Thorough(EMPLOYEES, lead)),
                ))
            }
            _ => None,
        });
        let told: Vec<ClientStep> = told.collect();
        steps.extend(told);
    }
    steps.extend(batches::steps(
        seed,
        fault_plan,
        &keys,
        step_groups,
        content_of,
    ));
    steps.sort_by_key(|step| step.at);
    steps
}

/// In a burst, a team changes several times within seconds. A sync follows each change at once. Each burst has its own
/// department, because a later change would repair the damage of an earlier one.
fn bursts(
    fault_plan: &FaultPlan,
    client: &EmployeeScript<'_>,
    step_groups: usize,
) -> Vec<ClientStep> {
    let (draw, shape) = (client.draw, client.shape);
    let (mut steps, mut version) = (Vec::new(), BURSTS);
    for nth in 0..4 + draw.below(6) {
        let department = format!("Laboratory {nth}");
        // A burst has two employees, because a run reads several employees by a query and writes them in one
        // transaction. A run would read a single employee again before it writes.
        let keys = ["12", "13", TEAM].map(|rk| EntityKey::new(department.as_str(), rk).ok());
        let [Some(one), Some(other), Some(team)] = keys else {
            continue;
        };
        let mut at = draw.moment(fault_plan.storm);
        let mut changes =
            |at: Duration, action: ClientAction, table: &'static str, key: &EntityKey| {
                let step_group = step_groups + steps.len() + 1;
                steps.push(ClientStep::new(at, step_group, action));
                let sync = ClientMessage::Job {
                    op: "sync",
                    table,
                    key: key.clone(),
                    to: None,
                    condition: None,
                };
                steps.push(ClientStep::new(
                    at + seconds(draw.magnitude(0.02, 0.5)),
                    step_group,
                    ClientAction::Send(sync),
                ));
            };
        for employee in [one, other] {
            version += 1;
            let before = at.saturating_sub(seconds(draw.magnitude(2.0, 60.0)));
            changes(
                before,
                ClientAction::Write(EMPLOYEES, client.entity(employee.clone(), version)),
                EMPLOYEES,
                &employee,
            );
        }
        for turn in 0..2 + draw.below(4) {
            version += 1;
            let (name, prefix) = (
                ["Blue", "Red"][turn % 2],
                if draw.happens(0.15) { "2" } else { "1" },
            );
            changes(
                at,
                says(team.clone(), (name, prefix), version, shape),
                shape.teams(),
                &team,
            );
            at += seconds(draw.magnitude(0.3, 10.0));
        }
    }
    steps
}

fn says(
    team: EntityKey,
    (name, prefix): (&str, &str),
    version: i64,
    shape: PatternsShape,
) -> ClientAction {
    let team = Entity::new(team).with("Name", name).with("Prefix", prefix);
    ClientAction::Write(
        shape.teams(),
        if shape.together {
            team.with(VERSION, version)
        } else {
            team
        },
    )
}

#[derive(Clone, Copy)]
struct EmployeeScript<'a> {
    draw: &'a Draw<'a>,
    keys: &'a [EntityKey],
    shape: PatternsShape,
    weights: &'a [f64],
}

impl EmployeeScript<'_> {
    fn action(&self, version: i64) -> ClientAction {
        let key = self.draw.of(self.keys).clone();
        let some_if =
            |kinds: &[ConditionKind]| self.draw.happens(0.2).then(|| *self.draw.of(kinds));
        let job = |op, condition| {
            ClientAction::Send(ClientMessage::Job {
                op,
                table: EMPLOYEES,
                key: key.clone(),
                to: None,
                condition,
            })
        };
        match chosen(self.draw, self.weights) {
            // If the table is wide, clients send jobs and do not write directly.
            Some(1) if self.shape.wide => job("delete", None),
            Some(1) => ClientAction::Remove(EMPLOYEES, key),
            Some(2 | 9) => self.put(
                key,
                version,
                some_if(&[
                    ConditionKind::Match,
                    ConditionKind::Absent,
                    ConditionKind::Newer,
                ]),
            ),
            Some(3) => job("delete", some_if(&[ConditionKind::Match])),
            Some(4) => job("archive", some_if(&[ConditionKind::Match])),
            Some(5) => job("restore", None),
            Some(6) => job("sync", None),
            Some(7) if self.draw.happens(0.4) => broken(self.draw),
            Some(8) => {
                let to = self.draw.of(self.keys).clone();
                if to == key {
                    job("sync", None)
                } else {
                    ClientAction::Send(ClientMessage::Job {
                        op: "move",
                        table: EMPLOYEES,
                        key,
                        to: Some(to),
                        condition: None,
                    })
                }
            }
            Some(10) => self.team(&key, version),
            Some(11) => self.whole(),
            _ if self.shape.wide => self.put(key, version, None),
            _ => ClientAction::Write(EMPLOYEES, self.entity(key, version)),
        }
    }

    fn entity(&self, key: EntityKey, version: i64) -> Entity {
        let draw = self.draw;
        let notes = &NOTES[usize::from(version / TIMES % 2 == 0)];
        let mut entity = Entity::new(key)
            .with(VERSION, version)
            .with("Note", "n".repeat(*draw.of(notes)));
        let texts = [
            ("LastName", *draw.of::<&str>(&NAMES)),
            ("Skill", *draw.of::<&str>(&SKILLS)),
        ];
        let large = LARGE_PROPERTIES.map(|name| {
            (
                name,
                if self.shape.large {
                    *draw.of::<&str>(&VALUES)
                } else {
                    ""
                },
            )
        });
        for (name, value) in texts
            .into_iter()
            .chain(large)
            .filter(|(_, value)| !value.is_empty())
        {
            entity = entity.with(name, value);
        }
        if self.shape.wide && draw.happens(0.4) {
            for n in 0..MANY {
                entity = entity.with(format!("X{n:03}"), n % 2 == 0);
            }
        }
        entity
    }

    fn json(&self, entity: &Entity, version: i64) -> Value {
        let mut json = odata::encode(entity);
        if self.shape.encrypted {
            json.insert(SSN.to_owned(), encryption::plain(version).into());
        }
        Value::Object(json)
    }

    fn put(&self, key: EntityKey, version: i64, condition: Option<ConditionKind>) -> ClientAction {
        let draw = self.draw;
        let mut entity = self.entity(key.clone(), version);
        let mode = if draw.happens(0.6) {
            "replace"
        } else {
            "merge"
        };
        let mut staged = Vec::new();
        for property in LARGE_PROPERTIES {
            if let Some(value) = entity.text(property).map(str::to_owned)
                && draw.happens(0.4)
                && let Ok(name) = BlobName::new(format!("{version}-{property}"))
            {
                entity.properties.remove(property);
                staged.push((Some(property), name, value));
            }
        }
        let entity = self.json(&entity, version);
        // Staged content is not encrypted, so an entity with an encrypted property is not staged.
        if self.shape.large
            && draw.happens(0.1)
            && !self.shape.encrypted
            && let Ok(name) = BlobName::new(format!("{version}-entity"))
        {
            staged.push((None, name, entity.to_string()));
        }
        ClientAction::Send(ClientMessage::Put(Box::new(EmployeePut {
            key,
            version,
            entity,
            mode,
            condition,
            staged,
        })))
    }

    /// Returns an action that writes or deletes the team of a department. The team sets its name on some employees.
    fn team(&self, near: &EntityKey, version: i64) -> ClientAction {
        let key = EntityKey {
            rk: near.rk.clone(),
            ..near.clone()
        };
        let team = EntityKey::new(key.pk.as_str(), TEAM).unwrap_or(key);
        if self.draw.happens(0.25) {
            return ClientAction::Remove(self.shape.teams(), team);
        }
        let sent = (
            *self.draw.of::<&str>(&["Blue", "Red"]),
            *self.draw.of::<&str>(&["0", "1", "2", "1"]),
        );
        says(team, sent, version, self.shape)
    }

    fn whole(&self) -> ClientAction {
        let table = *self
            .draw
            .of(&["Employees", "Employees", "FormerEmployees", "Teams"]);
        ClientAction::Send(match self.draw.below(3) {
            0 => ClientMessage::Whole("backfill", json!({"op": "backfill", "table": table})),
            nth => ClientMessage::Whole(
                "audit",
                json!({"op": "audit", "table": table, "repair": nth == 1}),
            ),
        })
    }
}
