//! Queues in memory whose requests can fail.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;

use super::time::{SECOND, Seeded, TestClock, at};
use evenkeel_model::{AccountName, QueueName, job};
use evenkeel_storage::*;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Put,
    Get,
    Update,
    Delete,
    Count,
    Create,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    None,
    Taken,
}

struct Fault {
    op: Op,
    queue: Option<String>,
    /// Number of requests that succeed before the first failure.
    spared: usize,
    left: usize,
    class: ErrorClass,
    effect: Effect,
}

#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) text: String,
    pub(crate) count: u32,
    receipt: u64,
    pub(crate) visible: Duration,
    pub(crate) inserted: Duration,
    pub(crate) expires: Option<Duration>,
    unreadable: bool,
}

impl Stored {
    fn shown(&self) -> MessageText {
        if self.unreadable {
            MessageText::Unreadable {
                reason: "its XML is broken".to_owned(),
                raw: format!("<MessageText>{}", self.text),
            }
        } else {
            MessageText::Readable(self.text.clone())
        }
    }

    pub(crate) fn free(&self) -> u32 {
        job::decode_object(&self.text)
            .ok()
            .and_then(|object| job::note(&object, &self.id))
            .map_or(0, |note| note.free)
    }
}

/// A time during which some requests fail and some are slow.
struct Storm {
    until: Duration,
    rng: Seeded,
    failing: f64,
}

impl Storm {
    fn fault(&self) -> Option<(ErrorClass, Effect)> {
        if self.rng.unit() >= self.failing {
            return None;
        }
        let retry_after = (self.rng.unit() < 0.3).then_some(SECOND * 3);
        Some(match self.rng.next_u64() % 5 {
            0 => (ErrorClass::Throttled { retry_after }, Effect::None),
            1 => (ErrorClass::Refused, Effect::None),
            2 => (ErrorClass::Transient { retry_after }, Effect::None),
            3 => (ErrorClass::Ambiguous, Effect::None),
            _ => (ErrorClass::Ambiguous, Effect::Taken),
        })
    }

    fn delay(&self) -> Duration {
        if self.rng.unit() < self.failing / 4.0 {
            SECOND.mul_f64(self.rng.between(0.0, 45.0))
        } else {
            Duration::ZERO
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) at: Duration,
    pub(crate) op: Op,
    pub(crate) queue: String,
    pub(crate) max: u32,
    pub(crate) visibility: Duration,
    pub(crate) failed: bool,
}

#[derive(Default)]
struct State {
    queues: BTreeMap<String, Vec<Stored>>,
    faults: Vec<Fault>,
    outage: Option<Range<Duration>>,
    /// The answers to Get Messages requests are lost until this time.
    unheard: Duration,
    heard: Option<u32>,
    page: Option<u32>,
    latency: Duration,
    storm: Option<Storm>,
    next: u64,
    calls: Vec<Call>,
}

pub(crate) struct FakeQueues {
    clock: Arc<TestClock>,
    state: Mutex<State>,
}

impl FakeQueues {
    pub(super) fn new(clock: Arc<TestClock>) -> Self {
        Self {
            clock,
            state: Mutex::new(State {
                latency: Duration::from_millis(2),
                ..State::default()
            }),
        }
    }

    pub(crate) fn fail(
        &self,
        op: Op,
        queue: &str,
        times: usize,
        class: ErrorClass,
        effect: Effect,
    ) {
        self.fail_after(0, op, queue, times, class, effect);
    }

    pub(crate) fn fail_after(
        &self,
        spared: usize,
        op: Op,
        queue: &str,
        times: usize,
        class: ErrorClass,
        effect: Effect,
    ) {
        let queue = Some(queue.to_owned());
        self.state.lock().unwrap().faults.push(Fault {
            op,
            queue,
            spared,
            left: times,
            class,
            effect,
        });
    }

    pub(crate) fn outage(&self, during: Range<Duration>) {
        self.state.lock().unwrap().outage = Some(during);
    }

    pub(crate) fn unheard(&self, until: Duration) {
        self.state.lock().unwrap().unheard = until;
    }

    pub(crate) fn unheard_beyond(&self, messages: u32) {
        self.state.lock().unwrap().heard = Some(messages);
    }

    pub(crate) fn short_pages(&self, messages: u32) {
        self.state.lock().unwrap().page = Some(messages);
    }

    /// Makes the texts of a queue unreadable, as if the service had answered with broken XML.
    pub(crate) fn garble(&self, queue: &str) {
        for message in self
            .state
            .lock()
            .unwrap()
            .queues
            .entry(queue.to_owned())
            .or_default()
        {
            message.unreadable = true;
        }
    }

    pub(crate) fn storm(&self, seed: u64, failing: f64, until: Duration) {
        self.state.lock().unwrap().storm = Some(Storm {
            until,
            rng: Seeded(AtomicU64::new(seed)),
            failing,
        });
    }

    pub(crate) fn latency(&self, latency: Duration) {
        self.state.lock().unwrap().latency = latency;
    }

    pub(crate) fn messages(&self, queue: &str) -> Vec<Stored> {
        let mut state = self.state.lock().unwrap();
        let now = self.clock.monotonic();
        let messages = state.queues.entry(queue.to_owned()).or_default();
        messages.retain(|message| message.expires.is_none_or(|expires| expires > now));
        messages.clone()
    }

    pub(crate) fn calls(&self, op: Op, queue: &str) -> Vec<Call> {
        self.state
            .lock()
            .unwrap()
            .calls
            .iter()
            .filter(|call| call.op == op && call.queue == queue)
            .cloned()
            .collect()
    }

    pub(crate) fn exists(&self, queue: &str) -> bool {
        self.state.lock().unwrap().queues.contains_key(queue)
    }

    pub(crate) fn seed(&self, queue: &str, text: &str, ttl: Option<Duration>) -> String {
        let mut state = self.state.lock().unwrap();
        let now = self.clock.monotonic();
        state.next += 1;
        let stored = Stored {
            id: format!("m{}", state.next),
            text: text.to_owned(),
            count: 0,
            receipt: state.next,
            visible: now,
            inserted: now,
            expires: ttl.map(|ttl| now + ttl),
            unreadable: false,
        };
        let id = stored.id.clone();
        state
            .queues
            .entry(queue.to_owned())
            .or_default()
            .push(stored);
        id
    }

    /// Acts as another worker that receives every message of the queue, even hidden ones.
    pub(crate) fn steal(&self, queue: &str) {
        let mut state = self.state.lock().unwrap();
        state.next += 1;
        let (next, now) = (state.next, self.clock.monotonic());
        for message in state.queues.entry(queue.to_owned()).or_default() {
            message.receipt = 1_000_000 + next;
            message.count += 1;
            message.visible = now + Duration::from_mins(1);
        }
    }

    pub(crate) fn set_back(&self, queue: &str, by: Duration) {
        for message in self
            .state
            .lock()
            .unwrap()
            .queues
            .entry(queue.to_owned())
            .or_default()
        {
            message.inserted += by;
        }
    }

    async fn call<T>(
        &self,
        op: Op,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
        effect: impl FnOnce(&mut State, Duration) -> Result<T, ErrorClass>,
    ) -> Result<T, StoreError> {
        let (latency, fault) = {
            let state = self.state.lock().unwrap();
            let storm = state
                .storm
                .as_ref()
                .filter(|storm| self.clock.monotonic() < storm.until);
            (
                state.latency + storm.map(Storm::delay).unwrap_or_default(),
                storm.and_then(Storm::fault),
            )
        };
        sleep(latency / 2).await;
        let result = {
            let mut state = self.state.lock().unwrap();
            let now = self.clock.monotonic();
            let refused = state
                .outage
                .as_ref()
                .is_some_and(|outage| outage.contains(&now));
            let ordered = state
                .faults
                .iter_mut()
                .find(|fault| {
                    fault.left > 0
                        && fault.op == op
                        && fault
                            .queue
                            .as_deref()
                            .is_none_or(|name| name == queue.as_str())
                })
                .and_then(|fault| {
                    if fault.spared > 0 {
                        fault.spared -= 1;
                        return None;
                    }
                    fault.left -= 1;
                    Some((fault.class, fault.effect))
                });
            let unheard = (op == Op::Get
                && (now < state.unheard || state.heard.is_some_and(|heard| max > heard)))
            .then_some((ErrorClass::Ambiguous, Effect::Taken));
            let fault = ordered.or(unheard).or(fault);
            for messages in state.queues.values_mut() {
                messages.retain(|message| message.expires.is_none_or(|expires| expires > now));
            }
            let missing = op != Op::Create && !state.queues.contains_key(queue.as_str());
            let result = match fault {
                _ if refused => Err(ErrorClass::Refused),
                Some((class, Effect::None)) => Err(class),
                Some((class, Effect::Taken)) => effect(&mut state, now).and(Err(class)),
                None if missing => Err(ErrorClass::NotFound(Missing::Container)),
                None => effect(&mut state, now),
            };
            let failed = result.is_err();
            state.calls.push(Call {
                at: now,
                op,
                queue: queue.to_string(),
                max,
                visibility,
                failed,
            });
            result
        };
        sleep(latency / 2).await;
        let subject = Subject {
            account: AccountName::main(),
            resource: Resource::Queue(queue.clone()),
        };
        result.map_err(|class| {
            StoreError::new(
                class,
                "Queue Operation",
                subject,
                format!("{op:?} was told to fail"),
            )
        })
    }
}

fn find<'a>(
    state: &'a mut State,
    queue: &QueueName,
    id: &str,
    receipt: &str,
) -> Result<&'a mut Stored, ErrorClass> {
    let messages = state
        .queues
        .get_mut(queue.as_str())
        .ok_or(ErrorClass::NotFound(Missing::Container))?;
    messages
        .iter_mut()
        .find(|message| message.id == id && message.receipt.to_string() == receipt)
        .ok_or(ErrorClass::LeaseLost)
}

#[async_trait]
impl QueueStore for FakeQueues {
    async fn create_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        self.call(Op::Create, queue, 0, Duration::ZERO, |state, _| {
            let fresh = !state.queues.contains_key(queue.as_str());
            state.queues.entry(queue.to_string()).or_default();
            Ok(fresh)
        })
        .await
    }

    async fn delete_queue(&self, queue: &QueueName) -> Result<bool, StoreError> {
        Ok(self
            .state
            .lock()
            .unwrap()
            .queues
            .remove(queue.as_str())
            .is_some())
    }

    async fn put(
        &self,
        queue: &QueueName,
        text: &str,
        delay: Duration,
        ttl: Ttl,
    ) -> Result<SentMessage, StoreError> {
        assert!(text.len() <= 65_536, "too large for a queue");
        self.call(Op::Put, queue, 0, delay, |state, now| {
            state.next += 1;
            let (id, receipt) = (format!("m{}", state.next), state.next);
            let expires = match ttl {
                Ttl::Never => None,
                Ttl::After(ttl) => Some(now + ttl),
            };
            let (visible, text) = (now + delay, text.to_owned());
            let stored = Stored {
                id: id.clone(),
                text,
                count: 0,
                receipt,
                visible,
                inserted: now,
                expires,
                unreadable: false,
            };
            state
                .queues
                .entry(queue.to_string())
                .or_default()
                .push(stored);
            Ok(SentMessage {
                id,
                pop_receipt: receipt.to_string(),
            })
        })
        .await
    }

    async fn get(
        &self,
        queue: &QueueName,
        max: u32,
        visibility: Duration,
    ) -> Result<Vec<Message>, StoreError> {
        assert!((1..=32).contains(&max), "asked for {max}");
        self.call(Op::Get, queue, max, visibility, |state, now| {
            let State {
                queues, next, page, ..
            } = state;
            let most = page.map_or(max, |page| page.min(max));
            let messages = queues.entry(queue.to_string()).or_default();
            messages.sort_by_key(|message| message.visible);
            let visible = messages
                .iter_mut()
                .filter(|message| message.visible <= now)
                .take(most as usize);
            Ok(visible
                .map(|message| {
                    *next += 1;
                    message.receipt = *next;
                    message.count += 1;
                    message.visible = now + visibility;
                    Message {
                        id: message.id.clone(),
                        pop_receipt: message.receipt.to_string(),
                        text: message.shown(),
                        dequeue_count: message.count,
                        inserted: at(message.inserted),
                        expires: message.expires.map(at),
                        next_visible: at(message.visible),
                    }
                })
                .collect())
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
        assert!(text.len() <= 65_536, "too large for a queue");
        self.call(Op::Update, queue, 0, visibility, |state, now| {
            state.next += 1;
            let next = state.next;
            let message = find(state, queue, id, pop_receipt)?;
            if message
                .expires
                .is_some_and(|expires| now + visibility > expires)
            {
                return Err(ErrorClass::Permanent);
            }
            message.receipt = next;
            message.text = text.to_owned();
            message.visible = now + visibility;
            Ok(UpdatedMessage {
                pop_receipt: next.to_string(),
                next_visible: at(message.visible),
            })
        })
        .await
    }

    async fn delete(
        &self,
        queue: &QueueName,
        id: &str,
        pop_receipt: &str,
    ) -> Result<(), StoreError> {
        self.call(Op::Delete, queue, 0, Duration::ZERO, |state, _| {
            find(state, queue, id, pop_receipt)?;
            state
                .queues
                .entry(queue.to_string())
                .or_default()
                .retain(|message| message.id != id);
            Ok(())
        })
        .await
    }

    async fn peek(&self, queue: &QueueName, max: u32) -> Result<Vec<PeekedMessage>, StoreError> {
        self.call(Op::Count, queue, max, Duration::ZERO, |state, now| {
            let messages = state.queues.entry(queue.to_string()).or_default();
            Ok(messages
                .iter()
                .filter(|message| message.visible <= now)
                .take(max as usize)
                .map(|message| PeekedMessage {
                    id: message.id.clone(),
                    text: message.shown(),
                    dequeue_count: message.count,
                    inserted: at(message.inserted),
                    expires: message.expires.map(at),
                })
                .collect())
        })
        .await
    }

    async fn approximate_count(&self, queue: &QueueName) -> Result<u64, StoreError> {
        self.call(Op::Count, queue, 0, Duration::ZERO, |state, _| {
            Ok(state.queues.entry(queue.to_string()).or_default().len() as u64)
        })
        .await
    }
}
