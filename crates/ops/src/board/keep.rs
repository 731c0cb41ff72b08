//! The task that measures the figures that are not reported to the board.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::sleep;

use super::{Board, SLOT};
use evenkeel_engine::audit_records;
use evenkeel_model::AccountName;
use evenkeel_storage::{ErrorClass, Missing, Stores};

/// Interval between reads of audit findings.
const AUDITS: Duration = Duration::from_mins(1);
/// How long after a message was poisoned its queue is counted again.
const RECOUNT_AFTER: Duration = Duration::from_secs(1);

/// Samples every slot when it has ended, counts poison after every wait, and reads audits every minute; never returns.
pub(super) async fn keep(board: &Board, stores: &Stores, wait: impl Fn() -> Duration) {
    let sampling = async {
        let mut slot = board.slot();
        loop {
            let next = SLOT * u32::try_from(slot + 1).unwrap_or(u32::MAX);
            sleep(next.saturating_sub(board.running())).await;
            // A program that was suspended has slots in which nothing was measured.
            slot = board.slot().max(slot + 1);
            board.sample(slot - 1);
        }
    };
    let counting = async {
        loop {
            for queue in board.configured() {
                count(board, stores, queue).await;
            }
            tokio::select! {
                biased;
                // A message was poisoned here: the count added up meanwhile is corrected, once a second at most.
                () = board.recount.notified() => sleep(RECOUNT_AFTER).await,
                () = sleep(wait()) => {}
            }
        }
    };
    let auditing = async {
        loop {
            audits(board, stores).await;
            tokio::select! {
                biased;
                () = board.audits.notified() => {}
                () = sleep(AUDITS) => {}
            }
        }
    };
    tokio::join!(sampling, counting, auditing);
}

/// Takes over the findings of audits, of any worker: one request for each account with sources.
async fn audits(board: &Board, stores: &Stores) {
    let catalog = board.catalog();
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
            Ok(records) => board.audited(&records),
            // An account that was not migrated yet was not audited either.
            Err(error) => {
                tracing::debug!(account = %name, %error, "what audits found cannot be read");
            }
        }
    }
}

/// Counts one poison queue: one request.
pub(crate) async fn count(
    board: &Board,
    stores: &Stores,
    queue: &evenkeel_model::settings::QueueSettings,
) {
    // Both names were checked when the worker was set up.
    let (Ok(account), Ok(poison)) = (
        stores.account(&queue.account),
        queue.name.with_suffix("-poison"),
    ) else {
        return;
    };
    match account.queues.approximate_count(&poison).await {
        Ok(messages) => board.counted(&queue.name, messages),
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
            board.counted(&queue.name, 0);
        }
        Err(error) => {
            tracing::debug!(queue = %poison, %error, "the poison queue cannot be counted");
        }
    }
}
