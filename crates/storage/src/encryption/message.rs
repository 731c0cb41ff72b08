//! Messages with encrypted properties: finds plain values, encrypts them, and withholds those that cannot be encrypted.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::format::{DataKey, PREFIX, PropertyAddress};
use evenkeel_model::catalog::{Catalog, TableRef};
use evenkeel_model::condition::Condition;
use evenkeel_model::job::Primary;
use evenkeel_model::{EdmValue, EntityKey, TableName, limits, odata};

/// An entity of a message, with plain values of encrypted properties.
#[derive(Debug, Clone, PartialEq)]
pub struct PlainEntity {
    pub table: TableRef,
    pub home: Primary,
    properties: Vec<String>,
    /// Its index in "entities" of a batch; `None` for the "entity" of a single job.
    at: Option<usize>,
}

/// The entities of a message that have plain values of encrypted properties, except those that violate the table's condition for
/// encryption. If the message alone does not show whether an entity meets the condition, the condition counts as met.
pub fn plain_entities(message: &Map<String, Value>, catalog: &Catalog) -> Vec<PlainEntity> {
    if catalog.encrypted.is_empty() {
        return Vec::new();
    }
    let Some(table) = table_of(message, catalog) else {
        return Vec::new();
    };
    let Some(encrypted) = catalog.encrypted.get(table) else {
        return Vec::new();
    };
    let (when, is_whole) = (catalog.encrypted_when.get(table), is_whole(message));
    let single = message.get("entity").map(|entity| (None, entity));
    let several = message
        .get("entities")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .enumerate();
    let entities = single
        .into_iter()
        .chain(several.map(|(at, entity)| (Some(at), entity)));
    let plain = entities.filter_map(|(at, entity)| {
        let entity = entity.as_object()?;
        let is_plain = |name: &&String| {
            entity
                .get(*name)
                .is_some_and(|value| !value.is_null() && !is_encrypted(value))
        };
        let properties: Vec<String> = encrypted.iter().filter(is_plain).cloned().collect();
        let key = |name: &str| entity.get(name).and_then(Value::as_str);
        let key = EntityKey::new(key("PartitionKey")?, key("RowKey")?).ok()?;
        let home = Primary {
            table: table.table.clone(),
            key,
        };
        let is_encrypted =
            !properties.is_empty() && !when.is_some_and(|when| is_unmet(when, is_whole, entity));
        is_encrypted.then(|| PlainEntity {
            table: table.clone(),
            home,
            properties,
            at,
        })
    });
    plain.collect()
}

fn table_of<'c>(message: &Map<String, Value>, catalog: &'c Catalog) -> Option<&'c TableRef> {
    let name = message
        .get("table")
        .and_then(Value::as_str)
        .and_then(|name| TableName::new(name).ok())?;
    catalog.table(&name)
}

/// The member that replaces a value. An object is not a value of a table, so a message that contains one is refused if it is sent again.
const WITHHELD: &str = "withheld";
/// Fields of a message or an entity that identify its subject.
const TELLING: [&str; 14] = [
    "op",
    "id",
    "table",
    "to_table",
    "archive",
    "view",
    "pk",
    "rk",
    "to_pk",
    "to_rk",
    "type",
    "subject",
    "PartitionKey",
    "RowKey",
];
/// Fields that every event has, in either schema.
const ENVELOPE: [&str; 13] = [
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "datacontenttype",
    "dataschema",
    "topic",
    "eventType",
    "eventTime",
    "dataVersion",
    "metadataVersion",
];
/// Maximum bytes of a key. A longer text must be something else.
const KEY_BYTES: usize = limits::KEY_UTF8_BYTES;

/// Replaces plain values of encrypted properties in a valid message, wherever they are: in an entity without a valid key, with a misspelt
/// table, in a field that no job has (`unknown`), or in an event. Values of an entity that does not meet the condition of its table stay.
/// Returns whether there were any.
pub fn withhold(message: &mut Map<String, Value>, unknown: &[String], catalog: &Catalog) -> bool {
    let table = table_of(message, catalog);
    let (when, is_whole) = (
        table.and_then(|table| catalog.encrypted_when.get(table)),
        is_whole(message),
    );
    let is_clear = |entity: &Value| {
        when.zip(entity.as_object())
            .is_some_and(|(when, entity)| is_unmet(when, is_whole, entity))
    };
    let names: BTreeSet<&String> = match table {
        Some(table) => catalog.encrypted.get(table).into_iter().flatten().collect(),
        None => catalog.encrypted.values().flatten().collect(),
    };
    if names.is_empty() {
        return false;
    }
    let is_event = !message.contains_key("op");
    // The names of extension attributes of events are in lower case.
    let is_extension = |name: &str| is_event && !ENVELOPE.contains(&name);
    let is_encrypted = |name: &String| {
        names.contains(name)
            || is_extension(name) && names.iter().any(|encrypted| is_same(encrypted, name))
    };
    let mut found = false;
    // "blobs" contains names of staged blobs, not values. A job may have a field whose name differs from that of a property only in letter
    // case. So the names of a job's fields are compared case-sensitively.
    for (name, value) in message.iter_mut().filter(|(name, _)| *name != "blobs") {
        found |= match value {
            value if is_encrypted(name) || unknown.contains(name) => withhold_value(value),
            // A condition contains values.
            Value::String(when) if name == "when" && names_any(when, &names) => {
                withhold_value(value)
            }
            // The data of an event may be encoded in any way.
            Value::String(_) if is_event && name.starts_with("data") => withhold_value(value),
            value if name == "entity" && is_clear(value) => false,
            Value::Array(entities) if name == "entities" => {
                let protected = entities.iter_mut().filter(|entity| !is_clear(entity));
                protected.fold(false, |found, entity| {
                    let withheld = if entity.is_object() {
                        withhold_within(entity, &names)
                    } else {
                        withhold_value(entity)
                    };
                    withheld | found
                })
            }
            value => withhold_within(value, &names),
        };
    }
    found
}

fn withhold_within(value: &mut Value, names: &BTreeSet<&String>) -> bool {
    let mut found = false;
    match value {
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| {
            let encrypted = names.iter().any(|encrypted| is_same(encrypted, name));
            found |= if encrypted {
                withhold_value(value)
            } else {
                withhold_within(value, names)
            };
        }),
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| found |= withhold_within(value, names)),
        // JSON in a text is parsed. If it was truncated, the text is searched for the names of the properties instead. Escapes may hide a
        // name, so a truncated text with escapes is withheld too.
        Value::String(text) if text.trim_start().starts_with(['{', '[', '"']) => {
            let hides = match serde_json::from_str::<Value>(text) {
                Ok(mut inner) => withhold_within(&mut inner, names),
                Err(_) => text.contains("\\u") || names_any(text, names),
            };
            found = hides && withhold_value(value);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found
}

/// Whether two names are equal except for their case.
fn is_same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other) || one.to_lowercase() == other.to_lowercase()
}

/// Whether a text contains the name of an encrypted property. Letter case is ignored.
fn names_any(text: &str, names: &BTreeSet<&String>) -> bool {
    let lowercase = text.to_lowercase();
    names
        .iter()
        .any(|name| lowercase.contains(&name.to_lowercase()))
}

fn withhold_value(value: &mut Value) -> bool {
    let plain = !value.is_null() && !is_encrypted(value) && value.get(WITHHELD).is_none();
    if plain {
        *value = json!({WITHHELD: "a value of an encrypted property"});
    }
    plain
}

/// Reduces an object that is neither a job nor an event to its subject and the sizes of all other fields. Used if some properties are
/// encrypted, because any of these fields may contain the value of such a property.
pub fn redacted(message: Map<String, Value>) -> Map<String, Value> {
    let is_key = |value: &Value| value.as_str().is_some_and(|text| text.len() <= KEY_BYTES);
    let are_keys = |value: &Value| value.as_array().is_some_and(|keys| keys.iter().all(is_key));
    let is_pair =
        |value: &Value| are_keys(value) && value.as_array().is_some_and(|pair| pair.len() == 2);
    let outline = |(name, value): (String, Value)| {
        let value = match value {
            value
                if TELLING.contains(&name.as_str()) && is_key(&value)
                    || name == "v" && value.is_u64() =>
            {
                value
            }
            value if name == "rks" && are_keys(&value) => value,
            value
                if name == "keys"
                    && value
                        .as_array()
                        .is_some_and(|keys| keys.iter().all(is_pair)) =>
            {
                value
            }
            Value::Object(entity) if name == "entity" => redacted_entity(entity, is_key),
            Value::Array(entities) if name == "entities" => {
                let redacted = entities.into_iter().map(|entity| match entity {
                    Value::Object(entity) => redacted_entity(entity, is_key),
                    other => bytes_withheld(&other),
                });
                redacted.collect()
            }
            value => bytes_withheld(&value),
        };
        (name, value)
    };
    // The worker's note in the message is no longer needed.
    message
        .into_iter()
        .filter(|(name, _)| name != "ek")
        .map(outline)
        .collect()
}

fn redacted_entity(mut entity: Map<String, Value>, is_key: impl Fn(&Value) -> bool) -> Value {
    let keys = ["PartitionKey", "RowKey"]
        .map(|name| entity.remove_entry(name).filter(|(_, value)| is_key(value)));
    let rest =
        (!entity.is_empty()).then(|| (WITHHELD.to_owned(), bytes_withheld(&Value::Object(entity))));
    Value::Object(keys.into_iter().flatten().chain(rest).collect())
}

fn bytes_withheld(value: &Value) -> Value {
    json!({WITHHELD: format!("{} bytes", value.to_string().len())})
}

/// Reduces a text that is not a JSON object to its length, if some properties are encrypted. A digest would reveal a short text to anyone
/// who tries all texts.
pub fn withheld_text(text: &str) -> String {
    json!({WITHHELD: format!("{} bytes that are not a job", text.len())}).to_string()
}

impl PlainEntity {
    /// Encrypts the values in the message in which the entity was found.
    pub fn encrypt(&self, key: &DataKey, message: &mut Map<String, Value>) {
        let entity = match self.at {
            None => message.get_mut("entity"),
            Some(at) => message
                .get_mut("entities")
                .and_then(|entities| entities.get_mut(at)),
        };
        let Some(Value::Object(entity)) = entity else {
            return;
        };
        for property in &self.properties {
            let annotation = format!("{property}@odata.type");
            let fields = [property, &annotation]
                .into_iter()
                .filter_map(|name| Some((name.clone(), entity.remove(name)?)));
            let fields: Map<String, Value> = fields.collect();
            let value = odata::decode_properties(fields.clone())
                .ok()
                .and_then(|mut values| values.remove(property));
            // A value that no table can hold is encrypted as its JSON, for people to read.
            let value =
                value.unwrap_or_else(|| EdmValue::String(Value::Object(fields).to_string()));
            entity.insert(
                property.clone(),
                key.encrypt(
                    PropertyAddress {
                        home: &self.home,
                        property,
                    },
                    &value,
                )
                .into(),
            );
        }
    }
}

/// Whether the entities of a message are complete.
fn is_whole(message: &Map<String, Value>) -> bool {
    message.get("mode").is_none_or(|mode| mode == "replace") && !message.contains_key("blobs")
}

/// Whether an entity of a message violates a condition, whatever the stored entity is. A partial entity must name every property that the
/// condition reads.
fn is_unmet(when: &Condition, is_whole: bool, entity: &Map<String, Value>) -> bool {
    let is_named = |name: &str| is_whole || entity.get(name).is_some_and(|value| !value.is_null());
    when.properties().into_iter().all(is_named)
        && odata::decode_object(entity.clone()).is_ok_and(|entity| !when.holds(&entity))
}

fn is_encrypted(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with(PREFIX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::KeyBytes;
    use serde_json::json;

    fn catalog() -> Catalog {
        let table = TableRef {
            account: evenkeel_model::AccountName::main(),
            table: TableName::new("Employees").unwrap(),
        };
        Catalog {
            tables: [(table.table.clone(), table.clone())].into(),
            encrypted: [(table, ["Salary", "Ssn", "Größe"].map(str::to_owned).into())].into(),
            ..Catalog::default()
        }
    }

    #[test]
    fn values_that_cannot_be_encrypted_are_withheld_as_something_that_no_table_accepts() {
        let withheld = json!({"withheld": "a value of an encrypted property"});
        for (message, place) in [
            (
                json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "a/b", "Ssn": "1-2"}}),
                "/entity/Ssn",
            ),
            (
                json!({"op": "put", "table": "Employes", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Ssn": "1-2"}}),
                "/entity/Ssn",
            ),
            (
                json!({"op": "put", "table": "Employees", "Entity": {"PartitionKey": "Sales", "RowKey": "1", "ssn": 12}}),
                "/Entity/ssn",
            ),
            (
                json!({"specversion": "1.0", "type": "hired", "data": {"people": [{"Salary": 75_000}]}}),
                "/data/people/0/Salary",
            ),
            (
                json!({"specversion": "1.0", "type": "hired", "data": "anything"}),
                "/data",
            ),
            (
                json!({"specversion": "1.0", "type": "hired", "data_base64": "anything"}),
                "/data_base64",
            ),
            (
                json!({"op": "delete_where", "table": "Employees", "when": "ssn == \"1-2\""}),
                "/when",
            ),
            (
                json!({"op": "put", "table": "Employees", "entities": [{}, "Ssn 1-2"]}),
                "/entities/1",
            ),
            (
                json!({"op": "sync", "table": "Employees", "color": "red"}),
                "/color",
            ),
            (
                json!({"specversion": "1.0", "type": "hired", "salary": 75_000}),
                "/salary",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": {"GRÖSSE": "XL", "GRÖßE": "XL"}}),
                "/entity/GRÖßE",
            ),
            (
                json!({"op": "delete_where", "table": "Employees", "when": "GRÖßE == \"XL\""}),
                "/when",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": {"Note": " {\"S\\u0073n\": \"1-2\"}"}}),
                "/entity/Note",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": {"Note": "[\"{\\\"Ssn\\\": 12}\"]"}}),
                "/entity/Note",
            ),
            (
                json!({"op": "put", "table": "Employees", "entity": {"Note": "{\"ssn\": \"1-"}}),
                "/entity/Note",
            ),
        ] {
            let (mut message, unknown) =
                (message.as_object().unwrap().clone(), ["color".to_owned()]);
            assert!(withhold(&mut message, &unknown, &catalog()), "{message:?}");
            assert_eq!(
                Value::Object(message.clone()).pointer(place),
                Some(&withheld)
            );
            assert!(!withhold(&mut message, &unknown, &catalog()), "once");
        }
        let keeps = json!({"op": "put", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": "1", "Ssn": "ek1.abc", "Salary": null,
            "Note": "{\"a\": [1]}"}, "blobs": {"Ssn": {"blob": "evenkeel-staging/a"}}, "newer_by": "Ssn", "when": "Region == \"EU\""});
        let mut message = keeps.as_object().unwrap().clone();
        assert!(!withhold(&mut message, &[], &catalog()));
        assert_eq!(Value::Object(message), keeps);
        assert!(
            odata::decode_properties(json!({"Ssn": withheld}).as_object().unwrap().clone())
                .is_err()
        );
    }

    #[test]
    fn an_object_that_is_not_a_job_keeps_only_its_subject() {
        let message = json!({"v": "1-2", "op": "put", "table": "Employees", "mode": "1-2", "ek": {"id": "1-2"}, "pk": "Sales", "rks": ["1", "2"],
            "keys": [["Sales", "1", "1-2"]], "entity": {"PartitionKey": "Sales", "RowKey": "1", "Ssn": "1-2"}, "entities": ["1-2", {"RowKey": ["1-2"]}]});
        let redacted = Value::Object(redacted(message.as_object().unwrap().clone()));
        let bytes = |bytes: usize| json!({"withheld": format!("{bytes} bytes")});
        let expected = json!({"v": bytes(5), "op": "put", "table": "Employees", "mode": bytes(5), "pk": "Sales", "rks": ["1", "2"], "keys": bytes(21),
            "entity": {"PartitionKey": "Sales", "RowKey": "1", "withheld": bytes(13)}, "entities": [bytes(5), {}]});
        assert_eq!(redacted, expected);
        assert!(
            odata::decode_object(redacted["entity"].as_object().unwrap().clone()).is_err(),
            "nobody sends it again"
        );
        assert_eq!(
            withheld_text("hello"),
            r#"{"withheld":"5 bytes that are not a job"}"#
        );
    }

    #[test]
    fn plain_values_of_every_entity_are_encrypted_in_their_places() {
        let catalog = catalog();
        let mut message = json!({"op": "put", "table": "employees", "entities": [
            {"PartitionKey": "Sales", "RowKey": "1", "Salary": "75000", "Salary@odata.type": "Edm.Int64", "Name": "Kim"},
            {"PartitionKey": "Sales", "RowKey": "2", "Ssn": "ek1.abc", "Salary": null},
            {"PartitionKey": "Sales", "RowKey": "3", "Ssn": ["no", "value"]},
            "no entity"
        ]});
        let message = message.as_object_mut().unwrap();
        let found = plain_entities(message, &catalog);
        assert_eq!(
            found
                .iter()
                .map(|entity| entity.home.key.rk.as_str())
                .collect::<Vec<_>>(),
            ["1", "3"]
        );
        let key = DataKey::new(KeyBytes([7; 32]));
        for entity in &found {
            entity.encrypt(&key, message);
        }
        assert!(plain_entities(message, &catalog).is_empty());
        let decrypted = |at: usize, property: &str| {
            let place = PropertyAddress {
                home: &found[at / 2].home,
                property,
            };
            key.decrypt(place, message["entities"][at][property].as_str().unwrap())
                .unwrap()
        };
        assert_eq!(decrypted(0, "Salary"), EdmValue::from(75_000_i64));
        assert_eq!(
            decrypted(2, "Ssn"),
            EdmValue::from(r#"{"Ssn":["no","value"]}"#)
        );
        assert_eq!(message["entities"][0]["Name"], "Kim");
        assert!(message["entities"][0].get("Salary@odata.type").is_none());
    }

    #[test]
    fn a_value_stays_plain_if_the_message_alone_shows_that_the_condition_does_not_hold() {
        let table = TableRef {
            account: evenkeel_model::AccountName::main(),
            table: TableName::new("Employees").unwrap(),
        };
        let catalog = Catalog {
            tables: [(table.table.clone(), table.clone())].into(),
            encrypted: [(table.clone(), ["Ssn".to_owned()].into())].into(),
            encrypted_when: [(
                table,
                Condition::parse("Region == \"EU\" and PartitionKey != \"Ops\"").unwrap(),
            )]
            .into(),
            ..Catalog::default()
        };
        let is_encrypted = |mode: &str, pk: &str, more: Value| {
            let mut message = json!({"op": "put", "table": "Employees", "mode": mode, "entity": {"PartitionKey": pk, "RowKey": "1", "Ssn": "7"}});
            message["entity"]
                .as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            !plain_entities(message.as_object().unwrap(), &catalog).is_empty()
        };
        let region = |name: &str| json!({"Region": name});
        for mode in ["replace", "merge"] {
            assert!(
                is_encrypted(mode, "Sales", region("EU"))
                    && !is_encrypted(mode, "Sales", region("US"))
                    && !is_encrypted(mode, "Ops", region("EU"))
            );
        }
        assert!(
            !is_encrypted("replace", "Sales", json!({})),
            "a comparison with a missing property is false"
        );
        for undecided in [
            json!({}),
            json!({"Region": null}),
            json!({"Region": "US", "Age@odata.type": "Edm.Int64", "Age": "x"}),
        ] {
            assert!(
                is_encrypted("merge", "Sales", undecided.clone()),
                "{undecided}"
            );
        }
        assert!(
            is_encrypted("destroy", "Sales", json!({})),
            "with an unknown mode, the entity counts as partial"
        );
        let entity = |region: &str, rk: Value| json!({"PartitionKey": "Sales", "RowKey": rk, "Ssn": "7", "Region": region});
        let mut message = json!({"op": "put", "table": "Employees", "entity": entity("US", json!("1")),
            "entities": [entity("US", json!("1")), entity("EU", json!("1")), entity("US", json!(1)), "none"]});
        assert!(withhold(message.as_object_mut().unwrap(), &[], &catalog));
        let kept = |value: &Value| value["Ssn"] == "7";
        assert!(kept(&message["entity"]));
        assert_eq!(
            [0, 1, 2].map(|at| kept(&message["entities"][at])),
            [true, false, false],
            "{message}"
        );
    }
}
