//! A row as every command prints it.

use std::collections::BTreeSet;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use super::Output;
use evenkeel_model::{Row, odata};
use evenkeel_storage::sealing::is_sealed;

/// Fields of every row, in the order in which people look for them; its properties follow in the order of their names.
const FIRST: [&str; 4] = ["odata.etag", "PartitionKey", "RowKey", "Timestamp"];

/// A row as OData JSON.
pub(super) struct RowJson(Map<String, Value>);

impl RowJson {
    pub(super) fn of(row: &Row) -> Self {
        Self(odata::encode_row(row))
    }
}

/// Says which values stayed sealed.
pub(super) fn tell_sealed<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    out: &mut Output,
) -> std::io::Result<()> {
    let sealed = rows
        .into_iter()
        .flat_map(|row| &row.entity.properties)
        .filter(|(_, value)| is_sealed(value));
    let names: BTreeSet<&str> = sealed.map(|(name, _)| name.as_str()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = names.into_iter().collect();
    out.complain(format_args!("sealed: {}; this configuration has no key-encryption key for it ([encryption.keys]), or the row is no copy of the primary that it names", names.join(", ")))
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
