//! The client's steps in each search, and the faults that may occur.

use serde_json::{Value, json};

use super::state::Budget;
use evenkeel_account::company::{Shape, table};
use evenkeel_model::job::Primary;
use evenkeel_model::{Entity, EntityKey, Job, job};
use evenkeel_storage::{IfMatch, TableOperation};

/// One search: the steps of a client, and the number of faults.
#[derive(Debug, Clone, Copy)]
pub struct Script {
    pub client: &'static str,
    pub wrong: &'static str,
    pub(super) steps: &'static [ScriptStep],
    pub(super) budget: Budget,
    /// Whether a view has the target of another view as its source. Some derived rows are then primaries, too.
    chained: bool,
}

impl Script {
    pub(super) fn shape(&self) -> Shape {
        Shape {
            chain: self.chained,
            // A chain has many rows already, so the copies in the employees' partition are left out.
            apart: self.chained,
            ..Shape::default()
        }
    }

    pub(super) fn primaries(&self) -> impl Iterator<Item = Primary> {
        let manager = ("Managers", "managers", "p_r");
        [("Employees", "p", "r")]
            .into_iter()
            .chain(self.chained.then_some(manager))
            .map(|(name, pk, rk)| Primary {
                table: table(name),
                key: of(pk, rk),
            })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) enum ScriptStep {
    Write(&'static str),
    Manager(&'static str),
    Remove,
    Sync,
    Put(&'static str),
    Delete,
}

use ScriptStep::{Delete, Manager, Put, Remove, Sync, Write};

/// Lists of client steps, with their names. `Sync`, `Put` and `Delete` send a message. The other steps write the row
/// directly.
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

/// Lists for the searches with a view of a view. The view `managers` copies an employee who is a manager, and the view
/// `managers_by_name` copies that copy.
const CHAINED_STEPS: [(&str, &[ScriptStep]); 2] = [
    (
        "a manager created, renamed",
        &[Manager("a"), Sync, Manager("b"), Sync],
    ),
    (
        "a manager created, deleted",
        &[Manager("a"), Sync, Remove, Sync],
    ),
];

/// Names of the faults, with the maximum numbers of crashes, lost leases, lost answers, late requests and lost races.
const BUDGETS: [(&str, Budget); 7] = [
    ("nothing", budget(0, 0, 0, 0, 4)),
    ("a crash", budget(1, 0, 0, 0, 2)),
    ("a lost lease", budget(0, 1, 0, 0, 2)),
    ("no answer", budget(0, 0, 1, 0, 2)),
    ("a late request", budget(0, 0, 0, 1, 2)),
    ("a crash and a late request", budget(1, 0, 0, 1, 1)),
    ("a lost lease and a late request", budget(0, 1, 0, 1, 1)),
];

/// Number of entries of `BUDGETS` that are combined with `CHAINED_STEPS`. Only the first entries are used, because
/// these searches have many more states than the others.
const CHAINED_BUDGETS: usize = 2;

const fn budget(crashes: u8, leases: u8, silences: u8, late: u8, races: u8) -> Budget {
    Budget {
        crashes,
        leases,
        silences,
        races,
        late,
    }
}

/// All searches: each list of steps with each of its budgets.
pub fn scripts() -> impl Iterator<Item = Script> {
    let single = STEPS.into_iter().map(|steps| (steps, BUDGETS.len(), false));
    let chained = CHAINED_STEPS.map(|steps| (steps, CHAINED_BUDGETS, true));
    let every = single.chain(chained);
    every.flat_map(|((client, steps), budgets, chained)| {
        let budgets = BUDGETS.into_iter().take(budgets);
        budgets.map(move |(wrong, budget)| Script {
            client,
            wrong,
            steps,
            budget,
            chained,
        })
    })
}

fn key() -> EntityKey {
    of("p", "r")
}

fn of(pk: &str, rk: &str) -> EntityKey {
    EntityKey::new(pk, rk).unwrap_or_else(|error| unreachable!("{error}"))
}

impl ScriptStep {
    pub(super) fn operation(self) -> Option<TableOperation> {
        match self {
            Self::Write(email) => Some(TableOperation::InsertOrReplace(
                Entity::new(key()).with("Email", email),
            )),
            Self::Manager(name) => Some(TableOperation::InsertOrReplace(
                Entity::new(key())
                    .with("LastName", name)
                    .with("IsManager", true),
            )),
            Self::Remove => Some(TableOperation::Delete(key(), IfMatch::Any)),
            Self::Sync | Self::Put(_) | Self::Delete => None,
        }
    }

    pub(super) fn job(self) -> Option<Job> {
        let message = match self {
            Self::Write(_) | Self::Manager(_) | Self::Remove => return None,
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
