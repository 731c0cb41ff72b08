//! Periodically adapts the number of jobs of a queue in flight to the results of the last ones.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::concurrency::Controller;
use super::slots::Slots;
use super::source::Intake;
use crate::ports::Clock;

/// How often the figures are looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Age at which a window with too few results is begun anew: its beginning is out of date by then.
const MOST: Duration = Duration::from_secs(30);

/// Adapts slots that the shards of a queue share, until dropped.
pub(crate) async fn adapt(sources: &[Arc<Intake>], of: impl Fn(&Intake) -> &Slots, mut controller: Controller, clock: &dyn Clock) {
    let Some(slots) = sources.first().map(|source| of(source).clone()) else { return };
    slots.resize(controller.limit());
    slots.reset();
    let mut began = clock.monotonic();
    loop {
        sleep(LOOK).await;
        slots.give_up();
        let window = slots.window(clock.monotonic().saturating_sub(began));
        let enough = controller.is_enough(&window);
        if enough {
            let before = controller.limit();
            let limit = controller.after(&window);
            if limit != before {
                slots.resize(limit);
                for source in sources {
                    source.board.tell_concurrency();
                }
                if let Some(source) = sources.first() {
                    tracing::debug!(queue = %source.configured, before, limit, ended = window.ended, throttled = window.throttled, "concurrency adapted");
                }
            }
        }
        if enough || window.length >= MOST {
            slots.reset();
            began = clock.monotonic();
        }
    }
}
