//! The first page: how things stand.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;

use super::chart::spark;
use super::html::{Query, Text};
use super::layout::{Page, cell, table};
use super::live::Live;
use super::{storage, views, words};
use crate::ops::api::{Status, status_of};
use crate::ops::board::{Board, Mood, QueueNow, QueueSlot, ServiceSlot};
use crate::ops::guard::Visitor;

/// Rows of each table: the pages beside this one have the rest.
const ROWS: usize = 20;
/// Slots behind a figure: ten minutes.
const SPARKS: usize = 60;

pub(super) async fn page(State(live): State<Live>, Extension(visitor): Extension<Visitor>) -> Response {
    let status = status_of(&live.api.board);
    let title = status.headline.text.clone();
    let mut body = String::from("<div data-live=\"/events\">");
    for (id, html) in sections(&live.api.board, &status) {
        let announced = if id == "headline" { " role=\"status\"" } else { "" };
        let _ = write!(body, "<section id=\"{id}\"{announced}>{html}</section>");
        if id == "figures" {
            let _ = write!(body, "<section id=\"charts\" data-refresh=\"/charts\" data-every=\"10\">{}</section>", live.charts());
        }
    }
    body.push_str("</div>");
    Page { title, place: "/", body }.answer(visitor)
}

/// The parts of the page that change, by their ids.
pub(super) fn sections(board: &Board, status: &Status) -> Vec<(&'static str, String)> {
    vec![
        ("headline", headline(status)),
        ("figures", figures(board, status)),
        ("queues", queues(&status.queues)),
        ("storage", services(status)),
        ("views", view_rows(status)),
        ("tasks", tasks(status)),
    ]
}

fn headline(status: &Status) -> String {
    let class = match status.headline.mood {
        Mood::Consistent => "good",
        Mood::CatchingUp | Mood::Starting => "busy",
        Mood::Stuck | Mood::Unreachable => "bad",
    };
    let jobs = status.queues.iter().filter(|queue| queue.carries == "jobs").count() as u64;
    let mut html = format!(
        "<div class=\"headline {class}\"><h1>{}</h1><p>{} · {} · running for {}</p>",
        Text(&status.headline.text),
        words::count(jobs, "queue"),
        words::count(status.view_count as u64, "view"),
        // In whole minutes: announced text must not change by itself.
        words::lasting(std::time::Duration::from_secs(status.running_seconds / 60 * 60)),
    );
    if !status.headline.notes.is_empty() {
        let notes = status.headline.notes.iter().map(|note| format!("<li>{}</li>", Text(note)));
        let _ = write!(html, "<ul>{}</ul>", notes.collect::<String>());
    }
    if status.poisoned.values().any(|count| *count > 0) {
        html.push_str("<a class=\"button\" href=\"/poison\">See what is poisoned, and why</a>");
    }
    html.push_str("</div>");
    for hot in status.hottest.iter().filter(|hot| hot.advice.is_some()) {
        let _ = write!(
            html,
            "<p class=\"note warn\"><b>{}</b> took up to {} of 2,000 entities/s{}. <a href=\"/storage\">What to change</a></p>",
            storage::place(hot),
            words::rate(hot.peak_per_second),
            if hot.throttled_share > 0.0 {
                format!(" and throttled {} of its requests", words::percent(hot.throttled_share))
            } else {
                String::new()
            },
        );
    }
    html
}

#[expect(clippy::cast_precision_loss, reason = "counts of messages stay below 2^53")]
fn figures(board: &Board, status: &Status) -> String {
    let jobs: Vec<&QueueNow> = status.queues.iter().filter(|queue| queue.carries == "jobs").collect();
    let hour = board.hour(None);
    let recent = &hour[hour.len().saturating_sub(SPARKS)..];
    let of = |value: fn(&QueueSlot) -> Option<f64>| spark(&recent.iter().map(value).collect::<Vec<_>>());
    let waiting: Option<u64> = jobs.iter().map(|queue| queue.messages).sum();
    let oldest = jobs.iter().filter_map(|queue| queue.oldest_age_seconds).max();
    let slowest = jobs.iter().filter_map(|queue| queue.lag_p99_seconds).reduce(f64::max);
    let requests: f64 =
        status.storage.iter().filter_map(|service| service.last).map(|last| last.ok + last.refused + last.throttled + last.failed).sum();
    let poisoned: u64 = status.poisoned.values().sum();
    let figure = |name: &str, value: String, line: String, class: &str| {
        format!("<div class=\"figure {class}\"><dt>{name}</dt><dd>{}</dd>{line}</div>", Text(value))
    };
    let figures = [
        figure("Waiting", words::or_dash(waiting, words::grouped), of(|slot| slot.messages.map(|messages| messages as f64)), ""),
        figure("Oldest message", words::age(oldest, waiting), of(|slot| slot.oldest_age_seconds.map(|age| age as f64)), ""),
        figure(
            "In flight",
            words::grouped(jobs.iter().map(|queue| queue.in_flight as u64).sum()),
            of(|slot| Some(slot.in_flight as f64)),
            "",
        ),
        figure(
            "Jobs per second",
            words::rate(jobs.iter().map(|queue| queue.finished_per_second).sum()),
            of(|slot| Some(slot.done + slot.skipped)),
            "",
        ),
        figure("Lag p99, 5 min", words::or_dash(slowest, words::seconds), of(|slot| slot.lag_p99_seconds), ""),
        figure("Poisoned", words::grouped(poisoned), of(|slot| Some(slot.poisoned)), if poisoned > 0 { "bad" } else { "" }),
        figure("Requests/s", words::rate(requests), String::new(), ""),
        figure("Cost a day", words::or_dash(status.costs.per_day, words::dollars), String::new(), ""),
    ];
    format!("<h2 class=\"unseen\">Figures</h2><dl class=\"figures\">{}</dl>", figures.concat())
}

fn queues(queues: &[QueueNow]) -> String {
    const HEADS: [&str; 13] = [
        "Queue",
        "State",
        "n:Waiting",
        "n:Oldest",
        "n:In flight",
        "n:Jobs/s",
        "n:Lag p50",
        "n:Lag p99",
        "n:Done",
        "n:Skipped",
        "n:Retried",
        "n:Poisoned",
        "n:Renewals",
    ];
    let mut rows = String::new();
    // Queues of jobs before those of rechecks.
    let ordered = queues.iter().filter(|queue| queue.carries == "jobs").chain(queues.iter().filter(|queue| queue.carries != "jobs"));
    for queue in ordered.take(ROWS) {
        let cells = [
            state(queue),
            words::or_dash(queue.messages, words::grouped),
            words::age(queue.oldest_age_seconds, queue.messages),
            queue.in_flight.to_string(),
            words::rate(queue.finished_per_second),
            words::or_dash(queue.lag_p50_seconds, words::seconds),
            words::or_dash(queue.lag_p99_seconds, words::seconds),
            words::grouped(queue.endings.done),
            words::grouped(queue.endings.skipped),
            words::grouped(queue.endings.retried),
            words::grouped(queue.endings.poisoned),
            words::grouped(queue.renewals),
        ];
        let cells: String = HEADS[1..].iter().zip(cells).map(|(head, value)| cell(head, value)).collect();
        let _ =
            write!(rows, "<tr><th scope=\"row\"><a href=\"/queues/{}\">{}</a></th>{cells}</tr>", Query(&queue.queue), Text(&queue.queue));
    }
    if rows.is_empty() {
        return "<h2>Queues</h2><p class=\"hint\">Nothing is received yet.</p>".to_owned();
    }
    let more = match queues.len().saturating_sub(ROWS) {
        0 => String::new(),
        more => format!(" {} are on the <a href=\"/system\">system page</a>.", words::count(more as u64, "more queue")),
    };
    format!(
        "<h2>Queues</h2>{}<p class=\"hint\">Rates over the last minute, lag over five, outcomes over the last hour, of this worker; waiting is what the queue holds for all workers.{more}</p>",
        table("Queues", &HEADS, &rows)
    )
}

fn state(queue: &QueueNow) -> String {
    match (&queue.last_error, queue.state) {
        (Some(error), _) => format!("<span class=\"state bad\">{}</span>", Text(error)),
        (None, "receiving") => "<span class=\"state good\">receiving</span>".to_owned(),
        (None, state) => format!("<span class=\"state warn\">{}</span>", Text(state.replace('_', " "))),
    }
}

fn services(status: &Status) -> String {
    const HEADS: [&str; 8] = ["Service", "State", "n:Done/s", "n:Refused/s", "n:Throttled/s", "n:Failed/s", "n:p50", "n:p99"];
    let mut rows = String::new();
    for service in status.storage.iter().filter(|service| service.requests > 0) {
        let last = service.last.as_ref();
        let rate = |of: fn(&ServiceSlot) -> f64| words::or_dash(last, |last| words::rate(of(last)));
        let time = |of: fn(&ServiceSlot) -> Option<f64>| words::or_dash(last.and_then(of), words::seconds);
        let state = match &service.unreachable_since {
            Some(since) => format!("<span class=\"state bad\">unreachable since {} UTC</span>", Text(words::moment(since))),
            None => "<span class=\"state good\">answers</span>".to_owned(),
        };
        let cells = [
            state,
            rate(|last| last.ok),
            rate(|last| last.refused),
            rate(|last| last.throttled),
            rate(|last| last.failed),
            time(|last| last.p50_seconds),
            time(|last| last.p99_seconds),
        ];
        let cells: String = HEADS[1..].iter().zip(cells).map(|(head, value)| cell(head, value)).collect();
        let _ = write!(rows, "<tr><th scope=\"row\">{} {}</th>{cells}</tr>", Text(&service.account), service.service);
    }
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<div class=\"heading\"><h2>Storage</h2><a href=\"/storage\">Latency, hot partitions, costs</a></div>{}<p class=\"hint\">Requests as they are billed, over ten seconds. Refused is an answer too: a conflict, an unmet condition, nothing there.</p>",
        table("Storage services", &HEADS, &rows)
    )
}

fn view_rows(status: &Status) -> String {
    if status.views.is_empty() {
        return "<h2>Views</h2><p class=\"hint\">The catalog declares none.</p>".to_owned();
    }
    let shown = &status.views[..status.views.len().min(ROWS)];
    let all = if status.view_count > shown.len() {
        format!("All {}", words::count(status.view_count as u64, "view"))
    } else {
        "More about them".to_owned()
    };
    format!("<div class=\"heading\"><h2>Views</h2><a href=\"/views\">{all}</a></div>{}", views::rows(shown))
}

fn tasks(status: &Status) -> String {
    let ill = status.tasks.iter().filter(|task| !matches!(task.state, "receiving" | "running" | "serving" | "idle")).count();
    let all = status.tasks.len() as u64;
    let well = if ill == 0 { "all are well".to_owned() } else { format!("{ill} not as they should be") };
    format!(
        "<h2>Daemon</h2><p class=\"hint\">{}: {well}. <a href=\"/system\">Tasks, log level and configuration</a></p>",
        words::count(all, "task")
    )
}
