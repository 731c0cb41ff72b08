//! The views, a page at a time.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use super::html::{Query as Part, Text};
use super::layout::{Page, cell, table};
use super::words;
use crate::ops::api::Api;
use crate::ops::board::ViewNow;
use crate::ops::guard::Visitor;

/// Views on one page.
const PAGE: usize = 50;

/// Where a page begins.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Which {
    after: Option<String>,
}

pub(super) async fn page(State(api): State<Api>, Query(which): Query<Which>, Extension(visitor): Extension<Visitor>) -> Response {
    let after = which.after.as_deref().filter(|after| !after.is_empty());
    let views = api.board.views(after, PAGE);
    let form = if api.board.view_count() > PAGE {
        format!(
            "<form class=\"search\" method=\"get\" action=\"/views\" role=\"search\"><label>After the name <input type=\"search\" name=\"after\" value=\"{}\"></label><button>Show</button></form>",
            Text(after.unwrap_or_default())
        )
    } else {
        String::new()
    };
    let list = if views.is_empty() { "<p>There are no more views.</p>".to_owned() } else { rows(&views) };
    let more = match views.last().filter(|_| views.len() == PAGE) {
        Some(last) => format!("<p><a class=\"button\" href=\"/views?after={}\">Next</a></p>", Part(&last.view)),
        None => String::new(),
    };
    let body = format!("<h1>Views</h1>{form}{list}{}{more}", errors(&views));
    Page { title: "Views".to_owned(), place: "/views", body }.answer(visitor)
}

/// Views as a table.
pub(super) fn rows(views: &[ViewNow]) -> String {
    const HEADS: [&str; 8] = ["View", "Kind", "Source", "n:Items", "n:Creates/s", "n:Updates/s", "n:Deletes/s", "Drift"];
    let mut rows = String::new();
    for view in views {
        let items = format!("+{} −{}", words::grouped(view.created), words::grouped(view.deleted));
        let drift = match (view.drift, &view.audited) {
            (Some(0), Some(at)) => format!("<span class=\"state good\">none</span> <small>{} UTC</small>", Text(words::moment(at))),
            (Some(items), Some(at)) => {
                format!("<span class=\"state bad\">{}</span> <small>{} UTC</small>", words::count(items, "item"), Text(words::moment(at)))
            }
            _ => "<span class=\"hint\">never audited</span>".to_owned(),
        };
        let cells = [
            Text(view.kind.replace('_', " ")).to_string(),
            Text(&view.source).to_string(),
            items,
            words::rate(view.created_per_second),
            words::rate(view.updated_per_second),
            words::rate(view.deleted_per_second),
            drift,
        ];
        let cells: String = HEADS[1..].iter().zip(cells).map(|(head, value)| cell(head, value)).collect();
        let mark = if view.last_error.is_some() { " <a class=\"state bad\" href=\"/views\">error</a>" } else { "" };
        let _ = write!(rows, "<tr><th scope=\"row\">{}{mark}</th>{cells}</tr>", Text(&view.view));
    }
    format!(
        "{}<p class=\"hint\">Items that this worker created and deleted since it started; rates over the last minute.</p>",
        table("Views", &HEADS, &rows)
    )
}

/// The last error of each view that has one.
fn errors(views: &[ViewNow]) -> String {
    let mut list = String::new();
    for view in views {
        if let (Some(error), Some(at)) = (&view.last_error, &view.last_error_at) {
            let _ = write!(
                list,
                "<li class=\"card\"><h3>{} <small>{} UTC</small></h3><p class=\"error\">{}</p></li>",
                Text(&view.view),
                Text(words::moment(at)),
                Text(error)
            );
        }
    }
    if list.is_empty() { list } else { format!("<h2>Last errors</h2><ul class=\"cards\">{list}</ul>") }
}
