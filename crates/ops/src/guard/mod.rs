//! Decides which requests are allowed.
//!
//! | | reading | changing |
//! | --- | --- | --- |
//! | on loopback, with a host name of this machine, not through a proxy | everyone except pages of other sites | an operator's token or session, not from a page of another site |
//! | everywhere else | a token or session | an operator's token or session, not from a page of another site |
//!
//! Each token has a holder, with a name and a role: read or operate. A holder also needs the right to see contents of
//! entities before they are shown. `POST /login` returns a session, which is a cookie, for a token. The session has the
//! rights of the token and ends if the token is removed. After ten wrong tokens an address has to wait. A correct token
//! is accepted even then, because other senders at the same address may have sent the wrong tokens.

mod actor;
mod failures;
mod origin;
mod sessions;
mod tokens;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Form, Request, State};
use axum::http::{HeaderMap, Method, StatusCode, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

pub(crate) use actor::Actor;
pub(super) use actor::Peer;
pub use tokens::bell_key;

use crate::logging::AUDIT;
use evenkeel_model::local::is_loopback;
use evenkeel_model::settings::{HttpRole, HttpSettings};
use evenkeel_storage::Clock;
use failures::AddressFailures;
use origin::RequestOrigin;
use sessions::Sessions;
use tokens::{Holder, Tokens, digest};

/// Path of the doorbell, with which a sender reports new messages.
const WAKE: &str = "/api/v1/wake";

/// Allows or rejects requests.
#[derive(Clone)]
pub struct Guard {
    tokens: Arc<Tokens>,
    loopback: bool,
    open_reads: bool,
    clock: Arc<dyn Clock>,
    failures: Arc<AddressFailures>,
    sessions: Arc<Sessions>,
}

/// The rights of a visitor. Pages show only the actions that the visitor may use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Visitor {
    /// The visitor has a session, so forms are accepted.
    pub(crate) signed_in: bool,
    /// A token is configured, so the visitor can sign in.
    pub(crate) can_sign_in: bool,
    /// The visitor may see contents of entities: properties, and bodies of poison messages.
    pub(crate) contents: bool,
}

/// The holder of the token or session of an allowed request; `None` if the request was allowed without them.
type Admitted<'a> = Option<&'a Holder>;

#[derive(Clone, Copy)]
struct RequestFacts<'a> {
    method: &'a Method,
    version: Version,
    headers: &'a HeaderMap,
    peer: IpAddr,
}

impl Guard {
    /// Creates the guard of a server that listens on an address.
    pub fn new(address: SocketAddr, settings: &HttpSettings, clock: Arc<dyn Clock>) -> Self {
        Self {
            tokens: Arc::new(Tokens::new(&settings.tokens, clock.monotonic())),
            loopback: is_loopback(address.ip()),
            open_reads: settings.open_reads,
            clock,
            failures: Arc::default(),
            sessions: Arc::default(),
        }
    }

    /// Whether a request rings the doorbell and has the doorbell key. This key permits nothing else.
    fn is_bell(&self, request: &Request) -> bool {
        let given = bearer_token(request.headers());
        let rings = *request.method() == Method::POST && request.uri().path() == WAKE;
        rings && given.is_some_and(|given| self.tokens.rings(given))
    }

    /// Decides whether a request is allowed. Returns the holder of its token or session, if it has one.
    fn admits(&self, facts: RequestFacts<'_>) -> Result<Admitted<'_>, AccessRefusal> {
        let RequestFacts {
            method,
            headers,
            peer,
            ..
        } = facts;
        let needed = if matches!(*method, Method::GET | Method::HEAD) {
            HttpRole::Read
        } else {
            HttpRole::Operate
        };
        let reads = needed == HttpRole::Read;
        let closed = match self.open(facts) {
            // The request needs no token, but a token or session may give it more rights.
            Ok(()) if reads => {
                return Ok(bearer_token(headers)
                    .and_then(|given| self.tokens.holder(given))
                    .or_else(|| self.session(headers)));
            }
            Err(closed) if reads => closed,
            Ok(()) | Err(_) => AccessRefusal::WrongToken,
        };
        if !self.tokens.allow(needed) {
            return Err(if closed == AccessRefusal::WrongToken {
                AccessRefusal::NoTokenConfigured
            } else {
                closed
            });
        }
        let by_token = if headers.contains_key(header::AUTHORIZATION) {
            Some(self.compare(bearer_token(headers), peer)?)
        } else {
            None
        };
        let holder = by_token.or_else(|| self.session(headers)).ok_or(closed)?;
        if holder.role < needed {
            return Err(AccessRefusal::ReadsOnly);
        }
        match origin::origin(headers) {
            RequestOrigin::Same => Ok(Some(holder)),
            RequestOrigin::Unknown if reads || by_token.is_some() => Ok(Some(holder)),
            RequestOrigin::Link if reads => Ok(Some(holder)),
            RequestOrigin::Other if reads && by_token.is_some() => Ok(Some(holder)),
            RequestOrigin::Link | RequestOrigin::Other | RequestOrigin::Unknown => {
                Err(AccessRefusal::OtherSite)
            }
        }
    }

    /// Returns the holder of the token that the request's session was created with.
    fn session(&self, headers: &HeaderMap) -> Option<&Holder> {
        self.sessions
            .token(headers, self.clock.monotonic())
            .and_then(|token| self.tokens.holder_of(&token))
    }

    /// Reads changed token files again. If the request has an unknown token, the files are read earlier.
    async fn keep_current(&self, given: Option<&str>) {
        let is_unknown = given.is_some_and(|given| self.tokens.holder(given).is_none());
        self.tokens
            .keep_current(is_unknown, self.clock.monotonic())
            .await;
    }

    /// Returns an error with the reason if a request may not read without a token.
    fn open(&self, facts: RequestFacts<'_>) -> Result<(), AccessRefusal> {
        if !self.loopback || !self.open_reads {
            return Err(AccessRefusal::WrongToken);
        }
        if !origin::names_this_machine(facts.headers) {
            return Err(AccessRefusal::ForeignName);
        }
        if origin::is_proxied(facts.version, facts.headers) {
            return Err(AccessRefusal::Proxied);
        }
        // A page of another site cannot read the answer. But the page could measure how long the answer takes, and so
        // find out which keys exist.
        if origin::origin(facts.headers) == RequestOrigin::Other {
            return Err(AccessRefusal::OtherSite);
        }
        Ok(())
    }

    /// Returns the holder of a token. A wrong token is an error. The error is `TooOften` if the address must wait
    /// before it may send another wrong token.
    fn compare(&self, given: Option<&str>, peer: IpAddr) -> Result<&Holder, AccessRefusal> {
        if let Some(holder) = given.and_then(|given| self.tokens.holder(given)) {
            return Ok(holder);
        }
        let now = self.clock.monotonic();
        if let Some(wait) = self.failures.wait(peer, now) {
            return Err(AccessRefusal::TooOften(wait));
        }
        self.failures.failed(peer, now);
        tracing::warn!(%peer, "rejected a request from {peer}: wrong token");
        Err(AccessRefusal::WrongToken)
    }
}

/// Returns the token in the `Authorization` header of a request.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    headers
        .get(header::AUTHORIZATION)
        .and_then(|given| given.to_str().ok())
        .and_then(bearer)
}

/// Returns the token of `Bearer TOKEN`. The scheme is case-insensitive (RFC 9110, 11.1).
fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AccessRefusal {
    NoTokenConfigured,
    WrongToken,
    ReadsOnly,
    TooOften(Duration),
    OtherSite,
    ForeignName,
    Proxied,
}

impl AccessRefusal {
    const fn words(self) -> &'static str {
        match self {
            Self::NoTokenConfigured => {
                "a token is required, but none is configured. Set http.token_env or [http.tokens.NAME]"
            }
            Self::WrongToken => {
                "a valid token is required. Send Authorization: Bearer TOKEN with a token of [http], or sign in at /login"
            }
            Self::ReadsOnly => {
                "this token can only read. A change needs a token with role = \"operate\", or that of http.token_env"
            }
            Self::Proxied => {
                "requests through a proxy need a token. Send one, or let the proxy add its own"
            }
            Self::TooOften(_) => "too many wrong tokens. Retry after the time in Retry-After",
            Self::ForeignName => {
                "without a token the host must be a name of this machine: localhost, 127.0.0.1 or [::1]"
            }
            Self::OtherSite => {
                "a page of another site may link here, but cannot change or fetch anything"
            }
        }
    }
}

impl IntoResponse for AccessRefusal {
    fn into_response(self) -> Response {
        let text = format!("{}\n", self.words());
        match self {
            Self::NoTokenConfigured
            | Self::ReadsOnly
            | Self::OtherSite
            | Self::ForeignName
            | Self::Proxied => (StatusCode::FORBIDDEN, text).into_response(),
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                [(header::WWW_AUTHENTICATE, "Bearer realm=\"evenkeel\"")],
                text,
            )
                .into_response(),
            Self::TooOften(wait) => {
                let seconds = (wait.as_secs() + 1).to_string();
                (
                    StatusCode::TOO_MANY_REQUESTS,
                    [(header::RETRY_AFTER, seconds)],
                    text,
                )
                    .into_response()
            }
        }
    }
}

pub(super) async fn check(
    State(guard): State<Guard>,
    mut request: Request,
    next: Next,
) -> Response {
    guard.keep_current(bearer_token(request.headers())).await;
    if guard.is_bell(&request) {
        return next.run(request).await;
    }
    let peer = *request.extensions().get::<Peer>().unwrap_or(&Peer::NOBODY);
    let facts = RequestFacts {
        method: request.method(),
        version: request.version(),
        headers: request.headers(),
        peer: peer.0,
    };
    match guard.admits(facts) {
        Ok(holder) => {
            let signed_in = guard
                .session(request.headers())
                .is_some_and(|holder| holder.role == HttpRole::Operate);
            let contents =
                holder.is_some_and(|holder| holder.contents) || guard.open(facts).is_ok();
            let actor = Actor::of(
                peer,
                holder.map(|holder| Arc::clone(&holder.name)),
                request.headers(),
            );
            request.extensions_mut().insert(Visitor {
                signed_in,
                can_sign_in: guard.tokens.allow(HttpRole::Read),
                contents,
            });
            request.extensions_mut().insert(actor);
            next.run(request).await
        }
        Err(AccessRefusal::WrongToken | AccessRefusal::Proxied)
            if guard.tokens.allow(HttpRole::Read) && wants_a_page(&request) =>
        {
            Redirect::to("/login").into_response()
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Whether a browser requests a page.
fn wants_a_page(request: &Request) -> bool {
    let accept = request
        .headers()
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    matches!(*request.method(), Method::GET | Method::HEAD)
        && accept.is_some_and(|accept| accept.contains("text/html"))
}

/// Whether a form was sent by a page of another site, or by no page.
fn is_of_another_site(headers: &HeaderMap) -> bool {
    matches!(
        origin::origin(headers),
        RequestOrigin::Link | RequestOrigin::Other
    )
}

#[derive(Deserialize)]
pub(super) struct Login {
    token: SecretString,
}

/// Creates a session for a token.
pub(super) async fn log_in(
    State(guard): State<Guard>,
    headers: HeaderMap,
    peer: Option<axum::Extension<Peer>>,
    form: Form<Login>,
) -> Response {
    let peer = peer.map_or(Peer::NOBODY, |peer| peer.0);
    if is_of_another_site(&headers) {
        return AccessRefusal::OtherSite.into_response();
    }
    let token = form.token.expose_secret();
    guard.keep_current(Some(token)).await;
    match guard.compare(Some(token), peer.0) {
        Ok(holder) => {
            let actor = Actor::of(peer, Some(Arc::clone(&holder.name)), &headers);
            let changes = holder.role == HttpRole::Operate;
            tracing::info!(target: AUDIT, by = actor.by(), peer = %actor.peer, claimed = actor.claimed(), changes, "audit: signed in");
            let cookie = guard.sessions.begin(digest(token), guard.clock.monotonic());
            ([(header::SET_COOKIE, cookie)], Redirect::to("/")).into_response()
        }
        // A browser gets the form again. A program recognizes by the status that it has no session.
        Err(AccessRefusal::WrongToken) => (
            StatusCode::UNAUTHORIZED,
            [(header::REFRESH, "0; url=login?wrong=1")],
            "wrong token\n",
        )
            .into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

pub(super) async fn log_out(State(guard): State<Guard>, headers: HeaderMap) -> Response {
    if is_of_another_site(&headers) {
        return AccessRefusal::OtherSite.into_response();
    }
    (
        [(header::SET_COOKIE, guard.sessions.end(&headers))],
        Redirect::to("/"),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_storage::system::SystemClock;

    const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 9));

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    axum::http::HeaderName::from_static(name),
                    value.parse().unwrap(),
                )
            })
            .collect()
    }

    fn guard(address: &str, token: Option<&str>) -> Guard {
        with(address, token, None, true)
    }

    fn with(
        address: &str,
        token: Option<&str>,
        read_token: Option<&str>,
        open_reads: bool,
    ) -> Guard {
        let listen: SocketAddr = address.parse().unwrap();
        let named = [
            ("token", HttpRole::Operate, token),
            ("read_token", HttpRole::Read, read_token),
        ];
        let tokens = named
            .into_iter()
            .filter_map(|(name, role, text)| {
                text.map(|text| tokens::tests::token(name, role, text))
            })
            .collect();
        Guard::new(
            listen,
            &HttpSettings {
                tokens,
                open_reads,
                ..HttpSettings::open(listen)
            },
            Arc::new(SystemClock::new()),
        )
    }

    impl Guard {
        fn lets(
            &self,
            method: &Method,
            headers: &HeaderMap,
            peer: IpAddr,
        ) -> Result<(), AccessRefusal> {
            self.admits(RequestFacts {
                method,
                version: Version::HTTP_11,
                headers,
                peer,
            })
            .map(drop)
        }
    }

    #[test]
    fn on_loopback_only_changes_need_a_token() {
        for address in ["127.0.0.1:9464", "[::1]:9464", "[::ffff:127.0.0.1]:9464"] {
            let guard = guard(address, Some("s3cret"));
            assert_eq!(guard.lets(&Method::GET, &headers(&[]), PEER), Ok(()));
            assert_eq!(
                guard.lets(&Method::POST, &headers(&[]), PEER),
                Err(AccessRefusal::WrongToken)
            );
            assert_eq!(
                guard.lets(
                    &Method::POST,
                    &headers(&[("authorization", "Bearer s3cret")]),
                    PEER
                ),
                Ok(())
            );
        }
        assert_eq!(
            guard("127.0.0.1:9464", None).lets(&Method::POST, &headers(&[]), PEER),
            Err(AccessRefusal::NoTokenConfigured)
        );
    }

    #[test]
    fn on_loopback_a_foreign_host_name_needs_the_token() {
        let guard = guard("127.0.0.1:9464", Some("s3cret"));
        let rebound = headers(&[("host", "evil.example:9464")]);
        assert_eq!(
            guard.lets(&Method::GET, &rebound, PEER),
            Err(AccessRefusal::ForeignName)
        );
        let proxied = headers(&[
            ("host", "evenkeel.contoso.com"),
            ("authorization", "Bearer s3cret"),
        ]);
        assert_eq!(guard.lets(&Method::GET, &proxied, PEER), Ok(()));
    }

    #[test]
    fn on_loopback_a_page_of_another_site_may_link_but_not_fetch() {
        let guard = guard("127.0.0.1:9464", Some("s3cret"));
        let cookie = guard
            .sessions
            .begin(digest("s3cret"), guard.clock.monotonic());
        let cookie = ("cookie", cookie.split(';').next().unwrap());
        let fetch_headers = |site: &'static str, mode: &'static str, dest: &'static str| {
            [
                ("host", "localhost:9464"),
                ("sec-fetch-site", site),
                ("sec-fetch-mode", mode),
                ("sec-fetch-dest", dest),
            ]
        };
        let lets = |pairs: &[(&'static str, &str)]| guard.lets(&Method::GET, &headers(pairs), PEER);
        for foreign in [
            fetch_headers("cross-site", "no-cors", "image"),
            fetch_headers("same-site", "cors", "empty"),
            fetch_headers("cross-site", "navigate", "iframe"),
        ] {
            assert_eq!(lets(&foreign), Err(AccessRefusal::OtherSite), "{foreign:?}");
            assert_eq!(
                lets(&[&foreign[..], &[cookie]].concat()),
                Err(AccessRefusal::OtherSite),
                "a session does not allow requests of another site: {foreign:?}"
            );
            assert_eq!(
                lets(&[&foreign[..], &[("authorization", "Bearer s3cret")]].concat()),
                Ok(()),
                "a token allows requests of another site: {foreign:?}"
            );
        }
        for own in [
            fetch_headers("same-origin", "cors", "empty"),
            fetch_headers("cross-site", "navigate", "document"),
            fetch_headers("none", "navigate", "document"),
        ] {
            assert_eq!(lets(&own), Ok(()), "{own:?}");
        }
        let link = headers(
            &[
                &fetch_headers("cross-site", "navigate", "document")[..],
                &[cookie],
            ]
            .concat(),
        );
        assert_eq!(
            guard.lets(&Method::POST, &link, PEER),
            Err(AccessRefusal::OtherSite),
            "a form of another site is refused, unlike a link"
        );
    }

    #[test]
    fn anywhere_else_everything_needs_exactly_the_token() {
        let guard = guard("0.0.0.0:9464", Some("s3cret"));
        assert_eq!(
            guard.lets(
                &Method::GET,
                &headers(&[("authorization", "bearer s3cret")]),
                PEER
            ),
            Ok(())
        );
        for wrong in [
            "Bearer",
            "Bearer ",
            "Bearer s3cre",
            "Bearer s3crets",
            "Basic s3cret",
            "s3cret",
        ] {
            let given = headers(&[("authorization", wrong)]);
            assert_eq!(
                guard.lets(&Method::GET, &given, PEER),
                Err(AccessRefusal::WrongToken),
                "{wrong:?}"
            );
        }
        assert_eq!(
            guard.lets(&Method::GET, &headers(&[]), PEER),
            Err(AccessRefusal::WrongToken)
        );
    }

    #[test]
    fn a_page_of_another_site_cannot_change_anything() {
        let guard = guard("127.0.0.1:9464", Some("s3cret"));
        let cookie = guard
            .sessions
            .begin(digest("s3cret"), guard.clock.monotonic());
        let cookie = cookie.split(';').next().unwrap();
        let own = headers(&[
            ("host", "localhost:1"),
            ("origin", "http://localhost:1"),
            ("cookie", cookie),
        ]);
        assert_eq!(guard.lets(&Method::POST, &own, PEER), Ok(()));
        let foreign = headers(&[
            ("host", "localhost:1"),
            ("origin", "http://evil.example"),
            ("cookie", cookie),
        ]);
        assert_eq!(
            guard.lets(&Method::POST, &foreign, PEER),
            Err(AccessRefusal::OtherSite)
        );
        let without_origin = headers(&[("host", "localhost:1"), ("cookie", cookie)]);
        assert_eq!(
            guard.lets(&Method::POST, &without_origin, PEER),
            Err(AccessRefusal::OtherSite),
            "a session without an origin may not change anything"
        );
        let token = headers(&[
            ("host", "h"),
            ("sec-fetch-site", "cross-site"),
            ("authorization", "Bearer s3cret"),
        ]);
        assert_eq!(
            guard.lets(&Method::POST, &token, PEER),
            Err(AccessRefusal::OtherSite)
        );
    }

    #[test]
    fn wrong_tokens_are_slowed_down_and_never_lock_out_the_right_one() {
        let guard = guard("0.0.0.0:9464", Some("s3cret"));
        let guess = |token: &str, peer| {
            guard.lets(
                &Method::GET,
                &headers(&[("authorization", &format!("Bearer {token}"))]),
                peer,
            )
        };
        let mut refused = 0;
        for number in 0..1_000 {
            refused += usize::from(matches!(
                guess(&format!("{number}"), PEER),
                Err(AccessRefusal::TooOften(_))
            ));
            assert_eq!(
                guess("s3cret", PEER),
                Ok(()),
                "the correct token after {number} wrong tokens of the same address"
            );
        }
        assert_eq!(refused, 990);
    }

    #[test]
    fn a_read_token_cannot_change_anything() {
        let guard = with("0.0.0.0:9464", Some("s3cret"), Some("scrape"), true);
        let bearer = headers(&[("authorization", "Bearer scrape")]);
        assert_eq!(guard.lets(&Method::GET, &bearer, PEER), Ok(()));
        assert_eq!(
            guard.lets(&Method::POST, &bearer, PEER),
            Err(AccessRefusal::ReadsOnly)
        );
        let cookie = guard
            .sessions
            .begin(digest("scrape"), guard.clock.monotonic());
        let own = headers(&[
            ("host", "h"),
            ("origin", "http://h"),
            ("cookie", cookie.split(';').next().unwrap()),
        ]);
        assert_eq!(
            guard.lets(&Method::GET, &own, PEER),
            Ok(()),
            "a session of a correct token works while the address has to wait"
        );
        assert_eq!(
            guard.lets(&Method::POST, &own, PEER),
            Err(AccessRefusal::ReadsOnly)
        );
        let alone = with("0.0.0.0:9464", None, Some("scrape"), true);
        assert_eq!(alone.lets(&Method::GET, &bearer, PEER), Ok(()));
        assert_eq!(
            alone.lets(&Method::POST, &bearer, PEER),
            Err(AccessRefusal::NoTokenConfigured)
        );
    }

    #[test]
    fn requests_through_a_proxy_need_a_token() {
        let proxied = [
            ("x-forwarded-for", "203.0.113.7"),
            ("x-forwarded-host", "evenkeel.contoso.com"),
            ("x-forwarded-proto", "https"),
            ("x-real-ip", "203.0.113.7"),
            ("forwarded", "for=203.0.113.7"),
            ("via", "1.1 proxy"),
        ];
        let [direct, closed] =
            &[true, false].map(|open| with("127.0.0.1:9464", Some("s3cret"), None, open));
        for header in proxied {
            let sent = headers(&[("host", "127.0.0.1:9464"), header]);
            assert_eq!(
                direct.lets(&Method::GET, &sent, PEER),
                Err(AccessRefusal::Proxied),
                "{header:?}"
            );
            let token = headers(&[
                ("host", "127.0.0.1:9464"),
                header,
                ("authorization", "Bearer s3cret"),
            ]);
            assert_eq!(
                direct.lets(&Method::GET, &token, PEER),
                Ok(()),
                "{header:?}"
            );
        }
        let (direct_headers, method) = (headers(&[("host", "127.0.0.1:9464")]), &Method::GET);
        // In its default configuration, nginx sends HTTP/1.0 with the address of its upstream as host. Nothing else
        // shows that the request came through a proxy.
        let old = RequestFacts {
            method,
            version: Version::HTTP_10,
            headers: &direct_headers,
            peer: PEER,
        };
        assert_eq!(direct.admits(old).map(drop), Err(AccessRefusal::Proxied));
        assert_eq!(
            direct
                .admits(RequestFacts {
                    version: Version::HTTP_11,
                    ..old
                })
                .map(drop),
            Ok(())
        );
        assert_eq!(
            closed.lets(method, &direct_headers, PEER),
            Err(AccessRefusal::WrongToken)
        );
    }

    #[test]
    fn the_address_in_a_proxy_header_is_shortened() {
        let actor = |pairs: &[(&'static str, &str)]| Actor::of(Peer(PEER), None, &headers(pairs));
        assert_eq!(actor(&[]).claimed(), None);
        assert_eq!(
            actor(&[("x-forwarded-for", "203.0.113.7, 10.0.0.1")]).claimed(),
            Some("203.0.113.7, 10.0.0.1")
        );
        assert_eq!(
            actor(&[("forwarded", "for=203.0.113.7")]).claimed(),
            Some("for=203.0.113.7")
        );
        assert_eq!(
            actor(&[("x-forwarded-for", &"9".repeat(4_000))])
                .claimed()
                .map(str::len),
            Some(128)
        );
    }
}
