//! Runs messages that may be crashing the process one at a time.
//!
//! A crash cannot be attributed to one of the concurrent jobs. So messages that have used up half
//! of their attempts without a recorded end run one after the other. A run is recorded only when
//! its turn comes, so the next crash is charged to that message alone, and harmless messages run to
//! their end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::decide::{Interruption, RunOutcome};

/// Maximum number of messages that wait, which is as many as one Get Messages request returns. Each
/// occupies a slot of its queue, and at most half of the slots may be used for waiting. Further
/// messages are retried later.
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

    /// Waits until no other quarantined message runs. Fails if `most` messages already wait.
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
            // `None` means that the worker stops. An error cannot occur, because the semaphore is
            // never closed.
            Some(Err(_)) | None => Err(RunOutcome::Interrupted(Interruption::Drain)),
        }
    }
}
