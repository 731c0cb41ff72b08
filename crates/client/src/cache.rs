//! A read cache for tables that rarely change. Its age and size are limited. An old entry is compared with the store by its
//! ETag.
//!
//! ```text
//!   read within `ttl` ──▶ cached row, no request
//!   later             ──▶ one request for the ETag ── equal ──▶ cached row, for another `ttl`
//!                                                  └─ different, or absent ──▶ read again
//! ```
//!
//! Rows are cached as they are stored, so encrypted properties stay encrypted. An entity with pointers to blobs and a list in
//! several pieces are not cached, because a later version may delete these blobs and pieces.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_model::catalog::TableRef;
use evenkeel_model::large::Pointer;
use evenkeel_model::shared;
use evenkeel_model::{Entity, EntityKey, Row, TableName, odata};
use evenkeel_storage::Clock;
use evenkeel_storage::system::SystemClock;

use super::{Client, ClientError, WholeEntity};

/// Approximate number of bytes that a cached entity needs in addition to its JSON: two copies of its key, and the nodes
/// of the maps.
const OVERHEAD: usize = 2_560;

/// Limits of the read cache of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLimits {
    /// A row older than this is compared with the store before it is returned.
    pub ttl: Duration,
    /// Maximum number of cached entities. Absent entities count as well.
    pub entries: usize,
    /// Maximum number of cached bytes. An entity counts as the bytes of its JSON plus 2.5 KiB. An entity that alone exceeds the limit
    /// is not cached.
    pub bytes: usize,
}

impl Default for CacheLimits {
    /// Returns limits of 30 seconds, 1,000 entities and 4 MiB.
    fn default() -> Self {
        Self {
            ttl: Duration::from_secs(30),
            entries: 1_000,
            bytes: 4 << 20,
        }
    }
}

pub(super) struct EntityCache {
    limits: CacheLimits,
    clock: Arc<dyn Clock>,
    cached: Mutex<CachedEntities>,
}

#[derive(Default)]
struct CachedEntities {
    entities: BTreeMap<EntityKey, CachedEntity>,
    /// The keys in the order of their last use, the least recently used key first.
    by_use: BTreeMap<u64, EntityKey>,
    uses: u64,
    bytes: usize,
    /// Number of calls of `forget`. The result of a read is not cached if `forget` was called after the read began.
    forgotten: u64,
}

struct CachedEntity {
    /// `None` if the entity is absent.
    row: Option<Row>,
    /// Monotonic time at which the last read of the row, or the last comparison with the store, began.
    at: Duration,
    used: u64,
    bytes: usize,
}

#[derive(Debug, PartialEq)]
enum CacheLookup {
    Fresh(Option<Row>),
    /// The row is older than `ttl`, so its ETag must be compared with the store.
    Stale(Row),
    Unknown,
}

/// The state at the start of a read. The age of a row is measured from this time, so that it is never underestimated.
#[derive(Clone, Copy)]
struct ReadStart {
    at: Duration,
    forgotten: u64,
}

impl fmt::Debug for EntityCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EntityCache")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl EntityCache {
    fn new(limits: CacheLimits, clock: Arc<dyn Clock>) -> Self {
        Self {
            limits,
            clock,
            cached: Mutex::default(),
        }
    }

    fn cached(&self) -> MutexGuard<'_, CachedEntities> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lookup(&self, key: &EntityKey) -> (CacheLookup, ReadStart) {
        let mut cached = self.cached();
        let begun = ReadStart {
            at: self.clock.monotonic(),
            forgotten: cached.forgotten,
        };
        let Some(entity) = cached.used(key) else {
            return (CacheLookup::Unknown, begun);
        };
        let found = match (
            &entity.row,
            begun.at.saturating_sub(entity.at) < self.limits.ttl,
        ) {
            (row, true) => CacheLookup::Fresh(row.clone()),
            (Some(row), false) => CacheLookup::Stale(row.clone()),
            (None, false) => CacheLookup::Unknown,
        };
        (found, begun)
    }

    /// Caches a row. `None` stands for an absent entity.
    fn keep(&self, key: &EntityKey, row: Option<&Row>, begun: ReadStart) {
        let bytes = OVERHEAD + row.map_or(0, |row| odata::encoded_len(&row.entity));
        let mut cached = self.cached();
        if cached.forgotten != begun.forgotten
            || cached
                .entities
                .get(key)
                .is_some_and(|entity| entity.at > begun.at)
        {
            return;
        }
        cached.remove(key);
        if bytes <= self.limits.bytes && row.is_none_or(|row| is_self_contained(&row.entity)) {
            cached.insert(
                key,
                CachedEntity {
                    row: row.cloned(),
                    at: begun.at,
                    used: 0,
                    bytes,
                },
            );
        }
        while cached.entities.len() > self.limits.entries || cached.bytes > self.limits.bytes {
            let Some((_, oldest)) = cached.by_use.first_key_value() else {
                return;
            };
            let oldest = oldest.clone();
            cached.remove(&oldest);
        }
    }

    fn forget(&self, key: &EntityKey) {
        let mut cached = self.cached();
        cached.forgotten += 1;
        cached.remove(key);
    }
}

/// Whether the row contains the whole entity: it has no pointers to blobs, and is no list in several pieces.
fn is_self_contained(entity: &Entity) -> bool {
    shared::list_view(entity).is_none()
        && entity
            .properties
            .values()
            .all(|value| Pointer::of(value).is_none())
}

impl CachedEntities {
    /// Returns a cached entity and marks it as the most recently used one.
    fn used(&mut self, key: &EntityKey) -> Option<&CachedEntity> {
        self.uses += 1;
        let entity = self.entities.get_mut(key)?;
        self.by_use.remove(&entity.used);
        entity.used = self.uses;
        self.by_use.insert(entity.used, key.clone());
        Some(entity)
    }

    fn insert(&mut self, key: &EntityKey, entity: CachedEntity) {
        self.bytes += entity.bytes;
        self.entities.insert(key.clone(), entity);
        self.used(key);
    }

    fn remove(&mut self, key: &EntityKey) {
        if let Some(entity) = self.entities.remove(key) {
            self.by_use.remove(&entity.used);
            self.bytes -= entity.bytes;
        }
    }
}

impl Client {
    /// Adds a read cache for a table of the catalog. [`get`](Self::get) and the joins of lookups use the cache. All clones of the
    /// returned client share it.
    ///
    /// A returned row was read or compared with the store at most `ttl` ago. If a cached row is older, one request reads its ETag. If
    /// the ETag has changed, the entity is read again.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unknown`] for a table that is not in the catalog.
    ///
    /// ```
    /// # use evenkeel_client::{CacheLimits, Client, ClientError};
    /// # use evenkeel_model::TableName;
    /// # fn example(client: Client) -> Result<Client, Box<dyn std::error::Error>> {
    /// let client = client.caching(&TableName::new("Departments")?, CacheLimits { entries: 200, ..CacheLimits::default() })?;
    /// # Ok(client)
    /// # }
    /// ```
    pub fn caching(self, table: &TableName, limits: CacheLimits) -> Result<Self, ClientError> {
        self.caching_with_clock(table, limits, Arc::new(SystemClock::new()))
    }

    /// Like [`caching`](Self::caching), with another clock.
    pub fn caching_with_clock(
        mut self,
        table: &TableName,
        limits: CacheLimits,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ClientError> {
        let cache = Arc::new(EntityCache::new(limits, clock));
        for table in self.target(table)?.tables() {
            Arc::make_mut(&mut self.caches).insert(table, Arc::clone(&cache));
        }
        Ok(self)
    }

    /// Removes an entity from the cache, so that the next read asks the store. Call this after the application has
    /// written the entity.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unknown`] for a table that is not in the catalog.
    pub fn forget(&self, table: &TableName, key: &EntityKey) -> Result<(), ClientError> {
        if let Some(cache) = self.caches.get(&self.target(table)?.first()) {
            cache.forget(key);
        }
        Ok(())
    }

    /// Returns one entity with all its rows, and the number of requests sent. If the table has a cache, the entity may
    /// come from it.
    pub(super) async fn cached(
        &self,
        table: &TableRef,
        key: &EntityKey,
    ) -> Result<(Option<Row>, u64), ClientError> {
        let Some(cache) = self.caches.get(table) else {
            return self.read(table, key).await;
        };
        let (found, begun) = cache.lookup(key);
        let sent = match found {
            CacheLookup::Fresh(row) => return Ok((row, 0)),
            CacheLookup::Unknown => 0,
            CacheLookup::Stale(row) => {
                let only_keys = ["PartitionKey".to_owned()];
                let present = self
                    .account(&table.account)?
                    .tables
                    .get(&table.table, key, Some(&only_keys))
                    .await;
                let present =
                    present.map_err(ClientError::store(format!("could not read {table}{key}")))?;
                if present.is_some_and(|present| present.etag == row.etag) {
                    cache.keep(key, Some(&row), begun);
                    return Ok((Some(row), 1));
                }
                1
            }
        };
        let (row, requests) = self.read(table, key).await?;
        cache.keep(key, row.as_ref(), begun);
        Ok((row, requests + sent))
    }

    /// Reads one entity with all its rows from the store, and returns the number of requests sent.
    pub(super) async fn read(
        &self,
        table: &TableRef,
        key: &EntityKey,
    ) -> Result<(Option<Row>, u64), ClientError> {
        let whole = self.whole(table, key).await?;
        Ok(whole.map_or((None, 1), |WholeEntity { row, requests }| {
            (Some(row), requests)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use evenkeel_model::{ETag, EdmValue};
    use jiff::Timestamp;
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct FakeClock(AtomicU64);

    impl Clock for FakeClock {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn monotonic(&self) -> Duration {
            Duration::from_secs(self.0.load(Ordering::SeqCst))
        }
    }

    fn key(number: u64) -> EntityKey {
        EntityKey::new("p", number.to_string()).unwrap()
    }

    fn row(number: u64, version: u64) -> Row {
        let entity = Entity::new(key(number)).with("Version", i64::try_from(version).unwrap());
        Row {
            entity,
            etag: ETag::new(format!("W/\"{version}\"")).unwrap(),
            timestamp: None,
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// A read. The cache answers it, or the store answers it after this many seconds.
        Read {
            key: u64,
            takes: u64,
        },
        Write(u64),
        Delete(u64),
        /// A write by the application that uses the cache. It calls `forget`.
        Own(u64),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        let key = 0..6_u64;
        prop_oneof![
            4 => (key.clone(), 0..3_u64).prop_map(|(key, takes)| Step::Read { key, takes }),
            1 => key.clone().prop_map(Step::Write),
            1 => key.clone().prop_map(Step::Delete),
            1 => key.prop_map(Step::Own),
            1 => (1..8_u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Each answer is a state that the entity had at some time within the last `ttl`, and not before the last write
        /// of the application itself.
        #[test]
        fn no_answer_is_older_than_the_ttl(steps in proptest::collection::vec(step(), 1..60), entries in 0..5_usize, few_bytes in any::<bool>()) {
            const TTL: u64 = 10;
            let clock = Arc::new(FakeClock::default());
            let bytes = if few_bytes { 3 * OVERHEAD } else { usize::MAX };
            let limits = CacheLimits { ttl: Duration::from_secs(TTL), entries, bytes };
            let cache = EntityCache::new(limits, Arc::<FakeClock>::clone(&clock));
            // For each key, the versions and the times at which they became current. Version 0 is an absent entity.
            let mut history: BTreeMap<u64, Vec<(u64, u64)>> = BTreeMap::new();
            let mut owned: BTreeMap<u64, u64> = BTreeMap::new();
            let mut next = 0;
            for step in steps {
                let now = clock.0.load(Ordering::SeqCst);
                match step {
                    Step::Wait(seconds) => {
                        clock.0.fetch_add(seconds, Ordering::SeqCst);
                    }
                    Step::Write(key) | Step::Own(key) => {
                        next += 1;
                        history.entry(key).or_insert_with(|| vec![(0, 0)]).push((now, next));
                    }
                    Step::Delete(key) => history.entry(key).or_insert_with(|| vec![(0, 0)]).push((now, 0)),
                    Step::Read { key: number, takes } => {
                        let versions = history.entry(number).or_insert_with(|| vec![(0, 0)]);
                        let present = versions.last().map_or(0, |(_, version)| *version);
                        let read = (present > 0).then(|| row(number, present));
                        let (found, begun) = cache.lookup(&key(number));
                        let answer = match found {
                            CacheLookup::Fresh(row) => row,
                            CacheLookup::Stale(row) if read.as_ref().is_some_and(|read| read.etag == row.etag) => {
                                cache.keep(&key(number), Some(&row), begun);
                                Some(row)
                            }
                            CacheLookup::Stale(_) | CacheLookup::Unknown => {
                                clock.0.fetch_add(takes, Ordering::SeqCst);
                                cache.keep(&key(number), read.as_ref(), begun);
                                read
                            }
                        };
                        let answered = answer.map_or(0, |row| match row.entity.get("Version") {
                            Some(EdmValue::Int64(version)) => u64::try_from(*version).unwrap(),
                            other => panic!("{other:?}"),
                        });
                        let until = |at: usize| versions.get(at + 1).map_or(u64::MAX, |(from, _)| *from);
                        let since = now.saturating_sub(TTL).max(owned.get(&number).copied().unwrap_or_default());
                        let was_true = versions.iter().enumerate().any(|(at, (_, version))| *version == answered && until(at) >= since);
                        prop_assert!(was_true, "{answered} of {versions:?} at {now}");
                    }
                }
                if let Step::Own(number) = step {
                    cache.forget(&key(number));
                    owned.insert(number, now);
                }
                let cached = cache.cached();
                prop_assert!(cached.entities.len() <= entries && cached.bytes <= bytes);
                prop_assert_eq!(cached.entities.len(), cached.by_use.len());
                prop_assert_eq!(cached.entities.values().map(|entity| entity.bytes).sum::<usize>(), cached.bytes);
            }
        }
    }

    #[test]
    fn the_least_recently_used_entity_is_evicted_first() {
        let cache = EntityCache::new(
            CacheLimits {
                entries: 2,
                ..CacheLimits::default()
            },
            Arc::new(FakeClock::default()),
        );
        for number in [1, 2] {
            let (_, begun) = cache.lookup(&key(number));
            cache.keep(&key(number), Some(&row(number, 1)), begun);
        }
        assert!(matches!(
            cache.lookup(&key(1)).0,
            CacheLookup::Fresh(Some(_))
        ));
        let (_, begun) = cache.lookup(&key(3));
        cache.keep(&key(3), None, begun);
        assert_eq!(cache.lookup(&key(2)).0, CacheLookup::Unknown);
        assert_eq!(
            cache.lookup(&key(3)).0,
            CacheLookup::Fresh(None),
            "an absent entity must be cached too"
        );
    }

    #[test]
    fn an_entity_forgotten_during_its_read_is_not_cached() {
        let cache = EntityCache::new(CacheLimits::default(), Arc::new(FakeClock::default()));
        let (_, begun) = cache.lookup(&key(1));
        cache.forget(&key(1));
        cache.keep(&key(1), Some(&row(1, 1)), begun);
        assert_eq!(cache.lookup(&key(1)).0, CacheLookup::Unknown);
    }
}
