//! Counts requests by partition and queue to find the busiest ones.
//!
//! A partition takes 2,000 entities of 1 KiB per second, and a queue 2,000 messages (Azure: Storage targets). A busier
//! partition or queue answers 503, even if all others are idle. Requests since the last `take` are counted by the hash of
//! their partition or queue (the scope). Names are stored only for frequent scopes, so rare scopes cost little memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::layer::{Target, ThrottleScope};

/// Maximum number of scopes counted between two calls of `take`. A scope with more than a hundredth of all requests is
/// almost certainly among the first thousands.
const SCOPES: usize = 8_192;
/// The name of a scope is stored from this many requests on, or once it is throttled.
const NAMED: u32 = 8;

/// Counts by scope. Counting begins at the first `take`.
#[derive(Debug, Default)]
pub struct Heat {
    watched: AtomicBool,
    scopes: Mutex<HashMap<u64, ScopeCount, BuildHasherDefault<PrehashedHasher>>>,
}

#[derive(Debug, Default)]
struct ScopeCount {
    entities: u64,
    requests: u32,
    throttled: u32,
    scope: Option<ThrottleScope>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotScope {
    pub scope: ThrottleScope,
    /// Entities written and read by key, rows returned by queries, and messages. Rows that a query only scanned are not
    /// included.
    pub entities: u64,
    pub requests: u64,
    pub throttled: u64,
}

/// A hasher that returns each key unchanged, because the keys are hashes already.
#[derive(Debug, Default)]
pub(super) struct PrehashedHasher(u64);

impl Hasher for PrehashedHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Heat {
    pub(super) fn count_request(&self, target: &Target<'_>, entities: usize, throttled: bool) {
        if !self.watched.load(Ordering::Relaxed) {
            return;
        }
        let Some(hash) = hash(target) else { return };
        let mut scopes = self.scopes.lock().unwrap_or_else(PoisonError::into_inner);
        if scopes.len() >= SCOPES && !scopes.contains_key(&hash) {
            return;
        }
        let warm = scopes.entry(hash).or_default();
        warm.entities += entities.max(1) as u64;
        warm.requests += 1;
        warm.throttled += u32::from(throttled);
        if warm.scope.is_none() && (warm.requests >= NAMED || throttled) {
            warm.scope = Some(target.scope());
        }
    }

    /// Returns the busiest scopes since the last call, throttled ones first, and resets the counts.
    pub fn take(&self, most: usize) -> Vec<HotScope> {
        self.watched.store(true, Ordering::Relaxed);
        let scopes =
            std::mem::take(&mut *self.scopes.lock().unwrap_or_else(PoisonError::into_inner));
        let named = scopes.into_values().filter_map(|warm| {
            let (requests, throttled) = (u64::from(warm.requests), u64::from(warm.throttled));
            Some(HotScope {
                scope: warm.scope?,
                entities: warm.entities,
                requests,
                throttled,
            })
        });
        let mut hot: Vec<HotScope> = named.collect();
        hot.sort_by(|one, other| {
            (other.throttled, other.entities, &one.scope).cmp(&(
                one.throttled,
                one.entities,
                &other.scope,
            ))
        });
        hot.truncate(most);
        hot
    }
}

/// Hash of a partition or queue; `None` for other targets.
fn hash(target: &Target<'_>) -> Option<u64> {
    let mut hasher = DefaultHasher::new();
    match target {
        Target::Partition(table, pk) => (table.as_str(), pk.as_str()).hash(&mut hasher),
        Target::Entity(table, key) => (table.as_str(), key.pk.as_str()).hash(&mut hasher),
        Target::Queue(queue) | Target::Message(queue, _) => queue.as_str().hash(&mut hasher),
        Target::Service(_)
        | Target::Table(_)
        | Target::Container(_)
        | Target::Blob(..)
        | Target::Collection(_)
        | Target::Document(..) => {
            return None;
        }
    }
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{EntityKey, QueueName, TableName};

    #[test]
    fn the_hottest_come_first_those_that_throttle_before_all_and_cold_ones_have_no_name() {
        let heat = Heat::default();
        let table = TableName::new("Employees").unwrap();
        let key = |pk: &str| EntityKey::new(pk, "r").unwrap();
        let ask = |pk: &str, times: usize, entities: usize, throttled: bool| {
            let key = key(pk);
            (0..times).for_each(|_| {
                heat.count_request(&Target::Entity(&table, &key), entities, throttled);
            });
        };
        ask("before", 100, 1, false);
        assert!(
            heat.take(10).is_empty(),
            "counting begins at the first `take`"
        );
        ask("warm", 20, 1, false);
        ask("hot", 10, 100, false);
        ask("refused", 1, 1, true);
        ask("cold", 2, 1, false);
        let queue = QueueName::new("jobs").unwrap();
        (0..9).for_each(|_| heat.count_request(&Target::Message(&queue, "m"), 0, false));
        heat.count_request(&Target::Table(&table), 0, false);
        let found: Vec<(u64, u64)> = heat
            .take(3)
            .into_iter()
            .map(|hot| (hot.throttled, hot.entities))
            .collect();
        assert_eq!(found, [(1, 1), (0, 1_000), (0, 20)]);
        assert!(heat.take(10).is_empty());
    }

    #[test]
    fn memory_is_bounded() {
        let heat = Heat::default();
        heat.take(0);
        let table = TableName::new("Employees").unwrap();
        for number in 0..SCOPES + 100 {
            let key = EntityKey::new(number.to_string(), "r").unwrap();
            heat.count_request(&Target::Entity(&table, &key), 1, false);
        }
        assert_eq!(heat.scopes.lock().unwrap().len(), SCOPES);
    }
}
