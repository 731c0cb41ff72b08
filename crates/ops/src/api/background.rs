//! Runs changes in separate tasks, so that a change continues if its client disconnects or a timeout ends the answer.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Problem;

/// Maximum time for which an answer waits for a change. It is less than the server's answer timeout of 30 s.
pub(super) const TIMEOUT: Duration = Duration::from_secs(20);

/// Returns the result of a change; `None` after the timeout. The change then continues.
pub(super) async fn result_in_time<T>(
    change: JoinHandle<Result<T, Problem>>,
) -> Result<Option<T>, Problem> {
    match timeout(TIMEOUT, change).await {
        Ok(Ok(ended)) => ended.map(Some),
        Ok(Err(error)) => Err(Problem::not_yet(format!(
            "the change was interrupted: {error}"
        ))),
        Err(_) => Ok(None),
    }
}

/// Like [`result_in_time`], for a task that sends jobs.
pub(crate) async fn sent<T>(sending: JoinHandle<Result<T, Problem>>) -> Result<T, Problem> {
    result_in_time(sending).await?.ok_or_else(maybe_sent)
}

pub(super) fn maybe_sent() -> Problem {
    Problem::not_yet(
        "timeout: the jobs may have been sent or will be. Send them again with the same `id`; without one, a job that deletes or moves may act twice",
    )
}
