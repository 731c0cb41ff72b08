//! A contest: the same jobs for every contender, in turn, over some rounds.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::job::Packer;
use evenkeel_model::{AccountName, Entity, EntityKey, QueueName, TableName, body};
use evenkeel_sqlite::EmbeddedStore;
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Account, TableOperation, Ttl};
use futures::StreamExt as _;
use serde::Deserialize;
use tempfile::TempDir;

use crate::bare;
use crate::distant::Distant;
use crate::emulator::Emulator;
use crate::support::azurite::Ports;

/// Where the contest is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreKind {
    Embedded,
    Azurite,
    /// As far away as Azure.
    Distant,
}

/// Whether the emulator's services share a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Services {
    /// Queues and tables answer each on a thread of its own, as on Azure neither waits for the other.
    Apart,
    /// As Azurite starts by default.
    Together,
}

/// What the jobs ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Archive,
    Sync,
}

/// Who takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Evenkeel,
    /// With jobs that their sender has packed, as `evenkeel submit --pack` does.
    Packed,
    Bare,
    /// What it does, and how many jobs it has in flight.
    Handwritten(&'static str, usize),
}

/// What answers over HTTP.
enum Server {
    Azurite(Emulator),
    Distant(Distant),
}

impl Server {
    fn ports(&self) -> Ports {
        match self {
            Self::Azurite(emulator) => emulator.ports(),
            Self::Distant(distant) => distant.ports(),
        }
    }
}

/// Partitions of the entities at a distance.
const PARTITIONS: usize = 8;
/// Jobs that a sender puts into one message.
const PACK: usize = 100;

pub(crate) struct Contest {
    pub(crate) store: StoreKind,
    pub(crate) services: Services,
    pub(crate) work: Work,
    pub(crate) jobs: usize,
    pub(crate) concurrency: usize,
}

/// What a contender needed.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Effort {
    /// From asking for the first message to deleting the last, for every contender alike.
    #[serde(alias = "working_seconds")]
    pub(crate) seconds: f64,
    #[serde(alias = "storage_requests")]
    pub(crate) requests: u64,
    /// Processor time of the emulator, in milliseconds.
    #[serde(skip)]
    pub(crate) store_ms: f64,
}

/// A fresh store with entities and messages.
pub(crate) struct Field {
    pub(crate) account: Account,
    folder: TempDir,
    server: Option<Server>,
}

pub(crate) fn queue() -> QueueName {
    QueueName::new("bench-jobs").unwrap()
}

pub(crate) fn table(name: &str) -> TableName {
    TableName::new(name).unwrap()
}

impl Work {
    /// What people write for it by hand.
    const fn by_hand(self) -> &'static str {
        match self {
            Self::Archive => "archive",
            Self::Sync => "sync",
        }
    }
}

impl Contest {
    /// The partition of an employee.
    fn department(&self, number: usize) -> String {
        match self.store {
            StoreKind::Distant => format!("Sales{}", number % PARTITIONS),
            StoreKind::Embedded | StoreKind::Azurite => "Sales".to_owned(),
        }
    }

    fn contenders(&self) -> Vec<Contender> {
        let mut contenders = vec![Contender::Evenkeel];
        match (self.store, self.work) {
            (StoreKind::Embedded, _) => contenders.push(Contender::Bare),
            (StoreKind::Azurite, work) => {
                contenders.push(Contender::Bare);
                contenders.push(Contender::Handwritten(work.by_hand(), self.concurrency));
                if work == Work::Sync {
                    contenders.push(Contender::Handwritten("sync-same", self.concurrency));
                }
            }
            (StoreKind::Distant, work) => {
                contenders.push(Contender::Packed);
                contenders.extend(
                    [64, 128, 256].map(|flying| Contender::Handwritten(work.by_hand(), flying)),
                );
            }
        }
        contenders
    }

    pub(crate) async fn hold(&self, rounds: usize) {
        let services = if self.store == StoreKind::Azurite {
            format!(" (services {:?})", self.services).to_lowercase()
        } else {
            String::new()
        };
        println!(
            "\n{:?} on {:?}{services}: {} jobs, {} in flight, {rounds} rounds, medians",
            self.work,
            self.store,
            self.jobs,
            if self.store == StoreKind::Distant {
                "auto".to_owned()
            } else {
                self.concurrency.to_string()
            }
        );
        let contenders = self.contenders();
        let mut efforts: Vec<Vec<Effort>> = vec![Vec::new(); contenders.len()];
        for round in 0..rounds {
            // Each goes first in turn: what a machine does beside changes slowly.
            for place in 0..contenders.len() {
                let index = (round + place) % contenders.len();
                let pack = if contenders[index] == Contender::Packed {
                    PACK
                } else {
                    1
                };
                let field = Field::prepare(self, pack).await;
                efforts[index].push(self.run(contenders[index], &field).await);
            }
        }
        println!(
            "  {:<28}{:>10}{:>15}{:>19}{:>27}",
            "", "jobs/s", "requests/job", "store CPU ms/job", "evenkeel's jobs/s: times"
        );
        for (index, contender) in contenders.iter().enumerate() {
            let each = |of: fn(&Effort) -> f64| {
                median(
                    efforts[index]
                        .iter()
                        .map(|effort| of(effort) / self.jobs as f64),
                )
            };
            let speed = median(
                efforts[index]
                    .iter()
                    .map(|effort| self.jobs as f64 / effort.seconds),
            );
            let (requests, store) = (
                each(|effort| effort.requests as f64),
                each(|effort| effort.store_ms),
            );
            let ratio = median(
                efforts[0]
                    .iter()
                    .zip(&efforts[index])
                    .map(|(own, other)| other.seconds / own.seconds),
            );
            println!(
                "  {:<28}{speed:>10.0}{requests:>15.2}{store:>19.2}{ratio:>27.2}",
                contender.name()
            );
        }
    }

    async fn run(&self, contender: Contender, field: &Field) -> Effort {
        let before = field.store_ms();
        let mut effort = match contender {
            Contender::Evenkeel | Contender::Packed => evenkeel(
                field,
                (self.store != StoreKind::Distant).then_some(self.concurrency),
            ),
            Contender::Bare => {
                bare::run(&field.account, self.work, self.jobs, self.concurrency).await
            }
            Contender::Handwritten(work, flying) => {
                // Not on a thread of the runtime that answers it.
                tokio::task::block_in_place(|| self.handwritten(field, work, flying))
            }
        };
        effort.store_ms = field.store_ms() - before;
        field.check(self).await;
        effort
    }

    fn handwritten(&self, field: &Field, work: &str, flying: usize) -> Effort {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/jobs/handwritten.mjs");
        let mut node = Command::new("node");
        node.arg(script)
            .args(["--work", work, "--queue", queue().as_str()]);
        node.args([
            "--count",
            &self.jobs.to_string(),
            "--concurrency",
            &flying.to_string(),
        ]);
        node.env("AZURE_STORAGE_CONNECTION_STRING", field.connection_string());
        answer(node)
    }
}

impl Contender {
    fn name(self) -> String {
        match self {
            Self::Evenkeel => "evenkeel".to_owned(),
            Self::Packed => format!("evenkeel, packed by {PACK}"),
            Self::Bare => "bare loop, one by one".to_owned(),
            Self::Handwritten("sync-same", flying) => format!("Node.js SDK, same work, {flying}"),
            Self::Handwritten(_, flying) => format!("Node.js SDK, by hand, {flying}"),
        }
    }
}

/// Runs the program on a field until it is idle.
fn evenkeel(field: &Field, concurrency: Option<usize>) -> Effort {
    let mut program = field.program();
    if let Some(concurrency) = concurrency {
        program.env("EVENKEEL__QUEUES__0__CONCURRENCY", concurrency.to_string());
    }
    program.args(["--json", "-q", "run", "--until-idle=0", "--no-http"]);
    tokio::task::block_in_place(|| answer(program))
}

/// Runs a command that prints its effort as JSON.
fn answer(mut command: Command) -> Effort {
    effort_of(&command.output().unwrap())
}

/// What a command has printed of its effort.
pub(crate) fn effort_of(output: &Output) -> Effort {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let mut answer: serde_json::Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stdout)));
    if answer.get("working_seconds").is_some() {
        // evenkeel says beside how long the program ran.
        answer.as_object_mut().unwrap().remove("seconds");
    }
    serde_json::from_value(answer).unwrap()
}

const CONFIG: &str = r#"
[[queues]]
name = "bench-jobs"

[views.by_email]
kind = "secondary_index"
source = "Staff"
table = "EmployeesByEmail"
partition_key = "email_{PartitionKey}"
row_key = "{Email|lower}"
select = ["FirstName", "Email"]

[archives.former]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }
"#;

impl Field {
    /// Entities, and a message for each. The archive's source has no views: what is measured is the archiving.
    pub(crate) async fn prepare(contest: &Contest, pack: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = match contest.work {
            Work::Archive => CONFIG.to_owned(),
            Work::Sync => CONFIG.replace("\"Staff\"", "\"Employees\""),
        };
        std::fs::write(folder.path().join("default.toml"), config).unwrap();
        let (account, server) = match contest.store {
            StoreKind::Embedded => {
                let account = EmbeddedStore::open(
                    &folder.path().join("bench.db"),
                    AccountName::main(),
                    Arc::new(SystemClock::new()),
                )
                .unwrap();
                (account, None)
            }
            StoreKind::Azurite => {
                let emulator = Emulator::start(contest.services);
                (emulator.ports().connect(), Some(Server::Azurite(emulator)))
            }
            StoreKind::Distant => {
                let distant = Distant::start().await;
                (distant.ports().connect(), Some(Server::Distant(distant)))
            }
        };
        let field = Self {
            account,
            folder,
            server,
        };
        let mut program = field.program();
        let migrated = tokio::task::block_in_place(|| {
            program
                .args(["-q", "migrate", "up"])
                .stdout(Stdio::null())
                .status()
                .unwrap()
        });
        assert!(migrated.success());
        field
            .account
            .tables
            .create_table(&table("HandFootprints"))
            .await
            .unwrap();
        field.fill(contest, pack).await;
        field
    }

    async fn fill(&self, contest: &Contest, pack: usize) {
        let (work, jobs) = (contest.work, contest.jobs);
        let (queue, employees) = (queue(), table("Employees"));
        let (employees, account) = (&employees, &self.account);
        let each = (0..jobs).map(|number| async move {
            let rk = format!("{number:06}");
            let pk = contest.department(number);
            let entity = Entity::new(EntityKey::new(pk.as_str(), rk.clone()).unwrap())
                .with("FirstName", "Ada")
                .with("LastName", "King")
                .with("Email", format!("ada.{number}@contoso.com"))
                .with("Salary", 52_000.5)
                .with("Badge", i64::from(u32::MAX) + 7);
            account
                .tables
                .apply(employees, &TableOperation::InsertOrReplace(entity))
                .await
                .unwrap();
        });
        futures::stream::iter(each)
            .buffer_unordered(32)
            .collect::<Vec<()>>()
            .await;
        // As many neighbours of one partition as a message takes, the partitions in turn: one by one where each has its own.
        let block = |first: usize| {
            (0..PARTITIONS).flat_map(move |partition| {
                (0..pack).map(move |at| (first + at) * PARTITIONS + partition)
            })
        };
        let ordered = (0..jobs.div_ceil(PARTITIONS))
            .step_by(pack)
            .flat_map(block)
            .filter(|number| *number < jobs);
        let mut packer = Packer::new(pack);
        let mut messages = Vec::new();
        for number in ordered {
            let (pk, rk) = (contest.department(number), format!("{number:06}"));
            let job = match work {
                Work::Archive => {
                    serde_json::json!({"op": "archive", "archive": "former", "pk": pk, "rk": rk})
                }
                Work::Sync => {
                    serde_json::json!({"op": "sync", "table": "Employees", "pk": pk, "rk": rk})
                }
            };
            messages.extend(packer.add(job.as_object().unwrap()).ready);
        }
        messages.extend(packer.take());
        let sent = messages.into_iter().map(|message| {
            let body = body::encode(&serde_json::Value::from(message).to_string());
            let queue = &queue;
            async move {
                account
                    .queues
                    .put(queue, &body, Duration::ZERO, Ttl::Never)
                    .await
                    .unwrap()
            }
        });
        futures::stream::iter(sent)
            .buffer_unordered(32)
            .collect::<Vec<_>>()
            .await;
    }

    fn connection_string(&self) -> String {
        self.server
            .as_ref()
            .expect("over HTTP")
            .ports()
            .connection_string()
    }

    fn store_ms(&self) -> f64 {
        match &self.server {
            Some(Server::Azurite(emulator)) => emulator.processor_ms(),
            // It shares this process.
            Some(Server::Distant(_)) | None => 0.0,
        }
    }

    /// The program, configured for this field.
    pub(crate) fn program(&self) -> Command {
        let mut program = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        program
            .arg("--config")
            .arg(self.folder.path())
            .env_remove("EVENKEEL_PROFILE");
        match &self.server {
            None => {
                program.env(
                    "EVENKEEL__ACCOUNTS__MAIN__PATH",
                    self.folder.path().join("bench.db"),
                );
            }
            Some(server) => {
                program.env("EVENKEEL__ACCOUNTS__MAIN__KIND", "azure");
                program.env(
                    "EVENKEEL__ACCOUNTS__MAIN__CONNECTION_STRING_ENV",
                    "BENCH_CONNECTION",
                );
                program.env("BENCH_CONNECTION", server.ports().connection_string());
            }
        }
        program
    }

    /// The jobs are really done.
    async fn check(&self, contest: &Contest) {
        let left = self
            .account
            .queues
            .approximate_count(&queue())
            .await
            .unwrap();
        assert_eq!(left, 0, "messages are left");
        let department = contest.department(0);
        let key = EntityKey::new(department.as_str(), "000000").unwrap();
        match contest.work {
            Work::Archive => {
                assert!(
                    self.account
                        .tables
                        .get(&table("Employees"), &key, None)
                        .await
                        .unwrap()
                        .is_none()
                );
                assert!(
                    self.account
                        .tables
                        .get(&table("FormerEmployees"), &key, None)
                        .await
                        .unwrap()
                        .is_some()
                );
            }
            Work::Sync => {
                let key =
                    EntityKey::new(format!("email_{department}"), "ada.0@contoso.com").unwrap();
                assert!(
                    self.account
                        .tables
                        .get(&table("EmployeesByEmail"), &key, None)
                        .await
                        .unwrap()
                        .is_some()
                );
            }
        }
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
