//! `audit` finds, reports and repairs the results of manual changes, of other programs and of lost jobs.

use evenkeel_model::{Entity, EntityKey, TableName};
use evenkeel_storage::TableOperation;
use serde_json::{Value, json};

use crate::cli::api::Api;
use crate::cli::place::{Place, json_lines, says, stdout};

fn put(rk: &str, email: &str) -> String {
    json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": rk, "Email": email, "LastName": "Kim"}})
        .to_string()
}

fn filled() -> Place {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    fill(&place);
    assert_eq!(place.work()["done"], 10);
    place
}

fn fill(place: &Place) {
    let jobs: Vec<String> = (0..10)
        .map(|rk| put(&rk.to_string(), &format!("{rk}@contoso.com")))
        .collect();
    place.run_with(&["submit", "-"], jobs.join("\n")).success();
}

fn copy(email: &str, owner: &str) -> Entity {
    Entity::new(EntityKey::new("email", email).unwrap())
        .with("Email", email)
        .with("LastName", "Kim")
        .with(
            "ek_source",
            json!(["Employees", "Sales", owner]).to_string(),
        )
        .with("ek_view", "by_email")
}

/// Causes five kinds of damage. The last kind is harmless.
fn harm(place: &Place) {
    place.by_hand(async |store| {
        let copies = TableName::new("EmployeesByEmail").unwrap();
        let missing = EntityKey::new("email", "0@contoso.com").unwrap();
        let different = copy("1@contoso.com", "1").with("LastName", "Nobody");
        let employee = Entity::new(EntityKey::new("Sales", "3").unwrap())
            .with("Email", "new@contoso.com")
            .with("LastName", "Kim");
        for (table, operation) in [
            (
                &copies,
                TableOperation::Delete(missing, evenkeel_storage::IfMatch::Any),
            ),
            (&copies, TableOperation::InsertOrReplace(different)),
            (
                &copies,
                TableOperation::InsertOrReplace(copy("stray@contoso.com", "2")),
            ),
            (
                &TableName::new("Employees").unwrap(),
                TableOperation::InsertOrReplace(employee),
            ),
            (
                &copies,
                TableOperation::InsertOrReplace(copy("4@contoso.com", "4")),
            ),
        ] {
            store.tables.apply(table, &operation).await.unwrap();
        }
    });
}

fn findings(lines: &[Value]) -> Vec<(String, String)> {
    let mut found: Vec<_> = lines
        .iter()
        .filter(|line| line.get("rk").is_some())
        .map(|line| {
            (
                line["problem"].as_str().unwrap().to_owned(),
                line["rk"].as_str().unwrap().to_owned(),
            )
        })
        .collect();
    found.sort();
    found
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected
        .iter()
        .map(|(problem, rk)| ((*problem).to_owned(), (*rk).to_owned()))
        .collect()
}

#[test]
fn an_audit_of_settled_data_finds_nothing() {
    let place = filled();
    says(
        &stdout(&place.run(&["audit"]).success()),
        &[
            "Employees: 10 primaries compared item by item, 10 copies checked for an owner: nothing is wrong",
        ],
    );
    let summary = json_lines(
        &place
            .run(&["--json", "audit", "--view", "by_email"])
            .success(),
    );
    assert_eq!(
        summary,
        [
            json!({"table": "Employees", "primaries": 10, "rows": 10, "drift": 0, "repaired": 0, "failed": 0})
        ]
    );
}

#[test]
fn harm_is_found_told_and_mended() {
    let place = filled();
    harm(&place);
    let expected = pairs(&[
        ("different", "1@contoso.com"),
        ("missing", "0@contoso.com"),
        ("missing", "new@contoso.com"),
        ("unwanted", "3@contoso.com"),
        ("unwanted", "stray@contoso.com"),
    ]);
    let told = json_lines(&place.run(&["--json", "audit"]).code(3));
    assert_eq!(findings(&told), expected);
    assert_eq!(told.last().unwrap()["drift"], 5);
    assert_eq!(
        findings(&json_lines(
            &place
                .run(&["--json", "audit", "--table", "employees"])
                .code(3)
        )),
        expected,
        "it only read"
    );

    let mended = place.run(&["audit", "--repair"]).success();
    says(
        &stdout(&mended),
        &[
            "(repaired)",
            "derived from Employees(\"Sales\", \"2\")",
            "5 items repaired: nothing is wrong",
        ],
    );
    let after = json_lines(&place.run(&["--json", "audit"]).success());
    assert_eq!(
        (after.len(), &after[0]["drift"], &after[0]["rows"]),
        (1, &json!(0), &json!(10))
    );
}

#[test]
fn a_key_that_another_has_is_told_and_cannot_be_mended() {
    let place = filled();
    place.run(&["submit", &put("9", "8@contoso.com")]).success();
    assert_eq!(place.work()["poisoned"], 1);
    let told = json_lines(&place.run(&["--json", "audit", "--repair"]).code(3));
    assert_eq!(findings(&told), pairs(&[("taken", "8@contoso.com")]));
}

#[test]
fn a_primary_whose_items_cannot_be_derived_is_named_with_the_reason() {
    let place = filled();
    place.by_hand(async |store| {
        let long = Entity::new(EntityKey::new("Sales", "k".repeat(500)).unwrap())
            .with("Email", "é".repeat(600))
            .with("LastName", "Kim");
        store
            .tables
            .apply(
                &TableName::new("Employees").unwrap(),
                &TableOperation::InsertOrReplace(long),
            )
            .await
            .unwrap();
    });
    let told = json_lines(&place.run(&["--json", "audit"]).code(3));
    let failed = told
        .iter()
        .find(|line| line["problem"] == "failed")
        .unwrap();
    assert_eq!(
        (&failed["views"], &failed["of"]),
        (
            &json!(["by_email"]),
            &json!(format!("Employees(\"Sales\", \"{}\")", "k".repeat(500)))
        )
    );
    let error = failed["error"].as_str().unwrap();
    assert!(
        error.contains("view by_email") && error.contains("at most 512") && error.len() < 1_000,
        "{error}"
    );
    says(
        &stdout(&place.run(&["audit"]).code(3)),
        &["failed    Employees(\"Sales\", \"kkk", "at most 512"],
    );
}

#[test]
fn the_workers_do_it_and_the_dashboard_and_the_metrics_say_what_they_found() {
    let api = Api::start();
    fill(&api.place);
    api.awaits("/api/v1/status", |status| {
        status["queues"][0]["endings"]["done"] == 10
    });
    harm(&api.place);
    let view =
        |holds: &dyn Fn(&Value) -> bool| api.awaits("/api/v1/views", |views| holds(&views[0]));
    api.place.run(&["audit", "--submit"]).success();
    view(&|view| view["drift"] == 5 && view["audited"].is_string());
    says(
        &api.get("/metrics").body,
        &["evenkeel_drift_items{view=\"by_email\"} 5"],
    );
    says(
        &api.get("/api/v1/status").body,
        &["Drifted: the last audit of by_email did not repair 5 wrong items"],
    );
    says(&api.get("/views").body, &["5 items"]);
    api.place.run(&["backfill", "--submit"]).success();
    view(&|view| view["drift"] == 1);
    says(
        &api.get("/api/v1/status").body,
        &["Drifted: the last audit of by_email did not repair 1 wrong item"],
    );
    api.place.run(&["audit", "--submit", "--repair"]).success();
    view(&|view| view["drift"] == 0);
    says(
        &api.get("/metrics").body,
        &["evenkeel_drift_items{view=\"by_email\"} 0"],
    );
}
