//! Point reads of one partition, sent as one range.
//!
//! A range also reads the rows between the keys. So it is bounded ([`Query::top`]) to twice as many rows as there are
//! keys. Keys that it did not reach have a range of their own while ranges answer a quarter of theirs, and are read alone
//! otherwise; a partition where those are most goes alone for a while ([`Density`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::stream;

use super::answer::{Answer, Paid, awaited, tell};
use super::batching::{BatchExecutor, Place};
use super::density::Density;
use super::queue::PendingRequest;
use super::verdict::SharedError;
use crate::adapters::layer::Op;
use crate::model::{Comparison, EntityKey, Filter, Key, Row, limits};
use crate::ports::{Page, Query, TableStore, What};

/// How many are sent side by side where they are sent one by one.
const SIDE_BY_SIDE: usize = 16;

/// A range that answered so many keys, and one in so many of its keys, is followed by another one: ranges follow each
/// other, and point reads are sent side by side.
const WORTH_ANOTHER: usize = 4;
/// So many others may be among them: a few keys of one job before those of another.
const MISSES: usize = 2;

/// A pending read.
pub(super) struct PendingRead {
    pub(super) rk: Key,
    pub(super) answer: Answer<Option<Row>>,
}

impl PendingRequest for PendingRead {
    // Few enough to gather new reads while they are under way, enough not to delay the few readers of a calm partition.
    const IN_FLIGHT: usize = 4;

    fn rows(&self) -> impl Iterator<Item = &Key> {
        std::iter::empty()
    }

    fn bytes(&self) -> usize {
        0
    }

    fn is_alone(&self) -> bool {
        false
    }

    fn is_awaited(&self) -> bool {
        !self.answer.is_closed()
    }

    /// The oldest and the keys after it, up to a batch; the others stay in their order. So each of several batch jobs in one
    /// partition has ranges of its own keys.
    fn arrange(waiting: &mut VecDeque<Self>) {
        let Some(oldest) = waiting.front().map(|read| read.rk.clone()) else { return };
        let mut by_key: Vec<usize> = (0..waiting.len()).collect();
        let place = |at: &usize| waiting.get(*at).map(|read| (read.rk < oldest, &read.rk));
        by_key.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
        let chosen: BTreeSet<usize> = by_key.into_iter().take(limits::TRANSACTION_OPERATIONS).collect();
        let (near, far): (VecDeque<_>, VecDeque<_>) = waiting.drain(..).enumerate().partition(|(at, _)| chosen.contains(at));
        waiting.extend(near.into_iter().chain(far).map(|(_, read)| read));
    }
}

/// Whether a key sorts alike wherever it is compared, as bytes or as UTF-16, and needs no quoting in a filter: a key
/// that a range misses counts as absent, so there must be no doubt about the contents of a range.
pub(super) fn is_plain(key: &Key) -> bool {
    let text = key.as_str();
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.~:|@=+,;!*".contains(&byte))
}

/// Sends reads.
pub(super) struct Reads {
    pub(super) store: Arc<dyn TableStore>,
    pub(super) density: Mutex<Density>,
}

impl Reads {
    pub(super) fn density(&self) -> MutexGuard<'_, Density> {
        self.density.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BatchExecutor for Reads {
    type Request = PendingRead;

    async fn execute(&self, place: &Place, batch: Vec<PendingRead>) {
        let mut waiting = BTreeMap::<Key, Vec<Answer<Option<Row>>>>::new();
        for read in batch {
            waiting.entry(read.rk).or_default().push(read.answer);
        }
        let waiting = self.ranges(place, waiting.into_iter().collect()).await;
        let each = waiting.into_iter().map(|(rk, answers)| self.point(place, rk, answers));
        stream::iter(each).buffer_unordered(SIDE_BY_SIDE).collect::<()>().await;
    }
}

/// Pending reads by key, in the order of keys.
type Waiting = Vec<(Key, Vec<Answer<Option<Row>>>)>;

impl Reads {
    /// Reads ranges over keys in their order, as long as they answer enough of them. Returns those that none answered.
    async fn ranges(&self, place: &Place, mut waiting: Waiting) -> Waiting {
        let (asked, mut misses) = (waiting.len(), 0);
        while waiting.len() > 1 && misses < MISSES {
            let before = waiting.len();
            waiting = match self.range(place, waiting).await {
                Ok(unanswered) => unanswered,
                Err(refused) => return refused,
            };
            let answered = before - waiting.len();
            misses += usize::from(answered < WORTH_ANOTHER || answered * WORTH_ANOTHER < before);
        }
        if asked > 1 {
            self.density().learn(place, asked, asked - waiting.len());
        }
        waiting
    }

    /// Reads a range over keys in their order. Returns those that it did not answer; as an error, where it failed.
    async fn range(&self, place: &Place, mut waiting: Waiting) -> Result<Waiting, Waiting> {
        let (table, pk) = place;
        let (Some((first, _)), Some((last, _))) = (waiting.first(), waiting.last()) else { return Ok(waiting) };
        let filter = Filter::partition(pk).and(Filter::compare("RowKey", Comparison::GreaterOrEqual, first.as_str())).and(Filter::compare(
            "RowKey",
            Comparison::LessOrEqual,
            last.as_str(),
        ));
        let top = u32::try_from(waiting.len() * 2).unwrap_or(limits::PAGE_ROWS).min(limits::PAGE_ROWS);
        let query = Query { filter: Some(filter), top: Some(top), ..Query::default() };
        let given_up = async {
            for answer in waiting.iter_mut().flat_map(|(_, answers)| answers) {
                answer.closed().await;
            }
        };
        let Some(result) = awaited(self.store.query(table, &query), given_up).await else { return Err(Vec::new()) };
        match result {
            Ok(page) => {
                let said = said(page, waiting.iter().map(|(rk, _)| rk));
                let mut unanswered = Vec::new();
                let mut paid = Paid::by_the_first();
                for ((rk, answers), said) in waiting.into_iter().zip(said) {
                    match said {
                        KeyAnswer::Row(row) => {
                            paid.by_ref().zip(answers).for_each(|(paid, answer)| tell(answer, paid, Ok(row.clone())));
                        }
                        KeyAnswer::Nothing => unanswered.push((rk, answers)),
                    }
                }
                Ok(unanswered)
            }
            Err(error) if error.class.is_transient() => {
                let error = SharedError::new(error);
                let mut paid = Paid::by_the_first();
                for (rk, answers) in waiting {
                    fail(paid.by_ref().zip(answers), &error, place, &rk);
                }
                Err(Vec::new())
            }
            // Whether a point read meets the same, a point read tells.
            Err(_) => Err(waiting),
        }
    }

    /// Reads one key.
    async fn point(&self, place: &Place, rk: Key, mut answers: Vec<Answer<Option<Row>>>) {
        let (table, pk) = place;
        let key = EntityKey { pk: pk.clone(), rk };
        let given_up = async {
            for answer in &mut answers {
                answer.closed().await;
            }
        };
        let Some(result) = awaited(self.store.get(table, &key, None), given_up).await else { return };
        match result {
            Ok(row) => Paid::by_the_first().zip(answers).for_each(|(paid, answer)| tell(answer, paid, Ok(row.clone()))),
            Err(error) => fail(Paid::by_the_first().zip(answers), &SharedError::new(error), place, &key.rk),
        }
    }
}

/// Sends an error to all callers that read one key.
fn fail(answers: impl Iterator<Item = (Paid, Answer<Option<Row>>)>, error: &SharedError, (table, pk): &Place, rk: &Key) {
    for (paid, answer) in answers {
        let key = EntityKey { pk: pk.clone(), rk: rk.clone() };
        tell(answer, paid, Err(error.about(GET, What::Entity(table.clone(), key))));
    }
}

/// The operation that each caller has asked for.
const GET: &str = Op::GetEntity.operation();

/// A page's answer for a key.
#[derive(Debug, PartialEq)]
enum KeyAnswer {
    /// The row under it, or its absence.
    Row(Option<Row>),
    /// Nothing: the page ends before it.
    Nothing,
}

/// A page's answers for keys in its range.
fn said<'k>(page: Page, keys: impl Iterator<Item = &'k Key>) -> Vec<KeyAnswer> {
    let reached = page.rows.last().map(|row| row.entity.key.rk.clone());
    let complete = page.continuation.is_none();
    let mut rows: BTreeMap<Key, Row> = page.rows.into_iter().map(|row| (row.entity.key.rk.clone(), row)).collect();
    let about = |key| match rows.remove(key) {
        Some(row) => KeyAnswer::Row(Some(row)),
        None if complete || reached.as_ref().is_some_and(|reached| key < reached) => KeyAnswer::Row(None),
        None => KeyAnswer::Nothing,
    };
    keys.map(about).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ETag, Entity};
    use crate::ports::Continuation;

    fn keys(names: &str) -> Vec<Key> {
        names.split_whitespace().map(|name| Key::new(name).unwrap()).collect()
    }

    fn row(rk: &Key) -> Row {
        let entity = Entity::new(EntityKey { pk: Key::new("p").unwrap(), rk: rk.clone() });
        Row { entity, etag: ETag::new("\"1\"").unwrap(), timestamp: None }
    }

    /// `+` found, `-` absent, `?` not said.
    fn told(rows: &str, complete: bool, asked: &str) -> String {
        let continuation = Continuation { next_partition_key: "p".to_owned(), next_row_key: None };
        let page = Page { rows: keys(rows).iter().map(row).collect(), continuation: (!complete).then_some(continuation) };
        let keys = keys(asked);
        let said = said(page, keys.iter());
        said.into_iter()
            .zip(&keys)
            .map(|(said, key)| match said {
                KeyAnswer::Row(Some(found)) => {
                    assert_eq!(found, row(key));
                    '+'
                }
                KeyAnswer::Row(None) => '-',
                KeyAnswer::Nothing => '?',
            })
            .collect()
    }

    #[test]
    fn a_key_that_the_page_does_not_reach_is_not_absent() {
        assert_eq!(told("b c d", true, "a b d e"), "-++-");
        assert_eq!(told("b c d", false, "a b d e"), "-++?");
        assert_eq!(told("", false, "a b"), "??");
        assert_eq!(told("", true, "a b"), "--");
    }

    #[test]
    fn keys_whose_order_could_be_doubted_are_not_read_by_ranges() {
        for plain in ["000017", "ada.king@contoso.com", "Employees~Sales", "a|b"] {
            assert!(is_plain(&Key::new(plain).unwrap()), "{plain}");
        }
        for other in ["", "O'Brien", "a b", "Müller", "%2F", "\u{ffee}", "\u{1f600}"] {
            assert!(!is_plain(&Key::new(other).unwrap()), "{other}");
        }
    }
}
