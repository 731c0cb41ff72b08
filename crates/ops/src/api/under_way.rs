//! Changes that go on where their answer takes long: a client that leaves, or waits no longer, undoes none.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::Problem;

/// How long an answer waits for a change: an answer has half a minute.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// The result of a change in a task of its own; `None` where it takes long, and goes on.
pub(super) async fn carried_out<T>(
    change: JoinHandle<Result<T, Problem>>,
) -> Result<Option<T>, Problem> {
    match timeout(PATIENCE, change).await {
        Ok(Ok(ended)) => ended.map(Some),
        Ok(Err(error)) => Err(Problem::not_yet(format!(
            "the change ended half-way: {error}"
        ))),
        Err(_) => Ok(None),
    }
}

/// As [`carried_out`], of jobs that are sent.
pub(crate) async fn sent<T>(sending: JoinHandle<Result<T, Problem>>) -> Result<T, Problem> {
    carried_out(sending).await?.ok_or_else(unconfirmed)
}

/// Jobs whose sending takes long.
pub(super) fn unconfirmed() -> Problem {
    Problem::not_yet(
        "this takes long: the jobs may have been sent, or will be; send them again with the same `id` (without one, a job that takes something away may act twice)",
    )
}
