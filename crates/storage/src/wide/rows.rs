//! The rows of an entity as they were read, and the operations that change them.

use std::collections::BTreeMap;

use super::layout::{self, Properties, WideError};
use super::row_key;
use crate::{IfMatch, TableOperation};
use evenkeel_model::{ETag, Entity, EntityKey, Row};

/// In the first row: the tokens of the further rows in order, as a JSON array.
pub const ROWS_PROPERTY: &str = "ek_rows";
/// In a further row: its token.
pub const ROW_PROPERTY: &str = "ek_row";

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rows {
    /// The row with the entity's own key.
    pub(super) first: Option<Row>,
    /// The further rows by number, leftovers included.
    pub(super) further: BTreeMap<usize, Row>,
    pub(super) requests: u64,
}

impl Rows {
    /// The number of storage requests that were needed to read the rows.
    pub const fn requests(&self) -> u64 {
        self.requests
    }

    /// The tokens of the further rows that the first row lists.
    pub(super) fn expected(&self) -> Vec<String> {
        self.first
            .as_ref()
            .map(|row| expected(&row.entity))
            .unwrap_or_default()
    }

    /// Whether the tokens prove that all rows are of one version.
    pub(super) fn agree(&self) -> bool {
        let token = |number: usize| {
            self.further
                .get(&number)
                .and_then(|row| row.entity.text(ROW_PROPERTY))
        };
        self.expected()
            .iter()
            .enumerate()
            .all(|(at, expected)| token(at + 1) == Some(expected))
    }

    /// The entity as one row, with the version of the first row.
    pub fn joined(&self) -> Option<Row> {
        let mut row = self.first.clone()?;
        row.entity.properties = BTreeMap::new();
        for properties in self.contents().into_iter().rev() {
            row.entity.properties.extend(properties);
        }
        Some(row)
    }

    /// The properties of each row, without evenkeel's marks.
    fn contents(&self) -> Vec<Properties> {
        let Some(first) = &self.first else {
            return Vec::new();
        };
        let further = (1..=self.expected().len()).map(|number| self.further.get(&number));
        let rows = std::iter::once(Some(first)).chain(further);
        rows.map(|row| row.map(|row| unmarked(&row.entity)).unwrap_or_default())
            .collect()
    }

    /// The operations that write an entity over these rows, the first row before the others. `plain` writes the entity if one row is
    /// enough, and determines the condition; `token` draws a new token.
    pub fn operations(
        &self,
        plain: &TableOperation,
        entity: &Entity,
        token: impl Fn() -> ETag,
    ) -> Result<Vec<TableOperation>, WideError> {
        let laid = layout::lay(entity, &self.contents())?;
        if laid.len() == 1 && self.further.is_empty() && self.expected().is_empty() {
            return Ok(vec![plain.clone()]);
        }
        let mut tokens = Vec::new();
        let mut others = Vec::new();
        for (number, properties) in laid.iter().enumerate().skip(1) {
            let key = row_key::further(&entity.key, number)?;
            let held = self.further.get(&number);
            // A leftover row that is reused is always written, so that it gets a new ETag. A deletion of leftovers may already have read
            // the row. The new ETag makes this deletion fail.
            let listed = held.filter(|_| number <= self.expected().len());
            let kept = listed
                .filter(|row| unmarked(&row.entity) == *properties)
                .and_then(|row| row.entity.text(ROW_PROPERTY));
            if let Some(kept) = kept {
                tokens.push(kept.to_owned());
                continue;
            }
            let token = token();
            tokens.push(token.as_str().to_owned());
            let row = Entity {
                key,
                properties: properties.clone(),
            }
            .with(ROW_PROPERTY, token.as_str());
            others.push(match held {
                None => TableOperation::Insert(row),
                Some(held)
                    if held.entity.get(ROW_PROPERTY).is_none()
                        && number > self.expected().len() =>
                {
                    return Err(WideError::InTheWay(held.entity.key.rk.as_str().to_owned()));
                }
                Some(held) => change(&held.entity, row, IfMatch::Matches(held.etag.clone())),
            });
        }
        let left = self
            .further
            .range(laid.len()..)
            .map(|(_, row)| row)
            .filter(|row| row.entity.get(ROW_PROPERTY).is_some());
        others.extend(left.map(|row| {
            TableOperation::Delete(row.entity.key.clone(), IfMatch::Matches(row.etag.clone()))
        }));

        let mut first = Entity {
            key: entity.key.clone(),
            properties: laid[0].clone(),
        };
        if !tokens.is_empty() {
            first = first.with(ROWS_PROPERTY, serde_json::Value::from(tokens).to_string());
        }
        let first = match (plain, &self.first) {
            (
                TableOperation::Replace(_, condition) | TableOperation::Merge(_, condition),
                Some(held),
            ) => change(&held.entity, first, condition.clone()),
            _ => TableOperation::Insert(first),
        };
        Ok(std::iter::once(first).chain(others).collect())
    }

    /// The operations that delete an entity with all its rows. `plain` deletes the first row.
    pub fn deletions(&self, plain: &TableOperation) -> Vec<TableOperation> {
        std::iter::once(plain.clone())
            .chain(self.further_deletions())
            .collect()
    }

    /// The operations that delete rows without a first row; none if the first row exists.
    pub fn leftover_deletions(&self) -> Vec<TableOperation> {
        if self.first.is_some() {
            Vec::new()
        } else {
            self.further_deletions().collect()
        }
    }

    fn further_deletions(&self) -> impl Iterator<Item = TableOperation> {
        let listed = self.expected().len();
        let own = self.further.iter().filter(move |(number, row)| {
            **number <= listed || row.entity.get(ROW_PROPERTY).is_some()
        });
        own.map(|(_, row)| {
            TableOperation::Delete(row.entity.key.clone(), IfMatch::Matches(row.etag.clone()))
        })
    }
}

/// Whether a row is a further row of a wide entity, in a table that may or may not be wide. In a table that is not wide, a RowKey may end
/// with `~` and a number, too. So the row must also have evenkeel's mark.
pub fn is_continuation_of_any(row: &Row) -> bool {
    row.entity.get(ROW_PROPERTY).is_some() && row_key::is_continuation(&row.entity.key.rk)
}

/// Changes a row to another one. Unchanged properties are not sent, unless a property must be removed.
fn change(held: &Entity, row: Entity, condition: IfMatch) -> TableOperation {
    let changed = row
        .properties
        .iter()
        .filter(|(name, value)| held.properties.get(*name) != Some(*value));
    let changed: Properties = changed
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    // If no property has changed, the row is written only to get a new ETag. It is then written as a whole.
    if changed.is_empty()
        || held
            .properties
            .keys()
            .any(|name| !row.properties.contains_key(name))
    {
        return TableOperation::Replace(row, condition);
    }
    TableOperation::Merge(
        Entity {
            key: row.key,
            properties: changed,
        },
        condition,
    )
}

/// The tokens that a first row lists. An invalid text lists none.
fn expected(first: &Entity) -> Vec<String> {
    first
        .text(ROWS_PROPERTY)
        .and_then(|text| serde_json::from_str(text).ok())
        .unwrap_or_default()
}

fn unmarked(row: &Entity) -> Properties {
    let marks = [ROWS_PROPERTY, ROW_PROPERTY];
    row.properties
        .iter()
        .filter(|(name, _)| !marks.contains(&name.as_str()))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Joins all rows of a wide table to its entities, sorted by key. Rows that no first row lists belong to no entity. The caller must have
/// read the whole table.
pub fn whole(rows: impl IntoIterator<Item = Row>) -> Vec<Row> {
    let (further, first): (Vec<Row>, Vec<Row>) = rows
        .into_iter()
        .partition(|row| row_key::is_continuation(&row.entity.key.rk));
    let mut entities: BTreeMap<EntityKey, Rows> = first
        .into_iter()
        .map(|row| {
            (
                row.entity.key.clone(),
                Rows {
                    first: Some(row),
                    ..Rows::default()
                },
            )
        })
        .collect();
    for row in further {
        let EntityKey { pk, rk } = &row.entity.key;
        let Some(key) = rk
            .as_str()
            .rsplit_once('~')
            .and_then(|(rk, _)| EntityKey::new(pk.as_str(), rk).ok())
        else {
            continue;
        };
        if let (Some(rows), Some(number)) = (entities.get_mut(&key), row_key::number(&key.rk, rk)) {
            rows.further.insert(number, row);
        }
    }
    entities
        .into_values()
        .filter_map(|rows| rows.joined())
        .collect()
}
