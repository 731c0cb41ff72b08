//! Getting messages from one queue, and owning the tasks that work on them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::consumer::{QueueConsumer, QueueKind};
use super::context::RunContext;
use super::deliver::deliver;
use super::doorbell::ReceiverWait;
use super::job_metrics;
use super::poll_backoff::PollBackoff;
use super::status::ReceiverState;
use evenkeel_model::cause;
use evenkeel_model::settings::PollInterval;
use evenkeel_storage::{ErrorClass, Missing};

/// How often a queue is noted that is not asked since every slot is taken: far shorter than the two minutes of silence of an alert.
const FULL: Duration = Duration::from_secs(15);

/// Receives until the run is stopped, then until every message that was got is settled.
pub(crate) async fn receive(context: Arc<RunContext>, consumer: Arc<QueueConsumer>) {
    let mut jobs = JoinSet::new();
    let mut backoff = PollBackoff::new(poll_of(&context, &consumer));
    let mut wait = ReceiverWait::For(Duration::ZERO);
    while turn(&context, &consumer, &mut backoff, wait).await {
        reap(&mut jobs);
        backoff.follow(poll_of(&context, &consumer));
        wait = batch(&context, &consumer, &mut jobs, &mut backoff).await;
    }
    consumer.board.set_state(ReceiverState::Draining);
    while let Some(job) = jobs.join_next().await {
        noticed(job);
    }
    consumer.board.set_state(ReceiverState::Stopped);
}

/// The poll interval of a queue. Rechecks are half an hour late by design, and no caller waits for one.
fn poll_of(context: &RunContext, consumer: &QueueConsumer) -> PollInterval {
    let poll = context.tuning.now().poll;
    match consumer.kind {
        QueueKind::Jobs => poll,
        QueueKind::Rechecks => poll.of_rechecks(),
    }
}

/// Waits until the queue may be asked. `false` where it may not be any more.
async fn turn(
    context: &RunContext,
    consumer: &QueueConsumer,
    backoff: &mut PollBackoff,
    wait: ReceiverWait,
) -> bool {
    if backoff.loses_answers() {
        consumer.board.set_state(ReceiverState::AnswersLost);
    }
    let ready = async {
        if wait.over(&consumer.bell).await {
            backoff.reset();
        }
        while context.circuit.is_open(&consumer.account) {
            consumer.board.set_state(ReceiverState::PausedByStore);
            context.circuit.wait_closed(&consumer.account).await;
        }
        consumer.board.set_state(if backoff.loses_answers() {
            ReceiverState::AnswersLost
        } else {
            ReceiverState::Receiving
        });
    };
    context
        .stop
        .receiving
        .run_until_cancelled(ready)
        .await
        .is_some()
}

/// Gets one batch and begins its jobs. Returns how long to wait.
async fn batch(
    context: &Arc<RunContext>,
    consumer: &Arc<QueueConsumer>,
    jobs: &mut JoinSet<()>,
    backoff: &mut PollBackoff,
) -> ReceiverWait {
    let slots = async {
        // Once more where others get stuck while it waits for slots.
        for _ in 0..2 {
            let slots = refill(context, consumer).await;
            if !context.unsettled.has(&consumer.account, &consumer.queue) {
                return slots;
            }
            // Its siblings may have the slots while it waits.
            drop(slots);
            context
                .unsettled
                .wait_settled(&consumer.account, &consumer.queue)
                .await;
        }
        refill(context, consumer).await
    };
    let Some(Some(mut slots)) = context.stop.receiving.run_until_cancelled(slots).await else {
        return ReceiverWait::For(Duration::ZERO);
    };
    // While it waited for slots a circuit may have opened.
    if context.circuit.is_open(&consumer.account) {
        return ReceiverWait::For(Duration::ZERO);
    }
    let asked = slots.num_permits().min(backoff.batch() as usize);
    let sent = context.now();
    let get = consumer.queues.get(
        &consumer.queue,
        u32::try_from(asked).unwrap_or(1),
        context.settings.lease,
    );
    // A Get under way is awaited when the run is stopped, also where there is no time to drain: dropped, it would
    // have counted a delivery on messages that no task works on. They are released at once.
    let Some(got) = context.stop.settling.run_until_cancelled(get).await else {
        return ReceiverWait::For(Duration::ZERO);
    };
    match got {
        Ok(messages) => {
            consumer.board.polled(context.clock.now());
            let count = messages.len();
            for message in messages {
                // A service that sends more than was asked for would get more slots than there are.
                let Some(slot) = slots.split(1) else { break };
                let place = consumer.board.enter(consumer.slots.taken(slot));
                // Boxed: a task of its size would be copied several times on its way into the runtime and out of it.
                jobs.spawn(Box::pin(deliver(
                    Arc::clone(context),
                    Arc::clone(consumer),
                    message,
                    sent,
                    place,
                )));
            }
            ReceiverWait::OrBell(
                backoff.answered(count, asked, context.chance.unit()),
                backoff.shortest_wait(),
            )
        }
        Err(error) => {
            let text = cause::chain(&error);
            tracing::warn!(queue = %consumer.queue, error = text, "the queue cannot be received from");
            consumer.board.failed(context.clock.now(), text);
            if error.class == ErrorClass::NotFound(Missing::Container)
                && let Err(error) = consumer.queues.create_queue(&consumer.queue).await
            {
                tracing::warn!(queue = %consumer.queue, error = %cause::chain(&error), "the missing queue cannot be created");
            }
            ReceiverWait::For(if error.class == ErrorClass::Ambiguous {
                job_metrics::unanswered_poll(consumer);
                backoff.unanswered(context.chance.unit())
            } else {
                backoff.failed(error.class.retry_after(), context.chance.unit())
            })
        }
    }
}

/// Waits for slots.
async fn refill(context: &RunContext, consumer: &QueueConsumer) -> Option<OwnedSemaphorePermit> {
    let mut refill = pin!(consumer.slots.refill());
    loop {
        match timeout(FULL, &mut refill).await {
            Ok(slots) => return slots,
            Err(_) if context.circuit.is_open(&consumer.account) => {}
            Err(_) => consumer.board.full(context.clock.now()),
        }
    }
}

/// Takes the ends of tasks that have ended.
fn reap(jobs: &mut JoinSet<()>) {
    while let Some(job) = jobs.try_join_next() {
        noticed(job);
    }
}

/// A panic of a run is caught inside; one out here is the worker's own fault, and its message comes again when
/// its visibility timeout ends.
fn noticed(job: Result<(), tokio::task::JoinError>) {
    if let Err(error) = job {
        tracing::error!(error = %error, "a delivery ended without being settled");
    }
}
