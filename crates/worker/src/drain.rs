//! Ends a run: stops receiving, lets running jobs finish, cancels the remaining jobs and releases their
//! messages, and joins all tasks.
//!
//! ```text
//!   shutdown ──▶ receiving stops ──── drain ────▶ runs are cancelled, ── GRACE ──▶ settlements are given up
//!                waiting jobs are released        released visible at once         (their leases expire)
//! ```

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::context::Stop;
use super::status::StatusBoard;

/// Time for releasing cancelled work. With a drain of 25 s, messages are released within the 30 s
/// that Kubernetes allows by default.
const GRACE: Duration = Duration::from_secs(3);
const FINAL_WAIT: Duration = Duration::from_secs(1);

pub(crate) async fn drain(
    receivers: &mut JoinSet<()>,
    stop: &Stop,
    board: &StatusBoard,
    limit: Duration,
) {
    stop.receiving.cancel();
    if board.in_flight() > 0 {
        tracing::info!(
            in_flight = board.in_flight(),
            limit_seconds = limit.as_secs(),
            "stopped receiving; waiting up to {} s for jobs in flight",
            limit.as_secs()
        );
    }
    if timeout(limit, joined(receivers)).await.is_err() {
        tracing::warn!(
            in_flight = board.in_flight(),
            "cancelling the jobs in flight: they did not end within {} s (worker.drain); they will be redelivered",
            limit.as_secs()
        );
        stop.runs.cancel();
        if timeout(GRACE, joined(receivers)).await.is_err() {
            stop.settling.cancel();
            if timeout(FINAL_WAIT, joined(receivers)).await.is_err() {
                tracing::warn!(
                    in_flight = board.in_flight(),
                    "could not release all messages: the stores did not answer in time; they reappear when their leases end"
                );
                receivers.shutdown().await;
            }
        }
    }
}

async fn joined(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}
