//! PostgreSQL for tests: Debian's packages, run by a user other than root, and reached through a socket in the server's
//! folder.
//!
//! A shell script starts the server. It stops the server and removes the folder when its standard input closes. The
//! operating system closes that input even if this process is killed.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use evenkeel_model::settings::{PostgresSettings, SqlSettings, SqlTls};
pub const USER: &str = "evenkeel";
/// Maximum start time. A server that was killed recovers first, and waits until the processes of the killed server have
/// ended.
const START: Duration = Duration::from_mins(1);

/// Shell script that runs the server, and removes its folder when the test ends. `$0` is the folder, and the arguments
/// are the command of the server.
const GUARD: &str = r#""$@" </dev/null >>"$0/log" 2>&1 & echo $!; read -r keep; kill -INT $!; wait $!; [ "$keep" = keep ] || rm -rf "$0""#;

/// A running server, which is stopped when this value is dropped.
pub struct Postgres {
    folder: PathBuf,
    options: Vec<String>,
    server: Option<Server>,
}

pub struct OpenTransaction {
    psql: Child,
    /// Kept open, because `psql` ends when its input closes.
    _input: ChildStdin,
}

struct Server {
    guard: Child,
    input: ChildStdin,
    pid: u32,
}

/// The socket folder of a server that `scripts/test` has started for all test processes.
const SHARED_BY_ALL: &str = "EVENKEEL_TEST_POSTGRES";

/// A server that tests share, each test with its own database. The environment variable names its folder, or else this
/// test process starts it.
pub fn shared() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(|| match std::env::var_os(SHARED_BY_ALL) {
        Some(folder) => Postgres {
            folder: folder.into(),
            options: Vec::new(),
            server: None,
        },
        None => Postgres::start(&["-c", "fsync=off", "-c", "listen_addresses="]),
    })
}

impl Postgres {
    pub fn start(options: &[&str]) -> Self {
        let folder = tempfile::Builder::new()
            .prefix("ekpg")
            .tempdir_in("/tmp")
            .unwrap()
            .keep();
        let mut server = Self {
            folder,
            options: options.iter().map(|&option| option.to_owned()).collect(),
            server: None,
        };
        if let Some((uid, gid)) = owner() {
            std::os::unix::fs::chown(&server.folder, Some(uid), Some(gid)).unwrap();
        }
        let made = Self::tool("initdb")
            .args([
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale=C",
                "--no-sync",
                "-U",
                USER,
                "-D",
            ])
            .arg(server.data())
            .output();
        let made = made.unwrap();
        assert!(
            made.status.success(),
            "initdb failed: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        server.restart();
        server
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn tool(name: &str) -> Command {
        as_owner(Command::new(tools().join(name)))
    }

    #[expect(clippy::disallowed_methods, reason = "the server runs in real time")]
    pub fn restart(&mut self) {
        let started = Instant::now();
        while started.elapsed() < START {
            let mut guard = as_owner(Command::new("/bin/sh"))
                .arg("-c")
                .arg(GUARD)
                .arg(&self.folder)
                .arg(tools().join("postgres"))
                .arg("-D")
                .arg(self.data())
                .arg("-k")
                .arg(&self.folder)
                .args(&self.options)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (input, output) = (guard.stdin.take().unwrap(), guard.stdout.take().unwrap());
            let mut pid = String::new();
            BufReader::new(output).read_line(&mut pid).unwrap();
            let server = Server {
                guard,
                input,
                pid: pid.trim().parse().unwrap(),
            };
            while started.elapsed() < START
                && Path::new(&format!("/proc/{}", server.pid))
                    .join("exe")
                    .exists()
                && !self.answers()
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            if self.answers() {
                self.server = Some(server);
                return;
            }
            // The resources of a killed server may still be in use.
            server.end(true);
        }
        panic!(
            "PostgreSQL did not start: {}",
            std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
        );
    }

    fn answers(&self) -> bool {
        let asked = Self::tool("pg_isready")
            .args(["-q", "-p", self.port(), "-h"])
            .arg(&self.folder)
            .status();
        asked.unwrap().success()
    }

    pub fn kill(&mut self) {
        let server = self.server.take().unwrap();
        let killed = Command::new("kill")
            .args(["-KILL", &server.pid.to_string()])
            .status()
            .unwrap();
        assert!(killed.success());
        server.end(true);
    }

    /// Enables TLS with this certificate, and requires passwords for TCP connections.
    pub fn secure(&mut self, certificate: &str, key: &str) {
        let (cert, secret) = (
            self.data().join("server.crt"),
            self.data().join("server.key"),
        );
        std::fs::write(&cert, certificate).unwrap();
        std::fs::write(&secret, key).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        if let Some((uid, gid)) = owner() {
            for file in [&cert, &secret] {
                std::os::unix::fs::chown(file, Some(uid), Some(gid)).unwrap();
            }
        }
        std::fs::write(
            self.data().join("pg_hba.conf"),
            "local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n",
        )
        .unwrap();
        self.options.extend(["-c".to_owned(), "ssl=on".to_owned()]);
        self.kill();
        self.restart();
    }

    pub fn database(&self, name: &str) -> SqlSettings {
        self.ask("postgres", &format!("CREATE DATABASE {name}"));
        SqlSettings::Postgres(Box::new(PostgresSettings {
            host: self.folder.display().to_string(),
            port: 5_432,
            database: name.to_owned(),
            user: USER.to_owned(),
            password: None,
            tls: SqlTls::Off,
        }))
    }

    /// Runs statements. Returns the rows with columns separated by `|`, or `None` if the server is down.
    pub fn try_ask(&self, database: &str, statements: &str) -> Option<Vec<String>> {
        let mut psql = Self::tool("psql");
        psql.args([
            "-X",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            USER,
            "-d",
            database,
            "-p",
            self.port(),
            "-c",
            statements,
            "-h",
        ]);
        let ended = psql.arg(&self.folder).output().unwrap();
        ended.status.success().then(|| {
            String::from_utf8(ended.stdout)
                .unwrap()
                .lines()
                .map(str::to_owned)
                .collect()
        })
    }

    /// Does the same as [`try_ask`](Self::try_ask), but panics if the server is down.
    pub fn ask(&self, database: &str, statements: &str) -> Vec<String> {
        self.try_ask(database, statements)
            .unwrap_or_else(|| panic!("PostgreSQL rejected {statements}"))
    }

    /// Runs statements in a transaction that stays open until the return value is dropped.
    pub fn hold(&self, database: &str, statements: &str) -> OpenTransaction {
        let mut psql = Self::tool("psql");
        psql.args([
            "-X",
            "-A",
            "-t",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            USER,
            "-d",
            database,
            "-p",
            self.port(),
            "-h",
        ])
        .arg(&self.folder);
        let mut psql = psql
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = psql.stdin.take().unwrap();
        writeln!(input, "BEGIN; {statements}; SELECT 'held';").unwrap();
        let mut said = String::new();
        BufReader::new(psql.stdout.take().unwrap())
            .read_line(&mut said)
            .unwrap();
        assert_eq!(said.trim(), "held", "PostgreSQL rejected {statements}");
        OpenTransaction {
            psql,
            _input: input,
        }
    }

    fn port(&self) -> &str {
        self.options
            .iter()
            .find_map(|option| option.strip_prefix("port="))
            .unwrap_or("5432")
    }
}

impl Server {
    fn end(self, keep: bool) {
        let Self {
            mut guard,
            mut input,
            ..
        } = self;
        if keep {
            let _ = input.write_all(b"keep\n");
        }
        drop(input);
        let _ = guard.wait();
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.end(false);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The folder with PostgreSQL's programs: Debian's, or the first one on `PATH`.
fn tools() -> &'static Path {
    static TOOLS: OnceLock<PathBuf> = OnceLock::new();
    TOOLS.get_or_init(|| {
        let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found =
            installed.chain(std::env::split_paths(&path)).find(|folder| folder.join("initdb").exists() && folder.join("postgres").exists());
        found.expect("PostgreSQL is not installed: run scripts/test as root on Debian, or apt-get install postgresql")
    })
}

/// If this process is root, the user and group that run the server, because PostgreSQL refuses to run as root.
fn owner() -> Option<(u32, u32)> {
    use std::os::unix::fs::MetadataExt as _;
    if std::fs::metadata("/proc/self").unwrap().uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let of = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().unwrap());
        Some((fields.next()?, fields.next()?))
    };
    Some(
        of("postgres")
            .or_else(|| of("nobody"))
            .expect("a user named postgres or nobody"),
    )
}

fn as_owner(mut command: Command) -> Command {
    if let Some((uid, gid)) = owner() {
        command.uid(uid).gid(gid);
    }
    command.current_dir("/tmp");
    command
}
