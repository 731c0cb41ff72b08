//! Error messages contain no secrets.

use super::*;

const SIGNATURE: &str = "T0pS3cretS1gnature";

/// A service that repeats the request in every part of the answer that the adapter copies into errors.
fn echo(status: u16) -> Stub {
    Stub::start(move |request| {
        let said = format!(
            "{} {} {:?}",
            request.method, request.target, request.headers
        )
        .replace(['<', '>', '&'], " ");
        let body = format!("<Error><Code>Echo</Code><Message>{said}</Message></Error>");
        Reply::status(status)
            .header(
                "x-ms-error-code",
                said.chars()
                    .filter(char::is_ascii_graphic)
                    .collect::<String>(),
            )
            .body(body)
            .into()
    })
}

async fn errors(account: Account) -> Vec<StoreError> {
    let (container, name) = blob();
    vec![
        account.tables.apply(&table(), &insert()).await.unwrap_err(),
        account
            .tables
            .query(&table(), &Query::default())
            .await
            .unwrap_err(),
        account
            .queues
            .put(&queue(), "x", Duration::ZERO, Ttl::Never)
            .await
            .unwrap_err(),
        account.queues.get(&queue(), 1, MINUTE).await.unwrap_err(),
        account
            .blobs
            .put(&container, &name, Bytes::new(), &BlobUpload::default())
            .await
            .unwrap_err(),
        account.blobs.list(&container, "", None).await.unwrap_err(),
        account
            .blobs
            .copy(
                (&container, &name),
                (&container, &name),
                &BlobCopy::default(),
            )
            .await
            .unwrap_err(),
    ]
}

fn signed(port: u16) -> Account {
    let endpoint = Some(format!("http://127.0.0.1:{port}/account"));
    let overrides = EndpointOverrides {
        table: endpoint.clone(),
        queue: endpoint.clone(),
        blob: endpoint,
        suffix: None,
    };
    let sas = SecretString::from(format!("?sv=2022-11-02&ss=tqb&sp=rw&sig={SIGNATURE}%2B"));
    let account = AzureAccount::with_sas(AccountName::main(), "account", &sas, &overrides).unwrap();
    assert!(!format!("{account:?}").contains(SIGNATURE));
    evenkeel_azure::connect(&account).unwrap()
}

#[tokio::test]
async fn no_error_tells_a_secret() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    for status in [400, 403, 404, 409, 500, 503] {
        let stub = echo(status);
        for error in errors(signed(stub.port())).await {
            let text = everything(&error);
            assert!(!text.contains(SIGNATURE), "{status}: {text}");
        }
        assert!(
            stub.requests()[0].target.contains(SIGNATURE),
            "the signature is sent"
        );
        for error in errors(connect(&stub)).await {
            let text = everything(&error);
            let authorization = stub
                .requests()
                .last()
                .unwrap()
                .header("authorization")
                .unwrap()
                .to_owned();
            let signature = authorization.split(':').nth(1).unwrap();
            assert!(
                !text.contains(signature) && !text.contains("devstoreaccount1:"),
                "{status}: {text}"
            );
        }
    }
    for error in errors(signed(silent)).await {
        assert!(!everything(&error).contains(SIGNATURE));
    }
    let resetting = Stub::start(|_| Reply::Reset);
    for error in errors(signed(resetting.port())).await {
        assert!(!everything(&error).contains(SIGNATURE));
    }
}

#[tokio::test]
async fn a_copy_shows_its_signature_to_the_service_alone() {
    let stub = Stub::always(
        Reply::status(202)
            .like_azure()
            .header("ETag", "\"1\"")
            .header("x-ms-copy-status", "success"),
    );
    let (container, name) = blob();
    signed(stub.port())
        .blobs
        .copy(
            (&container, &name),
            (&container, &name),
            &BlobCopy::default(),
        )
        .await
        .unwrap();
    assert!(
        stub.requests()[0]
            .header("x-ms-copy-source")
            .unwrap()
            .contains(SIGNATURE)
    );
}
