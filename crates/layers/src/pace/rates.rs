//! The rates of an account's scopes. Decides which scope a throttled request is about.
//!
//! A request belongs to up to three scopes: the account, its table (a new table is on one server, whatever its partitions)
//! and its partition, queue or blob. It waits for the slowest of them.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use super::rate::PacedRate;
use crate::heat::PrehashedHasher;
use crate::layer::{Target, ThrottleScope};
use evenkeel_model::settings::PaceCeilings;

/// Maximum number of scopes with their own rate, at about 300 bytes each. Any further scope is limited only by the rates of its
/// table and its account.
const CAPACITY: usize = 16_384;
/// An unused scope is forgotten after this time, and then starts slowly again.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(10);
/// If this many scopes of a table throttle within `WITHIN`, the table is the cause. If this many tables, queues or blobs do,
/// the account is the cause.
const MIN_PARTS: usize = 3;
const WITHIN: Duration = Duration::from_millis(500);
/// A scope is reported as paced for this long after a request waited for it.
const SHOWN_FOR: Duration = Duration::from_secs(30);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Scopes {
    table: Option<u64>,
    pub(super) own: Option<u64>,
    ceiling: Ceiling,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ceiling {
    Partition,
    Queue,
    Blob,
}

impl Scopes {
    pub(super) fn of(target: &Target<'_>) -> Self {
        let hash = |parts: (&str, &str)| {
            let mut hasher = DefaultHasher::new();
            parts.hash(&mut hasher);
            Some(hasher.finish())
        };
        let (table, own, ceiling) = match target {
            Target::Entity(table, key) => (
                hash(("", table.as_str())),
                hash((table.as_str(), key.pk.as_str())),
                Ceiling::Partition,
            ),
            Target::Partition(table, pk) => (
                hash(("", table.as_str())),
                hash((table.as_str(), pk.as_str())),
                Ceiling::Partition,
            ),
            Target::Table(table) => (hash(("", table.as_str())), None, Ceiling::Partition),
            Target::Queue(queue) | Target::Message(queue, _) => {
                (None, hash((queue.as_str(), "/")), Ceiling::Queue)
            }
            Target::Blob(container, blob) => (
                None,
                hash((container.as_str(), blob.as_str())),
                Ceiling::Blob,
            ),
            Target::Service(_)
            | Target::Container(_)
            | Target::Collection(_)
            | Target::Document(..) => (None, None, Ceiling::Partition),
        };
        Self {
            table,
            own,
            ceiling,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct PacedScope {
    /// `None` stands for the whole account.
    pub scope: Option<ThrottleScope>,
    /// Current limit per second: requests of an account, entities, messages, or requests to a blob.
    pub per_second: f64,
    /// Number of throttled requests since requests began to wait for this scope.
    pub refused: u64,
}

#[derive(Debug)]
struct ScopeRate {
    rate: PacedRate,
    used: Duration,
    waited: Option<Duration>,
    refused: u64,
    /// Set at the first wait.
    scope: Option<ThrottleScope>,
    refusals: Refusals,
}

impl ScopeRate {
    fn new(rate: PacedRate, now: Duration) -> Self {
        Self {
            rate,
            used: now,
            waited: None,
            refused: 0,
            scope: None,
            refusals: Refusals::default(),
        }
    }
}

/// Recent throttled requests of a scope: the time, and the part of the scope.
#[derive(Debug, Default)]
struct Refusals(VecDeque<(Duration, u64)>);

impl Refusals {
    /// Records a throttled request of a part. Returns whether enough parts throttle for the whole scope to be the cause.
    fn concern_whole_scope(&mut self, part: u64, now: Duration) -> bool {
        self.0
            .retain(|(at, other)| now < *at + WITHIN && *other != part);
        self.0.push_back((now, part));
        if self.0.len() > MIN_PARTS {
            self.0.pop_front();
        }
        self.0.len() >= MIN_PARTS
    }
}

#[derive(Debug)]
pub(super) struct Rates {
    ceilings: PaceCeilings,
    account: ScopeRate,
    scopes: HashMap<u64, ScopeRate, BuildHasherDefault<PrehashedHasher>>,
}

impl Rates {
    pub(super) fn new(ceilings: PaceCeilings, now: Duration) -> Self {
        let rate = PacedRate::new(ceilings.account, ceilings.account * ceilings.start, now);
        Self {
            ceilings,
            account: ScopeRate::new(rate, now),
            scopes: HashMap::default(),
        }
    }

    pub(super) fn admit(&mut self, target: &Target<'_>, weight: usize, now: Duration) -> Duration {
        let scopes = Scopes::of(target);
        let weight = weight_of(weight);
        let mut wait = self.account.rate.wait(now);
        self.account.note(wait, now, || None);
        self.account.rate.book(1.0, wait, now);
        for (part, paced) in self.parts(scopes, now).into_iter().enumerate() {
            let own = paced.rate.wait(now);
            let scope = || {
                Some(if part == 0 && scopes.table.is_some() {
                    table_of(target)
                } else {
                    target.scope()
                })
            };
            paced.note(own, now, scope);
            paced.rate.book(weight, own, now);
            wait = wait.max(own);
        }
        wait
    }

    pub(super) fn wait_behind(
        &mut self,
        target: &Target<'_>,
        weight: usize,
        now: Duration,
    ) -> Duration {
        let wait = self.account.rate.wait_behind(1.0, now);
        let parts = self.parts(Scopes::of(target), now).into_iter();
        parts
            .map(|paced| paced.rate.wait_behind(weight_of(weight), now))
            .fold(wait, Duration::max)
    }

    pub(super) fn note_live(&mut self, target: &Target<'_>, weight: usize, now: Duration) {
        self.account.rate.note_live(1.0, now);
        for paced in self.parts(Scopes::of(target), now) {
            paced.rate.note_live(weight_of(weight), now);
        }
    }

    /// Records an answer: its latency, and the weight beyond what was booked.
    pub(super) fn answered(
        &mut self,
        target: &Target<'_>,
        extra: usize,
        took: Duration,
        now: Duration,
    ) {
        let scopes = Scopes::of(target);
        for paced in self.parts(scopes, now) {
            if extra > 0 {
                paced.rate.charge(weight_of(extra), now);
            }
        }
        if let Some(paced) = scopes.own.and_then(|own| self.scopes.get_mut(&own)) {
            paced.rate.answered(took, now);
        }
    }

    /// Records a throttled request and reduces the rate of its own scope, or of its table or account if enough parts throttle.
    pub(super) fn refused(&mut self, target: &Target<'_>, now: Duration) {
        let scopes = Scopes::of(target);
        let whole = scopes.table.or(scopes.own).unwrap_or_default();
        if self.account.refusals.concern_whole_scope(whole, now) {
            self.account.ease(now);
            return;
        }
        if let (Some(own), Some(table)) = (
            scopes.own,
            scopes.table.and_then(|table| self.scopes.get_mut(&table)),
        ) && table.refusals.concern_whole_scope(own, now)
        {
            table.ease(now);
            return;
        }
        if let Some(paced) = scopes
            .own
            .or(scopes.table)
            .and_then(|own| self.scopes.get_mut(&own))
        {
            paced.ease(now);
        }
    }

    /// Expected limit of the request's own scope, in weight per second.
    pub(super) fn expected(&self, scopes: Scopes) -> f64 {
        let own = scopes.own.and_then(|own| self.scopes.get(&own));
        own.map_or_else(
            || self.ceiling(scopes.ceiling),
            |paced| paced.rate.expected(),
        )
    }

    pub(super) const fn account(&self) -> f64 {
        self.account.rate.per_second()
    }

    /// The scopes that requests have recently waited for, slowest first.
    pub(super) fn paced(&self, now: Duration) -> Vec<PacedScope> {
        let lately =
            |paced: &&ScopeRate| paced.waited.is_some_and(|waited| now < waited + SHOWN_FOR);
        let all = std::iter::once(&self.account)
            .chain(self.scopes.values())
            .filter(lately);
        let mut shown: Vec<PacedScope> = all
            .map(|paced| PacedScope {
                scope: paced.scope.clone(),
                per_second: paced.rate.per_second(),
                refused: paced.refused,
            })
            .collect();
        shown.sort_by(|one, other| {
            one.per_second
                .total_cmp(&other.per_second)
                .then_with(|| one.scope.cmp(&other.scope))
        });
        shown
    }

    const fn ceiling(&self, ceiling: Ceiling) -> f64 {
        match ceiling {
            Ceiling::Partition => self.ceilings.partition,
            Ceiling::Queue => self.ceilings.queue,
            Ceiling::Blob => self.ceilings.blob,
        }
    }

    /// The paced scopes of a request: its table, then its own.
    fn parts(&mut self, scopes: Scopes, now: Duration) -> Vec<&mut ScopeRate> {
        let Scopes {
            table,
            own,
            ceiling,
        } = scopes;
        let PaceCeilings {
            account,
            partition,
            start,
            ..
        } = self.ceilings;
        let own_ceiling = self.ceiling(ceiling);
        // A table has no published limit; a new one starts like a partition.
        let wanted = [
            table.map(|table| (table, account.max(partition), partition * start)),
            own.map(|own| (own, own_ceiling, own_ceiling * start)),
        ];
        for (hash, ceiling, start) in wanted.iter().flatten() {
            if !self.scopes.contains_key(hash) && self.has_room(now) {
                self.scopes.insert(
                    *hash,
                    ScopeRate::new(PacedRate::new(*ceiling, *start, now), now),
                );
            }
        }
        let [first, second] = wanted.map(|wanted| wanted.map_or(0, |(hash, ..)| hash));
        let mut found: Vec<&mut ScopeRate> = if first == second {
            self.scopes.get_mut(&first).into_iter().collect()
        } else {
            self.scopes
                .get_disjoint_mut([&first, &second])
                .into_iter()
                .flatten()
                .collect()
        };
        for paced in &mut found {
            paced.used = now;
        }
        found
    }

    fn has_room(&mut self, now: Duration) -> bool {
        if self.scopes.len() >= CAPACITY {
            self.scopes
                .retain(|_, paced| now < paced.used + FORGOTTEN_AFTER);
        }
        self.scopes.len() < CAPACITY
    }
}

impl ScopeRate {
    fn note(
        &mut self,
        wait: Duration,
        now: Duration,
        scope: impl FnOnce() -> Option<ThrottleScope>,
    ) {
        if wait.is_zero() {
            return;
        }
        if self.waited.is_none_or(|waited| now >= waited + SHOWN_FOR) {
            self.refused = 0;
        }
        self.waited = Some(now);
        if self.scope.is_none() {
            self.scope = scope();
        }
    }

    fn ease(&mut self, now: Duration) {
        self.refused += 1;
        self.rate.refused(now);
    }
}

fn table_of(target: &Target<'_>) -> ThrottleScope {
    match target.scope() {
        ThrottleScope::Partition(table, _) => ThrottleScope::Table(table),
        scope => scope,
    }
}

fn weight_of(entities: usize) -> f64 {
    f64::from(u32::try_from(entities.max(1)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use evenkeel_model::{Key, QueueName, TableName};

    const CEILINGS: PaceCeilings = PaceCeilings {
        partition: 2_000.0,
        queue: 2_000.0,
        blob: 500.0,
        account: 20_000.0,
        start: 1.0,
    };

    fn on<T>(table: &str, pk: &str, see: impl FnOnce(&Target<'_>) -> T) -> T {
        let table = TableName::new(table).unwrap();
        see(&Target::Partition(
            &table,
            Cow::Owned(Key::new(pk).unwrap()),
        ))
    }

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn a_hot_partition_waits_for_itself_alone() {
        let mut rates = Rates::new(
            PaceCeilings {
                start: 1.0,
                ..CEILINGS
            },
            Duration::ZERO,
        );
        for _ in 0..10 {
            on("Employees", "cold", |target| {
                rates.answered(target, 0, ms(5), ms(0));
            });
        }
        on("Employees", "hot", |target| {
            for _ in 0..300 {
                rates.admit(target, 1, ms(0));
            }
            rates.refused(target, ms(1));
        });
        assert!(on("Employees", "hot", |target| rates.admit(target, 100, ms(1))) > ms(40));
        assert!(
            on("Departments", "cold", |target| rates.admit(
                target,
                1,
                ms(1)
            ))
            .is_zero()
        );
        let paced = rates.paced(ms(2));
        assert!(
            paced.iter().any(
                |one| matches!(&one.scope, Some(ThrottleScope::Partition(..))) && one.refused == 1
            ),
            "{paced:?}"
        );
    }

    #[test]
    fn three_throttled_partitions_reduce_the_table_and_three_tables_the_account() {
        let mut rates = Rates::new(CEILINGS, Duration::ZERO);
        let mut refuse = |table: &str, pk: &str, at| {
            on(table, pk, |target| {
                rates.admit(target, 1, ms(at));
                rates.refused(target, ms(at));
            });
            (
                on(table, pk, |target| rates.expected(Scopes::of(target))),
                rates.account(),
            )
        };
        assert!(refuse("One", "a", 1).0 < 2_000.0 && refuse("One", "b", 2).0 < 2_000.0);
        assert_eq!(
            refuse("One", "c", 3),
            (2_000.0, 20_000.0),
            "the table is eased"
        );
        assert!(refuse("Two", "a", 4).0 < 2_000.0);
        let (own, account) = refuse("Three", "a", 5);
        assert!(
            (own - 2_000.0).abs() < 1e-9 && account < 20_000.0,
            "the account is eased"
        );
    }

    #[test]
    fn memory_is_bounded_and_further_scopes_use_the_rate_of_their_table() {
        let mut rates = Rates::new(CEILINGS, Duration::ZERO);
        for number in 0..CAPACITY + 100 {
            let queue = QueueName::new(format!("queue-{number}")).unwrap();
            rates.admit(&Target::Queue(&queue), 1, ms(1));
        }
        assert_eq!(rates.scopes.len(), CAPACITY);
        on("Late", "p", |target| {
            rates.admit(target, 1, FORGOTTEN_AFTER + ms(1))
        });
        assert_eq!(rates.scopes.len(), 2);
    }
}
