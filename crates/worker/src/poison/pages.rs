//! Reads a poison queue page by page. A received message is hidden for some time. If the caller
//! does not delete the message, the caller must make it visible again.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use super::PoisonQueue;
use evenkeel_model::limits;
use evenkeel_storage::{ErrorClass, Message, Missing, StoreError};

/// Shortest visibility timeout while messages are requeued or discarded.
const HIDDEN: Duration = Duration::from_secs(30);
/// Added to the visibility timeout for each message in the queue. A page of 32 messages takes a
/// second at most.
const HIDDEN_MORE: Duration = Duration::from_millis(30);
const HIDDEN_MOST: Duration = Duration::from_mins(2);
/// Shortest visibility timeout while messages are only read.
const READ: Duration = Duration::from_secs(5);
/// Added to the visibility timeout for each message in the queue. This is less than `HIDDEN_MORE`,
/// because several pages are received at once.
const READ_MORE: Duration = Duration::from_millis(2);
const PAGES_AT_ONCE: u64 = 8;
/// Pause before a queue with hidden messages is polled again.
const PAUSE: Duration = Duration::from_secs(1);

/// If a listing has received at most this many messages, it makes each of them visible again. If
/// there are more, it leaves them hidden, because their visibility timeouts end sooner.
pub(super) const SHOWN_AGAIN: u64 = 320;

/// Whether a listing may have hidden these messages. A listing hides messages for some seconds. If
/// there are at most `SHOWN_AGAIN`, it shows them again even sooner.
pub(super) const fn may_be_hidden_by_listing(hidden: u64) -> bool {
    hidden > SHOWN_AGAIN
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PagePurpose {
    Reading,
    Handling,
}

impl PagePurpose {
    /// The visibility timeout for a queue with this many messages.
    fn hidden(self, messages: u64) -> Duration {
        let (least, more) = match self {
            Self::Reading => (READ, READ_MORE),
            Self::Handling => (HIDDEN, HIDDEN_MORE),
        };
        let more = more.saturating_mul(u32::try_from(messages).unwrap_or(u32::MAX));
        // A visibility timeout has whole seconds.
        Duration::from_secs(least.saturating_add(more).min(HIDDEN_MOST).as_secs())
    }
}

/// A walk over a poison queue. The walk takes some eight bytes of memory for each message.
pub(super) struct PoisonPages<'q> {
    queue: &'q PoisonQueue,
    /// Approximate number of messages when the walk began; zero once the queue is gone.
    pub(super) most: u64,
    pub(super) hidden: Duration,
    /// Hashes of the ids of the messages seen so far.
    seen: BTreeSet<u64>,
    /// Number of pages without a new message. Messages reappear if the walk takes longer than the
    /// visibility timeout.
    again: u64,
    /// Remaining time to wait for messages that a listing hides; `None` before the first wait.
    remaining_wait: Option<Duration>,
}

pub(super) struct WalkPage {
    pub(super) messages: Vec<Message>,
    /// Whether the page has a message that the walk had not received before.
    pub(super) is_new: bool,
}

impl<'q> PoisonPages<'q> {
    /// Begins a walk. Returns `None` if the queue does not exist.
    pub(super) async fn of(queue: &'q PoisonQueue) -> Result<Option<Self>, StoreError> {
        let most = match queue.queues.approximate_count(&queue.poison).await {
            Err(error) if is_absent(&error) => return Ok(None),
            count => count?,
        };
        Ok(Some(Self::expecting(queue, most, PagePurpose::Handling)))
    }

    pub(super) fn expecting(queue: &'q PoisonQueue, most: u64, purpose: PagePurpose) -> Self {
        Self {
            queue,
            most,
            hidden: purpose.hidden(most),
            seen: BTreeSet::new(),
            again: 0,
            remaining_wait: None,
        }
    }

    /// Receives the next page. Returns `None` when no message is left, or when only messages
    /// reappear that were seen before.
    pub(super) async fn next_page(&mut self) -> Result<Option<WalkPage>, StoreError> {
        self.next_of(1).await
    }

    /// Receives several pages at once, as many as the queue may still have, and returns their
    /// messages together.
    pub(super) async fn next_pages(&mut self) -> Result<Option<WalkPage>, StoreError> {
        let left = self.left().div_ceil(u64::from(limits::QUEUE_BATCH));
        self.next_of(left.clamp(1, PAGES_AT_ONCE)).await
    }

    async fn next_of(&mut self, pages: u64) -> Result<Option<WalkPage>, StoreError> {
        loop {
            let came_around = self.again > 0 && self.left() == 0;
            if came_around || self.again > self.most / u64::from(limits::QUEUE_BATCH) {
                return Ok(None);
            }
            let get = |_| {
                self.queue
                    .queues
                    .get(&self.queue.poison, limits::QUEUE_BATCH, self.hidden)
            };
            let (mut messages, mut failed) = (Vec::new(), None);
            for page in join_all((0..pages).map(get)).await {
                match page {
                    Ok(page) => messages.extend(page),
                    Err(error) if is_absent(&error) => self.most = 0,
                    Err(error) => failed = Some(error),
                }
            }
            // If some of the requests failed, the messages of the successful requests are returned,
            // so that the caller can show them again. If the failure persists, the next call
            // reports it.
            if let Some(error) = failed.filter(|_| messages.is_empty()) {
                return Err(error);
            }
            if !messages.is_empty() {
                let before = self.seen.len();
                self.seen
                    .extend(messages.iter().map(|message| hashed(&message.id)));
                let is_new = self.seen.len() > before;
                self.again += u64::from(!is_new);
                return Ok(Some(WalkPage { messages, is_new }));
            }
            if !self.wait().await {
                return Ok(None);
            }
        }
    }

    /// Waits a moment for messages that a listing hides. Returns `false` if there is nothing to
    /// wait for.
    async fn wait(&mut self) -> bool {
        let remaining_wait = self.remaining_wait.unwrap_or_else(|| match self.left() {
            left if may_be_hidden_by_listing(left) => PagePurpose::Reading.hidden(self.most),
            _ => Duration::ZERO,
        });
        self.remaining_wait = Some(remaining_wait.saturating_sub(PAUSE));
        if self.left() == 0 || remaining_wait.is_zero() {
            return false;
        }
        tokio::select! {
            () = sleep(PAUSE) => true,
            () = self.queue.stop.cancelled() => false,
        }
    }

    pub(super) fn seen(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Whether there may be more messages to read. The walk ends after as many messages as the
    /// queue had when the walk began, and one more page. Otherwise the walk over a growing queue
    /// would never end.
    pub(super) fn may_have_more(&self) -> bool {
        self.seen() < self.most.saturating_add(u64::from(limits::QUEUE_BATCH))
    }

    pub(super) fn left(&self) -> u64 {
        self.most.saturating_sub(self.seen())
    }
}

pub(super) fn hashed(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

fn is_absent(error: &StoreError) -> bool {
    error.class == ErrorClass::NotFound(Missing::Container)
}
