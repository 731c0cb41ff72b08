//! The service refuses a secret after the secret's file has changed.

use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use evenkeel_azure::keyring::Keyring;
use evenkeel_model::settings::{AzureAuth, ConfiguredSecret, Endpoints, SecretFile};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::*;

const FIRST: &str = "Zmlyc3Qta2V5";
const SECOND: &str = "c2Vjb25kLWtleQ==";

fn endpoints(stub: &Stub) -> Endpoints {
    let endpoint = Some(format!("http://127.0.0.1:{}/account", stub.port()));
    Endpoints {
        table: endpoint.clone(),
        queue: endpoint.clone(),
        blob: endpoint,
    }
}

fn read(path: &Path) -> Result<SecretString, String> {
    fs::read_to_string(path)
        .map(SecretString::from)
        .map_err(|_| "the file cannot be read".to_owned())
}

fn in_file(folder: &TempDir, text: &str) -> ConfiguredSecret {
    let path = folder.path().join("secret");
    fs::write(&path, text).unwrap();
    ConfiguredSecret {
        text: text.into(),
        setting: "key_file",
        file: Some(SecretFile { path, read }),
    }
}

fn by_key(stub: &Stub, key: ConfiguredSecret) -> AzureAuth {
    AzureAuth::Key {
        account: "account".to_owned(),
        key,
        endpoints: endpoints(stub),
    }
}

fn by_signature(stub: &Stub, token: ConfiguredSecret) -> AzureAuth {
    AzureAuth::Sas {
        account: "account".to_owned(),
        token,
        endpoints: endpoints(stub),
    }
}

/// An account whose secret the service refuses once, after another secret was written to the secret's file.
struct RotatedSecret {
    stub: Stub,
    account: Account,
    _folder: TempDir,
}

impl RotatedSecret {
    fn new(
        (before, after): (&str, &'static str),
        auth: impl Fn(&Stub, ConfiguredSecret) -> AzureAuth,
        refusal: impl Fn() -> Reply + Send + Sync + 'static,
        next: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = in_file(&folder, before);
        let file = secret.file.as_ref().unwrap().path.clone();
        let ring: Arc<OnceLock<Arc<Keyring>>> = Arc::default();
        let (runtime, of_account) = (Handle::current(), Arc::clone(&ring));
        let stub = Stub::start(move |request| {
            if request.number > 0 {
                return next(request);
            }
            fs::write(&file, after).unwrap();
            runtime.block_on(of_account.get().unwrap().read_again());
            refusal()
        });
        let azure = AzureAccount::of(AccountName::main(), &auth(&stub, secret)).unwrap();
        assert!(ring.set(azure.keyring().unwrap()).is_ok());
        Self {
            account: evenkeel_azure::connect(&azure).unwrap(),
            stub,
            _folder: folder,
        }
    }

    fn key(refusal: impl Fn() -> Reply + Send + Sync + 'static) -> Self {
        let absent = |_: &Request| {
            Reply::status(404)
                .header("x-ms-error-code", "ResourceNotFound")
                .like_azure()
                .into()
        };
        Self::new((FIRST, SECOND), by_key, refusal, absent)
    }
}

async fn find(account: &Account) -> Result<(), StoreError> {
    account
        .tables
        .get(&table(), &EntityKey::new("p", "r").unwrap(), None)
        .await
        .map(|row| assert!(row.is_none()))
}

fn refused() -> Reply {
    Reply::status(403)
        .header("x-ms-error-code", "AuthenticationFailed")
        .into()
}

#[tokio::test]
async fn a_refused_key_gives_way_to_the_one_that_its_file_has_by_now() {
    let code =
        |code: &'static str| move || Reply::status(403).header("x-ms-error-code", code).into();
    let accounts = [
        RotatedSecret::key(|| {
            Reply::status(403)
                .body(odata("AuthenticationFailed"))
                .like_azure()
                .into()
        }),
        RotatedSecret::key(|| {
            Reply::status(403)
                .body(xml("AuthenticationFailed"))
                .like_azure()
                .into()
        }),
        RotatedSecret::key(code("AuthenticationFailed")),
        RotatedSecret::key(code("AuthorizationFailure")),
        RotatedSecret::key(|| Reply::status(401).into()),
    ];
    for RotatedSecret { stub, account, .. } in &accounts {
        find(account).await.unwrap();
        find(account).await.unwrap();
        let requests = stub.requests();
        assert_eq!(requests.len(), 3, "the second key is kept");
        assert_ne!(
            requests[0].header("authorization").unwrap(),
            requests[1].header("authorization").unwrap()
        );
        assert_eq!(requests[0].target, requests[1].target);
        assert_eq!(
            requests[0].header("x-ms-date"),
            requests[1].header("x-ms-date")
        );
    }
}

#[tokio::test]
async fn a_right_that_is_missing_is_no_reason_for_another_key() {
    for code in [
        "AuthorizationPermissionMismatch",
        "KeyBasedAuthenticationNotPermitted",
    ] {
        let rotated =
            RotatedSecret::key(move || Reply::status(403).header("x-ms-error-code", code).into());
        assert_eq!(
            find(&rotated.account).await.unwrap_err().class,
            ErrorClass::Unauthorised
        );
        assert_eq!(rotated.stub.requests().len(), 1, "{code}");
    }
}

#[tokio::test]
async fn a_key_that_is_refused_again_is_a_refusal_as_ever() {
    let rotated = RotatedSecret::new((FIRST, SECOND), by_key, refused, |_| refused());
    for requests in [2, 3] {
        let error = find(&rotated.account).await.unwrap_err();
        assert_eq!(
            (error.class, error.status),
            (ErrorClass::Unauthorised, Some(403))
        );
        let text = everything(&error);
        assert!(
            ![FIRST, SECOND].iter().any(|key| text.contains(key)),
            "{text}"
        );
        assert_eq!(rotated.stub.requests().len(), requests);
    }
}

#[tokio::test]
async fn an_answer_lost_after_a_refusal_makes_a_write_ambiguous() {
    let rotated = RotatedSecret::new((FIRST, SECOND), by_key, refused, |_| Reply::Reset);
    let error = rotated
        .account
        .tables
        .apply(&table(), &insert())
        .await
        .unwrap_err();
    assert_eq!(error.class, ErrorClass::Ambiguous);
}

#[tokio::test]
async fn a_refused_signature_gives_way_to_the_one_of_its_file_for_a_copy_and_its_source() {
    let copied = |_: &Request| {
        Reply::status(202)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("x-ms-copy-status", "success")
            .into()
    };
    let rotated = RotatedSecret::new(
        ("sv=2022-11-02&sig=old", "sv=2022-11-02&sig=new"),
        by_signature,
        refused,
        copied,
    );
    let (container, name) = blob();
    rotated
        .account
        .blobs
        .copy(
            (&container, &name),
            (&container, &name),
            &BlobCopy::default(),
        )
        .await
        .unwrap();
    let requests = rotated.stub.requests();
    assert_eq!(requests.len(), 2);
    assert!(
        requests[0]
            .header("x-ms-copy-source")
            .unwrap()
            .contains("sig=old")
    );
    let (target, source) = (
        &requests[1].target,
        requests[1].header("x-ms-copy-source").unwrap(),
    );
    assert!(
        !target.contains("sig=old") && source.contains("sig=new") && !source.contains("sig=old"),
        "{target} {source}"
    );
}

#[tokio::test]
async fn a_connection_string_of_another_account_is_not_taken_over() {
    let stub = Stub::always(
        Reply::status(404)
            .header("x-ms-error-code", "ResourceNotFound")
            .like_azure(),
    );
    let text = |name: &str| {
        let endpoint = format!("http://127.0.0.1:{}/{name}", stub.port());
        format!(
            "AccountName={name};AccountKey={FIRST};TableEndpoint={endpoint};QueueEndpoint={endpoint};BlobEndpoint={endpoint}"
        )
    };
    let folder = tempfile::tempdir().unwrap();
    let azure = AzureAccount::of(
        AccountName::main(),
        &AzureAuth::ConnectionString(in_file(&folder, &text("contoso"))),
    )
    .unwrap();
    let account = evenkeel_azure::connect(&azure).unwrap();
    fs::write(folder.path().join("secret"), text("fabrikam")).unwrap();
    azure.keyring().unwrap().read_again().await;
    find(&account).await.unwrap();
    assert!(
        stub.requests()[0]
            .header("authorization")
            .unwrap()
            .starts_with("SharedKey contoso:")
    );
}
