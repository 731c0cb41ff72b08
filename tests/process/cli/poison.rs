use serde_json::{Value, json};

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

const JUN: &str = r#"{"op":"put","table":"Employees","id":"jun","entity":{"PartitionKey":"Sales","RowKey":"7","Email":"jun@contoso.com"}}"#;
const JIM: &str = r#"{"op":"put","table":"Employees","id":"jim","entity":{"PartitionKey":"Sales","RowKey":"8","Email":"jun@contoso.com"}}"#;

fn poisoned() -> Place {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.run(&["submit", JUN]).success();
    place.work();
    place.run(&["submit", JIM]).success();
    place.put("jobs", "no job at all");
    let summary = place.work();
    assert_eq!(summary["poisoned"], json!(2), "{summary}");
    place
}

fn list(place: &Place) -> Vec<Value> {
    json_lines(&place.run(&["--json", "poison", "list"]).success())
}

#[test]
fn each_poison_message_shows_its_reason_and_body() {
    let place = poisoned();
    let listed = list(&place);
    let reasons: Vec<&str> = listed
        .iter()
        .map(|entry| entry["reason"].as_str().unwrap())
        .collect();
    assert!(
        reasons.contains(&"permanent") && reasons.contains(&"undecodable"),
        "{reasons:?}"
    );
    says(
        &stdout(
            &place
                .run(&["poison", "list", "--reason", "permanent"])
                .success(),
        ),
        &["QUEUE", "permanent", "Employees(\"Sales\", \"7\")"],
    );

    let shown = &json_lines(&place.run(&["--json", "poison", "show", "jim"]).success())[0];
    assert_eq!(
        (&shown["body"]["id"], &shown["op"], &shown["queue"]),
        (&json!("jim"), &json!("put"), &json!("jobs"))
    );
    says(
        &stdout(
            &place
                .run(&["poison", "show", "--all", "--reason", "undecodable"])
                .success(),
        ),
        &["no job at all", "undecodable"],
    );
}

#[test]
fn what_is_requeued_is_tried_again_once_its_cause_is_gone() {
    let place = poisoned();
    place
        .run(&[
            "submit",
            r#"{"op":"delete","table":"Employees","pk":"Sales","rk":"7"}"#,
        ])
        .success();
    place.work();
    let id = list(&place)
        .into_iter()
        .find(|entry| entry["id"] == "jim")
        .unwrap()["message_id"]
        .as_str()
        .unwrap()
        .to_owned();
    says(
        &stdout(&place.run(&["poison", "requeue", &id]).success()),
        &["requeued"],
    );
    assert_eq!(place.work()["done"], json!(1));
    place
        .run(&["get", "EmployeesByEmail", "email", "jun@contoso.com"])
        .success();
    assert_eq!(list(&place).len(), 1);
}

#[test]
fn a_message_whose_cause_has_gone_by_itself_is_marked() {
    let place = poisoned();
    let in_step = || {
        list(&place)
            .into_iter()
            .map(|entry| (entry["op"].clone(), entry["in_step"].clone()))
            .collect::<Vec<_>>()
    };
    assert!(
        in_step().contains(&(json!("put"), json!(false))),
        "{:?}",
        in_step()
    );
    // This delete queues a sync of Jim, who then gets the address.
    place
        .run(&[
            "submit",
            r#"{"op":"delete","table":"Employees","pk":"Sales","rk":"7"}"#,
        ])
        .success();
    place.work();
    assert!(
        in_step().contains(&(json!("put"), json!(true))),
        "{:?}",
        in_step()
    );
    assert!(
        in_step().contains(&(Value::Null, Value::Null)),
        "{:?}",
        in_step()
    );
    says(
        &stdout(
            &place
                .run(&["poison", "list", "--reason", "permanent"])
                .success(),
        ),
        &["in step"],
    );
}

#[test]
fn nothing_is_discarded_unasked_and_nothing_never_means_everything() {
    let place = poisoned();
    says(
        &stderr(&place.run(&["poison", "discard", "--all"]).code(2)),
        &["--yes"],
    );
    for verb in ["show", "requeue", "discard"] {
        says(&stderr(&place.run(&["poison", verb]).code(2)), &["--all"]);
    }
    assert_eq!(list(&place).len(), 2);
    let gone = json_lines(
        &place
            .run(&[
                "--json",
                "poison",
                "discard",
                "--all",
                "--reason",
                "undecodable",
                "--yes",
            ])
            .success(),
    );
    assert_eq!(gone[0]["done"], json!("discarded"));
    assert_eq!(list(&place).len(), 1);
}

#[test]
fn an_id_that_no_message_has_is_an_error() {
    let place = poisoned();
    says(
        &stderr(&place.run(&["poison", "requeue", "nobody"]).code(1)),
        &["no poisoned message has the id nobody"],
    );
    place.run(&["poison", "show", "nobody"]).code(1);
    assert_eq!(
        stderr(&place.run(&["poison", "list", "nobody"]).code(1)).trim(),
        "no poisoned message has the id nobody"
    );
    assert_eq!(
        stderr(
            &place
                .run(&["poison", "list", "--reason", "expired"])
                .success()
        )
        .trim(),
        "No poisoned message matches."
    );
    says(
        &stderr(
            &place
                .run(&["poison", "list", "--reason", "because"])
                .code(2),
        ),
        &["unknown reason"],
    );
    place.run(&["poison", "list", "--queue", "nowhere"]).code(2);
}

#[test]
fn messages_of_one_queue_are_told_where_another_cannot_be_reached() {
    let place = poisoned();
    place.add_far_queue();
    let ended = place.run(&["--json", "poison", "requeue", "--all"]).code(4);
    assert_eq!(
        json_lines(&ended)
            .iter()
            .map(|line| &line["done"])
            .collect::<Vec<_>>(),
        [&json!("requeued"), &json!("requeued")]
    );
    says(
        &stderr(&ended),
        &["error: could not requeue messages from far-poison"],
    );
    let nothing = stderr(&place.run(&["poison", "discard", "--all", "--yes"]).code(4));
    assert!(
        nothing.contains("error: could not discard messages from far-poison")
            && !nothing.contains("Nothing was discarded"),
        "{nothing}"
    );
}

#[test]
fn more_than_a_service_shows_at_once_is_listed_whole_and_stays() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    for n in 0..40 {
        place.put("jobs", &format!("no job {n}"));
    }
    place.work();
    assert_eq!(list(&place).len(), 40);
    assert_eq!(list(&place).len(), 40);
    place.run(&["poison", "requeue", "--all"]).success();
    assert_eq!(list(&place).len(), 0);
    assert_eq!(place.work()["poisoned"], json!(40));
}

#[test]
fn messages_are_grouped_by_cause_and_filtered_by_what_they_are_about() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let keys = [("Sales", "1"), ("Sales", "2"), ("Ops", "3")];
    for (pk, rk) in keys {
        place.put(
            "jobs",
            &json!({"op": "sync", "table": "Nowhere", "pk": pk, "rk": rk}).to_string(),
        );
    }
    place.put("jobs", "no job at all");
    place.work();
    let causes = json_lines(
        &place
            .run(&["--json", "poison", "list", "--group"])
            .success(),
    );
    let counts: Vec<_> = causes
        .iter()
        .map(|cause| cause["count"].as_u64().unwrap())
        .collect();
    assert_eq!(counts, [3, 1], "{causes:?}");
    says(
        &stdout(&place.run(&["poison", "list", "--group"]).success()),
        &["CAUSE", "EXAMPLE", causes[0]["sample"].as_str().unwrap()],
    );

    let count = |more: &[&str]| {
        json_lines(
            &place
                .run(&[&["--json", "poison", "list"], more].concat())
                .success(),
        )
        .len()
    };
    let cause = causes[0]["cause"].as_str().unwrap();
    for (more, found) in [
        (&["--table", "nowhere"][..], 3),
        (&["--key", "Sales"], 2),
        (&["--key", "Sales/2"], 1),
        (&["--cause", cause, "--key", "Ops/3"], 1),
        (&["--text", "NO JOB"], 1),
        (&["--view", "by_email"], 0),
        (&["--since", "1h"], 4),
        (&["--before", "1h"], 0),
    ] {
        assert_eq!(count(more), found, "{more:?}");
    }
    says(
        &stderr(
            &place
                .run(&["poison", "list", "--since", "yesterday"])
                .code(2),
        ),
        &["2h"],
    );
    place
        .run(&["poison", "discard", "--all", "--key", "Sales/1", "--yes"])
        .success();
    place
        .run(&["poison", "requeue", "--all", "--cause", cause])
        .success();
    assert_eq!(count(&[]), 1);
}
