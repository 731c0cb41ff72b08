//! Tests the worker together with the daemon's engine and its decorators (retry, groups, pace and
//! circuits) on a simulated account.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::testing::{SECOND, TestClock, sync};
use crate::{Mode, ReceiverState, Rechecks, RunReport, Worker, WorkerParts};
use evenkeel_account::company::{self, Shape};
use evenkeel_account::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
use evenkeel_engine::{Engine, EngineParts, SigningSecret};
use evenkeel_layers::circuit::Circuits;
use evenkeel_layers::stack::{Grouping, decorate};
use evenkeel_model::allowed::{AllowedTable, AllowedTables, JobAllowance};
use evenkeel_model::catalog::{
    Archive, ArchiveTarget, Catalog, DenormalizeRange, LargeEntity, OnConflict, RangeRows,
    SecondaryIndex, TableRef, View, ViewKind,
};
use evenkeel_model::range_overlay;
use evenkeel_model::settings::{Concurrency, PollInterval, QueueSettings, WorkerSettings};
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, BlobName, Entity, EntityKey, Filter, Key, ViewName, body};
use evenkeel_storage::system::SeededRng;
use evenkeel_storage::{
    Account, BlobUpload, Clock, ErrorClass, Query, Resource, Rng, Stores, TableOperation, Ttl,
};

/// Decides whether an operation fails, and with which fault. The duration is the time of the world's clock.
type FaultSchedule = dyn Fn(Duration, &OperationInfo) -> FaultDecision + Send + Sync;

struct ScheduledFaults {
    clock: Arc<dyn Clock>,
    schedule: Box<FaultSchedule>,
}

#[async_trait]
impl FaultPolicy for ScheduledFaults {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        sleep(Duration::from_millis(5)).await;
        (self.schedule)(self.clock.monotonic(), operation)
    }
}

pub(super) struct Daemon {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) bare: Account,
    world: SimWorld,
    /// The signing secret. The worker reads it before any job, as the daemon does.
    secret: Arc<SigningSecret>,
}

/// `worker.recheck_after`. After this time, no request of an earlier run can still arrive.
const RECHECK_AFTER: Duration = Duration::from_mins(26);

impl Daemon {
    /// A daemon with this many employees, and with a job for each.
    pub(super) async fn with_jobs(jobs: usize) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(TestClock::new());
        let world = SimWorld::new(
            AccountName::main(),
            Arc::clone(&clock),
            Arc::new(evenkeel_account::NoFaults),
        );
        let bare = world.account();
        for table in [
            "Employees",
            "ByEmail",
            "Managers",
            "EvenkeelFootprints",
            "FormerEmployees",
        ] {
            bare.tables
                .create_table(&company::table(table))
                .await
                .unwrap();
        }
        for queue in ["jobs", "jobs-poison", "jobs-recheck"] {
            bare.queues
                .create_queue(&company::queue(queue))
                .await
                .unwrap();
        }
        for number in 0..jobs {
            let entity = Entity::new(EntityKey::new("p", number.to_string()).unwrap())
                .with("LastName", format!("Name{number}"))
                .with("FirstName", "Ann")
                .with("Email", format!("{number}@contoso.com"))
                .with("IsManager", false);
            bare.tables
                .apply(
                    &company::table("Employees"),
                    &TableOperation::Insert(entity),
                )
                .await
                .unwrap();
            bare.queues
                .put(
                    &company::queue("jobs"),
                    &sync(number),
                    Duration::ZERO,
                    Ttl::Never,
                )
                .await
                .unwrap();
        }
        let secret = Arc::default();
        let (stores, rng) = (
            Stores::new([(AccountName::main(), bare.clone())].into()),
            Arc::new(SeededRng::new(7)),
        );
        let parts = EngineParts {
            stores,
            catalog: Arc::default(),
            clock: Arc::clone(&clock),
            rng,
            recheck_after: RECHECK_AFTER,
        };
        Engine::new(parts)
            .signing_by(Arc::clone(&secret))
            .read_secret()
            .await;
        Self {
            clock,
            bare,
            world,
            secret,
        }
    }

    /// A worker like the daemon's, with default settings.
    fn worker(
        &self,
        schedule: impl Fn(Duration, &OperationInfo) -> FaultDecision + Send + Sync + 'static,
    ) -> Worker {
        self.worker_by(company::catalog(Shape::default()), schedule)
    }

    fn worker_by(
        &self,
        catalog: Catalog,
        schedule: impl Fn(Duration, &OperationInfo) -> FaultDecision + Send + Sync + 'static,
    ) -> Worker {
        self.worker_of(catalog, Concurrency::Fixed(64), schedule)
    }

    /// A worker like the daemon's, with this concurrency.
    pub(super) fn worker_of(
        &self,
        catalog: Catalog,
        concurrency: Concurrency,
        schedule: impl Fn(Duration, &OperationInfo) -> FaultDecision + Send + Sync + 'static,
    ) -> Worker {
        self.worker_from(
            QueueSettings {
                concurrency,
                ..QueueSettings::plain(company::queue("jobs"))
            },
            catalog,
            schedule,
        )
    }

    fn worker_from(
        &self,
        queue: QueueSettings,
        catalog: Catalog,
        schedule: impl Fn(Duration, &OperationInfo) -> FaultDecision + Send + Sync + 'static,
    ) -> Worker {
        let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(7));
        let faults = Arc::new(ScheduledFaults {
            clock: Arc::clone(&self.clock),
            schedule: Box::new(schedule),
        });
        let settings = WorkerSettings {
            recheck_after: RECHECK_AFTER,
            poll: PollInterval {
                min: Duration::from_millis(100),
                max: 5 * SECOND,
            },
            ..WorkerSettings::default()
        };
        let account = self.world.for_caller(2, faults).account();
        let decorated = decorate(
            &AccountName::main(),
            &account,
            Grouping::Together,
            settings.storage_retry,
            &self.clock,
            &rng,
        );
        let stores = Stores::new([(AccountName::main(), decorated.account)].into());
        let engine = Engine::new(EngineParts {
            stores: stores.clone(),
            catalog: Arc::new(catalog),
            clock: Arc::clone(&self.clock),
            rng: Arc::clone(&rng),
            recheck_after: settings.recheck_after,
        });
        let engine = Arc::new(engine.signing_by(Arc::clone(&self.secret)));
        let keys = Arc::clone(&engine);
        Worker::new(WorkerParts {
            stores,
            health: Arc::new(Circuits::new(vec![decorated.circuit])),
            encrypt_bodies: Arc::<Engine>::clone(&engine),
            execute: engine,
            clock: Arc::clone(&self.clock),
            rng,
            settings,
            queues: vec![queue],
            name: "w1".to_owned(),
            resolve_primaries: Arc::new(move |job| keys.forms_of(job)),
        })
        .unwrap()
    }

    async fn poisoned(&self) -> u64 {
        self.bare
            .queues
            .approximate_count(&company::queue("jobs-poison"))
            .await
            .unwrap()
    }

    async fn in_partition(&self, pk: &str) -> usize {
        let filter = Some(Filter::partition(&Key::new(pk).unwrap()));
        self.bare
            .tables
            .query(
                &company::table("ByEmail"),
                &Query {
                    filter,
                    ..Query::default()
                },
            )
            .await
            .unwrap()
            .rows
            .len()
    }

    async fn in_step(&self, jobs: usize) -> bool {
        let mut found = 0;
        for number in 0..jobs {
            let key = EntityKey::new("email_p", format!("{number}@contoso.com")).unwrap();
            found += usize::from(
                self.bare
                    .tables
                    .get(&company::table("ByEmail"), &key, None)
                    .await
                    .unwrap()
                    .is_some(),
            );
        }
        found == jobs
    }
}

pub(super) async fn until_idle(worker: &Worker) -> RunReport {
    let mode = Mode::UntilIdle {
        quiet: SECOND,
        rechecks: Rechecks::Ignored,
    };
    worker.run(mode, CancellationToken::new()).await.unwrap()
}

/// A catalog that stores the photos of employees in blobs.
fn photos() -> Catalog {
    let employees = TableRef {
        account: AccountName::main(),
        table: company::table("Employees"),
    };
    let container = company::container("photos");
    let properties = ["Photo".to_owned()].into();
    let view = View {
        name: ViewName::new("photos").unwrap(),
        source: employees.clone(),
        when: None,
        kind: ViewKind::LargeEntity(LargeEntity {
            account: AccountName::main(),
            container,
            properties,
            threshold: 16,
        }),
        on_conflict: OnConflict::Reject,
    };
    Catalog {
        tables: [(employees.table.clone(), employees)].into(),
        views: [(view.name.clone(), Arc::new(view))].into(),
        ..Catalog::default()
    }
}

#[tokio::test(start_paused = true)]
async fn uploads_that_wait_for_each_other_longer_than_a_run_may_take_are_all_done_at_once() {
    let daemon = Daemon::with_jobs(0).await;
    let staging = company::container("evenkeel-staging");
    for container in [&staging, &company::container("photos")] {
        daemon.bare.blobs.create_container(container).await.unwrap();
    }
    for number in 0..16 {
        let name = BlobName::new(format!("photo-{number}")).unwrap();
        let content = bytes::Bytes::from(vec![u8::try_from(number).unwrap(); 1_000]);
        daemon
            .bare
            .blobs
            .put(&staging, &name, content, &BlobUpload::default())
            .await
            .unwrap();
        let entity = format!(r#"{{"PartitionKey":"p","RowKey":"{number}"}}"#);
        let blobs = format!(r#"{{"Photo":{{"blob":"evenkeel-staging/photo-{number}"}}}}"#);
        let put = body::encode(&format!(
            r#"{{"op":"put","table":"Employees","entity":{entity},"blobs":{blobs}}}"#
        ));
        daemon
            .bare
            .queues
            .put(&company::queue("jobs"), &put, Duration::ZERO, Ttl::Never)
            .await
            .unwrap();
    }
    let worker = daemon.worker_by(photos(), |_, operation| match &operation.what {
        Resource::Blob(container, _) if container.as_str() == "photos" && operation.writes => {
            let minutes = Duration::from_mins;
            FaultDecision::AnswerLate {
                answers: minutes(2),
                timeout: minutes(5),
            }
        }
        _ => FaultDecision::Execute,
    });
    let report = until_idle(&worker).await;
    assert_eq!((report.done, report.released, report.poisoned), (16, 0, 0));
    let took = daemon.clock.monotonic();
    assert!(
        (15..=18).contains(&(took.as_secs() / 60)),
        "16 uploads of two minutes must run two at a time: {took:?}"
    );
}

/// Each block takes a minute to upload, and so does the block list.
#[tokio::test(start_paused = true)]
async fn blocks_of_one_value_are_uploaded_four_at_once() {
    let daemon = Daemon::with_jobs(0).await;
    let staging = company::container("evenkeel-staging");
    for container in [&staging, &company::container("photos")] {
        daemon.bare.blobs.create_container(container).await.unwrap();
    }
    let content = bytes::Bytes::from(vec![7; 32 << 20]);
    daemon
        .bare
        .blobs
        .put(
            &staging,
            &BlobName::new("photo").unwrap(),
            content,
            &BlobUpload::default(),
        )
        .await
        .unwrap();
    let put = r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"p","RowKey":"1"},"blobs":{"Photo":{"blob":"evenkeel-staging/photo"}}}"#;
    daemon
        .bare
        .queues
        .put(
            &company::queue("jobs"),
            &body::encode(put),
            Duration::ZERO,
            Ttl::Never,
        )
        .await
        .unwrap();
    let worker = daemon.worker_by(photos(), |_, operation| match &operation.what {
        Resource::Blob(container, _) if container.as_str() == "photos" && operation.writes => {
            FaultDecision::AnswerLate {
                answers: Duration::from_mins(1),
                timeout: Duration::from_mins(5),
            }
        }
        _ => FaultDecision::Execute,
    });
    let report = until_idle(&worker).await;
    assert_eq!((report.done, report.released, report.poisoned), (1, 0, 0));
    let took = daemon.clock.monotonic();
    assert_eq!(
        took.as_secs() / 60,
        3,
        "eight blocks take two rounds of four, then the block list is put: {took:?}"
    );
}

/// A job may queue a sync of another primary even if its own queue accepts no sync.
#[tokio::test(start_paused = true)]
async fn jobs_that_a_job_queues_are_done_even_if_its_queue_does_not_accept_them() {
    let daemon = Daemon::with_jobs(0).await;
    let put = async |rk: &str, mail: &str| {
        let entity = format!(
            r#"{{"PartitionKey":"p","RowKey":"{rk}","LastName":"King","FirstName":"Ann","IsManager":false,"Email":"{mail}"}}"#
        );
        let job = body::encode(&format!(
            r#"{{"op":"put","table":"Employees","entity":{entity}}}"#
        ));
        daemon
            .bare
            .queues
            .put(&company::queue("jobs"), &job, Duration::ZERO, Ttl::Never)
            .await
            .unwrap();
        let allowed = JobAllowance {
            ops: Some(["put".to_owned()].into()),
            tables: None,
        };
        let queue = QueueSettings {
            allowed,
            ..QueueSettings::plain(company::queue("jobs"))
        };
        let worker = daemon.worker_from(queue, company::catalog(Shape::default()), |_, _| {
            FaultDecision::Execute
        });
        let shutdown = CancellationToken::new();
        let enough = async {
            sleep(Duration::from_mins(1)).await;
            shutdown.cancel();
        };
        tokio::join!(worker.run(Mode::Forever, shutdown.clone()), enough)
            .0
            .unwrap()
    };
    put("1", "info@contoso.com").await;
    assert_eq!(
        put("2", "info@contoso.com").await.poisoned,
        1,
        "the first one has the key"
    );
    assert_eq!(put("1", "other@contoso.com").await.poisoned, 0);
    let key = EntityKey::new("email_p", "info@contoso.com").unwrap();
    let row = daemon
        .bare
        .tables
        .get(&company::table("ByEmail"), &key, None)
        .await
        .unwrap()
        .expect("the next owner must get the key");
    assert!(
        row.entity.text("ek_source").unwrap().contains(r#""p","2""#),
        "{row:?}"
    );
    assert_eq!(daemon.poisoned().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_busy_minute_poisons_nothing_of_a_backlog_that_waited_for_seven_hours() {
    let daemon = Daemon::with_jobs(500).await;
    sleep(Duration::from_hours(7)).await;
    let until = daemon.clock.monotonic() + Duration::from_mins(2);
    let worker = daemon.worker(move |now, operation| {
        let table = matches!(
            operation.what,
            Resource::Table(_) | Resource::Partition(..) | Resource::Entity(..)
        );
        let throttled = now < until && table && operation.writes && operation.number % 10 > 0;
        if throttled {
            FaultDecision::Fail(ErrorClass::Throttled { retry_after: None })
        } else {
            FaultDecision::Execute
        }
    });
    let report = until_idle(&worker).await;
    assert_eq!(
        (report.done, report.poisoned, daemon.poisoned().await),
        (500, 0, 0)
    );
    assert!(
        report.released > 0,
        "some messages must have been released because of the faults"
    );
    assert!(daemon.in_step(500).await);
}

#[tokio::test(start_paused = true)]
async fn ten_minutes_in_which_only_the_answers_to_gets_come_late_poison_nothing() {
    let daemon = Daemon::with_jobs(20).await;
    let until = daemon.clock.monotonic() + Duration::from_mins(10);
    let worker = daemon.worker(move |now, operation| {
        if now < until
            && operation.name == "Get Messages"
            && matches!(&operation.what, Resource::Queue(queue) if queue.as_str() == "jobs")
        {
            FaultDecision::AnswerLate {
                answers: Duration::from_secs(90),
                timeout: Duration::from_secs(30),
            }
        } else {
            FaultDecision::Execute
        }
    });
    let (status, shutdown) = (worker.status(), CancellationToken::new());
    let watch = async {
        sleep(Duration::from_mins(9)).await;
        assert_eq!(
            status.snapshot().queues[0].state,
            ReceiverState::AnswersLost
        );
        sleep(Duration::from_mins(5)).await;
        shutdown.cancel();
    };
    let (report, ()) = tokio::join!(worker.run(Mode::Forever, shutdown.clone()), watch);
    let report = report.unwrap();
    assert_eq!(
        (report.done, report.poisoned, daemon.poisoned().await),
        (20, 0, 0)
    );
    assert!(daemon.in_step(20).await);
}

/// A catalog with a view that finds employees by their e-mail address. All its rows are in one
/// partition.
fn by_email() -> Catalog {
    let table = |name: &str| TableRef {
        account: AccountName::main(),
        table: company::table(name),
    };
    let (employees, copies) = (table("Employees"), table("ByEmail"));
    let template = |text| Template::parse(text).unwrap();
    let view = View {
        name: ViewName::new("by_email").unwrap(),
        source: employees.clone(),
        when: None,
        kind: ViewKind::SecondaryIndex(SecondaryIndex {
            target: copies.clone().into(),
            partition_key: template("email_{PartitionKey}"),
            row_key: template("{Email}"),
            select: None,
        }),
        on_conflict: OnConflict::Reject,
    };
    let name = ViewName::new("former").unwrap();
    let archive = Archive {
        name: name.clone(),
        source: employees.clone(),
        target: ArchiveTarget::Table(table("FormerEmployees")),
    };
    Catalog {
        tables: [employees, copies, table("FormerEmployees")]
            .into_iter()
            .map(|table| (table.table.clone(), table))
            .collect(),
        views: [(view.name.clone(), Arc::new(view))].into(),
        archives: [(name, Arc::new(archive))].into(),
        ..Catalog::default()
    }
}

/// Returns the number of table requests and of rechecks of a message about a hundred employees. The
/// message's own Put, Get and Delete are not counted.
async fn requests_of(daemon: &Daemon, catalog: Catalog, message: &serde_json::Value) -> (u64, u64) {
    let requests = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let counted = Arc::clone(&requests);
    let worker = daemon.worker_by(catalog, move |_, operation| {
        let [tables, rechecks] = &*counted;
        match &operation.what {
            Resource::Queue(queue)
                if operation.name == "Put Message" && queue.as_str() == "jobs-recheck" =>
            {
                rechecks
            }
            Resource::Queue(_) => return FaultDecision::Execute,
            _ => tables,
        }
        .fetch_add(1, Ordering::Relaxed);
        FaultDecision::Execute
    });
    let text = body::encode(&message.to_string());
    daemon
        .bare
        .queues
        .put(&company::queue("jobs"), &text, Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
    let report = until_idle(&worker).await;
    assert_eq!(
        (report.done, report.released, report.poisoned),
        (100, 0, 0),
        "{message}"
    );
    let [tables, rechecks] = &*requests;
    (
        tables.load(Ordering::Relaxed),
        rechecks.load(Ordering::Relaxed),
    )
}

/// A daemon with a hundred employees of one partition, and messages of these operations about them.
async fn a_hundred(messages: &[serde_json::Value]) -> (Daemon, Vec<serde_json::Value>) {
    a_hundred_over(1, messages).await
}

/// A daemon with a hundred employees in this many partitions.
async fn a_hundred_over(
    partitions: usize,
    messages: &[serde_json::Value],
) -> (Daemon, Vec<serde_json::Value>) {
    a_hundred_under(
        |number| {
            [
                format!("p{:02}", number % partitions),
                format!("{number:03}"),
            ]
        },
        messages,
    )
    .await
}

/// A daemon in an account that has a hundred employees. `key` returns their keys.
async fn a_hundred_under(
    key: impl Fn(usize) -> [String; 2],
    messages: &[serde_json::Value],
) -> (Daemon, Vec<serde_json::Value>) {
    let daemon = Daemon::with_jobs(0).await;
    let keys: Vec<[String; 2]> = (0..100).map(key).collect();
    for [pk, rk] in &keys {
        let entity =
            Entity::new(EntityKey::new(pk, rk).unwrap()).with("Email", format!("{rk}@contoso.com"));
        daemon
            .bare
            .tables
            .apply(
                &company::table("Employees"),
                &TableOperation::Insert(entity),
            )
            .await
            .unwrap();
    }
    let mut messages = messages.to_vec();
    for message in &mut messages {
        message["keys"] = serde_json::json!(keys);
    }
    (daemon, messages)
}

/// A hundred single jobs would take a hundred requests each time. Here the reads of a partition are
/// one range query, and the writes are one transaction.
#[tokio::test(start_paused = true)]
async fn a_hundred_primaries_of_one_message_take_a_few_requests() {
    let sync = serde_json::json!({"op": "sync", "table": "Employees"});
    let archive = serde_json::json!({"op": "archive", "archive": "former"});
    let mut found = Vec::new();
    for (catalog, messages) in [
        (by_email(), vec![sync.clone(), sync, archive.clone()]),
        (
            Catalog {
                views: BTreeMap::new(),
                ..by_email()
            },
            vec![archive],
        ),
    ] {
        let (daemon, messages) = a_hundred(&messages).await;
        for message in messages {
            found.push(requests_of(&daemon, catalog.clone(), &message).await);
        }
    }
    // The results are those of the first sync into one index, of a sync that changes nothing, of an
    // archive job that also moves the copies, and of an archive job for a table without views.
    assert_eq!(
        found,
        [(6, 0), (3, 0), (9, 2), (4, 0)],
        "only archived primaries with items need rechecks"
    );
}

/// Keys with blanks, quotes or letters of any script cost hardly more requests than plain keys.
#[tokio::test(start_paused = true)]
async fn keys_of_every_kind_take_as_many_requests_as_plain_ones() {
    let sync = serde_json::json!({"op": "sync", "table": "Employees"});
    let mut found = BTreeMap::new();
    for kind in [
        "plain",
        "dept 001",
        "O'Brien",
        "50%",
        "Müller",
        "부서",
        "\u{1f600}",
        "a'b %ü",
        "\u{20bb7}한",
        "+&;=",
    ] {
        let (daemon, messages) = a_hundred_under(
            |number| [kind.to_owned(), format!("{kind}{number:03}")],
            &[sync.clone(), sync.clone()],
        )
        .await;
        let mut requests = 0;
        for message in messages {
            requests += requests_of(&daemon, by_email(), &message).await.0;
        }
        assert!(
            daemon
                .in_partition(&format!("email_{kind}").replace('%', "%25"))
                .await
                == 100,
            "{kind}"
        );
        found.insert(kind, requests);
    }
    let most = found["plain"] * 5 / 4;
    assert!(
        found.values().all(|requests| *requests <= most),
        "at most {most}: {found:?}"
    );
}

/// Jobs of one partition share requests. Primaries and footprints are read, announced, written and
/// closed for each partition.
#[tokio::test(start_paused = true)]
async fn primaries_of_several_partitions_take_requests_for_each() {
    let sync = serde_json::json!({"op": "sync", "table": "Employees"});
    let mut found = Vec::new();
    for partitions in [10, 100] {
        let (daemon, messages) = a_hundred_over(partitions, std::slice::from_ref(&sync)).await;
        found.push(requests_of(&daemon, by_email(), &messages[0]).await);
    }
    assert_eq!(
        found,
        [(52, 0), (501, 0)],
        "(table requests, rechecks) for 10 and for 100 partitions"
    );
}

/// Rechecks that jobs queue at the same time share messages.
#[tokio::test(start_paused = true)]
async fn a_hundred_deleted_primaries_are_rechecked_by_two_messages() {
    let delete = serde_json::json!({"op": "delete", "table": "Employees"});
    let (daemon, messages) = a_hundred(&[
        serde_json::json!({"op": "sync", "table": "Employees"}),
        delete,
    ])
    .await;
    let mut rechecks = 0;
    for message in &messages {
        rechecks = requests_of(&daemon, by_email(), message).await.1;
    }
    assert_eq!(rechecks, 2);
    sleep(RECHECK_AFTER + Duration::from_mins(2)).await;
    let requests = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&requests);
    let worker = daemon.worker_by(by_email(), move |_, operation| {
        counted.fetch_add(
            u64::from(!matches!(operation.what, Resource::Queue(_))),
            Ordering::Relaxed,
        );
        FaultDecision::Execute
    });
    let mode = Mode::UntilIdle {
        quiet: SECOND,
        rechecks: Rechecks::Awaited,
    };
    assert_eq!(
        worker
            .run(mode, CancellationToken::new())
            .await
            .unwrap()
            .done,
        100
    );
    let requests = requests.load(Ordering::Relaxed);
    assert!(requests <= 5, "{requests} requests to tables");
    let footprints = daemon
        .bare
        .tables
        .query(&company::table("EvenkeelFootprints"), &Query::default())
        .await
        .unwrap();
    assert!(footprints.rows.is_empty(), "nothing is left of them");
}

/// A catalog in which each department sets its name on all employees of its partition.
fn departments() -> Catalog {
    let of = |name: &str| TableRef {
        account: AccountName::main(),
        table: company::table(name),
    };
    let template = |text| Template::parse(text).unwrap();
    let view = View {
        name: ViewName::new("department_name").unwrap(),
        source: of("Departments"),
        when: None,
        kind: ViewKind::DenormalizeRange(DenormalizeRange {
            target: of("Employees").into(),
            partition_key: template("{PartitionKey}"),
            rows: RangeRows::All,
            set: [("DepartmentName".to_owned(), template("{Name}"))].into(),
        }),
        on_conflict: OnConflict::Reject,
    };
    Catalog {
        tables: ["Departments", "Employees"]
            .map(|name| (company::table(name), of(name)))
            .into(),
        views: [(view.name.clone(), Arc::new(view))].into(),
        ..Catalog::default()
    }
}

/// The queue does not allow the table to which a view writes its range overlay. A put job of the
/// queue still leads to that write, but a client cannot send the carry job itself.
#[tokio::test(start_paused = true)]
async fn a_queue_limited_to_some_tables_writes_ranges_of_others_only_through_its_views() {
    let daemon = Daemon::with_jobs(0).await;
    for table in [company::table("Departments"), range_overlay::table()] {
        daemon.bare.tables.create_table(&table).await.unwrap();
    }
    for number in 0..3 {
        let entity = Entity::new(EntityKey::new("Sales", number.to_string()).unwrap())
            .with("LastName", "King");
        daemon
            .bare
            .tables
            .apply(
                &company::table("Employees"),
                &TableOperation::Insert(entity),
            )
            .await
            .unwrap();
    }
    let employees = async || {
        let query = Query {
            filter: Some(Filter::partition(&Key::new("Sales").unwrap())),
            ..Query::default()
        };
        daemon
            .bare
            .tables
            .query(&company::table("Employees"), &query)
            .await
            .unwrap()
            .rows
    };
    let run = async |job: &str, ops: Option<&str>, table: &str| {
        daemon
            .bare
            .queues
            .put(
                &company::queue("jobs"),
                &body::encode(job),
                Duration::ZERO,
                Ttl::Never,
            )
            .await
            .unwrap();
        let tables = Some(AllowedTables::new(vec![
            AllowedTable::parse(table).unwrap(),
        ]));
        let allowed = JobAllowance {
            ops: ops.map(|op| [op.to_owned()].into()),
            tables,
        };
        let queue = QueueSettings {
            allowed,
            ..QueueSettings::plain(company::queue("jobs"))
        };
        let worker = daemon.worker_from(queue, departments(), |_, _| FaultDecision::Execute);
        let shutdown = CancellationToken::new();
        let enough = async {
            sleep(Duration::from_mins(2)).await;
            shutdown.cancel();
        };
        tokio::join!(worker.run(Mode::Forever, shutdown.clone()), enough)
            .0
            .unwrap()
    };
    let before = employees().await;
    let forged = r#"{"op":"propagate","view":"department_name","owner":{"pk":"Sales","rk":"department"},"table":"Employees","pk":"Sales"}"#;
    for (ops, table) in [
        (Some("sync"), "Employees"),
        (Some("propagate"), "Employees"),
        (None, "Departments"),
        (None, "ByEmail"),
    ] {
        let report = run(forged, ops, table).await;
        assert_eq!((report.done, report.poisoned), (0, 1), "{ops:?} {table}");
        assert_eq!(
            employees().await,
            before,
            "a rejected job must write nothing"
        );
    }
    let put = r#"{"op":"put","table":"Departments","entity":{"PartitionKey":"Sales","RowKey":"department","Name":"Sales and more"}}"#;
    let report = run(put, Some("put"), "Departments").await;
    assert_eq!(
        (report.done, report.poisoned),
        (2, 0),
        "the put job, and the propagation job that it queues"
    );
    assert!(
        employees()
            .await
            .iter()
            .all(|row| row.entity.text("DepartmentName") == Some("Sales and more"))
    );
}
