//! The lease: the visibility timeout that this worker holds on a message, renewed while it works.
//!
//! Its one owner is the task that works on the message: it alone renews, releases and deletes, one request
//! at a time, so that no request ever carries an old pop receipt of its own.
//!
//! # How long it may be trusted
//!
//! ```text
//!  worker   |--- Get sent ------------ answer --|-------- work --------|  deadline = sent + visibility
//!           s                                                          d
//!  service  |-------- Get executed -----------------------------------------|  visible to others again
//!                    e ≥ s                                                  e + visibility ≥ d
//! ```
//!
//! The service hides the message from the moment it executes the request, which is not before the worker
//! sent it. So a deadline counted from the sending ends at or before the service's own, by a clock that
//! only has to run at the same rate. Every renewal moves it in the same way. When it passes, the work is
//! dropped before it is polled again: nothing is sent after the lease.
//!
//! A service that has failed over may show a message before its time, and another worker may have done it meanwhile. So work
//! that acts once asks, where it has waited ([`Confirmation`]): a renewal tells whether the message is still its own.
//!
//! This cannot stop a request already on the wire, nor a process that is suspended between the look
//! at its clock and the sending. Correctness rests on neither: every write of a run is conditional, and leases only
//! avoid doing work twice.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::sleep;

use super::count;
use super::note::with_note;
use super::shown::Shown;
use super::source::Intake;
use evenkeel_model::cause;
use evenkeel_model::job::Note;
use evenkeel_model::limits;
use evenkeel_storage::{Clock, ErrorClass, Rng, StoreError};

/// Shortest time between two renewals while they fail.
const RETRY_MIN: Duration = Duration::from_secs(5);
/// Short leases wait no longer than this part of them: the shortest, 10 s, has two more renewals when its first has failed.
const RETRY_PART: u32 = 8;
/// Timers are no finer; a wait of nothing at all would turn in place.
const TICK: Duration = Duration::from_millis(1);
/// The service counts visibility in whole seconds.
const SECOND: Duration = Duration::from_secs(1);
/// How long the service's word that a message is its receiver's is taken without asking again. Most runs begin within it.
const CONFIRMED_FOR: Duration = Duration::from_millis(250);

/// A message in work, and the right to settle it.
pub(crate) struct Lease {
    source: Arc<Intake>,
    clock: Arc<dyn Clock>,
    rng: Arc<dyn Rng>,
    id: String,
    receipt: String,
    /// Sent with every renewal: an update without a text would empty the message. Absent where it could not be read: then there
    /// are no renewals, since nothing else may be written in its place.
    text: Option<String>,
    /// The note to write with the next renewal.
    begun: Option<Note>,
    visibility: Duration,
    /// Monotonic; when the message itself expires, beyond which no lease can reach.
    expires: Option<Duration>,
    /// Monotonic; until when the message is surely hidden from others.
    deadline: Duration,
    /// Monotonic; when the next renewal is due. At the deadline: never.
    due: Duration,
    /// The wait before the next renewal, halved while renewals fail.
    interval: Duration,
    confirmation: Arc<Confirmation>,
    /// Held until the message is settled: the turn of its run among those that may take the process down.
    turn: Option<OwnedSemaphorePermit>,
}

/// The service's last word that a message is its receiver's, for the work that the lease is held over.
pub(crate) struct Confirmation {
    clock: Arc<dyn Clock>,
    asked: Notify,
    /// Monotonic; when the request was sent that got the message, or renewed it last.
    given: Shown<Duration>,
}

impl Confirmation {
    /// Waits for a word that is not old. A lease that is lost ends the work instead.
    pub(crate) async fn fresh(&self) {
        let now = self.clock.monotonic();
        if now.saturating_sub(self.given.look(|given| *given)) <= CONFIRMED_FOR {
            return;
        }
        self.asked.notify_one();
        self.given.until(|given| *given >= now).await;
    }
}

/// How holding a lease over some work ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LeaseOutcome<T> {
    /// The work ended; its lease may have been lost just then, which settling will tell.
    Finished(T),
    /// The service says that the receipt is void: another receiver may have the message. The work was dropped.
    Lost,
    /// The lease is over and could not be renewed. The work was dropped; the receipt may still be good, since
    /// it dies only when another receiver gets the message.
    Over,
}

/// Result of noting a run before it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traced {
    /// The message says that it began; or may say so, and only a run makes that true.
    Noted,
    /// The message has no room for it.
    NoRoom,
    /// It was not noted, and the store is at fault.
    Failed,
    /// Another receiver may have the message.
    Lost,
}

/// The initial state of a lease.
pub(crate) struct Leased {
    /// The message's id.
    pub(crate) id: String,
    /// The receipt of this delivery.
    pub(crate) receipt: String,
    /// The message's text, where it could be read.
    pub(crate) text: Option<String>,
    /// The visibility timeout it was got with.
    pub(crate) visibility: Duration,
    /// Monotonic time before the Get was sent.
    pub(crate) sent: Duration,
    /// Monotonic time at which the message expires.
    pub(crate) expires: Option<Duration>,
}

impl Lease {
    pub(crate) fn new(
        source: Arc<Intake>,
        clock: Arc<dyn Clock>,
        rng: Arc<dyn Rng>,
        leased: Leased,
    ) -> Self {
        let Leased {
            id,
            receipt,
            text,
            visibility,
            sent,
            expires,
        } = leased;
        let confirmation = Arc::new(Confirmation {
            clock: Arc::clone(&clock),
            asked: Notify::new(),
            given: Shown::new(sent),
        });
        let mut lease = Self {
            source,
            clock,
            rng,
            id,
            receipt,
            text,
            begun: None,
            visibility,
            expires,
            deadline: Duration::ZERO,
            due: Duration::ZERO,
            interval: visibility / 2,
            confirmation,
            turn: None,
        };
        lease.extended(sent, visibility);
        lease
    }

    /// The message's text, where it could be read.
    pub(crate) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// What the work under this lease asks whether its message is still its own.
    pub(crate) fn confirmation(&self) -> Arc<Confirmation> {
        Arc::clone(&self.confirmation)
    }

    /// No other suspect runs until the message is settled.
    pub(crate) fn keep_turn(&mut self, turn: OwnedSemaphorePermit) {
        self.turn = Some(turn);
    }

    /// A run begins under this lease: its first renewal notes that in the message.
    pub(crate) fn note_later(&mut self, note: Note) {
        self.begun = Some(note);
    }

    /// Notes that a run begins, by a renewal of its own.
    pub(crate) async fn note_now(&mut self, note: &Note) -> Traced {
        let Some(text) = self.text().and_then(|text| with_note(text, note)) else {
            return Traced::NoRoom;
        };
        let sent = self.clock.monotonic();
        let visibility = self.reach(sent);
        let answer = self
            .source
            .queues
            .update(
                &self.source.queue,
                &self.id,
                &self.receipt,
                &text,
                visibility,
            )
            .await;
        let class = answer.as_ref().err().map(|error| error.class);
        let lost = self.renewed(sent, visibility, answer);
        match class {
            _ if lost => Traced::Lost,
            None | Some(ErrorClass::Ambiguous) => {
                self.text = Some(text);
                Traced::Noted
            }
            Some(
                ErrorClass::Permanent
                | ErrorClass::TooLarge
                | ErrorClass::Conflict
                | ErrorClass::Precondition,
            ) => Traced::NoRoom,
            Some(_) => Traced::Failed,
        }
    }

    /// Monotonic; until when the message is surely hidden from others.
    pub(crate) const fn deadline(&self) -> Duration {
        self.deadline
    }

    /// The same for work that outlives a message which expires: no other receiver can get that.
    pub(crate) async fn hold_past_expiry<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> LeaseOutcome<T> {
        let mut work = pin!(work);
        match self.hold(work.as_mut()).await {
            // Visibility is in whole seconds.
            LeaseOutcome::Over
                if self
                    .expires
                    .is_some_and(|expires| expires <= self.deadline + SECOND) =>
            {
                LeaseOutcome::Finished(work.await)
            }
            outcome => outcome,
        }
    }

    /// Works under the lease, renewing it meanwhile, until the work ends or the lease does.
    pub(crate) async fn hold<T>(&mut self, work: impl Future<Output = T>) -> LeaseOutcome<T> {
        let mut work = pin!(Some(work));
        loop {
            let clock = Arc::clone(&self.clock);
            let deadline = self.deadline;
            // Looks at the clock before every poll: a task that slept too long must not run on.
            let mut step = pin!(poll_fn(|context| {
                if clock.monotonic() >= deadline {
                    work.set(None);
                    return Poll::Ready(LeaseOutcome::Over);
                }
                match work.as_mut().as_pin_mut() {
                    Some(work) => work.poll(context).map(LeaseOutcome::Finished),
                    None => Poll::Pending,
                }
            }));
            let until_due = self.due.saturating_sub(self.clock.monotonic()).max(TICK);
            let asked = tokio::select! {
                biased;
                ended = &mut step => return ended,
                () = self.confirmation.asked.notified() => true,
                () = sleep(until_due) => false,
            };
            if !asked && self.due >= deadline {
                continue;
            }
            let sent = self.clock.monotonic();
            let visibility = self.reach(sent);
            self.take_note();
            let Some(text) = &self.text else { continue };
            let answer;
            let mut ended = None;
            {
                let renewal = self.source.queues.update(
                    &self.source.queue,
                    &self.id,
                    &self.receipt,
                    text,
                    visibility,
                );
                let mut renewal = pin!(renewal);
                // A renewal under way is always awaited, though the work has ended meanwhile: only its answer
                // carries the receipt that settles the message.
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
            let lost = self.renewed(sent, visibility, answer);
            if lost {
                return LeaseOutcome::Lost;
            }
            if let Some(ended) = ended {
                return ended;
            }
        }
    }

    /// One request to delete the message.
    pub(crate) async fn delete(&mut self) -> Result<(), StoreError> {
        self.source
            .queues
            .delete(&self.source.queue, &self.id, &self.receipt)
            .await
    }

    /// One request to make the message visible after `delay`, with this text; sooner where it would expire before, or be hidden for longer
    /// than the service allows.
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
            .source
            .queues
            .update(&self.source.queue, &self.id, &self.receipt, text, delay)
            .await?;
        self.receipt = updated.pop_receipt;
        Ok(())
    }

    /// Puts the pending note into the text, for the next renewal. Where it does not fit, the run leaves no trace.
    fn take_note(&mut self) {
        let note = self.begun.take();
        if let Some(noted) = note.and_then(|note| with_note(self.text()?, &note)) {
            self.text = Some(noted);
        }
    }

    /// Takes in the answer to a renewal. Whether the lease is lost.
    fn renewed(
        &mut self,
        sent: Duration,
        visibility: Duration,
        answer: Result<evenkeel_storage::UpdatedMessage, StoreError>,
    ) -> bool {
        match answer {
            Ok(updated) => {
                self.receipt = updated.pop_receipt;
                self.extended(sent, visibility);
                count::renewal(&self.source, "renewed");
                self.source.board.renewed();
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
                count::renewal(&self.source, if lost { "lost" } else { "failed" });
                self.source.board.not_renewed();
                let left = self.deadline.saturating_sub(self.clock.monotonic());
                tracing::warn!(
                    queue = %self.source.queue, message_id = self.id, left_seconds = left.as_secs(),
                    error = %cause::chain(&error), "the lease was not renewed"
                );
                self.interval =
                    (self.interval / 2).max(RETRY_MIN.min(self.visibility / RETRY_PART));
                self.schedule_renewal(self.clock.monotonic());
                lost
            }
        }
    }

    fn extended(&mut self, sent: Duration, visibility: Duration) {
        self.confirmation.given.change(|given| {
            *given = sent;
            true
        });
        self.deadline = sent + visibility;
        if let Some(expires) = self.expires {
            self.deadline = self.deadline.min(expires);
        }
        self.interval = self.visibility / 2;
        self.schedule_renewal(sent);
    }

    /// Up to a fifth early, so that messages got together are not renewed together, and never late.
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

    /// The visibility timeout to ask for: the service refuses one beyond the message's own end.
    fn reach(&self, now: Duration) -> Duration {
        match self.expires {
            Some(expires) => self
                .visibility
                .min(Duration::from_secs(expires.saturating_sub(now).as_secs()))
                .max(SECOND),
            None => self.visibility,
        }
    }
}
