//! The environment of a pattern: an account, an engine with a catalog, and a client.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use evenkeel_azure::files::SharedFiles;
use evenkeel_client::Client;
use evenkeel_config::{Folder, Request};
use evenkeel_engine::{
    Delivery, Engine, EngineParts, Execute, Failure, FailureClass, Outcome, PlanReport, Work,
    footprint,
};
use evenkeel_layers::stack::{DecoratedAccount, DecoratedSink, Grouping, decorate, decorate_sink};
use evenkeel_model::catalog::{ArchiveTarget, Catalog, Form};
use evenkeel_model::job::{self, Primary, Stamp};
use evenkeel_model::large::STAGING;
use evenkeel_model::range_overlay;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{
    AccountName, BlobName, ContainerName, Entity, EntityKey, Job, QueueName, Row, TableName, limits,
};
use evenkeel_sinks::search;
use evenkeel_sqlite::EmbeddedStore;
use evenkeel_storage::system::{SystemClock, SystemRng};
use evenkeel_storage::{
    Account, Blob, BlobUpload, Clock, MessageText, Query, Rng, Stores, TableOperation, all_rows,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::SignedDuration;
use serde_json::Value;
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::azurite;
use crate::support::search::SearchStub;

const MOST_QUEUED: u32 = 100;

/// A site. Names in catalogs and jobs may contain `§`, which is replaced by a text that is unique per test.
pub(crate) struct Site {
    pub(crate) account: Account,
    pub(crate) engine: Engine,
    pub(crate) client: Client,
    decorated: DecoratedAccount,
    searched: Option<(SearchStub, DecoratedSink)>,
    clock: Arc<dyn Clock>,
    unique: String,
    messages: AtomicU64,
    pub(crate) folder: TempDir,
}

impl Site {
    pub(crate) async fn embedded(catalog: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let bare = EmbeddedStore::open(
            &folder.path().join("store.db"),
            AccountName::main(),
            Arc::clone(&clock),
        )
        .unwrap();
        Self::on(&bare, folder, clock, catalog).await
    }

    pub(crate) async fn azurite(catalog: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::on(
            &azurite::shared().connect(),
            folder,
            Arc::new(SystemClock::new()),
            catalog,
        )
        .await
    }

    async fn on(bare: &Account, folder: TempDir, clock: Arc<dyn Clock>, catalog: &str) -> Self {
        let unique = Uuid::new_v4().simple().to_string()[..12].to_owned();
        std::fs::create_dir(folder.path().join("config")).unwrap();
        std::fs::create_dir(folder.path().join("share")).unwrap();
        let search = catalog.contains("$SEARCH").then(SearchStub::start);
        let text = catalog
            .replace('§', &unique)
            .replace(
                "$SEARCH",
                &search
                    .as_ref()
                    .map(SearchStub::endpoint)
                    .unwrap_or_default(),
            )
            .replace("$SHARE", folder.path().join("share").to_str().unwrap());
        std::fs::write(folder.path().join("config/default.toml"), text).unwrap();
        let request = Request {
            folder: Folder::Named(folder.path().join("config")),
            ..Request::default()
        };
        let catalog = evenkeel_config::load(&request)
            .unwrap_or_else(|errors| panic!("{errors}"))
            .catalog;
        let rng: Arc<dyn Rng> = Arc::new(SystemRng::new());
        let schedule = evenkeel_model::settings::RetryPolicy::growing(
            evenkeel_model::settings::Backoff {
                min: std::time::Duration::from_millis(1),
                base: std::time::Duration::from_millis(1),
                max: std::time::Duration::from_secs(1),
            },
            3,
        );
        let decorated = decorate(
            &AccountName::main(),
            bare,
            Grouping::Together,
            schedule,
            &clock,
            &rng,
        );
        let sink = AccountName::new("catalog").unwrap();
        let searched = search.map(|stub| {
            let bare = search::connect(stub.service(&sink)).unwrap();
            (stub, decorate_sink(&sink, bare, schedule, &clock, &rng))
        });
        let sinks = searched
            .iter()
            .map(|(_, decorated)| (sink.clone(), Arc::clone(&decorated.sink)))
            .collect();
        let stores = Stores::new([(AccountName::main(), decorated.account.clone())].into())
            .with_files(Arc::new(SharedFiles))
            .with_sinks(sinks);
        create(bare, &catalog).await;
        let site_catalog = Arc::new(catalog);
        let recheck_after = std::time::Duration::from_mins(26);
        let queue = QueueSettings::plain(QueueName::new(format!("jobs-{unique}")).unwrap());
        let client = Client::new(stores.clone(), Arc::clone(&site_catalog), vec![queue]);
        let parts = EngineParts {
            stores,
            catalog: Arc::clone(&site_catalog),
            clock: Arc::clone(&clock),
            rng,
            recheck_after,
        };
        for suffix in ["", "-recheck"] {
            bare.queues
                .create_queue(&QueueName::new(format!("jobs-{unique}{suffix}")).unwrap())
                .await
                .unwrap();
        }
        let engine = Engine::new(parts);
        engine.read_secret().await;
        Self {
            account: bare.clone(),
            engine,
            client,
            decorated,
            searched,
            clock,
            unique,
            messages: AtomicU64::new(0),
            folder,
        }
    }

    pub(crate) fn name(&self, name: &str) -> String {
        name.replace('§', &self.unique)
    }

    pub(crate) fn table(&self, name: &str) -> TableName {
        TableName::new(self.name(name)).unwrap()
    }

    pub(crate) fn message(&self, json: &Value) -> (Job, Delivery) {
        let job = job::decode(&compressed(&self.name(&json.to_string())))
            .unwrap()
            .job;
        let number = self.messages.fetch_add(1, Ordering::SeqCst);
        // The engine drops a table only when its retention time has passed by the clock of the queue service.
        let later = if matches!(job, Job::DropTable(_)) {
            SignedDuration::from_hours(24 * 100)
        } else {
            SignedDuration::ZERO
        };
        let delivery = Delivery {
            stamp: Stamp {
                message_id: format!("m{number}"),
                enqueued: self.clock.now().saturating_add(later).unwrap(),
                job: None,
            },
            dequeue_count: 1,
            account: AccountName::main(),
            propagation_queue: QueueName::new(format!("jobs-{}", self.unique)).unwrap(),
            sync_queue: QueueName::new(format!("jobs-{}", self.unique)).unwrap(),
            recheck_queue: QueueName::new(format!("jobs-{}-recheck", self.unique)).unwrap(),
            tables: None,
        };
        (job, delivery)
    }

    pub(crate) async fn deliver(&self, job: &Job, delivery: &Delivery) -> Result<Outcome, Failure> {
        self.engine.execute(&Work::Job(job.clone()), delivery).await
    }

    pub(crate) async fn attempt(&self, json: &Value) -> Result<Outcome, Failure> {
        let (job, mut delivery) = self.message(json);
        loop {
            match self.deliver(&job, &delivery).await {
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

    pub(crate) async fn work(&self, json: Value) {
        match self.attempt(&json).await {
            Ok(Outcome::Done(_)) => {}
            Ok(Outcome::Advanced { .. }) => panic!("{json} is not done"),
            Ok(Outcome::Skipped { reason, .. }) => panic!("{json} was skipped: {reason}"),
            Err(failure) => panic!("{json}: {}", failure.chain()),
        }
    }

    pub(crate) async fn do_queued(&self) -> Vec<String> {
        let queue = QueueName::new(format!("jobs-{}", self.unique)).unwrap();
        let (mut failed, mut done) = (Vec::new(), 0);
        loop {
            let messages = self
                .account
                .queues
                .get(&queue, 32, std::time::Duration::from_mins(5))
                .await
                .unwrap();
            if messages.is_empty() {
                return failed;
            }
            for message in messages {
                done += 1;
                assert!(done < MOST_QUEUED, "jobs keep queueing jobs: {message:?}");
                let MessageText::Readable(text) = &message.text else {
                    panic!("message cannot be decoded")
                };
                let json = Value::Object(job::decode_object(text).unwrap());
                match self.attempt(&json).await {
                    Ok(Outcome::Done(_)) => {}
                    Ok(ended) => panic!("{json} ended as {ended:?}"),
                    Err(failure) => failed.push(failure.chain()),
                }
                self.account
                    .queues
                    .delete(&queue, &message.id, &message.pop_receipt)
                    .await
                    .unwrap();
            }
        }
    }

    /// Number of queued jobs, at most 32.
    pub(crate) async fn queued(&self) -> usize {
        let queue = QueueName::new(format!("jobs-{}", self.unique)).unwrap();
        self.account.queues.peek(&queue, 32).await.unwrap().len()
    }

    pub(crate) async fn refused(&self, json: Value) -> String {
        match self.attempt(&json).await {
            Err(failure) if failure.class == FailureClass::Permanent => failure.chain(),
            ended => panic!("{json} ended as {ended:?}"),
        }
    }

    pub(crate) async fn plan(&self, table: &str, pk: &str, rk: &str) -> PlanReport {
        let primary = Primary {
            table: self.table(table),
            key: EntityKey::new(pk, rk).unwrap(),
        };
        self.engine.plan(&primary).await.unwrap()
    }

    pub(crate) async fn requests_of(&self, json: Value) -> u64 {
        let before = self.requests();
        self.work(json).await;
        self.requests() - before
    }

    pub(crate) async fn writes_of(&self, json: Value) -> BTreeMap<&'static str, u64> {
        let before = self.decorated.counts.snapshot();
        self.work(json).await;
        let sent = self.decorated.counts.snapshot().since(&before).requests;
        let reads = ["get_entity", "query_entities"];
        sent.into_iter()
            .map(|(op, count)| (op.label(), count))
            .filter(|(op, count)| *count > 0 && !reads.contains(op))
            .collect()
    }

    pub(crate) fn requests(&self) -> u64 {
        let searched = self.searched.as_ref().map_or(0, |(_, decorated)| {
            decorated.counts.snapshot().transactions()
        });
        self.decorated.counts.snapshot().transactions() + searched
    }

    pub(crate) fn search(&self) -> &SearchStub {
        &self.searched.as_ref().unwrap().0
    }

    pub(crate) async fn row(&self, table: &str, pk: &str, rk: &str) -> Option<Row> {
        self.account
            .tables
            .get(&self.table(table), &EntityKey::new(pk, rk).unwrap(), None)
            .await
            .unwrap()
    }

    pub(crate) async fn keys(&self, table: &str, property: &str) -> Vec<(String, String, String)> {
        let rows = all_rows(
            self.account.tables.as_ref(),
            &self.table(table),
            Query::default(),
        )
        .await
        .unwrap();
        let key = |row: &Row| {
            let key = &row.entity.key;
            (
                key.pk.to_string(),
                key.rk.to_string(),
                row.entity.text(property).unwrap_or_default().to_owned(),
            )
        };
        rows.iter().map(key).collect()
    }

    pub(crate) async fn write(&self, table: &str, entity: Entity) {
        self.account
            .tables
            .apply(&self.table(table), &TableOperation::InsertOrReplace(entity))
            .await
            .unwrap();
    }

    pub(crate) async fn blob(&self, container: &str, name: &str) -> Option<Blob> {
        let container = ContainerName::new(self.name(container)).unwrap();
        self.account
            .blobs
            .get(&container, &BlobName::new(name).unwrap(), None)
            .await
            .unwrap()
    }

    pub(crate) async fn delete_blob(&self, container: &str, name: &str) {
        let container = ContainerName::new(self.name(container)).unwrap();
        assert!(
            self.account
                .blobs
                .delete(&container, &BlobName::new(name).unwrap(), None)
                .await
                .unwrap()
        );
    }

    pub(crate) async fn blobs(&self, container: &str) -> Vec<String> {
        let container = ContainerName::new(self.name(container)).unwrap();
        let page = self.account.blobs.list(&container, "", None).await.unwrap();
        page.blobs
            .into_iter()
            .map(|blob| blob.name.to_string())
            .collect()
    }

    /// Stages a blob with a unique name. Returns the reference for the job.
    pub(crate) async fn stage(
        &self,
        name: &str,
        content: impl Into<Bytes>,
        content_type: &str,
    ) -> Value {
        let upload = BlobUpload {
            content_type: Some(content_type.to_owned()),
            ..BlobUpload::default()
        };
        let name = format!("{}/{name}", self.unique);
        let container = ContainerName::new(STAGING).unwrap();
        self.account
            .blobs
            .put(
                &container,
                &BlobName::new(name.as_str()).unwrap(),
                content.into(),
                &upload,
            )
            .await
            .unwrap();
        serde_json::json!({"blob": format!("{STAGING}/{name}")})
    }

    pub(crate) async fn staged(&self) -> Vec<String> {
        let page = self
            .account
            .blobs
            .list(&ContainerName::new(STAGING).unwrap(), &self.unique, None)
            .await
            .unwrap();
        page.blobs
            .into_iter()
            .map(|blob| blob.name.to_string())
            .collect()
    }

    pub(crate) async fn in_step(&self, table: &str) {
        for (pk, rk, view) in self.keys(table, "ek_view").await {
            if view.is_empty() {
                let primary = Primary {
                    table: self.table(table),
                    key: EntityKey::new(pk, rk).unwrap(),
                };
                let plan = self.engine.plan(&primary).await.unwrap();
                assert!(plan.in_step, "{plan}");
            }
        }
    }
}

async fn create(account: &Account, catalog: &Catalog) {
    for table in catalog
        .tables
        .keys()
        .cloned()
        .chain([footprint::table(), range_overlay::table()])
    {
        account.tables.create_table(&table).await.unwrap();
    }
    let staging = ContainerName::new(STAGING).unwrap();
    let of_views = catalog.views.values().filter_map(|view| match view.form() {
        Form::Values(large) => Some(&large.container),
        Form::BlobLists(lists) => Some(&lists.container),
        _ => None,
    });
    let containers: BTreeSet<&ContainerName> = catalog
        .archives
        .values()
        .filter_map(|archive| match &archive.target {
            ArchiveTarget::Blob(target) => Some(&target.container),
            ArchiveTarget::Log(target) => Some(&target.container),
            ArchiveTarget::Table(_) | ArchiveTarget::File(_) => None,
        })
        .chain(of_views)
        .chain([&staging])
        .collect();
    for container in containers {
        account.blobs.create_container(container).await.unwrap();
    }
}

/// Compresses the text of a message if it is too long, as a sender does.
fn compressed(text: &str) -> String {
    if text.len() <= limits::QUEUE_BODY_BYTES {
        return text.to_owned();
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    gzip.write_all(text.as_bytes()).unwrap();
    BASE64.encode(gzip.finish().unwrap())
}

pub(crate) fn key(pk: &str, rk: &str, property: &str) -> (String, String, String) {
    (pk.to_owned(), rk.to_owned(), property.to_owned())
}
