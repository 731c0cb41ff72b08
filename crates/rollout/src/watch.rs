//! The watch on the recorded catalog: renews the lease of the catalog that a worker works by, and says when another one is recorded.

use std::time::Duration;

use super::current::Current;
use crate::migrations::{MigrationError, Migrator};
use evenkeel_model::cause;
use evenkeel_storage::{Chance, Clock};

/// How often the record is read: often enough for a lease to outlive two reads that fail.
pub(super) const EVERY: Duration = Duration::from_secs(4);
/// Delay before the next look where one is asked for and the store fails.
const AGAIN: Duration = Duration::from_secs(1);

/// The context of the watch.
pub struct Watch<'a> {
    /// Reads the record for the catalog.
    pub migrator: &'a Migrator,
    /// The catalog that is worked by.
    pub current: &'a Current,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Random numbers, which spread the looks of several workers.
    pub chance: &'a dyn Chance,
}

impl Watch<'_> {
    /// Looks periodically, and on request; never returns.
    pub async fn keep(&self) -> std::convert::Infallible {
        let lease = self.current.lease();
        let mut pause = EVERY;
        loop {
            let wait = tokio::time::sleep(self.chance.jittered(pause));
            tokio::select! {
                biased;
                () = wait => {}
                () = lease.asked(), if pause == EVERY => {}
            }
            pause = match self.look().await {
                Ok(()) => EVERY,
                Err(error) => {
                    tracing::warn!(error = %cause::chain(&error), "recorded catalog: cannot be read; jobs are not acknowledged until it is");
                    AGAIN
                }
            };
        }
    }

    /// Looks at the record once.
    pub async fn look(&self) -> Result<(), MigrationError> {
        let lease = self.current.lease();
        if lease.newer().is_some() {
            return Ok(());
        }
        let sent = self.clock.monotonic();
        self.tell_met().await?;
        let version = self.migrator.recorded_version().await?;
        // A record that is gone says nothing against the catalog; a new one is noticed, under the same number too.
        if version.is_none_or(|version| self.current.has_seen(&version)) {
            lease.confirm(sent);
            return Ok(());
        }
        let record = self.migrator.catalog_record().await?;
        let recorded = record.generation;
        // One that cannot be compared (a source that is spelled otherwise) does not fit either.
        if self.migrator.is_recorded(&record).unwrap_or(false)
            && self.current.takes_over(&record, sent)
        {
            tracing::info!(
                recorded,
                "catalog: the record is another one, with the views of this worker's; it is taken over"
            );
            return Ok(());
        }
        tracing::warn!(
            recorded,
            "catalog: another one is recorded than this worker's, which drains and reads its configuration again"
        );
        lease.revoke(recorded);
        Ok(())
    }

    /// Tells the record which later generations were met.
    async fn tell_met(&self) -> Result<(), MigrationError> {
        for (view, generation) in self.current.take_met() {
            if self.migrator.met(&view, generation).await? {
                tracing::error!(
                    %view, generation,
                    "catalog: items of a later generation than the recorded one exist; their jobs are put off until `evenkeel migrate up` has \
                     numbered the view anew"
                );
            }
        }
        Ok(())
    }
}
