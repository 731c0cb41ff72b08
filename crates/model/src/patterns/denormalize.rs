//! Denormalization: properties of a primary, kept on another entity.
//!
//! The derived item is a set of properties and the entity that they belong on. The entity itself has another owner: it is
//! neither made nor deleted, and its other properties stay as they are.

use std::collections::BTreeMap;

use super::DeriveError;
use super::derive::Deriving;
use crate::template::Template;
use crate::{EdmValue, Entity, EntityKey};

/// The properties that a primary has on another entity, where it has some. They are to fit on one with this key.
pub(super) fn values(
    of: &Deriving<'_>,
    set: &BTreeMap<String, Template>,
    key: &EntityKey,
) -> Result<Option<BTreeMap<String, EdmValue>>, Box<DeriveError>> {
    let mut values = BTreeMap::new();
    for (name, template) in set {
        let value = match template.bare_property() {
            // A property as it is keeps its type.
            Some(property) if !matches!(property, "PartitionKey" | "RowKey") => of
                .entity
                .get(property)
                .filter(|value| value.as_str() != Some(""))
                .cloned(),
            _ => template
                .render_text(of.entity)
                .map_err(|source| of.unrendered("set", source))?
                .map(EdmValue::String),
        };
        values.extend(value.map(|value| (name.clone(), value)));
    }
    if values.is_empty() {
        return Ok(None);
    }
    let row = Entity {
        key: key.clone(),
        properties: values,
    };
    row.check().map_err(|source| {
        Box::new(DeriveError::Item {
            view: of.view.name.clone(),
            primary: of.primary.clone(),
            source,
        })
    })?;
    Ok(Some(row.properties))
}
