//! Deliveries that ended in order and could not say so in their message, since the answer with its receipt was lost.
//!
//! The trace of such a run would pass for that of one that took its process down. The process knows better when it gets the message
//! again; others do not, and count it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::attempts::Deliveries;

/// How many are remembered. Of more, the oldest count as attempts.
const MOST: usize = 1_024;

/// The latest ones of one queue, by the ids of their messages.
#[derive(Default)]
pub(crate) struct Unsaid(Mutex<VecDeque<(String, Deliveries)>>);

impl Unsaid {
    /// Remembers one.
    pub(crate) fn remember(&self, message_id: &str, deliveries: &Deliveries) {
        let mut kept = self.kept();
        kept.retain(|(id, _)| id != message_id);
        if kept.len() >= MOST {
            kept.pop_front();
        }
        kept.push_back((message_id.to_owned(), deliveries.clone()));
    }

    /// Notes a further delivery of a message, its `count`-th, that ended before the message was looked at.
    pub(crate) fn follow(&self, message_id: &str, count: u32) {
        if let Some((_, deliveries)) = self.kept().iter_mut().find(|(id, _)| id == message_id) {
            deliveries.followed_by(count);
        }
    }

    /// Takes out the one of a message.
    pub(crate) fn take(&self, message_id: &str) -> Option<Deliveries> {
        let mut kept = self.kept();
        let at = kept.iter().position(|(id, _)| id == message_id)?;
        kept.remove(at).map(|(_, deliveries)| deliveries)
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<(String, Deliveries)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
