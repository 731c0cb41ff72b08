//! `run` as a daemon: its endpoints, its signals, and its behavior while its store is unavailable.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cli::place::{Place, json_lines, says};

/// A program that runs in parallel to the test, and is killed if the test fails.
pub(crate) struct Daemon {
    child: Child,
    log: BufReader<ChildStderr>,
}

impl Daemon {
    pub(crate) fn start(place: &Place, args: &[&str]) -> Self {
        Self::run(place.command(args))
    }

    pub(crate) fn run(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        Self { child, log }
    }

    /// Reads the log until a line contains this text. Returns that line.
    pub(crate) fn await_line(&mut self, part: &str) -> Value {
        let mut before = String::new();
        loop {
            let mut line = String::new();
            assert!(
                self.log.read_line(&mut line).unwrap() > 0,
                "{part:?} was not logged:\n{before}"
            );
            if line.contains(part) {
                return serde_json::from_str(&line)
                    .unwrap_or_else(|error| panic!("{error}: {line}"));
            }
            before.push_str(&line);
        }
    }

    pub(crate) fn address(&mut self) -> String {
        let line = self.await_line("serving dashboard, health and metrics");
        line["address"]
            .as_str()
            .unwrap()
            .strip_prefix("http://")
            .unwrap()
            .to_owned()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, name: &str) {
        // Every shell has `kill` built in. Not every machine has it as a program.
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{name} {}", self.id())])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    pub(crate) fn code(mut self) -> Option<i32> {
        // The log is read to its end, so that the program never blocks on a full pipe.
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// Waits until a condition holds. Waits for up to a minute, because the machine may be busy.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(
            started.elapsed() < Duration::from_mins(1),
            "timed out waiting until {what}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(crate) const FREE_PORT: &str = "--set=http.listen=127.0.0.1:0";

#[test]
fn it_is_ready_works_and_drains_when_told_to_stop() {
    for signal in ["TERM", "INT"] {
        let place = Place::new();
        let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
        says(
            &daemon.await_line("account opened").to_string(),
            &["evenkeel.db"],
        );
        says(
            &daemon.await_line("receiving from queue").to_string(),
            &["\"jobs\""],
        );
        let address = daemon.address();
        assert_eq!(get(&address, "/healthz").0, 200);
        until("ready", || get(&address, "/readyz").0 == 200);
        place
            .run(&["submit", r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"7","Email":"a@b.c"}}"#])
            .success();
        until("the job is done", || {
            place
                .run(&["get", "EmployeesByEmail", "email", "a@b.c"])
                .get_output()
                .status
                .success()
        });
        // The copy exists a moment before the job is counted as done.
        until("the job is counted", || {
            get(&address, "/metrics").1.contains("evenkeel_keys_total{")
        });
        says(
            &get(&address, "/metrics").1,
            &[
                "evenkeel_items_total{view=\"by_email\"",
                "evenkeel_storage_requests_total{",
            ],
        );
        says(
            &get(&address, "/metrics").1,
            &[
                "evenkeel_start_timestamp_seconds ",
                "process_resident_memory_bytes ",
                "process_cpu_seconds_total ",
                "process_open_fds ",
            ],
        );
        daemon.signal(signal);
        assert_eq!(
            daemon.await_line("finishing jobs in progress")["signal"],
            format!("SIG{signal}")
        );
        assert_eq!(daemon.code(), Some(0), "SIG{signal}");
    }
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let job = |n: u32| {
        format!(
            "{{\"op\":\"put\",\"table\":\"Employees\",\"entity\":{{\"PartitionKey\":\"Sales\",\"RowKey\":\"{n}\",\"Email\":\"{n}@contoso.com\"}}}}\n"
        )
    };
    place
        .run_with(&["submit", "-"], (0..3_000).map(job).collect::<String>())
        .success();
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    until("jobs are in work", || {
        get(&address, "/metrics").1.contains("evenkeel_keys_total{")
    });
    // The test locks the store, so that no job can end. It retries without a pause, because with SQLite's own growing
    // pauses the jobs would be done first.
    let mut store = rusqlite::Connection::open(place.store()).unwrap();
    store
        .busy_handler(Some(|_| {
            std::thread::yield_now();
            true
        }))
        .unwrap();
    store.execute_batch("BEGIN IMMEDIATE").unwrap();
    daemon.signal("TERM");
    daemon.await_line("finishing jobs in progress");
    daemon.signal("INT");
    assert_eq!(daemon.code(), Some(130));
}

#[test]
fn a_store_that_is_away_at_the_start_is_waited_for_and_named() {
    let place = Place::unreachable();
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    daemon.await_line("not ready");
    let (status, body) = get(&address, "/readyz");
    assert_eq!(status, 503);
    says(&body, &["waiting_for_store", "\"main\"", "refused"]);
    daemon.signal("TERM");
    assert_eq!(daemon.code(), Some(0));
}

#[test]
fn an_address_that_is_taken_is_an_error() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = format!("--set=http.listen={}", taken.local_addr().unwrap());
    place.run(&[&listen, "run"]).code(1);
    place.run(&["--set=http.listen=0.0.0.0:0", "run"]).code(2);
}

#[test]
fn two_workers_share_a_queue_and_every_job_is_done_once() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let job = |n: u32| {
        format!(
            "{{\"op\":\"put\",\"table\":\"Employees\",\"entity\":{{\"PartitionKey\":\"Sales\",\"RowKey\":\"{n}\",\"Email\":\"{n}@contoso.com\"}}}}\n"
        )
    };
    place
        .run_with(&["submit", "-"], (0..200).map(job).collect::<String>())
        .success();
    let args = ["--json", "run", "--until-idle=0.3", "--no-http"];
    let children: Vec<_> = (0..2)
        .map(|_| {
            place
                .command(&args)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut done = 0;
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success());
        let summary: Value = serde_json::from_slice(&output.stdout).unwrap();
        done += summary["done"].as_u64().unwrap();
    }
    assert_eq!(done, 200);
    let plan = &json_lines(
        &place
            .run(&["--json", "plan", "Employees", "Sales", "199"])
            .success(),
    )[0];
    assert_eq!(plan["in_step"], true);
}
