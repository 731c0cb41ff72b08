//! A worker handles large values in bounded memory. A value of 200 MB is copied from its staged blob to its own blob,
//! to a file, and back.
//!
//! The test has a process of its own, because it measures the peak memory of the whole process.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the test")]
#![expect(dead_code, reason = "not every test uses all methods of the site")]

#[path = "../it/patterns/site.rs"]
mod site;
#[path = "../support/mod.rs"]
mod support;

use bytes::Bytes;
use evenkeel_model::large::STAGING;
use evenkeel_model::{BlobName, ContainerName, EntityKey, TableName};
use evenkeel_storage::{BlobUpload, BlockId};
use serde_json::json;
use sha2::{Digest as _, Sha256};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.photos]
kind = "large_entity"
source = "Staff§"
properties = ["Photo"]
container = "large-§"

[archives.drawer]
source = "Staff§"
to = { kind = "file", dir = "$SHARE" }
"#;

const BLOCKS: u8 = 50;
const BLOCK_BYTES: usize = 4 << 20;
/// The peak may grow by 160 MiB: 64 MiB for the values in transfer, and the rest for the store.
const MORE_KIB: u64 = 160 << 10;

/// Peak resident memory of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim().trim_end_matches("kB").trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn large_values_are_handled_in_bounded_memory() {
    let site = site::Site::embedded(CATALOG).await;
    let (staging, name) = (
        ContainerName::new(STAGING).unwrap(),
        BlobName::new("film").unwrap(),
    );
    let (mut hash, mut blocks) = (Sha256::new(), Vec::new());
    for number in 0..BLOCKS {
        let content = Bytes::from(vec![number; BLOCK_BYTES]);
        hash.update(&content);
        let id = BlockId::numbered(number.into());
        site.account
            .blobs
            .put_block(&staging, &name, id, content)
            .await
            .unwrap();
        blocks.push(id);
    }
    site.account
        .blobs
        .put_block_list(&staging, &name, &blocks, &BlobUpload::default())
        .await
        .unwrap();
    let before = peak();
    let entity = json!({"PartitionKey": "p", "RowKey": "r"});
    let film =
        json!({"blob": "evenkeel-staging/film", "sha256": hex::encode(hash.clone().finalize())});
    site.work(json!({"op": "put", "table": "Staff§", "entity": entity, "blobs": {"Photo": film}}))
        .await;
    let written = peak();
    let (mut read, mut bytes) = (Sha256::new(), 0_usize);
    let key = EntityKey::new("p", "r").unwrap();
    let client = &site.client;
    let table = client
        .catalog()
        .table(&TableName::new(site.name("Staff§")).unwrap())
        .unwrap()
        .clone();
    let length = client.read_value(&table, &key, "Photo", |part| {
        read.update(part);
        bytes += part.len();
        Ok(())
    });
    assert_eq!(length.await.unwrap(), Some(bytes as u64));
    assert_eq!(bytes, usize::from(BLOCKS) * BLOCK_BYTES);
    assert_eq!(read.finalize(), hash.finalize());
    let after = peak();
    assert!(
        written < before + MORE_KIB && after < before + MORE_KIB,
        "{before} KiB before, {written} written, {after} read"
    );
    let on = |op: &str| json!({"op": op, "archive": "drawer", "pk": "p", "rk": "r"});
    site.work(on("archive")).await;
    let folder = std::fs::read_dir(site.folder.path().join("share/p/r.json%values")).unwrap();
    let lengths: Vec<u64> = folder
        .map(|file| file.unwrap().metadata().unwrap().len())
        .collect();
    assert_eq!(lengths, [bytes as u64]);
    site.work(on("restore")).await;
    let travelled = peak();
    assert!(
        travelled < before + MORE_KIB,
        "{before} KiB before, {travelled} after archive and restore"
    );
    site.in_step("Staff§").await;
}
