//! The system page: tasks, log level and configuration.

use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;

use super::layout::{self, NavEntry, PageContext};
use crate::api::{Api, Status, names, status_of};
use crate::guard::Visitor;
use crate::numbers::{Counted as _, Measure as _};

#[derive(Debug, Default, Deserialize)]
pub(super) struct SystemQuery {
    #[serde(default)]
    log: String,
}

#[derive(Template)]
#[template(path = "system.html")]
struct SystemPage {
    level_changed: bool,
    status: Status,
    level: String,
    /// The key, value and origin of each setting.
    values: Vec<[String; 3]>,
    visitor: Visitor,
}

pub(super) async fn page(
    State(api): State<Api>,
    Query(before): Query<SystemQuery>,
    Extension(context): Extension<PageContext>,
) -> Response {
    let text = |value: &Value| {
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned)
    };
    let config = api.config();
    let values = config["values"].as_array().into_iter().flatten();
    let body = SystemPage {
        level_changed: !before.log.is_empty(),
        status: status_of(&api.ops_state, names(context.visitor)),
        level: api.log.filter(),
        values: values
            .map(|entry| ["key", "value", "origin"].map(|part| text(&entry[part])))
            .collect(),
        visitor: context.visitor,
    };
    layout::page("System", Some(NavEntry::System), &body, &context)
}
