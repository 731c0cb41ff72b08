//! Many entities are indexed, so that races occur.

use evenkeel_model::{Entity, EntityKey};

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::sdk::{node, python};
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};

#[test]
fn three_thousand_sync_jobs_of_the_node_sdk_make_an_index_complete_and_after_a_change_nothing_stale_is_left()
 {
    let site = Site::azurite(EMPLOYEES);
    let ports = site.ports();
    let seed = |domain: &str| {
        python(
            ports,
            "seed_entities.py",
            &[
                "--table",
                "Employees",
                "--count",
                "3000",
                "--email-domain",
                domain,
            ],
        )
    };
    let sync = || {
        node(
            ports,
            "enqueue_sync.mjs",
            &["--queue", QUEUE, "--table", "Employees", "--count", "3000"],
        );
        let summary = site.run_until_idle(&[]);
        assert_eq!(
            (summary.done, summary.skipped, summary.poisoned),
            (3_000, 0, 0)
        );
        site.assert_all_done();
        assert_index_complete(&site);
        assert_eq!(site.rows("EmployeesByEmail").len(), 3_000);
    };
    seed("contoso.com");
    sync();
    seed("fabrikam.com");
    sync();
    let addresses = site.rows("EmployeesByEmail");
    assert!(
        addresses
            .keys()
            .all(|(_, address)| address.ends_with("@fabrikam.com"))
    );
}

fn backfilled(site: &Site) {
    let employee = |rk: u32, domain: &str| {
        let key = EntityKey::new("Sales", format!("{rk:06}")).unwrap();
        Entity::new(key)
            .with("Email", format!("{rk}@{domain}"))
            .with("LastName", "Kim")
            .with("FirstName", "Jun")
    };
    let all = |domain: &str| (0..300).map(|rk| employee(rk, domain)).collect::<Vec<_>>();
    site.migrate();
    site.write("Employees", &all("contoso.com"));
    let ended = site.command(&["backfill", "--table", "Employees"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_index_complete(site);
    assert_eq!(site.rows("EmployeesByEmail").len(), 300);

    site.write("Employees", &all("fabrikam.com")[..150]);
    let strange: Vec<Entity> = site
        .rows("EmployeesByEmail")
        .into_values()
        .take(20)
        .map(|row| row.entity.with("FirstName", "Nobody"))
        .collect();
    site.write("EmployeesByEmail", &strange);
    site.submit(&[serde_json::json!({"op": "backfill", "view": "employees_by_email"})]);
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (1, 0));
    assert_index_complete(site);
}

#[test]
fn data_that_is_older_than_its_view_is_backfilled_on_the_embedded_store() {
    backfilled(&Site::embedded(EMPLOYEES));
}

#[test]
fn data_that_is_older_than_its_view_is_backfilled_on_azurite() {
    backfilled(&Site::azurite(EMPLOYEES));
}
