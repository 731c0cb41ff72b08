//! Range overlays on a primary. An entity can *claim* to set properties on all entities of a key range. A pass over an
//! entity of the range applies these claims before it derives items.
//!
//! ```text
//!   read the primary ──▶ read the claims on it ──▶ write the primary at its ETag, if a claim changes it
//! ```
//!
//! The claims are read after the primary. A claim that was written before is therefore read here. The propagation of a claim
//! that is written later visits every entity that exists by then. So no entity is missed between its own pass and the
//! propagation.
//!
//! A worker that was suspended may write a claim that its entity has dropped meanwhile. The footprint of that entity no
//! longer lists the claim. So before a claim is applied, that footprint is read.

use std::collections::BTreeSet;

use crate::env::Env;
use crate::execute::{Action, Failure, FailureClass, ItemChange};
use crate::failure::{permanent, storage};
use crate::items::shared::{SharedEntity, operation};
use crate::protocol::footprint::propagations::claim_of;
use crate::protocol::observe::{Observation, PrimaryRead};
use crate::protocol::scope::Scope;
use evenkeel_model::catalog::{TableRef, View};
use evenkeel_model::claim::{self, Claim};
use evenkeel_model::item::VIEW_PROPERTY;
use evenkeel_model::job::Primary;
use evenkeel_model::shared::{self, DocumentUpdate, OverlaidEntity};
use evenkeel_model::{AccountName, ETag, Entity, EntityKey, Key, Row, Site, TableName, ViewName};

pub(crate) async fn claims_on(
    env: &Env,
    view: &ViewName,
    account: &AccountName,
    table: &TableName,
    pk: &Key,
) -> Result<Vec<Claim>, Failure> {
    let key = claim::place(view, table, pk);
    let site = Site::Row {
        table: claim::table(),
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
    let claims = shared::claims(&site, &members).map_err(|nonsense| permanent(step(), nonsense))?;
    let here = |claim: &Claim| {
        claim.reach.table == *table && claim.reach.account == *account && claim.reach.pk == *pk
    };
    Ok(claims
        .into_iter()
        .filter(here)
        .filter_map(|claim| within_its_view(env, view, claim))
        .collect())
}

/// Removes claims that the footprint of their entity does not list. If a footprint is unreadable, the claims of its
/// entity are kept. A pass over that entity reports the reason.
pub(crate) async fn listed(
    env: &Env,
    view: &View,
    mut claims: Vec<Claim>,
) -> Result<Vec<Claim>, Failure> {
    let ones: BTreeSet<EntityKey> = claims.iter().map(|claim| claim.one.clone()).collect();
    for one in ones {
        let primary = Primary {
            table: view.source.table.clone(),
            key: one.clone(),
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
            .filter_map(claim_of);
        let own: Vec<Claim> = own
            .filter_map(|claim| within_its_view(env, &view.name, claim))
            .collect();
        claims.retain(|claim| claim.one != one || own.contains(claim));
    }
    Ok(claims)
}

/// Reduces a claim to the properties that its view sets, because the claim may be forged or come from a former
/// definition of the view. `None` if nothing remains.
fn within_its_view(env: &Env, view: &ViewName, mut claim: Claim) -> Option<Claim> {
    let (_, set) = env.catalog.views.get(view)?.set_properties()?;
    let set: BTreeSet<&String> = set.keys().collect();
    claim.values.retain(|name, _| set.contains(name));
    (!claim.values.is_empty()).then_some(claim)
}

pub(crate) fn received(
    env: &Env,
    view: &View,
    table: &TableRef,
    entity: &Entity,
    claims: &[Claim],
) -> Result<OverlaidEntity, Failure> {
    let site = Site::Row {
        table: table.table.clone(),
        key: entity.key.clone(),
    };
    let token = ETag::token(env.rng.next_u64());
    let received = shared::receive(&site, entity, &view.name, &view.source, claims, &token);
    received.map_err(|nonsense| {
        permanent(
            format!(
                "setting properties of view {} on {table}{}",
                view.name, entity.key
            ),
            nonsense,
        )
    })
}

/// The primary with all claims applied, and the views whose claims change it. `None` if no claim changes it.
pub(crate) async fn with_overlays(
    scope: &Scope<'_>,
    row: Option<&Row>,
) -> Result<Option<(Entity, Vec<ViewName>)>, Failure> {
    // A derived row is written only by passes over the primary that owns it.
    let Some(row) = row.filter(|row| scope.receives() && row.entity.get(VIEW_PROPERTY).is_none())
    else {
        return Ok(None);
    };
    let (mut entity, mut differ) = (row.entity.clone(), Vec::new());
    for view in scope.env.catalog.ranges_over(scope.source) {
        let claims = claims_on(
            scope.env,
            &view.name,
            &scope.source.account,
            &scope.source.table,
            &entity.key.pk,
        )
        .await?;
        let mut becomes = received(scope.env, view, scope.source, &entity, &claims)?;
        if becomes.differs {
            let about = |claim: &Claim| claim.is_about(&entity.key, scope.source);
            let claims =
                listed(scope.env, view, claims.into_iter().filter(about).collect()).await?;
            becomes = received(scope.env, view, scope.source, &entity, &claims)?;
        }
        if becomes.differs {
            entity = becomes.entity;
            differ.push(view.name.clone());
        }
    }
    Ok((!differ.is_empty()).then_some((entity, differ)))
}

/// Applies the claims to the primary, in the store and in the observation. Returns the changes, or `None` if a race was
/// lost.
pub(crate) async fn receive(
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
