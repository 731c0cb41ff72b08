//! Invalid messages among valid ones.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use evenkeel_model::{Entity, EntityKey, TableName, body};
use serde_json::{Value, json};

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};

/// Additional views. The target table of one is deleted, and the other must not be changed.
const MORE: &str = r#"
[views.projects_by_owner]
kind = "secondary_index"
source = "Projects"
table = "ProjectsByOwner"
partition_key = "owner"
row_key = "{Owner}_{PartitionKey}_{RowKey}"
"#;

/// A bad message: the client's id, the text, the reason of its refusal, and words that the error must contain.
struct BadMessage {
    id: &'static str,
    text: String,
    reason: &'static str,
    words: &'static [&'static str],
}

fn compressed(job: &Value) -> String {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(job.to_string().as_bytes()).unwrap();
    BASE64.encode(encoder.finish().unwrap())
}

fn large(id: &str, rk: &str, mode: &str, properties: std::ops::Range<u32>) -> Value {
    let mut entity = json!({"PartitionKey": "Sales", "RowKey": rk});
    for number in properties {
        entity[format!("P{number}")] = "x".repeat(32_000).into();
    }
    json!({"op": "put", "table": "Employees", "id": id, "mode": mode, "entity": entity})
}

fn bad() -> Vec<BadMessage> {
    let bad = |id, text: String, reason, words| BadMessage {
        id,
        text,
        reason,
        words,
    };
    let job = |id: &'static str, job: Value, words| {
        let mut job = job;
        job["id"] = id.into();
        bad(id, body::encode(&job.to_string()), "permanent", words)
    };
    vec![
        bad("", "hello? is this the right queue?".to_owned(), "undecodable", &["neither a JSON object nor Base64", "31 bytes"]),
        bad("", BASE64.encode([0xff, 0xff, 0x00]), "undecodable", &["not UTF-8"]),
        bad("", "{\"op\": \"sync\",".to_owned(), "undecodable", &["not JSON"]),
        job("op", json!({"op": "explode"}), &["explode", "sync, put, delete, "]),
        job("field", json!({"op": "sync", "table": "Employees", "pk": "Sales"}), &["sync", "rk"]),
        job("version", json!({"v": 2, "op": "sync", "table": "Employees", "pk": "a", "rk": "b"}), &["message version 2", "\"v\": 1"]),
        job("slash", json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "a/b"}), &["\"a/b\"", "/"]),
        job("table", json!({"op": "sync", "table": "Nowhere", "pk": "a", "rk": "b"}), &["Nowhere", "[tables.Nowhere]"]),
        job("archive", json!({"op": "archive", "archive": "attic", "pk": "a", "rk": "b"}), &["attic", "[archives.attic]"]),
        bad(
            // This message is too large to be decoded, so even its id is unknown.
            "",
            json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "r", "id": "60KB", "note": "x".repeat(60_000)}).to_string(),
            "permanent",
            &["48 KiB", "compress"],
        ),
        bad(
            "too many properties",
            compressed(&{
                let mut job = large("too many properties", "many", "replace", 0..0);
                (0..300).for_each(|n| job["entity"][format!("P{n}")] = 1.into());
                job
            }),
            "permanent",
            &["properties", "252"],
        ),
        bad(
            "too long",
            compressed(&{
                let mut job = large("too long", "long", "replace", 0..0);
                job["entity"]["Essay"] = "x".repeat(40_000).into();
                job
            }),
            "permanent",
            &["\"Essay\"", "40000", "32768"],
        ),
        bad("over 1 MiB", compressed(&large("over 1 MiB", "big", "merge", 15..30)), "permanent", &["1 MiB"]),
        job(
            "taken",
            json!({"op": "put", "table": "Employees",
                "entity": {"PartitionKey": "Sales", "RowKey": "thief", "FirstName": "Jim", "Email": "Jun@contoso.com"}}),
            &["email_Sales", "jun@contoso.com", "is taken by Employees(\"Sales\", \"jun\")", "last_writer"],
        ),
    ]
}

fn good(number: u32) -> String {
    let entity = json!({"PartitionKey": "Good", "RowKey": number.to_string(), "Email": format!("{number}@contoso.com")});
    json!({"op": "put", "table": "Employees", "entity": entity}).to_string()
}

fn every_bad_message_ends_in_poison(site: &Site) {
    site.migrate();
    let jun = Entity::new(EntityKey::new("Sales", "jun").unwrap())
        .with("FirstName", "Jun")
        .with("Email", "Jun@contoso.com");
    let project = Entity::new(EntityKey::new("p", "1").unwrap()).with("Owner", "Jun");
    let big = (0..15).fold(
        Entity::new(EntityKey::new("Sales", "big").unwrap()),
        |big, n| big.with(format!("P{n}"), "x".repeat(32_000)),
    );
    site.write("Employees", &[jun, big]);
    site.write("Projects", &[project]);
    site.submit(&[json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "jun"})]);
    assert_eq!(site.run_until_idle(&[]).done, 1);
    let (before, big_before) = (
        site.row("Employees", "Sales", "jun"),
        site.row("Employees", "Sales", "big"),
    );
    let projects = TableName::new("ProjectsByOwner").unwrap();
    // The worker would create the table at its start, so the table is deleted while the worker runs.
    let worker = site.worker(&[]);
    site.submit(&[serde_json::from_str(&good(1_000)).unwrap()]);
    crate::end_to_end::worker::wait_until("the worker works", || site.count(QUEUE) == 0);
    site.with(async |account| account.tables.delete_table(&projects).await.unwrap());

    let bad = bad();
    let goods: Vec<String> = (0..40).map(good).collect();
    let mut texts: Vec<&str> = goods.iter().map(String::as_str).collect();
    for (place, bad) in bad.iter().enumerate() {
        texts.insert(place * 3, &bad.text);
    }
    // This message is valid, but its table is missing, so it waits.
    let waiting = json!({"op": "sync", "table": "Projects", "pk": "p", "rk": "1"}).to_string();
    texts.push(&waiting);
    site.put_texts(texts);
    crate::end_to_end::worker::wait_until("one message is left", || site.count(QUEUE) == 1);
    worker.stop();

    let poison = site.poison();
    assert_eq!(poison.len(), bad.len(), "{poison:#?}");
    for bad in &bad {
        let said = |one: &&Value| {
            let error = one["error"].as_str().unwrap();
            one["id"].as_str().unwrap_or_default() == bad.id
                && bad.words.iter().all(|word| error.contains(word))
        };
        let found: Vec<&Value> = poison.iter().filter(said).collect();
        let errors: Vec<String> = poison
            .iter()
            .map(|one| format!("{} {}", one["id"], one["error"]))
            .collect();
        assert_eq!(
            found.len(),
            1,
            "no poison message of {:?} contains {:?}: {errors:#?}",
            bad.id,
            bad.words
        );
        assert_eq!(
            (
                found[0]["reason"].as_str(),
                found[0]["dequeue_count"].as_u64()
            ),
            (Some(bad.reason), Some(1)),
            "{:?}",
            found[0]
        );
    }

    let rows = site.rows("Employees");
    assert_eq!(rows.keys().filter(|(pk, _)| pk == "Good").count(), 41);
    let others: Vec<&str> = rows
        .keys()
        .filter(|(pk, _)| pk != "Good")
        .map(|(_, rk)| rk.as_str())
        .collect();
    // The put with the taken address has written its entity, but no index row.
    assert_eq!(others, ["big", "jun", "thief"]);
    assert_eq!(site.row("Employees", "Sales", "jun"), before);
    assert_eq!(site.row("Employees", "Sales", "big"), big_before);
    let addresses = site.rows("EmployeesByEmail");
    assert_eq!(addresses.len(), 42);
    let taken = &addresses[&("email_Sales".to_owned(), "jun@contoso.com".to_owned())].entity;
    assert_eq!(
        taken.text("ek_source"),
        Some(r#"["Employees","Sales","jun"]"#)
    );

    shown_and_mended(site);
}

fn shown_and_mended(site: &Site) {
    let too_large = site
        .poison()
        .into_iter()
        .find(|one| one["error"].as_str().unwrap().contains("48 KiB"))
        .unwrap();
    let shown = site.command(&["poison", "show", too_large["message_id"].as_str().unwrap()]);
    assert!(
        shown.code == 0 && shown.out.contains("48 KiB") && shown.out.contains(&"x".repeat(60_000)),
        "the body must be kept: {}",
        shown.err
    );
    let shown = site.command(&["--json", "poison", "show", "over 1 MiB"]);
    let whole: Value = serde_json::from_str(&shown.out).unwrap();
    assert_eq!(
        whole["body"]["entity"]["P20"],
        "x".repeat(32_000),
        "compressed bodies must be shown expanded"
    );

    site.migrate();
    let jun = Entity::new(EntityKey::new("Sales", "jun").unwrap())
        .with("FirstName", "Jun")
        .with("Email", "jun.cao@contoso.com");
    site.write("Employees", &[jun]);
    site.submit(&[json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "jun"})]);
    // When the address becomes free, the other employee who wants it is synced.
    assert_eq!(
        site.run_until_idle(&[]).done,
        3,
        "the sync, the job that waited for the table, and the sync of the employee who wants the address"
    );
    let address = &site.rows("EmployeesByEmail")
        [&("email_Sales".to_owned(), "jun@contoso.com".to_owned())]
        .entity;
    assert_eq!(
        address.text("ek_source"),
        Some(r#"["Employees","Sales","thief"]"#)
    );
    let requeued = site.command(&["poison", "requeue", "taken"]);
    assert_eq!(
        (requeued.code, requeued.out.lines().count()),
        (0, 1),
        "{}",
        requeued.err
    );
    assert_eq!(site.run_until_idle(&[]).done, 1);
    assert_eq!(site.rows("ProjectsByOwner").len(), 1);
    assert_index_complete(site);
    let left = site.poison();
    assert!(
        left.len() == bad().len() - 1 && left.iter().all(|one| one["id"] != "taken"),
        "{left:#?}"
    );

    assert_eq!(
        site.command(&["poison", "discard", "--all"]).code,
        2,
        "there is nobody to confirm"
    );
    let discarded = site.command(&["poison", "discard", "--all", "--yes"]);
    assert_eq!(discarded.code, 0, "{}", discarded.err);
    assert!(site.poison().is_empty());
}

#[test]
fn every_bad_message_ends_in_poison_with_a_reason_and_good_ones_are_done_on_the_embedded_store() {
    every_bad_message_ends_in_poison(&Site::embedded(&format!("{EMPLOYEES}{MORE}")));
}

#[test]
fn every_bad_message_ends_in_poison_with_a_reason_and_good_ones_are_done_on_azurite() {
    every_bad_message_ends_in_poison(&Site::azurite(&format!("{EMPLOYEES}{MORE}")));
}
