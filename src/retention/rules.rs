//! Rules: the jobs by condition that are due are put on a queue.
//!
//! ```text
//!   every hour:   [rules] ── due by their rows in EvenkeelMigrations? ──▶ the row, at its ETag ──▶ the job
//! ```
//!
//! Every worker does this, and one of them wins the row: a rule is sent once for all. Twice would be harmless, and costs a scan.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::keeper::KeeperError;
use crate::catalog::{Catalog, Rule};
use crate::model::job::Operation as _;
use crate::model::names::MIGRATIONS;
use crate::model::{AccountName, EdmDateTime, EdmValue, Entity, EntityKey, QueueName, Row, TableName, body};
use crate::ports::{Clock, ErrorClass, IfMatch, Missing, StoreError, Stores, TableOperation, TableStore, Ttl};
use crate::settings::QueueSettings;

/// The partition of the rows that say when each rule was sent.
const PARTITION: &str = "rule";
/// The property that says when.
const SENT: &str = "SentAt";
/// How far the clocks of two workers may be apart for one not to repeat the other's jobs.
const CLOCKS_APART: SignedDuration = SignedDuration::from_hours(1);

/// Sends the jobs of rules.
pub struct RuleKeeper<'c> {
    catalog: &'c Catalog,
    stores: Stores,
    clock: Arc<dyn Clock>,
    queues: &'c [QueueSettings],
}

/// A job that a rule has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SentRule {
    /// The queue.
    pub queue: QueueName,
    /// The message's id.
    pub message_id: String,
}

/// Whether a rule is sent by its schedule or now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleTime {
    /// When its time has come.
    Due,
    /// In any case.
    Now,
}

impl<'c> RuleKeeper<'c> {
    /// A keeper of a catalog's rules; each job goes to the first queue that carries it.
    pub const fn new(catalog: &'c Catalog, stores: Stores, clock: Arc<dyn Clock>, queues: &'c [QueueSettings]) -> Self {
        Self { catalog, stores, clock, queues }
    }

    /// Sends every rule that is due. One that fails does not hold up the others; the first failure is returned.
    pub async fn tend(&self) -> Result<(), KeeperError> {
        let mut first = Ok(());
        for rule in self.catalog.rules.values() {
            let ended = self.send(rule, RuleTime::Due).await.map(drop);
            first = first.and(ended);
        }
        first
    }

    /// Sends a rule, where it is its time and no other worker was faster.
    pub async fn send(&self, rule: &Rule, time: RuleTime) -> Result<Option<SentRule>, KeeperError> {
        let op = rule.sweep.action.op();
        let failed = |doing: &str| {
            let doing = format!("{doing} [rules.{}]", rule.name);
            move |source| KeeperError::Store { doing, source }
        };
        let main = self.stores.account(&AccountName::main())?.tables.as_ref();
        let (table, key) = place(rule);
        let found = read(main, &table, &key).await.map_err(failed("reading when a job was sent for"))?;
        let now = self.clock.now();
        if time == RuleTime::Due && !is_due(found.as_ref(), rule.every, now) {
            return Ok(None);
        }
        let tables = self.catalog.tables_of(rule.sweep.subject());
        let carrier = self.queues.iter().find(|queue| queue.carries(op) && queue.reaches(tables.iter().copied()));
        let carrier = carrier.and_then(|queue| Some((&queue.account, queue.shard_names().into_iter().next()?)));
        let (account, queue) = carrier.ok_or_else(|| KeeperError::NoCarrier(rule.name.clone(), op))?;
        // The row first: of several workers one wins it.
        let claim = found.as_ref().map_or_else(
            || TableOperation::Insert(stamped(&key, now)),
            |row| TableOperation::Replace(stamped(&key, now), IfMatch::Matches(row.etag.clone())),
        );
        let claimed = match main.apply(&table, &claim).await {
            Err(error) if error.is_lost_race() => return Ok(None),
            Err(error) if error.class != ErrorClass::Ambiguous => return Err(failed("noting that a job is sent for")(error)),
            written => written.ok().flatten(),
        };
        let mut job = rule.sweep.message();
        // A name of its own each time: jobs of one name that say the same are one job.
        job["id"] = format!("rule {} {now}", rule.name).into();
        let put = self.stores.account(account)?.queues.put(&queue, &body::encode(&job.to_string()), Duration::ZERO, Ttl::Never).await;
        match put {
            Ok(message) => {
                tracing::info!(rule = %rule.name, %queue, op, "rule is due: its job is queued");
                Ok(Some(SentRule { queue, message_id: message.id }))
            }
            Err(error) => {
                // Best effort: without it the rule waits for its next time.
                if let Some(etag) = claimed {
                    drop(main.apply(&table, &TableOperation::Delete(key, IfMatch::Matches(etag))).await);
                }
                Err(failed("queueing the job of")(error))
            }
        }
    }
}

/// Whether a rule is to be sent, by the row that says when it was.
fn is_due(found: Option<&Row>, every: Duration, now: Timestamp) -> bool {
    let Some(EdmValue::DateTime(sent)) = found.and_then(|row| row.entity.get(SENT)) else { return true };
    let since = now.duration_since(sent.timestamp());
    // One from far in the future was written by a clock that was wrong.
    since <= -CLOCKS_APART || since >= SignedDuration::try_from(every).unwrap_or(SignedDuration::MAX)
}

#[expect(clippy::expect_used, reason = "constants, and a name that is a key")]
fn place(rule: &Rule) -> (TableName, EntityKey) {
    let key = EntityKey::new(PARTITION, rule.name.as_str()).expect("a view's name is a key");
    (TableName::new(MIGRATIONS).expect("a table name"), key)
}

fn stamped(key: &EntityKey, now: Timestamp) -> Entity {
    let sent = EdmDateTime::from_timestamp(now).map_or_else(|_| EdmValue::from(now.to_string()), EdmValue::DateTime);
    Entity::new(key.clone()).with(SENT, sent)
}

/// The row of a rule. Its table is made where migrations have not come by yet.
async fn read(tables: &dyn TableStore, table: &TableName, key: &EntityKey) -> Result<Option<Row>, StoreError> {
    match tables.get(table, key, None).await {
        Err(error) if error.class == ErrorClass::NotFound(Missing::Container) => tables.create_table(table).await.map(|_| None),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::sim::{FaultDecision, FaultPolicy, OperationInfo, SimWorld};
    use crate::adapters::system::{SeededChance, SystemClock};
    use crate::model::allowed::JobAllowance;
    use crate::model::condition::TimedCondition;
    use crate::model::sweep::{Sweep, SweepAction};
    use crate::model::{ETag, ViewName};
    use crate::ports::Chance as _;

    /// Each request takes its time.
    struct Slow(SeededChance);

    #[async_trait::async_trait]
    impl FaultPolicy for Slow {
        async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
            tokio::time::sleep(Duration::from_secs_f64(self.0.between(0.01, 1.0))).await;
            FaultDecision::Execute
        }
    }

    #[test]
    fn a_rule_is_due_when_its_time_has_passed_and_after_a_clock_that_was_wrong() {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let key = EntityKey::new(PARTITION, "old").unwrap();
        let due = |sent: &str| {
            let entity = stamped(&key, sent.parse().unwrap());
            is_due(Some(&Row { entity, etag: ETag::new("1").unwrap(), timestamp: None }), Duration::from_hours(24), now)
        };
        assert!(is_due(None, Duration::from_hours(24), now));
        assert!(due("2026-11-19T12:00:00Z") && due("2020-01-01T00:00:00Z") && due("2026-11-20T14:00:00Z"));
        assert!(!due("2026-11-19T12:00:01Z") && !due("2026-11-20T12:30:00Z"));
    }

    /// Many workers at once, as after a deployment.
    #[tokio::test(start_paused = true)]
    async fn of_many_workers_one_sends_a_rule_and_again_when_its_time_has_come() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let account = SimWorld::new(AccountName::main(), Arc::clone(&clock), Arc::new(Slow(SeededChance::new(3)))).account();
        let queue = QueueName::new("jobs").unwrap();
        account.queues.create_queue(&queue).await.unwrap();
        let stores = Stores::new([(AccountName::main(), account.clone())].into());
        let action = SweepAction::Delete(TableName::new("Sessions").unwrap());
        let when = TimedCondition::parse("Ended < now - 90d").unwrap();
        let sweep = Sweep::new(action, None, Some(when), false, 500).unwrap();
        let rule = Rule { name: ViewName::new("old").unwrap(), sweep, every: Duration::from_hours(24) };
        let mut catalog = Catalog::default();
        catalog.rules.insert(rule.name.clone(), Arc::new(rule.clone()));
        let queues = [QueueSettings::plain(queue.clone())];
        let tend = async || {
            let keepers: Vec<_> = (0..8).map(|_| RuleKeeper::new(&catalog, stores.clone(), Arc::clone(&clock), &queues)).collect();
            let ended = futures::future::join_all(keepers.iter().map(RuleKeeper::tend)).await;
            assert!(ended.iter().all(Result::is_ok), "{ended:?}");
            account.queues.approximate_count(&queue).await.unwrap()
        };
        assert_eq!(tend().await, 1);
        assert_eq!(tend().await, 1, "not yet");
        let keeper = RuleKeeper::new(&catalog, stores.clone(), Arc::clone(&clock), &queues);
        assert!(keeper.send(&rule, RuleTime::Now).await.unwrap().is_some());
        let allowed = JobAllowance { ops: Some(["sync".to_owned()].into()), ..JobAllowance::default() };
        let none = [QueueSettings { allowed, ..QueueSettings::plain(queue.clone()) }];
        let refused = RuleKeeper::new(&catalog, stores.clone(), Arc::clone(&clock), &none).send(&rule, RuleTime::Now).await.unwrap_err();
        assert!(refused.to_string().contains("[rules.old]") && refused.to_string().contains("delete_where"), "{refused}");
    }
}
