//! Entra ID: tokens in place of keys, for storage accounts and search services.
//!
//! ```text
//!  request ── Exchange ── TokenCache ──┬─▶ valid             sent with the token
//!                              │       ├─▶ due for renewal   sent with it, and a renewal beside it
//!                              │       └─▶ none, or over     waits: one request for all who wait
//!                              ▼
//!                       CredentialChain ── azure_identity ── TokenTransport ── login.microsoftonline.com, IMDS
//! ```
//!
//! - `cache`: the token of one audience. `renewal`: its decisions, pure.
//! - `chain`: the credentials in their order, each made anew for every token request.
//! - `transport`: the HTTP client under `azure_identity`. `error`: why there is no token.
//! - `certificate`: the assertion that a client certificate signs.
//! - `roles`: what an identity needs, for messages.
//!
//! Invariants: a request is never sent without a token; while a token is valid, a failed renewal fails no request; no token and no
//! secret gets into an error or a log line.

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

/// A token as it is sent: `Bearer …`, which `Debug` does not print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BearerToken(reqwest::header::HeaderValue);

impl BearerToken {
    /// The token that a credential issued.
    fn new(secret: &str) -> Result<Self, TokenError> {
        let mut value = reqwest::header::HeaderValue::from_str(&format!("Bearer {secret}"))
            .map_err(|_| TokenError::unusable())?;
        value.set_sensitive(true);
        Ok(Self(value))
    }

    /// The value of the header `Authorization`.
    pub fn header(&self) -> reqwest::header::HeaderValue {
        self.0.clone()
    }
}
