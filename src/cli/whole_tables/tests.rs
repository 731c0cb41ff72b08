//! Tests of commands over whole tables on a simulated account in virtual time. The commands are
//! interrupted, their catalog is replaced, or tables are missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio_util::sync::CancellationToken;

use crate::cli::audit::{AuditArgs, audit};
use crate::cli::backfill::{BackfillArgs, backfill};
use crate::cli::output::tests::TextBuffer;
use crate::cli::{Context, Exit, Format, Output, ProgressDisplay};
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
use evenkeel_engine::{Engine, EngineParts};
use evenkeel_model::catalog::{Catalog, DatedRef, Source};
use evenkeel_model::dated::DatedTables;
use evenkeel_model::settings::{QueueSettings, Settings};
use evenkeel_model::{AccountName, Entity, EntityKey, QueueName, Row, TableName, ViewName};
use evenkeel_rollout::RecordHold;
use evenkeel_rollout::migrations::testing::{catalog, migrator, up, world};
use evenkeel_storage::system::{SeededRng, SystemClock};
use evenkeel_storage::{Stores, TableOperation};

/// Number of primaries in the table.
const PRIMARIES: u64 = 400;

/// Delays each operation by twenty milliseconds, and interrupts the command at operation number
/// `at`.
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

const BACKFILL: BackfillArgs = BackfillArgs {
    table: None,
    view: None,
    submit: false,
    queue: None,
};
const AUDIT: AuditArgs = AuditArgs {
    table: None,
    view: None,
    repair: false,
    submit: false,
    queue: None,
};

fn engine(context: &Context) -> Engine {
    let parts = EngineParts {
        stores: context.stores.clone(),
        catalog: Arc::clone(&context.catalog),
        clock: Arc::clone(&context.clock),
        rng: Arc::new(SeededRng::new(1)),
        recheck_after: Duration::from_mins(26),
    };
    Engine::new(parts).in_parts_of(Duration::from_millis(100))
}

/// The context of a command, with its standard output and standard error.
struct Stage {
    world: SimWorld,
    faults: Arc<Impatient>,
    context: Context,
    engine: Engine,
    texts: [TextBuffer; 2],
}

impl Stage {
    async fn new() -> Self {
        let stop = CancellationToken::new();
        let faults = Arc::new(Impatient {
            stop: stop.clone(),
            at: AtomicU64::new(0),
        });
        let world = world(faults.clone());
        let catalog = catalog(&[("name", "{RowKey}")]);
        up(&migrator(&world, &catalog)).await;
        let employees = TableName::new("Employees").unwrap();
        for number in 0..PRIMARIES {
            let row = Entity::new(EntityKey::new("p", format!("{number:04}")).unwrap());
            world
                .account()
                .tables
                .apply(&employees, &TableOperation::Insert(row))
                .await
                .unwrap();
        }
        let queue = QueueSettings::plain(QueueName::new("jobs").unwrap());
        let stores = Stores::new([(AccountName::main(), world.account())].into());
        let clock = Arc::new(SystemClock::new());
        let context = Context {
            settings: Arc::new(Settings {
                queues: vec![queue],
                ..Settings::default()
            }),
            catalog,
            stores,
            clock,
            stop,
        };
        let engine = engine(&context);
        Self {
            world,
            faults,
            context,
            engine,
            texts: [TextBuffer::default(), TextBuffer::default()],
        }
    }

    fn out(&self, format: Format) -> Output {
        let [out, notes] = self.texts.clone().map(Box::new);
        Output::to(out, notes, format).showing(ProgressDisplay::Lines)
    }

    fn interrupt_at(&self, operation: u64) {
        self.faults.at.store(operation, Ordering::Relaxed);
    }

    async fn backfill(&self, format: Format) -> Exit {
        backfill(
            &BACKFILL,
            &self.context,
            &self.engine,
            async |_: &mut Output| Ok(()),
            &mut self.out(format),
        )
        .await
        .unwrap()
    }

    async fn audit(&self, format: Format) -> Exit {
        audit(
            &AUDIT,
            &self.context,
            &self.engine,
            async |_: &mut Output| Ok(()),
            &mut self.out(format),
        )
        .await
        .unwrap()
    }

    /// Lets the commands check, as in the program, whether another catalog is recorded. If so, they
    /// end.
    async fn hold(&self) {
        let migrator = migrator(&self.world, &self.context.catalog);
        let version = migrator.recorded_version().await.unwrap();
        let hold = RecordHold::new(
            migrator,
            Arc::clone(&self.context.catalog),
            version,
            Arc::clone(&self.context.clock),
        );
        self.engine.stop_when_replaced(Arc::new(hold));
    }

    /// Records a catalog with another view instead of the first one, and runs the backfill of the
    /// new view.
    async fn exchange(&self) {
        let newer = catalog(&[("number", "{RowKey}")]);
        let migrator = migrator(&self.world, &newer);
        up(&migrator).await;
        let mut newer = Catalog::clone(&newer);
        newer.generations = migrator.catalog_record().await.unwrap().generations(&newer);
        let context = Context {
            catalog: Arc::new(newer),
            ..self.context.clone()
        };
        let ended = backfill(
            &BACKFILL,
            &context,
            &engine(&context),
            async |_: &mut Output| Ok(()),
            &mut self.out(Format::Text),
        )
        .await;
        assert_eq!(ended.unwrap(), Exit::Done);
        tokio::time::advance(Duration::from_secs(5)).await;
    }

    fn rows(&self, table: &str) -> Vec<Row> {
        self.world.rows(&TableName::new(table).unwrap())
    }

    fn texts(&self) -> [String; 2] {
        [self.texts[0].text(), self.texts[1].text()]
    }
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_backfill_reports_its_progress_and_how_to_continue() {
    let stage = Stage::new().await;
    stage.interrupt_at(1_000);
    assert_eq!(stage.backfill(Format::Text).await, Exit::Interrupted);
    let [out, notes] = stage.texts();
    let done: u64 = out
        .strip_prefix("Employees: ")
        .and_then(|rest| rest.split(' ').next())
        .unwrap()
        .parse()
        .unwrap();
    assert!((1..PRIMARIES).contains(&done), "{out}");
    assert!(out.contains(" deleted, then interrupted"), "{out}");
    assert!(
        notes.contains("To continue: `evenkeel backfill --table Employees`"),
        "{notes}"
    );
    let first = notes.lines().next().unwrap();
    assert!(
        first.starts_with("Employees: ") && first.ends_with(" primaries, 1 s"),
        "progress appears within two seconds: {notes}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_audit_reports_its_progress_and_how_to_continue() {
    let stage = Stage::new().await;
    stage.interrupt_at(600);
    assert_eq!(stage.audit(Format::Json).await, Exit::Interrupted);
    let [out, notes] = stage.texts();
    let summary: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert_eq!(summary["interrupted"], true, "{summary}");
    assert!(
        (1..PRIMARIES).contains(&summary["primaries"].as_u64().unwrap()),
        "{summary}"
    );
    assert!(
        notes.contains("To continue: `evenkeel audit --table Employees`"),
        "{notes}"
    );
}

#[tokio::test(start_paused = true)]
async fn progress_shows_the_total_of_the_last_audit() {
    let stage = Stage::new().await;
    assert_eq!(stage.backfill(Format::Text).await, Exit::Done);
    assert_eq!(stage.audit(Format::Text).await, Exit::Done);
    let before = stage.texts()[1].len();
    assert_eq!(stage.backfill(Format::Text).await, Exit::Done);
    let [out, notes] = stage.texts();
    assert!(
        notes[before..].contains(" of about 400 primaries, "),
        "{notes}"
    );
    assert!(
        !out.contains("interrupted") && !notes.contains("To continue"),
        "{out}{notes}"
    );
}

#[tokio::test(start_paused = true)]
async fn unsent_jobs_are_named_after_an_interruption() {
    let stage = Stage::new().await;
    stage.context.stop.cancel();
    let args = AuditArgs {
        submit: true,
        ..AUDIT
    };
    let mut out = stage.out(Format::Text);
    let ended = audit(
        &args,
        &stage.context,
        &stage.engine,
        async |_: &mut Output| Ok(()),
        &mut out,
    )
    .await
    .unwrap();
    assert_eq!(
        (ended, stage.texts()),
        (
            Exit::Interrupted,
            [
                String::new(),
                "Interrupted after 0 of 1 job; not sent: Employees\n".to_owned()
            ]
        )
    );
}

#[tokio::test(start_paused = true)]
async fn a_replaced_catalog_ends_a_backfill_or_repair_before_its_next_part() {
    let stage = Stage::new().await;
    stage.hold().await;
    assert_eq!(stage.backfill(Format::Text).await, Exit::Done);
    assert_eq!(stage.rows("Byname").len() as u64, PRIMARIES);

    let mut out = stage.out(Format::Text);
    let replaced = async |_: &mut Output| -> anyhow::Result<()> {
        Box::pin(stage.exchange()).await;
        Ok(())
    };
    let ended = backfill(&BACKFILL, &stage.context, &stage.engine, replaced, &mut out)
        .await
        .unwrap_err();
    assert_eq!(Exit::of(&ended), Exit::Outdated, "{ended:#}");
    let repair = AuditArgs {
        repair: true,
        ..AUDIT
    };
    let ended = audit(
        &repair,
        &stage.context,
        &stage.engine,
        async |_: &mut Output| Ok(()),
        &mut out,
    )
    .await
    .unwrap_err();
    assert_eq!(Exit::of(&ended), Exit::Outdated, "{ended:#}");
    assert_eq!(
        (
            stage.rows("Byname").len() as u64,
            stage.rows("Bynumber").len() as u64
        ),
        (0, PRIMARIES)
    );
}

#[tokio::test(start_paused = true)]
async fn items_of_a_retired_view_are_unknown_if_its_tables_cannot_be_walked() {
    let mut stage = Stage::new().await;
    let view = ViewName::new("by_user").unwrap();
    let args = BackfillArgs {
        view: Some(view.clone()),
        ..BACKFILL
    };
    let retired = |account: &str| {
        let tables = DatedRef {
            account: AccountName::new(account).unwrap(),
            tables: DatedTables::parse("Logins%Y%m%d").unwrap(),
        };
        let mut catalog = Catalog::default();
        catalog
            .generations
            .retired
            .insert(view.clone(), (1, Source::Dated(tables)));
        Arc::new(catalog)
    };
    let nothing = "no retired view has left items";
    for (account, is_there, exit, text) in [
        ("main", false, Exit::Done, nothing),
        ("main", true, Exit::Failed, "this source has no [retention]"),
        (
            "elsewhere",
            true,
            Exit::Failed,
            "[accounts.elsewhere] is not configured",
        ),
    ] {
        if is_there {
            stage
                .world
                .account()
                .tables
                .create_table(&TableName::new("Logins20261120").unwrap())
                .await
                .unwrap();
        }
        stage.context.catalog = retired(account);
        stage.texts = [TextBuffer::default(), TextBuffer::default()];
        let mut out = stage.out(Format::Text);
        let ended = backfill(
            &args,
            &stage.context,
            &stage.engine,
            async |_: &mut Output| Ok(()),
            &mut out,
        )
        .await
        .unwrap();
        let [_, notes] = stage.texts();
        assert_eq!(
            (ended, notes.contains(text), notes.contains(nothing)),
            (exit, true, exit == Exit::Done),
            "{account}: {notes}"
        );
    }
}
