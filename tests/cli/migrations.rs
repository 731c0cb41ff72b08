//! migrate, and what run does about it.

use serde_json::json;

use crate::place::{Place, json_lines, says, stderr, stdout};

#[test]
fn what_is_pending_is_told_and_done_once() {
    let place = Place::new();
    place.by_hand(async |_| ());
    let before = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!((&before["generation"], before["applied"].as_array().unwrap().len()), (&json!(0), 0));
    let done = json_lines(&place.run(&["--json", "migrate", "up"]).success());
    assert_eq!(before["pending"].as_array().unwrap(), &done);
    let after = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!((&after["generation"], &after["pending"], &after["views"]["by_email"]["generation"]), (&json!(1), &json!([]), &json!(1)));
    says(&stdout(&place.run(&["migrate", "status"]).success()), &["0001", "control_tables", "by_email", "up to date"]);
    assert_eq!(json_lines(&place.run(&["--json", "migrate", "up"]).success()), Vec::<serde_json::Value>::new());
}

#[test]
fn a_run_that_may_not_migrate_refuses_and_names_what_is_pending() {
    let place = Place::new();
    place.add("[migrate]\nauto = false");
    let ended = place.run(&["run", "--until-idle=0.1", "--no-http"]).code(1);
    says(&stderr(&ended), &["pending", "create queue jobs", "record view by_email", "evenkeel migrate up"]);
    place.run(&["migrate", "up"]).success();
    place.work();
}

#[test]
fn a_view_that_changed_or_went_away_is_recorded_as_such() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.add("[views.by_name]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"EmployeesByName\"\npartition_key = \"name\"\nrow_key = \"{LastName}_{PartitionKey}_{RowKey}\"");
    // What replaces a view is asked for.
    let done = stdout(&place.run(&["--set", "views.by_email.partition_key=e_mail", "migrate", "up", "--retire"]).success());
    says(
        &done,
        &[
            "create table EmployeesByName",
            "record view by_email of Employees as changed, generation 2",
            "record view by_name of Employees, generation 1",
        ],
    );
    let status = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!(status["generation"], json!(2));
}

#[test]
fn several_processes_may_migrate_at_once() {
    let place = Place::new();
    let children: Vec<_> = (0..4).map(|_| place.command(&["migrate", "up", "-q"]).spawn().unwrap()).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let status = &json_lines(&place.run(&["--json", "migrate", "status"]).success())[0];
    assert_eq!((&status["generation"], &status["pending"]), (&json!(1), &json!([])));
}
