use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;

use super::walk::WalkAction;
use super::{PoisonFilter, PoisonMessage, Reason};
use crate::note;
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::names::NameError;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::stored::FormatVersion;
use evenkeel_model::{AccountName, QueueName, cause, job, limits};
use evenkeel_storage::{
    Account, BlobStore, ErrorClass, Message, MessageText, Missing, QueueStore, Resource,
    StoreError, Subject, Ttl,
};

/// Maximum length of a body in bytes. The longest body is the expanded job of a compressed message,
/// and encryption makes it a third longer.
const BODY_BYTES: u64 = 2 * limits::EXPANDED_BODY_BYTES as u64;
pub(super) const PARALLEL: usize = 16;

pub struct PoisonQueue {
    pub(super) queues: Arc<dyn QueueStore>,
    pub(super) blobs: Arc<dyn BlobStore>,
    /// The queue that messages of unknown origin go back to.
    origin: QueueName,
    /// The queues that messages may go back to: the job queue or its shards, and the recheck queue.
    own: Vec<QueueName>,
    pub(super) recheck: QueueName,
    allowed: JobAllowance,
    pub(super) poison: QueueName,
    /// Cancelled to end a listing or a walk early and cleanly.
    pub(super) stop: CancellationToken,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoisonEntry {
    pub message: PoisonMessage,
    /// The ids of the message's copies on the poison queue. After a crash between putting and
    /// deleting, there are several copies.
    pub ids: Vec<String>,
    /// When the last copy was put, by the queue's clock.
    pub inserted: Timestamp,
}

impl PoisonEntry {
    /// Whether `id` is the original's id, the client's id, or the id of a copy on the poison queue.
    pub fn has(&self, id: &String) -> bool {
        self.message.message_id == *id
            || self.message.id.as_ref() == Some(id)
            || self.ids.contains(id)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HandledMessages {
    pub done: Vec<PoisonEntry>,
    /// The messages for which a step failed, each with the reason.
    pub failed: Vec<(PoisonEntry, String)>,
    /// Why the rest of the queue was not processed: the store failed or the command was
    /// interrupted.
    pub cut_short: Option<String>,
    /// Approximate number of messages that were not seen because another command or operator holds
    /// them.
    pub hidden: u64,
    /// Number of matching messages that were skipped because they came after
    /// [`PoisonFilter::until`].
    pub since: u64,
}

impl HandledMessages {
    pub fn is_begun(&self) -> bool {
        !(self.done.is_empty() && self.failed.is_empty())
    }
}

pub(super) struct PoisonCopies {
    pub(super) entry: PoisonEntry,
    pub(super) copies: Vec<Message>,
}

/// Returns a text that is equal for all copies of one original message. The text is made from the
/// content of a copy, because ids can be forged. If the filter names a reason, copies with
/// different reasons have different texts.
pub(super) fn original(message: &PoisonMessage, meant: Option<Reason>) -> String {
    let PoisonMessage {
        queue,
        message_id,
        id,
        first_enqueued,
        body,
        body_blob,
        ..
    } = message;
    let reason = meant.map(|_| message.reason);
    let body = body.as_deref().map(note::compared);
    let identity = serde_json::json!([
        queue,
        message_id,
        id,
        reason,
        first_enqueued,
        body,
        body_blob
    ]);
    hex::encode(Sha256::digest(identity.to_string()))
}

impl PoisonQueue {
    pub fn new(account: &Account, queue: &QueueSettings) -> Result<Self, NameError> {
        let (shards, recheck) = (queue.shard_names(), queue.name.with_suffix("-recheck")?);
        Ok(Self {
            queues: Arc::clone(&account.queues),
            blobs: Arc::clone(&account.blobs),
            origin: shards.first().unwrap_or(&queue.name).clone(),
            own: shards
                .into_iter()
                .chain([queue.name.clone(), recheck.clone()])
                .collect(),
            recheck,
            allowed: queue.allowed.clone(),
            poison: queue.name.with_suffix("-poison")?,
            stop: CancellationToken::new(),
        })
    }

    /// Lets long operations end early when `stop` is cancelled. Hidden messages are then shown
    /// again, and what was done is reported.
    #[must_use]
    pub fn until(self, stop: &CancellationToken) -> Self {
        Self {
            stop: stop.clone(),
            ..self
        }
    }

    /// The first messages of the queue with their copies grouped, and the number of all messages.
    /// This hides nothing and costs two requests, but the service returns at most 32 messages to a
    /// peek.
    pub async fn front(&self) -> Result<(Vec<PoisonEntry>, u64), StoreError> {
        self.peek(None).await
    }

    /// Puts the bodies of the selected messages back on their queues, without evenkeel's note and
    /// without expiry, then deletes every copy. If the filter has ids, the walk ends once all of
    /// them were found.
    pub async fn requeue(&self, filter: &PoisonFilter) -> Result<HandledMessages, StoreError> {
        self.handle(filter, WalkAction::Requeue).await
    }

    pub async fn discard(&self, filter: &PoisonFilter) -> Result<HandledMessages, StoreError> {
        self.handle(filter, WalkAction::Discard).await
    }

    /// The kept body of a message, which may be in a blob. `None` if the blob is missing.
    pub async fn body(&self, message: &PoisonMessage) -> Result<Option<String>, StoreError> {
        let Some(blob) = &message.body_blob else {
            return Ok(message.body.clone());
        };
        let found = self.blobs.properties(&blob.container, &blob.name).await?;
        if found.is_some_and(|found| found.length > BODY_BYTES) {
            let subject = Subject {
                account: AccountName::main(),
                resource: Resource::Blob(blob.container.clone(), blob.name.clone()),
            };
            return Err(StoreError::new(
                ErrorClass::TooLarge,
                "Get Blob",
                subject,
                "it is larger than any message body",
            ));
        }
        let blob = self.blobs.get(&blob.container, &blob.name, None).await?;
        Ok(blob.map(|blob| String::from_utf8_lossy(&blob.content).into_owned()))
    }

    pub(super) async fn peek(
        &self,
        meant: Option<Reason>,
    ) -> Result<(Vec<PoisonEntry>, u64), StoreError> {
        let peeked = match self.queues.peek(&self.poison, limits::QUEUE_BATCH).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => {
                return Ok((Vec::new(), 0));
            }
            peeked => peeked?,
        };
        let total = self.queues.approximate_count(&self.poison).await?;
        let messages = peeked.into_iter().map(|peeked| Message {
            id: peeked.id,
            pop_receipt: String::new(),
            text: peeked.text,
            dequeue_count: peeked.dequeue_count,
            inserted: peeked.inserted,
            expires: peeked.expires,
            next_visible: peeked.inserted,
        });
        Ok((
            self.group_copies(messages, meant)
                .into_iter()
                .map(|held| held.entry)
                .collect(),
            total,
        ))
    }

    /// Groups the copies of each original. The oldest messages come first.
    pub(super) fn group_copies(
        &self,
        messages: impl Iterator<Item = Message>,
        meant: Option<Reason>,
    ) -> Vec<PoisonCopies> {
        let mut originals: BTreeMap<String, PoisonCopies> = BTreeMap::new();
        for copy in messages {
            let message = self.read(&copy);
            let held = originals
                .entry(original(&message, meant))
                .or_insert_with(|| PoisonCopies {
                    entry: PoisonEntry {
                        message,
                        ids: Vec::new(),
                        inserted: copy.inserted,
                    },
                    copies: Vec::new(),
                });
            held.entry.inserted = held.entry.inserted.max(copy.inserted);
            held.entry.ids.push(copy.id.clone());
            held.copies.push(copy);
        }
        let mut originals: Vec<PoisonCopies> = originals.into_values().collect();
        originals.sort_by_key(|held| held.entry.message.poisoned);
        originals
    }

    /// Decodes a message on the poison queue. A message that another program wrote, or that is
    /// forged, is wrapped as foreign, so that its references are not followed.
    pub(super) fn read(&self, message: &Message) -> PoisonMessage {
        let (text, error) = match &message.text {
            MessageText::Readable(text) => match PoisonMessage::decode(text) {
                Ok(poisoned) => match poisoned.forged(&self.own) {
                    None => return poisoned,
                    Some(problem) => (text, problem),
                },
                Err(error) => (text, cause::chain(&error)),
            },
            MessageText::Unreadable { reason, raw } => (raw, reason.clone()),
        };
        PoisonMessage {
            v: FormatVersion,
            reason: Reason::Foreign,
            error: format!("not written by evenkeel: {error}"),
            step: String::new(),
            op: None,
            dequeue_count: message.dequeue_count,
            first_enqueued: message.inserted,
            poisoned: message.inserted,
            worker: String::new(),
            queue: self.origin.clone(),
            message_id: message.id.clone(),
            id: None,
            body: Some(PoisonMessage::keep_body(text)),
            body_blob: None,
        }
    }

    pub(super) async fn requeue_one(&self, held: &PoisonCopies) -> Result<(), String> {
        let message = &held.entry.message;
        let body = self
            .body(message)
            .await
            .map_err(|error| format!("could not read its body: {}", cause::chain(&error)))?;
        let body = body.ok_or_else(|| "the blob of its body is missing".to_owned())?;
        self.refuse_disallowed(&message.queue, &body)?;
        let text = PoisonMessage::requeued_text(&body);
        let put = self
            .queues
            .put(&message.queue, &text, Duration::ZERO, Ttl::Never)
            .await;
        put.map_err(|error| {
            format!(
                "could not put it back on {}: {}",
                message.queue,
                cause::chain(&error)
            )
        })?;
        self.delete_copies(held)
            .await
            .map_err(|error| format!("it was put back, but {error}"))
    }

    /// Refuses a job that its queue would poison again at once.
    fn refuse_disallowed(&self, queue: &QueueName, body: &str) -> Result<(), String> {
        match job::decode_kept(body) {
            Ok(envelope) if *queue != self.recheck => {
                self.allowed.refuses(&envelope.job).map_or(Ok(()), Err)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Deletes every copy, then the blob with the body. If the lease of a copy was lost, another
    /// receiver may have the copy and it may reappear, so the blob stays.
    pub(super) async fn delete_copies(&self, held: &PoisonCopies) -> Result<(), String> {
        let mut lost = false;
        for copy in &held.copies {
            match self
                .queues
                .delete(&self.poison, &copy.id, &copy.pop_receipt)
                .await
            {
                Err(error) if error.class == ErrorClass::LeaseLost => lost = true,
                Err(error) if !matches!(error.class, ErrorClass::NotFound(_)) => {
                    return Err(format!(
                        "could not delete poison message {}: {}",
                        copy.id,
                        cause::chain(&error)
                    ));
                }
                Ok(()) | Err(_) => {}
            }
        }
        if lost {
            return Err(
                "a poison message was not deleted, because another receiver has it".to_owned(),
            );
        }
        if let Some(blob) = &held.entry.message.body_blob {
            let deleted = self.blobs.delete(&blob.container, &blob.name, None).await;
            deleted.map_err(|error| {
                format!(
                    "could not delete blob {}/{}: {}",
                    blob.container,
                    blob.name,
                    cause::chain(&error)
                )
            })?;
        }
        Ok(())
    }

    /// Makes messages visible again. If a request fails, the message reappears when its visibility
    /// timeout ends.
    pub(super) async fn show_again<'a>(&self, messages: impl Iterator<Item = &'a Message>) {
        let messages: Vec<&Message> = messages.collect();
        stream::iter(messages)
            .for_each_concurrent(PARALLEL, |message| async move {
                // An update without a text would empty the message. If the text is unreadable, the
                // message stays hidden until its visibility timeout ends.
                let MessageText::Readable(text) = &message.text else { return };
                if let Err(error) = self.queues.update(&self.poison, &message.id, &message.pop_receipt, text, Duration::ZERO).await {
                    tracing::debug!(queue = %self.poison, message_id = message.id, error = %cause::chain(&error), "could not show poison message {} again; it reappears when its visibility timeout ends", message.id);
                }
            })
            .await;
    }
}
