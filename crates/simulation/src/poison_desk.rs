//! The operator who handles the poison queue.

use std::collections::BTreeSet;

use super::expectation::Expectation;
use super::fault_plan::JOBS;
use super::scenario::Scenario;
use super::shared_state::SharedState;
use evenkeel_account::company::queue;
use evenkeel_account::{REFUSED, ROW_REFUSED};
use evenkeel_model::settings::QueueSettings;
use evenkeel_storage::{Account, Ttl};
use evenkeel_worker::poison::{PoisonFilter, PoisonMessage, PoisonQueue, Reason};

/// Requeues jobs that are exhausted, expired or temporarily refused. In the story `Discarded`, the operator discards
/// exhausted and expired jobs instead.
pub(super) async fn handle_poison(
    account: &Account,
    shared_state: &SharedState,
    scenario: Option<Scenario>,
) {
    let Ok(poison) = PoisonQueue::new(account, &QueueSettings::plain(queue(JOBS))) else {
        return;
    };
    let Ok(listed) = poison.list(&PoisonFilter::default()).await else {
        return;
    };
    for entry in listed
        .entries
        .into_iter()
        .filter(|entry| was_given_up(&entry.message) || was_refused(&entry.message))
    {
        let PoisonMessage {
            queue,
            message_id,
            body,
            ..
        } = &entry.message;
        let expectation = shared_state.records().ledger.expectation(
            queue.as_str(),
            message_id,
            body.as_deref().unwrap_or_default(),
        );
        let one = PoisonFilter {
            ids: BTreeSet::from([entry.message.message_id.clone()]),
            ..PoisonFilter::default()
        };
        // A recheck follows a job that was given up, so the job can be discarded. No recheck follows an exhausted
        // recheck or batch, so these are not discarded.
        let is_job = matches!(expectation, Some(Expectation::Job(_)));
        let handled =
            if scenario == Some(Scenario::Discarded) && is_job && was_given_up(&entry.message) {
                poison.discard(&one).await
            } else {
                if let Some(expectation) = expectation {
                    shared_state.expect(expectation, Ttl::Never);
                }
                poison.requeue(&one).await
            };
        match handled {
            Ok(handled) if handled.failed.is_empty() => {}
            failed => shared_state.violated(format!(
                "cannot requeue or discard poison messages: {failed:?}"
            )),
        }
    }
}

/// Whether crashes have used up the job's attempts, or the job has expired.
fn was_given_up(message: &PoisonMessage) -> bool {
    matches!(message.reason, Reason::Exhausted | Reason::Expired)
}

fn was_refused(message: &PoisonMessage) -> bool {
    [REFUSED, ROW_REFUSED]
        .iter()
        .any(|refused| message.error.contains(refused))
}
