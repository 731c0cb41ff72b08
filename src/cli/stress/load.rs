//! Sends the requests of a load, with many of them in flight at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::TryStreamExt as _;
use futures::stream::{StreamExt as _, iter};
use tokio::task::JoinSet;

use super::layout::StressLayout;
use evenkeel_model::TableName;
use evenkeel_storage::{Clock, ErrorClass, StoreError, TableOperation, TableStore};
use evenkeel_telemetry::latency::{Latencies, LatencyCounts};

/// Pause of a sender after a throttled request, if the service does not request a certain pause.
const PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of transactions in flight while the entities are loaded.
const LOADING: usize = 16;

/// Limits of a load, and its mix of reads and writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadSettings {
    pub(super) concurrency: usize,
    /// Number of reads per hundred requests.
    pub(super) get: u64,
    pub(super) requests: u64,
    pub(super) duration: Duration,
}

#[derive(Debug)]
pub(super) struct LoadAnswers {
    /// Successful requests. Each is for one entity.
    pub(super) done: u64,
    /// Successful requests to the hottest partition, for each second.
    pub(super) hottest_by_second: Vec<u64>,
    /// Throttled requests (429, 503).
    pub(super) throttled: u64,
    /// Requests that had no answer, or that the service failed to execute.
    pub(super) failed: u64,
    /// Durations of the successful reads.
    pub(super) gets: Latencies,
    /// Durations of the successful writes.
    pub(super) puts: Latencies,
    /// Time from the first request to the last answer.
    pub(super) took: Duration,
}

pub(super) async fn fill(
    tables: &dyn TableStore,
    table: &TableName,
    layout: &StressLayout,
) -> Result<(), StoreError> {
    let transactions = iter(layout.transactions()).map(Ok);
    transactions
        .try_for_each_concurrent(LOADING, async |(pk, operations)| {
            tables.transact(table, &pk, &operations).await.map(drop)
        })
        .await
}

struct RunningLoad {
    tables: Arc<dyn TableStore>,
    table: TableName,
    layout: StressLayout,
    settings: LoadSettings,
    clock: Arc<dyn Clock>,
    began: Duration,
    sent: AtomicU64,
    done: AtomicU64,
    hottest_by_second: Vec<AtomicU64>,
    throttled: AtomicU64,
    failed: AtomicU64,
    gets: LatencyCounts,
    puts: LatencyCounts,
}

/// Sends the requests of a load. Also returns the layout. The load ends early only after a
/// permanent failure.
pub(super) async fn run(
    tables: &Arc<dyn TableStore>,
    table: &TableName,
    layout: StressLayout,
    settings: LoadSettings,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<(StressLayout, LoadAnswers)> {
    let seconds = usize::try_from(settings.duration.as_secs()).unwrap_or(0) + 1;
    let load = Arc::new(RunningLoad {
        tables: Arc::clone(tables),
        table: table.clone(),
        layout,
        settings,
        clock: Arc::clone(clock),
        began: clock.monotonic(),
        sent: AtomicU64::new(0),
        done: AtomicU64::new(0),
        hottest_by_second: std::iter::repeat_with(AtomicU64::default)
            .take(seconds)
            .collect(),
        throttled: AtomicU64::new(0),
        failed: AtomicU64::new(0),
        gets: LatencyCounts::default(),
        puts: LatencyCounts::default(),
    });
    let mut senders = JoinSet::new();
    for _ in 0..settings.concurrency {
        senders.spawn(Arc::clone(&load).send());
    }
    while let Some(ended) = senders.join_next().await {
        ended??;
    }
    let took = load.passed();
    let counted = |count: &AtomicU64| count.load(Ordering::Relaxed);
    let full_seconds = usize::try_from(took.as_secs())
        .unwrap_or(0)
        .clamp(1, seconds);
    let answers = LoadAnswers {
        done: counted(&load.done),
        hottest_by_second: load.hottest_by_second[..full_seconds]
            .iter()
            .map(counted)
            .collect(),
        throttled: counted(&load.throttled),
        failed: counted(&load.failed),
        gets: load.gets.snapshot(),
        puts: load.puts.snapshot(),
        took,
    };
    let load = Arc::into_inner(load)
        .ok_or_else(|| anyhow::anyhow!("a sender of the load is still running"))?;
    Ok((load.layout, answers))
}

impl RunningLoad {
    fn passed(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.began)
    }

    /// The number of the next request; `None` if all requests were sent.
    fn next(&self) -> Option<u64> {
        if self.passed() >= self.settings.duration {
            return None;
        }
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        (number < self.settings.requests).then_some(number)
    }

    async fn send(self: Arc<Self>) -> Result<(), StoreError> {
        while let Some(number) = self.next() {
            // The request is chosen by its number, so every run sends the same requests, in a
            // scattered order.
            let drawn = scatter(number);
            let entity = &self.layout.entities
                [usize::try_from(drawn >> 32).unwrap_or(0) % self.layout.entities.len()];
            let reads = drawn % 100 < self.settings.get;
            let sent = self.clock.monotonic();
            let answer = if reads {
                self.tables
                    .get(&self.table, &entity.key, None)
                    .await
                    .map(drop)
            } else {
                self.tables
                    .apply(
                        &self.table,
                        &TableOperation::InsertOrReplace(entity.clone()),
                    )
                    .await
                    .map(drop)
            };
            let took = self.clock.monotonic().saturating_sub(sent);
            match answer {
                Ok(()) => {
                    self.done.fetch_add(1, Ordering::Relaxed);
                    if reads { &self.gets } else { &self.puts }.add(took);
                    let second = usize::try_from(self.passed().as_secs())
                        .ok()
                        .and_then(|second| self.hottest_by_second.get(second));
                    if let Some(second) = second.filter(|_| entity.key.pk == self.layout.hottest) {
                        second.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(error) if error.class.is_transient() => {
                    let throttled = matches!(error.class, ErrorClass::Throttled { .. });
                    if throttled {
                        &self.throttled
                    } else {
                        &self.failed
                    }
                    .fetch_add(1, Ordering::Relaxed);
                    let left = self.settings.duration.saturating_sub(self.passed());
                    tokio::time::sleep(error.class.retry_after().unwrap_or(PAUSE).min(left)).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Scatters the bits of a number (the finalizer of SplitMix64).
const fn scatter(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
