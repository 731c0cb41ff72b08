//! Combines point reads of one partition into range queries.
//!
//! A range query also returns the rows between the requested keys, so it is limited ([`Query::top`]) to twice as many rows as
//! there are keys. So a range may end before the last requested key. The keys behind its end are read by another range if the
//! earlier ranges answered enough of their keys. Otherwise, they are read by point reads. If most ranges of a partition are
//! sparse, the partition is read by point reads for a while ([`Density`]).
//!
//! If a page covers the place of a key and does not contain the key, the key counts as absent under two conditions. The key must
//! lie in the range by byte order and by UTF-16 order, because stores differ in their order. The store must be known to
//! understand such filters ([`Trust`]). Other keys are read alone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::stream;

use super::answer::{Answer, RequestCharge, run_while_awaited, send_answer};
use super::batching::{BatchExecutor, Partition};
use super::density::Density;
use super::queue::PendingRequest;
use super::shape::{Shape, Trust};
use super::verdict;
use crate::layer::Op;
use evenkeel_model::key::sorts_before_everywhere;
use evenkeel_model::{Comparison, EntityKey, Filter, Key, Row, limits};
use evenkeel_storage::{Page, Query, Resource, StoreError, TableStore};

const CONCURRENT: usize = 16;

/// A range is poor if it answers fewer than four keys, or less than a quarter of its keys. Point reads are then faster: they are
/// sent concurrently, but ranges one after the other.
const MIN_ANSWERED: usize = 4;
/// After this many poor ranges, the other keys are read by point reads. The first range may be poor by chance, because the
/// batch may begin with a few keys of another job.
const MAX_POOR_RANGES: usize = 2;

pub(super) struct PendingRead {
    pub(super) rk: Key,
    pub(super) answer: Answer<Option<Row>>,
}

impl PendingRequest for PendingRead {
    // This number is low enough that new reads accumulate, and high enough that the few readers of a quiet partition are not
    // delayed.
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

    /// Moves a batch of reads to the front: the oldest read and the reads whose keys follow its key. All other reads keep their
    /// order. So if several batch jobs read one partition, each range contains the keys of one job.
    fn arrange(waiting: &mut VecDeque<Self>) {
        let Some(oldest) = waiting.front().map(|read| read.rk.clone()) else {
            return;
        };
        let mut by_key: Vec<usize> = (0..waiting.len()).collect();
        let position = |at: &usize| waiting.get(*at).map(|read| (read.rk < oldest, &read.rk));
        by_key.sort_unstable_by(|a, b| position(a).cmp(&position(b)));
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

    async fn execute(&self, partition: &Partition, batch: Vec<PendingRead>) {
        let mut waiting = BTreeMap::<Key, Vec<Answer<Option<Row>>>>::new();
        for read in batch {
            waiting.entry(read.rk).or_default().push(read.answer);
        }
        let waiting = self.ranges(partition, waiting.into_iter().collect()).await;
        let each = waiting
            .into_iter()
            .map(|(rk, answers)| self.point(partition, rk, answers));
        stream::iter(each)
            .buffer_unordered(CONCURRENT)
            .for_each(|_| async {})
            .await;
    }
}

type PendingKeys = Vec<(Key, Vec<Answer<Option<Row>>>)>;

impl Reads {
    /// Reads ranges while they answer enough keys. Returns the reads that no range answered.
    async fn ranges(&self, partition: &Partition, mut waiting: PendingKeys) -> PendingKeys {
        let (requested, mut poor_ranges) = (waiting.len(), 0);
        while waiting.len() > 1 && poor_ranges < MAX_POOR_RANGES {
            let before = waiting.len();
            waiting = match self.range(partition, waiting).await {
                Ok(unanswered) => unanswered,
                Err(refused) => return refused,
            };
            let answered = before - waiting.len();
            poor_ranges += usize::from(answered < MIN_ANSWERED || answered * MIN_ANSWERED < before);
        }
        if requested > 1 {
            self.density()
                .record_range(partition, requested, requested - waiting.len());
        }
        waiting
    }

    /// Reads one range. Returns the reads that it did not answer, as `Err` if no further range should be tried.
    async fn range(
        &self,
        partition: &Partition,
        mut waiting: PendingKeys,
    ) -> Result<PendingKeys, PendingKeys> {
        let (table, pk) = partition;
        let ambiguous = split_ambiguous_bounds(&mut waiting);
        let (Some((first, _)), Some((last, _))) = (waiting.first(), waiting.last()) else {
            return Ok(waiting);
        };
        let (first, last) = (first.clone(), last.clone());
        let shape = Shape::of([pk, &first, &last]);
        if first == last || !self.trust().allows(shape) {
            waiting.extend(ambiguous);
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
        let Some(result) = run_while_awaited(self.store.query(table, &query), given_up).await
        else {
            return Err(ambiguous);
        };
        let page = match result {
            Ok(page) => page,
            Err(error) if error.class.is_transient() => {
                let mut charge = RequestCharge::first_caller_only();
                for (rk, answers) in waiting {
                    fail(charge.by_ref().zip(answers), &error, partition, &rk);
                }
                return Err(ambiguous);
            }
            // The failure may concern only the range, so the keys are read alone.
            Err(_) => {
                waiting.extend(ambiguous);
                return Err(waiting);
            }
        };
        if !page.rows.is_empty() {
            self.trust().prove(shape);
        } else if page.continuation.is_none()
            && !self.trust().believes(shape)
            && !self.is_empty(partition, &query, &mut waiting, shape).await
        {
            waiting.extend(ambiguous);
            return Err(waiting);
        }
        let shown = key_answers(page, (&first, &last), waiting.iter().map(|(rk, _)| rk));
        let mut unanswered = Vec::new();
        let mut charge = RequestCharge::first_caller_only();
        for ((rk, answers), shown) in waiting.into_iter().zip(shown) {
            match shown {
                KeyAnswer::Row(row) => charge
                    .by_ref()
                    .zip(answers)
                    .for_each(|(charge, answer)| send_answer(answer, charge, Ok(row.clone()))),
                KeyAnswer::Nothing => unanswered.push((rk, answers)),
            }
        }
        unanswered.extend(ambiguous);
        Ok(unanswered)
    }

    /// Whether a range that returned no row is really empty: reads and answers its first key alone to detect a misread filter.
    async fn is_empty(
        &self,
        partition: &Partition,
        query: &Query,
        waiting: &mut PendingKeys,
        shape: Shape,
    ) -> bool {
        if waiting.is_empty() {
            return true;
        }
        let (rk, answers) = waiting.remove(0);
        match self.point(partition, rk.clone(), answers).await {
            Some(false) => return true,
            // A failed point read is no evidence about the range.
            None => return false,
            Some(true) => {}
        }
        // The row may have been inserted after the range was read, so the range is read again.
        if self
            .store
            .query(&partition.0, query)
            .await
            .is_ok_and(|page| page.rows.is_empty() && page.continuation.is_none())
        {
            self.trust().refute(shape);
            tracing::warn!(
                table = %partition.0, partition_key = %partition.1, row_key = %rk,
                "range query of {} returned no row although {rk:?} exists; keys with {} are now read one by one", partition.0, shape.kinds()
            );
        }
        false
    }

    /// Reads one key. Returns whether its row exists, or `None` if the read failed.
    async fn point(
        &self,
        partition: &Partition,
        rk: Key,
        mut answers: Vec<Answer<Option<Row>>>,
    ) -> Option<bool> {
        let (table, pk) = partition;
        let key = EntityKey { pk: pk.clone(), rk };
        let given_up = async {
            for answer in &mut answers {
                answer.closed().await;
            }
        };
        match run_while_awaited(self.store.get(table, &key, None), given_up).await? {
            Ok(row) => {
                RequestCharge::first_caller_only()
                    .zip(answers)
                    .for_each(|(charge, answer)| send_answer(answer, charge, Ok(row.clone())));
                Some(row.is_some())
            }
            Err(error) => {
                fail(
                    RequestCharge::first_caller_only().zip(answers),
                    &error,
                    partition,
                    &key.rk,
                );
                None
            }
        }
    }
}

fn fail(
    answers: impl Iterator<Item = (RequestCharge, Answer<Option<Row>>)>,
    error: &StoreError,
    (table, pk): &Partition,
    rk: &Key,
) {
    for (charge, answer) in answers {
        let key = EntityKey {
            pk: pk.clone(),
            rk: rk.clone(),
        };
        send_answer(
            answer,
            charge,
            Err(verdict::alone(
                error.clone(),
                GET,
                Resource::Entity(table.clone(), key),
            )),
        );
    }
}

/// The operation name in errors: each caller requested a point read.
const GET: &str = Op::GetEntity.operation();

#[derive(Debug, PartialEq)]
enum KeyAnswer {
    Row(Option<Row>),
    /// The page ends before this key.
    Nothing,
}

/// Removes keys from the end until the first and the last key have the same order in every store. Returns the removed reads.
///
/// Orders differ only between characters from U+E000 to U+FFFF and those beyond U+FFFF, so this is rare.
fn split_ambiguous_bounds(waiting: &mut PendingKeys) -> PendingKeys {
    let Some((first, _)) = waiting.first() else {
        return Vec::new();
    };
    let last = waiting
        .iter()
        .rposition(|(rk, _)| first == rk || sorts_before_everywhere(first.as_str(), rk.as_str()));
    waiting.split_off(last.map_or(0, |last| last + 1))
}

/// What a page shows about each key. `first` and `last` are the bounds of its range.
fn key_answers<'k>(
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

    /// `+` found, `-` absent, `?` unknown.
    fn shown_answers(rows: &str, complete: bool, requested: &str) -> String {
        let continuation = Continuation {
            next_partition_key: "p".to_owned(),
            next_row_key: None,
        };
        let page = Page {
            rows: keys(rows).iter().map(row).collect(),
            continuation: (!complete).then_some(continuation),
        };
        let keys = keys(requested);
        let shown = key_answers(
            page,
            (keys.first().unwrap(), keys.last().unwrap()),
            keys.iter(),
        );
        shown
            .into_iter()
            .zip(&keys)
            .map(|(shown, key)| match shown {
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
        assert_eq!(shown_answers("b c d", true, "a b d e"), "-++-");
        assert_eq!(shown_answers("b c d", false, "a b d e"), "-++?");
        assert_eq!(shown_answers("", false, "a b"), "??");
        assert_eq!(shown_answers("", true, "a b"), "--");
    }

    #[test]
    fn a_key_that_stores_may_sort_outside_of_the_range_or_page_is_not_absent() {
        // U+FF21 sorts before U+20BB7 in bytes, and after it in UTF-16.
        assert_eq!(shown_answers("a", true, "a \u{ff21} \u{20bb7}"), "+?-");
        assert_eq!(
            shown_answers("a \u{ff21} \u{20bb7}", true, "a \u{ff21} \u{20bb7}"),
            "+++"
        );
        assert_eq!(
            shown_answers("a \u{20bb7}", false, "a 부서 \u{ff21} \u{20bb7} \u{20bb8}"),
            "+-?+?"
        );
        assert_eq!(
            shown_answers("Müller", true, "Müller O'Brien 부서 😀"),
            "+---"
        );
    }

    #[test]
    fn bounds_that_stores_may_sort_differently_are_removed() {
        let waiting = |names: &str| {
            keys(names)
                .into_iter()
                .map(|rk| (rk, Vec::new()))
                .collect::<PendingKeys>()
        };
        let left = |names: &str| {
            let mut waiting = waiting(names);
            let ambiguous = split_ambiguous_bounds(&mut waiting);
            (waiting.len(), ambiguous.len())
        };
        assert_eq!(left("a \u{ff21} \u{20bb7}"), (3, 0));
        assert_eq!(left("\u{ff21} \u{ff22} \u{20bb7}"), (2, 1));
        assert_eq!(left("\u{ff21} \u{20bb7}"), (1, 1));
        assert_eq!(left(""), (0, 0));
    }
}
