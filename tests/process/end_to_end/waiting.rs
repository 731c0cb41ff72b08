//! `evenkeel wait` waits until readers can find what an application has written.

use evenkeel_model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::end_to_end::sdk::{node, python};
use crate::end_to_end::site::{EMPLOYEES, Site};

fn key() -> EntityKey {
    EntityKey::new("Sales", "000223").unwrap()
}

fn employee(email: &str) -> Entity {
    Entity::new(key()).with("Email", email)
}

fn waits(site: &Site, arguments: &[&str]) -> (i32, Value) {
    let ended = site.command(
        &[
            &["--json", "wait", "Employees", "Sales", "000223"],
            arguments,
        ]
        .concat(),
    );
    (
        ended.code,
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.err)),
    )
}

fn at_once(site: &Site, arguments: &[&str]) -> (i32, u64) {
    let (code, told) = waits(site, &[&["--timeout", "0s"], arguments].concat());
    assert_eq!(told["in_step"] == true, code == 0);
    (code, told["requests"].as_u64().unwrap())
}

fn etag(site: &Site) -> String {
    site.row("Employees", "Sales", "000223")
        .unwrap()
        .etag
        .to_string()
}

fn a_wait_ends_when_the_write_can_be_found(site: &Site) {
    let sync = json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "000223"});
    site.migrate();
    site.write("Employees", &[employee("jun@contoso.com")]);
    assert_eq!(at_once(site, &[]), (1, 2), "no job has run yet");
    site.submit(std::slice::from_ref(&sync));
    site.run_until_idle(&[]);
    let first = etag(site);
    assert_eq!(at_once(site, &["--etag", &first]), (0, 1), "one point read");
    assert_eq!(at_once(site, &[]), (0, 2));

    site.write("Employees", &[employee("jun.cao@contoso.com")]);
    let second = etag(site);
    assert_eq!(at_once(site, &["--etag", &second]).0, 1);
    assert_eq!(at_once(site, &[]).0, 1);
    let began = site.worker(&[]);
    site.submit(std::slice::from_ref(&sync));
    let (code, told) = waits(site, &["--etag", &second, "--timeout", "60s"]);
    assert_eq!((code, &told["in_step"]), (0, &json!(true)));
    assert!(
        site.row("EmployeesByEmail", "email_Sales", "jun.cao@contoso.com")
            .is_some()
    );
    assert_eq!(
        at_once(site, &["--etag", &first]),
        (0, 2),
        "settled at a later version"
    );
    began.stop();

    site.submit(&[json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "000223"})]);
    site.run_until_idle(&[]);
    assert_eq!(at_once(site, &[]), (0, 2), "no footprint is left");
    assert_eq!(at_once(site, &["--etag", &second]), (0, 2));
}

#[test]
fn what_was_written_is_waited_for_on_the_embedded_store() {
    a_wait_ends_when_the_write_can_be_found(&Site::embedded(EMPLOYEES));
}

#[test]
fn what_was_written_is_waited_for_on_azurite() {
    a_wait_ends_when_the_write_can_be_found(&Site::azurite(EMPLOYEES));
}

#[test]
fn an_unknown_table_a_missing_primary_and_a_wait_in_vain_are_told_apart() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    let unknown = site.command(&["wait", "Employes", "Sales", "1"]);
    assert!(
        unknown.code == 2 && unknown.err.contains("Employees"),
        "{}: {}",
        unknown.code,
        unknown.err
    );
    let never = site.command(&["wait", "Employees", "Sales", "000223", "--timeout", "0s"]);
    assert!(
        never.code == 1
            && never
                .out
                .contains("(\"Sales\", \"000223\") does not exist, and nothing"),
        "{}{}",
        never.out,
        never.err
    );
    assert_eq!(waits(&site, &["--timeout", "0s"]).1["missing"], true);
    site.write("Employees", &[employee("jun@contoso.com")]);
    assert_eq!(waits(&site, &["--timeout", "0s"]).1["missing"], Value::Null);
    let ended = site.command(&["wait", "Employees", "Sales", "000223", "--timeout", "300ms"]);
    assert!(
        ended.code == 1 && ended.out.contains("not in step within 0.3 s"),
        "{}{}",
        ended.out,
        ended.err
    );
}

/// Asks whether an entity is settled, as applications in Python and in Node.js do. Both must give the same answer.
fn finds_out(site: &Site, table: &str, rk: &str, etag: Option<&str>) -> bool {
    let mut arguments = vec!["--table", table, "--pk", "Sales", "--rk", rk];
    arguments.extend(etag.into_iter().flat_map(|etag| ["--etag", etag]));
    let told = [
        python(site.ports(), "in_step.py", &arguments),
        node(site.ports(), "in_step.mjs", &arguments),
    ];
    let [one, other] = told.map(|told| told.trim().parse::<bool>().unwrap());
    assert_eq!(one, other, "Python and Node.js: {arguments:?}");
    one
}

#[test]
fn applications_in_python_and_node_js_find_out_by_themselves_what_is_in_step() {
    let site = Site::azurite(&format!(
        "{EMPLOYEES}\n[views.department_name]\nkind = \"denormalize\"\ntargets = \"range\"\nsource = \"Departments\"\n\
         table = \"Employees\"\npartition_key = \"{{PartitionKey}}\"\nset = {{ DepartmentName = \"{{Name}}\" }}\n"
    ));
    site.migrate();
    let department =
        |name: &str| Entity::new(EntityKey::new("Sales", "department").unwrap()).with("Name", name);
    let etag = |table: &str, rk: &str| site.row(table, "Sales", rk).unwrap().etag.to_string();
    let work = |op: &str, table: &str, rk: &str| {
        site.submit(&[json!({"op": op, "table": table, "pk": "Sales", "rk": rk})]);
        site.run_until_idle(&[]);
    };
    site.write("Departments", &[department("Sales")]);
    work("sync", "Departments", "department");

    site.write("Employees", &[employee("jun@contoso.com")]);
    let written = etag("Employees", "000223");
    assert!(
        !finds_out(&site, "Employees", "000223", Some(&written)),
        "it was just created"
    );
    work("sync", "Employees", "000223");
    assert_ne!(
        etag("Employees", "000223"),
        written,
        "evenkeel has set the department's name on it"
    );
    assert!(
        finds_out(&site, "Employees", "000223", Some(&written))
            && finds_out(&site, "Employees", "000223", None)
    );

    site.write("Departments", &[department("Trade")]);
    let renamed = etag("Departments", "department");
    assert!(!finds_out(
        &site,
        "Departments",
        "department",
        Some(&renamed)
    ));
    work("sync", "Departments", "department");
    assert!(
        finds_out(&site, "Departments", "department", Some(&renamed)),
        "propagated to its employees"
    );
    assert!(
        finds_out(&site, "Employees", "000223", Some(&written)),
        "the propagation has written the employee again, who must still be settled"
    );

    work("delete", "Employees", "000223");
    assert!(
        finds_out(&site, "Employees", "000223", None)
            && !finds_out(&site, "Employees", "000224", None)
    );
}
