//! Spans of the daemon, received as OTLP over HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use crate::cli::daemon::{Daemon, FREE_PORT, until};
use crate::cli::place::{Place, says};

const CLIENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Export = (String, ExportTraceServiceRequest);

/// A receiver of spans on its own port, which runs until the test ends.
fn receiver() -> (String, mpsc::Receiver<Export>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (sender, exports) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let sender = sender.clone();
            std::thread::spawn(move || receive(stream, &sender));
        }
    });
    (address, exports)
}

fn receive(mut stream: TcpStream, sender: &mpsc::Sender<Export>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head
            .lines()
            .find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            })
            .unwrap();
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        // The spans are passed on before the answer is sent, because the daemon may end right after the answer.
        let _ = sender.send((
            head,
            ExportTraceServiceRequest::decode(body.as_slice()).unwrap(),
        ));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 0\r\n\r\n").unwrap();
    }
}

fn attribute<'s>(span: &'s Span, key: &str) -> Option<&'s str> {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == key)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        _ => None,
    }
}

#[test]
fn a_job_s_spans_are_received_under_the_client_s_trace() {
    let (address, exports) = receiver();
    let place = Place::new();
    let endpoint = format!("--set=traces.endpoint=http://{address}");
    let mut command = place.command(&[
        FREE_PORT,
        &endpoint,
        "--set=traces.headers_env=TRACE_HEADERS",
        "run",
    ]);
    command.env("TRACE_HEADERS", "authorization=Bearer s3cret");
    let mut daemon = Daemon::run(command);
    let http = daemon.address();
    let get = |path: &str| crate::cli::api::ask_at("1.1", &http, "GET", path, "", "");
    let put = |number: u32, email: &str, trace: &str| {
        let entity = serde_json::json!({"PartitionKey": "Sales", "RowKey": number.to_string(), "Email": email, "Salary": 424_242});
        let job = serde_json::json!({"op": "put", "table": "Employees", "traceparent": trace, "entity": entity});
        place.run(&["submit", &job.to_string()]).success();
    };
    until("ready", || get("/readyz").status == 200);
    put(1, "a@b.c", CLIENT);
    until("the first is done", || {
        get("/api/v1/jobs?outcome=done")
            .json()
            .as_array()
            .is_some_and(|jobs| jobs.len() == 1)
    });
    put(2, "A@b.c", "no trace context at all");
    until("the second is poisoned", || {
        get("/api/v1/jobs?outcome=poisoned")
            .json()
            .as_array()
            .is_some_and(|jobs| jobs.len() == 1)
    });
    assert!(!get("/api/v1/config").body.contains("s3cret"));
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0));

    let exports: Vec<Export> = exports.try_iter().collect();
    says(
        &exports[0].0,
        &["POST /v1/traces HTTP/1.1", "authorization: Bearer s3cret"],
    );
    let resources = exports
        .iter()
        .flat_map(|(_, export)| &export.resource_spans);
    let spans: Vec<&Span> = resources
        .flat_map(|resource| &resource.scope_spans)
        .flat_map(|scope| &scope.spans)
        .collect();
    let jobs: Vec<&&Span> = spans.iter().filter(|span| span.name == "job").collect();
    assert_eq!(jobs.len(), 2, "polling must not create traces");
    let followed = jobs
        .iter()
        .find(|span| hex(&span.trace_id) == "4bf92f3577b34da6a3ce929d0e0e4736")
        .unwrap();
    assert_eq!(hex(&followed.parent_span_id), "00f067aa0ba902b7");
    assert_eq!(
        (
            attribute(followed, "op"),
            attribute(followed, "evenkeel.outcome")
        ),
        (Some("put"), Some("done"))
    );
    let requests: Vec<&str> = spans
        .iter()
        .filter(|span| {
            span.parent_span_id == followed.span_id && span.trace_id == followed.trace_id
        })
        .map(|span| span.name.as_str())
        .collect();
    for name in [
        "get_entity EvenkeelFootprints",
        "insert_entity EmployeesByEmail",
        "delete_message jobs",
    ] {
        assert!(requests.contains(&name), "{name} is not in {requests:?}");
    }
    let own = jobs
        .iter()
        .find(|span| span.trace_id != followed.trace_id)
        .unwrap();
    assert_eq!(
        (own.parent_span_id.len(), attribute(own, "evenkeel.outcome")),
        (0, Some("permanent"))
    );
    says(&own.status.as_ref().unwrap().message, &["is taken by"]);
    let all = format!("{spans:?}");
    assert!(
        all.contains("Employees") && !all.contains("424242") && !all.contains("s3cret"),
        "{all}"
    );
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

#[test]
fn a_receiver_that_is_away_holds_nothing_up() {
    let place = Place::new();
    let away = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let mut daemon = Daemon::start(
        &place,
        &[
            FREE_PORT,
            &format!("--set=traces.endpoint=http://{away}"),
            "run",
        ],
    );
    let http = daemon.address();
    place.put("jobs", "no job at all");
    until("it is poisoned", || {
        crate::cli::api::ask_at("1.1", &http, "GET", "/api/v1/poison", "", "").json()["total"] == 1
    });
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0));
}
