//! The rules of blobs.

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_model::{BlobName, ContainerName, ETag};
use evenkeel_storage::{Blob, BlobCondition, BlobCopy, BlobItem, BlobUpload, BlockId, ErrorClass};
use futures::future::{join, join_all};

use super::{NO_CONTAINER, NO_ITEM, World, blob, class, container_name};

async fn put(world: &World, container: &ContainerName, name: &str, content: &'static [u8]) -> ETag {
    let upload = BlobUpload::default();
    world
        .account
        .blobs
        .put(container, &blob(name), Bytes::from_static(content), &upload)
        .await
        .unwrap()
}

async fn get(world: &World, container: &ContainerName, name: &str) -> Blob {
    world
        .account
        .blobs
        .get(container, &blob(name), None)
        .await
        .unwrap()
        .expect("the blob exists")
}

async fn content(world: &World, container: &ContainerName, name: &str) -> Bytes {
    get(world, container, name).await.content
}

fn on(condition: BlobCondition) -> BlobUpload {
    BlobUpload {
        condition,
        ..BlobUpload::default()
    }
}

fn with_metadata(name: &str, value: &str) -> BlobUpload {
    BlobUpload {
        metadata: BTreeMap::from([(name.to_owned(), value.to_owned())]),
        ..BlobUpload::default()
    }
}

async fn list(world: &World, container: &ContainerName, prefix: &str) -> Vec<BlobItem> {
    let mut blobs = Vec::new();
    let mut marker = None;
    for _ in 0..10_000 {
        let page = world
            .account
            .blobs
            .list(container, prefix, marker.as_deref())
            .await
            .unwrap();
        blobs.extend(page.blobs);
        marker = page.marker;
        if marker.is_none() {
            return blobs;
        }
    }
    panic!("the listing did not end");
}

/// Bytes that depend on their position, so that a wrong range is detected.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|i| u8::try_from((i ^ (i >> 8) ^ (i >> 16)) & 0xff).unwrap())
        .collect()
}

pub async fn a_container_is_created_once(world: &World) {
    let container = container_name();
    assert!(
        world
            .account
            .blobs
            .create_container(&container)
            .await
            .unwrap()
    );
    assert!(
        !world
            .account
            .blobs
            .create_container(&container)
            .await
            .unwrap()
    );
}

pub async fn a_container_is_deleted_once_and_its_blobs_with_it(world: &World) {
    let container = world.container().await;
    put(world, &container, "a", b"x").await;
    assert!(
        world
            .account
            .blobs
            .delete_container(&container)
            .await
            .unwrap()
    );
    assert!(
        !world
            .account
            .blobs
            .delete_container(&container)
            .await
            .unwrap()
    );
    assert_eq!(
        class(world.account.blobs.list(&container, "", None).await),
        NO_CONTAINER
    );
}

pub async fn an_absent_container_is_distinguished_from_an_absent_blob(world: &World) {
    let absent = container_name();
    let blobs = &world.account.blobs;
    assert_eq!(
        class(
            blobs
                .put(
                    &absent,
                    &blob("a"),
                    Bytes::from_static(b"x"),
                    &BlobUpload::default()
                )
                .await
        ),
        NO_CONTAINER
    );
    assert_eq!(
        class(blobs.get(&absent, &blob("a"), None).await),
        NO_CONTAINER
    );
    assert_eq!(class(blobs.list(&absent, "", None).await), NO_CONTAINER);
}

pub async fn a_blob_is_read_as_it_was_written(world: &World) {
    let container = world.container().await;
    let upload = BlobUpload {
        condition: BlobCondition::None,
        content_type: Some("application/json".to_owned()),
        cache_control: Some("public, max-age=31536000, immutable".to_owned()),
        metadata: BTreeMap::from([
            ("Ek_Source".to_owned(), "a b=c;\"d\"".to_owned()),
            ("sha256".to_owned(), "0".repeat(64)),
        ]),
    };
    let all_bytes = (0..=255).collect::<Vec<u8>>();
    let etag = world
        .account
        .blobs
        .put(
            &container,
            &blob("dir/a.json"),
            all_bytes.clone().into(),
            &upload,
        )
        .await
        .unwrap();
    let read = get(world, &container, "dir/a.json").await;
    assert_eq!(read.content, all_bytes);
    assert_eq!(
        (&read.properties.etag, read.properties.length),
        (&etag, 256)
    );
    assert_eq!(read.properties.content_type, "application/json");
    assert_eq!(read.properties.cache_control, upload.cache_control);
    let lower = BTreeMap::from([
        ("ek_source".to_owned(), "a b=c;\"d\"".to_owned()),
        ("sha256".to_owned(), "0".repeat(64)),
    ]);
    assert_eq!(read.properties.metadata, lower);
    assert_eq!(
        world
            .account
            .blobs
            .properties(&container, &blob("dir/a.json"))
            .await
            .unwrap(),
        Some(read.properties)
    );
    // A write replaces content, content type and metadata.
    put(world, &container, "dir/a.json", b"plain").await;
    assert!(
        get(world, &container, "dir/a.json")
            .await
            .properties
            .metadata
            .is_empty()
    );
}

pub async fn a_blob_without_a_type_has_the_default_type(world: &World) {
    let container = world.container().await;
    put(world, &container, "a", b"x").await;
    assert_eq!(
        get(world, &container, "a").await.properties.content_type,
        "application/octet-stream"
    );
}

pub async fn a_blob_of_no_bytes_is_read_whole_and_by_range(world: &World) {
    let container = world.container().await;
    let etag = put(world, &container, "empty", b"").await;
    let whole = get(world, &container, "empty").await;
    assert_eq!(
        (
            whole.content.len(),
            whole.properties.length,
            &whole.properties.etag
        ),
        (0, 0, &etag)
    );
    let range = world
        .account
        .blobs
        .get(&container, &blob("empty"), Some(0..100))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((range.content.len(), range.properties.length), (0, 0));
    assert_eq!(list(world, &container, "").await[0].length, 0);
}

pub async fn a_blob_of_5_mib_is_read_whole_and_by_range(world: &World) {
    let container = world.container().await;
    let bytes = pattern(5 * 1_048_576 + 17);
    world
        .account
        .blobs
        .put(
            &container,
            &blob("large"),
            bytes.clone().into(),
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    assert!(content(world, &container, "large").await == bytes);
    for (start, end) in [
        (0, 1),
        (1_048_570, 1_048_590),
        (262_143, 4_194_305),
        (5_242_880, 5_242_897),
    ] {
        let range = Some(start as u64..end as u64);
        let part = world
            .account
            .blobs
            .get(&container, &blob("large"), range)
            .await
            .unwrap()
            .unwrap();
        assert!(part.content == bytes[start..end], "{start}..{end}");
        assert_eq!(part.properties.length, 5 * 1_048_576 + 17);
    }
}

pub async fn a_range_is_cut_at_the_end(world: &World) {
    let container = world.container().await;
    put(world, &container, "a", b"0123456789").await;
    for (range, expected) in [
        (0..10, "0123456789"),
        (0..1, "0"),
        (3..7, "3456"),
        (8..100, "89"),
        (10..20, ""),
        (50..60, ""),
        (5..5, ""),
    ] {
        let part = world
            .account
            .blobs
            .get(&container, &blob("a"), Some(range.clone()))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(part.content, expected, "{range:?}");
        assert_eq!(part.properties.length, 10, "{range:?}");
    }
}

pub async fn an_absent_blob_reads_as_none(world: &World) {
    let container = world.container().await;
    assert_eq!(
        world
            .account
            .blobs
            .get(&container, &blob("a"), None)
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        world
            .account
            .blobs
            .get(&container, &blob("a"), Some(0..5))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        world
            .account
            .blobs
            .properties(&container, &blob("a"))
            .await
            .unwrap(),
        None
    );
}

pub async fn every_write_changes_the_etag(world: &World) {
    let container = world.container().await;
    let mut etags = Vec::new();
    for _ in 0..4 {
        let etag = put(world, &container, "a", b"same").await;
        assert!(!etags.contains(&etag));
        etags.push(etag);
    }
    world
        .account
        .blobs
        .delete(&container, &blob("a"), None)
        .await
        .unwrap();
    assert!(!etags.contains(&put(world, &container, "a", b"same").await));
}

pub async fn every_way_of_reading_shows_the_same_etag(world: &World) {
    let container = world.container().await;
    let written = put(world, &container, "a", b"x").await;
    assert_eq!(get(world, &container, "a").await.properties.etag, written);
    assert_eq!(
        world
            .account
            .blobs
            .properties(&container, &blob("a"))
            .await
            .unwrap()
            .unwrap()
            .etag,
        written
    );
    assert_eq!(list(world, &container, "").await[0].etag, written);
    let target = blob("b");
    let copied = world
        .account
        .blobs
        .copy(
            (&container, &blob("a")),
            (&container, &target),
            &BlobCopy::default(),
        )
        .await
        .unwrap();
    assert_eq!(get(world, &container, "b").await.properties.etag, copied);
}

pub async fn a_create_of_an_existing_blob_is_a_conflict(world: &World) {
    let container = world.container().await;
    let upload = on(BlobCondition::Absent);
    world
        .account
        .blobs
        .put(
            &container,
            &blob("a"),
            Bytes::from_static(b"first"),
            &upload,
        )
        .await
        .unwrap();
    let second = world
        .account
        .blobs
        .put(
            &container,
            &blob("a"),
            Bytes::from_static(b"second"),
            &upload,
        )
        .await;
    assert_eq!(class(second), ErrorClass::Conflict);
    assert_eq!(content(world, &container, "a").await, "first");
}

pub async fn a_write_at_a_stale_etag_changes_nothing(world: &World) {
    let container = world.container().await;
    let stale = put(world, &container, "a", b"first").await;
    let upload = on(BlobCondition::Matches(stale.clone()));
    let current = world
        .account
        .blobs
        .put(
            &container,
            &blob("a"),
            Bytes::from_static(b"second"),
            &upload,
        )
        .await
        .unwrap();
    assert_ne!(current, stale);
    let late = world
        .account
        .blobs
        .put(
            &container,
            &blob("a"),
            Bytes::from_static(b"third"),
            &upload,
        )
        .await;
    assert_eq!(class(late), ErrorClass::Precondition);
    let read = get(world, &container, "a").await;
    assert_eq!(
        (read.content.as_ref(), read.properties.etag),
        (b"second".as_slice(), current)
    );
}

pub async fn a_write_at_an_etag_needs_a_blob(world: &World) {
    let container = world.container().await;
    let etag = put(world, &container, "a", b"x").await;
    world
        .account
        .blobs
        .delete(&container, &blob("a"), Some(&etag))
        .await
        .unwrap();
    let upload = on(BlobCondition::Matches(etag));
    let late = world
        .account
        .blobs
        .put(&container, &blob("a"), Bytes::from_static(b"y"), &upload)
        .await;
    assert_eq!(class(late), ErrorClass::Precondition);
    assert_eq!(
        world
            .account
            .blobs
            .properties(&container, &blob("a"))
            .await
            .unwrap(),
        None
    );
}

pub async fn a_delete_returns_whether_the_blob_existed(world: &World) {
    let container = world.container().await;
    let etag = put(world, &container, "a", b"x").await;
    put(world, &container, "b", b"x").await;
    assert!(
        world
            .account
            .blobs
            .delete(&container, &blob("a"), Some(&etag))
            .await
            .unwrap()
    );
    assert!(
        world
            .account
            .blobs
            .delete(&container, &blob("b"), None)
            .await
            .unwrap()
    );
    assert!(
        !world
            .account
            .blobs
            .delete(&container, &blob("b"), None)
            .await
            .unwrap()
    );
    assert!(
        !world
            .account
            .blobs
            .delete(&container, &blob("a"), Some(&etag))
            .await
            .unwrap()
    );
    assert!(list(world, &container, "").await.is_empty());
}

pub async fn a_delete_at_a_stale_etag_deletes_nothing(world: &World) {
    let container = world.container().await;
    let stale = put(world, &container, "a", b"first").await;
    put(world, &container, "a", b"second").await;
    assert_eq!(
        class(
            world
                .account
                .blobs
                .delete(&container, &blob("a"), Some(&stale))
                .await
        ),
        ErrorClass::Precondition
    );
    assert_eq!(content(world, &container, "a").await, "second");
}

pub async fn a_copy_carries_content_type_and_metadata(world: &World) {
    let (from, to) = (world.container().await, world.container().await);
    let upload = BlobUpload {
        content_type: Some("image/png".to_owned()),
        ..with_metadata("owner", "O'Brien")
    };
    let bytes = pattern(300_000);
    world
        .account
        .blobs
        .put(&from, &blob("dir/a b"), bytes.clone().into(), &upload)
        .await
        .unwrap();
    let etag = world
        .account
        .blobs
        .copy(
            (&from, &blob("dir/a b")),
            (&to, &blob("copy/c+d")),
            &BlobCopy::default(),
        )
        .await
        .unwrap();
    let copy = get(world, &to, "copy/c+d").await;
    assert!(copy.content == bytes);
    assert_eq!(
        (copy.properties.etag, copy.properties.content_type.as_str()),
        (etag, "image/png")
    );
    assert_eq!(copy.properties.metadata, upload.metadata);
    assert!(content(world, &from, "dir/a b").await == bytes);
}

pub async fn a_copy_replaces_its_target(world: &World) {
    let container = world.container().await;
    put(world, &container, "a", b"new").await;
    let old = put(world, &container, "b", b"old").await;
    let etag = world
        .account
        .blobs
        .copy(
            (&container, &blob("a")),
            (&container, &blob("b")),
            &BlobCopy::default(),
        )
        .await
        .unwrap();
    assert_ne!(etag, old);
    put(world, &container, "a", b"newer").await;
    assert_eq!(content(world, &container, "b").await, "new");
}

pub async fn a_copy_of_nothing_finds_no_blob(world: &World) {
    let container = world.container().await;
    assert_eq!(
        class(
            world
                .account
                .blobs
                .copy(
                    (&container, &blob("a")),
                    (&container, &blob("b")),
                    &BlobCopy::default()
                )
                .await
        ),
        NO_ITEM
    );
    assert!(list(world, &container, "").await.is_empty());
}

async fn create_append(world: &World, container: &ContainerName, name: &str) -> ETag {
    let upload = BlobUpload {
        condition: BlobCondition::Absent,
        content_type: Some("application/x-ndjson".to_owned()),
        ..with_metadata("first", "a")
    };
    world
        .account
        .blobs
        .create_append(container, &blob(name), &upload)
        .await
        .unwrap()
}

pub async fn an_append_blob_grows_only_at_its_end(world: &World) {
    let container = world.container().await;
    let created = create_append(world, &container, "log").await;
    let blobs = &world.account.blobs;
    let line = |text: &'static str| Bytes::from_static(text.as_bytes());
    let first = blobs
        .append(&container, &blob("log"), line("one\n"), 0)
        .await
        .unwrap();
    assert_ne!(first, created);
    assert_eq!(
        class(
            blobs
                .append(&container, &blob("log"), line("two\n"), 0)
                .await
        ),
        ErrorClass::Precondition
    );
    assert_eq!(
        class(
            blobs
                .append(&container, &blob("log"), line("two\n"), 5)
                .await
        ),
        ErrorClass::Precondition
    );
    let second = blobs
        .append(&container, &blob("log"), line("two\n"), 4)
        .await
        .unwrap();
    let read = get(world, &container, "log").await;
    assert_eq!(
        (read.content.as_ref(), read.properties.etag),
        (b"one\ntwo\n".as_slice(), second)
    );
    assert_eq!(
        (
            read.properties.content_type.as_str(),
            read.properties.metadata["first"].as_str()
        ),
        ("application/x-ndjson", "a")
    );
    assert_eq!(list(world, &container, "").await[0].length, 8);
}

pub async fn an_append_needs_an_append_blob(world: &World) {
    let container = world.container().await;
    let blobs = &world.account.blobs;
    assert_eq!(
        class(
            blobs
                .append(&container, &blob("none"), Bytes::from_static(b"x"), 0)
                .await
        ),
        NO_ITEM
    );
    put(world, &container, "block", b"x").await;
    assert_eq!(
        class(
            blobs
                .append(&container, &blob("block"), Bytes::from_static(b"x"), 1)
                .await
        ),
        ErrorClass::Permanent
    );
    create_append(world, &container, "log").await;
    let again = blobs
        .create_append(&container, &blob("log"), &on(BlobCondition::Absent))
        .await;
    assert_eq!(class(again), ErrorClass::Conflict);
    assert_eq!(
        class(
            blobs
                .append(&container, &blob("log"), Bytes::new(), 0)
                .await
        ),
        ErrorClass::Permanent
    );
    let large = blobs
        .append(
            &container,
            &blob("log"),
            vec![0; world.capabilities.append_bytes + 1].into(),
            0,
        )
        .await;
    assert_eq!(class(large), ErrorClass::TooLarge);
    // A put replaces the append blob by a block blob.
    put(world, &container, "log", b"x").await;
    assert_eq!(
        class(
            blobs
                .append(&container, &blob("log"), Bytes::from_static(b"x"), 1)
                .await
        ),
        ErrorClass::Permanent
    );
}

pub async fn what_is_appended_is_read_whole_and_by_range(world: &World) {
    let container = world.container().await;
    create_append(world, &container, "log").await;
    let bytes = pattern(1_200_000);
    let mut position = 0;
    for size in [1, 262_143, 1, 262_144, 5, 600_000, 75_706] {
        let part = Bytes::copy_from_slice(&bytes[position..position + size]);
        world
            .account
            .blobs
            .append(&container, &blob("log"), part, position as u64)
            .await
            .unwrap();
        position += size;
    }
    assert_eq!(position, bytes.len());
    assert!(content(world, &container, "log").await == bytes);
    let part = world
        .account
        .blobs
        .get(&container, &blob("log"), Some(262_140..262_150))
        .await
        .unwrap()
        .unwrap();
    assert!(part.content == bytes[262_140..262_150]);
}

pub async fn one_of_concurrent_appends_at_one_position_wins(world: &World) {
    let container = world.container().await;
    create_append(world, &container, "log").await;
    let name = blob("log");
    let appends = (0..6).map(|n| {
        world
            .account
            .blobs
            .append(&container, &name, Bytes::from(format!("{n}\n")), 0)
    });
    let won = join_all(appends).await.into_iter().flatten().count();
    assert_eq!((won, content(world, &container, "log").await.len()), (1, 2));
}

pub async fn metadata_is_replaced_only_at_its_etag(world: &World) {
    let container = world.container().await;
    let blobs = &world.account.blobs;
    create_append(world, &container, "log").await;
    let stale = blobs
        .append(&container, &blob("log"), Bytes::from_static(b"x"), 0)
        .await
        .unwrap();
    let second = BTreeMap::from([("Last".to_owned(), "b".to_owned())]);
    let etag = blobs
        .set_metadata(&container, &blob("log"), &second, &stale)
        .await
        .unwrap();
    assert_ne!(etag, stale);
    assert_eq!(
        class(
            blobs
                .set_metadata(&container, &blob("log"), &BTreeMap::new(), &stale)
                .await
        ),
        ErrorClass::Precondition
    );
    let read = get(world, &container, "log").await;
    assert_eq!(
        (read.content.as_ref(), read.properties.etag),
        (b"x".as_slice(), etag.clone())
    );
    assert_eq!(
        read.properties.metadata,
        BTreeMap::from([("last".to_owned(), "b".to_owned())])
    );
    // It is still an append blob.
    blobs
        .append(&container, &blob("log"), Bytes::from_static(b"y"), 1)
        .await
        .unwrap();
    blobs.delete(&container, &blob("log"), None).await.unwrap();
    assert!(
        blobs
            .set_metadata(&container, &blob("log"), &second, &etag)
            .await
            .unwrap_err()
            .is_lost_race()
    );
}

pub async fn metadata_that_cannot_be_sent_is_refused(world: &World) {
    let container = world.container().await;
    let long = "x".repeat(world.capabilities.metadata_bytes);
    for (name, value) in [
        ("a-b", "x"),
        ("1a", "x"),
        ("", "x"),
        ("한", "x"),
        ("a", "한"),
        ("a", " x"),
        ("a", "x "),
        ("a", "x\ny"),
        ("a", long.as_str()),
    ] {
        let put = world
            .account
            .blobs
            .put(
                &container,
                &blob("a"),
                Bytes::from_static(b"x"),
                &with_metadata(name, value),
            )
            .await;
        assert!(
            matches!(class(put), ErrorClass::Permanent | ErrorClass::TooLarge),
            "expected an error for the metadata {name:?} = {value:?}"
        );
    }
    assert!(list(world, &container, "").await.is_empty());
}

pub async fn names_with_unusual_characters_address_their_own_blob(world: &World) {
    let container = world.container().await;
    let names = [
        "a b",
        "a+b",
        "a%20b",
        "100%",
        "a&b=c",
        "O'Brien",
        "(x)",
        "x@y.z",
        "a;b,c",
        "~a",
        "$a!",
        "a:b",
        "A",
        "a",
        "logs/2026/11/20.jsonl",
    ];
    for name in names {
        world
            .account
            .blobs
            .put(
                &container,
                &blob(name),
                Bytes::from_static(name.as_bytes()),
                &on(BlobCondition::Absent),
            )
            .await
            .unwrap();
    }
    for name in names {
        assert_eq!(content(world, &container, name).await, name);
    }
    let mut expected = names.to_vec();
    expected.sort_unstable();
    let listed = list(world, &container, "").await;
    assert_eq!(
        listed
            .iter()
            .map(|item| item.name.as_str())
            .collect::<Vec<_>>(),
        expected
    );
    for name in names {
        assert!(
            world
                .account
                .blobs
                .delete(&container, &blob(name), None)
                .await
                .unwrap(),
            "{name}"
        );
    }
}

pub async fn a_listing_is_ordered_and_complete(world: &World) {
    let container = world.container().await;
    let mut expected = Vec::new();
    for number in (0..60).rev() {
        let name = format!("blob-{number:03}");
        let bytes = vec![0_u8; number];
        let etag = world
            .account
            .blobs
            .put(
                &container,
                &blob(&name),
                bytes.into(),
                &BlobUpload::default(),
            )
            .await
            .unwrap();
        expected.push(BlobItem {
            name: BlobName::new(name).unwrap(),
            etag,
            length: number as u64,
        });
    }
    expected.reverse();
    assert_eq!(list(world, &container, "").await, expected);
}

pub async fn a_listing_is_limited_to_its_prefix(world: &World) {
    let container = world.container().await;
    for name in ["a", "a/1", "a/2", "a/2/x", "a0", "A/1", "b/1", "a%2F1"] {
        put(world, &container, name, b"x").await;
    }
    let names = |items: Vec<BlobItem>| {
        items
            .into_iter()
            .map(|item| item.name.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names(list(world, &container, "a/").await),
        ["a/1", "a/2", "a/2/x"]
    );
    assert_eq!(
        names(list(world, &container, "a").await),
        ["a", "a%2F1", "a/1", "a/2", "a/2/x", "a0"]
    );
    assert_eq!(
        names(list(world, &container, "a/2").await),
        ["a/2", "a/2/x"]
    );
    assert!(list(world, &container, "c").await.is_empty());
}

pub async fn one_of_concurrent_creates_wins(world: &World) {
    let container = world.container().await;
    let (name, upload) = (blob("a"), on(BlobCondition::Absent));
    let results = join_all((0..8_u8).map(|i| {
        world
            .account
            .blobs
            .put(&container, &name, vec![i].into(), &upload)
    }))
    .await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    let winner = results.iter().position(Result::is_ok).unwrap();
    assert_eq!(
        content(world, &container, "a").await.as_ref(),
        [u8::try_from(winner).unwrap()]
    );
    assert!(
        results
            .into_iter()
            .filter(Result::is_err)
            .all(|result| class(result) == ErrorClass::Conflict)
    );
}

pub async fn readers_never_see_a_mixture_of_two_versions(world: &World) {
    let container = world.container().await;
    let version = |i: u8| Bytes::from(vec![i; 700_000 + usize::from(i)]);
    let name = blob("a");
    world
        .account
        .blobs
        .put(&container, &name, version(0), &BlobUpload::default())
        .await
        .unwrap();
    let writer = async {
        for i in 1..15 {
            world
                .account
                .blobs
                .put(&container, &name, version(i), &BlobUpload::default())
                .await
                .unwrap();
        }
    };
    let reader = async {
        for _ in 0..15 {
            let read = world
                .account
                .blobs
                .get(&container, &name, None)
                .await
                .unwrap()
                .unwrap();
            assert!(read.content == version(read.content[0]));
            assert_eq!(read.properties.length, read.content.len() as u64);
        }
    };
    join(writer, reader).await;
}

/// Puts a block of `length` bytes, each of which is the number of the block.
async fn put_block(
    world: &World,
    container: &ContainerName,
    name: &str,
    number: u8,
    length: usize,
) -> BlockId {
    let id = BlockId::numbered(number.into());
    world
        .account
        .blobs
        .put_block(container, &blob(name), id, vec![number; length].into())
        .await
        .unwrap();
    id
}

/// The runs of equal bytes, each with its length.
fn runs(bytes: &[u8]) -> Vec<(u8, usize)> {
    bytes
        .chunk_by(|a, b| a == b)
        .map(|run| (run[0], run.len()))
        .collect()
}

pub async fn blocks_become_a_blob_in_the_order_of_their_list(world: &World) {
    let container = world.container().await;
    let blobs = &world.account.blobs;
    let (one, two) = (
        put_block(world, &container, "a", 1, 300_000).await,
        put_block(world, &container, "a", 2, 5).await,
    );
    let three = put_block(world, &container, "a", 3, 262_144).await;
    // Uncommitted blocks are not a blob.
    assert_eq!(blobs.get(&container, &blob("a"), None).await.unwrap(), None);
    assert!(list(world, &container, "").await.is_empty());
    let upload = BlobUpload {
        condition: BlobCondition::Absent,
        content_type: Some("image/png".to_owned()),
        cache_control: Some("immutable".to_owned()),
        ..with_metadata("owner", "7")
    };
    let etag = blobs
        .put_block_list(&container, &blob("a"), &[three, one, two, two], &upload)
        .await
        .unwrap();
    let read = get(world, &container, "a").await;
    assert_eq!(runs(&read.content), [(3, 262_144), (1, 300_000), (2, 10)]);
    assert_eq!(
        (&read.properties.etag, read.properties.length),
        (&etag, 562_154)
    );
    assert_eq!(
        (
            read.properties.content_type.as_str(),
            &read.properties.metadata
        ),
        ("image/png", &upload.metadata)
    );
    let part = blobs
        .get(&container, &blob("a"), Some(262_140..262_150))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(runs(&part.content), [(3, 4), (1, 6)]);
}

pub async fn a_new_list_may_keep_blocks_of_the_blob(world: &World) {
    let container = world.container().await;
    let blobs = &world.account.blobs;
    let (one, two) = (
        put_block(world, &container, "a", 1, 300_000).await,
        put_block(world, &container, "a", 2, 7).await,
    );
    let first = blobs
        .put_block_list(
            &container,
            &blob("a"),
            &[one, two],
            &on(BlobCondition::Absent),
        )
        .await
        .unwrap();
    let three = put_block(world, &container, "a", 3, 9).await;
    // An uncommitted block is not visible.
    assert_eq!(get(world, &container, "a").await.properties.length, 300_007);
    let second = blobs
        .put_block_list(
            &container,
            &blob("a"),
            &[three, one],
            &on(BlobCondition::Matches(first)),
        )
        .await
        .unwrap();
    assert_eq!(
        runs(&content(world, &container, "a").await),
        [(3, 9), (1, 300_000)]
    );
    // An uncommitted block replaces a committed one with the same id.
    blobs
        .put_block(&container, &blob("a"), one, vec![8; 3].into())
        .await
        .unwrap();
    let third = blobs
        .put_block_list(
            &container,
            &blob("a"),
            &[one],
            &on(BlobCondition::Matches(second)),
        )
        .await
        .unwrap();
    assert_eq!(content(world, &container, "a").await.as_ref(), [8; 3]);
    // A block that the list does not name is deleted.
    let upload = on(BlobCondition::Matches(third));
    assert_eq!(
        class(
            blobs
                .put_block_list(&container, &blob("a"), &[two], &upload)
                .await
        ),
        ErrorClass::Precondition
    );
}

pub async fn a_block_that_another_writer_dropped_is_a_lost_race(world: &World) {
    let container = world.container().await;
    let blobs = &world.account.blobs;
    let absent = BlockId::numbered(9);
    let unknown = blobs
        .put_block_list(&container, &blob("a"), &[absent], &BlobUpload::default())
        .await;
    assert_eq!(class(unknown), ErrorClass::Precondition);
    let (one, two) = (
        put_block(world, &container, "a", 1, 4).await,
        put_block(world, &container, "a", 2, 4).await,
    );
    blobs
        .put_block_list(&container, &blob("a"), &[one], &BlobUpload::default())
        .await
        .unwrap();
    assert_eq!(
        class(
            blobs
                .put_block_list(&container, &blob("a"), &[one, two], &BlobUpload::default())
                .await
        ),
        ErrorClass::Precondition
    );
    assert_eq!(content(world, &container, "a").await.as_ref(), [1; 4]);
}

pub async fn a_block_list_is_conditional_like_a_put(world: &World) {
    let container = world.container().await;
    let blobs = &world.account.blobs;
    let stale = put(world, &container, "a", b"first").await;
    let current = put(world, &container, "a", b"second").await;
    let one = put_block(world, &container, "a", 1, 4).await;
    let commit = |condition| {
        let container = &container;
        async move {
            blobs
                .put_block_list(container, &blob("a"), &[one], &on(condition))
                .await
        }
    };
    assert_eq!(
        class(commit(BlobCondition::Absent).await),
        ErrorClass::Conflict
    );
    assert_eq!(
        class(commit(BlobCondition::Matches(stale)).await),
        ErrorClass::Precondition
    );
    assert_eq!(content(world, &container, "a").await, "second");
    commit(BlobCondition::Matches(current)).await.unwrap();
    assert_eq!(content(world, &container, "a").await.as_ref(), [1; 4]);
}

pub async fn blocks_need_a_container_and_a_block_blob(world: &World) {
    let container = world.container().await;
    let (blobs, one) = (&world.account.blobs, BlockId::numbered(1));
    let absent = container_name();
    assert_eq!(
        class(
            blobs
                .put_block(&absent, &blob("a"), one, Bytes::from_static(b"x"))
                .await
        ),
        NO_CONTAINER
    );
    assert_eq!(
        class(
            blobs
                .put_block_list(&absent, &blob("a"), &[], &BlobUpload::default())
                .await
        ),
        NO_CONTAINER
    );
    create_append(world, &container, "log").await;
    assert_eq!(
        class(
            blobs
                .put_block(&container, &blob("log"), one, Bytes::from_static(b"x"))
                .await
        ),
        ErrorClass::Permanent
    );
    assert_eq!(
        class(
            blobs
                .put_block(&container, &blob("a"), one, Bytes::new())
                .await
        ),
        ErrorClass::Permanent
    );
    let many = vec![one; world.capabilities.blocks + 1];
    assert_eq!(
        class(
            blobs
                .put_block_list(&container, &blob("a"), &many, &BlobUpload::default())
                .await
        ),
        ErrorClass::TooLarge
    );
}

pub async fn one_of_concurrent_block_lists_that_create_a_blob_wins(world: &World) {
    let container = world.container().await;
    let (blobs, name) = (&world.account.blobs, blob("a"));
    let write = |i: u8| {
        let (container, name) = (&container, &name);
        async move {
            let id = BlockId::numbered(i.into());
            blobs
                .put_block(container, name, id, vec![i; 10].into())
                .await
                .unwrap();
            blobs
                .put_block_list(container, name, &[id], &on(BlobCondition::Absent))
                .await
        }
    };
    let results = join_all((0..6_u8).map(write)).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert!(
        results
            .into_iter()
            .filter_map(Result::err)
            .all(|error| error.is_lost_race())
    );
    assert_eq!(content(world, &container, "a").await.len(), 10);
}

pub async fn a_range_of_one_version_is_read_while_it_lasts(world: &World) {
    let container = world.container().await;
    let blobs = &world.account.blobs;
    let etag = put(world, &container, "a", b"0123456789").await;
    for (range, expected) in [
        (0..10, "0123456789"),
        (0..1, "0"),
        (3..7, "3456"),
        (8..100, "89"),
        (10..20, ""),
        (50..60, ""),
        (5..5, ""),
    ] {
        assert_eq!(
            blobs
                .get_at(&container, &blob("a"), range.clone(), &etag)
                .await
                .unwrap(),
            expected,
            "{range:?}"
        );
    }
    let empty = put(world, &container, "empty", b"").await;
    assert_eq!(
        blobs
            .get_at(&container, &blob("empty"), 0..5, &empty)
            .await
            .unwrap(),
        ""
    );
    put(world, &container, "a", b"0123456789").await;
    assert_eq!(
        class(blobs.get_at(&container, &blob("a"), 0..5, &etag).await),
        ErrorClass::Precondition
    );
    blobs.delete(&container, &blob("a"), None).await.unwrap();
    assert_eq!(
        class(blobs.get_at(&container, &blob("a"), 0..5, &etag).await),
        ErrorClass::Precondition
    );
    let large = pattern(9 * 1_048_576);
    let etag = blobs
        .put(
            &container,
            &blob("large"),
            large.clone().into(),
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    let part = blobs
        .get_at(
            &container,
            &blob("large"),
            100..large.len() as u64 - 1,
            &etag,
        )
        .await
        .unwrap();
    assert!(part == large[100..large.len() - 1]);
}

pub async fn a_copy_is_conditional_and_may_have_its_own_metadata(world: &World) {
    let container = world.container().await;
    let blobs = &world.account.blobs;
    let upload = BlobUpload {
        cache_control: Some("immutable".to_owned()),
        ..with_metadata("owner", "7")
    };
    blobs
        .put(&container, &blob("a"), Bytes::from_static(b"new"), &upload)
        .await
        .unwrap();
    let copy = |condition| {
        let (container, metadata) = (&container, Some(with_metadata("owner", "8").metadata));
        async move {
            blobs
                .copy(
                    (container, &blob("a")),
                    (container, &blob("b")),
                    &BlobCopy {
                        condition,
                        metadata,
                    },
                )
                .await
        }
    };
    let first = copy(BlobCondition::Absent).await.unwrap();
    let read = get(world, &container, "b").await.properties;
    assert_eq!(
        (
            read.metadata["owner"].as_str(),
            read.cache_control.as_deref(),
            &read.etag
        ),
        ("8", Some("immutable"), &first)
    );
    assert_eq!(
        get(world, &container, "a").await.properties.metadata["owner"],
        "7"
    );
    assert_eq!(
        class(copy(BlobCondition::Absent).await),
        ErrorClass::Conflict
    );
    let second = copy(BlobCondition::Matches(first.clone())).await.unwrap();
    assert_eq!(
        class(copy(BlobCondition::Matches(first)).await),
        ErrorClass::Precondition
    );
    assert_eq!(get(world, &container, "b").await.properties.etag, second);
}
