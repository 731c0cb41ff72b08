//! Completes an erasure. Once all other data of an entity is erased, the poison messages about the
//! entity are discarded.

use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::context::PrimaryResolver;
use super::poison::{
    ErasedPrimary, ErasureDiscards, ErasureReach, ErasureTargets, PoisonQueue, RemainingMessages,
};
use evenkeel_engine::{
    Delivery, Execute, Failure, FailureClass, Outcome, Work, exclude_from_timeout,
};
use evenkeel_model::event::EventMappings;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{AccountName, QueueName};
use evenkeel_storage::{Rng, StoreError, Stores};

/// If another command hides poison messages, the erasure is retried after this delay.
const HELD_RETRY: Duration = Duration::from_mins(1);

const STEP: &str = "discarding poison messages about an erased entity";

pub(super) struct ErasureExecutor {
    pub(super) execute: Arc<dyn Execute>,
    pub(super) stores: Stores,
    pub(super) queues: Vec<QueueSettings>,
    pub(super) resolve_primaries: PrimaryResolver,
    pub(super) events: Arc<EventMappings>,
    pub(super) rng: Arc<dyn Rng>,
    pub(super) walks: PoisonWalks,
}

/// Walks over the poison queues. Only one walk runs at a time, because a walk hides the messages
/// from other walks. A walk serves all erasures that were waiting when it began.
#[derive(Default)]
pub(super) struct PoisonWalks {
    requests: std::sync::Mutex<WalkRequests>,
    last: Mutex<LastWalk>,
}

#[derive(Default)]
struct WalkRequests {
    begun: u64,
    /// The erasures that the next walk serves. An erasure that was dropped meanwhile is ignored.
    waiting: Vec<Weak<ErasedPrimary>>,
}

struct LastWalk {
    number: u64,
    primaries: Vec<ErasedPrimary>,
    ended: WalkEnd,
}

/// The erasures that the current walk serves. If the walk is cut off, these erasures wait for the
/// next walk.
struct WalkUnderWay<'w> {
    walks: &'w PoisonWalks,
    waiting: Vec<Weak<ErasedPrimary>>,
}

impl Drop for WalkUnderWay<'_> {
    fn drop(&mut self) {
        self.walks.requests().waiting.append(&mut self.waiting);
    }
}

/// The number of hidden messages and the messages that remain, or the error that ended the walk.
type WalkEnd = Result<(u64, RemainingMessages), Arc<StoreError>>;

impl Default for LastWalk {
    fn default() -> Self {
        Self {
            number: 0,
            primaries: Vec::new(),
            ended: Ok((0, RemainingMessages::default())),
        }
    }
}

impl PoisonWalks {
    fn requests(&self) -> MutexGuard<'_, WalkRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a walk of another erasure that also serves this primary, or does the walk.
    async fn join_walk(
        &self,
        primary: ErasedPrimary,
        walk: impl AsyncFnOnce(&[ErasedPrimary]) -> WalkEnd,
    ) -> WalkEnd {
        let primary = Arc::new(primary);
        let number = {
            let mut requests = self.requests();
            requests.waiting.push(Arc::downgrade(&primary));
            requests.begun + 1
        };
        // This wait may be long. It keeps no announcement open, because all other steps of the
        // erasure are done.
        let mut last = exclude_from_timeout(self.last.lock()).await;
        if last.number >= number && last.primaries.contains(&primary) {
            return last.ended.clone();
        }
        let (number, mut under_way) = {
            let mut requests = self.requests();
            requests.begun += 1;
            (
                requests.begun,
                WalkUnderWay {
                    walks: self,
                    waiting: std::mem::take(&mut requests.waiting),
                },
            )
        };
        let waiting = under_way
            .waiting
            .iter()
            .filter_map(Weak::upgrade)
            .chain([Arc::clone(&primary)]);
        let primaries: Vec<ErasedPrimary> = waiting
            .map(|primary| ErasedPrimary::clone(&primary))
            .collect();
        let ended = walk(&primaries).await;
        under_way.waiting.clear();
        *last = LastWalk {
            number,
            primaries,
            ended: ended.clone(),
        };
        ended
    }
}

#[derive(Debug)]
pub struct QueueDiscards {
    pub queue: QueueName,
    pub account: AccountName,
    /// Discarded messages, including those that were discarded before a failure.
    pub discarded: ErasureDiscards,
    pub error: Option<StoreError>,
}

/// The poison queues to search, and the means to resolve the primaries of a message.
pub struct PoisonScope<'r> {
    pub stores: &'r Stores,
    pub queues: &'r [QueueSettings],
    pub resolve_primaries: &'r PrimaryResolver,
    pub events: &'r EventMappings,
}

/// Discards the poison messages about these primaries from every queue. If one queue fails, the
/// remaining queues are still searched. Ends early when `stop` is cancelled.
pub async fn discard_about(
    erased: &[ErasedPrimary],
    reach: &PoisonScope<'_>,
    stop: &CancellationToken,
) -> Vec<QueueDiscards> {
    let PoisonScope {
        stores,
        queues,
        resolve_primaries,
        events,
    } = *reach;
    let mut all = Vec::new();
    let targets = ErasureTargets {
        erased,
        resolve_primaries,
        events,
    };
    for queue in queues.iter().take_while(|_| !stop.is_cancelled()) {
        let Ok(account) = stores.account(&queue.account) else {
            continue;
        };
        let Ok(poison) = PoisonQueue::new(account, queue) else {
            continue;
        };
        let (discarded, ended) = poison
            .until(stop)
            .discard_about(&queue.account, &targets)
            .await;
        all.push(QueueDiscards {
            queue: queue.name.clone(),
            account: queue.account.clone(),
            discarded,
            error: ended.err(),
        });
    }
    all
}

#[async_trait]
impl Execute for ErasureExecutor {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let ended = self.execute.execute(work, delivery).await?;
        let Work::Job(job) = work else {
            return Ok(ended);
        };
        if job.operation().erases().is_none() || !matches!(ended, Outcome::Done(_)) {
            return Ok(ended);
        }
        let Some(primary) = (self.resolve_primaries)(job).into_iter().next() else {
            return Ok(ended);
        };
        let walk = async |primaries: &[ErasedPrimary]| {
            let reach = PoisonScope {
                stores: &self.stores,
                queues: &self.queues,
                resolve_primaries: &self.resolve_primaries,
                events: &self.events,
            };
            let all = discard_about(primaries, &reach, &CancellationToken::new()).await;
            let (mut hidden, mut left) = (0, RemainingMessages::default());
            for queue in &all {
                hidden += queue.discarded.hidden;
                left += queue.discarded.left;
            }
            all.into_iter()
                .find_map(|queue| queue.error)
                .map_or(Ok((hidden, left)), |error| Err(Arc::new(error)))
        };
        let of = primary.clone();
        let reach = delivery.tables.clone().map(|tables| ErasureReach {
            tables,
            account: delivery.account.clone(),
            recheck: delivery.recheck_queue.clone(),
        });
        let sent = Some(delivery.stamp.enqueued);
        match self
            .walks
            .join_walk(
                ErasedPrimary {
                    primary,
                    sent,
                    reach,
                },
                walk,
            )
            .await
        {
            Ok((0, left)) => {
                if left.total() > 0 {
                    let RemainingMessages {
                        about_many,
                        unclear,
                        in_errors,
                    } = left;
                    tracing::warn!(entity = %of, about_many, unclear, in_errors, "erased {of}, but {} poison messages that may have its data remain", left.total());
                }
                Ok(ended)
            }
            Ok((hidden, _)) => {
                let held = format!(
                    "about {hidden} poison messages are hidden: another command or operator holds them"
                );
                Err(Failure::new(
                    FailureClass::Transient {
                        retry_after: Some(self.rng.jittered(HELD_RETRY)),
                    },
                    STEP,
                    held,
                ))
            }
            Err(error) => {
                let retry_after = error.class.retry_after();
                let class = if error.withheld.is_some() {
                    FailureClass::Withheld { retry_after }
                } else {
                    FailureClass::Transient { retry_after }
                };
                Err(Failure::new(class, STEP, error))
            }
        }
    }

    async fn give_up(&self, work: &Work, delivery: &Delivery) -> Result<(), Failure> {
        self.execute.give_up(work, delivery).await
    }
}
