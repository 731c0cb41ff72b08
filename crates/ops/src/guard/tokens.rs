//! The configured tokens and the rights of their holders.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use tokio::sync::Mutex;

use evenkeel_model::settings::{HttpRole, HttpToken, SecretFile};

/// Interval at which the token files are read again.
const READ_EVERY: Duration = Duration::from_secs(10);
/// Minimum time between two reads of the token files, if a request has an unknown token. This token may have been
/// written to a file just before.
const READ_FOR_UNKNOWN_EVERY: Duration = Duration::from_secs(1);
/// Timeout of reading the token files, because a network folder may hang.
const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The holder of a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    /// Name in audit lines.
    pub(super) name: Arc<str>,
    pub(super) role: HttpRole,
    /// Whether the holder may see contents of entities.
    pub(super) contents: bool,
}

/// The digest of a token. Tokens are compared by their digests, so that the time taken reveals neither the length of a
/// token nor how much of a guess is right.
pub(super) type TokenDigest = [u8; 32];

pub(super) struct Tokens {
    tokens: Vec<KnownToken>,
    /// When the files were last read (monotonic).
    read: Mutex<Duration>,
}

struct KnownToken {
    holder: Holder,
    digests: ArcSwap<Digests>,
    file: Option<SecretFile>,
    /// Whether a problem with the file has been logged.
    reported: AtomicBool,
}

#[derive(Debug, PartialEq, Eq)]
struct Digests {
    token: TokenDigest,
    /// Digest of the doorbell key that is derived from the token.
    bell: Option<TokenDigest>,
}

/// Returns the doorbell key, which permits only ringing the doorbell. It is derived from an operator's token. The token
/// cannot be computed from the key.
pub fn bell_key(token: &SecretString) -> String {
    hex::encode(Sha256::digest(format!(
        "evenkeel wake {}",
        token.expose_secret()
    )))
}

impl Tokens {
    pub(super) fn new(tokens: &[HttpToken], now: Duration) -> Self {
        Self {
            tokens: tokens.iter().map(KnownToken::new).collect(),
            read: Mutex::new(now),
        }
    }

    /// Whether any token has this role.
    pub(super) fn allow(&self, role: HttpRole) -> bool {
        self.tokens.iter().any(|token| token.holder.role >= role)
    }

    /// Whether this is a doorbell key.
    pub(super) fn rings(&self, given: &str) -> bool {
        let given = digest(given);
        self.tokens
            .iter()
            .filter(|token| {
                token
                    .digests
                    .load()
                    .bell
                    .is_some_and(|bell| same(&bell, &given))
            })
            .count()
            > 0
    }

    pub(super) fn holder(&self, given: &str) -> Option<&Holder> {
        self.holder_of(&digest(given))
    }

    /// Returns the holder of the token with this digest. The digest is always compared with all tokens. If two holders
    /// have the same token, the holder with fewer rights is returned.
    pub(super) fn holder_of(&self, given: &TokenDigest) -> Option<&Holder> {
        let holders = self
            .tokens
            .iter()
            .filter(|token| same(&token.digests.load().token, given))
            .map(|token| &token.holder);
        holders.min_by_key(|holder| (holder.role, holder.contents))
    }

    /// Reads the token files again when they are due. An unknown token makes them due earlier.
    pub(super) async fn keep_current(self: &Arc<Self>, is_unknown: bool, now: Duration) {
        if self.tokens.iter().all(|token| token.file.is_none()) {
            return;
        }
        let (mut read, every) = match self.read.try_lock() {
            Ok(read) => (
                read,
                if is_unknown {
                    READ_FOR_UNKNOWN_EVERY
                } else {
                    READ_EVERY
                },
            ),
            // A request with an unknown token waits for the read in progress. Other requests continue with the known
            // tokens.
            Err(_) if is_unknown => (self.read.lock().await, READ_FOR_UNKNOWN_EVERY),
            Err(_) => return,
        };
        if now.saturating_sub(*read) < every {
            return;
        }
        *read = now;
        let tokens = Arc::clone(self);
        let reading = tokio::task::spawn_blocking(move || {
            tokens.tokens.iter().for_each(KnownToken::read_again);
        });
        if !matches!(
            tokio::time::timeout(READ_TIMEOUT, reading).await,
            Ok(Ok(()))
        ) {
            tracing::warn!(
                "could not read the token files of [http]: timeout after {} s; the previous tokens stay valid",
                READ_TIMEOUT.as_secs()
            );
        }
    }
}

impl KnownToken {
    fn new(token: &HttpToken) -> Self {
        let holder = Holder {
            name: token.name.as_str().into(),
            role: token.role,
            contents: token.contents,
        };
        let digests = ArcSwap::from_pointee(Digests::of(&token.secret.text, token.role));
        Self {
            holder,
            digests,
            file: token.secret.file.clone(),
            reported: AtomicBool::new(false),
        }
    }

    /// Reads the token's file again. Blocks the thread.
    fn read_again(&self) {
        let Some(file) = &self.file else { return };
        let name = &self.holder.name;
        let read = (file.read)(&file.path)
            .and_then(|text| HttpToken::refusal(&text).map_or(Ok(text), Err));
        match read.map(|text| Digests::of(&text, self.holder.role)) {
            Ok(digests) => {
                self.reported.store(false, Ordering::Relaxed);
                if **self.digests.load() != digests {
                    self.digests.store(Arc::new(digests));
                    tracing::info!(
                        "token {name} of [http] changed; the previous token and its sessions are no longer valid"
                    );
                }
            }
            Err(why) => {
                if !self.reported.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        "could not read token {name} of [http]: {why}; the previous token stays valid"
                    );
                }
            }
        }
    }
}

impl Digests {
    fn of(token: &SecretString, role: HttpRole) -> Self {
        let bell = (role == HttpRole::Operate).then(|| digest(&bell_key(token)));
        Self {
            token: digest(token.expose_secret()),
            bell,
        }
    }
}

pub(super) fn digest(text: &str) -> TokenDigest {
    Sha256::digest(text).into()
}

/// Compares two digests in constant time.
fn same(one: &TokenDigest, other: &TokenDigest) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::Path;

    use super::*;
    use evenkeel_model::settings::ConfiguredSecret;

    pub(in crate::guard) fn token(name: &str, role: HttpRole, text: &str) -> HttpToken {
        HttpToken {
            name: name.to_owned(),
            secret: ConfiguredSecret::fixed("token", text.into()),
            role,
            contents: false,
        }
    }

    fn name<'t>(tokens: &'t Tokens, given: &str) -> Option<&'t str> {
        tokens.holder(given).map(|holder| &*holder.name)
    }

    #[test]
    fn each_token_has_a_holder_and_an_unknown_token_has_none() {
        let all = [
            token("alice", HttpRole::Operate, "operate"),
            token("bob", HttpRole::Operate, "other"),
            token("scraper", HttpRole::Read, "read"),
        ];
        let tokens = Tokens::new(&all, Duration::ZERO);
        let given = ["operate", "other", "read", "rea", ""].map(|given| name(&tokens, given));
        assert_eq!(
            given,
            [Some("alice"), Some("bob"), Some("scraper"), None, None]
        );
        for operator in ["operate", "other"] {
            let key = bell_key(&operator.into());
            assert!(tokens.rings(&key) && !tokens.rings(operator), "{operator}");
            assert_eq!(name(&tokens, &key), None, "a doorbell key is not a token");
        }
        assert!(
            !tokens.rings(&bell_key(&"read".into())),
            "only the keys of operators ring"
        );
        let none = Tokens::new(&[], Duration::ZERO);
        assert!(name(&none, "").is_none() && !none.allow(HttpRole::Read) && !none.rings(""));
        let reading = Tokens::new(&all[2..], Duration::ZERO);
        assert!(reading.allow(HttpRole::Read) && !reading.allow(HttpRole::Operate));
    }

    #[test]
    fn of_two_holders_with_the_same_token_the_lesser_rights_count() {
        let tokens = Tokens::new(
            &[
                token("alice", HttpRole::Operate, "same"),
                token("scraper", HttpRole::Read, "same"),
            ],
            Duration::ZERO,
        );
        assert_eq!(name(&tokens, "same"), Some("scraper"));
    }

    fn read(path: &Path) -> Result<SecretString, String> {
        std::fs::read_to_string(path)
            .map(SecretString::from)
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_token_is_rotated_by_its_file_and_an_invalid_one_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        let mut alice = token("alice", HttpRole::Operate, "the first token of alice");
        alice.secret.file = Some(SecretFile {
            path: path.clone(),
            read,
        });
        let tokens = Arc::new(Tokens::new(&[alice], Duration::ZERO));
        write("the second token of alice");
        tokens.keep_current(false, Duration::from_secs(9)).await;
        assert_eq!(
            name(&tokens, "the first token of alice"),
            Some("alice"),
            "the file is not read for every request"
        );
        tokens.keep_current(true, Duration::from_secs(9)).await;
        assert_eq!(
            name(&tokens, "the second token of alice"),
            Some("alice"),
            "the file is read early because of an unknown token"
        );
        assert_eq!(name(&tokens, "the first token of alice"), None);
        assert!(tokens.rings(&bell_key(&"the second token of alice".into())));
        write("the third token of alice");
        tokens
            .keep_current(true, Duration::from_millis(9_500))
            .await;
        assert_eq!(
            name(&tokens, "the third token of alice"),
            None,
            "unknown tokens cause at most one read per second"
        );
        for bad in ["short", ""] {
            write(bad);
            tokens.keep_current(false, Duration::from_mins(1)).await;
            assert_eq!(name(&tokens, bad), None);
        }
        std::fs::remove_file(&path).unwrap();
        tokens.keep_current(false, Duration::from_mins(2)).await;
        assert_eq!(name(&tokens, "the second token of alice"), Some("alice"));
    }
}
