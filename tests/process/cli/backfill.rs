//! `backfill` derives the items of entities that are older than the view.

use evenkeel_model::{Entity, EntityKey, TableName};
use evenkeel_storage::{Account, TableOperation};
use serde_json::json;

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

fn put(rk: usize, email: &str) -> String {
    json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": format!("{rk:03}"), "Email": email}})
        .to_string()
}

/// A place with employees, and a view that is added afterwards.
fn filled(employees: usize) -> Place {
    let place = Place::new();
    let jobs: Vec<String> = (0..employees)
        .map(|rk| put(rk, &format!("{rk}@contoso.com")))
        .collect();
    let before = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    place.configure(&format!(
        "{}\n[tables.Employees]\n",
        before.split("[views.by_email]").next().unwrap()
    ));
    place.run(&["migrate", "up"]).success();
    place.run_with(&["submit", "-"], jobs.join("\n")).success();
    assert_eq!(place.work()["done"], employees);
    place.configure(&before);
    place.run(&["migrate", "up"]).success();
    assert_eq!(copies(&place), 0);
    place
}

fn copies(place: &Place) -> usize {
    let found = json_lines(
        &place
            .run(&["--json", "lookup", "by_email", "Email>=\"0\""])
            .success(),
    );
    found.last().unwrap()["rows"]
        .as_u64()
        .map(|rows| usize::try_from(rows).unwrap())
        .unwrap()
}

#[test]
fn a_new_view_gets_the_items_of_the_data_that_was_there() {
    let place = filled(250);
    let done = json_lines(
        &place
            .run(&["--json", "backfill", "--view", "by_email"])
            .success(),
    );
    assert_eq!(
        done,
        [
            json!({"table": "Employees", "primaries": 250, "created": 250, "updated": 0, "deleted": 0, "failed": 0})
        ]
    );
    assert_eq!(copies(&place), 250);
    let again = stdout(&place.run(&["backfill", "--table", "employees"]).success());
    says(
        &again,
        &["Employees: 250 primaries in step, 0 items created, 0 updated, 0 deleted"],
    );
}

#[test]
fn the_workers_do_it_as_a_job() {
    let place = filled(30);
    says(
        &stdout(&place.run(&["backfill", "--submit"]).success()),
        &["sent backfill of Employees to jobs as "],
    );
    let summary = place.work();
    assert_eq!(
        (&summary["done"], &summary["poisoned"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(copies(&place), 30);
}

#[test]
fn a_primary_that_cannot_be_brought_in_step_holds_up_no_other_and_ends_in_poison_with_its_reason() {
    let place = filled(10);
    let long =
        Entity::new(EntityKey::new("Sales", "long").unwrap()).with("Email", "x".repeat(1100));
    place.by_hand(async |store| insert(&store, "Employees", [long]).await);
    let ended = place.run(&["backfill"]).code(1);
    says(
        &stdout(&ended),
        &[
            "Employees: 10 primaries in step",
            "1 primary could not be brought in step",
        ],
    );
    says(&stderr(&ended), &["evenkeel poison list"]);
    assert_eq!(place.work()["poisoned"], 1);
    let poison = json_lines(&place.run(&["--json", "poison", "list"]).success());
    says(
        poison[0]["error"].as_str().unwrap_or_default(),
        &["row_key"],
    );
    assert_eq!(copies(&place), 10);
}

async fn insert(store: &Account, table: &str, entities: impl IntoIterator<Item = Entity>) {
    let table = TableName::new(table).unwrap();
    for entity in entities {
        store
            .tables
            .apply(&table, &TableOperation::Insert(entity))
            .await
            .unwrap();
    }
}

#[test]
fn of_two_who_want_one_key_the_second_has_a_poison_message_that_says_so() {
    let place = filled(10);
    place.run(&["submit", &put(7, "3@contoso.com")]).success();
    // Two employees want the same address. Before the backfill, the first one has no index row, so the put of the other
    // succeeds. Then the backfill fails for the first one.
    let work = place.work();
    assert_eq!(work["poisoned"], 0, "the address has no holder yet: {work}");
    let ended = place.run(&["backfill"]).code(1);
    says(
        &stdout(&ended),
        &[
            "Employees: 9 primaries in step, 8 items created",
            "1 primary could not be brought in step",
        ],
    );
    assert_eq!(place.work()["poisoned"], 1);
    let poison = json_lines(&place.run(&["--json", "poison", "list"]).success());
    says(
        poison[0]["error"].as_str().unwrap_or_default(),
        &["3@contoso.com", "is taken by Employees"],
    );
    assert_eq!(copies(&place), 9);
    says(
        &stdout(&place.run(&["audit"]).code(3)),
        &["taken", "1 item is wrong"],
    );
}

#[test]
fn rows_of_others_are_told_beforehand_and_are_one_finding_of_each_view() {
    let place = filled(30);
    let theirs = (0..20).map(|n| {
        Entity::new(EntityKey::new("email", format!("{n}@contoso.com")).unwrap())
            .with("Of", "somebody")
    });
    place.by_hand(async |store| insert(&store, "EmployeesByEmail", theirs).await);
    let warning = "the table EmployeesByEmail holds rows that evenkeel did not write";
    says(
        &stdout(&place.run(&["doctor"])),
        &["warning  views of by_email", warning, "are taken"],
    );
    let ended = place.run(&["--json", "backfill"]).code(3);
    says(&stderr(&ended), &[warning]);
    let result = &json_lines(&ended)[0];
    assert_eq!(
        (&result["primaries"], &result["created"], &result["failed"]),
        (&json!(10), &json!(10), &json!(0)),
        "{result}"
    );
    assert_eq!(result["taken"]["by_email"]["items"], json!(20));
    says(
        result["taken"]["by_email"]["example"].as_str().unwrap(),
        &["taken by a row that evenkeel did not write", "@contoso.com"],
    );
    // A backfill job, or a repair, queues no message per primary.
    place.run(&["backfill", "--submit"]).success();
    place.run(&["audit", "--repair"]).code(3);
    let work = place.work();
    assert_eq!(
        (&work["done"], &work["poisoned"]),
        (&json!(1), &json!(0)),
        "{work}"
    );
    says(
        &stdout(&place.run(&["audit"]).code(3)),
        &["20 items are wrong"],
    );
}

#[test]
fn unknown_tables_and_views_are_reported() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    says(
        &stderr(&place.run(&["backfill", "--table", "Nobody"]).code(2)),
        &["has no table Nobody", "Employees"],
    );
    says(
        &stderr(&place.run(&["backfill", "--view", "nothing"]).code(2)),
        &["has no view nothing", "by_email"],
    );
    for command in ["backfill", "audit"] {
        for (table, writer) in [
            ("EmployeesByEmail", "view by_email"),
            ("FormerEmployees", "archive former"),
        ] {
            let said = stderr(&place.run(&[command, "--table", table]).code(2));
            says(
                &said,
                &[&format!(
                    "no view has the table {table} as its source; it is written by {writer}, from Employees"
                )],
            );
        }
    }
    place.add("[tables.Notes]\n");
    let said = stderr(
        &place
            .run(&["audit", "--submit", "--table", "notes"])
            .code(2),
    );
    says(
        &said,
        &["no view has the table Notes as its source; sources are Employees"],
    );
}
