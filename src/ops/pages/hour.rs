//! The last hour: charts, and the same as a table.

use std::fmt::Write as _;

use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::{Html, Response};
use serde::Deserialize;

use super::chart::Chart;
use super::html::{Query as Part, Text};
use super::layout::{self, Page};
use super::words;
use crate::model::QueueName;
use crate::ops::api::{Api, Problem};
use crate::ops::board::{Board, QueueSlot};
use crate::ops::guard::Visitor;

/// Which queue.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Of {
    queue: Option<String>,
}

impl Of {
    fn name(&self, board: &Board) -> Result<Option<QueueName>, Problem> {
        let Some(name) = self.queue.as_deref().filter(|name| !name.is_empty()) else { return Ok(None) };
        let known = board.queues().iter().any(|queue| queue.queue == name);
        let name = QueueName::new(name).ok().filter(|_| known);
        name.map(Some).ok_or_else(|| Problem::unknown("nothing is received from a queue of this name"))
    }
}

/// The charts alone, for a page that is live.
pub(super) async fn charts(State(api): State<Api>, Query(of): Query<Of>) -> Result<Html<String>, Problem> {
    let queue = of.name(&api.board)?;
    Ok(Html(match queue {
        None => all_charts(&api.board),
        Some(queue) => queue_charts(&api.board, Some(&queue)),
    }))
}

/// One queue's page.
pub(super) async fn queue(State(api): State<Api>, Path(queue): Path<String>, Extension(visitor): Extension<Visitor>) -> Response {
    let of = Of { queue: Some(queue.clone()) };
    match of.name(&api.board) {
        Err(problem) => layout::problem("/", &problem, visitor),
        Ok(name) => {
            let body = format!(
                "<h1>Queue {}</h1><section id=\"charts\" data-refresh=\"/charts?queue={}\">{}</section>",
                Text(&queue),
                Part(&queue),
                queue_charts(&api.board, name.as_ref())
            );
            Page { title: format!("Queue {queue}"), place: "/queues", body }.answer(visitor)
        }
    }
}

/// The charts of all job queues together and of the storage.
pub(super) fn all_charts(board: &Board) -> String {
    let mut html = queue_charts(board, None);
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
    let storage = Chart {
        title: "Storage requests",
        unit: "requests/s",
        lines: vec![("done", "good", of(0)), ("refused", "calm", of(1)), ("throttled", "warn", of(2)), ("failed", "bad", of(3))],
    };
    let at = html.len() - "</div>".len();
    html.truncate(at);
    html.push_str(&storage.html());
    html.push_str("</div>");
    html
}

fn queue_charts(board: &Board, queue: Option<&QueueName>) -> String {
    let slots = board.hour(queue);
    let of = |value: fn(&QueueSlot) -> Option<f64>| slots.iter().map(value).collect::<Vec<_>>();
    #[expect(clippy::cast_precision_loss, reason = "a queue of 2^53 messages does not exist")]
    let charts = [
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
    ];
    let table = queue.map_or_else(|| "/hour".to_owned(), |queue| format!("/hour?queue={}", Part(queue.as_str())));
    let charts: String = charts.iter().map(Chart::html).collect();
    format!("<h2>Last hour</h2><p class=\"hint\"><a href=\"{table}\">The same as a table</a></p><div class=\"charts\">{charts}</div>")
}

/// The last hour as a table, the newest first.
pub(super) async fn table(State(api): State<Api>, Query(of): Query<Of>, Extension(visitor): Extension<Visitor>) -> Response {
    let queue = match of.name(&api.board) {
        Ok(queue) => queue,
        Err(problem) => return layout::problem("/", &problem, visitor),
    };
    let mut rows = String::new();
    for slot in api.board.hour(queue.as_ref()).iter().rev() {
        let _ = write!(
            rows,
            "<tr><th scope=\"row\">{} ago</th><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            words::lasting(std::time::Duration::from_secs(slot.ago_seconds)),
            words::rate(slot.done),
            words::rate(slot.skipped),
            words::rate(slot.retried),
            words::rate(slot.poisoned),
            words::or_dash(slot.messages, words::grouped),
            words::or_dash(slot.oldest_age_seconds, |age| words::lasting(std::time::Duration::from_secs(age))),
            slot.in_flight,
            words::or_dash(slot.lag_p50_seconds, words::seconds),
            words::or_dash(slot.lag_p99_seconds, words::seconds),
        );
    }
    let name = queue.as_ref().map_or("all job queues", QueueName::as_str);
    let body = format!(
        "<h1>Last hour of {}</h1><p class=\"hint\">In slots of ten seconds; rates are per second.</p><div class=\"scroll wide\"><table><thead><tr><th scope=\"col\">Slot</th>\
         <th scope=\"col\" class=\"n\">Done</th><th scope=\"col\" class=\"n\">Skipped</th><th scope=\"col\" class=\"n\">Retried</th><th scope=\"col\" class=\"n\">Poisoned</th>\
         <th scope=\"col\" class=\"n\">Waiting</th><th scope=\"col\" class=\"n\">Oldest</th><th scope=\"col\" class=\"n\">In flight</th><th scope=\"col\" class=\"n\">Lag p50</th>\
         <th scope=\"col\" class=\"n\">Lag p99</th></tr></thead><tbody>{rows}</tbody></table></div>",
        Text(name)
    );
    Page { title: format!("Last hour of {name}"), place: "/hour", body }.answer(visitor)
}
