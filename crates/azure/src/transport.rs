//! The HTTP client of the client library.
//!
//! The library's default client does not reuse connections, has no timeout, follows redirects, and uses proxy variables even for
//! loopback.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::{Body, HttpClient, Method, Request, Response};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use tokio::time::Instant;

use super::http_date;
use super::settings::AzureAccount;
use crate::http::{Authentication, Exchange};
pub(super) use crate::http::{HttpAnswer, HttpFault};
use crate::identity::TokenCache;
use crate::keyring::Keyring;
use evenkeel_storage::{Service, ServiceClocks};

/// Monotonic time, shared by all accounts of the process.
fn monotonic() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Carries an answer or a fault through the client library, which passes transport errors on unchanged.
#[derive(Debug, thiserror::Error)]
#[error("the answer was taken before the client library read it")]
struct RawReply(Result<HttpAnswer, HttpFault>);

/// Runs one call of the client library and returns the answer to its request, or the fault.
pub(super) async fn take<T>(
    call: impl Future<Output = azure_core::Result<T>> + Send,
) -> Result<HttpAnswer, HttpFault> {
    match call.await {
        // The transport always returns an error, so the library cannot succeed.
        Ok(_) => Err(HttpFault::Lost(
            "the client library finished without an answer".to_owned(),
        )),
        Err(error) => match error.into_downcast::<RawReply>() {
            Ok(taken) => taken.0,
            // Composing or signing failed. The library's text may quote the request, so only the kind is reported.
            Err(other) => Err(HttpFault::Unsent(format!(
                "the client library could not compose the request ({})",
                kind_name(other.kind())
            ))),
        },
    }
}

/// The first page of a stream of the client library. Our own code requests the later pages.
pub(super) async fn first<T, E>(
    stream: impl futures::Stream<Item = Result<T, E>> + Send,
) -> Result<T, azure_core::Error>
where
    azure_core::Error: From<E>,
{
    use futures::StreamExt as _;
    match std::pin::pin!(stream).next().await {
        Some(page) => Ok(page?),
        None => Err(azure_core::Error::message(ErrorKind::Other, "no page")),
    }
}

const fn kind_name(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::HttpResponse { .. } => "HTTP response",
        ErrorKind::Io => "I/O",
        ErrorKind::DataConversion => "data conversion",
        ErrorKind::Credential => "credential",
        ErrorKind::MockFramework | ErrorKind::Other => "other",
    }
}

#[derive(Debug)]
pub(super) struct Transport {
    exchange: Exchange,
    keyring: Option<Arc<Keyring>>,
    clocks: Arc<ServiceClocks>,
}

#[derive(Debug)]
pub(super) struct ServiceTransport {
    exchange: Exchange,
    service: Service,
    clocks: Arc<ServiceClocks>,
}

impl Transport {
    /// Creates a client for the endpoints of `account`. Requests use `tokens` if given, otherwise the account's secrets.
    pub(super) fn new(
        account: &AzureAccount,
        tokens: Option<Arc<TokenCache>>,
    ) -> Result<Self, reqwest::Error> {
        let exchange =
            account.exchange(tokens.map_or(Authentication::Anonymous, Authentication::Tokens))?;
        Ok(Self {
            exchange,
            keyring: account.keyring(),
            clocks: Arc::new(ServiceClocks::timed_by(monotonic)),
        })
    }

    /// The clock offsets of the services, measured from their answers.
    pub(super) fn clocks(&self) -> Arc<ServiceClocks> {
        Arc::clone(&self.clocks)
    }

    pub(super) fn to(&self, service: Service) -> ServiceTransport {
        let exchange = self.exchange.clone();
        let exchange = match self.keyring.clone() {
            Some(keyring) => exchange.with(Authentication::Secrets(keyring, service)),
            None => exchange,
        };
        ServiceTransport {
            exchange,
            service,
            clocks: self.clocks(),
        }
    }
}

impl ServiceTransport {
    async fn exchange(&self, request: &Request) -> Result<HttpAnswer, HttpFault> {
        let Body::Bytes(body) = request.body() else {
            return Err(HttpFault::Unsent(
                "the request body is not in memory".to_owned(),
            ));
        };
        let (sent, method, headers) = (monotonic(), method(*request.method())?, headers(request)?);
        let answer = self
            .exchange
            .send(method, request.url().clone(), headers, body.clone())
            .await?;
        // A gateway's own answer has the gateway's time, which is ignored.
        if let (true, Some(date)) = (
            answer.is_of_storage(),
            answer.header("date").and_then(http_date::parse),
        ) {
            self.clocks.record(self.service, date, (sent, monotonic()));
        }
        Ok(answer)
    }
}

#[async_trait]
impl HttpClient for ServiceTransport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<Response> {
        let outcome = self.exchange(request).await;
        Err(azure_core::Error::new(ErrorKind::Other, RawReply(outcome)))
    }
}

fn method(method: Method) -> Result<reqwest::Method, HttpFault> {
    // MERGE, which only Table storage uses, has no constant.
    reqwest::Method::from_bytes(method.as_ref().as_bytes())
        .map_err(|_| HttpFault::Unsent("the HTTP method is invalid".to_owned()))
}

fn headers(request: &Request) -> Result<HeaderMap, HttpFault> {
    let mut map = HeaderMap::new();
    for (name, value) in request.headers().iter() {
        let bad = || HttpFault::Unsent(format!("the header {} cannot be sent", name.as_str()));
        let header = HeaderName::from_bytes(name.as_str().as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value.as_str()).map_err(|_| bad())?;
        value.set_sensitive(name.as_str() == "authorization");
        map.insert(header, value);
    }
    Ok(map)
}
