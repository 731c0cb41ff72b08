//! Resident memory at a large backlog.

use std::process::Stdio;
use std::time::Duration;

use crate::contest::{Contest, Field, Services, StoreKind, Work, queue};

/// Lets the program work on a backlog on the embedded store and reports the most memory it held.
pub(crate) async fn measure(messages: usize) {
    let contest = Contest {
        store: StoreKind::Embedded,
        services: Services::Apart,
        work: Work::Archive,
        jobs: messages,
        concurrency: 64,
    };
    let field = Field::prepare(&contest, 1).await;
    let mut program = field.program();
    program
        .args(["-q", "run", "--until-idle=0", "--no-http"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = program.spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait().unwrap().is_none() {
        peak = peak.max(resident_kib(&status));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let left = field
        .account
        .queues
        .approximate_count(&queue())
        .await
        .unwrap();
    println!(
        "backlog of {messages} messages on the embedded store: at most {:.1} MiB resident, {left} messages left",
        peak as f64 / 1024.0
    );
}

/// The peak resident set as the kernel counts it.
fn resident_kib(status: &str) -> u64 {
    let text = std::fs::read_to_string(status).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_default()
}
