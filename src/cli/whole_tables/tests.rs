//! Commands about whole tables that are interrupted, on a simulated account in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::adapters::sim::{FaultDecision, FaultPolicy, OperationInfo};
use crate::adapters::system::{SeededChance, SystemClock};
use crate::cli::audit::{AuditArgs, audit};
use crate::cli::backfill::{BackfillArgs, backfill};
use crate::cli::context::tests::settings;
use crate::cli::output::tests::Paper;
use crate::cli::{Context, Exit, Format, Output, Showing};
use crate::migrations::tests::{catalog, migrator, up, world};
use crate::model::{AccountName, Entity, EntityKey, QueueName, TableName};
use crate::ports::{Stores, TableOperation};
use crate::reconcile::{Engine, EngineParts};
use crate::settings::QueueSettings;

/// Primaries in the table.
const PRIMARIES: u64 = 400;

/// Each operation takes twenty milliseconds, and at one of them the user has seen enough.
struct Impatient {
    stop: CancellationToken,
    at: AtomicU64,
}

#[async_trait]
impl FaultPolicy for Impatient {
    async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
        tokio::time::sleep(Duration::from_millis(20)).await;
        if self.at.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stop.cancel();
        }
        FaultDecision::Execute
    }
}

/// The context of a command, and its standard output and standard error.
struct Stage {
    faults: Arc<Impatient>,
    context: Context,
    engine: Engine,
    texts: [Paper; 2],
}

impl Stage {
    async fn new() -> Self {
        let stop = CancellationToken::new();
        let faults = Arc::new(Impatient { stop: stop.clone(), at: AtomicU64::new(0) });
        let world = world(faults.clone());
        let catalog = catalog(&[("name", "{RowKey}")]);
        up(&migrator(&world, &catalog)).await;
        let employees = TableName::new("Employees").unwrap();
        for number in 0..PRIMARIES {
            let row = Entity::new(EntityKey::new("p", format!("{number:04}")).unwrap());
            world.account().tables.apply(&employees, &TableOperation::Insert(row)).await.unwrap();
        }
        let queue = QueueSettings::plain(QueueName::new("jobs").unwrap());
        let stores = Stores::new([(AccountName::main(), world.account())].into());
        let clock = Arc::new(SystemClock::new());
        let parts = EngineParts {
            stores: stores.clone(),
            catalog: Arc::clone(&catalog),
            clock: clock.clone(),
            chance: Arc::new(SeededChance::new(1)),
            recheck_after: Duration::from_mins(26),
        };
        let context = Context { settings: Arc::new(settings(vec![queue])), catalog, stores, clock, stop };
        Self {
            faults,
            context,
            engine: Engine::new(parts).in_parts_of(Duration::from_millis(100)),
            texts: [Paper::default(), Paper::default()],
        }
    }

    fn out(&self, format: Format) -> Output {
        let [out, aside] = self.texts.clone().map(Box::new);
        Output::to(out, aside, format).showing(Showing::Lines)
    }

    fn interrupt_at(&self, operation: u64) {
        self.faults.at.store(operation, Ordering::Relaxed);
    }

    async fn backfill(&self, format: Format) -> Exit {
        let args = BackfillArgs { table: None, view: None, submit: false, queue: None };
        backfill(&args, &self.context, &self.engine, async |_: &mut Output| Ok(()), &mut self.out(format)).await.unwrap()
    }

    async fn audit(&self, format: Format) -> Exit {
        let args = AuditArgs { table: None, view: None, repair: false, submit: false, queue: None };
        audit(&args, &self.context, &self.engine, &mut self.out(format)).await.unwrap()
    }

    fn texts(&self) -> [String; 2] {
        [self.texts[0].text(), self.texts[1].text()]
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_backfill_says_what_it_did_and_how_to_go_on() {
    let stage = Stage::new().await;
    stage.interrupt_at(1_400);
    assert_eq!(stage.backfill(Format::Text).await, Exit::Interrupted);
    let [out, aside] = stage.texts();
    let done: u64 = out.strip_prefix("Employees: ").and_then(|rest| rest.split(' ').next()).unwrap().parse().unwrap();
    assert!((1..PRIMARIES).contains(&done), "{out}");
    assert!(out.contains("items written or deleted, then it was interrupted"), "{out}");
    assert!(aside.contains("To go on: `evenkeel backfill --table Employees`"), "{aside}");
    let first = aside.lines().next().unwrap();
    assert!(first.starts_with("Employees: ") && first.ends_with(" primaries, 1 s"), "progress is told within two seconds: {aside}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_audit_says_what_it_compared_and_how_to_go_on() {
    let stage = Stage::new().await;
    stage.interrupt_at(600);
    assert_eq!(stage.audit(Format::Json).await, Exit::Interrupted);
    let [out, aside] = stage.texts();
    let summary: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(summary["interrupted"], true, "{summary}");
    assert!((1..PRIMARIES).contains(&summary["primaries"].as_u64().unwrap()), "{summary}");
    assert!(aside.contains("To go on: `evenkeel audit --table Employees`"), "{aside}");
}

#[tokio::test(start_paused = true)]
async fn a_total_is_told_where_an_audit_has_counted_and_what_ends_by_itself_says_nothing_of_interruptions() {
    let stage = Stage::new().await;
    assert_eq!(stage.backfill(Format::Text).await, Exit::Done);
    assert_eq!(stage.audit(Format::Text).await, Exit::Done);
    let before = stage.texts()[1].len();
    assert_eq!(stage.backfill(Format::Text).await, Exit::Done);
    let [out, aside] = stage.texts();
    assert!(aside[before..].contains(" of about 400 primaries, "), "{aside}");
    assert!(!out.contains("interrupted") && !aside.contains("To go on"), "{out}{aside}");
}

#[tokio::test(start_paused = true)]
async fn jobs_that_were_not_sent_any_more_are_named() {
    let stage = Stage::new().await;
    stage.context.stop.cancel();
    let args = AuditArgs { table: None, view: None, repair: false, submit: true, queue: None };
    let ended = audit(&args, &stage.context, &stage.engine, &mut stage.out(Format::Text)).await.unwrap();
    assert_eq!(
        (ended, stage.texts()),
        (Exit::Interrupted, [String::new(), "Interrupted after 0 of 1 job; not sent: Employees\n".to_owned()])
    );
}
