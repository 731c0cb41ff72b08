//! A message in work: what its delivery is made of, from receiving to settling.

use std::time::Duration;

use super::context::RunContext;
use super::count;
use super::decide::{End, Health, Inputs, Ran};
use super::examine::Examined;
use super::lease::Lease;
use super::source::Intake;
use super::times::QueueTime;
use evenkeel_engine::FailureClass;
use evenkeel_storage::Message;

/// A message in work, and the right to settle it.
pub(super) struct OpenDelivery<'d> {
    /// Beside the lease: work that it is held over borrows them.
    pub(super) facts: DeliveryFacts<'d>,
    pub(super) lease: Lease,
}

/// What holds for a delivery as long as it lasts.
#[derive(Clone, Copy)]
pub(super) struct DeliveryFacts<'d> {
    pub(super) context: &'d RunContext,
    pub(super) source: &'d Intake,
    /// As it was got.
    pub(super) message: &'d Message,
    pub(super) examined: &'d Examined,
    /// The queue's clock.
    pub(super) queue_time: QueueTime,
    /// When the request that got the message was sent (monotonic).
    pub(super) sent: Duration,
    /// When its delivery began (monotonic).
    pub(super) began: Duration,
}

impl DeliveryFacts<'_> {
    /// Tells the worker of the obstacles of runs: a store that throttles, a newer catalog.
    pub(super) fn notice<'a>(&self, ends: impl IntoIterator<Item = &'a End>) {
        for end in ends {
            self.source.slots.ended(is_throttled(end));
            count::view_failures(end.views());
            if is_outdated(end) {
                self.context.outdated.cancel();
            }
        }
    }

    /// The situation when its runs have just ended in these ways.
    pub(super) fn situation<'a>(&self, ends: impl IntoIterator<Item = &'a End>) -> Inputs {
        let Self {
            context,
            message,
            queue_time,
            ..
        } = self;
        let deliveries = &self.examined.deliveries;
        let ended = context.now();
        let failing = deliveries.failing(queue_time.at(ended));
        let timed_out = ends.into_iter().any(|end| matches!(end, End::TimedOut(_)));
        Inputs {
            deliveries: message.dequeue_count,
            attempts: deliveries.attempts(),
            failing,
            failing_for: queue_time.since(failing.since, ended),
            ttl: message
                .expires
                .map(|expires| queue_time.until(expires, ended)),
            stores: if timed_out {
                context.circuit.look()
            } else {
                Health::Answer
            },
            unit: context.rng.unit(),
        }
    }
}

fn is_outdated(end: &End) -> bool {
    matches!(end, End::Ran(ran) if matches!(ran.as_ref(), Ran::Failed(failure, _) if failure.class == FailureClass::OutdatedCatalog))
}

/// Whether a store told the run to come later. A request that was withheld says that one partition is busy, which has its own pace.
pub(super) fn is_throttled(end: &End) -> bool {
    let asked = |class| {
        matches!(
            class,
            FailureClass::Transient {
                retry_after: Some(_)
            }
        )
    };
    matches!(end, End::Ran(ran) if matches!(ran.as_ref(), Ran::Failed(failure, _) if asked(failure.class)))
}
