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

/// While all slots are taken, the queue is not polled. The time of its last poll is then refreshed
/// this often, because an alert fires when that time is two minutes old.
const BUSY_INTERVAL: Duration = Duration::from_secs(15);

/// Receives until the run is stopped, then waits until every received message is settled.
pub(crate) async fn receive(context: Arc<RunContext>, consumer: Arc<QueueConsumer>) {
    let mut jobs = JoinSet::new();
    let mut backoff = PollBackoff::new(poll_of(&context, &consumer));
    let mut wait = ReceiverWait::Fixed(Duration::ZERO);
    while wait_until_ready(&context, &consumer, &mut backoff, wait).await {
        join_finished(&mut jobs);
        backoff.follow(poll_of(&context, &consumer));
        wait = poll(&context, &consumer, &mut jobs, &mut backoff).await;
    }
    consumer.board.set_state(ReceiverState::Draining);
    while let Some(job) = jobs.join_next().await {
        log_panic(job);
    }
    consumer.board.set_state(ReceiverState::Stopped);
}

/// Polls recheck queues less often. Rechecks are half an hour late by design, and no caller waits
/// for one.
fn poll_of(context: &RunContext, consumer: &QueueConsumer) -> PollInterval {
    let poll = context.tuning.now().poll;
    match consumer.kind {
        QueueKind::Jobs => poll,
        QueueKind::Rechecks => poll.for_rechecks(),
    }
}

/// Waits until the queue may be polled. Returns `false` once receiving has stopped.
async fn wait_until_ready(
    context: &RunContext,
    consumer: &QueueConsumer,
    backoff: &mut PollBackoff,
    wait: ReceiverWait,
) -> bool {
    if backoff.loses_answers() {
        consumer.board.set_state(ReceiverState::AnswersLost);
    }
    let ready = async {
        if wait.wait(&consumer.bell).await {
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

/// Receives one batch and starts its deliveries. Returns the wait before the next poll.
async fn poll(
    context: &Arc<RunContext>,
    consumer: &Arc<QueueConsumer>,
    jobs: &mut JoinSet<()>,
    backoff: &mut PollBackoff,
) -> ReceiverWait {
    let slots = async {
        // Settlements may become stuck while this task waits for slots, so the check is repeated.
        for _ in 0..2 {
            let slots = acquire_slots(context, consumer).await;
            if !context.unsettled.has(&consumer.account, &consumer.queue) {
                return slots;
            }
            // While this task waits, other shards may use the slots.
            drop(slots);
            context
                .unsettled
                .wait_settled(&consumer.account, &consumer.queue)
                .await;
        }
        acquire_slots(context, consumer).await
    };
    let Some(Some(mut slots)) = context.stop.receiving.run_until_cancelled(slots).await else {
        return ReceiverWait::Fixed(Duration::ZERO);
    };
    // A circuit may have opened while this task waited for slots.
    if context.circuit.is_open(&consumer.account) {
        return ReceiverWait::Fixed(Duration::ZERO);
    }
    let requested = slots.num_permits().min(backoff.batch() as usize);
    let sent = context.now();
    let get = consumer.queues.get(
        &consumer.queue,
        u32::try_from(requested).unwrap_or(1),
        context.settings.lease,
    );
    // When the run is stopped, a Get Messages request under way is still awaited, and the received
    // messages are released at once. If the request were dropped, the service would count a
    // delivery of messages that no task handles.
    let Some(got) = context.stop.settling.run_until_cancelled(get).await else {
        return ReceiverWait::Fixed(Duration::ZERO);
    };
    match got {
        Ok(messages) => {
            consumer.board.polled(context.clock.now());
            let count = messages.len();
            for message in messages {
                // If the service returns more messages than were requested, they must not exceed
                // the slots.
                let Some(slot) = slots.split(1) else { break };
                let place = consumer.board.enter(consumer.slots.slot(slot));
                // Boxed, because a task of this size would otherwise be copied several times into
                // and out of the runtime.
                jobs.spawn(Box::pin(deliver(
                    Arc::clone(context),
                    Arc::clone(consumer),
                    message,
                    sent,
                    place,
                )));
            }
            ReceiverWait::UntilBell(
                backoff.answered(count, requested, context.rng.unit()),
                backoff.shortest_wait(),
            )
        }
        Err(error) => {
            let text = cause::chain(&error);
            tracing::warn!(queue = %consumer.queue, error = text, "could not receive from {}; retrying", consumer.queue);
            consumer.board.failed(context.clock.now(), text);
            if error.class == ErrorClass::NotFound(Missing::Container)
                && let Err(error) = consumer.queues.create_queue(&consumer.queue).await
            {
                tracing::warn!(queue = %consumer.queue, error = %cause::chain(&error), "could not create the missing queue {}; retrying", consumer.queue);
            }
            ReceiverWait::Fixed(if error.class == ErrorClass::Ambiguous {
                job_metrics::unanswered_poll(consumer);
                backoff.unanswered(context.rng.unit())
            } else {
                backoff.failed(error.class.retry_after(), context.rng.unit())
            })
        }
    }
}

async fn acquire_slots(
    context: &RunContext,
    consumer: &QueueConsumer,
) -> Option<OwnedSemaphorePermit> {
    let mut batch = pin!(consumer.slots.acquire_batch());
    loop {
        match timeout(BUSY_INTERVAL, &mut batch).await {
            Ok(slots) => return slots,
            Err(_) if context.circuit.is_open(&consumer.account) => {}
            Err(_) => consumer.board.saturated(context.clock.now()),
        }
    }
}

fn join_finished(jobs: &mut JoinSet<()>) {
    while let Some(job) = jobs.try_join_next() {
        log_panic(job);
    }
}

/// Logs a panic of a delivery task. Panics of runs are caught inside the task, so such a panic is a
/// bug of the worker. The message is redelivered when its visibility timeout ends.
fn log_panic(job: Result<(), tokio::task::JoinError>) {
    if let Err(error) = job {
        tracing::error!(error = %error, "delivery task panicked; its message will be redelivered");
    }
}
