//! What an account reports about itself (`evenkeel_azure::account_facts`).

use evenkeel_storage::AccountFacts;

use super::*;

async fn told(stub: &Stub) -> Option<AccountFacts> {
    evenkeel_azure::account_facts(
        &Ports::same(stub.port()).settings(),
        jiff::Timestamp::UNIX_EPOCH,
    )
    .await
}

#[tokio::test]
async fn kind_and_replication_are_asked_for_once_by_a_signed_read() {
    let stub = Stub::start(|_| {
        Reply::status(200)
            .header("x-ms-account-kind", "BlockBlobStorage")
            .header("x-ms-sku-name", "Premium_ZRS")
            .like_azure()
            .into()
    });
    assert_eq!(
        told(&stub).await.unwrap(),
        AccountFacts {
            kind: "BlockBlobStorage".to_owned(),
            sku: "Premium_ZRS".to_owned()
        }
    );
    let requests = stub.requests();
    let [request] = &requests[..] else {
        panic!("{requests:?}")
    };
    assert_eq!(
        (request.method.as_str(), request.target.as_str()),
        ("GET", "/devstoreaccount1?restype=account&comp=properties")
    );
    assert!(
        request
            .header("authorization")
            .unwrap()
            .starts_with("SharedKey devstoreaccount1:")
    );
    assert_eq!(
        request.header("x-ms-date"),
        Some("Thu, 01 Jan 1970 00:00:00 GMT")
    );
}

#[tokio::test]
async fn an_account_that_keeps_them_to_itself_is_asked_no_second_time() {
    let refusing = Stub::start(|_| {
        Reply::status(403)
            .header("x-ms-error-code", "AuthorizationPermissionMismatch")
            .like_azure()
            .into()
    });
    assert_eq!(told(&refusing).await, None);
    assert_eq!(refusing.requests().len(), 1);
    for stub in [
        Stub::start(|_| Reply::status(200).like_azure().into()),
        Stub::start(|_| Reply::Reset),
    ] {
        assert_eq!(told(&stub).await, None);
    }
}
