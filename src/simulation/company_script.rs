//! What the company's client does.

use serde_json::{Value, json};

use super::client::{Action, EMPLOYEES, If, Message, Put, Step, broken, chosen, script};
use super::climate::{Climate, Draw, chance};
use super::history::VERSION;
use crate::model::{Entity, EntityKey};

const EMAILS: [&str; 4] = ["ada@contoso.com", "Ada@Contoso.com", "eve@contoso.com", ""];
const NAMES: [&str; 3] = ["King", "Byron", ""];

/// An employee's properties.
struct Properties {
    version: i64,
    email: &'static str,
    last_name: &'static str,
    manager: bool,
}

/// The script of a seed, in order of time.
pub(super) fn steps(seed: u64, climate: &Climate) -> Vec<Step> {
    let chance = chance(seed, 2);
    let draw = Draw(&chance);
    let employees = 1 + draw.below(4);
    let keys: Vec<EntityKey> =
        (0..employees).filter_map(|n| EntityKey::new(if n < 3 { "Sales" } else { "Ops" }, n.to_string()).ok()).collect();
    // Each kind of action is frequent in some seeds and absent in others.
    let weights: Vec<f64> = (0..8).map(|_| if draw.happens(0.25) { 0.0 } else { draw.magnitude(0.1, 1.0) }).collect();
    script(climate.storm, &draw, |version| action(&draw, draw.of(&keys).clone(), version, &weights))
}

fn action(draw: &Draw<'_>, key: EntityKey, version: i64, weights: &[f64]) -> Action {
    let properties =
        Properties { version, email: draw.of::<&str>(&EMAILS), last_name: draw.of::<&str>(&NAMES), manager: draw.happens(0.4) };
    let some_if = |kinds: &[If]| draw.happens(0.25).then(|| *draw.of(kinds));
    let chosen = chosen(draw, weights);
    let job = |op, condition| Action::Send(Message::Job { op, table: EMPLOYEES, key: key.clone(), to: None, condition });
    match chosen {
        Some(1) => Action::Remove(EMPLOYEES, key),
        Some(2) => {
            let mode = if draw.happens(0.5) { "replace" } else { "merge" };
            let condition = some_if(&[If::Match, If::Absent, If::Newer]);
            let entity = properties.json(&key);
            Action::Send(Message::Put(Box::new(Put { key, version, entity, mode, condition, staged: Vec::new() })))
        }
        Some(3) => job("delete", some_if(&[If::Match])),
        Some(4) => job("archive", some_if(&[If::Match])),
        Some(5) => job("restore", None),
        Some(6) => job("sync", None),
        Some(7) if draw.happens(0.4) => broken(draw),
        _ => Action::Write(EMPLOYEES, properties.entity(&key)),
    }
}

impl Properties {
    fn entity(&self, key: &EntityKey) -> Entity {
        let mut entity = Entity::new(key.clone()).with(VERSION, self.version).with("FirstName", "Ada");
        if !self.email.is_empty() {
            entity = entity.with("Email", self.email);
        }
        if !self.last_name.is_empty() {
            entity = entity.with("LastName", self.last_name);
        }
        if self.manager { entity.with("IsManager", true) } else { entity }
    }

    fn json(&self, key: &EntityKey) -> Value {
        let mut entity = json!({
            "PartitionKey": key.pk, "RowKey": key.rk, VERSION: self.version.to_string(), "Version@odata.type": "Edm.Int64",
            "FirstName": "Put", "LastName": self.last_name, "IsManager": self.manager,
        });
        if !self.email.is_empty() {
            entity["Email"] = self.email.into();
        }
        entity
    }
}
