//! The HTTP client of `azure_identity`. It is our own, so that token requests use the same proxy and certificates as storage
//! requests, and one attempt is one request.

use std::time::Duration;

use async_trait::async_trait;
use azure_core_v1::error::ErrorKind;
use azure_core_v1::http::headers::Headers;
use azure_core_v1::http::{AsyncRawResponse, Body, HttpClient, Request, StatusCode};
use reqwest::Method;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::TokenError;
use crate::http::{EndpointKind, Exchange, HttpAnswer, HttpFault};

/// Connect timeout. On a machine without IMDS, packets to its address usually get no answer at all.
const CONNECT: Duration = Duration::from_secs(3);
const REQUEST: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct TokenTransport {
    authority: Exchange,
    /// For IMDS and similar endpoints, which use plain http without a proxy.
    machine: Exchange,
}

impl TokenTransport {
    pub(super) fn new() -> Result<Self, reqwest::Error> {
        let exchange = |far| Exchange::new(far, CONNECT, REQUEST);
        Ok(Self {
            authority: exchange(EndpointKind::Azure)?,
            machine: exchange(EndpointKind::Local)?,
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
    /// Converts every failed answer to a [`TokenError`], which the library passes on. The library would retry if it saw the
    /// status or the connection fault. Its retries take over a minute for IMDS.
    async fn execute_request(&self, request: &Request) -> azure_core_v1::Result<AsyncRawResponse> {
        passed_on(
            request.url().host_str().unwrap_or_default(),
            self.send(request).await,
        )
    }
}

/// The result that the library gets if `host` gave this answer.
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
