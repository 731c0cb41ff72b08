//! The filter `each`: a property has a list, and a template has one key for each value of the list.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::filter::{KeyFilter, shortened};
use super::parse::{Field, Template};
use crate::{EdmValue, Entity, limits};

/// The form of a list in a property.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListText {
    /// A JSON array of strings, integers and booleans.
    Json,
    /// Texts with this separator between them.
    Separated(String),
}

impl Field {
    /// Returns the form of the list, if the field has the filter `each`.
    pub fn list(&self) -> Option<&ListText> {
        match self.filters.first() {
            Some(KeyFilter::Each(list)) => Some(list),
            _ => None,
        }
    }
}

impl Template {
    /// Returns the first field with the filter `each`. All such fields of a template have the same property and form.
    pub fn each(&self) -> Option<&Field> {
        self.fields().find(|field| field.list().is_some())
    }
}

impl ListText {
    /// Returns the distinct values of a list, in order; none if the property is missing, empty or an empty list.
    ///
    /// # Errors
    ///
    /// The property is not a list of this form, or has more than [`limits::LISTED_VALUES`] values.
    pub fn values(&self, entity: &Entity, property: &str) -> Result<Vec<EdmValue>, String> {
        let text = match entity.get(property) {
            None => return Ok(Vec::new()),
            Some(EdmValue::String(text)) => text,
            Some(other) => {
                return Err(format!(
                    "property {property:?} is of type {}; \"each\" expects {}",
                    other.type_name(),
                    self.expected()
                ));
            }
        };
        let values: Vec<EdmValue> = match self {
            Self::Separated(separator) => {
                text.split(separator.as_str()).map(EdmValue::from).collect()
            }
            Self::Json if text.is_empty() => Vec::new(),
            Self::Json => {
                let wrong = || {
                    format!(
                        "property {property:?} is {:?}; \"each\" expects {}",
                        shortened(text),
                        self.expected()
                    )
                };
                let values: Vec<Json> = serde_json::from_str(text).map_err(|_| wrong())?;
                let values: Result<Vec<Option<EdmValue>>, ()> =
                    values.into_iter().map(value).collect();
                values
                    .map_err(|()| wrong())?
                    .into_iter()
                    .flatten()
                    .collect()
            }
        };
        let mut seen = BTreeSet::new();
        let distinct: Vec<EdmValue> = values
            .into_iter()
            .filter(|value| seen.insert(format!("{value:?}")))
            .collect();
        if distinct.len() > limits::LISTED_VALUES {
            return Err(format!(
                "property {property:?} has {} values; \"each\" allows at most {}",
                distinct.len(),
                limits::LISTED_VALUES
            ));
        }
        Ok(distinct)
    }

    fn expected(&self) -> String {
        match self {
            Self::Json => {
                "a JSON array such as [\"red\", \"green\"] (use \"each:,\" for text with commas)"
                    .to_owned()
            }
            Self::Separated(separator) => format!("text with {separator:?} between the values"),
        }
    }
}

/// Converts a value of a JSON array. Returns `None` for null.
fn value(json: Json) -> Result<Option<EdmValue>, ()> {
    match json {
        Json::Null => Ok(None),
        Json::String(text) => Ok(Some(EdmValue::String(text))),
        Json::Bool(truth) => Ok(Some(EdmValue::Bool(truth))),
        Json::Number(number) => number
            .as_i64()
            .map(|number| Some(EdmValue::Int64(number)))
            .ok_or(()),
        Json::Array(_) | Json::Object(_) => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityKey;
    use proptest::prelude::*;

    fn values(list: &ListText, value: impl Into<EdmValue>) -> Result<Vec<EdmValue>, String> {
        list.values(
            &Entity::new(EntityKey::new("p", "r").unwrap()).with("Tags", value),
            "Tags",
        )
    }

    fn texts(values: &[&str]) -> Vec<EdmValue> {
        values.iter().map(|value| EdmValue::from(*value)).collect()
    }

    #[test]
    fn a_list_has_each_of_its_values_once() {
        assert_eq!(
            values(&ListText::Json, r#"["red", "green", "red", null]"#),
            Ok(texts(&["red", "green"]))
        );
        assert_eq!(
            values(&ListText::Json, r"[7, true]"),
            Ok(vec![7_i64.into(), true.into()])
        );
        assert_eq!(
            values(&ListText::Separated(", ".to_owned()), "red, green"),
            Ok(texts(&["red", "green"]))
        );
        for empty in ["", "[]", "[null]"] {
            assert_eq!(values(&ListText::Json, empty), Ok(Vec::new()), "{empty}");
        }
        assert_eq!(
            ListText::Json.values(&Entity::new(EntityKey::new("p", "r").unwrap()), "Tags"),
            Ok(Vec::new())
        );
    }

    #[test]
    fn invalid_and_long_lists_are_refused() {
        for (value, word) in [
            (EdmValue::from("red"), "JSON array"),
            (r#"[["a"]]"#.into(), "JSON array"),
            ("[1.5]".into(), "JSON array"),
            (7.into(), "Edm.Int32"),
        ] {
            assert!(
                values(&ListText::Json, value.clone())
                    .unwrap_err()
                    .contains(word),
                "{value:?}"
            );
        }
        let many = |count: usize| {
            (0..count)
                .map(|number| number.to_string())
                .collect::<Vec<_>>()
                .join(",")
        };
        let separated = ListText::Separated(",".to_owned());
        assert_eq!(
            values(&separated, many(limits::LISTED_VALUES))
                .unwrap()
                .len(),
            limits::LISTED_VALUES
        );
        assert!(
            values(&separated, many(limits::LISTED_VALUES + 1))
                .unwrap_err()
                .contains("at most")
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in any::<String>(), list in r#"\[[0-9a-z",. \[\]{}:-]{0,20}\]"#, separator in "[,;| ]{1,2}") {
            for text in [text, list] {
                let _ = values(&ListText::Json, text.as_str());
                let separated = values(&ListText::Separated(separator.clone()), text.as_str());
                prop_assert!(separated.is_ok_and(|values| values.len() <= text.len() + 1));
            }
        }
    }
}
