//! Secrets that the service refuses, and their alternates.

use evenkeel::settings::{AzureAuth, ConfiguredSecret, Endpoints, SecretPair};

use super::*;

const FIRST: &str = "Zmlyc3Qta2V5";
const SECOND: &str = "c2Vjb25kLWtleQ==";

fn pair(first: &str, second: &str) -> SecretPair {
    SecretPair {
        first: ConfiguredSecret::fixed("key", SecretString::from(first)),
        second: Some(Box::new(ConfiguredSecret::fixed("second_key", SecretString::from(second)))),
    }
}

fn endpoints(stub: &Stub) -> Endpoints {
    let endpoint = Some(format!("http://127.0.0.1:{}/account", stub.port()));
    Endpoints { table: endpoint.clone(), queue: endpoint.clone(), blob: endpoint }
}

fn by_keys(stub: &Stub) -> Account {
    let auth = AzureAuth::Key { account: "account".to_owned(), key: pair(FIRST, SECOND), endpoints: endpoints(stub) };
    azure::connect(&AzureAccount::of(AccountName::main(), &auth).unwrap()).unwrap()
}

/// By the signatures `old` and `new`.
fn by_signatures(stub: &Stub) -> Account {
    let token = pair("sv=2022-11-02&sig=old", "sv=2022-11-02&sig=new");
    let auth = AzureAuth::Sas { account: "account".to_owned(), token, endpoints: endpoints(stub) };
    azure::connect(&AzureAccount::of(AccountName::main(), &auth).unwrap()).unwrap()
}

/// The signatures in the addresses of all requests.
fn shown(stub: &Stub) -> Vec<&'static str> {
    stub.requests().iter().map(|request| if request.target.contains("sig=new") { "new" } else { "old" }).collect()
}

/// The signatures of all requests, each of which has one.
fn signatures(stub: &Stub) -> Vec<String> {
    stub.requests().iter().map(|request| request.header("authorization").unwrap().to_owned()).collect()
}

/// Refuses the first request in this way, and knows no entity.
fn refusing_once(refusal: impl Fn() -> Reply + Send + Sync + 'static) -> Stub {
    Stub::start(move |request| match request.number {
        0 => refusal(),
        _ => Reply::status(404).header("x-ms-error-code", "ResourceNotFound").like_azure().into(),
    })
}

async fn find(account: &Account) -> Result<(), StoreError> {
    account.tables.get(&table(), &EntityKey::new("p", "r").unwrap(), None).await.map(|row| assert!(row.is_none()))
}

#[tokio::test]
async fn a_refused_key_gives_way_to_the_second_one_which_stays_in_use() {
    let code = |code: &'static str| move || Reply::status(403).header("x-ms-error-code", code).into();
    let stubs = [
        refusing_once(|| Reply::status(403).body(odata("AuthenticationFailed")).like_azure().into()),
        refusing_once(|| Reply::status(403).body(xml("AuthenticationFailed")).like_azure().into()),
        refusing_once(code("AuthenticationFailed")),
        refusing_once(code("AuthorizationFailure")),
        refusing_once(|| Reply::status(401).into()),
    ];
    for stub in stubs {
        let account = by_keys(&stub);
        find(&account).await.unwrap();
        find(&account).await.unwrap();
        let sent = signatures(&stub);
        assert_eq!(sent.len(), 3, "the second key is kept");
        assert_ne!(sent[0], sent[1]);
        let requests = stub.requests();
        assert_eq!(requests[0].target, requests[1].target);
        assert_eq!(requests[0].header("x-ms-date"), requests[1].header("x-ms-date"));
    }
}

#[tokio::test]
async fn a_service_that_is_too_busy_to_look_and_a_gateway_in_its_place_have_accepted_no_key() {
    // 404: while a route is missing. 200: a captive portal.
    for status in [503, 404, 200] {
        let stub = Stub::start(move |request| match request.number {
            0 => Reply::status(403).header("x-ms-error-code", "AuthenticationFailed").into(),
            1 => Reply::status(status).into(),
            _ => Reply::status(404).header("x-ms-error-code", "ResourceNotFound").like_azure().into(),
        });
        let account = by_signatures(&stub);
        assert_eq!(find(&account).await.unwrap_err().status, Some(status));
        find(&account).await.unwrap();
        assert_eq!(shown(&stub), ["old", "new", "old"], "{status}");
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_no_reason_for_another_key() {
    for code in ["AuthorizationPermissionMismatch", "KeyBasedAuthenticationNotPermitted"] {
        let stub = Stub::always(Reply::status(403).header("x-ms-error-code", code));
        assert_eq!(find(&by_keys(&stub)).await.unwrap_err().class, ErrorClass::Unauthorised);
        assert_eq!(stub.requests().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn two_keys_that_are_refused_are_a_refusal_as_ever_and_the_first_stays_in_use() {
    let stub = Stub::always(Reply::status(403).header("x-ms-error-code", "AuthenticationFailed"));
    let account = by_keys(&stub);
    for _ in 0..2 {
        let error = find(&account).await.unwrap_err();
        assert_eq!((error.class, error.status), (ErrorClass::Unauthorised, Some(403)));
        let text = everything(&error);
        assert!(![FIRST, SECOND].iter().any(|key| text.contains(key)), "{text}");
    }
    assert_eq!(signatures(&stub).len(), 4);
    let stub = Stub::always(Reply::status(403).header("x-ms-error-code", "AuthenticationFailed"));
    let account = by_signatures(&stub);
    for _ in 0..2 {
        find(&account).await.unwrap_err();
    }
    assert_eq!(shown(&stub), ["old", "new", "old", "new"]);
}

#[tokio::test]
async fn an_answer_that_is_lost_after_a_refusal_leaves_a_write_in_doubt() {
    let stub = Stub::start(|request| match request.number {
        0 => Reply::status(403).header("x-ms-error-code", "AuthenticationFailed").into(),
        _ => Reply::Reset,
    });
    let error = by_keys(&stub).tables.apply(&table(), &insert()).await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Ambiguous);
}

#[tokio::test]
async fn a_refused_signature_gives_way_to_the_second_one_for_a_copy_and_its_source() {
    let stub = Stub::start(|request| {
        if request.target.contains("sig=new") {
            Reply::status(202).like_azure().header("ETag", "\"1\"").header("x-ms-copy-status", "success").into()
        } else {
            Reply::status(403).header("x-ms-error-code", "AuthenticationFailed").into()
        }
    });
    let account = by_signatures(&stub);
    let (container, name) = blob();
    account.blobs.copy((&container, &name), (&container, &name), &BlobCopy::default()).await.unwrap();
    let requests = stub.requests();
    assert_eq!(requests.len(), 2);
    assert!(requests[0].header("x-ms-copy-source").unwrap().contains("sig=old"));
    let (target, source) = (&requests[1].target, requests[1].header("x-ms-copy-source").unwrap());
    assert!(!target.contains("sig=old") && source.contains("sig=new") && !source.contains("sig=old"), "{target} {source}");
}

#[tokio::test]
async fn a_second_secret_of_another_account_is_refused_at_the_start() {
    let text = |name: &str| format!("AccountName={name};AccountKey={FIRST}");
    let auth = AzureAuth::ConnectionString(pair(&text("contoso"), &text("fabrikam")));
    let error = AzureAccount::of(AccountName::main(), &auth).unwrap_err().to_string();
    assert!(error.contains("second_key") && error.contains("another account"), "{error}");
    assert!(!format!("{auth:?} {error}").contains(FIRST), "{error}");
}
