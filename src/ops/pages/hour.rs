//! The last hour: charts, and the same as tables.

use std::fmt::Write as _;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::{Html, Response};
use serde::Deserialize;

use super::chart::Chart;
use super::html::{Query as Part, Text};
use super::layout::{self, Page, cell, table as boxed};
use super::words;
use crate::model::QueueName;
use crate::ops::api::{Api, Problem};
use crate::ops::board::{Board, QueueSlot, ServiceSlot, StorageHour};
use crate::ops::guard::Visitor;

/// Which queue.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Of {
    queue: Option<String>,
}

/// Which storage service.
#[derive(Debug, Deserialize)]
pub(super) struct Service {
    account: String,
    service: String,
}

impl Of {
    fn name(&self, board: &Board) -> Result<Option<QueueName>, Problem> {
        let Some(name) = self.queue.as_deref().filter(|name| !name.is_empty()) else { return Ok(None) };
        let known = board.queues().iter().any(|queue| queue.queue == name);
        let name = QueueName::new(name).ok().filter(|_| known);
        name.map(Some).ok_or_else(|| Problem::unknown("nothing is received from a queue of this name"))
    }
}

/// The charts of one queue alone, for a page that is live.
pub(super) async fn charts(State(api): State<Api>, Path(queue): Path<String>) -> Result<Html<String>, Problem> {
    let queue = Of { queue: Some(queue) }.name(&api.board)?;
    Ok(Html(queue_charts(&api.board, queue.as_ref())))
}

/// One queue's page.
pub(super) async fn queue(State(api): State<Api>, Path(queue): Path<String>, Extension(visitor): Extension<Visitor>) -> Response {
    let of = Of { queue: Some(queue.clone()) };
    match of.name(&api.board) {
        Err(problem) => layout::problem("/", &problem, visitor),
        Ok(name) => {
            let mut body = format!("<h1>Queue {}</h1>", Text(&queue));
            if let Some(now) = api.board.queues().iter().find(|now| now.queue == queue) {
                let figures = [
                    ("State", Text(now.state.replace('_', " ")).to_string()),
                    ("Waiting", words::or_dash(now.messages, words::grouped)),
                    ("Oldest message", words::age(now.oldest_age_seconds, now.messages)),
                    ("In flight", format!("{} of {}", words::grouped(now.in_flight as u64), words::grouped(now.concurrency as u64))),
                    ("Jobs per second", words::rate(now.finished_per_second)),
                    ("Lag p50", words::or_dash(now.lag_p50_seconds, words::seconds)),
                    ("Lag p99", words::or_dash(now.lag_p99_seconds, words::seconds)),
                    ("Renewals, failed", format!("{}, {}", words::grouped(now.renewals), words::grouped(now.failed_renewals))),
                ];
                let figures = figures.map(|(name, value)| format!("<div class=\"figure\"><dt>{name}</dt><dd>{value}</dd></div>"));
                let _ = write!(body, "<dl class=\"figures\">{}</dl>", figures.concat());
                if let Some(error) = &now.last_error {
                    let _ = write!(body, "<p class=\"note bad\">The queue cannot be received from: {}</p>", Text(error));
                }
            }
            let _ = write!(
                body,
                "<section id=\"charts\" data-refresh=\"/charts/{}\" data-every=\"10\">{}</section>",
                Part(&queue),
                queue_charts(&api.board, name.as_ref())
            );
            Page { title: format!("Queue {queue}"), place: "/queues", body }.answer(visitor)
        }
    }
}

/// The charts of all job queues together and of the storage.
pub(super) fn all_charts(board: &Board) -> String {
    let mut sums: Vec<[f64; 4]> = Vec::new();
    for service in board.storage_hour() {
        // Every service was sampled at the same times; one that appeared later has fewer slots.
        let missing = service.slots.len().saturating_sub(sums.len());
        sums.splice(0..0, std::iter::repeat_n([0.0; 4], missing));
        let first = sums.len() - service.slots.len();
        for (sum, slot) in sums[first..].iter_mut().zip(&service.slots) {
            for (sum, value) in sum.iter_mut().zip([slot.ok, slot.refused, slot.throttled, slot.failed]) {
                *sum += value;
            }
        }
    }
    let of = |part: usize| sums.iter().map(|sum| Some(sum[part])).collect();
    let storage = requests_chart("Storage requests", [of(0), of(1), of(2), of(3)]);
    let slots = board.hour(None);
    let charts: String = main_charts(&slots).iter().chain([&storage]).map(Chart::html).collect();
    format!("{}<div class=\"charts\">{charts}</div>", head("/hour"))
}

/// The charts of one storage service.
pub(super) fn service_charts(hour: &StorageHour) -> String {
    let of = |value: fn(&ServiceSlot) -> f64| hour.slots.iter().map(|slot| Some(value(slot))).collect::<Vec<_>>();
    let some = |value: fn(&ServiceSlot) -> Option<f64>| hour.slots.iter().map(value).collect::<Vec<_>>();
    let requests =
        requests_chart("Requests", [of(|slot| slot.ok), of(|slot| slot.refused), of(|slot| slot.throttled), of(|slot| slot.failed)]);
    let latency = Chart {
        title: "Latency",
        unit: "seconds",
        lines: vec![("p50", "calm", some(|slot| slot.p50_seconds)), ("p99", "warn", some(|slot| slot.p99_seconds))],
    };
    format!(
        "<h3>{account} {service} <small><a href=\"/storage/hour?account={account_part}&amp;service={service}\">as a table</a></small></h3><div class=\"charts\">{}{}</div>",
        requests.html(),
        latency.html(),
        account = Text(&hour.account),
        account_part = Part(&hour.account),
        service = hour.service,
    )
}

fn requests_chart(title: &str, [ok, refused, throttled, failed]: [Vec<Option<f64>>; 4]) -> Chart<'_> {
    let lines = vec![("done", "good", ok), ("refused", "calm", refused), ("throttled", "warn", throttled), ("failed", "bad", failed)];
    Chart { title, unit: "requests/s", lines }
}

fn head(table: &str) -> String {
    format!("<div class=\"heading\"><h2>Last hour</h2><a href=\"{table}\">The same as a table</a></div>")
}

#[expect(clippy::cast_precision_loss, reason = "a queue of 2^53 messages does not exist")]
fn main_charts(slots: &[QueueSlot]) -> [Chart<'static>; 3] {
    let of = |value: fn(&QueueSlot) -> Option<f64>| slots.iter().map(value).collect::<Vec<_>>();
    [
        Chart {
            title: "Jobs",
            unit: "jobs/s",
            lines: vec![
                ("done", "good", of(|slot| Some(slot.done))),
                ("skipped", "calm", of(|slot| Some(slot.skipped))),
                ("retried", "warn", of(|slot| Some(slot.retried))),
                ("poisoned", "bad", of(|slot| Some(slot.poisoned))),
            ],
        },
        Chart {
            title: "Waiting",
            unit: "messages",
            lines: vec![("waiting", "calm", of(|slot| slot.messages.map(|messages| messages as f64)))],
        },
        Chart {
            title: "Lag, enqueued to converged",
            unit: "seconds",
            lines: vec![("p50", "calm", of(|slot| slot.lag_p50_seconds)), ("p99", "warn", of(|slot| slot.lag_p99_seconds))],
        },
    ]
}

#[expect(clippy::cast_precision_loss, reason = "counts of messages and seconds stay below 2^53")]
fn queue_charts(board: &Board, queue: Option<&QueueName>) -> String {
    let slots = board.hour(queue);
    let of = |value: fn(&QueueSlot) -> Option<f64>| slots.iter().map(value).collect::<Vec<_>>();
    let more = [
        Chart {
            title: "Oldest message",
            unit: "seconds",
            lines: vec![("age", "calm", of(|slot| slot.oldest_age_seconds.map(|age| age as f64)))],
        },
        Chart { title: "In flight", unit: "messages", lines: vec![("in flight", "calm", of(|slot| Some(slot.in_flight as f64)))] },
        Chart {
            title: "Leases renewed",
            unit: "renewals/s",
            lines: vec![("renewed", "calm", of(|slot| Some(slot.renewals as f64 / 10.0)))],
        },
    ];
    let table = queue.map_or_else(|| "/hour".to_owned(), |queue| format!("/hour?queue={}", Part(queue.as_str())));
    let charts: String = main_charts(&slots).iter().chain(&more).map(Chart::html).collect();
    format!("{}<div class=\"charts\">{charts}</div>", head(&table))
}

fn ago(seconds: u64) -> String {
    format!("<th scope=\"row\">{} ago</th>", words::lasting(Duration::from_secs(seconds)))
}

/// The last hour as a table, the newest first.
pub(super) async fn table(State(api): State<Api>, Query(of): Query<Of>, Extension(visitor): Extension<Visitor>) -> Response {
    const HEADS: [&str; 11] = [
        "Slot",
        "n:Done",
        "n:Skipped",
        "n:Retried",
        "n:Poisoned",
        "n:Waiting",
        "n:Oldest",
        "n:In flight",
        "n:Lag p50",
        "n:Lag p99",
        "n:Renewals",
    ];
    let queue = match of.name(&api.board) {
        Ok(queue) => queue,
        Err(problem) => return layout::problem("/", &problem, visitor),
    };
    let mut rows = String::new();
    for slot in api.board.hour(queue.as_ref()).iter().rev() {
        let cells = [
            words::rate(slot.done),
            words::rate(slot.skipped),
            words::rate(slot.retried),
            words::rate(slot.poisoned),
            words::or_dash(slot.messages, words::grouped),
            words::or_dash(slot.oldest_age_seconds, |age| words::lasting(Duration::from_secs(age))),
            words::grouped(slot.in_flight as u64),
            words::or_dash(slot.lag_p50_seconds, words::seconds),
            words::or_dash(slot.lag_p99_seconds, words::seconds),
            words::grouped(slot.renewals),
        ];
        let cells: String = HEADS[1..].iter().zip(cells).map(|(head, value)| cell(head, value)).collect();
        let _ = write!(rows, "<tr>{}{cells}</tr>", ago(slot.ago_seconds));
    }
    let name = queue.as_ref().map_or("all job queues", QueueName::as_str);
    let title = format!("Last hour of {name}");
    Page { body: hour_body(&title, &HEADS, &rows), title, place: "/hour" }.answer(visitor)
}

/// The last hour of a storage service as a table, the newest first.
pub(super) async fn storage(State(api): State<Api>, Query(of): Query<Service>, Extension(visitor): Extension<Visitor>) -> Response {
    const HEADS: [&str; 8] = ["Slot", "n:Done", "n:Refused", "n:Throttled", "n:Failed", "n:Mean", "n:p50", "n:p99"];
    let hours = api.board.storage_hour();
    let account = api.settings.accounts.iter().any(|account| account.name.as_str() == of.account);
    let sink = api.settings.sinks.iter().any(|sink| sink.name.as_str() == of.account);
    if !(account && ["table", "queue", "blob"].contains(&of.service.as_str()) || sink && of.service == "search") {
        return layout::problem("/storage", &Problem::unknown("nothing is stored in a service of this name"), visitor);
    }
    // In the first seconds of a daemon nothing is measured yet.
    let slots = hours.iter().find(|hour| hour.account == of.account && hour.service == of.service).map_or(&[][..], |hour| &hour.slots);
    let mut rows = String::new();
    for slot in slots.iter().rev() {
        let time = |time: Option<f64>| words::or_dash(time, words::seconds);
        let cells = [
            words::rate(slot.ok),
            words::rate(slot.refused),
            words::rate(slot.throttled),
            words::rate(slot.failed),
            time(slot.mean_seconds),
            time(slot.p50_seconds),
            time(slot.p99_seconds),
        ];
        let cells: String = HEADS[1..].iter().zip(cells).map(|(head, value)| cell(head, value)).collect();
        let _ = write!(rows, "<tr>{}{cells}</tr>", ago(slot.ago_seconds));
    }
    let title = format!("Last hour of {} {}", of.account, of.service);
    Page { body: hour_body(&title, &HEADS, &rows), title, place: "/storage" }.answer(visitor)
}

fn hour_body(title: &str, heads: &[&str], rows: &str) -> String {
    format!(
        "<h1>{}</h1><p class=\"hint\">In slots of ten seconds; rates are per second.</p><div class=\"wide\">{}</div>",
        Text(title),
        boxed(title, heads, rows)
    )
}
