//! Entra ID: tokens instead of keys for storage accounts and search services.
//!
//! ```text
//!  request ── Exchange ── TokenCache ──┬─▶ valid             sent with the token
//!                              │       ├─▶ due for renewal   sent with the token, while a renewal runs
//!                              │       └─▶ none or expired   waits; all waiting requests share one token request
//!                              ▼
//!                       CredentialChain ── azure_identity ── TokenTransport ── login.microsoftonline.com, IMDS
//! ```
//!
//! - `cache`: the token of one audience. `renewal`: the state machine behind it.
//! - `chain`: the credentials in order, created anew for every token request.
//! - `transport`: the HTTP client of `azure_identity`. `error`: why no token could be obtained.
//! - `certificate`: the assertion of a client certificate.
//! - `roles`: the roles that messages recommend.
//!
//! Invariants: no request is sent without a token. A failed renewal does not fail requests while the token is valid. No token
//! or secret appears in an error or a log line.

mod cache;
mod certificate;
mod chain;
mod error;
mod renewal;
pub mod roles;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod transport;

pub use cache::TokenCache;
pub use error::TokenError;

/// The header value `Bearer …`. `Debug` omits the token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken(reqwest::header::HeaderValue);

impl BearerToken {
    fn new(secret: &str) -> Result<Self, TokenError> {
        let mut value = reqwest::header::HeaderValue::from_str(&format!("Bearer {secret}"))
            .map_err(|_| TokenError::unusable())?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// The value of the `Authorization` header.
    pub fn header(&self) -> reqwest::header::HeaderValue {
        self.0.clone()
    }
}
