//! Tables by date: created ahead, dropped whole, and nothing else ever.

use std::collections::BTreeSet;

use evenkeel::adapters::system::SystemClock;
use evenkeel::model::dated::DatedTables;
use evenkeel::model::{ContainerName, Entity, EntityKey, TableName};
use evenkeel::ports::{Clock as _, all_tables};
use serde_json::json;

use crate::site::{EMPLOYEES, Site};

fn tables(site: &Site) -> BTreeSet<String> {
    let tables = site.with(async |account| all_tables(account.tables.as_ref()).await.unwrap());
    tables.iter().map(ToString::to_string).collect()
}

fn kept(place: fn(&str) -> Site) {
    let site = place(&format!("{EMPLOYEES}\n[retention.logins]\ntables = \"Logins%Y%m%d\"\nkeep = \"30d\"\nahead = 3\n"));
    site.migrate();
    let login = Entity::new(EntityKey::new("jun", "1").unwrap()).with("Ok", true);
    for table in ["Logins20200101", "Logins20200102", "Logins", "LoginsOfOld20200101"] {
        site.write(table, std::slice::from_ref(&login));
    }
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (2, 0), "two drops");
    let there = tables(&site);
    assert!(there.contains("Logins") && there.contains("LoginsOfOld20200101") && there.contains("Employees"), "{there:?}");
    assert!(!there.contains("Logins20200101") && !there.contains("Logins20200102"), "{there:?}");
    let wanted = DatedTables::parse("Logins%Y%m%d").unwrap();
    // Midnight may pass meanwhile: what was ahead of the first table is there either way.
    let ahead = wanted.from(SystemClock::new().now(), 2);
    assert!(ahead.iter().all(|table| there.contains(table.as_str())), "{there:?} lack some of {ahead:?}");

    let today = &ahead[1];
    site.submit(&[json!({"op": "put", "table": today, "entity": {"PartitionKey": "jun", "RowKey": "1", "Ok": true}})]);
    site.run_until_idle(&[]);
    assert!(site.row(today.as_str(), "jun", "1").is_some());
    site.submit(&[json!({"op": "drop_table", "table": today.as_str().to_lowercase()})]);
    site.run_until_idle(&[]);
    assert!(!site.with(async |account| account.tables.get(today, &login.key, None).await.is_ok_and(|row| row.is_some())));

    // A table of a time that is over is not made again, and one of no pattern is not dropped.
    site.submit(&[json!({"op": "put", "table": "Logins20200101", "entity": {"PartitionKey": "jun", "RowKey": "1"}})]);
    site.put_texts([r#"{"op":"drop_table","table":"Employees"}"#]);
    let summary = site.run_until_idle(&[]);
    assert_eq!(summary.poisoned, 2);
    let errors: Vec<String> = site.poison().iter().map(|message| message["error"].to_string()).collect();
    assert!(errors.iter().any(|error| error.contains("the table Employees is of no [retention] pattern")), "{errors:?}");
    assert!(errors.iter().any(|error| error.contains("Logins20200101") && error.contains("does not exist")), "{errors:?}");
    assert!(tables(&site).contains("Employees"));
    assert!(!tables(&site).contains(TableName::new("Logins20200101").unwrap().as_str()));
}

#[test]
fn tables_by_date_come_and_go_and_no_others_on_the_embedded_store() {
    kept(Site::embedded);
}

#[test]
fn tables_by_date_come_and_go_and_no_others_on_azurite() {
    kept(Site::azurite);
}

fn archived(place: fn(&str) -> Site) {
    let site = place(&format!(
        "{EMPLOYEES}\n[retention.logins]\ntables = \"Logins%Y%m%d\"\nkeep = \"30d\"\narchive_to = {{ kind = \"blob\", container = \"old-logins\" }}\n"
    ));
    site.migrate();
    let logins: Vec<Entity> = (0..30).map(|n| Entity::new(EntityKey::new("jun", n.to_string()).unwrap()).with("Ok", true)).collect();
    site.write("Logins20200101", &logins);
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (1, 0));
    assert!(!tables(&site).contains("Logins20200101"));
    let lines = site.with(async |account| {
        let container = ContainerName::new("old-logins").unwrap();
        let mut lines = 0;
        for blob in account.blobs.list(&container, "Logins20200101/", None).await.unwrap().blobs {
            if blob.name.as_str().split_once('.').is_some_and(|(_, kind)| kind == "jsonl") {
                let blob = account.blobs.get(&container, &blob.name, None).await.unwrap().unwrap();
                lines += String::from_utf8(blob.content.to_vec()).unwrap().lines().count();
            }
        }
        lines
    });
    assert_eq!(lines, logins.len());
}

#[test]
fn a_table_by_date_is_in_files_before_it_is_dropped_on_the_embedded_store() {
    archived(Site::embedded);
}

#[test]
fn a_table_by_date_is_in_files_before_it_is_dropped_on_azurite() {
    archived(Site::azurite);
}
