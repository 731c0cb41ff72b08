//! The rate limits and latencies of a simulated account: Azure's published targets as token buckets.
//!
//! A request is rejected with 503 `ServerBusy` while the bucket of its partition, queue, blob or account is empty. The weight of a request
//! is often known only after its execution (scanned rows, received messages), so a bucket may fall below zero and then stays empty for
//! longer. Rejected requests have no weight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::fault_policy::OperationInfo;
use evenkeel_model::{BlobName, ContainerName, Key, QueueName, TableName};
use evenkeel_storage::{Resource, Rng};

/// Size of a bucket, as the time in which it fills.
const BURST: Duration = Duration::from_millis(250);
/// Maximum latency as a multiple of the median.
const SLOWEST: f64 = 40.0;

/// Rates per second and latencies of a simulated account.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ServiceLimits {
    /// Entities of one partition. Each operation of a transaction counts, and each row that a query scans.
    pub partition: f64,
    /// Messages of one queue that are put, received, updated or deleted.
    pub queue: f64,
    /// Requests to one blob.
    pub blob: f64,
    /// Requests to the account.
    pub account: f64,
    /// Time in which the rate of a new table doubles. All partitions of a table share this rate, which begins with that of one
    /// partition (one server). If `None`, each partition has its own server from the beginning.
    pub spreads: Option<Duration>,
    /// Median latency.
    pub median: Duration,
    /// 99th percentile of the latency.
    pub p99: Duration,
}

impl ServiceLimits {
    /// Azure's published targets, and the latencies of a machine in the same region.
    pub const AZURE: Self = Self {
        partition: 2_000.0,
        queue: 2_000.0,
        blob: 500.0,
        account: 20_000.0,
        spreads: None,
        median: Duration::from_millis(5),
        p99: Duration::from_millis(30),
    };
}

/// The load of a limited account so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ServiceLoad {
    /// Requests, including rejected ones.
    pub requests: u64,
    /// Requests that were rejected with 503.
    pub refused: u64,
    /// Messages of the busiest queue.
    pub queue: u64,
    /// Entities of the busiest partition.
    pub partition: u64,
}

/// The number of rows that a query scanned in each partition.
#[derive(Debug, Default)]
pub(super) struct ScannedRows(Vec<(Key, u32)>);

impl ScannedRows {
    pub(super) fn row(&mut self, pk: &Key) {
        match self.0.last_mut() {
            Some((last, rows)) if last == pk => *rows += 1,
            _ => self.0.push((pk.clone(), 1)),
        }
    }
}

/// The weight of a request, if it is known only after the request was executed.
#[derive(Debug)]
pub(super) enum Weight {
    ScannedRows(ScannedRows),
    Messages(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum LimitScope {
    Account,
    /// All partitions of a new table.
    Table(String),
    Partition(String, Key),
    Queue(QueueName),
    Blob(ContainerName, BlobName),
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    born: Duration,
    at: Duration,
    level: f64,
    /// The sum of all weights.
    taken: u64,
}

impl Bucket {
    const fn full(rate: f64, now: Duration) -> Self {
        Self {
            born: now,
            at: now,
            level: rate * BURST.as_secs_f64(),
            taken: 0,
        }
    }

    fn fill(&mut self, rate: f64, now: Duration) {
        let filled = rate.mul_add(now.saturating_sub(self.at).as_secs_f64(), self.level);
        (self.level, self.at) = (filled.min(rate * BURST.as_secs_f64()), now);
    }
}

pub(super) struct Limiter {
    limits: ServiceLimits,
    rng: Arc<dyn Rng>,
    buckets: BTreeMap<LimitScope, Bucket>,
    load: ServiceLoad,
}

impl Limiter {
    pub(super) fn new(limits: ServiceLimits, rng: Arc<dyn Rng>) -> Self {
        Self {
            limits,
            rng,
            buckets: BTreeMap::new(),
            load: ServiceLoad::default(),
        }
    }

    pub(super) fn load(&self) -> ServiceLoad {
        let busiest = |kind: fn(&LimitScope) -> bool| {
            self.buckets
                .iter()
                .filter(|(scope, _)| kind(scope))
                .map(|(_, bucket)| bucket.taken)
                .max()
        };
        let queue = busiest(|scope| matches!(scope, LimitScope::Queue(_))).unwrap_or_default();
        let partition =
            busiest(|scope| matches!(scope, LimitScope::Partition(..))).unwrap_or_default();
        ServiceLoad {
            queue,
            partition,
            ..self.load
        }
    }

    /// A random latency from the log-logistic distribution with this median and 99th percentile.
    pub(super) fn latency(&self) -> Duration {
        let ServiceLimits { median, p99, .. } = self.limits;
        let shape = (p99.as_secs_f64() / median.as_secs_f64()).ln() / 99_f64.ln();
        let rank = self.rng.unit();
        median.mul_f64((rank / (1.0 - rank)).powf(shape).min(SLOWEST))
    }

    pub(super) fn admit(&mut self, what: &Resource, now: Duration) -> bool {
        self.load.requests += 1;
        let admitted = self
            .scopes(what)
            .into_iter()
            .all(|scope| self.bucket(scope, now).level >= 1.0);
        self.load.refused += u64::from(!admitted);
        admitted
    }

    /// Takes the weight of an executed request from its buckets.
    pub(super) fn charge(&mut self, info: &OperationInfo, weight: Option<Weight>, now: Duration) {
        let named = u32::try_from(info.rows.len().max(1)).unwrap_or(u32::MAX);
        match (&info.what, weight) {
            (
                Resource::Table(table) | Resource::Partition(table, _),
                Some(Weight::ScannedRows(ScannedRows(rows))),
            ) if !rows.is_empty() => {
                for (pk, rows) in rows {
                    self.take(&Resource::Partition(table.clone(), pk), rows, now);
                }
            }
            (what, Some(Weight::Messages(messages))) => self.take(
                what,
                u32::try_from(messages.max(1)).unwrap_or(u32::MAX),
                now,
            ),
            (what, _) => self.take(what, named, now),
        }
        self.bucket(LimitScope::Account, now).level -= 1.0;
    }

    fn take(&mut self, what: &Resource, weight: u32, now: Duration) {
        for scope in self
            .scopes(what)
            .into_iter()
            .filter(|scope| *scope != LimitScope::Account)
        {
            let bucket = self.bucket(scope, now);
            bucket.level -= f64::from(weight);
            bucket.taken += u64::from(weight);
        }
    }

    fn scopes(&self, what: &Resource) -> Vec<LimitScope> {
        let spreads = self.limits.spreads.is_some();
        let table = |table: &TableName| table.canonical().into_owned();
        let of_table = |name: &TableName| spreads.then(|| LimitScope::Table(table(name)));
        let (whole, own) = match what {
            Resource::Partition(name, pk) => (
                of_table(name),
                Some(LimitScope::Partition(table(name), pk.clone())),
            ),
            Resource::Entity(name, key) => (
                of_table(name),
                Some(LimitScope::Partition(table(name), key.pk.clone())),
            ),
            Resource::Table(name) => (of_table(name), None),
            Resource::Queue(queue) | Resource::Message(queue, _) => {
                (None, Some(LimitScope::Queue(queue.clone())))
            }
            Resource::Blob(container, blob) => (
                None,
                Some(LimitScope::Blob(container.clone(), blob.clone())),
            ),
            Resource::Service(_)
            | Resource::Container(_)
            | Resource::File(..)
            | Resource::Collection(_)
            | Resource::Document(..) => (None, None),
        };
        [Some(LimitScope::Account), whole, own]
            .into_iter()
            .flatten()
            .collect()
    }

    /// A bucket, refilled up to now.
    fn bucket(&mut self, scope: LimitScope, now: Duration) -> &mut Bucket {
        let ServiceLimits {
            partition,
            queue,
            blob,
            account,
            spreads,
            ..
        } = self.limits;
        let constant = match scope {
            LimitScope::Account => account,
            LimitScope::Table(_) | LimitScope::Partition(..) => partition,
            LimitScope::Queue(_) => queue,
            LimitScope::Blob(..) => blob,
        };
        let doubles = spreads.filter(|_| matches!(scope, LimitScope::Table(_)));
        let bucket = self
            .buckets
            .entry(scope)
            .or_insert_with(|| Bucket::full(constant, now));
        let age = now.saturating_sub(bucket.born).as_secs_f64();
        let rate = doubles.map_or(constant, |doubles| {
            (constant * (age / doubles.as_secs_f64()).exp2()).min(1e9)
        });
        bucket.fill(rate, now);
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::EntityKey;
    use evenkeel_storage::system::SeededRng;

    fn limiter(limits: ServiceLimits) -> Limiter {
        Limiter::new(limits, Arc::new(SeededRng::new(1)))
    }

    fn entity(pk: &str) -> Resource {
        Resource::Entity(
            TableName::new("Employees").unwrap(),
            EntityKey::new(pk, "r").unwrap(),
        )
    }

    fn info(what: Resource, rows: usize) -> OperationInfo {
        let rows = (0..rows)
            .map(|row| EntityKey::new("p", row.to_string()).unwrap())
            .collect();
        OperationInfo {
            number: 0,
            name: "",
            what,
            writes: false,
            rows,
        }
    }

    /// Sends 100,000 requests in ten seconds. Returns how many are executed.
    fn executed(
        limiter: &mut Limiter,
        what: &Resource,
        rows: usize,
        weight: impl Fn() -> Option<Weight>,
    ) -> u32 {
        let mut executed = 0;
        for number in 0..100_000_u32 {
            let now = Duration::from_micros(u64::from(number) * 100);
            if limiter.admit(what, now) {
                executed += 1;
                limiter.charge(&info(what.clone(), rows), weight(), now);
            }
        }
        executed
    }

    #[test]
    fn partitions_queues_blobs_and_the_account_have_the_published_rates() {
        let queue = Resource::Queue(QueueName::new("jobs").unwrap());
        let blob = Resource::Blob(
            ContainerName::new("photos").unwrap(),
            BlobName::new("one").unwrap(),
        );
        let scan = || {
            let mut scanned = ScannedRows::default();
            (0..50).for_each(|_| scanned.row(&Key::new("p").unwrap()));
            Some(Weight::ScannedRows(scanned))
        };
        // Ten seconds plus a full bucket.
        let partition =
            Resource::Partition(TableName::new("Employees").unwrap(), Key::new("p").unwrap());
        let azure = || limiter(ServiceLimits::AZURE);
        let narrow = ServiceLimits {
            account: 1_000.0,
            ..ServiceLimits::AZURE
        };
        let found = [
            (executed(&mut azure(), &entity("p"), 0, || None), 20_500),
            (executed(&mut azure(), &partition, 100, || None), 205),
            (executed(&mut azure(), &partition, 0, scan), 410),
            (
                executed(&mut azure(), &queue, 0, || Some(Weight::Messages(32))),
                641,
            ),
            (executed(&mut azure(), &blob, 0, || None), 5_125),
            (
                executed(&mut limiter(narrow), &entity("p"), 0, || None),
                10_250,
            ),
        ];
        assert!(
            found
                .iter()
                .all(|(executed, expected)| executed.abs_diff(*expected) <= 1),
            "{found:?}"
        );
    }

    #[test]
    fn partitions_of_a_new_table_share_the_rate_of_one_until_they_are_spread() {
        let mut limiter = limiter(ServiceLimits {
            spreads: Some(Duration::from_secs(5)),
            ..ServiceLimits::AZURE
        });
        let partitions: Vec<Resource> = (0..10).map(|pk| entity(&pk.to_string())).collect();
        let mut executed = [0_u32; 10];
        for number in 0..100_000_usize {
            let now = Duration::from_micros(number as u64 * 100);
            let what = &partitions[number % 10];
            if limiter.admit(what, now) {
                limiter.charge(&info(what.clone(), 0), None, now);
                executed[number / 10_000] += 1;
            }
        }
        assert!(
            (1_900..2_700).contains(&executed[0]) && (6_500..8_000).contains(&executed[9]),
            "{executed:?}"
        );
    }

    #[test]
    fn latencies_have_the_median_and_the_99th_percentile() {
        let limiter = limiter(ServiceLimits::AZURE);
        let mut took: Vec<Duration> = (0..10_000).map(|_| limiter.latency()).collect();
        took.sort_unstable();
        assert!(
            (4.7..5.3).contains(&(took[5_000].as_secs_f64() * 1e3)),
            "{:?}",
            took[5_000]
        );
        assert!(
            (26.0..34.0).contains(&(took[9_900].as_secs_f64() * 1e3)),
            "{:?}",
            took[9_900]
        );
    }
}
