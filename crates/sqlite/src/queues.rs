//! Queue storage.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::OptionalExtension as _;

use evenkeel_model::{QueueName, limits};
use evenkeel_storage::{
    Message, PeekedMessage, QueueStore, Resource, SentMessage, StoreError, Ttl, UpdatedMessage,
};

use super::fault::Fault;
use super::messages::{self, MessageHandle};
use super::reclaim::{self, DroppedKind};
use super::store::EmbeddedStore;

#[async_trait]
impl QueueStore for EmbeddedStore {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let name = queue.clone();
        self.write(
            "Create Queue",
            || Resource::Queue(queue.clone()),
            move |writing| {
                let sql =
                    "INSERT INTO queues (name, messages) VALUES (?1, 0) ON CONFLICT DO NOTHING";
                Ok(writing
                    .connection
                    .prepare_cached(sql)?
                    .execute([name.as_str()])?
                    > 0)
            },
        )
        .await
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let name = queue.clone();
        self.write(
            "Delete Queue",
            || Resource::Queue(queue.clone()),
            move |writing| {
                let sql = "DELETE FROM queues WHERE name = ?1 RETURNING id";
                let deleted = writing
                    .connection
                    .prepare_cached(sql)?
                    .query_row([name.as_str()], |row| row.get(0))
                    .optional()?;
                let Some(id) = deleted else { return Ok(false) };
                reclaim::remember(writing.connection, DroppedKind::Queue, id)?;
                writing.reclaim_later();
                Ok(true)
            },
        )
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
        let checked =
            check_text(text).and_then(|()| Ok((check_hidden(delay)?, check_lifetime(delay, ttl)?)));
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
        let checked = check_batch(max).and_then(|()| check_visibility(visibility));
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
        let checked = check_text(text).and_then(|()| check_hidden(visibility));
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
        check_batch(max).map_err(|fault| self.error(NAME, what(), fault))?;
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

/// Rounds up to whole seconds, as the service expects them.
fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(
        duration
            .as_secs()
            .saturating_add(u64::from(duration.subsec_nanos() > 0)),
    )
}

/// A put or an update may hide a message for 0 s to 7 days.
fn check_hidden(duration: Duration) -> Result<Duration, Fault> {
    let seconds = whole_seconds(duration);
    if seconds.as_secs() > limits::QUEUE_VISIBILITY_SECONDS {
        return Err(Fault::permanent(format!(
            "the visibility timeout is {} s; at most {} s (7 days) are allowed",
            seconds.as_secs(),
            limits::QUEUE_VISIBILITY_SECONDS
        )));
    }
    Ok(seconds)
}

/// A get may hide a message for 1 s to 7 days.
fn check_visibility(duration: Duration) -> Result<Duration, Fault> {
    if duration.is_zero() {
        return Err(Fault::permanent(
            "the visibility timeout is 0 s; at least 1 s is required",
        ));
    }
    check_hidden(duration)
}

/// The time to live must be at least a second, and longer than the initial delay. `None` is
/// unlimited.
fn check_lifetime(delay: Duration, ttl: Ttl) -> Result<Option<Duration>, Fault> {
    let Ttl::After(lifetime) = ttl else {
        return Ok(None);
    };
    if lifetime.is_zero() {
        return Err(Fault::permanent(
            "the time to live is 0 s; at least 1 s is required",
        ));
    }
    let lifetime = whole_seconds(lifetime);
    if whole_seconds(delay) >= lifetime {
        return Err(Fault::permanent(format!(
            "a message that expires after {} s cannot be hidden for {} s",
            lifetime.as_secs(),
            whole_seconds(delay).as_secs()
        )));
    }
    Ok(Some(lifetime))
}

fn check_batch(max: u32) -> Result<(), Fault> {
    if (1..=limits::QUEUE_BATCH).contains(&max) {
        Ok(())
    } else {
        Err(Fault::permanent(format!(
            "{max} messages were requested; 1 to {} are allowed",
            limits::QUEUE_BATCH
        )))
    }
}

/// A text has at most 64 KiB and only characters that XML allows.
fn check_text(text: &str) -> Result<(), Fault> {
    if text.len() > limits::QUEUE_TEXT_BYTES {
        return Err(Fault::too_large(format!(
            "the text has {} bytes; at most {} (64 KiB) are allowed",
            text.len(),
            limits::QUEUE_TEXT_BYTES
        )));
    }
    let refused = |c: &char| matches!(c, '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    match text.chars().find(refused) {
        Some(found) => Err(Fault::permanent(format!(
            "the text contains the character U+{:04X}, which XML does not allow",
            u32::from(found)
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_whole_seconds() {
        for (millis, seconds) in [(0, 0), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            assert_eq!(
                check_hidden(Duration::from_millis(millis)).unwrap(),
                Duration::from_secs(seconds)
            );
        }
        assert!(check_hidden(Duration::MAX).is_err());
        assert!(check_lifetime(Duration::ZERO, Ttl::After(Duration::MAX)).is_ok());
    }
}
