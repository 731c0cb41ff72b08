//! Takes the measures that no other part of the program reports.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::{OpsState, SLOT};
use evenkeel_engine::audit_records;
use evenkeel_model::AccountName;
use evenkeel_storage::{ErrorClass, Missing, Stores};

/// Interval between two reads of the audit records.
const AUDITS: Duration = Duration::from_mins(1);
/// Delay after which the poison queues are counted again when this worker has poisoned a message.
const RECOUNT_AFTER: Duration = Duration::from_secs(1);

/// Samples every slot, counts poison messages at intervals of `wait`, and reads audit records every minute. Never
/// returns.
pub(super) async fn measure(ops_state: &OpsState, stores: &Stores, wait: impl Fn() -> Duration) {
    let sampling = async {
        let mut slot = ops_state.slot();
        loop {
            let next = SLOT * u32::try_from(slot + 1).unwrap_or(u32::MAX);
            sleep(next.saturating_sub(ops_state.running())).await;
            // If the process was suspended meanwhile, the slots of that time have no samples.
            slot = ops_state.slot().max(slot + 1);
            ops_state.sample(slot - 1);
        }
    };
    let counting = async {
        loop {
            for queue in ops_state.job_queues() {
                count(ops_state, stores, queue).await;
            }
            tokio::select! {
                biased;
                // If this worker has poisoned a message, the number of poison messages is an estimate, so they are
                // counted again, at most once a second.
                () = ops_state.recount.notified() => sleep(RECOUNT_AFTER).await,
                () = sleep(wait()) => {}
            }
        }
    };
    let auditing = async {
        loop {
            audits(ops_state, stores).await;
            tokio::select! {
                biased;
                () = ops_state.audits.notified() => {}
                () = sleep(AUDITS) => {}
            }
        }
    };
    tokio::join!(sampling, counting, auditing);
}

/// Reads the audit records of all workers, with one request per account that has source tables.
async fn audits(ops_state: &OpsState, stores: &Stores) {
    let catalog = ops_state.catalog();
    let accounts: BTreeSet<AccountName> = catalog
        .declared()
        .into_values()
        .map(|(_, source)| source.account().clone())
        .collect();
    for name in accounts {
        let Ok(account) = stores.account(&name) else {
            continue;
        };
        match audit_records(account.tables.as_ref(), &catalog).await {
            Ok(records) => ops_state.audited(&records),
            // An account that has not been migrated has no audit records.
            Err(error) => {
                tracing::debug!(account = %name, %error, "could not read the audit records of account {name}: {error}");
            }
        }
    }
}

/// Counts the messages of one poison queue with one request.
pub(crate) async fn count(
    ops_state: &OpsState,
    stores: &Stores,
    queue: &evenkeel_model::settings::QueueSettings,
) {
    // Both names were checked when the worker was created.
    let (Ok(account), Ok(poison)) = (
        stores.account(&queue.account),
        queue.name.with_suffix("-poison"),
    ) else {
        return;
    };
    match account.queues.approximate_count(&poison).await {
        Ok(messages) => ops_state.poison_counted(&queue.name, messages),
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
            ops_state.poison_counted(&queue.name, 0);
        }
        Err(error) => {
            tracing::debug!(queue = %poison, %error, "could not count poison queue {poison}: {error}");
        }
    }
}
