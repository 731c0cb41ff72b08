//! Keys and tokens that are rotated while jobs run. `EVENKEEL_ROTATED_JOBS` sets the number of jobs (3,000 by default).
//! Each test prints the longest time between the completion of two jobs.

use std::fs;
use std::time::Duration;

use evenkeel_model::{QueueName, body};
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Clock as _, Ttl};
use serde_json::{Value, json};

use crate::end_to_end::authority::Authority;
use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::site::{EMPLOYEES, Place, QUEUE, Site};
use crate::end_to_end::worker::wait_until;
use crate::support::azurite::Azurite;

/// Keys of the account in addition to the emulator's own key, which the tests themselves use.
const KEYS: [&str; 4] = [
    "Zmlyc3Qta2V5LW9mLXRoZS10ZXN0cw==",
    "c2Vjb25kLWtleS1vZi10aGUtdGVzdA==",
    "dGhpcmQta2V5LW9mLXRoZS10ZXN0cw==",
    "Zm91cnRoLWtleS1vZi10aGUtdGVzdA==",
];

fn jobs() -> u64 {
    std::env::var("EVENKEEL_ROTATED_JOBS").map_or(3_000, |jobs| {
        jobs.parse().expect("EVENKEEL_ROTATED_JOBS is a number")
    })
}

fn put(number: u64) -> Value {
    let email = format!("{number}@contoso.com");
    json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": format!("P{}", number % 5), "RowKey": number.to_string(), "Email": email}})
}

/// Waits until this many jobs are left, and calls `meanwhile` repeatedly. Fails if no job is done for two minutes.
fn wait_for(site: &Site, what: &str, left: u64, meanwhile: impl Fn()) {
    let mut now = site.count(QUEUE);
    while now > left {
        let before = now;
        wait_until(what, || {
            meanwhile();
            now = site.count(QUEUE);
            now < before
        });
    }
}

#[expect(clippy::print_stdout, reason = "the numbers are for people")]
fn assert_whole(site: &Site, jobs: u64, what: &str) {
    site.assert_all_done();
    assert_eq!(site.rows("Employees").len() as u64, jobs);
    assert_index_complete(site);
    let audit = site.command(&["audit"]);
    assert_eq!(audit.code, 0, "{}{}", audit.out, audit.err);
    // A job writes the index last. So the timestamps of the index rows show when each job was done, by the service's
    // own clock.
    let rows = site.rows("EmployeesByEmail").into_values();
    let mut done: Vec<_> = rows.map(|row| row.timestamp.unwrap().timestamp()).collect();
    done.sort_unstable();
    let pauses = done.windows(2).map(|two| {
        (
            two[0].duration_until(two[1]),
            done[0].duration_until(two[0]),
        )
    });
    let (pause, begins) = pauses.max().unwrap();
    let all = done[0].duration_until(done[done.len() - 1]);
    println!(
        "{what}: {jobs} jobs in {all:.1?}, 0 lost, 0 poisoned, longest pause {pause:.3?}, {begins:.1?} after the first"
    );
}

fn site() -> Site {
    let site = Site::new(Place::Azurite(Azurite::with_key(KEYS[0])), EMPLOYEES);
    fs::write(site.file("key"), KEYS[0]).unwrap();
    let ports = site.ports();
    let endpoint = |service: &str, port: u16| {
        format!("endpoints.{service} = \"http://127.0.0.1:{port}/devstoreaccount1\"\n")
    };
    let endpoints = [
        endpoint("table", ports.table),
        endpoint("queue", ports.queue),
        endpoint("blob", ports.blob),
    ]
    .concat();
    let account = "auth = \"key\"\nname = \"devstoreaccount1\"\nkey_file = \"key\"\n";
    site.declare_account(&format!("{account}{endpoints}"), EMPLOYEES);
    site
}

fn rotate(site: &mut Site, key: &str) {
    let Place::Azurite(azurite) = &mut site.place else {
        unreachable!()
    };
    azurite.rotate(key);
}

#[test]
fn keys_are_rotated_under_a_worker_which_loses_and_poisons_nothing() {
    let mut site = site();
    site.migrate();
    let jobs = jobs();
    site.submit(&(0..jobs).map(put).collect::<Vec<_>>());
    let mut worker = site.worker(&[]);

    wait_for(
        &site,
        "a fifth of the jobs is done",
        jobs * 4 / 5 - 1,
        || (),
    );
    // The key is replaced in the file first, and then in the account, as documented.
    fs::write(site.file("key"), KEYS[1]).unwrap();
    rotate(&mut site, KEYS[1]);
    wait_for(
        &site,
        "jobs are done by the key of the changed file",
        jobs * 3 / 5 - 1,
        || (),
    );

    // The key is replaced in the account first. Until the file has the new key, the service refuses every request.
    rotate(&mut site, KEYS[2]);
    fs::write(site.file("key"), KEYS[2]).unwrap();
    wait_for(
        &site,
        "jobs are done by the third key",
        jobs * 2 / 5 - 1,
        || (),
    );

    fs::write(site.file("key"), KEYS[3]).unwrap();
    worker.reload();
    rotate(&mut site, KEYS[3]);
    wait_for(&site, "all jobs are done", 0, || ());
    assert!(worker.runs());
    worker.terminate();
    let (status, log) = worker.end();
    assert_eq!(status.code(), Some(0), "{log}");

    assert_eq!(
        log.matches(
            "[accounts.main]: key_file has changed; requests use the new secret from now on"
        )
        .count(),
        3,
        "{log}"
    );
    assert!(
        !KEYS.iter().any(|key| log.contains(key)),
        "a key is printed: {log}"
    );
    assert_whole(&site, jobs, "three rotations of keys");
}

/// Lifetime of an access token in seconds (the shortest that the program accepts), and the minimum duration of the
/// jobs, which is longer.
const LIFE: u64 = 60;
const GOES_ON: Duration = Duration::from_secs(75);
/// Lifetime of a federated token, and the interval at which it is replaced. When an access token is renewed, the first
/// federated token has expired.
const FEDERATED: (Duration, Duration) = (Duration::from_secs(40), Duration::from_secs(30));

fn federate(authority: &Authority) {
    let now = SystemClock::new().now().as_millisecond();
    let until = now + i64::try_from(FEDERATED.0.as_millis()).unwrap();
    authority.federate(&json!({"life": LIFE, "until": until}));
}

#[test]
fn tokens_and_federated_tokens_are_rotated_under_a_worker_which_loses_and_poisons_nothing() {
    let authority = Authority::start();
    let mut site = Site::azurite("");
    let gateway = authority.gateway(site.ports());
    site.declare_account(&gateway.account("devstoreaccount1"), EMPLOYEES);
    site.set_environment(
        authority
            .workload()
            .into_iter()
            .chain([authority.trust()])
            .collect(),
    );
    federate(&authority);
    site.migrate();
    let worker = site.worker(&[]);
    let jobs = jobs();
    site.with(async |account| {
        let queue = QueueName::new(QUEUE).unwrap();
        let (began, mut federated) = (tokio::time::Instant::now(), tokio::time::Instant::now());
        let step = GOES_ON.div_f64(f64::from(u32::try_from(jobs).unwrap()));
        for number in 0..jobs {
            if federated.elapsed() >= FEDERATED.1 {
                federate(&authority);
                federated = tokio::time::Instant::now();
            }
            account
                .queues
                .put(
                    &queue,
                    &body::encode(&put(number).to_string()),
                    Duration::ZERO,
                    Ttl::Never,
                )
                .await
                .unwrap();
            // The last job is sent some time after the first token has expired.
            tokio::time::sleep_until(
                began + step.mul_f64(f64::from(u32::try_from(number).unwrap() + 1)),
            )
            .await;
        }
    });
    wait_for(&site, "all jobs are done", 0, || federate(&authority));
    // If there are many jobs, the checks take longer than the lifetime of a federated token.
    authority.federate(&json!({}));
    worker.stop();
    assert_whole(&site, jobs, "tokens and federated tokens");
}

#[test]
fn a_key_that_is_refused_is_waited_for_and_poisons_nothing() {
    let mut site = site();
    site.migrate();
    site.submit(&[json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "P", "RowKey": "1", "Email": "a@b.c"}})]);
    rotate(&mut site, KEYS[2]);
    let refused = site.command(&["poison", "list"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    let mut worker = site.worker(&[]);
    assert!(worker.runs());
    fs::write(site.file("key"), KEYS[2]).unwrap();
    wait_until("the job is done", || site.count(QUEUE) == 0);
    worker.stop();
    site.assert_all_done();
    assert_index_complete(&site);
}
