//! Which partitions and queues are asked for most.
//!
//! A partition takes 2,000 entities of 1 KiB per second, a queue 2,000 messages (Azure: Storage targets): one that
//! is asked for more answers 503, however many others are idle. Counted for the time since the last look, by hash;
//! a partition is remembered by name only once it was asked for often, so that the many cold ones cost no memory.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash as _, Hasher};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::layer::{Target, ThrottleScope};

/// Most scopes counted between two looks. One that takes more than a hundredth of all requests is among the first
/// thousands that are seen, but for negligible odds.
const SCOPES: usize = 8_192;
/// A scope is remembered by name from this many requests on, or once it throttled.
const NAMED: u32 = 8;

/// Counts by scope, from the first look on.
#[derive(Debug, Default)]
pub struct Heat {
    watched: AtomicBool,
    scopes: Mutex<HashMap<u64, Warm, BuildHasherDefault<Given>>>,
}

#[derive(Debug, Default)]
struct Warm {
    entities: u64,
    requests: u32,
    throttled: u32,
    scope: Option<ThrottleScope>,
}

/// Requests to one scope since the last look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HotScope {
    /// The partition or queue.
    pub scope: ThrottleScope,
    /// Entities that writes and point reads named, rows that queries found, messages. Rows that queries came by besides are not known.
    pub entities: u64,
    /// Requests.
    pub requests: u64,
    /// Of these, how many were answered with "slow down".
    pub throttled: u64,
}

/// Hasher of keys that are hashes already.
#[derive(Debug, Default)]
pub(super) struct Given(u64);

impl Hasher for Given {
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
    /// A request was answered, or not waited for.
    pub(super) fn note(&self, target: &Target<'_>, entities: usize, throttled: bool) {
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

    /// The hottest since the last look, and begins anew. One that throttles is hotter than one that does not.
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

/// Hash of the scope of a partition or queue; `None` for all other targets.
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
            (0..times).for_each(|_| heat.note(&Target::Entity(&table, &key), entities, throttled));
        };
        ask("before", 100, 1, false);
        assert!(heat.take(10).is_empty(), "nobody looked yet");
        ask("warm", 20, 1, false);
        ask("hot", 10, 100, false);
        ask("refused", 1, 1, true);
        ask("cold", 2, 1, false);
        let queue = QueueName::new("jobs").unwrap();
        (0..9).for_each(|_| heat.note(&Target::Message(&queue, "m"), 0, false));
        heat.note(&Target::Table(&table), 0, false);
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
            heat.note(&Target::Entity(&table, &key), 1, false);
        }
        assert_eq!(heat.scopes.lock().unwrap().len(), SCOPES);
    }
}
