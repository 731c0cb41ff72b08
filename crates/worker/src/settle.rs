//! Carries out the settlement of a message.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use backoff::future::retry_notify;
use futures::FutureExt as _;
use futures::future::join_all;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use super::decide::{Attempt, JobProgress, PoisonVerdict, Settlement};
use super::delivery::{DeliveryFacts, OpenDelivery};
use super::examine::{Assignment, piece};
use super::lease::LeaseOutcome;
use super::poison::{self, PoisonMessage, Reason};
use super::stuck::StuckOne;
use super::{count, note};
use evenkeel_engine::FailureClass;
use evenkeel_model::cause;
use evenkeel_model::job::Batch;
use evenkeel_model::settings::WaitPolicy;
use evenkeel_storage::{ErrorClass, MessageText, StoreError};

/// The waits before a settlement is tried again.
const RETRIES: WaitPolicy =
    WaitPolicy::doubling(Duration::from_millis(250), Duration::from_secs(30));
/// How long a request may take: within this of its lease's end a settlement may come too late.
const MARGIN: Duration = Duration::from_secs(2);
/// Over how long settlements that were stuck are spread when the store answers again.
const SPREAD: Duration = Duration::from_secs(1);
/// Tries of putting a poison message before the message is released instead.
const POISON_TRIES: u32 = 3;

/// Outcome for the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleOutcome {
    /// It was deleted: the job is done.
    Deleted,
    /// It comes again.
    Released,
    /// It is on the poison queue.
    Poisoned(Reason),
    /// Another receiver has it, or will have it when its visibility timeout ends.
    Lost,
}

/// One request that settles a message.
enum SettleRequest<'a> {
    Delete,
    Release { text: &'a str, delay: Duration },
}

/// How a request that settles ended.
enum Reply {
    Done,
    Lost,
    Refused,
}

impl OpenDelivery<'_> {
    /// Walks a settlement.
    pub(super) async fn settle(&mut self, settlement: &Settlement) -> SettleOutcome {
        match settlement {
            Settlement::Abandon => SettleOutcome::Lost,
            Settlement::Delete => match self.persist(SettleRequest::Delete).await {
                Reply::Done => SettleOutcome::Deleted,
                Reply::Lost | Reply::Refused => SettleOutcome::Lost,
            },
            Settlement::Release { delay, attempt } => self.release(*delay, *attempt).await,
            Settlement::Advance(progress) => self.advance(progress).await,
            Settlement::Poison(verdict) => {
                let DeliveryFacts {
                    context,
                    source,
                    message,
                    ..
                } = self.facts;
                let facts = &self.facts;
                let put = async { facts.give_up(verdict).await && facts.put_poison(verdict).await };
                let delay = match self.lease.hold_past_expiry(put).await {
                    LeaseOutcome::Finished(true) => {
                        count::poisoned(source, verdict.reason);
                        // Were the delete to fail, the message would come again and be poisoned again under the same id.
                        self.persist(SettleRequest::Delete).await;
                        return SettleOutcome::Poisoned(verdict.reason);
                    }
                    LeaseOutcome::Lost => return SettleOutcome::Lost,
                    LeaseOutcome::Finished(false) | LeaseOutcome::Over => context
                        .limits()
                        .retry_delay
                        .wait(message.dequeue_count, context.rng.unit()),
                };
                self.release(delay, verdict.attempt).await
            }
        }
    }

    async fn release(&mut self, delay: Duration, attempt: Attempt) -> SettleOutcome {
        let DeliveryFacts {
            source,
            message,
            examined,
            ..
        } = self.facts;
        let Some(text) = self.lease.text().map(ToOwned::to_owned) else {
            // In the place of a text that could not be read nothing else may be written.
            tracing::info!(queue = %source.queue, message_id = message.id, "the message is left as it is until its visibility timeout ends");
            return SettleOutcome::Lost;
        };
        let note = match attempt {
            Attempt::Counts => examined.deliveries.ended(),
            Attempt::WrittenOff => examined.deliveries.written_off(),
            Attempt::Failed(failing) => examined.deliveries.failed(failing),
        };
        if let Some(text) = note::with_note(&text, &note) {
            match self
                .persist(SettleRequest::Release { text: &text, delay })
                .await
            {
                Reply::Done => return SettleOutcome::Released,
                Reply::Lost => return SettleOutcome::Lost,
                // The text as it was is surely accepted.
                Reply::Refused => {}
            }
        }
        match self
            .persist(SettleRequest::Release { text: &text, delay })
            .await
        {
            Reply::Done => SettleOutcome::Released,
            Reply::Lost | Reply::Refused => SettleOutcome::Lost,
        }
    }

    /// Releases the message with its progress in it. If that does not fit, as it was: the part is done once more.
    async fn advance(&mut self, progress: &JobProgress) -> SettleOutcome {
        let note = self
            .facts
            .examined
            .deliveries
            .advanced(progress.at_once, progress.failing);
        let Some(text) = self
            .lease
            .text()
            .and_then(|text| note::with_progress(text, &note, &progress.fields))
        else {
            return self.release(Duration::ZERO, Attempt::Counts).await;
        };
        let request = SettleRequest::Release {
            text: &text,
            delay: progress.delay,
        };
        match self.persist(request).await {
            Reply::Done => SettleOutcome::Released,
            Reply::Lost | Reply::Refused => SettleOutcome::Lost,
        }
    }

    /// Sends a request until it has an answer. While the store is at fault it is repeated beyond the lease: a
    /// receipt outlives its visibility timeout until another receiver gets the message, and then the answer is "lost".
    async fn persist(&mut self, request: SettleRequest<'_>) -> Reply {
        let Self {
            facts:
                DeliveryFacts {
                    context,
                    source,
                    message,
                    ..
                },
            lease,
        } = self;
        let op = match request {
            SettleRequest::Delete => "delete_message",
            SettleRequest::Release { .. } => "update_message",
        };
        let mut waits = RETRIES.waits(|| context.rng.unit());
        let mut stuck: Option<StuckOne<'_>> = None;
        let mut unanswered = false;
        let mut told = false;
        loop {
            let result = match request {
                SettleRequest::Delete => lease.delete().await,
                SettleRequest::Release { text, delay } => lease.release(text, delay).await,
            };
            let Err(error) = result else {
                if let Some(stuck) = stuck {
                    stuck.through();
                }
                return Reply::Done;
            };
            let retry_after = match error.class {
                // An earlier request that was never answered may well have been the one.
                ErrorClass::LeaseLost | ErrorClass::NotFound(_) if unanswered => {
                    return Reply::Done;
                }
                ErrorClass::LeaseLost | ErrorClass::NotFound(_) => {
                    tracing::warn!(
                        queue = %source.queue, message_id = message.id, error = %cause::chain(&error),
                        "the message was not settled: somebody else has it"
                    );
                    return Reply::Lost;
                }
                ErrorClass::Ambiguous => {
                    unanswered = true;
                    None
                }
                // A store that refuses the credentials refuses every request: it waits for an operator like an outage.
                ErrorClass::Throttled { .. }
                | ErrorClass::Refused
                | ErrorClass::Transient { .. }
                | ErrorClass::Unauthorised => error.class.retry_after(),
                ErrorClass::Conflict
                | ErrorClass::Precondition
                | ErrorClass::Permanent
                | ErrorClass::TooLarge => {
                    tracing::warn!(queue = %source.queue, message_id = message.id, error = %cause::chain(&error), "the message was not settled");
                    return Reply::Refused;
                }
            };
            if !told {
                told = true;
                tracing::warn!(queue = %source.queue, message_id = message.id, error = %cause::chain(&error), "settling the message is tried again");
            }
            count::retry(op, error.class.name());
            let pause = waits.next_wait().max(retry_after.unwrap_or_default());
            if stuck.is_none()
                && context.now().saturating_add(pause).saturating_add(MARGIN) >= lease.deadline()
            {
                stuck = Some(context.stuck.enter(&source.account, &source.queue));
            }
            tokio::select! {
                biased;
                () = context.stop.settling.cancelled() => {
                    tracing::warn!(queue = %source.queue, message_id = message.id, "the message was not settled before the program ended");
                    return Reply::Lost;
                }
                () = context.circuit.closes() => {}
                // Spread over a second, since all that are stuck are woken at once.
                () = context.stuck.another(), if stuck.is_some() => sleep(SPREAD.mul_f64(context.rng.unit())).await,
                () = sleep(pause) => {}
            }
        }
    }
}

impl DeliveryFacts<'_> {
    /// Gives the work of a message up that comes to no end. Whether its poison message may be put.
    async fn give_up(&self, verdict: &PoisonVerdict) -> bool {
        let Ok(payload) = &self.examined.work else {
            return true;
        };
        // At once: their rechecks share messages.
        let jobs = (0..payload.len()).filter_map(|at| payload.job(at, self.source.carries).ok());
        let given_up = jobs.map(|job| async move { self.give_up_one(&job, verdict).await });
        join_all(given_up).await.into_iter().all(|may_go| may_go)
    }

    async fn give_up_one(&self, assignment: &Assignment<'_>, verdict: &PoisonVerdict) -> bool {
        let (Reason::Exhausted | Reason::Expired) = verdict.reason else {
            return true;
        };
        let Self {
            context,
            source,
            message,
            ..
        } = self;
        let delivery = source.delivery(message, assignment.digest.clone());
        let given_up = AssertUnwindSafe(context.execute.give_up(&assignment.work, &delivery))
            .catch_unwind()
            .await;
        let (error, may_go) = match given_up {
            Ok(Ok(())) => return true,
            // A failure that will repeat must not keep the message from the poison queue.
            Ok(Err(failure)) => (failure.chain(), failure.class == FailureClass::Permanent),
            Err(payload) => (
                format!("giving it up panicked: {}", cause::panic(&*payload)),
                true,
            ),
        };
        tracing::warn!(queue = %source.queue, message_id = message.id, error, "no second look follows a job that is given up");
        may_go
    }

    /// Puts the poison message of the whole message. Whether it is there.
    async fn put_poison(&self, verdict: &PoisonVerdict) -> bool {
        let text = match &self.message.text {
            MessageText::Readable(text) => text,
            MessageText::Unreadable { raw, .. } => raw,
        };
        let message = self.poison_message(verdict, PoisonMessage::keep_body(text));
        match self.sealed(message).await {
            Some(message) => self.put(message).await,
            None => false,
        }
    }

    /// Gives a job of a batch up and puts its poison message: that of the job alone, under an id of its own. Whether it is there.
    pub(super) async fn put_poison_of(
        &self,
        batch: &Batch,
        at: usize,
        verdict: &PoisonVerdict,
    ) -> bool {
        if let Ok(job) = piece(batch, at, self.source.carries)
            && !self.give_up_one(&job, verdict).await
        {
            return false;
        }
        let body = Value::Object(batch.single(at)).to_string();
        let Some(mut message) = self.sealed(self.poison_message(verdict, body)).await else {
            return false;
        };
        // Of the sealed body: a digest of a plain one tells short values to whoever tries them all.
        let digits = hex::encode(Sha256::digest(message.body.as_deref().unwrap_or_default()));
        message.message_id = format!(
            "{}-{}",
            message.message_id,
            digits.get(..16).unwrap_or_default()
        );
        let put = self.put(message).await;
        if put {
            count::poisoned(self.source, verdict.reason);
        }
        put
    }

    fn poison_message(&self, verdict: &PoisonVerdict, body: String) -> PoisonMessage {
        PoisonMessage {
            v: evenkeel_model::stored::FormatVersion,
            reason: verdict.reason,
            error: verdict.error.clone(),
            step: verdict.step.clone(),
            op: self.examined.spelled.clone(),
            dequeue_count: self.message.dequeue_count,
            first_enqueued: self.message.inserted,
            poisoned: self.context.clock.now(),
            worker: self.context.worker.clone(),
            queue: self.source.queue.clone(),
            message_id: self.message.id.clone(),
            id: self.examined.id.clone(),
            body: Some(body),
            body_blob: None,
        }
    }

    /// A poison message as it is kept; `None` if it cannot be sealed now.
    async fn sealed(&self, mut message: PoisonMessage) -> Option<PoisonMessage> {
        if let Err(failure) = message.seal(self.context.seal_bodies.as_ref()).await {
            tracing::warn!(
                queue = %self.source.poison, message_id = message.message_id, error = failure.chain(),
                "the poison message was not sealed: the message is released"
            );
            return None;
        }
        Some(message)
    }

    /// Puts a poison message, a few times while the store is at fault. Whether it is there.
    async fn put(&self, message: PoisonMessage) -> bool {
        let Self {
            context, source, ..
        } = self;
        let put = || async {
            poison::send(
                source.queues.as_ref(),
                source.blobs.as_ref(),
                &source.poison,
                message.clone(),
            )
            .await
            .map_err(|error| {
                if error.class.is_transient() {
                    backoff::Error::transient(error)
                } else {
                    backoff::Error::permanent(error)
                }
            })
        };
        let again = |error: StoreError, _| count::retry("put_message", error.class.name());
        let waits = RETRIES
            .waits(|| context.rng.unit())
            .at_most(POISON_TRIES - 1);
        let put = retry_notify(waits, put, again).await.inspect_err(|error| {
            tracing::warn!(
                queue = %source.poison, message_id = message.message_id, error = %cause::chain(error),
                "the poison message could not be put: the message is released"
            );
        });
        put.is_ok()
    }
}
