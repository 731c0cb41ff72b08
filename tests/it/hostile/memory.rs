//! Jobs that need more memory than the daemon's 256 MiB.

use std::time::Duration;

use bytes::Bytes;
use evenkeel_model::{
    BlobName, ContainerName, Entity, EntityKey, QueueName, TableName, body, limits,
};
use evenkeel_storage::{Account, BlobUpload, TableOperation, Ttl};
use serde_json::json;

use crate::hostile::daemon::{Daemon, LIMIT, MIB};

const CATALOG: &str = "
[views.documents]
kind = \"large_entity\"
source = \"Staff\"
container = \"documents\"
";

/// A catalog with lists and documents in blobs, which other programs can write.
const IN_BLOBS: &str = "
[views.named]
kind = \"index_entity\"
source = \"Employees\"
store = \"blob\"
container = \"named\"
name = \"{LastName}.jsonl\"
member = [\"{PartitionKey}\", \"{RowKey}\"]

[archives.former]
source = \"Employees\"
to = { kind = \"blob\", container = \"former\" }
";
/// The jobs name this number of entities, in messages of a hundred. Each entity has half of the maximum row size.
const LARGE: usize = 400;
const FORGED: usize = 3;

/// Valid jobs, each with a staged entity of 15 MiB in ten properties.
const HONEST: usize = 8;
/// Messages of 1.4 KB that contain half a million zeros.
const BOMBS: usize = 64;
/// Messages of 6 KB that contain two hundred thousand nested objects.
const NESTED: usize = 4;

fn name(name: &str) -> BlobName {
    BlobName::new(name).unwrap()
}

async fn stage(account: &Account, blob: &str, content: String) {
    let staging = ContainerName::new("evenkeel-staging").unwrap();
    account
        .blobs
        .put(
            &staging,
            &name(blob),
            Bytes::from(content),
            &BlobUpload::default(),
        )
        .await
        .unwrap();
}

async fn send(account: &Account, text: &str) {
    account
        .queues
        .put(
            &QueueName::new("jobs").unwrap(),
            text,
            Duration::ZERO,
            Ttl::Never,
        )
        .await
        .unwrap();
}

fn put_of(number: usize) -> String {
    body::encode(&json!({"op": "put", "table": "Staff", "pk": "p", "rk": format!("{number}"), "entity_ref": {"blob": format!("evenkeel-staging/{number}")}}).to_string())
}

/// Prepares everything before the daemon starts, so that the daemon processes all of it at the same time.
async fn prepare(account: &Account) {
    account
        .blobs
        .create_container(&ContainerName::new("evenkeel-staging").unwrap())
        .await
        .unwrap();
    account
        .queues
        .create_queue(&QueueName::new("jobs").unwrap())
        .await
        .unwrap();
    account
        .tables
        .create_table(&TableName::new("Staff").unwrap())
        .await
        .unwrap();
    for number in 0..HONEST {
        let mut entity = json!({"PartitionKey": "p", "RowKey": format!("{number}")});
        for property in 0..10 {
            entity[format!("Part{property}")] =
                json!(format!("{number}.{property}").repeat(512 * 1_024));
        }
        stage(account, &number.to_string(), entity.to_string()).await;
        send(account, &put_of(number)).await;
    }
    let zeros = vec!["0"; 520_000].join(",");
    stage(
        account,
        &HONEST.to_string(),
        format!(
            "{{\"PartitionKey\":\"p\",\"RowKey\":\"{HONEST}\",\"x\":[{}]}}",
            vec![zeros.as_str(); 15].join(",")
        ),
    )
    .await;
    send(account, &put_of(HONEST)).await;
    for number in 0..BOMBS {
        let bomb = format!(
            "{{\"op\":\"put\",\"table\":\"Staff\",\"entity\":{{\"PartitionKey\":\"p\",\"RowKey\":\"bomb{number}\",\"x\":[{zeros}]}}}}"
        );
        let bomb = body::pack(&bomb).unwrap();
        assert!(
            bomb.len() < 2_500,
            "the message must be small: {}",
            bomb.len()
        );
        send(account, &bomb).await;
    }
    let nest = format!("{}0{}", r#"{"":"#.repeat(120), "}".repeat(120));
    let nests = vec![nest; 1_700].join(",");
    for number in 0..NESTED {
        let keys = if number % 2 == 0 {
            r#""rk":"0""#
        } else {
            r#""rks":["0","1"]"#
        };
        let nested = body::pack(&format!(
            r#"{{"op":"sync","table":"Staff","pk":"p",{keys},"x":[{nests}]}}"#
        ))
        .unwrap();
        assert!(
            nested.len() < 8_000,
            "the message must be small: {}",
            nested.len()
        );
        send(account, &nested).await;
    }
}

/// Sum of all series of a metric whose labels contain this text.
fn sum(metrics: &str, series: &str, label: &str) -> usize {
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with(series) && line.contains(label));
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
        .sum()
}

#[test]
fn jobs_that_want_more_memory_than_there_is_wait_for_each_other_and_the_daemon_stays_alive() {
    let daemon = Daemon::over(CATALOG, prepare);
    let metrics = loop {
        assert_eq!(daemon.get("/healthz").0, 200);
        let (status, metrics) = daemon.get("/metrics");
        assert_eq!(status, 200);
        if sum(&metrics, "evenkeel_jobs_total", "") > HONEST + BOMBS + NESTED {
            break metrics;
        }
    };
    assert!(daemon.peak() < LIMIT, "{} MiB", daemon.peak() / MIB);
    assert_eq!(
        sum(&metrics, "evenkeel_jobs_total", "outcome=\"done\""),
        HONEST,
        "valid jobs must be done in one delivery"
    );
    assert_eq!(
        sum(&metrics, "evenkeel_jobs_total", "outcome=\"permanent\""),
        BOMBS + NESTED + 1
    );
    assert_eq!(daemon.get("/api/v1/entities/Staff/p/0").0, 200);
}

/// Forged blobs, each of which would be harmless alone: a list whose head does not end, a list of 48 MiB, a list with millions of texts in one line,
/// a document of 16 MiB of zeros, and a document that is larger than any entity.
async fn forge(account: &Account) {
    let (tables, blobs, queues) = (&account.tables, &account.blobs, &account.queues);
    tables
        .create_table(&TableName::new("Employees").unwrap())
        .await
        .unwrap();
    queues
        .create_queue(&QueueName::new("jobs").unwrap())
        .await
        .unwrap();
    let [named, former] = ["named", "former"].map(|name| ContainerName::new(name).unwrap());
    for container in [&named, &former] {
        blobs.create_container(container).await.unwrap();
    }
    let upload = BlobUpload {
        metadata: [("ek_view".to_owned(), "named".to_owned())].into(),
        ..BlobUpload::default()
    };
    let most = usize::try_from(limits::LIST_BLOB_BYTES).unwrap();
    let head = json!({"ek_list": 1, "ek_view": "named", "ek_source": ["Employees"], "ek_count": 1});
    let whole = Bytes::from(format!("{head}\n{}", "x".repeat(48 << 20)));
    let endless = Bytes::from("x".repeat(most));
    let dense = Bytes::from(format!(
        "{head}\n[[{}\"\"]]\n",
        "\"\",".repeat(most / 3 - 100)
    ));
    for number in 0..FORGED {
        for (list, content) in [
            (format!("endless{number}"), &endless),
            (format!("whole{number}"), &whole),
            (format!("dense{number}"), &dense),
        ] {
            blobs
                .put(
                    &named,
                    &name(&format!("{list}.jsonl")),
                    content.clone(),
                    &upload,
                )
                .await
                .unwrap();
            let entity = json!({"PartitionKey": "p", "RowKey": list, "LastName": list});
            send(
                account,
                &body::encode(
                    &json!({"op": "put", "table": "Employees", "entity": entity}).to_string(),
                ),
            )
            .await;
        }
        for (rk, zeros) in [
            (format!("zeros{number}"), 8 << 20),
            (format!("long{number}"), 33 << 20),
        ] {
            let document = format!(
                "{{\"PartitionKey\":\"p\",\"RowKey\":\"{rk}\",\"ek_format\":1,\"x\":[{}0]}}",
                "0,".repeat(zeros)
            );
            blobs
                .put(
                    &former,
                    &name(&format!("p/{rk}.json")),
                    Bytes::from(document),
                    &BlobUpload::default(),
                )
                .await
                .unwrap();
            send(
                account,
                &body::encode(
                    &json!({"op": "restore", "archive": "former", "pk": "p", "rk": rk}).to_string(),
                ),
            )
            .await;
        }
    }
}

#[test]
fn forged_lists_and_documents_take_no_more_memory_than_there_is() {
    let daemon = Daemon::over(IN_BLOBS, forge);
    let metrics = loop {
        assert_eq!(daemon.get("/healthz").0, 200);
        let (_, metrics) = daemon.get("/metrics");
        if sum(&metrics, "evenkeel_jobs_total", "") >= 5 * FORGED {
            break metrics;
        }
    };
    assert!(daemon.peak() < LIMIT, "{} MiB", daemon.peak() / MIB);
    assert_eq!(
        sum(&metrics, "evenkeel_jobs_total", "outcome=\"permanent\""),
        5 * FORGED
    );
    let (_, poison) = daemon.get("/api/v1/poison");
    for words in [
        "the head is missing",
        "bytes, at most 8388608 are allowed",
        "is truncated or longer than",
        "the document is not an entity",
        "but a document has at most",
    ] {
        assert!(poison.contains(words), "{words}: {poison}");
    }
}

/// Number of keys in each message of `repeating`.
const KEYS: usize = 1_000;

/// Messages of a few kilobytes that expand to a megabyte of one repeated text. Each message contains a mistake, and the text of the error might be
/// repeated for each of a thousand jobs. The flag is true if each of these jobs gets its own poison message.
fn repeating() -> Vec<(String, bool)> {
    let keys: Vec<String> = (0..KEYS).map(|number| number.to_string()).collect();
    let sync = |field: &str, value: serde_json::Value| {
        let mut job = json!({"op": "sync", "table": "Staff", "pk": "p", "rks": keys});
        job[field] = value;
        job.to_string()
    };
    let long = "A".repeat((1 << 20) - 16_000);
    let half = &long[..long.len() / 2];
    let deleted = |field: &str, keys: &[String]| {
        json!({"op": "delete", "table": "ByEmail", "pk": "p", "rks": keys, field: long}).to_string()
    };
    let once = [
        sync("thorough", json!(long)),
        sync("thorough", json!("\u{7f}".repeat(long.len()))),
        sync("thorough", json!({"a": long})),
        sync("table", json!(long)),
        sync("pk", json!(long)),
        sync("id", json!(long)),
        sync("traceparent", json!(long)),
        sync("op", json!(long)),
        sync("v", json!(long)),
        sync("Table", json!(long)).replace("\"table\"", "\"x\""),
        deleted("when", &keys),
        deleted("rk", &keys),
        format!(r#"{{"op":"sync","{half}":1,"{half}":2}}"#),
        json!({"op": "put", "table": "Staff", "entities": [{"PartitionKey": "p", "RowKey": "r", long.as_str(): 1}]}).to_string(),
        json!({"op": "put", "table": "Staff", "entities": [{"PartitionKey": "p", "RowKey": "r", "N@odata.type": long, "N": 1}]})
            .to_string(),
        json!({"op": "put", "table": "Staff", "newer_by": long, "entities": [{"PartitionKey": "p", "RowKey": "r"}]}).to_string(),
        json!({"specversion": long, "id": "1", "source": "s", "type": "t"}).to_string(),
        json!({"specversion": "1.0", "id": "1", "source": half, "type": half}).to_string(),
        json!({"op": "put", "table": "Staff", "pk": "p", "rk": "r", "entity_ref": {"blob": long}}).to_string(),
        format!("[{}]", json!(long)),
    ];
    let each = [deleted("x", &keys[..KEYS / 5])];
    once.into_iter()
        .map(|text| (text, false))
        .chain(each.into_iter().map(|text| (text, true)))
        .collect()
}

#[test]
fn nothing_repeats_what_a_message_says() {
    let messages = repeating();
    let daemon = Daemon::over("", async |account| {
        account
            .queues
            .create_queue(&QueueName::new("jobs").unwrap())
            .await
            .unwrap();
        account
            .tables
            .create_table(&TableName::new("Staff").unwrap())
            .await
            .unwrap();
        for (text, _) in &messages {
            let packed = body::pack(text).unwrap();
            assert!(
                packed.len() < 8_000,
                "the message must be small: {}",
                packed.len()
            );
            send(account, &packed).await;
        }
    });
    let poisoned: usize = messages
        .iter()
        .map(|(_, each)| if *each { KEYS / 5 } else { 1 })
        .sum();
    let metrics = loop {
        assert_eq!(daemon.get("/healthz").0, 200);
        let (_, metrics) = daemon.get("/metrics");
        if sum(&metrics, "evenkeel_jobs_total", "") >= messages.len() {
            break metrics;
        }
    };
    assert_eq!(
        sum(&metrics, "evenkeel_poisoned_total", ""),
        poisoned,
        "one poison message per invalid message"
    );
    let (peak, told, stored, worked) = (
        daemon.peak(),
        daemon.told(),
        daemon.stored(),
        daemon.worked(),
    );
    assert!(peak < LIMIT / 2, "{} MiB", peak / MIB);
    assert!(told < 2 * MIB, "{told} bytes of log");
    assert!(stored < 16 * MIB, "{stored} bytes of store");
    assert!(
        worked < Duration::from_mins(1),
        "{worked:?} of processor time"
    );
}

async fn write_large_entities(account: &Account) {
    let staff = TableName::new("Staff").unwrap();
    account
        .queues
        .create_queue(&QueueName::new("jobs").unwrap())
        .await
        .unwrap();
    account.tables.create_table(&staff).await.unwrap();
    let text = "x".repeat(31 << 10);
    let rks: Vec<String> = (0..LARGE).map(|number| format!("{number:03}")).collect();
    for message in rks.chunks(100) {
        for rk in message {
            let entity = Entity::new(EntityKey::new("p", rk).unwrap())
                .with("Email", format!("{rk}@contoso.com"));
            let entity = (0..8).fold(entity, |entity, part| {
                entity.with(format!("Part{part}"), text.as_str())
            });
            account
                .tables
                .apply(&staff, &TableOperation::Insert(entity))
                .await
                .unwrap();
        }
        send(
            account,
            &body::encode(
                &json!({"op": "sync", "table": "Staff", "pk": "p", "rks": message}).to_string(),
            ),
        )
        .await;
    }
}

#[test]
fn batches_of_large_primaries_wait_for_memory_and_the_daemon_stays_alive() {
    let daemon = Daemon::over("", write_large_entities);
    let metrics = loop {
        assert_eq!(daemon.get("/healthz").0, 200);
        let (_, metrics) = daemon.get("/metrics");
        if sum(&metrics, "evenkeel_keys_total", "") >= LARGE {
            break metrics;
        }
    };
    assert!(daemon.peak() < LIMIT, "{} MiB", daemon.peak() / MIB);
    assert_eq!(
        sum(&metrics, "evenkeel_keys_total", "outcome=\"done\""),
        LARGE
    );
}
