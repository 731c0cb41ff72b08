//! How rows look in a table: pure.

use std::collections::BTreeSet;

use crate::cli::output::printable;
use crate::model::entity::RESERVED_PREFIX;
use crate::model::{EdmValue, Row};

/// Longest value shown in a column, in characters.
const WIDTH: usize = 48;

/// The heading and the cells: both keys, then the properties that any row has, evenkeel's own left out.
pub(super) fn table(rows: &[Row]) -> (Vec<String>, Vec<Vec<String>>) {
    let names: BTreeSet<&str> = rows
        .iter()
        .flat_map(|row| row.entity.properties.keys())
        .map(String::as_str)
        .filter(|name| !name.starts_with(RESERVED_PREFIX))
        .collect();
    let heading = ["PartitionKey", "RowKey"].into_iter().chain(names.iter().copied()).map(str::to_owned).collect();
    let cells = rows.iter().map(|row| {
        let keys = [row.entity.key.pk.as_str(), row.entity.key.rk.as_str()].map(cut);
        let values = names.iter().map(|name| row.entity.get(name).map(shown).unwrap_or_default());
        keys.into_iter().chain(values).collect()
    });
    (heading, cells.collect())
}

fn shown(value: &EdmValue) -> String {
    match value {
        EdmValue::String(text) => cut(text),
        EdmValue::Bool(truth) => truth.to_string(),
        EdmValue::Int32(number) => number.to_string(),
        EdmValue::Int64(number) => number.to_string(),
        EdmValue::Double(number) => number.to_string(),
        EdmValue::DateTime(moment) => moment.to_string(),
        EdmValue::Guid(guid) => guid.to_string(),
        EdmValue::Binary(bytes) => format!("{} bytes", bytes.len()),
    }
}

fn cut(text: &str) -> String {
    let safe = printable(text);
    if safe.chars().count() <= WIDTH { safe } else { format!("{}…", safe.chars().take(WIDTH - 1).collect::<String>()) }
}
