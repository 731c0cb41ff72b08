//! Execution of erasures: poison messages about an entity are discarded when everything else of it is gone.

use std::sync::{Arc, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::context::KeyOf;
use super::poison::{Discarded, ErasedPrimary, ErasureReach, LeftMessages, PoisonQueue, Sought};
use evenkeel_engine::{Delivery, Execute, Failure, FailureClass, Outcome, Work, aside};
use evenkeel_model::event::EventMappings;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{AccountName, QueueName};
use evenkeel_storage::{Rng, StoreError, Stores};

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
    pub(super) events: Arc<EventMappings>,
    pub(super) rng: Arc<dyn Rng>,
    pub(super) walks: PoisonWalks,
}

/// Walks over the poison queues. There is one at a time, since it hides the messages from every other, and it is for all erasures that have
/// asked before it began.
#[derive(Default)]
pub(super) struct PoisonWalks {
    asked: std::sync::Mutex<Asked>,
    last: Mutex<LastWalk>,
}

#[derive(Default)]
struct Asked {
    /// How many walks have begun.
    begun: u64,
    /// Those that the next one is for, as far as they wait still.
    waiting: Vec<Weak<ErasedPrimary>>,
}

struct LastWalk {
    number: u64,
    meant: Vec<ErasedPrimary>,
    ended: WalkEnd,
}

/// The erasures that a walk under way is for: they wait for the next one again where it is cut off.
struct WalkUnderWay<'w> {
    walks: &'w PoisonWalks,
    waiting: Vec<Weak<ErasedPrimary>>,
}

impl Drop for WalkUnderWay<'_> {
    fn drop(&mut self) {
        self.walks.asked().waiting.append(&mut self.waiting);
    }
}

/// How many messages were hidden, and those that stay.
type WalkEnd = Result<(u64, LeftMessages), Arc<StoreError>>;

impl Default for LastWalk {
    fn default() -> Self {
        Self {
            number: 0,
            meant: Vec::new(),
            ended: Ok((0, LeftMessages::default())),
        }
    }
}

impl PoisonWalks {
    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the walk that is for this primary, or does it.
    async fn over(
        &self,
        primary: ErasedPrimary,
        walk: impl AsyncFnOnce(&[ErasedPrimary]) -> WalkEnd,
    ) -> WalkEnd {
        let primary = Arc::new(primary);
        let number = {
            let mut asked = self.asked();
            asked.waiting.push(Arc::downgrade(&primary));
            asked.begun + 1
        };
        // Everything else of the erasure is done by now: nothing that it announced waits for this.
        let mut last = aside(self.last.lock()).await;
        if last.number >= number && last.meant.contains(&primary) {
            return last.ended.clone();
        }
        let (number, mut under_way) = {
            let mut asked = self.asked();
            asked.begun += 1;
            (
                asked.begun,
                WalkUnderWay {
                    walks: self,
                    waiting: std::mem::take(&mut asked.waiting),
                },
            )
        };
        let waiting = under_way
            .waiting
            .iter()
            .filter_map(Weak::upgrade)
            .chain([Arc::clone(&primary)]);
        let meant: Vec<ErasedPrimary> = waiting
            .map(|primary| ErasedPrimary::clone(&primary))
            .collect();
        let ended = walk(&meant).await;
        under_way.waiting.clear();
        *last = LastWalk {
            number,
            meant,
            ended: ended.clone(),
        };
        ended
    }
}

/// Messages discarded from the poison queue of a queue.
#[derive(Debug)]
pub struct QueueDiscards {
    /// The queue as configured.
    pub queue: QueueName,
    /// Its account.
    pub account: AccountName,
    /// Its discards, also before a failure.
    pub discarded: Discarded,
    /// Why the rest was not looked at.
    pub error: Option<StoreError>,
}

/// Where poison messages are looked for, and what tells whom they are about.
pub struct PoisonReach<'r> {
    /// The accounts of the queues.
    pub stores: &'r Stores,
    /// The queues as configured.
    pub queues: &'r [QueueSettings],
    /// Which primary a job is about.
    pub key_of: &'r KeyOf,
    /// Which job an event is.
    pub events: &'r EventMappings,
}

/// Discards the poison messages about primaries, of every queue: one that fails holds up no other. Ends early, in order, once `stop` is
/// cancelled.
pub async fn discard_about(
    erased: &[ErasedPrimary],
    reach: &PoisonReach<'_>,
    stop: &CancellationToken,
) -> Vec<QueueDiscards> {
    let PoisonReach {
        stores,
        queues,
        key_of,
        events,
    } = *reach;
    let mut all = Vec::new();
    let sought = Sought {
        erased,
        key_of,
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
            .discard_about(&queue.account, &sought)
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
impl Execute for Erasing {
    async fn execute(&self, work: &Work, delivery: &Delivery) -> Result<Outcome, Failure> {
        let ended = self.execute.execute(work, delivery).await?;
        let Work::Job(job) = work else {
            return Ok(ended);
        };
        if job.operation().erases().is_none() || !matches!(ended, Outcome::Done(_)) {
            return Ok(ended);
        }
        let Some(primary) = (self.key_of)(job).into_iter().next() else {
            return Ok(ended);
        };
        let walk = async |meant: &[ErasedPrimary]| {
            let reach = PoisonReach {
                stores: &self.stores,
                queues: &self.queues,
                key_of: &self.key_of,
                events: &self.events,
            };
            let all = discard_about(meant, &reach, &CancellationToken::new()).await;
            let (mut hidden, mut left) = (0, LeftMessages::default());
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
            .over(
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
                    let LeftMessages {
                        about_many,
                        unclear,
                        in_errors,
                    } = left;
                    tracing::warn!(entity = %of, about_many, unclear, in_errors, "entity erased: poison messages stay that may have something of it");
                }
                Ok(ended)
            }
            Ok((hidden, _)) => {
                let held = format!(
                    "about {hidden} poison messages are held by another command at the moment; the job is tried again"
                );
                Err(Failure::new(
                    FailureClass::Transient {
                        retry_after: Some(self.rng.jittered(HELD)),
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
