//! A readable report of what a pass over a primary would do now.

use std::fmt;

use serde::Serialize;

use crate::execute::Failure;
use crate::protocol::observe::{Observation, PrimaryRead};
use crate::protocol::overlays;
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::Desired;
use crate::protocol::steps::{KeyConflict, Plan};
use evenkeel_model::{EntityKey, ItemAddress, ViewName, cause};

#[derive(Debug, Clone, Serialize)]
pub struct PlanReport {
    pub table: String,
    #[serde(flatten)]
    pub key: EntityKey,
    pub present: bool,
    pub in_step: bool,
    pub create: Vec<ItemAddress>,
    pub update: Vec<ItemAddress>,
    pub delete: Vec<ItemAddress>,
    pub forget: Vec<ItemAddress>,
    pub taken: Vec<TakenItem>,
    /// Items that a pass wants but cannot write now. Properties wait for an entity that does not exist; a sync sets
    /// them once it exists. A missing blob to which the primary points waits for a `put` of its value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<ItemAddress>,
    /// Views that cannot derive their items from the primary. Their items stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub underived: Vec<UnderivedView>,
}

#[derive(Debug, Clone, Serialize)]
pub struct UnderivedView {
    pub view: ViewName,
    pub error: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct TakenItem {
    #[serde(flatten)]
    pub address: ItemAddress,
    pub by: String,
}

pub(crate) struct Ahead {
    /// The observation, with the range overlays applied to the primary.
    pub(crate) seen: Observation,
    pub(crate) overlaid: Vec<ItemAddress>,
    pub(crate) desired: Desired,
    pub(crate) plan: Plan,
}

/// Observes as a pass does, and also looks at wanted items that the footprint does not list yet. The plan then shows
/// keys with other holders before anything is written.
pub(crate) async fn observe_ahead(reconciler: &mut Reconciler<'_>) -> Result<Observation, Failure> {
    let first = reconciler.observe().await?;
    if !reconciler.scope().has_views() {
        return Ok(first);
    }
    let desired = reconciler
        .scope()
        .derive(first.row().map(|row| &row.entity))?;
    let fresh = desired
        .items
        .into_keys()
        .filter(|address| !first.footprint.items.contains_key(address));
    if reconciler.will_look_at(fresh) {
        reconciler.observe().await
    } else {
        Ok(first)
    }
}

pub(crate) async fn look_ahead(
    reconciler: &Reconciler<'_>,
    mut seen: Observation,
) -> Result<Ahead, Failure> {
    let scope = reconciler.scope();
    let mut overlaid = Vec::new();
    if let Some((entity, views)) = overlays::with_overlays(scope, seen.row()).await? {
        overlaid.extend(views.into_iter().map(|view| scope.own_properties(view)));
        if let PrimaryRead::Present(row) = &mut seen.primary {
            row.entity = entity;
        }
    }
    let desired = scope.derive(seen.row().map(|row| &row.entity))?;
    let plan = reconciler.plan(&seen, &desired)?;
    Ok(Ahead {
        seen,
        overlaid,
        desired,
        plan,
    })
}

pub(crate) async fn report(mut reconciler: Reconciler<'_>) -> Result<PlanReport, Failure> {
    let seen = observe_ahead(&mut reconciler).await?;
    let Ahead {
        seen,
        overlaid,
        desired,
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
    // An absent primary needs no footprint, and properties that wait for a missing entity leave nothing to do.
    let nothing = !reconciler.scope().has_views()
        || ((seen.row().is_none() || !plan.waiting.is_empty()) && idle);
    Ok(PlanReport {
        table: reconciler.scope().primary.table.to_string(),
        key: reconciler.scope().primary.key.clone(),
        present: seen.row().is_some(),
        in_step: (plan.in_step || nothing) && overlaid.is_empty() && desired.underived.is_empty(),
        create: writes(true),
        update: writes(false).into_iter().chain(overlaid).collect(),
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
        underived: desired
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
