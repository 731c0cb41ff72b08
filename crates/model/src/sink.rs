//! Documents in sinks: their content and their keys.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::job::Primary;
use super::{ColumnType, DocumentKey, ETag, EdmDateTime, EdmValue, limits};

/// Column of the key in a database table.
pub const ROW_KEY: &str = "ek_key";
/// Column of the document version.
pub const ROW_VERSION: &str = "ek_version";
/// Table with the versions of deleted rows, in every database.
pub const TOMBSTONES: &str = "evenkeel_tombstones";
/// The largest integer that every JSON reader represents exactly (ECMAScript's `Number.MAX_SAFE_INTEGER`).
pub const LARGEST_INTEGER: i64 = 9_007_199_254_740_991;
/// Ticks of 100 ns per millisecond.
const TICKS_PER_MS: i64 = 10_000;

/// A document of a sink without its key. It has every field of its view; fields without a value are null.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SinkDocument(pub BTreeMap<String, Value>);

/// A value that a document cannot contain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// Documents have no binary type.
    #[error("documents cannot contain an Edm.Binary; leave the property out, or store a text")]
    Binary,
    /// JSON readers would round the integer.
    #[error("integer {0} is too large for JSON readers; at most ±9,007,199,254,740,991 is allowed")]
    Integer(i64),
    /// JSON cannot represent the number.
    #[error("JSON cannot represent the number {0}")]
    Double(String),
    /// The column has another type.
    #[error("{found} does not fit into a column of type {wanted}")]
    Type {
        /// The type of the property.
        found: &'static str,
        /// The type of the column.
        wanted: ColumnType,
    },
    /// The text is too long for its column.
    #[error("a text of {chars} characters does not fit into a column of type text({limit})")]
    TooLong {
        /// The length of the text.
        chars: usize,
        /// The length of the column.
        limit: u32,
    },
}

impl SinkDocument {
    /// Returns the token of the content. Equal contents have equal tokens, and different contents have different tokens.
    pub fn token(&self) -> ETag {
        let mut hash = Sha256::new();
        for (name, value) in &self.0 {
            // JSON texts are self-delimiting, so the input of the hash is unambiguous.
            hash.update(Value::from(name.as_str()).to_string());
            hash.update(value.to_string());
        }
        #[expect(clippy::expect_used, reason = "letters and digits are an ETag")]
        ETag::new(BASE64.encode(&hash.finalize()[..16])).expect("an ETag")
    }

    /// Whether a document that was read back has the same content. Fields that are missing in the returned document are not readable and
    /// are not compared. Additional fields are ignored.
    pub fn matches(&self, found: &Self) -> bool {
        self.0
            .iter()
            .all(|(name, wanted)| found.0.get(name).is_none_or(|found| same(found, wanted)))
    }
}

/// Converts a property's value to a field. Numbers and booleans stay, a DateTime becomes ISO 8601, and a Guid becomes text.
pub fn field(value: &EdmValue) -> Result<Value, FieldError> {
    Ok(match value {
        EdmValue::String(text) => Value::from(text.as_str()),
        EdmValue::Bool(truth) => Value::from(*truth),
        EdmValue::Int32(number) => Value::from(*number),
        EdmValue::Int64(number) if number.unsigned_abs() <= LARGEST_INTEGER.unsigned_abs() => {
            Value::from(*number)
        }
        EdmValue::Int64(number) => return Err(FieldError::Integer(*number)),
        EdmValue::Double(number) if number.is_finite() => Value::from(*number),
        EdmValue::Double(number) => return Err(FieldError::Double(number.to_string())),
        EdmValue::DateTime(moment) => Value::from(moment.to_string()),
        EdmValue::Guid(guid) => Value::from(guid.to_string()),
        EdmValue::Binary(_) => return Err(FieldError::Binary),
    })
}

/// Converts a field to a property, for display. Null becomes `None`.
pub fn property(value: Value) -> Option<EdmValue> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(truth) => EdmValue::Bool(truth),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => EdmValue::Int64(whole),
            (None, Some(number)) => EdmValue::Double(number),
            (None, None) => EdmValue::String(number.to_string()),
        },
        Value::String(text) => EdmValue::String(text),
        Value::Array(_) | Value::Object(_) => EdmValue::String(value.to_string()),
    })
}

/// The key of a primary's document: a JSON array of its table in lower case, its PartitionKey and its RowKey, in URL-safe Base64 without
/// padding. If this text is too long, its hash is the key.
/// Keys are unique unless SHA-256 collides, and never start with an underscore, because the Base64 of `["` starts with `Wy`.
pub fn key(primary: &Primary) -> DocumentKey {
    let text =
        serde_json::json!([primary.table.canonical(), primary.key.pk, primary.key.rk]).to_string();
    let plain = BASE64.encode(&text);
    let key = if plain.len() <= limits::DOCUMENT_KEY_CHARS {
        plain
    } else {
        format!("sha256-{}", hex::encode(Sha256::digest(&text)))
    };
    #[expect(
        clippy::expect_used,
        reason = "at most 1,024 letters, digits, dashes and underscores"
    )]
    DocumentKey::new(key).expect("a document's key")
}

/// Whether a value that a service returned is the value that was written. Services return moments in another form and to the millisecond,
/// and integers with a fraction.
fn same(found: &Value, wanted: &Value) -> bool {
    let moment = |text: &str| {
        EdmDateTime::parse(text)
            .ok()
            .map(|moment| moment.ticks().div_euclid(TICKS_PER_MS))
    };
    match (found, wanted) {
        // Two integers are not compared as doubles, because beyond 2^53 several integers have the same double.
        (Value::Number(found), Value::Number(wanted)) => {
            found == wanted
                || ((found.is_f64() || wanted.is_f64()) && found.as_f64() == wanted.as_f64())
        }
        (Value::String(found), Value::String(wanted)) => {
            found == wanted
                || moment(found)
                    .zip(moment(wanted))
                    .is_some_and(|(found, wanted)| found == wanted)
        }
        (found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EntityKey, TableName};
    use proptest::prelude::*;
    use serde_json::json;

    fn primary(table: &str, pk: &str, rk: &str) -> Primary {
        Primary {
            table: TableName::new(table).unwrap(),
            key: EntityKey::new(pk, rk).unwrap(),
        }
    }

    fn document(value: Value) -> SinkDocument {
        SinkDocument(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn a_key_can_be_computed_in_any_language() {
        let found = key(&primary("Employees", "Sales", "000223"));
        assert_eq!(
            found.as_str(),
            BASE64.encode(r#"["employees","Sales","000223"]"#)
        );
        assert_eq!(
            found,
            key(&primary("EMPLOYEES", "Sales", "000223")),
            "the case of a table's name does not matter"
        );
        assert_ne!(found, key(&primary("Employees", "sales", "000223")));
        let long = key(&primary("Employees", &"x".repeat(500), &"y".repeat(500)));
        assert!(
            long.as_str().starts_with("sha256-") && long.as_str().len() < 80,
            "{long}"
        );
    }

    #[test]
    fn values_that_json_cannot_represent_are_refused() {
        assert_eq!(
            field(&EdmValue::Int64(LARGEST_INTEGER)),
            Ok(json!(LARGEST_INTEGER))
        );
        assert_eq!(
            field(&EdmValue::Int64(-LARGEST_INTEGER)),
            Ok(json!(-LARGEST_INTEGER))
        );
        assert_eq!(
            field(&EdmValue::Int64(i64::MIN)),
            Err(FieldError::Integer(i64::MIN))
        );
        assert_eq!(
            field(&EdmValue::Double(f64::NAN)),
            Err(FieldError::Double("NaN".to_owned()))
        );
        assert_eq!(field(&EdmValue::Binary(vec![1])), Err(FieldError::Binary));
        let moment = EdmDateTime::parse("2026-11-20T15:00:00.5Z").unwrap();
        assert_eq!(field(&moment.into()), Ok(json!("2026-11-20T15:00:00.5Z")));
    }

    #[test]
    fn a_returned_document_in_another_form_has_the_same_content() {
        let wanted = document(
            json!({"name": "Ada", "salary": 3, "since": "2026-11-20T15:00:00.1234567Z", "left": null}),
        );
        assert!(wanted.matches(&wanted));
        let found = json!({"id": "x", "name": "Ada", "salary": 3.0, "since": "2026-11-20T15:00:00.123Z", "left": null, "other": 1});
        assert!(wanted.matches(&document(found.clone())));
        let hidden = json!({"id": "x", "salary": 3});
        assert!(
            wanted.matches(&document(hidden)),
            "what cannot be read is not compared"
        );
        for (name, value) in [
            ("name", json!("ada")),
            ("salary", json!(4)),
            ("left", json!("today")),
            ("since", json!(null)),
        ] {
            let mut other = found.clone();
            other[name] = value;
            assert!(!wanted.matches(&document(other)), "{name}");
        }
    }

    #[test]
    fn two_large_integers_are_not_compared_as_doubles() {
        let number = |number: i64| document(json!({"balance": number}));
        assert!(number(i64::MAX).matches(&number(i64::MAX)));
        assert!(!number(i64::MAX).matches(&number(i64::MAX - 1)));
    }

    #[test]
    fn different_contents_have_different_tokens() {
        let tokens: std::collections::BTreeSet<ETag> = [
            json!({}),
            json!({"a": 1}),
            json!({"a": "1"}),
            json!({"a": null}),
            json!({"b": 1}),
            json!({"a": 1, "b": 1}),
        ]
        .into_iter()
        .map(|value| document(value).token())
        .collect();
        assert_eq!(tokens.len(), 6);
        assert_eq!(
            document(json!({"b": 1, "a": 2})).token(),
            document(json!({"a": 2, "b": 1})).token()
        );
    }

    proptest! {
        #[test]
        fn two_primaries_never_share_a_key(
            one in ("[A-Za-z]{3,5}", "[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,400}", "[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,9}"),
            cut in 0..9_usize,
        ) {
            let (table, pk, rk) = one;
            prop_assume!(!table.eq_ignore_ascii_case("tables") && EntityKey::new(pk.as_str(), rk.as_str()).is_ok());
            let found = key(&primary(&table, &pk, &rk));
            // The end of the PartitionKey is moved to the beginning of the RowKey, so the joined text of both keys stays the same.
            let cut = pk.char_indices().map(|(at, _)| at).nth(cut).unwrap_or(0);
            let (left, right) = pk.split_at(cut);
            let other = EntityKey::new(left, format!("{right}{rk}"));
            prop_assume!(other.is_ok() && !right.is_empty());
            prop_assert_ne!(found, key(&Primary { table: TableName::new(table).unwrap(), key: other.unwrap() }));
        }
    }
}
