use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;

use super::layout::{self, NavEntry, PageContext};
use crate::api::{Api, EntityReport, entity_report};
use crate::guard::Visitor;
use crate::numbers;
use evenkeel_engine::PlanReport;

/// Maximum number of items shown. A footprint may have a thousand items.
const ITEMS: usize = 200;
/// Maximum number of tables to choose from.
const TABLES: usize = 100;
/// Maximum number of characters shown of a value.
const VALUE: usize = 400;

#[derive(Debug, Default, Deserialize)]
pub(super) struct EntityQuery {
    #[serde(default)]
    table: String,
    #[serde(default)]
    pk: String,
    #[serde(default)]
    rk: String,
    #[serde(default)]
    queued: String,
}

#[derive(Template)]
#[template(path = "entity.html")]
struct EntityPage {
    tables: Vec<String>,
    which: EntityQuery,
    report: Option<EntityReport>,
    visitor: Visitor,
}

pub(super) async fn page(
    State(api): State<Api>,
    Query(which): Query<EntityQuery>,
    Extension(context): Extension<PageContext>,
) -> Response {
    let report = if which.table.is_empty() {
        None
    } else {
        match entity_report(&api, &which.table, &which.pk, &which.rk, context.visitor).await {
            Err(problem) => return layout::problem(NavEntry::Entity, &problem, &context),
            Ok(report) => Some(report),
        }
    };
    let tables = api
        .ops_state
        .catalog()
        .tables
        .keys()
        .take(TABLES)
        .map(ToString::to_string)
        .collect();
    layout::page(
        "Entity",
        Some(NavEntry::Entity),
        &EntityPage {
            tables,
            which,
            report,
            visitor: context.visitor,
        },
        &context,
    )
}

/// Formats the value of a property and shortens it.
fn shown(value: &Value) -> String {
    let value = value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned);
    match value.char_indices().nth(VALUE) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    }
}

/// Whether a sync would change nothing.
fn idle(plan: &PlanReport) -> bool {
    let addresses = [&plan.create, &plan.update, &plan.delete, &plan.forget];
    addresses.iter().all(|addresses| addresses.is_empty())
        && plan.taken.is_empty()
        && plan.underived.is_empty()
}
