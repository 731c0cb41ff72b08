//! The environment of the attacks: a catalog with a view of every kind, two settled primaries (Ann and Bob), and canaries around them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use evenkeel_account::{FaultDecision, FaultPolicy, NoFaults, OperationInfo, SimWorld};
use evenkeel_azure::files::SharedFiles;
use evenkeel_config::{Configuration, Folder, Request};
use evenkeel_engine::{
    Delivery, Engine, EngineParts, Execute, Failure, FailureClass, Outcome, Recheck, Work,
    footprint,
};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::{self, Primary, Stamp};
use evenkeel_model::{
    AccountName, BlobName, CollectionName, ContainerName, DocumentKey, Entity, EntityKey, Job,
    QueueName, Row, SinkDocument, TableName, range_overlay,
};
use evenkeel_rollout::migrations::{Consent, Migrator};
use evenkeel_storage::{
    Account, BlobUpload, Clock, DocumentWrite, MessageText, Rng, Sink, Stores, TableOperation,
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tempfile::TempDir;

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[sinks.catalog]
kind = "search"
endpoint = "http://127.0.0.1:9"
auth = "entra"
credential = "developer_tools"

[views.by_email]
kind = "secondary_index"
source = "Staff"
table = "ByEmail"
partition_key = "email_{PartitionKey}"
row_key = "{Email|lower}"

[views.near]
kind = "secondary_index"
source = "Staff"
table = "Staff"
partition_key = "{PartitionKey}"
row_key = "near_{Email|lower}"

[views.by_last_name]
kind = "index_entity"
source = "Staff"
store = "table"
table = "Lists"
partition_key = "last"
row_key = "{LastName}"
member = ["{PartitionKey}", "{RowKey}", "{FirstName}"]
property = "Staff"

[views.phone_book]
kind = "index_entity"
source = "Staff"
store = "blob"
container = "phone-book"
name = "{LastName}.json"
member = ["{PartitionKey}", "{RowKey}"]

[views.manager]
kind = "denormalize"
source = "Staff"
when = "IsManager == true"
table = "Departments"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{FirstName}" }

[views.headcount]
kind = "aggregate"
source = "Staff"
group_table = "Groups"
partition_key = "groups"
row_key = "{PartitionKey}"
set = { Headcount = "count()" }

[views.floor]
kind = "denormalize"
targets = "range"
source = "Departments"
table = "Rooms"
partition_key = "{PartitionKey}"
set = { Floor = "{Floor}" }

[views.photos]
kind = "large_entity"
source = "Staff"
properties = ["Photo"]
container = "photos"
threshold = "1KiB"

[views.found]
kind = "search_index"
source = "Staff"
sink = "catalog"
index = "people"
fields = { name = "{FirstName} {LastName}" }

[views.managers]
kind = "secondary_index"
source = "Staff"
when = "IsManager == true"
table = "Managers"
partition_key = "m_{PartitionKey}"
row_key = "{RowKey}"

[views.managers_by_name]
kind = "secondary_index"
source = "Managers"
table = "ManagersByName"
partition_key = "{FirstName}"
row_key = "{RowKey}"

[archives.former]
source = "Staff"
to = { kind = "table", table = "Former" }

[views.former_photos]
kind = "large_entity"
source = "Former"
container = "former-photos"

[archives.drawer]
source = "Staff"
to = { kind = "file", dir = "$SHARE" }

[archives.trail]
source = "Events"
to = { kind = "append_blob", container = "logs", path = "trail/%Y/%m/%d/%H00" }

[retention.visits]
tables = "Visits%Y%m%d"
keep = "1d"

[views.visits_by_user]
kind = "secondary_index"
source = "Visits%Y%m%d"
table = "VisitsByUser%Y%m%d"
partition_key = "{User}"
row_key = "{RowKey}"

[tables.Payroll]
"#;

#[derive(Default)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millisecond(1_795_000_000_000 + self.0.fetch_add(1, Ordering::SeqCst))
            .unwrap()
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst).unsigned_abs())
    }
}

#[derive(Default)]
struct UniqueRng(AtomicU64);

impl Rng for UniqueRng {
    fn next_u64(&self) -> u64 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }
}

struct StopsAfter(AtomicUsize);

#[async_trait]
impl FaultPolicy for StopsAfter {
    async fn before(&self, _: &OperationInfo) -> FaultDecision {
        if self
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            })
            .is_err()
        {
            std::future::pending::<()>().await;
        }
        FaultDecision::Execute
    }
}

pub(crate) type Snapshot = BTreeMap<String, String>;

pub(crate) struct Stage {
    pub(crate) sim: SimWorld,
    pub(crate) account: Account,
    pub(crate) engine: Engine,
    stores: Stores,
    loaded: Configuration,
    clock: Arc<TestClock>,
    messages: AtomicU64,
    folder: TempDir,
}

pub(crate) fn table(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

pub(crate) fn container(name: &str) -> ContainerName {
    ContainerName::new(name).unwrap()
}

pub(crate) fn key(pk: &str, rk: &str) -> EntityKey {
    EntityKey::new(pk, rk).unwrap()
}

fn queue(name: &str) -> QueueName {
    QueueName::new(name).unwrap()
}

pub(crate) fn staff(rk: &str) -> Primary {
    Primary {
        table: table("Staff"),
        key: key("Sales", rk),
    }
}

fn engine(stores: &Stores, catalog: Catalog, clock: &Arc<TestClock>) -> Engine {
    Engine::new(EngineParts {
        stores: stores.clone(),
        catalog: Arc::new(catalog),
        clock: clock.clone(),
        rng: Arc::new(UniqueRng::default()),
        recheck_after: Duration::from_mins(26),
    })
}

/// The tables with canaries.
const TABLES: [&str; 12] = [
    "Staff",
    "ByEmail",
    "Lists",
    "Departments",
    "Groups",
    "Rooms",
    "Managers",
    "ManagersByName",
    "Former",
    "Payroll",
    "Ledger",
    ORDERS,
];
const CONTAINERS: [&str; 6] = [
    "photos",
    "former-photos",
    "phone-book",
    "payroll",
    "evenkeel-staging",
    "logs",
];
pub(crate) const ORDERS: &str = "Orders20200101";
/// A placeholder in a forged footprint for the present ETag of the row or blob.
pub(crate) const TRUE: &str = "$TRUE";
/// A log of another application, next to the archive's log.
pub(crate) const OTHER_LOG: &str = "theirs/2026/11/20/1500/000001.jsonl";

impl Stage {
    /// Ann (`7`) and Bob (`8`) of Sales exist with all their items. Cid (`9`) is in the file archive with a photo.
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["config", "share", "victim"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let text = CATALOG.replace("$SHARE", folder.path().join("share").to_str().unwrap());
        std::fs::write(folder.path().join("config/default.toml"), text).unwrap();
        let request = Request {
            folder: Folder::Named(folder.path().join("config")),
            ..Request::default()
        };
        let loaded = evenkeel_config::load(&request).unwrap_or_else(|errors| panic!("{errors}"));
        let clock = Arc::new(TestClock::default());
        let sim = SimWorld::new(AccountName::main(), clock.clone(), Arc::new(NoFaults));
        let account = sim.account();
        let sinks: BTreeMap<AccountName, Arc<dyn Sink>> =
            [(AccountName::new("catalog").unwrap(), sim.sink())].into();
        let stores = Stores::new([(AccountName::main(), account.clone())].into())
            .with_files(Arc::new(SharedFiles))
            .with_sinks(sinks);
        for name in TABLES {
            account.tables.create_table(&table(name)).await.unwrap();
        }
        for name in [
            footprint::table(),
            range_overlay::table(),
            table("EvenkeelAudits"),
            table("Events"),
        ] {
            account.tables.create_table(&name).await.unwrap();
        }
        for name in CONTAINERS {
            account
                .blobs
                .create_container(&container(name))
                .await
                .unwrap();
        }
        for name in ["jobs", "jobs-recheck", "jobs-poison", "other"] {
            account.queues.create_queue(&queue(name)).await.unwrap();
        }
        for index in ["people", "some-other-teams-index"] {
            sim.create_collection(&CollectionName::new(index).unwrap(), &["name"]);
        }
        let engine = engine(&stores, loaded.catalog.clone(), &clock);
        let stage = Self {
            sim,
            account,
            engine,
            stores,
            loaded,
            clock,
            messages: AtomicU64::new(0),
            folder,
        };
        stage.set().await;
        stage
    }

    pub(crate) async fn record(&mut self, rows: &[Entity]) {
        self.account
            .tables
            .create_table(&table("EvenkeelMigrations"))
            .await
            .unwrap();
        for row in rows {
            self.row("EvenkeelMigrations", row.clone()).await;
        }
        let catalog = Arc::new(self.loaded.catalog.clone());
        let migrator = Migrator::new(
            self.stores.clone(),
            &self.loaded.settings,
            catalog,
            self.clock.clone(),
        )
        .unwrap();
        drop(migrator.up(Consent::Replacement, |_| ()).await);
        let Ok(record) = migrator.catalog_record().await else {
            return;
        };
        let mut catalog = self.loaded.catalog.clone();
        catalog.generations = record.generations(&catalog);
        self.engine = engine(&self.stores, catalog, &self.clock);
    }

    async fn set(&self) {
        self.row(
            "Departments",
            Entity::new(key("Sales", "department")).with("Floor", 3),
        )
        .await;
        self.row("Rooms", Entity::new(key("Sales", "101")).with("Seats", 4))
            .await;
        for (rk, name) in [("7", "Ann"), ("8", "Bob"), ("9", "Cid")] {
            self.done(&json!({"op": "put", "table": "Staff", "entity": {
                "PartitionKey": "Sales", "RowKey": rk, "FirstName": name, "LastName": "King", "Email": format!("{name}@contoso.com"),
                "IsManager": rk == "8", "Photo": rk.repeat(2_000),
            }}))
            .await;
        }
        self.done(
            &json!({"op": "sync", "table": "Departments", "pk": "Sales", "rk": "department"}),
        )
        .await;
        self.done(&json!({"op": "archive", "archive": "drawer", "pk": "Sales", "rk": "9"}))
            .await;
        self.row(
            "Ledger",
            Entity::new(key("2026", "11")).with("Total", 1_000),
        )
        .await;
        self.row(
            "Payroll",
            Entity::new(key("Sales", "8")).with("Salary", 5_000),
        )
        .await;
        let upload = BlobUpload::default();
        let salaries = BlobName::new("2026/salaries.csv").unwrap();
        self.account
            .blobs
            .put(
                &container("payroll"),
                &salaries,
                Bytes::from_static(b"top secret salaries"),
                &upload,
            )
            .await
            .unwrap();
        self.row(ORDERS, Entity::new(key("2020", "1")).with("Total", 5))
            .await;
        let other = BlobName::new(OTHER_LOG).unwrap();
        self.account
            .blobs
            .create_append(&container("logs"), &other, &upload)
            .await
            .unwrap();
        self.account
            .blobs
            .append(&container("logs"), &other, Bytes::from_static(b"{}\n"), 0)
            .await
            .unwrap();
        std::fs::write(self.victim().join("canary.txt"), "alive").unwrap();
        let customer = DocumentKey::new("customer-42").unwrap();
        let document = Some(SinkDocument(
            [("name".to_owned(), json!("a customer"))].into(),
        ));
        let index = CollectionName::new("some-other-teams-index").unwrap();
        self.sim
            .sink()
            .write(
                &index,
                &[DocumentWrite {
                    key: customer,
                    document,
                    version: 1,
                    deadline: None,
                }],
            )
            .await
            .unwrap();
    }

    pub(crate) async fn row(&self, name: &str, entity: Entity) {
        self.account
            .tables
            .apply(&table(name), &TableOperation::InsertOrReplace(entity))
            .await
            .unwrap();
    }

    pub(crate) fn victim(&self) -> PathBuf {
        self.folder.path().join("victim")
    }

    pub(crate) fn share(&self) -> PathBuf {
        self.folder.path().join("share")
    }

    pub(crate) async fn read(&self, name: &str, pk: &str, rk: &str) -> Option<Row> {
        self.account
            .tables
            .get(&table(name), &key(pk, rk), None)
            .await
            .unwrap()
    }

    pub(crate) fn delivery(&self) -> Delivery {
        let number = self.messages.fetch_add(1, Ordering::SeqCst);
        Delivery {
            stamp: Stamp {
                message_id: format!("m{number}"),
                enqueued: self.clock.now(),
                job: None,
            },
            dequeue_count: 1,
            account: AccountName::main(),
            propagation_queue: queue("jobs"),
            sync_queue: queue("jobs"),
            recheck_queue: queue("jobs-recheck"),
            tables: None,
        }
    }

    pub(crate) async fn attempt(&self, job: &Value) -> Result<Outcome, Failure> {
        let job: Job = job::decode(&job.to_string()).unwrap().job;
        self.execute(&Work::Job(job)).await
    }

    /// Does the same as [`attempt`](Self::attempt), but accepts an invalid message.
    pub(crate) async fn attempt_raw(&self, job: &Value) {
        if let Ok(envelope) = job::decode(&job.to_string()) {
            drop(self.execute(&Work::Job(envelope.job)).await);
        }
    }

    async fn execute(&self, work: &Work) -> Result<Outcome, Failure> {
        let mut delivery = self.delivery();
        loop {
            match self.engine.execute(work, &delivery).await {
                Err(failure)
                    if matches!(failure.class, FailureClass::Transient { .. })
                        && delivery.dequeue_count < 5 =>
                {
                    delivery.dequeue_count += 1;
                }
                ended => return ended,
            }
        }
    }

    pub(crate) async fn done(&self, job: &Value) {
        match self.attempt(job).await {
            Ok(Outcome::Done(_)) => {}
            ended => panic!("{job} ended as {ended:?}"),
        }
        self.queued().await;
    }

    pub(crate) async fn queued(&self) {
        loop {
            let messages = self
                .account
                .queues
                .get(&queue("jobs"), 32, Duration::from_mins(5))
                .await
                .unwrap();
            if messages.is_empty() {
                return;
            }
            for message in messages {
                let MessageText::Readable(text) = &message.text else {
                    panic!("message cannot be decoded")
                };
                // A worker would poison an invalid message, and do nothing else.
                if let Ok(envelope) = job::decode(text) {
                    drop(self.execute(&Work::Job(envelope.job)).await);
                }
                self.account
                    .queues
                    .delete(&queue("jobs"), &message.id, &message.pop_receipt)
                    .await
                    .unwrap();
            }
        }
    }

    pub(crate) async fn refused(&self, job: &Value) -> String {
        match self.attempt(job).await {
            Err(failure) if failure.class == FailureClass::Permanent => failure.chain(),
            ended => panic!("{job} ended as {ended:?}"),
        }
    }

    /// Delivers a message of the recheck queue. An invalid message does nothing.
    pub(crate) async fn recheck(&self, message: &Value) {
        for recheck in Recheck::decode_all(&message.to_string()).unwrap_or_default() {
            drop(self.execute(&Work::Recheck(recheck)).await);
            self.queued().await;
        }
    }

    pub(crate) async fn recheck_of(&self, primary: &Primary, items: &[Value]) {
        let key = &primary.key;
        self.recheck(&json!({"v": 1, "op": "recheck", "table": primary.table, "pk": key.pk, "rk": key.rk, "items": items})).await;
    }

    /// Overwrites the footprint of a primary with a list of items, and syncs the primary. The items have the format of footprints, with [`TRUE`] for
    /// the present ETag. Bob is recorded as a contender for the key of each item without [`TRUE`].
    pub(crate) async fn forge_footprint(
        &self,
        primary: &Primary,
        items: &Value,
    ) -> Result<Outcome, Failure> {
        self.forge(primary, items).await;
        let ended = self.attempt(&json!({"op": "sync", "table": primary.table, "pk": primary.key.pk, "rk": primary.key.rk})).await;
        self.queued().await;
        ended
    }

    pub(crate) async fn forge(&self, primary: &Primary, items: &Value) {
        let mut entity = Entity::new(footprint::key(primary));
        let row = |item: &Value| {
            // The sync deletes an item whose version is true. A contender for the key would create that item again, so only
            // the other items get a contender.
            let site = item[3]
                .as_array()
                .filter(|site| site.len() == 4 && item[5] != TRUE)?;
            let address = json!({"view": item[0], "account": item[2], "table": site[1], "pk": site[2], "rk": site[3]});
            Some(["Staff", "Payroll"].map(|table| json!({"item": address, "primary": {"table": table, "pk": "Sales", "rk": "8"}})))
        };
        let contenders: Vec<Value> = items
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(row)
            .flatten()
            .collect();
        let mut items = items.clone();
        for item in items
            .as_array_mut()
            .into_iter()
            .flatten()
            .filter(|item| item[5] == TRUE)
        {
            item[5] = json!(self.version_at(&item[3]).await);
        }
        entity = entity
            .with("Version", 1)
            .with("Items", items.to_string())
            .with("Contenders", json!(contenders).to_string());
        self.account
            .tables
            .apply(
                &footprint::table(),
                &TableOperation::InsertOrReplace(entity),
            )
            .await
            .unwrap();
    }

    /// Delivers a job to a worker that stops after this many operations. Returns whether the worker stopped before the end of the job.
    pub(crate) async fn stops_after(&self, operations: usize, job: &Value) -> bool {
        let seen = self
            .sim
            .for_caller(1, Arc::new(StopsAfter(AtomicUsize::new(operations))));
        let sinks: BTreeMap<AccountName, Arc<dyn Sink>> =
            [(AccountName::new("catalog").unwrap(), seen.sink())].into();
        let stores = Stores::new([(AccountName::main(), seen.account())].into())
            .with_files(Arc::new(SharedFiles))
            .with_sinks(sinks);
        let engine = engine(&stores, self.loaded.catalog.clone(), &self.clock);
        let work = Work::Job(job::decode(&job.to_string()).unwrap().job);
        tokio::time::timeout(
            Duration::from_mins(5),
            engine.execute(&work, &self.delivery()),
        )
        .await
        .is_err()
    }

    async fn version_at(&self, site: &Value) -> Option<String> {
        let site: Vec<&str> = site.as_array()?.iter().filter_map(Value::as_str).collect();
        let etag = match site.as_slice() {
            ["row", table, pk, rk] => self.read(table, pk, rk).await?.etag,
            ["blob", of, name] => {
                self.account
                    .blobs
                    .properties(&container(of), &BlobName::new(*name).unwrap())
                    .await
                    .unwrap()?
                    .etag
            }
            _ => return None,
        };
        Some(etag.to_string())
    }

    pub(crate) async fn footprint_of(&self, primary: &Primary) -> Option<Row> {
        self.account
            .tables
            .get(&footprint::table(), &footprint::key(primary), None)
            .await
            .unwrap()
    }

    /// Everything that does not belong to Ann (`7` of Sales), as text: rows without their versions, blobs, documents, files and folders.
    pub(crate) fn picture(&self) -> Snapshot {
        let mut picture = Snapshot::new();
        for name in TABLES {
            for row in self.sim.rows(&table(name)) {
                if !is_anns(name, &row.entity) {
                    picture.insert(format!("{name}{}", row.entity.key), said(&row.entity));
                }
            }
        }
        for name in CONTAINERS {
            for (blob, content) in self.sim.blobs(&container(name)) {
                let anns = blob.as_str().starts_with("staff/Sales/7/")
                    || blob.as_str().starts_with("trail/");
                if !anns && name != "phone-book" {
                    picture.insert(
                        format!("{name}/{blob}"),
                        format!("{:?} {:?}", content.content, content.properties.metadata),
                    );
                }
            }
        }
        for index in ["people", "some-other-teams-index"] {
            let own = evenkeel_model::sink::key(&staff("7"));
            for (key, document) in self.sim.documents(&CollectionName::new(index).unwrap()) {
                if key != own {
                    picture.insert(format!("{index}/{key}"), format!("{document:?}"));
                }
            }
        }
        for dir in [self.victim(), self.share()] {
            walk(&dir, &mut picture);
        }
        picture
    }

    pub(crate) async fn members(&self) -> String {
        let row = self.read("Lists", "last", "King").await.unwrap();
        row.entity.text("Staff").unwrap().to_owned()
    }

    pub(crate) async fn bob_is_listed(&self) {
        assert!(
            self.members().await.contains(r#"["Sales","8","Bob"]"#),
            "Bob must be in the list in the row"
        );
        let book = self
            .account
            .blobs
            .get(
                &container("phone-book"),
                &BlobName::new("King.json").unwrap(),
                None,
            )
            .await
            .unwrap()
            .unwrap();
        let book = String::from_utf8_lossy(&book.content).into_owned();
        assert!(
            book.contains(r#"["Sales","8"]"#),
            "Bob must be in the list in the blob: {book}"
        );
    }
}

/// Whether a row is Ann's own, an item of Ann, or a row that several primaries share.
fn is_anns(name: &str, entity: &Entity) -> bool {
    let source = entity.text("ek_source").unwrap_or_default();
    let shared = ["Lists", "Groups", "Departments"].contains(&name);
    let herself = ["Staff", "Former"].contains(&name) && entity.key == key("Sales", "7");
    herself || shared || source.contains(r#""Sales","7""#)
}

/// The properties of an entity, without the properties that views set on it.
fn said(entity: &Entity) -> String {
    let kept = |name: &str| name == "Floor" || name.starts_with("ek_owner_");
    let own: BTreeMap<_, _> = entity
        .properties
        .iter()
        .filter(|(name, _)| !kept(name))
        .collect();
    format!("{own:?}")
}

fn walk(dir: &Path, picture: &mut Snapshot) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            picture.insert(path.display().to_string(), "a folder".to_owned());
            walk(&path, picture);
        } else {
            picture.insert(
                path.display().to_string(),
                String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned(),
            );
        }
    }
}
