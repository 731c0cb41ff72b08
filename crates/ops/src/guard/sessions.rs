//! Sessions of browsers that have signed in.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::{HeaderMap, header};
use uuid::Uuid;

use super::tokens::{TokenDigest, digest};

const COOKIE: &str = "evenkeel_session";
const LIFETIME: Duration = Duration::from_hours(12);
/// Maximum number of sessions. If there are more, the session that expires first is ended.
const SESSIONS: usize = 256;

/// The sessions of this process, by the digests of their secrets. They end when the process ends.
#[derive(Debug, Default)]
pub(super) struct Sessions(Mutex<BTreeMap<TokenDigest, Session>>);

#[derive(Debug, Clone, Copy)]
struct Session {
    /// Monotonic time at which the session expires.
    end: Duration,
    /// Digest of the token for which the session was created. If the token is removed, the session becomes invalid.
    token: TokenDigest,
}

impl Sessions {
    /// Creates a session for a token and returns the value of `Set-Cookie`.
    pub(super) fn begin(&self, token: TokenDigest, now: Duration) -> String {
        // 244 random bits from the system's generator.
        let secret = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let mut sessions = self.lock();
        sessions.retain(|_, session| session.end > now);
        if sessions.len() >= SESSIONS
            && let Some(first) = sessions
                .iter()
                .min_by_key(|(_, session)| session.end)
                .map(|(digest, _)| *digest)
        {
            sessions.remove(&first);
        }
        sessions.insert(
            digest(&secret),
            Session {
                end: now + LIFETIME,
                token,
            },
        );
        cookie(&secret, LIFETIME)
    }

    /// Returns the digest of the token for which a request's session was created. The session is looked up by the
    /// digest of its secret, so that the time taken reveals nothing about secrets.
    pub(super) fn token(&self, headers: &HeaderMap, now: Duration) -> Option<TokenDigest> {
        let sessions = self.lock();
        given(headers)
            .find_map(|secret| {
                sessions
                    .get(&digest(secret))
                    .filter(|session| session.end > now)
            })
            .map(|session| session.token)
    }

    /// Ends a request's session and returns the value of `Set-Cookie`.
    pub(super) fn end(&self, headers: &HeaderMap) -> String {
        let mut sessions = self.lock();
        for secret in given(headers) {
            sessions.remove(&digest(secret));
        }
        cookie("", Duration::ZERO)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TokenDigest, Session>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the value of `Set-Cookie`. The cookie is not `Secure`, because the server itself uses plain HTTP and
/// browsers would not return the cookie. It has no `Path`, so browsers send it only for paths below the folder of
/// `login`. If a proxy serves several applications, the others do not receive it.
fn cookie(secret: &str, lasts: Duration) -> String {
    format!(
        "{COOKIE}={secret}; HttpOnly; SameSite=Strict; Max-Age={}",
        lasts.as_secs()
    )
}

fn given(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let cookies = headers
        .get_all(header::COOKIE)
        .into_iter()
        .filter_map(|value| value.to_str().ok());
    let pairs = cookies
        .flat_map(|line| line.split(';'))
        .filter_map(|pair| pair.trim().split_once('='));
    pairs
        .filter(|(name, _)| *name == COOKIE)
        .map(|(_, secret)| secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(cookie: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::COOKIE, cookie.parse().unwrap())])
    }

    #[test]
    fn a_session_is_valid_until_it_ends_or_expires() {
        let sessions = Sessions::default();
        let now = Duration::from_secs(5);
        let set = sessions.begin(digest("token"), now);
        assert!(
            set.contains("; HttpOnly; SameSite=Strict; Max-Age=43200"),
            "{set}"
        );
        assert!(
            !set.contains("Path="),
            "without `Path`, the cookie is valid below the folder of the sign-in page: {set}"
        );
        let sent = with(&format!("other=1; {}", set.split(';').next().unwrap()));
        assert_eq!(sessions.token(&sent, now), Some(digest("token")));
        assert_eq!(sessions.token(&sent, now + LIFETIME), None);
        assert_eq!(sessions.token(&with("evenkeel_session="), now), None);
        assert_eq!(sessions.token(&HeaderMap::new(), now), None);
        assert!(sessions.end(&sent).contains("Max-Age=0"));
        assert_eq!(sessions.token(&sent, now), None);
    }

    #[test]
    fn memory_is_bounded() {
        let sessions = Sessions::default();
        for second in 0..1_000 {
            sessions.begin(digest("token"), Duration::from_secs(second));
        }
        assert_eq!(sessions.lock().len(), SESSIONS);
    }
}
