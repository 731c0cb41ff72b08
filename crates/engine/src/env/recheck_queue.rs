//! Puts of rechecks: concurrent runs share a message.
//!
//! A message holds 100 rechecks of one table at most, each primary once. A lone run waits for no other.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::env::recheck_message::Recheck;
use evenkeel_model::{AccountName, QueueName, TableName, limits};
use evenkeel_storage::combine::{Combiner, Queue, Serve};
use evenkeel_storage::{QueueStore, StoreError, Ttl};

/// A recheck message stays well below the limit of a queue message, Base64 included.
pub(crate) const RECHECK_ITEMS_BYTES: usize = limits::QUEUE_BODY_BYTES / 2;
/// Rechecks of one message: as many as a delivery runs at once.
const MOST: usize = 100;

/// A queue, the table of the primaries, and the rechecks in a row before theirs, for their delay.
pub(crate) type RecheckPlace = (AccountName, QueueName, TableName, u32);

type Answer = Result<(), StoreError>;

/// Pending rechecks of the runs of one engine.
#[derive(Default)]
pub(crate) struct RecheckQueues(Combiner<RecheckPlace, Recheck, Answer>);

/// A recheck queue.
pub(crate) struct RecheckQueue<'e> {
    pub(crate) queues: &'e dyn QueueStore,
    pub(crate) name: &'e QueueName,
    /// How long each stays hidden.
    pub(crate) delay: Duration,
}

impl RecheckQueues {
    /// Has a recheck put, by this caller or by another.
    pub(crate) async fn put(
        &self,
        place: &RecheckPlace,
        recheck: &Recheck,
        queue: &RecheckQueue<'_>,
    ) -> Answer {
        loop {
            // A dropped server may have put the message: a second recheck does no harm.
            if let Some(answer) = self.0.ask(place.clone(), recheck.clone(), queue).await {
                return answer;
            }
        }
    }
}

impl RecheckQueue<'_> {
    /// Puts rechecks of one table in a message.
    pub(crate) async fn put(&self, rechecks: &[&Recheck]) -> Answer {
        self.queues
            .put(
                self.name,
                &Recheck::encode_all(rechecks),
                self.delay,
                Ttl::Never,
            )
            .await
            .map(|_| ())
    }
}

impl Serve<Recheck, Answer> for RecheckQueue<'_> {
    async fn serve(&self, queue: &Queue<Recheck, Answer>, (): &mut ()) {
        let (mut room, mut primaries) = (RECHECK_ITEMS_BYTES, BTreeSet::new());
        let batch = queue.take(|recheck| {
            let bytes = recheck.listed_len();
            let fits = bytes <= room
                && primaries.len() < MOST
                && primaries.insert(recheck.primary.key.clone());
            room = room.saturating_sub(bytes);
            fits
        });
        if batch.is_empty() {
            return;
        }
        let put = self
            .put(&batch.iter().map(|one| &one.request).collect::<Vec<_>>())
            .await;
        for one in batch {
            one.tell(put.as_ref().copied().map_err(StoreError::without_cause));
        }
    }
}
