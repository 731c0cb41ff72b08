//! Takes secrets out of texts that go into errors.

use secrecy::{ExposeSecret, SecretString};

use super::settings::{AzureAccount, Credential};

/// Replacement for a secret.
const MASK: &str = "(secret)";

/// Knows an account's secrets and hides them, and every signature of a shared access signature.
pub(super) struct Scrubber {
    secrets: Vec<SecretString>,
}

impl Scrubber {
    /// For the secrets of `account`.
    pub(super) fn new(account: &AzureAccount) -> Self {
        let secrets = match &account.credential {
            Credential::Key(key) => vec![key.clone()],
            Credential::Sas(sas) => {
                let decoded = url::form_urlencoded::parse(sas.expose_secret().as_bytes());
                let signatures = decoded.filter(|(name, _)| name == "sig").map(|(_, value)| SecretString::from(value.into_owned()));
                std::iter::once(sas.clone()).chain(signatures).collect()
            }
            // Tokens are hidden by their mark below; what they are requested with never reaches a storage service.
            Credential::Entra(_) => Vec::new(),
        };
        Self { secrets }
    }

    /// The text without the account's secrets and without signatures.
    pub(super) fn clean(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in self.secrets.iter().map(ExposeSecret::expose_secret).filter(|secret| !secret.is_empty()) {
            if text.contains(secret) {
                text = text.replace(secret, MASK);
            }
        }
        ["sig=", "SharedKey ", "Bearer "].into_iter().fold(text, |text, mark| hide_after(&text, mark))
    }
}

/// Hides the word behind every occurrence of `mark`.
fn hide_after(text: &str, mark: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(mark) {
        let (before, after) = rest.split_at(at + mark.len());
        clean.push_str(before);
        clean.push_str(MASK);
        rest = after.trim_start_matches(|c: char| !c.is_whitespace() && !matches!(c, '&' | '"' | '\'' | '<' | '>'));
    }
    clean.push_str(rest);
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_signatures_are_hidden() {
        let scrubber = Scrubber { secrets: vec![SecretString::from("S3cret=="), SecretString::from("")] };
        let text = "key S3cret== in https://h/q?sv=1&sig=abc%2B&se=2 and sig='x' Authorization: SharedKey a:b c or Bearer ey.J d";
        let clean = scrubber.clean(text);
        assert_eq!(
            clean,
            "key (secret) in https://h/q?sv=1&sig=(secret)&se=2 and sig=(secret)'x' Authorization: SharedKey (secret) c or Bearer (secret) d"
        );
        assert_eq!(scrubber.clean("nothing to hide"), "nothing to hide");
    }
}
