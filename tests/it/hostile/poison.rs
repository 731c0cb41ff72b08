//! Poison messages: a forged message may name any blob and any queue, and an operator discards or requeues the message.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{BlobName, QueueName, body};
use evenkeel_storage::{BlobUpload, Ttl};
use evenkeel_worker::poison::{
    BODY_CONTAINER, PoisonEntry, PoisonFilter, PoisonMessage, PoisonQueue, Reason,
};
use serde_json::{Value, json};

use crate::hostile::stage::{Stage, container};

fn settings(shards: u32, allow: Option<&[&str]>) -> QueueSettings {
    let ops = allow.map(|ops| {
        ops.iter()
            .map(|op| (*op).to_owned())
            .collect::<BTreeSet<String>>()
    });
    QueueSettings {
        shards,
        allowed: JobAllowance { ops, tables: None },
        ..QueueSettings::plain(queue("jobs"))
    }
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

/// A poison message as a worker writes it, with some forged fields.
pub(crate) fn message(id: &str, forged: &Value) -> Value {
    let mut message = json!({
        "v": 1, "reason": "permanent", "error": "reading the primary", "step": "reading", "op": "sync", "dequeue_count": 1,
        "first_enqueued": "2026-11-20T15:00:00Z", "poisoned": "2026-11-20T15:00:01Z", "worker": "w1", "queue": "jobs", "message_id": id,
    });
    message
        .as_object_mut()
        .unwrap()
        .extend(forged.as_object().unwrap().clone());
    message
}

async fn put(stage: &Stage, message: &Value) {
    let text = body::encode(&message.to_string());
    stage
        .account
        .queues
        .put(&queue("jobs-poison"), &text, Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
}

fn bodies(stage: &Stage, name: &str) -> Vec<String> {
    stage
        .sim
        .messages(&queue(name))
        .iter()
        .map(|message| {
            body::decode(&message.text).map_or_else(|_| message.text.clone(), |body| body.text)
        })
        .collect()
}

/// Forged fields: blobs that are not the body of the message, and queues from which the message did not come.
fn forgeries() -> Vec<Value> {
    let blob =
        |container: &str, name: &str| json!({"body_blob": {"container": container, "name": name}});
    vec![
        blob("payroll", "2026/salaries.csv"),
        blob(BODY_CONTAINER, "jobs/another-message"),
        blob(BODY_CONTAINER, "other/forged"),
        json!({"queue": "other", "body": "{\"op\":\"sync\"}"}),
        json!({"queue": "jobs-07", "body": "{\"op\":\"sync\"}"}),
    ]
}

#[tokio::test]
async fn a_forged_message_is_foreign_and_leads_to_no_blob_and_no_queue() {
    let stage = Stage::new().await;
    stage
        .account
        .blobs
        .create_container(&container(BODY_CONTAINER))
        .await
        .unwrap();
    let kept = BlobName::new("jobs/another-message").unwrap();
    let upload = BlobUpload::default();
    stage
        .account
        .blobs
        .put(
            &container(BODY_CONTAINER),
            &kept,
            Bytes::from_static(b"{\"op\":\"sync\"}"),
            &upload,
        )
        .await
        .unwrap();
    let (before, rechecks) = (stage.picture(), bodies(&stage, "jobs-recheck"));
    let poison = PoisonQueue::new(&stage.account, &settings(1, None)).unwrap();
    for forgery in forgeries() {
        for discard in [true, false] {
            put(&stage, &message("forged", &forgery)).await;
            let listed = poison.list(&PoisonFilter::default()).await.unwrap().entries;
            let [entry] = listed.as_slice() else {
                panic!("{listed:?}")
            };
            assert_eq!(entry.message.reason, Reason::Foreign, "{forgery}");
            assert_eq!(entry.message.queue, queue("jobs"), "{forgery}");
            let body = poison.body(&entry.message).await.unwrap().unwrap();
            assert!(!body.contains("top secret"), "{forgery}: {body}");
            let all = PoisonFilter::default();
            let handled = if discard {
                poison.discard(&all).await
            } else {
                poison.requeue(&all).await
            }
            .unwrap();
            assert_eq!(
                (handled.done.len(), handled.failed.len()),
                (1, 0),
                "{forgery}"
            );
            assert_eq!(stage.picture(), before, "{forgery}");
            assert!(
                stage
                    .account
                    .blobs
                    .get(&container(BODY_CONTAINER), &kept, None)
                    .await
                    .unwrap()
                    .is_some(),
                "{forgery}"
            );
            assert_eq!(bodies(&stage, "other"), [""; 0], "{forgery}");
            assert_eq!(bodies(&stage, "jobs-recheck"), rechecks, "{forgery}");
        }
    }
    assert!(
        bodies(&stage, "jobs")
            .iter()
            .all(|body| body.contains("\"reason\"") && !body.contains("salaries,")),
        "as they were, and no job"
    );
}

#[tokio::test]
async fn a_message_of_a_shard_and_one_with_its_own_blob_are_followed() {
    let stage = Stage::new().await;
    stage
        .account
        .queues
        .create_queue(&queue("jobs-07"))
        .await
        .unwrap();
    stage
        .account
        .blobs
        .create_container(&container(BODY_CONTAINER))
        .await
        .unwrap();
    let own = BlobName::new(format!("jobs-07/m1-{}", "0".repeat(64))).unwrap();
    let content =
        Bytes::from_static(b"{\"op\":\"sync\",\"table\":\"Staff\",\"pk\":\"Sales\",\"rk\":\"7\"}");
    stage
        .account
        .blobs
        .put(
            &container(BODY_CONTAINER),
            &own,
            content,
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    put(
        &stage,
        &message(
            "m1",
            &json!({"queue": "jobs-07", "body_blob": {"container": BODY_CONTAINER, "name": own}}),
        ),
    )
    .await;
    let poison = PoisonQueue::new(&stage.account, &settings(16, None)).unwrap();
    let handled = poison.requeue(&PoisonFilter::default()).await.unwrap();
    assert_eq!((handled.done.len(), handled.failed.len()), (1, 0));
    assert_eq!(bodies(&stage, "jobs-07").len(), 1);
    assert!(
        stage
            .account
            .blobs
            .get(&container(BODY_CONTAINER), &own, None)
            .await
            .unwrap()
            .is_none(),
        "its blob goes with it"
    );
}

#[tokio::test]
async fn what_its_queue_does_not_allow_is_not_requeued() {
    let stage = Stage::new().await;
    let delete = r#"{"op":"delete","table":"Staff","pk":"Sales","rk":"8"}"#;
    put(
        &stage,
        &message("m1", &json!({"op": "delete", "body": delete})),
    )
    .await;
    let poison = PoisonQueue::new(&stage.account, &settings(1, Some(&["sync"]))).unwrap();
    let handled = poison.requeue(&PoisonFilter::default()).await.unwrap();
    assert_eq!(handled.done.len(), 0);
    assert!(
        handled.failed[0]
            .1
            .contains("\"delete\" is not allowed on this queue; allowed are: sync"),
        "{:?}",
        handled.failed
    );
    assert_eq!(bodies(&stage, "jobs"), [""; 0]);
}

#[tokio::test]
async fn a_blob_that_is_larger_than_any_message_is_not_read() {
    let stage = Stage::new().await;
    stage
        .account
        .blobs
        .create_container(&container(BODY_CONTAINER))
        .await
        .unwrap();
    let name = BlobName::new(format!("jobs/m1-{}", "0".repeat(64))).unwrap();
    let content = Bytes::from(vec![b'x'; 4 * 1024 * 1024]);
    stage
        .account
        .blobs
        .put(
            &container(BODY_CONTAINER),
            &name,
            content,
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    put(
        &stage,
        &message(
            "m1",
            &json!({"body_blob": {"container": BODY_CONTAINER, "name": name}}),
        ),
    )
    .await;
    let poison = PoisonQueue::new(&stage.account, &settings(1, None)).unwrap();
    let listed = poison.list(&PoisonFilter::default()).await.unwrap().entries;
    assert!(poison.body(&listed[0].message).await.is_err());
}

/// Ann's job was poisoned. An attacker who can write to the poison queue knows the id of that job, and puts more messages with the same id.
struct ForgedIds {
    stage: Stage,
    poison: PoisonQueue,
}

const ANNS: &str = r#"{"op":"sync","table":"Staff","pk":"Sales","rk":"7"}"#;
const FORGED: &str = r#"{"op":"sync","table":"Staff","pk":"Sales","rk":"8"}"#;

impl ForgedIds {
    async fn new(before: bool, forged: &[Value]) -> Self {
        let stage = Stage::new().await;
        let anns = message("m1", &json!({"body": ANNS}));
        let anns = std::slice::from_ref(&anns);
        for message in if before {
            [forged, anns]
        } else {
            [anns, forged]
        }
        .concat()
        {
            put(&stage, &message).await;
        }
        let poison = PoisonQueue::new(&stage.account, &settings(1, None)).unwrap();
        Self { stage, poison }
    }

    async fn listed(&self) -> Vec<PoisonEntry> {
        self.poison
            .list(&PoisonFilter::default())
            .await
            .unwrap()
            .entries
    }

    async fn left(&self) -> Vec<String> {
        self.listed()
            .await
            .into_iter()
            .filter_map(|entry| entry.message.body)
            .collect()
    }
}

fn named(id: &str) -> PoisonFilter {
    PoisonFilter {
        ids: [id.to_owned()].into(),
        ..PoisonFilter::default()
    }
}

#[tokio::test]
async fn a_message_that_borrows_anothers_id_hides_nothing_and_goes_alone() {
    for (before, discard) in [(true, true), (true, false), (false, true), (false, false)] {
        let borrowed = ForgedIds::new(before, &[message("m1", &json!({"body": FORGED}))]).await;
        assert_eq!(borrowed.listed().await.len(), 2, "both are shown");
        let act = async |filter: PoisonFilter| {
            if discard {
                borrowed.poison.discard(&filter).await
            } else {
                borrowed.poison.requeue(&filter).await
            }
            .unwrap()
        };
        let unclear = act(named("m1")).await;
        assert_eq!(
            (unclear.done.len(), unclear.failed.len()),
            (0, 2),
            "the id must be ambiguous"
        );
        assert!(
            unclear.failed[0]
                .1
                .contains("several messages have the id m1"),
            "{:?}",
            unclear.failed
        );
        let forged = borrowed
            .listed()
            .await
            .into_iter()
            .find(|entry| entry.message.body.as_deref() == Some(FORGED))
            .unwrap();
        assert!(
            unclear
                .failed
                .iter()
                .any(|(_, error)| error.contains(&forged.ids[0])),
            "{:?}",
            unclear.failed
        );
        assert_eq!(act(named(&forged.ids[0])).await.done, [forged]);
        assert_eq!(borrowed.left().await, [ANNS]);
        assert_eq!(
            bodies(&borrowed.stage, "jobs"),
            if discard { vec![] } else { vec![FORGED] }
        );
        assert_eq!(
            act(named("m1")).await.done.len(),
            1,
            "the id must be unique again"
        );
    }
}

#[tokio::test]
async fn all_are_requeued_each_with_its_own_body() {
    let borrowed = ForgedIds::new(true, &[message("m1", &json!({"body": FORGED}))]).await;
    assert_eq!(
        borrowed
            .poison
            .requeue(&PoisonFilter::default())
            .await
            .unwrap()
            .done
            .len(),
        2
    );
    assert_eq!(
        bodies(&borrowed.stage, "jobs")
            .into_iter()
            .collect::<BTreeSet<_>>(),
        [ANNS.to_owned(), FORGED.to_owned()].into()
    );
}

#[tokio::test]
async fn discarding_a_forged_reason_discards_no_other_message() {
    let forged = message("m1", &json!({"body": ANNS, "reason": "undecodable"}));
    let borrowed = ForgedIds::new(true, &[forged]).await;
    let undecodable = PoisonFilter {
        reason: Some(Reason::Undecodable),
        ..PoisonFilter::default()
    };
    assert_eq!(
        borrowed
            .poison
            .discard(&undecodable)
            .await
            .unwrap()
            .done
            .len(),
        1
    );
    assert_eq!(borrowed.left().await, [ANNS]);
}

#[tokio::test]
async fn a_client_that_calls_its_job_by_anothers_id_does_not_take_it_along() {
    let borrowed = ForgedIds::new(
        false,
        &[message("m2", &json!({"body": FORGED, "id": "m1"}))],
    )
    .await;
    let handled = borrowed.poison.discard(&named("m1")).await.unwrap();
    assert_eq!((handled.done.len(), handled.failed.len()), (0, 2));
    assert_eq!(
        borrowed
            .poison
            .discard(&named("m2"))
            .await
            .unwrap()
            .done
            .len(),
        1
    );
    assert_eq!(borrowed.left().await, [ANNS]);
}

#[tokio::test]
async fn a_message_that_knows_anothers_id_does_not_reach_its_blob() {
    let stage = Stage::new().await;
    let blobs = &stage.account.blobs;
    blobs
        .create_container(&container(BODY_CONTAINER))
        .await
        .unwrap();
    let mut anns: PoisonMessage =
        serde_json::from_value(message("m1", &json!({"body": ANNS}))).unwrap();
    let blob = anns.body_blob_name().unwrap();
    blobs
        .put(
            &blob.container,
            &blob.name,
            Bytes::from(anns.body.take().unwrap()),
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    anns.body_blob = Some(blob.clone());
    put(&stage, &serde_json::to_value(&anns).unwrap()).await;
    let poison = PoisonQueue::new(&stage.account, &settings(1, None)).unwrap();
    let guessed = json!({"container": BODY_CONTAINER, "name": "jobs/m1"});
    for forged in [
        json!({"body_blob": guessed}),
        json!({"body_blob": blob, "body": FORGED}),
    ] {
        put(&stage, &message("m1", &forged)).await;
        let listed = poison.list(&PoisonFilter::default()).await.unwrap().entries;
        let forged = listed.iter().find(|entry| entry.message != anns).unwrap();
        poison.discard(&named(&forged.ids[0])).await.unwrap();
        let left = poison.list(&PoisonFilter::default()).await.unwrap().entries;
        let [entry] = left.as_slice() else {
            panic!("{left:?}")
        };
        assert_eq!(
            poison.body(&entry.message).await.unwrap().as_deref(),
            Some(ANNS),
            "the body must still exist"
        );
    }
    assert_eq!(poison.requeue(&named("m1")).await.unwrap().done.len(), 1);
    assert_eq!(bodies(&stage, "jobs"), [ANNS]);
}

#[tokio::test]
async fn what_was_poisoned_from_the_recheck_queue_goes_back_there_and_to_no_queue_of_jobs() {
    let stage = Stage::new().await;
    let before = bodies(&stage, "jobs-recheck").len();
    let poison = PoisonQueue::new(&stage.account, &settings(1, Some(&["put"]))).unwrap();
    let recheck = r#"{"items":[],"op":"recheck","pk":"Sales","rk":"7","table":"Staff","v":1}"#;
    let rechecks =
        r#"{"op":"recheck","rechecks":[{"items":[],"pk":"Sales","rk":"8"}],"table":"Staff","v":1}"#;
    let delete = ANNS.replace("sync", "delete");
    for (number, body) in [recheck, rechecks, ANNS, delete.as_str(), "no job"]
        .into_iter()
        .enumerate()
    {
        put(
            &stage,
            &message(
                &format!("m{number}"),
                &json!({"queue": "jobs-recheck", "body": body}),
            ),
        )
        .await;
    }
    let handled = poison.requeue(&PoisonFilter::default()).await.unwrap();
    let foreign = handled
        .done
        .iter()
        .filter(|entry| entry.message.reason == Reason::Foreign)
        .count();
    assert_eq!(
        (handled.done.len(), handled.failed.len(), foreign),
        (5, 0, 0)
    );
    let back: BTreeSet<String> = bodies(&stage, "jobs-recheck").drain(before..).collect();
    // A worker poisons the delete and the invalid text again, because the recheck queue accepts only rechecks and syncs.
    assert_eq!(
        back,
        [recheck, rechecks, ANNS, delete.as_str(), "no job"]
            .map(str::to_owned)
            .into()
    );
    assert_eq!(bodies(&stage, "jobs"), [""; 0]);
}
