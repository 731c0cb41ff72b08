//! What open dashboards cost: the same jobs with and without people who watch.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::contest::{Contest, Effort, Field, Services, StoreKind, Work, effort_of, median};

/// Lets the program do the same jobs with this many open dashboards and with none, in turn, and reports the ratio.
pub(crate) async fn measure(watchers: usize, jobs: usize, rounds: usize) {
    let contest = Contest { store: StoreKind::Embedded, services: Services::Apart, work: Work::Sync, jobs, concurrency: 64 };
    let (mut ratios, mut told) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let mut seconds = [0.0; 2];
        for place in 0..2 {
            let watched = (round + place) % 2;
            let (effort, bytes) = one(&contest, if watched == 1 { watchers } else { 0 }).await;
            seconds[watched] = effort.seconds;
            if watched == 1 {
                told.push(bytes as f64 / watchers as f64 / 1024.0 / effort.seconds);
            }
        }
        ratios.push(seconds[0] / seconds[1]);
    }
    println!(
        "{watchers} open dashboards, {jobs} sync jobs on the embedded store, {rounds} rounds: {:.3} of the jobs/s without any (median; {:.3} to {:.3}); each is told {:.1} KiB/s",
        median(ratios.iter().copied()),
        ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratios.iter().copied().fold(0.0, f64::max),
        median(told.into_iter()),
    );
}

/// One run to the end, watched all the while; what it took, and how many bytes the watchers were told.
async fn one(contest: &Contest, watchers: usize) -> (Effort, u64) {
    let field = Field::prepare(contest).await;
    // Bound and dropped: the system does not give the port away again at once.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut program = field.program();
    program.env("EVENKEEL__HTTP__LISTEN", address.to_string());
    program.args(["--json", "-q", "run", "--until-idle=0"]).stdout(Stdio::piped());
    let child = program.spawn().unwrap();
    let mut watching: JoinSet<u64> = (0..watchers).map(|_| watch(address)).collect();
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
    let mut bytes = 0;
    while let Some(told) = watching.join_next().await {
        bytes += told.unwrap();
    }
    (effort_of(&output), bytes)
}

/// Opens the live part of the first page and reads it to the end, as a browser would; how many bytes there were.
async fn watch(address: SocketAddr) -> u64 {
    let mut stream = loop {
        match TcpStream::connect(address).await {
            Ok(stream) => break stream,
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    stream.write_all(format!("GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await.unwrap();
    let (mut bytes, mut part) = (0, [0; 16 << 10]);
    loop {
        match stream.read(&mut part).await {
            Ok(0) | Err(_) => return bytes,
            Ok(some) => bytes += some as u64,
        }
    }
}
