//! Applies range overlays to a primary. A range overlay sets properties on all entities of a key range, in the name of
//! one entity, its owner. A pass over an entity of the range applies the overlays before it derives items.
//!
//! ```text
//!   read the primary ──▶ read the overlays on it ──▶ if an overlay changes the primary, write the primary at its ETag
//! ```
//!
//! The overlays are read after the primary, so that no entity is missed. If an overlay was written before this read,
//! the pass applies it. If it is written later, its `propagate` job visits the entity, because the entity exists by
//! then.
//!
//! A worker that was suspended may write an overlay that its owner has dropped meanwhile. The owner's footprint then
//! does not list the overlay. So before an overlay changes an entity, the owner's footprint is read.

use std::collections::BTreeSet;

use crate::env::Env;
use crate::execute::{Action, Failure, FailureClass, ItemChange};
use crate::failure::{permanent, storage};
use crate::items::shared::{SharedEntity, operation};
use crate::protocol::footprint::propagations::overlay_of;
use crate::protocol::observe::{Observation, PrimaryRead};
use crate::protocol::scope::Scope;
use evenkeel_model::catalog::{TableRef, View};
use evenkeel_model::item::VIEW_PROPERTY;
use evenkeel_model::job::Primary;
use evenkeel_model::range_overlay::{self, RangeOverlay};
use evenkeel_model::shared::{self, DocumentUpdate, OverlaidEntity};
use evenkeel_model::{AccountName, ETag, Entity, EntityKey, Key, Row, Site, TableName, ViewName};

/// The stored range overlays of a view on a partition, including those that their owners' footprints do not list.
pub(crate) async fn overlays_on(
    env: &Env,
    view: &ViewName,
    account: &AccountName,
    table: &TableName,
    pk: &Key,
) -> Result<Vec<RangeOverlay>, Failure> {
    let key = range_overlay::entity_key(view, table, pk);
    let site = Site::Row {
        table: range_overlay::table(),
        key,
    };
    let step = || {
        format!(
            "reading the range overlays of view {view} on {table}({:?})",
            pk.as_str()
        )
    };
    let target = env
        .stores
        .account(account)
        .map_err(|error| permanent(step(), error))?;
    let (catalog, memory) = (&env.catalog, &env.memory);
    let document = SharedEntity {
        account: account.clone(),
        site: site.clone(),
        target,
        catalog,
        memory,
    };
    let members = document.members(view).await?;
    let overlays = shared::parse_range_overlays(&site, &members)
        .map_err(|unreadable| permanent(step(), unreadable))?;
    let is_on_partition = |overlay: &RangeOverlay| {
        overlay.range.table == *table
            && overlay.range.account == *account
            && overlay.range.pk == *pk
    };
    Ok(overlays
        .into_iter()
        .filter(is_on_partition)
        .filter_map(|overlay| restrict_to_view(env, view, overlay))
        .collect())
}

/// Keeps the range overlays that the footprint of their owner lists. If a footprint is unreadable, the overlays of its
/// owner are kept. A pass over the owner reports the reason.
pub(crate) async fn listed(
    env: &Env,
    view: &View,
    mut overlays: Vec<RangeOverlay>,
) -> Result<Vec<RangeOverlay>, Failure> {
    let owners: BTreeSet<EntityKey> = overlays
        .iter()
        .map(|overlay| overlay.owner.clone())
        .collect();
    for owner in owners {
        let primary = Primary {
            table: view.source.table.clone(),
            key: owner.clone(),
        };
        let footprint = match Scope::new(env, &view.source, primary, None)
            .read_footprint()
            .await
        {
            Ok(read) => read.map(|(footprint, _)| footprint).unwrap_or_default(),
            Err(failure) if failure.class == FailureClass::Permanent => continue,
            Err(failure) => return Err(failure),
        };
        let own = footprint
            .items
            .keys()
            .filter(|item| item.view == view.name)
            .filter_map(overlay_of);
        let own: Vec<RangeOverlay> = own
            .filter_map(|overlay| restrict_to_view(env, &view.name, overlay))
            .collect();
        overlays.retain(|overlay| overlay.owner != owner || own.contains(overlay));
    }
    Ok(overlays)
}

/// Reduces a range overlay to the properties that its view sets, because the overlay may be forged or come from a
/// former definition of the view. `None` if no property remains.
fn restrict_to_view(env: &Env, view: &ViewName, mut overlay: RangeOverlay) -> Option<RangeOverlay> {
    let (_, set) = env.catalog.views.get(view)?.set_properties()?;
    let set: BTreeSet<&String> = set.keys().collect();
    overlay.values.retain(|name, _| set.contains(name));
    (!overlay.values.is_empty()).then_some(overlay)
}

/// The entity with the range overlays of a view applied.
pub(crate) fn overlaid(
    env: &Env,
    view: &View,
    table: &TableRef,
    entity: &Entity,
    overlays: &[RangeOverlay],
) -> Result<OverlaidEntity, Failure> {
    let site = Site::Row {
        table: table.table.clone(),
        key: entity.key.clone(),
    };
    let token = ETag::token(env.rng.next_u64());
    shared::apply_range_overlays(&site, entity, &view.name, &view.source, overlays, &token).map_err(
        |unreadable| {
            permanent(
                format!(
                    "setting properties of view {} on {table}{}",
                    view.name, entity.key
                ),
                unreadable,
            )
        },
    )
}

/// The primary with all range overlays applied, and the views whose overlays change it. `None` if no overlay changes
/// it.
pub(crate) async fn with_overlays(
    scope: &Scope<'_>,
    row: Option<&Row>,
) -> Result<Option<(Entity, Vec<ViewName>)>, Failure> {
    // A derived row is written only by passes over the primary that owns it.
    let Some(row) =
        row.filter(|row| scope.reads_overlays() && row.entity.get(VIEW_PROPERTY).is_none())
    else {
        return Ok(None);
    };
    let (mut entity, mut differ) = (row.entity.clone(), Vec::new());
    for view in scope.env.catalog.ranges_over(scope.source) {
        let overlays = overlays_on(
            scope.env,
            &view.name,
            &scope.source.account,
            &scope.source.table,
            &entity.key.pk,
        )
        .await?;
        let mut becomes = overlaid(scope.env, view, scope.source, &entity, &overlays)?;
        if becomes.differs {
            let applies = |overlay: &RangeOverlay| overlay.applies_to(&entity.key, scope.source);
            let overlays = listed(
                scope.env,
                view,
                overlays.into_iter().filter(applies).collect(),
            )
            .await?;
            becomes = overlaid(scope.env, view, scope.source, &entity, &overlays)?;
        }
        if becomes.differs {
            entity = becomes.entity;
            differ.push(view.name.clone());
        }
    }
    Ok((!differ.is_empty()).then_some((entity, differ)))
}

/// Applies the range overlays to the primary, in the store and in the observation. Returns the changes, or `None` if a
/// race was lost.
pub(crate) async fn apply_overlays(
    scope: &Scope<'_>,
    seen: &mut Observation,
) -> Result<Option<Vec<ItemChange>>, Failure> {
    let Some((entity, views)) = with_overlays(scope, seen.row()).await? else {
        return Ok(Some(Vec::new()));
    };
    let step = || format!("applying range overlays to {}", scope.primary);
    entity.check().map_err(|error| permanent(step(), error))?;
    let write = operation(
        DocumentUpdate::Entity(entity.clone()),
        seen.row(),
        &scope.primary.key,
    );
    let Some(write) = write else {
        return Ok(Some(Vec::new()));
    };
    match scope.tables()?.apply(&scope.source.table, &write).await {
        Ok(Some(etag)) => {
            seen.primary = PrimaryRead::Present(Row {
                entity,
                etag,
                timestamp: None,
            });
            Ok(Some(
                views
                    .into_iter()
                    .map(|view| ItemChange {
                        view,
                        account: scope.source.account.clone(),
                        action: Action::Update,
                    })
                    .collect(),
            ))
        }
        Ok(None) => Ok(None),
        Err(error) if error.may_have_lost() => Ok(None),
        Err(error) => Err(storage(step(), error)),
    }
}
