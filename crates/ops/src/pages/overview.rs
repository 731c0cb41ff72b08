//! The first page: the state of the program.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;

use super::chart::Spark;
use super::layout::{self, NavEntry, PageContext};
use super::live::Live;
use super::storage;
use crate::api::{Status, status_of};
use crate::numbers::{self, Counted as _, Measure as _};
use crate::state::{HealthState, OpsState, PartitionNames, QueueNow, QueueSlot, ViewNow};

/// Maximum number of rows in each table. Other pages show the remaining rows.
const ROWS: usize = 20;
/// Number of slots in the small chart next to a number. They cover ten minutes.
const SPARKS: usize = 60;

/// The live parts are rendered once for all visitors, so they contain only names that every visitor may see.
pub(super) const NAMES: PartitionNames = PartitionNames::OfPrimaries;

/// The page. Each block of the template is also rendered separately, to update its part of an open page.
#[derive(Template)]
#[template(path = "overview.html", blocks = ["headline", "figures", "queues", "storage", "views", "tasks"])]
struct Overview<'a> {
    status: &'a Status,
    /// Number of job queues.
    jobs: u64,
    poisoned: u64,
    tiles: Vec<Tile>,
    /// All queues: first the job queues, then the recheck queues.
    queues: Vec<&'a QueueNow>,
    views: &'a [ViewNow],
    /// Number of tasks that do not work.
    ill: usize,
    charts: &'a str,
}

/// A number with its values of the last ten minutes.
struct Tile {
    name: &'static str,
    value: String,
    spark: Option<Spark>,
}

impl<'a> Overview<'a> {
    fn of(ops_state: &OpsState, status: &'a Status, charts: &'a str) -> Self {
        let (jobs, rechecks): (Vec<_>, Vec<_>) =
            status.queues.iter().partition(|queue| queue.kind == "jobs");
        let poisoned = status.poisoned.values().sum();
        Self {
            jobs: jobs.len() as u64,
            poisoned,
            tiles: tiles(ops_state, status, &jobs, poisoned),
            queues: jobs.into_iter().chain(rechecks).take(ROWS).collect(),
            views: &status.views[..status.views.len().min(ROWS)],
            ill: status.tasks.iter().filter(|task| !task.is_well()).count(),
            status,
            charts,
        }
    }
}

pub(super) async fn page(
    State(live): State<Live>,
    Extension(context): Extension<PageContext>,
) -> Response {
    let status = status_of(&live.api.ops_state, NAMES);
    layout::page(
        &status.headline.text,
        Some(NavEntry::Overview),
        &Overview::of(&live.api.ops_state, &status, &live.charts()),
        &context,
    )
}

/// The CSS class of a state.
fn tone(state: HealthState) -> &'static str {
    match state {
        HealthState::Consistent => "good",
        HealthState::Acknowledged => "calm",
        HealthState::CatchingUp | HealthState::Starting => "busy",
        HealthState::Attention => "warn",
        HealthState::Stuck | HealthState::Unreachable => "bad",
    }
}

/// Returns the live parts of the page, each with its id.
pub(super) fn sections(ops_state: &OpsState, status: &Status) -> [(&'static str, String); 6] {
    let page = Overview::of(ops_state, status, "");
    [
        ("headline", page.as_headline().to_string()),
        ("figures", page.as_figures().to_string()),
        ("queues", page.as_queues().to_string()),
        ("storage", page.as_storage().to_string()),
        ("views", page.as_views().to_string()),
        ("tasks", page.as_tasks().to_string()),
    ]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of messages stay below 2^53"
)]
fn tiles(ops_state: &OpsState, status: &Status, jobs: &[&QueueNow], poisoned: u64) -> Vec<Tile> {
    let hour = ops_state.hour(None);
    let recent = &hour[hour.len().saturating_sub(SPARKS)..];
    let waiting: Option<u64> = jobs.iter().map(|queue| queue.messages).sum();
    let oldest = jobs
        .iter()
        .filter_map(|queue| queue.oldest_age_seconds)
        .max();
    let slowest = jobs
        .iter()
        .filter_map(|queue| queue.lag_p99_seconds)
        .reduce(f64::max);
    let flying: usize = jobs.iter().map(|queue| queue.in_flight).sum();
    let pace: f64 = jobs.iter().map(|queue| queue.finished_per_second).sum();
    let last = status
        .storage
        .iter()
        .filter_map(|service| service.last.as_ref());
    let requests: f64 = last
        .map(|last| last.ok + last.refused + last.throttled + last.failed)
        .sum();
    let tile = |name, value, of: fn(&QueueSlot) -> Option<f64>| Tile {
        name,
        value,
        spark: Some(Spark(recent.iter().map(of).collect())),
    };
    vec![
        tile("Waiting", waiting.grouped(), |slot| {
            slot.messages.map(|messages| messages as f64)
        }),
        tile("Oldest visible", numbers::age(oldest, waiting), |slot| {
            slot.oldest_age_seconds.map(|age| age as f64)
        }),
        tile("In flight", flying.grouped(), |slot| {
            Some(slot.in_flight as f64)
        }),
        tile("Jobs per second", pace.rate(), |slot| {
            Some(slot.done + slot.skipped)
        }),
        tile("Lag p99, 5 min", slowest.seconds(), |slot| {
            slot.lag_p99_seconds
        }),
        tile("Poisoned", poisoned.grouped(), |slot| Some(slot.poisoned)),
        Tile {
            name: "Requests/s",
            value: requests.rate(),
            spark: None,
        },
        Tile {
            name: "Cost per day",
            value: status.costs.per_day.dollars(),
            spark: None,
        },
    ]
}
