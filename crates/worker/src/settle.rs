use std::panic::AssertUnwindSafe;
use std::time::Duration;

use backoff::future::retry_notify;
use futures::FutureExt as _;
use futures::future::join_all;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::sleep;

use super::decide::{Attempt, JobProgress, PoisonVerdict, Settlement};
use super::decode::{Assignment, batch_work};
use super::delivery::{DeliveryFacts, OpenDelivery};
use super::lease::LeaseOutcome;
use super::poison::{self, PoisonMessage, Reason};
use super::unsettled::UnsettledMessage;
use super::{job_metrics, note};
use evenkeel_engine::FailureClass;
use evenkeel_model::cause;
use evenkeel_model::job::Batch;
use evenkeel_model::settings::WaitPolicy;
use evenkeel_storage::{ErrorClass, MessageText, StoreError};

const RETRIES: WaitPolicy =
    WaitPolicy::doubling(Duration::from_millis(250), Duration::from_secs(30));
/// Time that a request may take. If a retry would be sent less than this before the end of the
/// lease, the retry may arrive too late. The settlement then counts as unsettled.
const MARGIN: Duration = Duration::from_secs(2);
/// When the store answers again, delayed settlements are spread over this time.
const SPREAD: Duration = Duration::from_secs(1);
/// After this many attempts to put a poison message, the message is released instead.
const POISON_TRIES: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SettleOutcome {
    Deleted,
    /// The message will be redelivered.
    Released,
    Poisoned(Reason),
    /// Another receiver has the message, or gets it when its visibility timeout ends.
    Lost,
}

enum SettleRequest<'a> {
    Delete,
    Release { text: &'a str, delay: Duration },
}

enum SettleReply {
    Done,
    Lost,
    Refused,
}

impl OpenDelivery<'_> {
    pub(super) async fn settle(&mut self, settlement: &Settlement) -> SettleOutcome {
        match settlement {
            Settlement::Abandon => SettleOutcome::Lost,
            Settlement::Delete => match self.persist(SettleRequest::Delete).await {
                SettleReply::Done => SettleOutcome::Deleted,
                SettleReply::Lost | SettleReply::Refused => SettleOutcome::Lost,
            },
            Settlement::Release { delay, attempt } => self.release(*delay, *attempt).await,
            Settlement::Advance(progress) => self.advance(progress).await,
            Settlement::Poison(verdict) => {
                let DeliveryFacts {
                    context,
                    consumer,
                    message,
                    ..
                } = self.facts;
                let facts = &self.facts;
                let put = async { facts.give_up(verdict).await && facts.put_poison(verdict).await };
                let delay = match self.lease.hold_past_expiry(put).await {
                    LeaseOutcome::Finished(true) => {
                        job_metrics::poisoned(consumer, verdict.reason);
                        // The delete is repeated while the store fails. Otherwise the message would
                        // be redelivered and poisoned again under the same id.
                        self.persist(SettleRequest::Delete).await;
                        return SettleOutcome::Poisoned(verdict.reason);
                    }
                    LeaseOutcome::Lost => return SettleOutcome::Lost,
                    LeaseOutcome::Finished(false) | LeaseOutcome::Expired => context
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
            consumer,
            message,
            decoded,
            ..
        } = self.facts;
        let Some(text) = self.lease.text().map(ToOwned::to_owned) else {
            // An unreadable text must not be overwritten, so the message is not updated.
            tracing::info!(queue = %consumer.queue, message_id = message.id, "could not release message {}: its text is unreadable; it reappears when its lease ends", message.id);
            return SettleOutcome::Lost;
        };
        let note = match attempt {
            Attempt::Counts => decoded.deliveries.ended(),
            Attempt::WrittenOff => decoded.deliveries.written_off(),
            Attempt::Failed(failing) => decoded.deliveries.failed(failing),
        };
        if let Some(text) = note::with_note(&text, &note) {
            match self
                .persist(SettleRequest::Release { text: &text, delay })
                .await
            {
                SettleReply::Done => return SettleOutcome::Released,
                SettleReply::Lost => return SettleOutcome::Lost,
                // The service refused the text with the note. It certainly accepts the original
                // text, which is sent next.
                SettleReply::Refused => {}
            }
        }
        match self
            .persist(SettleRequest::Release { text: &text, delay })
            .await
        {
            SettleReply::Done => SettleOutcome::Released,
            SettleReply::Lost | SettleReply::Refused => SettleOutcome::Lost,
        }
    }

    /// Releases the message with its progress. If the progress does not fit into the message, the
    /// message is released unchanged. A later delivery then repeats this part of the job, and the
    /// present run counts as an attempt.
    async fn advance(&mut self, progress: &JobProgress) -> SettleOutcome {
        let note = self
            .facts
            .decoded
            .deliveries
            .advanced(progress.jobs_per_delivery, progress.failing);
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
            SettleReply::Done => SettleOutcome::Released,
            SettleReply::Lost | SettleReply::Refused => SettleOutcome::Lost,
        }
    }

    /// Repeats a request until the store accepts or refuses it, even after the end of the lease.
    /// The pop receipt stays valid until another receiver gets the message. In that case, the
    /// result is `Lost`.
    async fn persist(&mut self, request: SettleRequest<'_>) -> SettleReply {
        let Self {
            facts:
                DeliveryFacts {
                    context,
                    consumer,
                    message,
                    ..
                },
            lease,
        } = self;
        let (op, action) = match request {
            SettleRequest::Delete => ("delete_message", "delete"),
            SettleRequest::Release { .. } => ("update_message", "release"),
        };
        let mut waits = RETRIES.waits(|| context.rng.unit());
        let mut unsettled: Option<UnsettledMessage<'_>> = None;
        let mut unanswered = false;
        let mut logged = false;
        loop {
            let result = match request {
                SettleRequest::Delete => lease.delete().await,
                SettleRequest::Release { text, delay } => lease.release(text, delay).await,
            };
            let Err(error) = result else {
                if let Some(unsettled) = unsettled {
                    unsettled.report_settled();
                }
                return SettleReply::Done;
            };
            let retry_after = match error.class {
                // An earlier request, whose answer was lost, may have deleted or released the
                // message.
                ErrorClass::LeaseLost | ErrorClass::NotFound(_) if unanswered => {
                    return SettleReply::Done;
                }
                ErrorClass::LeaseLost | ErrorClass::NotFound(_) => {
                    tracing::warn!(
                        queue = %consumer.queue, message_id = message.id, error = %cause::chain(&error),
                        "could not {action} message {}: its pop receipt is no longer valid; another worker may have it", message.id
                    );
                    return SettleReply::Lost;
                }
                ErrorClass::Ambiguous => {
                    unanswered = true;
                    None
                }
                // If the store refuses the credentials, it refuses every request until an operator
                // corrects them. This is handled like an outage.
                ErrorClass::Throttled { .. }
                | ErrorClass::Refused
                | ErrorClass::Transient { .. }
                | ErrorClass::Unauthorised => error.class.retry_after(),
                ErrorClass::Conflict
                | ErrorClass::Precondition
                | ErrorClass::Permanent
                | ErrorClass::TooLarge => {
                    tracing::warn!(queue = %consumer.queue, message_id = message.id, error = %cause::chain(&error), "could not {action} message {}: the queue refused the request", message.id);
                    return SettleReply::Refused;
                }
            };
            if !logged {
                logged = true;
                tracing::warn!(queue = %consumer.queue, message_id = message.id, error = %cause::chain(&error), "could not {action} message {}; retrying", message.id);
            }
            job_metrics::retry(op, error.class.name());
            let pause = waits.next_wait().max(retry_after.unwrap_or_default());
            if unsettled.is_none()
                && context.now().saturating_add(pause).saturating_add(MARGIN) >= lease.deadline()
            {
                unsettled = Some(context.unsettled.enter(&consumer.account, &consumer.queue));
            }
            tokio::select! {
                biased;
                () = context.stop.settling.cancelled() => {
                    tracing::warn!(queue = %consumer.queue, message_id = message.id, "could not {action} message {} before the shutdown; it will be redelivered", message.id);
                    return SettleReply::Lost;
                }
                () = context.circuit.wait_all_closed() => {}
                // Spread over a second, because all delayed settlements are woken at the same time.
                () = context.unsettled.wait_for_another(), if unsettled.is_some() => sleep(SPREAD.mul_f64(context.rng.unit())).await,
                () = sleep(pause) => {}
            }
        }
    }
}

impl DeliveryFacts<'_> {
    /// Gives up the jobs of an exhausted or expired message before the message is poisoned. Returns
    /// whether the poison message may be put now.
    async fn give_up(&self, verdict: &PoisonVerdict) -> bool {
        let Ok(payload) = &self.decoded.work else {
            return true;
        };
        // The jobs are given up concurrently, so that their rechecks share messages.
        let jobs = (0..payload.len()).filter_map(|at| payload.job(at, self.consumer.kind).ok());
        let given_up = jobs.map(|job| async move { self.give_up_one(&job, verdict).await });
        join_all(given_up).await.into_iter().all(|may_go| may_go)
    }

    async fn give_up_one(&self, assignment: &Assignment<'_>, verdict: &PoisonVerdict) -> bool {
        let (Reason::Exhausted | Reason::Expired) = verdict.reason else {
            return true;
        };
        let Self {
            context,
            consumer,
            message,
            ..
        } = self;
        let delivery = consumer.delivery(message, assignment.digest.clone());
        let given_up = AssertUnwindSafe(context.execute.give_up(&assignment.work, &delivery))
            .catch_unwind()
            .await;
        let (error, may_go) = match given_up {
            Ok(Ok(())) => return true,
            // If giving up fails permanently, the message must still reach the poison queue.
            Ok(Err(failure)) => (failure.chain(), failure.class == FailureClass::Permanent),
            Err(payload) => (format!("panicked: {}", cause::panic(&*payload)), true),
        };
        tracing::warn!(queue = %consumer.queue, message_id = message.id, error, "could not queue a recheck for the poisoned job in message {}", message.id);
        may_go
    }

    /// Puts one poison message with the whole body of the message, even if the message is a batch.
    /// Returns whether the poison message was put.
    async fn put_poison(&self, verdict: &PoisonVerdict) -> bool {
        let text = match &self.message.text {
            MessageText::Readable(text) => text,
            MessageText::Unreadable { raw, .. } => raw,
        };
        let message = self.poison_message(verdict, PoisonMessage::keep_body(text));
        match self.with_encrypted_body(message).await {
            Some(message) => self.put(message).await,
            None => false,
        }
    }

    /// Gives up one job of a batch and puts its poison message under an id of its own. Returns
    /// whether it was put.
    pub(super) async fn put_poison_of(
        &self,
        batch: &Batch,
        at: usize,
        verdict: &PoisonVerdict,
    ) -> bool {
        if let Ok(job) = batch_work(batch, at, self.consumer.kind)
            && !self.give_up_one(&job, verdict).await
        {
            return false;
        }
        let body = Value::Object(batch.single(at)).to_string();
        let Some(mut message) = self
            .with_encrypted_body(self.poison_message(verdict, body))
            .await
        else {
            return false;
        };
        // The digest is made of the encrypted body. With a digest of the plain body, anyone could
        // guess short values.
        let digits = hex::encode(Sha256::digest(message.body.as_deref().unwrap_or_default()));
        message.message_id = format!(
            "{}-{}",
            message.message_id,
            digits.get(..16).unwrap_or_default()
        );
        let put = self.put(message).await;
        if put {
            job_metrics::poisoned(self.consumer, verdict.reason);
        }
        put
    }

    fn poison_message(&self, verdict: &PoisonVerdict, body: String) -> PoisonMessage {
        PoisonMessage {
            v: evenkeel_model::stored::FormatVersion,
            reason: verdict.reason,
            error: verdict.error.clone(),
            step: verdict.step.clone(),
            op: self.decoded.op_text.clone(),
            dequeue_count: self.message.dequeue_count,
            first_enqueued: self.message.inserted,
            poisoned: self.context.clock.now(),
            worker: self.context.worker.clone(),
            queue: self.consumer.queue.clone(),
            message_id: self.message.id.clone(),
            id: self.decoded.id.clone(),
            body: Some(body),
            body_blob: None,
        }
    }

    async fn with_encrypted_body(&self, mut message: PoisonMessage) -> Option<PoisonMessage> {
        if let Err(failure) = message.encrypt(self.context.encrypt_bodies.as_ref()).await {
            tracing::warn!(
                queue = %self.consumer.poison, message_id = message.message_id, error = failure.chain(),
                "could not encrypt the poison message for {}; releasing the message", message.message_id
            );
            return None;
        }
        Some(message)
    }

    /// Puts a poison message, with a few retries while the store fails. Returns whether it was put.
    async fn put(&self, message: PoisonMessage) -> bool {
        let Self {
            context, consumer, ..
        } = self;
        let put = || async {
            poison::send(
                consumer.queues.as_ref(),
                consumer.blobs.as_ref(),
                &consumer.poison,
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
        let again = |error: StoreError, _| job_metrics::retry("put_message", error.class.name());
        let waits = RETRIES
            .waits(|| context.rng.unit())
            .at_most(POISON_TRIES - 1);
        let put = retry_notify(waits, put, again).await.inspect_err(|error| {
            tracing::warn!(
                queue = %consumer.poison, message_id = message.message_id, error = %cause::chain(error),
                "could not put the poison message for {}; releasing the message", message.message_id
            );
        });
        put.is_ok()
    }
}
