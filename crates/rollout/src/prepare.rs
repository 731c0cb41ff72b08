//! Prepares the stores before a worker runs: waits for them, applies migrations, and checks the recorded catalog.

use std::time::Duration;

use crate::migrations::{CatalogRecord, Consent, MigrationError, Migrator, PlannedChange};
use evenkeel_model::settings::{Backoff, MigrateSettings};
use evenkeel_storage::{Clock, ErrorClass, Rng, StoreError};

/// Delays between the attempts to reach an unavailable store.
const BACKOFF: Backoff = Backoff {
    min: Duration::from_secs(1),
    base: Duration::from_secs(1),
    max: Duration::from_secs(30),
};

#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    #[error("[migrate] auto is false and migrations are pending. Run `evenkeel migrate up`:{}", listed(.0))]
    Pending(Vec<PlannedChange>),
    #[error("could not prepare the stores")]
    Migration(#[from] MigrationError),
}

fn listed(changes: &[PlannedChange]) -> String {
    changes.iter().fold(String::new(), |text, change| {
        text + "\n  " + &change.to_string()
    })
}

/// The record of the worker's catalog, as it was read.
#[derive(Debug)]
pub struct RecordedCatalog {
    pub record: CatalogRecord,
    /// Monotonic time at which the read began.
    pub sent: Duration,
}

/// Makes the pending changes that only add something, and returns the record. Returns an error if
/// the settings forbid these changes, or if the record does not have the worker's catalog.
pub async fn prepare(
    migrator: &Migrator,
    settings: &MigrateSettings,
    clock: &dyn Clock,
) -> Result<RecordedCatalog, PrepareError> {
    let consent = Consent::Additions;
    let pending = migrator.pending(consent).await?;
    if !pending.is_empty() && !settings.auto {
        return Err(PrepareError::Pending(pending));
    }
    if !pending.is_empty() {
        migrator
            .up(
                consent,
                |change| tracing::info!(%change, "applied migration: {change}"),
            )
            .await?;
    }
    let sent = clock.monotonic();
    let record = migrator.catalog_record().await?;
    if !migrator.is_recorded(&record)? {
        // Another catalog was recorded meanwhile. The next attempt reads it.
        return Err(MigrationError::Contended(1).into());
    }
    Ok(RecordedCatalog { record, sent })
}

/// Like [`prepare`], but waits without limit for stores that do not answer or still refuse the
/// credentials, and reports them to `waiting`.
pub async fn prepare_with_retries(
    migrator: &Migrator,
    settings: &MigrateSettings,
    clock: &dyn Clock,
    rng: &dyn Rng,
    waiting: impl Fn(&StoreError),
) -> Result<RecordedCatalog, PrepareError> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let error = match prepare(migrator, settings, clock).await {
            Err(PrepareError::Migration(error)) if may_pass(&error) => error,
            ended => return ended,
        };
        if let MigrationError::Store { source, .. } = &error {
            waiting(source);
        }
        let error = anyhow::Error::new(error);
        let reason = format!("{error:#}");
        let wait = BACKOFF.wait(attempt, rng.unit());
        tracing::warn!(%reason, retry_in_seconds = wait.as_secs_f64(), "stores not ready: {reason}; retrying in {:.0} s", wait.as_secs_f64());
        tokio::time::sleep(wait).await;
    }
}

/// Whether waiting may help. Outages end, and new access rights take some time to become effective.
fn may_pass(error: &MigrationError) -> bool {
    match error {
        MigrationError::Store { source, .. } => {
            source.class.is_transient() || source.class == ErrorClass::Unauthorised
        }
        MigrationError::Contended(_) => true,
        MigrationError::Account(_)
        | MigrationError::Sink(_)
        | MigrationError::File { .. }
        | MigrationError::Version(_)
        | MigrationError::Record { .. }
        | MigrationError::SourceChanged(_)
        | MigrationError::NeedsConsent(_)
        | MigrationError::Losses(_)
        | MigrationError::LeftBehind(_)
        | MigrationError::Unrecorded
        | MigrationError::OtherDeclarations(_)
        | MigrationError::SourceRespelled(_) => false,
    }
}
