//! The HTTP client under `azure_identity`: ours, so that tokens are requested through the proxy and with the certificates that storage
//! requests use, and so that one attempt is one request.

use std::time::Duration;

use async_trait::async_trait;
use azure_core_v1::error::ErrorKind;
use azure_core_v1::http::headers::Headers;
use azure_core_v1::http::{AsyncRawResponse, Body, HttpClient, Request, StatusCode};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::TokenError;
use crate::http::{Exchange, Far, HttpAnswer, HttpFault};

/// To get a connection. Where there is no IMDS its address mostly swallows packets.
const CONNECT: Duration = Duration::from_secs(3);
/// For a whole token request. IMDS may take seconds.
const REQUEST: Duration = Duration::from_secs(15);

/// Clients for token requests.
#[derive(Debug)]
pub(super) struct TokenTransport {
    authority: Exchange,
    /// IMDS and its like, which are asked over http and which no proxy leads to.
    machine: Exchange,
}

impl TokenTransport {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let exchange = |far| Exchange::new(far, CONNECT, REQUEST);
        Ok(Self {
            authority: exchange(Far::Azure)?,
            machine: exchange(Far::Local)?,
        })
    }

    async fn send(&self, request: &Request) -> Result<HttpAnswer, HttpFault> {
        let unfit = || {
            HttpFault::Unsent("the identity library made a request that cannot be sent".to_owned())
        };
        let Body::Bytes(body) = request.body() else {
            return Err(unfit());
        };
        let method =
            Method::from_bytes(request.method().as_str().as_bytes()).map_err(|_| unfit())?;
        let mut headers = HeaderMap::new();
        for (name, value) in request.headers().iter() {
            let name = HeaderName::from_bytes(name.as_str().as_bytes()).map_err(|_| unfit())?;
            headers.insert(
                name,
                HeaderValue::from_str(value.as_str()).map_err(|_| unfit())?,
            );
        }
        let exchange = if request.url().scheme() == "https" {
            &self.authority
        } else {
            &self.machine
        };
        exchange
            .send(method, request.url().clone(), headers, body.clone())
            .await
    }
}

#[async_trait]
impl HttpClient for TokenTransport {
    /// Every answer but a success becomes a [`TokenError`], which the library passes on: its own retries, which last over a minute for
    /// IMDS, see neither a status nor a fault of the connection.
    async fn execute_request(&self, request: &Request) -> azure_core_v1::Result<AsyncRawResponse> {
        passed_on(
            request.url().host_str().unwrap_or_default(),
            self.send(request).await,
        )
    }
}

/// What the library gets of an answer by `host`.
pub(super) fn passed_on(
    host: &str,
    outcome: Result<HttpAnswer, HttpFault>,
) -> azure_core_v1::Result<AsyncRawResponse> {
    let error = match outcome {
        Ok(answer) if answer.is_success() => {
            return Ok(AsyncRawResponse::from_bytes(
                StatusCode::from(answer.status),
                Headers::new(),
                answer.body,
            ));
        }
        Ok(answer) => TokenError::answered(host, &answer),
        Err(fault) => TokenError::unreachable(host, &fault),
    };
    Err(azure_core_v1::Error::new(ErrorKind::Credential, error))
}
