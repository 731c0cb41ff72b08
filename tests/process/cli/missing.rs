//! Somebody deletes a declared table while the worker runs.

use evenkeel_model::TableName;

use crate::cli::daemon::{Daemon, FREE_PORT, until};
use crate::cli::place::{Place, says};

#[test]
fn jobs_wait_for_a_declared_table_that_is_gone_and_the_worker_is_not_ready_meanwhile() {
    let place = Place::new();
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    let get = |path: &str| crate::cli::api::ask_at("1.1", &address, "GET", path, "", "");
    until("ready", || get("/readyz").status == 200);

    let table = TableName::new("EmployeesByEmail").unwrap();
    assert!(place.by_hand(async |account| account.tables.delete_table(&table).await.unwrap()));
    let put = |rk: &str| {
        let job = format!(
            r#"{{"op":"put","table":"Employees","entity":{{"PartitionKey":"Sales","RowKey":"{rk}","Email":"{rk}@b.c"}}}}"#
        );
        place.run(&["submit", &job]).success();
    };
    (0..5).for_each(|number| put(&number.to_string()));
    let line = daemon.await_line("does not exist: jobs that need it wait");
    assert_eq!(
        (line["table"].as_str(), line["level"].as_str()),
        (Some("EmployeesByEmail"), Some("ERROR"))
    );
    until("the daemon reports that it is not ready", || {
        get("/readyz").status == 503
    });
    says(&get("/readyz").body, &["missing_table", "EmployeesByEmail"]);
    says(
        &get("/metrics").body,
        &["evenkeel_missing_tables{account=\"main\"} 1"],
    );
    until("every job has been tried", || {
        get("/api/v1/jobs").body.matches("\"retried\"").count() >= 5
    });
    says(
        &get("/api/v1/status").body,
        &["Stuck: the table EmployeesByEmail of the account main does not exist"],
    );
    assert_eq!(
        get("/api/v1/poison").json()["total"],
        0,
        "waiting jobs must not be poisoned"
    );

    place.run(&["migrate", "up"]).success();
    until("ready again", || get("/readyz").status == 200);
    until("what waited is done", || {
        place
            .run(&["get", "EmployeesByEmail", "email", "4@b.c"])
            .get_output()
            .status
            .success()
    });
    assert_eq!(get("/api/v1/poison").json()["total"], 0);
}
