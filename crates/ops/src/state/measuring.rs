//! Takes the measures that nothing reports.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::{OpsState, SLOT};
use evenkeel_engine::audit_records;
use evenkeel_model::AccountName;
use evenkeel_storage::{ErrorClass, Missing, Stores};

/// Interval between reads of audit records.
const AUDITS: Duration = Duration::from_mins(1);
/// Delay between poisoning a message and counting its queue again.
const RECOUNT_AFTER: Duration = Duration::from_secs(1);

/// Samples every slot, counts poison messages after every `wait`, and reads audit records every minute; never returns.
pub(super) async fn measure(ops_state: &OpsState, stores: &Stores, wait: impl Fn() -> Duration) {
    let sampling = async {
        let mut slot = ops_state.slot();
        loop {
            let next = SLOT * u32::try_from(slot + 1).unwrap_or(u32::MAX);
            sleep(next.saturating_sub(ops_state.running())).await;
            // If the process was suspended, some slots have no samples.
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
                // A message was poisoned here, and the estimated count is corrected, at most once a second.
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
            // An account that has not been migrated has not been audited either.
            Err(error) => {
                tracing::debug!(account = %name, %error, "could not read the audit records of account {name}: {error}");
            }
        }
    }
}

/// Counts one poison queue with one request.
pub(crate) async fn count(
    ops_state: &OpsState,
    stores: &Stores,
    queue: &evenkeel_model::settings::QueueSettings,
) {
    // Both names were validated when the worker was set up.
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
