//! ETags.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};

/// The version of an entity or blob, opaque and compared as a whole string.
///
/// Without control characters: an entity group transaction writes ETags into its text, where a line
/// break would start another header.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ETag(String);

/// An ETag that is empty, `*`, or contains a control character.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not an ETag: it must be the service's own text, without control characters, and not \"*\"")]
pub struct ETagError(String);

impl ETag {
    /// Checks a text that the service sent.
    pub fn new(text: impl Into<String>) -> Result<Self, ETagError> {
        let text = text.into();
        if text.is_empty() || text == "*" || text.chars().any(char::is_control) { Err(ETagError(text)) } else { Ok(Self(text)) }
    }

    /// A token: the ETag of a part of a document. From 64 random bits.
    pub fn token(random: u64) -> Self {
        Self(BASE64.encode(random.to_be_bytes()))
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
