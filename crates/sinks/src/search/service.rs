//! A search service: its address, credential and keys.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::index::Indexes;
use evenkeel_azure::cloud::Cloud;
use evenkeel_azure::http::{Authentication, EndpointKind, Exchange};
use evenkeel_azure::identity::TokenCache;
use evenkeel_azure::keyring::{KeySlot, Keyring, MakeSigner, Signer};
use evenkeel_model::AccountName;
use evenkeel_model::settings::{ConfiguredSecret, SearchSettings, SinkAuth};
use evenkeel_storage::{Service, Sink};

const CONNECT: Duration = Duration::from_secs(5);
/// Timeout of a whole request; longer for large ones.
const REQUEST: Duration = Duration::from_mins(1);

/// Everything needed to write to a search service. `Debug` omits secrets.
#[derive(Debug, Clone)]
pub struct SearchService {
    pub sink: AccountName,
    /// For instance `https://contoso.search.windows.net`.
    pub endpoint: Url,
    pub auth: SinkAuth,
}

impl SearchService {
    pub fn of(sink: AccountName, settings: SearchSettings) -> Self {
        let SearchSettings { endpoint, auth } = settings;
        Self {
            sink,
            endpoint,
            auth,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// Setting up TLS with this machine's certificates failed.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
    /// The key contains characters that a header cannot contain.
    #[error(
        "the key of the search service contains invalid characters; it may be truncated or not a key at all"
    )]
    Key,
}

/// Opens the indexes of a service. Nothing is sent yet, so a wrong key shows at the first request.
pub fn connect(service: SearchService) -> Result<Arc<dyn Sink>, SearchError> {
    open(service).map(|opened| opened.sink)
}

pub struct OpenedSearch {
    pub sink: Arc<dyn Sink>,
    /// The admin key of the requests; `None` for an identity.
    pub keyring: Option<Arc<Keyring>>,
}

/// Like [`connect`], with access to the keys.
pub fn open(service: SearchService) -> Result<OpenedSearch, SearchError> {
    let name = format!("[sinks.{}]", service.sink);
    let (authentication, keyring) = match &service.auth {
        SinkAuth::Key(secret) => {
            let keyring = keyring(name, secret)?;
            (
                Authentication::Secrets(Arc::clone(&keyring), Service::Search),
                Some(keyring),
            )
        }
        SinkAuth::Entra(identity) => {
            let cloud = Cloud::or_public(&service.endpoint);
            let tokens = TokenCache::of(identity, cloud, cloud.search_scope, name)
                .map_err(SearchError::Client)?;
            (Authentication::Tokens(tokens), None)
        }
    };
    Ok(OpenedSearch {
        sink: connect_with(service, authentication)?,
        keyring,
    })
}

fn keyring(name: String, secret: &ConfiguredSecret) -> Result<Arc<Keyring>, SearchError> {
    let signer = |key: &SecretString| {
        let key = key.expose_secret().trim();
        HeaderValue::from_str(key).map_err(|_| SearchError::Key)?;
        Ok(Arc::new(Signer::ApiKey(SecretString::from(key.to_owned()))))
    };
    let make: MakeSigner<SearchError> = Arc::new(signer);
    Ok(Keyring::new(name, KeySlot::new(secret, make)?))
}

/// Like [`connect`], with a given credential.
pub(crate) fn connect_with(
    service: SearchService,
    authentication: Authentication,
) -> Result<Arc<dyn Sink>, SearchError> {
    let far = if Cloud::of(&service.endpoint).is_some() {
        EndpointKind::Azure
    } else {
        EndpointKind::Local
    };
    let keyring = match &authentication {
        Authentication::Secrets(keyring, _) => Some(Arc::clone(keyring)),
        Authentication::Tokens(_) | Authentication::Anonymous => None,
    };
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("application/json"));
    headers.insert(
        "user-agent",
        HeaderValue::from_static(concat!("evenkeel/", env!("CARGO_PKG_VERSION"))),
    );
    let exchange = Exchange::new(far, CONNECT, REQUEST)
        .map_err(SearchError::Client)?
        .with(authentication);
    Ok(Arc::new(Indexes {
        service,
        headers,
        exchange,
        keyring,
    }))
}

#[cfg(test)]
#[allow(
    dead_code,
    unreachable_pub,
    clippy::pedantic,
    reason = "several test programs share this file, and each uses a part of it"
)]
#[path = "../../../../tests/support/stub.rs"]
mod stub;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use evenkeel_azure::identity::testing::{by_secret, signed_in};
    use evenkeel_model::{CollectionName, DocumentKey};
    use evenkeel_storage::ErrorClass;
    use stub::{Reply, Stub};

    #[tokio::test]
    async fn a_search_sink_sends_tokens_of_its_own_audience_and_names_its_roles() {
        let refuse = Stub::always(Reply::status(403));
        let endpoint = Url::parse(&format!("http://127.0.0.1:{}", refuse.port())).unwrap();
        let (identity, authority, tokens) = signed_in(
            by_secret(),
            0,
            Arc::default(),
            "https://search.azure.com/.default",
        );
        let service = SearchService {
            sink: AccountName::new("catalog").unwrap(),
            endpoint,
            auth: SinkAuth::Entra(identity),
        };
        let sink = connect_with(service, Authentication::Tokens(tokens)).unwrap();
        let index = CollectionName::new("people").unwrap();
        for (error, role) in [
            (
                sink.get(&index, &DocumentKey::new("a").unwrap())
                    .await
                    .unwrap_err(),
                "Search Index Data Contributor",
            ),
            (
                sink.fields(&index).await.unwrap_err(),
                "Search Service Contributor",
            ),
        ] {
            assert_eq!(error.class, ErrorClass::Unauthorised);
            assert!(
                error
                    .message
                    .contains(&format!("{role:?} on the search service http://127.0.0.1")),
                "{error}"
            );
        }
        assert_eq!(
            authority.field("scope"),
            "https://search.azure.com/.default"
        );
        for request in refuse.requests() {
            assert_eq!(
                (request.header("authorization"), request.header("api-key")),
                (Some("Bearer token-1"), None)
            );
        }
    }
}
