//! Confirms items that a plan leaves as they are. Properties on other entities are read, because another writer of such
//! an entity may have removed them. Properties that waited for their entity to exist are read, too.

use std::collections::BTreeMap;

use crate::execute::Failure;
use crate::items::LookContext;
use crate::items::look;
use crate::protocol::actual::differs;
use crate::protocol::observed_item::ObservedItem;
use evenkeel_model::ItemAddress;
use evenkeel_model::patterns::Item;

/// Items that a plan leaves as they are without having read them.
#[derive(Clone, Copy)]
pub(crate) struct Stays<'p> {
    pub(crate) items: &'p [ItemAddress],
    pub(crate) desired: &'p BTreeMap<ItemAddress, Item>,
}

/// Returns the items that differ from the footprint. The next round reads these items before it reads the primary, then
/// writes them.
pub(super) async fn differing(
    from: LookContext<'_, '_>,
    Stays { items, desired }: Stays<'_>,
) -> Result<Vec<ItemAddress>, Failure> {
    if items.is_empty() {
        return Ok(Vec::new());
    }
    let looked = look(from, items.iter().collect()).await;
    let looked = looked
        .map_err(|failure| failure.of_views(items.iter().map(|address| address.view.clone())))?;
    let values: BTreeMap<ItemAddress, _> = looked.property_values.into_iter().collect();
    let other = looked.observed.into_iter().filter(|(address, look)| {
        let (entry, item) = (from.footprint.items.get(address), desired.get(address));
        let overwritten = values
            .get(address)
            .zip(item)
            .is_some_and(|(values, item)| item.content.is_overwritten_by(values));
        overwritten
            || differs(entry, look, item)
            || (entry.is_none() && *look != ObservedItem::NoParent)
    });
    Ok(other.map(|(address, _)| address).collect())
}
