//! Log archives: lines in append blobs, by hour.

use std::collections::BTreeSet;

use evenkeel_engine::Outcome;
use evenkeel_model::{BlobName, ContainerName};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Events§]

[archives.events]
source = "Events§"
to = { kind = "append_blob", container = "logs-§", path = "events/%Y/%m/%d/%H00", time = "At", spread = 2 }
"#;

fn event(rk: &str, at: &str, text: &str) -> Value {
    json!({"op": "put", "table": "Events§", "entity": {"PartitionKey": "web1", "RowKey": rk, "At": at, "At@odata.type": "Edm.DateTime", "Text": text}})
}

fn archive(rk: &str) -> Value {
    json!({"op": "archive", "archive": "events", "pk": "web1", "rk": rk})
}

async fn lines(site: &Site, name: &str) -> Vec<Value> {
    let blob = site.blob("logs-§", name).await.expect("the blob is there");
    let text = String::from_utf8(blob.content.to_vec()).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

async fn all(site: &Site) -> Vec<Value> {
    let mut all = Vec::new();
    for name in site.blobs("logs-§").await {
        all.extend(lines(site, &name).await);
    }
    all
}

pub(crate) async fn an_event_becomes_one_line_of_its_hour(site: &Site) {
    site.work(event("한 1", "2026-11-20T15:04:05Z", "a\nb"))
        .await;
    site.work(event("한 1", "2026-11-20T15:04:05Z", "changed"))
        .await;
    site.work(archive("한 1")).await;
    assert!(site.row("Events§", "web1", "한 1").await.is_none());
    let [name] = <[String; 1]>::try_from(site.blobs("logs-§").await).unwrap();
    assert!(
        [
            "events/2026/11/20/1500/000001.jsonl",
            "events/2026/11/20/1500/000002.jsonl"
        ]
        .contains(&name.as_str()),
        "{name}"
    );
    let [line] = <[Value; 1]>::try_from(lines(site, &name).await).unwrap();
    assert_eq!(
        (&line["RowKey"], &line["Text"], &line["At@odata.type"]),
        (&json!("한 1"), &json!("changed"), &json!("Edm.DateTime"))
    );
    let blob = site.blob("logs-§", &name).await.unwrap();
    assert_eq!(blob.properties.content_type, "application/x-ndjson");
    let metadata = &blob.properties.metadata;
    assert_eq!(
        (metadata["first"].as_str(), metadata["last"].as_str()),
        ("2026-11-20T15:04:00Z", "2026-11-20T15:05:00Z")
    );

    // The event is recreated with another time, and archived again: a new version gets a new line, and the blob covers a longer time range.
    site.work(event("한 1", "2026-11-20T15:59:00Z", "again"))
        .await;
    site.work(archive("한 1")).await;
    let texts: Vec<Value> = lines(site, &name)
        .await
        .into_iter()
        .map(|line| line["Text"].clone())
        .collect();
    assert_eq!(texts, [json!("changed"), json!("again")]);
    let blob = site.blob("logs-§", &name).await.unwrap();
    assert_eq!(blob.properties.metadata["first"], "2026-11-20T15:04:00Z");
    assert_eq!(blob.properties.metadata["last"], "2026-11-20T16:00:00Z");
    site.in_step("Events§").await;
    let archive = site
        .refused(json!({"op": "restore", "archive": "events", "pk": "web1", "rk": "한 1"}))
        .await;
    assert!(
        archive.contains("cannot be restored") && archive.contains("evenkeel logs events"),
        "{archive}"
    );
}

pub(crate) async fn what_waits_together_is_appended_together_and_nothing_twice(site: &Site) {
    let rks: Vec<String> = (0..40).map(|n| n.to_string()).collect();
    for rk in &rks {
        site.work(event(rk, "2026-11-20T15:00:30Z", rk)).await;
    }
    let messages: Vec<_> = rks.iter().map(|rk| site.message(&archive(rk))).collect();
    let before = site.requests();
    let first = join_all(
        messages
            .iter()
            .map(|(job, delivery)| site.deliver(job, delivery)),
    )
    .await;
    assert!(
        first
            .iter()
            .all(|ended| matches!(ended, Ok(Outcome::Done(_)))),
        "{first:?}"
    );
    let requests = site.requests() - before;
    // A single job takes 6 requests. Jobs that wait together share records and appends.
    assert!(requests < 5 * 40, "{requests} requests for 40 lines");
    let again = messages.iter().map(|(job, delivery)| {
        let delivery = evenkeel_engine::Delivery {
            dequeue_count: 2,
            ..delivery.clone()
        };
        async move { site.deliver(job, &delivery).await }
    });
    assert!(
        join_all(again)
            .await
            .iter()
            .all(|ended| matches!(ended, Ok(Outcome::Skipped { .. })))
    );
    let all = all(site).await;
    let distinct: BTreeSet<&str> = all
        .iter()
        .filter_map(|line| line["RowKey"].as_str())
        .collect();
    assert_eq!((all.len(), distinct.len()), (40, 40));
    let names = site.blobs("logs-§").await;
    assert_eq!(
        names,
        [
            "events/2026/11/20/1500/000001.jsonl",
            "events/2026/11/20/1500/000002.jsonl"
        ]
    );
}

pub(crate) async fn a_log_that_somebody_deleted_or_wrote_over_is_begun_anew(site: &Site) {
    site.work(event("1", "2026-11-20T15:00:30Z", "one")).await;
    site.work(archive("1")).await;
    let [name] = <[String; 1]>::try_from(site.blobs("logs-§").await).unwrap();
    let (container, blob) = (
        ContainerName::new(site.name("logs-§")).unwrap(),
        BlobName::new(name.clone()).unwrap(),
    );
    site.account
        .blobs
        .delete(&container, &blob, None)
        .await
        .unwrap();
    site.work(event("1", "2026-11-20T15:00:30Z", "two")).await;
    site.work(archive("1")).await;
    let texts: Vec<Value> = lines(site, &name)
        .await
        .into_iter()
        .map(|line| line["Text"].clone())
        .collect();
    assert_eq!(texts, [json!("two")]);
}

pub(crate) async fn logging_takes_as_many_requests_as_the_documentation_says(site: &Site) {
    for rk in ["1", "1"] {
        site.work(event(rk, "2026-11-20T15:00:30Z", "warm")).await;
        site.work(archive(rk)).await;
    }
    site.work(event("1", "2026-11-20T15:00:40Z", "x")).await;
    // The requests read the event, record the line, check that the event still exists, append, delete the event, and remove the record.
    assert_eq!(site.requests_of(archive("1")).await, 6);
}
