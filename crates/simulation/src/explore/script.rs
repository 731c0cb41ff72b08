//! What the client does, and what may go wrong meanwhile.

use serde_json::{Value, json};

use super::state::Budget;
use evenkeel_model::{Entity, EntityKey, Job, job};
use evenkeel_storage::{IfMatch, TableOperation};

/// One search: a client's steps, and how much may go wrong.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    /// What the client does, in words.
    pub client: &'static str,
    /// What goes wrong, in words.
    pub wrong: &'static str,
    pub(super) steps: &'static [ScriptStep],
    pub(super) budget: Budget,
}

/// One step of the client, about the one employee there is.
#[derive(Debug, Clone, Copy)]
pub(super) enum ScriptStep {
    /// Writes the employee with this e-mail address.
    Write(&'static str),
    /// Deletes the employee.
    Remove,
    /// Sends a sync.
    Sync,
    /// Sends a put of the employee with this last name.
    Put(&'static str),
    /// Sends a delete.
    Delete,
}

use ScriptStep::{Delete, Put, Remove, Sync, Write};

/// What the client does: a message follows every change of its own.
const STEPS: [(&str, &[ScriptStep]); 6] = [
    ("created, changed", &[Write("a"), Sync, Write("b"), Sync]),
    ("created, deleted", &[Write("a"), Sync, Remove, Sync]),
    (
        "created, deleted, recreated",
        &[Write("a"), Sync, Remove, Write("a"), Sync],
    ),
    (
        "created, changed, deleted, recreated",
        &[Write("a"), Sync, Write("b"), Remove, Write("a"), Sync],
    ),
    ("put and deleted by jobs", &[Put("a"), Delete]),
    ("put twice by jobs", &[Put("a"), Put("b")]),
];

/// What goes wrong: crashes, leases, silences, late requests; and how many races are lost at most.
const BUDGETS: [(&str, Budget); 7] = [
    ("nothing", budget(0, 0, 0, 0, 4)),
    ("a crash", budget(1, 0, 0, 0, 2)),
    ("a lost lease", budget(0, 1, 0, 0, 2)),
    ("no answer", budget(0, 0, 1, 0, 2)),
    ("a late request", budget(0, 0, 0, 1, 2)),
    ("a crash and a late request", budget(1, 0, 0, 1, 1)),
    ("a lost lease and a late request", budget(0, 1, 0, 1, 1)),
];

const fn budget(crashes: u8, leases: u8, silences: u8, late: u8, races: u8) -> Budget {
    Budget {
        crashes,
        leases,
        silences,
        races,
        late,
    }
}

/// Every search: all that the client may do with all that may go wrong.
pub fn scripts() -> impl Iterator<Item = Script> {
    STEPS.into_iter().flat_map(|(client, steps)| {
        BUDGETS.into_iter().map(move |(wrong, budget)| Script {
            client,
            wrong,
            steps,
            budget,
        })
    })
}

/// Where the employee lies.
pub(super) fn key() -> EntityKey {
    EntityKey::new("p", "r").unwrap_or_else(|error| unreachable!("{error}"))
}

impl ScriptStep {
    /// What the client does itself.
    pub(super) fn operation(self) -> Option<TableOperation> {
        match self {
            Self::Write(email) => Some(TableOperation::InsertOrReplace(
                Entity::new(key()).with("Email", email),
            )),
            Self::Remove => Some(TableOperation::Delete(key(), IfMatch::Any)),
            Self::Sync | Self::Put(_) | Self::Delete => None,
        }
    }

    /// The job that it sends.
    pub(super) fn job(self) -> Option<Job> {
        let message = match self {
            Self::Write(_) | Self::Remove => return None,
            Self::Sync => json!({"op": "sync", "table": "Employees", "pk": "p", "rk": "r"}),
            Self::Delete => json!({"op": "delete", "table": "Employees", "pk": "p", "rk": "r"}),
            Self::Put(name) => {
                json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "p", "RowKey": "r", "LastName": name}})
            }
        };
        Some(decoded(&message))
    }
}

fn decoded(message: &Value) -> Job {
    job::decode(&message.to_string())
        .unwrap_or_else(|error| unreachable!("{error}"))
        .job
}
