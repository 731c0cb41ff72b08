//! The last hour as charts and as tables.

use askama::Template;
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::response::{Html, Response};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::chart::{Chart, Values};
use super::layout::{self, NavEntry, PageContext};
use crate::api::{Api, Problem};
use crate::numbers::{self, Counted as _, Measure as _};
use crate::state::{OpsState, QueueNow, QueueSlot, ServiceSlot, StorageHour};
use evenkeel_model::QueueName;

#[derive(Debug, Default, Deserialize)]
pub(super) struct HourQuery {
    queue: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ServiceQuery {
    account: String,
    service: String,
}

/// Charts, with a link to a page that shows the same values as a table.
#[derive(Template)]
#[template(path = "charts.html")]
pub(super) struct LastHour {
    queue: Option<QueueName>,
    charts: Vec<Chart<'static>>,
}

#[derive(Template)]
#[template(path = "queue.html")]
struct QueuePage {
    queue: String,
    now: Option<QueueNow>,
    charts: LastHour,
}

#[derive(Template)]
#[template(path = "hour.html")]
struct HourPage<'a> {
    title: &'a str,
    /// Start of the current slot.
    began: Timestamp,
    slots: Vec<QueueSlot>,
}

#[derive(Template)]
#[template(path = "storage_hour.html")]
struct StorageHourPage<'a> {
    title: &'a str,
    /// Start of the current slot.
    began: Timestamp,
    slots: &'a [ServiceSlot],
}

/// Returns the start of a slot this many seconds before the current one (RFC 3339).
fn slot_at(began: Timestamp, ago_seconds: u64) -> String {
    let ago = SignedDuration::from_secs(i64::try_from(ago_seconds).unwrap_or(i64::MAX));
    began
        .checked_sub(ago)
        .unwrap_or(began)
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string()
}

impl HourQuery {
    fn name(&self, ops_state: &OpsState) -> Result<Option<QueueName>, Problem> {
        let Some(name) = self.queue.as_deref().filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let known = ops_state.queues().iter().any(|queue| queue.queue == name);
        let queue = QueueName::new(name).ok().filter(|_| known);
        queue.map(Some).ok_or_else(|| {
            Problem::unknown(format!(
                "this worker does not receive from a queue {name:?}"
            ))
        })
    }
}

pub(super) async fn charts(
    State(api): State<Api>,
    Path(queue): Path<String>,
) -> Result<Html<String>, Problem> {
    let queue = HourQuery { queue: Some(queue) }.name(&api.ops_state)?;
    Ok(Html(queue_charts(&api.ops_state, queue).to_string()))
}

pub(super) async fn queue(
    State(api): State<Api>,
    Path(queue): Path<String>,
    Extension(context): Extension<PageContext>,
) -> Response {
    let of = HourQuery {
        queue: Some(queue.clone()),
    };
    match of.name(&api.ops_state) {
        Err(problem) => layout::problem(NavEntry::Overview, &problem, &context),
        Ok(name) => {
            let now = api
                .ops_state
                .queues()
                .into_iter()
                .find(|now| now.queue == queue);
            let title = format!("Queue {queue}");
            layout::page(
                &title,
                None,
                &QueuePage {
                    queue,
                    now,
                    charts: queue_charts(&api.ops_state, name),
                },
                &context,
            )
        }
    }
}

/// Returns the charts of the storage services and of all job queues together.
pub(super) fn all_charts(ops_state: &OpsState) -> LastHour {
    let mut sums: Vec<[f64; 4]> = Vec::new();
    for service in ops_state.storage_hour() {
        // All services are sampled at the same times. A service that was first used later has fewer slots, and these
        // are the newest.
        let missing = service.slots.len().saturating_sub(sums.len());
        sums.splice(0..0, std::iter::repeat_n([0.0; 4], missing));
        let first = sums.len() - service.slots.len();
        for (sum, slot) in sums[first..].iter_mut().zip(&service.slots) {
            for (sum, value) in
                sum.iter_mut()
                    .zip([slot.ok, slot.refused, slot.throttled, slot.failed])
            {
                *sum += value;
            }
        }
    }
    let of = |part: usize| sums.iter().map(|sum| Some(sum[part])).collect();
    let mut charts = main_charts(&ops_state.hour(None));
    charts.push(requests_chart(
        "Storage requests",
        [of(0), of(1), of(2), of(3)],
    ));
    LastHour {
        queue: None,
        charts,
    }
}

pub(super) fn service_charts(hour: &StorageHour) -> [Chart<'static>; 2] {
    let of =
        |value: fn(&ServiceSlot) -> f64| hour.slots.iter().map(|slot| Some(value(slot))).collect();
    let some = |value: fn(&ServiceSlot) -> Option<f64>| hour.slots.iter().map(value).collect();
    let requests = [
        of(|slot| slot.ok),
        of(|slot| slot.refused),
        of(|slot| slot.throttled),
        of(|slot| slot.failed),
    ];
    let latency = vec![
        ("p50", "calm", some(|slot| slot.p50_seconds)),
        ("p99", "warn", some(|slot| slot.p99_seconds)),
    ];
    [
        requests_chart("Requests", requests),
        Chart {
            title: "Latency",
            unit: "seconds",
            lines: latency,
        },
    ]
}

fn requests_chart(title: &str, [ok, refused, throttled, failed]: [Values; 4]) -> Chart<'_> {
    let lines = vec![
        ("done", "good", ok),
        ("refused", "calm", refused),
        ("throttled", "warn", throttled),
        ("failed", "bad", failed),
    ];
    Chart {
        title,
        unit: "requests/s",
        lines,
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a queue of 2^53 messages does not exist"
)]
fn main_charts(slots: &[QueueSlot]) -> Vec<Chart<'static>> {
    let of = |value: fn(&QueueSlot) -> Option<f64>| slots.iter().map(value).collect();
    let jobs = vec![
        ("done", "good", of(|slot| Some(slot.done))),
        ("skipped", "calm", of(|slot| Some(slot.skipped))),
        ("retried", "warn", of(|slot| Some(slot.retried))),
        ("poisoned", "bad", of(|slot| Some(slot.poisoned))),
    ];
    let waiting = vec![(
        "waiting",
        "calm",
        of(|slot| slot.messages.map(|messages| messages as f64)),
    )];
    let lag = vec![
        ("p50", "calm", of(|slot| slot.lag_p50_seconds)),
        ("p99", "warn", of(|slot| slot.lag_p99_seconds)),
    ];
    vec![
        Chart {
            title: "Jobs",
            unit: "jobs/s",
            lines: jobs,
        },
        Chart {
            title: "Waiting",
            unit: "messages",
            lines: waiting,
        },
        Chart {
            title: "Lag, enqueued to converged",
            unit: "seconds",
            lines: lag,
        },
    ]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of messages and seconds stay below 2^53"
)]
fn queue_charts(ops_state: &OpsState, queue: Option<QueueName>) -> LastHour {
    let slots = ops_state.hour(queue.as_ref());
    let one = |title, unit, name, value: fn(&QueueSlot) -> Option<f64>| Chart {
        title,
        unit,
        lines: vec![(name, "calm", slots.iter().map(value).collect())],
    };
    let mut charts = main_charts(&slots);
    charts.extend([
        one("Oldest visible message", "seconds", "age", |slot| {
            slot.oldest_age_seconds.map(|age| age as f64)
        }),
        one("In flight", "messages", "in flight", |slot| {
            Some(slot.in_flight as f64)
        }),
        one("Leases renewed", "renewals/s", "renewed", |slot| {
            Some(slot.renewals as f64 / 10.0)
        }),
    ]);
    LastHour { queue, charts }
}

/// The last hour as a table, the newest slot first.
pub(super) async fn table(
    State(api): State<Api>,
    Query(of): Query<HourQuery>,
    Extension(context): Extension<PageContext>,
) -> Response {
    let queue = match of.name(&api.ops_state) {
        Ok(queue) => queue,
        Err(problem) => return layout::problem(NavEntry::Overview, &problem, &context),
    };
    let title = format!(
        "Last hour of {}",
        queue.as_ref().map_or("all job queues", QueueName::as_str)
    );
    let slots = api.ops_state.hour(queue.as_ref());
    layout::page(
        &title,
        None,
        &HourPage {
            title: &title,
            began: api.ops_state.slot_began(),
            slots,
        },
        &context,
    )
}

/// The last hour of a storage service as a table, the newest slot first.
pub(super) async fn storage(
    State(api): State<Api>,
    Query(of): Query<ServiceQuery>,
    Extension(context): Extension<PageContext>,
) -> Response {
    let hours = api.ops_state.storage_hour();
    let account = api
        .settings
        .accounts
        .iter()
        .any(|account| account.name.as_str() == of.account);
    let sink = api
        .settings
        .sinks
        .iter()
        .any(|sink| sink.name.as_str() == of.account);
    if !(account && ["table", "queue", "blob"].contains(&of.service.as_str())
        || sink && of.service == "search")
    {
        return layout::problem(
            NavEntry::Storage,
            &Problem::unknown(format!(
                "there is no service {:?} of an account or sink {:?}",
                of.service, of.account
            )),
            &context,
        );
    }
    // In the first seconds after the start, nothing has been measured.
    let slots = hours
        .iter()
        .find(|hour| hour.account == of.account && hour.service == of.service)
        .map_or(&[][..], |hour| &hour.slots);
    let title = format!("Last hour of {} {}", of.account, of.service);
    layout::page(
        &title,
        Some(NavEntry::Storage),
        &StorageHourPage {
            title: &title,
            began: api.ops_state.slot_began(),
            slots,
        },
        &context,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_has_the_time_of_day() {
        let began = "2026-11-28T00:00:07.9Z".parse().unwrap();
        assert_eq!(
            [slot_at(began, 10), slot_at(began, 3_600)],
            ["2026-11-27T23:59:57Z", "2026-11-27T23:00:07Z"]
        );
        let page = HourPage {
            title: "Last hour",
            began,
            slots: Vec::new(),
        }
        .to_string();
        assert!(page.contains("UTC"), "{page}");
    }
}
