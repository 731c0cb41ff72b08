//! Rules: the jobs by condition that are due are put on a queue.
//!
//! ```text
//!   every hour:   [rules] ── due by their rows in EvenkeelMigrations? ──▶ claim: the row, at its ETag ──▶ the job ──▶ sent: the row again
//! ```
//!
//! Every worker does this, and one of them wins the row: a rule is sent once for all. Where that one stops before it has noted that the job is
//! on its queue, the job is sent again under the same id, by which its double is known. Twice is harmless, and costs a scan.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::keeper::KeeperError;
use crate::catalog::{Catalog, Rule};
use crate::model::job::Operation as _;
use crate::model::names::MIGRATIONS;
use crate::model::{AccountName, ETag, EdmValue, Entity, EntityKey, QueueName, Row, TableName, body, cause};
use crate::ports::{Clock, ErrorClass, IfMatch, Missing, StoreError, Stores, TableOperation, TableStore, Ttl};
use crate::settings::QueueSettings;

/// The partition of the rows that say when each rule was sent.
const PARTITION: &str = "rule";
/// The property that says when.
const SENT: &str = "SentAt";
/// The property with the id of the job.
const JOB: &str = "Job";
/// The property that says since when a worker sends the job; absent once it is known to be on its queue.
const CLAIMED: &str = "ClaimedAt";
/// How long that may take: a request is refused 15 minutes after it was signed.
const CLAIM: SignedDuration = SignedDuration::from_mins(15);
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
        let turn = match time {
            RuleTime::Due => due(rule, found.as_ref(), now),
            RuleTime::Now => Some(RuleTurn::next(rule, now)),
        };
        let Some(turn) = turn else { return Ok(None) };
        let tables = self.catalog.tables_of(rule.sweep.subject());
        let carrier = self.queues.iter().find(|queue| queue.carries(op) && queue.reaches(tables.iter().copied()));
        let carrier = carrier.and_then(|queue| Some((&queue.account, queue.shard_names().into_iter().next()?)));
        let (account, queue) = carrier.ok_or_else(|| KeeperError::NoCarrier(rule.name.clone(), op))?;
        // The row first: of several workers one wins it.
        let claim = write(main, &table, found.map(|row| row.etag), &turn.row(&key, Some(now))).await;
        let Some(claim) = claim.map_err(failed("noting that a job is sent for"))? else { return Ok(None) };
        let mut job = rule.sweep.message();
        job["id"] = turn.job.as_str().into();
        let put = self.stores.account(account)?.queues.put(&queue, &body::encode(&job.to_string()), Duration::ZERO, Ttl::Never).await;
        match put {
            Ok(message) => {
                tracing::info!(rule = %rule.name, %queue, op, "rule is due: its job is queued");
                if let Err(error) = write(main, &table, Some(claim), &turn.row(&key, None)).await {
                    let error = cause::chain(&error);
                    tracing::warn!(
                        rule = %rule.name, %error,
                        "rule: that its job is queued could not be noted; it may be queued once more, with the same id"
                    );
                }
                Ok(Some(SentRule { queue, message_id: message.id }))
            }
            Err(error) => {
                // Best effort: without it the job is sent again when the claim is old.
                let old = now.saturating_sub(CLAIM).unwrap_or(Timestamp::MIN);
                drop(write(main, &table, Some(claim), &turn.row(&key, Some(old))).await);
                Err(failed("queueing the job of")(error))
            }
        }
    }
}

/// A job of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RuleTurn {
    /// Its time.
    sent: Timestamp,
    /// The id that it is known by, however often it is sent. A name of its own each time: jobs of one name that say the same are one job.
    job: String,
}

impl RuleTurn {
    fn next(rule: &Rule, now: Timestamp) -> Self {
        Self { sent: now, job: format!("rule {} {now}", rule.name) }
    }

    /// The row that says so, with the time since when it is being sent, where it is not known to be on its queue.
    fn row(&self, key: &EntityKey, claimed: Option<Timestamp>) -> Entity {
        let row = Entity::new(key.clone()).with(SENT, EdmValue::moment(self.sent)).with(JOB, self.job.as_str());
        match claimed {
            Some(claimed) => row.with(CLAIMED, EdmValue::moment(claimed)),
            None => row,
        }
    }
}

/// The job that it is time for, by the row that says which one was sent last: the next one, or the same once more where the worker that was to
/// send it may have stopped before.
fn due(rule: &Rule, found: Option<&Row>, now: Timestamp) -> Option<RuleTurn> {
    let time = |name| match found.and_then(|row| row.entity.get(name)) {
        Some(EdmValue::DateTime(time)) => Some(time.timestamp()),
        _ => None,
    };
    let every = SignedDuration::try_from(rule.every).unwrap_or(SignedDuration::MAX);
    let Some(sent) = time(SENT).filter(|sent| !has_passed(*sent, every, now)) else { return Some(RuleTurn::next(rule, now)) };
    let job = found.and_then(|row| row.entity.text(JOB))?;
    has_passed(time(CLAIMED)?, CLAIM, now).then(|| RuleTurn { sent, job: job.to_owned() })
}

/// Whether so long has passed since then. A time from far in the future was written by a clock that was wrong.
fn has_passed(since: Timestamp, long: SignedDuration, now: Timestamp) -> bool {
    let passed = now.duration_since(since);
    passed <= -CLOCKS_APART || passed >= long
}

#[expect(clippy::expect_used, reason = "constants, and a name that is a key")]
fn place(rule: &Rule) -> (TableName, EntityKey) {
    let key = EntityKey::new(PARTITION, rule.name.as_str()).expect("a view's name is a key");
    (TableName::new(MIGRATIONS).expect("a table name"), key)
}

/// Writes the row of a rule over the version that was read; its version then. `None` where another worker was faster.
async fn write(tables: &dyn TableStore, table: &TableName, over: Option<ETag>, row: &Entity) -> Result<Option<ETag>, StoreError> {
    let operation = match over {
        None => TableOperation::Insert(row.clone()),
        Some(etag) => TableOperation::Replace(row.clone(), IfMatch::Matches(etag)),
    };
    match tables.apply(table, &operation).await {
        Err(error) if error.is_lost_race() => Ok(None),
        Err(unheard) if unheard.class == ErrorClass::Ambiguous => {
            let is_it = |found: &Row| [SENT, JOB, CLAIMED].iter().all(|name| found.entity.get(name) == row.get(name));
            match read(tables, table, &row.key).await?.filter(is_it) {
                Some(found) => Ok(Some(found.etag)),
                // It may arrive yet.
                None => Err(unheard),
            }
        }
        written => written,
    }
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
    use crate::model::ViewName;
    use crate::model::allowed::JobAllowance;
    use crate::model::condition::TimedCondition;
    use crate::model::sweep::{Sweep, SweepAction};
    use crate::ports::{Account, Chance as _, MessageText};
    use std::collections::BTreeSet;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Each request takes its time.
    struct Slow(SeededChance);

    #[async_trait::async_trait]
    impl FaultPolicy for Slow {
        async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
            tokio::time::sleep(Duration::from_secs_f64(self.0.between(0.01, 1.0))).await;
            FaultDecision::Execute
        }
    }

    /// One write ends as is said, or never.
    struct Struck {
        /// Writes until then.
        left: AtomicU64,
        ends: Option<FaultDecision>,
    }

    #[async_trait::async_trait]
    impl FaultPolicy for Struck {
        async fn before(&self, operation: &OperationInfo) -> FaultDecision {
            if !operation.writes || self.left.fetch_sub(1, Ordering::SeqCst) != 1 {
                return FaultDecision::Execute;
            }
            match self.ends {
                Some(ends) => ends,
                None => std::future::pending().await,
            }
        }
    }

    /// A clock that is put on, and moves a little whenever it is read.
    struct Hands(Mutex<Timestamp>);

    impl Hands {
        fn put_on(&self, by: SignedDuration) {
            let mut now = self.0.lock().unwrap();
            *now = now.checked_add(by).unwrap();
        }
    }

    impl Clock for Hands {
        fn now(&self) -> Timestamp {
            self.put_on(SignedDuration::from_millis(1));
            *self.0.lock().unwrap()
        }

        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
    }

    fn rule() -> Rule {
        let action = SweepAction::Delete(TableName::new("Sessions").unwrap());
        let when = TimedCondition::parse("Ended < now - 90d").unwrap();
        let sweep = Sweep::new(action, None, Some(when), false, 500).unwrap();
        Rule { name: ViewName::new("old").unwrap(), sweep, every: Duration::from_hours(24) }
    }

    #[test]
    fn a_rule_is_due_when_its_time_has_passed_and_after_a_clock_that_was_wrong() {
        let now: Timestamp = "2026-11-20T12:00:00Z".parse().unwrap();
        let key = EntityKey::new(PARTITION, "old").unwrap();
        let turn = |sent: &str, claimed: Option<&str>| {
            let sent = RuleTurn { sent: sent.parse().unwrap(), job: "a job".to_owned() };
            let entity = sent.row(&key, claimed.map(|claimed| claimed.parse().unwrap()));
            due(&rule(), Some(&Row { entity, etag: ETag::new("1").unwrap(), timestamp: None }), now).map(|turn| turn.job)
        };
        let next = Some(format!("rule old {now}"));
        assert_eq!(due(&rule(), None, now).map(|turn| turn.job), next);
        for sent in ["2026-11-19T12:00:00Z", "2020-01-01T00:00:00Z", "2026-11-20T14:00:00Z"] {
            assert_eq!((turn(sent, None), turn(sent, Some(sent))), (next.clone(), next.clone()), "{sent}");
        }
        for sent in ["2026-11-19T12:00:01Z", "2026-11-20T12:30:00Z"] {
            assert_eq!(turn(sent, None), None, "{sent}");
        }
        let again = Some("a job".to_owned());
        let claims = [("11:45:00Z", &again), ("11:45:01Z", &None), ("12:30:00Z", &None), ("14:00:00Z", &again)];
        for (claimed, expected) in claims {
            assert_eq!(turn("2026-11-20T11:00:00Z", Some(&format!("2026-11-20T{claimed}"))), *expected, "claimed at {claimed}");
        }
    }

    /// The ids of the jobs on a queue, and how many there are.
    async fn jobs(account: &Account, queue: &QueueName) -> (BTreeSet<String>, usize) {
        let messages = account.queues.peek(queue, 32).await.unwrap();
        let id = |text: &MessageText| {
            let MessageText::Readable(text) = text else { panic!("an unreadable job") };
            let job: serde_json::Value = serde_json::from_str(&body::decode(text).unwrap().text).unwrap();
            job["id"].as_str().unwrap().to_owned()
        };
        (messages.iter().map(|message| id(&message.text)).collect(), messages.len())
    }

    /// The writes are the claim, the message, and the note that it is sent.
    #[tokio::test(start_paused = true)]
    async fn a_job_whose_worker_stops_or_hears_no_answer_is_sent_all_the_same_under_one_id() {
        for ends in [None, Some(FaultDecision::LoseAnswer), Some(FaultDecision::Fail(ErrorClass::Ambiguous))] {
            for at in 1..=3 {
                let story = format!("write {at} ends as {ends:?}");
                let hands = Arc::new(Hands(Mutex::new("2026-11-20T12:00:00Z".parse().unwrap())));
                let clock: Arc<dyn Clock> = Arc::<Hands>::clone(&hands);
                let faults = Arc::new(Struck { left: AtomicU64::new(u64::MAX), ends });
                let policy: Arc<dyn FaultPolicy> = Arc::<Struck>::clone(&faults);
                let account = SimWorld::new(AccountName::main(), Arc::clone(&clock), policy).account();
                let queue = QueueName::new("jobs").unwrap();
                account.queues.create_queue(&queue).await.unwrap();
                account.tables.create_table(&TableName::new(MIGRATIONS).unwrap()).await.unwrap();
                let stores = Stores::new([(AccountName::main(), account.clone())].into());
                let catalog = Catalog { rules: [(rule().name, Arc::new(rule()))].into(), ..Catalog::default() };
                let queues = [QueueSettings::plain(queue.clone())];
                let keeper = RuleKeeper::new(&catalog, stores, clock, &queues);

                faults.left.store(at, Ordering::SeqCst);
                drop(tokio::time::timeout(Duration::from_secs(1), keeper.tend()).await);
                hands.put_on(CLAIM);
                keeper.tend().await.unwrap();
                let (ids, sent) = jobs(&account, &queue).await;
                assert!(ids.len() == 1 && sent <= 2, "{story}: {sent} messages of {ids:?}");
                hands.put_on(SignedDuration::from_hours(1));
                keeper.tend().await.unwrap();
                assert_eq!(jobs(&account, &queue).await, (ids, sent), "{story}: not yet");
                hands.put_on(SignedDuration::from_hours(24));
                keeper.tend().await.unwrap();
                assert_eq!(jobs(&account, &queue).await.0.len(), 2, "{story}: the next one");
            }
        }
    }

    /// Many workers at once, as after a deployment.
    #[tokio::test(start_paused = true)]
    async fn of_many_workers_one_sends_a_rule_and_again_when_its_time_has_come() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let account = SimWorld::new(AccountName::main(), Arc::clone(&clock), Arc::new(Slow(SeededChance::new(3)))).account();
        let queue = QueueName::new("jobs").unwrap();
        account.queues.create_queue(&queue).await.unwrap();
        let stores = Stores::new([(AccountName::main(), account.clone())].into());
        let rule = rule();
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
