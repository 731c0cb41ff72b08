//! The busiest partitions and queues of the last hour.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::advice::advice;
use super::partition::PartitionNames;
use super::{SLOT, SLOTS};
use evenkeel_model::AccountName;
use evenkeel_model::catalog::Catalog;

/// Target of one partition in entities of 1 KiB per second, and of one queue in messages per second (Azure: scalability
/// targets).
pub const TARGET: f64 = 2_000.0;
/// Maximum number of partitions and queues that are remembered.
const KEPT: usize = 256;
/// Advice is given if the load reaches this share of the target, or if 1% of the requests are throttled.
const BUSY: f64 = 0.5;
const REFUSED: f64 = 0.01;

/// Number of requests to one partition or queue since the last sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartitionLoad {
    pub account: AccountName,
    pub name: String,
    /// The PartitionKey; `None` for a queue.
    pub partition: Option<String>,
    /// Number of entities, or of messages for a queue.
    pub entities: u64,
    pub requests: u64,
    /// Requests that were throttled.
    pub throttled: u64,
}

/// A busy partition or queue.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "hot_partition")]
pub struct HotPartition {
    /// Name of the account in the configuration.
    pub account: String,
    /// The table or queue.
    pub name: String,
    /// The partition; null for a queue.
    pub partition: Option<String>,
    /// Whether `partition` is a hash instead of the key. If views write rows to a table, its keys can contain
    /// properties of entities. A token without the right to see contents gets only hashes of such keys.
    pub partition_withheld: bool,
    /// Entities per second (messages for a queue) in the busiest ten seconds of the last hour. Queries count the rows
    /// that they found.
    pub peak_per_second: f64,
    /// Time since that peak, in seconds.
    pub peak_ago_seconds: u64,
    /// Entities per second in the last ten seconds measured.
    pub last_per_second: f64,
    /// The peak as a share of the target of 2,000 per second.
    pub share_of_target: f64,
    /// Share of its requests that were throttled (429, 503).
    pub throttled_share: f64,
    /// The advised change; null if there is enough room.
    pub advice: Option<String>,
}

type PartitionId = (AccountName, String, Option<String>);

/// The busiest partitions and queues of the last hour.
#[derive(Debug, Default)]
pub(super) struct HotSeries(BTreeMap<PartitionId, Peak>);

#[derive(Debug, Clone, Copy)]
struct Peak {
    most: f64,
    at: u64,
    last: f64,
    seen: u64,
    requests: u64,
    throttled: u64,
}

impl HotSeries {
    /// Records the busiest partitions and queues of a slot that has ended.
    #[expect(clippy::cast_precision_loss, reason = "the requests of ten seconds")]
    pub(super) fn sampled(&mut self, number: u64, busiest: Vec<PartitionLoad>) {
        self.0.retain(|_, peak| peak.seen + SLOTS as u64 > number);
        for busy in busiest {
            let last = busy.entities as f64 / SLOT.as_secs_f64();
            let peak = self
                .0
                .entry((busy.account, busy.name, busy.partition))
                .or_insert(Peak {
                    most: 0.0,
                    at: number,
                    last,
                    seen: number,
                    requests: 0,
                    throttled: 0,
                });
            // A peak that is more than an hour old is replaced by any later value.
            if last >= peak.most || peak.at + SLOTS as u64 <= number {
                (peak.most, peak.at) = (last, number);
            }
            (peak.last, peak.seen) = (last, number);
            peak.requests += busy.requests;
            peak.throttled += busy.throttled;
        }
        while self.0.len() > KEPT {
            let coldest = self
                .0
                .iter()
                .min_by(|(_, one), (_, other)| one.heat().total_cmp(&other.heat()));
            let Some(place) = coldest.map(|(place, _)| place.clone()) else {
                break;
            };
            self.0.remove(&place);
        }
    }

    /// Returns the hottest partitions and queues. Names that the visitor may not see are hidden.
    pub(super) fn now(
        &self,
        number: u64,
        catalog: &Catalog,
        names: PartitionNames,
        most: usize,
    ) -> Vec<HotPartition> {
        let mut peaks: Vec<(&PartitionId, &Peak)> = self.0.iter().collect();
        peaks.sort_by(|(_, one), (_, other)| other.heat().total_cmp(&one.heat()));
        peaks
            .into_iter()
            .take(most)
            .map(|(place, peak)| shown(place, peak, number, catalog, names))
            .collect()
    }
}

impl Peak {
    #[expect(clippy::cast_precision_loss, reason = "the requests of an hour")]
    fn throttled_share(&self) -> f64 {
        self.throttled as f64 / self.requests.max(1) as f64
    }

    /// Sort key: a throttled partition or queue is hotter than every other.
    fn heat(&self) -> f64 {
        self.most + if self.throttled > 0 { 1e9 } else { 0.0 }
    }
}

fn shown(
    (account, name, partition): &PartitionId,
    peak: &Peak,
    number: u64,
    catalog: &Catalog,
    names: PartitionNames,
) -> HotPartition {
    let hash = partition
        .as_ref()
        .and_then(|partition| names.instead_of(partition, name, account, catalog));
    let share = peak.most / TARGET;
    let busy = share >= BUSY || peak.throttled_share() >= REFUSED;
    HotPartition {
        account: account.to_string(),
        name: name.clone(),
        partition_withheld: hash.is_some(),
        partition: hash.or_else(|| partition.clone()),
        peak_per_second: peak.most,
        peak_ago_seconds: number.saturating_sub(peak.at) * SLOT.as_secs(),
        last_per_second: if peak.seen + 1 >= number {
            peak.last
        } else {
            0.0
        },
        share_of_target: share,
        throttled_share: peak.throttled_share(),
        advice: busy.then(|| advice(catalog, account, name, partition.as_deref(), peak.most)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(partition: &str, entities: u64, throttled: u64) -> PartitionLoad {
        let partition = Some(partition.to_owned());
        PartitionLoad {
            account: AccountName::main(),
            name: "Employees".to_owned(),
            partition,
            entities,
            requests: 100,
            throttled,
        }
    }

    #[test]
    fn a_peak_is_kept_for_an_hour_and_throttled_partitions_come_first() {
        let mut series = HotSeries::default();
        series.sampled(
            10,
            vec![
                busy("calm", 1_000, 0),
                busy("hot", 15_000, 0),
                busy("refused", 100, 50),
            ],
        );
        series.sampled(11, vec![busy("hot", 5_000, 0)]);
        let catalog = &Catalog::default();
        let now = series.now(12, catalog, PartitionNames::Whole, 10);
        let names: Vec<_> = now
            .iter()
            .map(|hot| hot.partition.as_deref().unwrap())
            .collect();
        assert_eq!(names, ["refused", "hot", "calm"]);
        assert_eq!(
            (
                now[1].peak_per_second,
                now[1].peak_ago_seconds,
                now[1].last_per_second
            ),
            (1_500.0, 20, 500.0)
        );
        assert!(
            (now[1].share_of_target - 0.75).abs() < 1e-9
                && (now[0].throttled_share - 0.5).abs() < 1e-9
        );
        assert!(now[0].advice.is_some() && now[1].advice.is_some() && now[2].advice.is_none());
        series.sampled(370, vec![busy("hot", 100, 0)]);
        let later = series.now(371, catalog, PartitionNames::Whole, 10);
        assert_eq!(
            (later.len(), later[0].peak_per_second),
            (1, 10.0),
            "an hour later the peak is no longer shown"
        );
        // The table of this partition is not in the catalog.
        let withheld = series.now(371, &Catalog::default(), PartitionNames::OfPrimaries, 10);
        assert!(withheld[0].partition_withheld && !later[0].partition_withheld);
        assert_ne!(withheld[0].partition.as_deref(), Some("hot"));
    }

    #[test]
    fn memory_is_bounded_and_the_hottest_stay() {
        let mut series = HotSeries::default();
        for number in 0..1_000_u64 {
            series.sampled(1, vec![busy(&number.to_string(), number, 0)]);
        }
        assert_eq!(series.0.len(), KEPT);
        assert_eq!(
            series.now(2, &Catalog::default(), PartitionNames::Whole, 1)[0]
                .partition
                .as_deref(),
            Some("999")
        );
    }
}
