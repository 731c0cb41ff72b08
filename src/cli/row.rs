//! A row as every command prints it.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};

use crate::model::{Row, odata};

/// Fields of every row, in the order in which people look for them; its properties follow in the order of their names.
const FIRST: [&str; 4] = ["odata.etag", "PartitionKey", "RowKey", "Timestamp"];

/// A row as OData JSON.
pub(super) struct RowJson(Map<String, Value>);

impl RowJson {
    pub(super) fn of(row: &Row) -> Self {
        Self(odata::encode_row(row))
    }
}

impl Serialize for RowJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for name in FIRST {
            if let Some(value) = self.0.get(name) {
                map.serialize_entry(name, value)?;
            }
        }
        for (name, value) in self.0.iter().filter(|(name, _)| !FIRST.contains(&name.as_str())) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
