//! Point reads of one partition, sent as one range.
//!
//! A range also reads the rows between the keys. So it is bounded ([`Query::top`]) to twice as many rows as there are
//! keys. Keys that it did not reach have a range of their own while ranges answer a quarter of theirs, and are read alone
//! otherwise; a partition where those are most goes alone for a while ([`Density`]).
//!
//! A key that a complete page lacks is absent, but only if the key surely lies in the range, for stores that compare bytes and for
//! those that compare UTF-16, and if the store surely read the filter ([`Trust`]). Any other key is read alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::stream;

use super::answer::{Answer, Paid, awaited, tell};
use super::batching::{BatchExecutor, Place};
use super::density::Density;
use super::queue::PendingRequest;
use super::shape::{Shape, Trust};
use super::verdict::SharedError;
use crate::layer::Op;
use evenkeel_model::key::sorts_before_everywhere;
use evenkeel_model::{Comparison, EntityKey, Filter, Key, Row, limits};
use evenkeel_storage::{Page, Query, Resource, TableStore};

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
        let Some(oldest) = waiting.front().map(|read| read.rk.clone()) else {
            return;
        };
        let mut by_key: Vec<usize> = (0..waiting.len()).collect();
        let place = |at: &usize| waiting.get(*at).map(|read| (read.rk < oldest, &read.rk));
        by_key.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
        let chosen: BTreeSet<usize> = by_key
            .into_iter()
            .take(limits::TRANSACTION_OPERATIONS)
            .collect();
        let (near, far): (VecDeque<_>, VecDeque<_>) = waiting
            .drain(..)
            .enumerate()
            .partition(|(at, _)| chosen.contains(at));
        waiting.extend(near.into_iter().chain(far).map(|(_, read)| read));
    }
}

/// Sends reads.
pub(super) struct Reads {
    store: Arc<dyn TableStore>,
    density: Mutex<Density>,
    trust: Mutex<Trust>,
}

impl Reads {
    pub(super) fn new(store: Arc<dyn TableStore>) -> Self {
        Self {
            store,
            density: Mutex::default(),
            trust: Mutex::default(),
        }
    }

    fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

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
        let each = waiting
            .into_iter()
            .map(|(rk, answers)| self.point(place, rk, answers));
        stream::iter(each)
            .buffer_unordered(SIDE_BY_SIDE)
            .for_each(|_| async {})
            .await;
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

    /// Reads a range over keys in their order. Returns those that it did not answer; as an error, if no further range should be tried.
    async fn range(&self, place: &Place, mut waiting: Waiting) -> Result<Waiting, Waiting> {
        let (table, pk) = place;
        let beyond = beyond_doubtful_bounds(&mut waiting);
        let (Some((first, _)), Some((last, _))) = (waiting.first(), waiting.last()) else {
            return Ok(waiting);
        };
        let (first, last) = (first.clone(), last.clone());
        let shape = Shape::of([pk, &first, &last]);
        if first == last || !self.trust().allows(shape) {
            waiting.extend(beyond);
            return Err(waiting);
        }
        let filter = Filter::partition(pk)
            .and(Filter::compare(
                "RowKey",
                Comparison::GreaterOrEqual,
                first.as_str(),
            ))
            .and(Filter::compare(
                "RowKey",
                Comparison::LessOrEqual,
                last.as_str(),
            ));
        let top = u32::try_from(waiting.len() * 2)
            .unwrap_or(limits::PAGE_ROWS)
            .min(limits::PAGE_ROWS);
        let query = Query {
            filter: Some(filter),
            top: Some(top),
            ..Query::default()
        };
        let given_up = async {
            for answer in waiting.iter_mut().flat_map(|(_, answers)| answers) {
                answer.closed().await;
            }
        };
        let Some(result) = awaited(self.store.query(table, &query), given_up).await else {
            return Err(beyond);
        };
        let page = match result {
            Ok(page) => page,
            Err(error) if error.class.is_transient() => {
                let error = SharedError::new(error);
                let mut paid = Paid::by_the_first();
                for (rk, answers) in waiting {
                    fail(paid.by_ref().zip(answers), &error, place, &rk);
                }
                return Err(beyond);
            }
            // Whether a point read meets the same, a point read tells.
            Err(_) => {
                waiting.extend(beyond);
                return Err(waiting);
            }
        };
        if !page.rows.is_empty() {
            self.trust().prove(shape);
        } else if page.continuation.is_none()
            && !self.trust().believes(shape)
            && !self.is_empty(place, &query, &mut waiting, shape).await
        {
            waiting.extend(beyond);
            return Err(waiting);
        }
        let said = said(page, (&first, &last), waiting.iter().map(|(rk, _)| rk));
        let mut unanswered = Vec::new();
        let mut paid = Paid::by_the_first();
        for ((rk, answers), said) in waiting.into_iter().zip(said) {
            match said {
                KeyAnswer::Row(row) => paid
                    .by_ref()
                    .zip(answers)
                    .for_each(|(paid, answer)| tell(answer, paid, Ok(row.clone()))),
                KeyAnswer::Nothing => unanswered.push((rk, answers)),
            }
        }
        unanswered.extend(beyond);
        Ok(unanswered)
    }

    /// Whether a range that returned no row is empty, and not misread by the service: reads its first key alone, and answers it.
    async fn is_empty(
        &self,
        place: &Place,
        query: &Query,
        waiting: &mut Waiting,
        shape: Shape,
    ) -> bool {
        if waiting.is_empty() {
            return true;
        }
        let (rk, answers) = waiting.remove(0);
        match self.point(place, rk.clone(), answers).await {
            Some(false) => return true,
            // A read that failed says nothing of the range.
            None => return false,
            Some(true) => {}
        }
        // The row may have been inserted after the range was read.
        if self
            .store
            .query(&place.0, query)
            .await
            .is_ok_and(|page| page.rows.is_empty() && page.continuation.is_none())
        {
            self.trust().refute(shape);
            tracing::warn!(
                table = %place.0, partition_key = %place.1, row_key = %rk,
                "a range query returned no row although {rk:?} exists; keys with {} are read one by one from now on", shape.kinds()
            );
        }
        false
    }

    /// Reads one key. Returns whether there is a row, if the store said so.
    async fn point(
        &self,
        place: &Place,
        rk: Key,
        mut answers: Vec<Answer<Option<Row>>>,
    ) -> Option<bool> {
        let (table, pk) = place;
        let key = EntityKey { pk: pk.clone(), rk };
        let given_up = async {
            for answer in &mut answers {
                answer.closed().await;
            }
        };
        match awaited(self.store.get(table, &key, None), given_up).await? {
            Ok(row) => {
                Paid::by_the_first()
                    .zip(answers)
                    .for_each(|(paid, answer)| tell(answer, paid, Ok(row.clone())));
                Some(row.is_some())
            }
            Err(error) => {
                fail(
                    Paid::by_the_first().zip(answers),
                    &SharedError::new(error),
                    place,
                    &key.rk,
                );
                None
            }
        }
    }
}

/// Sends an error to all callers that read one key.
fn fail(
    answers: impl Iterator<Item = (Paid, Answer<Option<Row>>)>,
    error: &SharedError,
    (table, pk): &Place,
    rk: &Key,
) {
    for (paid, answer) in answers {
        let key = EntityKey {
            pk: pk.clone(),
            rk: rk.clone(),
        };
        tell(
            answer,
            paid,
            Err(error.about(GET, Resource::Entity(table.clone(), key))),
        );
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

/// Takes away the last keys until the first comes before the last one in every store. Returns those taken.
///
/// Only characters from U+E000 to U+FFFF beside ones beyond U+FFFF sort differently, so hardly any key is taken.
fn beyond_doubtful_bounds(waiting: &mut Waiting) -> Waiting {
    let Some((first, _)) = waiting.first() else {
        return Vec::new();
    };
    let last = waiting
        .iter()
        .rposition(|(rk, _)| first == rk || sorts_before_everywhere(first.as_str(), rk.as_str()));
    waiting.split_off(last.map_or(0, |last| last + 1))
}

/// A page's answers for keys, of which the first and the last bound its range.
fn said<'k>(
    page: Page,
    (first, last): (&Key, &Key),
    keys: impl Iterator<Item = &'k Key>,
) -> Vec<KeyAnswer> {
    let before = |one: &Key, other: &Key| sorts_before_everywhere(one.as_str(), other.as_str());
    let is_within =
        |key: &Key| (key == first || before(first, key)) && (key == last || before(key, last));
    let reached = page.rows.last().map(|row| row.entity.key.rk.clone());
    let complete = page.continuation.is_none();
    let mut rows: BTreeMap<Key, Row> = page
        .rows
        .into_iter()
        .map(|row| (row.entity.key.rk.clone(), row))
        .collect();
    let about = |key: &Key| match rows.remove(key) {
        Some(row) => KeyAnswer::Row(Some(row)),
        None if is_within(key)
            && (complete || reached.as_ref().is_some_and(|reached| before(key, reached))) =>
        {
            KeyAnswer::Row(None)
        }
        None => KeyAnswer::Nothing,
    };
    keys.map(about).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{ETag, Entity};
    use evenkeel_storage::Continuation;

    fn keys(names: &str) -> Vec<Key> {
        names
            .split_whitespace()
            .map(|name| Key::new(name).unwrap())
            .collect()
    }

    fn row(rk: &Key) -> Row {
        let entity = Entity::new(EntityKey {
            pk: Key::new("p").unwrap(),
            rk: rk.clone(),
        });
        Row {
            entity,
            etag: ETag::new("\"1\"").unwrap(),
            timestamp: None,
        }
    }

    /// `+` found, `-` absent, `?` not said.
    fn told(rows: &str, complete: bool, asked: &str) -> String {
        let continuation = Continuation {
            next_partition_key: "p".to_owned(),
            next_row_key: None,
        };
        let page = Page {
            rows: keys(rows).iter().map(row).collect(),
            continuation: (!complete).then_some(continuation),
        };
        let keys = keys(asked);
        let said = said(
            page,
            (keys.first().unwrap(), keys.last().unwrap()),
            keys.iter(),
        );
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
    fn a_key_that_stores_may_sort_outside_of_the_range_or_page_is_not_absent() {
        // U+FF21 comes before U+20BB7 in bytes, and after it in UTF-16.
        assert_eq!(told("a", true, "a \u{ff21} \u{20bb7}"), "+?-");
        assert_eq!(
            told("a \u{ff21} \u{20bb7}", true, "a \u{ff21} \u{20bb7}"),
            "+++"
        );
        assert_eq!(
            told("a \u{20bb7}", false, "a 부서 \u{ff21} \u{20bb7} \u{20bb8}"),
            "+-?+?"
        );
        assert_eq!(told("Müller", true, "Müller O'Brien 부서 😀"), "+---");
    }

    #[test]
    fn bounds_that_stores_may_sort_differently_are_taken_away() {
        let waiting = |names: &str| {
            keys(names)
                .into_iter()
                .map(|rk| (rk, Vec::new()))
                .collect::<Waiting>()
        };
        let left = |names: &str| {
            let mut waiting = waiting(names);
            let beyond = beyond_doubtful_bounds(&mut waiting);
            (waiting.len(), beyond.len())
        };
        assert_eq!(left("a \u{ff21} \u{20bb7}"), (3, 0));
        assert_eq!(left("\u{ff21} \u{ff22} \u{20bb7}"), (2, 1));
        assert_eq!(left("\u{ff21} \u{20bb7}"), (1, 1));
        assert_eq!(left(""), (0, 0));
    }
}
