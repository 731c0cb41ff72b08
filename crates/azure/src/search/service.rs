//! A search service: its address, its credential, and the keys of its documents.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::index::Indexes;
use crate::cloud::Cloud;
use crate::http::{Authentication, Exchange, Far};
use crate::identity::TokenCache;
use crate::keyring::{KeySlot, Keyring, MakeSigner, Signer};
use evenkeel_model::model::AccountName;
use evenkeel_model::ports::{Service, Sink};
use evenkeel_model::settings::{ConfiguredSecret, SearchSettings, SinkAuth};

/// To get a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// For a whole request; longer where much is sent.
const REQUEST: Duration = Duration::from_mins(1);

/// Everything needed to write to a search service. `Debug` prints no secret.
#[derive(Debug, Clone)]
pub struct SearchService {
    /// The sink as the configuration names it.
    pub sink: AccountName,
    /// Where it is: `https://contoso.search.windows.net`.
    pub endpoint: Url,
    /// How to sign in to it.
    pub auth: SinkAuth,
}

impl SearchService {
    /// The service of a sink.
    pub fn of(sink: AccountName, settings: SearchSettings) -> Self {
        let SearchSettings { endpoint, auth } = settings;
        Self {
            sink,
            endpoint,
            auth,
        }
    }
}

/// Why a search service cannot be reached at all.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The HTTP client could not be set up, because of this machine's certificates.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
    /// The key has characters that no header can carry.
    #[error(
        "the key of the search service has characters that cannot be sent: it was cut off, or something else stands in its place"
    )]
    Key,
}

/// The indexes of a service. Nothing is sent yet, so that a wrong key shows at the first request.
pub fn connect(service: SearchService) -> Result<Arc<dyn Sink>, SearchError> {
    open(service).map(|opened| opened.sink)
}

/// The indexes of a service, with a handle on the keys.
pub struct OpenedSearch {
    /// The indexes.
    pub sink: Arc<dyn Sink>,
    /// The admin key that requests carry. `None` where an identity signs in.
    pub keyring: Option<Arc<Keyring>>,
}

/// As [`connect`], with a handle on the keys.
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

/// As [`connect`], with a credential from elsewhere.
pub(crate) fn connect_with(
    service: SearchService,
    authentication: Authentication,
) -> Result<Arc<dyn Sink>, SearchError> {
    let far = if Cloud::of(&service.endpoint).is_some() {
        Far::Azure
    } else {
        Far::Local
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
