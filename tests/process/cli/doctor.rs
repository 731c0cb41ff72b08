//! `evenkeel doctor` reports findings and advice, and changes nothing.

use evenkeel_model::TableName;
use evenkeel_storage::all_tables;
use serde_json::Value;

use crate::cli::place::{Place, json_lines, says, stdout};

fn findings(place: &Place, arguments: &[&str], code: i32, check: &str) -> (Vec<Value>, Value) {
    let mut lines = json_lines(
        &place
            .run(&[&["--json", "doctor"], arguments].concat())
            .code(code),
    );
    let summary = lines.pop().unwrap();
    (
        lines
            .into_iter()
            .filter(|line| line["check"] == check)
            .collect(),
        summary,
    )
}

fn tables(place: &Place) -> Vec<String> {
    let tables = place.by_hand(async |store| all_tables(store.tables.as_ref()).await.unwrap());
    tables.into_iter().map(|table| table.to_string()).collect()
}

#[test]
fn a_store_that_is_ready_has_no_error_and_nothing_is_written_to_it() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let before = tables(&place);
    let (workers, summary) = findings(&place, &[], 0, "workers");
    assert_eq!(
        (
            &workers[0]["severity"],
            &summary["errors"],
            &summary["warnings"]
        ),
        (&"warning".into(), &0.into(), &1.into()),
        "no worker runs"
    );
    let shown = stdout(&place.run(&["doctor", "--write", "--all"]).success());
    says(
        &shown,
        &[
            "catalog of main: generation 1 is recorded, with 1 view",
            "writes of main: queues: create, write, read and delete are allowed",
        ],
    );
    says(&shown, &["0 errors, 1 warning,", "evenkeel run"]);
    assert_eq!(tables(&place), before);
}

#[test]
fn what_waits_for_an_operator_is_an_error_with_its_remedy() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.put("jobs", "no job at all");
    place.work();
    place.put(
        "jobs",
        r#"{"op":"sync","table":"Employees","pk":"Sales","rk":"7"}"#,
    );
    place.by_hand(async |store| {
        store
            .tables
            .create_table(&TableName::new("EvenkeelScratch1").unwrap())
            .await
            .unwrap()
    });
    let (poison, summary) = findings(&place, &[], 1, "poison");
    says(
        &poison[0].to_string(),
        &["1 poisoned message:", "evenkeel poison list --queue jobs"],
    );
    assert_eq!(
        summary["errors"], 2,
        "the poisoned message, and a job without a worker"
    );
    let shown = stdout(&place.run(&["doctor"]).code(1));
    says(
        &shown,
        &[
            "error    poison of jobs",
            "backlog of jobs: 1 message,",
            "no worker runs",
            "was killed: EvenkeelScratch1",
        ],
    );
}

#[test]
fn pending_migrations_are_an_error_where_no_worker_makes_them() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.add("[archives.gone]\nsource = \"Employees\"\nto = { kind = \"table\", table = \"GoneEmployees\" }\n");
    let (catalog, _) = findings(&place, &["--set", "migrate.auto=true"], 0, "catalog");
    says(
        &catalog[0].to_string(),
        &["warning", "GoneEmployees", "a starting worker does so too"],
    );
    let (catalog, _) = findings(&place, &["--set", "migrate.auto=false"], 1, "catalog");
    says(
        &catalog[0].to_string(),
        &["error", "GoneEmployees", "`evenkeel migrate up` does this"],
    );
}

#[test]
fn an_account_that_does_not_answer_is_said_once_for_each_service() {
    let shown = stdout(&Place::unreachable().run(&["doctor"]).code(1));
    says(
        &shown,
        &[
            "error    tables of main: Query Tables",
            "error    queues of main:",
            "check [accounts.main] and the network",
        ],
    );
    assert_eq!(shown.matches("tables of main").count(), 1, "{shown}");
}
