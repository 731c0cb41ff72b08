//! The sample kind of view and the sample operation of docs/internals/extending.md, as users see them. The kind takes
//! one file, the operation two, and each takes one more line. Both exist only in test builds.

use evenkeel_model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::end_to_end::site::Site;

const CATALOG: &str = r#"
[views.employees_by_number]
kind = "sample_exchanged"
source = "Employees"
table = "EmployeesByNumber"
"#;

fn site() -> Site {
    let site = Site::embedded(CATALOG);
    site.migrate();
    let employee = |rk: &str, name: &str| {
        Entity::new(EntityKey::new("Sales", rk).unwrap()).with("LastName", name)
    };
    site.write("Employees", &[employee("7", "Kim"), employee("8", "Cao")]);
    site.submit(&[json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "7"})]);
    work(&site);
    site
}

fn work(site: &Site) {
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.skipped, summary.poisoned), (1, 0, 0));
}

fn copies(site: &Site) -> Vec<(String, String)> {
    site.rows("EmployeesByNumber").into_keys().collect()
}

#[test]
fn a_view_of_a_sample_kind_is_declared_derived_looked_up_and_removed() {
    let site = site();
    assert_eq!(copies(&site), [("7".to_owned(), "Sales".to_owned())]);

    let found = site.command(&[
        "--json",
        "lookup",
        "employees_by_number",
        "RowKey=7",
        "PartitionKey=Sales",
        "--entities",
    ]);
    assert_eq!(found.code, 0, "{}", found.err);
    let row: Value = serde_json::from_str(found.out.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&row["PartitionKey"], &row["RowKey"], &row["LastName"]),
        (&json!("Sales"), &json!("7"), &json!("Kim"))
    );

    site.submit(&[json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "7"})]);
    work(&site);
    assert_eq!(copies(&site), []);
}

#[test]
fn a_sample_kind_tells_its_mistakes_at_their_keys() {
    let site = Site::embedded(&format!("{CATALOG}row_key = \"{{Email}}\"\n"));
    let ended = site.command(&["config", "check"]);
    assert_eq!(ended.code, 2, "{}", ended.out);
    let expected = "views.employees_by_number.row_key: a copy has the keys of its primary, exchanged; remove this key";
    assert!(
        ended.err.contains(expected) || ended.out.contains(expected),
        "{}{}",
        ended.out,
        ended.err
    );
}

#[test]
fn a_job_of_a_sample_operation_is_decoded_and_run_and_in_no_schema() {
    let site = site();
    // Another program changes a derived row. A full sync finds the change.
    site.write(
        "EmployeesByNumber",
        &[site
            .row("EmployeesByNumber", "7", "Sales")
            .unwrap()
            .entity
            .with("LastName", "Nobody")],
    );
    site.submit(&[json!({"op": "sample_touch", "table": "Employees", "pk": "Sales", "rk": "7"})]);
    work(&site);
    assert_eq!(
        site.row("EmployeesByNumber", "7", "Sales")
            .unwrap()
            .entity
            .text("LastName"),
        Some("Kim")
    );

    let schema = site.command(&["schema"]).out;
    assert!(schema.contains("\"sync\"") && !schema.contains("sample_touch"));
}
