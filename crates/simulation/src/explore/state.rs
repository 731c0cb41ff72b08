//! A state of the tiny world: rows, messages, workers, requests on their way, and what may still go wrong.

use super::runs::{AT_ONCE, Heard, Point};
use super::tiny::{RequestAnswer, RowStates};

/// Workers.
pub(super) const WORKERS: usize = 3;
/// Most messages at once, second looks included.
pub(super) const MESSAGES: usize = 10;
/// Most requests on their way at once.
pub(super) const LATE: usize = 2;

/// How often what may go wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// Workers that stop at any moment; their request may still be on its way.
    pub(super) crashes: u8,
    /// Leases that end while a worker works on, unnoticed.
    pub(super) leases: u8,
    /// Requests without an answer, executed or not.
    pub(super) silences: u8,
    /// Races that are lost: conditions that fail.
    pub(super) races: u8,
    /// Requests that arrive after their sender gave them up.
    pub(super) late: u8,
}

/// A message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Mail {
    /// Whether there is one.
    pub(super) there: bool,
    pub(super) hidden: bool,
    pub(super) work: u16,
    /// How often it was got.
    pub(super) deliveries: u8,
    pub(super) enqueued: u8,
    /// The era from which on it is visible.
    pub(super) from: u8,
}

/// A worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct WorkerState {
    /// Where its run is; 0 where it has none.
    pub(super) at: Point,
    /// What it has heard of what it asks there.
    pub(super) heard: Heard,
    /// Its message; beyond all where that is gone.
    pub(super) mail: u8,
    /// Which delivery of it.
    pub(super) delivery: u8,
}

/// A worker with nothing to do.
pub(super) const IDLE: WorkerState = WorkerState {
    at: 0,
    heard: [None; AT_ONCE],
    mail: 0,
    delivery: 0,
};
/// The message of a worker whose message is gone.
pub(super) const NO_MAIL: u8 = u8::MAX;

/// A state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct SearchState {
    pub(super) row_states: RowStates,
    pub(super) mail: [Mail; MESSAGES],
    pub(super) workers: [WorkerState; WORKERS],
    /// Requests on their way; 0 for none, else one more than the number.
    pub(super) late: [u32; LATE],
    /// Steps that the client has taken.
    pub(super) step: u8,
    pub(super) era: u8,
    pub(super) left: Budget,
}

/// How a request goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum How {
    Answered,
    /// Executed; the answer is lost.
    AnswerLost,
    /// Not executed.
    RequestLost,
    /// On its way; its sender gives it up.
    Late,
    /// On its way; its sender crashes.
    LateFromCrash,
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    Client,
    Take { worker: u8, mail: u8 },
    Ask { worker: u8, ask: u8, how: How },
    Settle { worker: u8 },
    Crash { worker: u8 },
    LoseLease { worker: u8 },
    Arrive { late: u8 },
    TimePasses,
}

/// What a read finds.
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
            mail: [Mail::default(); MESSAGES],
            workers: [IDLE; WORKERS],
            late: [0; LATE],
            step: 0,
            era: 0,
            left,
        }
    }

    /// Puts a message. Of second looks that nobody sees yet and that are alike, one is enough.
    pub(super) fn put(&mut self, work: u16, from: u8) {
        let waits = |mail: &Mail| {
            mail.there && mail.work == work && mail.from == from && mail.enqueued == self.era
        };
        if from > self.era && self.mail.iter().any(waits) {
            return;
        }
        let Some(place) = self.mail.iter_mut().find(|mail| !mail.there) else {
            unreachable!("more than {MESSAGES} messages")
        };
        *place = Mail {
            there: true,
            hidden: false,
            work,
            deliveries: 0,
            enqueued: self.era,
            from,
        };
    }

    /// A message is gone: a worker that still has it has nothing to settle.
    pub(super) fn delete(&mut self, mail: u8) {
        self.mail[usize::from(mail)] = Mail::default();
        for worker in &mut self.workers {
            if worker.at > 0 && worker.mail == mail {
                worker.mail = NO_MAIL;
            }
        }
    }

    /// Whether a worker's receipt is good.
    pub(super) fn holds(&self, worker: usize) -> bool {
        let busy = &self.workers[worker];
        busy.mail != NO_MAIL && self.mail[usize::from(busy.mail)].deliveries == busy.delivery
    }

    /// Workers are alike, and so are places of messages and of requests on their way: states that differ in their
    /// order alone are one.
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
