//! HTTP as the adapters use it: pooled, bounded in time and size, never followed elsewhere, and silent about secrets.

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

/// Largest answer that is read. Tables answer at most 4 MiB, a page of 32 messages about 3 MiB, a listing of
/// 5,000 blobs about 10 MiB; blobs are read in ranges smaller than this.
const ANSWER_BYTES: usize = 64 << 20;

/// A request with a body gets this much longer for each of its bytes: 1 MiB/s is slower than any useful line.
const UPLOAD_BYTES_PER_SECOND: usize = 1 << 20;

/// Connections kept open while idle, per host: as many as a worker has requests in flight at its busiest.
const IDLE_CONNECTIONS: usize = 512;

/// Shorter than the 5 s after which Node.js, and so Azurite, closes an idle connection: one that is closed just
/// as it is used again looks like a request lost on its way. (Azure keeps them for minutes.)
const IDLE_TIME_LOCAL: Duration = Duration::from_secs(4);
const IDLE_TIME_AZURE: Duration = Duration::from_secs(50);

/// Where a service of Azure Storage names a request, for its support.
pub const STORAGE_REQUEST_ID: &str = "x-ms-request-id";

/// A wait that an answer asks for beyond this is a mistake on the way, or meant to do harm.
const LONGEST_ASKED: Duration = Duration::from_mins(10);

/// A wait that an answer asks for, as long as it may be.
pub fn asked(wait: Duration) -> Duration {
    wait.min(LONGEST_ASKED)
}

/// Kind of the other end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Far {
    /// A service of Azure, perhaps behind a proxy.
    Azure,
    /// An emulator or a stub, which no proxy leads to.
    Local,
}

/// A service's answer, with any status.
#[derive(Clone)]
pub struct HttpAnswer {
    /// The HTTP status.
    pub status: u16,
    /// All headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl HttpAnswer {
    /// A header's value, where there is one and it is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .get(name)
            .and_then(|value| std::str::from_utf8(value.as_bytes()).ok())
    }

    /// `Retry-After`, in seconds.
    pub fn retry_after(&self) -> Option<Duration> {
        self.header("retry-after")?
            .trim()
            .parse()
            .ok()
            .map(|seconds| asked(Duration::from_secs(seconds)))
    }

    /// Whether a service of Azure Storage gave it, which names every request: a proxy or gateway in its place does not, and may answer
    /// with any status.
    pub fn is_of_storage(&self) -> bool {
        self.headers.contains_key(STORAGE_REQUEST_ID)
    }

    /// Whether the status is 2xx.
    pub const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}

impl fmt::Debug for HttpAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({}, {} bytes)", self.status, self.body.len())
    }
}

/// Why there is no whole answer. The texts hold no address and no secret.
#[derive(Debug, Clone)]
pub enum HttpFault {
    /// The request could not even be composed.
    Unsent(String),
    /// No connection could be made: nothing was sent.
    Refused(String),
    /// Sent, at least in part; unknown whether it was executed.
    Lost(String),
    /// The answer is larger than is ever read.
    TooLong,
    /// There is no token to send it with: nothing was sent.
    NoToken(TokenError),
}

impl HttpFault {
    /// Description of the fault.
    pub fn text(&self) -> &str {
        match self {
            Self::Unsent(text) | Self::Refused(text) | Self::Lost(text) => text,
            Self::TooLong => "the answer is longer than is ever read (64 MiB)",
            Self::NoToken(error) => error.text(),
        }
    }

    /// Its class; `unknown` where the request may have been executed.
    pub const fn class(&self, unknown: ErrorClass) -> ErrorClass {
        match self {
            Self::Unsent(_) => ErrorClass::Permanent,
            Self::Refused(_) => ErrorClass::Refused,
            Self::NoToken(error) => error.class(),
            Self::Lost(_) | Self::TooLong => unknown,
        }
    }
}

/// The beginning of a service's words, with blanks for control characters.
pub fn printable(words: &str, most_chars: usize) -> String {
    words
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(most_chars)
        .collect()
}

/// The credential that requests carry.
#[derive(Debug, Clone)]
pub enum Authentication {
    /// None.
    Anonymous,
    /// Tokens of Entra ID.
    Tokens(Arc<TokenCache>),
    /// Keys and signatures, with the service that they are signed for.
    Secrets(Arc<Keyring>, Service),
}

/// A pooled client. Clones share its connections.
#[derive(Debug, Clone)]
pub struct Exchange {
    client: reqwest::Client,
    timeout: Duration,
    authentication: Authentication,
    /// Reads no more than this of an answer, and nothing of a successful one; whole answers where absent.
    beginning: Option<usize>,
}

impl Exchange {
    /// A client that waits `connect` for a connection, and `timeout` for a whole answer, longer where much is sent.
    pub fn new(far: Far, connect: Duration, timeout: Duration) -> Result<Self, reqwest::Error> {
        let mut builder = reqwest::Client::builder()
            .connect_timeout(connect)
            .redirect(reqwest::redirect::Policy::none())
            .tcp_nodelay(true)
            .tcp_keepalive(Duration::from_mins(1))
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .referer(false)
            .retry(reqwest::retry::never());
        builder = match far {
            Far::Azure => builder.pool_idle_timeout(IDLE_TIME_AZURE),
            Far::Local => builder.pool_idle_timeout(IDLE_TIME_LOCAL).no_proxy(),
        };
        Ok(Self {
            client: builder.build()?,
            timeout,
            authentication: Authentication::Anonymous,
            beginning: None,
        })
    }

    /// One that reads the beginning of an answer alone, and of a successful answer nothing.
    #[must_use]
    pub fn reading_at_most(self, bytes: usize) -> Self {
        Self {
            beginning: Some(bytes),
            ..self
        }
    }

    /// One whose requests carry a credential.
    #[must_use]
    pub fn with(self, authentication: Authentication) -> Self {
        Self {
            authentication,
            ..self
        }
    }

    /// Sends one request: once, or again with another token or secret where the service refused the first, and so executed nothing.
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
            tokens.in_place_of(&token).await
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
            keyring.in_place_of(&signer).await
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

/// Maps an error of the HTTP client to a fault of the request. Its own text would name the address, which can
/// carry a signature, so host and port alone are kept of it.
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
        (true, true) => format!("no connection to {place} within the time allowed"),
        (true, false) => format!("no connection to {place}: {}", root(&error)),
        (false, true) => format!("no answer from {place} within the time allowed"),
        (false, false) => format!("the connection to {place} broke: {}", root(&error)),
    };
    if connecting {
        HttpFault::Refused(text)
    } else {
        HttpFault::Lost(text)
    }
}

/// The innermost cause, which is the operating system's or the TLS library's own sentence.
fn root(error: &reqwest::Error) -> String {
    let mut last: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(next) = last.and_then(std::error::Error::source) {
        last = Some(next);
    }
    last.map_or_else(|| error.to_string(), ToString::to_string)
}
