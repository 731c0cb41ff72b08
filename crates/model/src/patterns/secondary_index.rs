//! Secondary indexes: a copy of the primary under another key.
//!
//! An index is intra-partition if each copy is in the table and partition of its primary. In this
//! case a `put` commits primary and copy in one entity group transaction. All other indexes,
//! including those in another table or account, are inter-partition. A primary that lacks a
//! property of the key has no copy (a sparse index).

use super::derive::ViewContext;
use crate::item::Owner;
use crate::{Entity, EntityKey};

pub(super) fn copy(
    context: &ViewContext<'_>,
    select: Option<&[String]>,
    key: &EntityKey,
) -> Entity {
    let selected =
        |name: &str| select.is_none_or(|select| select.iter().any(|wanted| wanted == name));
    let properties = context
        .entity
        .user_properties()
        .filter(|(name, _)| selected(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let owner = Owner {
        primary: context.primary.clone(),
        view: context.view.name.clone(),
    };
    owner.on(Entity {
        key: key.clone(),
        properties,
    })
}
