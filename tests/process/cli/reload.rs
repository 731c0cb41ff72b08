//! The daemon reads its configuration again while it runs.

use serde_json::json;

use crate::cli::api::ask_at;
use crate::cli::daemon::{Daemon, FREE_PORT, until};
use crate::cli::place::{Place, says};

const BY_NAME: &str = r#"
[views.by_name]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByName"
partition_key = "name"
row_key = "{LastName|lower}_{RowKey}"
"#;

fn hire(place: &Place, number: u32) {
    let entity = json!({"PartitionKey": "Sales", "RowKey": number.to_string(), "Email": format!("{number}@b.c"), "LastName": "Cao"});
    place
        .run(&[
            "submit",
            &json!({"op": "put", "table": "Employees", "entity": entity}).to_string(),
        ])
        .success();
}

#[test]
fn levels_polling_and_added_views_are_taken_over_and_the_rest_is_named() {
    let place = Place::new();
    let file = place.folder().join("default.toml");
    let before = std::fs::read_to_string(&file).unwrap();
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    let get = |path: &str| ask_at("1.1", &address, "GET", path, "", "");
    until("ready", || get("/readyz").status == 200);
    hire(&place, 1);
    until("it is done", || {
        get("/api/v1/jobs?outcome=done")
            .json()
            .as_array()
            .unwrap()
            .len()
            == 1
    });

    let after = before
        .replace("max = \"50ms\"", "max = \"70ms\"")
        .replace("name = \"jobs\"", "name = \"jobs\"\nconcurrency = 7");
    std::fs::write(
        &file,
        format!("{after}\n[log]\nlevel = \"info,evenkeel_worker=debug\"\n{BY_NAME}"),
    )
    .unwrap();
    daemon.signal("HUP");
    says(
        &daemon
            .await_line("another catalog is configured")
            .to_string(),
        &["the table EmployeesByName", "the view by_name"],
    );
    let told = daemon.await_line("audit: configuration reloaded");
    says(
        told["applied"].as_str().unwrap(),
        &["log.level", "views.by_name.table", "worker.poll.max"],
    );
    assert_eq!(told["needs_restart"], "queues[0].concurrency");
    hire(&place, 2);
    daemon.await_line("job finished");
    until("the new view has it", || {
        place
            .run(&["get", "EmployeesByName", "name", "cao_2"])
            .get_output()
            .status
            .success()
    });
    assert_eq!(
        get("/api/v1/log").json()["level"],
        "evenkeel_worker=debug,info"
    );
    assert_eq!(get("/api/v1/status").json()["view_count"], 2);
    says(
        &get("/api/v1/config").body,
        &["views.by_name.row_key", "70ms"],
    );
    let plan = get("/api/v1/entities/Employees/Sales/2").json();
    assert_eq!(plan["footprint"]["items"].as_array().unwrap().len(), 2);
    // The first employee was settled before the view existed. The next sync derives the new item.
    place
        .run(&[
            "submit",
            r#"{"op":"sync","table":"Employees","pk":"Sales","rk":"1"}"#,
        ])
        .success();
    until("the new view has an item of the first employee", || {
        place
            .run(&["get", "EmployeesByName", "name", "cao_1"])
            .get_output()
            .status
            .success()
    });

    std::fs::write(&file, after.replace("[worker]", "[worker]\nlaese = \"1s\"")).unwrap();
    daemon.signal("HUP");
    says(
        &daemon
            .await_line("the reloaded configuration has mistakes")
            .to_string(),
        &["laese"],
    );
    assert_eq!(get("/api/v1/status").json()["view_count"], 2);
    assert_eq!(get("/readyz").status, 200);
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0));
}

#[test]
fn right_after_a_view_was_retired_or_brought_back_a_worker_that_is_told_so_is_ready_with_it() {
    let place = Place::new();
    let file = place.folder().join("default.toml");
    let without = std::fs::read_to_string(&file).unwrap();
    let with = format!("{without}{BY_NAME}");
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    let get = |path: &str| ask_at("1.1", &address, "GET", path, "", "");
    until("ready", || get("/readyz").status == 200);
    for (number, (folder, views)) in [(&with, 2), (&without, 1), (&with, 2), (&without, 1)]
        .into_iter()
        .enumerate()
    {
        std::fs::write(&file, folder).unwrap();
        place.run(&["migrate", "up", "--retire"]).success();
        daemon.signal("HUP");
        until("it has the views, and is ready", || {
            get("/api/v1/status").json()["view_count"] == views && get("/readyz").status == 200
        });
        let (number, before) = (u32::try_from(number).unwrap(), done(&address));
        hire(&place, number);
        until("a job is done by them", || done(&address) > before);
        let found = place.run(&["get", "EmployeesByName", "name", &format!("cao_{number}")]);
        assert_eq!(found.get_output().status.success(), views == 2, "{number}");
    }
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0));
}

fn done(address: &str) -> usize {
    let jobs = ask_at("1.1", address, "GET", "/api/v1/jobs?outcome=done", "", "").json();
    jobs.as_array().unwrap().len()
}

#[test]
fn a_worker_that_is_told_too_early_is_unready_until_the_migration() {
    let place = Place::new();
    let file = place.folder().join("default.toml");
    let without = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, format!("{without}{BY_NAME}")).unwrap();
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    let get = |path: &str| ask_at("1.1", &address, "GET", path, "", "");
    until("ready", || get("/readyz").status == 200);
    std::fs::write(&file, without).unwrap();
    daemon.signal("HUP");
    daemon.await_line("the configured catalog is not the recorded one");
    says(&get("/readyz").body, &["outdated_catalog"]);
    assert_eq!(get("/healthz").status, 200);
    place.run(&["migrate", "up", "--retire"]).success();
    until("ready again", || get("/readyz").status == 200);
    assert_eq!(get("/api/v1/status").json()["view_count"], 1);
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0));
}

#[test]
fn retries_of_requests_are_taken_over_in_each_of_their_forms() {
    let place = Place::new();
    let file = place.folder().join("default.toml");
    let plain = std::fs::read_to_string(&file).unwrap();
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    let shown = || ask_at("1.1", &address, "GET", "/api/v1/config", "", "").json();
    until("ready", || {
        ask_at("1.1", &address, "GET", "/readyz", "", "").status == 200
    });
    for retry in [r#"["2s", "4s"]"#, r#"["1s"]"#] {
        std::fs::write(
            &file,
            plain.replacen("[worker]", &format!("[worker]\nstorage_retry = {retry}"), 1),
        )
        .unwrap();
        daemon.signal("HUP");
        let told = daemon.await_line("audit: configuration reloaded");
        says(told["applied"].as_str().unwrap(), &["worker.storage_retry"]);
        assert_eq!(told["needs_restart"], "", "{retry}");
        let values = shown();
        let in_force: Vec<_> = values["values"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|entry| entry["key"].as_str().unwrap().contains("storage_retry"))
            .collect();
        assert!(
            matches!(&in_force[..], [one] if one["value"] == retry),
            "{retry}: {in_force:?}"
        );
    }
    std::fs::write(&file, plain).unwrap();
    daemon.signal("HUP");
    let told = daemon.await_line("audit: configuration reloaded");
    says(
        told["applied"].as_str().unwrap(),
        &[
            "worker.storage_retry,",
            "worker.storage_retry.attempts",
            "worker.storage_retry.min",
        ],
    );
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0));
}
