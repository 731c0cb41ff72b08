//! Batches, sent by the command line and by other programs.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::end_to_end::oracle::{assert_archived, assert_index_complete};
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};

fn employee(rk: &str, email: &str) -> Value {
    json!({"PartitionKey": "Sales", "RowKey": rk, "FirstName": "Jun", "LastName": "Cao", "Email": email})
}

fn shown(site: &Site) -> Vec<Value> {
    let ids: Vec<Value> = site
        .poison()
        .into_iter()
        .map(|entry| entry["message_id"].clone())
        .collect();
    let shown = ids.iter().map(|id| {
        site.command(&["--json", "poison", "show", id.as_str().unwrap()])
            .out
    });
    shown
        .map(|text| serde_json::from_str(&text).unwrap())
        .collect()
}

fn poisoned(site: &Site) -> BTreeMap<String, String> {
    let entries = shown(site).into_iter();
    let rk = |job: &Value| {
        job["entity"]["RowKey"]
            .as_str()
            .or_else(|| job["rk"].as_str())
            .unwrap()
            .to_owned()
    };
    entries
        .map(|entry| {
            (
                rk(&entry["body"]),
                entry["error"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

fn every_operation_takes_a_hundred(site: &Site) {
    site.migrate();
    let rks: Vec<String> = (0..100).map(|number| format!("{number:03}")).collect();
    let entities: Vec<Value> = rks
        .iter()
        .map(|rk| employee(rk, &format!("{rk}@contoso.com")))
        .collect();
    site.submit(&[json!({"op": "put", "table": "Employees", "entities": entities})]);
    assert_eq!(site.run_until_idle(&[]).done, 100);
    let sources = site.rows("Employees");
    assert_eq!(sources.len(), 100);
    assert_index_complete(site);

    let keys: Vec<Value> = rks.iter().map(|rk| json!(["Sales", rk])).collect();
    let half = &rks[..50];
    site.submit(&[
        json!({"op": "sync", "table": "Employees", "keys": keys}),
        json!({"op": "archive", "archive": "former_employees", "pk": "Sales", "rks": half}),
    ]);
    assert_eq!(site.run_until_idle(&[]).done, 150);
    assert_index_complete(site);
    let archived = site.rows("FormerEmployees");
    assert_eq!((archived.len(), site.rows("Employees").len()), (50, 50));
    for (key, row) in &archived {
        assert_archived(row, &sources[key].entity);
    }

    site.submit(&[
        json!({"op": "restore", "archive": "former_employees", "pk": "Sales", "rks": half}),
        json!({"op": "delete", "table": "Employees", "pk": "Sales", "rks": &rks[50..]}),
    ]);
    assert_eq!(site.run_until_idle(&[]).done, 100);
    assert!(site.rows("FormerEmployees").is_empty());
    assert_eq!(
        site.rows("Employees")
            .keys()
            .map(|(_, rk)| rk.clone())
            .collect::<Vec<_>>(),
        half
    );
    assert_index_complete(site);
    site.assert_all_done();
}

/// Another program puts these jobs on the queue, because the command line would refuse some of them.
fn bad_jobs_are_poisoned_alone(site: &Site) {
    let mut entities: Vec<Value> = (0..99)
        .map(|number| employee(&format!("{number:03}"), &format!("{number}@contoso.com")))
        .collect();
    entities.insert(7, employee("a/b", "slash@contoso.com"));
    entities.insert(20, employee(&"x".repeat(600), "long@contoso.com"));
    // The view has `on_conflict = "reject"`, so only one of two employees with this address gets it.
    entities.insert(40, employee("taken", "7@contoso.com"));
    entities.push(json!({"PartitionKey": "Sales", "RowKey": "typed", "Level@odata.type": "Edm.Int64", "Level": "many"}));
    let put = json!({"op": "put", "table": "Employees", "entities": entities, "id": "import"})
        .to_string();
    site.migrate();
    site.put_texts([put.as_str()]);
    let summary = site.run_until_idle(&[]);
    assert_eq!((summary.done, summary.poisoned), (99, 4));
    let poisoned = poisoned(site);
    for (rk, word) in [
        ("a/b", "forbids"),
        ("typed", "Level"),
        (&"x".repeat(600), "512"),
    ] {
        assert!(poisoned[rk].contains(word), "{rk}: {}", poisoned[rk]);
    }
    assert_eq!(poisoned.len(), 4);
    assert!(
        poisoned
            .values()
            .any(|error| error.contains("@contoso.com")),
        "the error must name the taken key: {poisoned:?}"
    );
    assert_eq!(site.count(QUEUE), 0);

    let entry = shown(site)
        .into_iter()
        .find(|entry| entry["body"]["entity"]["RowKey"] == "a/b")
        .unwrap();
    assert_eq!(entry["id"], "import");
    assert_eq!(
        site.command(&["poison", "requeue", entry["message_id"].as_str().unwrap()])
            .code,
        0
    );
    assert_eq!((site.count(QUEUE), site.poison().len()), (1, 3));
    assert_eq!(site.run_until_idle(&[]).poisoned, 1);
}

fn mistakes_of_a_list_are_told_before_anything_is_sent(site: &Site) {
    site.migrate();
    for (job, words) in [
        (
            json!({"op": "sync", "table": "Employees", "pk": "Sales", "rks": ["1", "a/b"]}),
            "job 2 of 2",
        ),
        (
            json!({"op": "delete", "table": "Employees", "pk": "Sales", "rks": ["1", "1"]}),
            "repeats a primary",
        ),
        (
            json!({"op": "sync", "table": "Employes", "pk": "Sales", "rks": ["1", "2"]}),
            "Employes",
        ),
    ] {
        let ended = site.command(&["submit", &job.to_string()]);
        assert_ne!(ended.code, 0);
        assert!(ended.err.contains(words), "{}", ended.err);
    }
    let sent = site.command(&[
        "submit",
        r#"{"op":"sync","table":"Employees","pk":"Sales","rks":["1","2","3"]}"#,
    ]);
    assert!(
        sent.out.contains("sent sync of 3 primaries of Employees"),
        "{}{}",
        sent.out,
        sent.err
    );
}

#[test]
fn neighbouring_lines_are_packed_and_bad_ones_are_named() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    let mut lines: Vec<String> = (0..250)
        .map(|rk| {
            json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": rk.to_string()})
                .to_string()
        })
        .collect();
    lines.insert(
        120,
        r#"{"op":"sync","table":"Employees","pk":"Sales","rk":"a/b"}"#.to_owned(),
    );
    let ended = site.command_with(&["submit", "--pack", "100", "-"], &lines.join("\n"));
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(
        ended.err.contains("line 121") && ended.out.contains("250 jobs sent"),
        "{}{}",
        ended.out,
        ended.err
    );
    // A message contains only neighboring jobs: 100 and 20 before the refused line, 100 and 30 after it.
    assert_eq!(site.count(QUEUE), 4);
    assert_eq!(site.run_until_idle(&[]).done, 250);

    let ended = site.command_with(
        &["--json", "submit", "--pack", "100", "-"],
        &lines[..30].join("\n"),
    );
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(
        (told["line"].as_u64(), told["jobs"].as_u64()),
        (Some(1), Some(30))
    );
}

#[test]
fn every_operation_takes_a_hundred_primaries_in_one_message_on_the_embedded_store() {
    every_operation_takes_a_hundred(&Site::embedded(EMPLOYEES));
}

#[test]
fn every_operation_takes_a_hundred_primaries_in_one_message_on_azurite() {
    every_operation_takes_a_hundred(&Site::azurite(EMPLOYEES));
}

#[test]
fn bad_jobs_of_a_batch_are_poisoned_alone_on_the_embedded_store() {
    bad_jobs_are_poisoned_alone(&Site::embedded(EMPLOYEES));
}

#[test]
fn bad_jobs_of_a_batch_are_poisoned_alone_on_azurite() {
    bad_jobs_are_poisoned_alone(&Site::azurite(EMPLOYEES));
}

#[test]
fn mistakes_of_a_list_are_told_before_anything_is_sent_and_a_batch_by_its_size() {
    mistakes_of_a_list_are_told_before_anything_is_sent(&Site::embedded(EMPLOYEES));
}
