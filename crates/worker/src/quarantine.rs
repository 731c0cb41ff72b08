//! Runs messages that may be crashing the process one at a time.
//!
//! A crash cannot be attributed to one of the concurrent jobs. After half of their attempts such
//! messages wait for each other before their runs are recorded. The next crash is then charged to
//! one of them only, and harmless ones run to their end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::decide::{Interruption, RunOutcome};

/// Most messages that wait: as many as one Get returns. Each keeps a slot of its queue, of which
/// half at most may be used for this. Further messages are retried later.
const WAITING: usize = 32;

pub(crate) struct CrashQuarantine {
    permit: Arc<Semaphore>,
    places: Semaphore,
}

impl CrashQuarantine {
    pub(crate) fn new() -> Self {
        Self {
            permit: Arc::new(Semaphore::new(1)),
            places: Semaphore::new(WAITING),
        }
    }

    /// Waits until no other quarantined message runs. Fails if `most` messages wait already.
    pub(crate) async fn enter(
        &self,
        most: usize,
        stop: &CancellationToken,
    ) -> Result<OwnedSemaphorePermit, RunOutcome> {
        let waiting = WAITING - self.places.available_permits();
        let place = self.places.try_acquire().ok().filter(|_| waiting < most);
        let Some(_place) = place else {
            return Err(RunOutcome::Interrupted(Interruption::QueueFull));
        };
        match stop
            .run_until_cancelled(Arc::clone(&self.permit).acquire_owned())
            .await
        {
            Some(Ok(permit)) => Ok(permit),
            // The semaphore is never closed.
            Some(Err(_)) | None => Err(RunOutcome::Interrupted(Interruption::Drain)),
        }
    }
}
