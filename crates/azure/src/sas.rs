//! Shared access signatures ("Create a service SAS", "Create a user delegation SAS", version 2020-12-06 and later), signed with an
//! account key or with the user delegation key of an identity.

use jiff::Timestamp;
use secrecy::SecretString;
use url::Url;
use url::form_urlencoded::byte_serialize;

use crate::cloud::{Cloud, STORAGE_SCOPE};
use crate::delegation::{DelegationKey, second};
use crate::identity::TokenCache;
use crate::keyring::{AccountKey, Signer};
use crate::settings::{AzureAccount, Credential};
use evenkeel_model::settings::{Identity, IssuedSas, SasGrant, SasRows, SasTarget};
use evenkeel_storage::StoreError;

/// The version of the signatures. The client library uses the same version of the services.
pub(crate) const VERSION: &str = "2022-11-02";

#[derive(Debug, thiserror::Error)]
pub enum SasError {
    #[error(
        "an identity (auth = \"entra\") signs for blobs only. For tables and queues, use an account with auth = \"key\", or give the application a role"
    )]
    Identity,
    #[error(
        "a shared access signature cannot sign another one. Use an account with auth = \"key\""
    )]
    Signature,
    #[error("the account key is not valid Base64")]
    Key,
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
    /// The service issued no user delegation key.
    #[error(transparent)]
    Store(StoreError),
}

enum SigningKey {
    /// The key of the account with this name.
    Account(String, AccountKey),
    /// A key of the blob service, issued to an identity.
    Delegated(DelegationKey),
}

/// Issues a signature for a grant, valid until `expires`. With an account key nothing is sent; otherwise a user delegation key is
/// requested.
pub async fn issue(
    account: &AzureAccount,
    grant: &SasGrant,
    now: Timestamp,
    expires: Timestamp,
) -> Result<IssuedSas, SasError> {
    let key = match &account.credential {
        Credential::Secrets(keyring) => match &*keyring.in_use() {
            Signer::SharedKey { account, key } => SigningKey::Account(account.clone(), key.clone()),
            Signer::Sas(_) | Signer::ApiKey(_) => return Err(SasError::Signature),
        },
        Credential::Entra(identity) => match grant.target {
            SasTarget::Blob(..) => {
                SigningKey::Delegated(delegated(account, identity, now, expires).await?)
            }
            SasTarget::Table(..) | SasTarget::Queue(_) => return Err(SasError::Identity),
        },
    };
    signed(account, grant, expires, &key)
}

async fn delegated(
    account: &AzureAccount,
    identity: &std::sync::Arc<Identity>,
    now: Timestamp,
    expires: Timestamp,
) -> Result<DelegationKey, SasError> {
    let tokens = TokenCache::of(
        identity,
        Cloud::or_public(&account.endpoints.blob),
        STORAGE_SCOPE,
        format!("[accounts.{}]", account.account),
    );
    DelegationKey::get(account, tokens.map_err(SasError::Client)?, now, expires)
        .await
        .map_err(SasError::Store)
}

fn signed(
    account: &AzureAccount,
    grant: &SasGrant,
    expires: Timestamp,
    key: &SigningKey,
) -> Result<IssuedSas, SasError> {
    let url = address(account, &grant.target);
    // Signatures for an emulator with a plain endpoint must allow http.
    let protocol = if url.scheme() == "https" {
        "https"
    } else {
        "https,http"
    };
    let (name, secret, delegation) = match key {
        SigningKey::Account(name, secret) => (name, secret, None),
        SigningKey::Delegated(key) => (&account.name, &key.value, Some(key)),
    };
    // A signature cannot be valid longer than its key.
    let end = delegation.and_then(|key| key.parts[3].parse::<Timestamp>().ok());
    let expires = end.map_or(expires, |end| end.min(expires));
    let expiry = second(expires);
    let unsigned = UnsignedSas {
        account: name,
        grant,
        expiry: &expiry,
        protocol,
        delegation,
    };
    let signature = secret.signature(&unsigned.text()).ok_or(SasError::Key)?;
    let mut parameters = unsigned.parameters();
    parameters.push(("sig", &signature));
    let pairs: Vec<String> = parameters
        .into_iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)))
        .collect();
    Ok(IssuedSas {
        url: url.into(),
        token: SecretString::from(pairs.join("&")),
        expires,
    })
}

/// Percent-encodes a value. A space becomes %20, because the services take a plus sign literally.
fn encoded(value: &str) -> String {
    byte_serialize(value.as_bytes())
        .collect::<String>()
        .replace('+', "%20")
}

fn address(account: &AzureAccount, target: &SasTarget) -> Url {
    let (endpoint, segments) = match target {
        SasTarget::Table(table, _) => (&account.endpoints.table, vec![table.as_str()]),
        SasTarget::Queue(queue) => (&account.endpoints.queue, vec![queue.as_str()]),
        SasTarget::Blob(container, blob) => {
            let blob = blob.iter().flat_map(|name| name.as_str().split('/'));
            (
                &account.endpoints.blob,
                std::iter::once(container.as_str()).chain(blob).collect(),
            )
        }
    };
    let mut url = endpoint.clone();
    // An http URL always has path segments.
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().extend(segments);
    }
    url
}

struct UnsignedSas<'a> {
    account: &'a str,
    grant: &'a SasGrant,
    expiry: &'a str,
    protocol: &'a str,
    delegation: Option<&'a DelegationKey>,
}

impl UnsignedSas<'_> {
    /// The text that is signed. Empty lines stand for parts that are not used: the start, the policy, the address, and for
    /// blobs the snapshot, the encryption scope and five headers. A user delegation key takes the place of the policy, together
    /// with empty lines for two other identities and a correlation id.
    fn text(&self) -> String {
        let Self {
            account,
            grant,
            expiry,
            protocol,
            delegation,
        } = self;
        let signer = delegation
            .map(|key| format!("{}\n\n\n", key.parts.join("\n")))
            .unwrap_or_default();
        let head = |resource: String| {
            format!(
                "{}\n\n{expiry}\n{resource}\n{signer}\n\n{protocol}\n{VERSION}",
                grant.permissions
            )
        };
        match &grant.target {
            SasTarget::Table(table, rows) => {
                let [spk, srk, epk, erk] = ends(rows).map(|end| end.map_or("", |(_, key)| key));
                format!(
                    "{}\n{spk}\n{srk}\n{epk}\n{erk}",
                    head(format!(
                        "/table/{account}/{}",
                        table.as_str().to_lowercase()
                    ))
                )
            }
            SasTarget::Queue(queue) => head(format!("/queue/{account}/{queue}")),
            SasTarget::Blob(container, blob) => {
                let blob = blob
                    .as_ref()
                    .map(|name| format!("/{name}"))
                    .unwrap_or_default();
                format!(
                    "{}\n{}\n\n\n\n\n\n\n",
                    head(format!("/blob/{account}/{container}{blob}")),
                    self.resource()
                )
            }
        }
    }

    const fn resource(&self) -> &'static str {
        if matches!(self.grant.target, SasTarget::Blob(_, Some(_))) {
            "b"
        } else {
            "c"
        }
    }

    fn parameters(&self) -> Vec<(&'static str, &str)> {
        let mut parameters = vec![
            ("sv", VERSION),
            ("se", self.expiry),
            ("sp", &self.grant.permissions),
            ("spr", self.protocol),
        ];
        match &self.grant.target {
            SasTarget::Table(table, rows) => {
                parameters.push(("tn", table.as_str()));
                parameters.extend(ends(rows).into_iter().flatten());
            }
            SasTarget::Blob(..) => {
                parameters.push(("sr", self.resource()));
                let values = self.delegation.iter().flat_map(|key| {
                    ["skoid", "sktid", "skt", "ske", "sks", "skv"]
                        .into_iter()
                        .zip(&key.parts)
                });
                parameters.extend(values.map(|(name, part)| (name, part.as_str())));
            }
            SasTarget::Queue(_) => {}
        }
        parameters
    }
}

/// The parameters of a range of rows: partition and row of the first and the last one.
fn ends(rows: &SasRows) -> [Option<(&'static str, &str)>; 4] {
    let SasRows { pk, rk_from, rk_to } = rows;
    [("spk", pk), ("srk", rk_from), ("epk", pk), ("erk", rk_to)]
        .map(|(name, key)| key.as_ref().map(|key| (name, key.as_str())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    use secrecy::ExposeSecret as _;

    use super::*;
    use crate::settings::EndpointOverrides;
    use evenkeel_model::settings::Identity;
    use evenkeel_model::{
        AccountName, BlobName, ContainerName, Key, QueueName, TableName, ViewName,
    };

    fn grant(target: SasTarget, permissions: &str) -> SasGrant {
        SasGrant {
            name: ViewName::new("g").unwrap(),
            account: AccountName::main(),
            target,
            permissions: permissions.to_owned(),
            valid: Duration::from_hours(1),
        }
    }

    fn issued(grant: &SasGrant) -> (String, String) {
        let key = SecretString::from("c2VjcmV0");
        let account = AzureAccount::with_key(
            AccountName::main(),
            "contoso",
            &key,
            &EndpointOverrides::default(),
        )
        .unwrap();
        let expires = "2026-11-24T01:00:00Z".parse().unwrap();
        let signer = SigningKey::Account("contoso".to_owned(), AccountKey::new(key));
        let IssuedSas { url, token, .. } = signed(&account, grant, expires, &signer).unwrap();
        (url, token.expose_secret().to_owned())
    }

    // Results of `generate_table_sas`, `generate_blob_sas`, `generate_container_sas` and `generate_queue_sas` of the Python SDK
    // for the same input.
    const TABLE: &str = "se=2026-11-24T01%3A00%3A00Z&sp=r&spr=https&sv=2022-11-02&tn=Employees&spk=Sales%20%26%20more&srk=000100&epk=Sales%20%26%20more&erk=000199&sig=iEEmtcc4Rn2VPdJhD42Zga8DdkRZaR%2BURtX0CXYiu2c%3D";
    const BLOB: &str = "se=2026-11-24T01%3A00%3A00Z&sp=c&spr=https&sv=2022-11-02&sr=b&sig=dOOLxeNrl1yXdd3QOH%2BsDgsrG9X%2BujcepGY5wLt0d70%3D";
    const CONTAINER: &str = "se=2026-11-24T01%3A00%3A00Z&sp=rl&spr=https&sv=2022-11-02&sr=c&sig=v/EzYPGnmTSuSeeWTnXr0eFzPzIwZP4n6wPLy1n0yDg%3D";
    const QUEUE: &str = "se=2026-11-24T01%3A00%3A00Z&sp=a&spr=https&sv=2022-11-02&sig=/SN00GBVQId3f3WjtOZKJwz%2BOZjvAh6PhrAaYzEsBVw%3D";

    fn parameters(token: &str) -> BTreeMap<String, String> {
        url::form_urlencoded::parse(token.as_bytes())
            .into_owned()
            .collect()
    }

    #[test]
    fn tokens_are_those_of_the_official_sdk() {
        let key = |text: &str| Some(Key::new(text).unwrap());
        let rows = SasRows {
            pk: key("Sales & more"),
            rk_from: key("000100"),
            rk_to: key("000199"),
        };
        let container = ContainerName::new("large").unwrap();
        for (grant, url, token) in [
            (
                grant(
                    SasTarget::Table(TableName::new("Employees").unwrap(), rows),
                    "r",
                ),
                "https://contoso.table.core.windows.net/Employees",
                TABLE,
            ),
            (
                grant(
                    SasTarget::Blob(container.clone(), Some(BlobName::new("a b/c.png").unwrap())),
                    "c",
                ),
                "https://contoso.blob.core.windows.net/large/a%20b/c.png",
                BLOB,
            ),
            (
                grant(SasTarget::Blob(container, None), "rl"),
                "https://contoso.blob.core.windows.net/large",
                CONTAINER,
            ),
            (
                grant(
                    SasTarget::Queue(QueueName::new("contoso-jobs").unwrap()),
                    "a",
                ),
                "https://contoso.queue.core.windows.net/contoso-jobs",
                QUEUE,
            ),
        ] {
            let (issued_url, issued_token) = issued(&grant);
            assert_eq!(
                (issued_url.as_str(), parameters(&issued_token)),
                (url, parameters(token))
            );
            assert!(!issued_token.contains('+'), "{issued_token}");
        }
    }

    // Results of `generate_blob_sas` and `generate_container_sas` of the Python SDK for the same input, with a user delegation key.
    const DELEGATED_BLOB: &str = "se=2026-11-24T01%3A00%3A00Z&sp=c&spr=https&sv=2022-11-02&sr=b&skoid=object&sktid=tenant&skt=2026-11-24T00%3A00%3A00Z&ske=2026-11-25T00%3A00%3A00Z&sks=b&skv=2022-11-02&sig=SRWNyUnwctHXgRi2tfsp2M/OK1WIKt7QB2r5LHaMGcI%3D";
    const DELEGATED_CONTAINER: &str = "se=2026-11-24T01%3A00%3A00Z&sp=rl&spr=https&sv=2022-11-02&sr=c&skoid=object&sktid=tenant&skt=2026-11-24T00%3A00%3A00Z&ske=2026-11-25T00%3A00%3A00Z&sks=b&skv=2022-11-02&sig=Qu1RAgmbHz/mXBD46H4pKU4kGaJRRu8Sy/7mbjvTmn0%3D";

    #[test]
    fn tokens_in_the_name_of_an_identity_are_those_of_the_official_sdk() {
        let identity = Arc::new(Identity {
            credentials: Vec::new(),
            ruled_out: Vec::new(),
            authority: None,
        });
        let account = AzureAccount::with_identity(
            AccountName::main(),
            "contoso",
            identity,
            &EndpointOverrides::default(),
        )
        .unwrap();
        let parts = [
            "object",
            "tenant",
            "2026-11-24T00:00:00Z",
            "2026-11-25T00:00:00Z",
            "b",
            "2022-11-02",
        ]
        .map(str::to_owned);
        let key = SigningKey::Delegated(DelegationKey {
            parts,
            value: AccountKey::new("c2VjcmV0".into()),
        });
        let container = ContainerName::new("large").unwrap();
        let beyond = signed(
            &account,
            &grant(SasTarget::Blob(container.clone(), None), "r"),
            "2026-11-27T00:00:00Z".parse().unwrap(),
            &key,
        );
        assert_eq!(
            second(beyond.unwrap().expires),
            "2026-11-25T00:00:00Z",
            "it expires with its key"
        );
        for (target, permissions, token) in [
            (
                SasTarget::Blob(container.clone(), Some(BlobName::new("a b/c.png").unwrap())),
                "c",
                DELEGATED_BLOB,
            ),
            (SasTarget::Blob(container, None), "rl", DELEGATED_CONTAINER),
        ] {
            let issued = signed(
                &account,
                &grant(target, permissions),
                "2026-11-24T01:00:00Z".parse().unwrap(),
                &key,
            )
            .unwrap();
            assert_eq!(parameters(issued.token.expose_secret()), parameters(token));
        }
    }

    #[tokio::test]
    async fn a_signature_cannot_sign_and_an_identity_signs_for_blobs_only() {
        let queue = grant(
            SasTarget::Queue(QueueName::new("contoso-jobs").unwrap()),
            "a",
        );
        let overrides = EndpointOverrides::default();
        let sas = SecretString::from("sv=1&sig=x");
        let by_sas =
            AzureAccount::with_sas(AccountName::main(), "contoso", &sas, &overrides).unwrap();
        let refused = issue(
            &by_sas,
            &queue,
            Timestamp::UNIX_EPOCH,
            Timestamp::UNIX_EPOCH,
        )
        .await
        .unwrap_err();
        assert!(matches!(refused, SasError::Signature));
        let identity = Arc::new(Identity {
            credentials: Vec::new(),
            ruled_out: Vec::new(),
            authority: None,
        });
        let by_identity =
            AzureAccount::with_identity(AccountName::main(), "contoso", identity, &overrides)
                .unwrap();
        let refused = issue(
            &by_identity,
            &queue,
            Timestamp::UNIX_EPOCH,
            Timestamp::UNIX_EPOCH,
        )
        .await
        .unwrap_err();
        assert!(matches!(refused, SasError::Identity));
    }
}
