//! Poison messages: a forged one names any blob and any queue, and an operator discards or requeues it.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use evenkeel::model::{BlobName, QueueName, body};
use evenkeel::ports::{BlobUpload, Ttl};
use evenkeel::settings::QueueSettings;
use evenkeel::worker::poison::{BODY_CONTAINER, PoisonFilter, PoisonQueue, Reason};
use serde_json::{Value, json};

use crate::stage::{Stage, container};

fn settings(shards: u32, allow: Option<&[&str]>) -> QueueSettings {
    let allow = allow.map(|ops| ops.iter().map(|op| (*op).to_owned()).collect::<BTreeSet<String>>());
    QueueSettings { shards, allow, ..QueueSettings::plain(queue("jobs")) }
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// A poison message as a worker writes it, with some fields of the forger's.
pub(crate) fn message(id: &str, forged: &Value) -> Value {
    let mut message = json!({
        "v": 1, "reason": "permanent", "error": "reading the primary", "step": "reading", "op": "sync", "dequeue_count": 1,
        "first_enqueued": "2026-11-20T15:00:00Z", "poisoned": "2026-11-20T15:00:01Z", "worker": "w1", "queue": "jobs", "message_id": id,
    });
    message.as_object_mut().unwrap().extend(forged.as_object().unwrap().clone());
    message
}

async fn put(stage: &Stage, message: &Value) {
    let text = body::encode(&message.to_string());
    stage.account.queues.put(&queue("jobs-poison"), &text, Duration::ZERO, Ttl::Never).await.unwrap();
}

fn bodies(stage: &Stage, name: &str) -> Vec<String> {
    stage
        .sim
        .messages(&queue(name))
        .iter()
        .map(|message| body::decode(&message.text).map_or_else(|_| message.text.clone(), |body| body.text))
        .collect()
}

/// What forged messages name: blobs that are no bodies of theirs, and queues that are not their own.
fn forgeries() -> Vec<Value> {
    let blob = |container: &str, name: &str| json!({"body_blob": {"container": container, "name": name}});
    vec![
        blob("payroll", "2026/salaries.csv"),
        blob(BODY_CONTAINER, "jobs/another-message"),
        blob(BODY_CONTAINER, "other/forged"),
        json!({"queue": "other", "body": "{\"op\":\"sync\"}"}),
        json!({"queue": "jobs-recheck", "body": "{\"op\":\"recheck\"}"}),
        json!({"queue": "jobs-07", "body": "{\"op\":\"sync\"}"}),
    ]
}

#[tokio::test]
async fn a_forged_message_is_foreign_and_leads_to_no_blob_and_no_queue() {
    let stage = Stage::new().await;
    stage.account.blobs.create_container(&container(BODY_CONTAINER)).await.unwrap();
    let kept = BlobName::new("jobs/another-message").unwrap();
    let upload = BlobUpload::default();
    stage.account.blobs.put(&container(BODY_CONTAINER), &kept, Bytes::from_static(b"{\"op\":\"sync\"}"), &upload).await.unwrap();
    let (before, rechecks) = (stage.picture(), bodies(&stage, "jobs-recheck"));
    let poison = PoisonQueue::new(&stage.account, &settings(1, None)).unwrap();
    for forgery in forgeries() {
        for discard in [true, false] {
            put(&stage, &message("forged", &forgery)).await;
            let listed = poison.list(&PoisonFilter::default()).await.unwrap().entries;
            let [entry] = listed.as_slice() else { panic!("{listed:?}") };
            assert_eq!(entry.message.reason, Reason::Foreign, "{forgery}");
            assert_eq!(entry.message.queue, queue("jobs"), "{forgery}");
            let body = poison.body(&entry.message).await.unwrap().unwrap();
            assert!(!body.contains("top secret"), "{forgery}: {body}");
            let all = PoisonFilter::default();
            let handled = if discard { poison.discard(&all).await } else { poison.requeue(&all).await }.unwrap();
            assert_eq!((handled.done.len(), handled.failed.len()), (1, 0), "{forgery}");
            assert_eq!(stage.picture(), before, "{forgery}");
            assert!(stage.account.blobs.get(&container(BODY_CONTAINER), &kept, None).await.unwrap().is_some(), "{forgery}");
            assert_eq!(bodies(&stage, "other"), [""; 0], "{forgery}");
            assert_eq!(bodies(&stage, "jobs-recheck"), rechecks, "{forgery}");
        }
    }
    assert!(
        bodies(&stage, "jobs").iter().all(|body| body.contains("\"reason\"") && !body.contains("salaries,")),
        "as they were, and no job"
    );
}

#[tokio::test]
async fn a_message_of_a_shard_and_one_with_its_own_blob_are_followed() {
    let stage = Stage::new().await;
    stage.account.queues.create_queue(&queue("jobs-07")).await.unwrap();
    stage.account.blobs.create_container(&container(BODY_CONTAINER)).await.unwrap();
    let own = BlobName::new("jobs-07/m1").unwrap();
    let content = Bytes::from_static(b"{\"op\":\"sync\",\"table\":\"Staff\",\"pk\":\"Sales\",\"rk\":\"7\"}");
    stage.account.blobs.put(&container(BODY_CONTAINER), &own, content, &BlobUpload::default()).await.unwrap();
    put(&stage, &message("m1", &json!({"queue": "jobs-07", "body_blob": {"container": BODY_CONTAINER, "name": "jobs-07/m1"}}))).await;
    let poison = PoisonQueue::new(&stage.account, &settings(16, None)).unwrap();
    let handled = poison.requeue(&PoisonFilter::default()).await.unwrap();
    assert_eq!((handled.done.len(), handled.failed.len()), (1, 0));
    assert_eq!(bodies(&stage, "jobs-07").len(), 1);
    assert!(stage.account.blobs.get(&container(BODY_CONTAINER), &own, None).await.unwrap().is_none(), "its blob goes with it");
}

#[tokio::test]
async fn what_its_queue_does_not_allow_is_not_requeued() {
    let stage = Stage::new().await;
    let delete = r#"{"op":"delete","table":"Staff","pk":"Sales","rk":"8"}"#;
    put(&stage, &message("m1", &json!({"op": "delete", "body": delete}))).await;
    let poison = PoisonQueue::new(&stage.account, &settings(1, Some(&["sync"]))).unwrap();
    let handled = poison.requeue(&PoisonFilter::default()).await.unwrap();
    assert_eq!(handled.done.len(), 0);
    assert!(handled.failed[0].1.contains("\"delete\" is not allowed on this queue; allowed are: sync"), "{:?}", handled.failed);
    assert_eq!(bodies(&stage, "jobs"), [""; 0]);
}

#[tokio::test]
async fn a_blob_that_is_larger_than_any_message_is_not_read() {
    let stage = Stage::new().await;
    stage.account.blobs.create_container(&container(BODY_CONTAINER)).await.unwrap();
    let name = BlobName::new("jobs/m1").unwrap();
    let content = Bytes::from(vec![b'x'; 4 * 1024 * 1024]);
    stage.account.blobs.put(&container(BODY_CONTAINER), &name, content, &BlobUpload::default()).await.unwrap();
    put(&stage, &message("m1", &json!({"body_blob": {"container": BODY_CONTAINER, "name": "jobs/m1"}}))).await;
    let poison = PoisonQueue::new(&stage.account, &settings(1, None)).unwrap();
    let listed = poison.list(&PoisonFilter::default()).await.unwrap().entries;
    assert!(poison.body(&listed[0].message).await.is_err());
}
