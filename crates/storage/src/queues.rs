//! Queue storage.

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;

use super::StoreError;
use evenkeel_model::QueueName;

/// The queues of one account.
///
/// Visibility timeouts are whole seconds on the service: adapters round up.
#[async_trait]
pub trait QueueStore: Send + Sync {
    /// Creates a queue. `false` where it exists already.
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError>;

    /// Deletes a queue and all in it. `false` where it does not exist.
    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError>;

    /// Puts a message, invisible for `delay`. At most 64 KiB of text, which XML can carry.
    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError>;

    /// Gets up to `max` (1 to 32) visible messages, hides them for `visibility` (1 s to 7 days) and counts
    /// one dequeue on each. A message with an unreadable text comes as [`MessageText::Unreadable`] and
    /// does not keep the others back.
    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError>;

    /// Sets the text and how long the message stays hidden from now (0 s to 7 days); returns the new pop
    /// receipt. `LeaseLost` where the receipt given is not the newest, or the message is gone.
    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError>;

    /// Deletes a message. `LeaseLost` as for [`update`](Self::update).
    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError>;

    /// Reads up to `max` (1 to 32) visible messages without hiding or counting them.
    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError>;

    /// About how many messages the queue holds, hidden ones included.
    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError>;
}

/// How long a message lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// Never expires.
    Never,
    /// Expires after this (the service's default is 7 days).
    After(Duration),
}

/// The text of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MessageText {
    /// As it was put.
    Readable(String),
    /// It cannot be read: why, and as much of it as could be saved.
    Unreadable {
        /// Why.
        reason: String,
        /// The recovered part of the text, for the poison message.
        raw: String,
    },
}

/// A message that was got: hidden from others until `next_visible`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its id, the same at every delivery.
    pub id: String,
    /// The receipt with which this delivery may update or delete it.
    pub pop_receipt: String,
    /// The text.
    pub text: MessageText,
    /// How often it was got, this time included.
    pub dequeue_count: u32,
    /// When it was put, by the queue's clock.
    pub inserted: Timestamp,
    /// When it expires, by the queue's clock; `None` for never (year 9999).
    pub expires: Option<Timestamp>,
    /// When it becomes visible again, by the queue's clock.
    pub next_visible: Timestamp,
}

/// A message that was read without being got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedMessage {
    /// Its id.
    pub id: String,
    /// The text.
    pub text: MessageText,
    /// How often it was got.
    pub dequeue_count: u32,
    /// When it was put.
    pub inserted: Timestamp,
    /// When it expires; `None` for never.
    pub expires: Option<Timestamp>,
}

/// A message that was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentMessage {
    /// Its id.
    pub id: String,
    /// A receipt that may update or delete it until another receiver gets it.
    pub pop_receipt: String,
}

/// A message that was updated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpdatedMessage {
    /// The new pop receipt; the old one is void.
    pub pop_receipt: String,
    /// When it becomes visible again, by the queue's clock.
    pub next_visible: Timestamp,
}
