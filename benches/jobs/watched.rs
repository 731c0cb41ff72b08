//! What open dashboards cost: the same jobs with and without people who watch.

use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::contest::{Contest, Effort, Field, Services, StoreKind, Work, effort_of, median};
use crate::emulator::children_ms;

/// What one run came to.
struct Run {
    effort: Effort,
    /// Processor time of the program, in milliseconds.
    program_ms: f64,
    /// Bytes that all watchers were told.
    told: u64,
}

/// Lets the program do the same jobs with this many open dashboards and with none, in turn, and reports the ratios.
pub(crate) async fn measure(watchers: usize, jobs: usize, rounds: usize) {
    let contest = Contest {
        store: StoreKind::Embedded,
        services: Services::Apart,
        work: Work::Sync,
        jobs,
        concurrency: 64,
    };
    let (mut speed, mut processor, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Each goes first in turn: what a machine does beside changes slowly.
        let first_watched = round % 2 == 1;
        let first = one(&contest, if first_watched { watchers } else { 0 }).await;
        let second = one(&contest, if first_watched { 0 } else { watchers }).await;
        let (alone, watched) = if first_watched {
            (second, first)
        } else {
            (first, second)
        };
        speed.push(alone.effort.seconds / watched.effort.seconds);
        processor.push(watched.program_ms / alone.program_ms);
        told.push(watched.told as f64 / watchers as f64 / 1024.0 / watched.effort.seconds);
        println!(
            "  round {:>2}: {:.3} of the jobs/s, {:.3} of the processor time",
            round + 1,
            speed[round],
            processor[round]
        );
    }
    println!(
        "{watchers} open dashboards, {jobs} sync jobs on the embedded store, {rounds} rounds, to none: {} of the jobs/s, {} of the processor time; each is told {:.1} KiB/s",
        spread(&speed),
        spread(&processor),
        median(told.into_iter()),
    );
}

fn spread(ratios: &[f64]) -> String {
    let (least, most) = ratios
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), &ratio| {
            (least.min(ratio), most.max(ratio))
        });
    format!(
        "{:.3} (median; {least:.3} to {most:.3})",
        median(ratios.iter().copied())
    )
}

/// One run to the end, watched all the while.
async fn one(contest: &Contest, watchers: usize) -> Run {
    let field = Field::prepare(contest, 1).await;
    let address = address();
    let mut program = field.program();
    program.env("EVENKEEL__HTTP__LISTEN", address.to_string());
    program
        .args(["--json", "-q", "run", "--until-idle=0"])
        .stdout(Stdio::piped());
    let (before, ended) = (children_ms(), Arc::new(AtomicBool::new(false)));
    let child = program.spawn().unwrap();
    let mut watching: JoinSet<u64> = (0..watchers)
        .map(|_| watch(address, ended.clone()))
        .collect();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output())
        .await
        .unwrap()
        .unwrap();
    ended.store(true, Ordering::Relaxed);
    let (program_ms, mut told) = (children_ms() - before, 0);
    while let Some(bytes) = watching.join_next().await {
        let bytes = bytes.unwrap();
        assert!(bytes > 0, "a dashboard was told nothing: give it more jobs");
        told += bytes;
    }
    Run {
        effort: effort_of(&output),
        program_ms,
        told,
    }
}

/// A free address for the program. The port lies below those that the system gives to callers (32,768 and up): a watcher
/// that calls before the program listens could be given the very port it calls, and would meet itself.
fn address() -> SocketAddr {
    let free = (20_000..30_000)
        .find_map(|port| std::net::TcpListener::bind(("127.0.0.1", port)).ok())
        .unwrap();
    free.local_addr().unwrap()
}

/// Opens the live part of the first page and reads it to the end, as a browser would; how many bytes there were.
async fn watch(address: SocketAddr, ended: Arc<AtomicBool>) -> u64 {
    let mut stream = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(_) if ended.load(Ordering::Relaxed) => return 0,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    stream
        .write_all(format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
        .await
        .unwrap();
    let (mut bytes, mut part) = (0, [0; 16 << 10]);
    loop {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return bytes,
            Ok(some) => bytes += some as u64,
        }
    }
}
