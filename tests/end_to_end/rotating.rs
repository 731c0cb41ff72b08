//! Keys that are rotated while jobs are worked off.

use std::fs;

use serde_json::json;

use crate::oracle::assert_index_complete;
use crate::site::{EMPLOYEES, Place, QUEUE, Site};
use crate::support::azurite::Azurite;
use crate::worker::wait_until;

const JOBS: u64 = 3_000;
/// Keys of the account beside the emulator's own, with which the tests themselves look.
const KEYS: [&str; 4] = [
    "Zmlyc3Qta2V5LW9mLXRoZS10ZXN0cw==",
    "c2Vjb25kLWtleS1vZi10aGUtdGVzdA==",
    "dGhpcmQta2V5LW9mLXRoZS10ZXN0cw==",
    "Zm91cnRoLWtleS1vZi10aGUtdGVzdA==",
];

/// A site that signs by the keys in two files; the account has the first of them.
fn site(data: &std::path::Path) -> Site {
    let site = Site::new(Place::Azurite(Azurite::with_key(data, KEYS[0])), EMPLOYEES);
    fs::write(site.file("key"), KEYS[0]).unwrap();
    fs::write(site.file("second-key"), KEYS[1]).unwrap();
    let ports = site.ports();
    let endpoint = |service: &str, port: u16| format!("endpoints.{service} = \"http://127.0.0.1:{port}/devstoreaccount1\"\n");
    let endpoints = [endpoint("table", ports.table), endpoint("queue", ports.queue), endpoint("blob", ports.blob)].concat();
    let account = "auth = \"key\"\nname = \"devstoreaccount1\"\nkey_file = \"key\"\nsecond_key_file = \"second-key\"\n";
    site.declare_account(&format!("{account}{endpoints}"), EMPLOYEES);
    site
}

fn rotate(site: &mut Site, key: &str) {
    let Place::Azurite(azurite) = &mut site.place else { unreachable!() };
    azurite.rotate(key);
}

#[test]
fn keys_are_rotated_under_a_worker_which_loses_and_poisons_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut site = site(data.path());
    site.migrate();
    let put = |number: u64| {
        let email = format!("{number}@contoso.com");
        json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": format!("P{}", number % 5), "RowKey": number.to_string(), "Email": email}})
    };
    site.submit(&(0..JOBS).map(put).collect::<Vec<_>>());
    let mut worker = site.worker(&[]);

    wait_until("a fifth of the jobs is done", || site.count(QUEUE) < JOBS * 4 / 5);
    rotate(&mut site, KEYS[1]);
    wait_until("jobs are done by the second key", || site.count(QUEUE) < JOBS * 3 / 5);

    fs::write(site.file("key"), KEYS[2]).unwrap();
    rotate(&mut site, KEYS[2]);
    wait_until("jobs are done by the key of the changed file", || site.count(QUEUE) < JOBS * 2 / 5);

    fs::remove_file(site.file("second-key")).unwrap();
    fs::write(site.file("key"), KEYS[3]).unwrap();
    worker.reload();
    rotate(&mut site, KEYS[3]);
    wait_until("all jobs are done", || site.count(QUEUE) == 0);
    assert!(worker.runs());
    worker.terminate();
    let (status, log) = worker.end();
    assert_eq!(status.code(), Some(0), "{log}");

    for line in [
        "[accounts.main]: key_file is refused by the service; requests carry second_key_file from now on",
        "[accounts.main]: key_file has changed; requests carry its secret from now on",
        "[accounts.main]: second_key_file is refused by the service; requests carry key_file from now on",
        "[accounts.main]: second_key_file is not taken over: the file",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    assert!(!KEYS.iter().any(|key| log.contains(key)), "a key is printed: {log}");
    fs::write(site.file("second-key"), KEYS[1]).unwrap();
    site.assert_all_done();
    assert_eq!(site.rows("Employees").len() as u64, JOBS);
    assert_index_complete(&site);
    let audit = site.command(&["audit"]);
    assert_eq!(audit.code, 0, "{}{}", audit.out, audit.err);
}

#[test]
fn keys_that_are_both_refused_are_waited_for_and_poison_nothing() {
    let data = tempfile::tempdir().unwrap();
    let mut site = site(data.path());
    site.migrate();
    site.submit(&[json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "P", "RowKey": "1", "Email": "a@b.c"}})]);
    rotate(&mut site, KEYS[2]);
    let refused = site.command(&["poison", "list"]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    let mut worker = site.worker(&[]);
    assert!(worker.runs());
    fs::write(site.file("second-key"), KEYS[2]).unwrap();
    wait_until("the job is done", || site.count(QUEUE) == 0);
    worker.stop();
    site.assert_all_done();
    assert_index_complete(&site);
}
