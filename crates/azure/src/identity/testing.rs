//! A fake authority that issues tokens, for tests of this crate and of the sinks.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test double: what cannot be made fails the test"
)]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use azure_core_v1::http::{AsyncRawResponse, Body, HttpClient, Request};
use jiff::Timestamp;
use secrecy::SecretString;
use serde_json::{Value, json};
use url::Url;

use super::TokenCache;
use super::transport::passed_on;
use crate::cloud::Cloud;
use crate::http::{HttpAnswer, HttpFault};
use evenkeel_model::settings::{Application, EntraCredential, Identity};
use evenkeel_storage::Clock;
use evenkeel_storage::system::{SeededRng, SystemClock};

pub const SECRET: &str = "t0p-s3cret";

pub fn by_secret() -> Vec<EntraCredential> {
    vec![EntraCredential::ClientSecret {
        application: application(),
        secret: SecretString::from(SECRET),
    }]
}

pub fn application() -> Application {
    Application {
        tenant: "contoso.example".to_owned(),
        client: "c1".to_owned(),
    }
}

/// A clock that a test advances. Its wall clock may be wrong.
pub struct TestClock {
    /// Start of the test in real time, because the identity library reads the system clock.
    pub start: i64,
    pub passed: Mutex<Duration>,
    pub wrong_by: i64,
}

impl TestClock {
    pub fn pass(&self, time: Duration) {
        *self.passed.lock().unwrap() += time;
    }

    pub fn wall(&self, wrong_by: i64) -> i64 {
        self.start + wrong_by + i64::try_from(self.monotonic().as_secs()).unwrap()
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.wall(self.wrong_by)).unwrap()
    }

    fn monotonic(&self) -> Duration {
        *self.passed.lock().unwrap()
    }
}

#[derive(Debug, Clone)]
pub struct TokenRequest {
    pub host: String,
    pub path: String,
    /// The form fields of the body, and the query parameters.
    pub fields: Vec<(String, String)>,
}

/// Issues `token-1`, `token-2`, …, each valid for an hour and known to the storage service.
#[derive(Debug)]
pub struct Authority {
    pub received: Mutex<Vec<TokenRequest>>,
    /// Returned instead of a token.
    pub refusal: Mutex<Option<Result<HttpAnswer, HttpFault>>>,
    pub valid: Arc<Mutex<BTreeSet<String>>>,
    pub clock: Arc<TestClock>,
}

impl std::fmt::Debug for TestClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestClock")
    }
}

pub fn answer(status: u16, body: &Value) -> HttpAnswer {
    HttpAnswer {
        status,
        headers: reqwest::header::HeaderMap::new(),
        body: body.to_string().into(),
    }
}

#[async_trait]
impl HttpClient for Authority {
    async fn execute_request(&self, request: &Request) -> azure_core_v1::Result<AsyncRawResponse> {
        let url = request.url();
        let Body::Bytes(body) = request.body() else {
            panic!("a streamed body")
        };
        let pairs = url::form_urlencoded::parse(body).chain(url.query_pairs());
        let fields = pairs
            .map(|(name, value)| (name.into_owned(), value.into_owned()))
            .collect();
        let host = url.host_str().unwrap().to_owned();
        let number = {
            let mut received = self.received.lock().unwrap();
            received.push(TokenRequest {
                host: host.clone(),
                path: url.path().to_owned(),
                fields,
            });
            received.len()
        };
        let refusal = self.refusal.lock().unwrap().clone();
        let issued = || {
            let token = format!("token-{number}");
            self.valid.lock().unwrap().insert(format!("Bearer {token}"));
            // Entra ID states the remaining lifetime, IMDS the end by its own clock.
            let end = (self.clock.wall(0) + 3_600).to_string();
            Ok(answer(
                200,
                &json!({"token_type": "Bearer", "expires_in": 3_600, "expires_on": end, "resource": "r", "access_token": token}),
            ))
        };
        passed_on(&host, refusal.unwrap_or_else(issued))
    }
}

impl Authority {
    pub fn requests(&self) -> usize {
        self.received.lock().unwrap().len()
    }

    pub fn field(&self, name: &str) -> String {
        let received = self.received.lock().unwrap();
        received
            .last()
            .unwrap()
            .fields
            .iter()
            .find(|(found, _)| found == name)
            .map(|(_, value)| value.clone())
            .unwrap_or_default()
    }

    pub fn refuse(&self, refusal: Option<Result<HttpAnswer, HttpFault>>) {
        *self.refusal.lock().unwrap() = refusal;
    }
}

/// Creates an identity, its authority, and its tokens for an audience.
pub fn signed_in(
    credentials: Vec<EntraCredential>,
    wrong_by: i64,
    valid: Arc<Mutex<BTreeSet<String>>>,
    scope: &'static str,
) -> (Arc<Identity>, Arc<Authority>, Arc<TokenCache>) {
    let clock = Arc::new(TestClock {
        start: SystemClock::new().now().as_second(),
        passed: Mutex::default(),
        wrong_by,
    });
    let authority = Arc::new(Authority {
        received: Mutex::default(),
        refusal: Mutex::default(),
        valid,
        clock: Arc::clone(&clock),
    });
    let identity = Arc::new(Identity {
        credentials,
        ruled_out: Vec::new(),
        authority: None,
    });
    let cloud = Cloud::or_public(&Url::parse("http://127.0.0.1").unwrap());
    let rng = Arc::new(SeededRng::new(1));
    let tokens = TokenCache::over(
        &identity,
        cloud,
        scope,
        "[accounts.main]".to_owned(),
        authority.clone(),
        clock,
        rng,
    );
    (identity, authority, tokens)
}
