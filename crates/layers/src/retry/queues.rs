//! Implements the queue port with retries.

use std::time::Duration;

use async_trait::async_trait;

use super::Retry;
use crate::layer::Op;
use evenkeel_model::QueueName;
use evenkeel_storage::{
    ErrorClass, Message, PeekedMessage, QueueStore, SentMessage, StoreError, Ttl, UpdatedMessage,
};

/// The service's error code for a message that has been received again.
const OTHER_RECEIPT: &str = "PopReceiptMismatch";

#[async_trait]
impl QueueStore for Retry<dyn QueueStore> {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        self.request(Op::CreateQueue, || self.inner.create_queue(queue))
            .await
            .done()
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        self.request(Op::DeleteQueue, || self.inner.delete_queue(queue))
            .await
            .done()
    }

    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError> {
        // A repetition may add the message twice. Delivery is at least once anyway.
        self.request(Op::PutMessage, || self.inner.put(queue, text, delay, ttl))
            .await
            .result
    }

    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError> {
        self.request(Op::GetMessages, || self.inner.get(queue, max, visibility))
            .await
            .result
    }

    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        self.request(Op::UpdateMessage, || {
            self.inner.update(queue, id, pop_receipt, text, visibility)
        })
        .await
        .result
    }

    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError> {
        let ended = self
            .request(Op::DeleteMessage, || {
                self.inner.delete(queue, id, pop_receipt)
            })
            .await;
        match ended.result {
            // A message with a different receipt still exists, so it was not deleted.
            Err(error)
                if ended.unanswered
                    && error.class == ErrorClass::LeaseLost
                    && error.code.as_deref() != Some(OTHER_RECEIPT) =>
            {
                Ok(())
            }
            result => result,
        }
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        self.request(Op::PeekMessages, || self.inner.peek(queue, max))
            .await
            .result
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        self.request(Op::GetQueueMetadata, || self.inner.approximate_count(queue))
            .await
            .result
    }
}
