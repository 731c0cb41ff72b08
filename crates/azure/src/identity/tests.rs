//! Identities from the token endpoint to the storage service: a local authority below the identity library, and a storage service
//! that checks the token of every request.

#[allow(
    dead_code,
    unreachable_pub,
    clippy::pedantic,
    reason = "these tests use a part of what several test binaries share"
)]
#[path = "../../../../tests/support/stub.rs"]
mod stub;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aws_lc_rs::signature::{RSA_PSS_2048_8192_SHA256, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use serde_json::{Value, json};
use stub::{Reply, Stub};

use super::testing::{Authority, SECRET, TestClock, answer, application, by_secret, signed_in};
use crate::cloud::STORAGE_SCOPE;
use crate::connect::connect_with;
use crate::http::HttpFault;
use crate::settings::{AzureAccount, EndpointOverrides};
use evenkeel_model::settings::EntraCredential;
use evenkeel_model::{AccountName, BlobName, ContainerName, EntityKey, QueueName, TableName};
use evenkeel_storage::{Account, ErrorClass, StoreError};

struct World {
    account: Account,
    authority: Arc<Authority>,
    clock: Arc<TestClock>,
    storage: Stub,
}

impl World {
    fn of(credentials: Vec<EntraCredential>) -> Self {
        Self::at(credentials, 0)
    }

    /// `wrong_by` is how many seconds the machine's wall clock is ahead.
    fn at(credentials: Vec<EntraCredential>, wrong_by: i64) -> Self {
        let valid: Arc<Mutex<BTreeSet<String>>> = Arc::default();
        let known = Arc::clone(&valid);
        let storage = Stub::start(move |request| match request.header("authorization") {
            Some(token) if known.lock().unwrap().contains(token) => Reply::status(404)
                .header("x-ms-error-code", "ResourceNotFound")
                .like_azure()
                .into(),
            _ => Reply::status(401)
                .header("x-ms-error-code", "InvalidAuthenticationInfo")
                .into(),
        });
        Self::with_storage(credentials, wrong_by, valid, storage)
    }

    fn with_storage(
        credentials: Vec<EntraCredential>,
        wrong_by: i64,
        valid: Arc<Mutex<BTreeSet<String>>>,
        storage: Stub,
    ) -> Self {
        let (identity, authority, tokens) = signed_in(credentials, wrong_by, valid, STORAGE_SCOPE);
        let endpoint = Some(format!("http://127.0.0.1:{}/contoso", storage.port()));
        let overrides = EndpointOverrides {
            table: endpoint.clone(),
            queue: endpoint.clone(),
            blob: endpoint,
            suffix: None,
        };
        let settings =
            AzureAccount::with_identity(AccountName::main(), "contoso", identity, &overrides)
                .unwrap();
        let clock = Arc::clone(&authority.clock);
        Self {
            account: connect_with(&settings, Some(tokens)).unwrap(),
            authority,
            clock,
            storage,
        }
    }

    async fn read(&self) -> Result<(), StoreError> {
        let (table, key) = (
            TableName::new("Employees").unwrap(),
            EntityKey::new("p", "r").unwrap(),
        );
        self.account
            .tables
            .get(&table, &key, None)
            .await
            .map(|row| assert!(row.is_none()))
    }

    fn sent(&self) -> Vec<String> {
        self.storage
            .requests()
            .iter()
            .map(|request| request.header("authorization").unwrap_or("none").to_owned())
            .collect()
    }

    /// Makes the storage service reject all tokens issued so far.
    fn expire(&self) {
        self.authority.valid.lock().unwrap().clear();
    }
}

fn by_machine() -> Vec<EntraCredential> {
    vec![EntraCredential::ManagedIdentity {
        client: Some("c2".to_owned()),
    }]
}

fn everything(error: &StoreError) -> String {
    format!("{error} {error:?}")
}

#[tokio::test]
async fn the_three_services_share_one_token() {
    let world = World::of(by_secret());
    world.read().await.unwrap();
    let _ = world
        .account
        .queues
        .get(&QueueName::new("jobs").unwrap(), 1, Duration::from_secs(30))
        .await;
    let _ = world
        .account
        .blobs
        .properties(
            &ContainerName::new("large").unwrap(),
            &BlobName::new("b").unwrap(),
        )
        .await;
    assert_eq!(world.sent(), ["Bearer token-1"; 3]);
    let received = world.authority.received.lock().unwrap().clone();
    assert_eq!(
        (
            received.len(),
            received[0].host.as_str(),
            received[0].path.as_str()
        ),
        (
            1,
            "login.microsoftonline.com",
            "/contoso.example/oauth2/v2.0/token"
        )
    );
    assert_eq!(
        (
            world.authority.field("client_id").as_str(),
            world.authority.field("client_secret").as_str()
        ),
        ("c1", SECRET)
    );
    assert_eq!(world.authority.field("scope"), STORAGE_SCOPE);
}

#[tokio::test]
async fn a_hundred_requests_wait_for_one_token() {
    let world = World::of(by_secret());
    let all = futures::future::join_all((0..100).map(|_| world.read())).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(world.authority.requests(), 1);
}

#[tokio::test]
async fn an_expired_token_is_replaced_and_the_request_sent_again() {
    let world = World::of(by_secret());
    world.read().await.unwrap();
    world.clock.pass(Duration::from_mins(1));
    world.expire();
    world.read().await.unwrap();
    assert_eq!(
        world.sent(),
        ["Bearer token-1", "Bearer token-1", "Bearer token-2"]
    );
}

#[tokio::test]
async fn a_clock_that_is_five_minutes_wrong_does_no_harm() {
    for wrong_by in [-300, 300, 86_400] {
        let world = World::at(by_machine(), wrong_by);
        world.read().await.unwrap();
        // The token has expired by the clock of the service, whatever this machine's clock shows.
        world.clock.pass(Duration::from_hours(1));
        world.expire();
        world.read().await.unwrap();
        assert_eq!(world.authority.requests(), 2, "{wrong_by}");
        assert_eq!(
            (
                world.authority.field("client_id").as_str(),
                world.authority.field("resource").as_str()
            ),
            ("c2", "https://storage.azure.com")
        );
    }
}

#[tokio::test]
async fn a_token_of_a_wrong_tenant_does_not_cause_repeated_token_requests() {
    let refuse =
        Stub::always(Reply::status(401).header("x-ms-error-code", "InvalidAuthenticationInfo"));
    let world = World::with_storage(by_secret(), 0, Arc::default(), refuse);
    for _ in 0..20 {
        let error = world.read().await.unwrap_err();
        assert_eq!(error.class, ErrorClass::Unauthorised);
        assert!(
            error
                .message
                .starts_with("the storage account contoso rejected the token."),
            "{error}"
        );
    }
    assert_eq!(world.authority.requests(), 1);
}

#[tokio::test]
async fn a_missing_role_is_named_with_the_account() {
    let refuse = Stub::always(
        Reply::status(403).header("x-ms-error-code", "AuthorizationPermissionMismatch"),
    );
    let world = World::with_storage(by_secret(), 0, Arc::default(), refuse);
    let table = world.read().await.unwrap_err();
    let queue = world
        .account
        .queues
        .get(&QueueName::new("jobs").unwrap(), 1, Duration::from_secs(30))
        .await
        .unwrap_err();
    let blob = world
        .account
        .blobs
        .get(
            &ContainerName::new("large").unwrap(),
            &BlobName::new("b").unwrap(),
            None,
        )
        .await
        .unwrap_err();
    for (error, role) in [
        (table, "Storage Table Data Contributor"),
        (queue, "Storage Queue Data Contributor"),
        (blob, "Storage Blob Data Contributor"),
    ] {
        assert_eq!(error.class, ErrorClass::Unauthorised);
        assert!(
            error.message.contains(&format!(
                "the identity needs the role \"{role}\" on the storage account contoso"
            )),
            "{error}"
        );
    }
}

#[tokio::test]
async fn an_unavailable_authority_is_named_and_requested_again_later() {
    let world = World::of(by_secret());
    world.authority.refuse(Some(Err(HttpFault::Refused(
        "no connection: connection refused".to_owned(),
    ))));
    for _ in 0..10 {
        let error = world.read().await.unwrap_err();
        assert!(error.class.is_transient());
        assert_eq!(
            &*error.message,
            "no token from client secret (client c1 in tenant contoso.example): login.microsoftonline.com: no connection: connection refused"
        );
    }
    assert_eq!(
        (world.authority.requests(), world.sent().len()),
        (1, 0),
        "neither the authority nor the service gets useless requests"
    );
    world.authority.refuse(None);
    world.clock.pass(Duration::from_secs(2));
    world.read().await.unwrap();
}

#[tokio::test]
async fn a_refusal_by_the_authority_names_its_code_and_no_secret() {
    let world = World::of(by_secret());
    let body = json!({"error": "invalid_client", "error_codes": [7_000_215], "error_description": "AADSTS7000215: Invalid client secret provided. Trace ID: 1"});
    world.authority.refuse(Some(Ok(answer(401, &body))));
    let error = world.read().await.unwrap_err();
    assert_eq!(error.class, ErrorClass::Unauthorised);
    assert!(
        error.message.ends_with(
            "login.microsoftonline.com answered 401: AADSTS7000215: Invalid client secret provided."
        ),
        "{error}"
    );
    assert!(!everything(&error).contains(SECRET));
}

#[tokio::test]
async fn a_failed_renewal_fails_nothing_while_the_token_is_valid() {
    let world = World::of(by_secret());
    world.read().await.unwrap();
    world.authority.refuse(Some(Ok(answer(503, &json!({})))));
    for _ in 0..59 {
        world.read().await.unwrap();
        world.clock.pass(Duration::from_mins(1));
    }
    world.clock.pass(Duration::from_mins(2));
    assert!(world.read().await.unwrap_err().class.is_transient());
}

#[tokio::test]
async fn a_rotated_federated_token_is_used_at_the_next_request_for_a_token() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "first").unwrap();
    let world = World::of(vec![EntraCredential::WorkloadIdentity {
        application: application(),
        token: file.path().to_owned(),
    }]);
    world.read().await.unwrap();
    assert_eq!(world.authority.field("client_assertion"), "first");
    std::fs::write(file.path(), "second").unwrap();
    world.clock.pass(Duration::from_mins(61));
    world.read().await.unwrap();
    assert_eq!(world.authority.field("client_assertion"), "second");
    std::fs::remove_file(file.path()).unwrap();
    world.clock.pass(Duration::from_mins(61));
    let error = world.read().await.unwrap_err();
    assert!(
        error
            .message
            .contains("workload identity (client c1 in tenant contoso.example): ")
            && error.message.contains("failed to read"),
        "{error}"
    );
}

#[tokio::test]
async fn a_certificate_signs_an_assertion_that_its_public_key_verifies() {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap();
    let certificate = rcgen::CertificateParams::new(Vec::new())
        .unwrap()
        .self_signed(&key)
        .unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        format!("{}{}", key.serialize_pem(), certificate.pem()),
    )
    .unwrap();
    let by = |certificate: &Path| {
        vec![EntraCredential::ClientCertificate {
            application: application(),
            certificate: certificate.to_owned(),
        }]
    };
    let world = World::of(by(file.path()));
    world.read().await.unwrap();
    let assertion = world.authority.field("client_assertion");
    let (signed, signature) = assertion.rsplit_once('.').unwrap();
    let signature = BASE64URL.decode(signature).unwrap();
    UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, key.public_key_raw())
        .verify(signed.as_bytes(), &signature)
        .unwrap();
    let claims: Value =
        serde_json::from_slice(&BASE64URL.decode(signed.split_once('.').unwrap().1).unwrap())
            .unwrap();
    assert_eq!(
        claims["aud"],
        "https://login.microsoftonline.com/contoso.example/oauth2/v2.0/token"
    );
    assert_eq!(
        (claims["iss"].as_str(), claims["exp"].as_i64()),
        (Some("c1"), Some(world.clock.start + 300))
    );

    let error = World::of(by(Path::new("/nonexistent.pem")))
        .read()
        .await
        .unwrap_err();
    assert!(
        error
            .message
            .contains("the file /nonexistent.pem cannot be read"),
        "{error}"
    );
}

#[tokio::test]
async fn credentials_are_tried_in_order_and_the_first_that_works_is_kept() {
    let world = World::of([by_machine(), by_secret()].concat());
    world.authority.refuse(Some(Ok(answer(
        400,
        &json!({"error_description": "Identity not found"}),
    ))));
    let error = world.read().await.unwrap_err();
    let parts = [
        "managed identity (client c2): 169.254.169.254 answered 400: Identity not found; client secret (client c1",
    ];
    assert!(
        parts.iter().all(|part| error.message.contains(part)),
        "{error}"
    );
    world.authority.refuse(None);
    world.clock.pass(Duration::from_mins(1));
    world.read().await.unwrap();
    assert_eq!(
        world
            .authority
            .received
            .lock()
            .unwrap()
            .last()
            .unwrap()
            .host,
        "169.254.169.254"
    );
    world.authority.refuse(Some(Ok(answer(503, &json!({})))));
    world.clock.pass(Duration::from_mins(61));
    let error = world.read().await.unwrap_err();
    assert!(
        !error.message.contains("client secret"),
        "another identity does not replace it: {error}"
    );
}
