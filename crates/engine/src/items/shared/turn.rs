//! Turns: one writer to a document in this process; waiting changes are coalesced into its next write.

use crate::items::shared::write::{Answer, Round, SharedEntity, SharedFailure};
use evenkeel_model::shared::PartChange;
use evenkeel_model::{AccountName, Site};
use evenkeel_storage::combine::{Combiner, KeyGuard, Pending, Queue, Serve};

/// Races with other processes that a writer loses before it answers all waiting callers to look again.
const ROUNDS: u32 = 20;

type Place = (AccountName, Site);
/// The changes that one pass wants of a document.
type Changes = Vec<PartChange>;
type Answers = Vec<Answer>;

/// The queues of all documents being written.
#[derive(Default)]
pub(crate) struct DocumentTurns(Combiner<Place, Changes, Answers>);

/// A turn held for a while by a writer that writes the document in another way.
pub(crate) struct HeldTurn<'a> {
    _guard: KeyGuard<Changes, Answers>,
    _turns: &'a DocumentTurns,
}

impl DocumentTurns {
    /// Waits for the turn to write a document.
    pub(crate) async fn hold(&self, place: Place) -> HeldTurn<'_> {
        HeldTurn {
            _guard: self.0.lock(place).await,
            _turns: self,
        }
    }

    /// Has changes made by the next writer of the document, possibly the caller, and returns their results, in order.
    pub(crate) async fn change(&self, document: &SharedEntity<'_>, changes: Changes) -> Answers {
        let count = changes.len();
        // A writer that was dropped has sent no answer: its request may be on its way.
        self.0
            .ask(document.turn(), changes, document)
            .await
            .unwrap_or_else(|| vec![Answer::Unanswered; count])
    }
}

impl Serve<Changes, Answers> for SharedEntity<'_> {
    /// Writes the document until all its callers are answered.
    async fn serve(&self, queue: &Queue<Changes, Answers>, (): &mut ()) {
        let mut batch = Vec::new();
        for _ in 0..ROUNDS {
            batch.extend(queue.take(|_| true));
            // A caller that was dropped meanwhile is not waited for, and its changes are not made.
            batch.retain(Pending::is_awaited);
            let changes: Changes = batch
                .iter()
                .flat_map(|one| one.request.iter().cloned())
                .collect();
            match self.round(&changes).await {
                Round::Again => {}
                Round::Over(answers) => return tell(batch, answers),
                Round::Failed(failure) if failure.is_permanent() && changes.len() > 1 => {
                    return serve_each(self, batch).await;
                }
                Round::Failed(failure) => {
                    return tell(batch, vec![Answer::Failed(failure); changes.len()]);
                }
            }
        }
        let lost = batch
            .iter()
            .flat_map(|one| &one.request)
            .map(|_| Answer::Lost)
            .collect();
        tell(batch, lost);
    }
}

/// Writes the changes of each pass by themselves: together they exceed a limit, or one of them cannot be made, and the others must not
/// fail with it.
async fn serve_each(document: &SharedEntity<'_>, batch: Vec<Pending<Changes, Answers>>) {
    for one in batch.into_iter().filter(Pending::is_awaited) {
        let answers = match rounds(document, &one.request).await {
            // A member that does not fit keeps no other from leaving.
            Err(failure) if failure.is_permanent() && one.request.len() > 1 => {
                change_each(document, &one.request).await
            }
            ended => {
                ended.unwrap_or_else(|failure| vec![Answer::Failed(failure); one.request.len()])
            }
        };
        one.tell(answers);
    }
}

/// Makes each change by itself, those first that take a part out.
async fn change_each(document: &SharedEntity<'_>, changes: &[PartChange]) -> Answers {
    let mut answers = vec![Answer::Lost; changes.len()];
    let mut order: Vec<usize> = (0..changes.len()).collect();
    order.sort_by_key(|at| changes[*at].write.token().is_some());
    for at in order {
        let ended = rounds(document, &changes[at..=at]).await;
        answers[at] = ended.map_or_else(Answer::Failed, |mut answers| {
            answers.pop().unwrap_or(Answer::Lost)
        });
    }
    answers
}

async fn rounds(
    document: &SharedEntity<'_>,
    changes: &[PartChange],
) -> Result<Answers, SharedFailure> {
    for _ in 0..ROUNDS {
        match document.round(changes).await {
            Round::Again => {}
            Round::Over(answers) => return Ok(answers),
            Round::Failed(failure) => return Err(failure),
        }
    }
    Ok(vec![Answer::Lost; changes.len()])
}

fn tell(batch: Vec<Pending<Changes, Answers>>, answers: Answers) {
    let mut answers = answers.into_iter();
    for one in batch {
        let own = answers.by_ref().take(one.request.len()).collect();
        one.tell(own);
    }
}
