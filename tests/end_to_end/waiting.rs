//! `evenkeel wait`: whether what one has just written can be found.

use evenkeel::model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::site::{EMPLOYEES, Site};

fn key() -> EntityKey {
    EntityKey::new("Sales", "000223").unwrap()
}

fn employee(email: &str) -> Entity {
    Entity::new(key()).with("Email", email)
}

/// The exit code of `wait`, and what it says.
fn waits(site: &Site, arguments: &[&str]) -> (i32, Value) {
    let ended = site.command(&[&["--json", "wait", "Employees", "Sales", "000223"], arguments].concat());
    (ended.code, serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.err)))
}

fn at_once(site: &Site, arguments: &[&str]) -> (i32, u64) {
    let (code, told) = waits(site, &[&["--timeout", "0s"], arguments].concat());
    assert_eq!(told["in_step"] == true, code == 0);
    (code, told["requests"].as_u64().unwrap())
}

fn etag(site: &Site) -> String {
    site.row("Employees", "Sales", "000223").unwrap().etag.to_string()
}

fn what_was_written_is_waited_for(site: &Site) {
    let sync = json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "000223"});
    site.migrate();
    site.write("Employees", &[employee("jun@contoso.com")]);
    assert_eq!(at_once(site, &[]), (1, 2), "nobody has derived anything");
    site.submit(std::slice::from_ref(&sync));
    site.run_until_idle(&[]);
    let first = etag(site);
    assert_eq!(at_once(site, &["--etag", &first]), (0, 1), "one point read");
    assert_eq!(at_once(site, &[]), (0, 2));

    // A change of which nobody has been told.
    site.write("Employees", &[employee("jun.cao@contoso.com")]);
    let second = etag(site);
    assert_eq!(at_once(site, &["--etag", &second]).0, 1);
    assert_eq!(at_once(site, &[]).0, 1);
    let began = site.worker(&[]);
    site.submit(std::slice::from_ref(&sync));
    let (code, told) = waits(site, &["--etag", &second, "--timeout", "60s"]);
    assert_eq!((code, &told["in_step"]), (0, &json!(true)));
    assert!(site.row("EmployeesByEmail", "email_Sales", "jun.cao@contoso.com").is_some());
    assert_eq!(at_once(site, &["--etag", &first]), (0, 2), "in step with a later version");
    began.stop();

    site.submit(&[json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "000223"})]);
    site.run_until_idle(&[]);
    assert_eq!(at_once(site, &[]), (0, 2), "nothing is left of it");
    assert_eq!(at_once(site, &["--etag", &second]), (0, 2));
}

#[test]
fn what_was_written_is_waited_for_on_the_embedded_store() {
    what_was_written_is_waited_for(&Site::embedded(EMPLOYEES));
}

#[test]
fn what_was_written_is_waited_for_on_azurite() {
    what_was_written_is_waited_for(&Site::azurite(EMPLOYEES));
}

#[test]
fn an_unknown_table_a_missing_primary_and_a_wait_in_vain_are_told_apart() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    let unknown = site.command(&["wait", "Employes", "Sales", "1"]);
    assert!(unknown.code == 2 && unknown.err.contains("Employees"), "{}: {}", unknown.code, unknown.err);
    let never = site.command(&["wait", "Employees", "Sales", "000223", "--timeout", "0s"]);
    assert!(never.code == 1 && never.out.contains("(\"Sales\", \"000223\") does not exist, and nothing"), "{}{}", never.out, never.err);
    assert_eq!(waits(&site, &["--timeout", "0s"]).1["missing"], true);
    site.write("Employees", &[employee("jun@contoso.com")]);
    assert_eq!(waits(&site, &["--timeout", "0s"]).1["missing"], Value::Null);
    let ended = site.command(&["wait", "Employees", "Sales", "000223", "--timeout", "300ms"]);
    assert!(ended.code == 1 && ended.out.contains("not in step within 0.3 s"), "{}{}", ended.out, ended.err);
}
