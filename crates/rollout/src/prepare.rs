//! Before a worker may run: the stores answer, migrations are applied, and the catalog is the recorded one.

use std::time::Duration;

use crate::migrations::{CatalogRecord, Consent, MigrationError, Migrator, Planned};
use evenkeel_model::planted::{Bug, planted};
use evenkeel_model::settings::{Backoff, MigrateSettings};
use evenkeel_storage::{Chance, Clock, ErrorClass, StoreError};

/// How long a store that does not answer at the start is left alone.
const PATIENCE: Backoff = Backoff {
    min: Duration::from_secs(1),
    base: Duration::from_secs(1),
    max: Duration::from_secs(30),
};

/// Why a worker may not run.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// Migrations are pending, and may not be applied without being asked for.
    #[error("{} migrations are pending, and [migrate] auto = false leaves them to `evenkeel migrate up`:{}", .0.len(), listed(.0))]
    Pending(Vec<Planned>),
    /// They cannot be looked at, or applied.
    #[error("the stores cannot be prepared")]
    Migration(#[from] MigrationError),
}

fn listed(changes: &[Planned]) -> String {
    changes.iter().fold(String::new(), |text, change| {
        text + "\n  " + &change.to_string()
    })
}

/// The record that the worker's catalog is.
#[derive(Debug)]
pub struct OnRecord {
    /// The record of it.
    pub record: CatalogRecord,
    /// When reading it was begun (monotonic).
    pub sent: Duration,
}

/// Applies pending migrations as far as they only add, or refuses to; returns the record, which the worker's catalog
/// now agrees with.
pub async fn prepare(
    migrator: &Migrator,
    settings: &MigrateSettings,
    clock: &dyn Clock,
) -> Result<OnRecord, PrepareError> {
    let consent = if planted(Bug::WorkersRetire) {
        Consent::Replacement
    } else {
        Consent::Additions
    };
    let pending = migrator.pending(consent).await?;
    if !pending.is_empty() && !settings.auto {
        return Err(PrepareError::Pending(pending));
    }
    if !pending.is_empty() {
        migrator
            .up(consent, |change| tracing::info!(%change, "migrated"))
            .await?;
    }
    let sent = clock.monotonic();
    let record = migrator.catalog_record().await?;
    if !migrator.is_recorded(&record)? {
        // Another record was made meanwhile: the next look shows its effect.
        return Err(MigrationError::Contended(1).into());
    }
    Ok(OnRecord { record, sent })
}

/// As [`prepare`], but waits for stores that do not answer, or still refuse the credentials, as long as it takes. `waiting` is
/// told for which store.
pub async fn persistently(
    migrator: &Migrator,
    settings: &MigrateSettings,
    (clock, chance): (&dyn Clock, &dyn Chance),
    waiting: impl Fn(&StoreError),
) -> Result<OnRecord, PrepareError> {
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
        let wait = PATIENCE.wait(attempt, chance.unit());
        tracing::warn!(%reason, again_in_seconds = wait.as_secs_f64(), "the stores are not ready: trying again");
        tokio::time::sleep(wait).await;
    }
}

/// Whether waiting may help: an outage does pass, and so does the time until new access rights are in force.
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
        | MigrationError::Outdated { .. }
        | MigrationError::Unrecorded
        | MigrationError::OtherDeclarations(_)
        | MigrationError::SourceRespelled(_) => false,
    }
}
