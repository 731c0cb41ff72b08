//! Simulated queues.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

use super::limits::Weight;
use super::witness::ObservedChange;
use super::world::{AccountState, Inner, SimWorld};
use evenkeel_model::{QueueName, limits};
use evenkeel_storage::{
    ErrorClass, Message, MessageText, Missing, PeekedMessage, QueueStore, Resource, SentMessage,
    StoreError, Ttl, UpdatedMessage,
};

#[derive(Default)]
pub(super) struct Queues(BTreeMap<QueueName, StoredQueue>);

/// The messages of a queue by number, by the time when they become visible, and by their expiry.
#[derive(Default)]
struct StoredQueue {
    messages: BTreeMap<u64, StoredMessage>,
    visible: BTreeSet<(Timestamp, u64)>,
    expiring: BTreeSet<(Timestamp, u64)>,
}

impl StoredQueue {
    fn insert(&mut self, number: u64, message: StoredMessage) {
        self.visible.insert((message.visible, number));
        self.expiring
            .extend(message.expires.map(|expires| (expires, number)));
        self.messages.insert(number, message);
    }

    fn remove(&mut self, number: u64) {
        let Some(message) = self.messages.remove(&number) else {
            return;
        };
        self.visible.remove(&(message.visible, number));
        message
            .expires
            .map(|expires| self.expiring.remove(&(expires, number)));
    }

    /// Sets the time from which a message is visible.
    fn show(&mut self, number: u64, from: Timestamp) {
        let Some(message) = self.messages.get_mut(&number) else {
            return;
        };
        self.visible
            .remove(&(std::mem::replace(&mut message.visible, from), number));
        self.visible.insert((from, number));
    }

    /// The first visible messages, in the order in which they became visible.
    fn first(&self, now: Timestamp, most: u32) -> Vec<u64> {
        self.visible
            .range(..=(now, u64::MAX))
            .take(most as usize)
            .map(|(_, number)| *number)
            .collect()
    }

    /// The message if this is its newest receipt.
    fn at_receipt(&mut self, id: &str, receipt: &str) -> Option<(u64, &mut StoredMessage)> {
        let number = serial(id)?;
        self.messages
            .get_mut(&number)
            .filter(|message| message.receipt == receipt)
            .map(|message| (number, message))
    }
}

struct StoredMessage {
    text: String,
    receipt: String,
    dequeue_count: u32,
    inserted: Timestamp,
    expires: Option<Timestamp>,
    visible: Timestamp,
    /// Whether a caller has received it. (A message that was put with a delay is hidden, too.)
    received: bool,
}

/// A message of a queue, for assertions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedMessage {
    pub id: String,
    pub text: String,
    pub dequeue_count: u32,
    pub visible: Timestamp,
}

impl SimWorld {
    /// All messages of a queue, including hidden ones, for assertions. It is not an operation of the store.
    #[must_use]
    pub fn messages(&self, queue: &QueueName) -> Vec<QueuedMessage> {
        let state = self.inner.lock();
        let messages = state
            .queues
            .0
            .get(queue)
            .into_iter()
            .flat_map(|queue| &queue.messages);
        let queued = messages.map(|(number, message)| QueuedMessage {
            id: id(*number),
            text: message.text.clone(),
            dequeue_count: message.dequeue_count,
            visible: message.visible,
        });
        queued.collect()
    }

    /// The number of messages, and the time when the first is visible.
    #[must_use]
    pub fn backlog(&self, queue: &QueueName) -> (usize, Option<Timestamp>) {
        let state = self.inner.lock();
        let queue = state.queues.0.get(queue);
        (
            queue.map_or(0, |queue| queue.messages.len()),
            queue
                .and_then(|queue| queue.visible.first())
                .map(|(visible, _)| *visible),
        )
    }

    /// Ends the visibility timeout of the n-th received message (modulo their number), and returns its id.
    pub fn show_early(&self, queue: &QueueName, nth: usize) -> Option<String> {
        let mut state = self.inner.lock();
        self.inner.catch_up(&mut state);
        let now = state.now();
        let queue = state.queues.0.get_mut(queue)?;
        let received: Vec<u64> = queue
            .messages
            .iter()
            .filter(|(_, m)| m.received && m.visible > now)
            .map(|(number, _)| *number)
            .collect();
        let number = *received.get(nth.checked_rem(received.len())?)?;
        queue.show(number, now);
        Some(id(number))
    }
}

/// The queue, after expired messages are removed.
fn of<'s>(
    state: &'s mut AccountState,
    queue: &QueueName,
) -> Result<&'s mut StoredQueue, (ErrorClass, &'static str)> {
    const MISSING: (ErrorClass, &str) = (
        ErrorClass::NotFound(Missing::Container),
        "the queue does not exist",
    );
    let now = state.now();
    let found = state.queues.0.get_mut(queue).ok_or(MISSING)?;
    let mut expired: Vec<u64> = found
        .expiring
        .range(..=(now, u64::MAX))
        .map(|(_, number)| *number)
        .collect();
    expired.sort_unstable();
    for number in &expired {
        found.remove(*number);
    }
    for number in expired {
        state.record_change(|| ObservedChange::Expired {
            queue: queue.clone(),
            id: id(number),
        });
    }
    state.queues.0.get_mut(queue).ok_or(MISSING)
}

/// The service rounds durations up to whole seconds.
fn seconds(duration: Duration) -> SignedDuration {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    SignedDuration::from_secs(i64::try_from(whole).unwrap_or(i64::MAX))
}

fn later(now: Timestamp, duration: Duration) -> Timestamp {
    now.saturating_add(seconds(duration))
        .unwrap_or(Timestamp::MAX)
}

/// The time by the service's clock, truncated to seconds.
fn service_time(off: SignedDuration, time: Timestamp) -> Timestamp {
    let time = time.saturating_add(off).unwrap_or(time);
    Timestamp::from_second(time.as_second()).unwrap_or(time)
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
        Err((
            ErrorClass::Permanent,
            "the message has a character that XML cannot carry",
        ))
    } else {
        Ok(())
    }
}

fn check_range(wait: Duration, least: u64) -> Result<(), (ErrorClass, &'static str)> {
    if wait > Duration::from_secs(limits::QUEUE_VISIBILITY_SECONDS) || (least > 0 && wait.is_zero())
    {
        Err((
            ErrorClass::Permanent,
            "the visibility timeout is out of range",
        ))
    } else {
        Ok(())
    }
}

fn check_ttl(delay: Duration, ttl: Ttl) -> Result<(), (ErrorClass, &'static str)> {
    match ttl {
        Ttl::After(ttl) if ttl.is_zero() || seconds(delay) >= seconds(ttl) => Err((
            ErrorClass::Permanent,
            "the message would expire before it is visible",
        )),
        Ttl::After(_) | Ttl::Never => Ok(()),
    }
}

const fn check_count(max: u32) -> Result<(), (ErrorClass, &'static str)> {
    if max == 0 || max > limits::QUEUE_BATCH {
        Err((ErrorClass::Permanent, "a request may get 1 to 32 messages"))
    } else {
        Ok(())
    }
}

const LOST: (ErrorClass, &str) = (
    ErrorClass::LeaseLost,
    "the pop receipt is not the newest, or the message is deleted",
);

fn refuse(
    inner: &Inner,
    name: &'static str,
    what: &Resource,
) -> impl Fn((ErrorClass, &'static str)) -> StoreError {
    move |(class, message)| inner.error(class, name, what.clone(), message)
}

#[async_trait]
impl QueueStore for SimWorld {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let name = queue.clone();
        let created = self.send(
            "Create Queue",
            Resource::Queue(queue.clone()),
            true,
            move |state, _| {
                let new = !state.queues.0.contains_key(&name);
                state.queues.0.entry(name).or_default();
                Ok(new)
            },
        );
        created.await
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        let name = queue.clone();
        let deleted = self.send(
            "Delete Queue",
            Resource::Queue(queue.clone()),
            true,
            move |state, _| Ok(state.queues.0.remove(&name).is_some()),
        );
        deleted.await
    }

    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError> {
        const NAME: &str = "Put Message";
        let what = Resource::Queue(queue.clone());
        let check = check(text)
            .and_then(|()| check_range(delay, 0))
            .and_then(|()| check_ttl(delay, ttl));
        check.map_err(refuse(&self.inner, NAME, &what))?;
        let (queue, text, subject) = (queue.clone(), text.to_owned(), what.clone());
        let sent = self.send(NAME, what, true, move |state, inner| {
            let now = state.now();
            let (number, receipt) = (
                state.next_serial(),
                format!("receipt-{}", state.next_serial()),
            );
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            let expires = match ttl {
                Ttl::Never => None,
                Ttl::After(ttl) => Some(later(now, ttl)),
            };
            let visible = later(now, delay);
            let stored = StoredMessage {
                text: text.clone(),
                receipt: receipt.clone(),
                dequeue_count: 0,
                inserted: now,
                expires,
                visible,
                received: false,
            };
            messages.insert(number, stored);
            state.record_change(|| ObservedChange::Put {
                queue,
                id: id(number),
                text,
            });
            Ok(SentMessage {
                id: id(number),
                pop_receipt: receipt,
            })
        });
        sent.await
    }

    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError> {
        const NAME: &str = "Get Messages";
        let what = Resource::Queue(queue.clone());
        check_count(max)
            .and_then(|()| check_range(visibility, 1))
            .map_err(refuse(&self.inner, NAME, &what))?;
        let (queue, subject) = (queue.clone(), what.clone());
        let got = self.send(NAME, what, true, move |state, inner| {
            let (now, off) = (state.now(), state.queue_clock_offset());
            let base = state.next_serial();
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            let mut got: Vec<Message> = Vec::new();
            for number in messages.first(now, max) {
                messages.show(number, later(now, visibility));
                let Some(message) = messages.messages.get_mut(&number) else {
                    continue;
                };
                message.received = true;
                message.dequeue_count += 1;
                message.receipt = format!("receipt-{base}-{number}");
                got.push(Message {
                    id: id(number),
                    pop_receipt: message.receipt.clone(),
                    text: MessageText::Readable(message.text.clone()),
                    dequeue_count: message.dequeue_count,
                    inserted: service_time(off, message.inserted),
                    expires: message.expires.map(|expires| service_time(off, expires)),
                    next_visible: service_time(off, message.visible),
                });
            }
            state.record_weight(Weight::Messages(got.len()));
            for message in &got {
                let dequeue_count = message.dequeue_count;
                state.record_change(|| ObservedChange::Got {
                    queue: queue.clone(),
                    id: message.id.clone(),
                    dequeue_count,
                });
            }
            Ok(got)
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
        let what = Resource::Message(queue.clone(), id.to_owned());
        check(text)
            .and_then(|()| check_range(visibility, 0))
            .map_err(refuse(&self.inner, NAME, &what))?;
        let (queue, id, given, text, subject) = (
            queue.clone(),
            id.to_owned(),
            pop_receipt.to_owned(),
            text.to_owned(),
            what.clone(),
        );
        let updated = self.send(NAME, what, true, move |state, inner| {
            let (now, off) = (state.now(), state.queue_clock_offset());
            let receipt = format!("receipt-{}", state.next_serial());
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            let Some((number, message)) = messages.at_receipt(&id, &given) else {
                return Err(refuse(inner, NAME, &subject)(LOST));
            };
            message.text.clone_from(&text);
            message.receipt.clone_from(&receipt);
            messages.show(number, later(now, visibility));
            let next_visible = service_time(off, later(now, visibility));
            state.record_change(|| ObservedChange::Updated { queue, id, text });
            Ok(UpdatedMessage {
                pop_receipt: receipt,
                next_visible,
            })
        });
        updated.await
    }

    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError> {
        const NAME: &str = "Delete Message";
        let what = Resource::Message(queue.clone(), id.to_owned());
        let (queue, id, given, subject) = (
            queue.clone(),
            id.to_owned(),
            pop_receipt.to_owned(),
            what.clone(),
        );
        let deleted = self.send(NAME, what, true, move |state, inner| {
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            match messages.at_receipt(&id, &given).map(|(number, _)| number) {
                Some(number) => {
                    messages.remove(number);
                    state.record_change(|| ObservedChange::Deleted { queue, id });
                    Ok(())
                }
                None => Err(refuse(inner, NAME, &subject)(LOST)),
            }
        });
        deleted.await
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        const NAME: &str = "Peek Messages";
        let what = Resource::Queue(queue.clone());
        check_count(max).map_err(refuse(&self.inner, NAME, &what))?;
        let (queue, subject) = (queue.clone(), what.clone());
        let peeked = self.send(NAME, what, false, move |state, inner| {
            let (now, off) = (state.now(), state.queue_clock_offset());
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            let first = messages.first(now, max);
            let first = first
                .iter()
                .filter_map(|number| Some((*number, messages.messages.get(number)?)));
            let peeked = first.map(|(number, message)| PeekedMessage {
                id: id(number),
                text: MessageText::Readable(message.text.clone()),
                dequeue_count: message.dequeue_count,
                inserted: service_time(off, message.inserted),
                expires: message.expires.map(|expires| service_time(off, expires)),
            });
            let peeked: Vec<PeekedMessage> = peeked.collect();
            state.record_weight(Weight::Messages(peeked.len()));
            Ok(peeked)
        });
        peeked.await
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        const NAME: &str = "Get Queue Metadata";
        let what = Resource::Queue(queue.clone());
        let (queue, subject) = (queue.clone(), what.clone());
        let count = self.send(NAME, what, false, move |state, inner| {
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            Ok(messages.messages.len() as u64)
        });
        count.await
    }
}
