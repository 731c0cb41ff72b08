//! Signs a request with an account key ("Authorize with Shared Key").

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret as _, SecretString};

use evenkeel_storage::Service;

/// Headers whose values are signed without their names, in this order, after the method.
const SIGNED: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// An account key or user delegation key, prepared for signing. `Debug` omits the secret.
#[derive(Debug, Clone)]
pub struct AccountKey {
    pub secret: SecretString,
    /// `None` if the secret is not Base64.
    mac: Option<Arc<hmac::Key>>,
}

impl AccountKey {
    /// Takes the Base64 text of the key.
    pub fn new(secret: SecretString) -> Self {
        let decoded = BASE64.decode(secret.expose_secret());
        Self {
            mac: decoded
                .ok()
                .map(|bytes| Arc::new(hmac::Key::new(HMAC_SHA256, &bytes))),
            secret,
        }
    }

    /// Signs a text. Returns `None` if the key is not Base64.
    pub fn signature(&self, text: &str) -> Option<String> {
        self.mac
            .as_ref()
            .map(|key| BASE64.encode(hmac::sign(key, text.as_bytes())))
    }

    /// The value of the `Authorization` header. Returns `None` if the key is not Base64.
    pub(super) fn authorization(
        &self,
        account: &str,
        service: Service,
        method: &Method,
        url: &Url,
        headers: &HeaderMap,
    ) -> Option<HeaderValue> {
        let text = match service {
            Service::Table => text_of_table(account, method, url, headers),
            Service::Queue | Service::Blob | Service::Search => text(account, method, url, headers),
        };
        let signature = self.signature(&text)?;
        let mut value = HeaderValue::from_str(&format!("SharedKey {account}:{signature}")).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers
        .get(name)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
}

fn text(account: &str, method: &Method, url: &Url, headers: &HeaderMap) -> String {
    let mut text = format!("{method}\n");
    for name in SIGNED {
        let value = header(headers, name);
        // Since version 2015-02-21 a length of zero is signed as an empty text.
        text.push_str(if name == "content-length" && value == "0" {
            ""
        } else {
            value
        });
        text.push('\n');
    }
    let names: BTreeMap<&str, &str> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("x-ms-"))
        .map(|name| (name.as_str(), header(headers, name.as_str())))
        .collect();
    for (name, value) in names {
        let _ = writeln!(text, "{name}:{value}");
    }
    let _ = write!(text, "/{account}{}", url.path());
    let mut parameters: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in url.query_pairs() {
        parameters
            .entry(name.to_lowercase())
            .or_default()
            .push(value.into_owned());
    }
    for (name, mut values) in parameters {
        values.sort_unstable();
        let _ = write!(text, "\n{name}:{}", values.join(","));
    }
    text
}

fn text_of_table(account: &str, method: &Method, url: &Url, headers: &HeaderMap) -> String {
    let [md5, content_type, date] =
        ["content-md5", "content-type", "x-ms-date"].map(|name| header(headers, name));
    format!(
        "{method}\n{md5}\n{content_type}\n{date}\n/{account}{}",
        url.path()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
            .collect()
    }

    /// The example from "Authorize with Shared Key", for Get Container Metadata.
    #[test]
    fn the_text_for_blobs_is_that_of_the_documentation() {
        let url = Url::parse(
            "http://myaccount.blob.core.windows.net/mycontainer?restype=container&comp=metadata",
        )
        .unwrap();
        let headers = headers(&[
            ("x-ms-version", "2014-02-14"),
            ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"),
            ("content-length", "0"),
        ]);
        assert_eq!(
            text("myaccount", &Method::GET, &url, &headers),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2014-02-14\n/myaccount/mycontainer\ncomp:metadata\nrestype:container"
        );
    }

    #[test]
    fn parameter_values_are_sorted_and_a_nonzero_length_is_signed() {
        let url =
            Url::parse("http://h/devstoreaccount1/q?include=b&include=a%2Cc&Comp=list").unwrap();
        let text = text(
            "devstoreaccount1",
            &Method::PUT,
            &url,
            &headers(&[("content-length", "7"), ("if-match", "\"1\"")]),
        );
        assert_eq!(
            text,
            "PUT\n\n\n7\n\n\n\n\n\"1\"\n\n\n\n/devstoreaccount1/devstoreaccount1/q\ncomp:list\ninclude:a,c,b"
        );
    }

    #[test]
    fn the_text_for_tables_leaves_the_query_out() {
        let url =
            Url::parse("http://h/account/Employees(PartitionKey='p%20q',RowKey='r')?timeout=3")
                .unwrap();
        let headers = headers(&[
            ("content-type", "application/json"),
            ("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT"),
        ]);
        assert_eq!(
            text_of_table("account", &Method::GET, &url, &headers),
            "GET\n\napplication/json\nFri, 26 Jun 2015 23:39:12 GMT\n/account/account/Employees(PartitionKey='p%20q',RowKey='r')"
        );
    }
}
