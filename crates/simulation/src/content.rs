//! The content of primaries: the names and values that clients and jobs wrote. It is computed without the program's own
//! code. Two contents can be equal although different rows, blobs or keys contain them.
//!
//! The content does not include evenkeel's own properties, or the properties that teams and leads set. Other modules
//! check those properties. A large value is replaced by its hash, so that it does not matter whether a row or a blob
//! contains it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::encryption;
use super::items::Properties;
use super::patterns::LARGE_PROPERTIES;
use evenkeel_account::company::SSN;
use evenkeel_model::{EdmValue, Entity};

pub(super) type Content = Arc<Properties>;

/// The property that a team sets on an employee, and the property that a team's lead sets on the team.
const SAID_BY_TEAMS: [&str; 2] = ["Team", "Lead"];

pub(super) fn own(properties: &Properties) -> impl Iterator<Item = (String, EdmValue)> {
    let own = properties
        .iter()
        .filter(|(name, _)| !name.starts_with("ek_") && !SAID_BY_TEAMS.contains(&name.as_str()));
    own.map(|(name, value)| {
        (
            name.clone(),
            if name == SSN {
                encryption::compared(value)
            } else {
                counted(name, value)
            },
        )
    })
}

fn counted(name: &str, value: &EdmValue) -> EdmValue {
    let Some(text) = value.as_str().filter(|_| LARGE_PROPERTIES.contains(&name)) else {
        return value.clone();
    };
    let pointer = serde_json::from_str::<Value>(text)
        .ok()
        .filter(|pointer| pointer["$blob"].is_string());
    let hash = pointer.and_then(|pointer| pointer["sha256"].as_str().map(str::to_owned));
    EdmValue::from(hash.unwrap_or_else(|| hex::encode(Sha256::digest(text))))
}

/// Returns the tokens of the further rows of a wide entity. The first row lists these tokens.
pub(super) fn further_rows(first: &Entity) -> Vec<String> {
    first
        .text("ek_rows")
        .and_then(|tokens| serde_json::from_str(tokens).ok())
        .unwrap_or_default()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PutContent {
    /// Whether the put removes the properties that it does not name.
    replaces: bool,
    says: Properties,
}

impl PutContent {
    pub(super) fn of<'a>(
        mode: &str,
        entity: &Value,
        staged: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let sent = entity
            .as_object()
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| {
                let own = !name.contains("@odata.")
                    && !matches!(name.as_str(), "PartitionKey" | "RowKey");
                let kind = entity[format!("{name}@odata.type")].as_str();
                own.then(|| Some((name.clone(), decoded(kind, value)?)))
                    .flatten()
            });
        let staged = staged.map(|(name, value)| (name.to_owned(), EdmValue::from(value)));
        Self {
            replaces: mode == "replace",
            says: own(&sent.chain(staged).collect()).collect(),
        }
    }

    pub(super) fn over(&self, before: Option<&Properties>) -> Properties {
        let mut content = before
            .filter(|_| !self.replaces)
            .cloned()
            .unwrap_or_default();
        content.extend(
            self.says
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        content
    }
}

/// Decodes a value from a job's JSON. Supports only the types that the simulated clients send.
fn decoded(kind: Option<&str>, value: &Value) -> Option<EdmValue> {
    match (kind, value) {
        (Some("Edm.Int64"), Value::String(text)) => text.parse().ok().map(EdmValue::Int64),
        (None, Value::String(text)) => Some(EdmValue::from(text.as_str())),
        (None, Value::Bool(bool)) => Some(EdmValue::Bool(*bool)),
        (None, Value::Number(number)) => number
            .as_i64()
            .and_then(|number| i32::try_from(number).ok())
            .map(EdmValue::Int32),
        _ => None,
    }
}

pub(super) fn difference(found: &Properties, expected: &Properties) -> String {
    let names: std::collections::BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
    let differing = names
        .into_iter()
        .filter(|name| found.get(*name) != expected.get(*name));
    let differing: BTreeMap<&String, (Option<&EdmValue>, Option<&EdmValue>)> = differing
        .map(|name| (name, (found.get(name), expected.get(name))))
        .collect();
    format!("(actual, expected) {differing:?}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn says(properties: &[(&str, EdmValue)]) -> Properties {
        properties
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect()
    }

    #[test]
    fn a_merge_keeps_the_properties_that_it_does_not_name_and_a_replace_keeps_none() {
        let entity = json!({"PartitionKey": "p", "RowKey": "r", "Version": "7", "Version@odata.type": "Edm.Int64", "LastName": "King"});
        let before = says(&[("FirstName", "Ada".into()), ("LastName", "Byron".into())]);
        let merged = says(&[
            ("FirstName", "Ada".into()),
            ("LastName", "King".into()),
            ("Version", EdmValue::Int64(7)),
        ]);
        let replaced = says(&[("LastName", "King".into()), ("Version", EdmValue::Int64(7))]);
        assert_eq!(
            PutContent::of("merge", &entity, std::iter::empty()).over(Some(&before)),
            merged
        );
        assert_eq!(
            PutContent::of("replace", &entity, std::iter::empty()).over(Some(&before)),
            replaced
        );
        assert_eq!(
            PutContent::of("merge", &entity, std::iter::empty()).over(None),
            replaced
        );
    }

    #[test]
    fn a_large_value_is_the_same_in_its_row_in_its_blob_and_staged() {
        let pointer = json!({"$blob": "large/employees/p/r/Photo-x", "sha256": hex::encode(Sha256::digest("a long value"))});
        let inline: Properties = own(&says(&[("Photo", "a long value".into())])).collect();
        let outside: Properties = own(&says(&[
            ("Photo", pointer.to_string().as_str().into()),
            ("ek_large", "x".into()),
        ]))
        .collect();
        assert_eq!(inline, outside);
        assert_eq!(
            PutContent::of(
                "replace",
                &json!({}),
                [("Photo", "a long value")].into_iter()
            )
            .over(None),
            inline
        );
    }
}
