//! The HTTP client under the client library: pooled, bounded in time and size, and silent about secrets.
//!
//! The library's default client keeps no connection open, sets no timeout, follows redirects and honours
//! proxy variables even for loopback.

use std::error::Error as _;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use azure_core::error::ErrorKind;
use azure_core::{Body, HttpClient, Method, Request, Response};
use bytes::{Bytes, BytesMut};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::settings::AzureAccount;

/// Largest answer that is read. Tables answer at most 4 MiB, a page of 32 messages about 3 MiB, a listing of
/// 5,000 blobs about 10 MiB; blobs are read in ranges smaller than this.
const ANSWER_BYTES: usize = 64 << 20;

/// A request with a body gets this much longer for each of its bytes: 1 MiB/s is slower than any useful line.
const UPLOAD_BYTES_PER_SECOND: usize = 1 << 20;

/// Connections kept open while idle, per host: as many as a worker has requests in flight at its busiest.
const IDLE_CONNECTIONS: usize = 512;

/// Shorter than the 5 s after which Node.js, and so Azurite, closes an idle connection: one that is closed just
/// as it is used again looks like a request lost on its way. (Azure keeps them for minutes.)
const IDLE_TIME_EMULATOR: Duration = Duration::from_secs(4);
const IDLE_TIME_AZURE: Duration = Duration::from_secs(50);

/// What the service answered, whatever its status.
#[derive(Clone)]
pub(super) struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Answer {
    /// A header's value, where there is one and it is text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
    }

    /// Whether the status is 2xx.
    pub(super) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({}, {} bytes)", self.status, self.body.len())
    }
}

/// Why there is no whole answer. The texts hold no address and no secret.
#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The request could not even be composed.
    Unsent(String),
    /// No connection could be made: nothing was sent.
    Refused(String),
    /// Sent, at least in part; unknown whether it was executed.
    Lost(String),
    /// The answer is larger than is ever read.
    TooLong,
}

/// Carries an answer, or a fault, past the client library, which passes errors of the transport on untouched.
#[derive(Debug, thiserror::Error)]
#[error("the answer was taken before the client library read it")]
struct Taken(Result<Answer, Fault>);

/// Runs one call of the client library and returns what its request met.
pub(super) async fn take<T>(call: impl Future<Output = azure_core::Result<T>> + Send) -> Result<Answer, Fault> {
    match call.await {
        // The transport never gives the library anything to finish with.
        Ok(_) => Err(Fault::Lost("the client library finished without an answer".to_owned())),
        Err(error) => match error.into_downcast::<Taken>() {
            Ok(taken) => taken.0,
            // Composing or signing failed. The library's text may quote the request, so only its kind is told.
            Err(other) => Err(Fault::Unsent(format!("the client library could not compose the request ({})", kind_name(other.kind())))),
        },
    }
}

/// The first page of one of the client library's streams; the pages after it are asked for by ourselves.
pub(super) async fn first<T, E>(stream: impl futures::Stream<Item = Result<T, E>> + Send) -> Result<T, azure_core::Error>
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
    client: reqwest::Client,
    timeout: Duration,
}

impl Transport {
    /// A client for the endpoints of `account`.
    pub(super) fn new(account: &AzureAccount) -> Result<Self, reqwest::Error> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(account.timeouts.connect)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_mins(1))
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .referer(false)
            .retry(reqwest::retry::never());
        builder = if account.endpoints.are_azure() {
            builder.pool_idle_timeout(IDLE_TIME_AZURE)
        } else {
            builder.pool_idle_timeout(IDLE_TIME_EMULATOR).no_proxy()
        };
        Ok(Self { client: builder.build()?, timeout: account.timeouts.request })
    }

    async fn exchange(&self, request: &Request) -> Result<Answer, Fault> {
        let Body::Bytes(body) = request.body() else {
            return Err(Fault::Unsent("a request body that is not in memory".to_owned()));
        };
        let extra = u64::try_from(body.len() / UPLOAD_BYTES_PER_SECOND).unwrap_or(u64::MAX);
        let composed = self
            .client
            .request(method(*request.method())?, request.url().clone())
            .headers(headers(request)?)
            .timeout(self.timeout.saturating_add(Duration::from_secs(extra)))
            .body(body.clone());
        let mut response = composed.send().await.map_err(fault)?;
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let mut body = BytesMut::new();
        while let Some(part) = response.chunk().await.map_err(fault)? {
            if body.len() + part.len() > ANSWER_BYTES {
                return Err(Fault::TooLong);
            }
            body.extend_from_slice(&part);
        }
        Ok(Answer { status, headers, body: body.freeze() })
    }
}

#[async_trait]
impl HttpClient for Transport {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<Response> {
        let outcome = self.exchange(request).await;
        Err(azure_core::Error::new(ErrorKind::Other, Taken(outcome)))
    }
}

fn method(method: Method) -> Result<reqwest::Method, Fault> {
    // MERGE, which Table storage has of its own, is not among the named constants.
    reqwest::Method::from_bytes(method.as_ref().as_bytes()).map_err(|_| Fault::Unsent("an unknown HTTP method".to_owned()))
}

fn headers(request: &Request) -> Result<HeaderMap, Fault> {
    let mut map = HeaderMap::new();
    for (name, value) in request.headers().iter() {
        let bad = || Fault::Unsent(format!("the header {} cannot be sent", name.as_str()));
        let header = HeaderName::from_bytes(name.as_str().as_bytes()).map_err(|_| bad())?;
        let mut value = HeaderValue::from_str(value.as_str()).map_err(|_| bad())?;
        value.set_sensitive(name.as_str() == "authorization");
        map.insert(header, value);
    }
    Ok(map)
}

/// What an error of the HTTP client means for the request. Its own text would name the address, which can
/// carry a signature, so the address is taken off it first.
fn fault(error: reqwest::Error) -> Fault {
    let error = error.without_url();
    if error.is_builder() {
        return Fault::Unsent("the HTTP client could not compose the request".to_owned());
    }
    let connecting = error.is_connect();
    let text = match (connecting, error.is_timeout()) {
        (true, true) => "no connection within the time allowed".to_owned(),
        (true, false) => format!("no connection: {}", root(&error)),
        (false, true) => "no answer within the time allowed".to_owned(),
        (false, false) => format!("the connection broke: {}", root(&error)),
    };
    if connecting { Fault::Refused(text) } else { Fault::Lost(text) }
}

/// The innermost cause, which is the operating system's or the TLS library's own sentence.
fn root(error: &reqwest::Error) -> String {
    let mut last: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(next) = last.and_then(std::error::Error::source) {
        last = Some(next);
    }
    last.map_or_else(|| error.to_string(), ToString::to_string)
}
