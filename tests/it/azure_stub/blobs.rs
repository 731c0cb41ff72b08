//! Blobs that are empty, or that are changed, copied or leased by others meanwhile.

use super::*;

const CHUNK: usize = 8 << 20;

fn range(request: &Request, etag: &str, byte: u8) -> Reply {
    let first = request
        .header("x-ms-range")
        .or_else(|| request.header("range"))
        .unwrap()
        .starts_with("bytes=0-");
    let (from, to) = if first {
        (0, CHUNK - 1)
    } else {
        (CHUNK, CHUNK)
    };
    let answer = Reply::status(206)
        .like_azure()
        .header("ETag", format!("\"{etag}\""))
        .header("Content-Range", format!("bytes {from}-{to}/{}", CHUNK + 1));
    answer.body(vec![byte; to - from + 1]).into()
}

#[tokio::test]
async fn a_blob_that_is_overwritten_while_it_is_read_is_read_anew() {
    let stub = Stub::start(|request| match request.number {
        0 => range(request, "old", 1),
        1 => Reply::status(412)
            .like_azure()
            .header("x-ms-error-code", "ConditionNotMet")
            .into(),
        _ => range(request, "new", 2),
    });
    let read = connect(&stub)
        .blobs
        .get(&blob().0, &blob().1, None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (read.content.len(), read.properties.etag.as_str()),
        (CHUNK + 1, "\"new\"")
    );
    assert!(read.content.iter().all(|byte| *byte == 2));
    assert_eq!(stub.requests()[1].header("if-match"), Some("\"old\""));
}

#[tokio::test]
async fn a_blob_that_never_holds_still_is_given_up_for_now() {
    let stub = Stub::start(|request| {
        if request.number % 2 == 0 {
            range(request, &request.number.to_string(), 1)
        } else {
            Reply::status(412).like_azure().into()
        }
    });
    assert_eq!(
        connect(&stub)
            .blobs
            .get(&blob().0, &blob().1, None)
            .await
            .unwrap_err()
            .class,
        TRANSIENT
    );
}

#[tokio::test]
async fn an_empty_blob_has_no_range() {
    let stub = Stub::start(|request| match request.method.as_str() {
        "GET" => Reply::status(416)
            .like_azure()
            .header("x-ms-error-code", "InvalidRange")
            .into(),
        _ => Reply::status(200)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("Content-Length", "0")
            .into(),
    });
    let read = connect(&stub)
        .blobs
        .get(&blob().0, &blob().1, None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((read.content.len(), read.properties.length), (0, 0));
}

#[tokio::test]
async fn a_copy_is_waited_for() {
    let stub = Stub::start(|request| match (request.method.as_str(), request.number) {
        ("PUT", _) => Reply::status(202)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("x-ms-copy-status", "pending")
            .into(),
        (_, 1) => Reply::status(200)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("x-ms-copy-status", "pending")
            .into(),
        _ => Reply::status(200)
            .like_azure()
            .header("ETag", "\"2\"")
            .header("x-ms-copy-status", "success")
            .into(),
    });
    let (container, name) = blob();
    assert_eq!(
        connect(&stub)
            .blobs
            .copy(
                (&container, &name),
                (&container, &name),
                &BlobCopy::default()
            )
            .await
            .unwrap()
            .as_str(),
        "\"2\""
    );
    let stub = Stub::start(|request| match request.method.as_str() {
        "PUT" => Reply::status(202)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("x-ms-copy-status", "pending")
            .into(),
        "DELETE" => Reply::status(202)
            .like_azure()
            .header("x-ms-delete-type-permanent", "true")
            .into(),
        _ => Reply::status(200)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("x-ms-copy-status", "failed")
            .into(),
    });
    assert_eq!(
        connect(&stub)
            .blobs
            .copy(
                (&container, &name),
                (&container, &name),
                &BlobCopy::default()
            )
            .await
            .unwrap_err()
            .class,
        TRANSIENT
    );
}

/// Azure answers like this if the blob is large or is copied from another account: the blob exists at once, and its
/// content arrives later.
#[tokio::test]
async fn a_pending_copy_is_not_read_as_content() {
    let stub = Stub::start(|request| {
        let status = if request.number < 2 {
            "pending"
        } else {
            "success"
        };
        let reply = Reply::status(200)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("x-ms-copy-status", status)
            .header("Content-Length", "0");
        reply.header("x-ms-copy-id", "one").into()
    });
    let (container, name) = blob();
    let account = connect(&stub);
    assert_eq!(
        account
            .blobs
            .properties(&container, &name)
            .await
            .unwrap_err()
            .class,
        TRANSIENT
    );
    assert_eq!(
        account
            .blobs
            .get(&container, &name, None)
            .await
            .unwrap_err()
            .class,
        TRANSIENT
    );
    assert_eq!(
        account
            .blobs
            .properties(&container, &name)
            .await
            .unwrap()
            .unwrap()
            .etag
            .as_str(),
        "\"1\""
    );
}

/// The worker that started the copy may have stopped before it could delete the empty blob.
#[tokio::test]
async fn a_failed_copy_is_not_read_as_content() {
    for status in ["failed", "aborted"] {
        let stub = Stub::always(
            Reply::status(200)
                .like_azure()
                .header("ETag", "\"1\"")
                .header("x-ms-copy-status", status)
                .header("Content-Length", "0"),
        );
        let (container, name) = blob();
        let account = connect(&stub);
        for error in [
            account
                .blobs
                .properties(&container, &name)
                .await
                .unwrap_err(),
            account
                .blobs
                .get(&container, &name, None)
                .await
                .unwrap_err(),
        ] {
            assert_eq!(error.class, ErrorClass::Permanent, "{status}");
            assert!(
                error.to_string().contains("a copy onto the blob failed"),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn a_copy_that_fails_or_is_aborted_leaves_nothing_behind() {
    for status in ["failed", "aborted"] {
        let stub = Stub::start(move |request| match request.method.as_str() {
            "PUT" => Reply::status(202)
                .like_azure()
                .header("ETag", "\"1\"")
                .header("x-ms-copy-status", "pending")
                .header("x-ms-copy-id", "one")
                .into(),
            "DELETE" => Reply::status(202)
                .like_azure()
                .header("x-ms-delete-type-permanent", "true")
                .into(),
            _ => Reply::status(200)
                .like_azure()
                .header("ETag", "\"2\"")
                .header("x-ms-copy-status", status)
                .header("x-ms-copy-id", "one")
                .into(),
        });
        let (container, name) = blob();
        let copied = connect(&stub)
            .blobs
            .copy(
                (&container, &name),
                (&container, &name),
                &BlobCopy::default(),
            )
            .await;
        assert_eq!(copied.unwrap_err().class, TRANSIENT, "{status}");
        let requests = stub.requests();
        let last = requests.last().unwrap();
        assert_eq!(
            (last.method.as_str(), last.header("if-match")),
            ("DELETE", Some("\"2\"")),
            "{status}"
        );
    }
}

/// While the copy was pending, another write replaced the blob: another copy in the first case, and a plain upload in the second.
#[tokio::test]
async fn an_overwritten_copy_is_a_lost_race() {
    for later in [Some("two"), None] {
        let stub = Stub::start(move |request| match (request.method.as_str(), later) {
            ("PUT", _) => Reply::status(202)
                .like_azure()
                .header("ETag", "\"1\"")
                .header("x-ms-copy-status", "pending")
                .header("x-ms-copy-id", "one")
                .into(),
            (_, Some(later)) => Reply::status(200)
                .like_azure()
                .header("ETag", "\"2\"")
                .header("x-ms-copy-status", "success")
                .header("x-ms-copy-id", later)
                .into(),
            (_, None) => Reply::status(200)
                .like_azure()
                .header("ETag", "\"2\"")
                .into(),
        });
        let (container, name) = blob();
        let copied = connect(&stub)
            .blobs
            .copy(
                (&container, &name),
                (&container, &name),
                &BlobCopy::default(),
            )
            .await;
        assert_eq!(
            copied.unwrap_err().class,
            ErrorClass::Precondition,
            "{later:?}"
        );
    }
}

#[tokio::test]
async fn a_copy_is_sent_with_its_condition_and_an_unmet_one_is_a_lost_race() {
    let stub = Stub::start(|request| match request.number {
        0 => Reply::status(202)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("x-ms-copy-status", "success")
            .into(),
        _ => Reply::status(412)
            .like_azure()
            .header("x-ms-error-code", "TargetConditionNotMet")
            .into(),
    });
    let (container, name) = blob();
    let copy = |condition| {
        let (blobs, container, name) = (connect(&stub).blobs, &container, &name);
        async move {
            blobs
                .copy(
                    (container, name),
                    (container, name),
                    &BlobCopy {
                        condition,
                        ..BlobCopy::default()
                    },
                )
                .await
        }
    };
    copy(BlobCondition::Absent).await.unwrap();
    assert_eq!(
        copy(BlobCondition::Absent).await.unwrap_err().class,
        ErrorClass::Conflict
    );
    assert_eq!(
        copy(BlobCondition::Matches(ETag::new("\"1\"").unwrap()))
            .await
            .unwrap_err()
            .class,
        ErrorClass::Precondition
    );
    let requests = stub.requests();
    assert_eq!(
        (
            requests[1].header("if-none-match"),
            requests[1].header("if-match")
        ),
        (Some("*"), None)
    );
    assert_eq!(
        (
            requests[2].header("if-none-match"),
            requests[2].header("if-match")
        ),
        (None, Some("\"1\""))
    );
}

#[tokio::test]
async fn a_block_that_another_commit_dropped_is_a_lost_race() {
    let stub = Stub::always(
        Reply::status(400)
            .like_azure()
            .header("x-ms-error-code", "InvalidBlockList"),
    );
    let (container, name) = blob();
    let committed = connect(&stub)
        .blobs
        .put_block_list(
            &container,
            &name,
            &[BlockId::numbered(1)],
            &BlobUpload::default(),
        )
        .await;
    assert_eq!(committed.unwrap_err().class, ErrorClass::Precondition);
}

#[tokio::test]
async fn a_block_says_its_checksum() {
    let stub = Stub::always(Reply::status(201).like_azure());
    let (container, name) = blob();
    connect(&stub)
        .blobs
        .put_block(
            &container,
            &name,
            BlockId::numbered(1),
            Bytes::from_static(b"x"),
        )
        .await
        .unwrap();
    assert_eq!(
        stub.requests()[0].header("content-md5"),
        Some("ndTkYSaMgDT1yFZOFVxnpg==")
    );
}

#[tokio::test]
async fn a_blob_that_somebody_leased_may_be_free_later() {
    let stub = Stub::always(
        Reply::status(412)
            .like_azure()
            .header("x-ms-error-code", "LeaseIdMissing"),
    );
    let put = connect(&stub)
        .blobs
        .put(&blob().0, &blob().1, Bytes::new(), &BlobUpload::default())
        .await;
    assert_eq!(put.unwrap_err().class, TRANSIENT);
}

#[tokio::test]
async fn bytes_damaged_on_their_way_are_sent_again() {
    let stub = Stub::always(
        Reply::status(400)
            .like_azure()
            .header("x-ms-error-code", "Md5Mismatch"),
    );
    let put = connect(&stub)
        .blobs
        .put(
            &blob().0,
            &blob().1,
            Bytes::from_static(b"x"),
            &BlobUpload::default(),
        )
        .await;
    assert_eq!(put.unwrap_err().class, TRANSIENT);
}
