//! Measures backlogs. Each measurement costs two requests, so measurements are rare.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::consumer::QueueConsumer;
use super::job_metrics;
use super::queue_time::between;
use super::status::Backlog;
use evenkeel_model::cause;
use evenkeel_model::limits;
use evenkeel_storage::{Clock, Rng, StoreError};

const INTERVAL: Duration = Duration::from_secs(15);

pub(crate) async fn measure_backlogs(
    consumers: &[Arc<QueueConsumer>],
    clock: &dyn Clock,
    rng: &dyn Rng,
) {
    loop {
        for consumer in consumers {
            if let Err(error) = backlog(consumer, clock).await {
                tracing::debug!(queue = %consumer.queue, error = %cause::chain(&error), "could not measure the backlog of {}", consumer.queue);
            }
        }
        sleep(rng.jittered(INTERVAL)).await;
    }
}

async fn backlog(consumer: &QueueConsumer, clock: &dyn Clock) -> Result<(), StoreError> {
    let messages = consumer.queues.approximate_count(&consumer.queue).await?;
    let visible = if messages == 0 {
        Vec::new()
    } else {
        consumer
            .queues
            .peek(&consumer.queue, limits::QUEUE_BATCH)
            .await?
    };
    // The first message of the queue is not always the oldest, but the oldest of the first 32 is
    // close enough. A peek does not show hidden messages, so the age of messages that a worker
    // holds, or held when it crashed, is unknown.
    let oldest = visible.iter().map(|message| message.inserted).min();
    let now = clock.now();
    let age = oldest.map(|inserted| between(inserted, now));
    job_metrics::backlog(&consumer.queue, messages, age.unwrap_or_default());
    consumer.board.measured(Backlog {
        at: now,
        messages,
        oldest_age_seconds: age.map(|age| age.as_secs()),
    });
    Ok(())
}
