//! Turns: one writer to a document in this process; waiting changes are coalesced into its next write.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard, oneshot};

use super::write::{Answer, Document, Round};
use crate::model::{AccountName, Site};
use crate::shared::Change;

/// Races with other processes that a writer loses before it answers all waiting callers to look again.
const ROUNDS: u32 = 20;

/// Changes that one pass wants of a document, and where the answers go.
struct Waiting {
    changes: Vec<Change>,
    tell: oneshot::Sender<Vec<Answer>>,
}

/// The queue for one document.
#[derive(Default)]
struct Queue {
    waiting: Mutex<Vec<Waiting>>,
    turn: Arc<Turn<()>>,
}

type Place = (AccountName, Site);

/// The queues of all documents being written.
#[derive(Default)]
pub(in crate::reconcile) struct Turns(Mutex<BTreeMap<Place, Arc<Queue>>>);

/// A place in a queue, which is removed with its last holder.
struct Seat<'a> {
    turns: &'a Turns,
    place: Place,
    queue: Arc<Queue>,
}

/// A turn held for a while by a writer that writes the document in another way.
pub(in crate::reconcile) struct Held<'a> {
    /// Given back before the place in the queue.
    _turn: OwnedMutexGuard<()>,
    _seat: Seat<'a>,
}

/// Nothing here panics while it holds a lock.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turns {
    fn seat(&self, place: Place) -> Seat<'_> {
        let queue = Arc::clone(locked(&self.0).entry(place.clone()).or_default());
        Seat { turns: self, place, queue }
    }

    /// Waits for the turn to write a document.
    pub(in crate::reconcile) async fn hold(&self, place: Place) -> Held<'_> {
        let seat = self.seat(place);
        let turn = Arc::clone(&seat.queue.turn).lock_owned().await;
        Held { _turn: turn, _seat: seat }
    }

    /// Has changes made by the next writer of the document, possibly the caller, and returns their results, in order.
    pub(in crate::reconcile) async fn change(&self, document: &Document<'_>, changes: Vec<Change>) -> Vec<Answer> {
        let count = changes.len();
        let seat = self.seat(document.turn());
        let (tell, mut told) = oneshot::channel();
        locked(&seat.queue.waiting).push(Waiting { changes, tell });
        let _turn = seat.queue.turn.lock().await;
        match told.try_recv() {
            Ok(answers) => answers,
            // A writer that was dropped has sent no answer: its request may be on its way.
            Err(TryRecvError::Closed) => vec![Answer::Unanswered; count],
            Err(TryRecvError::Empty) => {
                seat.queue.serve(document).await;
                told.try_recv().unwrap_or_else(|_| vec![Answer::Unanswered; count])
            }
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        let mut queues = locked(&self.turns.0);
        // The map's, and this one.
        if Arc::strong_count(&self.queue) <= 2 {
            queues.remove(&self.place);
        }
    }
}

impl Queue {
    /// Writes the document until all its callers are answered.
    async fn serve(&self, document: &Document<'_>) {
        let mut aboard: Vec<Waiting> = Vec::new();
        for _ in 0..ROUNDS {
            // A caller that was dropped meanwhile is not waited for, and its changes are not made.
            aboard.extend(std::mem::take(&mut *locked(&self.waiting)));
            aboard.retain(|waiting| !waiting.tell.is_closed());
            let changes: Vec<Change> = aboard.iter().flat_map(|waiting| waiting.changes.iter().cloned()).collect();
            match document.round(&changes).await {
                Round::Again => {}
                Round::Over(answers) => return tell(aboard, answers),
                Round::Failed(failure) if failure.is_permanent() && aboard.len() > 1 => return serve_each(document, aboard).await,
                Round::Failed(failure) => return tell(aboard, vec![Answer::Failed(failure); changes.len()]),
            }
        }
        let lost = aboard.iter().flat_map(|waiting| &waiting.changes).map(|_| Answer::Lost).collect();
        tell(aboard, lost);
    }
}

/// Writes the changes of each pass by themselves: together they break a limit, or one of them cannot be made, and the others are not to
/// fail with it.
async fn serve_each(document: &Document<'_>, aboard: Vec<Waiting>) {
    for waiting in aboard {
        let answers = serve_one(document, &waiting).await;
        tell(vec![waiting], answers);
    }
}

async fn serve_one(document: &Document<'_>, waiting: &Waiting) -> Vec<Answer> {
    for _ in 0..ROUNDS {
        if waiting.tell.is_closed() {
            break;
        }
        match document.round(&waiting.changes).await {
            Round::Again => {}
            Round::Over(answers) => return answers,
            Round::Failed(failure) => return vec![Answer::Failed(failure); waiting.changes.len()],
        }
    }
    vec![Answer::Lost; waiting.changes.len()]
}

fn tell(aboard: Vec<Waiting>, answers: Vec<Answer>) {
    let mut answers = answers.into_iter();
    for Waiting { changes, tell } in aboard {
        let own: Vec<Answer> = answers.by_ref().take(changes.len()).collect();
        // A caller that was dropped needs no answer.
        drop(tell.send(own));
    }
}
