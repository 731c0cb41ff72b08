//! Queues with retries.

use std::time::Duration;

use async_trait::async_trait;

use super::Retry;
use super::rules::Unanswered;
use crate::adapters::layer::Op;
use crate::model::QueueName;
use crate::ports::{ErrorClass, Message, PeekedMessage, QueueStore, SentMessage, StoreError, Ttl, UpdatedMessage};

/// The service's code for a message that was got again since.
const OTHER_RECEIPT: &str = "PopReceiptMismatch";

#[async_trait]
impl QueueStore for Retry<dyn QueueStore> {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let rule = Unanswered::of(Op::CreateQueue);
        self.attempts(Op::CreateQueue, rule, || self.inner.create_queue(queue)).await.created()
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let rule = Unanswered::of(Op::DeleteQueue);
        self.attempts(Op::DeleteQueue, rule, || self.inner.delete_queue(queue)).await.deleted()
    }

    async fn put(&self, queue: &QueueName, text: &str, delay: Duration, ttl: Ttl) -> Result<SentMessage, StoreError> {
        // May put the message twice: delivery is at least once in any case.
        let rule = Unanswered::of(Op::PutMessage);
        self.attempts(Op::PutMessage, rule, || self.inner.put(queue, text, delay, ttl)).await.result
    }

    async fn get(&self, queue: &QueueName, max: u32, visibility: Duration) -> Result<Vec<Message>, StoreError> {
        let rule = Unanswered::of(Op::GetMessages);
        self.attempts(Op::GetMessages, rule, || self.inner.get(queue, max, visibility)).await.result
    }

    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        let rule = Unanswered::of(Op::UpdateMessage);
        self.attempts(Op::UpdateMessage, rule, || self.inner.update(queue, id, pop_receipt, text, visibility)).await.result
    }

    async fn delete(&self, queue: &QueueName, id: &str, pop_receipt: &str) -> Result<(), StoreError> {
        let rule = Unanswered::of(Op::DeleteMessage);
        let ended = self.attempts(Op::DeleteMessage, rule, || self.inner.delete(queue, id, pop_receipt)).await;
        match ended.result {
            // A message that has another receipt by now is there: it was not deleted.
            Err(error) if ended.unanswered && error.class == ErrorClass::LeaseLost && error.code.as_deref() != Some(OTHER_RECEIPT) => {
                Ok(())
            }
            result => result,
        }
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        let rule = Unanswered::of(Op::PeekMessages);
        self.attempts(Op::PeekMessages, rule, || self.inner.peek(queue, max)).await.result
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        let rule = Unanswered::of(Op::GetQueueMetadata);
        self.attempts(Op::GetQueueMetadata, rule, || self.inner.approximate_count(queue)).await.result
    }
}
