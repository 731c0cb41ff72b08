//! Decides whether a token is used, renewed or waited for.
//!
//! ```text
//!  issued                       0.7 to 0.8 of its lifetime              expired
//!    ├────────── Use ──────────────────┼──────────── Renew ────────────────┼──── Request
//!                                      └ after a failure: Use until the next attempt, then Renew
//! ```
//!
//! Times are monotonic. Services tolerate a clock difference of five minutes themselves. The renewal of a token that lives for an
//! hour begins at least 12 minutes before its end.

use std::time::Duration;

use super::{BearerToken, TokenError};
use evenkeel_model::settings::WaitPolicy;

/// Share of the lifetime after which a token is renewed. It varies so that processes do not all renew at once.
const RENEWED_AFTER: (f64, f64) = (0.7, 0.8);
/// Minimum assumed lifetime. A token that has expired on arrival means that this machine's clock is ahead.
const SHORTEST_LIFE: Duration = Duration::from_mins(1);
/// Minimum age of a token that is replaced after a rejection. A token of a wrong tenant is rejected however new it is.
const REPLACED_FROM: Duration = Duration::from_secs(30);
/// Waits between failed token requests.
const PAUSES: WaitPolicy = WaitPolicy::doubling(Duration::from_secs(1), Duration::from_mins(1));

/// Maximum wait that an endpoint may ask for.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TokenStep {
    Use(BearerToken),
    Renew(BearerToken),
    Request,
    /// The last token request failed a moment ago. Fail with its error, without another request.
    Fail(TokenError),
}

#[derive(Debug, Default)]
pub(super) struct Renewal {
    held: Option<IssuedToken>,
    failure: Option<RenewalFailure>,
}

#[derive(Debug)]
struct IssuedToken {
    token: BearerToken,
    issued: Duration,
    renew: Duration,
    over: Duration,
}

#[derive(Debug)]
struct RenewalFailure {
    error: TokenError,
    times: u32,
    again: Duration,
}

impl Renewal {
    pub(super) fn step(&self, now: Duration) -> TokenStep {
        let pause = self.failure.as_ref().filter(|failure| now < failure.again);
        match (&self.held, pause) {
            (Some(held), _) if now < held.renew => TokenStep::Use(held.token.clone()),
            (Some(held), Some(_)) if now < held.over => TokenStep::Use(held.token.clone()),
            (Some(held), None) if now < held.over => TokenStep::Renew(held.token.clone()),
            (_, Some(failure)) => TokenStep::Fail(failure.error.clone()),
            (_, None) => TokenStep::Request,
        }
    }

    /// Stores a token with its lifetime; `unit` is a random number from 0 to 1. Returns whether this ends a series of failures.
    pub(super) fn issued(
        &mut self,
        token: BearerToken,
        life: Duration,
        now: Duration,
        unit: f64,
    ) -> bool {
        let life = life.max(SHORTEST_LIFE);
        let share = RENEWED_AFTER.0 + unit * (RENEWED_AFTER.1 - RENEWED_AFTER.0);
        self.held = Some(IssuedToken {
            token,
            issued: now,
            renew: now + life.mul_f64(share),
            over: now + life,
        });
        self.failure.take().is_some()
    }

    /// Records a failure. Returns whether it differs from the previous one.
    pub(super) fn failed(&mut self, error: TokenError, now: Duration, unit: f64) -> bool {
        let last = self.failure.take();
        let changed = last.as_ref().is_none_or(|last| last.error != error);
        let times = last.map_or(0, |last| last.times).saturating_add(1);
        let wait = PAUSES.wait(times, unit).max(
            error
                .class()
                .retry_after()
                .unwrap_or_default()
                .min(LONGEST_PAUSE),
        );
        self.failure = Some(RenewalFailure {
            error,
            times,
            again: now + wait,
        });
        changed
    }

    /// Whether to replace a rejected token. Returns `false` if a different token is already held, if the rejected token is so
    /// new that another would be no better, or if the last token request has just failed.
    pub(super) fn is_replaced(&self, refused: &BearerToken, now: Duration) -> bool {
        let is_old =
            |held: &IssuedToken| held.token == *refused && now >= held.issued + REPLACED_FROM;
        self.held.as_ref().is_none_or(is_old)
            && self
                .failure
                .as_ref()
                .is_none_or(|failure| now >= failure.again)
    }

    pub(super) fn held(&self) -> Option<BearerToken> {
        self.held.as_ref().map(|held| held.token.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn at(minutes: u64) -> Duration {
        Duration::from_mins(minutes)
    }

    fn token(text: &str) -> BearerToken {
        BearerToken::new(text).unwrap()
    }

    fn holding() -> Renewal {
        let mut renewal = Renewal::default();
        renewal.issued(token("a"), HOUR, at(0), 0.5);
        renewal
    }

    fn away() -> TokenError {
        TokenError::credential("away")
    }

    #[test]
    fn a_token_is_used_then_renewed_ahead_then_waited_for() {
        let renewal = holding();
        assert_eq!(renewal.step(at(44)), TokenStep::Use(token("a")));
        assert_eq!(renewal.step(at(46)), TokenStep::Renew(token("a")));
        assert_eq!(renewal.step(at(59)), TokenStep::Renew(token("a")));
        assert_eq!(renewal.step(at(60)), TokenStep::Request);
        assert_eq!(Renewal::default().step(at(0)), TokenStep::Request);
    }

    #[test]
    fn renewals_of_many_processes_are_spread() {
        let renewed = |unit| {
            let mut renewal = Renewal::default();
            renewal.issued(token("a"), HOUR, at(0), unit);
            (0..60)
                .find(|minute| renewal.step(at(*minute)) != TokenStep::Use(token("a")))
                .unwrap()
        };
        assert_eq!((renewed(0.0), renewed(0.99)), (42, 48));
    }

    #[test]
    fn a_failed_renewal_fails_no_request_while_the_token_is_valid_and_is_retried_with_growing_waits()
     {
        let mut renewal = holding();
        assert!(renewal.failed(away(), at(50), 0.5));
        assert_eq!(renewal.step(at(50)), TokenStep::Use(token("a")));
        assert_eq!(
            renewal.step(at(50) + Duration::from_secs(1)),
            TokenStep::Renew(token("a"))
        );
        assert!(
            !renewal.failed(away(), at(51), 0.5),
            "the same failure is not reported again"
        );
        assert_eq!(
            renewal.step(at(51) + Duration::from_millis(1_999)),
            TokenStep::Use(token("a"))
        );
        assert!(renewal.failed(TokenError::credential("refused"), at(59), 0.5));
        assert_eq!(renewal.step(at(60)), TokenStep::Request);
        assert!(renewal.issued(token("b"), HOUR, at(60), 0.5));
        assert_eq!(renewal.step(at(60)), TokenStep::Use(token("b")));
    }

    #[test]
    fn a_requested_wait_of_a_day_is_limited_to_minutes() {
        let answer = crate::http::HttpAnswer {
            status: 503,
            headers: [(reqwest::header::RETRY_AFTER, u64::MAX.into())]
                .into_iter()
                .collect(),
            body: bytes::Bytes::new(),
        };
        let mut renewal = Renewal::default();
        renewal.failed(TokenError::answered("login", &answer), at(0), 0.5);
        assert!(matches!(renewal.step(at(4)), TokenStep::Fail(_)));
        assert_eq!(renewal.step(at(5)), TokenStep::Request);
    }

    #[test]
    fn without_a_token_a_failure_is_passed_on_until_the_next_try() {
        let mut renewal = Renewal::default();
        renewal.failed(away(), at(0), 0.5);
        assert_eq!(renewal.step(at(0)), TokenStep::Fail(away()));
        assert_eq!(renewal.step(at(1)), TokenStep::Request);
    }

    #[test]
    fn a_token_that_has_expired_on_arrival_is_used_for_a_minute() {
        let mut renewal = Renewal::default();
        renewal.issued(token("a"), Duration::ZERO, at(5), 0.5);
        assert_eq!(renewal.step(at(5)), TokenStep::Use(token("a")));
        assert_eq!(renewal.step(at(6)), TokenStep::Request);
    }

    #[test]
    fn a_refused_token_is_replaced_unless_it_is_new_or_another_took_its_place() {
        let mut renewal = holding();
        assert!(!renewal.is_replaced(&token("a"), Duration::from_secs(29)));
        assert!(!renewal.is_replaced(&token("older"), at(1)));
        assert!(renewal.is_replaced(&token("a"), at(1)));
        assert_eq!(
            renewal.step(at(1)),
            TokenStep::Use(token("a")),
            "other services continue with it"
        );
        renewal.failed(away(), at(1), 0.5);
        assert!(
            !renewal.is_replaced(&token("a"), at(1)) && renewal.is_replaced(&token("a"), at(2))
        );
    }
}
