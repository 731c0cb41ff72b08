//! The token of one audience: cached, renewed ahead, and requested once for all who wait.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::renewal::{Renewal, TokenStep};
use super::{BearerToken, TokenError};
use evenkeel_storage::{Clock, Rng};

/// Issues tokens.
#[async_trait]
pub(super) trait Issuer: Send + Sync {
    /// A new token, and how long it lives from now on.
    async fn issue(&self) -> Result<(BearerToken, Duration), TokenError>;

    /// What the tokens are for, in logs: the account or sink.
    fn name(&self) -> &str;
}

/// The token of one audience.
pub struct TokenCache {
    shared: Arc<Shared>,
    /// The renewal under way, if any: it ends with the tokens.
    renewals: Mutex<JoinSet<()>>,
}

struct Shared {
    issuer: Box<dyn Issuer>,
    renewal: Mutex<Renewal>,
    /// Held while a token is requested.
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

    /// A token that is valid now. Waits only where there is none.
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

    /// Another token in place of one that the service refused, where there is a better one to be had.
    /// Requests to other services, which may accept the refused one, go on with it meanwhile.
    pub async fn in_place_of(&self, refused: &BearerToken) -> Option<BearerToken> {
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
        // Held for plain assignments, which cannot panic halfway.
        self.renewal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step(&self) -> TokenStep {
        self.renewal().step(self.clock.monotonic())
    }

    /// Requests a token, unless another caller did so meanwhile.
    async fn request(&self) {
        let _requesting = self.requesting.lock().await;
        if matches!(self.step(), TokenStep::Request | TokenStep::Renew(_)) {
            self.issue().await;
        }
    }

    /// Requests a token in place of one, unless another caller did so meanwhile.
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
                    info!("entra: tokens for {name} are issued again");
                }
            }
            Err(error) => {
                let text = error.text().to_owned();
                if self.renewal().failed(error, now, unit) {
                    warn!("entra: no new token for {name}, tried again: {text}");
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

    /// Issues `1`, `2`, … after a second each; fails while it is away.
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
    async fn a_hundred_who_wait_share_one_request() {
        let (tokens, script) = tokens();
        let all = futures::future::join_all((0..100).map(|_| tokens.token())).await;
        assert!(all.iter().all(|got| *got == Ok(token(1))));
        assert_eq!(script.requests.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_who_wait_for_an_endpoint_that_is_away_share_its_failure() {
        let (tokens, script) = tokens();
        script.away.store(true, Ordering::SeqCst);
        let all = futures::future::join_all((0..100).map(|_| tokens.token())).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!(script.requests.load(Ordering::SeqCst), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_gives_up_keeps_the_others_waiting_no_longer_than_one_request() {
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
    async fn a_renewal_runs_beside_the_requests() {
        let (tokens, _) = tokens();
        tokens.token().await.unwrap();
        tokio::time::sleep(Duration::from_mins(50)).await;
        for _ in 0..10 {
            assert_eq!(tokens.token().await, Ok(token(1)), "nobody waits");
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(tokens.token().await, Ok(token(2)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_is_away_hurts_only_once_the_token_is_over() {
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
    async fn a_token_that_one_service_refused_serves_the_others_until_there_is_another() {
        let (tokens, script) = tokens();
        let old = tokens.token().await.unwrap();
        tokio::time::sleep(Duration::from_mins(1)).await;
        let (replaced, beside) = tokio::join!(tokens.in_place_of(&old), async {
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
        assert_eq!(tokens.in_place_of(&token(2)).await, None);
        assert_eq!(
            tokens.token().await,
            Ok(token(2)),
            "the service that refused it is alone in that"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_token_is_replaced_once() {
        let (tokens, script) = tokens();
        let old = tokens.token().await.unwrap();
        assert_eq!(
            tokens.in_place_of(&old).await,
            None,
            "a token that was just issued is not replaced"
        );
        tokio::time::sleep(Duration::from_mins(1)).await;
        let all = futures::future::join_all((0..100).map(|_| tokens.in_place_of(&old))).await;
        assert!(all.iter().all(|got| *got == Some(token(2))));
        assert_eq!(script.requests.load(Ordering::SeqCst), 2);
    }
}
