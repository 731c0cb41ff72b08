//! Discarding the messages about one primary.

use super::list::hidden_for;
use super::{PoisonMessage, PoisonQueue};
use crate::model::job::{StagedBlob, decode};
use crate::model::large::STAGING;
use crate::model::{ContainerName, Job, limits};
use crate::ports::{ErrorClass, Message, Missing, StoreError};

/// Most messages held to be shown again at once, of 64 KiB each.
const MOST_OTHERS: usize = 128;

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

impl PoisonQueue {
    /// Discards the messages with a single job that is meant, and its staged blobs. A message about many primaries stays: it is about
    /// others too.
    ///
    /// Takes bounded memory, however long the queue is: messages beyond the first that are not meant show again after two minutes at most.
    pub async fn discard_about(&self, is_meant: impl Fn(&Job) -> bool) -> Result<Discarded, StoreError> {
        let most = match self.queues.approximate_count(&self.poison).await {
            Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => return Ok(Discarded::default()),
            count => count?,
        };
        let (mut done, mut others) = (Discarded { hidden: most, ..Discarded::default() }, Vec::new());
        let mut ended = Ok(());
        while done.hidden > 0 && ended.is_ok() {
            match self.queues.get(&self.poison, limits::QUEUE_BATCH, hidden_for(most)).await {
                Ok(page) if page.is_empty() => break,
                Ok(page) => {
                    done.hidden = done.hidden.saturating_sub(page.len() as u64);
                    ended = self.discard_of(page, &is_meant, &mut done, &mut others).await;
                }
                Err(error) => ended = Err(error),
            }
        }
        self.show_again(others.iter()).await;
        ended.map(|()| done)
    }

    /// Discards those of a page that are meant.
    async fn discard_of(
        &self,
        page: Vec<Message>,
        is_meant: impl Fn(&Job) -> bool,
        done: &mut Discarded,
        others: &mut Vec<Message>,
    ) -> Result<(), StoreError> {
        for held in self.gather(page.into_iter(), None) {
            let Some(job) = self.job_of(&held.entry.message).await?.filter(|job| is_meant(job)) else {
                let room = MOST_OTHERS.saturating_sub(others.len());
                others.extend(held.copies.into_iter().take(room));
                continue;
            };
            done.staged += self.unstage(&job).await?;
            match self.delete_copies(&held).await {
                Ok(()) => done.messages += held.copies.len() as u64,
                Err(problem) => {
                    tracing::warn!(queue = %self.poison, problem, "poison message about an erased entity: it could not be discarded");
                    done.hidden += 1;
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
        Ok(body.and_then(|body| decode(&body).ok()).map(|envelope| envelope.job))
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
