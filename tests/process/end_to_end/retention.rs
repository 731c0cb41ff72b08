//! Dated tables are created in advance, and dropped as a whole. No other table is ever dropped.

use std::collections::BTreeSet;

use evenkeel_model::dated::DatedTables;
use evenkeel_model::{ContainerName, Entity, EntityKey, TableName};
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Clock as _, all_tables};
use jiff::SignedDuration;
use serde_json::json;

use crate::end_to_end::site::{EMPLOYEES, Site};

fn tables(site: &Site) -> BTreeSet<String> {
    let tables = site.with(async |account| all_tables(account.tables.as_ref()).await.unwrap());
    tables.iter().map(ToString::to_string).collect()
}

fn kept(place: fn(&str) -> Site) {
    let site = place(&format!(
        "{EMPLOYEES}\n[retention.logins]\ntables = \"Logins%Y%m%d\"\nkeep = \"30d\"\n"
    ));
    site.migrate();
    let login = Entity::new(EntityKey::new("jun", "1").unwrap()).with("Ok", true);
    for table in [
        "Logins20200101",
        "Logins20200102",
        "Logins",
        "LoginsOfOld20200101",
    ] {
        site.write(table, std::slice::from_ref(&login));
    }
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (2, 0), "two drops");
    let there = tables(&site);
    assert!(
        there.contains("Logins")
            && there.contains("LoginsOfOld20200101")
            && there.contains("Employees"),
        "{there:?}"
    );
    assert!(
        !there.contains("Logins20200101") && !there.contains("Logins20200102"),
        "{there:?}"
    );
    let wanted = DatedTables::parse("Logins%Y%m%d").unwrap();
    // Midnight may pass between the two times. The table after the first one exists in either case.
    let ahead = wanted.from(SystemClock::new().now(), 1);
    assert!(
        ahead.iter().all(|table| there.contains(table.as_str())),
        "{there:?} must contain {ahead:?}"
    );

    let today = &ahead[1];
    site.submit(&[json!({"op": "put", "table": today, "entity": {"PartitionKey": "jun", "RowKey": "1", "Ok": true}})]);
    site.run_until_idle(&[]);
    assert!(site.row(today.as_str(), "jun", "1").is_some());
    site.submit(&[json!({"op": "drop_table", "table": today.as_str().to_lowercase()})]);
    assert_eq!(site.run_until_idle(&[]).poisoned, 1);
    assert!(
        site.poison()[0]["error"]
            .as_str()
            .unwrap()
            .contains("must be kept until"),
        "{:?}",
        site.poison()
    );
    assert!(site.row(today.as_str(), "jun", "1").is_some());

    // A table whose retention time has passed is not created again. A table that matches no pattern is not dropped.
    site.submit(&[json!({"op": "put", "table": "Logins20200101", "entity": {"PartitionKey": "jun", "RowKey": "1"}})]);
    site.put_texts([r#"{"op":"drop_table","table":"Employees"}"#]);
    let summary = site.run_until_idle(&[]);
    assert_eq!(summary.poisoned, 2);
    let errors: Vec<String> = site
        .poison()
        .iter()
        .map(|message| message["error"].to_string())
        .collect();
    assert!(
        errors
            .iter()
            .any(|error| error.contains("table Employees matches no [retention] pattern")),
        "{errors:?}"
    );
    assert!(
        errors
            .iter()
            .any(|error| error.contains("Logins20200101") && error.contains("does not exist")),
        "{errors:?}"
    );
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
    let logins: Vec<Entity> = (0..30)
        .map(|n| Entity::new(EntityKey::new("jun", n.to_string()).unwrap()).with("Ok", true))
        .collect();
    site.write("Logins20200101", &logins);
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (1, 0));
    assert!(!tables(&site).contains("Logins20200101"));
    let lines = site.with(async |account| {
        let container = ContainerName::new("old-logins").unwrap();
        let mut lines = 0;
        for blob in account
            .blobs
            .list(&container, "Logins20200101/", None)
            .await
            .unwrap()
            .blobs
        {
            if blob
                .name
                .as_str()
                .split_once('.')
                .is_some_and(|(_, kind)| kind == "jsonl")
            {
                let blob = account
                    .blobs
                    .get(&container, &blob.name, None)
                    .await
                    .unwrap()
                    .unwrap();
                lines += String::from_utf8(blob.content.to_vec())
                    .unwrap()
                    .lines()
                    .count();
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

/// A view is added when some dated tables exist already. It is used and retired, and disappears with its last table.
fn followed(place: fn(&str) -> Site) {
    const LOGINS: &str = "[retention.logins]\ntables = \"Logins%Y%m%d\"\nkeep = \"30d\"\n";
    const BY_USER: &str = "[views.by_user]\nkind = \"secondary_index\"\nsource = \"Logins%Y%m%d\"\ntable = \"ByUser%Y%m%d\"\n\
        partition_key = \"{User}\"\nrow_key = \"{PartitionKey}_{RowKey}\"\n";
    let site = place(&format!("{EMPLOYEES}\n{LOGINS}"));
    site.migrate();
    let now = SystemClock::new().now();
    let (logins, by_user) = (
        DatedTables::parse("Logins%Y%m%d").unwrap(),
        DatedTables::parse("ByUser%Y%m%d").unwrap(),
    );
    let before = now
        .saturating_sub(SignedDuration::from_hours(24 * 5))
        .unwrap();
    let (old, old_by_user) = (logins.name_at(before), by_user.name_at(before));
    let login = Entity::new(EntityKey::new("web", "1").unwrap()).with("User", "jun");
    site.write(old.as_str(), std::slice::from_ref(&login));

    site.declare(&format!("{EMPLOYEES}\n{LOGINS}{BY_USER}"));
    site.migrate();
    assert!(
        tables(&site).contains(old_by_user.as_str()),
        "existing dates must have their tables after the migration"
    );
    let ended = site.command(&["backfill", "--view", "by_user"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(site.row(old_by_user.as_str(), "jun", "web_1").is_some());
    let today = logins.name_at(now);
    site.run_until_idle(&[]);
    site.submit(&[json!({"op": "put", "table": today, "entity": {"PartitionKey": "web", "RowKey": "2", "User": "ada"}})]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    let found = site.command(&[
        "--json",
        "lookup",
        "by_user",
        "--table",
        today.as_str(),
        "User=ada",
    ]);
    assert!(
        found.code == 0 && found.out.contains("web_2"),
        "{}{}",
        found.out,
        found.err
    );
    let found = site.command(&["lookup", "by_user", "User=ada"]);
    assert!(
        found.code == 2 && found.err.contains("Name one with --table"),
        "{}{}",
        found.out,
        found.err
    );
    for command in ["audit", "backfill"] {
        let ended = site.command(&[command]);
        assert_eq!(ended.code, 0, "{command}: {}{}", ended.out, ended.err);
    }

    site.declare(&format!("{EMPLOYEES}\n{}", LOGINS.replace("30d", "2d")));
    site.migrate();
    assert_eq!(site.run_until_idle(&[]).done, 1);
    let left = tables(&site);
    let date = &old.as_str()["Logins".len()..];
    assert!(left.iter().all(|table| !table.ends_with(date)), "{left:?}");
    assert!(
        left.contains(today.as_str()) && left.contains(by_user.name_at(now).as_str()),
        "{left:?}"
    );
    // The remaining items of the retired view are removed when their primaries are synced.
    site.submit(&[json!({"op": "sync", "table": today, "pk": "web", "rk": "2"})]);
    site.run_until_idle(&[]);
    assert_eq!(
        site.row(by_user.name_at(now).as_str(), "ada", "web_2"),
        None
    );
    assert_eq!(site.poison().len(), 0);
}

#[test]
fn what_views_derive_goes_with_its_table_by_date_on_the_embedded_store() {
    followed(Site::embedded);
}

#[test]
fn what_views_derive_goes_with_its_table_by_date_on_azurite() {
    followed(Site::azurite);
}
