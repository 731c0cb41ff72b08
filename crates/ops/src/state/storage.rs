//! The states of the storage services, and their measures of one hour.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use super::hot::PartitionLoad;
use super::partition::PartitionNames;
use super::{SLOT, SLOTS};
use evenkeel_model::AccountName;
use evenkeel_model::catalog::Catalog;
use evenkeel_telemetry::job_trace::Billed;
use evenkeel_telemetry::latency::Latencies;

/// Gives access to the measures that the layers around the storage adapters take.
pub trait StorageMeter: Send + Sync {
    fn accounts(&self) -> Vec<AccountName>;

    /// Returns the number of requests of each service of each account.
    fn tallies(&self) -> Vec<ServiceTally>;

    /// Returns the busiest partitions and queues since the previous call.
    fn busiest(&self) -> Vec<PartitionLoad>;

    /// Returns the scopes whose requests are paused because the service throttles them, the longest pause first, and
    /// then the scopes whose requests are paced, the slowest first.
    fn limited_scopes(&self) -> Vec<LimitedScope>;

    /// Returns the limit of requests per second of each account whose requests are paced.
    fn account_rate_limits(&self) -> Vec<(AccountName, f64)>;

    /// Returns the number of all requests since the program started, by their price.
    fn billed(&self) -> Billed;
}

/// A throttle scope for which requests are paused or paced.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "limited_scope")]
pub struct LimitedScope {
    /// Name of the account in the configuration.
    pub account: String,
    /// Description of the scope: a partition, a table, a queue, a container, a blob, a service or the account.
    pub scope: String,
    /// Table and PartitionKey of a partition, which are also in the description.
    #[serde(skip)]
    pub partition: Option<(String, String)>,
    /// Remaining time for which requests are paused, in seconds. After that, one request tests the scope.
    pub remaining_seconds: f64,
    /// Rate limit in units of the service (entities, messages or requests per second); null if all requests are
    /// paused.
    pub per_second: Option<f64>,
}

impl LimitedScope {
    /// Replaces names that the visitor may not see by hashes.
    pub(super) fn named(mut self, names: PartitionNames, catalog: &Catalog) -> Self {
        if let (Some((table, partition)), Ok(account)) =
            (&self.partition, AccountName::new(self.account.as_str()))
            && let Some(hash) = names.instead_of(partition, table, &account, catalog)
        {
            self.scope = format!("the partition {hash} of the table {table}");
            self.partition = None;
        }
        self
    }
}

/// Number of requests to one service of an account since the program started, by their answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceTally {
    pub account: AccountName,
    /// `table`, `queue` or `blob`.
    pub service: &'static str,
    pub ok: u64,
    /// Requests with a 4xx answer other than 429: a conflict, an unmet condition, or not found.
    pub refused: u64,
    /// Requests with the answers 429 and 503.
    pub throttled: u64,
    /// Requests with other 5xx answers, and requests without an answer.
    pub failed: u64,
    /// Total duration of the requests.
    pub took: Duration,
    /// Number of entities (or messages for a queue) that the requests read or wrote. Each request counts for at least
    /// one.
    pub entities: u64,
    /// Distribution of the durations of the requests.
    pub latencies: Latencies,
}

/// The state of one service of an account.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "storage")]
pub struct StorageNow {
    /// Name of the account in the configuration.
    pub account: String,
    /// `table`, `queue` or `blob`.
    pub service: &'static str,
    /// Requests since the program started.
    pub requests: u64,
    /// Number of throttled requests (429, 503).
    pub throttled: u64,
    /// Number of requests that failed or were not answered.
    pub failed: u64,
    /// Since when its circuit is open (RFC 3339); null if it is closed.
    pub unreachable_since: Option<String>,
    /// The last ten seconds measured.
    pub last: Option<ServiceSlot>,
}

/// The last hour of one service.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "storage_hour")]
pub struct StorageHour {
    /// Name of the account in the configuration.
    pub account: String,
    /// `table`, `queue` or `blob`.
    pub service: &'static str,
    /// Slots of ten seconds, oldest first.
    pub slots: Vec<ServiceSlot>,
}

/// Ten seconds of one service.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "storage_slot")]
pub struct ServiceSlot {
    /// Seconds since the slot began.
    pub ago_seconds: u64,
    /// Successful requests per second.
    pub ok: f64,
    /// Requests per second with a 4xx answer other than 429: a conflict, an unmet condition, or not found.
    pub refused: f64,
    /// Throttled requests per second (429, 503).
    pub throttled: f64,
    /// Requests per second that failed (other 5xx) or were not answered.
    pub failed: f64,
    /// Entities per second (messages for queues) that the requests read or wrote, at least one per request.
    pub entities: f64,
    /// Mean duration, in seconds; null without requests.
    pub mean_seconds: Option<f64>,
    /// Median duration, in seconds.
    pub p50_seconds: Option<f64>,
    /// 99th percentile of the duration, in seconds.
    pub p99_seconds: Option<f64>,
}

type Key = (AccountName, &'static str);
/// The tally of the last sample, which is subtracted from the next one, and the slots.
type ServiceSeries = (ServiceTally, VecDeque<(u64, ServiceSlot)>);

#[derive(Debug, Default)]
pub(super) struct StorageSeries(BTreeMap<Key, ServiceSeries>);

impl StorageSeries {
    pub(super) fn sampled(&mut self, number: u64, tallies: Vec<ServiceTally>) {
        for tally in tallies {
            let (last, slots) = self
                .0
                .entry((tally.account.clone(), tally.service))
                .or_insert_with(|| (zero(&tally), VecDeque::new()));
            slots.push_back((number, brought(&tally, last)));
            while slots.len() > SLOTS {
                slots.pop_front();
            }
            *last = tally;
        }
    }

    pub(super) fn now(
        &self,
        number: u64,
        mut unreachable: impl FnMut(&AccountName, &str) -> Option<String>,
    ) -> Vec<StorageNow> {
        let now = |((account, service), (last, slots)): (&Key, &ServiceSeries)| StorageNow {
            account: account.to_string(),
            service,
            requests: last.ok + last.refused + last.throttled + last.failed,
            throttled: last.throttled,
            failed: last.failed,
            unreachable_since: unreachable(account, service),
            last: slots.back().map(|slot| shown(number, slot)),
        };
        self.0.iter().map(now).collect()
    }

    pub(super) fn hour(&self, number: u64) -> Vec<StorageHour> {
        let hour = |((account, service), (_, slots)): (&Key, &ServiceSeries)| StorageHour {
            account: account.to_string(),
            service,
            slots: slots.iter().map(|slot| shown(number, slot)).collect(),
        };
        self.0.iter().map(hour).collect()
    }
}

fn zero(of: &ServiceTally) -> ServiceTally {
    let latencies = Latencies::default();
    ServiceTally {
        ok: 0,
        refused: 0,
        throttled: 0,
        failed: 0,
        took: Duration::ZERO,
        entities: 0,
        latencies,
        ..of.clone()
    }
}

#[expect(clippy::cast_precision_loss, reason = "the requests of ten seconds")]
fn brought(now: &ServiceTally, before: &ServiceTally) -> ServiceSlot {
    let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / SLOT.as_secs_f64();
    let all = |tally: &ServiceTally| tally.ok + tally.refused + tally.throttled + tally.failed;
    let requests = all(now).saturating_sub(all(before));
    let latencies = now.latencies.since(&before.latencies);
    let quantile = |share| {
        latencies
            .quantile(share)
            .map(|latency| latency.as_secs_f64())
    };
    ServiceSlot {
        ago_seconds: 0,
        ok: rate(now.ok, before.ok),
        refused: rate(now.refused, before.refused),
        throttled: rate(now.throttled, before.throttled),
        failed: rate(now.failed, before.failed),
        entities: rate(now.entities, before.entities),
        mean_seconds: (requests > 0)
            .then(|| now.took.saturating_sub(before.took).as_secs_f64() / requests as f64),
        p50_seconds: quantile(0.5),
        p99_seconds: quantile(0.99),
    }
}

fn shown(number: u64, (at, slot): &(u64, ServiceSlot)) -> ServiceSlot {
    ServiceSlot {
        ago_seconds: number.saturating_sub(*at) * SLOT.as_secs(),
        ..*slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(ok: u64, throttled: u64) -> ServiceTally {
        let took = Duration::from_millis(10 * (ok + throttled));
        let counts = evenkeel_telemetry::latency::LatencyCounts::default();
        (0..ok + throttled).for_each(|_| counts.add(Duration::from_millis(10)));
        let latencies = counts.snapshot();
        let entities = 100 * ok;
        ServiceTally {
            account: AccountName::main(),
            service: "table",
            ok,
            refused: 0,
            throttled,
            failed: 0,
            took,
            entities,
            latencies,
        }
    }

    #[test]
    fn slots_are_the_differences_between_samples() {
        let mut series = StorageSeries::default();
        series.sampled(0, vec![tally(20, 0)]);
        series.sampled(1, vec![tally(50, 10)]);
        let now = series.now(2, |_, _| None).remove(0);
        assert_eq!((now.requests, now.throttled), (60, 10));
        let last = now.last.unwrap();
        assert_eq!(
            (last.ago_seconds, last.ok, last.throttled, last.entities),
            (10, 3.0, 1.0, 300.0)
        );
        assert!((last.mean_seconds.unwrap() - 0.01).abs() < 1e-9);
        assert!(last.p99_seconds.unwrap() >= 0.01 && last.p99_seconds.unwrap() < 0.0126);
        for number in 2..500 {
            series.sampled(number, vec![tally(50, 10)]);
        }
        let hour = series.hour(500).remove(0);
        assert_eq!(
            (hour.slots.len(), hour.slots[359].mean_seconds),
            (SLOTS, None)
        );
    }
}
