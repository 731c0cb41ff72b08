//! A table in a database, whose rows the program derives.

use rusqlite::Connection;
use serde_json::{Value, json};

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

const VIEW: &str = r#"
[sinks.reporting]
kind = "sqlite"
path = "data/reporting.db"

[views.staff]
kind = "sql_table"
source = "Employees"
when = "exists(LastName)"
sink = "reporting"
table = "staff"
columns = { department = "text {PartitionKey}", name = "text(20) {FirstName} {LastName}", salary = "double {Salary}", since = "timestamp {Since}" }
"#;

fn rows(place: &Place, columns: &str) -> Vec<Value> {
    let database = Connection::open(place.folder().join("data/reporting.db")).unwrap();
    let query = format!("SELECT json_array({columns}) FROM staff ORDER BY department, name");
    let mut statement = database.prepare(&query).unwrap();
    let texts = statement
        .query_map([], |row| row.get::<_, String>(0))
        .unwrap();
    texts
        .map(|text| serde_json::from_str(&text.unwrap()).unwrap())
        .collect()
}

fn submit(place: &Place, job: &Value) {
    place.run(&["submit", &job.to_string()]).success();
    place.work();
}

#[test]
fn a_table_is_created_filled_changed_mended_and_emptied() {
    const ALL: &str = "department, name, salary, since";
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.add(VIEW);
    place.run(&["config", "check"]).success();
    let pending = stdout(&place.run(&["migrate", "status"]).success());
    says(
        &pending,
        &[
            "create table staff (sink reporting): department text, name text(20), salary double, since timestamp",
        ],
    );
    place.run(&["migrate", "up"]).success();
    says(
        &stderr(&place.run(&["migrate", "up"]).success()),
        &["up to date"],
    );
    let person = |rk: &str, last: &str, salary: f64| {
        json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": rk, "FirstName": "Ada", "LastName": last,
            "Email": format!("{rk}@contoso.com"), "Salary": salary, "Since@odata.type": "Edm.DateTime", "Since": "2026-11-20T15:00:00Z"}})
    };
    submit(&place, &person("1", "King", 100.25));
    submit(&place, &person("2", "Byron", 90.0));
    let since = "2026-11-20T15:00:00.0000000Z";
    assert_eq!(
        rows(&place, ALL),
        [
            json!(["Sales", "Ada Byron", 90.0, since]),
            json!(["Sales", "Ada King", 100.25, since])
        ]
    );
    let found = &json_lines(
        &place
            .run(&[
                "--json",
                "lookup",
                "staff",
                "PartitionKey=Sales",
                "RowKey=1",
            ])
            .success(),
    )[0];
    assert_eq!(found["name"], json!("Ada King"));

    // A value that does not fit into its column fails only this view. The error names the entity and the column.
    submit(&place, &person("2", "of a very long name", 90.0));
    let poison = stdout(&place.run(&["--json", "poison", "list"]).success());
    says(&poison, &["\\\"name\\\"", "text(20)", "Employees"]);
    place
        .run(&["poison", "discard", "--all", "--yes"])
        .success();
    submit(
        &place,
        &json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "2"}),
    );
    assert_eq!(
        rows(&place, ALL),
        [json!(["Sales", "Ada King", 100.25, since])]
    );

    Connection::open(place.folder().join("data/reporting.db"))
        .unwrap()
        .execute("UPDATE staff SET salary = 1", [])
        .unwrap();
    place.run(&["audit", "--table", "Employees"]).code(3);
    place
        .run(&["audit", "--table", "Employees", "--repair"])
        .success();
    place.run(&["audit", "--table", "Employees"]).success();
    assert_eq!(rows(&place, "salary"), [json!([100.25])]);

    // If a column is added, the table is filled again.
    let config = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    place.configure(&config.replace("columns = {", "columns = { email = \"text {Email|lower}\","));
    let pending = stdout(&place.run(&["migrate", "status"]).success());
    says(
        &pending,
        &[
            "add to table staff (sink reporting): email text",
            "record view staff of Employees as changed",
        ],
    );
    place.run(&["migrate", "up", "--retire"]).success();
    place.run(&["backfill", "--view", "staff"]).success();
    assert_eq!(
        rows(&place, "email, salary"),
        [json!(["1@contoso.com", 100.25])]
    );

    Connection::open(place.folder().join("data/reporting.db"))
        .unwrap()
        .execute("DROP TABLE staff", [])
        .unwrap();
    place.run(&["migrate", "up"]).success();
    place.run(&["backfill", "--view", "staff"]).success();
    assert_eq!(rows(&place, "email"), [json!(["1@contoso.com"])]);

    // A column whose type differs is reported, and is not changed.
    let config = std::fs::read_to_string(place.folder().join("default.toml")).unwrap();
    place.configure(&config.replace("double {Salary}", "integer {Salary}"));
    says(
        &stdout(&place.run(&["migrate", "status"]).success()),
        &["salary is double, not integer"],
    );

    // The view is removed from the catalog, and then a backfill removes the view's rows from the table.
    let (without, _) = config.split_once("[views.staff]").unwrap();
    place.configure(without);
    place.run(&["migrate", "up", "--retire"]).success();
    place.run(&["backfill", "--table", "Employees"]).success();
    assert_eq!(rows(&place, "name"), [] as [Value; 0]);
}

#[test]
fn what_a_database_lacks_is_created_or_told() {
    let place = Place::new();
    place.add(VIEW);
    place.run(&["migrate", "up"]).success();
    let admin = |statement: &str| {
        Connection::open(place.folder().join("data/reporting.db"))
            .unwrap()
            .execute_batch(statement)
            .unwrap();
    };
    admin("DROP TABLE evenkeel_tombstones");
    let create = ["create table evenkeel_tombstones (sink reporting): version integer"];
    says(
        &stdout(&place.run(&["migrate", "status"]).success()),
        &create,
    );
    says(&stdout(&place.run(&["migrate", "up"]).success()), &create);
    says(
        &stderr(&place.run(&["migrate", "up"]).success()),
        &["up to date"],
    );

    admin("ALTER TABLE evenkeel_tombstones DROP COLUMN version");
    let add = ["add to table evenkeel_tombstones (sink reporting): version integer"];
    says(&stdout(&place.run(&["migrate", "status"]).success()), &add);
    says(&stdout(&place.run(&["migrate", "up"]).success()), &add);
    says(
        &stderr(&place.run(&["migrate", "up"]).success()),
        &["up to date"],
    );

    admin("ALTER TABLE staff RENAME COLUMN ek_key TO theirs");
    let told = [
        "do not match view staff",
        "ek_key is missing, not text",
        "give the view another one",
    ];
    says(&stdout(&place.run(&["migrate", "status"]).success()), &told);
    let ended = place.run(&["migrate", "up"]).success();
    says(&stderr(&ended), &told);
    assert!(!stderr(&ended).contains("up to date"), "{}", stderr(&ended));
    admin("ALTER TABLE staff RENAME COLUMN theirs TO ek_key");
    let entity =
        json!({"PartitionKey": "Sales", "RowKey": "1", "FirstName": "Ada", "LastName": "King"});
    submit(
        &place,
        &json!({"op": "put", "table": "Employees", "entity": entity}),
    );
    assert_eq!(rows(&place, "name"), [json!(["Ada King"])]);
}

#[test]
fn a_database_that_is_away_puts_its_jobs_off_and_no_others() {
    let place = Place::new();
    place.add(VIEW);
    place.run(&["migrate", "up"]).success();
    let data = place.folder().join("data");
    std::fs::rename(&data, place.folder().join("kept")).unwrap();
    std::fs::write(&data, "no folder").unwrap();
    // The database's table is recorded, so a worker starts without the database. A job succeeds if its entity needs no
    // row there.
    let jobs = [
        json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Email": "a@b"}}),
    ];
    place.run(&["submit", &jobs[0].to_string()]).success();
    assert_eq!(place.work()["done"], json!(1));
    std::fs::remove_file(&data).unwrap();
    std::fs::rename(place.folder().join("kept"), &data).unwrap();
    assert_eq!(rows(&place, "name"), [] as [Value; 0]);
}
