//! Writes of one partition, sent as one entity group transaction, and each answered as if it had been sent alone.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream;

use super::answer::{Answer, Paid, awaited, tell};
use super::batching::{BatchExecutor, Place};
use super::queue::PendingRequest;
use super::verdict::{self, Blame};
use evenkeel_model::{ETag, Key, TableName};
use evenkeel_storage::{Resource, TableOperation, TableStore};

/// Refusals of one batch after which the rest are sent one by one. Each refusal of a transaction names one
/// operation and costs all of them a request: a batch of lost races (jobs delivered again) is quicker apart.
const REFUSALS: usize = 3;
/// How many are sent side by side where they are sent one by one.
const SIDE_BY_SIDE: usize = 16;

/// A pending write.
pub(super) enum PendingWrite {
    /// One operation.
    One {
        operation: TableOperation,
        /// Its size in a transaction.
        bytes: usize,
        /// Where its caller waits.
        answer: Answer<Option<ETag>>,
    },
    /// A caller's own transaction.
    Whole {
        operations: Vec<TableOperation>,
        /// Where its caller waits.
        answer: Answer<Vec<Option<ETag>>>,
    },
}

impl PendingRequest for PendingWrite {
    // One is executed while the next is on its way. A partition takes 2,000 entities a second (Azure: Table storage
    // targets), which is a transaction of 40 every 20 ms: more at once would only make them smaller.
    const IN_FLIGHT: usize = 2;

    fn rows(&self) -> impl Iterator<Item = &Key> {
        let operations = match self {
            Self::One { operation, .. } => std::slice::from_ref(operation),
            Self::Whole { operations, .. } => operations.as_slice(),
        };
        operations.iter().map(|operation| &operation.key().rk)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::One { bytes, .. } => *bytes,
            Self::Whole { .. } => 0,
        }
    }

    fn is_alone(&self) -> bool {
        matches!(self, Self::Whole { .. })
    }

    fn is_awaited(&self) -> bool {
        match self {
            Self::One { answer, .. } => !answer.is_closed(),
            Self::Whole { answer, .. } => !answer.is_closed(),
        }
    }
}

/// Sends writes.
pub(super) struct Writes {
    pub(super) store: Arc<dyn TableStore>,
}

impl BatchExecutor for Writes {
    type Request = PendingWrite;

    async fn execute(&self, (table, pk): &Place, batch: Vec<PendingWrite>) {
        let mut batched = BatchedWrites::default();
        for write in batch {
            match write {
                PendingWrite::One {
                    operation, answer, ..
                } => batched.add(operation, answer),
                // It is sent alone.
                PendingWrite::Whole {
                    operations,
                    mut answer,
                } => {
                    if let Some(result) =
                        awaited(self.store.transact(table, pk, &operations), answer.closed()).await
                    {
                        tell(answer, Paid::Here, result);
                    }
                }
            }
        }
        self.send(table, pk, batched).await;
    }
}

/// The operations of one batch, and the waiting callers.
#[derive(Default)]
struct BatchedWrites {
    operations: Vec<TableOperation>,
    answers: Vec<Answer<Option<ETag>>>,
}

impl BatchedWrites {
    fn add(&mut self, operation: TableOperation, answer: Answer<Option<ETag>>) {
        self.operations.push(operation);
        self.answers.push(answer);
    }

    fn take(&mut self, index: usize) -> (TableOperation, Answer<Option<ETag>>) {
        (self.operations.remove(index), self.answers.remove(index))
    }

    /// Removes operations of callers that gave up since it was last sent.
    fn drop_abandoned(&mut self) {
        let gone: Vec<usize> = (0..self.answers.len())
            .rev()
            .filter(|at| self.answers[*at].is_closed())
            .collect();
        for at in gone {
            drop(self.take(at));
        }
    }
}

impl Writes {
    async fn send(&self, table: &TableName, pk: &Key, mut batched: BatchedWrites) {
        for _ in 0..REFUSALS {
            if batched.operations.len() < 2 {
                break;
            }
            let sent = self.store.transact(table, pk, &batched.operations);
            let Some(result) = awaited(sent, all_closed(&mut batched.answers)).await else {
                return;
            };
            let error = match result {
                Ok(etags) => {
                    let answers = Paid::by_the_first().zip(batched.answers).zip(etags);
                    return answers.for_each(|((paid, answer), etag)| tell(answer, paid, Ok(etag)));
                }
                Err(error) => error,
            };
            match verdict::blame(&error, batched.operations.len()) {
                Blame::One(index) => {
                    let (operation, answer) = batched.take(index);
                    tell(
                        answer,
                        Paid::Here,
                        Err(verdict::alone(
                            error,
                            operation.name(),
                            Resource::Entity(table.clone(), operation.key().clone()),
                        )),
                    );
                    batched.drop_abandoned();
                }
                Blame::Everybody => {
                    let error = verdict::SharedError::new(error);
                    for (paid, (operation, answer)) in
                        Paid::by_the_first().zip(batched.operations.iter().zip(batched.answers))
                    {
                        tell(
                            answer,
                            paid,
                            Err(error.about(
                                operation.name(),
                                Resource::Entity(table.clone(), operation.key().clone()),
                            )),
                        );
                    }
                    return;
                }
                Blame::Unknown => break,
            }
        }
        self.send_each(table, batched).await;
    }

    /// Sends each by itself: a request of its own gives each the answer that a transaction cannot give.
    async fn send_each(&self, table: &TableName, batched: BatchedWrites) {
        let each = batched.operations.into_iter().zip(batched.answers);
        let each = each.map(|(operation, mut answer)| async move {
            if answer.is_closed() {
                return;
            }
            if let Some(result) =
                awaited(self.store.apply(table, &operation), answer.closed()).await
            {
                tell(answer, Paid::Here, result);
            }
        });
        stream::iter(each)
            .buffer_unordered(SIDE_BY_SIDE)
            .collect::<()>()
            .await;
    }
}

/// Waits until all have given up.
async fn all_closed<T>(answers: &mut [Answer<T>]) {
    for answer in answers {
        answer.closed().await;
    }
}
