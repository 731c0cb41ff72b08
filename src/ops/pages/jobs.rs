//! Recent jobs, with a search.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Query, State};
use axum::response::{Html, Response};
use serde::Deserialize;

use super::html::{Query as Part, Text};
use super::layout::{self, Page};
use super::words;
use crate::ops::api::{Api, Problem, ending};
use crate::ops::board::{JobFilter, JobRecord, StepRecord};
use crate::ops::guard::Visitor;
use crate::worker::Ending;

/// Jobs on one page.
const PAGE: usize = 50;

/// The search terms.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Search {
    #[serde(default)]
    key: String,
    #[serde(default)]
    outcome: String,
    before: Option<u64>,
}

impl Search {
    fn find(&self, api: &Api) -> Result<Vec<JobRecord>, Problem> {
        let ending = Some(self.outcome.as_str()).filter(|name| !name.is_empty()).map(ending).transpose()?;
        Ok(api.board.jobs(&JobFilter { text: self.key.clone(), ending, before: self.before }, PAGE))
    }
}

pub(super) async fn page(State(api): State<Api>, Query(search): Query<Search>, Extension(visitor): Extension<Visitor>) -> Response {
    let jobs = match search.find(&api) {
        Ok(jobs) => jobs,
        Err(problem) => return layout::problem("/jobs", &problem, visitor),
    };
    // Older ones do not change.
    let live = match search.before {
        None => format!(" data-refresh=\"/jobs/list?key={}&amp;outcome={}\" data-every=\"3\"", Part(&search.key), Part(&search.outcome)),
        Some(_) => String::new(),
    };
    let body = format!("<h1>Recent jobs</h1>{}<div id=\"list\"{live}>{}</div>", form(&search), list(&jobs, &search));
    Page { title: "Recent jobs".to_owned(), place: "/jobs", body }.answer(visitor)
}

/// The list alone.
pub(super) async fn part(State(api): State<Api>, Query(search): Query<Search>) -> Result<Html<String>, Problem> {
    Ok(Html(list(&search.find(&api)?, &search)))
}

fn form(search: &Search) -> String {
    let options = Ending::ALL.map(|ending| {
        let selected = if ending.name() == search.outcome { " selected" } else { "" };
        format!("<option{selected}>{}</option>", ending.name())
    });
    format!(
        "<form class=\"search\" method=\"get\" action=\"/jobs\" role=\"search\"><label>Key or message id <input type=\"search\" name=\"key\" value=\"{}\"></label>\
         <label>Outcome <select name=\"outcome\"><option value=\"\">any</option>{}</select></label><button>Search</button></form>\
         <p class=\"hint\">The last 1,000 deliveries of this worker, the newest first; open one to see its steps. Times are UTC.</p>",
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
            "<p><a class=\"button\" href=\"/jobs?key={}&amp;outcome={}&amp;before={}\">Older</a></p>",
            Part(&search.key),
            Part(&search.outcome),
            last.number
        )
    });
    format!("<ul class=\"jobs\">{rows}</ul>{more}")
}

fn class(job: &JobRecord) -> &'static str {
    match job.ending {
        "done" => "good",
        "skipped" => "calm",
        "poisoned" => "bad",
        _ => "warn",
    }
}

fn row(job: &JobRecord) -> String {
    let key = match (&job.table, &job.pk, &job.rk) {
        (Some(table), Some(pk), Some(rk)) => format!("{} / {} / {}", Text(table), Text(pk), Text(rk)),
        _ => "<span class=\"hint\">no key</span>".to_owned(),
    };
    let outcome = if job.ending == job.outcome { job.ending.to_owned() } else { format!("{}: {}", job.ending, job.outcome) };
    let attempts = if job.deliveries > 1 { format!(" · delivery {}", job.deliveries) } else { String::new() };
    format!(
        "<li><details><summary><time datetime=\"{at}\">{time}</time><span class=\"state {class}\">{outcome}{attempts}</span><span class=\"what\"><b>{op}</b> {key}</span>\
         <span class=\"n\">{took}</span><span class=\"n\">{requests}</span></summary>{details}</details></li>",
        at = Text(&job.at),
        time = Text(words::time_of_day(&job.at)),
        class = class(job),
        outcome = Text(outcome),
        op = Text(job.op),
        took = words::seconds(job.took_seconds),
        requests = words::count(u64::from(job.requests), "request"),
        details = details(job),
    )
}

fn details(job: &JobRecord) -> String {
    let mut html = String::from("<div class=\"inside\">");
    if let Some(error) = &job.error {
        let class = if job.ending == "skipped" { "calm" } else { "bad" };
        let _ = write!(html, "<p class=\"note {class}\">{}</p>", Text(error));
    }
    let mut pairs = String::new();
    let mut pair = |name: &str, value: String| {
        let _ = write!(pairs, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    if let (Some(table), Some(pk), Some(rk)) = (&job.table, &job.pk, &job.rk) {
        let link = format!("<a href=\"/entity?table={}&amp;pk={}&amp;rk={}\">its page</a>", Part(table), Part(pk), Part(rk));
        pair("Entity", link);
    }
    pair("Ended", format!("{} UTC", Text(words::moment(&job.at))));
    pair("Lag", words::or_dash(job.lag_seconds, words::seconds));
    pair("Queue", Text(&job.queue).to_string());
    pair("Message", format!("<code>{}</code>", Text(&job.message_id)));
    if let Some(id) = &job.id {
        pair("Client's id", format!("<code>{}</code>", Text(id)));
    }
    if let Some(trace) = &job.traceparent {
        pair("Trace", format!("<code>{}</code>", Text(trace)));
    }
    if let Some(step) = job.step.as_ref().filter(|_| job.error.is_some()) {
        pair("While", Text(step).to_string());
    }
    let _ = write!(html, "<dl class=\"facts\">{pairs}</dl>");
    if job.changes.is_empty() {
        html.push_str("<p class=\"hint\">No item was changed.</p>");
    } else {
        let changes = job.changes.iter().map(|change| format!("<li>{} in {}</li>", change.action, Text(&change.view)));
        let more = job.changed.saturating_sub(job.changes.len());
        let more = if more > 0 { format!("<li>and {} more</li>", words::grouped(more as u64)) } else { String::new() };
        let _ = write!(html, "<h3>Items</h3><ul class=\"plain\">{}{more}</ul>", changes.collect::<String>());
    }
    html.push_str(&steps(job));
    html.push_str("</div>");
    html
}

fn steps(job: &JobRecord) -> String {
    if job.steps.is_empty() {
        return "<p class=\"hint\">It sent no request of its own: it shared another job's run.</p>".to_owned();
    }
    let rows: String = job.steps.iter().map(step).collect();
    let more = (job.requests as usize).saturating_sub(job.steps.len());
    let more = if more > 0 { format!("<p class=\"hint\">And {}.</p>", words::count(more as u64, "more request")) } else { String::new() };
    format!("<h3>Steps: {}</h3><ol class=\"steps\">{rows}</ol>{more}", words::count(u64::from(job.requests), "request"))
}

fn step(step: &StepRecord) -> String {
    let (class, answer) = match (step.answer, step.status) {
        ("ok", _) => ("good", "ok".to_owned()),
        (answer, Some(status)) => ("warn", format!("{} {status}", answer.replace('_', " "))),
        (answer, None) => ("warn", answer.replace('_', " ")),
    };
    format!(
        "<li><code>{}</code> <span>{}</span> <span class=\"state {class}\">{}</span> <span class=\"n\">{}</span></li>",
        step.op,
        Text(&step.on),
        Text(answer),
        words::seconds(step.took_seconds)
    )
}
