//! A folder with a configuration and an embedded store, in which tests run the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use assert_cmd::assert::Assert;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_evenkeel");

/// The catalog of every test. The account is added to it.
const CATALOG: &str = r#"
[worker]
poll = { min = "10ms", max = "50ms" }
drain = "5s"

[[queues]]
name = "jobs"

[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByEmail"
partition_key = "email"
row_key = "{Email|lower}"
select = ["Email", "LastName"]

[archives.former]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }
"#;

pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = Self { folder };
        let account = format!(
            "[accounts.main]\nkind = \"embedded\"\npath = '{}'\n",
            place.store().display()
        );
        place.configure(&format!("{account}{CATALOG}"));
        place
    }

    /// A place with the usual catalog, whose account is at an address where nothing listens.
    pub(crate) fn unreachable() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        // The listener is dropped at once, so nothing listens on its port. The system does not assign the port again
        // for a while.
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let account = format!(
            r#"
[accounts.main]
kind = "azure"
auth = "key"
name = "devstoreaccount1"
key_env = "TEST_KEY"
endpoints = {{ table = "http://{address}/devstoreaccount1", queue = "http://{address}/devstoreaccount1", blob = "http://{address}/devstoreaccount1" }}
"#
        );
        let impatient = "[worker]\nstorage_retry = { min = \"1ms\", base = \"1ms\", max = \"5ms\", attempts = 2 }";
        place.configure(&format!(
            "{account}{}\n",
            CATALOG.replacen("[worker]", impatient, 1)
        ));
        place
    }

    pub(crate) fn configure(&self, text: &str) {
        std::fs::write(self.folder.path().join("default.toml"), text).unwrap();
    }

    pub(crate) fn add(&self, text: &str) {
        let file = self.folder.path().join("default.toml");
        std::fs::write(
            &file,
            format!("{}\n{text}\n", std::fs::read_to_string(&file).unwrap()),
        )
        .unwrap();
    }

    pub(crate) fn add_far_queue(&self) {
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let services = ["table", "queue", "blob"]
            .map(|service| format!("{service} = \"http://{address}/devstoreaccount1\""))
            .join(", ");
        let text = std::fs::read_to_string(self.folder().join("default.toml")).unwrap();
        let impatient = "[worker]\nstorage_retry = { min = \"1ms\", base = \"1ms\", max = \"5ms\", attempts = 2 }";
        self.configure(&text.replacen("[worker]", impatient, 1));
        self.add(&format!(
            "[accounts.far]\nkind = \"azure\"\nauth = \"key\"\nname = \"devstoreaccount1\"\nkey_env = \"TEST_KEY\"\nendpoints = {{ {services} }}\n\n[[queues]]\nname = \"far\"\naccount = \"far\""
        ));
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("evenkeel.db")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command
            .env_clear()
            .env("TEST_KEY", "c2VjcmV0LWtleS1vZi1hLXRlc3Q=")
            .env("TMPDIR", self.folder())
            .current_dir(self.folder());
        command
            .arg("--config")
            .arg(self.folder())
            .args(args)
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Assert {
        assert_cmd::Command::from_std(self.command(args)).assert()
    }

    pub(crate) fn run_with(&self, args: &[&str], input: impl Into<Vec<u8>>) -> Assert {
        assert_cmd::Command::from_std(self.command(args))
            .write_stdin(input)
            .assert()
    }

    /// Runs a worker until the queues are empty. Returns its summary.
    pub(crate) fn work(&self) -> Value {
        let ended = self
            .run(&["--json", "run", "--until-idle=0.2", "--no-http"])
            .success();
        json_lines(&ended).remove(0)
    }

    pub(crate) fn put(&self, queue: &str, text: &str) {
        self.put_all(queue, std::iter::once(text.to_owned()));
    }

    /// Accesses the store directly, as another program would.
    pub(crate) fn by_hand<T>(&self, doing: impl AsyncFnOnce(evenkeel_storage::Account) -> T) -> T {
        use evenkeel_model::AccountName;
        use evenkeel_sqlite::EmbeddedStore;
        use evenkeel_storage::system::SystemClock;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let store = EmbeddedStore::open(
                &self.store(),
                AccountName::main(),
                std::sync::Arc::new(SystemClock::new()),
            )
            .unwrap();
            doing(store).await
        })
    }

    pub(crate) fn put_all(&self, queue: &str, texts: impl Iterator<Item = String>) {
        use evenkeel_model::QueueName;
        use evenkeel_storage::Ttl;
        self.by_hand(async |store| {
            let queue = QueueName::new(queue).unwrap();
            store.queues.create_queue(&queue).await.unwrap();
            for text in texts {
                store
                    .queues
                    .put(&queue, &text, std::time::Duration::ZERO, Ttl::Never)
                    .await
                    .unwrap();
            }
        });
    }
}

pub(crate) fn json_lines(ended: &Assert) -> Vec<Value> {
    stdout(ended)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect()
}

pub(crate) fn stdout(ended: &Assert) -> String {
    String::from_utf8(ended.get_output().stdout.clone()).unwrap()
}

pub(crate) fn stderr(ended: &Assert) -> String {
    String::from_utf8(ended.get_output().stderr.clone()).unwrap()
}

#[track_caller]
pub(crate) fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}
