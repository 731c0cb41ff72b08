//! Getting messages from one queue, and owning the tasks that work on them.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::context::RunContext;
use super::count;
use super::deliver::deliver;
use super::doorbell::ReceiverWait;
use super::poll::Pacing;
use super::source::{Carries, Intake};
use super::status::ReceiverState;
use evenkeel_model::cause;
use evenkeel_model::settings::PollInterval;
use evenkeel_storage::{ErrorClass, Missing};

/// How often a queue is noted that is not asked since every slot is taken: far shorter than the two minutes of silence of an alert.
const FULL: Duration = Duration::from_secs(15);

/// Receives until the run is stopped, then until every message that was got is settled.
pub(crate) async fn receive(context: Arc<RunContext>, source: Arc<Intake>) {
    let mut jobs = JoinSet::new();
    let mut pacing = Pacing::new(poll_of(&context, &source));
    let mut wait = ReceiverWait::For(Duration::ZERO);
    while turn(&context, &source, &mut pacing, wait).await {
        reap(&mut jobs);
        pacing.follow(poll_of(&context, &source));
        wait = batch(&context, &source, &mut jobs, &mut pacing).await;
    }
    source.board.set_state(ReceiverState::Draining);
    while let Some(job) = jobs.join_next().await {
        noticed(job);
    }
    source.board.set_state(ReceiverState::Stopped);
}

/// The poll interval of a queue. Rechecks are half an hour late by design, and no caller waits for one.
fn poll_of(context: &RunContext, source: &Intake) -> PollInterval {
    let poll = context.tuning.now().poll;
    match source.carries {
        Carries::Jobs => poll,
        Carries::Rechecks => poll.for_rechecks(),
    }
}

/// Waits until the queue may be asked. `false` where it may not be any more.
async fn turn(
    context: &RunContext,
    source: &Intake,
    pacing: &mut Pacing,
    wait: ReceiverWait,
) -> bool {
    if pacing.is_unheard() {
        source.board.set_state(ReceiverState::Unheard);
    }
    let ready = async {
        if wait.over(&source.bell).await {
            pacing.rung();
        }
        while context.circuit.is_open(&source.account) {
            source.board.set_state(ReceiverState::PausedByStore);
            context.circuit.closed(&source.account).await;
        }
        source.board.set_state(if pacing.is_unheard() {
            ReceiverState::Unheard
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
    source: &Arc<Intake>,
    jobs: &mut JoinSet<()>,
    pacing: &mut Pacing,
) -> ReceiverWait {
    let slots = async {
        // Once more where others get stuck while it waits for slots.
        for _ in 0..2 {
            let slots = refill(context, source).await;
            if !context.stuck.has(&source.account, &source.queue) {
                return slots;
            }
            // Its siblings may have the slots while it waits.
            drop(slots);
            context.stuck.settled(&source.account, &source.queue).await;
        }
        refill(context, source).await
    };
    let Some(Some(mut slots)) = context.stop.receiving.run_until_cancelled(slots).await else {
        return ReceiverWait::For(Duration::ZERO);
    };
    // While it waited for slots a circuit may have opened.
    if context.circuit.is_open(&source.account) {
        return ReceiverWait::For(Duration::ZERO);
    }
    let asked = slots.num_permits().min(pacing.batch() as usize);
    let sent = context.now();
    let get = source.queues.get(
        &source.queue,
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
            source.board.polled(context.clock.now());
            let count = messages.len();
            for message in messages {
                // A service that sends more than was asked for would get more slots than there are.
                let Some(slot) = slots.split(1) else { break };
                let place = source.board.enter(source.slots.taken(slot));
                // Boxed: a task of its size would be copied several times on its way into the runtime and out of it.
                jobs.spawn(Box::pin(deliver(
                    Arc::clone(context),
                    Arc::clone(source),
                    message,
                    sent,
                    place,
                )));
            }
            ReceiverWait::OrBell(
                pacing.answered(count, asked, context.rng.unit()),
                pacing.fastest(),
            )
        }
        Err(error) => {
            let text = cause::chain(&error);
            tracing::warn!(queue = %source.queue, error = text, "the queue cannot be received from");
            source.board.failed(context.clock.now(), text);
            if error.class == ErrorClass::NotFound(Missing::Container)
                && let Err(error) = source.queues.create_queue(&source.queue).await
            {
                tracing::warn!(queue = %source.queue, error = %cause::chain(&error), "the missing queue cannot be created");
            }
            ReceiverWait::For(if error.class == ErrorClass::Ambiguous {
                count::unanswered_poll(source);
                pacing.unanswered(context.rng.unit())
            } else {
                pacing.failed(error.class.retry_after(), context.rng.unit())
            })
        }
    }
}

/// Waits for slots.
async fn refill(context: &RunContext, source: &Intake) -> Option<OwnedSemaphorePermit> {
    let mut refill = pin!(source.slots.refill());
    loop {
        match timeout(FULL, &mut refill).await {
            Ok(slots) => return slots,
            Err(_) if context.circuit.is_open(&source.account) => {}
            Err(_) => source.board.full(context.clock.now()),
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
