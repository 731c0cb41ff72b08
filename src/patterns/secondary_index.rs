//! Secondary indexes: a copy of the primary under another key.
//!
//! Intra-partition where the target is the source's own table and partition, so that a `put` commits
//! primary and copy in one entity group transaction; inter-partition anywhere else, another table and
//! another account included. A primary that lacks a property of the key has no copy (a sparse index).

use super::DeriveError;
use crate::catalog::{SecondaryIndex, View};
use crate::model::item::Owner;
use crate::model::job::Primary;
use crate::model::{Entity, EntityKey, ItemAddress};

/// The copy of a primary, where it has one.
pub(super) fn derive(
    view: &View,
    index: &SecondaryIndex,
    primary: &Primary,
    entity: &Entity,
) -> Result<Option<(ItemAddress, Entity)>, Box<DeriveError>> {
    let render = |part: &'static str, template: &crate::model::template::Template| {
        let problem = |source| DeriveError::Render { view: view.name.clone(), part, primary: primary.clone(), source };
        template.render(entity).map_err(|source| Box::new(problem(source)))
    };
    let (Some(pk), Some(rk)) = (render("partition_key", &index.partition_key)?, render("row_key", &index.row_key)?) else {
        return Ok(None);
    };
    let key = EntityKey { pk, rk };
    let selected = |name: &str| index.select.as_ref().is_none_or(|select| select.iter().any(|wanted| wanted == name));
    let properties =
        entity.user_properties().filter(|(name, _)| selected(name)).map(|(name, value)| (name.clone(), value.clone())).collect();
    let owner = Owner { primary: primary.clone(), view: view.name.clone() };
    let copy = owner.on(Entity { key: key.clone(), properties });
    Ok(Some((ItemAddress::row(view.name.clone(), index.target.account.clone(), index.target.table.clone(), key), copy)))
}
