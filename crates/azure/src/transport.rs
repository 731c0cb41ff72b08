//! The HTTP client under the client library.
//!
//! The library's default client keeps no connection open, sets no timeout, follows redirects and honours
//! proxy variables even for loopback.

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

/// Monotonic time, the same for all accounts of the process.
fn monotonic() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// Carries an answer, or a fault, past the client library, which passes errors of the transport on untouched.
#[derive(Debug, thiserror::Error)]
#[error("the answer was taken before the client library read it")]
struct RawReply(Result<HttpAnswer, HttpFault>);

/// Runs one call of the client library and returns the answer to its request, or the fault.
pub(super) async fn take<T>(
    call: impl Future<Output = azure_core::Result<T>> + Send,
) -> Result<HttpAnswer, HttpFault> {
    match call.await {
        // The transport never gives the library anything to finish with.
        Ok(_) => Err(HttpFault::Lost(
            "the client library finished without an answer".to_owned(),
        )),
        Err(error) => match error.into_downcast::<RawReply>() {
            Ok(taken) => taken.0,
            // Composing or signing failed. The library's text may quote the request, so only its kind is reported.
            Err(other) => Err(HttpFault::Unsent(format!(
                "the client library could not compose the request ({})",
                kind_name(other.kind())
            ))),
        },
    }
}

/// The first page of one of the client library's streams; the pages after it are asked for by ourselves.
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

/// One pooled client for the three services of an account.
#[derive(Debug)]
pub(super) struct Transport {
    exchange: Exchange,
    keyring: Option<Arc<Keyring>>,
    clocks: Arc<ServiceClocks>,
}

/// The same, for requests to one of them.
#[derive(Debug)]
pub(super) struct ServiceTransport {
    exchange: Exchange,
    service: Service,
    clocks: Arc<ServiceClocks>,
}

impl Transport {
    /// A client for the endpoints of `account`. Its requests carry `tokens` where there are any, else the account's secrets.
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

    /// The services' clock offsets, as learnt from their answers.
    pub(super) fn clocks(&self) -> Arc<ServiceClocks> {
        Arc::clone(&self.clocks)
    }

    /// For requests to one service.
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
                "a request body that is not in memory".to_owned(),
            ));
        };
        let (sent, method, headers) = (monotonic(), method(*request.method())?, headers(request)?);
        let answer = self
            .exchange
            .send(method, request.url().clone(), headers, body.clone())
            .await?;
        // The date of a gateway's own answer is the gateway's time.
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
    // MERGE, which Table storage has of its own, is not among the named constants.
    reqwest::Method::from_bytes(method.as_ref().as_bytes())
        .map_err(|_| HttpFault::Unsent("an unknown HTTP method".to_owned()))
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
