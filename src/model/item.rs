//! Items: the derived things that a primary owns.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::job::Primary;
use super::{AccountName, Entity, EntityKey, TableName, ViewName};

/// The property of a derived row that names its owner: a JSON array of table, partition key and row key.
pub const SOURCE_PROPERTY: &str = "ek_source";
/// The property of a derived row that names its view.
pub const VIEW_PROPERTY: &str = "ek_view";

/// Where an item lies, and which view it belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ItemAddress {
    /// The view.
    pub view: ViewName,
    /// The account of its table.
    pub account: AccountName,
    /// Its table.
    pub table: TableName,
    /// Its key.
    #[serde(flatten)]
    pub key: EntityKey,
}

impl fmt::Display for ItemAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} of view {}", self.table, self.key, self.view)
    }
}

/// The owner that a derived row names: its primary and its view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// The primary.
    pub primary: Primary,
    /// The view.
    pub view: ViewName,
}

impl Owner {
    /// Reads the owner of a row; nothing where the row is not derived.
    pub fn of(entity: &Entity) -> Option<Self> {
        let view = ViewName::new(entity.text(VIEW_PROPERTY)?).ok()?;
        let (table, pk, rk): (TableName, String, String) = serde_json::from_str(entity.text(SOURCE_PROPERTY)?).ok()?;
        Some(Self { primary: Primary { table, key: EntityKey::new(pk, rk).ok()? }, view })
    }

    /// Writes the owner on a row.
    #[must_use]
    pub fn on(&self, entity: Entity) -> Entity {
        entity.with(SOURCE_PROPERTY, source_text(&self.primary)).with(VIEW_PROPERTY, self.view.as_str())
    }
}

/// The text of `ek_source`.
pub fn source_text(primary: &Primary) -> String {
    serde_json::json!([primary.table, primary.key.pk, primary.key.rk]).to_string()
}

/// Whether this row of this table was derived from a primary of the same table: such a row is never a
/// primary itself.
pub fn is_derived_within(table: &TableName, entity: &Entity) -> bool {
    Owner::of(entity).is_some_and(|owner| owner.primary.table == *table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_survives_on_its_row() {
        let owner = Owner {
            primary: Primary { table: TableName::new("Employees").unwrap(), key: EntityKey::new("Sa\"les", "한,7").unwrap() },
            view: ViewName::new("by_email").unwrap(),
        };
        let row = owner.on(Entity::new(EntityKey::new("p", "r").unwrap()));
        assert_eq!(row.text("ek_source"), Some(r#"["Employees","Sa\"les","한,7"]"#));
        assert_eq!(Owner::of(&row), Some(owner));
        assert!(is_derived_within(&TableName::new("employees").unwrap(), &row));
        assert!(!is_derived_within(&TableName::new("Other").unwrap(), &row));
    }
}
