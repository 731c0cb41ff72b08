//! One entity's page.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use super::html::{Query as Part, Text};
use super::layout::{self, Page, cell, table};
use crate::model::ItemAddress;
use crate::ops::api::{Api, EntityReport, FootprintReport, look};
use crate::ops::guard::Visitor;

/// Which entity.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Which {
    #[serde(default)]
    pub(super) table: String,
    #[serde(default)]
    pub(super) pk: String,
    #[serde(default)]
    pub(super) rk: String,
    #[serde(default)]
    queued: String,
}

pub(super) async fn page(State(api): State<Api>, Query(which): Query<Which>, Extension(visitor): Extension<Visitor>) -> Response {
    let mut body = format!("<h1>Entity</h1>{}", form(&api, &which));
    if !which.table.is_empty() {
        match look(&api, &which.table, &which.pk, &which.rk).await {
            Err(problem) => return layout::problem("/entity", &problem, visitor),
            Ok(report) => {
                if !which.queued.is_empty() {
                    let _ = write!(
                        body,
                        "<p class=\"note good\" role=\"status\">A sync job was sent. <a href=\"/jobs?key={}\">See what it did</a></p>",
                        Part(&which.queued)
                    );
                }
                body.push_str(&shown(&report, visitor));
            }
        }
    }
    Page { title: "Entity".to_owned(), place: "/entity", body }.answer(visitor)
}

fn form(api: &Api, which: &Which) -> String {
    let catalog = api.board.catalog();
    let tables = catalog.tables.keys().take(100).map(|table| {
        let selected = if table.as_str().eq_ignore_ascii_case(&which.table) { " selected" } else { "" };
        format!("<option{selected}>{}</option>", Text(table))
    });
    format!(
        "<form class=\"search\" method=\"get\" action=\"/entity\"><label>Table <select name=\"table\">{}</select></label>\
         <label>PartitionKey <input name=\"pk\" value=\"{}\"></label><label>RowKey <input name=\"rk\" value=\"{}\"></label><button>Show</button></form>",
        tables.collect::<String>(),
        Text(&which.pk),
        Text(&which.rk)
    )
}

fn shown(report: &EntityReport, visitor: Visitor) -> String {
    let mut html = String::new();
    let step = if report.plan.in_step {
        "<span class=\"state good\">In step: nothing to do.</span>"
    } else {
        "<span class=\"state warn\">Not in step.</span>"
    };
    let _ =
        write!(html, "<div class=\"heading\"><h2>{} / {} / {}</h2>{step}</div>", Text(&report.table), Text(&report.pk), Text(&report.rk));
    if visitor.signed_in {
        let _ = write!(
            html,
            "<form method=\"post\" action=\"/entity/reconcile\"><input type=\"hidden\" name=\"table\" value=\"{}\"><input type=\"hidden\" name=\"pk\" value=\"{}\">\
             <input type=\"hidden\" name=\"rk\" value=\"{}\"><button class=\"main\">Reconcile now</button></form>",
            Text(&report.table),
            Text(&report.pk),
            Text(&report.rk)
        );
    }
    html.push_str(&plan(report));
    html.push_str("<h3>Primary</h3>");
    match &report.primary {
        None => html.push_str("<p>It does not exist.</p>"),
        Some(primary) => {
            let mut rows = String::new();
            for (name, value) in primary {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                let cut: String = value.chars().take(400).collect();
                let more = if cut.len() < value.len() { "…" } else { "" };
                let _ =
                    write!(rows, "<tr><th scope=\"row\">{}</th>{}</tr>", Text(name), cell("Value", format_args!("{}{more}", Text(&cut))));
            }
            html.push_str(&table("Properties of the primary", &["Property", "Value"], &rows));
        }
    }
    html.push_str("<h3>Footprint and items</h3>");
    match &report.footprint {
        None => html.push_str("<p>Nothing is recorded of it.</p>"),
        Some(footprint) => {
            let tainted = footprint.tainted_until.as_ref().map_or_else(String::new, |until| {
                format!(" A forgotten request may still arrive until {} UTC.", Text(super::words::moment(until)))
            });
            let _ = write!(html, "<p class=\"hint\">Settled: <code>{}</code>.{tainted}</p>", Text(&footprint.settled));
            html.push_str(&items(footprint));
        }
    }
    html
}

/// Items that are shown: a footprint holds a thousand.
const ITEMS: usize = 200;

fn items(footprint: &FootprintReport) -> String {
    if footprint.items.is_empty() {
        return "<p>It has no items.</p>".to_owned();
    }
    let mut rows = String::new();
    for item in footprint.items.iter().take(ITEMS) {
        let state = if item.changing { "<span class=\"state warn\">changing</span>" } else { "<span class=\"state good\">settled</span>" };
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{}</th>{}{}{}</tr>",
            Text(&item.view),
            cell("Place", Text(&item.site)),
            cell("Part", Text(item.part.as_deref().unwrap_or_default())),
            cell("State", state)
        );
    }
    let more = footprint.items.len().saturating_sub(ITEMS);
    let more = if more > 0 { format!("<p class=\"hint\">And {more} more: the API has them all.</p>") } else { String::new() };
    format!("{}{more}", table("Items", &["View", "Place", "Part", "State"], &rows))
}

fn plan(report: &EntityReport) -> String {
    let plan = &report.plan;
    let mut items = String::new();
    let lists: [(&str, &[ItemAddress]); 4] =
        [("create", &plan.create), ("update", &plan.update), ("delete", &plan.delete), ("forget", &plan.forget)];
    for (verb, addresses) in lists {
        for address in addresses {
            let _ = write!(items, "<li>{verb} {}</li>", Text(address));
        }
    }
    for taken in &plan.taken {
        let _ = write!(items, "<li class=\"error\">{} is taken by {}</li>", Text(&taken.address), Text(&taken.by));
    }
    for underived in &plan.underived {
        let _ = write!(items, "<li class=\"error\">{}</li>", Text(&underived.error));
    }
    if items.is_empty() { String::new() } else { format!("<h3>What a sync would do now</h3><ul>{items}</ul>") }
}
