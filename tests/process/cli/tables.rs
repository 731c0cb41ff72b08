//! A queue whose jobs are restricted to some tables.

use serde_json::{Value, json};

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

const MORE: &str = r#"
[[queues]]
name = "salaries"

[tables.Salaries]

[archives.former_salaries]
source = "Salaries"
to = { kind = "table", table = "FormerSalaries" }

[views.by_domain]
kind = "secondary_index"
source = "EmployeesByEmail"
table = "Domains"
partition_key = "domain"
row_key = "{Email}"
"#;

fn place() -> Place {
    let place = Place::new();
    let text = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    place.configure(&text.replace(
        "name = \"jobs\"",
        "name = \"jobs\"\ntables = [\"employees\"]",
    ));
    place.add(MORE);
    place.run(&["migrate", "up"]).success();
    place
}

fn put(table: &str, rk: &str) -> Value {
    json!({"op": "put", "table": table, "entity": {"PartitionKey": "Sales", "RowKey": rk, "Email": format!("{rk}@contoso.com")}})
}

#[test]
fn a_queue_of_some_tables_reads_and_changes_nothing_of_another() {
    let place = place();
    place
        .run(&["submit", &put("Salaries", "7").to_string()])
        .success();
    place
        .run(&["submit", &put("Employees", "7").to_string()])
        .success();
    assert_eq!(place.work()["poisoned"], json!(0));
    // The row belongs to a view of a view, whose table is not one of the queue's tables.
    place
        .run(&["get", "Domains", "domain", "7@contoso.com"])
        .success();
    let key = json!({"pk": "Sales", "rk": "7"});
    let with = |fields: Value| {
        let mut job = key.clone();
        job.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        job
    };
    let forbidden = [
        with(json!({"op": "sync", "table": "Salaries"})),
        with(json!({"op": "delete", "table": "salaries"})),
        put("Salaries", "8"),
        with(
            json!({"op": "move", "table": "Employees", "to_table": "Salaries", "to_pk": "Sales", "to_rk": "9"}),
        ),
        with(json!({"op": "archive", "archive": "former_salaries"})),
        with(json!({"op": "restore", "archive": "former_salaries"})),
        json!({"op": "backfill", "table": "Salaries"}),
        json!({"op": "backfill", "view": "by_domain"}),
        json!({"op": "audit", "table": "Salaries"}),
        json!({"op": "delete", "table": "Salaries", "pk": "Sales", "rks": ["7", "8"]}),
        json!({"op": "archive", "archive": "former_salaries", "pk": "Sales", "rks": ["7"]}),
    ];
    for job in &forbidden {
        let refused = place
            .run(&["submit", "--queue", "jobs", &job.to_string()])
            .failure();
        says(
            &stderr(&refused),
            &["queue jobs does not accept jobs for this table"],
        );
        place.put("jobs", &job.to_string());
    }
    place.work();
    let poisoned = json_lines(&place.run(&["--json", "poison", "list"]).success());
    for entry in &poisoned {
        let error = entry["error"].as_str().unwrap();
        assert!(
            error.contains("is not allowed on this queue; allowed are: employees"),
            "{entry}"
        );
    }
    assert_eq!(poisoned.len(), forbidden.len());
    place.run(&["get", "Salaries", "Sales", "7"]).success();
    place.run(&["get", "Salaries", "Sales", "8"]).failure();
    place.run(&["poison", "requeue", "--all"]);
    place.work();
    assert_eq!(
        json_lines(&place.run(&["--json", "poison", "list"]).success()).len(),
        forbidden.len(),
        "a requeued job must be poisoned again"
    );
}

#[test]
fn a_queue_names_tables_of_the_catalog() {
    let place = place();
    let text = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    for (tables, word) in [
        ("[\"Employes\"]", "did you mean Employees?"),
        ("[\"Logins%Y%m\"]", "no [retention]"),
        ("[]", "at least one table"),
    ] {
        place.configure(&text.replace("tables = [\"employees\"]", &format!("tables = {tables}")));
        says(
            &stdout(&place.run(&["config", "check"]).code(2)),
            &["queues[0].tables", word],
        );
    }
}
