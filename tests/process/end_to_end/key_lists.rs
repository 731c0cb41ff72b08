//! Lists of primaries in blobs, as the program stages them and takes them.

use evenkeel::model::large::STAGING;
use evenkeel::model::{BlobName, ContainerName};
use evenkeel::ports::{BlobUpload, all_blobs};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};
use crate::end_to_end::worker::wait_until;

fn employee(number: usize) -> Value {
    let email = format!("{number:04}@contoso.com");
    json!({"PartitionKey": "Sales", "RowKey": format!("{number:04}"), "FirstName": "Jun", "LastName": "Cao", "Email": email})
}

fn lines(items: impl IntoIterator<Item = Value>) -> String {
    let lines: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    lines.join("\n") + "\n"
}

fn container() -> ContainerName {
    ContainerName::new(STAGING).unwrap()
}

/// The names of what is staged still.
fn staged(site: &Site) -> Vec<String> {
    let blobs = site.with(async |account| {
        account.blobs.create_container(&container()).await.unwrap();
        all_blobs(account.blobs.as_ref(), &container(), "").await.unwrap()
    });
    blobs.into_iter().map(|blob| blob.name.to_string()).collect()
}

/// Stages a list as another program does, and says how a job names it.
fn stage(site: &Site, name: &str, content: &str) -> Value {
    let sha256 = hex::encode(Sha256::digest(content));
    let content = content.to_owned().into_bytes();
    site.with(async |account| {
        account.blobs.create_container(&container()).await.unwrap();
        let name = BlobName::new(name).unwrap();
        account.blobs.put(&container(), &name, content.into(), &BlobUpload::default()).await.unwrap();
    });
    json!({"blob": format!("{STAGING}/{name}"), "sha256": sha256})
}

fn submit(site: &Site, job: &Value, list: &str) -> Value {
    let ended = site.command_with(&["--json", "submit", "--list", "-", &job.to_string()], list);
    assert_eq!(ended.code, 0, "{}", ended.err);
    serde_json::from_str(&ended.out).unwrap()
}

/// Lists that take two windows and more, for every operation.
fn every_operation_takes_a_list(site: &Site) {
    const PRIMARIES: usize = 1_200;
    site.migrate();
    let sent = submit(site, &json!({"op": "put", "table": "Employees", "id": "import"}), &lines((0..PRIMARIES).map(employee)));
    assert_eq!((sent["op"].as_str(), sent["lines"].as_u64(), sent["id"].as_str()), (Some("put"), Some(1_200), Some("import")));
    assert_eq!((site.count(QUEUE), staged(site).len()), (1, 1));
    assert_eq!(site.run_until_idle(&[]).done, PRIMARIES as u64);
    assert_eq!(site.rows("Employees").len(), PRIMARIES);
    assert_index_complete(site);
    assert_eq!(staged(site), Vec::<String>::new(), "the last job takes the list along");

    let rk = |number: usize| json!(format!("{number:04}"));
    let keys = lines((0..PRIMARIES).map(|number| json!(["Sales", rk(number)])));
    submit(site, &json!({"op": "sync", "table": "Employees"}), &keys);
    submit(site, &json!({"op": "archive", "archive": "former_employees", "pk": "Sales"}), &lines((0..600).map(rk)));
    assert_eq!(site.run_until_idle(&[]).done, 1_800);
    assert_eq!((site.rows("FormerEmployees").len(), site.rows("Employees").len()), (600, 600));
    assert_index_complete(site);

    submit(site, &json!({"op": "restore", "archive": "former_employees", "pk": "Sales"}), &lines((0..600).map(rk)));
    submit(site, &json!({"op": "delete", "table": "Employees", "pk": "Sales"}), &lines((600..PRIMARIES).map(rk)));
    assert_eq!(site.run_until_idle(&[]).done, 1_200);
    assert_eq!((site.rows("FormerEmployees").len(), site.rows("Employees").len()), (0, 600));
    assert_index_complete(site);
    site.assert_all_done();
}

/// Each list that cannot be used is one poison message, with its reason; nothing of it is done, and it stays.
fn lists_that_cannot_be_used_are_poisoned_whole(site: &Site) {
    site.migrate();
    let good = lines((0..3).map(|number| json!(["Sales", number.to_string()])));
    let edited = stage(site, "edited.jsonl", &good);
    stage(site, "edited.jsonl", &good.replace('2', "3"));
    let long = format!("{good}[\"Sales\", \"{}\"]\n", "x".repeat(60_000));
    let of = |op: &str, list: &Value| json!({"op": op, "table": "Employees", "keys_ref": list});
    // Progress that no worker of ours has written is none: the list is checked, and found wrong, from its beginning.
    let mut forged = of("sync", &stage(site, "forged.jsonl", &format!("no key\n{good}")));
    forged["cursor"] = json!({"etag": "e", "bytes": 100, "next": 7, "delivery": 0, "seal": "00"});
    let bad = [
        (of("sync", &json!({"blob": format!("{STAGING}/missing.jsonl")})), "does not exist"),
        (of("sync", &edited), "SHA-256"),
        (of("sync", &stage(site, "csv.jsonl", &format!("{good}Sales,3\n"))), "line 4: it is not JSON"),
        (of("sync", &stage(site, "shape.jsonl", &format!("{good}\"3\"\n"))), "line 4: it is not [PartitionKey, RowKey]"),
        (of("sync", &stage(site, "long.jsonl", &long)), "line 4"),
        (of("sync", &stage(site, "empty.jsonl", "\n\r\n")), "names no primary"),
        (of("delete", &stage(site, "twice.jsonl", &format!("{good}\n{good}"))), "line 5 names a primary for the second time"),
        (of("sync", &json!({"blob": "others/list.jsonl"})), "evenkeel-staging"),
        (forged, "line 1: it is not JSON"),
    ];
    let texts: Vec<String> = bad.iter().map(|(job, _)| job.to_string()).collect();
    site.put_texts(texts.iter().map(String::as_str));
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (0, bad.len() as u64));
    let errors: Vec<String> = site.poison().iter().map(|entry| entry["error"].as_str().unwrap().to_owned()).collect();
    for (job, word) in &bad {
        assert!(errors.iter().any(|error| error.contains(word)), "{job}: none of {errors:#?} says {word}");
    }
    assert_eq!(staged(site).len(), 7, "what was staged for a message that failed stays");

    // Once the list is there, the message does what it asks for.
    let missing = site.poison().into_iter().find(|entry| entry["error"].as_str().unwrap().contains("does not exist")).unwrap();
    stage(site, "missing.jsonl", &good);
    assert_eq!(site.command(&["poison", "requeue", missing["message_id"].as_str().unwrap()]).code, 0);
    assert_eq!(site.run_until_idle(&[]).done, 3);
}

/// A key that no job can have is poisoned alone, as the job of its own; a primary named twice is synced.
fn a_line_that_no_job_can_have_is_poisoned_alone(site: &Site) {
    site.migrate();
    let keys = ["1", "a/b", "2", "1"].map(|rk| json!(["Sales", rk]));
    let list = stage(site, "keys.jsonl", &lines(keys));
    site.put_texts([json!({"op": "sync", "table": "Employees", "keys_ref": list, "id": "mine"}).to_string().as_str()]);
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (2, 1));
    let entry = site.poison().remove(0);
    let shown = site.command(&["--json", "poison", "show", entry["message_id"].as_str().unwrap()]).out;
    let body = &serde_json::from_str::<Value>(&shown).unwrap()["body"];
    assert_eq!(*body, json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "a/b", "id": "mine"}));
    assert_eq!(staged(site), Vec::<String>::new());
}

/// Workers that are killed in the middle of a list leave none of its jobs undone, and do none of them to another end.
fn killed_in_the_middle(site: &Site) {
    const PRIMARIES: usize = 3_000;
    site.migrate();
    submit(site, &json!({"op": "put", "table": "Employees"}), &lines((0..PRIMARIES).map(employee)));
    for part in 1..=3 {
        let worker = site.worker(&["--set", "worker.lease=10s"]);
        wait_until("a part of the list is done", || site.rows("Employees").len() >= PRIMARIES * part / 5);
        worker.kill();
    }
    assert!(site.rows("Employees").len() < PRIMARIES, "the worker was killed after its work");
    let summary = site.run_until_idle(&[]);
    assert_eq!(summary.poisoned, 0);
    assert_eq!(site.rows("Employees").len(), PRIMARIES);
    assert_index_complete(site);
    assert_eq!(staged(site), Vec::<String>::new());
}

#[test]
fn every_operation_takes_a_list_in_a_blob_on_the_embedded_store() {
    every_operation_takes_a_list(&Site::embedded(EMPLOYEES));
}

#[test]
fn every_operation_takes_a_list_in_a_blob_on_azurite() {
    every_operation_takes_a_list(&Site::azurite(EMPLOYEES));
}

#[test]
fn lists_that_cannot_be_used_are_poisoned_whole_on_the_embedded_store() {
    lists_that_cannot_be_used_are_poisoned_whole(&Site::embedded(EMPLOYEES));
}

#[test]
fn lists_that_cannot_be_used_are_poisoned_whole_on_azurite() {
    lists_that_cannot_be_used_are_poisoned_whole(&Site::azurite(EMPLOYEES));
}

#[test]
fn a_line_that_no_job_can_have_is_poisoned_alone_on_the_embedded_store() {
    a_line_that_no_job_can_have_is_poisoned_alone(&Site::embedded(EMPLOYEES));
}

#[test]
fn a_line_that_no_job_can_have_is_poisoned_alone_on_azurite() {
    a_line_that_no_job_can_have_is_poisoned_alone(&Site::azurite(EMPLOYEES));
}

#[test]
fn workers_killed_in_the_middle_of_a_list_leave_nothing_undone() {
    killed_in_the_middle(&Site::embedded(EMPLOYEES));
}

#[test]
fn a_list_with_a_mistake_is_told_by_its_line_and_neither_staged_nor_sent() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    let job = r#"{"op":"sync","table":"Employees","pk":"Sales"}"#;
    for (job, list, words) in [
        (job, "\"1\"\n\"a/b\"\n", "line 2"),
        (job, "\"1\"\n000223\n", "line 2: it is not JSON"),
        (job, "\n", "names no primary"),
        (r#"{"op":"sync","table":"Employes"}"#, "[\"p\",\"1\"]", "Employes"),
        (r#"{"op":"backfill","table":"Employees"}"#, "\"1\"", "none of this operation"),
        (r#"{"op":"sync","table":"Employees","pk":"p","rk":"1"}"#, "\"1\"", "\"rk\""),
    ] {
        let ended = site.command_with(&["submit", "--list", "-", job], list);
        assert!(ended.code == 1 && ended.err.contains(words), "{}: {} does not say {words}", ended.code, ended.err);
    }
    assert_eq!((site.count(QUEUE), staged(&site)), (0, Vec::new()));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "\u{feff}\"1\"\r\n\r\n\"2\"").unwrap();
    let ended = site.command(&["submit", "--list", file.path().to_str().unwrap(), job]);
    assert!(ended.out.starts_with("sent sync of 2 primaries, listed in evenkeel-staging/lists/"), "{}{}", ended.out, ended.err);
    let missing = site.command(&["submit", "--list", "nowhere.jsonl", job]);
    assert!(missing.code != 0 && missing.err.contains("nowhere.jsonl"), "{}", missing.err);
    assert_eq!(site.run_until_idle(&[]).done, 2);
}
