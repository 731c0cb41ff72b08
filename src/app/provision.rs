//! Watches the declared tables. While one of them is missing, the program reports that it is not
//! ready.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use metrics::gauge;

use super::AppParts;
use super::condition::ProgramState;
use evenkeel_model::{AccountName, TableName};
use evenkeel_rollout::CurrentCatalog;
use evenkeel_rollout::migrations::MigrationError;
use evenkeel_telemetry::names;

/// Interval between listings of the tables, with jitter.
const EVERY: Duration = Duration::from_secs(12);

type MissingTables = BTreeSet<(AccountName, TableName)>;

pub(super) async fn watch(
    parts: &AppParts,
    current: &CurrentCatalog,
    condition: &ProgramState,
) -> std::convert::Infallible {
    let mut known = MissingTables::new();
    loop {
        match missing_tables(parts, current).await {
            Ok(gone) => {
                log_changes(&known, &gone);
                set_gauges(parts, &gone);
                condition.missing(gone.clone());
                known = gone;
            }
            // If the store does not answer, its circuit breaker reports that.
            Err(error) => {
                tracing::debug!(%error, "could not list the tables: {error}; keeping the last known state");
            }
        }
        tokio::time::sleep(parts.rng.jittered(EVERY)).await;
    }
}

async fn missing_tables(
    parts: &AppParts,
    current: &CurrentCatalog,
) -> Result<MissingTables, MigrationError> {
    let catalog = Arc::clone(current.engine().catalog());
    let migrator = parts.context.migrator_to(catalog)?;
    migrator.missing_tables().await
}

fn log_changes(known: &MissingTables, gone: &MissingTables) {
    for (account, table) in gone.difference(known) {
        tracing::error!(%account, %table, "declared table {table} does not exist: jobs that need it wait until `evenkeel migrate up` creates it");
    }
    for (account, table) in known.difference(gone) {
        tracing::info!(%account, %table, "declared table {table} exists again: run a backfill to restore its rows");
    }
}

fn set_gauges(parts: &AppParts, gone: &MissingTables) {
    let mut counts: BTreeMap<&AccountName, u32> = parts
        .context
        .settings
        .accounts
        .iter()
        .map(|account| (&account.name, 0))
        .collect();
    for (account, _) in gone {
        *counts.entry(account).or_default() += 1;
    }
    for (account, set_gauges) in counts {
        gauge!(names::MISSING_TABLES, names::ACCOUNT => account.as_str().to_owned())
            .set(f64::from(set_gauges));
    }
}
