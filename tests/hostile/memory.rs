//! Jobs that want more memory than there is, on a daemon that may have 256 MiB.

use std::time::Duration;

use bytes::Bytes;
use evenkeel::model::{BlobName, ContainerName, QueueName, TableName, body};
use evenkeel::ports::{Account, BlobUpload, Ttl};
use serde_json::json;

use crate::daemon::{Daemon, LIMIT, MIB};

const CATALOG: &str = "
[views.documents]
kind = \"large_entity\"
source = \"Staff\"
container = \"documents\"
";

/// Honest jobs: each a staged entity of 15 MiB, in ten properties.
const HONEST: usize = 8;
/// Messages of 1.4 KB that hold half a million zeros.
const BOMBS: usize = 64;

fn name(name: &str) -> BlobName {
    BlobName::new(name).unwrap()
}

async fn stage(account: &Account, blob: &str, content: String) {
    let staging = ContainerName::new("evenkeel-staging").unwrap();
    account.blobs.put(&staging, &name(blob), Bytes::from(content), &BlobUpload::default()).await.unwrap();
}

async fn send(account: &Account, text: &str) {
    account.queues.put(&QueueName::new("jobs").unwrap(), text, Duration::ZERO, Ttl::Never).await.unwrap();
}

fn put_of(number: usize) -> String {
    body::encode(&json!({"op": "put", "table": "Staff", "pk": "p", "rk": format!("{number}"), "entity_ref": {"blob": format!("evenkeel-staging/{number}")}}).to_string())
}

/// Everything is there before the daemon begins, so that it meets all of it at once.
async fn prepare(account: &Account) {
    account.blobs.create_container(&ContainerName::new("evenkeel-staging").unwrap()).await.unwrap();
    account.queues.create_queue(&QueueName::new("jobs").unwrap()).await.unwrap();
    account.tables.create_table(&TableName::new("Staff").unwrap()).await.unwrap();
    for number in 0..HONEST {
        let mut entity = json!({"PartitionKey": "p", "RowKey": format!("{number}")});
        for property in 0..10 {
            entity[format!("Part{property}")] = json!(format!("{number}.{property}").repeat(512 * 1_024));
        }
        stage(account, &number.to_string(), entity.to_string()).await;
        send(account, &put_of(number)).await;
    }
    let zeros = vec!["0"; 520_000].join(",");
    stage(
        account,
        &HONEST.to_string(),
        format!("{{\"PartitionKey\":\"p\",\"RowKey\":\"{HONEST}\",\"x\":[{}]}}", vec![zeros.as_str(); 15].join(",")),
    )
    .await;
    send(account, &put_of(HONEST)).await;
    for number in 0..BOMBS {
        let bomb = format!(
            "{{\"op\":\"put\",\"table\":\"Staff\",\"entity\":{{\"PartitionKey\":\"p\",\"RowKey\":\"bomb{number}\",\"x\":[{zeros}]}}}}"
        );
        let bomb = body::pack(&bomb).unwrap();
        assert!(bomb.len() < 2_500, "a small message: {}", bomb.len());
        send(account, &bomb).await;
    }
}

/// The values of a metric, of all its series that have this in their labels, together.
fn sum(metrics: &str, series: &str, label: &str) -> usize {
    let lines = metrics.lines().filter(|line| line.starts_with(series) && line.contains(label));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
}

#[test]
fn jobs_that_want_more_memory_than_there_is_wait_for_each_other_and_the_daemon_stays_alive() {
    let daemon = Daemon::over(CATALOG, prepare);
    let metrics = loop {
        assert_eq!(daemon.get("/healthz").0, 200);
        let (status, metrics) = daemon.get("/metrics");
        assert_eq!(status, 200);
        for share in ["messages", "bodies", "values"] {
            let of = |name: &str| sum(&metrics, name, &format!("share=\"{share}\""));
            assert!(of("evenkeel_memory_held_bytes") <= of("evenkeel_memory_limit_bytes"), "{share}");
        }
        if sum(&metrics, "evenkeel_jobs_total", "") > HONEST + BOMBS {
            break metrics;
        }
    };
    assert!(daemon.peak() < LIMIT, "{} MiB", daemon.peak() / MIB);
    assert_eq!(sum(&metrics, "evenkeel_jobs_total", "outcome=\"done\""), HONEST, "honest jobs were done, and in one delivery");
    assert_eq!(sum(&metrics, "evenkeel_jobs_total", "outcome=\"permanent\""), BOMBS + 1);
    assert_eq!(daemon.get("/api/v1/entities/Staff/p/0").0, 200);
}
