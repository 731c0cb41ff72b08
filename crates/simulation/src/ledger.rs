//! The ledger of the queues. Every message that was put must be done or poisoned, no other message may exist, and each
//! poison message must have a valid reason.
//!
//! A message is done if it was deleted after a run that succeeded and had an observed effect. The run must have begun
//! after the message was delivered.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::SignedDuration;

use super::archives::LaterEvents;
use super::entry::{ActiveRun, DeliveryRecord, LedgerEntry};
pub(super) use super::expectation::{EntityJob, Expectation, JobCondition, ListedKeys};
use super::fault_plan::JOBS;
use super::history::History;
use super::listed::{Lists, MessageContent, listed, message_of};
use super::shared_state::WORKERS;
use evenkeel_account::{Execution, ObservedChange};
use evenkeel_engine::Outcome;
use evenkeel_model::EntityKey;
use evenkeel_storage::Ttl;

mod deserved;
mod since;

pub(super) use deserved::{PoisonReport, poison};
pub(super) use since::LastWrite;

/// A run that may have sent a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Author {
    pub(super) message: String,
    pub(super) delivery: u32,
}

/// A write in flight, with the runs that may have sent it.
#[derive(Debug, Clone)]
pub(super) struct SentRequest {
    pub(super) authors: Vec<Author>,
}

pub(super) type DeliveryRef<'a> = (&'a str, &'a str, u32);

#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Entries by queue and entry name. Each job of a batch has its own entry.
    messages: BTreeMap<(String, String), LedgerEntry>,
    lists: Lists,
    expected: VecDeque<(Expectation, Ttl)>,
    /// The tick at which the last successful sync began, by worker and primary.
    synced: BTreeMap<(u32, &'static str, EntityKey), u64>,
    max_dequeue_count: u32,
    /// How far the clock of the table service is ahead of the clock of the queue service.
    pub(super) clocks_apart: SignedDuration,
    /// The employee whose row is refused for a while.
    pub(super) refused: Option<EntityKey>,
    /// Number of messages that clients put, including duplicates.
    pub(super) jobs: u64,
    pub(super) sent_on: u64,
    pub(super) done: u64,
    pub(super) poisoned: u64,
    pub(super) redelivered: u64,
    pub(super) rechecks: u64,
}

impl Ledger {
    pub(super) fn new(max_dequeue_count: u32) -> Self {
        Self {
            max_dequeue_count,
            ..Self::default()
        }
    }

    pub(super) fn expect(&mut self, expectation: Expectation, ttl: Ttl) {
        self.expected.push_back((expectation, ttl));
    }

    /// Returns what is expected of the job in a poison message. `queue`, `id` and `body` are fields of the poison
    /// message.
    pub(super) fn expectation(&self, queue: &str, id: &str, body: &str) -> Option<Expectation> {
        let of = |entry: String| {
            self.messages
                .get(&(queue.to_owned(), entry))
                .map(|entry| entry.expectation.clone())
        };
        if !self.lists.has(id) {
            return of(self.lists.poisoned(id, body).pop()?);
        }
        // The whole batch was poisoned. The body lists the jobs that had not ended.
        let jobs = listed(body)?.into_iter().filter_map(|keys| {
            Some((
                keys.clone(),
                of(self.lists.entry_of(id, Some((&keys.0, &keys.1))))?,
            ))
        });
        Some(Expectation::Batch(jobs.collect()))
    }

    /// Returns the name of a job's entry. This is the id of the message, with the index of the job if the message is a
    /// batch.
    pub(super) fn entry_of(&self, message: &str, key: Option<&EntityKey>) -> String {
        self.lists
            .entry_of(message, key.map(|key| (key.pk.as_str(), key.rk.as_str())))
    }

    pub(super) fn moving(&self) -> Option<(EntityKey, EntityKey)> {
        let open = self.messages.values().filter(|entry| !entry.gone);
        let moves = open.filter_map(|entry| match &entry.expectation {
            Expectation::Job(EntityJob {
                op: "move",
                key,
                to: Some(to),
                ..
            }) => Some((!entry.running.is_empty(), entry.enqueued, key, to)),
            _ => None,
        });
        moves.max().map(|(.., from, to)| (from.clone(), to.clone()))
    }

    fn open(&self, queue: &str, message: &str) -> Vec<(String, String)> {
        let entries = self
            .lists
            .entries(message)
            .into_iter()
            .map(|entry| (queue.to_owned(), entry));
        entries
            .filter(|entry| self.messages.get(entry).is_some_and(|entry| !entry.gone))
            .collect()
    }

    /// Records the changes of one operation. `faulty` means that a fault was injected on the operation. An error
    /// describes a violation.
    pub(super) fn record_changes(
        &mut self,
        execution: &Execution<'_>,
        tick: u64,
        faulty: bool,
        history: &History,
    ) -> Result<(), String> {
        for change in execution.changes {
            match change {
                ObservedChange::Put { queue, text, .. } if queue.as_str().ends_with("-poison") => {
                    self.poisoned(text, execution.late, history)?;
                }
                ObservedChange::Put { queue, id, text } => {
                    let content = Arc::new(MessageContent::of(text, id));
                    let from_worker = execution.caller >= WORKERS;
                    let expectation = match queue.as_str() {
                        JOBS if from_worker => Some((Expectation::of_worker(text)?, Ttl::Never)),
                        JOBS => self.expected.pop_front(),
                        _ => Some(self.expected_rechecks(content.listed.as_deref())),
                    };
                    let (expectation, ttl) =
                        expectation.ok_or_else(|| format!("unexpected message {id} on {queue}"))?;
                    if from_worker && queue.as_str() == JOBS {
                        self.sent_on += 1;
                    } else if queue.as_str() == JOBS {
                        self.jobs += 1;
                    } else {
                        self.rechecks += 1;
                    }
                    let jobs = match expectation {
                        Expectation::Batch(jobs) => {
                            self.lists
                                .insert(id, jobs.iter().map(|(keys, _)| keys.clone()).collect());
                            jobs.into_iter()
                                .map(|(keys, expectation)| (Some(keys), expectation))
                                .collect()
                        }
                        one => vec![(None, one)],
                    };
                    for (entry, (keys, expectation)) in self.lists.entries(id).into_iter().zip(jobs)
                    {
                        let entry_of =
                            LedgerEntry::new(expectation, keys, (execution.at, &content, ttl));
                        self.messages.insert((queue.to_string(), entry), entry_of);
                    }
                }
                ObservedChange::Got {
                    queue,
                    id,
                    dequeue_count,
                } => {
                    let delivery =
                        DeliveryRecord::new(tick, execution.caller, faulty || execution.late);
                    let open = self.open(queue.as_str(), id);
                    self.redelivered += u64::from(*dequeue_count > 1 && !open.is_empty());
                    for entry in &open {
                        if let Some(entry) = self.messages.get_mut(entry) {
                            entry.delivered(*dequeue_count, self.max_dequeue_count, delivery);
                        }
                    }
                }
                ObservedChange::Updated { queue, id, text } => {
                    self.updated(queue.as_str(), id, text, history)?;
                }
                ObservedChange::Deleted { queue, id } if !queue.as_str().ends_with("-poison") => {
                    for entry in self.open(queue.as_str(), id) {
                        self.ends(&entry, history)?;
                    }
                }
                ObservedChange::Deleted { .. }
                | ObservedChange::Row { .. }
                | ObservedChange::Blob { .. }
                | ObservedChange::File { .. }
                | ObservedChange::Document { .. }
                | ObservedChange::Table { .. } => {}
                ObservedChange::Expired { queue, id } => {
                    for entry in self.open(queue.as_str(), id) {
                        match self.messages.get_mut(&entry) {
                            Some(entry) if entry.can_expire() => {
                                (entry.gone, entry.expired) = (true, true);
                                entry.explain(|_| true);
                            }
                            _ => {
                                return Err(format!(
                                    "message {id} on {queue} expired, but has no time to live"
                                ));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn updated(
        &mut self,
        queue: &str,
        id: &str,
        text: &str,
        history: &History,
    ) -> Result<(), String> {
        let content = Arc::new(MessageContent::of(text, id));
        for entry in self
            .lists
            .entries(id)
            .into_iter()
            .map(|entry| (queue.to_owned(), entry))
        {
            let Some(known) = self.messages.get_mut(&entry) else {
                continue;
            };
            let is_named = known.listed.as_ref().is_none_or(|keys| {
                content
                    .listed
                    .as_ref()
                    .is_some_and(|named| named.contains(keys))
            });
            if known.listed.is_some() && known.gone {
                if is_named {
                    return Err(format!(
                        "job {} on {queue} ended, then a message listed it again: {text}",
                        entry.1
                    ));
                }
                continue;
            }
            known.updated(&content);
            if !is_named {
                self.ends(&entry, history)?;
            }
        }
        Ok(())
    }

    fn ends(&mut self, entry: &(String, String), history: &History) -> Result<(), String> {
        let Some(known) = self.messages.get_mut(entry) else {
            return Ok(());
        };
        known.gone = true;
        self.done += u64::from(!known.poisoned);
        self.deleted(&entry.0, &entry.1, history)
    }

    /// Returns the expectation of a recheck that a worker has put, or that an operator has requeued.
    fn expected_rechecks(&mut self, listed: Option<&[ListedKeys]>) -> (Expectation, Ttl) {
        if let Some(listed) = listed {
            return (
                Expectation::Batch(
                    listed
                        .iter()
                        .map(|keys| (keys.clone(), Expectation::Recheck))
                        .collect(),
                ),
                Ttl::Never,
            );
        }
        let requeued = self
            .expected
            .pop_front_if(|(expectation, _)| *expectation == Expectation::Recheck);
        requeued.unwrap_or((Expectation::Recheck, Ttl::Never))
    }

    /// Records that a run begins. A message without attempts left must not run again. Each run that panicked has used
    /// up an attempt.
    pub(super) fn run_begins(
        &mut self,
        caller: u32,
        (queue, id, delivery): DeliveryRef<'_>,
    ) -> Result<(), String> {
        let max = u64::from(self.max_dequeue_count);
        let Some(entry) = self.messages.get_mut(&(queue.to_owned(), id.to_owned())) else {
            return Ok(());
        };
        entry.running.push(ActiveRun { caller, delivery });
        // A run that panicked has used up an attempt. If another fault affected the same delivery, the message perhaps
        // does not record the attempt. So one more run is allowed for each delivery that another fault affected.
        let most = entry
            .deliveries
            .last()
            .map_or(max, |delivery| delivery.most);
        if u64::from(entry.panics) >= most + u64::from(entry.disturbed()) {
            return Err(format!(
                "message {id} on {queue} panicked in {} runs, then ran again without an attempt left",
                entry.panics
            ));
        }
        // A redelivery of a sync may share the run of an earlier delivery, if that run still waits in the same worker.
        // It is then enough that the earlier delivery has a turn.
        let shared = entry.shares_runs()
            && entry
                .deliveries
                .iter()
                .any(|earlier| earlier.caller == caller && earlier.has_turn);
        let Some(delivery) = entry.delivery(delivery) else {
            return Ok(());
        };
        delivery.began = true;
        match *delivery {
            DeliveryRecord { attempts, most, .. } if attempts > most => Err(format!(
                "message {id} on {queue} runs in attempt {attempts}, expected at most {most}"
            )),
            DeliveryRecord {
                attempts,
                has_turn: false,
                ..
            } if !shared => Err(format!(
                "job {id} on {queue} runs in attempt {attempts}, expected only jobs that precede it in the batch"
            )),
            _ => Ok(()),
        }
    }

    /// Records that a run ends. `dropped` means that the run neither ended by itself nor timed out. A run may be
    /// dropped only if something happened to its lease or its worker.
    pub(super) fn run_ends(
        &mut self,
        caller: u32,
        (queue, id, delivery): DeliveryRef<'_>,
        dropped: bool,
    ) -> Result<(), String> {
        let Some(entry) = self.messages.get_mut(&(queue.to_owned(), id.to_owned())) else {
            return Ok(());
        };
        if let Some(ended) = entry
            .running
            .iter()
            .position(|running| *running == ActiveRun { caller, delivery })
        {
            entry.running.swap_remove(ended);
        }
        let explained = if entry.shares_runs() {
            entry
                .deliveries
                .iter()
                .any(|delivery| delivery.caller == caller && delivery.explained)
        } else {
            entry
                .delivery(delivery)
                .is_none_or(|delivery| delivery.explained)
        };
        // By the worker's clock, a message may expire before the service removes it. The worker then drops the run.
        if dropped && !entry.can_expire() && !explained {
            return Err(format!(
                "a run of message {id} on {queue} was dropped although no fault affected it"
            ));
        }
        Ok(())
    }

    pub(super) fn ended_well(
        &mut self,
        caller: u32,
        queue: &str,
        id: &str,
        began: u64,
        outcome: &Outcome,
    ) {
        let Some(entry) = self.messages.get_mut(&(queue.to_owned(), id.to_owned())) else {
            return;
        };
        let advanced = matches!(outcome, Outcome::Advanced { .. });
        // A run that has lost its lease may still report progress after another run has ended the job. This report must
        // not replace the outcome.
        if !(advanced
            && matches!(
                entry.ended,
                Some(Outcome::Done(_) | Outcome::Skipped { .. })
            ))
        {
            entry.ended = Some(outcome.clone());
        }
        if advanced {
            entry.panics = 0;
        }
        if let Expectation::Job(EntityJob {
            op: "sync",
            table,
            key,
            ..
        }) = &entry.expectation
        {
            self.synced.insert((caller, table, key.clone()), began);
        }
    }

    /// Records that something happened to a worker or its queue. This explains why the deliveries to this worker count
    /// as attempts.
    pub(super) fn explain(&mut self, caller: u32) {
        for entry in self.messages.values_mut().filter(|entry| !entry.gone) {
            entry.explain(|delivery| delivery.caller == caller);
            entry.disturb(|delivery| delivery.caller == caller);
        }
    }

    /// Records that a fault was injected on a worker. The worker's runs are perhaps not recorded as attempts.
    pub(super) fn disturb(&mut self, caller: u32) {
        self.messages
            .values_mut()
            .filter(|entry| !entry.gone)
            .for_each(|entry| entry.disturb(|delivery| delivery.caller == caller));
    }

    /// Records that a fault was injected on a message. Runs of this message are perhaps not recorded as attempts.
    pub(super) fn disturb_message(&mut self, id: &str) {
        for (_, entry) in self
            .messages
            .iter_mut()
            .filter(|((_, other), _)| message_of(other) == message_of(id))
        {
            entry.explain(|_| true);
            entry.disturb(|_| true);
        }
    }

    /// Records that something happened to a message. This explains why its deliveries count as attempts.
    pub(super) fn explain_message(&mut self, id: &str) {
        for (_, entry) in self
            .messages
            .iter_mut()
            .filter(|((_, other), _)| message_of(other) == message_of(id))
        {
            entry.explain(|_| true);
        }
    }

    pub(super) fn panicked(&mut self, id: &str) {
        for (_, entry) in self
            .messages
            .iter_mut()
            .filter(|((_, other), _)| other == id)
        {
            entry.panics += 1;
        }
    }

    pub(super) fn at_work(&self, caller: u32) -> Vec<Author> {
        let runs = self
            .messages
            .iter()
            .flat_map(|((_, id), entry)| entry.running.iter().map(move |run| (id, run)));
        let own = runs.filter(|(_, run)| run.caller == caller);
        own.map(|(id, run)| Author {
            message: id.clone(),
            delivery: run.delivery,
        })
        .collect()
    }

    pub(super) fn expectation_of(&self, id: &str) -> Option<&Expectation> {
        self.entry(id).map(|entry| &entry.expectation)
    }

    pub(super) fn first_delivered(&self, id: &str) -> u64 {
        self.entry(id)
            .and_then(|entry| entry.deliveries.first())
            .map_or(0, |delivery| delivery.tick)
    }

    /// Whether the message `id` was enqueued in a later second than the message `than`, by the clock of the queue
    /// service.
    pub(super) fn was_enqueued_later(&self, id: &str, than: &str) -> bool {
        let second = |id| self.entry(id).map(|entry| entry.enqueued.as_second());
        second(id)
            .zip(second(than))
            .is_some_and(|(id, than)| id > than)
    }

    /// Returns this message and all other messages with the same job and the same client id.
    pub(super) fn same_job(&self, id: &str) -> Vec<&str> {
        let job = |entry: &LedgerEntry| match (&entry.client_id, &entry.expectation) {
            (Some(id), Expectation::Job(EntityJob { op, key, .. })) => {
                Some((id.clone(), *op, key.clone()))
            }
            _ => None,
        };
        let of_this = self.entry(id).and_then(job);
        let same = |entry: &LedgerEntry| of_this.is_some() && job(entry) == of_this;
        self.messages
            .iter()
            .filter(|((_, other), entry)| other == id || same(entry))
            .map(|((_, other), _)| other.as_str())
            .collect()
    }

    fn entry(&self, id: &str) -> Option<&LedgerEntry> {
        self.messages
            .iter()
            .find(|((_, other), _)| other == id)
            .map(|(_, entry)| entry)
    }

    pub(super) fn queued<'a>(&self, entries: impl Iterator<Item = &'a String>) -> usize {
        let is_queued = |id: &&String| {
            self.messages
                .iter()
                .any(|((_, other), entry)| other == *id && !entry.gone)
        };
        entries
            .filter(is_queued)
            .map(|id| message_of(id))
            .collect::<BTreeSet<_>>()
            .len()
    }

    /// Returns the primaries of expired jobs. The flag is true if one of the primary's expired jobs was a full sync.
    /// Expired jobs must be sent again.
    pub(super) fn expired(&self) -> BTreeMap<(&'static str, EntityKey), bool> {
        let expired = self
            .messages
            .values()
            .filter(|entry| entry.expired && !entry.poisoned);
        let asked = expired.filter_map(|entry| {
            if let Expectation::Job(asked) = &entry.expectation {
                Some(asked)
            } else {
                None
            }
        });
        let mut primaries = BTreeMap::new();
        for EntityJob {
            op,
            table,
            key,
            to,
            thorough,
            ..
        } in asked
        {
            let archived =
                matches!(*op, "archive" | "restore").then(|| ("FormerEmployees", key.clone()));
            for primary in [(*table, key.clone())]
                .into_iter()
                .chain(to.clone().map(|to| (*table, to)))
                .chain(archived)
            {
                *primaries.entry(primary).or_default() |= thorough;
            }
        }
        primaries
    }

    pub(super) fn lost(&self) -> Vec<String> {
        self.messages
            .iter()
            .filter(|(_, entry)| !entry.gone)
            .map(|((queue, id), _)| format!("{queue}/{id}"))
            .collect()
    }

    fn deleted(&self, queue: &str, id: &str, history: &History) -> Result<(), String> {
        let Some(entry) = self.messages.get(&(queue.to_owned(), id.to_owned())) else {
            return Ok(());
        };
        if entry.poisoned {
            return Ok(());
        }
        let text = &entry.content.text;
        let lost = |why: &str| {
            Err(format!(
                "lost job: message {id} on {queue} was deleted {why}: {text}"
            ))
        };
        let asked = match &entry.expectation {
            Expectation::Poison(_) => return lost("without a poison message"),
            Expectation::Recheck => {
                return if entry.ended.is_some() {
                    Ok(())
                } else {
                    lost("before a run succeeded")
                };
            }
            Expectation::Whole(_) => {
                let done = matches!(
                    entry.ended,
                    Some(Outcome::Done(_) | Outcome::Skipped { .. })
                );
                return if done {
                    Ok(())
                } else {
                    lost("before its job was complete")
                };
            }
            Expectation::Job(asked) => asked,
            Expectation::Batch(_) => return lost("although its jobs have no entries"),
        };
        let EntityJob {
            op,
            table,
            key,
            to,
            guard,
            staged,
            ..
        } = asked;
        let conditional = guard.is_some();
        if *op == "sync" {
            let covered = |delivery: &DeliveryRecord| {
                self.synced
                    .get(&(delivery.caller, *table, key.clone()))
                    .is_some_and(|began| *began > delivery.tick)
            };
            return if entry.deliveries.iter().any(covered) {
                Ok(())
            } else {
                lost("without a successful sync since its delivery")
            };
        }
        let Some(outcome) = &entry.ended else {
            return lost("before a run succeeded");
        };
        let since = entry.deliveries.first().map_or(0, |delivery| delivery.tick);
        if let Some(archives) = &history.archives {
            let (archive, moving) = (
                self.later_archive(id, key),
                self.later_move(id, key, to.as_ref()),
            );
            let (enqueued, copied) = (self.enqueued_before(entry), self.may_be_copied_after(entry));
            let later = LaterEvents {
                delivery: entry.deliveries.len() > 1,
                archive,
                moving,
                enqueued,
                copied,
            };
            let seen = self
                .same_job(id)
                .into_iter()
                .any(|id| archives.took_effect(id, asked, outcome, since, later));
            return if seen {
                Ok(())
            } else {
                lost(&format!(
                    "although the job's effect was not observed ({outcome:?})"
                ))
            };
        }
        // Returns `true` if the job has written the copy, and the original was absent at some time after that.
        let left = |id: &str, (there, at): (&str, &EntityKey), (from, key): (&str, &EntityKey)| {
            history
                .first_written_at(id, there, at)
                .is_some_and(|written| history.absent_since(from, key, written))
        };
        // If two messages have the same job, it is enough that one of them has taken effect.
        let took_effect = |id: &str| match (*op, outcome) {
            ("put", Outcome::Done(_)) => history.first_written_at(id, "Employees", key).is_some(),
            ("restore", Outcome::Done(_)) => left(id, ("Employees", key), ("FormerEmployees", key)),
            ("move", Outcome::Done(_)) => to
                .as_ref()
                .is_some_and(|to| left(id, ("Employees", to), ("Employees", key))),
            // A put without its staged blob is skipped. An earlier delivery may have written the content and deleted
            // the blob.
            ("put", Outcome::Skipped { .. }) => {
                conditional || self.took_what_was_staged(staged, history)
            }
            ("delete", Outcome::Done(_)) => history.absent_since("Employees", key, since),
            // An employee that was written after the job was enqueued may remain. If the message is a duplicate, the
            // job of the other message may already have deleted the earlier employee.
            ("delete", Outcome::Skipped { .. }) => {
                conditional
                    || entry.deliveries.len() > 1
                    || history.written_since("Employees", key, self.enqueued_before(entry))
            }
            ("archive", Outcome::Done(_)) => left(id, ("FormerEmployees", key), ("Employees", key)),
            ("archive", Outcome::Skipped { .. }) => {
                // A job may have written the copy, and its delete request got no answer. The job then cannot know what
                // happened to the source.
                conditional
                    || history.absent_since("Employees", key, since)
                    || history.has_written_to("FormerEmployees", id)
                    || self.later_archive(id, key)
                    || history.written_since("Employees", key, self.enqueued_before(entry))
                    // An earlier delivery may have archived an older version. Other jobs may have written both rows
                    // since then.
                    || (entry.deliveries.len() > 1
                        && ["Employees", "FormerEmployees"].iter().all(|table| history.written_since(table, key, self.may_be_copied_after(entry))))
            }
            ("move", Outcome::Skipped { .. }) => {
                history.absent_since("Employees", key, since)
                    || history.has_written_to("Employees", id)
                    || self.later_move(id, key, to.as_ref())
                    || history.written_since("Employees", key, self.enqueued_before(entry))
            }
            ("restore", Outcome::Skipped { .. }) => {
                history.absent_since("FormerEmployees", key, since) || self.later_archive(id, key)
            }
            (_, Outcome::Advanced { .. }) => true,
            // Other combinations of job and outcome are not expected.
            _ => false,
        };
        if self.same_job(id).into_iter().any(took_effect) {
            Ok(())
        } else {
            lost(&format!(
                "although the job's effect was not observed ({outcome:?})"
            ))
        }
    }

    fn later_archive(&self, id: &str, key: &EntityKey) -> bool {
        self.messages
            .iter()
            .any(|((_, other), entry)| other.as_str() > id && entry.is(key, "archive"))
    }

    /// Whether a job with these staged blobs has written an employee. If the job was sent several times, any of its
    /// messages counts.
    fn took_what_was_staged(&self, staged: &[String], history: &History) -> bool {
        self.of_staged(staged)
            .any(|(id, _)| history.has_written_to("Employees", id))
    }

    /// Whether a run with these staged blobs may have deleted one of them. A put deletes its staged blobs even if its
    /// condition does not hold.
    fn deleted_what_was_staged(&self, staged: &[String], history: &History) -> bool {
        staged.iter().any(|name| {
            self.of_staged(staged)
                .any(|(id, _)| history.has_unstaged(name, id))
        })
    }

    fn of_staged(&self, staged: &[String]) -> impl Iterator<Item = (&str, &LedgerEntry)> {
        let same = |entry: &LedgerEntry| matches!(&entry.expectation, Expectation::Job(asked) if asked.staged.iter().any(|name| staged.contains(name)));
        self.messages
            .iter()
            .filter(move |(_, entry)| same(entry))
            .map(|((_, id), entry)| (id.as_str(), entry))
    }

    /// Whether a later job removes the employee, or writes an employee to this job's destination.
    fn later_move(&self, id: &str, key: &EntityKey, to: Option<&EntityKey>) -> bool {
        self.messages.iter().any(|((_, other), entry)| {
            let Expectation::Job(asked) = &entry.expectation else {
                return false;
            };
            let takes = matches!(asked.op, "archive" | "move") && asked.key == *key;
            let writes = (matches!(asked.op, "put" | "restore") && Some(&asked.key) == to)
                || asked.to.as_ref() == to;
            other.as_str() > id && (takes || writes)
        })
    }

    /// Returns the staged blobs of jobs that were poisoned or have expired. The blobs are kept in case the job is sent
    /// again.
    pub(super) fn staged_for_poison(&self) -> BTreeSet<&str> {
        let undone = self
            .messages
            .values()
            .filter(|entry| entry.poisoned || entry.expired);
        let staged = undone.filter_map(|entry| {
            if let Expectation::Job(asked) = &entry.expectation {
                Some(&asked.staged)
            } else {
                None
            }
        });
        staged.flatten().map(String::as_str).collect()
    }
}
