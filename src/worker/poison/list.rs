//! Listing a poison queue.
//!
//! A service shows the first 32 messages without hiding them, and that is how a short queue is read. A longer one is got page by
//! page, each message hidden for as short a time as the whole may take, and shown again at the end: an end that comes early, too.
//! After a crash all reappear when their visibility timeout ends.

use std::collections::BTreeMap;

use super::pages::PoisonPages;
use super::queue::PoisonCopies;
use super::{PoisonEntry, PoisonFilter, PoisonQueue, Reason};
use crate::model::limits;
use crate::ports::{Message, StoreError};

/// Contents of a poison queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoisonListing {
    /// The messages that are meant, oldest first, each original once.
    pub entries: Vec<PoisonEntry>,
    /// About how many messages were not seen, since they are hidden at the moment: another command or operator holds them.
    pub hidden: u64,
    /// The listing was ended early: there are more.
    pub interrupted: bool,
}

impl PoisonQueue {
    /// The poisoned messages that are meant. A queue of up to 32 messages is left untouched.
    pub async fn list(&self, filter: &PoisonFilter) -> Result<PoisonListing, StoreError> {
        let (front, total) = self.peek(filter.reason).await?;
        let seen = copies(&front);
        // Fewer than could be shown: the missing ones are hidden, and holding the others would not bring them back.
        if seen < u64::from(limits::QUEUE_BATCH) || total <= seen {
            return Ok(PoisonListing { entries: meant(front, filter), hidden: total.saturating_sub(seen), interrupted: false });
        }
        let (held, interrupted) = self.hold_all(total, filter.reason).await?;
        self.show_again(held.iter().flat_map(|held| &held.copies)).await;
        let entries: Vec<PoisonEntry> = held.into_iter().map(|held| held.entry).collect();
        let hidden = if interrupted { 0 } else { total.saturating_sub(copies(&entries)) };
        Ok(PoisonListing { entries: meant(entries, filter), hidden, interrupted })
    }

    /// Gets all messages, and says whether that was ended early; on a failure those got are shown again.
    async fn hold_all(&self, total: u64, meant: Option<Reason>) -> Result<(Vec<PoisonCopies>, bool), StoreError> {
        let mut got: BTreeMap<String, Message> = BTreeMap::new();
        let mut pages = PoisonPages::expecting(self, total);
        while pages.may_have_more() {
            if self.stop.is_cancelled() {
                return Ok((self.gather(got.into_values(), meant), true));
            }
            match pages.next_page().await {
                // One that came again replaces its older receipt.
                Ok(Some(page)) => got.extend(page.messages.into_iter().map(|message| (message.id.clone(), message))),
                Ok(None) => break,
                Err(error) => {
                    self.show_again(got.values()).await;
                    return Err(error);
                }
            }
        }
        Ok((self.gather(got.into_values(), meant), false))
    }
}

fn copies(entries: &[PoisonEntry]) -> u64 {
    entries.iter().map(|entry| entry.ids.len() as u64).sum()
}

fn meant(entries: Vec<PoisonEntry>, filter: &PoisonFilter) -> Vec<PoisonEntry> {
    entries.into_iter().filter(|entry| filter.matches(entry)).collect()
}
