//! One entity is erased, and a scan of everything that is stored finds nothing of it.

use serde_json::{Value, json};

use crate::encryption::stored;
use crate::site::{QUEUE, Site};
use crate::worker::wait_until;

/// In every value of the entity that is erased.
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

/// The entity in its table, in two archives, in a poison message, and another one beside it.
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
    // The key of another one.
    poisoned["entity"]["Email"] = json!("other2@contoso.com");
    let moved = r#"{"op":"move","table":"Nowhere","pk":"Sales","rk":"9","to_table":"Employees","to_pk":"Sales","to_rk":"1"}"#;
    site.put_texts([poisoned.to_string().as_str(), moved, r#"{"op":"sync","table":"Nowhere","pk":"Sales","rk":"1"}"#]);
    assert_eq!(site.run_until_idle(&[]).poisoned, 3, "{:?}", site.poison());
    assert!(stored(site).contains(CANARY), "the scan sees what is stored");
}

fn nothing_is_left(site: &Site) {
    nothing_is_left_but(site, |_| false);
}

fn nothing_is_left_but(site: &Site, may_stay: impl Fn(&str) -> bool) {
    let all = stored(site);
    assert!(all.lines().all(|line| !line.contains(CANARY) || may_stay(line)), "{all}");
    assert!(all.contains("other2@contoso.com"), "the other one is there still");
    assert_eq!(
        site.rows("EvenkeelKeys").keys().filter(|(pk, rk)| pk.starts_with("employees~") && rk == "1").count(),
        0,
        "its data key is gone"
    );
    assert_eq!(site.poison().len(), 1, "the message about something else stays");
    let other = site.command(&["get", "Employees", "Sales", "2", "--resolve"]);
    assert!(other.out.contains("other ssn"), "{} {}", other.out, other.err);
    let audit = site.command(&["audit"]);
    assert_eq!(audit.code, 0, "{} {}", audit.out, audit.err);
}

fn erased_by_a_command(site: &Site) {
    kept_everywhere(site);
    let unsure = site.command(&["erase", "Employees", "Sales", "1"]);
    assert!(unsure.code == 2 && unsure.err.contains("add --yes"), "{}", unsure.err);
    let ended = site.command(&["--json", "erase", "employees", "Sales", "1", "--yes"]);
    assert_eq!(ended.code, 0, "{} {}", ended.out, ended.err);
    let report: Value = serde_json::from_str(&ended.out).unwrap();
    let main = &report["removed"]["main"];
    assert_eq!((&main["entities"], &main["data_keys"], &main["poison"]), (&json!(3), &json!(1), &json!(2)), "{report}");
    assert!(main["items"].as_u64().unwrap() >= 3, "{report}");
    nothing_is_left(site);
    let again = site.command(&["erase", "Employees", "Sales", "1", "--yes"]);
    assert!(again.code == 0 && again.out.contains("Nothing was left"), "{} {}", again.out, again.err);
}

#[test]
fn everything_of_an_entity_goes_by_a_command_on_the_embedded_store() {
    erased_by_a_command(&place(Site::embedded));
}

#[test]
fn everything_of_an_entity_goes_by_a_command_on_azurite() {
    erased_by_a_command(&place(Site::azurite));
}

/// A worker that is killed while it erases is followed by one that does the rest.
fn erased_by_a_job(site: &Site) {
    kept_everywhere(site);
    site.submit(&[json!({"op": "erase", "table": "Employees", "pk": "Sales", "rk": "1"})]);
    let worker = site.worker(&["--set", "worker.lease=10s"]);
    wait_until("it has begun", || site.row("Employees", "Sales", "1").is_none());
    worker.kill();
    assert_eq!(site.run_until_idle(&[]).poisoned, 0);
    assert_eq!(site.count(QUEUE), 0);
    // A large value that the killed run may still have been about to write is dropped by the recheck.
    let rechecks = site.count(&format!("{QUEUE}-recheck"));
    nothing_is_left_but(site, |line| rechecks > 0 && line.split(' ').next().is_some_and(|name| name.contains("/Resume-")));
}

#[test]
fn everything_of_an_entity_goes_by_a_job_on_the_embedded_store() {
    erased_by_a_job(&place(Site::embedded));
}

#[test]
fn everything_of_an_entity_goes_by_a_job_on_azurite() {
    erased_by_a_job(&place(Site::azurite));
}
