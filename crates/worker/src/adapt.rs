//! Periodically adapts the number of jobs of a queue in flight to the results of the last ones.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::concurrency::Controller;
use super::slots::Slots;
use super::source::Intake;
use evenkeel_model::QueueName;
use evenkeel_storage::Clock;

/// How often the figures are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Age at which a window with too few results is begun anew: its beginning is out of date by then.
const MOST: Duration = Duration::from_secs(30);

/// Adapts the slots that the shards of a queue share, those of messages and those of the jobs of batches, until dropped.
pub(crate) async fn adapt(sources: &[Arc<Intake>], memory: u64, clock: &dyn Clock) {
    let Some(source) = sources.first() else {
        return;
    };
    let now = clock.monotonic();
    let mut pools = [
        Pool::new(
            "messages",
            &source.slots,
            Controller::of_messages(memory),
            now,
        ),
        Pool::new(
            "jobs of batches",
            &source.of_batches,
            Controller::of_batches(memory),
            now,
        ),
    ];
    loop {
        sleep(LOOK).await;
        for pool in &mut pools {
            if pool.look(&source.configured, clock.monotonic()) {
                for source in sources {
                    source.board.tell_concurrency();
                }
            }
        }
    }
}

/// Slots, and the decision on their number.
struct Pool<'a> {
    /// The holders of the slots, for the log.
    of: &'static str,
    slots: &'a Slots,
    controller: Controller,
    /// When the window began.
    began: Duration,
}

impl<'a> Pool<'a> {
    fn new(of: &'static str, slots: &'a Slots, controller: Controller, now: Duration) -> Self {
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
        let enough = self.controller.is_enough(&window);
        if enough || window.length >= MOST {
            self.slots.reset();
            self.began = now;
        }
        if !enough {
            return false;
        }
        let (before, limit) = (self.controller.limit(), self.controller.after(&window));
        if limit != before {
            self.slots.resize(limit);
            tracing::debug!(%queue, of = self.of, before, limit, ended = window.ended, throttled = window.throttled, "concurrency adapted");
        }
        limit != before
    }
}
