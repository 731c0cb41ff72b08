//! Formats rows as a table. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::cli::output::printable;
use crate::cli::row::RowJson;
use evenkeel_client::LookupResult;
use evenkeel_model::entity::RESERVED_PREFIX;
use evenkeel_model::{EdmValue, Row};

/// Maximum number of characters of a value in a column.
const WIDTH: usize = 48;

/// The headings and the cells of a table. The columns are both keys, then all properties of the
/// rows, then the properties of joined entities, prefixed with the name of their table. Evenkeel's
/// own properties are left out.
pub(super) fn table(found: &LookupResult) -> (Vec<String>, Vec<Vec<String>>) {
    let names = names(found.rows.iter());
    let joined: Vec<_> = found
        .joined
        .iter()
        .map(|(table, rows)| {
            (
                table,
                rows,
                self::names(rows.iter().flatten().map(AsRef::as_ref)),
            )
        })
        .collect();
    let of_joined = joined
        .iter()
        .flat_map(|(table, _, names)| names.iter().map(move |name| format!("{table}.{name}")));
    let own = ["PartitionKey", "RowKey"]
        .into_iter()
        .chain(names.iter().copied())
        .map(str::to_owned);
    let heading = own.chain(of_joined).collect();
    let cells = found.rows.iter().enumerate().map(|(at, row)| {
        let keys = [row.entity.key.pk.as_str(), row.entity.key.rk.as_str()].map(cut);
        let of_joined = joined
            .iter()
            .flat_map(|(_, rows, names)| cells(rows.get(at).and_then(Option::as_deref), names));
        keys.into_iter()
            .chain(cells(Some(row), &names))
            .chain(of_joined)
            .collect()
    });
    (heading, cells.collect())
}

/// Like [`table`], but without joined entities.
pub(in crate::cli) fn rows_table(rows: &[Row]) -> (Vec<String>, Vec<Vec<String>>) {
    let names = names(rows.iter());
    let heading = ["PartitionKey", "RowKey"]
        .into_iter()
        .chain(names.iter().copied())
        .map(str::to_owned)
        .collect();
    let keys = |row: &Row| [row.entity.key.pk.as_str(), row.entity.key.rk.as_str()].map(cut);
    (
        heading,
        rows.iter()
            .map(|row| {
                keys(row)
                    .into_iter()
                    .chain(cells(Some(row), &names))
                    .collect()
            })
            .collect(),
    )
}

fn names<'r>(rows: impl Iterator<Item = &'r Row>) -> BTreeSet<&'r str> {
    let names = rows
        .flat_map(|row| row.entity.properties.keys())
        .map(String::as_str);
    names
        .filter(|name| !name.starts_with(RESERVED_PREFIX))
        .collect()
}

/// The values of these properties, with an empty text for a missing one.
fn cells(row: Option<&Row>, names: &BTreeSet<&str>) -> impl Iterator<Item = String> {
    names.iter().map(move |name| {
        row.and_then(|row| row.entity.get(name))
            .map(shown)
            .unwrap_or_default()
    })
}

/// A row as JSON, with its joined entities.
#[derive(Serialize)]
pub(super) struct FoundJson<'r> {
    #[serde(flatten)]
    row: RowJson,
    /// Joined entities by table. The name of this field contains an `@`, so no property can have
    /// the same name.
    #[serde(rename = "@with", skip_serializing_if = "BTreeMap::is_empty")]
    with: BTreeMap<&'r str, Option<RowJson>>,
}

pub(super) fn rows_json(found: &LookupResult) -> impl Iterator<Item = FoundJson<'_>> {
    found.rows.iter().enumerate().map(|(at, row)| {
        let joined =
            |rows: &[Option<Arc<Row>>]| rows.get(at).and_then(Option::as_deref).map(RowJson::of);
        let with = found
            .joined
            .iter()
            .map(|(table, rows)| (table.as_str(), joined(rows)))
            .collect();
        FoundJson {
            row: RowJson::of(row),
            with,
        }
    })
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
    if safe.chars().count() <= WIDTH {
        safe
    } else {
        format!("{}…", safe.chars().take(WIDTH - 1).collect::<String>())
    }
}
