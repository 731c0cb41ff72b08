//! Where a lookup ended, as a text that a later one goes on from: pure.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ClientError;
use evenkeel_model::patterns::lookup::Term;
use evenkeel_model::{EntityKey, Member};
use evenkeel_storage::Continuation;

/// Where each range of a lookup stood.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Token {
    /// Which lookup it belongs to.
    lookup: String,
    /// One per range of its plan, in order.
    pub(super) ranges: Vec<Position>,
    /// Lists that were read in part: rows, or the blob. Several where other lists have come before the first of them since.
    #[serde(default, rename = "in", skip_serializing_if = "Vec::is_empty")]
    pub(super) inside: Vec<Inside>,
}

/// Where in a list a lookup ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Inside {
    /// The row of the list; nothing for a list that is a blob.
    #[serde(default, rename = "l", skip_serializing_if = "Option::is_none")]
    pub(super) list: Option<EntityKey>,
    /// The last member that was taken.
    #[serde(rename = "m")]
    pub(super) member: Member,
}

/// Where one range stood.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    /// Nothing is left of it.
    #[serde(default, rename = "e", skip_serializing_if = "std::ops::Not::not")]
    pub(super) ended: bool,
    /// The page from which rows were taken last; the first where absent.
    #[serde(default, rename = "p", skip_serializing_if = "Option::is_none")]
    pub(super) page: Option<Continuation>,
    /// The last row of that page that was taken.
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

    /// As a token that goes on inside lists.
    pub(super) fn inside(self, inside: Vec<Inside>) -> Self {
        Self { inside, ..self }
    }

    pub(super) fn encode(&self) -> String {
        // Strings and flags always serialise.
        BASE64.encode(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads a token, which must belong to this lookup.
    pub(super) fn decode(
        text: &str,
        place: &str,
        terms: &[Term],
        ranges: usize,
    ) -> Result<Self, ClientError> {
        let bytes = BASE64.decode(text).ok();
        let token: Option<Self> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        let token =
            token.ok_or_else(|| ClientError::Continuation("is not what an earlier lookup gave"))?;
        if token.lookup != fingerprint(place, terms) || token.ranges.len() != ranges {
            return Err(ClientError::Continuation(
                "belongs to a lookup of another view or with other terms",
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
    fn a_token_goes_on_with_its_own_lookup_only() {
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
