//! `[http]`: the address of the server, and the tokens with their rights.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use secrecy::{ExposeSecret as _, SecretString};

use super::ConfiguredSecret;

/// Minimum length of a token in characters. A token must withstand years of guessing over the
/// network.
const TOKEN_CHARACTERS: usize = 16;
/// Minimum number of different characters in a token. Of all random tokens with 16 hexadecimal
/// digits, fewer than one in ten thousand are below this number.
const DIFFERENT_CHARACTERS: usize = 6;
/// Minimum number of characters that remain in a token when well-known words are removed.
const OTHER_CHARACTERS: usize = 8;
const WELL_KNOWN: [&str; 12] = [
    "evenkeel",
    "changeme",
    "change",
    "password",
    "passwort",
    "secret",
    "token",
    "admin",
    "default",
    "example",
    "qwerty",
    "1234567890",
];

/// `[http]`
#[derive(Debug, Clone)]
pub struct HttpSettings {
    /// The address at which health, metrics and the dashboard are served.
    pub listen: SocketAddr,
    /// The accepted tokens, each with its own name.
    pub tokens: Vec<HttpToken>,
    /// Whether programs on this machine can read without a token, contents of entities included.
    /// This applies only if the server listens on a loopback address. On any other address a token
    /// is always required.
    pub open_reads: bool,
}

/// A token, the name of its holder, and the rights of the holder.
#[derive(Debug, Clone)]
pub struct HttpToken {
    /// Name of the holder, in audit lines.
    pub name: String,
    /// The token.
    pub secret: ConfiguredSecret,
    /// Its role.
    pub role: HttpRole,
    /// Whether the holder sees contents of entities: their properties, and the bodies of poison
    /// messages.
    pub contents: bool,
}

/// Role of a token's holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HttpRole {
    /// Read.
    Read,
    /// Read and change.
    Operate,
}

impl HttpSettings {
    /// Settings of an address where programs on this machine read without a token.
    pub const fn open(listen: SocketAddr) -> Self {
        Self {
            listen,
            tokens: Vec::new(),
            open_reads: true,
        }
    }

    /// The secret of the first token that may change something.
    pub fn operator(&self) -> Option<&SecretString> {
        self.tokens
            .iter()
            .find(|token| token.role == HttpRole::Operate)
            .map(|token| &token.secret.text)
    }
}

impl HttpToken {
    /// Returns the reason to refuse a token that can be guessed. A token that a person invented is
    /// recognized only if it is short, repetitive, or made of well-known words.
    pub fn refusal(text: &SecretString) -> Option<String> {
        let text = text.expose_secret();
        let characters: Vec<char> = text.chars().collect();
        let length = characters.len();
        let different = characters.iter().collect::<BTreeSet<_>>().len();
        let lower = text.to_lowercase();
        let other = WELL_KNOWN
            .iter()
            .fold(lower, |rest, word| rest.replace(word, ""))
            .chars()
            .count();
        let what = if length < TOKEN_CHARACTERS {
            format!("a token of {length} characters")
        } else if different < DIFFERENT_CHARACTERS {
            format!("a token of {different} different characters")
        } else if (1..=length / 2)
            .any(|period| characters[period..] == characters[..length - period])
        {
            "a token that repeats a shorter text".to_owned()
        } else if other < OTHER_CHARACTERS {
            "a token of well-known words".to_owned()
        } else {
            return None;
        };
        Some(format!(
            "{what} can be guessed; expected at least {TOKEN_CHARACTERS} random characters, such as the output of `openssl rand -hex 32`"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guessable_tokens_are_refused_and_random_ones_accepted() {
        let refusal = |text: &str| HttpToken::refusal(&text.into());
        for (text, why) in [
            ("fifteen-letters", "15 characters"),
            ("aaaaaaaaaaaaaaaa", "1 different"),
            ("ababababcdcdcdcd", "4 different"),
            ("changemechangeme", "repeats"),
            ("passwordpassword", "repeats"),
            ("abcdefghijabcdefghij", "repeats"),
            ("abcdefghabcdefghabcd", "repeats"),
            ("Evenkeel-Password-1", "well-known"),
            ("my-secret-token-!", "well-known"),
        ] {
            let refused = refusal(text).unwrap_or_default();
            assert!(refused.contains(why), "{text}: {refused:?}");
            assert!(!refused.contains(text), "{refused}");
        }
        for drawn in [
            "c2f1a90b7d3e4856",
            "sixteen-letters!",
            "Zk3/0qXv8Jr+Ttw5yQm1bA==",
            "my-secret-token-9f86d081",
        ] {
            assert_eq!(refusal(drawn), None, "{drawn}");
        }
    }
}
