//! Removes secrets from texts for errors.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};

use super::settings::AzureAccount;
use crate::keyring::Keyring;

const MASK: &str = "(secret)";

/// Hides the secrets of an account and every shared access signature.
pub(super) struct Scrubber {
    /// `None` for an identity. Its secrets never reach a storage service, and its tokens are recognised by the word before
    /// them.
    keyring: Option<Arc<Keyring>>,
}

impl Scrubber {
    pub(super) fn new(account: &AzureAccount) -> Self {
        Self {
            keyring: account.keyring(),
        }
    }

    pub(super) fn clean(&self, text: &str) -> String {
        let secrets = self
            .keyring
            .as_ref()
            .map(|keyring| keyring.secrets())
            .unwrap_or_default();
        hide(text, &secrets)
    }
}

/// Hides these secrets and all signatures.
fn hide(text: &str, secrets: &[SecretString]) -> String {
    let mut text = text.to_owned();
    for secret in secrets
        .iter()
        .map(ExposeSecret::expose_secret)
        .filter(|secret| !secret.is_empty())
    {
        if text.contains(secret) {
            text = text.replace(secret, MASK);
        }
    }
    ["sig=", "SharedKey ", "Bearer "]
        .into_iter()
        .fold(text, |text, mark| hide_after(&text, mark))
}

/// Hides the word after every occurrence of `mark`.
fn hide_after(text: &str, mark: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(mark) {
        let (before, after) = rest.split_at(at + mark.len());
        clean.push_str(before);
        clean.push_str(MASK);
        rest = after.trim_start_matches(|c: char| {
            !c.is_whitespace() && !matches!(c, '&' | '"' | '\'' | '<' | '>')
        });
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_signatures_are_hidden() {
        let secrets = [SecretString::from("S3cret=="), SecretString::from("")];
        let text = "key S3cret== in https://h/q?sv=1&sig=abc%2B&se=2 and sig='x' Authorization: SharedKey a:b c or Bearer ey.J d";
        let clean = hide(text, &secrets);
        assert_eq!(
            clean,
            "key (secret) in https://h/q?sv=1&sig=(secret)&se=2 and sig=(secret)'x' Authorization: SharedKey (secret) c or Bearer (secret) d"
        );
        assert_eq!(hide("nothing to hide", &secrets), "nothing to hide");
    }
}
