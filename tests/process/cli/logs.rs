//! `evenkeel logs` reads archived events back by their times.

use serde_json::json;

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

const LOG: &str = r#"
[archives.sign_ins]
source = "SignIns"
to = { kind = "append_blob", container = "logs", path = "sign-ins/%Y/%m/%d/%H00", time = "At", spread = 2 }
"#;

/// A place with six archived events in two hours. Each archive job was sent twice.
fn filled() -> Place {
    let place = Place::new();
    place.add(LOG);
    place.run(&["migrate", "up"]).success();
    let events = [
        ("a", "14:10"),
        ("b", "14:50"),
        ("c", "15:00"),
        ("d", "15:29"),
        ("e", "15:30"),
        ("f", "15:59"),
    ];
    let puts = events.map(|(rk, time)| {
        let at = format!("2026-11-20T{time}:00Z");
        json!({"op": "put", "table": "SignIns", "entity": {"PartitionKey": "web1", "RowKey": rk, "At": at, "At@odata.type": "Edm.DateTime"}})
            .to_string()
    });
    place.run_with(&["submit", "-"], puts.join("\n")).success();
    assert_eq!(place.work()["done"], 6);
    let archives = events.map(|(rk, _)| {
        json!({"op": "archive", "archive": "sign_ins", "pk": "web1", "rk": rk}).to_string()
    });
    place
        .run_with(
            &["submit", "-"],
            [archives.clone(), archives].concat().join("\n"),
        )
        .success();
    let worked = place.work();
    assert_eq!(
        (
            worked["done"].as_u64().unwrap() + worked["skipped"].as_u64().unwrap(),
            &worked["poisoned"]
        ),
        (12, &json!(0))
    );
    place
}

/// The row keys of the lines in a time range. They are sorted, because the lines of an hour are in several blobs.
fn keys(place: &Place, range: &[&str]) -> String {
    let lines = json_lines(
        &place
            .run(&[&["logs", "sign_ins"], range].concat())
            .success(),
    );
    let mut keys: Vec<&str> = lines
        .iter()
        .map(|line| line["RowKey"].as_str().unwrap())
        .collect();
    keys.sort_unstable();
    keys.concat()
}

#[test]
fn the_lines_of_a_range_are_printed_once_each() {
    let place = filled();
    assert_eq!(
        keys(&place, &["--from", "2026-11-20", "--to", "2026-11-21"]),
        "abcdef"
    );
    assert_eq!(
        keys(
            &place,
            &[
                "--from",
                "2026-11-20T15:00:00Z",
                "--to",
                "2026-11-20T15:30:00Z"
            ]
        ),
        "cd"
    );
    assert_eq!(
        keys(
            &place,
            &[
                "--from",
                "2026-11-20T14:50:00Z",
                "--to",
                "2026-11-20T15:00:01Z"
            ]
        ),
        "bc"
    );
    let filtered = |condition| {
        keys(
            &place,
            &[
                "--from",
                "2026-11-20",
                "--to",
                "2026-11-21",
                "--where",
                condition,
            ],
        )
    };
    assert_eq!(
        filtered(r#"RowKey in ["a", "d"] or At >= datetime'2026-11-20T15:59:00Z'"#),
        "adf"
    );
    assert_eq!(filtered("not exists(At)"), "");
    assert_eq!(
        keys(
            &place,
            &[
                "--from",
                "2026-11-20T16:00:00Z",
                "--to",
                "2026-11-20T17:00:00Z"
            ]
        ),
        ""
    );
    let told = place
        .run(&[
            "logs",
            "sign_ins",
            "--from",
            "2026-11-20T14:00:00Z",
            "--to",
            "2026-11-20T15:00:00Z",
        ])
        .success();
    assert_eq!(stdout(&told).lines().count(), 2);
    says(&stderr(&told), &["2 lines from"]);
}

#[test]
fn an_invalid_log_or_range_is_refused_with_a_reason() {
    let place = Place::new();
    place.add(LOG);
    place.run(&["migrate", "up"]).success();
    for (arguments, words) in [
        (
            ["former", "--from", "2026-11-20"].as_slice(),
            ["former", "is not a log"].as_slice(),
        ),
        (
            &["sign_in", "--from", "2026-11-20"],
            &["sign_in", "its logs are sign_ins"],
        ),
        (
            &["sign_ins", "--from", "2026-11-20", "--to", "2026-11-20"],
            &["--to", "must be after --from"],
        ),
        (
            &["sign_ins", "--from", "yesterday"],
            &["such as 2026-11-20", "yesterday"],
        ),
        (&["sign_ins"], &["--from"]),
    ] {
        let ended = place.run(&[&["logs"], arguments].concat()).code(2);
        says(&stderr(&ended), words);
    }
}
