//! Confirmation: properties on entities of others that are to stay as the footprint lists them are looked at, since another writer of such
//! an entity may have taken them away, as are those that waited for their entity.

use std::collections::{BTreeMap, BTreeSet};

use super::execute::Failure;
use super::items::{self, LookContext};
use super::known::differs;
use super::look::Look;
use super::observation::Observation;
use super::scope::{Scope, Wanted};
use super::steps::Plan;
use evenkeel_model::ItemAddress;

/// Whether all items that a plan leaves as they are without a look are so. Others are added to `touched`: the next round looks at them
/// before it reads the primary, and writes them.
pub(super) async fn confirmed(
    scope: &Scope<'_>,
    touched: &mut BTreeSet<ItemAddress>,
    seen: &Observation,
    plan: &Plan,
    wanted: &Wanted,
) -> Result<bool, Failure> {
    if plan.unseen.is_empty() {
        return Ok(true);
    }
    let from = LookContext {
        scope,
        footprint: &seen.footprint,
        touched,
    };
    let looked = items::look(from, plan.unseen.iter().collect()).await;
    let looked = looked.map_err(|failure| {
        failure.of_views(plan.unseen.iter().map(|address| address.view.clone()))
    })?;
    let said: BTreeMap<ItemAddress, _> = looked.said.into_iter().collect();
    let other = looked.looks.into_iter().filter(|(address, look)| {
        let (entry, item) = (seen.footprint.items.get(address), wanted.items.get(address));
        let overwritten = said
            .get(address)
            .zip(item)
            .is_some_and(|(said, item)| item.content.is_overwritten_by(said));
        overwritten || differs(entry, look, item) || (entry.is_none() && *look != Look::Homeless)
    });
    let other: Vec<ItemAddress> = other.map(|(address, _)| address).collect();
    let stays = other.is_empty();
    touched.extend(other);
    Ok(stays)
}
