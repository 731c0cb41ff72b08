//! The HTTP client of the adapters: pooled, limited in time and size, without redirects, and without secrets in its errors.

use std::error::Error as _;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use reqwest::header::{AUTHORIZATION, HeaderMap};
use reqwest::{Method, Url};

use crate::identity::{BearerToken, TokenCache, TokenError};
use crate::keyring::{Keyring, Outgoing};
use evenkeel_storage::{ErrorClass, Service};

/// Maximum size of an answer. A page of entities has at most 4 MiB, a page of 32 messages about 3 MiB, a listing of 5,000 blobs
/// about 10 MiB. Blobs are read in smaller ranges.
const ANSWER_BYTES: usize = 64 << 20;

/// The timeout of a request grows by a second for this many bytes of its body. Any useful connection is faster than 1 MiB/s.
const UPLOAD_BYTES_PER_SECOND: usize = 1 << 20;

/// Maximum number of idle connections per host: as many as a busy worker has requests in flight.
const IDLE_CONNECTIONS: usize = 512;

/// Less than the 5 s after which Node.js, and so Azurite, closes an idle connection. A connection that is closed just as it is
/// reused looks like a lost request. (Azure keeps idle connections for minutes.)
const IDLE_TIME_LOCAL: Duration = Duration::from_secs(4);
const IDLE_TIME_AZURE: Duration = Duration::from_secs(50);

/// The header with the id that Azure Storage gave the request. Azure support asks for this id.
pub const STORAGE_REQUEST_ID: &str = "x-ms-request-id";

/// Maximum wait that an answer may ask for. A longer one is a mistake or an attack.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

pub fn capped_wait(wait: Duration) -> Duration {
    wait.min(MAX_RETRY_AFTER)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndpointKind {
    /// A service of Azure, possibly behind a proxy.
    Azure,
    /// An emulator or a stub, which is reached without a proxy.
    Local,
}

#[derive(Clone)]
pub struct HttpAnswer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl HttpAnswer {
    /// The value of a header, if it exists and is UTF-8.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
    }

    pub fn retry_after(&self) -> Option<Duration> {
        self.header("retry-after")?
            .trim()
            .parse()
            .ok()
            .map(|seconds| capped_wait(Duration::from_secs(seconds)))
    }

    /// Whether the answer comes from Azure Storage, which puts an id on every answer. A proxy or gateway does not, and may answer
    /// with any status.
    pub fn is_of_storage(&self) -> bool {
        self.headers.contains_key(STORAGE_REQUEST_ID)
    }

    pub const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

impl fmt::Debug for HttpAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({}, {} bytes)", self.status, self.body.len())
    }
}

/// Why there is no complete answer. The texts contain no URL and no secret.
#[derive(Debug, Clone)]
pub enum HttpFault {
    Unsent(String),
    /// No connection could be made, so nothing was sent.
    Refused(String),
    /// The request was sent at least in part, and its outcome is unknown.
    Lost(String),
    TooLong,
    /// No token could be obtained, so nothing was sent.
    NoToken(TokenError),
}

impl HttpFault {
    pub fn text(&self) -> &str {
        match self {
            Self::Unsent(text) | Self::Refused(text) | Self::Lost(text) => text,
            Self::TooLong => "the answer is longer than 64 MiB",
            Self::NoToken(error) => error.text(),
        }
    }

    /// The class of the fault; `unknown` if the request may have been executed.
    pub const fn class(&self, unknown: ErrorClass) -> ErrorClass {
        match self {
            Self::Unsent(_) => ErrorClass::Permanent,
            Self::Refused(_) => ErrorClass::Refused,
            Self::NoToken(error) => error.class(),
            Self::Lost(_) | Self::TooLong => unknown,
        }
    }
}

/// The first `most_chars` characters of a text from a service, with spaces in place of control characters.
pub fn printable(words: &str, most_chars: usize) -> String {
    words
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(most_chars)
        .collect()
}

#[derive(Debug, Clone)]
pub enum Authentication {
    Anonymous,
    Tokens(Arc<TokenCache>),
    /// Keys or signatures, and the service for which they sign.
    Secrets(Arc<Keyring>, Service),
}

/// A pooled client. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Exchange {
    client: reqwest::Client,
    timeout: Duration,
    authentication: Authentication,
    /// Maximum number of bytes to read from the body of a failed answer. If this is set, the body of a successful answer is
    /// not read. `None` reads every answer completely.
    beginning: Option<usize>,
}

impl Exchange {
    /// Creates a client with a timeout for connecting and one for the whole answer, which is longer for large requests.
    pub fn new(
        endpoint: EndpointKind,
        connect: Duration,
        timeout: Duration,
    ) -> Result<Self, reqwest::Error> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(connect)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_mins(1))
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .referer(false)
            .retry(reqwest::retry::never());
        builder = match endpoint {
            EndpointKind::Azure => builder.pool_idle_timeout(IDLE_TIME_AZURE),
            EndpointKind::Local => builder.pool_idle_timeout(IDLE_TIME_LOCAL).no_proxy(),
        };
        Ok(Self {
            client: builder.build()?,
            timeout,
            authentication: Authentication::Anonymous,
            beginning: None,
        })
    }

    /// Reads only the beginning of failed answers and nothing of successful ones.
    #[must_use]
    pub fn reading_at_most(self, bytes: usize) -> Self {
        Self {
            beginning: Some(bytes),
            ..self
        }
    }

    #[must_use]
    pub fn with(self, authentication: Authentication) -> Self {
        Self {
            authentication,
            ..self
        }
    }

    /// Sends a request. It is sent again, with another token or secret, only if the service rejected the first credential and so executed nothing.
    pub async fn send(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<HttpAnswer, HttpFault> {
        let request = Outgoing {
            method,
            url,
            headers,
            body,
        };
        match &self.authentication {
            Authentication::Anonymous => self.send_once(request).await,
            Authentication::Tokens(tokens) => self.send_with_token(tokens, request).await,
            Authentication::Secrets(keyring, service) => {
                self.send_signed(keyring, *service, request).await
            }
        }
    }

    async fn send_with_token(
        &self,
        tokens: &TokenCache,
        request: Outgoing,
    ) -> Result<HttpAnswer, HttpFault> {
        let with = |token: &BearerToken| {
            let mut request = request.clone();
            request.headers.insert(AUTHORIZATION, token.header());
            self.send_once(request)
        };
        let token = tokens.token().await.map_err(HttpFault::NoToken)?;
        let answer = with(&token).await?;
        match if answer.status == 401 {
            tokens.replacement_for(&token).await
        } else {
            None
        } {
            Some(other) => with(&other).await,
            None => Ok(answer),
        }
    }

    async fn send_signed(
        &self,
        keyring: &Arc<Keyring>,
        service: Service,
        request: Outgoing,
    ) -> Result<HttpAnswer, HttpFault> {
        let signer = keyring.signer().await;
        let answer = self
            .send_once(signer.sign(service, request.clone())?)
            .await?;
        match if signer.is_refused(&answer) {
            keyring.replacement_for(&signer).await
        } else {
            None
        } {
            Some(other) => self.send_once(other.sign(service, request)?).await,
            None => Ok(answer),
        }
    }

    async fn send_once(&self, request: Outgoing) -> Result<HttpAnswer, HttpFault> {
        let Outgoing {
            method,
            url,
            headers,
            body,
        } = request;
        let extra = u64::try_from(body.len() / UPLOAD_BYTES_PER_SECOND).unwrap_or(u64::MAX);
        let timeout = self.timeout.saturating_add(Duration::from_secs(extra));
        let mut composed = reqwest::Request::new(method, url);
        *composed.headers_mut() = headers;
        *composed.timeout_mut() = Some(timeout);
        *composed.body_mut() = Some(body.into());
        let mut response = self.client.execute(composed).await.map_err(fault)?;
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        if let Some(most) = self.beginning {
            let body = if (200..300).contains(&status) {
                Bytes::new()
            } else {
                beginning(response, most).await
            };
            return Ok(HttpAnswer {
                status,
                headers,
                body,
            });
        }
        let mut body = BytesMut::new();
        while let Some(part) = response.chunk().await.map_err(fault)? {
            if body.len() + part.len() > ANSWER_BYTES {
                return Err(HttpFault::TooLong);
            }
            body.extend_from_slice(&part);
        }
        Ok(HttpAnswer {
            status,
            headers,
            body: body.freeze(),
        })
    }
}

/// The beginning of a body, as far as it arrives.
async fn beginning(mut response: reqwest::Response, most: usize) -> Bytes {
    let mut body = BytesMut::new();
    while let (true, Ok(Some(part))) = (body.len() < most, response.chunk().await) {
        body.extend_from_slice(&part[..part.len().min(most - body.len())]);
    }
    body.freeze()
}

/// Converts an error of the HTTP client. Its own text would contain the URL, which may include a signature, so only host and
/// port are kept.
fn fault(error: reqwest::Error) -> HttpFault {
    let place = error
        .url()
        .and_then(|url| {
            Some(format!(
                "{}:{}",
                url.host_str()?,
                url.port_or_known_default()?
            ))
        })
        .unwrap_or_default();
    let error = error.without_url();
    if error.is_builder() {
        return HttpFault::Unsent("the HTTP client could not compose the request".to_owned());
    }
    let connecting = error.is_connect();
    let text = match (connecting, error.is_timeout()) {
        (true, true) => format!("no connection to {place} before the timeout"),
        (true, false) => format!("no connection to {place}: {}", root(&error)),
        (false, true) => format!("no answer from {place} before the timeout"),
        (false, false) => format!("the connection to {place} broke: {}", root(&error)),
    };
    if connecting {
        HttpFault::Refused(text)
    } else {
        HttpFault::Lost(text)
    }
}

/// The innermost cause: the message of the operating system or the TLS library.
fn root(error: &reqwest::Error) -> String {
    let mut last: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(next) = last.and_then(std::error::Error::source) {
        last = Some(next);
    }
    last.map_or_else(|| error.to_string(), ToString::to_string)
}
