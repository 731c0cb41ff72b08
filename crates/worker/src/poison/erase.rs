//! Discards the poison messages about erased primaries.

use std::collections::{BTreeMap, BTreeSet};

use super::PoisonQueue;
use super::pages::{PoisonPages, hashed};
use super::relevance::{ErasureTargets, Relevance};
use crate::weight;
use evenkeel_engine::{Unstaged, unstage};
use evenkeel_model::job::StagedBlob;
use evenkeel_model::large::STAGING;
use evenkeel_model::{AccountName, ContainerName};
use evenkeel_storage::{ErrorClass, Message, StoreError};

/// Memory for the messages that are shown again at the end. Some thousands of messages of usual
/// length fit.
const MAX_KEPT_BYTES: u64 = 32 * 1024 * 1024;
/// Memory of a message besides its text: the id, the receipt and the map entry.
const MESSAGE_OVERHEAD: u64 = 512;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErasureDiscards {
    /// Discarded messages. Bodies in blobs are deleted with their messages.
    pub messages: u64,
    /// Deleted blobs that were staged for the jobs of these messages.
    pub staged: u64,
    /// Approximate number of messages that were not seen because another command hides them.
    pub hidden: u64,
    /// Messages that were kept although they contain, or may contain, data of an erased primary.
    pub left: RemainingMessages,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RemainingMessages {
    /// Messages that are about an erased primary and also about other primaries.
    pub about_many: u64,
    /// Messages for which it cannot be determined whether they are about an erased primary.
    pub unclear: u64,
    /// Messages that are about other primaries, but whose error contains a key of an erased
    /// primary.
    pub in_errors: u64,
}

impl RemainingMessages {
    pub const fn total(self) -> u64 {
        self.about_many + self.unclear + self.in_errors
    }
}

impl std::ops::AddAssign for RemainingMessages {
    fn add_assign(
        &mut self,
        Self {
            about_many,
            unclear,
            in_errors,
        }: Self,
    ) {
        self.about_many += about_many;
        self.unclear += unclear;
        self.in_errors += in_errors;
    }
}

struct PoisonSearch<'s> {
    account: &'s AccountName,
    targets: &'s ErasureTargets<'s>,
}

#[derive(Default)]
struct DiscardWalk {
    done: ErasureDiscards,
    /// Number of messages that had to be discarded but could not be deleted.
    failed: u64,
    /// Messages to show again at the end, with their latest receipts.
    others: BTreeMap<String, Message>,
    held: u64,
    /// Hashes of the ids of all messages that are kept.
    seen: BTreeSet<u64>,
}

impl DiscardWalk {
    /// Keeps a message so that it can be shown again, if it fits into [`MAX_KEPT_BYTES`].
    fn keep(&mut self, message: Message) {
        let weight = MESSAGE_OVERHEAD + weight::received(&message);
        if self.others.contains_key(&message.id) {
            self.others.insert(message.id.clone(), message);
        } else if self.held + weight <= MAX_KEPT_BYTES {
            self.held += weight;
            self.others.insert(message.id.clone(), message);
        }
    }
}

impl PoisonQueue {
    /// Discards the messages that are only about erased primaries, and the blobs that were staged
    /// for their jobs. A message that is also about other primaries stays.
    ///
    /// The messages that stay are shown again at the end, if they fit into [`MAX_KEPT_BYTES`]. All
    /// others reappear by themselves after at most two minutes. The walk takes some eight more
    /// bytes of memory for each message of the queue.
    ///
    /// The result includes the messages that were discarded before a failure.
    pub(crate) async fn discard_about(
        &self,
        account: &AccountName,
        targets: &ErasureTargets<'_>,
    ) -> (ErasureDiscards, Result<(), StoreError>) {
        let mut pages = match PoisonPages::of(self).await {
            Ok(Some(pages)) => pages,
            Ok(None) => return (ErasureDiscards::default(), Ok(())),
            Err(error) => return (ErasureDiscards::default(), Err(error)),
        };
        let mut walk = DiscardWalk::default();
        let ended = self
            .discard_pages(&mut pages, &PoisonSearch { account, targets }, &mut walk)
            .await;
        self.show_again(walk.others.values()).await;
        (
            ErasureDiscards {
                hidden: pages.left() + walk.failed,
                ..walk.done
            },
            ended,
        )
    }

    async fn discard_pages(
        &self,
        pages: &mut PoisonPages<'_>,
        search: &PoisonSearch<'_>,
        walk: &mut DiscardWalk,
    ) -> Result<(), StoreError> {
        while pages.left() + walk.failed > 0 && !self.stop.is_cancelled() {
            let Some(page) = pages.next_page().await? else {
                break;
            };
            self.discard_of(page.messages, search, walk).await?;
        }
        Ok(())
    }

    async fn discard_of(
        &self,
        page: Vec<Message>,
        search: &PoisonSearch<'_>,
        walk: &mut DiscardWalk,
    ) -> Result<(), StoreError> {
        let PoisonSearch { account, targets } = search;
        for held in self.group_copies(page.into_iter(), None) {
            let message = &held.entry.message;
            let relevance = match self.body(message).await {
                // The body is larger than any job message, so no worker wrote it.
                Err(error) if error.class == ErrorClass::TooLarge => Relevance::Unclear,
                body => body?.map_or(Relevance::Other, |body| {
                    targets.relevance(&body, message.first_enqueued, account, &self.recheck)
                }),
            };
            let relevance = if let Relevance::About(staged) = &relevance {
                let (deleted, all) = self.unstage(staged).await?;
                walk.done.staged += deleted;
                if all { relevance } else { Relevance::Unclear }
            } else {
                relevance
            };
            if !matches!(relevance, Relevance::About(_)) {
                // The same message may be received a second time, but must be counted once.
                if held
                    .copies
                    .iter()
                    .filter(|copy| walk.seen.insert(hashed(&copy.id)))
                    .count()
                    == held.copies.len()
                {
                    match relevance {
                        Relevance::Several => walk.done.left.about_many += 1,
                        Relevance::Unclear => walk.done.left.unclear += 1,
                        _ => {
                            walk.done.left.in_errors +=
                                u64::from(targets.is_named_in(&message.error));
                        }
                    }
                }
                held.copies.into_iter().for_each(|copy| walk.keep(copy));
                continue;
            }
            match self.delete_copies(&held).await {
                Ok(()) => walk.done.messages += held.copies.len() as u64,
                Err(problem) => {
                    tracing::warn!(queue = %self.poison, problem, "could not discard poison message {} about an erased entity", message.message_id);
                    walk.failed += 1;
                }
            }
        }
        Ok(())
    }

    /// Deletes the staged blobs of a job. Returns how many were deleted, and whether no blob
    /// remains that may belong to the job. The job has not run, so no ETags of its blobs are known.
    /// A blob is therefore deleted only if its content has the hash in the message.
    async fn unstage(&self, staged: &[StagedBlob]) -> Result<(u64, bool), StoreError> {
        let Ok(container) = ContainerName::new(STAGING) else {
            return Ok((0, true));
        };
        let (mut deleted, mut all) = (0, true);
        for blob in staged {
            match unstage(self.blobs.as_ref(), &container, blob, None).await? {
                Unstaged::Deleted => deleted += 1,
                Unstaged::Gone => {}
                Unstaged::Kept => all = false,
            }
        }
        Ok((deleted, all))
    }
}
