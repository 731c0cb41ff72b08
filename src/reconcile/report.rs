//! The plan of reconciling a primary now, in readable form.

use std::fmt;

use serde::Serialize;

use super::execute::Failure;
use super::observation::Observation;
use super::pass::Pass;
use super::plan::{Plan, State, Taken};
use super::taken;
use crate::model::{EntityKey, ItemAddress, Row, ViewName, cause};

/// The plan of reconciling a primary now.
#[derive(Debug, Clone, Serialize)]
pub struct PlanReport {
    /// The primary's table.
    pub table: String,
    /// The primary's key.
    #[serde(flatten)]
    pub key: EntityKey,
    /// Whether the primary exists.
    pub present: bool,
    /// Whether everything is as it should be.
    pub in_step: bool,
    /// Items to insert.
    pub create: Vec<ItemAddress>,
    /// Items to replace.
    pub update: Vec<ItemAddress>,
    /// Items to delete.
    pub delete: Vec<ItemAddress>,
    /// Items that are gone already, or another owner's, and leave the footprint.
    pub forget: Vec<ItemAddress>,
    /// Wanted keys with another holder, and that holder.
    pub taken: Vec<TakenItem>,
    /// Wanted properties of entities that do not exist: they are set by a sync once those are there. And blobs that the primary
    /// points to and that are gone: they come back with a `put` of the value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<ItemAddress>,
    /// Views that cannot derive their items from the primary, with the reason: their items stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub underived: Vec<UnderivedView>,
}

/// A view that cannot derive its items from a primary.
#[derive(Debug, Clone, Serialize)]
pub struct UnderivedView {
    /// The view.
    pub view: ViewName,
    /// Why.
    pub error: String,
}

/// A wanted key with another holder.
#[derive(Debug, Clone, Serialize)]
pub struct TakenItem {
    /// The key.
    #[serde(flatten)]
    pub address: ItemAddress,
    /// The holder.
    pub by: String,
}

/// The observation and plan of a pass, before it runs.
pub(super) struct Ahead {
    /// The observation, with the claims of others applied to the primary.
    pub(super) seen: Observation,
    /// Claims of others not applied to the primary yet.
    pub(super) received: Vec<ItemAddress>,
    pub(super) plan: Plan,
}

impl Pass<'_> {
    /// Observes as a pass does, and looks at the keys that it would meet for the first time: one with another holder
    /// shows before anything is written.
    pub(super) async fn observe_ahead(&mut self) -> Result<Observation, Failure> {
        let first = self.observe().await?;
        if !self.has_views() {
            return Ok(first);
        }
        let wanted = self.derive(first.row.as_ref().map(|row| &row.entity))?;
        self.touched.extend(wanted.into_keys().filter(|address| !first.footprint.items.contains_key(address)));
        if self.touched.is_empty() {
            return Ok(first);
        }
        self.observe().await
    }

    /// The plan of a pass with this observation.
    pub(super) async fn look_ahead(&mut self, mut seen: Observation) -> Result<Ahead, Failure> {
        let mut received = Vec::new();
        if let Some((entity, views)) = self.awaits(seen.row.as_ref()).await? {
            received.extend(views.into_iter().map(|view| self.on_itself(view)));
            seen.row = seen.row.map(|row| Row { entity, ..row });
        }
        let state = seen.row.as_ref().map_or(State::Absent, |row| State::Present(Some(row.etag.clone())));
        let wanted = self.derive(seen.row.as_ref().map(|row| &row.entity))?;
        let plan = self.plan(&self.situation(&seen, &wanted, state))?;
        Ok(Ahead { seen, received, plan })
    }

    /// The plan of this pass.
    pub(super) async fn report(mut self) -> Result<PlanReport, Failure> {
        let seen = self.observe_ahead().await?;
        let Ahead { seen, received, plan } = self.look_ahead(seen).await?;
        let by = |taken: &Taken| match &taken.owner {
            Some(owner) => owner.primary.to_string(),
            None => format!("{} that evenkeel did not write", taken::kind(&taken.address)),
        };
        let writes = |fresh: bool| -> Vec<ItemAddress> {
            plan.writes.iter().filter(|write| write.over.is_none() == fresh).map(|write| write.address.clone()).collect()
        };
        let idle =
            plan.writes.is_empty() && plan.drops.is_empty() && plan.forget.is_empty() && plan.taken.is_empty() && plan.announce.is_none();
        // An absent primary that never had a footprint needs none, and nothing can be done where an entity is missing.
        let nothing = !self.has_views() || ((seen.row.is_none() || !plan.waiting.is_empty()) && idle);
        Ok(PlanReport {
            table: self.primary.table.to_string(),
            key: self.primary.key.clone(),
            present: seen.row.is_some(),
            in_step: (plan.settled || nothing) && received.is_empty() && self.underived.is_empty(),
            create: writes(true),
            update: writes(false).into_iter().chain(received).collect(),
            delete: plan.drops.iter().map(|(address, _)| address.clone()).collect(),
            forget: plan.forget.clone(),
            waiting: plan.waiting.clone(),
            taken: plan.taken.iter().map(|taken| TakenItem { address: taken.address.clone(), by: by(taken) }).collect(),
            underived: self
                .underived
                .iter()
                .map(|(view, error)| UnderivedView { view: view.clone(), error: cause::chain(error.as_ref()) })
                .collect(),
        })
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let presence = if self.present { "present" } else { "absent" };
        writeln!(f, "{}{} is {presence}", self.table, self.key)?;
        for item in &self.waiting {
            let missing = if item.site.row().is_some() { "entity" } else { item.site.kind() };
            writeln!(f, "waiting {item}: the {missing} does not exist")?;
        }
        if self.in_step {
            return writeln!(f, "in step: nothing to do");
        }
        let lists = [("create", &self.create), ("update", &self.update), ("delete", &self.delete), ("forget", &self.forget)];
        for (verb, items) in lists {
            for item in items {
                writeln!(f, "{verb}  {item}")?;
            }
        }
        for taken in &self.taken {
            writeln!(f, "taken   {} by {}", taken.address, taken.by)?;
        }
        for underived in &self.underived {
            writeln!(f, "failed  {}", underived.error)?;
        }
        writeln!(f, "then close the footprint")
    }
}
