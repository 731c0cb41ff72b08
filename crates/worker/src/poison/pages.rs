//! The pages of a walk over a poison queue. Each message is hidden for a while; the walker shows again those that it leaves.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use futures::future::join_all;
use tokio::time::sleep;

use super::PoisonQueue;
use evenkeel_model::limits;
use evenkeel_storage::{ErrorClass, Message, Missing, StoreError};

/// How long messages stay hidden at least while the queue is worked through.
const HIDDEN: Duration = Duration::from_secs(30);
/// How much longer for each message in the queue: a page of 32 takes a second at most.
const HIDDEN_MORE: Duration = Duration::from_millis(30);
/// How long they stay hidden at most.
const HIDDEN_MOST: Duration = Duration::from_mins(2);
/// How long messages stay hidden at least while they are only read.
const READ: Duration = Duration::from_secs(5);
/// How much longer for each message in the queue: pages are got several at once.
const READ_MORE: Duration = Duration::from_millis(2);
/// Pages that are got at once.
const PAGES_AT_ONCE: u64 = 8;
/// Pause before a queue is asked again whose messages are hidden.
const PAUSE: Duration = Duration::from_secs(1);

/// Most messages that a listing shows again one by one.
pub(super) const SHOWN_AGAIN: u64 = 320;

/// Whether a listing may have hidden so many messages, to reappear within seconds.
pub(super) const fn may_be_hidden_by_listing(hidden: u64) -> bool {
    hidden > SHOWN_AGAIN
}

/// What messages are got for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PagePurpose {
    /// To be listed.
    Reading,
    /// To be requeued or deleted.
    Handling,
}

impl PagePurpose {
    /// How long messages stay hidden while a queue of so many is worked through.
    fn hidden(self, messages: u64) -> Duration {
        let (least, more) = match self {
            Self::Reading => (READ, READ_MORE),
            Self::Handling => (HIDDEN, HIDDEN_MORE),
        };
        let more = more.saturating_mul(u32::try_from(messages).unwrap_or(u32::MAX));
        // Queues count in whole seconds.
        Duration::from_secs(least.saturating_add(more).min(HIDDEN_MOST).as_secs())
    }
}

/// A walk over a poison queue, page by page. Takes eight bytes or so for each message.
pub(super) struct PoisonPages<'q> {
    queue: &'q PoisonQueue,
    /// About how many messages the queue had when the walk began; none once the queue is gone.
    pub(super) most: u64,
    /// How long a message stays hidden.
    pub(super) hidden: Duration,
    /// The messages met so far, by a hash of their ids.
    seen: BTreeSet<u64>,
    /// Pages without a new message: where the walk takes longer than messages are hidden, they come around again.
    again: u64,
    /// How much longer to wait for messages that a listing has hidden. `None` before the first wait.
    patience: Option<Duration>,
}

/// One page of a walk.
pub(super) struct WalkPage {
    pub(super) messages: Vec<Message>,
    /// Whether any of them was not met before.
    pub(super) is_new: bool,
}

impl<'q> PoisonPages<'q> {
    /// Begins a walk. `None` where there is no queue.
    pub(super) async fn of(queue: &'q PoisonQueue) -> Result<Option<Self>, StoreError> {
        let most = match queue.queues.approximate_count(&queue.poison).await {
            Err(error) if is_absent(&error) => return Ok(None),
            count => count?,
        };
        Ok(Some(Self::expecting(queue, most, PagePurpose::Handling)))
    }

    /// Begins a walk over a queue of about so many messages.
    pub(super) fn expecting(queue: &'q PoisonQueue, most: u64, purpose: PagePurpose) -> Self {
        Self {
            queue,
            most,
            hidden: purpose.hidden(most),
            seen: BTreeSet::new(),
            again: 0,
            patience: None,
        }
    }

    /// The next page. `None` at the end: nothing is left to be got, or all of it comes around for ever.
    pub(super) async fn next_page(&mut self) -> Result<Option<WalkPage>, StoreError> {
        self.next_of(1).await
    }

    /// The next pages, as one: several are got at once, as many as the queue may still have.
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
            // Messages that came beside a failure are the caller's to show again: the failure comes again, or it has passed.
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

    /// Waits a moment for messages that a listing has hidden. `false` where there is nothing to wait for.
    async fn wait(&mut self) -> bool {
        let patience = self.patience.unwrap_or_else(|| match self.left() {
            left if may_be_hidden_by_listing(left) => PagePurpose::Reading.hidden(self.most),
            _ => Duration::ZERO,
        });
        self.patience = Some(patience.saturating_sub(PAUSE));
        if self.left() == 0 || patience.is_zero() {
            return false;
        }
        tokio::select! {
            () = sleep(PAUSE) => true,
            () = self.queue.stop.cancelled() => false,
        }
    }

    /// How many messages were met.
    pub(super) fn seen(&self) -> u64 {
        self.seen.len() as u64
    }

    /// Whether there may be more of the messages that the queue had: one that is filled meanwhile must not make the walk endless.
    pub(super) fn may_have_more(&self) -> bool {
        self.seen() < self.most.saturating_add(u64::from(limits::QUEUE_BATCH))
    }

    /// About how many messages were not met.
    pub(super) fn left(&self) -> u64 {
        self.most.saturating_sub(self.seen())
    }
}

/// A hash of a message's id.
pub(super) fn hashed(id: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}

fn is_absent(error: &StoreError) -> bool {
    error.class == ErrorClass::NotFound(Missing::Container)
}
