//! The built program with 256 MiB of memory. Some tests open the poison page while decompression bombs are in the poison queue.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use evenkeel_model::{AccountName, QueueName, body};
use evenkeel_sqlite::EmbeddedStore;
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Account, Ttl};
use tempfile::TempDir;

use crate::hostile::poison::message;

pub(crate) const MIB: u64 = 1_024 * 1_024;
/// Memory limit of the daemon: half of the memory of the deployment.
pub(crate) const LIMIT: u64 = 256 * MIB;

pub(crate) struct Daemon {
    child: Child,
    address: String,
    folder: TempDir,
    told: Arc<AtomicU64>,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A job of 1,400 bytes that expands to a megabyte of zeros, nested as deep as the parser allows.
fn bomb(number: usize) -> String {
    let zeros = vec!["0"; 520_000].join(",");
    let depth = 120;
    body::pack(&format!(
        "{{\"op\":\"nope\",\"n\":{number},\"a\":{}{zeros}{}}}",
        "[".repeat(depth),
        "]".repeat(depth)
    ))
    .unwrap()
}

impl Daemon {
    fn with(poison: &[String]) -> Self {
        Self::over("", async |account| {
            let queue = QueueName::new("jobs-poison").unwrap();
            account.queues.create_queue(&queue).await.unwrap();
            for text in poison {
                account
                    .queues
                    .put(&queue, text, Duration::ZERO, Ttl::Never)
                    .await
                    .unwrap();
            }
        })
    }

    pub(crate) fn over(more: &str, prepare: impl AsyncFnOnce(&Account)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("evenkeel.db");
        let text = format!(
            "[accounts.main]\nkind = \"embedded\"\npath = '{}'\n[[queues]]\nname = \"jobs\"\n[http]\nlisten = \"127.0.0.1:0\"\n\
             [views.by_email]\nkind = \"secondary_index\"\nsource = \"Staff\"\ntable = \"ByEmail\"\npartition_key = \"p\"\nrow_key = \"{{Email}}\"\n{more}",
            store.display()
        );
        std::fs::write(folder.path().join("default.toml"), text).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let account =
                EmbeddedStore::open(&store, AccountName::main(), Arc::new(SystemClock::new()))
                    .unwrap();
            prepare(&account).await;
        });
        // The limit covers all writable memory, including the stacks of the threads. A process that exceeds the limit is ended.
        let limited = format!("ulimit -d {} && exec \"$@\"", LIMIT / 1_024);
        let mut child = Command::new("sh")
            .args([
                "-c",
                &limited,
                "sh",
                env!("CARGO_BIN_EXE_evenkeel"),
                "--config",
            ])
            .arg(folder.path())
            .arg("run")
            // The deployment has four threads, too. With one thread per core the test would depend on the machine.
            .env("TOKIO_WORKER_THREADS", "4")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .filter(|line| line.contains("serving dashboard, health and metrics"))
            .find_map(|line| {
                line.split("127.0.0.1:").nth(1).map(|rest| {
                    rest.chars()
                        .take_while(char::is_ascii_digit)
                        .collect::<String>()
                })
            })
            .expect("the daemon logs its address");
        // Reads the log continuously, so that the daemon never blocks on a full pipe.
        let told = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&told);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                counter.fetch_add(line.len() as u64, Ordering::SeqCst);
            }
        });
        Self {
            child,
            address: format!("127.0.0.1:{address}"),
            folder,
            told,
        }
    }

    pub(crate) fn told(&self) -> u64 {
        self.told.load(Ordering::SeqCst)
    }

    pub(crate) fn stored(&self) -> u64 {
        let files = std::fs::read_dir(self.folder.path())
            .unwrap()
            .map(Result::unwrap);
        files
            .filter(|file| {
                file.file_name()
                    .to_string_lossy()
                    .starts_with("evenkeel.db")
            })
            .map(|file| file.metadata().unwrap().len())
            .sum()
    }

    pub(crate) fn worked(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .unwrap()
            .1
            .split_whitespace()
            .collect();
        // CPU time in user mode and in system mode, in hundredths of a second.
        Duration::from_millis(
            [11, 12]
                .map(|at| fields[at].parse::<u64>().unwrap() * 10)
                .iter()
                .sum(),
        )
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        get(&self.address, path)
    }

    pub(crate) fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1_024
    }
}

fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_mins(1)))
        .unwrap();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("{path}: no answer: {answer}"));
    (
        head.split(' ').nth(1).unwrap().parse().unwrap(),
        body.to_owned(),
    )
}

#[test]
fn a_queue_of_bombs_is_looked_at_and_the_daemon_stays_alive() {
    let bombs: Vec<String> = (0..32).map(bomb).collect();
    let poison: Vec<String> = bombs
        .iter()
        .enumerate()
        .map(|(number, bomb)| {
            body::encode(
                &message(&format!("m{number}"), &serde_json::json!({"body": bomb})).to_string(),
            )
        })
        .collect();
    assert!(
        bombs.iter().all(|bomb| bomb.len() < 2_500),
        "messages must be small: {}",
        bombs[0].len()
    );
    let daemon = Daemon::with(&poison);
    let (done, probes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let prober = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                assert_eq!(daemon.get("/healthz").0, 200);
                probes.fetch_add(1, Ordering::SeqCst);
            }
        });
        let viewers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for path in ["/poison", "/api/v1/poison"] {
                        let (status, body) = daemon.get(path);
                        assert_eq!(status, 200, "{path}");
                        assert!(
                            (body.len() as u64) < 2 * MIB,
                            "{path} has {} bytes",
                            body.len()
                        );
                        assert!(
                            body.contains("m0") && body.contains("nope"),
                            "{path} shows the messages"
                        );
                    }
                })
            })
            .collect();
        for viewer in viewers {
            viewer.join().unwrap();
        }
        done.store(true, Ordering::SeqCst);
        prober.join().unwrap();
    });
    assert!(probes.load(Ordering::SeqCst) > 0);
    assert!(daemon.peak() < LIMIT, "{} MiB", daemon.peak() / MIB);
    assert_eq!(daemon.get("/healthz").0, 200);
}

#[test]
fn silent_connections_keep_no_probe_out() {
    let daemon = Daemon::with(&[]);
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(&daemon.address).unwrap();
        // A silent connection, the beginning of a request, or an answered request on a connection that stays open.
        match number % 3 {
            0 => {}
            1 => write!(stream, "GET /healthz HTTP/1.1\r\nHost: ").unwrap(),
            _ => write!(stream, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap(),
        }
        stream
    };
    let silent: Vec<TcpStream> = (0..700).map(connect).collect();
    for path in ["/healthz", "/readyz", "/metrics"] {
        let mut probe = TcpStream::connect(&daemon.address).unwrap();
        // The timeout is less than the 30 s after which the daemon closes silent connections.
        probe
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        write!(
            probe,
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        probe
            .read_to_string(&mut answer)
            .expect("a request must be answered while the connections are open");
        assert!(answer.starts_with("HTTP/1.1 "), "{path}: {answer}");
    }
    assert_eq!(silent.len(), 700);
}
