//! Discarding the messages about one primary.

use std::collections::BTreeMap;

use super::pages::PoisonPages;
use super::{PoisonMessage, PoisonQueue};
use crate::model::job::{StagedBlob, decode_kept};
use crate::model::large::STAGING;
use crate::model::{ContainerName, Job};
use crate::ports::{ErrorClass, Message, StoreError};
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
    /// Messages that are meant and could not be deleted.
    failed: u64,
    /// Those to show again at the end, with their last receipts.
    others: BTreeMap<String, Message>,
    /// Their memory.
    held: u64,
}

impl DiscardWalk {
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
        let mut pages = match PoisonPages::of(self).await {
            Ok(Some(pages)) => pages,
            Ok(None) => return (Discarded::default(), Ok(())),
            Err(error) => return (Discarded::default(), Err(error)),
        };
        let mut walk = DiscardWalk::default();
        let ended = self.discard_pages(&mut pages, &is_meant, &mut walk).await;
        self.show_again(walk.others.values()).await;
        (Discarded { hidden: pages.left() + walk.failed, ..walk.done }, ended)
    }

    async fn discard_pages(
        &self,
        pages: &mut PoisonPages<'_>,
        is_meant: impl Fn(&Job) -> bool,
        walk: &mut DiscardWalk,
    ) -> Result<(), StoreError> {
        while pages.left() + walk.failed > 0 && !self.stop.is_cancelled() {
            let Some(page) = pages.next_page().await? else { break };
            self.discard_of(page.messages, &is_meant, walk).await?;
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
                    walk.failed += 1;
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
