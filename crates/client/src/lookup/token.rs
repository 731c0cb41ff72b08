//! Encodes the continuation of a lookup as text. Pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ClientError;
use evenkeel_model::patterns::lookup::Term;
use evenkeel_model::{EntityKey, Member};
use evenkeel_storage::Continuation;

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    /// A hash that identifies the lookup.
    lookup: String,
    /// The position in each range of the plan, in the order of the ranges.
    pub(super) ranges: Vec<Position>,
    /// Lists of which only some members have been returned. A list is a row, or all blobs of the lookup together. There
    /// may be several such lists: if new lists were added before a partly returned list, a later lookup may end in one
    /// of the new lists.
    #[serde(default, rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub(super) inside: Vec<Inside>,
}

/// A position inside a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inside {
    /// The key of the list's row; `None` if the list is in a blob.
    #[serde(default, rename = "l", skip_serializing_if = "Option::is_none")]
    pub(super) list: Option<EntityKey>,
    /// The last member that was returned.
    #[serde(rename = "m")]
    pub(super) member: Member,
}

/// A position in one range.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// The range has been read to its end.
    #[serde(default, rename = "e", skip_serializing_if = "std::ops::Not::not")]
    pub(super) ended: bool,
    /// The page that contains the last row returned; `None` for the first page.
    #[serde(default, rename = "p", skip_serializing_if = "Option::is_none")]
    pub(super) page: Option<Continuation>,
    /// The key of the last row of that page that was returned.
    #[serde(default, rename = "a", skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<EntityKey>,
}

impl Token {
    pub(super) fn new(place: &str, terms: &[Term], ranges: Vec<Position>) -> Self {
        Self {
            lookup: fingerprint(place, terms),
            ranges,
            inside: Vec::new(),
        }
    }

    pub(super) fn inside(self, inside: Vec<Inside>) -> Self {
        Self { inside, ..self }
    }

    pub(super) fn encode(&self) -> String {
        // Serialization of strings and flags cannot fail.
        BASE64.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Decodes a token. A token of another lookup is an error.
    pub(super) fn decode(
        text: &str,
        place: &str,
        terms: &[Term],
        ranges: usize,
    ) -> Result<Self, ClientError> {
        let bytes = BASE64.decode(text).ok();
        let token: Option<Self> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let token = token.ok_or_else(|| {
            ClientError::Continuation("expected the continuation of an earlier lookup")
        })?;
        if token.lookup != fingerprint(place, terms) || token.ranges.len() != ranges {
            return Err(ClientError::Continuation(
                "it belongs to a lookup of another view or with other terms",
            ));
        }
        Ok(token)
    }
}

fn fingerprint(place: &str, terms: &[Term]) -> String {
    let mut hash = Sha256::new();
    for part in std::iter::once(place.to_owned()).chain(terms.iter().map(ToString::to_string)) {
        hash.update(part);
        hash.update([0]);
    }
    hex::encode(&hash.finalize()[..6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_continues_its_own_lookup_only() {
        let view = "by_name";
        let terms = ["LastName^=K".parse().unwrap()];
        let page = Continuation {
            next_partition_key: "1!8!cGFy".to_owned(),
            next_row_key: None,
        };
        let position = Position {
            ended: false,
            page: Some(page),
            after: Some(EntityKey::new("p", "한 r").unwrap()),
        };
        let token = Token::new(view, &terms, vec![position, Position::default()]);
        assert_eq!(
            Token::decode(&token.encode(), view, &terms, 2).unwrap(),
            token
        );
        assert!(
            Token::decode(&token.encode(), view, &["LastName^=L".parse().unwrap()], 2).is_err()
        );
        assert!(Token::decode(&token.encode(), view, &terms, 3).is_err());
        assert!(Token::decode("nonsense", view, &terms, 2).is_err());
        let inside = Inside {
            list: Some(EntityKey::new("p", "r").unwrap()),
            member: Member(vec!["한".to_owned()]),
        };
        let token = token.inside(vec![inside]);
        assert_eq!(
            Token::decode(&token.encode(), view, &terms, 2).unwrap(),
            token
        );
    }
}
