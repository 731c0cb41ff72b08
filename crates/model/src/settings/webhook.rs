//! `kind = "webhook"` of a sink.

use std::ops::RangeInclusive;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretBox, SecretString};
use url::Url;

use super::ConfiguredSecret;

/// Length of a key in bytes (Standard Webhooks: 24 to 64).
const KEY_BYTES: RangeInclusive<usize> = 24..=64;
const PREFIX: &str = "whsec_";

/// `kind = "webhook"`
#[derive(Debug, Clone)]
pub struct WebhookSettings {
    /// Where events are sent.
    pub url: Url,
    /// The key that signs the events.
    pub secret: ConfiguredSecret,
    /// How long the receiver may take to answer.
    pub timeout: Duration,
}

impl WebhookSettings {
    /// Default timeout.
    pub const TIMEOUT: Duration = Duration::from_secs(10);
}

/// The configured secret is not a key. The message never repeats the secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected whsec_ and the Base64 of 24 to 64 random bytes, as `echo whsec_$(openssl rand -base64 32)` prints them"
)]
pub struct WebhookKeyError;

/// Decodes a key of the form `whsec_` and Base64 into its bytes.
pub fn webhook_key(secret: &SecretString) -> Result<SecretBox<Vec<u8>>, WebhookKeyError> {
    let text = secret
        .expose_secret()
        .trim()
        .strip_prefix(PREFIX)
        .ok_or(WebhookKeyError)?;
    let bytes = STANDARD.decode(text).map_err(|_| WebhookKeyError)?;
    if KEY_BYTES.contains(&bytes.len()) {
        Ok(SecretBox::new(Box::new(bytes)))
    } else {
        Err(WebhookKeyError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_24_to_64_bytes_after_its_prefix() {
        let secret = |bytes: usize| {
            SecretString::from(format!("{PREFIX}{}", STANDARD.encode(vec![7; bytes])))
        };
        for (bytes, expected) in [(0, false), (23, false), (24, true), (64, true), (65, false)] {
            assert_eq!(webhook_key(&secret(bytes)).is_ok(), expected, "{bytes}");
        }
        for text in [
            "",
            "whsec_",
            "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
            "whsec_short",
            "whsec_!!!!",
            "whsec_MfKQ 9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        ] {
            assert_eq!(
                webhook_key(&SecretString::from(text)).err(),
                Some(WebhookKeyError),
                "{text}"
            );
        }
        assert_eq!(
            webhook_key(&SecretString::from(
                " whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"
            ))
            .unwrap()
            .expose_secret()
            .len(),
            24
        );
    }
}
