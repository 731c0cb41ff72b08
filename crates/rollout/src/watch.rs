//! Watches the recorded catalog. Each read renews the lease of the worker's catalog, or shows that
//! another catalog is recorded.

use std::time::Duration;

use super::current::CurrentCatalog;
use crate::migrations::{MigrationError, Migrator};
use evenkeel_model::cause;
use evenkeel_storage::{Clock, Rng};

/// Interval between reads. A lease survives two failed reads.
pub(super) const READ_INTERVAL: Duration = Duration::from_secs(4);
const RETRY_DELAY: Duration = Duration::from_secs(1);

pub struct RecordWatch<'a> {
    pub migrator: &'a Migrator,
    pub current: &'a CurrentCatalog,
    pub clock: &'a dyn Clock,
    /// Random numbers that spread the reads of several workers over time.
    pub rng: &'a dyn Rng,
}

impl RecordWatch<'_> {
    /// Reads the record periodically and on request; never returns.
    pub async fn keep(&self) -> std::convert::Infallible {
        let lease = self.current.lease();
        let mut pause = READ_INTERVAL;
        loop {
            let wait = tokio::time::sleep(self.rng.jittered(pause));
            tokio::select! {
                biased;
                () = wait => {}
                () = lease.read_requested(), if pause == READ_INTERVAL => {}
            }
            pause = match self.check().await {
                Ok(()) => READ_INTERVAL,
                Err(error) => {
                    tracing::warn!(error = %cause::chain(&error), "could not read the recorded catalog: {}; jobs are not acknowledged until it can be read", cause::chain(&error));
                    RETRY_DELAY
                }
            };
        }
    }

    pub async fn check(&self) -> Result<(), MigrationError> {
        let lease = self.current.lease();
        if lease.newer().is_some() {
            return Ok(());
        }
        let sent = self.clock.monotonic();
        self.report_later_generations().await?;
        let version = self.migrator.recorded_version().await?;
        // If the record is missing, no other catalog is recorded. ETags are compared, because a
        // recreated record may have the same number.
        if version.is_none_or(|version| self.current.has_seen(&version)) {
            lease.confirm(sent);
            return Ok(());
        }
        let record = self.migrator.catalog_record().await?;
        let recorded = record.generation;
        // If a record cannot be compared, for example because a source is spelled differently, it
        // counts as another catalog.
        if self.migrator.is_recorded(&record).unwrap_or(false) && self.current.adopt(&record, sent)
        {
            tracing::info!(
                recorded,
                "adopted catalog record {recorded}: it has the views of this worker's catalog"
            );
            return Ok(());
        }
        tracing::warn!(
            recorded,
            "another catalog was recorded (generation {recorded}); draining, then reloading the configuration"
        );
        lease.revoke(recorded);
        Ok(())
    }

    /// Records the later generations that jobs have found.
    async fn report_later_generations(&self) -> Result<(), MigrationError> {
        for (view, generation) in self.current.take_later_generations() {
            if self
                .migrator
                .record_later_generation(&view, generation)
                .await?
            {
                tracing::error!(
                    %view, generation,
                    "view {view} has items of generation {generation}, which is later than the recorded generation; jobs about these items wait until `evenkeel migrate up` raises the recorded generation"
                );
            }
        }
        Ok(())
    }
}
