//! Formats a row as JSON, in the same way for every command.

use std::collections::BTreeSet;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use super::Output;
use evenkeel_model::{Row, odata};
use evenkeel_storage::encryption::is_encrypted;

/// Fields that every row has, in this order. The properties follow them, sorted by name.
const FIRST: [&str; 4] = ["odata.etag", "PartitionKey", "RowKey", "Timestamp"];

pub(super) struct RowJson(Map<String, Value>);

impl RowJson {
    pub(super) fn of(row: &Row) -> Self {
        Self(odata::encode_row(row))
    }
}

/// Reports values that could not be decrypted.
pub(super) fn report_encrypted<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    out: &mut Output,
) -> std::io::Result<()> {
    let encrypted = rows
        .into_iter()
        .flat_map(|row| &row.entity.properties)
        .filter(|(_, value)| is_encrypted(value));
    let names: BTreeSet<&str> = encrypted.map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = names.into_iter().collect();
    out.write_error(format_args!("not decrypted: {}. Either [encryption.keys] lacks the key-encryption key, or the row is not a copy of the primary that it names", names.join(", ")))
}

impl Serialize for RowJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for name in FIRST {
            if let Some(value) = self.0.get(name) {
                map.serialize_entry(name, value)?;
            }
        }
        for (name, value) in self
            .0
            .iter()
            .filter(|(name, _)| !FIRST.contains(&name.as_str()))
        {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
