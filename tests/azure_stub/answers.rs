//! Answers that say yes, or seem to.

use super::*;

const ETAG: &str = "W/\"datetime'2026-11-20T15%3A00%3A00.1234567Z'\"";

#[tokio::test]
async fn a_success_is_one_though_it_lacks_what_nobody_needs() {
    // No Server, no Date, no request id, no preference-applied: the client library calls that an error.
    let stub = Stub::always(Reply::status(204).header("ETag", ETAG));
    assert_eq!(connect(&stub).tables.apply(&table(), &insert()).await.unwrap().unwrap().as_str(), ETAG);
}

#[tokio::test]
async fn a_success_without_an_etag_is_in_doubt() {
    assert_eq!(write(&Stub::always(Reply::status(204)), insert()).await.class, ErrorClass::Ambiguous);
}

#[tokio::test]
async fn a_row_that_is_cut_off_may_be_whole_the_next_time() {
    let body = r#"{"odata.metadata":"x","odata.etag":"W/\"1\"","PartitionKey":"p","RowKey":"r","Name":"x"}"#;
    let row = Reply::status(200).header("ETag", "W/\"1\"").body(body);
    assert_eq!(read(&Stub::always(row.clone().cut_after(30))).await.class, TRANSIENT);
    assert_eq!(read(&Stub::always(Reply::status(200).header("ETag", "W/\"1\"").body(&body[..30]))).await.class, TRANSIENT);
    let found = connect(&Stub::always(row)).tables.get(&table(), &EntityKey::new("p", "r").unwrap(), None).await.unwrap().unwrap();
    assert_eq!(found.entity, entity("p", "r"));
}

#[tokio::test]
async fn a_row_that_nobody_can_read_stays_so() {
    let body = r#"{"odata.metadata":"x","odata.etag":"W/\"1\"","PartitionKey":"p","RowKey":"r","X@odata.type":"Edm.Hologram","X":"?"}"#;
    let error = read(&Stub::always(Reply::status(200).body(body))).await;
    assert_eq!(error.class, ErrorClass::Permanent);
    assert!(everything(&error).contains("Edm.Hologram"));
}

#[tokio::test]
async fn a_page_may_be_empty_and_go_on() {
    let stub = Stub::start(|request| {
        let page = Reply::status(200).body(r#"{"odata.metadata":"x","value":[]}"#);
        match request.number {
            // Azure leaves the row key out where the page ends between two partitions.
            0 => page.header("x-ms-continuation-NextPartitionKey", "1!8!cA--").into(),
            1 => page.header("x-ms-continuation-NextPartitionKey", "1!8!cQ--").header("x-ms-continuation-NextRowKey", "1!8!cg--").into(),
            _ => page.into(),
        }
    });
    let tables = connect(&stub).tables;
    let mut query = Query { top: Some(5), select: Some(vec!["Name".into()]), ..Query::default() };
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
    let targets: Vec<_> = stub.requests().into_iter().map(|request| request.target).collect();
    assert!(targets.iter().all(|target| target.contains("%24top=5") && target.contains("%24select=")), "{targets:?}");
    assert!(targets[1].contains("NextPartitionKey=1%218%21cA--") && !targets[1].contains("NextRowKey"), "{targets:?}");
    assert!(targets[2].contains("NextRowKey=1%218%21cg--"), "{targets:?}");
}

fn batch_answer(part: &str) -> String {
    format!(
        "--batchresponse_1\r\nContent-Type: multipart/mixed; boundary=changesetresponse_2\r\n\r\n--changesetresponse_2\r\n\
         Content-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n{part}\r\n--changesetresponse_2--\r\n--batchresponse_1--\r\n"
    )
}

async fn transact(stub: &Stub) -> StoreError {
    let operations = [TableOperation::Insert(entity("p", "a")), replace(), TableOperation::Insert(entity("p", "b"))];
    connect(stub).tables.transact(&table(), &Key::new("p").unwrap(), &operations).await.unwrap_err()
}

#[tokio::test]
async fn a_failed_transaction_names_its_operation() {
    let value = |code: &str| odata(code).replace("Words.", "1:Words.");
    for (status, code, class) in [
        ("409 Conflict", "EntityAlreadyExists", ErrorClass::Conflict),
        ("412 Precondition Failed", "UpdateConditionNotSatisfied", ErrorClass::Precondition),
        ("404 Not Found", "ResourceNotFound", ErrorClass::NotFound(Missing::Item)),
        ("404 Not Found", "TableNotFound", ErrorClass::NotFound(Missing::Container)),
        ("503 Service Unavailable", "ServerBusy", ErrorClass::Throttled { retry_after: None }),
        ("500 Internal Server Error", "OperationTimedOut", ErrorClass::Ambiguous),
    ] {
        let part = format!("HTTP/1.1 {status}\r\nContent-Type: application/json;odata=minimalmetadata\r\n\r\n{}", value(code));
        let stub = Stub::always(Reply::status(202).like_azure().body(batch_answer(&part)));
        let error = transact(&stub).await;
        assert_eq!((error.class, error.index, error.code.as_deref()), (class, Some(1), Some(code)));
    }
}

#[tokio::test]
async fn a_transaction_whose_answer_is_cut_off_is_in_doubt() {
    let body = batch_answer("HTTP/1.1 204 No Content\r\nETag: W/\"1\"\r\n\r\n");
    assert_eq!(transact(&Stub::always(Reply::status(202).body(body.clone()))).await.class, ErrorClass::Ambiguous);
    assert_eq!(transact(&Stub::always(Reply::status(202).body(&body.as_bytes()[..150]))).await.class, ErrorClass::Ambiguous);
    assert_eq!(transact(&Stub::always(Reply::status(202).body(body).cut_after(150))).await.class, ErrorClass::Ambiguous);
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_its_end() {
    let stub =
        Stub::always(Reply::status(200).header("Content-Length", "1099511627776").body(vec![b' '; (64 << 20) + 1]).cut_after(usize::MAX));
    assert_eq!(read(&stub).await.class, ErrorClass::Permanent);
}

#[tokio::test]
async fn answers_of_the_services_tell_how_far_their_clocks_are_apart() {
    let row = r#"{"odata.metadata":"x","odata.etag":"W/\"1\"","PartitionKey":"p","RowKey":"r"}"#;
    for (id, apart) in [(Some("7d6eb5c1-0002-0000-0000-000000000000"), 40), (None, 0)] {
        let stub = Stub::start(move |request| {
            let (seconds, answer) = if request.target.contains("/messages") {
                (40, Reply::status(204))
            } else {
                (0, Reply::status(200).header("ETag", "W/\"1\"").body(row))
            };
            let answer = answer.header("Date", format!("Fri, 20 Nov 2026 15:00:{seconds:02} GMT"));
            // Without the service's name for the request it is the answer of something in between.
            match id {
                Some(id) => answer.header("x-ms-request-id", id).into(),
                None => answer.into(),
            }
        });
        let account = connect(&stub);
        account.tables.get(&table(), &EntityKey::new("p", "r").unwrap(), None).await.unwrap();
        account.queues.delete(&queue(), "id", "receipt").await.unwrap();
        let told = ClocksApart::between(&account.clocks, &account.clocks);
        let apart = jiff::SignedDuration::from_secs(apart);
        assert!(told.least <= apart && apart <= told.most, "{told:?}");
        assert_eq!(told == ClocksApart::NOT, id.is_none(), "{told:?}");
    }
}
