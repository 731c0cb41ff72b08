//! Lists a poison queue.
//!
//! A peek returns the first 32 messages without hiding them, which is enough for a short queue. The
//! messages of a longer queue are received, several pages at once, and hidden for about as long as
//! the whole listing may take. At the end, even if the listing is interrupted, the messages are
//! shown again one by one. If there are more than some hundreds, they are not shown again, because
//! they reappear sooner by themselves. Other commands wait for messages that a listing hides.

use std::collections::BTreeMap;

use super::pages::{PagePurpose, PoisonPages, SHOWN_AGAIN, may_be_hidden_by_listing};
use super::queue::PoisonCopies;
use super::{PoisonEntry, PoisonFilter, PoisonQueue, Reason};
use evenkeel_model::limits;
use evenkeel_storage::{Message, StoreError};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoisonListing {
    /// The selected messages, oldest first, with the copies of one original grouped.
    pub entries: Vec<PoisonEntry>,
    /// Approximate number of messages that were not seen because another command or operator holds
    /// them.
    pub hidden: u64,
    pub interrupted: bool,
}

impl PoisonQueue {
    /// Lists the selected messages. A queue of up to 32 messages is not changed by this.
    pub async fn list(&self, filter: &PoisonFilter) -> Result<PoisonListing, StoreError> {
        let (front, total) = self.peek(filter.reason).await?;
        let seen = copies(&front);
        let hidden = total.saturating_sub(seen);
        // The peek has shown all visible messages. If another command hides further messages,
        // receiving would not show them either.
        if hidden == 0
            || (seen < u64::from(limits::QUEUE_BATCH) && !may_be_hidden_by_listing(hidden))
        {
            return Ok(PoisonListing {
                entries: meant(front, filter),
                hidden,
                interrupted: false,
            });
        }
        let (held, interrupted) = self.hold_all(total, filter.reason).await?;
        self.show_few_again(held.iter().flat_map(|held| &held.copies))
            .await;
        let entries: Vec<PoisonEntry> = held.into_iter().map(|held| held.entry).collect();
        let hidden = if interrupted {
            0
        } else {
            total.saturating_sub(copies(&entries))
        };
        Ok(PoisonListing {
            entries: meant(entries, filter),
            hidden,
            interrupted,
        })
    }

    /// Receives all messages. Returns whether the listing was interrupted. After a failure, the
    /// received messages are shown again.
    async fn hold_all(
        &self,
        total: u64,
        meant: Option<Reason>,
    ) -> Result<(Vec<PoisonCopies>, bool), StoreError> {
        let mut got: BTreeMap<String, Message> = BTreeMap::new();
        let mut pages = PoisonPages::expecting(self, total, PagePurpose::Reading);
        while pages.may_have_more() {
            if self.stop.is_cancelled() {
                return Ok((self.group_copies(got.into_values(), meant), true));
            }
            match pages.next_pages().await {
                // If a message is received again, its new receipt replaces the old one.
                Ok(Some(page)) => got.extend(
                    page.messages
                        .into_iter()
                        .map(|message| (message.id.clone(), message)),
                ),
                Ok(None) => break,
                Err(error) => {
                    self.show_few_again(got.values()).await;
                    return Err(error);
                }
            }
        }
        Ok((self.group_copies(got.into_values(), meant), false))
    }

    /// Shows messages again one by one, unless there are so many that they reappear sooner by
    /// themselves.
    async fn show_few_again<'a>(&self, messages: impl Iterator<Item = &'a Message>) {
        let messages: Vec<&Message> = messages.collect();
        if messages.len() as u64 <= SHOWN_AGAIN {
            self.show_again(messages.into_iter()).await;
        }
    }
}

fn copies(entries: &[PoisonEntry]) -> u64 {
    entries.iter().map(|entry| entry.ids.len() as u64).sum()
}

fn meant(entries: Vec<PoisonEntry>, filter: &PoisonFilter) -> Vec<PoisonEntry> {
    entries
        .into_iter()
        .filter(|entry| filter.matches(entry))
        .collect()
}
