//! The worked examples of the guide (`examples/guide`). The tests run the commands as a user types them, on the
//! embedded store and on Azurite. They count the requests of jobs and lookups, and compare them with `docs/guide.toml`.
//!
//! One worker runs in parallel to the commands, with one job at a time. The worker's journal contains the requests of
//! each job.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use evenkeel::cli::demo::{GUIDE_EXAMPLES, GuideExample, GuideStep};
use evenkeel_storage::Clock as _;
use evenkeel_storage::system::SystemClock;
use serde::Deserialize;
use serde_json::Value;

use crate::end_to_end::site::{Place, QUEUE, Site};
use crate::end_to_end::worker::{Worker, wait_until};
use crate::support::azurite::Azurite;

const AT_ONCE: usize = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Requests {
    /// Requests of the jobs, including the deletion of each message.
    jobs: u64,
    lookups: u64,
}

#[derive(Deserialize)]
struct Documented {
    name: String,
    #[serde(flatten)]
    requests: Requests,
    /// Requests of the jobs on Azurite, if requests of a job share transactions there.
    jobs_on_azurite: Option<u64>,
}

#[derive(Deserialize)]
struct Guide {
    example: Vec<Documented>,
}

struct Running {
    site: Site,
    worker: Option<(Worker, String)>,
    lookups: u64,
}

impl Running {
    fn new(place: Place, example: &GuideExample) -> Self {
        let queue = format!("\n[[queues]]\nname = \"{QUEUE}\"\nconcurrency = 1\n\n");
        Self {
            site: Site::new(place, &format!("{queue}{}", example.catalog)),
            worker: None,
            lookups: 0,
        }
    }

    fn work(&mut self) -> &str {
        let site = &self.site;
        let (_, address) = self.worker.get_or_insert_with(|| {
            let address = TcpListener::bind("127.0.0.1:0")
                .unwrap()
                .local_addr()
                .unwrap()
                .to_string();
            let worker =
                Worker::start(site.program(&["--set", &format!("http.listen={address}"), "run"]));
            wait_until("the worker is ready", || {
                ask(&address, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
            });
            (worker, address)
        });
        address
    }

    /// Runs a command of the example. `run` does not start another worker, but waits for the running one.
    fn step(&mut self, step: &GuideStep) {
        let name = step.arguments[0].as_str();
        if name == "run" {
            self.work();
            let queue = &self.site;
            wait_until("the queue is empty", || queue.count(QUEUE) == 0);
            return;
        }
        let mut arguments = vec!["--json"];
        arguments.extend(step.arguments.iter().map(String::as_str));
        let ended = self.site.command_with(&arguments, &step.input);
        assert_eq!(ended.code, 0, "{}: {}{}", step.text, ended.out, ended.err);
        if name == "lookup" {
            let last: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
            self.lookups += last["requests"].as_u64().unwrap();
        }
    }

    fn requests(mut self) -> (Requests, String) {
        let address = self.work().to_owned();
        self.site.assert_all_done();
        let mut jobs = Vec::new();
        // A job appears in the journal a moment after its message is deleted.
        wait_until("the journal is complete", || {
            let found = journal(&address);
            let complete = !found.is_empty() && found.len() == jobs.len();
            jobs = found;
            complete
        });
        let sum = jobs.iter().map(requests_of).sum();
        (
            Requests {
                jobs: sum,
                lookups: self.lookups,
            },
            jobs.iter().map(told).collect(),
        )
    }
}

/// The number of requests of a job, without a confirmation of its lease. On a busy machine a job that must act only
/// once may begin more than 250 ms after its Get. Then it first confirms its lease.
fn requests_of(job: &Value) -> u64 {
    let confirmed = job["steps"][0]["op"] == "update_message";
    job["requests"].as_u64().unwrap() - u64::from(confirmed)
}

fn told(job: &Value) -> String {
    let steps = job["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| format!(" {} {}", step["op"], step["target"]));
    format!(
        "    {} {}:{}\n",
        job["op"],
        job["requests"],
        steps.collect::<String>()
    )
}

fn ask(address: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

fn journal(address: &str) -> Vec<Value> {
    let answer = ask(address, "/api/v1/jobs?top=1000").unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn run(place: Place, example: &GuideExample) -> (Requests, String) {
    let day = SystemClock::new().now().strftime("%Y%m%d").to_string();
    let mut running = Running::new(place, example);
    for step in example.steps(&day).unwrap() {
        running.step(&step);
    }
    let audited = running.site.command(&["audit"]);
    assert_eq!(
        audited.code, 0,
        "{}: {}{}",
        example.name, audited.out, audited.err
    );
    running.requests()
}

fn every_example_takes_as_many_requests_as_the_documentation_says(
    place: impl Fn() -> Place + Sync,
    grouped: bool,
) {
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(example) = GUIDE_EXAMPLES.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let requests = run(place(), example);
                    found
                        .lock()
                        .unwrap()
                        .push((example.name.to_owned(), requests));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    let guide: Guide = toml::from_str(include_str!("../../../docs/guide.toml")).unwrap();
    let requests = |example: &Documented| {
        let jobs = example
            .jobs_on_azurite
            .filter(|_| grouped)
            .unwrap_or(example.requests.jobs);
        Requests {
            jobs,
            ..example.requests
        }
    };
    let mut wanted: Vec<_> = guide
        .example
        .iter()
        .map(|example| (example.name.clone(), requests(example)))
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    wanted.sort_by(|one, other| one.0.cmp(&other.0));
    let line = |(name, (Requests { jobs, lookups }, told)): &(String, (Requests, String))| {
        format!("name = {name:?}, jobs = {jobs}, lookups = {lookups}\n{told}")
    };
    let is_as_wanted = |(name, (requests, _)): &(String, (Requests, String))| {
        wanted.contains(&(name.clone(), *requests))
    };
    let differing: String = found
        .iter()
        .filter(|one| !is_as_wanted(one))
        .map(line)
        .collect();
    assert!(
        differing.is_empty() && found.len() == wanted.len(),
        "docs/guide.toml differs from these measurements:\n{differing}"
    );
}

#[test]
fn every_example_of_the_guide_runs_on_the_embedded_store_in_as_many_requests_as_documented() {
    every_example_takes_as_many_requests_as_the_documentation_says(|| Place::Embedded, false);
}

#[test]
fn every_example_of_the_guide_runs_on_azurite_in_as_many_requests_as_documented() {
    every_example_takes_as_many_requests_as_the_documentation_says(
        || Place::Azurite(Azurite::in_memory()),
        true,
    );
}
