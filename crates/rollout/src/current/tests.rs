//! Tests in which the catalog is replaced while a job runs, before each of the job's operations.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::RecordWatch;
use crate::migrations::LEASE_DURATION;
use crate::migrations::testing::{catalog, migrator, up, world};
use crate::migrations::tests::dated_catalog;
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
use evenkeel_engine::{EngineParts, audit_records};
use evenkeel_model::audit::{Audit, AuditCursor};
use evenkeel_model::backfill::{Backfill, BackfillCursor, BackfillScope};
use evenkeel_model::catalog::{Archive, ArchiveTarget, TableRef};
use evenkeel_model::job::{self, Stamp};
use evenkeel_model::{AccountName, EntityKey, QueueName, TableName};
use evenkeel_storage::system::{SeededRng, SystemClock};
use evenkeel_storage::{Query, Stores, TableOperation};

/// Runs a future before the n-th operation of a job.
#[derive(Default)]
struct Meddle {
    armed: Mutex<Option<(u64, BoxFuture<'static, ()>)>>,
    counted: AtomicU64,
}

#[async_trait]
impl FaultPolicy for Meddle {
    async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
        let number = self.counted.fetch_add(1, Ordering::SeqCst) + 1;
        let due = self.armed.lock().unwrap().take_if(|(at, _)| *at == number);
        if let Some((_, meddling)) = due {
            meddling.await;
        }
        FaultDecision::Execute
    }
}

#[derive(Clone)]
struct House {
    world: Arc<SimWorld>,
    faults: Arc<Meddle>,
    clock: Arc<dyn Clock>,
    /// The time at which all messages were enqueued.
    enqueued: Timestamp,
}

impl House {
    /// Creates an account in which employee 1 is in step with the first catalog.
    async fn new() -> (Self, Arc<CurrentCatalog>) {
        let faults = Arc::new(Meddle::default());
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let house = Self {
            world: Arc::new(world(Arc::<Meddle>::clone(&faults))),
            faults,
            enqueued: clock.now(),
            clock,
        };
        let current = house.begin(&[("name", "{Name}")]).await;
        let before = Delivery {
            stamp: Stamp {
                message_id: "before".to_owned(),
                enqueued: house.enqueued,
                job: None,
            },
            ..house.delivery(1)
        };
        current.execute(&put("1", "old"), &before).await.unwrap();
        (house, current)
    }

    async fn recorded(&self, declared: &Arc<Catalog>) -> RecordedCatalog {
        let migrator = migrator(&self.world, declared);
        up(&migrator).await;
        RecordedCatalog {
            sent: self.clock.monotonic(),
            record: migrator.catalog_record().await.unwrap(),
        }
    }

    async fn begin(&self, views: &[(&str, &str)]) -> Arc<CurrentCatalog> {
        self.begin_by(&catalog(views)).await
    }

    async fn begin_by(&self, declared: &Arc<Catalog>) -> Arc<CurrentCatalog> {
        let on_record = self.recorded(declared).await;
        Arc::new(self.current(&on_record, declared, &self.clock))
    }

    fn current(
        &self,
        on_record: &RecordedCatalog,
        declared: &Catalog,
        clock: &Arc<dyn Clock>,
    ) -> CurrentCatalog {
        CurrentCatalog::begin(
            on_record,
            declared,
            None,
            |catalog| self.engine(catalog),
            clock,
        )
    }

    fn stores(&self) -> Stores {
        Stores::new([(AccountName::main(), self.world.account())].into())
    }

    fn engine(&self, catalog: Arc<Catalog>) -> Arc<Engine> {
        Arc::new(Engine::new(EngineParts {
            stores: self.stores(),
            catalog,
            clock: Arc::clone(&self.clock),
            rng: Arc::new(SeededRng::new(1)),
            recheck_after: Duration::from_mins(26),
        }))
    }

    async fn check(&self, current: &CurrentCatalog) {
        let (migrator, rng) = (
            migrator(&self.world, current.engine().catalog()),
            SeededRng::new(1),
        );
        let watch = RecordWatch {
            migrator: &migrator,
            current,
            clock: self.clock.as_ref(),
            rng: &rng,
        };
        watch.check().await.unwrap();
    }

    /// Records the first catalog with one more view.
    async fn grown(&self) -> Arc<CurrentCatalog> {
        self.begin(&[("name", "{Name}"), ("mail", "{Mail}")]).await
    }

    /// Records a catalog with a second view, whose source is the target of the first.
    async fn chained(&self) -> Arc<CurrentCatalog> {
        let mut declared = Catalog::clone(&catalog(&[("name", "{Name}"), ("copy", "{RowKey}")]));
        let rows = declared
            .tables
            .values()
            .find(|table| table.table.as_str() == "Byname")
            .unwrap()
            .clone();
        let copies = declared
            .views
            .values_mut()
            .find(|view| view.name.as_str() == "copy")
            .map(Arc::make_mut)
            .unwrap();
        copies.source = rows;
        self.begin_by(&Arc::new(declared)).await
    }

    /// Runs a backfill as an operator does, once no worker acknowledges jobs with an older catalog.
    async fn backfill_of(&self, table: &str, engine: &Engine) {
        let mut cursor = BackfillCursor::default();
        loop {
            let scope = BackfillScope::Table(TableName::new(table).unwrap());
            let part = engine
                .backfill(&Backfill { scope, cursor }, &self.delivery(1))
                .await
                .unwrap()
                .unwrap();
            if part.ended {
                return;
            }
            cursor = part.cursor;
        }
    }

    fn delivery(&self, dequeue_count: u32) -> Delivery {
        Delivery {
            stamp: Stamp {
                message_id: "m".to_owned(),
                enqueued: self.enqueued,
                job: None,
            },
            dequeue_count,
            account: AccountName::main(),
            propagation_queue: QueueName::new("jobs-00").unwrap(),
            sync_queue: QueueName::new("jobs-00").unwrap(),
            recheck_queue: QueueName::new("jobs-recheck").unwrap(),
            tables: None,
        }
    }

    async fn of_all(
        &self,
        table: &str,
        property: impl Fn(&evenkeel_model::Entity) -> String,
    ) -> BTreeSet<String> {
        let rows = self
            .world
            .account()
            .tables
            .query(&TableName::new(table).unwrap(), &Query::default())
            .await
            .unwrap()
            .rows;
        rows.iter().map(|row| property(&row.entity)).collect()
    }

    /// Fails unless the new view agrees with the primaries.
    async fn in_step(&self, story: &str) {
        let mails = self
            .of_all("Employees", |entity| {
                entity.text("Mail").unwrap().to_owned()
            })
            .await;
        let items = self
            .of_all("Bymail", |entity| entity.key.rk.to_string())
            .await;
        assert_eq!(items, mails, "{story}");
    }

    /// Executes a job while another task reads the record on request.
    async fn watched(&self, current: &CurrentCatalog, job: &Work) -> Result<Outcome, Failure> {
        let delivery = self.delivery(1);
        let watching = async {
            loop {
                current.lease().read_requested().await;
                self.check(current).await;
            }
        };
        tokio::select! {
            ended = current.execute(job, &delivery) => ended,
            () = watching => unreachable!("it watches for ever"),
        }
    }

    fn meddle(&self, at: u64, meddling: impl Future<Output = ()> + Send + 'static) {
        self.faults.counted.store(0, Ordering::SeqCst);
        *self.faults.armed.lock().unwrap() = Some((at, Box::pin(meddling)));
    }

    /// Whether the job had enough operations for the future to run.
    fn was_reached(&self) -> bool {
        self.faults.armed.lock().unwrap().take().is_none()
    }
}

fn work(value: &Value) -> Work {
    Work::Job(job::decode(&value.to_string()).unwrap().job)
}

fn put(rk: &str, mail: &str) -> Work {
    let entity =
        json!({"PartitionKey": "Sales", "RowKey": rk, "Name": format!("Ada {rk}"), "Mail": mail});
    work(&json!({"op": "put", "table": "Employees", "entity": entity}))
}

/// Jobs that each change the content of the new view.
fn jobs() -> [Work; 4] {
    [
        put("1", "new"),
        put("2", "another"),
        work(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"})),
        work(
            &json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Sales", "to_rk": "3"}),
        ),
    ]
}

/// For each operation of each job, another catalog is recorded and backfilled just before the
/// operation. The run must not be acknowledged, and the next run with the newer catalog must leave
/// no item out.
async fn replaced_amid_each_job(
    next: fn(House) -> BoxFuture<'static, Arc<CurrentCatalog>>,
    source: &'static str,
    check: impl AsyncFn(&House, &str),
) {
    for job in jobs() {
        let (mut at, mut left) = (1, 0);
        loop {
            let (house, current) = House::new().await;
            let other = house.clone();
            let newer = Arc::new(Mutex::new(None));
            let found = Arc::clone(&newer);
            house.meddle(at, async move {
                let next = next(other.clone()).await;
                tokio::time::sleep(LEASE_DURATION + Duration::from_millis(1)).await;
                next.lease().confirm(other.clock.monotonic());
                other.backfill_of(source, next.engine()).await;
                *found.lock().unwrap() = Some(next);
            });
            let ended = house.watched(&current, &job).await;
            if !house.was_reached() {
                assert!(ended.is_ok());
                break;
            }
            let story = format!("{job:?}, recorded and backfilled before operation {at}");
            let failure = ended.expect_err(&story);
            assert_eq!(failure.class, FailureClass::OutdatedCatalog, "{story}");
            left += 1;
            let newer = newer.lock().unwrap().take().unwrap();
            newer.lease().confirm(house.clock.monotonic());
            newer
                .engine()
                .execute(&job, &house.delivery(2))
                .await
                .unwrap();
            check(&house, &story).await;
            at += 1;
        }
        assert!(left > 3, "{job:?} was left {left} times");
    }
}

#[tokio::test(start_paused = true)]
async fn an_older_worker_acknowledges_no_job_once_the_new_views_backfill_has_begun() {
    let next = |house: House| -> BoxFuture<'static, Arc<CurrentCatalog>> {
        Box::pin(async move { house.grown().await })
    };
    replaced_amid_each_job(next, "Employees", async |house, story| {
        house.in_step(story).await;
    })
    .await;
}

/// The new view derives from rows of the older view. Its backfill has ended before the run
/// continues.
#[tokio::test(start_paused = true)]
async fn a_run_replaced_by_a_catalog_with_a_view_of_its_rows_leaves_no_stale_rows() {
    let next = |house: House| -> BoxFuture<'static, Arc<CurrentCatalog>> {
        Box::pin(async move { house.chained().await })
    };
    let check = async |house: &House, story: &str| {
        let of = |table| house.of_all(table, |entity| entity.key.rk.to_string());
        assert_eq!(of("Bycopy").await, of("Byname").await, "{story}");
    };
    replaced_amid_each_job(next, "Byname", check).await;
}

/// The worker with the older catalog does not know the new view. It closes the footprint, although
/// the row of the new view still has its old content.
#[tokio::test(start_paused = true)]
async fn the_next_pass_of_the_newer_catalog_writes_rows_that_the_older_one_does_not_know() {
    for backfilled in [false, true] {
        let (house, current) = House::new().await;
        let older = current.engine();
        let newer = house
            .begin(&[("name", "{Name}"), ("key", "{RowKey}")])
            .await;
        let newer = newer.engine();
        newer
            .execute(&put("1", "first"), &house.delivery(1))
            .await
            .unwrap();
        let employees = TableName::new("Employees").unwrap();
        let tables = house.world.account().tables;
        let row = tables
            .get(&employees, &EntityKey::new("Sales", "1").unwrap(), None)
            .await
            .unwrap()
            .unwrap();
        tables
            .apply(
                &employees,
                &TableOperation::InsertOrReplace(row.entity.with("Mail", "second")),
            )
            .await
            .unwrap();
        let sync = work(&json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "1"}));
        older.execute(&sync, &house.delivery(1)).await.unwrap();
        if backfilled {
            house.backfill_of("Employees", newer).await;
        } else {
            newer.execute(&sync, &house.delivery(1)).await.unwrap();
        }
        let mails = house
            .of_all("Bykey", |entity| entity.text("Mail").unwrap().to_owned())
            .await;
        assert_eq!(
            mails,
            BTreeSet::from(["second".to_owned()]),
            "backfilled: {backfilled}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_about_whole_tables_wait_for_older_workers_and_do_not_run_on_them() {
    let (house, current) = House::new().await;
    let backfill = work(&json!({"op": "backfill", "table": "Employees"}));
    let sent = house.clock.monotonic();
    current.lease().confirm(sent);
    current
        .execute(&backfill, &house.delivery(1))
        .await
        .expect("no older catalog exists");

    let current = house.grown().await;
    let early = current
        .execute(&backfill, &house.delivery(1))
        .await
        .unwrap_err();
    assert_eq!(
        early.class,
        FailureClass::Withheld {
            retry_after: Some(LEASE_DURATION)
        }
    );
    tokio::time::advance(LEASE_DURATION).await;
    current.lease().confirm(house.clock.monotonic());
    current
        .execute(&backfill, &house.delivery(2))
        .await
        .unwrap();

    // A job about a whole table begins only after a new read of the record, even if the lease is
    // valid. So the worker knows every record that was written before the job was sent.
    tokio::time::advance(Duration::from_secs(1)).await;
    let revoked = async {
        current.lease().read_requested().await;
        current.lease().revoke(3);
    };
    let delivery = house.delivery(1);
    let (ended, ()) = tokio::join!(current.execute(&backfill, &delivery), revoked);
    assert_eq!(ended.unwrap_err().class, FailureClass::OutdatedCatalog);
}

#[tokio::test(start_paused = true)]
async fn a_job_that_only_the_newer_catalog_knows_is_left_to_it_however_fresh_the_lease() {
    let (house, current) = House::new().await;
    let of_the_new = work(&json!({"op": "sync", "table": "Bymail", "pk": "p", "rk": "old"}));
    let failure = house.watched(&current, &of_the_new).await.unwrap_err();
    assert_eq!(
        failure.class,
        FailureClass::Permanent,
        "no recorded catalog has the table yet"
    );
    let next = house.grown().await;
    tokio::time::advance(Duration::from_secs(1)).await;
    let failure = house.watched(&current, &of_the_new).await.unwrap_err();
    assert_eq!(
        failure.class,
        FailureClass::OutdatedCatalog,
        "the newer catalog has the table"
    );
    next.engine()
        .execute(&of_the_new, &house.delivery(2))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_job_about_a_name_of_another_recorded_catalog_is_left_to_its_workers() {
    let (house, current) = House::new().await;
    let of = |name: &str| TableRef {
        account: AccountName::main(),
        table: TableName::new(name).unwrap(),
    };
    let (name, former) = (ViewName::new("former").unwrap(), of("FormerEmployees"));
    let archive = Archive {
        name: name.clone(),
        source: of("Employees"),
        target: ArchiveTarget::Table(former.clone()),
    };
    let mut newer = Catalog::clone(&catalog(&[("name", "{Name}")]));
    newer.tables.insert(former.table.clone(), former);
    newer.archives.insert(name, Arc::new(archive));
    newer.retentions = dated_catalog(&["Logins%Y%m%d"], &[]).retentions;
    let jobs = [
        json!({"op": "archive", "archive": "former", "pk": "Sales", "rk": "1"}),
        json!({"op": "put", "table": "formeremployees", "entity": {"PartitionKey": "Sales", "RowKey": "1"}}),
        json!({"op": "sync", "table": "Logins20261120", "pk": "Sales", "rk": "1"}),
        json!({"op": "drop_table", "table": "Logins20261120"}),
    ];
    let strange = [
        json!({"op": "archive", "archive": "farmer", "pk": "Sales", "rk": "1"}),
        json!({"op": "sync", "table": "Logins2026", "pk": "Sales", "rk": "1"}),
    ];
    let class = async |job: &Value| house.watched(&current, &work(job)).await.unwrap_err().class;
    for job in jobs.iter().chain(&strange) {
        assert_eq!(
            class(job).await,
            FailureClass::Permanent,
            "{job}: no recorded catalog has the name"
        );
    }
    let next = house.begin_by(&Arc::new(newer)).await;
    tokio::time::advance(Duration::from_secs(1)).await;
    for job in &jobs {
        assert_eq!(
            class(job).await,
            FailureClass::Transient { retry_after: None },
            "{job}"
        );
    }
    for job in &strange {
        assert_eq!(
            class(job).await,
            FailureClass::Permanent,
            "{job}: still no recorded catalog has the name"
        );
    }
    assert_eq!(
        current.lease().newer(),
        None,
        "the worker keeps its catalog"
    );
    next.engine()
        .execute(&work(&jobs[0]), &house.delivery(1))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_recreated_record_with_the_same_number_is_recognised() {
    let (house, current) = House::new().await;
    let migrations = TableName::new("EvenkeelMigrations").unwrap();
    let lost = async || {
        assert!(
            house
                .world
                .account()
                .tables
                .delete_table(&migrations)
                .await
                .unwrap()
        );
    };
    lost().await;
    house.check(&current).await;
    assert_eq!(
        current.lease().newer(),
        None,
        "no other catalog is recorded"
    );
    for (views, newer) in [
        ([("name", "{Name}")], None),
        ([("mail", "{Mail}")], Some(1)),
    ] {
        assert_eq!(house.recorded(&catalog(&views)).await.record.generation, 1);
        house.check(&current).await;
        assert_eq!(current.lease().newer(), newer, "{views:?} are recorded");
        lost().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_record_at_later_generations_needs_another_worker_and_one_at_earlier_ones_does_not() {
    let (house, _) = House::new().await;
    let (one, both) = (
        [("name", "{Name}")],
        [("name", "{Name}"), ("mail", "{Mail}")],
    );
    let before = house.begin(&both).await;
    // Between two reads of the record, the view is removed and restored.
    house.recorded(&catalog(&one)).await;
    let back = house.recorded(&catalog(&both)).await;
    house.check(&before).await;
    assert_eq!(before.lease().newer(), Some(back.record.generation));
    let declared = catalog(&both);
    let after = CurrentCatalog::begin(
        &back,
        &declared,
        Some(before.engine().catalog()),
        |catalog| house.engine(catalog),
        &house.clock,
    );
    let of = |current: &CurrentCatalog, view: &str| {
        current
            .engine()
            .catalog()
            .generations
            .of(&ViewName::new(view).unwrap())
    };
    assert_eq!((of(&after, "mail"), of(&after, "name")), (2, 1));

    let migrations = TableName::new("EvenkeelMigrations").unwrap();
    let tables = house.world.account().tables;
    assert!(tables.delete_table(&migrations).await.unwrap());
    let anew = house.recorded(&declared).await;
    house.check(&after).await;
    assert_eq!(after.lease().newer(), None);
    assert_eq!(
        after.lease().time_until_older_workers_end(),
        Some(LEASE_DURATION)
    );
    let next = CurrentCatalog::begin(
        &anew,
        &declared,
        Some(after.engine().catalog()),
        |catalog| house.engine(catalog),
        &house.clock,
    );
    assert_eq!(
        (
            of(&next, "mail"),
            next.lease().time_until_older_workers_end()
        ),
        (2, Some(LEASE_DURATION)),
        "a process keeps its generations if the record was recreated"
    );
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_later_generation_is_reported_and_delays_only_its_own_job() {
    let (house, current) = House::new().await;
    let footprints = TableName::new("EvenkeelFootprints").unwrap();
    let key = EntityKey::new("Employees~Sales", "1").unwrap();
    let tables = house.world.account().tables;
    let strange = tables
        .get(&footprints, &key, None)
        .await
        .unwrap()
        .unwrap()
        .entity;
    let items = strange
        .text("Items")
        .unwrap()
        .replacen("\"name\",1,", "\"name\",3,", 1);
    tables
        .apply(
            &footprints,
            &TableOperation::InsertOrReplace(strange.with("Items", items)),
        )
        .await
        .unwrap();

    let failure = current
        .execute(&put("1", "new"), &house.delivery(1))
        .await
        .unwrap_err();
    assert_eq!(failure.class, FailureClass::OutdatedCatalog);
    current
        .execute(&put("2", "another"), &house.delivery(1))
        .await
        .expect("the job of another primary is not affected");
    let met = current.take_later_generations();
    assert_eq!(
        met.into_iter()
            .map(|(view, generation)| (view.to_string(), generation))
            .collect::<Vec<_>>(),
        [("name".to_owned(), 3)]
    );
}

#[tokio::test(start_paused = true)]
async fn an_audit_starts_over_with_a_new_view_and_counts_its_missing_items() {
    let (house, _) = House::new().await;
    let in_parts = async |views: &[(&str, &str)]| {
        let declared = catalog(views);
        let mut catalog = Catalog::clone(&declared);
        catalog.generations = house.recorded(&declared).await.record.generations(&catalog);
        Arc::into_inner(house.engine(Arc::new(catalog)))
            .unwrap()
            .in_parts_of(Duration::ZERO)
    };
    let older = in_parts(&[("name", "{Name}")]).await;
    let newer = in_parts(&[("name", "{Name}"), ("mail", "{Mail}")]).await;
    let delivery = house.delivery(1);
    let audit = async |engine: &Engine, cursor: AuditCursor| {
        let audit = Audit {
            table: TableName::new("Employees").unwrap(),
            repair: false,
            cursor,
        };
        engine.audit(&audit, &delivery).await.unwrap().unwrap()
    };
    let mut pass = audit(&older, AuditCursor::default()).await;
    assert_eq!((pass.ended, pass.cursor.primaries), (false, 1));
    while !pass.ended {
        pass = audit(&newer, pass.cursor).await;
    }
    let records = audit_records(house.world.account().tables.as_ref(), newer.catalog())
        .await
        .unwrap();
    let drift: Vec<_> = records
        .iter()
        .map(|record| (record.view.as_str(), record.drift))
        .collect();
    assert_eq!(
        (drift, pass.cursor.primaries),
        (vec![("mail", 1), ("name", 0)], 1)
    );
}

/// A clock that can be advanced.
struct Ahead {
    clock: SystemClock,
    seconds: AtomicU64,
}

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic() + Duration::from_secs(self.seconds.load(Ordering::SeqCst))
    }
}

/// The account `main` refuses requests, and the account of the job works. The lease is checked before a pass with
/// changes is closed, at the end of a pass without changes, and before a job about a whole table begins.
#[tokio::test(start_paused = true)]
async fn a_run_whose_catalog_cannot_be_confirmed_is_withheld_and_frees_its_slot() {
    let backfill = work(&json!({"op": "backfill", "table": "Employees"}));
    for (job, engine_checks) in [
        (put("1", "new"), true),
        (put("1", "new"), false),
        (backfill, true),
    ] {
        let (house, _) = House::new().await;
        let ahead = Arc::new(Ahead {
            clock: SystemClock::new(),
            seconds: AtomicU64::new(0),
        });
        let clock: Arc<dyn Clock> = Arc::<Ahead>::clone(&ahead);
        let declared = catalog(&[("name", "{Name}")]);
        let on_record = house.recorded(&declared).await;
        let current = house.current(&on_record, &declared, &clock);
        if !engine_checks {
            // If the primary is in step already, the pass does not check the lease.
            current.execute(&job, &house.delivery(1)).await.unwrap();
        }
        ahead.seconds.store(60, Ordering::SeqCst);
        let failure = current.execute(&job, &house.delivery(1)).await.unwrap_err();
        assert!(
            matches!(failure.class, FailureClass::Withheld { .. }),
            "{}",
            failure.chain()
        );
        current.lease().confirm(clock.monotonic());
        if matches!(&job, Work::Job(job) if job.key().is_some()) {
            current.execute(&job, &house.delivery(2)).await.unwrap();
        }
    }
}
