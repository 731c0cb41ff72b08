//! Azure Key Vault: wraps and unwraps key-encryption keys, each once per process.
//!
//! ```text
//!   wrapkey    POST KEY/wrapkey?api-version=7.4           {"alg": "RSA-OAEP-256", "value": base64url(key)}  ▶ {"kid": KEY/VERSION, "value": …}
//!   unwrapkey  POST KEY/VERSION/unwrapkey?api-version=7.4 {"alg": "RSA-OAEP-256", "value": …}               ▶ {"value": base64url(key)}
//! ```
//!
//! Source: "Wrap Key", "Unwrap Key", Azure Key Vault REST API. The vault never sees a data key. A worker sends it one request per
//! key-encryption key, so the vault's limit (2,000 RSA-2048 operations in ten seconds) does not matter.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use serde_json::{Value, json};

use crate::cloud::Cloud;
use crate::http::{Authentication, EndpointKind, Exchange, HttpFault};
use crate::identity::TokenCache;
use evenkeel_model::KeyBytes;
use evenkeel_model::settings::{VaultKey, WrappedText};
use evenkeel_storage::vault::VaultError;

const API_VERSION: &str = "7.4";
const ALGORITHM: &str = "RSA-OAEP-256";
const CONNECT: Duration = Duration::from_secs(5);
const REQUEST: Duration = Duration::from_secs(30);
/// The required role ("Azure built-in roles").
const ROLE: &str = "Key Vault Crypto User";

#[derive(Debug)]
pub(crate) struct VaultKeyClient {
    address: Url,
    exchange: Exchange,
}

impl VaultKeyClient {
    /// Nothing is sent yet.
    pub(crate) fn new(name: &str, key: &VaultKey) -> Result<Self, reqwest::Error> {
        let cloud = Cloud::or_public(&key.address);
        let far = if Cloud::of(&key.address).is_some() {
            EndpointKind::Azure
        } else {
            EndpointKind::Local
        };
        let tokens = TokenCache::of(
            &key.identity,
            cloud,
            cloud.vault_scope,
            format!("[encryption.keys.{name}]"),
        )?;
        let exchange = Exchange::new(far, CONNECT, REQUEST)?.with(Authentication::Tokens(tokens));
        Ok(Self {
            address: key.address.clone(),
            exchange,
        })
    }

    pub(crate) async fn wrap(&self, key: &KeyBytes) -> Result<WrappedText, VaultError> {
        let answer = self.ask(&["wrapkey"], &BASE64URL.encode(key.0)).await?;
        let version = answer["kid"]
            .as_str()
            .and_then(|kid| kid.trim_end_matches('/').rsplit('/').next());
        let (Some(version), Some(value)) = (version, answer["value"].as_str()) else {
            return Err(self.unreadable());
        };
        WrappedText::parse(&format!("{version}.{value}")).map_err(|_| self.unreadable())
    }

    pub(crate) async fn unwrap(&self, wrapped: &WrappedText) -> Result<KeyBytes, VaultError> {
        let answer = self
            .ask(&[&wrapped.version, "unwrapkey"], &wrapped.value)
            .await?;
        let bytes = answer["value"]
            .as_str()
            .and_then(|value| BASE64URL.decode(value).ok());
        bytes
            .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok())
            .map(KeyBytes)
            .ok_or_else(|| self.unreadable())
    }

    async fn ask(&self, operation: &[&str], value: &str) -> Result<Value, VaultError> {
        let mut url = self.address.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(operation);
        }
        url.set_query(Some(&format!("api-version={API_VERSION}")));
        let mut headers = HeaderMap::new();
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let body = json!({"alg": ALGORITHM, "value": value}).to_string();
        let answer = self
            .exchange
            .send(Method::POST, url, headers, body.into())
            .await
            .map_err(|fault| match fault {
                HttpFault::NoToken(error) => VaultError::Forbidden {
                    vault: self.address.to_string(),
                    problem: error.text().to_owned(),
                },
                fault => self.away(fault.text()),
            })?;
        let json: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        // The message may name keys and callers, but contains no secret.
        let reason = json["error"]["message"]
            .as_str()
            .unwrap_or("no reason given")
            .lines()
            .next()
            .unwrap_or_default();
        let vault = self.address.to_string();
        match answer.status {
            200..300 => Ok(json),
            401 | 403 => Err(VaultError::Forbidden {
                vault,
                problem: format!(
                    "{reason} (HTTP {}); the identity needs the role {ROLE:?}",
                    answer.status
                ),
            }),
            408 | 429 | 500.. => Err(self.away(&format!("HTTP {}: {reason}", answer.status))),
            status => Err(VaultError::Rejected {
                vault,
                problem: format!("HTTP {status}: {reason}"),
            }),
        }
    }

    fn away(&self, problem: &str) -> VaultError {
        VaultError::Away {
            vault: self.address.to_string(),
            problem: problem.to_owned(),
        }
    }

    fn unreadable(&self) -> VaultError {
        VaultError::Rejected {
            vault: self.address.to_string(),
            problem: "the answer does not come from a key vault".to_owned(),
        }
    }
}
