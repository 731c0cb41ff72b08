//! Who may ask what.

use std::net::SocketAddr;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret, SecretString};
use sha2::{Digest, Sha256};

/// Lets requests through that may be made. On loopback whoever can connect may read; anywhere else, and for
/// every change, `Authorization: Bearer TOKEN` is needed.
#[derive(Clone)]
pub struct Guard {
    /// The digest of the token. Digests are compared, so that the time taken says neither where a guess
    /// differs nor how long the token is.
    expected: Option<[u8; 32]>,
    loopback: bool,
}

impl Guard {
    /// The guard of a server at an address.
    pub fn new(address: SocketAddr, token: Option<&SecretString>) -> Self {
        let expected = token.map(|token| Sha256::digest(token.expose_secret()).into());
        Self { expected, loopback: address.ip().to_canonical().is_loopback() }
    }

    fn admits(&self, method: &Method, headers: &HeaderMap) -> Result<(), Refusal> {
        let reads = matches!(*method, Method::GET | Method::HEAD);
        if self.loopback && reads {
            return Ok(());
        }
        let expected = self.expected.ok_or(Refusal::NoTokenConfigured)?;
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer);
        match given {
            Some(given) if same(&expected, &Sha256::digest(given).into()) => Ok(()),
            _ => Err(Refusal::WrongToken),
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
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::NoTokenConfigured => {
                (StatusCode::FORBIDDEN, "changes need a token, and none is configured: set http.token_env\n").into_response()
            }
            Self::WrongToken => (
                StatusCode::UNAUTHORIZED,
                [(header::WWW_AUTHENTICATE, "Bearer realm=\"evenkeel\"")],
                "this needs Authorization: Bearer TOKEN, with the token that http.token_env names\n",
            )
                .into_response(),
        }
    }
}

pub(super) async fn check(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    match guard.admits(request.method(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(authorization: Option<&str>) -> HeaderMap {
        authorization.map(|value| (header::AUTHORIZATION, value.parse().unwrap())).into_iter().collect()
    }

    fn guard(address: &str, token: Option<&str>) -> Guard {
        Guard::new(address.parse().unwrap(), token.map(SecretString::from).as_ref())
    }

    #[test]
    fn on_loopback_reading_is_free_and_changes_need_the_token() {
        for address in ["127.0.0.1:9464", "[::1]:9464", "[::ffff:127.0.0.1]:9464"] {
            let guard = guard(address, Some("s3cret"));
            assert_eq!(guard.admits(&Method::GET, &headers(None)), Ok(()));
            assert_eq!(guard.admits(&Method::POST, &headers(None)), Err(Refusal::WrongToken));
            assert_eq!(guard.admits(&Method::POST, &headers(Some("Bearer s3cret"))), Ok(()));
        }
        assert_eq!(guard("127.0.0.1:9464", None).admits(&Method::POST, &headers(None)), Err(Refusal::NoTokenConfigured));
    }

    #[test]
    fn anywhere_else_everything_needs_exactly_the_token() {
        let guard = guard("0.0.0.0:9464", Some("s3cret"));
        assert_eq!(guard.admits(&Method::GET, &headers(Some("bearer s3cret"))), Ok(()));
        for wrong in
            [None, Some("Bearer"), Some("Bearer "), Some("Bearer s3cre"), Some("Bearer s3crets"), Some("Basic s3cret"), Some("s3cret")]
        {
            assert_eq!(guard.admits(&Method::GET, &headers(wrong)), Err(Refusal::WrongToken), "{wrong:?}");
        }
    }
}
