//! Determines the readiness of the program from the state of its parts.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::SignedDuration;
use tokio_util::sync::CancellationToken;

use evenkeel_layers::circuit::Circuits;
use evenkeel_model::{AccountName, TableName};
use evenkeel_ops::{NotReady, Readiness};
use evenkeel_storage::{Clock, ErrorClass, Service, StoreError, StoreHealth as _, Subject};
use evenkeel_worker::{QueueStatus, ReceiverState, StatusBoard};

/// If a queue has not answered for longer than this, it is reported. A few lost requests take less
/// time. Every alert has a longer delay.
const SILENCE: Duration = Duration::from_secs(30);

/// The phase of the program, and the parts that its readiness depends on.
pub(super) struct ProgramState {
    phase: Mutex<Phase>,
    shutdown: CancellationToken,
    circuits: Arc<Circuits>,
    clock: Arc<dyn Clock>,
    missing: Mutex<BTreeSet<(AccountName, TableName)>>,
}

#[derive(Clone)]
enum Phase {
    Starting,
    Waiting {
        account: AccountName,
        service: Service,
        answer: ErrorClass,
    },
    Working(StatusBoard),
    Outdated {
        generation: Option<u32>,
    },
}

impl ProgramState {
    pub(super) fn new(
        shutdown: CancellationToken,
        circuits: Arc<Circuits>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            phase: Mutex::new(Phase::Starting),
            shutdown,
            circuits,
            clock,
            missing: Mutex::default(),
        }
    }

    pub(super) fn working(&self, board: StatusBoard) {
        *self.phase() = Phase::Working(board);
    }

    pub(super) fn waiting(&self, error: &StoreError) {
        let Subject {
            account,
            resource: what,
        } = error.subject.as_ref();
        *self.phase() = Phase::Waiting {
            account: account.clone(),
            service: what.service(),
            answer: error.class,
        };
    }

    pub(super) fn outdated(&self, generation: u32) {
        *self.phase() = Phase::Outdated {
            generation: Some(generation),
        };
    }

    pub(super) fn refused(&self) {
        let mut phase = self.phase();
        if !matches!(*phase, Phase::Outdated { .. }) {
            *phase = Phase::Outdated { generation: None };
        }
    }

    pub(super) fn missing(&self, tables: BTreeSet<(AccountName, TableName)>) {
        *self.missing.lock().unwrap_or_else(PoisonError::into_inner) = tables;
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue_reason(&self, queue: QueueStatus) -> Option<NotReady> {
        let silent = match (queue.last_poll, &queue.last_error) {
            (None, _) => true,
            (Some(last), Some(_)) => {
                self.clock.now().duration_since(last)
                    > SignedDuration::try_from(SILENCE).unwrap_or(SignedDuration::MAX)
            }
            // No poll has failed since the last successful one, so the queue is not silent, even if
            // that poll was long ago. The receiver then waits for free slots.
            (Some(_), None) => false,
        };
        match queue.state {
            ReceiverState::Draining => Some(NotReady::Draining),
            ReceiverState::Stopped => Some(NotReady::Starting),
            // An open circuit breaker is reported separately, so it is not reported again.
            ReceiverState::PausedByStore => None,
            ReceiverState::AnswersLost => Some(NotReady::NoSuccessfulPoll {
                queue: queue.queue,
                last: queue.last_poll,
            }),
            ReceiverState::Receiving => silent.then_some(NotReady::NoSuccessfulPoll {
                queue: queue.queue,
                last: queue.last_poll,
            }),
        }
    }
}

impl Readiness for ProgramState {
    fn reasons(&self) -> Vec<NotReady> {
        if self.shutdown.is_cancelled() {
            return vec![NotReady::Draining];
        }
        let phase = self.phase().clone();
        let mut reasons = match phase {
            Phase::Starting => vec![NotReady::Starting],
            Phase::Waiting {
                account,
                service,
                answer,
            } => {
                vec![NotReady::WaitingForStore {
                    account,
                    service: service.name(),
                    answer: answer.name(),
                }]
            }
            Phase::Outdated { generation } => vec![NotReady::OutdatedCatalog { generation }],
            Phase::Working(board) => board
                .snapshot()
                .queues
                .into_iter()
                .filter_map(|queue| self.queue_reason(queue))
                .collect(),
        };
        reasons.extend(self.circuits.open_circuits().into_iter().map(|open| {
            NotReady::CircuitOpen {
                account: open.account,
                service: open.service.name(),
                since: open.since,
            }
        }));
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        reasons.extend(
            missing
                .iter()
                .map(|(account, table)| NotReady::MissingTable {
                    account: account.clone(),
                    table: table.clone(),
                }),
        );
        drop(missing);
        reasons.dedup();
        reasons
    }
}
