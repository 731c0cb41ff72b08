//! Runs changes in tasks of their own, so that a client that disconnects or times out does not cancel them.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Problem;

/// How long an answer waits for a change. It stays below the server's answer timeout of 30 s.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Returns the result of a change; `None` after the timeout, while the change continues.
pub(super) async fn carried_out<T>(
    change: JoinHandle<Result<T, Problem>>,
) -> Result<Option<T>, Problem> {
    match timeout(PATIENCE, change).await {
        Ok(Ok(ended)) => ended.map(Some),
        Ok(Err(error)) => Err(Problem::not_yet(format!(
            "the change was interrupted: {error}"
        ))),
        Err(_) => Ok(None),
    }
}

/// Like [`carried_out`], for jobs that are being sent.
pub(crate) async fn sent<T>(sending: JoinHandle<Result<T, Problem>>) -> Result<T, Problem> {
    carried_out(sending).await?.ok_or_else(unconfirmed)
}

pub(super) fn unconfirmed() -> Problem {
    Problem::not_yet(
        "timeout: the jobs may have been sent or will be. Send them again with the same `id`; without one, a job that deletes or moves may act twice",
    )
}
