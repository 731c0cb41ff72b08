//! Combines writes of one partition into entity group transactions and answers each as if it had been sent alone.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream;

use super::answer::{Answer, RequestCharge, run_while_awaited, send_answer};
use super::batching::{BatchExecutor, Partition};
use super::queue::PendingRequest;
use super::verdict::{self, FailedOperations};
use evenkeel_model::{ETag, Key, TableName};
use evenkeel_storage::{Resource, TableOperation, TableStore};

/// After this number of rejections of one batch, its remaining operations are sent one by one. Each rejection costs a request and
/// identifies only one operation. So if a batch has many conflicts (jobs delivered twice), single operations are faster.
const MAX_REJECTIONS: usize = 3;
const CONCURRENT: usize = 16;

pub(super) enum PendingWrite {
    Single {
        operation: TableOperation,
        bytes: usize,
        answer: Answer<Option<ETag>>,
    },
    Transaction {
        operations: Vec<TableOperation>,
        answer: Answer<Vec<Option<ETag>>>,
    },
}

impl PendingRequest for PendingWrite {
    // One transaction is executed while the next is on its way. A partition takes 2,000 entities per second (Azure: Table
    // storage targets), for instance a transaction of 40 entities every 20 ms. With more transactions in flight, each would
    // only be smaller.
    const IN_FLIGHT: usize = 2;

    fn rows(&self) -> impl Iterator<Item = &Key> {
        let operations = match self {
            Self::Single { operation, .. } => std::slice::from_ref(operation),
            Self::Transaction { operations, .. } => operations.as_slice(),
        };
        operations.iter().map(|operation| &operation.key().rk)
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Single { bytes, .. } => *bytes,
            Self::Transaction { .. } => 0,
        }
    }

    fn is_alone(&self) -> bool {
        matches!(self, Self::Transaction { .. })
    }

    fn is_awaited(&self) -> bool {
        match self {
            Self::Single { answer, .. } => !answer.is_closed(),
            Self::Transaction { answer, .. } => !answer.is_closed(),
        }
    }
}

pub(super) struct Writes {
    pub(super) store: Arc<dyn TableStore>,
}

impl BatchExecutor for Writes {
    type Request = PendingWrite;

    async fn execute(&self, (table, pk): &Partition, batch: Vec<PendingWrite>) {
        let mut batched = BatchedWrites::default();
        for write in batch {
            match write {
                PendingWrite::Single {
                    operation, answer, ..
                } => batched.add(operation, answer),
                // `take_batch` returns a whole transaction alone.
                PendingWrite::Transaction {
                    operations,
                    mut answer,
                } => {
                    if let Some(result) = run_while_awaited(
                        self.store.transact(table, pk, &operations),
                        answer.closed(),
                    )
                    .await
                    {
                        send_answer(answer, RequestCharge::Charged, result);
                    }
                }
            }
        }
        self.send(table, pk, batched).await;
    }
}

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
        for _ in 0..MAX_REJECTIONS {
            if batched.operations.len() < 2 {
                break;
            }
            let sent = self.store.transact(table, pk, &batched.operations);
            let Some(result) = run_while_awaited(sent, all_closed(&mut batched.answers)).await
            else {
                return;
            };
            let error = match result {
                Ok(etags) => {
                    let answers = RequestCharge::first_caller_only()
                        .zip(batched.answers)
                        .zip(etags);
                    return answers.for_each(|((charge, answer), etag)| {
                        send_answer(answer, charge, Ok(etag));
                    });
                }
                Err(error) => error,
            };
            match verdict::failed_operations(&error, batched.operations.len()) {
                FailedOperations::Single(index) => {
                    let (operation, answer) = batched.take(index);
                    send_answer(
                        answer,
                        RequestCharge::Charged,
                        Err(verdict::alone(
                            error,
                            operation.name(),
                            Resource::Entity(table.clone(), operation.key().clone()),
                        )),
                    );
                    batched.drop_abandoned();
                }
                FailedOperations::All => {
                    for (charge, (operation, answer)) in RequestCharge::first_caller_only()
                        .zip(batched.operations.iter().zip(batched.answers))
                    {
                        send_answer(
                            answer,
                            charge,
                            Err(verdict::alone(
                                error.clone(),
                                operation.name(),
                                Resource::Entity(table.clone(), operation.key().clone()),
                            )),
                        );
                    }
                    return;
                }
                FailedOperations::Unknown => break,
            }
        }
        self.send_each(table, batched).await;
    }

    /// Sends each operation alone, for the answers that a transaction cannot give.
    async fn send_each(&self, table: &TableName, batched: BatchedWrites) {
        let each = batched.operations.into_iter().zip(batched.answers);
        let each = each.map(|(operation, mut answer)| async move {
            if answer.is_closed() {
                return;
            }
            if let Some(result) =
                run_while_awaited(self.store.apply(table, &operation), answer.closed()).await
            {
                send_answer(answer, RequestCharge::Charged, result);
            }
        });
        stream::iter(each)
            .buffer_unordered(CONCURRENT)
            .collect::<()>()
            .await;
    }
}

async fn all_closed<T>(answers: &mut [Answer<T>]) {
    for answer in answers {
        answer.closed().await;
    }
}
