//! Aggregates: figures of groups of primaries.
//!
//! What is derived from one primary is its *contribution*: a member of its group that tells the primary and the values
//! that the figures are made of. Figures are computed anew from all contributions whenever one changes, and never
//! counted up or down, so that a repeated job changes nothing.

use super::DeriveError;
use crate::catalog::{Aggregate, Figure, View, contributed};
use crate::model::job::Primary;
use crate::model::template::{RenderError, Template};
use crate::model::{EdmValue, Entity, EntityKey, ItemAddress, Member, Part, Site};

/// The contribution of a primary, where it is in a group.
pub(super) fn derive(
    view: &View,
    aggregate: &Aggregate,
    primary: &Primary,
    entity: &Entity,
) -> Result<Option<ItemAddress>, Box<DeriveError>> {
    let problem = |part: &'static str| {
        move |source: RenderError| Box::new(DeriveError::Render { view: view.name.clone(), part, primary: primary.clone(), source })
    };
    let key = |part, template: &Template| template.render(entity).map_err(problem(part));
    let (Some(pk), Some(rk)) = (key("partition_key", &aggregate.partition_key)?, key("row_key", &aggregate.row_key)?) else {
        return Ok(None);
    };
    let mut texts = vec![primary.key.pk.as_str().to_owned(), primary.key.rk.as_str().to_owned()];
    for property in aggregate.properties() {
        let summed = aggregate.set.iter().any(|(_, figure)| *figure == Figure::Sum(property.to_owned()));
        let value = match entity.get(property) {
            Some(EdmValue::DateTime(_)) if summed => Err("Edm.DateTime"),
            _ => contributed(entity, property),
        };
        let problem =
            |found| DeriveError::Contribution { view: view.name.clone(), primary: primary.clone(), property: property.to_owned(), found };
        texts.extend(value.map_err(|found| Box::new(problem(found)))?);
    }
    let target = &aggregate.target;
    Ok(Some(ItemAddress {
        view: view.name.clone(),
        account: target.account.clone(),
        site: Site::Row { table: target.table.clone(), key: EntityKey { pk, rk } },
        part: Some(Part::Member(Member(texts))),
    }))
}
