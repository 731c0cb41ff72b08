//! The pages of a walk over a poison queue. Each message is hidden for a while; the walker shows again those that it leaves.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use super::PoisonQueue;
use crate::model::limits;
use crate::ports::{ErrorClass, Message, Missing, StoreError};

/// How long messages stay hidden at least while the queue is worked through.
const HIDDEN: Duration = Duration::from_secs(30);
/// How much longer for each message in the queue: a page of 32 takes a second at most.
const HIDDEN_MORE: Duration = Duration::from_millis(30);
/// How long they stay hidden at most.
const HIDDEN_MOST: Duration = Duration::from_mins(2);

/// How long messages stay hidden while a queue of so many is worked through.
fn hidden_for(messages: u64) -> Duration {
    let more = HIDDEN_MORE.saturating_mul(u32::try_from(messages).unwrap_or(u32::MAX));
    // Queues count in whole seconds.
    Duration::from_secs(HIDDEN.saturating_add(more).min(HIDDEN_MOST).as_secs())
}

/// A walk over a poison queue, page by page. Takes eight bytes or so for each message.
pub(super) struct PoisonPages<'q> {
    queue: &'q PoisonQueue,
    /// About how many messages the queue had when the walk began; none once the queue is gone.
    pub(super) most: u64,
    /// How long a message stays hidden.
    pub(super) hidden: Duration,
    /// The messages met so far, by a hash of their ids.
    met: BTreeSet<u64>,
    /// Pages without a new message: where the walk takes longer than messages are hidden, they come around again.
    again: u64,
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
        Ok(Some(Self::expecting(queue, most)))
    }

    /// Begins a walk over a queue of about so many messages.
    pub(super) fn expecting(queue: &'q PoisonQueue, most: u64) -> Self {
        Self { queue, most, hidden: hidden_for(most), met: BTreeSet::new(), again: 0 }
    }

    /// The next page. `None` at the end: nothing is left to be got, or all of it comes around for ever.
    pub(super) async fn next_page(&mut self) -> Result<Option<WalkPage>, StoreError> {
        if self.again > self.most / u64::from(limits::QUEUE_BATCH) {
            return Ok(None);
        }
        let messages = match self.queue.queues.get(&self.queue.poison, limits::QUEUE_BATCH, self.hidden).await {
            Err(error) if is_absent(&error) => {
                self.most = 0;
                return Ok(None);
            }
            page => page?,
        };
        if messages.is_empty() {
            return Ok(None);
        }
        let before = self.met.len();
        self.met.extend(messages.iter().map(|message| hashed(&message.id)));
        let is_new = self.met.len() > before;
        self.again += u64::from(!is_new);
        Ok(Some(WalkPage { messages, is_new }))
    }

    /// How many messages were met.
    pub(super) fn met(&self) -> u64 {
        self.met.len() as u64
    }

    /// Whether there may be more of the messages that the queue had: one that is filled meanwhile must not make the walk endless.
    pub(super) fn may_have_more(&self) -> bool {
        self.met() < self.most.saturating_add(u64::from(limits::QUEUE_BATCH))
    }

    /// About how many messages were not met.
    pub(super) fn left(&self) -> u64 {
        self.most.saturating_sub(self.met())
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
