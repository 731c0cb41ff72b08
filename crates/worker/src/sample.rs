//! Measuring backlogs, now and then: each costs two requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::count;
use super::source::Intake;
use super::status::Backlog;
use super::times::between;
use evenkeel_model::cause;
use evenkeel_model::limits;
use evenkeel_storage::{Clock, Rng, StoreError};

/// How often.
const EVERY: Duration = Duration::from_secs(15);

/// Measures the backlog of every queue periodically; never returns.
pub(crate) async fn sample(sources: &[Arc<Intake>], clock: &dyn Clock, rng: &dyn Rng) {
    loop {
        for source in sources {
            if let Err(error) = backlog(source, clock).await {
                tracing::debug!(queue = %source.queue, error = %cause::chain(&error), "the backlog cannot be measured");
            }
        }
        sleep(rng.jittered(EVERY)).await;
    }
}

async fn backlog(source: &Intake, clock: &dyn Clock) -> Result<(), StoreError> {
    let messages = source.queues.approximate_count(&source.queue).await?;
    let visible = if messages == 0 {
        Vec::new()
    } else {
        source
            .queues
            .peek(&source.queue, limits::QUEUE_BATCH)
            .await?
    };
    // The front of the queue is not always its oldest message; the oldest of the first 32 is near enough.
    // The service shows no hidden message but to who receives it: of those that a worker holds, or held when it was lost, no age is known.
    let oldest = visible.iter().map(|message| message.inserted).min();
    let now = clock.now();
    let age = oldest.map(|inserted| between(inserted, now));
    count::backlog(&source.queue, messages, age.unwrap_or_default());
    source.board.measured(Backlog {
        at: now,
        messages,
        oldest_age_seconds: age.map(|age| age.as_secs()),
    });
    Ok(())
}
