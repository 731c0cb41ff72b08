//! Requests to the whole blob service that the client library lacks.

use jiff::Timestamp;
use reqwest::header::{HeaderMap, HeaderValue};
use url::Url;

use crate::sas::VERSION;
use crate::settings::AzureAccount;

pub(crate) fn request(account: &AzureAccount, query: &str, now: Timestamp) -> (Url, HeaderMap) {
    let mut url = account.endpoints.blob.clone();
    url.set_query(Some(query));
    let mut headers = HeaderMap::new();
    headers.insert("x-ms-version", HeaderValue::from_static(VERSION));
    if let Ok(date) = HeaderValue::from_str(&now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
    {
        headers.insert("x-ms-date", date);
    }
    (url, headers)
}
