//! The daemon itself: its tasks, its log level, the configuration in force.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;

use super::html::Text;
use super::layout::{Page, cell, table};
use super::words;
use crate::ops::api::{Api, Status, status_of};
use crate::ops::guard::Visitor;

/// The earlier action.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Before {
    #[serde(default)]
    log: String,
}

pub(super) async fn page(State(api): State<Api>, Query(before): Query<Before>, Extension(visitor): Extension<Visitor>) -> Response {
    let status = status_of(&api.board);
    let said = if before.log.is_empty() {
        ""
    } else {
        "<p class=\"note good\" role=\"status\">The log level is changed until the program ends, or its configuration is read again.</p>"
    };
    let body = format!("<h1>System</h1>{said}{}{}{}{}", facts(&status), log(&api, visitor), tasks(&status), configuration(&api.config()));
    Page { title: "System".to_owned(), place: "/system", body }.answer(visitor)
}

fn facts(status: &Status) -> String {
    format!(
        "<dl class=\"facts card\"><div><dt>Version</dt><dd>{}</dd></div><div><dt>Running for</dt><dd>{}</dd></div><div><dt>Queues</dt><dd>{}</dd></div><div><dt>Views</dt><dd>{}</dd></div></dl>",
        status.version,
        words::lasting(std::time::Duration::from_secs(status.running_seconds)),
        status.queues.len(),
        words::grouped(status.view_count as u64)
    )
}

fn log(api: &Api, visitor: Visitor) -> String {
    let level = api.log.filter();
    let change = if visitor.signed_in {
        format!(
            "<form class=\"search\" method=\"post\" action=\"/system/log\"><label>Level, or a filter by module <input name=\"level\" value=\"{}\" list=\"levels\" autocomplete=\"off\" required></label>\
             <datalist id=\"levels\"><option value=\"warn\"><option value=\"info\"><option value=\"info,evenkeel=debug\"><option value=\"info,evenkeel::worker=trace\"></datalist><button>Change</button></form>",
            Text(&level)
        )
    } else {
        format!("<p><code>{}</code></p>", Text(&level))
    };
    format!("<h2>Log level</h2>{change}")
}

fn tasks(status: &Status) -> String {
    const HEADS: [&str; 3] = ["Task", "State", "n:Last"];
    let mut rows = String::new();
    for task in &status.tasks {
        let class = if matches!(task.state, "receiving" | "running" | "serving" | "idle") { "good" } else { "warn" };
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{}</th>{}{}</tr>",
            Text(&task.name),
            cell(HEADS[1], format_args!("<span class=\"state {class}\">{}</span>", Text(task.state.replace('_', " ")))),
            cell(HEADS[2], words::or_dash(task.last_seconds_ago, |ago| format!("{} ago", words::seconds(ago))))
        );
    }
    format!("<h2>Tasks</h2>{}", table("Tasks of the daemon", &HEADS, &rows))
}

/// The configuration: every value, and where it came from.
fn configuration(config: &Value) -> String {
    let mut rows = String::new();
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for entry in config["values"].as_array().into_iter().flatten() {
        let _ = write!(
            rows,
            "<tr><th scope=\"row\"><code>{}</code></th>{}{}</tr>",
            Text(text(&entry["key"])),
            cell("Value", format_args!("<code>{}</code>", Text(text(&entry["value"])))),
            cell("From", format_args!("<small>{}</small>", Text(text(&entry["origin"]))))
        );
    }
    format!(
        "<h2>Configuration in force</h2><p class=\"hint\">Secrets are hidden: only where they come from is shown.</p>{}",
        table("Configuration in force", &["Key", "Value", "From"], &rows)
    )
}
