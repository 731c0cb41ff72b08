//! Discarding the messages about erased primaries.

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

/// Memory of the messages that are held to be shown again at once: some thousands of the usual length.
const MOST_OTHERS: u64 = 32 * 1024 * 1024;
/// Memory of one beside its text: its id, its receipt, its place.
const MESSAGE: u64 = 512;

/// Messages discarded from a poison queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ErasureDiscards {
    /// Messages, with their bodies in blobs.
    pub messages: u64,
    /// Blobs that they had staged.
    pub staged: u64,
    /// About how many messages were not seen, which are held by another command at the moment.
    pub hidden: u64,
    /// Messages that were left, and have something of an erased primary in them, or may have.
    pub left: RemainingMessages,
}

/// Messages that an erasure leaves on a poison queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct RemainingMessages {
    /// About an erased primary, and about others too.
    pub about_many: u64,
    /// Nobody can tell whether they are about it.
    pub unclear: u64,
    /// About others, with its key in their errors.
    pub in_errors: u64,
}

impl RemainingMessages {
    /// How many there are.
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

/// What a walk over the poison queue of an account looks for.
struct PoisonSearch<'s> {
    account: &'s AccountName,
    targets: &'s ErasureTargets<'s>,
}

/// A walk for discards, so far.
#[derive(Default)]
struct DiscardWalk {
    done: ErasureDiscards,
    /// Messages that are meant and could not be deleted.
    failed: u64,
    /// Those to show again at the end, with their last receipts.
    others: BTreeMap<String, Message>,
    /// Their memory.
    held: u64,
    /// All that stay, by a hash of their ids.
    seen: BTreeSet<u64>,
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
    /// Discards the messages about erased primaries alone, and the blobs that they had staged. A message about others too stays.
    ///
    /// Takes bounded memory, and eight bytes or so for each message of the queue: if those that stay have no room, they show
    /// again after two minutes at most.
    ///
    /// Discards before a failure are told as well.
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

    /// Discards those of a page that are about erased primaries.
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
                // No body of a worker's: nothing that large was ever a message.
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
                // A page may come around again.
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
                    tracing::warn!(queue = %self.poison, problem, "poison message about an erased entity: it could not be discarded");
                    walk.failed += 1;
                }
            }
        }
        Ok(())
    }

    /// Deletes the staged blobs of a job: how many, and whether none is left that may be one of them. The job has not run, so its hashes say
    /// which those are.
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
