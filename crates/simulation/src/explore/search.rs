//! The search visits each state once, depth first. It checks the invariant after every step, and the derived data in
//! every state that has no next step.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;

use foldhash::quality::FixedState;

use super::runs::{AT_ONCE, RunEnd, RunStart, Runs};
use super::script::Script;
use super::state::{
    IDLE, LATE, MESSAGES, Move, NO_MESSAGE, RequestFate, SearchState, WORKERS, WorkerState, read,
};
use super::tiny::{ItemOp, RequestAnswer, RowStates};
use crate::oracle;
use evenkeel_account::company::{catalog, table};
use evenkeel_engine::Work;
use evenkeel_storage::Rng as _;
use evenkeel_storage::system::SeededRng;

/// The last era (half an hour) of a search. A recheck may queue another recheck, and such a chain must end by this era.
const LAST_ERA: u8 = 12;

#[derive(Debug, Clone, Default)]
pub struct SearchReport {
    pub executions: u64,
    pub states: u64,
    /// Whether every state was visited.
    pub complete: bool,
    /// Number of complete interleavings, if the search is complete.
    pub interleavings: f64,
    /// Number of steps that were discarded because no more lost races were allowed.
    pub cut: u64,
    pub ends: u64,
    /// Number of states of runs that were found by executing the real code.
    pub points: u64,
    pub longest: usize,
    /// The first violation, with the steps that led to it.
    pub violation: Option<(String, Vec<String>)>,
}

struct SearchFrame {
    state: SearchState,
    hash: u64,
    moves: Vec<Move>,
    next: usize,
    /// Number of complete interleavings from this state that have been found so far.
    ways: f64,
}

struct Search {
    script: Script,
    runs: Runs,
    hasher: FixedState,
    /// The hash of each state whose steps have all been searched, with the number of interleavings from that state.
    met: HashMap<u64, f64, FixedState>,
    rng: Option<SeededRng>,
    judged: HashSet<RowStates>,
    explored: SearchReport,
}

/// Searches a script completely, or up to `most` executions. A seed shuffles the order of the moves. If there is no
/// time for a complete search, many short searches with different seeds visit more states than one long search.
pub fn explore(script: &Script, most: u64, seed: Option<u64>) -> SearchReport {
    let mut search = Search {
        script: *script,
        runs: Runs::new(catalog(script.shape())),
        hasher: FixedState::with_seed(0),
        met: HashMap::with_hasher(FixedState::with_seed(0)),
        rng: seed.map(SeededRng::new),
        judged: HashSet::new(),
        explored: SearchReport::default(),
    };
    search.run(most);
    search.explored.points = search.runs.points() as u64;
    search.explored.states = search.met.len() as u64;
    search.explored
}

impl Search {
    fn run(&mut self, most: u64) {
        let start = SearchState::new(self.script.budget);
        let hash = self.hasher.hash_one(start);
        let moves = self.moves(&start);
        let mut stack = vec![SearchFrame {
            state: start,
            hash,
            moves,
            next: 0,
            ways: 0.0,
        }];
        while let Some(frame) = stack.last_mut() {
            let Some(step) = frame.moves.get(frame.next).copied() else {
                let (hash, ways) = (frame.hash, frame.ways);
                self.met.insert(hash, ways);
                stack.pop();
                if let Some(before) = stack.last_mut() {
                    before.ways += ways;
                } else {
                    self.explored.interleavings = ways;
                    self.explored.complete = true;
                }
                continue;
            };
            frame.next += 1;
            if self.explored.executions >= most {
                return;
            }
            self.explored.executions += 1;
            let before = frame.state;
            let after = match self.make(&before, step) {
                Ok(Some(after)) => after.in_order(),
                Ok(None) => {
                    self.explored.cut += 1;
                    continue;
                }
                Err(wrong) => return self.violated(&stack, wrong),
            };
            let hash = self.hasher.hash_one(after);
            if let Some(ways) = self.met.get(&hash) {
                frame.ways += ways;
                continue;
            }
            let moves = self.moves(&after);
            let mut ways = 0.0;
            if moves.is_empty() {
                ways = 1.0;
                self.explored.ends += 1;
                if let Err(wrong) = self.judge(&after) {
                    return self.violated(&stack, wrong);
                }
            }
            stack.push(SearchFrame {
                state: after,
                hash,
                moves,
                next: 0,
                ways,
            });
            self.explored.longest = self.explored.longest.max(stack.len() - 1);
        }
    }

    fn violated(&mut self, stack: &[SearchFrame], wrong: String) {
        let steps = stack.iter().filter_map(|frame| {
            Some(self.show(&frame.state, *frame.moves.get(frame.next.checked_sub(1)?)?))
        });
        let steps = steps.collect();
        self.explored.violation = Some((wrong, steps));
    }

    fn moves(&self, state: &SearchState) -> Vec<Move> {
        let mut moves = Vec::with_capacity(12);
        if usize::from(state.step) < self.script.steps.len() {
            moves.push(Move::Client);
        }
        let resting = state.workers.iter().all(|busy| busy.at == 0);
        let visible = |mail: usize| {
            state.mail[mail].there && !state.mail[mail].hidden && state.mail[mail].from <= state.era
        };
        if let Some(idle) = (0..WORKERS).find(|worker| state.workers[*worker].at == 0) {
            moves.extend(
                (0..MESSAGES)
                    .filter(|mail| visible(*mail))
                    .map(|mail| Move::Take {
                        worker: small(idle),
                        mail: small(mail),
                    }),
            );
        }
        let room = state.late.contains(&0) && state.left.late > 0;
        for (at, busy) in state
            .workers
            .iter()
            .enumerate()
            .filter(|(_, busy)| busy.at > 0)
        {
            let worker = small(at);
            if self.runs.end(busy.at).is_some() {
                moves.push(Move::Settle { worker });
            }
            for (index, request) in self
                .runs
                .open_requests(busy.at)
                .iter()
                .enumerate()
                .filter(|(index, _)| busy.answers[*index].is_none())
            {
                let ask = small(index);
                moves.push(Move::Ask {
                    worker,
                    ask,
                    how: RequestFate::Answered,
                });
                if matches!(self.runs.item_op(*request), ItemOp::Read(_)) {
                    continue;
                }
                if state.left.silences > 0 {
                    moves.push(Move::Ask {
                        worker,
                        ask,
                        how: RequestFate::AnswerLost,
                    });
                    moves.push(Move::Ask {
                        worker,
                        ask,
                        how: RequestFate::RequestLost,
                    });
                }
                if room {
                    moves.push(Move::Ask {
                        worker,
                        ask,
                        how: RequestFate::Late,
                    });
                    if state.left.crashes > 0 {
                        moves.push(Move::Ask {
                            worker,
                            ask,
                            how: RequestFate::LateFromCrash,
                        });
                    }
                }
            }
            if state.left.crashes > 0 {
                moves.push(Move::Crash { worker });
            }
            if state.left.leases > 0 && state.holds(at) && state.mail[usize::from(busy.mail)].hidden
            {
                moves.push(Move::LoseLease { worker });
            }
        }
        moves.extend(
            (0..LATE)
                .filter(|late| state.late[*late] > 0)
                .map(|late| Move::Arrive { late: small(late) }),
        );
        let waiting = state
            .mail
            .iter()
            .any(|mail| mail.there && mail.from > state.era)
            || state.late.iter().any(|late| *late > 0);
        if resting && waiting {
            moves.push(Move::TimePasses);
        }
        if let Some(rng) = &self.rng {
            moves.sort_by_cached_key(|_| rng.next_u64());
        }
        moves
    }

    /// Applies a step to a state. Returns `None` if the step loses a race and no more lost races are allowed. An error
    /// describes a violation.
    fn make(&mut self, before: &SearchState, step: Move) -> Result<Option<SearchState>, String> {
        let mut state = *before;
        match step {
            Move::Client => {
                let step = self.script.steps[usize::from(state.step)];
                state.step += 1;
                if let Some(operation) = step.operation() {
                    let row_write = self
                        .runs
                        .registry
                        .row_write(&table("Employees"), &operation);
                    self.runs
                        .registry
                        .write(&mut state.row_states, state.era, &[row_write]);
                }
                if let Some(job) = step.job() {
                    let work = self.runs.work(Work::Job(job));
                    state.put(work, state.era);
                }
            }
            Move::Take { worker, mail } => {
                let taken = &mut state.mail[usize::from(mail)];
                taken.hidden = true;
                taken.deliveries += 1;
                let RunStart {
                    work,
                    again,
                    enqueued,
                    era,
                } = RunStart {
                    work: taken.work,
                    again: taken.deliveries > 1,
                    enqueued: taken.enqueued,
                    era: state.era,
                };
                let delivery = taken.deliveries;
                let at = self.runs.begin(RunStart {
                    work,
                    again,
                    enqueued,
                    era,
                });
                state.workers[usize::from(worker)] = WorkerState {
                    at,
                    mail,
                    delivery,
                    ..IDLE
                };
            }
            Move::Ask { worker, ask, how } => {
                let answer = self.ask(&mut state, usize::from(worker), usize::from(ask), how);
                if matches!(answer, RequestAnswer::Refused(..)) {
                    let Some(races) = state.left.races.checked_sub(1) else {
                        return Ok(None);
                    };
                    state.left.races = races;
                }
            }
            Move::Settle { worker } => {
                let at = usize::from(worker);
                let (holds, mail) = (state.holds(at), state.workers[at].mail);
                match self.runs.end(state.workers[at].at) {
                    Some(RunEnd::Poison(why)) => return Err(format!("poisoned: {why}")),
                    Some(RunEnd::Done) if holds => state.delete(mail),
                    Some(RunEnd::Again) if holds => state.mail[usize::from(mail)].hidden = false,
                    Some(RunEnd::Done | RunEnd::Again) | None => {}
                }
                state.workers[at] = IDLE;
            }
            Move::Crash { worker } => {
                state.left.crashes -= 1;
                crash(&mut state, usize::from(worker));
            }
            Move::LoseLease { worker } => {
                state.left.leases -= 1;
                state.mail[usize::from(state.workers[usize::from(worker)].mail)].hidden = false;
            }
            Move::Arrive { late } => {
                let request = std::mem::take(&mut state.late[usize::from(late)]) - 1;
                self.execute(&mut state, request);
            }
            Move::TimePasses => {
                state.late = [0; LATE];
                state.era += 1;
                if state.era > LAST_ERA {
                    return Err("rechecks queue further rechecks without end".to_owned());
                }
            }
        }
        self.check(&state)?;
        Ok(Some(state))
    }

    fn ask(
        &mut self,
        state: &mut SearchState,
        worker: usize,
        ask: usize,
        how: RequestFate,
    ) -> RequestAnswer {
        let busy = state.workers[worker];
        let request = self.runs.open_requests(busy.at)[ask];
        let answer = match how {
            RequestFate::Answered => self.execute(state, request),
            RequestFate::AnswerLost => {
                state.left.silences -= 1;
                self.execute(state, request);
                RequestAnswer::Silence
            }
            RequestFate::RequestLost => {
                state.left.silences -= 1;
                RequestAnswer::Silence
            }
            RequestFate::Late | RequestFate::LateFromCrash => {
                state.left.late -= 1;
                if let Some(place) = state.late.iter_mut().find(|late| **late == 0) {
                    *place = request + 1;
                }
                RequestAnswer::Silence
            }
        };
        if how == RequestFate::LateFromCrash {
            state.left.crashes -= 1;
            crash(state, worker);
            return answer;
        }
        let busy = &mut state.workers[worker];
        busy.answers[ask] = Some(answer);
        if busy
            .answers
            .iter()
            .take(self.runs.open_requests(busy.at).len())
            .all(Option::is_some)
        {
            busy.at = self.runs.next(busy.at, busy.answers);
            busy.answers = [None; AT_ONCE];
        }
        answer
    }

    fn execute(&mut self, state: &mut SearchState, request: u32) -> RequestAnswer {
        match self.runs.item_op(request).clone() {
            ItemOp::Read(row) => read(&state.row_states, row),
            ItemOp::Write(row_writes) => {
                self.runs
                    .registry
                    .write(&mut state.row_states, state.era, &row_writes)
            }
            ItemOp::Recheck(work) => {
                state.put(work, state.era + 1);
                RequestAnswer::Queued
            }
        }
    }

    /// Checks the invariant: every derived item that exists is listed in a footprint or queued for a recheck.
    fn check(&self, state: &SearchState) -> Result<(), String> {
        let (derived, listed) = self.runs.registry.derived_and_listed(&state.row_states);
        if derived & !listed == 0 {
            return Ok(());
        }
        let queued = state
            .mail
            .iter()
            .filter(|mail| mail.there)
            .fold(0, |all, mail| all | self.runs.rechecked_rows(mail.work));
        if derived & !listed & !queued == 0 {
            Ok(())
        } else {
            Err("a derived item is neither in a footprint nor queued for a recheck".to_owned())
        }
    }

    /// Checks that derived data equals a second computation, and that the real code finds nothing to change.
    fn judge(&mut self, state: &SearchState) -> Result<(), String> {
        if state.mail.iter().any(|mail| mail.there)
            || usize::from(state.step) < self.script.steps.len()
        {
            return Err("no step is possible, but messages or client steps are left".to_owned());
        }
        if !self.judged.insert(state.row_states) {
            return Ok(());
        }
        oracle::judge(
            &self.runs.registry.tables(&state.row_states),
            self.script.shape(),
        )?;
        self.script
            .primaries()
            .try_for_each(|primary| self.runs.is_in_step(&primary, &state.row_states))
    }

    fn show(&self, state: &SearchState, step: Move) -> String {
        let about = |worker: u8| {
            let busy = &state.workers[usize::from(worker)];
            if busy.mail == NO_MESSAGE {
                "a deleted message".to_owned()
            } else {
                format!("message {}, delivery {}", busy.mail, busy.delivery)
            }
        };
        match step {
            Move::Client => format!(
                "the client: {:?}",
                self.script.steps[usize::from(state.step)]
            ),
            Move::Take { mail, .. } => {
                format!(
                    "a worker receives message {mail}: {}",
                    self.runs.show_work(state.mail[usize::from(mail)].work)
                )
            }
            Move::Ask { worker, ask, how } => {
                let request = self
                    .runs
                    .open_requests(state.workers[usize::from(worker)].at)[usize::from(ask)];
                format!(
                    "the worker with {} sends a request ({how:?}): {}",
                    about(worker),
                    self.runs.show(request)
                )
            }
            Move::Settle { worker } => {
                format!(
                    "the worker with {} settles: {:?}",
                    about(worker),
                    self.runs.end(state.workers[usize::from(worker)].at)
                )
            }
            Move::Crash { worker } => format!("the worker with {} crashes", about(worker)),
            Move::LoseLease { worker } => format!(
                "the worker with {} loses its lease without noticing",
                about(worker)
            ),
            Move::Arrive { late } => format!(
                "a late request arrives: {}",
                self.runs.show(state.late[usize::from(late)] - 1)
            ),
            Move::TimePasses => {
                let rows: Vec<String> = state
                    .row_states
                    .iter()
                    .enumerate()
                    .map(|(row, row_state)| self.runs.registry.show(row, *row_state))
                    .collect();
                format!("half an hour passes, with these rows: {rows:?}")
            }
        }
    }
}

fn crash(state: &mut SearchState, worker: usize) {
    if state.holds(worker) {
        let mail = state.workers[worker].mail;
        state.mail[usize::from(mail)].hidden = false;
    }
    state.workers[worker] = IDLE;
}

fn small(number: usize) -> u8 {
    u8::try_from(number).unwrap_or(u8::MAX)
}
