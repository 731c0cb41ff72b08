//! An entity is erased, and a scan of everything stored finds nothing of it.

use evenkeel_model::{EdmDateTime, TableName};
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Clock as _, IfMatch, Query, TableOperation};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::end_to_end::encryption::stored;
use crate::end_to_end::site::{QUEUE, Site};
use crate::end_to_end::worker::wait_until;

/// Occurs in every value of the erased entity.
const CANARY: &str = "canaryvalue";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const CATALOG: &str = r#"
[encryption]
current = "first"

[encryption.keys.first]
key_file = "first.key"

[tables.Employees]
encrypt = ["Ssn"]

[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByEmail"
partition_key = "email"
row_key = "{Email|lower}"
on_conflict = "reject"

[views.named]
kind = "index_entity"
source = "Employees"
store = "table"
table = "EmployeesNamed"
partition_key = "name"
row_key = "{LastName}"
member = ["{PartitionKey}", "{RowKey}", "{Email}"]
property = "Employees"

[views.resumes]
kind = "large_entity"
source = "Employees"
properties = ["Resume"]
container = "documents"
threshold = "64B"

[views.former_resumes]
kind = "large_entity"
source = "FormerEmployees"
properties = ["Resume"]
container = "former-documents"
threshold = "64B"

[sinks.reporting]
kind = "sqlite"
path = "reporting.db"

[views.staff]
kind = "sql_table"
source = "Employees"
sink = "reporting"
table = "staff"
columns = { email = "text {Email}", name = "text(80) {LastName}" }

[archives.former]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }

[archives.papers]
source = "Employees"
to = { kind = "blob", container = "lines" }
"#;

fn place(new: fn(&str) -> Site) -> Site {
    let site = new("");
    std::fs::write(site.file("first.key"), KEY).unwrap();
    site.declare(CATALOG);
    site.migrate();
    site
}

fn put(rk: &str, word: &str) -> Value {
    let resume = format!("{word} {}", "x".repeat(200));
    let entity = json!({
        "PartitionKey": "Sales", "RowKey": rk, "Email": format!("{word}{rk}@contoso.com"), "LastName": word, "Ssn": format!("{word} ssn"), "Resume": resume,
    });
    json!({"op": "put", "table": "Employees", "entity": entity})
}

/// Stores the entity in its table, in two archives and in a poison message, and stores another entity next to it.
fn kept_everywhere(site: &Site) {
    site.submit(&[put("2", "other")]);
    for archive in ["former", "papers"] {
        site.submit(&[put("1", CANARY)]);
        assert_eq!(site.run_until_idle(&[]).poisoned, 0);
        site.submit(&[json!({"op": "archive", "archive": archive, "pk": "Sales", "rk": "1"})]);
        assert_eq!(site.run_until_idle(&[]).done, 1);
    }
    site.submit(&[put("1", CANARY)]);
    assert_eq!(site.run_until_idle(&[]).poisoned, 0);
    let mut poisoned = put("1", CANARY);
    poisoned["entity"]["Email"] = json!("other2@contoso.com");
    let moved = r#"{"op":"move","table":"Nowhere","pk":"Sales","rk":"9","to_table":"Employees","to_pk":"Sales","to_rk":"1"}"#;
    let mut later = put("1", CANARY);
    later["v"] = json!(2);
    let later = later.to_string();
    site.put_texts([
        poisoned.to_string().as_str(),
        &later,
        moved,
        r#"{"op":"sync","table":"Nowhere","pk":"Sales","rk":"1"}"#,
    ]);
    assert_eq!(site.run_until_idle(&[]).poisoned, 4, "{:?}", site.poison());
    assert!(
        stored(site).contains(CANARY),
        "the scan must find stored values"
    );
}

fn nothing_is_left(site: &Site) {
    nothing_is_left_but(site, |_| false);
}

fn nothing_is_left_but(site: &Site, may_stay: impl Fn(&str) -> bool) {
    let all = stored(site);
    assert!(
        all.lines()
            .all(|line| !line.contains(CANARY) || may_stay(line)),
        "{all}"
    );
    assert!(
        all.contains("other2@contoso.com"),
        "the other entity must still exist"
    );
    assert_eq!(
        site.rows("EvenkeelKeys")
            .keys()
            .filter(|(pk, rk)| pk.starts_with("employees~") && rk == "1")
            .count(),
        0,
        "its data key is gone"
    );
    assert_eq!(
        site.poison().len(),
        1,
        "the message of another entity must remain"
    );
    let other = site.command(&["get", "Employees", "Sales", "2", "--resolve"]);
    assert!(
        other.out.contains("other ssn"),
        "{} {}",
        other.out,
        other.err
    );
    let audit = site.command(&["audit"]);
    assert_eq!(audit.code, 0, "{} {}", audit.out, audit.err);
}

/// Checks that no byte of a database file, or of another file of the site, contains a value of the entity.
fn nothing_is_in_files(site: &Site) {
    let mut folders = vec![site.file("")];
    let mut databases = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            assert!(
                !bytes
                    .windows(CANARY.len())
                    .any(|window| window == CANARY.as_bytes()),
                "{}",
                path.display()
            );
            databases += u32::from(path.extension().is_some_and(|extension| extension == "db"));
        }
    }
    assert!(databases > 0);
}

/// The test marks the entity's footprint as if an earlier job had been disturbed.
#[test]
fn an_erasure_that_waits_for_a_second_look_says_until_when_and_ends_with_6() {
    let site = place(Site::embedded);
    site.submit(&[put("1", CANARY)]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    site.with(async |account| {
        let footprints = TableName::new("EvenkeelFootprints").unwrap();
        let rows = account
            .tables
            .query(&footprints, &Query::default())
            .await
            .unwrap()
            .rows;
        let row = rows
            .into_iter()
            .find(|row| {
                row.entity
                    .key
                    .pk
                    .as_str()
                    .to_lowercase()
                    .starts_with("employees~")
            })
            .unwrap();
        let until = SystemClock::new().now() + SignedDuration::from_mins(50);
        let tainted = row
            .entity
            .with("TaintedUntil", EdmDateTime::from_timestamp(until).unwrap());
        account
            .tables
            .apply(&footprints, &TableOperation::Replace(tainted, IfMatch::Any))
            .await
            .unwrap();
    });
    for _ in 0..2 {
        let ended = site.command(&["--json", "erase", "Employees", "Sales", "1", "--yes"]);
        assert_eq!(ended.code, 6, "{} {}", ended.out, ended.err);
        let report: Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(report["erasing"]["values"], json!(1), "{report}");
        assert!(
            report["erasing"]["until"]
                .as_str()
                .unwrap()
                .parse::<Timestamp>()
                .unwrap()
                > SystemClock::new().now(),
            "{report}"
        );
    }
    let told = site.command(&["erase", "Employees", "Sales", "1", "--yes"]);
    assert!(
        told.code == 6 && told.err.contains("Not finished: ") && told.err.contains("1 large value"),
        "{} {}",
        told.out,
        told.err
    );
    assert!(
        stored(&site)
            .lines()
            .all(|line| !line.contains(CANARY) || line.contains("/Resume-")),
        "{}",
        stored(&site)
    );
}

fn erased_by_a_command(site: &Site) {
    kept_everywhere(site);
    let unsure = site.command(&["erase", "Employees", "Sales", "1"]);
    assert!(
        unsure.code == 2 && unsure.err.contains("Add --yes"),
        "{}",
        unsure.err
    );
    let ended = site.command(&["--json", "erase", "employees", "Sales", "1", "--yes"]);
    assert_eq!(ended.code, 0, "{} {}", ended.out, ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let main = &report["removed"]["main"];
    assert_eq!(
        (&main["entities"], &main["data_keys"], &main["poison"]),
        (&json!(3), &json!(1), &json!(3)),
        "{report}"
    );
    assert_eq!(
        report["left"],
        json!({"about_many": 0, "unclear": 1, "in_errors": 0}),
        "the data key of an unknown table: {report}"
    );
    assert!(
        report["rechecks_until"].is_string() && report["erasing"].is_null(),
        "{report}"
    );
    assert!(main["items"].as_u64().unwrap() >= 3, "{report}");
    nothing_is_left(site);
    nothing_is_in_files(site);
    let again = site.command(&["erase", "Employees", "Sales", "1", "--yes"]);
    assert!(
        again.code == 0 && again.out.contains("Nothing was left"),
        "{} {}",
        again.out,
        again.err
    );
}

#[test]
fn everything_of_an_entity_goes_by_a_command_on_the_embedded_store() {
    erased_by_a_command(&place(Site::embedded));
}

#[test]
fn everything_of_an_entity_goes_by_a_command_on_azurite() {
    erased_by_a_command(&place(Site::azurite));
}

fn erased_by_a_job(site: &Site) {
    kept_everywhere(site);
    site.submit(&[json!({"op": "erase", "table": "Employees", "pk": "Sales", "rk": "1"})]);
    let worker = site.worker(&["--set", "worker.lease=10s"]);
    wait_until("it has begun", || {
        site.row("Employees", "Sales", "1").is_none()
    });
    worker.kill();
    assert_eq!(site.run_until_idle(&[]).poisoned, 0);
    assert_eq!(site.count(QUEUE), 0);
    // The killed run may have been about to write a large value. The recheck deletes that value.
    let rechecks = site.count(&format!("{QUEUE}-recheck"));
    nothing_is_left_but(site, |line| {
        rechecks > 0
            && line
                .split(' ')
                .next()
                .is_some_and(|name| name.contains("/Resume-"))
    });
}

#[test]
fn everything_of_an_entity_goes_by_a_job_on_the_embedded_store() {
    erased_by_a_job(&place(Site::embedded));
}

#[test]
fn everything_of_an_entity_goes_by_a_job_on_azurite() {
    erased_by_a_job(&place(Site::azurite));
}
