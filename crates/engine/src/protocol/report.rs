//! The plan of reconciling a primary now, in readable form.

use std::fmt;

use serde::Serialize;

use crate::execute::Failure;
use crate::protocol::observe::{Observation, PrimaryRead};
use crate::protocol::receive;
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::Wanted;
use crate::protocol::steps::{KeyConflict, Plan};
use evenkeel_model::{EntityKey, ItemAddress, ViewName, cause};

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
pub(crate) struct Ahead {
    /// The observation, with the claims of others applied to the primary.
    pub(crate) seen: Observation,
    /// Claims of others not applied to the primary yet.
    pub(crate) received: Vec<ItemAddress>,
    pub(crate) wanted: Wanted,
    pub(crate) plan: Plan,
}

/// Observes as a pass does, and looks at the keys that it would meet for the first time: one with another holder
/// shows before anything is written.
pub(crate) async fn observe_ahead(reconciler: &mut Reconciler<'_>) -> Result<Observation, Failure> {
    let first = reconciler.observe().await?;
    if !reconciler.scope().has_views() {
        return Ok(first);
    }
    let wanted = reconciler
        .scope()
        .derive(first.row().map(|row| &row.entity))?;
    let fresh = wanted
        .items
        .into_keys()
        .filter(|address| !first.footprint.items.contains_key(address));
    if reconciler.will_look_at(fresh) {
        reconciler.observe().await
    } else {
        Ok(first)
    }
}

/// The plan of a pass with this observation.
pub(crate) async fn look_ahead(
    reconciler: &Reconciler<'_>,
    mut seen: Observation,
) -> Result<Ahead, Failure> {
    let scope = reconciler.scope();
    let mut received = Vec::new();
    if let Some((entity, views)) = receive::awaited(scope, seen.row()).await? {
        received.extend(views.into_iter().map(|view| scope.on_itself(view)));
        if let PrimaryRead::Present(row) = &mut seen.primary {
            row.entity = entity;
        }
    }
    let wanted = scope.derive(seen.row().map(|row| &row.entity))?;
    let plan = reconciler.plan(&seen, &wanted)?;
    Ok(Ahead {
        seen,
        received,
        wanted,
        plan,
    })
}

/// The plan of this pass.
pub(crate) async fn report(mut reconciler: Reconciler<'_>) -> Result<PlanReport, Failure> {
    let seen = observe_ahead(&mut reconciler).await?;
    let Ahead {
        seen,
        received,
        wanted,
        plan,
    } = look_ahead(&reconciler, seen).await?;
    let by = |taken: &KeyConflict| match (&taken.owner, &taken.list) {
        (Some(owner), _) => owner.primary.whole(),
        (None, Some(view)) => format!("the list of view {view}"),
        (None, None) => format!(
            "a {} that evenkeel did not write",
            taken.address.site.kind()
        ),
    };
    let writes = |fresh: bool| -> Vec<ItemAddress> {
        plan.writes
            .iter()
            .filter(|write| write.over.is_none() == fresh)
            .map(|write| write.address.clone())
            .collect()
    };
    let idle = plan.writes.is_empty()
        && plan.drops.is_empty()
        && plan.forget.is_empty()
        && plan.taken.is_empty()
        && plan.announce.is_none();
    // An absent primary that never had a footprint needs none, and nothing can be done where an entity is missing.
    let nothing = !reconciler.scope().has_views()
        || ((seen.row().is_none() || !plan.waiting.is_empty()) && idle);
    Ok(PlanReport {
        table: reconciler.scope().primary.table.to_string(),
        key: reconciler.scope().primary.key.clone(),
        present: seen.row().is_some(),
        in_step: (plan.in_step || nothing) && received.is_empty() && wanted.underived.is_empty(),
        create: writes(true),
        update: writes(false).into_iter().chain(received).collect(),
        delete: plan
            .drops
            .iter()
            .map(|(address, _)| address.clone())
            .collect(),
        forget: plan.forget.clone(),
        waiting: plan.waiting.clone(),
        taken: plan
            .taken
            .iter()
            .map(|taken| TakenItem {
                address: taken.address.clone(),
                by: by(taken),
            })
            .collect(),
        underived: wanted
            .underived
            .iter()
            .map(|(view, error)| UnderivedView {
                view: view.clone(),
                error: cause::chain(error.as_ref()),
            })
            .collect(),
    })
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let presence = if self.present { "present" } else { "absent" };
        writeln!(f, "{}{} is {presence}", self.table, self.key)?;
        for item in &self.waiting {
            let missing = if item.site.row().is_some() {
                "entity"
            } else {
                item.site.kind()
            };
            writeln!(f, "waiting {item}: the {missing} does not exist")?;
        }
        if self.in_step {
            return writeln!(f, "in step: nothing to do");
        }
        let lists = [
            ("create", &self.create),
            ("update", &self.update),
            ("delete", &self.delete),
            ("forget", &self.forget),
        ];
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
