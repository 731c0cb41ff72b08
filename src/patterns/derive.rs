//! From a primary to its items.

use std::collections::BTreeMap;

use crate::catalog::{Catalog, OnConflict, TableRef, ViewKind};
use crate::model::entity::EntityError;
use crate::model::job::Primary;
use crate::model::template::RenderError;
use crate::model::{EdmValue, Entity, ItemAddress, Part, ViewName, limits};

/// An item that should exist.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// What it is.
    pub content: Content,
    /// The generation of its view.
    pub generation: u32,
    /// What happens when another primary has the key.
    pub on_conflict: OnConflict,
}

/// What an item is.
#[derive(Debug, Clone, PartialEq)]
pub enum Content {
    /// A row, its owner written on it.
    Row(Entity),
    /// The member that its address names: there is no more to it.
    Member,
    /// Properties that are kept on somebody else's entity.
    Properties(BTreeMap<String, EdmValue>),
}

/// Why a primary's items cannot be derived: a permanent error of its job.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeriveError {
    /// A key cannot be rendered.
    #[error("view {view}: its {part} cannot be rendered for {primary}")]
    Render {
        /// The view.
        view: ViewName,
        /// Which template.
        part: &'static str,
        /// The primary.
        primary: Primary,
        /// Why.
        #[source]
        source: RenderError,
    },
    /// The derived row breaks a limit of the service.
    #[error("view {view}: the item it derives from {primary} cannot be stored")]
    Item {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// Which limit.
        #[source]
        source: EntityError,
    },
    /// A property that no figure can be made of.
    #[error(
        "view {view}: the property {property:?} of {primary} is an {found}; a sum takes numbers, min and max take numbers or an Edm.DateTime"
    )]
    Contribution {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// The property.
        property: String,
        /// Its type.
        found: &'static str,
    },
    /// A member over its limit.
    #[error("view {view}: the member that {primary} would be has {units} UTF-16 units as JSON; at most 2,048 are allowed")]
    LongMember {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
        /// How many.
        units: usize,
    },
    /// Two views, or one view and its source, want one row.
    #[error("the views {first} and {second} both derive {address} from {primary}: give one of them another key")]
    SameRow {
        /// One view.
        first: ViewName,
        /// The other.
        second: ViewName,
        /// The row.
        address: ItemAddress,
        /// The primary.
        primary: Primary,
    },
    /// A view derives the primary's own row.
    #[error("view {view} derives the row of {primary} itself: give the view another table, or a literal prefix in its row_key")]
    OwnRow {
        /// The view.
        view: ViewName,
        /// The primary.
        primary: Primary,
    },
    /// More than a footprint can list.
    #[error("{primary} has {count} items; at most 1,000 are allowed for one primary")]
    TooMany {
        /// The primary.
        primary: Primary,
        /// How many.
        count: usize,
    },
}

/// The items that should exist because of a primary, by address; none for a primary that is absent.
pub fn derive(catalog: &Catalog, source: &TableRef, entity: Option<&Entity>) -> Result<BTreeMap<ItemAddress, Item>, Box<DeriveError>> {
    let mut items: BTreeMap<ItemAddress, Item> = BTreeMap::new();
    let Some(entity) = entity else { return Ok(items) };
    let primary = Primary { table: source.table.clone(), key: entity.key.clone() };
    for view in catalog.views_of(source) {
        if view.when.as_ref().is_some_and(|when| !when.holds(entity)) {
            continue;
        }
        let derived: Vec<(ItemAddress, Content)> = match &view.kind {
            ViewKind::SecondaryIndex(index) => super::secondary_index::derive(view, index, &primary, entity)?
                .map(|(address, entity)| (address, Content::Row(entity)))
                .into_iter()
                .collect(),
            ViewKind::Denormalize(denormalize) => super::denormalize::derive(view, denormalize, &primary, entity)?
                .map(|(address, values)| (address, Content::Properties(values)))
                .into_iter()
                .collect(),
            ViewKind::Aggregate(aggregate) => {
                super::aggregate::derive(view, aggregate, &primary, entity)?.map(|address| (address, Content::Member)).into_iter().collect()
            }
            ViewKind::IndexEntity(index) => {
                super::index_entity::derive(view, index, &primary, entity)?.map(|address| (address, Content::Member)).into_iter().collect()
            }
        };
        for (address, content) in derived {
            if *address.site.table() == source.table && address.account == source.account && *address.site.key() == primary.key {
                return Err(Box::new(DeriveError::OwnRow { view: view.name.clone(), primary }));
            }
            if let Some(other) = items.keys().find(|other| in_the_way(other, &address)) {
                return Err(Box::new(DeriveError::SameRow { first: other.view.clone(), second: view.name.clone(), address, primary }));
            }
            if let Content::Row(entity) = &content {
                let wrong = |source| Box::new(DeriveError::Item { view: view.name.clone(), primary: primary.clone(), source });
                entity.check().map_err(wrong)?;
            }
            items.insert(address, Item { content, generation: catalog.generations.of(&view.name), on_conflict: view.on_conflict });
        }
    }
    if items.len() > limits::ITEMS_PER_PRIMARY {
        return Err(Box::new(DeriveError::TooMany { primary, count: items.len() }));
    }
    Ok(items)
}

/// Whether two items cannot both lie where they would. Properties of two views get along on one entity.
fn in_the_way(one: &ItemAddress, other: &ItemAddress) -> bool {
    let both_set = one.part == Some(Part::Properties) && other.part == Some(Part::Properties);
    one.account == other.account && one.site == other.site && !both_set
}
