//! A folder with a configuration and its own store, and what a test can do there.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_azure::AzureAccount;
use evenkeel_model::{AccountName, Entity, EntityKey, QueueName, Row, TableName, body};
use evenkeel_sqlite::EmbeddedStore;
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Account, Message, MessageText, Query, TableOperation, Ttl};
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::end_to_end::worker::Worker;
use crate::support::azurite::{Azurite, Ports};

pub(crate) const QUEUE: &str = "evenkeel-jobs";
/// Settings of every worker of a site: a lease that is short enough for a test to outlive it, and short waits.
const WORKER: &str = r#"
[worker]
lease = "10s"
poll = { min = "20ms", max = "200ms" }
retry_delay = { min = "1s", base = "1s", max = "5s" }
"#;
pub(crate) const EMPLOYEES: &str = r#"
[views.employees_by_email]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByEmail"
partition_key = "email_{PartitionKey}"
row_key = "{Email|lower}"
on_conflict = "reject"
select = ["FirstName", "LastName", "Email"]

[archives.former_employees]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }
"#;

pub(crate) enum Place {
    Embedded,
    Azurite(Azurite),
}

/// A folder with a configuration and a store. Dropping this value removes both.
pub(crate) struct Site {
    folder: TempDir,
    pub(crate) place: Place,
    /// The ports at which the program reaches Azurite, if they differ from Azurite's own.
    detour: Option<Ports>,
    environment: Vec<(String, String)>,
    /// Accounts other than `main`.
    further: Further,
}

/// Accounts other than `main`, with the names of their tables, containers and queues. A dated table is named without
/// the date.
pub(crate) type Further = &'static [(&'static str, &'static [&'static str])];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct Summary {
    pub(crate) done: u64,
    pub(crate) skipped: u64,
    pub(crate) poisoned: u64,
    pub(crate) lost: u64,
}

#[derive(Debug)]
pub(crate) struct CommandResult {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Site {
    pub(crate) fn embedded(catalog: &str) -> Self {
        Self::new(Place::Embedded, catalog)
    }

    pub(crate) fn azurite(catalog: &str) -> Self {
        Self::new(Place::Azurite(Azurite::in_memory()), catalog)
    }

    pub(crate) fn new(place: Place, catalog: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("config")).unwrap();
        let site = Self {
            folder,
            place,
            detour: None,
            environment: Vec::new(),
            further: &[],
        };
        site.declare(catalog);
        site
    }

    pub(crate) fn declare(&self, catalog: &str) {
        let account = match self.place {
            Place::Embedded => "kind = \"embedded\"\npath = \"store.db\"\n",
            Place::Azurite(_) => {
                "kind = \"azure\"\nauth = \"connection_string\"\nconnection_string_env = \"AZURE_STORAGE_CONNECTION_STRING\"\n"
            }
        };
        fs::write(
            self.folder.path().join("config/default.toml"),
            format!("[accounts.main]\n{account}{WORKER}{catalog}"),
        )
        .unwrap();
    }

    pub(crate) fn declare_account(&self, account: &str, catalog: &str) {
        let text = format!("[accounts.main]\nkind = \"azure\"\n{account}{WORKER}{catalog}");
        fs::write(self.folder.path().join("config/default.toml"), text).unwrap();
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes the program use other ports than the test, for example the ports of a stub.
    pub(crate) fn send_program_by(&mut self, ports: Ports) {
        self.detour = Some(ports);
    }

    pub(crate) fn set_environment(&mut self, variables: Vec<(String, String)>) {
        self.environment = variables;
    }

    /// Tells the test which tables, containers and queues are in accounts other than `main`.
    pub(crate) fn look_in(&mut self, further: Further) {
        self.further = further;
    }

    pub(crate) fn account_of(&self, name: &str) -> &'static str {
        let named = |listed: &&str| {
            name.strip_prefix(*listed)
                .is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
        };
        self.further
            .iter()
            .find(|(_, names)| names.iter().any(named))
            .map_or("main", |(account, _)| account)
    }

    /// The settings of additional accounts: each is a file on the embedded store, or another account of the same
    /// Azurite.
    pub(crate) fn settings_of(&self, accounts: &[&str]) -> String {
        let settings = |name: &&str| match &self.place {
            Place::Embedded => {
                format!("\n[accounts.{name}]\nkind = \"embedded\"\npath = \"{name}.db\"\n")
            }
            Place::Azurite(azurite) => {
                self.azure_account(name, &azurite.ports.connection_string_of(name))
            }
        };
        accounts.iter().map(settings).collect()
    }

    pub(crate) fn azure_account(&self, name: &str, connection_string: &str) -> String {
        let file = self.file(&format!("{name}-connection-string"));
        std::fs::write(&file, connection_string).unwrap();
        format!(
            "\n[accounts.{name}]\nkind = \"azure\"\nauth = \"connection_string\"\nconnection_string_file = {file}\n",
            file = serde_json::Value::from(file.to_string_lossy())
        )
    }

    /// Direct access to the stores of an account. The result belongs to the present runtime.
    pub(crate) fn account(&self, name: &str) -> Account {
        let called = AccountName::new(name).unwrap();
        match &self.place {
            Place::Embedded => {
                let file = if name == "main" { "store" } else { name };
                EmbeddedStore::open(
                    &self.file(&format!("{file}.db")),
                    called,
                    Arc::new(SystemClock::new()),
                )
                .unwrap()
            }
            Place::Azurite(azurite) if name == "main" => azurite.ports.connect(),
            Place::Azurite(azurite) => {
                let text = SecretString::from(azurite.ports.connection_string_of(name));
                evenkeel_azure::connect(
                    &AzureAccount::from_connection_string(called, &text).unwrap(),
                )
                .unwrap()
            }
        }
    }

    pub(crate) fn ports(&self) -> Ports {
        match &self.place {
            Place::Azurite(azurite) => azurite.ports,
            Place::Embedded => panic!("this site does not use Azurite"),
        }
    }

    /// The program with these arguments, in the site's folder, and without the test's own variables that begin with
    /// `EVENKEEL`.
    pub(crate) fn program(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        for (name, _) in
            std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("EVENKEEL"))
        {
            command.env_remove(name);
        }
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .envs(self.environment.iter().cloned());
        if let Place::Azurite(azurite) = &self.place {
            command.env(
                "AZURE_STORAGE_CONNECTION_STRING",
                self.detour.unwrap_or(azurite.ports).connection_string(),
            );
        }
        command
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> CommandResult {
        self.command_with(arguments, "")
    }

    pub(crate) fn command_with(&self, arguments: &[&str], input: &str) -> CommandResult {
        let output = assert_cmd::Command::from_std(self.program(arguments))
            .write_stdin(input)
            .timeout(Duration::from_mins(10))
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("what is printed is UTF-8");
        let (out, err) = (text(output.stdout), text(output.stderr));
        let code = output
            .status
            .code()
            .unwrap_or_else(|| panic!("{arguments:?} was killed by a signal: {err}"));
        CommandResult { code, out, err }
    }

    pub(crate) fn run_until_idle(&self, arguments: &[&str]) -> Summary {
        let ended =
            self.command(&[&["--json", "run", "--until-idle=1", "--no-http"], arguments].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
    }

    pub(crate) fn worker(&self, arguments: &[&str]) -> Worker {
        Worker::start(self.program(&[&["run", "--no-http"], arguments].concat()))
    }

    pub(crate) fn migrate(&self) {
        let ended = self.command(&["migrate", "up", "--retire"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
    }

    pub(crate) fn submit(&self, jobs: &[Value]) {
        let lines: Vec<String> = jobs.iter().map(Value::to_string).collect();
        let ended = self.command_with(&["submit", "-"], &lines.join("\n"));
        assert_eq!(ended.code, 0, "{}", ended.err);
        let listed = |job: &Value| {
            ["rks", "keys", "entities"]
                .iter()
                .find_map(|list| job[*list].as_array().map(Vec::len))
        };
        let primaries: usize = jobs.iter().map(|job| listed(job).unwrap_or(1)).sum();
        assert!(
            ended
                .out
                .replace(',', "")
                .starts_with(&format!("{primaries} job")),
            "{}",
            ended.out
        );
    }

    /// The poison messages as `poison list --json` prints them, ordered by the client's id.
    pub(crate) fn poison(&self) -> Vec<Value> {
        let ended = self.command(&["--json", "poison", "list"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let mut listed: Vec<Value> = ended
            .out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        listed.sort_by_key(|one| one["id"].to_string());
        listed
    }

    /// Accesses the store directly, without the program.
    pub(crate) fn with<T>(&self, action: impl AsyncFnOnce(Account) -> T) -> T {
        self.with_account("main", action)
    }

    pub(crate) fn with_account<T>(&self, name: &str, action: impl AsyncFnOnce(Account) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async { action(self.account(name)).await })
    }

    /// All rows of a table by key. Empty if the table does not exist.
    pub(crate) fn rows(&self, table: &str) -> BTreeMap<(String, String), Row> {
        let (account, table) = (self.account_of(table), TableName::new(table).unwrap());
        self.with_account(account, async |account| {
            let mut rows = BTreeMap::new();
            let mut query = Query::default();
            loop {
                let page = match account.tables.query(&table, &query).await {
                    Err(error)
                        if matches!(error.class, evenkeel_storage::ErrorClass::NotFound(_)) =>
                    {
                        return rows;
                    }
                    page => page.unwrap(),
                };
                for row in page.rows {
                    let EntityKey { pk, rk } = &row.entity.key;
                    rows.insert((pk.as_str().to_owned(), rk.as_str().to_owned()), row);
                }
                query.continuation = page.continuation;
                if query.continuation.is_none() {
                    return rows;
                }
            }
        })
    }

    pub(crate) fn row(&self, table: &str, pk: &str, rk: &str) -> Option<Row> {
        let account = self.account_of(table);
        let (table, key) = (
            TableName::new(table).unwrap(),
            EntityKey::new(pk, rk).unwrap(),
        );
        self.with_account(account, async |account| {
            account.tables.get(&table, &key, None).await.unwrap()
        })
    }

    /// Writes entities as an application does, and sends no jobs.
    pub(crate) fn write(&self, table: &str, entities: &[Entity]) {
        let (account, table) = (self.account_of(table), TableName::new(table).unwrap());
        let mut partitions: BTreeMap<_, Vec<TableOperation>> = BTreeMap::new();
        for entity in entities {
            partitions
                .entry(entity.key.pk.clone())
                .or_default()
                .push(TableOperation::InsertOrReplace(entity.clone()));
        }
        self.with_account(account, async |account| {
            account.tables.create_table(&table).await.unwrap();
            for (pk, operations) in &partitions {
                for some in operations.chunks(100) {
                    account.tables.transact(&table, pk, some).await.unwrap();
                }
            }
        });
    }

    pub(crate) fn put_texts<'a>(&self, texts: impl IntoIterator<Item = &'a str>) {
        let queue = QueueName::new(QUEUE).unwrap();
        self.with(async |account| {
            account.queues.create_queue(&queue).await.unwrap();
            for text in texts {
                account
                    .queues
                    .put(&queue, text, Duration::ZERO, Ttl::Never)
                    .await
                    .unwrap();
            }
        });
    }

    /// Approximate number of messages in a queue, including hidden ones.
    pub(crate) fn count(&self, queue: &str) -> u64 {
        let (account, queue) = (self.account_of(queue), QueueName::new(queue).unwrap());
        self.with_account(account, async |account| {
            account.queues.approximate_count(&queue).await.unwrap()
        })
    }

    pub(crate) fn take(&self, queue: &str) -> Vec<Message> {
        let (account, queue) = (self.account_of(queue), QueueName::new(queue).unwrap());
        self.with_account(account, async |account| {
            let mut all = Vec::new();
            loop {
                let some = account
                    .queues
                    .get(&queue, 32, Duration::from_secs(1))
                    .await
                    .unwrap();
                if some.is_empty() {
                    return all;
                }
                for message in &some {
                    account
                        .queues
                        .delete(&queue, &message.id, &message.pop_receipt)
                        .await
                        .unwrap();
                }
                all.extend(some);
            }
        })
    }

    /// Checks that no message waits or is poisoned, and that no message has a counted attempt.
    pub(crate) fn assert_all_done(&self) {
        assert_eq!(
            self.poison(),
            Vec::<Value>::new(),
            "the poison queue is not empty"
        );
        assert_eq!(self.count(QUEUE), 0, "the queue is not empty");
    }
}

/// The number of attempts that count. Deliveries that the worker has marked as free do not count.
pub(crate) fn attempts(message: &Message) -> u64 {
    let MessageText::Readable(text) = &message.text else {
        panic!("{message:?}")
    };
    let job: Value = serde_json::from_str(&body::decode(text).unwrap().text).unwrap();
    // The Get of the test itself is not an attempt.
    u64::from(message.dequeue_count) - 1 - job["ek"]["free"].as_u64().unwrap_or(0)
}
