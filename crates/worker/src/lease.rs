//! The lease: the visibility timeout that this worker holds on a message, renewed while it works.
//!
//! The task that works on the message is the only owner of the lease. It alone renews, releases and
//! deletes, one request at a time, so no request carries an outdated pop receipt.
//!
//! # How long a lease can be trusted
//!
//! ```text
//!  worker   |--- Get sent ------------ answer --|-------- work --------|  deadline = sent + visibility
//!           s                                                          d
//!  service  |-------- Get executed -----------------------------------------|  visible to others again
//!                    e ≥ s                                                  e + visibility ≥ d
//! ```
//!
//! The service hides the message from the moment at which it executes the request, which is after
//! the worker sent the request. So a deadline counted from the sending is never later than the
//! service's deadline. The two clocks need not agree; they only have to run at the same rate. Every
//! renewal moves the deadline in the same way. When the deadline passes, the work is dropped before
//! it is polled again, so nothing is sent after the lease.
//!
//! After a failover, the service may show a message too early, and another worker may have done its
//! work meanwhile. So work that must not be repeated waits for a [`Confirmation`] after it has
//! waited for its key. The confirmation is a renewal, which shows whether the message still belongs
//! to this worker.
//!
//! The deadline cannot stop a request that is already on the wire, nor a process that is suspended
//! between reading its clock and sending. Correctness does not depend on the deadline: every write
//! of a run is conditional, and leases only avoid doing work twice.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::sleep;

use super::consumer::QueueConsumer;
use super::job_metrics;
use super::note::with_note;
use super::ordered_watch::OrderedWatch;
use evenkeel_model::cause;
use evenkeel_model::job::Note;
use evenkeel_model::limits;
use evenkeel_storage::{Clock, ErrorClass, Rng, StoreError};

const RETRY_MIN: Duration = Duration::from_secs(5);
/// While renewals fail, the pause between them is halved, down to `RETRY_MIN`. For a short lease,
/// the minimum is its length divided by this number. So even the shortest lease (10 s) has two more
/// renewals after the first has failed.
const RETRY_PART: u32 = 8;
/// The resolution of timers, and therefore the shortest sleep. A zero-length sleep would busy-loop.
const TICK: Duration = Duration::from_millis(1);
/// The service counts visibility in whole seconds.
const SECOND: Duration = Duration::from_secs(1);
/// For this long after a receive or a renewal, no further renewal is needed to show that the
/// message is still this worker's. Most runs begin within this time.
const CONFIRMED_FOR: Duration = Duration::from_millis(250);

pub(crate) struct Lease {
    consumer: Arc<QueueConsumer>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    id: String,
    receipt: String,
    /// The text that every renewal sends, because an update without a text would empty the message.
    /// `None` if the text could not be read. Such a lease is never renewed, because any other text
    /// would overwrite the text of the message.
    text: Option<String>,
    pending_note: Option<Note>,
    visibility: Duration,
    /// Monotonic time at which the message itself expires. No lease reaches beyond it.
    expires: Option<Duration>,
    /// Monotonic time until which the message is certainly hidden from other receivers.
    deadline: Duration,
    /// Monotonic time of the next renewal. Equal to the deadline if there is none.
    due: Duration,
    /// Wait before the next renewal, halved while renewals fail.
    interval: Duration,
    confirmation: Arc<Confirmation>,
    /// If the runs of this message may be crashing the process, the message holds this permit of
    /// the quarantine until it is settled.
    quarantine_permit: Option<OwnedSemaphorePermit>,
}

/// Shows work under the lease when the service last confirmed that the message belongs to this
/// worker.
pub(crate) struct Confirmation {
    clock: Arc<dyn Clock>,
    requested: Notify,
    /// Monotonic time at which the worker sent the request that received the message or last renewed
    /// its lease.
    confirmed: OrderedWatch<Duration>,
}

impl Confirmation {
    /// Waits until there is a recent proof that the message is still this worker's. If the lease is
    /// lost instead, the work is dropped.
    pub(crate) async fn wait_recent(&self) {
        let now = self.clock.monotonic();
        if now.saturating_sub(self.confirmed.read(|confirmed| *confirmed)) <= CONFIRMED_FOR {
            return;
        }
        self.requested.notify_one();
        self.confirmed
            .wait_until(|confirmed| *confirmed >= now)
            .await;
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeaseOutcome<T> {
    /// The work ended. The lease may have been lost just before; if so, settling shows it.
    Finished(T),
    /// The pop receipt is no longer valid, so another receiver may have the message. The work was
    /// dropped.
    Lost,
    /// The lease could not be renewed in time. The work was dropped. The pop receipt may still be
    /// valid, because only the next receiver invalidates it.
    Expired,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoteOutcome {
    /// The note is recorded, or may be recorded because the answer to the request was lost. The run begins now in
    /// either case, so a recorded note is true.
    Noted,
    /// The note does not fit into the message.
    NoRoom,
    /// The note is not recorded, because the store failed.
    Failed,
    Lost,
}

pub(crate) struct LeaseStart {
    pub(crate) id: String,
    pub(crate) receipt: String,
    /// The text of the message; `None` if it could not be read.
    pub(crate) text: Option<String>,
    pub(crate) visibility: Duration,
    /// Monotonic time just before the Get Messages request was sent.
    pub(crate) sent: Duration,
    pub(crate) expires: Option<Duration>,
}

impl Lease {
    pub(crate) fn new(
        consumer: Arc<QueueConsumer>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        leased: LeaseStart,
    ) -> Self {
        let LeaseStart {
            id,
            receipt,
            text,
            visibility,
            sent,
            expires,
        } = leased;
        let confirmation = Arc::new(Confirmation {
            clock: Arc::clone(&clock),
            requested: Notify::new(),
            confirmed: OrderedWatch::new(sent),
        });
        let mut lease = Self {
            consumer,
            clock,
            rng,
            id,
            receipt,
            text,
            pending_note: None,
            visibility,
            expires,
            deadline: Duration::ZERO,
            due: Duration::ZERO,
            interval: visibility / 2,
            confirmation,
            quarantine_permit: None,
        };
        lease.extend(sent, visibility);
        lease
    }

    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    pub(crate) fn confirmation(&self) -> Arc<Confirmation> {
        Arc::clone(&self.confirmation)
    }

    pub(crate) fn keep_quarantine_permit(&mut self, permit: OwnedSemaphorePermit) {
        self.quarantine_permit = Some(permit);
    }

    /// Records the run in the message with the first renewal.
    pub(crate) fn note_later(&mut self, note: Note) {
        self.pending_note = Some(note);
    }

    pub(crate) async fn note_now(&mut self, note: &Note) -> NoteOutcome {
        let Some(text) = self.text().and_then(|text| with_note(text, note)) else {
            return NoteOutcome::NoRoom;
        };
        let sent = self.clock.monotonic();
        let visibility = self.visibility_at(sent);
        let answer = self
            .consumer
            .queues
            .update(
                &self.consumer.queue,
                &self.id,
                &self.receipt,
                &text,
                visibility,
            )
            .await;
        let class = answer.as_ref().err().map(|error| error.class);
        let lost = self.apply_renewal(sent, visibility, answer);
        match class {
            _ if lost => NoteOutcome::Lost,
            None | Some(ErrorClass::Ambiguous) => {
                self.text = Some(text);
                NoteOutcome::Noted
            }
            Some(
                ErrorClass::Permanent
                | ErrorClass::TooLarge
                | ErrorClass::Conflict
                | ErrorClass::Precondition,
            ) => NoteOutcome::NoRoom,
            Some(_) => NoteOutcome::Failed,
        }
    }

    pub(crate) const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Like [`hold`](Self::hold), but the work continues if the lease ends because the message
    /// expires. No other receiver can get an expired message.
    pub(crate) async fn hold_past_expiry<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> LeaseOutcome<T> {
        let mut work = pin!(work);
        match self.hold(work.as_mut()).await {
            // Visibility is in whole seconds, so the last lease may end up to a second before the
            // message expires.
            LeaseOutcome::Expired
                if self
                    .expires
                    .is_some_and(|expires| expires <= self.deadline + SECOND) =>
            {
                LeaseOutcome::Finished(work.await)
            }
            outcome => outcome,
        }
    }

    /// Polls the work and renews the lease until the work or the lease ends.
    pub(crate) async fn hold<T>(&mut self, work: impl Future<Output = T>) -> LeaseOutcome<T> {
        let mut work = pin!(Some(work));
        loop {
            let clock = Arc::clone(&self.clock);
            let deadline = self.deadline;
            // The clock is read before every poll, because a task that slept too long must not
            // continue.
            let mut step = pin!(poll_fn(|context| {
                if clock.monotonic() >= deadline {
                    work.set(None);
                    return Poll::Ready(LeaseOutcome::Expired);
                }
                match work.as_mut().as_pin_mut() {
                    Some(work) => work.poll(context).map(LeaseOutcome::Finished),
                    None => Poll::Pending,
                }
            }));
            let until_due = self.due.saturating_sub(self.clock.monotonic()).max(TICK);
            let requested = tokio::select! {
                biased;
                ended = &mut step => return ended,
                () = self.confirmation.requested.notified() => true,
                () = sleep(until_due) => false,
            };
            if !requested && self.due >= deadline {
                continue;
            }
            let sent = self.clock.monotonic();
            let visibility = self.visibility_at(sent);
            self.add_pending_note();
            let Some(text) = &self.text else { continue };
            let answer;
            let mut ended = None;
            {
                let renewal = self.consumer.queues.update(
                    &self.consumer.queue,
                    &self.id,
                    &self.receipt,
                    text,
                    visibility,
                );
                let mut renewal = pin!(renewal);
                // A renewal under way is always awaited, even if the work has ended meanwhile,
                // because its answer carries the pop receipt that settles the message.
                answer = loop {
                    let until_deadline = deadline.saturating_sub(self.clock.monotonic()).max(TICK);
                    tokio::select! {
                        biased;
                        answer = &mut renewal => break answer,
                        end = &mut step, if ended.is_none() => ended = Some(end),
                        () = sleep(until_deadline), if ended.is_none() => {}
                    }
                };
            }
            let lost = self.apply_renewal(sent, visibility, answer);
            if lost {
                return LeaseOutcome::Lost;
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    pub(crate) async fn delete(&mut self) -> Result<(), StoreError> {
        self.consumer
            .queues
            .delete(&self.consumer.queue, &self.id, &self.receipt)
            .await
    }

    /// Sends one request to make the message visible after `delay`, with this text. A delay beyond
    /// the message's time to live or the service's limit is shortened.
    pub(crate) async fn release(&mut self, text: &str, delay: Duration) -> Result<(), StoreError> {
        let ttl = self.expires.map(|expires| {
            expires
                .saturating_sub(self.clock.monotonic() + SECOND)
                .as_secs()
        });
        let most = ttl
            .unwrap_or(limits::QUEUE_VISIBILITY_SECONDS)
            .min(limits::QUEUE_VISIBILITY_SECONDS);
        let delay = delay.min(Duration::from_secs(most));
        let updated = self
            .consumer
            .queues
            .update(&self.consumer.queue, &self.id, &self.receipt, text, delay)
            .await?;
        self.receipt = updated.pop_receipt;
        Ok(())
    }

    /// Puts the pending note into the text of the next renewal. If the note does not fit, the run
    /// is not recorded.
    fn add_pending_note(&mut self) {
        let note = self.pending_note.take();
        if let Some(noted) = note.and_then(|note| with_note(self.text()?, &note)) {
            self.text = Some(noted);
        }
    }

    /// Applies the answer to a renewal. Returns whether the lease is lost.
    fn apply_renewal(
        &mut self,
        sent: Duration,
        visibility: Duration,
        answer: Result<evenkeel_storage::UpdatedMessage, StoreError>,
    ) -> bool {
        match answer {
            Ok(updated) => {
                self.receipt = updated.pop_receipt;
                self.extend(sent, visibility);
                job_metrics::renewal(&self.consumer, "renewed");
                self.consumer.board.renewed();
                false
            }
            Err(error) => {
                let lost = match error.class {
                    ErrorClass::LeaseLost | ErrorClass::NotFound(_) => true,
                    ErrorClass::Conflict
                    | ErrorClass::Precondition
                    | ErrorClass::Throttled { .. }
                    | ErrorClass::Refused
                    | ErrorClass::Transient { .. }
                    | ErrorClass::Ambiguous
                    | ErrorClass::Permanent
                    | ErrorClass::Unauthorised
                    | ErrorClass::TooLarge => false,
                };
                job_metrics::renewal(&self.consumer, if lost { "lost" } else { "failed" });
                self.consumer.board.not_renewed();
                let left = self.deadline.saturating_sub(self.clock.monotonic());
                tracing::warn!(
                    queue = %self.consumer.queue, message_id = self.id, left_seconds = left.as_secs(),
                    error = %cause::chain(&error), "could not renew the lease of message {}; {} s left", self.id, left.as_secs()
                );
                self.interval =
                    (self.interval / 2).max(RETRY_MIN.min(self.visibility / RETRY_PART));
                self.schedule_renewal(self.clock.monotonic());
                lost
            }
        }
    }

    fn extend(&mut self, sent: Duration, visibility: Duration) {
        self.confirmation.confirmed.update(|confirmed| {
            *confirmed = sent;
            true
        });
        self.deadline = sent + visibility;
        if let Some(expires) = self.expires {
            self.deadline = self.deadline.min(expires);
        }
        self.interval = self.visibility / 2;
        self.schedule_renewal(sent);
    }

    /// Chooses a time in the last fifth of the interval, so that messages that were received
    /// together are not all renewed at once.
    fn schedule_renewal(&mut self, from: Duration) {
        let due = from + self.interval.mul_f64(self.rng.between(0.8, 1.0));
        let cannot_reach_further = self
            .expires
            .is_some_and(|expires| self.deadline >= expires || expires < due + SECOND);
        let never = cannot_reach_further || self.text.is_none();
        self.due = if never {
            self.deadline
        } else {
            due.min(self.deadline)
        };
    }

    /// The visibility timeout to request. The service refuses a timeout that ends after the message
    /// expires.
    fn visibility_at(&self, now: Duration) -> Duration {
        match self.expires {
            Some(expires) => self
                .visibility
                .min(Duration::from_secs(expires.saturating_sub(now).as_secs()))
                .max(SECOND),
            None => self.visibility,
        }
    }
}
