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

/// All queues.
#[derive(Default)]
pub(super) struct Queues(BTreeMap<QueueName, StoredQueue>);

/// The messages of a queue by number, and in the orders in which they become visible and expire.
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

    /// Hides a message until then, or shows it from then on.
    fn show(&mut self, number: u64, from: Timestamp) {
        let Some(message) = self.messages.get_mut(&number) else {
            return;
        };
        self.visible
            .remove(&(std::mem::replace(&mut message.visible, from), number));
        self.visible.insert((from, number));
    }

    /// The first visible messages, in the order in which they became so.
    fn first(&self, now: Timestamp, most: u32) -> Vec<u64> {
        self.visible
            .range(..=(now, u64::MAX))
            .take(most as usize)
            .map(|(_, number)| *number)
            .collect()
    }

    /// A message at its newest receipt.
    fn held(&mut self, id: &str, receipt: &str) -> Option<(u64, &mut StoredMessage)> {
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
    /// Whether it is hidden because somebody got it.
    held: bool,
}

/// A message as it lies on its queue, seen by nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LyingMessage {
    /// Its id.
    pub id: String,
    /// Its text.
    pub text: String,
    /// How often it was got.
    pub dequeue_count: u32,
    /// When it is visible.
    pub visible: Timestamp,
}

impl SimWorld {
    /// The messages of a queue as they lie there now, hidden ones included, read by nobody: for those who judge a run.
    #[must_use]
    pub fn messages(&self, queue: &QueueName) -> Vec<LyingMessage> {
        let state = self.inner.lock();
        let messages = state
            .queues
            .0
            .get(queue)
            .into_iter()
            .flat_map(|queue| &queue.messages);
        let lying = messages.map(|(number, message)| LyingMessage {
            id: id(*number),
            text: message.text.clone(),
            dequeue_count: message.dequeue_count,
            visible: message.visible,
        });
        lying.collect()
    }

    /// How many messages a queue holds, and when the first of them is visible.
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

    /// Ends the visibility timeout of the n-th message that is hidden because somebody got it (modulo their number).
    /// Returns its id.
    pub fn show_early(&self, queue: &QueueName, nth: usize) -> Option<String> {
        let mut state = self.inner.lock();
        self.inner.catch_up(&mut state);
        let now = state.now();
        let queue = state.queues.0.get_mut(queue)?;
        let held: Vec<u64> = queue
            .messages
            .iter()
            .filter(|(_, m)| m.held && m.visible > now)
            .map(|(number, _)| *number)
            .collect();
        let number = *held.get(nth.checked_rem(held.len())?)?;
        queue.show(number, now);
        Some(id(number))
    }
}

/// A queue, without messages that have expired.
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
        state.changed(|| ObservedChange::Expired {
            queue: queue.clone(),
            id: id(number),
        });
    }
    state.queues.0.get_mut(queue).ok_or(MISSING)
}

/// Whole seconds, rounded up, as the service counts.
fn seconds(duration: Duration) -> SignedDuration {
    let whole = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
    SignedDuration::from_secs(i64::try_from(whole).unwrap_or(i64::MAX))
}

fn later(now: Timestamp, duration: Duration) -> Timestamp {
    now.saturating_add(seconds(duration))
        .unwrap_or(Timestamp::MAX)
}

/// A time as the service tells it: by its own clock, in whole seconds, cut off.
fn told(off: SignedDuration, time: Timestamp) -> Timestamp {
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
        Err((ErrorClass::Permanent, "1 to 32 messages can be asked for"))
    } else {
        Ok(())
    }
}

const LOST: (ErrorClass, &str) = (
    ErrorClass::LeaseLost,
    "the pop receipt is not the newest, or the message is gone",
);

/// Turns a refusal into an error.
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
                held: false,
            };
            messages.insert(number, stored);
            state.changed(|| ObservedChange::Put {
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
            let (now, off) = (state.now(), state.queues_off());
            let base = state.next_serial();
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            let mut got: Vec<Message> = Vec::new();
            for number in messages.first(now, max) {
                messages.show(number, later(now, visibility));
                let Some(message) = messages.messages.get_mut(&number) else {
                    continue;
                };
                message.held = true;
                message.dequeue_count += 1;
                message.receipt = format!("receipt-{base}-{number}");
                got.push(Message {
                    id: id(number),
                    pop_receipt: message.receipt.clone(),
                    text: MessageText::Readable(message.text.clone()),
                    dequeue_count: message.dequeue_count,
                    inserted: told(off, message.inserted),
                    expires: message.expires.map(|expires| told(off, expires)),
                    next_visible: told(off, message.visible),
                });
            }
            state.weighs(Weight::Messages(got.len()));
            for message in &got {
                let dequeue_count = message.dequeue_count;
                state.changed(|| ObservedChange::Got {
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
            let (now, off) = (state.now(), state.queues_off());
            let receipt = format!("receipt-{}", state.next_serial());
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            let Some((number, message)) = messages.held(&id, &given) else {
                return Err(refuse(inner, NAME, &subject)(LOST));
            };
            message.text.clone_from(&text);
            message.receipt.clone_from(&receipt);
            messages.show(number, later(now, visibility));
            let next_visible = told(off, later(now, visibility));
            state.changed(|| ObservedChange::Updated { queue, id, text });
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
            match messages.held(&id, &given).map(|(number, _)| number) {
                Some(number) => {
                    messages.remove(number);
                    state.changed(|| ObservedChange::Deleted { queue, id });
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
            let (now, off) = (state.now(), state.queues_off());
            let messages = of(state, &queue).map_err(refuse(inner, NAME, &subject))?;
            let first = messages.first(now, max);
            let first = first
                .iter()
                .filter_map(|number| Some((*number, messages.messages.get(number)?)));
            let peeked = first.map(|(number, message)| PeekedMessage {
                id: id(number),
                text: MessageText::Readable(message.text.clone()),
                dequeue_count: message.dequeue_count,
                inserted: told(off, message.inserted),
                expires: message.expires.map(|expires| told(off, expires)),
            });
            let peeked: Vec<PeekedMessage> = peeked.collect();
            state.weighs(Weight::Messages(peeked.len()));
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
