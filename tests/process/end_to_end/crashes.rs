//! Workers that are killed, as in a power cut, and several workers.

use evenkeel_model::{Entity, EntityKey, Row};
use serde_json::{Value, json};

use crate::end_to_end::oracle::{assert_archived, assert_index_complete};
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};
use crate::end_to_end::worker::wait_until;

const JOBS: usize = 600;

fn employee(number: usize) -> Entity {
    Entity::new(
        EntityKey::new(format!("Department {}", number % 6), format!("{number:04}")).unwrap(),
    )
    .with("FirstName", format!("First {number}"))
    .with("LastName", "Kim")
    .with("Email", format!("Number.{number}@contoso.com"))
}

/// The job with this number. Each job has its own employee.
fn job(number: usize) -> Value {
    let EntityKey { pk, rk } = employee(number).key;
    let (pk, rk, id) = (pk.as_str(), rk.as_str(), format!("{number}"));
    match number % 4 {
        0 => json!({"op": "sync", "table": "Employees", "pk": pk, "rk": rk, "id": id}),
        1 => json!({"op": "put", "table": "Employees", "mode": "merge", "id": id,
            "entity": {"PartitionKey": pk, "RowKey": rk, "Email": format!("renamed.{number}@contoso.com")}}),
        2 => json!({"op": "delete", "table": "Employees", "pk": pk, "rk": rk, "id": id}),
        _ => json!({"op": "archive", "archive": "former_employees", "pk": pk, "rk": rk, "id": id}),
    }
}

fn stage(site: &Site) {
    site.migrate();
    let employees: Vec<Entity> = (0..JOBS).map(employee).collect();
    site.write("Employees", &employees);
    let syncs: Vec<Value> = employees
        .iter()
        .map(|employee| json!({"op": "sync", "table": "Employees", "pk": employee.key.pk.as_str(), "rk": employee.key.rk.as_str()}))
        .collect();
    site.submit(&syncs);
    assert_eq!(site.run_until_idle(&[]).done, JOBS as u64);
    // The application has changed these rows directly. Only the jobs that follow tell the worker.
    let moved: Vec<Entity> = (0..JOBS)
        .step_by(4)
        .map(|n| employee(n).with("Email", format!("Moved.{n}@contoso.com")))
        .collect();
    site.write("Employees", &moved);
    site.submit(&(0..JOBS).map(job).collect::<Vec<_>>());
}

fn assert_same_end(site: &Site) {
    site.assert_all_done();
    assert_index_complete(site);
    let (present, archived) = (site.rows("Employees"), site.rows("FormerEmployees"));
    assert_eq!((present.len(), archived.len()), (JOBS / 2, JOBS / 4));
    for number in 0..JOBS {
        let source = employee(number);
        let key = (
            source.key.pk.as_str().to_owned(),
            source.key.rk.as_str().to_owned(),
        );
        let email =
            |row: Option<&Row>| row.and_then(|row| row.entity.text("Email").map(str::to_owned));
        match number % 4 {
            0 => assert_eq!(
                email(present.get(&key)),
                Some(format!("Moved.{number}@contoso.com"))
            ),
            1 => assert_eq!(
                email(present.get(&key)),
                Some(format!("renamed.{number}@contoso.com"))
            ),
            2 => assert!(
                !present.contains_key(&key) && !archived.contains_key(&key),
                "{key:?} exists again"
            ),
            _ => {
                assert!(!present.contains_key(&key), "{key:?} still exists");
                assert_archived(&archived[&key], &source);
            }
        }
    }
    let (pk, rk) = ("Department 1", "0001");
    let plan = site.command(&["--json", "plan", "Employees", pk, rk]);
    assert_eq!(plan.code, 0, "{}", plan.err);
}

fn kill_twice(site: &Site) {
    stage(site);
    for left in [JOBS as u64 * 4 / 5, JOBS as u64 * 2 / 5] {
        // With a concurrency of 4 the worker is so slow that it is killed in the middle of its work.
        let worker = site.worker(&["--set", "queues.0.concurrency=4"]);
        wait_until("some jobs are done", || site.count(QUEUE) < left);
        worker.kill();
    }
    assert!(
        site.count(QUEUE) > 0,
        "the worker must be killed before it is done"
    );
    let summary = site.run_until_idle(&[]);
    assert!(
        summary.done + summary.skipped > 0 && summary.poisoned == 0,
        "{summary:?}"
    );
    assert_same_end(site);
}

#[test]
fn a_worker_killed_twice_on_the_embedded_store_leaves_nothing_undone() {
    kill_twice(&Site::embedded(EMPLOYEES));
}

#[test]
fn a_worker_killed_twice_on_azurite_leaves_nothing_undone() {
    kill_twice(&Site::azurite(EMPLOYEES));
}

fn two_at_once(site: &Site) {
    stage(site);
    let (first, second) = (site.worker(&[]), site.worker(&[]));
    wait_until("half of the jobs are done", || {
        site.count(QUEUE) < JOBS as u64 / 2
    });
    first.kill();
    wait_until("the other has finished", || site.count(QUEUE) == 0);
    second.stop();
    assert_same_end(site);
}

#[test]
fn two_workers_at_once_on_the_embedded_store_end_like_one_also_when_one_dies() {
    two_at_once(&Site::embedded(EMPLOYEES));
}

#[test]
fn two_workers_at_once_on_azurite_end_like_one_also_when_one_dies() {
    two_at_once(&Site::azurite(EMPLOYEES));
}
