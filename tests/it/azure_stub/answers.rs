//! Successful answers, and answers that only look successful.

use super::*;

const ETAG: &str = "W/\"datetime'2026-11-20T15%3A00%3A00.1234567Z'\"";

#[tokio::test]
async fn a_success_without_optional_headers_is_accepted() {
    // The answer has no Server, Date, version or preference-applied header. The client library reports such an answer as an error.
    let stub = Stub::always(
        Reply::status(204)
            .header("ETag", ETAG)
            .header("x-ms-request-id", "7d6eb5c1"),
    );
    assert_eq!(
        connect(&stub)
            .tables
            .apply(&table(), &insert())
            .await
            .unwrap()
            .unwrap()
            .as_str(),
        ETAG
    );
}

#[tokio::test]
async fn a_success_without_an_etag_is_ambiguous() {
    assert_eq!(
        write(&Stub::always(Reply::status(204).like_azure()), insert())
            .await
            .class,
        ErrorClass::Ambiguous
    );
}

/// A captive portal, or a proxy that serves its own page, answers like this.
#[tokio::test]
async fn a_success_of_something_in_between_is_not_accepted() {
    for status in [200, 201, 202, 204, 206] {
        let page = Reply::status(status)
            .header("ETag", "\"1\"")
            .header("Content-Type", "text/html")
            .body("<html>Sign in</html>");
        let stub = Stub::always(page);
        let Account {
            tables,
            queues,
            blobs,
            ..
        } = connect(&stub);
        let ((container, name), key, etag) =
            (blob(), entity("p", "r").key, ETag::new("\"1\"").unwrap());
        let (upload, none) = (BlobUpload::default(), std::collections::BTreeMap::new());
        let byte = || Bytes::from_static(b"x");
        let writes = [
            tables.apply(&table(), &insert()).await.map(drop),
            tables.apply(&table(), &replace()).await.map(drop),
            tables
                .apply(&table(), &TableOperation::Delete(key.clone(), IfMatch::Any))
                .await
                .map(drop),
            tables
                .transact(&table(), &key.pk, &[insert()])
                .await
                .map(drop),
            tables.create_table(&table()).await.map(drop),
            tables.delete_table(&table()).await.map(drop),
            queues.create_queue(&queue()).await.map(drop),
            queues.delete_queue(&queue()).await.map(drop),
            queues
                .put(&queue(), "x", Duration::ZERO, Ttl::Never)
                .await
                .map(drop),
            queues.get(&queue(), 32, MINUTE).await.map(drop),
            queues
                .update(&queue(), "id", "receipt", "x", MINUTE)
                .await
                .map(drop),
            queues.delete(&queue(), "id", "receipt").await,
            blobs.create_container(&container).await.map(drop),
            blobs.delete_container(&container).await.map(drop),
            blobs
                .put(&container, &name, byte(), &upload)
                .await
                .map(drop),
            blobs
                .create_append(&container, &name, &upload)
                .await
                .map(drop),
            blobs.append(&container, &name, byte(), 0).await.map(drop),
            blobs
                .put_block(&container, &name, BlockId::numbered(1), byte())
                .await,
            blobs
                .put_block_list(&container, &name, &[BlockId::numbered(1)], &upload)
                .await
                .map(drop),
            blobs
                .set_metadata(&container, &name, &none, &etag)
                .await
                .map(drop),
            blobs
                .copy(
                    (&container, &name),
                    (&container, &name),
                    &BlobCopy::default(),
                )
                .await
                .map(drop),
            blobs.delete(&container, &name, Some(&etag)).await.map(drop),
        ];
        let reads = [
            tables.get(&table(), &key, None).await.map(drop),
            tables.query(&table(), &Query::default()).await.map(drop),
            tables.list_tables(None).await.map(drop),
            queues.peek(&queue(), 32).await.map(drop),
            queues.approximate_count(&queue()).await.map(drop),
            blobs.get(&container, &name, None).await.map(drop),
            blobs.properties(&container, &name).await.map(drop),
            blobs.list(&container, "", None).await.map(drop),
        ];
        assert_eq!(
            stub.requests().len(),
            writes.len() + reads.len(),
            "{status}: each was sent once"
        );
        for (class, results) in [
            (ErrorClass::Ambiguous, &writes[..]),
            (TRANSIENT, &reads[..]),
        ] {
            for (at, result) in results.iter().enumerate() {
                let error = result.as_ref().unwrap_err();
                assert_eq!(
                    (error.class, error.status),
                    (class, Some(status)),
                    "{at}: {error}"
                );
                assert!(error.message.contains("gateway"), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn a_row_that_is_cut_off_may_be_whole_the_next_time() {
    let body = r#"{"odata.metadata":"x","odata.etag":"W/\"1\"","PartitionKey":"p","RowKey":"r","Name":"x"}"#;
    let row = Reply::status(200)
        .like_azure()
        .header("ETag", "W/\"1\"")
        .body(body);
    assert_eq!(
        read(&Stub::always(row.clone().cut_after(30))).await.class,
        TRANSIENT
    );
    assert_eq!(
        read(&Stub::always(row.clone().body(&body[..30])))
            .await
            .class,
        TRANSIENT
    );
    let found = connect(&Stub::always(row))
        .tables
        .get(&table(), &EntityKey::new("p", "r").unwrap(), None)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.entity, entity("p", "r"));
}

#[tokio::test]
async fn a_row_that_nobody_can_read_stays_so() {
    let body = r#"{"odata.metadata":"x","odata.etag":"W/\"1\"","PartitionKey":"p","RowKey":"r","X@odata.type":"Edm.Hologram","X":"?"}"#;
    let error = read(&Stub::always(Reply::status(200).like_azure().body(body))).await;
    assert_eq!(error.class, ErrorClass::Permanent);
    assert!(everything(&error).contains("Edm.Hologram"));
}

#[tokio::test]
async fn a_page_may_be_empty_and_go_on() {
    let stub = Stub::start(|request| {
        let page = Reply::status(200)
            .like_azure()
            .body(r#"{"odata.metadata":"x","value":[]}"#);
        match request.number {
            // Azure omits the row key if the page ends between two partitions.
            0 => page
                .header("x-ms-continuation-NextPartitionKey", "1!8!cA--")
                .into(),
            1 => page
                .header("x-ms-continuation-NextPartitionKey", "1!8!cQ--")
                .header("x-ms-continuation-NextRowKey", "1!8!cg--")
                .into(),
            _ => page.into(),
        }
    });
    let tables = connect(&stub).tables;
    let mut query = Query {
        top: Some(5),
        select: Some(vec!["Name".into()]),
        ..Query::default()
    };
    let mut pages = 0;
    loop {
        let page = tables.query(&table(), &query).await.unwrap();
        pages += 1;
        query.continuation = page.continuation;
        if query.continuation.is_none() {
            break;
        }
    }
    assert_eq!(pages, 3);
    let targets: Vec<_> = stub
        .requests()
        .into_iter()
        .map(|request| request.target)
        .collect();
    assert!(
        targets
            .iter()
            .all(|target| target.contains("%24top=5") && target.contains("%24select=")),
        "{targets:?}"
    );
    assert!(
        targets[1].contains("NextPartitionKey=1%218%21cA--") && !targets[1].contains("NextRowKey"),
        "{targets:?}"
    );
    assert!(
        targets[2].contains("NextRowKey=1%218%21cg--"),
        "{targets:?}"
    );
}

fn batch_answer(part: &str) -> String {
    format!(
        "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n--changesetresponse_2\r\n\
         Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n{part}\r\n--changesetresponse_2--\r\n--batchresponse_1--\r\n"
    )
}

async fn transact(stub: &Stub) -> StoreError {
    let operations = [
        TableOperation::Insert(entity("p", "a")),
        replace(),
        TableOperation::Insert(entity("p", "b")),
    ];
    connect(stub)
        .tables
        .transact(&table(), &Key::new("p").unwrap(), &operations)
        .await
        .unwrap_err()
}

#[tokio::test]
async fn a_failed_transaction_names_its_operation() {
    let value = |code: &str| odata(code).replace("Words.", "1:Words.");
    for (status, code, class) in [
        ("409 Conflict", "EntityAlreadyExists", ErrorClass::Conflict),
        (
            "412 Precondition Failed",
            "UpdateConditionNotSatisfied",
            ErrorClass::Precondition,
        ),
        (
            "404 Not Found",
            "ResourceNotFound",
            ErrorClass::NotFound(Missing::Item),
        ),
        (
            "404 Not Found",
            "TableNotFound",
            ErrorClass::NotFound(Missing::Container),
        ),
        (
            "503 Service Unavailable",
            "ServerBusy",
            ErrorClass::Throttled { retry_after: None },
        ),
        (
            "500 Internal Server Error",
            "OperationTimedOut",
            ErrorClass::Ambiguous,
        ),
    ] {
        let part = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json;odata=minimalmetadata\r\n\r\n{}",
            value(code)
        );
        let stub = Stub::always(Reply::status(202).like_azure().body(batch_answer(&part)));
        let error = transact(&stub).await;
        assert_eq!(
            (error.class, error.index, error.code.as_deref()),
            (class, Some(1), Some(code))
        );
    }
}

#[tokio::test]
async fn a_transaction_with_a_truncated_answer_is_ambiguous() {
    let body = batch_answer("HTTP/1.1 204 No Content\r\nETag: W/\"1\"\r\n\r\n");
    assert_eq!(
        transact(&Stub::always(
            Reply::status(202).like_azure().body(body.clone())
        ))
        .await
        .class,
        ErrorClass::Ambiguous
    );
    assert_eq!(
        transact(&Stub::always(
            Reply::status(202)
                .like_azure()
                .body(&body.as_bytes()[..150])
        ))
        .await
        .class,
        ErrorClass::Ambiguous
    );
    assert_eq!(
        transact(&Stub::always(
            Reply::status(202).like_azure().body(body).cut_after(150)
        ))
        .await
        .class,
        ErrorClass::Ambiguous
    );
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let stub = Stub::always(
        Reply::status(200)
            .header("Content-Length", "1099511627776")
            .body(vec![b' '; (64 << 20) + 1])
            .cut_after(usize::MAX),
    );
    assert_eq!(read(&stub).await.class, ErrorClass::Permanent);
}

#[tokio::test]
async fn answers_of_the_services_tell_how_far_their_clocks_are_apart() {
    let row = r#"{"odata.metadata":"x","odata.etag":"W/\"1\"","PartitionKey":"p","RowKey":"r"}"#;
    for (id, apart) in [
        (Some("7d6eb5c1-0002-0000-0000-000000000000"), 40),
        (None, 0),
    ] {
        let stub = Stub::start(move |request| {
            let (seconds, answer) = if request.target.contains("/messages") {
                (40, Reply::status(204))
            } else {
                (0, Reply::status(200).header("ETag", "W/\"1\"").body(row))
            };
            let answer = answer.header("Date", format!("Fri, 20 Nov 2026 15:00:{seconds:02} GMT"));
            // An answer without the service's request id comes from a proxy or gateway.
            match id {
                Some(id) => answer.header("x-ms-request-id", id).into(),
                None => answer.into(),
            }
        });
        let account = connect(&stub);
        let found = account
            .tables
            .get(&table(), &EntityKey::new("p", "r").unwrap(), None)
            .await;
        let deleted = account.queues.delete(&queue(), "id", "receipt").await;
        assert_eq!(
            (found.is_ok(), deleted.is_ok()),
            (id.is_some(), id.is_some())
        );
        let told = ClockSkew::between(&account.clocks, &account.clocks);
        let apart = jiff::SignedDuration::from_secs(apart);
        assert!(told.least <= apart && apart <= told.most, "{told:?}");
        assert_eq!(told == ClockSkew::NOT, id.is_none(), "{told:?}");
    }
}
