//! A search service: its address, its credential, and the keys of its documents.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderValue};
use secrecy::{ExposeSecret as _, SecretString};
use url::Url;

use super::index::Indexes;
use crate::http::{Exchange, Far};
use evenkeel_model::model::AccountName;
use evenkeel_model::ports::Sink;
use evenkeel_model::settings::SinkSettings;

/// Endings of the services' own addresses.
const CLOUDS: [&str; 3] = [".search.windows.net", ".search.azure.cn", ".search.azure.us"];
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
    /// One of its admin keys.
    pub key: SecretString,
    /// The field that is the key in every index.
    pub key_field: String,
}

impl From<SinkSettings> for SearchService {
    fn from(settings: SinkSettings) -> Self {
        let SinkSettings { name: sink, endpoint, key, key_field } = settings;
        Self { sink, endpoint, key, key_field }
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
    let far = match service.endpoint.host_str() {
        Some(host) if CLOUDS.iter().any(|cloud| host.ends_with(cloud)) => Far::Azure,
        _ => Far::Local,
    };
    let mut key = HeaderValue::from_str(service.key.expose_secret().trim()).map_err(|_| SearchError::Key)?;
    key.set_sensitive(true);
    let mut headers = HeaderMap::new();
    headers.insert("api-key", key);
    headers.insert("content-type", HeaderValue::from_static("application/json"));
    headers.insert("accept", HeaderValue::from_static("application/json"));
    headers.insert("user-agent", HeaderValue::from_static(concat!("evenkeel/", env!("CARGO_PKG_VERSION"))));
    let exchange = Exchange::new(far, CONNECT, REQUEST).map_err(SearchError::Client)?;
    Ok(Arc::new(Indexes { service, headers, exchange }))
}
