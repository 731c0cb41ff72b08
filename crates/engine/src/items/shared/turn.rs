//! One writer per shared entity in this process. The next write coalesces all waiting changes.

use crate::execute::{Failure, FailureClass};
use crate::items::shared::write::{ChangeResult, RoundResult, SharedEntity};
use evenkeel_model::shared::PartChange;
use evenkeel_model::{AccountName, Site};
use evenkeel_storage::combine::{Combiner, KeyGuard, Pending, Queue, Serve};

/// Number of races lost to other processes after which a writer gives up and all waiting callers read the entity again.
const ROUNDS: u32 = 20;

type EntitySite = (AccountName, Site);
type Changes = Vec<PartChange>;
type ChangeResults = Vec<ChangeResult>;

/// For each shared entity that is being written, the queue of changes that wait for the next write.
#[derive(Default)]
pub(crate) struct DocumentTurns(Combiner<EntitySite, Changes, ChangeResults>);

/// Exclusive access for a caller that writes the entity without this queue.
pub(crate) struct HeldTurn<'a> {
    _guard: KeyGuard<Changes, ChangeResults>,
    _turns: &'a DocumentTurns,
}

impl DocumentTurns {
    pub(crate) async fn hold(&self, place: EntitySite) -> HeldTurn<'_> {
        HeldTurn {
            _guard: self.0.lock(place).await,
            _turns: self,
        }
    }

    /// Queues changes for the next writer of the entity, possibly the caller, and returns their results in order.
    pub(crate) async fn change(
        &self,
        document: &SharedEntity<'_>,
        changes: Changes,
    ) -> ChangeResults {
        let count = changes.len();
        // `None` means that the future of the writer was dropped. The writer's request may still arrive.
        self.0
            .ask(document.turn(), changes, document)
            .await
            .unwrap_or_else(|| vec![ChangeResult::Unanswered; count])
    }
}

impl Serve<Changes, ChangeResults> for SharedEntity<'_> {
    async fn serve(&self, queue: &Queue<Changes, ChangeResults>, (): &mut ()) {
        let mut batch = Vec::new();
        for _ in 0..ROUNDS {
            batch.extend(queue.take(|_| true));
            // If a caller was dropped meanwhile, its changes are not made.
            batch.retain(Pending::is_awaited);
            let changes: Changes = batch
                .iter()
                .flat_map(|one| one.request.iter().cloned())
                .collect();
            match self.round(&changes).await {
                RoundResult::Retry => {}
                RoundResult::Answered(answers) => return answer_all(batch, answers),
                RoundResult::Failed(failure)
                    if failure.class == FailureClass::Permanent && changes.len() > 1 =>
                {
                    return serve_each(self, batch).await;
                }
                RoundResult::Failed(failure) => {
                    return answer_all(batch, vec![ChangeResult::Failed(failure); changes.len()]);
                }
            }
        }
        let lost = batch
            .iter()
            .flat_map(|one| &one.request)
            .map(|_| ChangeResult::Lost)
            .collect();
        answer_all(batch, lost);
    }
}

/// Writes the changes of each pass separately, because together they exceed a limit, or because one of them is invalid
/// and must not make the others fail.
async fn serve_each(document: &SharedEntity<'_>, batch: Vec<Pending<Changes, ChangeResults>>) {
    for one in batch.into_iter().filter(Pending::is_awaited) {
        let answers = match rounds(document, &one.request).await {
            // Together, the changes of the pass fail. They are made one by one, so that members are removed even if a
            // new member does not fit.
            Err(failure) if failure.class == FailureClass::Permanent && one.request.len() > 1 => {
                change_each(document, &one.request).await
            }
            ended => ended
                .unwrap_or_else(|failure| vec![ChangeResult::Failed(failure); one.request.len()]),
        };
        one.tell(answers);
    }
}

async fn change_each(document: &SharedEntity<'_>, changes: &[PartChange]) -> ChangeResults {
    let mut answers = vec![ChangeResult::Lost; changes.len()];
    let mut order: Vec<usize> = (0..changes.len()).collect();
    order.sort_by_key(|at| changes[*at].write.token().is_some());
    for at in order {
        let ended = rounds(document, &changes[at..=at]).await;
        answers[at] = ended.map_or_else(ChangeResult::Failed, |mut answers| {
            answers.pop().unwrap_or(ChangeResult::Lost)
        });
    }
    answers
}

async fn rounds(
    document: &SharedEntity<'_>,
    changes: &[PartChange],
) -> Result<ChangeResults, Failure> {
    for _ in 0..ROUNDS {
        match document.round(changes).await {
            RoundResult::Retry => {}
            RoundResult::Answered(answers) => return Ok(answers),
            RoundResult::Failed(failure) => return Err(failure),
        }
    }
    Ok(vec![ChangeResult::Lost; changes.len()])
}

fn answer_all(batch: Vec<Pending<Changes, ChangeResults>>, answers: ChangeResults) {
    let mut answers = answers.into_iter();
    for one in batch {
        let own = answers.by_ref().take(one.request.len()).collect();
        one.tell(own);
    }
}
