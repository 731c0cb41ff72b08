//! Notes. A note is a property that a client merges directly into an employee, even while jobs for this employee are running. A third of
//! the seeds of `company` have notes. After each merge, the client sends a message, as applications must do. A merge does not change the
//! job stamp of the entity, so the stamp names a job although a client has changed the entity since that job.
//!
//! ```text
//!   put ──▶ done: the entity has its stamp
//!        delete, hidden ─────────────▶ shown: a note was merged after the delete was sent, so the entity stays
//!                       note ──▶ sync
//! ```
//!
//! Notes have their own random numbers and are added last, so that the rest of a script does not depend on them.

use std::collections::BTreeSet;
use std::time::Duration;

use super::client::{ClientAction, ClientMessage, ClientStep, EMPLOYEES, EmployeePut};
use super::company_script;
use super::fault_plan::{Draw, FaultPlan, rng, seconds};
use super::items::Properties;
use super::scenario::Scenario;
use evenkeel_model::{EdmValue, EntityKey};

/// The property that clients merge. Each value is greater than all earlier values.
pub(super) const NOTE: &str = "Remark";

const PART: u64 = 90;
/// Share of the seeds that draw notes. Fewer seeds have notes, because some stories exclude them.
const SHARE: f64 = 0.4;
const BESIDE: f64 = 0.4;
/// Share of the notes that are merged shortly before another step of the client. The others are merged up to a minute
/// after that step: while its job is running, or later.
const BEFORE: f64 = 0.3;
/// The version of the first put of this module. It is greater than all versions of the seed's other actions.
const VERSIONS: i64 = 600_000;
const NAMES: [&str; 2] = ["King", "Byron"];

pub(super) fn steps(seed: u64, fault_plan: &FaultPlan, script: &[ClientStep]) -> Vec<ClientStep> {
    let rng = rng(seed, PART);
    let draw = Draw(&rng);
    let are_there = draw.happens(SHARE) && fault_plan.scenario.is_none_or(Scenario::has_notes);
    if !are_there {
        return Vec::new();
    }
    let group = script.iter().map(|step| step.step_group).max().unwrap_or(0);
    let mut notes = NoteScript {
        draw: &draw,
        group,
        steps: Vec::new(),
    };
    let mut employees: BTreeSet<&EntityKey> = BTreeSet::new();
    for step in script {
        let Some(key) = employee(&step.action) else {
            continue;
        };
        employees.insert(key);
        if draw.happens(BESIDE) {
            let at = if draw.happens(BEFORE) {
                step.at.saturating_sub(seconds(draw.magnitude(0.05, 5.0)))
            } else {
                step.at + seconds(draw.magnitude(0.05, 60.0))
            };
            notes.merge(at, key);
        }
    }
    let employees: Vec<&EntityKey> = employees.into_iter().collect();
    if employees.is_empty() {
        return Vec::new();
    }
    for version in (VERSIONS..).take(1 + draw.below(3)) {
        let (start, key) = (draw.moment(fault_plan.storm), *draw.of(&employees));
        notes.overtake(start, key, (version, fault_plan.shape.encrypted));
    }
    notes.steps
}

fn employee(action: &ClientAction) -> Option<&EntityKey> {
    match action {
        ClientAction::Write(EMPLOYEES, entity) => Some(&entity.key),
        ClientAction::Remove(EMPLOYEES, key) => Some(key),
        ClientAction::Send(ClientMessage::Put(put)) => Some(&put.key),
        ClientAction::Send(ClientMessage::Job { op, key, .. }) if *op != "sync" => Some(key),
        _ => None,
    }
}

struct NoteScript<'a> {
    draw: &'a Draw<'a>,
    group: usize,
    steps: Vec<ClientStep>,
}

impl NoteScript<'_> {
    fn does(&mut self, step: impl FnOnce(usize) -> ClientStep) {
        self.group += 1;
        self.steps.push(step(self.group));
    }

    fn merge(&mut self, at: Duration, key: &EntityKey) {
        self.does(|group| ClientStep::new(at, group, ClientAction::Note(EMPLOYEES, key.clone())));
        let after = at + seconds(self.draw.magnitude(0.02, 20.0));
        self.steps
            .push(ClientStep::new(after, self.group, job("sync", key)));
    }

    /// Adds a put, then a delete or archive job whose message is hidden at first, and then a note. The note is merged
    /// while the message is hidden.
    fn overtake(&mut self, start: Duration, key: &EntityKey, (version, encrypted): (i64, bool)) {
        let draw = self.draw;
        let properties = company_script::Properties {
            version,
            email: "",
            last_name: draw.of::<&str>(&NAMES),
            manager: false,
            encrypted,
        };
        let (entity, mode) = (properties.json(key), *draw.of(&["replace", "merge"]));
        let put = EmployeePut {
            key: key.clone(),
            version,
            entity,
            mode,
            condition: None,
            staged: Vec::new(),
        };
        self.does(|group| {
            ClientStep::new(
                start,
                group,
                ClientAction::Send(ClientMessage::Put(Box::new(put))),
            )
        });
        let (sent, hidden) = (
            start + seconds(draw.magnitude(0.5, 10.0)),
            seconds(draw.magnitude(10.0, 90.0)),
        );
        let op = *draw.of(&["delete", "delete", "archive"]);
        self.does(|group| ClientStep::new(sent, group, job(op, key)).hidden_for(hidden));
        self.merge(sent + hidden.mul_f64(draw.0.between(0.3, 1.0)), key);
    }
}

fn job(op: &'static str, key: &EntityKey) -> ClientAction {
    ClientAction::Send(ClientMessage::Job {
        op,
        table: EMPLOYEES,
        key: key.clone(),
        to: None,
        condition: None,
    })
}

/// Whether `found` equals `wanted`, or differs only by a note that a client merged later.
pub(super) fn covers(found: &Properties, wanted: &Properties) -> bool {
    found == wanted || (note(found) > note(wanted) && others(found).eq(others(wanted)))
}

fn note(says: &Properties) -> Option<i64> {
    match says.get(NOTE) {
        Some(EdmValue::Int64(note)) => Some(*note),
        _ => None,
    }
}

fn others(says: &Properties) -> impl Iterator<Item = (&String, &EdmValue)> {
    says.iter().filter(|(name, _)| name.as_str() != NOTE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::World;

    fn says(last_name: &str, note: Option<i64>) -> Properties {
        let note = note.map(|note| (NOTE.to_owned(), EdmValue::Int64(note)));
        note.into_iter()
            .chain([("LastName".to_owned(), EdmValue::from(last_name))])
            .collect()
    }

    #[test]
    fn a_later_note_does_not_change_the_compared_content() {
        for (found, wanted) in [
            (None, None),
            (Some(3), None),
            (Some(3), Some(3)),
            (Some(3), Some(2)),
        ] {
            assert!(
                covers(&says("King", found), &says("King", wanted)),
                "{found:?} {wanted:?}"
            );
            assert!(
                !covers(&says("King", found), &says("Byron", wanted)),
                "{found:?} {wanted:?}"
            );
        }
        for (found, wanted) in [(None, Some(1)), (Some(1), Some(2))] {
            assert!(
                !covers(&says("King", found), &says("King", wanted)),
                "{found:?} {wanted:?}"
            );
        }
    }

    #[test]
    fn each_note_is_followed_by_a_message_and_no_other_step_changes() {
        let mut noted = 0;
        for seed in 0..100 {
            let fault_plan = FaultPlan::of(seed, World::Company);
            let script = company_script::steps(seed, &fault_plan, fault_plan.shape.crowd);
            let last = script.iter().map(|step| step.step_group).max().unwrap_or(0);
            let steps = steps(seed, &fault_plan, &script);
            assert!(
                steps.iter().all(|step| step.step_group > last),
                "seed {seed}"
            );
            for step in &steps {
                let ClientAction::Note(_, key) = &step.action else {
                    continue;
                };
                let follows = |other: &&ClientStep| match &other.action {
                    ClientAction::Send(ClientMessage::Job {
                        op: "sync",
                        key: synced,
                        ..
                    }) => synced == key,
                    _ => false,
                };
                let follower = steps
                    .iter()
                    .filter(|other| other.step_group == step.step_group)
                    .find(follows);
                assert!(
                    follower.is_some_and(|follower| follower.at > step.at),
                    "seed {seed}"
                );
                noted += 1;
            }
        }
        assert!(noted > 100, "only {noted} notes");
    }
}
