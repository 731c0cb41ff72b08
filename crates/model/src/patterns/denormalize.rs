//! Denormalization: properties of a primary, set on another entity.
//!
//! The derived item is a set of properties and the entity that they are set on. That entity has
//! another owner: it is neither created nor deleted, and its other properties stay as they are.

use std::collections::BTreeMap;

use super::DeriveError;
use super::derive::ViewContext;
use crate::template::Template;
use crate::{EdmValue, Entity, EntityKey};

/// The properties that a primary sets on the entity with this key, if any. They must fit into an
/// entity.
pub(super) fn values(
    context: &ViewContext<'_>,
    set: &BTreeMap<String, Template>,
    key: &EntityKey,
) -> Result<Option<BTreeMap<String, EdmValue>>, Box<DeriveError>> {
    let mut values = BTreeMap::new();
    for (name, template) in set {
        let value = match template.bare_property() {
            // A template of one property alone keeps its type.
            Some(property) if !matches!(property, "PartitionKey" | "RowKey") => context
                .entity
                .get(property)
                .filter(|value| value.as_str() != Some(""))
                .cloned(),
            _ => template
                .render_text(context.entity)
                .map_err(|source| context.render_error("set", source))?
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
            view: context.view.name.clone(),
            primary: context.primary.clone(),
            source,
        })
    })?;
    Ok(Some(row.properties))
}
