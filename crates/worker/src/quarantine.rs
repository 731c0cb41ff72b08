//! Messages with runs that came to no end: they run one at a time.
//!
//! A job that takes the process down takes down every run beside it, and is a suspect no more than they are. After half of their attempts
//! such messages wait for each other, before their runs are noted: the next crash is charged to one of them, and an innocent one runs to its end.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::decide::{Interruption, RunOutcome};

/// As many wait as one Get brings, each in a slot of its queue, and no more than half of these; further ones come again.
const WAITING: usize = 32;

/// The turn of suspects in this process.
pub(crate) struct CrashQuarantine {
    turn: Arc<Semaphore>,
    places: Semaphore,
}

impl CrashQuarantine {
    pub(crate) fn new() -> Self {
        Self {
            turn: Arc::new(Semaphore::new(1)),
            places: Semaphore::new(WAITING),
        }
    }

    /// Waits until no other suspect runs, where fewer than `most` wait.
    pub(crate) async fn turn(
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
            .run_until_cancelled(Arc::clone(&self.turn).acquire_owned())
            .await
        {
            Some(Ok(turn)) => Ok(turn),
            // It is never closed.
            Some(Err(_)) | None => Err(RunOutcome::Interrupted(Interruption::Drain)),
        }
    }
}
