//! A search service: its address, its credential, and the keys of its documents.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::ExposeSecret as _;
use url::Url;

use super::index::Indexes;
use crate::cloud::Cloud;
use crate::http::{Exchange, Far};
use crate::identity::TokenCache;
use evenkeel_model::model::AccountName;
use evenkeel_model::ports::Sink;
use evenkeel_model::settings::{SinkAuth, SinkSettings};

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
    /// The field that is the key in every index.
    pub key_field: String,
}

impl From<SinkSettings> for SearchService {
    fn from(settings: SinkSettings) -> Self {
        let SinkSettings { name: sink, endpoint, auth, key_field } = settings;
        Self { sink, endpoint, auth, key_field }
    }
}

/// Why a search service cannot be reached at all.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The HTTP client could not be set up, because of this machine's certificates.
    #[error("the HTTP client could not be set up")]
    Client(#[source] reqwest::Error),
    /// The key has characters that no header can carry.
    #[error("the key of the search service has characters that cannot be sent: it was cut off, or something else stands in its place")]
    Key,
}

/// The indexes of a service. Nothing is sent yet, so that a wrong key shows at the first request.
pub fn connect(service: SearchService) -> Result<Arc<dyn Sink>, SearchError> {
    let tokens = match &service.auth {
        SinkAuth::Key(_) => None,
        SinkAuth::Entra(identity) => {
            let cloud = Cloud::or_public(&service.endpoint);
            Some(TokenCache::of(identity, cloud, cloud.search_scope, format!("[sinks.{}]", service.sink)).map_err(SearchError::Client)?)
        }
    };
    connect_with(service, tokens)
}

/// As [`connect`], with tokens from elsewhere.
pub(crate) fn connect_with(service: SearchService, tokens: Option<Arc<TokenCache>>) -> Result<Arc<dyn Sink>, SearchError> {
    let far = if Cloud::of(&service.endpoint).is_some() { Far::Azure } else { Far::Local };
    let mut headers = HeaderMap::new();
    if let SinkAuth::Key(key) = &service.auth {
        let mut key = HeaderValue::from_str(key.expose_secret().trim()).map_err(|_| SearchError::Key)?;
        key.set_sensitive(true);
        headers.insert("api-key", key);
    }
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("application/json"));
    headers.insert("user-agent", HeaderValue::from_static(concat!("evenkeel/", env!("CARGO_PKG_VERSION"))));
    let exchange = Exchange::new(far, CONNECT, REQUEST).map_err(SearchError::Client)?.with_tokens(tokens);
    Ok(Arc::new(Indexes { service, headers, exchange }))
}
