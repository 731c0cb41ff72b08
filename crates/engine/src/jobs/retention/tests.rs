//! Tests of scheduled jobs. Many workers send them, and workers may stop or get no answer.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::jobs::retention::Keeper;
use crate::jobs::retention::KeeperError;
use crate::jobs::retention::TurnTime;
use crate::jobs::retention::turns::CLAIM;
use evenkeel_account::{FaultDecision, FaultPolicy, NoFaults, OperationInfo, SimWorld};
use evenkeel_model::allowed::JobAllowance;
use evenkeel_model::catalog::{Catalog, Retention, Rule};
use evenkeel_model::condition::TimedCondition;
use evenkeel_model::dated::DatedTables;
use evenkeel_model::names::MIGRATIONS;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::sweep::{Sweep, SweepAction};
use evenkeel_model::{
    AccountName, CatalogOwner, Filter, Key, QueueName, TableName, ViewName, body,
};
use evenkeel_storage::system::{SeededRng, SystemClock};
use evenkeel_storage::{
    Account, Clock, ErrorClass, MessageText, Query, Resource, Rng as _, Stores, all_rows,
};

struct SlowRequests(SeededRng);

#[async_trait::async_trait]
impl FaultPolicy for SlowRequests {
    async fn before(&self, _operation: &OperationInfo) -> FaultDecision {
        tokio::time::sleep(Duration::from_secs_f64(self.0.between(0.01, 1.0))).await;
        FaultDecision::Execute
    }
}

/// Breaks one write. The write then ends with `ends`, or never if `ends` is `None`.
struct BrokenWrite {
    /// Counts down with each write. The write that finds 1 is broken.
    left: AtomicU64,
    ends: Option<FaultDecision>,
}

#[async_trait::async_trait]
impl FaultPolicy for BrokenWrite {
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

struct UnwritableRows(&'static [&'static str]);

#[async_trait::async_trait]
impl FaultPolicy for UnwritableRows {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        match &operation.what {
            Resource::Entity(_, key) if operation.writes && self.0.contains(&key.rk.as_str()) => {
                FaultDecision::Fail(ErrorClass::Permanent)
            }
            _ => FaultDecision::Execute,
        }
    }
}

/// A clock that is set by hand, and advances a little at each read.
struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    fn at(time: &str) -> Self {
        Self(Mutex::new(time.parse().unwrap()))
    }

    fn put_on(&self, by: SignedDuration) {
        let mut now = self.0.lock().unwrap();
        *now = now.checked_add(by).unwrap();
    }
}

impl Clock for ManualClock {
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
    Rule {
        name: ViewName::new("old").unwrap(),
        sweep,
        every: Duration::from_hours(24),
    }
}

fn keeper<'c>(
    catalog: &'c Catalog,
    stores: &Stores,
    clock: &Arc<dyn Clock>,
    queues: &'c [QueueSettings],
) -> Keeper<'c> {
    Keeper::new(
        catalog,
        stores.clone(),
        Arc::clone(clock),
        queues,
        CatalogOwner::default(),
    )
}

async fn jobs(account: &Account, queue: &QueueName) -> (BTreeSet<String>, usize) {
    let messages = account.queues.peek(queue, 32).await.unwrap();
    let id = |text: &MessageText| {
        let MessageText::Readable(text) = text else {
            panic!("an unreadable job")
        };
        let job: serde_json::Value =
            serde_json::from_str(&body::decode(text).unwrap().text).unwrap();
        job["id"].as_str().unwrap().to_owned()
    };
    (
        messages.iter().map(|message| id(&message.text)).collect(),
        messages.len(),
    )
}

/// Three writes are broken in turn: the claim, the message, and the record that the message was sent.
#[tokio::test(start_paused = true)]
async fn a_job_is_sent_with_one_id_even_if_its_worker_stops_or_gets_no_answer() {
    for ends in [
        None,
        Some(FaultDecision::LoseAnswer),
        Some(FaultDecision::Fail(ErrorClass::Ambiguous)),
    ] {
        for at in 1..=3 {
            let story = format!("write {at} ends as {ends:?}");
            let hands = Arc::new(ManualClock::at("2026-11-20T12:00:00Z"));
            let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&hands);
            let faults = Arc::new(BrokenWrite {
                left: AtomicU64::new(u64::MAX),
                ends,
            });
            let policy: Arc<dyn FaultPolicy> = Arc::<BrokenWrite>::clone(&faults);
            let account = SimWorld::new(AccountName::main(), Arc::clone(&clock), policy).account();
            let queue = QueueName::new("jobs").unwrap();
            account.queues.create_queue(&queue).await.unwrap();
            account
                .tables
                .create_table(&TableName::new(MIGRATIONS).unwrap())
                .await
                .unwrap();
            let stores = Stores::new([(AccountName::main(), account.clone())].into());
            let catalog = Catalog {
                rules: [(rule().name, Arc::new(rule()))].into(),
                ..Catalog::default()
            };
            let queues = [QueueSettings::plain(queue.clone())];
            let keeper = keeper(&catalog, &stores, &clock, &queues);

            faults.left.store(at, Ordering::SeqCst);
            drop(tokio::time::timeout(Duration::from_secs(1), keeper.send_due_rules()).await);
            hands.put_on(CLAIM);
            keeper.send_due_rules().await.unwrap();
            let (ids, sent) = jobs(&account, &queue).await;
            assert!(
                ids.len() == 1 && sent <= 2,
                "{story}: {sent} messages of {ids:?}"
            );
            hands.put_on(SignedDuration::from_hours(1));
            keeper.send_due_rules().await.unwrap();
            assert_eq!(
                jobs(&account, &queue).await,
                (ids, sent),
                "{story}: no job before the next day"
            );
            hands.put_on(SignedDuration::from_hours(24));
            keeper.send_due_rules().await.unwrap();
            assert_eq!(
                jobs(&account, &queue).await.0.len(),
                2,
                "{story}: another job a day later"
            );
        }
    }
}

/// Many workers check at once, as after a deployment.
#[tokio::test(start_paused = true)]
async fn one_of_many_workers_sends_a_rule_each_time_it_is_due() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let account = SimWorld::new(
        AccountName::main(),
        Arc::clone(&clock),
        Arc::new(SlowRequests(SeededRng::new(3))),
    )
    .account();
    let queue = QueueName::new("jobs").unwrap();
    account.queues.create_queue(&queue).await.unwrap();
    let stores = Stores::new([(AccountName::main(), account.clone())].into());
    let rule = rule();
    let mut catalog = Catalog::default();
    catalog
        .rules
        .insert(rule.name.clone(), Arc::new(rule.clone()));
    let queues = [QueueSettings::plain(queue.clone())];
    let tend = async || {
        let keepers: Vec<_> = (0..8)
            .map(|_| keeper(&catalog, &stores, &clock, &queues))
            .collect();
        let ended = futures::future::join_all(keepers.iter().map(Keeper::send_due_rules)).await;
        assert!(ended.iter().all(Result::is_ok), "{ended:?}");
        account.queues.approximate_count(&queue).await.unwrap()
    };
    assert_eq!(tend().await, 1);
    assert_eq!(tend().await, 1, "no second job on the same day");
    assert!(
        keeper(&catalog, &stores, &clock, &queues)
            .send_rule(&rule, TurnTime::Now)
            .await
            .unwrap()
            .is_some()
    );
    let allowed = JobAllowance {
        ops: Some(["sync".to_owned()].into()),
        ..JobAllowance::default()
    };
    let none = [QueueSettings {
        allowed,
        ..QueueSettings::plain(queue.clone())
    }];
    let refused = keeper(&catalog, &stores, &clock, &none)
        .send_rule(&rule, TurnTime::Now)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("[rules.old]") && refused.to_string().contains("delete_where"),
        "{refused}"
    );
}

/// Two applications share an account.
#[tokio::test]
async fn applications_send_their_own_rules() {
    let hands = Arc::new(ManualClock::at("2026-11-20T12:00:00Z"));
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&hands);
    let account =
        SimWorld::new(AccountName::main(), Arc::clone(&clock), Arc::new(NoFaults)).account();
    let queue = QueueName::new("jobs").unwrap();
    account.queues.create_queue(&queue).await.unwrap();
    let stores = Stores::new([(AccountName::main(), account.clone())].into());
    let catalog = Catalog {
        rules: [(rule().name, Arc::new(rule()))].into(),
        ..Catalog::default()
    };
    let queues = [QueueSettings::plain(queue.clone())];
    let owners = [
        CatalogOwner::default(),
        CatalogOwner::new("payroll").unwrap(),
    ];
    let keepers = owners
        .map(|owner| Keeper::new(&catalog, stores.clone(), Arc::clone(&clock), &queues, owner));
    for day in 1..=3 {
        for keeper in keepers.iter().chain(&keepers) {
            keeper.send_due_rules().await.unwrap();
        }
        assert_eq!(
            account.queues.approximate_count(&queue).await.unwrap(),
            2 * day,
            "one job of each application per day"
        );
        hands.put_on(SignedDuration::from_hours(24));
    }
    assert_eq!(
        row_keys(&account, "rule").await,
        ["default~old", "payroll~old"]
    );
}

async fn row_keys(account: &Account, kind: &str) -> Vec<String> {
    let query = Query {
        filter: Some(Filter::partition(&Key::new(kind).unwrap())),
        ..Query::default()
    };
    let rows = all_rows(
        account.tables.as_ref(),
        &TableName::new(MIGRATIONS).unwrap(),
        query,
    )
    .await
    .unwrap();
    rows.iter()
        .map(|row| row.entity.key.rk.as_str().to_owned())
        .collect()
}

/// A simulated account with dated tables, and three workers that check them every hour.
struct HourlyWorkers {
    hands: Arc<ManualClock>,
    account: Account,
    queue: QueueName,
    catalog: Catalog,
}

impl HourlyWorkers {
    async fn with(tables: &[&str]) -> Self {
        Self::under(Arc::new(NoFaults), tables).await
    }

    async fn under(policy: Arc<dyn FaultPolicy>, tables: &[&str]) -> Self {
        let hands = Arc::new(ManualClock::at("2026-11-20T12:00:00Z"));
        let account = SimWorld::new(
            AccountName::main(),
            Arc::<ManualClock>::clone(&hands),
            policy,
        )
        .account();
        let (queue, name) = (
            QueueName::new("jobs").unwrap(),
            ViewName::new("logins").unwrap(),
        );
        account.queues.create_queue(&queue).await.unwrap();
        for table in tables {
            account
                .tables
                .create_table(&TableName::new(*table).unwrap())
                .await
                .unwrap();
        }
        let retention = Retention {
            name: name.clone(),
            account: AccountName::main(),
            tables: DatedTables::parse("Logins%Y%m%d").unwrap(),
            keep: Duration::from_hours(24 * 30),
            ahead: 1,
            archive_to: None,
        };
        let catalog = Catalog {
            retentions: [(name, Arc::new(retention))].into(),
            ..Catalog::default()
        };
        Self {
            hands,
            account,
            queue,
            catalog,
        }
    }

    /// Lets the workers check every hour, and returns the total number of queued drops after each hour.
    async fn pass(&self, hours: u64, time: TurnTime) -> Vec<u64> {
        let mut queued = Vec::new();
        for _ in 0..hours {
            for _ in 0..3 {
                self.look(CatalogOwner::default(), time).await.unwrap();
            }
            queued.push(self.queued().await);
            self.hands.put_on(SignedDuration::from_hours(1));
        }
        queued
    }

    async fn look(&self, owner: CatalogOwner, time: TurnTime) -> Result<(), KeeperError> {
        let stores = Stores::new([(AccountName::main(), self.account.clone())].into());
        let queues = [QueueSettings::plain(self.queue.clone())];
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.hands);
        Keeper::new(&self.catalog, stores, clock, &queues, owner)
            .tend(time)
            .await
    }

    async fn queued(&self) -> u64 {
        self.account
            .queues
            .approximate_count(&self.queue)
            .await
            .unwrap()
    }

    async fn create(&self, table: &str) {
        self.account
            .tables
            .create_table(&TableName::new(table).unwrap())
            .await
            .unwrap();
    }

    async fn delete(&self, table: &str) {
        self.account
            .tables
            .delete_table(&TableName::new(table).unwrap())
            .await
            .unwrap();
    }
}

/// No worker runs the queued jobs, so the table stays, as if every drop failed.
#[tokio::test]
async fn the_drop_of_a_remaining_table_is_queued_again_at_growing_intervals() {
    let world = HourlyWorkers::with(&["Logins20200101"]).await;
    let queued = world.pass(7 * 24, TurnTime::Due).await;
    let mut before = 0;
    let mut hours = Vec::new();
    for (hour, count) in queued.into_iter().enumerate() {
        assert!(count - before <= 1, "{count} in hour {hour}");
        if count > before {
            hours.push(hour);
        }
        before = count;
    }
    assert_eq!(
        hours,
        [0, 1, 3, 6, 12, 24, 48, 72, 96, 120, 144],
        "the hours in which a drop was queued"
    );
    assert_eq!(
        world.pass(1, TurnTime::Now).await,
        [14],
        "`TurnTime::Now` queues a drop at each check"
    );
}

#[tokio::test]
async fn a_recreated_table_is_dropped_at_once() {
    let world = HourlyWorkers::with(&["Logins20200101", "Logins20200102"]).await;
    assert_eq!(world.pass(5, TurnTime::Due).await, [2, 4, 4, 6, 6]);
    assert_eq!(
        row_keys(&world.account, "drop").await,
        ["default~Logins20200101", "default~Logins20200102"]
    );
    world.delete("Logins20200101").await;
    assert_eq!(world.pass(1, TurnTime::Due).await, [6]);
    assert_eq!(
        row_keys(&world.account, "drop").await,
        ["default~Logins20200102"],
        "the row of the deleted table is deleted"
    );
    world.create("Logins20200101").await;
    assert_eq!(world.pass(1, TurnTime::Due).await, [8]);
}

#[tokio::test]
async fn drop_rows_of_another_application_are_left_alone() {
    let world = HourlyWorkers::with(&["Logins20200101", "Logins20200102"]).await;
    let payroll = CatalogOwner::new("payroll").unwrap();
    assert_eq!(world.pass(1, TurnTime::Due).await, [2]);
    world.look(payroll.clone(), TurnTime::Due).await.unwrap();
    assert_eq!(world.queued().await, 4, "one drop per table and owner");
    world.delete("Logins20200101").await;
    world.look(payroll, TurnTime::Due).await.unwrap();
    assert_eq!(
        row_keys(&world.account, "drop").await,
        [
            "default~Logins20200101",
            "default~Logins20200102",
            "payroll~Logins20200102"
        ]
    );
    assert_eq!(world.pass(1, TurnTime::Due).await, [5]);
    assert_eq!(
        row_keys(&world.account, "drop").await,
        ["default~Logins20200102", "payroll~Logins20200102"]
    );
}

#[tokio::test]
async fn the_row_of_the_last_expired_table_is_deleted() {
    let world = HourlyWorkers::with(&["Logins20200101"]).await;
    world.pass(5, TurnTime::Due).await;
    world.delete("Logins20200101").await;
    assert_eq!(world.pass(1, TurnTime::Due).await, [3]);
    assert_eq!(row_keys(&world.account, "drop").await, Vec::<String>::new());
    world.create("Logins20200101").await;
    assert_eq!(world.pass(1, TurnTime::Due).await, [4]);
}

#[tokio::test]
async fn a_failed_drop_does_not_stop_others_or_the_deletion_of_old_rows() {
    let unwritable = UnwritableRows(&["default~Logins20200101", "default~Logins20200102"]);
    let tables = [
        "Logins20200101",
        "Logins20200102",
        "Logins20200103",
        "Logins20200104",
    ];
    let world = HourlyWorkers::under(Arc::new(unwritable), &tables).await;
    let refused = world
        .look(CatalogOwner::default(), TurnTime::Due)
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("the drop of Logins20200101"),
        "expected the first failure: {refused}"
    );
    assert_eq!(world.queued().await, 2);
    world.delete("Logins20200103").await;
    world
        .look(CatalogOwner::default(), TurnTime::Due)
        .await
        .unwrap_err();
    assert_eq!(
        row_keys(&world.account, "drop").await,
        ["default~Logins20200104"]
    );
}
