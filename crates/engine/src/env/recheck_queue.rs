//! Puts rechecks into recheck queues. Concurrent runs share a message.
//!
//! A message holds at most 100 rechecks of one table, with at most one recheck for each primary. A run sends its
//! recheck at once if no other message to the queue is being sent.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::env::recheck_message::Recheck;
use evenkeel_model::{AccountName, QueueName, TableName, limits};
use evenkeel_storage::combine::{Combiner, Queue, Serve};
use evenkeel_storage::{QueueStore, StoreError, Ttl};

/// Upper limit on the bytes of the items in a message. It is well below the limit of a queue message in Base64.
pub(crate) const RECHECK_ITEMS_BYTES: usize = limits::QUEUE_BODY_BYTES / 2;
/// Maximum number of rechecks in a message: as many as a delivery runs at once.
const MAX_RECHECKS: usize = 100;

/// Account, queue, table of the primaries, and [`Recheck::chained`], which determines the delay. Only rechecks for
/// which all four are equal share a message.
pub(crate) type RecheckPlace = (AccountName, QueueName, TableName, u32);

type Answer = Result<(), StoreError>;

#[derive(Default)]
pub(crate) struct RecheckQueues(Combiner<RecheckPlace, Recheck, Answer>);

pub(crate) struct RecheckQueue<'e> {
    pub(crate) queues: &'e dyn QueueStore,
    pub(crate) name: &'e QueueName,
    pub(crate) delay: Duration,
}

impl RecheckQueues {
    /// Either this caller or a concurrent caller sends the message that contains the recheck.
    pub(crate) async fn put(
        &self,
        place: &RecheckPlace,
        recheck: &Recheck,
        queue: &RecheckQueue<'_>,
    ) -> Answer {
        loop {
            // `None` means that the caller that was sending the message was dropped. The message may have been sent
            // nevertheless, but a second recheck does no harm.
            if let Some(answer) = self.0.ask(place.clone(), recheck.clone(), queue).await {
                return answer;
            }
        }
    }
}

impl RecheckQueue<'_> {
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
                && primaries.len() < MAX_RECHECKS
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
            one.tell(put.clone());
        }
    }
}
