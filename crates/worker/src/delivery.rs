use std::time::Duration;

use super::consumer::QueueConsumer;
use super::context::RunContext;
use super::decide::{DecisionInput, Health, RunOutcome, RunResult};
use super::decode::DecodedMessage;
use super::job_metrics;
use super::lease::Lease;
use super::queue_time::QueueTime;
use evenkeel_engine::FailureClass;
use evenkeel_storage::Message;

/// A message being processed, with the lease that allows settling it.
pub(super) struct OpenDelivery<'d> {
    /// The facts are separate from the lease, because work under the lease borrows the facts while
    /// the lease is borrowed mutably.
    pub(super) facts: DeliveryFacts<'d>,
    pub(super) lease: Lease,
}

/// Facts that do not change during a delivery.
#[derive(Clone, Copy)]
pub(super) struct DeliveryFacts<'d> {
    pub(super) context: &'d RunContext,
    pub(super) consumer: &'d QueueConsumer,
    pub(super) message: &'d Message,
    pub(super) decoded: &'d DecodedMessage,
    /// Gives the time by the queue's clock.
    pub(super) queue_time: QueueTime,
    /// Monotonic time at which the request for the message was sent.
    pub(super) sent: Duration,
    /// Monotonic time at which the delivery began.
    pub(super) began: Duration,
}

impl DeliveryFacts<'_> {
    /// Records what the outcomes report: throttling, views that are out of step, and an outdated
    /// catalog.
    pub(super) fn record_obstacles<'a>(&self, ends: impl IntoIterator<Item = &'a RunOutcome>) {
        for end in ends {
            self.consumer.slots.ended(is_throttled(end));
            job_metrics::view_failures(end.views());
            if is_outdated(end) {
                self.context.outdated.cancel();
            }
        }
    }

    /// The input of the decision, if the runs have just ended with these outcomes.
    pub(super) fn input<'a>(
        &self,
        ends: impl IntoIterator<Item = &'a RunOutcome>,
    ) -> DecisionInput {
        let Self {
            context,
            message,
            queue_time,
            ..
        } = self;
        let deliveries = &self.decoded.deliveries;
        let ended = context.now();
        let failing = deliveries.failing(queue_time.at(ended));
        let timed_out = ends
            .into_iter()
            .any(|end| matches!(end, RunOutcome::TimedOut(_)));
        DecisionInput {
            deliveries: message.dequeue_count,
            attempts: deliveries.attempts(),
            failing,
            failing_for: queue_time.since(failing.since, ended),
            ttl: message
                .expires
                .map(|expires| queue_time.until(expires, ended)),
            stores: if timed_out {
                context.circuit.refresh()
            } else {
                Health::Available
            },
            unit: context.rng.unit(),
        }
    }
}

fn is_outdated(end: &RunOutcome) -> bool {
    matches!(end, RunOutcome::Returned(ran) if matches!(ran.as_ref(), RunResult::Failed(failure, _) if failure.class == FailureClass::OutdatedCatalog))
}

/// Whether a store asked the run to retry later. A withheld request does not count, because it only
/// shows that one partition is busy. Partitions are paced separately.
pub(super) fn is_throttled(end: &RunOutcome) -> bool {
    let has_retry_after = |class| {
        matches!(
            class,
            FailureClass::Transient {
                retry_after: Some(_)
            }
        )
    };
    matches!(end, RunOutcome::Returned(ran) if matches!(ran.as_ref(), RunResult::Failed(failure, _) if has_retry_after(failure.class)))
}
