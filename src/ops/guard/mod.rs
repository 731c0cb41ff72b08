//! Who may ask what.
//!
//! | | reading | changing |
//! | --- | --- | --- |
//! | on loopback, under a name of this machine | everybody | token or session, and not from another site's page |
//! | anywhere else | token or session | the same |
//!
//! A session is a cookie that `POST /login` gives for the token. Guessing is slow: after ten wrong tokens an address
//! waits, and its tokens are not compared meanwhile.

mod failures;
mod origin;
mod sessions;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Form, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::ports::Clock;
use failures::Failures;
use origin::Origin;
use sessions::Sessions;

/// Lets requests through that may be made.
#[derive(Clone)]
pub struct Guard {
    /// The digest of the token. Digests are compared, so that the time taken says neither where a guess
    /// differs nor how long the token is.
    expected: Option<[u8; 32]>,
    loopback: bool,
    clock: Arc<dyn Clock>,
    failures: Arc<Failures>,
    sessions: Arc<Sessions>,
}

/// Who sent a request, as the connection says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Peer(pub(super) IpAddr);

/// Who asks, for pages to show what they may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visitor {
    /// They have a session: their forms will be let through.
    pub(crate) signed_in: bool,
    /// There is a token that would give one.
    pub(crate) can_sign_in: bool,
}

impl Guard {
    /// The guard of a server at an address.
    pub fn new(address: SocketAddr, token: Option<&SecretString>, clock: Arc<dyn Clock>) -> Self {
        let expected = token.map(|token| Sha256::digest(token.expose_secret()).into());
        let loopback = address.ip().to_canonical().is_loopback();
        Self { expected, loopback, clock, failures: Arc::default(), sessions: Arc::default() }
    }

    fn admits(&self, method: &Method, headers: &HeaderMap, peer: IpAddr) -> Result<(), Refusal> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if self.loopback && reads && origin::names_this_machine(headers) {
            return Ok(());
        }
        if self.expected.is_none() {
            return Err(if self.loopback && reads { Refusal::ForeignName } else { Refusal::NoTokenConfigured });
        }
        let by_token = match headers.get(header::AUTHORIZATION) {
            None => false,
            Some(given) => {
                self.compare(given.to_str().ok().and_then(bearer), peer)?;
                true
            }
        };
        if !by_token && !self.sessions.knows(headers, self.clock.monotonic()) {
            return Err(if self.loopback && reads { Refusal::ForeignName } else { Refusal::WrongToken });
        }
        match origin::origin(headers) {
            Origin::Same => Ok(()),
            Origin::Unsaid if reads || by_token => Ok(()),
            // A link from elsewhere may lead here; what it leads to cannot be read by the page it is on.
            Origin::Other if reads => Ok(()),
            Origin::Other | Origin::Unsaid => Err(Refusal::OtherSite),
        }
    }

    /// Compares a token that an address sent.
    fn compare(&self, given: Option<&str>, peer: IpAddr) -> Result<(), Refusal> {
        let expected = self.expected.ok_or(Refusal::NoTokenConfigured)?;
        let now = self.clock.monotonic();
        if let Some(wait) = self.failures.wait(peer, now) {
            return Err(Refusal::TooOften(wait));
        }
        match given {
            Some(given) if same(&expected, &Sha256::digest(given).into()) => Ok(()),
            _ => {
                self.failures.failed(peer, now);
                tracing::warn!(%peer, "a wrong token was sent");
                Err(Refusal::WrongToken)
            }
        }
    }
}

/// The token of `Bearer TOKEN`; the scheme's case does not matter (RFC 9110, 11.1).
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether two digests are equal, in the same time wherever they differ.
fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    std::hint::black_box(one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b))) == 0
}

/// Why a request is not let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    NoTokenConfigured,
    WrongToken,
    TooOften(Duration),
    OtherSite,
    ForeignName,
}

impl Refusal {
    const fn words(self) -> &'static str {
        match self {
            Self::NoTokenConfigured => "this needs a token, and none is configured: set http.token_env",
            Self::WrongToken => "this needs Authorization: Bearer TOKEN, with the token that http.token_env names, or a session (/login)",
            Self::TooOften(_) => "too many wrong tokens: wait",
            Self::ForeignName => "without a token this is answered under a name of this machine only: localhost, 127.0.0.1 or [::1]",
            Self::OtherSite => "a change may not come from another site's page",
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let text = format!("{}\n", self.words());
        match self {
            Self::NoTokenConfigured | Self::OtherSite | Self::ForeignName => (StatusCode::FORBIDDEN, text).into_response(),
            Self::WrongToken => (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer realm=\"evenkeel\"")], text).into_response(),
            Self::TooOften(wait) => {
                let seconds = (wait.as_secs() + 1).to_string();
                (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, seconds)], text).into_response()
            }
        }
    }
}

impl Peer {
    /// Nobody's address, where the connection does not say.
    const NOBODY: Self = Self(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
}

pub(super) async fn check(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    match guard.admits(request.method(), request.headers(), request.extensions().get::<Peer>().unwrap_or(&Peer::NOBODY).0) {
        Ok(()) => {
            let signed_in = guard.sessions.knows(request.headers(), guard.clock.monotonic());
            request.extensions_mut().insert(Visitor { signed_in, can_sign_in: guard.expected.is_some() });
            next.run(request).await
        }
        Err(Refusal::WrongToken) if wants_a_page(&request) => Redirect::to("/login").into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// Whether a browser asks for a page to show.
fn wants_a_page(request: &Request) -> bool {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
    matches!(*request.method(), Method::GET | Method::HEAD) && accept.is_some_and(|accept| accept.contains("text/html"))
}

/// What the login form sends.
#[derive(Deserialize)]
pub(super) struct Login {
    token: SecretString,
}

/// Gives a session for the token.
pub(super) async fn log_in(
    State(guard): State<Guard>,
    headers: HeaderMap,
    peer: Option<axum::Extension<Peer>>,
    form: Form<Login>,
) -> Response {
    let Peer(peer) = peer.map_or(Peer::NOBODY, |peer| peer.0);
    if origin::origin(&headers) == Origin::Other {
        return Refusal::OtherSite.into_response();
    }
    match guard.compare(Some(form.token.expose_secret()), peer) {
        Ok(()) => {
            tracing::info!(%peer, "signed in");
            let cookie = guard.sessions.begin(guard.clock.monotonic());
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        // Back to the form; a program sees by the status that it got no session.
        Err(Refusal::WrongToken) => {
            (StatusCode::UNAUTHORIZED, [(header::REFRESH, "0; url=/login?wrong=1")], "that is not the token\n").into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Ends a session.
pub(super) async fn log_out(State(guard): State<Guard>, headers: HeaderMap) -> Response {
    if origin::origin(&headers) == Origin::Other {
        return Refusal::OtherSite.into_response();
    }
    ([(header::SET_COOKIE, guard.sessions.end(&headers))], Redirect::to("/")).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::system::SystemClock;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (axum::http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn guard(address: &str, token: Option<&str>) -> Guard {
        Guard::new(address.parse().unwrap(), token.map(SecretString::from).as_ref(), Arc::new(SystemClock::new()))
    }

    #[test]
    fn on_loopback_reading_is_free_and_changes_need_the_token() {
        for address in ["127.0.0.1:9464", "[::1]:9464", "[::ffff:127.0.0.1]:9464"] {
            let guard = guard(address, Some("s3cret"));
            assert_eq!(guard.admits(&Method::GET, &headers(&[]), PEER), Ok(()));
            assert_eq!(guard.admits(&Method::POST, &headers(&[]), PEER), Err(Refusal::WrongToken));
            assert_eq!(guard.admits(&Method::POST, &headers(&[("authorization", "Bearer s3cret")]), PEER), Ok(()));
        }
        assert_eq!(guard("127.0.0.1:9464", None).admits(&Method::POST, &headers(&[]), PEER), Err(Refusal::NoTokenConfigured));
    }

    #[test]
    fn a_name_that_is_not_this_machine_s_reads_nothing_on_loopback_without_the_token() {
        let guard = guard("127.0.0.1:9464", Some("s3cret"));
        let rebound = headers(&[("host", "evil.example:9464")]);
        assert_eq!(guard.admits(&Method::GET, &rebound, PEER), Err(Refusal::ForeignName));
        let proxied = headers(&[("host", "evenkeel.contoso.com"), ("authorization", "Bearer s3cret")]);
        assert_eq!(guard.admits(&Method::GET, &proxied, PEER), Ok(()));
    }

    #[test]
    fn anywhere_else_everything_needs_exactly_the_token() {
        let guard = guard("0.0.0.0:9464", Some("s3cret"));
        assert_eq!(guard.admits(&Method::GET, &headers(&[("authorization", "bearer s3cret")]), PEER), Ok(()));
        for wrong in ["Bearer", "Bearer ", "Bearer s3cre", "Bearer s3crets", "Basic s3cret", "s3cret"] {
            let given = headers(&[("authorization", wrong)]);
            assert_eq!(guard.admits(&Method::GET, &given, PEER), Err(Refusal::WrongToken), "{wrong:?}");
        }
        assert_eq!(guard.admits(&Method::GET, &headers(&[]), PEER), Err(Refusal::WrongToken));
    }

    #[test]
    fn another_site_s_page_changes_nothing_with_a_session_or_the_token() {
        let guard = guard("127.0.0.1:9464", Some("s3cret"));
        let cookie = guard.sessions.begin(guard.clock.monotonic());
        let cookie = cookie.split(';').next().unwrap();
        let own = headers(&[("host", "localhost:1"), ("origin", "http://localhost:1"), ("cookie", cookie)]);
        assert_eq!(guard.admits(&Method::POST, &own, PEER), Ok(()));
        let foreign = headers(&[("host", "localhost:1"), ("origin", "http://evil.example"), ("cookie", cookie)]);
        assert_eq!(guard.admits(&Method::POST, &foreign, PEER), Err(Refusal::OtherSite));
        let unsaid = headers(&[("host", "localhost:1"), ("cookie", cookie)]);
        assert_eq!(guard.admits(&Method::POST, &unsaid, PEER), Err(Refusal::OtherSite), "a browser says where it comes from");
        let token = headers(&[("host", "h"), ("sec-fetch-site", "cross-site"), ("authorization", "Bearer s3cret")]);
        assert_eq!(guard.admits(&Method::POST, &token, PEER), Err(Refusal::OtherSite));
    }

    #[test]
    fn a_thousand_guesses_are_refused_unseen_even_the_right_one_among_them() {
        let guard = guard("0.0.0.0:9464", Some("s3cret"));
        let guess = |token: &str, peer| guard.admits(&Method::GET, &headers(&[("authorization", &format!("Bearer {token}"))]), peer);
        let refused =
            (0..1_000).filter(|guess_number| matches!(guess(&format!("{guess_number}"), PEER), Err(Refusal::TooOften(_)))).count();
        assert_eq!(refused, 990);
        assert!(matches!(guess("s3cret", PEER), Err(Refusal::TooOften(_))));
        assert_eq!(guess("s3cret", IpAddr::from([10, 0, 0, 8])), Ok(()), "others are not locked out");
    }
}
