//! Caches the token of one audience, renews it ahead of time, and combines concurrent requests for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::renewal::{Renewal, TokenStep};
use super::{BearerToken, TokenError};
use evenkeel_storage::{Clock, Rng};

#[async_trait]
pub(super) trait Issuer: Send + Sync {
    /// Returns a new token and its remaining lifetime.
    async fn issue(&self) -> Result<(BearerToken, Duration), TokenError>;

    /// Name of the account or sink that uses the tokens. Logs contain it.
    fn name(&self) -> &str;
}

pub struct TokenCache {
    shared: Arc<Shared>,
    /// The renewal in progress. It is aborted when the cache is dropped.
    renewals: Mutex<JoinSet<()>>,
}

struct Shared {
    issuer: Box<dyn Issuer>,
    renewal: Mutex<Renewal>,
    requesting: tokio::sync::Mutex<()>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
}

impl std::fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenCache")
            .field("of", &self.shared.issuer.name())
            .finish_non_exhaustive()
    }
}

impl TokenCache {
    pub(super) fn new(issuer: Box<dyn Issuer>, clock: Arc<dyn Clock>, rng: Arc<dyn Rng>) -> Self {
        let shared = Shared {
            issuer,
            renewal: Mutex::default(),
            requesting: tokio::sync::Mutex::new(()),
            clock,
            rng,
        };
        Self {
            shared: Arc::new(shared),
            renewals: Mutex::default(),
        }
    }

    /// Returns a token that is valid now. Waits only if there is none.
    pub async fn token(&self) -> Result<BearerToken, TokenError> {
        loop {
            match self.shared.step() {
                TokenStep::Use(token) => return Ok(token),
                TokenStep::Renew(token) => {
                    self.renew_beside();
                    return Ok(token);
                }
                TokenStep::Fail(error) => return Err(error),
                TokenStep::Request => self.shared.request().await,
            }
        }
    }

    /// Replaces a token that the service rejected. Returns `None` if no better one can be obtained. Other services may still
    /// accept the rejected token, so their requests continue with it meanwhile.
    pub async fn replacement_for(&self, refused: &BearerToken) -> Option<BearerToken> {
        self.shared.replace(refused).await;
        self.shared
            .renewal()
            .held()
            .filter(|token| token != refused)
    }

    fn renew_beside(&self) {
        let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        while renewals.try_join_next().is_some() {}
        if renewals.is_empty() {
            let shared = Arc::clone(&self.shared);
            renewals.spawn(async move { shared.request().await });
        }
    }
}

impl Shared {
    fn renewal(&self) -> MutexGuard<'_, Renewal> {
        // The lock is held only for assignments, which cannot panic halfway.
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self) -> TokenStep {
        self.renewal().step(self.clock.monotonic())
    }

    /// Requests a token unless another caller has just done so.
    async fn request(&self) {
        let _requesting = self.requesting.lock().await;
        if matches!(self.step(), TokenStep::Request | TokenStep::Renew(_)) {
            self.issue().await;
        }
    }

    /// Requests a replacement unless another caller has just done so.
    async fn replace(&self, refused: &BearerToken) {
        let _requesting = self.requesting.lock().await;
        let now = self.clock.monotonic();
        if self.renewal().is_replaced(refused, now) {
            self.issue().await;
        }
    }

    async fn issue(&self) {
        let outcome = self.issuer.issue().await;
        let (now, unit, name) = (self.clock.monotonic(), self.rng.unit(), self.issuer.name());
        match outcome {
            Ok((token, life)) => {
                if self.renewal().issued(token, life, now, unit) {
                    info!("entra: obtained a token for {name} again");
                }
            }
            Err(error) => {
                let text = error.text().to_owned();
                if self.renewal().failed(error, now, unit) {
                    warn!(
                        "entra: could not obtain a token for {name}: {text}; it is requested again"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use evenkeel_storage::system::{SeededRng, SystemClock};

    const HOUR: Duration = Duration::from_hours(1);

    /// Issues `1`, `2`, … after a second each, and fails while `away` is set.
    #[derive(Default)]
    struct Script {
        requests: AtomicUsize,
        away: std::sync::atomic::AtomicBool,
    }

    #[async_trait]
    impl Issuer for Arc<Script> {
        async fn issue(&self) -> Result<(BearerToken, Duration), TokenError> {
            let number = self.requests.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::time::sleep(Duration::from_secs(1)).await;
            if self.away.load(Ordering::SeqCst) {
                Err(TokenError::credential("away"))
            } else {
                Ok((token(number), HOUR))
            }
        }

        fn name(&self) -> &'static str {
            "[accounts.main]"
        }
    }

    fn token(number: usize) -> BearerToken {
        BearerToken::new(&number.to_string()).unwrap()
    }

    fn tokens() -> (Arc<TokenCache>, Arc<Script>) {
        let script = Arc::new(Script::default());
        let tokens = TokenCache::new(
            Box::new(Arc::clone(&script)),
            Arc::new(SystemClock::new()),
            Arc::new(SeededRng::new(7)),
        );
        (Arc::new(tokens), script)
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_callers_share_one_token_request() {
        let (tokens, script) = tokens();
        let all = futures::future::join_all((0..100).map(|_| tokens.token())).await;
        assert!(all.iter().all(|got| *got == Ok(token(1))));
        assert_eq!(script.requests.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_callers_share_one_failure() {
        let (tokens, script) = tokens();
        script.away.store(true, Ordering::SeqCst);
        let all = futures::future::join_all((0..100).map(|_| tokens.token())).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!(script.requests.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_caller_delays_the_others_by_one_request_at_most() {
        let (tokens, script) = tokens();
        assert!(
            tokio::time::timeout(Duration::from_millis(500), tokens.token())
                .await
                .is_err()
        );
        assert_eq!(tokens.token().await, Ok(token(2)));
        assert_eq!(script.requests.load(Ordering::SeqCst), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_do_not_wait_for_a_renewal() {
        let (tokens, _) = tokens();
        tokens.token().await.unwrap();
        tokio::time::sleep(Duration::from_mins(50)).await;
        for _ in 0..10 {
            assert_eq!(tokens.token().await, Ok(token(1)), "no caller waits");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(tokens.token().await, Ok(token(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unavailable_endpoint_fails_requests_only_after_the_token_expires() {
        let (tokens, script) = tokens();
        tokens.token().await.unwrap();
        script.away.store(true, Ordering::SeqCst);
        for _ in 0..59 {
            assert_eq!(tokens.token().await, Ok(token(1)));
            tokio::time::sleep(Duration::from_mins(1)).await;
        }
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(tokens.token().await.unwrap_err().text(), "away");
        script.away.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert!(tokens.token().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn other_services_keep_using_a_rejected_token_until_it_is_replaced() {
        let (tokens, script) = tokens();
        let old = tokens.token().await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let (replaced, beside) = tokio::join!(tokens.replacement_for(&old), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let began = tokio::time::Instant::now();
            (tokens.token().await, began.elapsed())
        });
        assert_eq!(
            (replaced, beside),
            (Some(token(2)), (Ok(token(1)), Duration::ZERO))
        );
        script.away.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(tokens.replacement_for(&token(2)).await, None);
        assert_eq!(
            tokens.token().await,
            Ok(token(2)),
            "other services continue with the token"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_replaced_once() {
        let (tokens, script) = tokens();
        let old = tokens.token().await.unwrap();
        assert_eq!(
            tokens.replacement_for(&old).await,
            None,
            "a token that was just issued is not replaced"
        );
        tokio::time::sleep(Duration::from_mins(1)).await;
        let all = futures::future::join_all((0..100).map(|_| tokens.replacement_for(&old))).await;
        assert!(all.iter().all(|got| *got == Some(token(2))));
        assert_eq!(script.requests.load(Ordering::SeqCst), 2);
    }
}
