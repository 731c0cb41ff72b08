//! The worker, beside the lease of its catalog.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::current::Current;
use crate::migrations::MigrationError;
use evenkeel_worker::{Mode, RunReport, Worker};

/// Is told how the worker's catalog stands: with the recorded generation where it is another one, with nothing where it fits again.
type Tells<'a> = &'a (dyn Fn(Option<u32>) + Sync);

/// Runs the worker as long as its catalog is the recorded one. Where it is not, the worker drains, waits for a record that fits,
/// and goes on then, or ends after `patience`.
pub async fn receive_by(
    current: &Current,
    worker: &Worker,
    (mode, patience): (Mode, Duration),
    shutdown: &CancellationToken,
    tells: Tells<'_>,
) -> anyhow::Result<RunReport> {
    // Before the first job, so that none of them waits for it.
    shutdown
        .run_until_cancelled(current.engine().read_secret())
        .await;
    let mut total = RunReport::default();
    loop {
        let stop = shutdown.child_token();
        let stopping = async {
            tells(Some(current.lease().revoked().await));
            stop.cancel();
            std::future::pending::<()>().await;
        };
        total += tokio::select! {
            biased;
            report = worker.run(mode, stop.clone()) => report?,
            () = stopping => RunReport::default(),
        };
        let Some(recorded) = current.lease().newer() else {
            if stop.is_cancelled() && !shutdown.is_cancelled() {
                // It fits again by the time that the worker has drained.
                tells(None);
                continue;
            }
            return Ok(total);
        };
        let patience = match mode {
            Mode::Forever => patience,
            Mode::UntilIdle { .. } => Duration::ZERO,
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(total),
            () = current.lease().restored() => {
                tracing::info!("catalog: it is the recorded one again; the worker goes on");
                tells(None);
            }
            () = tokio::time::sleep(patience) => return Err(MigrationError::Outdated { recorded }.into()),
        }
    }
}
