//! The end of a run: stop receiving, let jobs end, cancel and release the rest, join everything.
//!
//! ```text
//!   shutdown ──▶ receiving stops ──── drain ────▶ runs are cancelled, ── GRACE ──▶ settlements are given up
//!                waiting jobs are released        released visible at once         (their leases end by themselves)
//! ```

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::context::Stop;
use super::status::StatusBoard;

/// Time allowed for releasing cancelled work: with a drain of 25 s messages are released within the 30 s that
/// Kubernetes allows by default.
const GRACE: Duration = Duration::from_secs(3);
/// How long requests under way may take to be answered after that.
const LAST: Duration = Duration::from_secs(1);

/// Stops the receivers and joins them. Returns when all have ended.
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
            "stopped receiving; waiting for running jobs"
        );
    }
    if timeout(limit, joined(receivers)).await.is_err() {
        tracing::warn!(
            in_flight = board.in_flight(),
            "jobs still ran at the end of the drain: they are cancelled and released"
        );
        stop.runs.cancel();
        if timeout(GRACE, joined(receivers)).await.is_err() {
            stop.settling.cancel();
            if timeout(LAST, joined(receivers)).await.is_err() {
                tracing::warn!(
                    in_flight = board.in_flight(),
                    "messages were left to their visibility timeouts"
                );
                receivers.shutdown().await;
            }
        }
    }
}

async fn joined(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}
