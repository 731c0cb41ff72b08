//! Periodically adapts the number of jobs of a queue in flight to the results of the last ones.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::adaptive_limit::AdaptiveLimit;
use super::consumer::QueueConsumer;
use super::slots::Slots;
use evenkeel_model::QueueName;
use evenkeel_storage::Clock;

/// How often the figures are looked at.
const INTERVAL: Duration = Duration::from_millis(100);
/// Age at which a window with too few results is begun anew: its beginning is out of date by then.
const MAX_WINDOW: Duration = Duration::from_secs(30);

/// Adapts the slots that the shards of a queue share, those of messages and those of the jobs of batches, until dropped.
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
            if pool.look(&consumer.configured_queue, clock.monotonic()) {
                for consumer in consumers {
                    consumer.board.tell_concurrency();
                }
            }
        }
    }
}

/// Slots, and the decision on their number.
struct ControlledSlots<'a> {
    /// The holders of the slots, for the log.
    of: &'static str,
    slots: &'a Slots,
    controller: AdaptiveLimit,
    /// When the window began.
    began: Duration,
}

impl<'a> ControlledSlots<'a> {
    fn new(of: &'static str, slots: &'a Slots, controller: AdaptiveLimit, now: Duration) -> Self {
        slots.resize(controller.limit());
        slots.reset();
        Self {
            of,
            slots,
            controller,
            began: now,
        }
    }

    /// Looks at the figures of the window. Whether the number of slots has changed.
    fn look(&mut self, queue: &QueueName, now: Duration) -> bool {
        self.slots.give_up();
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
            tracing::debug!(%queue, of = self.of, before, limit, ended = window.ended, throttled = window.throttled, "concurrency adapted");
        }
        limit != before
    }
}
