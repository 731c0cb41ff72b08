//! A state of the search: rows, messages, workers, requests in flight, and the faults that may still occur.

use super::runs::{AT_ONCE, PendingAnswers, Point};
use super::tiny::{RequestAnswer, RowStates};

pub(super) const WORKERS: usize = 3;
pub(super) const MESSAGES: usize = 10;
pub(super) const LATE: usize = 2;

/// How often each fault may still occur.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Crashes of workers at any moment. The request of a crashed worker may still be in flight.
    pub(super) crashes: u8,
    /// Leases that end during a run, without the worker's knowledge.
    pub(super) leases: u8,
    /// Requests whose answer is lost, whether or not they are executed.
    pub(super) silences: u8,
    /// Conditional writes that fail because another writer has won the race.
    pub(super) races: u8,
    /// Requests that arrive after their sender has given up.
    pub(super) late: u8,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct QueuedMessage {
    pub(super) there: bool,
    pub(super) hidden: bool,
    pub(super) work: u16,
    /// Dequeue count.
    pub(super) deliveries: u8,
    pub(super) enqueued: u8,
    /// The era (half hour) in which the message becomes visible.
    pub(super) from: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WorkerState {
    /// The point that the worker's run has reached, or 0 if the worker has no run.
    pub(super) at: Point,
    pub(super) answers: PendingAnswers,
    /// The index of the worker's message, or `NO_MESSAGE` if the message was deleted.
    pub(super) mail: u8,
    pub(super) delivery: u8,
}

pub(super) const IDLE: WorkerState = WorkerState {
    at: 0,
    answers: [None; AT_ONCE],
    mail: 0,
    delivery: 0,
};
pub(super) const NO_MESSAGE: u8 = u8::MAX;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SearchState {
    pub(super) row_states: RowStates,
    pub(super) mail: [QueuedMessage; MESSAGES],
    pub(super) workers: [WorkerState; WORKERS],
    /// The requests in flight. Each is represented by its number plus one, and a free slot by 0.
    pub(super) late: [u32; LATE],
    pub(super) step: u8,
    pub(super) era: u8,
    pub(super) left: Budget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestFate {
    Answered,
    AnswerLost,
    RequestLost,
    /// The request stays in flight, and its sender gives up.
    Late,
    /// The request stays in flight, and its sender crashes.
    LateFromCrash,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Client,
    Take {
        worker: u8,
        mail: u8,
    },
    Ask {
        worker: u8,
        ask: u8,
        how: RequestFate,
    },
    Settle {
        worker: u8,
    },
    Crash {
        worker: u8,
    },
    LoseLease {
        worker: u8,
    },
    Arrive {
        late: u8,
    },
    TimePasses,
}

pub(super) fn read(row_states: &RowStates, row: u8) -> RequestAnswer {
    let row_state = row_states[usize::from(row)];
    if row_state.content == 0 {
        RequestAnswer::Absent
    } else {
        RequestAnswer::Found(row_state)
    }
}

impl SearchState {
    pub(super) fn new(left: Budget) -> Self {
        Self {
            row_states: RowStates::default(),
            mail: [QueuedMessage::default(); MESSAGES],
            workers: [IDLE; WORKERS],
            late: [0; LATE],
            step: 0,
            era: 0,
            left,
        }
    }

    /// Puts a message. Equal rechecks that are not visible yet are merged into one.
    pub(super) fn put(&mut self, work: u16, from: u8) {
        let waits = |mail: &QueuedMessage| {
            mail.there && mail.work == work && mail.from == from && mail.enqueued == self.era
        };
        if from > self.era && self.mail.iter().any(waits) {
            return;
        }
        let Some(place) = self.mail.iter_mut().find(|mail| !mail.there) else {
            unreachable!("more than {MESSAGES} messages")
        };
        *place = QueuedMessage {
            there: true,
            hidden: false,
            work,
            deliveries: 0,
            enqueued: self.era,
            from,
        };
    }

    /// Deletes a message. A worker that still processes the message can no longer settle it.
    pub(super) fn delete(&mut self, mail: u8) {
        self.mail[usize::from(mail)] = QueuedMessage::default();
        for worker in &mut self.workers {
            if worker.at > 0 && worker.mail == mail {
                worker.mail = NO_MESSAGE;
            }
        }
    }

    /// Whether a worker's pop receipt is valid.
    pub(super) fn holds(&self, worker: usize) -> bool {
        let busy = &self.workers[worker];
        busy.mail != NO_MESSAGE && self.mail[usize::from(busy.mail)].deliveries == busy.delivery
    }

    /// Sorts messages, workers and requests in flight, because states that differ only in their order are equivalent.
    pub(super) fn in_order(mut self) -> Self {
        for at in 1..MESSAGES {
            let mut at = at;
            while at > 0 && self.mail[at - 1] < self.mail[at] {
                self.mail.swap(at - 1, at);
                for worker in self.workers.iter_mut().filter(|worker| worker.at > 0) {
                    worker.mail = match usize::from(worker.mail) {
                        mail if mail == at => worker.mail - 1,
                        mail if mail + 1 == at => worker.mail + 1,
                        _ => worker.mail,
                    };
                }
                at -= 1;
            }
        }
        self.workers
            .sort_unstable_by_key(|worker| (worker.at, worker.mail, worker.delivery));
        self.late.sort_unstable();
        self
    }
}
