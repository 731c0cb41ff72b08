//! Denormalization: properties of a primary, kept on another entity.
//!
//! What is derived is a set of properties and the entity that they belong on. The entity itself is somebody else's: it is
//! neither made nor deleted, and its other properties stay as they are.

use std::collections::BTreeMap;

use super::DeriveError;
use crate::catalog::{Denormalize, View};
use crate::model::job::Primary;
use crate::model::template::{RenderError, Template};
use crate::model::{EdmValue, Entity, EntityKey, ItemAddress, Part, Site};

/// Where properties belong, and what they are.
type Placed = (ItemAddress, BTreeMap<String, EdmValue>);

/// The properties that a primary has on another entity, where it has some.
pub(super) fn derive(
    view: &View,
    denormalize: &Denormalize,
    primary: &Primary,
    entity: &Entity,
) -> Result<Option<Placed>, Box<DeriveError>> {
    let problem = |part: &'static str| {
        move |source: RenderError| Box::new(DeriveError::Render { view: view.name.clone(), part, primary: primary.clone(), source })
    };
    let key = |part, template: &Template| template.render(entity).map_err(problem(part));
    let (Some(pk), Some(rk)) = (key("partition_key", &denormalize.partition_key)?, key("row_key", &denormalize.row_key)?) else {
        return Ok(None);
    };
    let mut values = BTreeMap::new();
    for (name, template) in &denormalize.set {
        let value = match template.bare_property() {
            // A property as it is keeps its type.
            Some(property) if !matches!(property, "PartitionKey" | "RowKey") => {
                entity.get(property).filter(|value| value.as_str() != Some("")).cloned()
            }
            _ => template.render_text(entity).map_err(problem("set"))?.map(EdmValue::String),
        };
        values.extend(value.map(|value| (name.clone(), value)));
    }
    if values.is_empty() {
        return Ok(None);
    }
    let row = Entity { key: EntityKey { pk: pk.clone(), rk: rk.clone() }, properties: values };
    row.check().map_err(|source| Box::new(DeriveError::Item { view: view.name.clone(), primary: primary.clone(), source }))?;
    let target = &denormalize.target;
    let address = ItemAddress {
        view: view.name.clone(),
        account: target.account.clone(),
        site: Site::Row { table: target.table.clone(), key: row.key },
        part: Some(Part::Properties),
    };
    Ok(Some((address, row.properties)))
}
