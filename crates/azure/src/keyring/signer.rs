//! Adds a secret to a request.

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret as _, SecretString};

use super::shared_key::AccountKey;
use crate::http::{HttpAnswer, HttpFault};
use crate::refusal::Refusal;
use evenkeel_storage::Service;

/// The header with the URL of a copy's source. The service reads the source by a request of its own, which needs authorisation,
/// too.
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-ms-copy-source");
const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// Codes of a 403 for a failed authentication; the last is Azurite's. Other codes mean a missing permission.
const UNAUTHENTICATED: [&str; 5] = [
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "NoAuthenticationInformation",
    "MissingAuthenticationHeader",
    "AuthorizationFailure",
];

/// A request before or after signing. It has no `Debug`, which would print the signature.
#[derive(Clone)]
pub struct Outgoing {
    pub method: Method,
    pub url: Url,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// A secret in the form that requests contain. `Debug` omits the secret.
#[derive(Debug)]
pub enum Signer {
    SharedKey {
        account: String,
        key: AccountKey,
    },
    /// A shared access signature: the query string without the question mark.
    Sas(SecretString),
    ApiKey(SecretString),
}

impl Signer {
    pub fn sign(&self, service: Service, mut request: Outgoing) -> Result<Outgoing, HttpFault> {
        match self {
            Self::SharedKey { account, key } => {
                let Outgoing {
                    method,
                    url,
                    headers,
                    ..
                } = &request;
                let value = key
                    .authorization(account, service, method, url, headers)
                    .ok_or_else(unfit)?;
                request.headers.insert(AUTHORIZATION, value);
            }
            Self::Sas(sas) => {
                // The query is appended as text: form encoding would turn a %20 into a plus sign, which the services take literally.
                let query = request
                    .url
                    .query()
                    .filter(|query| !query.is_empty())
                    .map(|query| format!("{query}&"));
                request.url.set_query(Some(&format!(
                    "{}{}",
                    query.unwrap_or_default(),
                    sas.expose_secret()
                )));
                if let Some(source) = request.headers.get(&COPY_SOURCE) {
                    // A request that is signed with a key may also read the source of a copy. A shared access signature must be
                    // added to the URL of the source, too.
                    let mut source = source
                        .to_str()
                        .ok()
                        .and_then(|source| Url::parse(source).ok())
                        .ok_or_else(unfit)?;
                    source.set_query(Some(sas.expose_secret()));
                    request
                        .headers
                        .insert(COPY_SOURCE, secret_header(source.as_str())?);
                }
            }
            Self::ApiKey(key) => {
                request
                    .headers
                    .insert(API_KEY, secret_header(key.expose_secret())?);
            }
        }
        Ok(request)
    }

    /// Whether an answer rejects the secret itself. Then nothing was executed. `false` if only a permission is missing.
    pub fn is_refused(&self, answer: &HttpAnswer) -> bool {
        match (self, answer.status) {
            (_, 401) | (Self::ApiKey(_), 403) => true,
            (_, 403) => Refusal::of(answer)
                .code
                .is_none_or(|code| UNAUTHENTICATED.contains(&code.as_str())),
            _ => false,
        }
    }

    pub fn secrets(&self) -> Vec<SecretString> {
        match self {
            Self::SharedKey { key, .. } => vec![key.secret.clone()],
            Self::ApiKey(key) => vec![key.clone()],
            Self::Sas(sas) => {
                let decoded = url::form_urlencoded::parse(sas.expose_secret().as_bytes());
                let signatures = decoded
                    .filter(|(name, _)| name == "sig")
                    .map(|(_, value)| SecretString::from(value.into_owned()));
                std::iter::once(sas.clone()).chain(signatures).collect()
            }
        }
    }
}

/// A header value that logs omit.
pub(super) fn secret_header(text: &str) -> Result<HeaderValue, HttpFault> {
    let mut value = HeaderValue::from_str(text).map_err(|_| unfit())?;
    value.set_sensitive(true);
    Ok(value)
}

fn unfit() -> HttpFault {
    HttpFault::Unsent(
        "the credential cannot be sent; it may be truncated or not a credential at all".to_owned(),
    )
}
