//! Implements the queue port with a layer around it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::{Layer, Layered, Op, Request, Target};
use crate::retry::EarlierAttempts;
use evenkeel_model::QueueName;
use evenkeel_storage::{
    Message, PeekedMessage, QueueStore, SentMessage, StoreError, Ttl, UpdatedMessage,
};

#[async_trait]
impl<L: Layer> QueueStore for Layered<dyn QueueStore, L> {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let request = Request::new(Op::CreateQueue, Target::Queue(queue));
        self.change(request, || self.inner.create_queue(queue))
            .await
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let request = Request::new(Op::DeleteQueue, Target::Queue(queue));
        self.change(request, || self.inner.delete_queue(queue))
            .await
    }

    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError> {
        self.layer
            .call(Request::new(Op::PutMessage, Target::Queue(queue)), || {
                self.inner.put(queue, text, delay, ttl)
            })
            .await
    }

    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError> {
        let found = AtomicUsize::new(0);
        let request = Request::new(Op::GetMessages, Target::Queue(queue)).finding(&found);
        let messages = || async {
            let messages = self.inner.get(queue, max, visibility).await?;
            found.store(messages.len(), Ordering::Relaxed);
            Ok(messages)
        };
        self.layer.call(request, messages).await
    }

    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        let request = Request::new(Op::UpdateMessage, Target::Message(queue, id));
        self.layer
            .call(request, || {
                self.inner.update(queue, id, pop_receipt, text, visibility)
            })
            .await
    }

    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError> {
        let earlier = EarlierAttempts::default();
        let request = Request::new(Op::DeleteMessage, Target::Message(queue, id)).after(&earlier);
        let deleted = self
            .layer
            .call(request, || self.inner.delete(queue, id, pop_receipt))
            .await;
        earlier.deleted(deleted)
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        self.layer
            .call(Request::new(Op::PeekMessages, Target::Queue(queue)), || {
                self.inner.peek(queue, max)
            })
            .await
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        self.layer
            .call(
                Request::new(Op::GetQueueMetadata, Target::Queue(queue)),
                || self.inner.approximate_count(queue),
            )
            .await
    }
}
