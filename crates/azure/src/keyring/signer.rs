//! How a request carries a secret.

use bytes::Bytes;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret as _, SecretString};

use super::shared_key::AccountKey;
use crate::http::{HttpAnswer, HttpFault};
use crate::refusal::Refusal;
use evenkeel_storage::Service;

/// The source of a copy: another request to the account, which the service makes.
const COPY_SOURCE: HeaderName = HeaderName::from_static("x-ms-copy-source");
const API_KEY: HeaderName = HeaderName::from_static("api-key");

/// Codes of a 403 that say who asks is not known; the last is Azurite's. Others say that it may not.
const UNAUTHENTICATED: [&str; 5] = [
    "AuthenticationFailed",
    "InvalidAuthenticationInfo",
    "NoAuthenticationInformation",
    "MissingAuthenticationHeader",
    "AuthorizationFailure",
];

/// A request before it is signed, or after: no `Debug`, which would print the signature.
#[derive(Clone)]
pub struct Outgoing {
    /// Its verb.
    pub method: Method,
    /// Where it goes.
    pub url: Url,
    /// What it says about itself.
    pub headers: HeaderMap,
    /// What it carries.
    pub body: Bytes,
}

/// A secret in the form in which requests carry it. `Debug` prints no secret.
#[derive(Debug)]
pub enum Signer {
    /// A storage account's name and key.
    SharedKey {
        /// Its name.
        account: String,
        /// Its key.
        key: AccountKey,
    },
    /// A shared access signature: the query string, without the question mark.
    Sas(SecretString),
    /// An admin key of a search service.
    ApiKey(SecretString),
}

impl Signer {
    /// The request as it is sent to `service`.
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
                    .authorization(account, service, (method, url, headers))
                    .ok_or_else(unfit)?;
                request.headers.insert(AUTHORIZATION, value);
            }
            Self::Sas(sas) => {
                // As it stands: a blank in it is %20, which a form would write as a plus sign, and that means itself to the services.
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
                    // A key opens the source as well; a signature must be shown twice.
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

    /// Whether an answer refuses the secret itself, so that nothing was executed, and not a right that it lacks.
    pub fn is_refused(&self, answer: &HttpAnswer) -> bool {
        match (self, answer.status) {
            (_, 401) | (Self::ApiKey(_), 403) => true,
            (_, 403) => Refusal::of(answer)
                .code
                .is_none_or(|code| UNAUTHENTICATED.contains(&code.as_str())),
            _ => false,
        }
    }

    /// The texts that are hidden wherever they would be shown.
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

/// A header's value that no log prints.
pub(super) fn secret_header(text: &str) -> Result<HeaderValue, HttpFault> {
    let mut value = HeaderValue::from_str(text).map_err(|_| unfit())?;
    value.set_sensitive(true);
    Ok(value)
}

fn unfit() -> HttpFault {
    HttpFault::Unsent(
        "the credential cannot be sent: it was cut off, or something else stands in its place"
            .to_owned(),
    )
}
