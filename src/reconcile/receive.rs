//! Receiving the claims of others on a primary: a pass applies them before it derives.
//!
//! ```text
//!   read the primary ──▶ read the claims on it ──▶ write it at the ETag read, where it says something else
//! ```
//!
//! The claims are read after the primary: a claim that changes later is carried to every entity that is there by then, and one
//! that was there before is seen here. So no entity is missed between its own pass and the carry.

use std::collections::BTreeSet;

use super::engine::Engine;
use super::execute::{Action, Failure, ItemChange};
use super::failure::{permanent, storage};
use super::observation::Observation;
use super::pass::Pass;
use super::shared::{Document, operation};
use crate::catalog::{TableRef, View};
use crate::model::claim::{self, Claim};
use crate::model::item::VIEW_PROPERTY;
use crate::model::{AccountName, ETag, Entity, ItemAddress, Key, Part, Row, Site, TableName, ViewName};
use crate::shared::{self, Becomes, Received};

/// Whether a pass reads the claims of others on its primary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// It reads their claims.
    Ask,
    /// The primary has it already.
    Known,
}

impl Engine {
    /// The claims of a view on a partition.
    pub(super) async fn claims_on(
        &self,
        view: &ViewName,
        account: &AccountName,
        table: &TableName,
        pk: &Key,
    ) -> Result<Vec<Claim>, Failure> {
        let key = claim::place(view, table, pk);
        let site = Site::Row { table: claim::table(), key };
        let step = || format!("reading the claims on {table}({:?}) of view {view}", pk.as_str());
        let target = self.stores.account(account).map_err(|error| permanent(step(), error))?;
        let document =
            Document { account: account.clone(), site: site.clone(), target, catalog: &self.catalog, chance: self.chance.as_ref() };
        let members = document.members(view).await?;
        let claims = shared::claims(&site, &members).map_err(|nonsense| permanent(step(), nonsense))?;
        let here = |claim: &Claim| claim.reach.table == *table && claim.reach.account == *account && claim.reach.pk == *pk;
        Ok(claims.into_iter().filter(here).filter_map(|claim| self.within_its_view(view, claim)).collect())
    }

    /// A claim, as far as it is about properties that its view sets: it may be a former definition's, or forged. `None` where it is
    /// about none.
    fn within_its_view(&self, view: &ViewName, mut claim: Claim) -> Option<Claim> {
        let (_, set) = self.catalog.views.get(view)?.sets()?;
        let set: BTreeSet<&String> = set.keys().collect();
        claim.values.retain(|name, _| set.contains(name));
        (!claim.values.is_empty()).then_some(claim)
    }

    /// The properties of a view that an entity of this table should have by these claims.
    pub(super) fn received(&self, view: &View, table: &TableRef, entity: &Entity, claims: &[Claim]) -> Result<Received, Failure> {
        let site = Site::Row { table: table.table.clone(), key: entity.key.clone() };
        let token = ETag::token(self.chance.next_u64());
        let received = shared::receive(&site, entity, &view.name, &view.source, claims, &token);
        received.map_err(|nonsense| permanent(format!("setting what view {} keeps on {table}{}", view.name, entity.key), nonsense))
    }
}

impl Pass<'_> {
    /// Whether views keep properties on ranges of this primary's table.
    pub(super) fn receives(&self) -> bool {
        self.said == Said::Ask && self.engine.catalog.ranges_over(self.source).next().is_some()
    }

    /// The properties that a view keeps on the primary itself, as an item.
    pub(super) fn on_itself(&self, view: ViewName) -> ItemAddress {
        let site = Site::Row { table: self.source.table.clone(), key: self.primary.key.clone() };
        ItemAddress { view, account: self.source.account.clone(), site, part: Some(Part::Properties) }
    }

    /// The primary with the claims applied, and the views that change it; `None` where it is up to date.
    pub(super) async fn awaits(&self, row: Option<&Row>) -> Result<Option<(Entity, Vec<ViewName>)>, Failure> {
        // Rows derived from others are written by their owners alone.
        let Some(row) = row.filter(|row| self.receives() && row.entity.get(VIEW_PROPERTY).is_none()) else { return Ok(None) };
        let (mut entity, mut differ) = (row.entity.clone(), Vec::new());
        for view in self.engine.catalog.ranges_over(self.source) {
            let claims = self.engine.claims_on(&view.name, &self.source.account, &self.source.table, &entity.key.pk).await?;
            let received = self.engine.received(view, self.source, &entity, &claims)?;
            if received.differs {
                entity = received.entity;
                differ.push(view.name.clone());
            }
        }
        Ok((!differ.is_empty()).then_some((entity, differ)))
    }

    /// Writes the primary with the claims applied, and goes on from there. `false` where a race was lost.
    pub(super) async fn receive(&mut self, seen: &mut Observation) -> Result<bool, Failure> {
        let Some((entity, views)) = self.awaits(seen.row.as_ref()).await? else { return Ok(true) };
        let step = || format!("setting what others say on {}", self.primary);
        entity.check().map_err(|error| permanent(step(), error))?;
        let Some(write) = operation(Becomes::Entity(entity.clone()), seen.row.as_ref(), &self.primary.key) else { return Ok(true) };
        match self.tables()?.apply(&self.source.table, &write).await {
            Ok(Some(etag)) => {
                seen.row = Some(Row { entity, etag, timestamp: None });
                self.summary.changes.extend(views.into_iter().map(|view| ItemChange { view, action: Action::Update }));
                Ok(true)
            }
            Ok(None) => Ok(false),
            Err(error) if error.may_have_lost() => Ok(false),
            Err(error) => Err(storage(step(), error)),
        }
    }
}
