//! Tests of the stress test on a simulated account, with the published limits and in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use clap::Parser as _;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cli::output::tests::TextBuffer;
use crate::cli::{Cli, Command};
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, ServiceLimits, SimWorld};
use evenkeel_ops::state::{LimitedScope, PartitionLoad, ServiceTally, StorageMeter};
use evenkeel_rollout::migrations::testing::catalog;
use evenkeel_storage::system::{SeededRng, SystemClock};
use evenkeel_storage::{Stores, all_tables};
use evenkeel_telemetry::job_trace::Billed;

/// Interrupts the command at its request number `enough`.
#[derive(Default)]
struct Impatient {
    enough: AtomicU64,
    stop: CancellationToken,
}

#[async_trait]
impl FaultPolicy for Impatient {
    async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
        if self.enough.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.cancel();
        }
        FaultDecision::Execute
    }
}

struct NoStorage;

impl StorageMeter for NoStorage {
    fn accounts(&self) -> Vec<AccountName> {
        Vec::new()
    }
    fn tallies(&self) -> Vec<ServiceTally> {
        Vec::new()
    }
    fn busiest(&self) -> Vec<PartitionLoad> {
        Vec::new()
    }
    fn limited_scopes(&self) -> Vec<LimitedScope> {
        Vec::new()
    }
    fn account_rate_limits(&self) -> Vec<(AccountName, f64)> {
        Vec::new()
    }
    fn billed(&self) -> Billed {
        Billed::default()
    }
}

/// Runs the command. Returns the exit code, the output as JSON if there is any, and the tables that
/// remain.
async fn stressed(args: &[&str], enough: u64) -> (Exit, Value, Vec<TableName>) {
    let user = Arc::new(Impatient {
        enough: AtomicU64::new(enough),
        ..Impatient::default()
    });
    let world = SimWorld::new(
        AccountName::main(),
        Arc::new(SystemClock::new()),
        user.clone(),
    );
    world.limit(ServiceLimits::AZURE, Arc::new(SeededRng::new(1)));
    let stores = Stores::new([(AccountName::main(), world.account())].into());
    let context = Context {
        settings: Arc::default(),
        catalog: catalog(&[("name", "{RowKey}")]),
        stores: stores.clone(),
        clock: Arc::new(SystemClock::new()),
        stop: user.stop.clone(),
    };
    let cli =
        Cli::try_parse_from([&["evenkeel", "stress", "--yes", "--duration", "3s"], args].concat())
            .unwrap();
    let Command::Stress(args) = cli.command else {
        panic!("another command")
    };
    let buffer = TextBuffer::default();
    let mut out = Output::to(
        Box::new(buffer.clone()),
        Box::new(std::io::sink()),
        Format::Json,
    );
    let direct = DirectAccess {
        stores,
        meter: Arc::new(NoStorage),
    };
    let ended = stress(&args, &context, &direct, &mut out).await.unwrap();
    let left = all_tables(world.account().tables.as_ref())
        .await
        .unwrap()
        .into_iter()
        .collect();
    (
        ended,
        serde_json::from_str(&buffer.text()).unwrap_or_default(),
        left,
    )
}

#[tokio::test(start_paused = true)]
async fn one_partition_is_throttled_at_its_target_and_eight_are_not() {
    let (ended, output, left) = stressed(&[], 0).await;
    assert_eq!((ended, left), (Exit::Done, Vec::new()));
    let [one, eight] = output["loads"].as_array().unwrap().as_slice() else {
        panic!("{output}")
    };
    assert_eq!(
        (&one["verdict"], &eight["verdict"]),
        (&"throttled".into(), &"below_target".into()),
        "{output}"
    );
    assert!(
        one["throttled"].as_u64() > Some(0) && eight["throttled"] == 0 && eight["partitions"] == 8,
        "{output}"
    );
    let rate = |load: &Value| load["entities_per_second"].as_f64().unwrap();
    assert!(
        (1_700.0..=2_300.0).contains(&rate(one)),
        "about 2,000 requests a second, plus the burst that the limit allows: {output}"
    );
    assert!(
        rate(eight) > 2.0 * rate(one),
        "64 concurrent requests, each of at least 5 ms: {output}"
    );
    assert!(
        (15_000.0..=16_000.0).contains(&eight["capacity"].as_f64().unwrap()),
        "{output}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_load_ends_with_its_last_request() {
    let (_, output, _) = stressed(
        &[
            "--requests",
            "300",
            "--get",
            "100",
            "--concurrency",
            "4",
            "--peak",
            "1000",
        ],
        0,
    )
    .await;
    for load in output["loads"].as_array().unwrap() {
        assert_eq!(
            (&load["done"], &load["verdict"], &load["put"]["p99_seconds"]),
            (&300.into(), &"fits".into(), &Value::Null),
            "{output}"
        );
        assert!(
            load["get"]["p50_seconds"].as_f64() < load["get"]["p99_seconds"].as_f64(),
            "{output}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_interruption_leaves_no_table() {
    for enough in [1, 2, 5, 100, 9_000] {
        let (ended, output, left) = stressed(&[], enough).await;
        assert_eq!(
            (ended, output, left),
            (Exit::Interrupted, Value::Null, Vec::new()),
            "at request {enough}"
        );
    }
}
