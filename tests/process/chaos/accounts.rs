//! The balance of a queue, as in Jepsen's `total-queue`: which jobs were attempted, acknowledged and done. An
//! acknowledged job that is neither done nor poisoned is lost. There must be none.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::end_to_end::site::Site;

#[derive(Debug)]
pub(crate) struct Accounts {
    /// Number of consecutive jobs of one kind.
    neighbours: usize,
    pub(crate) attempted: BTreeMap<usize, u32>,
    /// The jobs that a submitter has reported as queued.
    pub(crate) acknowledged: BTreeSet<usize>,
}

/// The employee of a job. Each job has its own employee.
pub(crate) fn employee(number: usize) -> Entity {
    Entity::new(
        EntityKey::new(format!("Department {}", number % 7), format!("{number:05}")).unwrap(),
    )
    .with("FirstName", format!("First {number}"))
    .with("Email", format!("Number.{number}@contoso.com"))
}

pub(crate) fn job(number: usize, neighbours: usize) -> Value {
    let EntityKey { pk, rk } = employee(number).key;
    let (pk, rk) = (pk.as_str(), rk.as_str());
    match number / neighbours % 4 {
        0 => json!({"op": "sync", "table": "Employees", "pk": pk, "rk": rk}),
        1 => json!({"op": "put", "table": "Employees", "mode": "merge",
            "entity": {"PartitionKey": pk, "RowKey": rk, "Email": format!("renamed.{number}@contoso.com")}}),
        2 => json!({"op": "delete", "table": "Employees", "pk": pk, "rk": rk}),
        _ => json!({"op": "archive", "archive": "former_employees", "pk": pk, "rk": rk}),
    }
}

type Keyed = BTreeMap<(String, String), evenkeel_model::Row>;

fn is_done(
    (number, neighbours): (usize, usize),
    present: &Keyed,
    archived: &Keyed,
    index: &Keyed,
) -> bool {
    let EntityKey { pk, rk } = employee(number).key;
    let key = (pk.as_str().to_owned(), rk.as_str().to_owned());
    let indexed = |email: String| index.contains_key(&(format!("email_{pk}"), email));
    let email = |table: &Keyed| {
        table
            .get(&key)
            .and_then(|row| row.entity.text("Email").map(str::to_lowercase))
    };
    let (here, there) = (email(present), email(archived));
    let listed = here.clone().is_some_and(indexed);
    let old = indexed(format!("number.{number}@contoso.com"));
    match number / neighbours % 4 {
        0 => here == Some(format!("number.{number}@contoso.com")) && listed,
        1 => here == Some(format!("renamed.{number}@contoso.com")) && listed && !old,
        2 => here.is_none() && there.is_none() && !old,
        _ => here.is_none() && there == Some(format!("number.{number}@contoso.com")) && !old,
    }
}

impl Accounts {
    pub(crate) const fn new(neighbours: usize) -> Self {
        Self {
            neighbours,
            attempted: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
        }
    }

    /// Asserts that no acknowledged job is lost, and that nothing unexpected exists. Returns a summary.
    pub(crate) fn balance(&self, site: &Site) -> String {
        let (present, archived, index) = (
            site.rows("Employees"),
            site.rows("FormerEmployees"),
            site.rows("EmployeesByEmail"),
        );
        let undone =
            |number: &&usize| !is_done((**number, self.neighbours), &present, &archived, &index);
        let lost: Vec<&usize> = self.acknowledged.iter().filter(undone).collect();
        assert!(lost.is_empty(), "acknowledged, but not done: {lost:?}");
        let expected = self
            .attempted
            .keys()
            .filter(|number| matches!(*number / self.neighbours % 4, 0 | 1))
            .count();
        assert_eq!(index.len(), expected, "orphaned items");
        let known: BTreeSet<(String, String)> = self
            .attempted
            .keys()
            .map(|number| employee(*number).key)
            .map(|EntityKey { pk, rk }| (pk.as_str().to_owned(), rk.as_str().to_owned()))
            .collect();
        let unexpected: Vec<_> = archived
            .keys()
            .filter(|key| !known.contains(*key))
            .collect();
        assert!(
            unexpected.is_empty(),
            "archived without a job: {unexpected:?}"
        );
        let duplicated = self.attempted.values().filter(|times| **times > 1).count();
        format!(
            "{} jobs acknowledged, {duplicated} sent more than once, 0 lost, 0 unexpected",
            self.acknowledged.len()
        )
    }
}
