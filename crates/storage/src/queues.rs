use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use evenkeel_model::QueueName;

/// The queues of one account.
///
/// The service has visibility timeouts of whole seconds, so adapters round up.
#[async_trait]
pub trait QueueStore: Send + Sync {
    /// Returns `false` if the queue exists already.
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError>;

    /// Deletes a queue with its messages. Returns `false` if it does not exist.
    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError>;

    /// Puts a message that is hidden for `delay`. The text may have at most 64 KiB, and may contain only characters that XML allows.
    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError>;

    /// Gets up to `max` (1 to 32) visible messages, hides them for `visibility` (1 s to 7 days) and increments their dequeue counts. A
    /// message with an unreadable text is returned as [`MessageText::Unreadable`], and the other messages are returned too.
    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError>;

    /// Sets the text and hides the message for `visibility` from now (0 s to 7 days). `LeaseLost` if the pop receipt is not the newest one,
    /// or the message is gone.
    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError>;

    /// Deletes a message. `LeaseLost` as in [`update`](Self::update).
    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError>;

    /// Reads up to `max` (1 to 32) visible messages without hiding or counting them.
    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError>;

    /// The approximate number of messages, hidden ones included.
    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError>;
}

/// Time to live of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    Never,
    /// The service's default is 7 days.
    After(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageText {
    Readable(String),
    /// The text cannot be read.
    Unreadable {
        reason: String,
        /// The part that could be recovered, for the poison message.
        raw: String,
    },
}

/// A received message, hidden from other receivers until `next_visible`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The same at every delivery.
    pub id: String,
    /// The receipt with which this delivery may update or delete the message.
    pub pop_receipt: String,
    pub text: MessageText,
    /// Number of deliveries, this one included.
    pub dequeue_count: u32,
    /// Time of the put, by the queue's clock.
    pub inserted: Timestamp,
    /// By the queue's clock; `None` for never (year 9999).
    pub expires: Option<Timestamp>,
    /// By the queue's clock.
    pub next_visible: Timestamp,
}

/// A message that was read without being received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedMessage {
    pub id: String,
    pub text: MessageText,
    pub dequeue_count: u32,
    pub inserted: Timestamp,
    /// `None` for never.
    pub expires: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    pub id: String,
    /// A receipt that may update or delete the message until another receiver gets it.
    pub pop_receipt: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdatedMessage {
    /// The new pop receipt. The old one is no longer valid.
    pub pop_receipt: String,
    /// By the queue's clock.
    pub next_visible: Timestamp,
}
