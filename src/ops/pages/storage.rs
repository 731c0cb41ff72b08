//! The stores: requests and latency, the busiest partitions, withheld lanes, and cost.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{Html, Response};

use super::chart::Chart;
use super::hour::service_charts;
use super::layout;
use super::words::{Counted as _, Measure as _};
use crate::ops::api::Api;
use crate::ops::board::{Board, Costs, Hold, HotPartition, StorageHour};
use crate::ops::guard::Visitor;

/// Partitions and holds that are shown.
const SHOWN: usize = 10;

#[derive(Template)]
#[template(path = "storage.html", blocks = ["now"])]
struct StoragePage {
    hottest: Vec<HotPartition>,
    holds: Vec<Hold>,
    costs: Costs,
    hours: Vec<(StorageHour, [Chart<'static>; 2])>,
}

impl StoragePage {
    fn of(board: &Board) -> Self {
        let asked: Vec<_> = board.storage().into_iter().filter(|service| service.requests > 0).collect();
        let known = |hour: &StorageHour| asked.iter().any(|now| now.account == hour.account && now.service == hour.service);
        let hours = board.storage_hour().into_iter().filter(known).map(|hour| {
            let charts = service_charts(&hour);
            (hour, charts)
        });
        Self { hottest: board.hottest(SHOWN), holds: board.holds(), costs: board.costs(), hours: hours.collect() }
    }
}

pub(super) async fn page(State(api): State<Api>, Extension(visitor): Extension<Visitor>) -> Response {
    layout::page("Storage", "/storage", &StoragePage::of(&api.board), visitor)
}

/// The part of the page that changes.
pub(super) async fn part(State(api): State<Api>) -> Html<String> {
    Html(StoragePage::of(&api.board).as_now().to_string())
}

/// A partition or queue in words.
pub(super) fn place(hot: &HotPartition) -> String {
    match &hot.partition {
        Some(partition) => format!("{} / {}", hot.name, if partition.is_empty() { "(empty)" } else { partition }),
        None => format!("queue {}", hot.name),
    }
}
