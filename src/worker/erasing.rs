//! Execution of erasures: poison messages about an entity are discarded when everything else of it is gone.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::context::KeyOf;
use super::poison::{Discarded, PoisonQueue};
use crate::model::job::{JobSubject, ListedBatch};
use crate::model::{AccountName, ETag, Job};
use crate::ports::{StoreError, Stores};
use crate::reconcile::{Delivery, Execute, Failure, FailureClass, ListWindow, Outcome, Work};
use crate::settings::QueueSettings;

/// How soon an erasure is tried again that has met messages held by another command.
const HELD: Duration = Duration::from_mins(1);

/// The step, in words.
const STEP: &str = "discarding poison messages about an erased entity";

/// Executes work, and discards poison messages about entities that it erases.
pub(super) struct Erasing {
    pub(super) execute: Arc<dyn Execute>,
    pub(super) stores: Stores,
    pub(super) queues: Vec<QueueSettings>,
    pub(super) key_of: KeyOf,
}

/// Discards the poison messages about the primary of a job, of every queue: how many, by account.
pub async fn discard_about(
    job: &Job,
    stores: &Stores,
    queues: &[QueueSettings],
    key_of: &KeyOf,
) -> Result<Vec<(AccountName, Discarded)>, StoreError> {
    let mut discarded = Vec::new();
    let Some(primary) = key_of(job) else { return Ok(discarded) };
    for queue in queues {
        let Ok(account) = stores.account(&queue.account) else { continue };
        let Ok(poison) = PoisonQueue::new(account, queue) else { continue };
        let arrives = |job: &Job| matches!(job.operation().subject(), JobSubject::Moved(_, to) if *to == primary);
        discarded.push((queue.account.clone(), poison.discard_about(|job| key_of(job).as_ref() == Some(&primary) || arrives(job)).await?));
    }
    Ok(discarded)
}

#[async_trait]
impl Execute for Erasing {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let ended = self.execute.execute(work, delivery).await?;
        let Work::Job(job) = work else { return Ok(ended) };
        if job.operation().erases().is_none() || !matches!(ended, Outcome::Done(_)) {
            return Ok(ended);
        }
        let again = |cause: Box<dyn std::error::Error + Send + Sync>, retry_after| {
            Failure::new(FailureClass::Transient { retry_after }, STEP, cause)
        };
        let discarded = discard_about(job, &self.stores, &self.queues, &self.key_of).await;
        let hidden: u64 = discarded.map_err(|error| again(error.into(), None))?.iter().map(|(_, found)| found.hidden).sum();
        if hidden > 0 {
            let held = format!("about {hidden} poison messages are held by another command at the moment; the job is tried again");
            return Err(again(held.into(), Some(HELD)));
        }
        Ok(ended)
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.execute.give_up(work, delivery).await
    }

    async fn window(&self, list: &ListedBatch, delivery: &Delivery) -> Result<ListWindow, Failure> {
        self.execute.window(list, delivery).await
    }

    async fn forget(&self, list: &ListedBatch, version: &ETag) -> Result<(), Failure> {
        self.execute.forget(list, version).await
    }

    async fn seal_body(&self, body: &str) -> Result<Option<String>, Failure> {
        self.execute.seal_body(body).await
    }
}
