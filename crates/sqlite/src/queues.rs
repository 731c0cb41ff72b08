//! Queue storage.

use std::time::Duration;

use async_trait::async_trait;

use evenkeel_model::QueueName;
use evenkeel_storage::check::queues as check;
use evenkeel_storage::{
    Message, PeekedMessage, QueueStore, Resource, SentMessage, StoreError, Ttl, UpdatedMessage,
};

use super::messages::{self, MessageHandle};
use super::reclaim::DroppedKind;
use super::store::EmbeddedStore;

#[async_trait]
impl QueueStore for EmbeddedStore {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let what = || Resource::Queue(queue.clone());
        let sql = "INSERT INTO queues (name, messages) VALUES (?1, 0) ON CONFLICT DO NOTHING";
        self.create("Create Queue", what, sql, [queue.to_string()])
            .await
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let what = || Resource::Queue(queue.clone());
        let sql = "DELETE FROM queues WHERE name = ?1 RETURNING id";
        let name = queue.to_string();
        self.delete_with_contents("Delete Queue", what, DroppedKind::Queue, sql, name)
            .await
    }

    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError> {
        const NAME: &str = "Put Message";
        let what = || Resource::Queue(queue.clone());
        let checked = check::text(text)
            .and_then(|()| Ok((check::visibility(delay, 0)?, check::lifetime(ttl, delay)?)));
        let (delay, lifetime) = checked.map_err(|fault| self.error(NAME, what(), fault))?;
        let (identity, name, text) = (self.identity, queue.clone(), text.to_owned());
        self.write(NAME, what, move |writing| {
            messages::put(writing, identity, &name, &text, delay, lifetime)
        })
        .await
    }

    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError> {
        const NAME: &str = "Get Messages";
        let what = || Resource::Queue(queue.clone());
        let checked = check::batch(max).and_then(|_| check::visibility(visibility, 1));
        let visibility = checked.map_err(|fault| self.error(NAME, what(), fault))?;
        let (identity, name, max) = (self.identity, queue.clone(), max as usize);
        self.write(NAME, what, move |writing| {
            messages::get(writing, identity, &name, max, visibility)
        })
        .await
    }

    async fn update(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
        text: &str,
        visibility: Duration,
    ) -> Result<UpdatedMessage, StoreError> {
        const NAME: &str = "Update Message";
        let what = || Resource::Message(queue.clone(), id.to_owned());
        let checked = check::text(text).and_then(|()| check::visibility(visibility, 0));
        let visibility = checked.map_err(|fault| self.error(NAME, what(), fault))?;
        let (held, name, text) = (
            MessageHandle::parse(self.identity, id, pop_receipt),
            queue.clone(),
            text.to_owned(),
        );
        self.write(NAME, what, move |writing| {
            messages::update(writing, &name, held, &text, visibility)
        })
        .await
    }

    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError> {
        let (held, name) = (
            MessageHandle::parse(self.identity, id, pop_receipt),
            queue.clone(),
        );
        let what = || Resource::Message(queue.clone(), id.to_owned());
        self.write("Delete Message", what, move |writing| {
            messages::delete(writing, &name, held)
        })
        .await
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        const NAME: &str = "Peek Messages";
        let what = || Resource::Queue(queue.clone());
        check::batch(max).map_err(|fault| self.error(NAME, what(), fault))?;
        let (identity, name, now) = (self.identity, queue.clone(), self.now());
        self.read(NAME, what, move |connection| {
            messages::peek(connection, identity, &name, now, max)
        })
        .await
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        let name = queue.clone();
        self.read(
            "Get Queue Metadata",
            || Resource::Queue(queue.clone()),
            move |connection| messages::count(connection, &name),
        )
        .await
    }
}
