//! Entities that are deleted or archived by condition, with the commands that a user types.

use evenkeel_model::{EdmDateTime, Entity, EntityKey, body};
use serde_json::{Value, json};

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};
use crate::end_to_end::worker::wait_until;

fn employee(number: usize) -> Entity {
    let left = if number.is_multiple_of(2) {
        "2020-01-01T00:00:00Z"
    } else {
        "2999-01-01T00:00:00Z"
    };
    let department = if number < 10 { "Marketing" } else { "Sales" };
    Entity::new(EntityKey::new(department, format!("{number:04}")).unwrap())
        .with("FirstName", "Jun")
        .with("LastName", "Cao")
        .with("Email", format!("{number:04}@contoso.com"))
        .with("Left", EdmDateTime::parse(left).unwrap())
}

fn hired(place: fn(&str) -> Site, count: usize) -> Site {
    let site = place(EMPLOYEES);
    site.migrate();
    site.write("Employees", &(0..count).map(employee).collect::<Vec<_>>());
    let ended = site.command(&["backfill"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!(site.rows("EmployeesByEmail").len(), count);
    site
}

fn json_of(site: &Site, arguments: &[&str]) -> Value {
    let ended = site.command(&[&["--json"], arguments].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

fn by_condition(place: fn(&str) -> Site) {
    const GONE: &str = "Left < now - 90d";
    let site = hired(place, 300);
    // Without a condition, or in a dry run, nothing happens.
    let vague = site.command(&["delete-where", "Employees"]);
    assert!(
        vague.code == 2 && vague.err.contains("--all"),
        "{}",
        vague.err
    );
    let dry = json_of(
        &site,
        &["delete-where", "employees", "--where", GONE, "--dry-run"],
    );
    assert_eq!(
        (&dry["op"], &dry["matching"], &dry["seen"]),
        (&json!("delete_where"), &json!(150), &json!(300))
    );
    assert_eq!(dry["sample"].as_array().unwrap().len(), 10);
    let shown = site.command(&[
        "archive-where",
        "former_employees",
        "--where",
        GONE,
        "--pk",
        "Marketing",
        "--dry-run",
    ]);
    assert!(
        shown.out.contains("5 of 10 entities would be archived") && shown.out.contains("0008"),
        "{}",
        shown.out
    );
    let none = site.command(&[
        "delete-where",
        "Employees",
        "--where",
        "Lfet == \"T\"",
        "--dry-run",
    ]);
    assert_eq!(
        none.out.trim(),
        "Employees: no entity matches, nothing would be deleted",
        "the output must differ from that of an empty table"
    );
    assert_eq!((site.rows("Employees").len(), site.count(QUEUE)), (300, 0));

    // One partition is archived, and the rest is deleted.
    json_of(
        &site,
        &[
            "archive-where",
            "former_employees",
            "--where",
            GONE,
            "--pk",
            "Marketing",
        ],
    );
    let sent = json_of(
        &site,
        &[
            "delete-where",
            "Employees",
            "--where",
            GONE,
            "--pk",
            "Sales",
            "--before",
            "0100",
        ],
    );
    assert_eq!(sent["op"], json!("delete_where"));
    assert_eq!(site.run_until_idle(&[]).poisoned, 0);
    assert_eq!(site.rows("FormerEmployees").len(), 5);
    assert_eq!(site.rows("Employees").len(), 300 - 5 - 45);
    assert_index_complete(&site);

    // The age of a row is the time since its last write.
    json_of(
        &site,
        &[
            "delete-where",
            "Employees",
            "--where",
            "Timestamp < now - 1d",
        ],
    );
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert_eq!(site.rows("Employees").len(), 250);
    json_of(&site, &["delete-where", "Employees", "--all"]);
    site.run_until_idle(&[]);
    assert_eq!(
        (
            site.rows("Employees").len(),
            site.rows("EmployeesByEmail").len()
        ),
        (0, 0)
    );
    assert_eq!(
        site.rows("FormerEmployees").len(),
        5,
        "an archive must be another table"
    );
    site.assert_all_done();
}

#[test]
fn entities_leave_by_condition_on_the_embedded_store() {
    by_condition(Site::embedded);
}

#[test]
fn entities_leave_by_condition_on_azurite() {
    by_condition(Site::azurite);
}

/// The command line refuses impossible conditions before it sends them, and refuses a table that only views write. If
/// another program sends such a job, the job is poisoned.
#[test]
fn impossible_conditions_are_refused_with_a_reason() {
    let site = hired(Site::embedded, 2);
    for (arguments, word) in [
        (
            vec!["delete-where", "Employees", "--where", "Left < now - 90"],
            "a whole number and a unit",
        ),
        (
            vec!["delete-where", "Employees", "--where", "Left > 1", "--all"],
            "cannot be combined",
        ),
        (
            vec!["delete-where", "Employees", "--all", "--per-second", "0"],
            "per_second",
        ),
        (
            vec!["delete-where", "Nowhere", "--all"],
            "the catalog has no table",
        ),
        (
            vec!["archive-where", "nowhere", "--all"],
            "the catalog has no archive nowhere",
        ),
        (
            vec!["delete-where", "EmployeesByEmail", "--all", "--dry-run"],
            "holds only rows of views",
        ),
        (
            vec!["delete-where", "EmployeesByEmail", "--all"],
            "holds only rows of views",
        ),
    ] {
        let ended = site.command(&arguments);
        assert!(
            ended.code != 0 && ended.err.contains(word),
            "{arguments:?}: {} {}",
            ended.code,
            ended.err
        );
    }
    site.put_texts([
        r#"{"op":"delete_where","table":"EmployeesByEmail","all":true}"#,
        r#"{"op":"delete_where","table":"Employees"}"#,
    ]);
    assert_eq!(site.run_until_idle(&[]).poisoned, 2);
    assert_eq!(site.rows("EmployeesByEmail").len(), 2);
    assert_index_complete(&site);
}

fn killed(place: fn(&str) -> Site) {
    const COUNT: usize = 1_500;
    let site = hired(place, COUNT);
    json_of(
        &site,
        &[
            "delete-where",
            "Employees",
            "--where",
            "Left < now",
            "--per-second",
            "100",
        ],
    );
    for part in 1..=3 {
        let worker = site.worker(&["--set", "worker.lease=10s"]);
        wait_until("a part is done", || {
            site.rows("Employees").len() <= COUNT - COUNT * part / 10
        });
        worker.kill();
    }
    assert!(
        site.rows("Employees").len() > COUNT / 2,
        "the worker must be killed before it is done"
    );
    assert_eq!(site.run_until_idle(&[]).poisoned, 0);
    assert_eq!(site.rows("Employees").len(), COUNT / 2);
    assert_index_complete(&site);
    site.assert_all_done();
}

#[test]
fn a_deletion_goes_on_after_kills_on_the_embedded_store() {
    killed(Site::embedded);
}

#[test]
fn a_deletion_goes_on_after_kills_on_azurite() {
    killed(Site::azurite);
}

/// Progress in a message counts only if a worker has written it. The condition of a single job is checked, too.
#[test]
fn forged_progress_counts_for_nothing() {
    let site = hired(Site::embedded, 4);
    let forged = json!({
        "op": "delete_where", "table": "Employees", "when": "Left < now",
        "cursor": {"part": "footprints", "seen": 4, "done": 4, "delivery": 0, "signature": "00"},
    });
    let kept = json!({"op": "delete", "table": "Employees", "pk": "Marketing", "rk": "0001", "when": "Left < now"});
    site.put_texts([
        body::encode(&forged.to_string()).as_str(),
        kept.to_string().as_str(),
    ]);
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.skipped, summary.poisoned), (1, 1, 0));
    assert_eq!(site.rows("Employees").len(), 2);
    assert_index_complete(&site);
}

/// A worker runs the rule once a day. A dry run reports what the rule would do.
fn by_rule(place: fn(&str) -> Site) {
    let site = hired(place, 30);
    site.declare(&format!(
        "{EMPLOYEES}\n[rules.gone]\narchive = \"former_employees\"\nwhen = \"Left < now - 90d\"\n"
    ));
    let dry = json_of(&site, &["retention", "--dry-run"]);
    assert_eq!(
        (&dry["op"], &dry["matching"], &dry["seen"]),
        (&json!("archive_where"), &json!(15), &json!(30))
    );
    assert_eq!((site.rows("Employees").len(), site.count(QUEUE)), (30, 0));
    assert_eq!(
        site.run_until_idle(&[]).done,
        1,
        "the rule was never applied"
    );
    assert_eq!(
        (
            site.rows("Employees").len(),
            site.rows("FormerEmployees").len()
        ),
        (15, 15)
    );
    assert_index_complete(&site);

    site.write("Employees", &[employee(100)]);
    assert_eq!(
        site.run_until_idle(&[]).done,
        0,
        "the rule was applied today"
    );
    assert_eq!(site.rows("Employees").len(), 16);
    let unknown = site.command(&["retention", "gnoe"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("did you mean gone?"),
        "{}",
        unknown.err
    );
    let sent = json_of(&site, &["retention", "gone"]);
    assert_eq!(sent["op"], json!("archive_where"));
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert_eq!(
        (
            site.rows("Employees").len(),
            site.rows("FormerEmployees").len()
        ),
        (15, 16)
    );
    site.assert_all_done();
}

#[test]
fn a_rule_archives_by_age_on_the_embedded_store() {
    by_rule(Site::embedded);
}

#[test]
fn a_rule_archives_by_age_on_azurite() {
    by_rule(Site::azurite);
}

#[test]
fn a_dry_run_of_retention_names_tables_and_touches_none() {
    let site = Site::embedded(&format!(
        "{EMPLOYEES}\n[retention.logins]\ntables = \"Logins%Y%m%d\"\nkeep = \"30d\"\n"
    ));
    site.migrate();
    let old = Entity::new(EntityKey::new("jun", "1").unwrap());
    site.write("Logins20200101", std::slice::from_ref(&old));
    let dry = json_of(&site, &["retention", "--dry-run", "logins"]);
    assert_eq!(
        (&dry["retention"], &dry["drop"]),
        (&json!("logins"), &json!(["Logins20200101"]))
    );
    let text = site.command(&["retention", "--dry-run"]);
    assert!(
        text.out.contains("logins: Logins20200101 would be dropped"),
        "{}",
        text.out
    );
    assert_eq!(
        (site.rows("Logins20200101").len(), site.count(QUEUE)),
        (1, 0)
    );
    let done = json_of(&site, &["retention"]);
    assert_eq!(done["drop"], json!(["Logins20200101"]));
    assert_eq!(site.count(QUEUE), 1);
    site.run_until_idle(&[]);
    assert_eq!(site.rows("Logins20200101").len(), 0);
    site.assert_all_done();
}
