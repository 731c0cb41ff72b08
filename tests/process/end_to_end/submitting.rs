//! `evenkeel submit`, with another program as its input, and killed while it runs.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_model::{Entity, EntityKey};
use serde_json::{Value, json};

use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};
use crate::support::azurite::Ports;
use crate::support::stub::{Reply, Stub};

fn put(number: usize) -> Value {
    json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": format!("{number:05}"), "FirstName": "Kim"}})
}

/// A submitter is killed while it sends. Every job that it reported as sent is done, although no other submitter sends
/// that job.
fn killed_in_the_middle(site: &Site) {
    site.migrate();
    let mut submitter = site
        .program(&["--json", "submit", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = submitter.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        for number in 0..100_000 {
            if writeln!(input, "{}", put(number)).is_err() {
                break;
            }
        }
    });
    let mut answers = BufReader::new(submitter.stdout.take().unwrap()).lines();
    let mut sent: Vec<u64> = Vec::new();
    for line in answers.by_ref() {
        let Ok(line) = line else { break };
        let Ok(answer) = serde_json::from_str::<Value>(&line) else {
            break;
        };
        sent.push(answer["line"].as_u64().unwrap());
        if sent.len() == 300 {
            submitter.kill().unwrap();
        }
    }
    submitter.wait().unwrap();
    feeder.join().unwrap();
    assert!(sent.len() >= 300);

    site.run_until_idle(&[]);
    site.assert_all_done();
    let rows = site.rows("Employees");
    let lost: Vec<_> = sent
        .iter()
        .filter(|line| !rows.contains_key(&("Sales".to_owned(), format!("{:05}", *line - 1))))
        .collect();
    assert!(lost.is_empty(), "acknowledged, but not done: {lost:?}");
}

#[test]
fn what_a_submitter_acknowledged_before_it_was_killed_is_done_on_the_embedded_store() {
    killed_in_the_middle(&Site::embedded(EMPLOYEES));
}

#[test]
fn what_a_submitter_acknowledged_before_it_was_killed_is_done_on_azurite() {
    killed_in_the_middle(&Site::azurite(EMPLOYEES));
}

#[test]
fn a_job_that_comes_through_a_pipe_is_sent_without_waiting_for_the_next() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    let mut submitter = site
        .program(&["--json", "submit", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = submitter.stdin.take().unwrap();
    for number in 0..3 {
        writeln!(input, "{}", put(number)).unwrap();
        crate::end_to_end::worker::wait_until("the job is on the queue", || {
            site.count(QUEUE) == number as u64 + 1
        });
    }
    drop(input);
    assert!(submitter.wait().unwrap().success());
}

#[test]
fn jobs_that_the_worker_would_poison_are_refused_one_by_one_and_the_good_ones_sent() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    let ended = site.command_with(
        &["submit", "-"],
        &[
            put(1).to_string(),
            "not a job".to_owned(),
            r#"{"op":"sink"}"#.to_owned(),
            json!({"op": "sync", "table": "Nowhere", "pk": "a", "rk": "b"}).to_string(),
            put(2).to_string(),
        ]
        .join("\n"),
    );
    assert_eq!(
        (ended.code, ended.out.as_str()),
        (1, "2 jobs sent, 3 lines refused\n")
    );
    let complaints: Vec<&str> = ended.err.lines().collect();
    assert_eq!(complaints.len(), 3, "{}", ended.err);
    for (complaint, words) in complaints.iter().zip([
        ["line 2", "JSON"],
        ["line 3", "sink"],
        ["line 4", "Nowhere"],
    ]) {
        assert!(
            words.iter().all(|word| complaint.contains(word)),
            "{complaint}"
        );
    }
    assert_eq!(site.run_until_idle(&[]).done, 2);
}

/// The put of one message fails late, when later messages are already acknowledged.
#[test]
fn after_a_put_that_failed_every_line_that_was_read_has_its_result_and_the_others_are_in_a_file() {
    const LINES: usize = 200;
    let mut site = Site::azurite(EMPLOYEES);
    site.migrate();
    let refused_once = AtomicBool::new(false);
    let stub = Stub::start(move |request| {
        let is_put =
            request.method == "POST" && request.target.contains(&format!("/{QUEUE}/messages"));
        if is_put && !refused_once.swap(true, Ordering::SeqCst) {
            return Reply::status(400)
                .header("x-ms-error-code", "InvalidInput")
                .after(Duration::from_secs(1))
                .into();
        }
        Reply::Forward
    })
    .forward_to(site.ports().queue);
    site.send_program_by(Ports {
        queue: stub.port(),
        ..site.ports()
    });
    let jobs: Vec<String> = (0..LINES).map(|number| put(number).to_string()).collect();
    let folder = tempfile::tempdir().unwrap();
    let rest = folder.path().join("rest.jsonl");
    let rest = rest.to_str().unwrap();
    let ended = site.command_with(
        &["--json", "submit", "--unsent", rest, "-"],
        &jobs.join("\n"),
    );
    assert_eq!(ended.code, 1, "{}", ended.err);
    let mut told: Vec<Value> = ended
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let cut_short = told.pop().unwrap();
    let (failed, sent): (Vec<&Value>, Vec<&Value>) =
        told.iter().partition(|line| line["unconfirmed"] == true);
    assert_eq!(failed.len(), 1, "{}", ended.out);
    assert!(
        failed[0]["error"]
            .as_str()
            .unwrap()
            .contains("it was not sent"),
        "{}",
        failed[0]
    );
    let failed = failed[0]["line"].as_u64().unwrap();
    assert!(
        sent.iter()
            .filter(|line| line["message_id"].is_string() && line["line"].as_u64() > Some(failed))
            .count()
            > 20,
        "{}",
        ended.out
    );
    assert!(
        ended.err.contains(&format!("could not send line {failed}"))
            && ended.err.contains("1 line to be sent again"),
        "{}",
        ended.err
    );

    let lines: BTreeSet<u64> = told
        .iter()
        .map(|line| line["line"].as_u64().unwrap())
        .collect();
    assert_eq!(lines, (1..=told.len() as u64).collect());
    let summary = json!({"interrupted": false, "sent": sent.len(), "refused": 0, "unconfirmed": 1, "next_line": failed, "unsent": rest});
    assert_eq!(cut_short, summary);
    assert_eq!(site.count(QUEUE), sent.len() as u64);

    // The file contains the lines that failed and the lines that were not read. A command that reads this file as input
    // empties it.
    let unsent = std::fs::read_to_string(rest).unwrap();
    assert_eq!(unsent.lines().count(), LINES - sent.len());
    assert_eq!(
        unsent.lines().next(),
        Some(jobs[usize::try_from(failed).unwrap() - 1].as_str())
    );
    let ended = site.command_with(&["submit", "--unsent", rest, "-"], &unsent);
    assert_eq!(
        (ended.code, std::fs::read_to_string(rest).unwrap().as_str()),
        (0, ""),
        "{}",
        ended.err
    );
    assert_eq!(site.count(QUEUE), LINES as u64);
}

#[test]
fn a_row_that_somebody_wrote_is_found_under_its_key_as_it_was() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    let entity = Entity::new(EntityKey::new("Sales", "1").unwrap())
        .with("Score", 3.0)
        .with("Badge", 1_i64 << 60)
        .with("Name", "한 😀");
    site.write("Employees", &[entity]);
    let ended = site.command(&["get", "employees", "Sales", "1"]);
    let row: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (&row["Badge"], &row["Badge@odata.type"], &row["Name"]),
        (
            &json!("1152921504606846976"),
            &json!("Edm.Int64"),
            &json!("한 😀")
        )
    );
    assert_eq!(site.command(&["get", "Employees", "Sales", "2"]).code, 1);
}
