use super::*;

async fn sent<F: Future>(call: impl FnOnce(Account) -> F) -> Vec<Request> {
    let stub = Stub::always(Reply::status(201).like_azure().header("ETag", "\"1\""));
    call(connect(&stub)).await;
    stub.requests()
}

#[tokio::test]
async fn quotes_are_doubled_only_in_addresses() {
    let entity = entity("O'Brien", "100% 한");
    let [request] = &sent(|account| async move {
        account
            .tables
            .apply(&table(), &TableOperation::InsertOrReplace(entity))
            .await
    })
    .await[..] else {
        panic!()
    };
    assert_eq!(request.method, "PUT");
    assert_eq!(
        request.target,
        "/devstoreaccount1/Employees(PartitionKey='O''Brien',RowKey='100%25%20%ED%95%9C')"
    );
    assert!(
        request.text().contains("\"PartitionKey\":\"O'Brien\""),
        "{}",
        request.text()
    );
    assert_eq!(request.header("if-match"), None);
    assert!(
        request
            .header("user-agent")
            .unwrap()
            .starts_with("evenkeel/")
    );
}

#[tokio::test]
async fn conditions_are_never_left_out() {
    let etag = || IfMatch::Matches(ETag::new("W/\"datetime'1'\"").unwrap());
    let operations = [
        TableOperation::Replace(entity("p", "1"), etag()),
        TableOperation::Merge(entity("p", "2"), IfMatch::Any),
        TableOperation::Delete(entity("p", "3").key, etag()),
    ];
    for operation in operations.clone() {
        let expected = if matches!(operation, TableOperation::Merge(..)) {
            "*"
        } else {
            "W/\"datetime'1'\""
        };
        let [request] =
            &sent(|account| async move { account.tables.apply(&table(), &operation).await }).await
                [..]
        else {
            panic!()
        };
        assert_eq!(request.header("if-match"), Some(expected));
    }
    let [request] = &sent(|account| async move {
        account
            .tables
            .transact(&table(), &Key::new("p").unwrap(), &operations)
            .await
    })
    .await[..] else {
        panic!()
    };
    assert!(request.target.ends_with("/$batch"), "{}", request.target);
    assert_eq!(
        request
            .text()
            .to_lowercase()
            .matches("\nif-match: ")
            .count(),
        3,
        "{}",
        request.text()
    );
}

#[tokio::test]
async fn inserts_ask_for_no_content() {
    let [alone] =
        &sent(|account| async move { account.tables.apply(&table(), &insert()).await }).await[..]
    else {
        panic!()
    };
    assert_eq!(alone.header("prefer"), Some("return-no-content"));
    let [together] = &sent(|account| async move {
        account
            .tables
            .transact(&table(), &Key::new("p").unwrap(), &[insert()])
            .await
    })
    .await[..] else {
        panic!()
    };
    assert!(
        together
            .text()
            .contains("HTTP/1.1\nPrefer: return-no-content\n"),
        "{}",
        together.text()
    );
    assert_eq!(
        together.header("content-length").unwrap(),
        together.body.len().to_string()
    );
}

#[tokio::test]
async fn messages_may_live_for_ever_and_seconds_are_rounded_up() {
    let [request] = &sent(|account| async move {
        account
            .queues
            .put(&queue(), "a\r\n<한>", Duration::from_millis(1), Ttl::Never)
            .await
    })
    .await[..] else {
        panic!()
    };
    assert!(
        request.target.contains("messagettl=-1") && request.target.contains("visibilitytimeout=1"),
        "{}",
        request.target
    );
    assert_eq!(
        request.text(),
        "<QueueMessage><MessageText>a&#xD;\n&lt;&#xD55C;&gt;</MessageText></QueueMessage>"
    );
    let [request] = &sent(|account| async move {
        account
            .queues
            .put(
                &queue(),
                "a",
                Duration::ZERO,
                Ttl::After(Duration::from_millis(1_500)),
            )
            .await
    })
    .await[..] else {
        panic!()
    };
    assert!(
        request.target.contains("messagettl=2"),
        "{}",
        request.target
    );
}

#[tokio::test]
async fn uploads_carry_their_hash() {
    let upload = BlobUpload {
        cache_control: Some("no-store".into()),
        content_type: Some("text/plain".into()),
        ..BlobUpload::default()
    };
    let [request] = &sent(|account| async move {
        account
            .blobs
            .put(&blob().0, &blob().1, Bytes::from_static(b"hello"), &upload)
            .await
    })
    .await[..] else {
        panic!()
    };
    assert_eq!(
        request.header("content-md5"),
        Some("XUFAKrxLKna5cZ2REBfFkg==")
    );
    assert_eq!(
        (
            request.header("x-ms-blob-cache-control"),
            request.header("x-ms-blob-content-type")
        ),
        (Some("no-store"), Some("text/plain"))
    );
}

#[tokio::test]
async fn ranges_ask_for_no_checksum() {
    let [request, ..] =
        &sent(|account| async move { account.blobs.get(&blob().0, &blob().1, Some(0..10)).await })
            .await[..]
    else {
        panic!()
    };
    assert_eq!(
        request
            .header("x-ms-range")
            .or_else(|| request.header("range")),
        Some("bytes=0-9")
    );
    assert_eq!(
        (
            request.header("x-ms-range-get-content-crc64"),
            request.header("x-ms-range-get-content-md5")
        ),
        (None, None)
    );
}

#[tokio::test]
async fn an_entity_over_a_limit_is_not_sent() {
    let large = entity("p", "r").with("Big", "x".repeat(32_769));
    assert!(
        sent(|account| async move {
            account
                .tables
                .apply(&table(), &TableOperation::Insert(large))
                .await
        })
        .await
        .is_empty()
    );
}

#[tokio::test]
async fn rows_are_asked_for_with_no_more_metadata_than_their_types() {
    let minimal = Some("application/json;odata=minimalmetadata");
    let key = entity("p", "1").key;
    let requests = sent(|account| async move {
        let tables = &account.tables;
        drop(tables.get(&table(), &key, None).await);
        drop(tables.query(&table(), &Query::default()).await);
        drop(tables.apply(&table(), &insert()).await);
        drop(
            tables
                .apply(&table(), &TableOperation::InsertOrReplace(entity("p", "2")))
                .await,
        );
        drop(tables.create_table(&table()).await);
    })
    .await;
    assert_eq!(requests.len(), 5);
    for request in &requests {
        assert_eq!(
            request.header("accept"),
            minimal,
            "{} {}",
            request.method,
            request.target
        );
    }
}
