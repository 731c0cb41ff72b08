//! A database that is killed repeatedly while workers write to it.
//!
//! Each round changes primaries, and kills the server when some of the round's rows are written. The server recovers,
//! and the next round begins. At the end the table must contain exactly the rows of the primaries.

use std::collections::BTreeMap;

use evenkeel_model::EdmValue;
use serde_json::{Value, json};

use crate::end_to_end::site::{Site, Summary};
use crate::end_to_end::worker::wait_until;
use crate::support::postgres::{Postgres, USER};

const DATABASE: &str = "reporting";

fn catalog(server: &Postgres) -> String {
    let host = server.folder().display();
    format!(
        r#"
[[queues]]
name = "evenkeel-jobs"

[sinks.reporting]
kind = "postgresql"
host = "{host}"
database = "{DATABASE}"
user = "{USER}"

[views.staff]
kind = "sql_table"
source = "Employees"
when = "Active == true"
sink = "reporting"
table = "staff"
columns = {{ department = "text {{PartitionKey}}", number = "text {{RowKey}}", name = "text(40) {{Name}}", salary = "double {{Salary}}", round = "integer {{Round}}" }}
"#
    )
}

/// The job of a round for a primary: a put with a row, a put without a row, a delete, or a sync.
fn job(number: usize, round: usize) -> Value {
    let (pk, rk) = (format!("Department {}", number % 7), format!("{number:05}"));
    match (number + round) % 6 {
        0 if round > 0 => json!({"op": "delete", "table": "Employees", "pk": pk, "rk": rk}),
        1 if round > 0 => json!({"op": "sync", "table": "Employees", "pk": pk, "rk": rk}),
        kind => {
            json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": pk, "RowKey": rk, "Active": kind != 2,
            "Name": format!("Number {number} 한"), "Salary": 0.1 + f64::from(u32::try_from(number + round).unwrap()), "Round": round}})
        }
    }
}

fn storm(site: &Site, mut server: Postgres, primaries: usize, rounds: usize) {
    server.database(DATABASE);
    site.declare(&catalog(&server));
    site.migrate();
    let workers = [site.worker(&[]), site.worker(&[])];
    for round in 0..rounds {
        let before = server
            .ask(DATABASE, "SELECT coalesce(max(ek_version), 0) FROM staff")
            .remove(0);
        site.submit(
            &(0..primaries)
                .map(|number| job(number, round))
                .collect::<Vec<_>>(),
        );
        let news = format!("SELECT count(*) FROM staff WHERE ek_version > {before}");
        wait_until("some rows of the round are there", || {
            server.ask(DATABASE, &news)[0].parse::<usize>().unwrap() > primaries / 40
        });
        server.kill();
        server.restart();
    }
    workers
        .into_iter()
        .for_each(crate::end_to_end::worker::Worker::stop);
    let Summary { poisoned, .. } = site.run_until_idle(&[]);
    assert_eq!((poisoned, site.poison()), (0, Vec::new()));

    let mut wanted = BTreeMap::new();
    for ((pk, rk), row) in site.rows("Employees") {
        let (Some(EdmValue::Double(salary)), Some(EdmValue::Int32(round))) =
            (row.entity.get("Salary"), row.entity.get("Round"))
        else {
            panic!("{row:?}")
        };
        if row.entity.get("Active") == Some(&EdmValue::Bool(true)) {
            wanted.insert(
                rk,
                format!("{pk}|{}|{salary}|{round}", row.entity.text("Name").unwrap()),
            );
        }
    }
    let found = server.ask(
        DATABASE,
        "SELECT number, department, name, salary, round FROM staff",
    );
    let found: BTreeMap<String, String> = found
        .iter()
        .filter_map(|row| row.split_once('|'))
        .map(|(key, row)| (key.to_owned(), row.to_owned()))
        .collect();
    let stale = wanted
        .iter()
        .filter(|(key, row)| found.get(*key) != Some(row))
        .count();
    assert_eq!((stale, found.len()), (0, wanted.len()));
    assert!(wanted.len() > primaries / 3, "{} rows", wanted.len());
    println!(
        "{rounds} kills of the database: {} rows of {primaries} primaries, 0 stale",
        found.len()
    );
}

#[test]
fn a_database_that_is_killed_again_and_again_ends_with_the_rows_of_an_embedded_store() {
    // The environment variable sets another number, for the measurement in docs/patterns/sql-tables.md.
    let primaries =
        std::env::var("EVENKEEL_CHAOS_PRIMARIES").map_or(2_000, |number| number.parse().unwrap());
    storm(
        &Site::embedded(""),
        Postgres::start(&["-c", "listen_addresses="]),
        primaries,
        5,
    );
}

#[test]
fn a_database_that_is_killed_ends_with_the_rows_of_azurite() {
    storm(
        &Site::azurite(""),
        Postgres::start(&["-c", "listen_addresses="]),
        200,
        2,
    );
}
