//! The first page: how things stand.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;

use super::html::{Query, Text};
use super::layout::Page;
use super::{hour, words};
use crate::ops::api::{Api, Status, status_of};
use crate::ops::board::{Mood, QueueNow};
use crate::ops::guard::Visitor;

pub(super) async fn page(State(api): State<Api>, Extension(visitor): Extension<Visitor>) -> Response {
    let status = status_of(&api.board);
    let title = status.headline.text.clone();
    Page { title, place: "/", body: body(&api, &status) }.answer(visitor)
}

fn body(api: &Api, status: &Status) -> String {
    let mut body = String::from("<div data-live=\"/events\">");
    for (id, html) in sections(status) {
        let live = if id == "headline" { " role=\"status\"" } else { "" };
        let _ = write!(body, "<section id=\"{id}\"{live}>{html}</section>");
        if id == "figures" {
            let _ = write!(body, "<section id=\"charts\" data-refresh=\"/charts\">{}</section>", hour::all_charts(&api.board));
        }
    }
    body.push_str("</div>");
    body
}

/// The parts of the page that change, by their ids.
pub(super) fn sections(status: &Status) -> Vec<(&'static str, String)> {
    vec![
        ("headline", headline(status)),
        ("figures", figures(status)),
        ("queues", queues(&status.queues)),
        ("storage", storage(status)),
        ("views", views(status)),
        ("tasks", tasks(status)),
    ]
}

fn headline(status: &Status) -> String {
    let class = match status.headline.mood {
        Mood::Consistent => "good",
        Mood::CatchingUp | Mood::Starting => "busy",
        Mood::Stuck | Mood::Unreachable => "bad",
    };
    let mut html = format!("<h1 class=\"headline {class}\">{}</h1>", Text(&status.headline.text));
    for note in &status.headline.notes {
        let _ = write!(html, "<p class=\"note\">{}</p>", Text(note));
    }
    if status.poisoned.values().any(|count| *count > 0) {
        html.push_str("<p><a href=\"/poison\">See what is poisoned, and why</a></p>");
    }
    html
}

fn figures(status: &Status) -> String {
    let jobs: Vec<&QueueNow> = status.queues.iter().filter(|queue| queue.carries == "jobs").collect();
    let waiting: Option<u64> = jobs.iter().map(|queue| queue.messages).sum();
    let oldest = jobs.iter().filter_map(|queue| queue.oldest_age_seconds).max();
    let slowest = jobs
        .iter()
        .filter_map(|queue| queue.lag_p99_seconds)
        .fold(None, |most: Option<f64>, lag| Some(most.map_or(lag, |most| most.max(lag))));
    let requests: f64 =
        status.storage.iter().filter_map(|service| service.last).map(|last| last.ok + last.refused + last.throttled + last.failed).sum();
    let poisoned: u64 = status.poisoned.values().sum();
    let figure =
        |name: &str, value: String, class: &str| format!("<div class=\"figure {class}\"><dt>{name}</dt><dd>{}</dd></div>", Text(value));
    let figures = [
        figure("Waiting", words::or_dash(waiting, words::grouped), ""),
        figure(
            "Oldest message",
            words::or_dash(oldest.filter(|_| waiting > Some(0)), |age| words::lasting(std::time::Duration::from_secs(age))),
            "",
        ),
        figure("In flight", words::grouped(jobs.iter().map(|queue| queue.in_flight as u64).sum()), ""),
        figure("Jobs per second", words::rate(jobs.iter().map(|queue| queue.finished_per_second).sum()), ""),
        figure("Lag p99, 5 min", words::or_dash(slowest, words::seconds), ""),
        figure("Poisoned", words::grouped(poisoned), if poisoned > 0 { "bad" } else { "" }),
        figure("Storage requests/s", words::rate(requests), ""),
    ];
    format!("<h2 class=\"unseen\">Figures</h2><dl class=\"figures\">{}</dl>", figures.concat())
}

fn queues(queues: &[QueueNow]) -> String {
    let mut rows = String::new();
    for queue in queues {
        let _ = write!(
            rows,
            "<tr><th scope=\"row\"><a href=\"/queues/{}\">{}</a></th><td data-label=\"State\">{}</td><td data-label=\"Waiting\" class=\"n\">{}</td>\
             <td data-label=\"Oldest\" class=\"n\">{}</td><td data-label=\"In flight\" class=\"n\">{}</td><td data-label=\"Jobs/s\" class=\"n\">{}</td>\
             <td data-label=\"Lag p50\" class=\"n\">{}</td><td data-label=\"Lag p99\" class=\"n\">{}</td><td data-label=\"Done\" class=\"n\">{}</td>\
             <td data-label=\"Skipped\" class=\"n\">{}</td><td data-label=\"Retried\" class=\"n\">{}</td><td data-label=\"Poisoned\" class=\"n\">{}</td>\
             <td data-label=\"Leases renewed\" class=\"n\">{}</td></tr>",
            Query(&queue.queue),
            Text(&queue.queue),
            state(queue),
            words::or_dash(queue.messages, words::grouped),
            words::or_dash(queue.oldest_age_seconds.filter(|_| queue.messages > Some(0)), |age| words::lasting(
                std::time::Duration::from_secs(age)
            )),
            queue.in_flight,
            words::rate(queue.finished_per_second),
            words::or_dash(queue.lag_p50_seconds, words::seconds),
            words::or_dash(queue.lag_p99_seconds, words::seconds),
            words::grouped(queue.endings.done),
            words::grouped(queue.endings.skipped),
            words::grouped(queue.endings.retried),
            words::grouped(queue.endings.poisoned),
            words::grouped(queue.renewals),
        );
    }
    if rows.is_empty() {
        return "<h2>Queues</h2><p class=\"hint\">Nothing is received yet.</p>".to_owned();
    }
    format!(
        "<h2>Queues</h2><div class=\"scroll\"><table><thead><tr><th scope=\"col\">Queue</th><th scope=\"col\">State</th><th scope=\"col\" class=\"n\">Waiting</th>\
         <th scope=\"col\" class=\"n\">Oldest</th><th scope=\"col\" class=\"n\">In flight</th><th scope=\"col\" class=\"n\">Jobs/s</th><th scope=\"col\" class=\"n\">Lag p50</th>\
         <th scope=\"col\" class=\"n\">Lag p99</th><th scope=\"col\" class=\"n\">Done</th><th scope=\"col\" class=\"n\">Skipped</th><th scope=\"col\" class=\"n\">Retried</th>\
         <th scope=\"col\" class=\"n\">Poisoned</th><th scope=\"col\" class=\"n\">Leases renewed</th></tr></thead><tbody>{rows}</tbody></table></div>\
         <p class=\"hint\">Rates over the last minute, lag over five, outcomes over the last hour, of this worker; waiting is what the queue holds for all workers.</p>"
    )
}

fn state(queue: &QueueNow) -> String {
    match &queue.last_error {
        Some(error) => format!("<span class=\"bad\">{}</span>", Text(error)),
        None => Text(queue.state.replace('_', " ")).to_string(),
    }
}

fn storage(status: &Status) -> String {
    let mut rows = String::new();
    for service in status.storage.iter().filter(|service| service.requests > 0) {
        let last = service.last.as_ref();
        let rate = |of: fn(&crate::ops::board::ServiceSlot) -> f64| words::or_dash(last, |last| words::rate(of(last)));
        let state = match &service.unreachable_since {
            Some(since) => format!("<span class=\"bad\">unreachable since {}</span>", Text(words::moment(since))),
            None => "answers".to_owned(),
        };
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{} {}</th><td data-label=\"State\">{state}</td><td data-label=\"Done/s\" class=\"n\">{}</td><td data-label=\"Refused/s\" class=\"n\">{}</td>\
             <td data-label=\"Throttled/s\" class=\"n\">{}</td><td data-label=\"Failed/s\" class=\"n\">{}</td><td data-label=\"Mean\" class=\"n\">{}</td><td data-label=\"In all\" class=\"n\">{}</td></tr>",
            Text(&service.account),
            service.service,
            rate(|last| last.ok),
            rate(|last| last.refused),
            rate(|last| last.throttled),
            rate(|last| last.failed),
            words::or_dash(last.and_then(|last| last.mean_seconds), words::seconds),
            words::grouped(service.requests),
        );
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>Storage</h2><div class=\"scroll\"><table><thead><tr><th scope=\"col\">Service</th><th scope=\"col\">State</th><th scope=\"col\" class=\"n\">Done/s</th>\
         <th scope=\"col\" class=\"n\">Refused/s</th><th scope=\"col\" class=\"n\">Throttled/s</th><th scope=\"col\" class=\"n\">Failed/s</th><th scope=\"col\" class=\"n\">Mean</th>\
         <th scope=\"col\" class=\"n\">In all</th></tr></thead><tbody>{rows}</tbody></table></div>\
         <p class=\"hint\">Requests as they are billed, over ten seconds. Refused is an answer too: a conflict, an unmet condition, nothing there.</p>"
    )
}

fn views(status: &Status) -> String {
    let mut rows = String::new();
    for view in &status.views {
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{}</th><td data-label=\"Kind\">{}</td><td data-label=\"Source\">{}</td><td data-label=\"Created\" class=\"n\">{}</td>\
             <td data-label=\"Updated\" class=\"n\">{}</td><td data-label=\"Deleted\" class=\"n\">{}</td><td data-label=\"Items/s\" class=\"n\">{}</td></tr>",
            Text(&view.view),
            Text(view.kind.replace('_', " ")),
            Text(&view.source),
            words::grouped(view.created),
            words::grouped(view.updated),
            words::grouped(view.deleted),
            words::rate(view.per_second),
        );
    }
    if rows.is_empty() {
        return "<h2>Views</h2><p class=\"hint\">The catalog declares none.</p>".to_owned();
    }
    format!(
        "<h2>Views</h2><div class=\"scroll\"><table><thead><tr><th scope=\"col\">View</th><th scope=\"col\">Kind</th><th scope=\"col\">Source</th><th scope=\"col\" class=\"n\">Created</th>\
         <th scope=\"col\" class=\"n\">Updated</th><th scope=\"col\" class=\"n\">Deleted</th><th scope=\"col\" class=\"n\">Items/s</th></tr></thead><tbody>{rows}</tbody></table></div>\
         <p class=\"hint\">Items written by this worker since it started, {} ago.</p>",
        words::lasting(std::time::Duration::from_secs(status.running_seconds))
    )
}

fn tasks(status: &Status) -> String {
    let tasks = status.tasks.iter().map(|task| format!("<li>{}: {}</li>", Text(&task.name), Text(task.state.replace('_', " "))));
    format!("<details><summary>Tasks</summary><ul>{}</ul></details>", tasks.collect::<String>())
}
