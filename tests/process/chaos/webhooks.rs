//! A receiver of events that fails, and workers that are killed while they send. Every change must arrive at least
//! once.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::process::{Command, Stdio};

use evenkeel_model::EdmValue;
use serde_json::{Value, json};

use crate::end_to_end::site::Site;
use crate::end_to_end::worker::wait_until;
use crate::support::stub::{Reply, Request, Stub};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const PRIMARIES: usize = 60;

fn catalog(port: u16) -> String {
    format!(
        r#"
[[queues]]
name = "evenkeel-jobs"

[sinks.hooks]
kind = "webhook"
url = "http://127.0.0.1:{port}/staff"
secret_file = "webhook-secret"

[views.staff]
kind = "webhook"
source = "Employees"
when = "Active == true"
sink = "hooks"
topic = "staff"
select = ["Name"]
fields = {{ number = "{{RowKey}}" }}
"#
    )
}

fn job(number: usize, round: usize) -> Value {
    let rk = format!("{number:03}");
    match (number + round) % 5 {
        0 if round > 0 => json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": rk}),
        kind => {
            json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": rk, "Active": kind != 2,
            "Name": format!("Number {number} in round {round} 한")}})
        }
    }
}

/// Returns the last event of each primary, by sequence. Checks that events with the same id are equal.
fn told(requests: &[Request]) -> BTreeMap<String, Value> {
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    let mut ids: BTreeMap<String, Value> = BTreeMap::new();
    for request in requests {
        let event: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(request.header("webhook-id"), event["id"].as_str());
        let same = ids
            .entry(event["id"].to_string())
            .or_insert_with(|| event.clone());
        assert_eq!(*same, event, "an id must belong to one change");
        let key = event["data"]["row_key"].as_str().unwrap().to_owned();
        let newer = last
            .get(&key)
            .is_none_or(|known| known["sequence"].as_str() < event["sequence"].as_str());
        if newer {
            last.insert(key, event);
        }
    }
    last
}

/// Runs a receiver from the documentation with an event. Returns whether the receiver accepted the event.
fn accepted(program: &str, arguments: &[&str], headers: [&str; 3], body: &[u8]) -> bool {
    let mut child = Command::new(program)
        .args(arguments)
        .args(headers)
        .env("WEBHOOK_SECRET", SECRET)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(body).unwrap();
    child.wait().unwrap().success()
}

fn block(language: &str) -> String {
    let page = std::fs::read_to_string(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/docs/patterns/webhooks.md"
    ))
    .unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("\n```").unwrap().0.to_owned()
}

#[test]
fn every_change_arrives_though_receiver_and_workers_fail_and_the_last_event_is_the_primary() {
    let stub = Stub::start(|request| match request.number % 11 {
        3 => Reply::status(503).header("Retry-After", "0").into(),
        5 => Reply::Reset,
        7 => Reply::status(408).into(),
        8 => Reply::status(500).body("no").into(),
        _ => Reply::status(204).into(),
    });
    let site = Site::embedded("");
    std::fs::write(site.file("webhook-secret"), SECRET).unwrap();
    site.declare(&catalog(stub.port()));
    site.migrate();
    for round in 0..4 {
        let before = stub.requests().len();
        site.submit(
            &(0..PRIMARIES)
                .map(|number| job(number, round))
                .collect::<Vec<_>>(),
        );
        let worker = site.worker(&[]);
        wait_until("some events of the round have arrived", || {
            stub.requests().len() > before + 10
        });
        worker.kill();
    }
    site.run_until_idle(&[]);
    assert_eq!(site.poison(), Vec::<Value>::new());
    let requests = stub.requests();
    let last = told(&requests);
    let rows = site.rows("Employees");
    let active = rows
        .iter()
        .filter(|(_, row)| row.entity.get("Active") == Some(&EdmValue::Bool(true)));
    let wanted: BTreeMap<String, Value> = active
        .map(|((_, rk), row)| {
            (
                rk.clone(),
                json!({"Name": row.entity.text("Name").unwrap(), "number": rk}),
            )
        })
        .collect();
    let found: BTreeMap<String, Value> = last
        .into_iter()
        .map(|(key, event)| (key, event["data"]["document"].clone()))
        .filter(|(_, document)| !document.is_null())
        .collect();
    assert_eq!(found, wanted);
    assert!(wanted.len() > PRIMARIES / 4);

    let before = stub.requests().len();
    let syncs = (0..PRIMARIES).map(|number| json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": format!("{number:03}")}));
    site.submit(&syncs.collect::<Vec<_>>());
    site.run_until_idle(&[]);
    assert_eq!(stub.requests().len(), before);

    // The receivers from the documentation accept the original event, and refuse an event that was changed in transit.
    let event = requests.last().unwrap();
    let header = |name| event.header(name).unwrap();
    let headers = [
        header("webhook-id"),
        header("webhook-timestamp"),
        header("webhook-signature"),
    ];
    let (python, node) = (block("python"), block("javascript"));
    for (program, arguments) in [("python3", ["-c", &python]), ("node", ["-e", &node])] {
        assert!(
            accepted(program, &arguments, headers, &event.body),
            "{program}"
        );
        let mut other = event.body.clone();
        other.push(b' ');
        assert!(!accepted(program, &arguments, headers, &other), "{program}");
        assert!(
            !accepted(
                program,
                &arguments,
                [headers[0], "1", headers[2]],
                &event.body
            ),
            "{program}"
        );
    }
}
