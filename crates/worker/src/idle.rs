//! Detects that nothing is left to do.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::consumer::{QueueConsumer, QueueKind};
use evenkeel_model::cause;
use evenkeel_storage::Clock;

/// Whether a worker that runs until it is idle also waits for rechecks. They become visible only
/// after `recheck_after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rechecks {
    /// Due rechecks are run, and later ones are left on their queues.
    #[default]
    Ignored,
    /// The run ends only when the recheck queues are empty too.
    Awaited,
}

/// Waits until the queues have been empty for `quiet`, with nothing in flight. Recheck queues are
/// included only if rechecks are awaited. An empty queue has no message that waits for a retry,
/// because the message count includes hidden messages.
pub(crate) async fn idle(
    consumers: &[Arc<QueueConsumer>],
    quiet: Duration,
    rechecks: Rechecks,
    clock: &dyn Clock,
) {
    let watched: Vec<&Arc<QueueConsumer>> = consumers
        .iter()
        .filter(|consumer| consumer.kind == QueueKind::Jobs || rechecks == Rechecks::Awaited)
        .collect();
    let step = (quiet / 4).clamp(Duration::from_millis(50), Duration::from_secs(2));
    let mut since: Option<(Duration, u64)> = None;
    loop {
        let now = clock.monotonic();
        let received = watched
            .iter()
            .map(|consumer| consumer.board.received())
            .sum();
        since = match (empty(&watched).await, since) {
            (false, _) => None,
            (true, Some((began, before))) if before == received => Some((began, before)),
            (true, _) => Some((now, received)),
        };
        if since.is_some_and(|(began, _)| clock.monotonic().saturating_sub(began) >= quiet) {
            return;
        }
        sleep(step).await;
    }
}

async fn empty(consumers: &[&Arc<QueueConsumer>]) -> bool {
    for consumer in consumers {
        if consumer.board.in_flight() > 0 {
            return false;
        }
        match consumer.queues.approximate_count(&consumer.queue).await {
            Ok(0) => {}
            Ok(_) => return false,
            Err(error) => {
                tracing::debug!(queue = %consumer.queue, error = %cause::chain(&error), "could not count the messages of {}", consumer.queue);
                return false;
            }
        }
    }
    consumers
        .iter()
        .all(|consumer| consumer.board.in_flight() == 0)
}
