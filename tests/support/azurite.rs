//! Azurite for tests: it is installed from npm if it is missing, started once per test process, and stopped at the end
//! of that process.
//!
//! `run.mjs` stops when its standard input closes. The operating system closes that input even if this process is
//! killed, so nothing is left running.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use evenkeel_azure::AzureAccount;
use evenkeel_model::AccountName;
use evenkeel_storage::Account;
use secrecy::SecretString;

const ACCOUNT: &str = "devstoreaccount1";
pub const KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Number of attempts to restart Azurite on its former ports.
const RESTARTS: u32 = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
pub struct Ports {
    pub blob: u16,
    pub queue: u16,
    pub table: u16,
}

impl Ports {
    pub const fn same(port: u16) -> Self {
        Self {
            blob: port,
            queue: port,
            table: port,
        }
    }

    pub fn connection_string(self) -> String {
        self.connection_string_of(ACCOUNT)
    }

    pub fn connection_string_of(self, account: &str) -> String {
        let endpoint = |service: &str, port: u16| {
            format!("{service}Endpoint=http://127.0.0.1:{port}/{account};")
        };
        format!(
            "DefaultEndpointsProtocol=http;AccountName={account};AccountKey={KEY};{}{}{}",
            endpoint("Blob", self.blob),
            endpoint("Queue", self.queue),
            endpoint("Table", self.table)
        )
    }

    pub fn settings(self) -> AzureAccount {
        let text = SecretString::from(self.connection_string());
        AzureAccount::from_connection_string(AccountName::main(), &text)
            .expect("the emulator's connection string")
    }

    /// The stores of the account. Each test must connect by itself, because a pooled connection belongs to the runtime
    /// of its test.
    pub fn connect(self) -> Account {
        evenkeel_azure::connect(&self.settings()).expect("connect")
    }
}

/// The ports of an Azurite that `scripts/test` has started for all test processes, as `run.mjs` prints them.
const SHARED_BY_ALL: &str = "EVENKEEL_TEST_AZURITE";

/// An Azurite in memory that all tests share, so they need unique names. The environment variable names its ports, or
/// else this test process starts it.
pub fn shared() -> Ports {
    static SHARED: OnceLock<Azurite> = OnceLock::new();
    match std::env::var(SHARED_BY_ALL) {
        Ok(ports) => {
            serde_json::from_str(&ports).expect("EVENKEEL_TEST_AZURITE has the ports of an Azurite")
        }
        Err(_) => SHARED.get_or_init(Azurite::in_memory).ports,
    }
}

/// A running Azurite. Dropping this value stops Azurite, and waits until it has ended.
pub struct Azurite {
    pub ports: Ports,
    location: Option<PathBuf>,
    process: Option<Process>,
}

struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Azurite {
    pub fn in_memory() -> Self {
        Self::start(None)
    }

    /// Starts an Azurite that stores its data under `location`, for tests of outages. After a clean stop it can be
    /// [restarted](Self::restart) with the same data on the same ports.
    pub fn persistent(location: impl Into<PathBuf>) -> Self {
        Self::start(Some(location.into()))
    }

    pub fn with_accounts(further: &[&str]) -> Self {
        let accounts: Vec<String> = [&[ACCOUNT], further]
            .concat()
            .iter()
            .map(|account| format!("{account}:{KEY}"))
            .collect();
        Self::try_start(None, None, Some(accounts.join(";")), &[])
            .expect("Azurite did not start with several accounts")
    }

    /// Starts Azurite in memory, with an additional account key in Base64.
    pub fn with_key(key: &str) -> Self {
        Self::try_start(None, None, Some(Self::keys(key)), &[])
            .expect("Azurite did not start with a second key")
    }

    pub fn rotate(&mut self, key: &str) {
        let Process { input, output, .. } = self.process.as_mut().expect("the process runs");
        writeln!(input, "{}", Self::keys(key)).expect("the process accepts input");
        output
            .read_line(&mut String::new())
            .expect("the process answers");
    }

    fn keys(key: &str) -> String {
        format!("{ACCOUNT}:{KEY}:{key}")
    }

    pub fn over_tls(certificate: &Path, key: &Path) -> Self {
        let tls = [
            "--cert".as_ref(),
            certificate.as_os_str(),
            "--key".as_ref(),
            key.as_os_str(),
        ];
        Self::try_start(None, None, None, &tls).expect("Azurite did not start over TLS")
    }

    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(|process| process.child.id())
    }

    /// Stops Azurite, so that connections are refused. Waits until Azurite has saved its data.
    pub fn stop(&mut self) {
        if let Some(Process {
            mut child, input, ..
        }) = self.process.take()
        {
            drop(input);
            let _ = child.wait();
        }
    }

    pub fn restart(&mut self) {
        if self.process.is_none() {
            // For a moment, another process may have taken one of the ports.
            let started = (0..RESTARTS).find_map(|tries| {
                std::thread::sleep(Duration::from_millis(500).saturating_mul(tries));
                Self::try_start(self.location.clone(), Some(self.ports), None, &[])
            });
            self.process = started.expect("Azurite did not start again").process.take();
        }
    }

    /// Pauses Azurite: it accepts connections but does not answer, until it is [resumed](Self::resume).
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let Some(Process { child, .. }) = &self.process else {
            return;
        };
        let sent = Command::new("kill")
            .args([signal, &child.id().to_string()])
            .status()
            .expect("kill");
        assert!(sent.success());
    }

    fn start(location: Option<PathBuf>) -> Self {
        Self::try_start(location, None, None, &[]).unwrap_or_else(|| {
            panic!(
                "Azurite did not start; try `node run.mjs` in {}",
                install().display()
            )
        })
    }

    fn try_start(
        location: Option<PathBuf>,
        ports: Option<Ports>,
        accounts: Option<String>,
        more: &[&OsStr],
    ) -> Option<Self> {
        let folder = install();
        let mut command = Command::new("node");
        command
            .arg("run.mjs")
            .current_dir(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(location) = &location {
            command.arg("--location").arg(location);
        }
        for (name, port) in ports.iter().flat_map(|p| {
            [
                ("--blob", p.blob),
                ("--queue", p.queue),
                ("--table", p.table),
            ]
        }) {
            command.arg(name).arg(port.to_string());
        }
        if let Some(accounts) = accounts {
            command.env("AZURITE_ACCOUNTS", accounts);
        }
        command.args(more);
        let mut child = command
            .spawn()
            .expect("Node.js is needed for the tests against Azurite");
        let input = child.stdin.take().expect("its input");
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        output.read_line(&mut line).expect("its ports");
        let Ok(ports) = serde_json::from_str(&line) else {
            let _ = child.wait();
            return None;
        };
        Some(Self {
            ports,
            location,
            process: Some(Process {
                child,
                input,
                output,
            }),
        })
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Installs Azurite if it is missing. Only one of several test processes does this.
fn install() -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/azurite");
    // npm writes this file last, so the installation is then complete.
    let installed = folder.join("node_modules/.package-lock.json");
    let lock_path = folder.join("node_modules.lock");
    while !installed.exists() {
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&lock_path)
        {
            Ok(mut lock) => {
                let _ = write!(lock, "{}", std::process::id());
                let _remove = LockGuard(&lock_path);
                if !installed.exists() {
                    npm_ci(&folder);
                }
            }
            Err(_) => wait_for(&lock_path),
        }
    }
    folder
}

/// Removes the lock, even if the installation panics.
struct LockGuard<'a>(&'a Path);

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

fn npm_ci(folder: &Path) {
    let done = Command::new("npm")
        .args([
            "ci",
            "--ignore-scripts",
            "--no-fund",
            "--no-audit",
            "--loglevel=error",
        ])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .expect("npm is needed to install Azurite for the tests");
    assert!(done.success(), "`npm ci` in {} failed", folder.display());
}

/// Waits while another process installs Azurite. A lock that is older than ten minutes is removed.
#[expect(
    clippy::disallowed_methods,
    reason = "the age of a file on this machine's disk is not under test"
)]
fn wait_for(lock: &Path) {
    std::thread::sleep(Duration::from_millis(200));
    let age = File::open(lock)
        .and_then(|file| file.metadata())
        .and_then(|data| data.modified())
        .map(|at| SystemTime::now().duration_since(at));
    if let Ok(Ok(age)) = age
        && age > Duration::from_mins(10)
    {
        let _ = fs::remove_file(lock);
    }
}
