//! The storage page: requests and latency, the busiest partitions, throttled scopes, and cost.

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{Html, Response};

use super::chart::Chart;
use super::hour::service_charts;
use super::layout::{self, NavEntry, PageContext};
use crate::api::{Api, names};
use crate::numbers::{Counted as _, Measure as _};
use crate::state::{Costs, HotPartition, LimitedScope, OpsState, PartitionNames, StorageHour};
use evenkeel_storage::Service;

/// Maximum number of rows of the tables.
const SHOWN: usize = 10;

#[derive(Template)]
#[template(path = "storage.html", blocks = ["now"])]
struct StoragePage {
    hottest: Vec<HotPartition>,
    holds: Vec<LimitedScope>,
    costs: Costs,
    hours: Vec<(StorageHour, [Chart<'static>; 2])>,
}

impl StoragePage {
    fn of(ops_state: &OpsState, names: PartitionNames) -> Self {
        let used: Vec<_> = ops_state
            .storage()
            .into_iter()
            .filter(|service| service.requests > 0)
            .collect();
        let known = |hour: &StorageHour| {
            used.iter()
                .any(|now| now.account == hour.account && now.service == hour.service)
        };
        let hours = ops_state
            .storage_hour()
            .into_iter()
            .filter(known)
            .map(|hour| {
                let charts = service_charts(&hour);
                (hour, charts)
            });
        Self {
            hottest: ops_state.hottest(SHOWN, names),
            holds: ops_state.limited_scopes(names),
            costs: ops_state.costs(),
            hours: hours.collect(),
        }
    }
}

pub(super) async fn page(
    State(api): State<Api>,
    Extension(context): Extension<PageContext>,
) -> Response {
    layout::page(
        "Storage",
        Some(NavEntry::Storage),
        &StoragePage::of(&api.ops_state, names(context.visitor)),
        &context,
    )
}

/// Returns the live part of the page.
pub(super) async fn part(
    State(api): State<Api>,
    Extension(context): Extension<PageContext>,
) -> Html<String> {
    Html(
        StoragePage::of(&api.ops_state, names(context.visitor))
            .as_now()
            .to_string(),
    )
}

/// Returns the name of a partition or queue.
pub(super) fn place(hot: &HotPartition) -> String {
    match &hot.partition {
        Some(partition) => format!(
            "{} / {}",
            hot.name,
            if partition.is_empty() {
                "(empty)"
            } else {
                partition
            }
        ),
        None => format!("queue {}", hot.name),
    }
}

/// Returns the number of entities per second in the last slot, for all tables of an account together.
fn entities_of_tables(hour: &StorageHour) -> Option<f64> {
    hour.slots
        .last()
        .filter(|_| hour.service == Service::Table.name())
        .map(|slot| slot.entities)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::ServiceSlot;

    #[test]
    fn the_entity_rate_of_an_account_is_that_of_its_tables_in_the_last_slot() {
        let slot = |entities| ServiceSlot {
            ago_seconds: 10,
            ok: 1.0,
            refused: 0.0,
            throttled: 0.0,
            failed: 0.0,
            entities,
            mean_seconds: None,
            p50_seconds: None,
            p99_seconds: None,
        };
        let hour = |service| StorageHour {
            account: "main".to_owned(),
            service,
            slots: vec![slot(7.0), slot(1_250.0)],
        };
        assert_eq!(entities_of_tables(&hour("table")), Some(1_250.0));
        assert_eq!(entities_of_tables(&hour("queue")), None);
        let charts = service_charts(&hour("table"));
        let costs = Costs {
            per_day: None,
            per_million_jobs: None,
            requests_per_job: None,
            services: Vec::new(),
        };
        let page = StoragePage {
            hottest: Vec::new(),
            holds: Vec::new(),
            costs,
            hours: vec![(hour("table"), charts)],
        };
        let text = page.as_now().to_string();
        assert!(
            text.contains("1,250") && text.contains("entities/s by this worker"),
            "{text}"
        );
    }
}
