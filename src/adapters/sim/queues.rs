//! Simulated queues.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use super::world::{Inner, SimWorld};
use crate::model::{QueueName, limits};
use crate::ports::{
    ErrorClass, Message, MessageText, Missing, PeekedMessage, QueueStore, SentMessage, StoreError, Ttl, UpdatedMessage, What,
};

/// All queues.
#[derive(Default)]
pub(super) struct Queues(BTreeMap<QueueName, BTreeMap<u64, Stored>>);

struct Stored {
    text: String,
    receipt: String,
    dequeue_count: u32,
    inserted: Timestamp,
    expires: Option<Timestamp>,
    visible: Timestamp,
}

impl Queues {
    fn of(&mut self, queue: &QueueName, now: Timestamp) -> Result<&mut BTreeMap<u64, Stored>, (ErrorClass, &'static str)> {
        let messages = self.0.get_mut(queue).ok_or((ErrorClass::NotFound(Missing::Container), "the queue does not exist"))?;
        messages.retain(|_, message| message.expires.is_none_or(|expires| expires > now));
        Ok(messages)
    }
}

/// Whole seconds, rounded up, as the service counts.
fn seconds(duration: Duration) -> SignedDuration {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    SignedDuration::from_secs(i64::try_from(whole).unwrap_or(i64::MAX))
}

fn later(now: Timestamp, duration: Duration) -> Timestamp {
    now.saturating_add(seconds(duration)).unwrap_or(Timestamp::MAX)
}

fn id(serial: u64) -> String {
    format!("00000000-0000-0000-0000-{serial:012}")
}

fn serial(id: &str) -> Option<u64> {
    id.strip_prefix("00000000-0000-0000-0000-")?.parse().ok()
}

fn check(text: &str) -> Result<(), (ErrorClass, &'static str)> {
    let carried = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    if text.len() > limits::QUEUE_TEXT_BYTES {
        Err((ErrorClass::TooLarge, "the message has more than 64 KiB"))
    } else if !text.chars().all(carried) {
        Err((ErrorClass::Permanent, "the message has a character that XML cannot carry"))
    } else {
        Ok(())
    }
}

fn check_range(wait: Duration, least: u64) -> Result<(), (ErrorClass, &'static str)> {
    if wait > Duration::from_secs(limits::QUEUE_VISIBILITY_SECONDS) || (least > 0 && wait.is_zero()) {
        Err((ErrorClass::Permanent, "the visibility timeout is out of range"))
    } else {
        Ok(())
    }
}

fn check_ttl(delay: Duration, ttl: Ttl) -> Result<(), (ErrorClass, &'static str)> {
    match ttl {
        Ttl::After(ttl) if ttl.is_zero() || seconds(delay) >= seconds(ttl) => {
            Err((ErrorClass::Permanent, "the message would expire before it is visible"))
        }
        Ttl::After(_) | Ttl::Never => Ok(()),
    }
}

const fn check_count(max: u32) -> Result<(), (ErrorClass, &'static str)> {
    if max == 0 || max > limits::QUEUE_BATCH { Err((ErrorClass::Permanent, "1 to 32 messages can be asked for")) } else { Ok(()) }
}

const LOST: (ErrorClass, &str) = (ErrorClass::LeaseLost, "the pop receipt is not the newest, or the message is gone");

/// Turns a refusal into an error.
fn refuse(inner: &Inner, name: &'static str, what: &What) -> impl Fn((ErrorClass, &'static str)) -> StoreError {
    move |(class, message)| inner.error(class, name, what.clone(), message)
}

#[async_trait]
impl QueueStore for SimWorld {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let name = queue.clone();
        let created = self.inner.send("Create Queue", What::Queue(queue.clone()), true, move |state, _| {
            let new = !state.queues.0.contains_key(&name);
            state.queues.0.entry(name).or_default();
            Ok(new)
        });
        created.await
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let name = queue.clone();
        let deleted =
            self.inner.send("Delete Queue", What::Queue(queue.clone()), true, move |state, _| Ok(state.queues.0.remove(&name).is_some()));
        deleted.await
    }

    async fn put(&self, queue: &QueueName, text: &str, delay: Duration, ttl: Ttl) -> Result<SentMessage, StoreError> {
        const NAME: &str = "Put Message";
        let what = What::Queue(queue.clone());
        let check = check(text).and_then(|()| check_range(delay, 0)).and_then(|()| check_ttl(delay, ttl));
        check.map_err(refuse(&self.inner, NAME, &what))?;
        let (queue, text, subject) = (queue.clone(), text.to_owned(), what.clone());
        let sent = self.inner.send(NAME, what, true, move |state, inner| {
            let now = inner.now();
            let (number, receipt) = (state.next_serial(), format!("receipt-{}", state.next_serial()));
            let messages = state.queues.of(&queue, now).map_err(refuse(inner, NAME, &subject))?;
            let expires = match ttl {
                Ttl::Never => None,
                Ttl::After(ttl) => Some(later(now, ttl)),
            };
            let stored = Stored { text, receipt: receipt.clone(), dequeue_count: 0, inserted: now, expires, visible: later(now, delay) };
            messages.insert(number, stored);
            Ok(SentMessage { id: id(number), pop_receipt: receipt })
        });
        sent.await
    }

    async fn get(&self, queue: &QueueName, max: u32, visibility: Duration) -> Result<Vec<Message>, StoreError> {
        const NAME: &str = "Get Messages";
        let what = What::Queue(queue.clone());
        check_count(max).and_then(|()| check_range(visibility, 1)).map_err(refuse(&self.inner, NAME, &what))?;
        let (queue, subject) = (queue.clone(), what.clone());
        let got = self.inner.send(NAME, what, true, move |state, inner| {
            let now = inner.now();
            let base = state.next_serial();
            let messages = state.queues.of(&queue, now).map_err(refuse(inner, NAME, &subject))?;
            let mut visible: Vec<(&u64, &mut Stored)> = messages.iter_mut().filter(|(_, message)| message.visible <= now).collect();
            visible.sort_by_key(|(number, message)| (message.visible, **number));
            let got = visible.into_iter().take(max as usize).map(|(number, message)| {
                message.dequeue_count += 1;
                message.visible = later(now, visibility);
                message.receipt = format!("receipt-{base}-{number}");
                Message {
                    id: id(*number),
                    pop_receipt: message.receipt.clone(),
                    text: MessageText::Readable(message.text.clone()),
                    dequeue_count: message.dequeue_count,
                    inserted: message.inserted,
                    expires: message.expires,
                    next_visible: message.visible,
                }
            });
            Ok(got.collect())
        });
        got.await
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
        let what = What::Message(queue.clone(), id.to_owned());
        check(text).and_then(|()| check_range(visibility, 0)).map_err(refuse(&self.inner, NAME, &what))?;
        let (queue, id, given, text, subject) = (queue.clone(), id.to_owned(), pop_receipt.to_owned(), text.to_owned(), what.clone());
        let updated = self.inner.send(NAME, what, true, move |state, inner| {
            let now = inner.now();
            let receipt = format!("receipt-{}", state.next_serial());
            let messages = state.queues.of(&queue, now).map_err(refuse(inner, NAME, &subject))?;
            let message = serial(&id).and_then(|number| messages.get_mut(&number)).filter(|message| message.receipt == given);
            let Some(message) = message else { return Err(refuse(inner, NAME, &subject)(LOST)) };
            message.text = text;
            message.visible = later(now, visibility);
            message.receipt.clone_from(&receipt);
            Ok(UpdatedMessage { pop_receipt: receipt, next_visible: message.visible })
        });
        updated.await
    }

    async fn delete(&self, queue: &QueueName, id: &str, pop_receipt: &str) -> Result<(), StoreError> {
        const NAME: &str = "Delete Message";
        let what = What::Message(queue.clone(), id.to_owned());
        let (queue, id, given, subject) = (queue.clone(), id.to_owned(), pop_receipt.to_owned(), what.clone());
        let deleted = self.inner.send(NAME, what, true, move |state, inner| {
            let messages = state.queues.of(&queue, inner.now()).map_err(refuse(inner, NAME, &subject))?;
            match serial(&id).filter(|number| messages.get(number).is_some_and(|message| message.receipt == given)) {
                Some(number) => {
                    messages.remove(&number);
                    Ok(())
                }
                None => Err(refuse(inner, NAME, &subject)(LOST)),
            }
        });
        deleted.await
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        const NAME: &str = "Peek Messages";
        let what = What::Queue(queue.clone());
        check_count(max).map_err(refuse(&self.inner, NAME, &what))?;
        let (queue, subject) = (queue.clone(), what.clone());
        let peeked = self.inner.send(NAME, what, false, move |state, inner| {
            let now = inner.now();
            let messages = state.queues.of(&queue, now).map_err(refuse(inner, NAME, &subject))?;
            let mut visible: Vec<(&u64, &Stored)> = messages.iter().filter(|(_, message)| message.visible <= now).collect();
            visible.sort_by_key(|(number, message)| (message.visible, **number));
            let peeked = visible.into_iter().take(max as usize).map(|(number, message)| PeekedMessage {
                id: id(*number),
                text: MessageText::Readable(message.text.clone()),
                dequeue_count: message.dequeue_count,
                inserted: message.inserted,
                expires: message.expires,
            });
            Ok(peeked.collect())
        });
        peeked.await
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        const NAME: &str = "Get Queue Metadata";
        let what = What::Queue(queue.clone());
        let (queue, subject) = (queue.clone(), what.clone());
        let count = self.inner.send(NAME, what, false, move |state, inner| {
            let messages = state.queues.of(&queue, inner.now()).map_err(refuse(inner, NAME, &subject))?;
            Ok(messages.len() as u64)
        });
        count.await
    }
}
