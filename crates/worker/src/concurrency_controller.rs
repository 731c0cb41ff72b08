//! Adapts the concurrency of a queue to the throughput that it measures.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::adaptive_limit::AdaptiveLimit;
use super::consumer::QueueConsumer;
use super::slots::Slots;
use evenkeel_model::QueueName;
use evenkeel_storage::Clock;

const INTERVAL: Duration = Duration::from_millis(100);
/// A window with too few results is restarted at this age, because its first results are outdated
/// by then.
const MAX_WINDOW: Duration = Duration::from_secs(30);

/// Adapts the two pools of slots that the shards of a queue share: one for messages, one for the
/// jobs of batches. Runs until dropped.
pub(crate) async fn control_concurrency(
    consumers: &[Arc<QueueConsumer>],
    memory: u64,
    clock: &dyn Clock,
) {
    let Some(consumer) = consumers.first() else {
        return;
    };
    let now = clock.monotonic();
    let mut pools = [
        ControlledSlots::new(
            "messages",
            &consumer.slots,
            AdaptiveLimit::for_messages(memory),
            now,
        ),
        ControlledSlots::new(
            "jobs of batches",
            &consumer.batch_slots,
            AdaptiveLimit::for_batches(memory),
            now,
        ),
    ];
    loop {
        sleep(INTERVAL).await;
        for pool in &mut pools {
            if pool.evaluate(&consumer.configured_queue, clock.monotonic()) {
                for consumer in consumers {
                    consumer.board.set_concurrency_gauge();
                }
            }
        }
    }
}

struct ControlledSlots<'a> {
    /// Name of the pool of slots, for the log.
    pool: &'static str,
    slots: &'a Slots,
    controller: AdaptiveLimit,
    began: Duration,
}

impl<'a> ControlledSlots<'a> {
    fn new(pool: &'static str, slots: &'a Slots, controller: AdaptiveLimit, now: Duration) -> Self {
        slots.resize(controller.limit());
        slots.reset();
        Self {
            pool,
            slots,
            controller,
            began: now,
        }
    }

    /// Evaluates the current window and sets the number of slots. Returns whether the number has
    /// changed.
    fn evaluate(&mut self, queue: &QueueName, now: Duration) -> bool {
        self.slots.drop_surplus();
        let window = self.slots.window(now.saturating_sub(self.began));
        let enough = self.controller.is_conclusive(&window);
        if enough || window.length >= MAX_WINDOW {
            self.slots.reset();
            self.began = now;
        }
        if !enough {
            return false;
        }
        let (before, limit) = (self.controller.limit(), self.controller.next_limit(&window));
        if limit != before {
            self.slots.resize(limit);
            tracing::debug!(%queue, pool = self.pool, before, limit, ended = window.ended, throttled = window.throttled, "changed the concurrency of {queue} from {before} to {limit}");
        }
        limit != before
    }
}
