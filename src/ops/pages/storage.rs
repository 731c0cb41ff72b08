//! The stores: requests and latency, the busiest partitions, withheld lanes, and cost.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::State;
use axum::response::{Html, Response};

use super::hour::service_charts;
use super::html::Text;
use super::layout::{Page, cell, table};
use super::words;
use crate::ops::api::Api;
use crate::ops::board::{Board, HotPartition};
use crate::ops::guard::Visitor;

/// Partitions and holds that are shown.
const SHOWN: usize = 10;

pub(super) async fn page(State(api): State<Api>, Extension(visitor): Extension<Visitor>) -> Response {
    let body = format!("<h1>Storage</h1><div id=\"stores\" data-refresh=\"/storage/now\" data-every=\"10\">{}</div>", now(&api.board));
    Page { title: "Storage".to_owned(), place: "/storage", body }.answer(visitor)
}

/// The part of the page that changes.
pub(super) async fn part(State(api): State<Api>) -> Html<String> {
    Html(now(&api.board))
}

fn now(board: &Board) -> String {
    let asked: Vec<(String, &str)> =
        board.storage().into_iter().filter(|service| service.requests > 0).map(|service| (service.account, service.service)).collect();
    let mut charts = String::new();
    for hour in board
        .storage_hour()
        .iter()
        .filter(|hour| asked.iter().any(|(account, service)| *account == hour.account && *service == hour.service))
    {
        charts.push_str(&service_charts(hour));
    }
    format!("{}{}{}<h2>Last hour</h2>{charts}", hottest(&board.hottest(SHOWN)), holds(board), costs(board))
}

/// A partition or queue in words.
pub(super) fn place(hot: &HotPartition) -> String {
    match &hot.partition {
        Some(partition) => format!("{} / {}", Text(&hot.name), Text(if partition.is_empty() { "(empty)" } else { partition })),
        None => format!("queue {}", Text(&hot.name)),
    }
}

fn hottest(hottest: &[HotPartition]) -> String {
    const HEADS: [&str; 6] = ["Partition or queue", "n:Peak/s", "Of 2,000/s", "n:Now/s", "n:Throttled", "What to change"];
    let mut rows = String::new();
    for hot in hottest {
        let share = hot.share_of_target;
        let meter = format!(
            "<meter min=\"0\" max=\"1\" low=\"0.5\" high=\"0.8\" optimum=\"0\" value=\"{:.3}\" aria-label=\"share of what it takes\">{}</meter> {}",
            share.min(1.0),
            words::percent(share),
            words::percent(share)
        );
        let cells = [
            words::rate(hot.peak_per_second),
            meter,
            words::rate(hot.last_per_second),
            words::percent(hot.throttled_share),
            hot.advice.as_ref().map_or_else(|| "<span class=\"hint\">it has room</span>".to_owned(), |advice| Text(advice).to_string()),
        ];
        let cells: String = HEADS[1..].iter().zip(cells).map(|(head, value)| cell(head, value)).collect();
        let _ = write!(rows, "<tr><th scope=\"row\">{}</th>{cells}</tr>", place(hot));
    }
    let body = if rows.is_empty() {
        "<p class=\"hint\">None was asked for often yet.</p>".to_owned()
    } else {
        table("Busiest partitions and queues", &HEADS, &rows)
    };
    format!(
        "<h2>Busiest partitions and queues</h2>{body}<p class=\"hint\">Entities (of a queue: requests) per second by this worker, in the busiest ten seconds of the last hour. \
         One partition takes 2,000 entities of 1 KiB per second, one queue 2,000 messages, whatever the rest of the account does. What queries scan is not known and not counted.</p>"
    )
}

fn holds(board: &Board) -> String {
    let holds = board.holds();
    if holds.is_empty() {
        return "<h2>Pacing</h2><p class=\"hint\">Nothing is held back: no partition, queue or container throttles.</p>".to_owned();
    }
    let mut rows = String::new();
    for hold in holds.iter().take(SHOWN) {
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{}</th>{}{}</tr>",
            Text(&hold.what),
            cell("Account", Text(&hold.account)),
            cell("n:Left alone for", words::seconds(hold.remaining_seconds))
        );
    }
    let more = holds.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!("<p class=\"hint\">And {}.</p>", words::count(more as u64, "more")) } else { String::new() };
    format!("<h2>Pacing</h2>{}{more}", table("What is held back", &["What throttles", "Account", "n:Left alone for"], &rows))
}

fn costs(board: &Board) -> String {
    const HEADS: [&str; 5] = ["Service", "n:Requests", "n:Price of 10,000", "n:A day", "n:A million jobs"];
    let costs = board.costs();
    let mut rows = String::new();
    for service in &costs.services {
        let cells = [
            words::grouped(service.requests),
            format!("${}", service.price_per_10000),
            words::or_dash(service.per_day, words::dollars),
            words::or_dash(service.per_million_jobs, words::dollars),
        ];
        let cells: String = HEADS[1..].iter().zip(cells).map(|(head, value)| cell(head, value)).collect();
        let _ = write!(rows, "<tr><th scope=\"row\">{}</th>{cells}</tr>", service.service);
    }
    let _ = write!(
        rows,
        "<tr class=\"sum\"><th scope=\"row\">together</th>{}{}{}{}</tr>",
        cell("n:Requests", words::grouped(costs.services.iter().map(|service| service.requests).sum())),
        cell("n:Price of 10,000", "–"),
        cell("n:A day", words::or_dash(costs.per_day, words::dollars)),
        cell("n:A million jobs", words::or_dash(costs.per_million_jobs, words::dollars))
    );
    let per_job = costs.requests_per_job.map_or_else(String::new, |requests| format!(" A job takes {requests:.1} requests."));
    format!(
        "<h2>Costs, by estimate</h2>{}<p class=\"hint\">Requests alone, at US list prices of 2025 (locally redundant), without data and traffic; what a day costs is told by the last hour, polling included.{per_job} \
         On the embedded store: what the same requests would cost on Azure.</p>",
        table("Costs", &HEADS, &rows)
    )
}
