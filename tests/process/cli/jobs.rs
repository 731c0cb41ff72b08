//! `submit`, `run`, `get` and `plan`: from a job to its results.

use serde_json::json;

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

const HIRE: &str = r#"{"op":"put","table":"Employees","id":"hire-7","entity":{"PartitionKey":"Sales","RowKey":"7","LastName":"Cao","Email":"Jun@Contoso.com","Age@odata.type":"Edm.Int64","Age":"41"}}"#;

#[test]
fn a_job_that_was_submitted_is_done_and_its_copies_are_found() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let sent = place.run(&["submit", HIRE]).success();
    says(
        &stdout(&sent),
        &["sent put Employees(\"Sales\", \"7\") to jobs as "],
    );

    let summary = place.work();
    assert_eq!(
        (&summary["done"], &summary["poisoned"], &summary["lost"]),
        (&json!(1), &json!(0), &json!(0))
    );
    assert!(
        summary["storage_requests"].as_u64().unwrap() > 5
            && summary["seconds"].as_f64().unwrap() > 0.0
    );
    let working = summary["working_seconds"].as_f64().unwrap();
    assert!(working > 0.0 && working < summary["seconds"].as_f64().unwrap());

    let employee = &json_lines(
        &place
            .run(&["--json", "get", "employees", "Sales", "7"])
            .success(),
    )[0];
    assert_eq!(
        (&employee["Age"], &employee["Age@odata.type"]),
        (&json!("41"), &json!("Edm.Int64"))
    );
    let copy = &json_lines(
        &place
            .run(&[
                "--json",
                "get",
                "EmployeesByEmail",
                "email",
                "jun@contoso.com",
            ])
            .success(),
    )[0];
    assert_eq!(
        (&copy["LastName"], &copy["ek_view"], copy.get("Age")),
        (&json!("Cao"), &json!("by_email"), None)
    );

    let plan = &json_lines(
        &place
            .run(&["--json", "plan", "Employees", "Sales", "7"])
            .success(),
    )[0];
    assert_eq!(
        (&plan["present"], &plan["in_step"]),
        (&json!(true), &json!(true))
    );
    says(
        &stdout(&place.run(&["plan", "Employees", "Sales", "7"]).success()),
        &["is present", "nothing to do"],
    );
}

#[test]
fn a_timeout_beyond_every_clock_means_no_deadline() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.run(&["submit", HIRE]).success();
    place.work();
    let waited = place
        .run(&[
            "wait",
            "Employees",
            "Sales",
            "7",
            "--timeout",
            "18446744073709551615s",
        ])
        .success();
    says(
        &stdout(&waited),
        &["everything derived from Employees(\"Sales\", \"7\") is in step"],
    );
}

#[test]
fn a_field_that_no_job_has_is_named_and_the_job_is_sent() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let mistyped = r#"{"op":"sync","table":"Employees","pk":"Sales","rk":"7","thorougly":true}"#;
    let sent = place.run(&["submit", mistyped]).success();
    says(
        &stderr(&sent),
        &[
            "warning: ",
            "\"thorougly\" will be ignored",
            "`evenkeel schema`",
            "sync",
        ],
    );
    says(&stdout(&sent), &["sent sync "]);
}

#[test]
fn a_misspelt_field_or_table_is_told_with_what_it_may_mean() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let field = r#"{"op":"sync","tabel":"Employees","pk":"Sales","rk":"7"}"#;
    let table = r#"{"op":"sync","table":"Employe","pk":"Sales","rk":"7"}"#;
    let of_field = r#"unknown field "tabel"; did you mean "table"?"#;
    says(
        &stderr(&place.run(&["submit", field]).code(1)),
        &["not sent: ", of_field],
    );
    says(
        &stderr(&place.run(&["submit", table]).code(1)),
        &["has no table Employe; did you mean Employees?"],
    );
    place.put("jobs", field);
    place.put("jobs", table);
    assert_eq!(place.work()["poisoned"], json!(2));
    says(
        &stdout(&place.run(&["poison", "list"]).success()),
        &[
            of_field,
            r#"has no table Employe: did you mean "Employees"?"#,
        ],
    );
}

#[test]
fn a_job_that_would_write_a_table_that_only_views_write_is_not_sent() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let copy = r#""table":"employeesbyemail","pk":"email","rk":"jun@contoso.com""#;
    let primary = r#""table":"Employees","pk":"Sales","rk":"7","to_table":"EmployeesByEmail","to_pk":"a","to_rk":"b""#;
    let entity = r#""table":"EmployeesByEmail","entity":{"PartitionKey":"email","RowKey":"x"}"#;
    for (op, fields) in [
        ("delete", copy),
        ("erase", copy),
        ("put", entity),
        ("move", primary),
    ] {
        let refused = place
            .run(&["submit", &format!("{{\"op\":\"{op}\",{fields}}}")])
            .code(1);
        says(
            &stderr(&refused),
            &[
                "not sent: table EmployeesByEmail holds only rows of views",
                "declare [tables.EmployeesByEmail]",
            ],
        );
    }
    says(
        &stdout(
            &place
                .run(&["submit", &format!("{{\"op\":\"sync\",{copy}}}")])
                .success(),
        ),
        &["sent sync "],
    );
    let summary = place.work();
    assert_eq!(
        (&summary["done"], &summary["poisoned"]),
        (&json!(1), &json!(0))
    );
}

#[test]
fn an_error_of_several_lines_is_told_in_lines() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let job = r#"{"op":"delete","table":"Employees","pk":"Sales","rk":"7","when":"Age = 5"}"#;
    let refused = stderr(&place.run(&["submit", job]).code(1));
    says(&refused, &["\"when\": ", "\n      Age = *\n          ^"]);
    place.put("jobs", job);
    assert_eq!(place.work()["poisoned"], json!(1));
    says(
        &stdout(&place.run(&["poison", "show", "--all"]).success()),
        &["\n      Age = *\n          ^"],
    );
    let listed = stdout(&place.run(&["poison", "list"]).success());
    assert!(
        listed.contains("\"when\": ") && !listed.contains("\\n"),
        "{listed}"
    );
}

#[test]
fn an_empty_job_is_refused() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    for nothing in ["", " ", "\n"] {
        says(
            &stderr(&place.run(&["submit", nothing]).code(1)),
            &["not sent: ", "neither a JSON object nor Base64"],
        );
    }
}

#[test]
fn people_get_the_keys_of_an_entity_first() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.run(&["submit", HIRE]).success();
    place.work();
    let text = stdout(&place.run(&["get", "Employees", "Sales", "7"]).success());
    let first: Vec<&str> = text
        .lines()
        .skip(1)
        .take(4)
        .map(|line| line.trim().split(':').next().unwrap())
        .collect();
    assert_eq!(
        first,
        [
            "\"odata.etag\"",
            "\"PartitionKey\"",
            "\"RowKey\"",
            "\"Timestamp\""
        ]
    );
}

#[test]
fn bad_lines_are_named_and_left_out_and_the_good_ones_are_sent() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let lines = format!(
        "{HIRE}\n\nno job at all\n{{\"op\":\"sync\",\"table\":\"Nowhere\",\"pk\":\"a\",\"rk\":\"b\"}}\n{{\"op\":\"sync\",\"table\":\"Employees\",\"pk\":\"Sales\",\"rk\":\"7\"}}"
    );
    let ended = place.run_with(&["submit", "-"], lines.clone()).code(1);
    says(
        &stderr(&ended),
        &[
            "line 3: ",
            "neither a JSON object nor Base64",
            "line 4: ",
            "the catalog has no table Nowhere",
        ],
    );
    says(&stdout(&ended), &["2 jobs sent, 2 lines refused"]);

    let told = json_lines(&place.run_with(&["--json", "submit", "-"], lines).code(1));
    assert_eq!(
        told.iter()
            .map(|line| line["line"].as_u64().unwrap())
            .collect::<Vec<_>>(),
        [1, 3, 4, 5]
    );
    assert_eq!(
        (&told[0]["op"], &told[0]["id"], &told[0]["queue"]),
        (&json!("put"), &json!("hire-7"), &json!("jobs"))
    );
    assert!(told[1]["error"].is_string() && told[3]["message_id"].is_string());

    let summary = place.work();
    assert_eq!(
        (&summary["done"], &summary["poisoned"]),
        (&json!(4), &json!(0))
    );
}

#[test]
fn a_line_that_is_too_large_once_it_is_encrypted_is_named_and_left_out() {
    let place = Place::new();
    std::fs::write(
        place.folder().join("first.key"),
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    )
    .unwrap();
    let scores: Vec<String> = (0..240).map(|number| format!("Q{number:03}")).collect();
    place.add(&format!(
        "[encryption]\ncurrent = \"first\"\n[encryption.keys.first]\nkey_file = '{}'\n[tables.Employees]\nencrypt = {:?}",
        place.folder().join("first.key").display(),
        [&["Ssn".to_owned(), "Notes".to_owned()][..], &scores].concat()
    ));
    place.run(&["migrate", "up"]).success();
    let put = |rk: &str, length: usize, scores: &[String]| {
        let mut entity = json!({"PartitionKey": "Sales", "RowKey": rk, "Ssn": "x".repeat(length), "Notes": "x".repeat(length)});
        for score in scores {
            entity[score.as_str()] = json!(1);
        }
        json!({"op": "put", "table": "Employees", "entity": entity}).to_string()
    };
    // Compressed, the long job would have a few hundred bytes, but encrypted values cannot be compressed.
    let lines = [put("1", 1, &[]), put("2", 30_000, &[]), put("3", 1, &[])].join("\n");
    let ended = place.run_with(&["submit", "-"], lines).code(1);
    says(
        &stderr(&ended),
        &["line 2: the job has ", "a message holds at most 49152"],
    );
    says(&stdout(&ended), &["2 jobs sent, 1 line refused"]);
    says(
        &stderr(&place.run(&["submit", &put("2", 30_000, &[])]).code(1)),
        &["not sent: the job has "],
    );

    // Both lines are packed into one message, which is too large. The error reports both lines.
    let lines = [put("1", 1, &[]), put("2", 20_500, &scores)].join("\n");
    let ended = place
        .run_with(&["--json", "submit", "--pack", "10", "-"], lines)
        .code(1);
    says(&stderr(&ended), &["line 1 and 1 line packed with it"]);
    let told = json_lines(&ended);
    assert_eq!(
        (told.len(), &told[0]["line"], &told[0]["jobs"]),
        (1, &json!(1), &json!(2))
    );
    assert_eq!(place.work()["done"], json!(2));
}

#[test]
fn a_thousand_jobs_go_through_in_one_stream() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let job = |n: u32| {
        format!("{{\"op\":\"sync\",\"table\":\"Employees\",\"pk\":\"Sales\",\"rk\":\"{n}\"}}\n")
    };
    let ended = place
        .run_with(&["submit", "-"], (0..1_000).map(job).collect::<String>())
        .success();
    says(&stdout(&ended), &["1,000 jobs sent"]);
    assert_eq!(place.work()["done"], json!(1_000));
}

#[test]
fn a_job_of_many_that_is_poisoned_is_logged_with_its_key() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let entities = ["7", "8"]
        .map(|rk| json!({"PartitionKey": "Sales", "RowKey": rk, "Email": "jun@contoso.com"}));
    place
        .run(&[
            "submit",
            &json!({"op": "put", "table": "Employees", "entities": entities}).to_string(),
        ])
        .success();
    let log = stderr(
        &place
            .run(&["run", "--until-idle=0.2", "--no-http"])
            .success(),
    );
    let line = log
        .lines()
        .find(|line| line.contains("moved a job of a batch to the poison queue"))
        .unwrap();
    let line: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(
        ["(\"Sales\", \"7\")", "(\"Sales\", \"8\")"].contains(&line["key"].as_str().unwrap()),
        "{line}"
    );
}

#[test]
fn an_erase_that_finds_nothing_says_so_in_its_audit_line() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let said = stderr(
        &place
            .run(&["erase", "Employees", "Sales", "7", "--yes"])
            .success(),
    );
    says(&said, &["audit: nothing of the entity was left to erase"]);
    place.run(&["submit", HIRE]).success();
    place.work();
    says(
        &stderr(
            &place
                .run(&["erase", "Employees", "Sales", "7", "--yes"])
                .success(),
        ),
        &["audit: entity erased"],
    );
}

#[test]
fn an_erase_is_told_where_a_poison_queue_cannot_be_reached() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.run(&["submit", HIRE]).success();
    place.put("jobs", r#"{"op":"move","table":"Nowhere","pk":"Sales","rk":"9","to_table":"Employees","to_pk":"Sales","to_rk":"7"}"#);
    assert_eq!(place.work()["poisoned"], json!(1));
    place.add_far_queue();
    let ended = place
        .run(&["--json", "erase", "Employees", "Sales", "7", "--yes"])
        .code(4);
    let report = &json_lines(&ended)[0];
    let main = &report["removed"]["main"];
    assert_eq!(
        (&main["entities"], &main["items"], &main["poison"]),
        (&json!(1), &json!(1), &json!(1)),
        "{report}"
    );
    says(report["incomplete"].as_str().unwrap(), &["far-poison"]);
    let said = [
        "audit: entity erased",
        "audit: discarded poison messages about an erased entity",
        "error: could not discard poison messages about it from far-poison",
    ];
    says(&stderr(&ended), &said);
}

#[test]
fn messages_of_other_programs_are_read_in_base64_and_plain() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.put("jobs", HIRE);
    place.put(
        "jobs",
        &evenkeel_model::body::encode(&HIRE.replace("\"7\"", "\"8\"").replace("Jun@", "Ken@")),
    );
    assert_eq!(place.work()["done"], json!(2));
    place
        .run(&["get", "EmployeesByEmail", "email", "jun@contoso.com"])
        .success();
    place
        .run(&["get", "EmployeesByEmail", "email", "ken@contoso.com"])
        .success();
}

#[test]
fn a_sharded_queue_gets_each_key_in_the_shard_that_any_language_computes() {
    let place = Place::new();
    place.add("[[queues]]\nname = \"wide\"\nshards = 16");
    place.run(&["migrate", "up"]).success();
    let job = r#"{"op":"archive","archive":"former","pk":"Sales","rk":"000223"}"#;
    let told = json_lines(
        &place
            .run(&["--json", "submit", "--queue", "wide", job])
            .success(),
    );
    assert_eq!(told[0]["queue"], json!("wide-05"));
    assert_eq!(place.work()["skipped"], json!(1));
    place.run(&["submit", "--queue", "nowhere", job]).code(2);
}

#[test]
fn a_restored_entity_equals_the_archived_one() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    place.run(&["submit", HIRE]).success();
    place.work();
    let found = || {
        json_lines(
            &place
                .run(&["--json", "find", "former", "Sales", "7"])
                .success(),
        )[0]
        .clone()
    };
    assert_eq!(
        (&found()["found"], &found()["entity"]["RowKey"]),
        (&json!("source"), &json!("7"))
    );
    place
        .run(&[
            "submit",
            r#"{"op":"archive","archive":"former","pk":"Sales","rk":"7"}"#,
        ])
        .success();
    place.work();
    assert_eq!(
        (&found()["found"], &found()["entity"]["RowKey"]),
        (&json!("archive"), &json!("7"))
    );
    says(
        &stderr(&place.run(&["find", "former", "Sales", "8"]).code(1)),
        &["in the archive former or in its source"],
    );
    says(
        &stderr(&place.run(&["find", "latter", "Sales", "8"]).code(2)),
        &["former"],
    );
    place
        .run(&["get", "FormerEmployees", "Sales", "7"])
        .success();
    says(
        &stderr(&place.run(&["get", "Employees", "Sales", "7"]).code(1)),
        &["there is no entity Employees(\"Sales\", \"7\")"],
    );
    place
        .run(&["get", "EmployeesByEmail", "email", "jun@contoso.com"])
        .code(1);
    place
        .run(&[
            "submit",
            r#"{"op":"restore","archive":"former","pk":"Sales","rk":"7"}"#,
        ])
        .success();
    place.work();
    place
        .run(&["get", "EmployeesByEmail", "email", "jun@contoso.com"])
        .success();
}
