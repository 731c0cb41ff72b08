//! Refusals by a service, and by gateways in front of it.

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use evenkeel_engine::retention::{Keeper, TurnTime};
use evenkeel_model::catalog::{Catalog, Retention};
use evenkeel_model::dated::DatedTables;
use evenkeel_model::{CatalogOwner, ViewName};
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Clock as _, Stores};

use super::*;

#[tokio::test]
async fn a_busy_service_says_when_to_come_again() {
    let busy = Stub::always(
        Reply::status(503)
            .like_azure()
            .header("Retry-After", "7")
            .body(odata("ServerBusy")),
    );
    assert_eq!(
        write(&busy, insert()).await.class,
        ErrorClass::Throttled {
            retry_after: Some(Duration::from_secs(7))
        }
    );
    let busy = Stub::always(Reply::status(503).like_azure().body(odata("ServerBusy")));
    let error = write(&busy, insert()).await;
    assert_eq!(
        (error.class, error.status, error.code.as_deref()),
        (
            ErrorClass::Throttled { retry_after: None },
            Some(503),
            Some("ServerBusy")
        )
    );
    let throttled = Stub::always(
        Reply::status(429)
            .header("Retry-After", "Fri, 20 Nov 2026 15:00:09 GMT")
            .header("Date", "Fri, 20 Nov 2026 15:00:00 GMT"),
    );
    assert_eq!(
        read(&throttled).await.class,
        ErrorClass::Throttled {
            retry_after: Some(Duration::from_secs(9))
        }
    );
}

#[tokio::test]
async fn a_refused_request_is_sent_once() {
    let busy = Stub::always(Reply::status(503));
    write(&busy, insert()).await;
    assert_eq!(busy.requests().len(), 1);
}

#[tokio::test]
async fn a_failing_service_makes_writes_ambiguous_but_not_reads() {
    for (status, body) in [
        (500, odata("OperationTimedOut")),
        (500, odata("InternalError")),
        (502, "<html>Bad Gateway".into()),
        (504, String::new()),
        (408, String::new()),
    ] {
        let stub = Stub::always(Reply::status(status).body(body));
        assert_eq!(
            write(&stub, insert()).await.class,
            ErrorClass::Ambiguous,
            "{status}"
        );
        assert_eq!(read(&stub).await.class, TRANSIENT, "{status}");
    }
}

/// Envoy answers like this if it has forwarded the request, and then loses the connection to the service.
#[tokio::test]
async fn a_503_of_a_gateway_makes_writes_ambiguous() {
    let body = "upstream connect error or disconnect/reset before headers. reset reason: connection termination";
    let stub = Stub::always(
        Reply::status(503)
            .header("server", "envoy")
            .header("Retry-After", "7")
            .body(body),
    );
    assert_eq!(write(&stub, insert()).await.class, ErrorClass::Ambiguous);
    assert_eq!(
        read(&stub).await.class,
        ErrorClass::Throttled {
            retry_after: Some(Duration::from_secs(7))
        }
    );
}

/// An ingress answers like this if the route to the service is missing.
#[tokio::test]
async fn a_404_of_a_gateway_does_not_prove_absence() {
    for status in [404, 410] {
        let stub = Stub::always(Reply::status(status).header("server", "envoy"));
        let error = read(&stub).await;
        assert_eq!(error.class, TRANSIENT, "{status}");
        assert!(error.message.contains("gateway"), "{error}");
        assert_eq!(
            write(&stub, replace()).await.class,
            ErrorClass::Ambiguous,
            "{status}"
        );
        let Account {
            tables,
            queues,
            blobs,
            ..
        } = connect(&stub);
        assert_eq!(
            tables
                .query(&table(), &Query::default())
                .await
                .unwrap_err()
                .class,
            TRANSIENT,
            "{status}"
        );
        assert_eq!(
            tables.delete_table(&table()).await.unwrap_err().class,
            ErrorClass::Ambiguous,
            "{status}"
        );
        assert_eq!(
            queues
                .delete(&queue(), "id", "receipt")
                .await
                .unwrap_err()
                .class,
            ErrorClass::Ambiguous,
            "{status}"
        );
        assert_eq!(
            blobs
                .properties(&blob().0, &blob().1)
                .await
                .unwrap_err()
                .class,
            TRANSIENT,
            "{status}"
        );
        assert_eq!(
            blobs
                .delete(&blob().0, &blob().1, None)
                .await
                .unwrap_err()
                .class,
            ErrorClass::Ambiguous,
            "{status}"
        );
    }
}

/// Azure Resource Manager and API gateways use the same error codes as the storage service.
#[tokio::test]
async fn an_error_code_of_a_gateway_is_not_taken_for_one_of_the_service() {
    for (status, code) in [
        (404, "ResourceNotFound"),
        (404, "TableNotFound"),
        (404, "MessageNotFound"),
        (409, "EntityAlreadyExists"),
        (409, "TableBeingDeleted"),
        (412, "UpdateConditionNotSatisfied"),
    ] {
        let stub = Stub::always(
            Reply::status(status)
                .header("x-ms-error-code", code)
                .body(odata(code)),
        );
        for (error, class) in [
            (read(&stub).await, TRANSIENT),
            (write(&stub, replace()).await, ErrorClass::Ambiguous),
        ] {
            assert_eq!(
                (error.class, error.status, error.code.as_deref()),
                (class, Some(status), None),
                "{code}"
            );
            assert!(
                error.message.starts_with(&format!(
                    "a proxy or gateway answered {status} instead of the service"
                )),
                "{error}"
            );
        }
        let Account {
            tables,
            queues,
            blobs,
            ..
        } = connect(&stub);
        assert_eq!(
            tables.delete_table(&table()).await.unwrap_err().class,
            ErrorClass::Ambiguous,
            "{code}"
        );
        assert_eq!(
            queues
                .delete(&queue(), "id", "receipt")
                .await
                .unwrap_err()
                .class,
            ErrorClass::Ambiguous,
            "{code}"
        );
        assert_eq!(
            blobs.create_container(&blob().0).await.unwrap_err().class,
            ErrorClass::Ambiguous,
            "{code}"
        );
    }
    let stub = Stub::always(Reply::status(503).body(odata("ServerBusy")));
    assert_eq!(write(&stub, insert()).await.class, ErrorClass::Ambiguous);
}

#[tokio::test]
async fn a_table_that_is_being_deleted_keeps_its_name_for_a_while() {
    let stub = Stub::always(
        Reply::status(409)
            .like_azure()
            .body(odata("TableBeingDeleted")),
    );
    let account = connect(&stub);
    let wait = ErrorClass::Transient {
        retry_after: Some(Duration::from_secs(40)),
    };
    assert_eq!(
        account
            .tables
            .create_table(&table())
            .await
            .unwrap_err()
            .class,
        wait
    );
    assert!(!account.tables.delete_table(&table()).await.unwrap());
    for code in ["QueueBeingDeleted", "ContainerBeingDeleted"] {
        let stub = Stub::always(
            Reply::status(409)
                .like_azure()
                .header("x-ms-error-code", code)
                .body(xml(code)),
        );
        let account = connect(&stub);
        assert_eq!(
            account
                .queues
                .create_queue(&queue())
                .await
                .unwrap_err()
                .class,
            wait
        );
        assert_eq!(
            account
                .blobs
                .create_container(&blob().0)
                .await
                .unwrap_err()
                .class,
            wait
        );
    }
}

/// Today's table was just deleted by hand. Azure does not free the name for a while, and only the retention pass tries again.
#[tokio::test]
async fn a_table_by_date_whose_name_is_still_being_deleted_is_created_when_it_is_free() {
    let clock = Arc::new(SystemClock::new());
    let tables = DatedTables::parse("Logins%Y%m%d").unwrap();
    let today = tables.name_at(clock.now()).to_string();
    let refused = Arc::new(AtomicU32::new(2));
    let (name, left) = (today.clone(), Arc::clone(&refused));
    let stub = Stub::start(move |request| match request.method.as_str() {
        "GET" => Reply::status(200)
            .like_azure()
            .header("Content-Type", "application/json")
            .body(r#"{"value":[]}"#)
            .into(),
        _ if request.text().contains(&name)
            && left
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok() =>
        {
            Reply::status(409)
                .like_azure()
                .body(odata("TableBeingDeleted"))
                .into()
        }
        _ => Reply::status(204).like_azure().into(),
    });
    let name = ViewName::new("logins").unwrap();
    let (account, keep) = (AccountName::main(), Duration::from_hours(24));
    let retention = Retention {
        name: name.clone(),
        account,
        tables,
        keep,
        ahead: 1,
        archive_to: None,
    };
    let catalog = Catalog {
        retentions: [(name, Arc::new(retention))].into(),
        ..Catalog::default()
    };
    let stores = Stores::new([(AccountName::main(), connect(&stub))].into());
    let keeper = Keeper::new(&catalog, stores, clock, &[], CatalogOwner::default());
    for _ in 0..2 {
        let waits = keeper.tend(TurnTime::Due).await.unwrap_err();
        assert_eq!(
            waits.slow_subject_wait(),
            Some(Duration::from_secs(40)),
            "{waits}"
        );
    }
    keeper.tend(TurnTime::Due).await.unwrap();
    let asked = |text: &str| {
        stub.requests()
            .iter()
            .filter(|request| request.method == "POST" && request.text().contains(text))
            .count()
    };
    assert_eq!((asked(&today), refused.load(SeqCst)), (3, 0));
    assert_eq!(
        asked("Logins"),
        6,
        "the table of the next day must be created"
    );
}

#[tokio::test]
async fn codes_of_live_tables_are_read_from_the_body() {
    let answer =
        |status, code: &str| Stub::always(Reply::status(status).like_azure().body(odata(code)));
    let stub = answer(404, "TableNotFound");
    assert_eq!(
        read(&stub).await.class,
        ErrorClass::NotFound(Missing::Container)
    );
    assert_eq!(
        write(&stub, replace()).await.class,
        ErrorClass::NotFound(Missing::Container)
    );
    let stub = answer(404, "ResourceNotFound");
    let account = connect(&stub);
    assert_eq!(
        account
            .tables
            .get(&table(), &EntityKey::new("p", "r").unwrap(), None)
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        write(&stub, replace()).await.class,
        ErrorClass::NotFound(Missing::Item)
    );
    assert!(!account.tables.delete_table(&table()).await.unwrap());
    assert_eq!(
        write(&answer(409, "EntityAlreadyExists"), insert())
            .await
            .class,
        ErrorClass::Conflict
    );
    assert_eq!(
        write(&answer(412, "UpdateConditionNotSatisfied"), replace())
            .await
            .class,
        ErrorClass::Precondition
    );
    assert!(
        !connect(&answer(409, "TableAlreadyExists"))
            .tables
            .create_table(&table())
            .await
            .unwrap()
    );
}

#[tokio::test]
async fn statuses_say_enough_where_no_code_comes() {
    for (status, class) in [
        (304, ErrorClass::Precondition),
        (409, ErrorClass::Conflict),
        (412, ErrorClass::Precondition),
    ] {
        let error = write(&Stub::always(Reply::status(status).like_azure()), replace()).await;
        assert_eq!(
            (error.class, error.status),
            (class, Some(status)),
            "{status}"
        );
    }
    for (status, class) in [
        (413, ErrorClass::TooLarge),
        // A gateway may answer like this after it has forwarded the request, or instead of the service.
        (304, ErrorClass::Ambiguous),
        (404, ErrorClass::Ambiguous),
        (408, ErrorClass::Ambiguous),
        (409, ErrorClass::Ambiguous),
        (410, ErrorClass::Ambiguous),
        (412, ErrorClass::Ambiguous),
        (400, ErrorClass::Permanent),
        (401, ErrorClass::Unauthorised),
        (403, ErrorClass::Unauthorised),
        (501, ErrorClass::Permanent),
        (505, ErrorClass::Permanent),
        (419, ErrorClass::Permanent),
        (449, TRANSIENT),
        (599, ErrorClass::Ambiguous),
        (777, ErrorClass::Permanent),
    ] {
        let error = write(&Stub::always(Reply::status(status)), replace()).await;
        assert_eq!(
            (error.class, error.status),
            (class, Some(status)),
            "{status}"
        );
        let unheard = class == ErrorClass::Ambiguous || class == TRANSIENT;
        assert_eq!(error.message.contains("gateway"), unheard, "{error}");
    }
}

#[tokio::test]
async fn redirections_are_not_followed() {
    let stub = Stub::always(Reply::status(302).header("Location", "http://127.0.0.1:1/elsewhere"));
    let error = write(&stub, insert()).await;
    assert_eq!(error.class, ErrorClass::Permanent);
    assert!(error.message.contains("redirect"), "{error}");
    assert_eq!(stub.requests().len(), 1);
}

#[tokio::test]
async fn refused_credentials_come_with_advice() {
    let stub = Stub::always(Reply::status(403).body(odata("AuthenticationFailed")));
    let error = write(&stub, insert()).await;
    assert_eq!(error.class, ErrorClass::Unauthorised);
    assert!(
        error.message.contains("clock") && error.message.contains("key"),
        "{error}"
    );
}

#[tokio::test]
async fn what_was_disabled_is_told_in_the_service_s_words() {
    let refused = |body: String| async move {
        let stub = Stub::always(
            Reply::status(409)
                .like_azure()
                .header("x-ms-error-code", "QueueDisabled")
                .body(body),
        );
        let error = connect(&stub).queues.peek(&queue(), 1).await.unwrap_err();
        assert_eq!(
            (error.class, error.code.as_deref()),
            (ErrorClass::Unauthorised, Some("QueueDisabled"))
        );
        error.message
    };
    assert_eq!(&*refused(xml("QueueDisabled")).await, "Words.");
    assert!(
        refused(String::new()).await.contains("disabled"),
        "nothing is wrong with the credentials"
    );
}

#[tokio::test]
async fn a_lost_lease_has_two_codes() {
    for (status, code) in [(400, "PopReceiptMismatch"), (404, "MessageNotFound")] {
        let stub = Stub::always(
            Reply::status(status)
                .like_azure()
                .header("x-ms-error-code", code)
                .body(xml(code)),
        );
        let queues = connect(&stub).queues;
        let id = "7d6eb5c1-0002-0000-0000-000000000000";
        assert_eq!(
            queues
                .delete(&queue(), id, "receipt")
                .await
                .unwrap_err()
                .class,
            ErrorClass::LeaseLost
        );
        assert_eq!(
            queues
                .update(&queue(), id, "receipt", "x", MINUTE)
                .await
                .unwrap_err()
                .class,
            ErrorClass::LeaseLost
        );
    }
}
