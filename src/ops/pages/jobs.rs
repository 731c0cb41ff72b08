//! Recent jobs, with a search.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use super::html::{Query as Part, Text};
use super::layout::{self, Page};
use super::words;
use crate::ops::api::{Api, ending};
use crate::ops::board::{JobFilter, JobRecord};
use crate::ops::guard::Visitor;
use crate::worker::Ending;

/// Jobs on one page.
const PAGE: usize = 50;

/// What is searched for.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Search {
    #[serde(default)]
    key: String,
    #[serde(default)]
    outcome: String,
    before: Option<u64>,
}

pub(super) async fn page(State(api): State<Api>, Query(search): Query<Search>, Extension(visitor): Extension<Visitor>) -> Response {
    let wanted = match Some(search.outcome.as_str()).filter(|name| !name.is_empty()).map(ending).transpose() {
        Ok(wanted) => wanted,
        Err(problem) => return layout::problem("/jobs", &problem, visitor),
    };
    let filter = JobFilter { text: search.key.clone(), ending: wanted, before: search.before };
    let jobs = api.board.jobs(&filter, PAGE);
    let body = format!("<h1>Recent jobs</h1>{}{}", form(&search), list(&jobs, &search));
    Page { title: "Recent jobs".to_owned(), place: "/jobs", body }.answer(visitor)
}

fn form(search: &Search) -> String {
    let options = Ending::ALL.map(|ending| {
        let selected = if ending.name() == search.outcome { " selected" } else { "" };
        format!("<option{selected}>{}</option>", ending.name())
    });
    format!(
        "<form class=\"search\" method=\"get\" action=\"/jobs\" role=\"search\"><label>Key or message id <input type=\"search\" name=\"key\" value=\"{}\"></label>\
         <label>Outcome <select name=\"outcome\"><option value=\"\">any</option>{}</select></label><button>Search</button></form>\
         <p class=\"hint\">The last 1,000 deliveries of this worker, the newest first. Times are UTC.</p>",
        Text(&search.key),
        options.concat()
    )
}

fn list(jobs: &[JobRecord], search: &Search) -> String {
    if jobs.is_empty() {
        return "<p>No job fits.</p>".to_owned();
    }
    let rows: String = jobs.iter().map(row).collect();
    let more = jobs.last().filter(|_| jobs.len() == PAGE).map_or_else(String::new, |last| {
        format!(
            "<p><a href=\"/jobs?key={}&amp;outcome={}&amp;before={}\">Older</a></p>",
            Part(&search.key),
            Part(&search.outcome),
            last.number
        )
    });
    format!(
        "<div class=\"scroll\"><table><thead><tr><th scope=\"col\">Ended</th><th scope=\"col\">Job</th><th scope=\"col\">Outcome</th><th scope=\"col\" class=\"n\">Delivery</th>\
         <th scope=\"col\" class=\"n\">Took</th><th scope=\"col\" class=\"n\">Lag</th><th scope=\"col\">What it did</th></tr></thead><tbody>{rows}</tbody></table></div>{more}"
    )
}

fn row(job: &JobRecord) -> String {
    let about = match (&job.table, &job.pk, &job.rk) {
        (Some(table), Some(pk), Some(rk)) => format!(
            "<a href=\"/entity?table={}&amp;pk={}&amp;rk={}\">{} {} {}</a>",
            Part(table),
            Part(pk),
            Part(rk),
            Text(table),
            Text(pk),
            Text(rk)
        ),
        _ => String::new(),
    };
    let class = match job.ending {
        "done" => "good",
        "retried" | "lost" => "warn",
        "poisoned" => "bad",
        _ => "",
    };
    let outcome = if job.ending == job.outcome { job.ending.to_owned() } else { format!("{} ({})", job.ending, job.outcome) };
    format!(
        "<tr><th scope=\"row\"><time datetime=\"{at}\">{moment}</time></th><td data-label=\"Job\">{op} {about}<br><small>{message}{id}</small></td>\
         <td data-label=\"Outcome\"><span class=\"{class}\">{outcome}</span></td><td data-label=\"Delivery\" class=\"n\">{deliveries}</td>\
         <td data-label=\"Took\" class=\"n\">{took}</td><td data-label=\"Lag\" class=\"n\">{lag}</td><td data-label=\"What it did\">{did}</td></tr>",
        at = Text(&job.at),
        moment = Text(words::moment(&job.at)),
        op = Text(job.op),
        message = Text(&job.message_id),
        id = job.id.as_ref().map_or_else(String::new, |id| format!(" · {}", Text(id))),
        outcome = Text(outcome),
        deliveries = job.deliveries,
        took = words::seconds(job.took_seconds),
        lag = words::or_dash(job.lag_seconds, words::seconds),
        did = did(job),
    )
}

fn did(job: &JobRecord) -> String {
    let mut text = String::new();
    for change in job.changes.iter().take(8) {
        let _ = write!(text, "{} {}<br>", change.action, Text(&change.view));
    }
    if job.changed > 8 {
        let _ = write!(text, "and {} more<br>", words::grouped(job.changed as u64 - 8));
    }
    if let Some(error) = &job.error {
        let _ = write!(text, "<span class=\"error\">{}</span>", Text(error));
    }
    if text.is_empty() { "nothing to do".to_owned() } else { text }
}
