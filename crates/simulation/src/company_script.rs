use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::batches;
use super::client::{
    ClientAction, ClientMessage, ClientStep, ConditionKind, DEPARTMENTS, EMPLOYEES, EmployeePut,
    broken, chosen, script,
};
use super::encryption;
use super::fault_plan::{Draw, FaultPlan, rng, seconds};
use super::history::VERSION;
use evenkeel_account::company::SSN;
use evenkeel_model::{Entity, EntityKey, Key};

const EMAILS: [&str; 4] = ["ada@contoso.com", "Ada@Contoso.com", "eve@contoso.com", ""];
/// E-mail addresses with characters that are not allowed in keys.
const ODD_EMAILS: [&str; 5] = [
    "o'neil+é@contoso.com",
    "O'Neil+É@contoso.com",
    "a/b#1?@contoso.com",
    "100%@contoso.com",
    "",
];
/// Row keys that differ only in case or in Unicode composition, and row keys that must be escaped or quoted.
const ODD_KEYS: [&str; 12] = [
    "A", "a", "é", "e\u{301}", "x y", "100%", "o'neil", "1_2", "名", "~", "+&=;,:@$", "%2F",
];
const NAMES: [&str; 3] = ["King", "Byron", ""];
const CROWD: usize = 16;

pub(super) struct Properties {
    pub(super) version: i64,
    pub(super) email: &'static str,
    pub(super) last_name: &'static str,
    pub(super) manager: bool,
    pub(super) encrypted: bool,
}

pub(super) fn steps(seed: u64, fault_plan: &FaultPlan, crowd: bool) -> Vec<ClientStep> {
    let rng = rng(seed, 2);
    let draw = Draw(&rng);
    let few = 1 + draw.below(4);
    let keys = if crowd {
        some_keys(CROWD, false)
    } else {
        keys(seed, few)
    };
    let emails: &[&'static str] = match Draw(&self::rng(seed, 14)).happens(0.25) {
        _ if crowd => &EMAILS[..2],
        true => &ODD_EMAILS,
        false => &EMAILS,
    };
    // Each kind of action is frequent in some seeds and absent in others.
    let mut weights: Vec<f64> = (0..8)
        .map(|_| {
            if draw.happens(0.25) {
                0.0
            } else {
                draw.magnitude(0.1, 1.0)
            }
        })
        .collect();
    if crowd {
        weights[0] += 3.0;
    }
    let encrypted = fault_plan.shape.encrypted;
    let mut steps = script(fault_plan.storm, &draw, |version| {
        action(
            &draw,
            draw.of(&keys).clone(),
            (version, emails, encrypted),
            &weights,
        )
    });
    let step_groups =
        |steps: &[ClientStep]| steps.iter().map(|step| step.step_group).max().unwrap_or(0);
    if fault_plan.shape.targets {
        steps.extend(departments(seed, fault_plan, &keys, step_groups(&steps)));
    }
    let content_of = |draw: &Draw<'_>, key: &EntityKey, version, known| {
        let email = if known || draw.happens(0.15) {
            draw.of::<&str>(emails)
        } else {
            ""
        };
        // `departments` sends syncs only for employees in `keys`, so other employees must not be managers.
        let manager = known && draw.happens(0.4);
        Properties {
            version,
            email,
            last_name: draw.of::<&str>(&NAMES),
            manager,
            encrypted,
        }
        .json(key)
    };
    steps.extend(batches::steps(
        seed,
        fault_plan,
        &keys,
        step_groups(&steps),
        content_of,
    ));
    if let Some(scenario) = fault_plan.scenario {
        steps.extend(scenario.steps(seed, fault_plan, &keys, step_groups(&steps)));
    }
    steps.sort_by_key(|step| step.at);
    steps
}

pub(super) fn employees(seed: u64) -> Vec<EntityKey> {
    keys(seed, 1 + Draw(&rng(seed, 2)).below(4))
}

/// Returns the employees of a seed: usually `few`, and 6 to 15 in some seeds. In some seeds, the keys look alike or
/// must be escaped.
fn keys(seed: u64, few: usize) -> Vec<EntityKey> {
    let rng = rng(seed, 15);
    let draw = Draw(&rng);
    let employees = if draw.happens(0.15) {
        6 + draw.below(10)
    } else {
        few
    };
    some_keys(employees, draw.happens(0.25))
}

fn some_keys(employees: usize, odd: bool) -> Vec<EntityKey> {
    let key = |n: usize| match ODD_KEYS.get(n).filter(|_| odd) {
        Some(rk) => EntityKey::new(if n % 4 < 3 { "Sales" } else { "Süd & Ost" }, *rk),
        None => EntityKey::new(if n % 4 < 3 { "Sales" } else { "Ops" }, n.to_string()),
    };
    (0..employees).filter_map(|n| key(n).ok()).collect()
}

/// Creates and deletes departments. After each change of a department, all of its employees are synced, because each of
/// them may be a manager. The jobs of the managers set properties on the department. If the department is deleted,
/// these properties are deleted too. So the sync is full, unless the department is created for the first time.
fn departments(
    seed: u64,
    fault_plan: &FaultPlan,
    keys: &[EntityKey],
    step_groups: usize,
) -> Vec<ClientStep> {
    let rng = rng(seed, 16);
    let draw = Draw(&rng);
    let mut steps = Vec::new();
    let homes: BTreeSet<&Key> = keys.iter().map(|key| &key.pk).collect();
    for pk in homes {
        let Ok(department) = EntityKey::new(pk.as_str(), "department") else {
            continue;
        };
        let founded = pk.as_str() == "Sales";
        let mut at = draw.moment(fault_plan.storm / 2);
        for turn in 0..=draw.below(4) {
            let comes = founded == (turn % 2 == 1);
            let first = turn == 0 && !founded;
            let action = if comes {
                ClientAction::Merge(
                    DEPARTMENTS,
                    Entity::new(department.clone()).with("Name", pk.as_str()),
                )
            } else {
                ClientAction::Remove(DEPARTMENTS, department.clone())
            };
            let step_group = step_groups + 1 + steps.len();
            let followers = keys.iter().filter(|key| key.pk == *pk).map(|key| {
                let sync = ClientMessage::Job {
                    op: "sync",
                    table: EMPLOYEES,
                    key: key.clone(),
                    to: None,
                    condition: None,
                };
                let message = if first {
                    sync
                } else {
                    ClientMessage::Thorough(EMPLOYEES, key.clone())
                };
                ClientStep::new(
                    at + seconds(draw.magnitude(0.02, 5.0)),
                    step_group,
                    ClientAction::Send(message),
                )
            });
            steps.extend(followers.collect::<Vec<_>>());
            steps.push(ClientStep::new(at, step_group, action));
            at += draw.moment(fault_plan.storm / 4);
        }
    }
    steps
}

fn action(
    draw: &Draw<'_>,
    key: EntityKey,
    (version, emails, encrypted): (i64, &[&'static str], bool),
    weights: &[f64],
) -> ClientAction {
    let properties = Properties {
        version,
        email: draw.of::<&str>(emails),
        last_name: draw.of::<&str>(&NAMES),
        manager: draw.happens(0.4),
        encrypted,
    };
    let some_if = |kinds: &[ConditionKind]| draw.happens(0.25).then(|| *draw.of(kinds));
    let chosen = chosen(draw, weights);
    let job = |op, condition| {
        ClientAction::Send(ClientMessage::Job {
            op,
            table: EMPLOYEES,
            key: key.clone(),
            to: None,
            condition,
        })
    };
    match chosen {
        Some(1) => ClientAction::Remove(EMPLOYEES, key),
        Some(2) => {
            let mode = if draw.happens(0.5) {
                "replace"
            } else {
                "merge"
            };
            let condition = some_if(&[
                ConditionKind::Match,
                ConditionKind::Absent,
                ConditionKind::Newer,
            ]);
            let entity = properties.json(&key);
            ClientAction::Send(ClientMessage::Put(Box::new(EmployeePut {
                key,
                version,
                entity,
                mode,
                condition,
                staged: Vec::new(),
            })))
        }
        Some(3) => job("delete", some_if(&[ConditionKind::Match])),
        Some(4) => job("archive", some_if(&[ConditionKind::Match])),
        Some(5) => job("restore", None),
        Some(6) => job("sync", None),
        Some(7) if draw.happens(0.4) => broken(draw),
        _ => ClientAction::Write(EMPLOYEES, properties.entity(&key)),
    }
}

impl Properties {
    pub(super) fn entity(&self, key: &EntityKey) -> Entity {
        let mut entity = Entity::new(key.clone())
            .with(VERSION, self.version)
            .with("FirstName", "Ada");
        if !self.email.is_empty() {
            entity = entity.with("Email", self.email);
        }
        if !self.last_name.is_empty() {
            entity = entity.with("LastName", self.last_name);
        }
        if self.manager {
            entity.with("IsManager", true)
        } else {
            entity
        }
    }

    pub(super) fn json(&self, key: &EntityKey) -> Value {
        let mut entity = json!({
            "PartitionKey": key.pk, "RowKey": key.rk, VERSION: self.version.to_string(), "Version@odata.type": "Edm.Int64",
            "FirstName": "Put", "LastName": self.last_name, "IsManager": self.manager,
        });
        if !self.email.is_empty() {
            entity["Email"] = self.email.into();
        }
        if self.encrypted {
            entity[SSN] = encryption::plain(self.version).into();
        }
        entity
    }
}
