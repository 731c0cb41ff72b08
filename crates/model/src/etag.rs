//! ETags.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};

use super::quoted::{self, Quoted};

/// The version of an entity or blob: opaque, and compared as a whole.
///
/// An ETag has no control characters. An entity group transaction writes ETags into its text, where a line break would start another
/// header.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ETag(String);

/// Reasons why a text is not an ETag.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ETagError {
    /// The text is empty, `*`, or contains a control character.
    #[error("{} is not an ETag; expected the text from the service, without control characters, and not \"*\"", Quoted(.0))]
    Text(String),
    /// The text lacks the quotes that every ETag of an entity has.
    #[error(
        "{} is not the ETag of an entity; expected W/\"datetime'...'\" with all quotes. In a shell, write \"W/\\\"datetime'...'\\\"\"",
        Quoted(.0)
    )]
    Unquoted(String),
}

impl ETag {
    /// Checks an ETag that the service sent.
    pub fn new(text: impl Into<String>) -> Result<Self, ETagError> {
        let text = text.into();
        if text.is_empty() || text == "*" || text.chars().any(char::is_control) {
            Err(ETagError::Text(quoted::shortened(text)))
        } else {
            Ok(Self(text))
        }
    }

    /// Checks an entity's ETag that a person copied. Shells remove its quotes.
    pub fn copied(text: &str) -> Result<Self, ETagError> {
        let opaque = text
            .strip_prefix("W/")
            .unwrap_or(text)
            .strip_prefix('"')
            .and_then(|rest| rest.strip_suffix('"'));
        let is_moment =
            |moment: &str| moment.len() > 2 && moment.starts_with('\'') && moment.ends_with('\'');
        match opaque {
            Some(opaque) if opaque.strip_prefix("datetime").is_none_or(is_moment) => {
                Self::new(text)
            }
            Some(_) | None => Err(ETagError::Unquoted(quoted::shortened(text.to_owned()))),
        }
    }

    /// Makes a token, the ETag of a part of a document, from 64 random bits.
    pub fn token(random: u64) -> Self {
        Self(BASE64.encode(random.to_be_bytes()))
    }

    /// Makes a new token, as [`token`](Self::token) does, that also contains the digest of the part's content. If the content still has
    /// this digest later, the part need not be written again.
    pub fn token_of(random: u64, digest: [u8; 16]) -> Self {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&random.to_be_bytes());
        bytes[8..].copy_from_slice(&digest);
        Self(BASE64.encode(bytes))
    }

    /// Whether a part with this token was written with content of this digest. False for tokens without a digest.
    pub fn is_token_of(&self, digest: [u8; 16]) -> bool {
        BASE64
            .decode(&self.0)
            .is_ok_and(|bytes| bytes.len() == 24 && bytes[8..] == digest)
    }

    /// The text as the service sent it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for ETag {
    type Error = ETagError;
    fn try_from(text: String) -> Result<Self, ETagError> {
        Self::new(text)
    }
}

impl From<ETag> for String {
    fn from(etag: ETag) -> Self {
        etag.0
    }
}

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etag_that_a_shell_has_taken_quotes_from_is_refused() {
        for text in [
            r#"W/"datetime'2026-11-27T00%3A29%3A15.0Z'""#,
            "\"0x8D\"",
            "W/\"other\"",
        ] {
            assert_eq!(ETag::copied(text).unwrap().as_str(), text);
        }
        for text in [
            "foo",
            "",
            "\"",
            "W/datetime2026-11-27",
            "W/\"datetime2026-11-27\"",
            "W/datetime'2026-11-27'",
            "W/\"datetime'\"",
        ] {
            assert!(
                ETag::copied(text)
                    .unwrap_err()
                    .to_string()
                    .contains("with all quotes"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_token_contains_its_digest_and_is_new_at_every_write() {
        let (one, again, other) = (
            ETag::token_of(1, [7; 16]),
            ETag::token_of(2, [7; 16]),
            ETag::token_of(1, [8; 16]),
        );
        assert!(one.is_token_of([7; 16]) && again.is_token_of([7; 16]) && one != again);
        assert!(
            !other.is_token_of([7; 16])
                && !ETag::token(1).is_token_of([7; 16])
                && !ETag("W/\"1\"".to_owned()).is_token_of([7; 16])
        );
    }
}
