//! User delegation keys. The blob service issues such a key to an identity, for at most a week. A signature with this key
//! counts as a signature of the identity.
//!
//! Source: "Get User Delegation Key", "Create a user delegation SAS", Azure Storage REST API.

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use secrecy::SecretString;

use super::blob_service;
use super::call::{CallFailure, Caller};
use super::classify::{Absent, CallKind};
use super::http::{Authentication, HttpFault};
use super::keyring::AccountKey;
use super::refusal::Refusal;
use super::settings::AzureAccount;
use super::xml;
use crate::identity::TokenCache;
use evenkeel_storage::{Resource, Service, StoreError};

const GET: CallKind = CallKind::read("Get User Delegation Key", Absent::Container);
/// The validity starts this long ago, because the service's clock may be behind this machine's.
const EARLIER: SignedDuration = SignedDuration::from_mins(15);
/// Maximum time from start to expiry. The service refuses an expiry more than seven days after its own present time. The start
/// is 15 minutes ago, so the expiry is accepted even if this machine's clock is 15 minutes ahead.
const LONGEST: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A key and its description. A shared access signature contains each part of the description and signs it. `Debug` omits the
/// key.
#[derive(Debug, Clone)]
pub(crate) struct DelegationKey {
    /// Object, tenant, start, expiry, service and version.
    pub(crate) parts: [String; 6],
    pub(crate) value: AccountKey,
}

/// The elements of an answer in the order in which they are signed.
const PARTS: [&str; 6] = [
    "SignedOid",
    "SignedTid",
    "SignedStart",
    "SignedExpiry",
    "SignedService",
    "SignedVersion",
];

impl DelegationKey {
    /// Requests a key that is valid from `now` until `expires`, or for the maximum validity.
    pub(crate) async fn get(
        account: &AzureAccount,
        tokens: std::sync::Arc<TokenCache>,
        now: Timestamp,
        expires: Timestamp,
    ) -> Result<Self, StoreError> {
        let caller = Caller::new(account);
        let what = || Resource::Service(Service::Blob);
        let unsent = |error: &dyn std::fmt::Display| {
            CallFailure::Fault(HttpFault::Unsent(format!(
                "the HTTP client could not be set up: {error}"
            )))
        };
        let exchange = account.exchange(Authentication::Tokens(tokens));
        let exchange = exchange.map_err(|error| caller.failed(GET, what(), unsent(&error)))?;
        let (url, mut headers) =
            blob_service::request(account, "restype=service&comp=userdelegationkey", now);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
        let (start, expires) = validity(now, expires);
        let body = format!(
            r#"<?xml version="1.0" encoding="utf-8"?><KeyInfo><Start>{}</Start><Expiry>{}</Expiry></KeyInfo>"#,
            second(start),
            second(expires)
        );
        let answer = exchange
            .send(Method::POST, url, headers, Bytes::from(body))
            .await;
        let answer =
            answer.map_err(|fault| caller.failed(GET, what(), CallFailure::Fault(fault)))?;
        if !answer.is_success() {
            return Err(caller.refused(GET, what(), Refusal::of(&answer)));
        }
        Self::of(&answer.body).ok_or_else(|| {
            caller.unusable(
                GET,
                what(),
                &answer,
                "the answer contains no user delegation key",
            )
        })
    }

    fn of(body: &[u8]) -> Option<Self> {
        let xml = std::str::from_utf8(body).ok()?;
        let mut parts = [const { String::new() }; 6];
        for (part, name) in parts.iter_mut().zip(PARTS) {
            // A line break would change the meaning of the signed text.
            *part = xml::text_of(xml, name)
                .filter(|text| !text.is_empty() && !text.contains(char::is_control))?;
        }
        Some(Self {
            parts,
            value: AccountKey::new(SecretString::from(xml::text_of(xml, "Value")?)),
        })
    }
}

fn validity(now: Timestamp, expires: Timestamp) -> (Timestamp, Timestamp) {
    let start = now.saturating_sub(EARLIER).unwrap_or(now);
    (
        start,
        expires.min(start.saturating_add(LONGEST).unwrap_or(expires)),
    )
}

/// Formats a time with whole seconds, as signatures require.
pub(crate) fn second(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn a_key_starts_15_minutes_ago_and_lasts_a_week_at_most() {
        let now = "2026-11-24T00:00:00Z".parse().unwrap();
        for (expires, until) in [
            ("2026-11-24T01:00:00Z", "2026-11-24T01:00:00Z"),
            ("2026-11-30T23:45:00Z", "2026-11-30T23:45:00Z"),
            ("2026-12-01T00:00:00Z", "2026-11-30T23:45:00Z"),
        ] {
            let (start, end) = validity(now, expires.parse().unwrap());
            assert_eq!(
                (second(start).as_str(), second(end).as_str()),
                ("2026-11-23T23:45:00Z", until)
            );
        }
    }

    #[test]
    fn an_incomplete_key_is_rejected() {
        let answer = "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><UserDelegationKey><SignedOid>o</SignedOid><SignedTid>t</SignedTid><SignedStart>2026-11-24T00:00:00Z</SignedStart><SignedExpiry>2026-11-24T01:00:00Z</SignedExpiry><SignedService>b</SignedService><SignedVersion>2022-11-02</SignedVersion><Value>c2VjcmV0</Value></UserDelegationKey>";
        let key = DelegationKey::of(answer.as_bytes()).unwrap();
        assert_eq!(
            key.parts,
            [
                "o",
                "t",
                "2026-11-24T00:00:00Z",
                "2026-11-24T01:00:00Z",
                "b",
                "2022-11-02"
            ]
        );
        assert_eq!(key.value.secret.expose_secret(), "c2VjcmV0");
        assert!(!format!("{key:?}").contains("c2VjcmV0"));
        for (part, broken) in [
            ("<SignedTid>t</SignedTid>", ""),
            ("<SignedOid>o<", "<SignedOid>o\np<"),
            ("Value>", "Other>"),
        ] {
            assert!(
                DelegationKey::of(answer.replace(part, broken).as_bytes()).is_none(),
                "{part}"
            );
        }
    }
}
