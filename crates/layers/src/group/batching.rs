//! Batches in flight. Each runs in its own task, so a caller that is dropped or not polled does not delay others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use super::queue::{PartitionQueue, PendingRequest};
use evenkeel_model::{Key, TableName};

/// Other requests stop waiting for a batch after this time: its connection probably hangs until the timeout, while the
/// partition may be healthy. (A full transaction takes some 50 ms.)
const OVERDUE_AFTER: Duration = Duration::from_secs(1);

pub(super) type Partition = (TableName, Key);

pub(super) trait BatchExecutor: Send + Sync + 'static {
    type Request: PendingRequest;

    /// Sends a batch. Returns early if no caller waits for it any more.
    fn execute(
        &self,
        partition: &Partition,
        batch: Vec<Self::Request>,
    ) -> impl Future<Output = ()> + Send;
}

pub(super) struct Batching<C: BatchExecutor> {
    executor: Arc<C>,
    queues: Mutex<BTreeMap<Partition, PartitionQueue<C::Request>>>,
    /// Aborted when the batching is dropped.
    tasks: Mutex<JoinSet<()>>,
}

impl<C: BatchExecutor> Batching<C> {
    pub(super) fn new(executor: C) -> Arc<Self> {
        Arc::new(Self {
            executor: Arc::new(executor),
            queues: Mutex::default(),
            tasks: Mutex::default(),
        })
    }

    pub(super) fn executor(&self) -> &C {
        &self.executor
    }

    pub(super) fn join(self: &Arc<Self>, partition: Partition, request: C::Request) {
        let may_start = {
            let mut queues = self.queues();
            let queue = match queues.get_mut(&partition) {
                Some(queue) => queue,
                None => queues.entry(partition.clone()).or_default(),
            };
            queue.join(request);
            queue.may_start()
        };
        if may_start {
            self.start_batch(partition);
        }
    }

    /// Starts a batch. It takes its requests only after all ready tasks have run, so that requests made at the same time
    /// (by a batch of jobs that start together) are combined even if nothing was in flight.
    fn start_batch(self: &Arc<Self>, partition: Partition) {
        let batch = InFlightBatch {
            batching: Arc::downgrade(self),
            partition,
            state: BatchState::Starting,
        };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "task of a batch of table requests panicked: {error}; its callers get an unknown outcome");
            }
        }
        tasks.spawn(batch.run(Arc::clone(&self.executor)));
    }

    fn queues(&self) -> MutexGuard<'_, BTreeMap<Partition, PartitionQueue<C::Request>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn queues_in_use(&self) -> usize {
        self.queues().len()
    }
}

/// A batch in flight. Dropping it, for any reason, releases its rows and lets its queue continue.
struct InFlightBatch<C: BatchExecutor> {
    batching: Weak<Batching<C>>,
    partition: Partition,
    state: BatchState,
}

enum BatchState {
    /// The task has not run yet, and has taken no requests.
    Starting,
    /// The batch is in flight and writes these rows.
    InFlight {
        rows: Vec<Key>,
        overdue: bool,
    },
    Idle,
}

impl<C: BatchExecutor> InFlightBatch<C> {
    async fn run(mut self, executor: Arc<C>) {
        // Let tasks that are ready make their requests first.
        yield_now().await;
        let batch = self.take_batch();
        if batch.is_empty() {
            return;
        }
        let partition = self.partition.clone();
        let mut sent = std::pin::pin!(executor.execute(&partition, batch));
        tokio::select! {
            biased;
            () = &mut sent => return,
            () = sleep(OVERDUE_AFTER) => self.overdue(),
        }
        sent.await;
    }

    fn take_batch(&mut self) -> Vec<C::Request> {
        let Some(batching) = self.batching.upgrade() else {
            return Vec::new();
        };
        let mut queues = batching.queues();
        let Some(queue) = queues.get_mut(&self.partition) else {
            return Vec::new();
        };
        let batch = queue.take_batch();
        self.state = if batch.is_empty() {
            BatchState::Idle
        } else {
            BatchState::InFlight {
                rows: batch
                    .iter()
                    .flat_map(PendingRequest::rows)
                    .cloned()
                    .collect(),
                overdue: false,
            }
        };
        // Another batch may send the requests that did not fit.
        let may_start = !batch.is_empty() && queue.may_start();
        if queue.is_empty() {
            queues.remove(&self.partition);
        }
        drop(queues);
        if may_start {
            batching.start_batch(self.partition.clone());
        }
        batch
    }

    fn overdue(&mut self) {
        let Some(batching) = self.batching.upgrade() else {
            return;
        };
        if let BatchState::InFlight { overdue, .. } = &mut self.state {
            *overdue = true;
        }
        let may_start = batching
            .queues()
            .get_mut(&self.partition)
            .is_some_and(|queue| {
                queue.overdue();
                queue.may_start()
            });
        if may_start {
            batching.start_batch(self.partition.clone());
        }
    }
}

impl<C: BatchExecutor> Drop for InFlightBatch<C> {
    fn drop(&mut self) {
        let Some(batching) = self.batching.upgrade() else {
            return;
        };
        let mut queues = batching.queues();
        let Some(queue) = queues.get_mut(&self.partition) else {
            return;
        };
        let (left, may_start) = match &self.state {
            BatchState::Idle => (None, false),
            // The task never ran, because the runtime is shutting down. A new task would not run either, so the waiting callers
            // get an error.
            BatchState::Starting => (Some(queue.close()), false),
            BatchState::InFlight { rows, overdue } => {
                queue.end(rows, *overdue);
                (None, queue.may_start())
            }
        };
        if queue.is_empty() {
            queues.remove(&self.partition);
        }
        drop(queues);
        drop(left);
        if may_start {
            batching.start_batch(self.partition.clone());
        }
    }
}
