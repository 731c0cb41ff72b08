//! Denormalization: values of a primary that are set as properties on another entity.
//!
//! The derived item is a set of properties, with the address of the entity on which they are set.
//! That entity has another owner, so evenkeel neither creates nor deletes the entity, and does not
//! change its other properties.

use std::collections::BTreeMap;

use super::DeriveError;
use super::derive::ViewContext;
use crate::template::Template;
use crate::{EdmValue, Entity, EntityKey};

/// The properties that a primary sets on the entity with this key; `None` if there are none. An
/// error if the properties do not fit into one entity.
pub(super) fn values(
    context: &ViewContext<'_>,
    set: &BTreeMap<String, Template>,
    key: &EntityKey,
) -> Result<Option<BTreeMap<String, EdmValue>>, Box<DeriveError>> {
    let mut values = BTreeMap::new();
    for (name, template) in set {
        let value = match template.bare_property() {
            // A template that consists of one property keeps the type of that property.
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
