//! The shared state of one run: virtual time, the records, the story, and the first violation, which ends the run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::busy::BusyQueues;
use super::client::EMPLOYEES;
use super::cuts::{Cut, CutChance};
use super::fault::{FaultCounts, FaultKind};
use super::hash::Hash;
use super::history::{CLIENT, History, is_primary};
use super::ledger::{DeliveryRef, Expectation, Ledger, SentRequest};
use super::mirror::Mirror;
use super::races::Races;
use super::rare_event::{RareEvent, RareEventCounter};
use super::releases::KnownRecord;
use super::run::RunRequest;
use super::tally::GroupedRequests;
use evenkeel_account::{Execution, ObservedChange, OperationInfo, Witness};
use evenkeel_engine::Outcome;
use evenkeel_model::job::Primary;
use evenkeel_model::{AccountName, EntityKey};
use evenkeel_storage::{Clock, Resource, Service, Subject, Ttl};

pub(super) const OPERATOR: u32 = 1;
pub(super) const READER: u32 = u32::MAX;
pub(super) const WORKERS: u32 = 2;

/// Restrictions of a run, with which `shrink` finds the shortest story of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLimits {
    pub without: BTreeSet<FaultKind>,
    pub faults: u64,
    /// The step groups of the client that are kept, numbered from 1. `None` keeps all.
    pub step_groups: Option<BTreeSet<usize>>,
    pub workers: usize,
}

impl Default for RunLimits {
    fn default() -> Self {
        Self {
            without: BTreeSet::new(),
            faults: u64::MAX,
            step_groups: None,
            workers: usize::MAX,
        }
    }
}

pub(super) struct SharedState {
    start: Instant,
    base: Timestamp,
    seed: u64,
    cuts: Vec<Cut>,
    allowed: RunLimits,
    calm: AtomicBool,
    panics_stopped: AtomicBool,
    keeps_story: bool,
    failed: Notify,
    deleted: Notify,
    records: Mutex<RunRecords>,
}

pub(super) const GET_MESSAGES: &str = "Get Messages";

#[derive(Default)]
pub(super) struct RunRecords {
    /// Logical time: the number of events so far.
    tick: u64,
    hash: Hash,
    pub(super) operations: u64,
    pub(super) polls: u64,
    pub(super) together: GroupedRequests,
    pub(super) rare_event_counter: RareEventCounter,
    pub(super) faults: FaultCounts,
    pub(super) ledger: Ledger,
    pub(super) history: History,
    pub(super) mirror: Mirror,
    register: KnownRecord,
    /// Numbers of the operations that are executed although a fault was injected on them.
    faulty: BTreeSet<u64>,
    sent: BTreeMap<u64, SentRequest>,
    panicking_messages: BTreeMap<String, bool>,
    /// Numbers of the operations whose answer is lost. If such an operation deletes employees, the client recreates the
    /// employees.
    recreate_if_deleted: BTreeSet<u64>,
    /// Entities that the client should recreate or change, with the fault that causes this.
    recreate: VecDeque<(FaultKind, EntityKey)>,
    /// Employees whose derived rows or footprint were written by others than workers.
    foreign_writes: BTreeSet<EntityKey>,
    /// Workers and queues for which a Get Messages request has failed. The next Get Messages request may be a retry.
    /// The leases of its messages then count from the time at which the first attempt was sent.
    failed_gets: BTreeSet<(u32, String)>,
    /// For each worker, the time until which a queue has asked it to wait. The worker cannot renew its leases before
    /// that time.
    wait_until: BTreeMap<u32, Duration>,
    busy: BusyQueues,
    running: BTreeSet<(u32, Primary)>,
    races: Races,
    /// Workers whose catalog is not the recorded one, with the time after which they must not receive messages.
    standing: BTreeMap<u32, Duration>,
    pub(super) violation: Option<String>,
    pub(super) story: Vec<String>,
}

impl SharedState {
    pub(super) fn new(max_dequeue_count: u32, request: &RunRequest) -> Self {
        Self {
            start: Instant::now(),
            base: Timestamp::from_second(1_795_000_000).unwrap_or_default(),
            seed: request.seed,
            cuts: request.cuts.clone(),
            allowed: request.allowed.clone(),
            calm: AtomicBool::new(false),
            panics_stopped: AtomicBool::new(false),
            keeps_story: request.keeps_story,
            failed: Notify::new(),
            deleted: Notify::new(),
            records: Mutex::new(RunRecords {
                ledger: Ledger::new(max_dequeue_count),
                ..RunRecords::default()
            }),
        }
    }

    pub(super) fn records(&self) -> MutexGuard<'_, RunRecords> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn rng(self: &Arc<Self>, part: u64) -> CutChance {
        CutChance::new(Arc::clone(self), self.seed, &self.cuts, part)
    }

    pub(super) fn tick(&self) -> u64 {
        self.records().tick
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn at(&self, elapsed: Duration) -> Timestamp {
        self.base.checked_add(elapsed).unwrap_or(Timestamp::MAX)
    }

    pub(super) fn until(&self, moment: Timestamp) -> Duration {
        Duration::try_from(moment.duration_since(self.at(self.elapsed()))).unwrap_or_default()
    }

    pub(super) fn calm_down(&self) {
        self.calm.store(true, Ordering::Relaxed);
        self.tell(|| "the storm is over: no more faults".to_owned());
    }

    pub(super) fn is_calm(&self) -> bool {
        self.calm.load(Ordering::Relaxed)
    }

    pub(super) fn stop_panics(&self) {
        self.panics_stopped.store(true, Ordering::Relaxed);
    }

    /// Whether every run of this message panics. `chosen` decides this at the message's first run.
    pub(super) fn always_panics(&self, message: &str, chosen: impl FnOnce() -> bool) -> bool {
        if self.panics_stopped.load(Ordering::Relaxed) {
            return false;
        }
        let known = self.records().panicking_messages.get(message).copied();
        known.unwrap_or_else(|| {
            let panics = chosen() && self.inject(FaultKind::AlwaysPanics);
            self.records()
                .panicking_messages
                .insert(message.to_owned(), panics);
            panics
        })
    }

    /// Number of queued messages whose runs always panic.
    pub(super) fn panicking_messages(&self) -> usize {
        let records = self.records();
        records.ledger.queued(
            records
                .panicking_messages
                .iter()
                .filter(|(_, panics)| **panics)
                .map(|(entry, _)| entry),
        )
    }

    pub(super) fn tell(&self, line: impl FnOnce() -> String) {
        if self.keeps_story {
            self.records().tell(self.elapsed(), &line());
        }
    }

    pub(super) fn violated(&self, what: String) {
        self.tell(|| format!("VIOLATION: {what}"));
        self.records().violation.get_or_insert(what);
        self.failed.notify_one();
    }

    pub(super) async fn wrong(&self) {
        self.failed.notified().await;
    }

    pub(super) fn is_allowed(&self, fault: FaultKind) -> bool {
        !self.is_calm()
            && !self.allowed.without.contains(&fault)
            && self.records().faults.total() < self.allowed.faults
    }

    /// Whether a fault may be injected now. If so, the fault is counted.
    pub(super) fn inject(&self, fault: FaultKind) -> bool {
        if !self.is_allowed(fault) {
            return false;
        }
        let mut records = self.records();
        records.faults.add(fault);
        records.hash.number(fault as u64);
        let tick = records.tick;
        records.races.last_fault = tick;
        true
    }

    /// Records that a worker sends an operation, with the runs that are active now. A run may end before its operation
    /// arrives.
    pub(super) fn sends(&self, caller: u32, operation: &OperationInfo) {
        let stands = operation.name == GET_MESSAGES
            && self
                .records()
                .standing
                .get(&caller)
                .is_some_and(|from| *from < self.elapsed());
        if stands {
            self.violated(format!(
                "{} receives messages although another catalog is recorded",
                name(caller)
            ));
        }
        if operation.writes && operation.what.service() != Service::Queue {
            let mut records = self.records();
            let sent = SentRequest {
                authors: records.ledger.at_work(caller),
            };
            records.sent.insert(operation.number, sent);
        }
    }

    /// Records a fault of a worker's operation, and the deliveries that the fault explains.
    pub(super) fn record_fault(&self, fault: FaultKind, caller: u32, operation: &OperationInfo) {
        let mut records = self.records();
        records.faulty.insert(operation.number);
        records.races.delayed(caller, self.elapsed());
        if operation.what.service() == Service::Queue {
            match fault {
                // A slow request does not delay other requests, so it does not explain why deliveries count as
                // attempts.
                FaultKind::SlowRequest | FaultKind::SlowAnswer => records.ledger.disturb(caller),
                FaultKind::Throttling => {
                    records.ledger.disturb(caller);
                    records.busy.answered(caller, self.elapsed());
                }
                _ => records.ledger.explain(caller),
            }
        }
        if operation.name == GET_MESSAGES {
            records.failed_gets.insert((caller, about(operation)));
        }
        if let Resource::Message(_, id) = &operation.what {
            records.ledger.disturb_message(id);
        }
        drop(records);
        self.tell(|| {
            format!(
                "{:8} FAULT {fault} at #{} {} {}",
                name(caller),
                operation.number,
                operation.name,
                about(operation)
            )
        });
    }

    pub(super) fn recreate_what_is_deleted_by(&self, operation: u64) {
        self.records().recreate_if_deleted.insert(operation);
    }

    pub(super) fn queue_client_change(&self, fault: FaultKind, key: &EntityKey) {
        self.records().recreate.push_back((fault, key.clone()));
        self.deleted.notify_one();
    }

    pub(super) fn record_foreign_write(&self, key: &EntityKey) {
        self.records().foreign_writes.insert(key.clone());
    }

    pub(super) async fn next_client_change(&self) -> (FaultKind, EntityKey) {
        loop {
            let next = self.records().recreate.pop_front();
            if let Some(key) = next {
                return key;
            }
            self.deleted.notified().await;
        }
    }

    /// Records that a queue has asked a worker to wait. Meanwhile the worker may lose its messages, including those
    /// that a Get Messages request in flight returns.
    pub(super) fn asked_to_wait(&self, caller: u32, wait: Duration) {
        let until = self.elapsed() + wait;
        let mut records = self.records();
        let wait_until = records.wait_until.entry(caller).or_default();
        *wait_until = until.max(*wait_until);
    }

    /// Records that a worker ends, perhaps without settling all of its messages.
    pub(super) fn explain(&self, caller: u32) {
        self.records().ledger.explain(caller);
    }

    pub(super) fn expect(&self, expectation: Expectation, ttl: Ttl) {
        self.records().ledger.expect(expectation, ttl);
    }

    /// Records the start of a run, and returns its tick.
    pub(super) fn run_begins(
        &self,
        caller: u32,
        primary: Option<&Primary>,
        which: DeliveryRef<'_>,
        what: impl FnOnce() -> String,
    ) -> u64 {
        let (tick, alone) = {
            let mut records = self.records();
            records.tick += 1;
            let tick = records.tick;
            records.races.begins(caller, tick);
            let counted = records.ledger.run_begins(caller, which).and_then(|()| {
                records
                    .races
                    .may_begin(caller, which.1, self.elapsed(), &records.ledger)
            });
            if let Err(wrong) = counted {
                drop(records);
                self.violated(wrong);
                records = self.records();
            }
            (
                records.tick,
                primary.is_none_or(|primary| records.running.insert((caller, primary.clone()))),
            )
        };
        self.tell(|| format!("{:8} run begins: {}", name(caller), what()));
        if let (false, Some(primary)) = (alone, primary) {
            self.violated(format!(
                "{} runs two jobs of {primary} concurrently",
                name(caller)
            ));
        }
        tick
    }

    /// Records the end of a run. `dropped` means that the run neither ended by itself nor timed out.
    pub(super) fn run_ends(
        &self,
        caller: u32,
        primary: Option<&Primary>,
        which: DeliveryRef<'_>,
        dropped: bool,
    ) {
        let mut records = self.records();
        records.tick += 1;
        let tick = records.tick;
        records.races.ends(caller, tick);
        // A worker that drains drops its messages, including those that a Get Messages request in flight returns.
        let drains = records.standing.contains_key(&caller);
        if drains {
            records.ledger.explain(caller);
        }
        let is_left_alone = records.busy.explain(caller, self.elapsed());
        if let Err(wrong) =
            records
                .ledger
                .run_ends(caller, which, dropped && !drains && !is_left_alone)
        {
            drop(records);
            self.violated(wrong);
            records = self.records();
        }
        if let Some(primary) = primary {
            records.running.remove(&(caller, primary.clone()));
        }
    }

    /// Records that the run that began at this tick has lost a race in each of its rounds. This is a violation if the
    /// run had no rival.
    pub(super) fn lost_every_round(&self, caller: u32, began: u64, what: &str) {
        if self.records().races.was_alone(caller, began) {
            self.violated(format!(
                "{} lost every round although it had no rival: {what}",
                name(caller)
            ));
        }
    }

    pub(super) fn run_ended_well(
        &self,
        caller: u32,
        queue: &str,
        id: &str,
        began: u64,
        outcome: &Outcome,
    ) {
        self.records()
            .ledger
            .ended_well(caller, queue, id, began, outcome);
    }

    /// Sets the time after which a worker must not receive messages, because its catalog is not the recorded one.
    /// `None` means that the catalog matches again, or that the worker was replaced.
    pub(super) fn set_receiving_stopped(&self, caller: u32, from: Option<Duration>) {
        let mut records = self.records();
        match from {
            Some(from) => drop(records.standing.insert(caller, from)),
            None => drop(records.standing.remove(&caller)),
        }
    }

    pub(super) fn see(&self, rare_event: RareEvent) {
        self.records()
            .rare_event_counter
            .rare_events
            .add(rare_event);
    }

    pub(super) fn disturb_message(&self, id: &str) {
        self.records().ledger.disturb_message(id);
    }

    /// Records that a run ended without a result. This explains why its delivery counts as an attempt.
    pub(super) fn explain_message(&self, id: &str) {
        self.records().ledger.explain_message(id);
    }

    pub(super) fn panicked(&self, id: &str) {
        let mut records = self.records();
        records.ledger.panicked(id);
        records.ledger.explain_message(id);
    }

    pub(super) fn hash(&self) -> u64 {
        self.records().hash.value()
    }
}

impl RunRecords {
    pub(super) const fn tick(&self) -> u64 {
        self.tick
    }

    pub(super) const fn foreign_writes(&self) -> &BTreeSet<EntityKey> {
        &self.foreign_writes
    }

    fn tell(&mut self, elapsed: Duration, line: &str) {
        let seconds = elapsed.as_secs();
        self.story.push(format!(
            "{:02}:{:02}:{:02}.{:03} {line}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            elapsed.subsec_millis()
        ));
    }

    /// If the answer of the operation is lost, queues the employees that the operation has deleted. The client then
    /// recreates these employees. Returns whether any employee is queued.
    fn queue_recreation(&mut self, execution: &Execution<'_>) -> bool {
        if !self.recreate_if_deleted.remove(&execution.operation.number) {
            return false;
        }
        let deleted = execution.changes.iter().filter_map(|change| match change {
            ObservedChange::Row {
                table,
                key,
                row: None,
            } if table.as_str() == EMPLOYEES && is_primary(key) => {
                Some((FaultKind::Recreated, key.clone()))
            }
            _ => None,
        });
        self.recreate.extend(deleted);
        !self.recreate.is_empty()
    }

    fn judge(&mut self, elapsed: Duration, execution: &Execution<'_>) -> Result<(), String> {
        let operation = execution.operation;
        let failed_get = operation.name == GET_MESSAGES
            && self
                .failed_gets
                .remove(&(execution.caller, about(operation)));
        let waits = self
            .wait_until
            .get(&execution.caller)
            .is_some_and(|until| elapsed < *until);
        let faulty = self.faulty.remove(&operation.number) || failed_get || waits;
        self.ledger
            .record_changes(execution, self.tick, faulty, &self.history)?;
        let sent = self.sent.remove(&operation.number);
        self.history
            .record_changes(execution, self.tick, &mut self.ledger, sent.as_ref())?;
        super::encryption::check(execution)?;
        self.register.record_changes(execution)?;
        self.mirror.record_changes(execution)
    }
}

impl Witness for SharedState {
    fn executed(&self, execution: &Execution<'_>) {
        let judged = {
            let mut records = self.records();
            records.tick += 1;
            records.operations += 1;
            let empty = execution.changes.is_empty() && execution.result.is_ok();
            records.polls +=
                u64::from(empty && execution.operation.what.service() == Service::Queue);
            records.together.add(execution);
            records.rare_event_counter.record_changes(execution);
            records.hash.execution(execution);
            let tick = records.tick;
            records
                .races
                .record_changes(execution, tick, self.elapsed());
            if execution
                .changes
                .iter()
                .any(|change| matches!(change, ObservedChange::Expired { .. }))
            {
                records.faults.add(FaultKind::Expiry);
            }
            if records.queue_recreation(execution) {
                self.deleted.notify_one();
            }
            records.judge(self.elapsed(), execution)
        };
        self.tell(|| story_of(execution));
        if let Err(wrong) = judged {
            self.violated(wrong);
        }
    }
}

fn story_of(execution: &Execution<'_>) -> String {
    let Execution {
        caller,
        operation,
        late,
        result,
        changes,
        ..
    } = execution;
    let late = if *late { "LATE " } else { "" };
    let result = match result {
        Ok(()) => String::new(),
        Err(class) => format!(" -> {}", class.name()),
    };
    let mut line = format!(
        "{:8} {late}#{} {} {}{result}",
        name(*caller),
        operation.number,
        operation.name,
        about(operation)
    );
    for change in *changes {
        line.push_str("\n                      ");
        line.push_str(&super::story::change(change));
    }
    line
}

pub(super) fn about(operation: &OperationInfo) -> String {
    Subject {
        account: AccountName::main(),
        resource: operation.what.clone(),
    }
    .to_string()
}

pub(super) fn name(caller: u32) -> String {
    match caller {
        CLIENT => "client".to_owned(),
        OPERATOR => "operator".to_owned(),
        READER => "reader".to_owned(),
        worker => format!("worker {}", worker - OPERATOR),
    }
}

pub(super) struct WorkerClock {
    shared_state: Arc<SharedState>,
    off_seconds: AtomicI64,
}

impl WorkerClock {
    pub(super) fn new(shared_state: Arc<SharedState>) -> Self {
        Self {
            shared_state,
            off_seconds: AtomicI64::new(0),
        }
    }

    pub(super) fn set_offset(&self, seconds: i64) {
        self.off_seconds.store(seconds, Ordering::Relaxed);
    }
}

impl Clock for WorkerClock {
    fn now(&self) -> Timestamp {
        let right = self.shared_state.at(self.shared_state.elapsed());
        right
            .saturating_add(SignedDuration::from_secs(
                self.off_seconds.load(Ordering::Relaxed),
            ))
            .unwrap_or(right)
    }

    fn monotonic(&self) -> Duration {
        self.shared_state.elapsed()
    }
}
