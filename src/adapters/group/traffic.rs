//! Departures: each is a task of its own, so that a caller that is dropped, or is not polled, delays no other.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;

use super::lane::{PartitionQueue, PendingRequest};
use crate::model::{Key, TableName};

/// After this long others no longer wait for a departure: it hangs on a connection that will time out, and the
/// partition may be well. (A full transaction takes some 50 ms.)
const PATIENCE: Duration = Duration::from_secs(1);

/// A partition of a table.
pub(super) type TablePartition = (TableName, Key);

/// Sends a load of requests, and answers each.
pub(super) trait BatchExecutor: Send + Sync + 'static {
    /// A pending request.
    type Passenger: PendingRequest;

    /// Sends a load. Ends early where no caller waits for it any more.
    fn carry(&self, place: &TablePartition, load: Vec<Self::Passenger>) -> impl Future<Output = ()> + Send;
}

/// The lanes of one account's tables, and the departures under way in them.
pub(super) struct Batching<C: BatchExecutor> {
    carrier: Arc<C>,
    lanes: Mutex<BTreeMap<TablePartition, PartitionQueue<C::Passenger>>>,
    /// Dropped with the traffic, and then aborted.
    tasks: Mutex<JoinSet<()>>,
}

impl<C: BatchExecutor> Batching<C> {
    pub(super) fn new(carrier: C) -> Arc<Self> {
        Arc::new(Self { carrier: Arc::new(carrier), lanes: Mutex::default(), tasks: Mutex::default() })
    }

    pub(super) fn carrier(&self) -> &C {
        &self.carrier
    }

    /// Adds a pending request.
    pub(super) fn join(self: &Arc<Self>, place: TablePartition, passenger: C::Passenger) {
        let opens = {
            let mut lanes = self.lanes();
            let lane = match lanes.get_mut(&place) {
                Some(lane) => lane,
                None => lanes.entry(place.clone()).or_default(),
            };
            lane.join(passenger);
            lane.opens()
        };
        if opens {
            self.depart(place);
        }
    }

    /// Begins a departure. It loads after everything that is ready has run: requests added at the same time, as by
    /// a batch of jobs that begin together, leave together although nothing was under way.
    fn depart(self: &Arc<Self>, place: TablePartition) {
        let departure = InFlightBatch { traffic: Arc::downgrade(self), place, state: BatchState::Boarding };
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some(ended) = tasks.try_join_next() {
            if let Err(error) = ended {
                tracing::error!(%error, "a departure panicked");
            }
        }
        tasks.spawn(departure.run(Arc::clone(&self.carrier)));
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<TablePartition, PartitionQueue<C::Passenger>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many lanes there are: for tests.
    #[cfg(test)]
    pub(super) fn lanes_in_use(&self) -> usize {
        self.lanes().len()
    }
}

/// One departure. However it ends, its lane goes on.
struct InFlightBatch<C: BatchExecutor> {
    traffic: Weak<Batching<C>>,
    place: TablePartition,
    state: BatchState,
}

enum BatchState {
    /// To load when it first runs.
    Boarding,
    /// Under way with these rows.
    UnderWay { rows: Vec<Key>, overdue: bool },
    /// No request was pending.
    Idle,
}

impl<C: BatchExecutor> InFlightBatch<C> {
    async fn run(mut self, carrier: Arc<C>) {
        // A new task may run before those that are ready already, and their requests are the ones to take along.
        yield_now().await;
        let load = self.load();
        if load.is_empty() {
            return;
        }
        let place = self.place.clone();
        let mut carried = std::pin::pin!(carrier.carry(&place, load));
        tokio::select! {
            biased;
            () = &mut carried => return,
            () = sleep(PATIENCE) => self.overdue(),
        }
        carried.await;
    }

    fn load(&mut self) -> Vec<C::Passenger> {
        let Some(traffic) = self.traffic.upgrade() else { return Vec::new() };
        let mut lanes = traffic.lanes();
        let Some(lane) = lanes.get_mut(&self.place) else { return Vec::new() };
        let load = lane.load();
        self.state = if load.is_empty() {
            BatchState::Idle
        } else {
            BatchState::UnderWay { rows: load.iter().flat_map(PendingRequest::rows).cloned().collect(), overdue: false }
        };
        // More than fit, or of other rows than those that are taken.
        let opens = !load.is_empty() && lane.opens();
        if lane.is_empty() {
            lanes.remove(&self.place);
        }
        drop(lanes);
        if opens {
            traffic.depart(self.place.clone());
        }
        load
    }

    fn overdue(&mut self) {
        let Some(traffic) = self.traffic.upgrade() else { return };
        if let BatchState::UnderWay { overdue, .. } = &mut self.state {
            *overdue = true;
        }
        let opens = traffic.lanes().get_mut(&self.place).is_some_and(|lane| {
            lane.overdue();
            lane.opens()
        });
        if opens {
            traffic.depart(self.place.clone());
        }
    }
}

impl<C: BatchExecutor> Drop for InFlightBatch<C> {
    fn drop(&mut self) {
        let Some(traffic) = self.traffic.upgrade() else { return };
        let mut lanes = traffic.lanes();
        let Some(lane) = lanes.get_mut(&self.place) else { return };
        let (left, opens) = match &self.state {
            BatchState::Idle => (None, false),
            // Never run: the runtime is shutting down, and another task would not run either. Waiting callers are
            // answered.
            BatchState::Boarding => (Some(lane.close()), false),
            BatchState::UnderWay { rows, overdue } => {
                lane.land(rows, *overdue);
                (None, lane.opens())
            }
        };
        if lane.is_empty() {
            lanes.remove(&self.place);
        }
        drop(lanes);
        drop(left);
        if opens {
            traffic.depart(self.place.clone());
        }
    }
}
