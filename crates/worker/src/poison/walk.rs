//! Walks over a poison queue page by page. Selected messages are handled at once; all others stay
//! hidden until the walk ends.
//!
//! A page has 32 messages. Those that are not selected are kept in memory until the walk ends. If
//! the filter has ids, the walk ends once all of them were found, so selecting messages from the
//! front of a long queue takes a page or two. A crash may have left a second copy of a selected
//! message further back. That copy stays on the queue.

use std::collections::{BTreeMap, BTreeSet};

use futures::{StreamExt as _, stream};
use jiff::Timestamp;

use super::pages::{PoisonPages, WalkPage};
use super::queue::{self, PARALLEL, PoisonCopies};
use super::{HandledMessages, PoisonFilter, PoisonQueue};
use evenkeel_model::cause;
use evenkeel_storage::{Message, StoreError};

#[derive(Clone, Copy)]
pub(super) enum WalkAction {
    Requeue,
    Discard,
}

#[derive(Default)]
struct PoisonWalk {
    /// When the first page was received, by the queue's clock. Messages that were put later are not
    /// selected. If the cause of a requeued job is not fixed, the job is poisoned again within a
    /// moment, and a walk that handled it again would never end.
    began: Option<Timestamp>,
    /// Originals that were handled, with their index in `handled`. If a copy is found on a later
    /// page, it is only deleted.
    done: BTreeMap<String, usize>,
    /// Originals for which a step failed. Their copies are not touched.
    failed: BTreeSet<String>,
    /// Messages to show again at the end.
    hidden: BTreeMap<String, Message>,
    /// Messages that were put after the walk began.
    later: BTreeSet<String>,
    /// Matching messages that were put after `PoisonFilter::until`.
    since: BTreeSet<String>,
    handled: HandledMessages,
}

impl PoisonQueue {
    pub(super) async fn handle(
        &self,
        filter: &PoisonFilter,
        action: WalkAction,
    ) -> Result<HandledMessages, StoreError> {
        let mut walk = PoisonWalk::default();
        let ended = self.walk(filter, action, &mut walk).await;
        self.show_again(walk.hidden.values()).await;
        walk.handled.since = walk.since.len() as u64;
        match ended {
            Ok(()) => Ok(walk.handled),
            // Completed actions are not undone, and failed actions may be half done, so both must
            // be reported.
            Err(error) if walk.handled.is_begun() => Ok(HandledMessages {
                cut_short: Some(cause::chain(&error)),
                ..walk.handled
            }),
            Err(error) => Err(error),
        }
    }

    async fn walk(
        &self,
        filter: &PoisonFilter,
        action: WalkAction,
        walk: &mut PoisonWalk,
    ) -> Result<(), StoreError> {
        let Some(mut pages) = PoisonPages::of(self).await? else {
            return Ok(());
        };
        while pages.may_have_more() {
            if self.stop.is_cancelled() {
                walk.handled.cut_short = Some("the command was interrupted".to_owned());
                return Ok(());
            }
            let Some(WalkPage {
                messages: page,
                is_new,
            }) = pages.next_page().await?
            else {
                break;
            };
            let got = page
                .iter()
                .filter_map(|message| message.next_visible.checked_sub(pages.hidden).ok())
                .max();
            // If the queue's clock was set back, it is behind the times at which the messages were
            // put. It then cannot show which messages were put after the walk began.
            walk.began = walk
                .began
                .or_else(|| got.filter(|got| page.iter().all(|message| message.inserted <= *got)));
            if !is_new {
                // Messages that were not selected have reappeared and were received again. They
                // stay hidden, and their newer receipts are kept.
                walk.hidden.extend(
                    page.into_iter()
                        .map(|message| (message.id.clone(), message)),
                );
                continue;
            }
            self.handle_page(page, filter, action, walk).await;
            let seen = |id: &String| {
                let mut ended = walk
                    .handled
                    .done
                    .iter()
                    .chain(walk.handled.failed.iter().map(|(entry, _)| entry));
                ended.any(|entry| entry.message.message_id == *id || entry.ids.contains(id))
            };
            if !filter.ids.is_empty() && filter.ids.iter().all(seen) {
                return Ok(());
            }
        }
        walk.handled.hidden = pages
            .most
            .saturating_sub(pages.seen().saturating_sub(walk.later.len() as u64));
        Ok(())
    }

    async fn handle_page(
        &self,
        page: Vec<Message>,
        filter: &PoisonFilter,
        action: WalkAction,
        walk: &mut PoisonWalk,
    ) {
        let original = |held: &PoisonCopies| queue::original(&held.entry.message, filter.reason);
        let (began, last) = (walk.began, walk.began.into_iter().chain(filter.until).min());
        let (page, later): (Vec<Message>, Vec<Message>) = page
            .into_iter()
            .partition(|message| last.is_none_or(|last| message.inserted <= last));
        walk.later.extend(
            later
                .iter()
                .filter(|message| began.is_some_and(|began| message.inserted > began))
                .map(|message| message.id.clone()),
        );
        if filter.until.is_some() {
            let since = self
                .group_copies(later.iter().cloned(), filter.reason)
                .into_iter()
                .filter(|held| filter.matches(&held.entry));
            walk.since.extend(since.flat_map(|held| held.entry.ids));
        }
        let (meant, others): (Vec<PoisonCopies>, Vec<PoisonCopies>) = self
            .group_copies(page.into_iter(), filter.reason)
            .into_iter()
            .partition(|held| {
                filter.matches(&held.entry) && !walk.failed.contains(&original(held))
            });
        let left = later
            .into_iter()
            .chain(others.into_iter().flat_map(|held| held.copies));
        walk.hidden.extend(left.map(|copy| (copy.id.clone(), copy)));
        let done = &walk.done;
        let unclear: Vec<Option<String>> = meant
            .iter()
            .map(|held| filter.ambiguity(held, &meant))
            .collect();
        let results: Vec<(PoisonCopies, Result<(), String>)> =
            stream::iter(meant.into_iter().zip(unclear))
                .map(|(held, unclear)| async move {
                    let result = match (unclear, action) {
                        (Some(problem), _) => Err(problem),
                        (None, WalkAction::Requeue) if !done.contains_key(&original(&held)) => {
                            self.requeue_one(&held).await
                        }
                        (None, WalkAction::Requeue | WalkAction::Discard) => {
                            self.delete_copies(&held).await
                        }
                    };
                    (held, result)
                })
                .buffered(PARALLEL)
                .collect()
                .await;
        for (held, result) in results {
            let original = original(&held);
            match (result, walk.done.get(&original)) {
                (Ok(()), Some(at)) => walk.handled.done[*at].ids.extend(held.entry.ids),
                (Ok(()), None) => {
                    walk.done.insert(original, walk.handled.done.len());
                    walk.handled.done.push(held.entry);
                }
                (Err(reason), _) => {
                    walk.failed.insert(original);
                    walk.hidden
                        .extend(held.copies.into_iter().map(|copy| (copy.id.clone(), copy)));
                    walk.handled.failed.push((held.entry, reason));
                }
            }
        }
    }
}
