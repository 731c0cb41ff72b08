//! Discarding the messages about one primary.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::list::hidden_for;
use super::{PoisonMessage, PoisonQueue};
use crate::model::job::{StagedBlob, decode_kept};
use crate::model::large::STAGING;
use crate::model::{ContainerName, Job, limits};
use crate::ports::{ErrorClass, Message, Missing, StoreError};
use crate::worker::weight;

/// Memory of the messages that are held to be shown again at once: some thousands of the usual length.
const MOST_OTHERS: u64 = 32 * 1024 * 1024;
/// Memory of one beside its text: its id, its receipt, its place.
const MESSAGE: u64 = 512;

/// Messages discarded from a poison queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Discarded {
    /// Messages, with their bodies in blobs.
    pub messages: u64,
    /// Blobs that they had staged.
    pub staged: u64,
    /// About how many messages were not seen, which are held by another command at the moment.
    pub hidden: u64,
}

/// A walk for discards, so far.
#[derive(Default)]
struct DiscardWalk {
    done: Discarded,
    /// The messages met so far, by a hash of their ids: one that its visibility timeout brings back counts once.
    met: BTreeSet<u64>,
    /// Those to show again at the end, with their last receipts.
    others: BTreeMap<String, Message>,
    /// Their memory.
    held: u64,
}

impl DiscardWalk {
    /// Takes in a page. Whether any of it is new.
    fn meet(&mut self, page: &[Message]) -> bool {
        let before = self.met.len();
        self.met.extend(page.iter().map(|message| {
            let mut hasher = DefaultHasher::new();
            message.id.hash(&mut hasher);
            hasher.finish()
        }));
        let new = self.met.len() - before;
        self.done.hidden = self.done.hidden.saturating_sub(new as u64);
        new > 0
    }

    /// Keeps a message to show it again, where there is room.
    fn keep(&mut self, message: Message) {
        let weight = MESSAGE + weight::received(&message);
        if self.others.contains_key(&message.id) {
            self.others.insert(message.id.clone(), message);
        } else if self.held + weight <= MOST_OTHERS {
            self.held += weight;
            self.others.insert(message.id.clone(), message);
        }
    }
}

impl PoisonQueue {
    /// Discards the messages with a single job that is meant, and its staged blobs. A message about many primaries stays: it is about
    /// others too.
    ///
    /// Takes bounded memory, and eight bytes or so for each message of the queue: where those that are not meant have no room, they show
    /// again after two minutes at most.
    ///
    /// Discards before a failure are told as well.
    pub async fn discard_about(&self, is_meant: impl Fn(&Job) -> bool) -> (Discarded, Result<(), StoreError>) {
        let most = match self.queues.approximate_count(&self.poison).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => return (Discarded::default(), Ok(())),
            Err(error) => return (Discarded::default(), Err(error)),
            Ok(count) => count,
        };
        let mut walk = DiscardWalk { done: Discarded { hidden: most, ..Discarded::default() }, ..DiscardWalk::default() };
        let ended = self.discard_pages(most, &is_meant, &mut walk).await;
        self.show_again(walk.others.values()).await;
        (walk.done, ended)
    }

    async fn discard_pages(&self, most: u64, is_meant: impl Fn(&Job) -> bool, walk: &mut DiscardWalk) -> Result<(), StoreError> {
        // Where the walk takes longer than messages are hidden, they come around again.
        let mut again = 0;
        while walk.done.hidden > 0 && !self.stop.is_cancelled() && again <= most / u64::from(limits::QUEUE_BATCH) {
            let page = self.queues.get(&self.poison, limits::QUEUE_BATCH, hidden_for(most)).await?;
            if page.is_empty() {
                break;
            }
            again += u64::from(!walk.meet(&page));
            self.discard_of(page, &is_meant, walk).await?;
        }
        Ok(())
    }

    /// Discards those of a page that are meant.
    async fn discard_of(&self, page: Vec<Message>, is_meant: impl Fn(&Job) -> bool, walk: &mut DiscardWalk) -> Result<(), StoreError> {
        for held in self.gather(page.into_iter(), None) {
            let Some(job) = self.job_of(&held.entry.message).await?.filter(|job| is_meant(job)) else {
                held.copies.into_iter().for_each(|copy| walk.keep(copy));
                continue;
            };
            walk.done.staged += self.unstage(&job).await?;
            match self.delete_copies(&held).await {
                Ok(()) => walk.done.messages += held.copies.len() as u64,
                Err(problem) => {
                    tracing::warn!(queue = %self.poison, problem, "poison message about an erased entity: it could not be discarded");
                    walk.done.hidden += 1;
                }
            }
        }
        Ok(())
    }

    /// The single job of a poisoned message.
    async fn job_of(&self, message: &PoisonMessage) -> Result<Option<Job>, StoreError> {
        let body = match self.body(message).await {
            // No body of a worker's: nothing that large was ever a message.
            Err(error) if error.class == ErrorClass::TooLarge => None,
            body => body?,
        };
        Ok(body.and_then(|body| decode_kept(&body).ok()).map(|envelope| envelope.job))
    }

    /// Deletes the staged blobs of a job; how many there were.
    async fn unstage(&self, job: &Job) -> Result<u64, StoreError> {
        let Ok(container) = ContainerName::new(STAGING) else { return Ok(0) };
        let mut deleted = 0;
        for StagedBlob { name, .. } in job.staged() {
            match self.blobs.delete(&container, name, None).await {
                Err(error) if matches!(error.class, ErrorClass::NotFound(_)) => {}
                gone => deleted += u64::from(gone?),
            }
        }
        Ok(deleted)
    }
}
