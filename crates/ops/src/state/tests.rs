//! Tests of the operations state as a whole.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::NotReady;
use evenkeel_account::{NoFaults, SimWorld};
use evenkeel_engine::{Action, ItemChange};
use evenkeel_layers::circuit::Circuits;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::Primary;
use evenkeel_model::settings::QueueSettings;
use evenkeel_model::{AccountName, EntityKey, QueueName, TableName, ViewName};
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Clock, Stores, Ttl};
use evenkeel_telemetry::job_trace::{Billed, JobTrace};
use evenkeel_worker::{
    Backlog, DeliveryReport, DeliveryStatus, KeyOutcomes, Observer as _, QueueKind, QueueStatus,
    ReceiverState,
};

pub(crate) fn delivered(message_id: &str, ending: DeliveryStatus) -> DeliveryReport {
    DeliveryReport {
        at: Timestamp::UNIX_EPOCH,
        queue: QueueName::new("jobs").unwrap(),
        op: "sync",
        primary: Some(Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("Sales", "7").unwrap(),
        }),
        jobs: 1,
        keys: KeyOutcomes::default(),
        ending,
        outcome: ending.name(),
        deliveries: 1,
        took: Duration::from_millis(20),
        lag: Some(Duration::from_millis(100)),
        changes: vec![change(Action::Create)],
        changed: 1,
        trace: JobTrace::default(),
        step: None,
        error: None,
        views: Vec::new(),
        walked: None,
        message_id: message_id.to_owned(),
        id: None,
        traceparent: None,
    }
}

pub(crate) fn status(queue: &str, messages: Option<u64>) -> QueueStatus {
    QueueStatus {
        queue: QueueName::new(queue)
            .unwrap_or_else(|_| QueueName::new(format!("{queue}-queue")).unwrap()),
        kind: QueueKind::Jobs,
        state: ReceiverState::Receiving,
        in_flight: 1,
        concurrency: 64,
        last_poll: None,
        last_error: None,
        backlog: messages.map(|messages| Backlog {
            at: Timestamp::UNIX_EPOCH,
            messages,
            oldest_age_seconds: Some(9),
        }),
        renewals: 0,
        failed_renewals: 0,
    }
}

fn change(action: Action) -> ItemChange {
    ItemChange {
        view: ViewName::new("by_email").unwrap(),
        account: AccountName::main(),
        action,
    }
}

struct NoStorage;

impl StorageMeter for NoStorage {
    fn accounts(&self) -> Vec<AccountName> {
        Vec::new()
    }
    fn tallies(&self) -> Vec<ServiceTally> {
        Vec::new()
    }
    fn busiest(&self) -> Vec<PartitionLoad> {
        Vec::new()
    }
    fn limited_scopes(&self) -> Vec<LimitedScope> {
        Vec::new()
    }
    fn account_rate_limits(&self) -> Vec<(AccountName, f64)> {
        Vec::new()
    }
    fn billed(&self) -> Billed {
        Billed::default()
    }
}

fn ops_state(clock: Arc<dyn Clock>) -> OpsState {
    let queue = QueueSettings::plain(QueueName::new("jobs").unwrap());
    OpsState::new(OpsStateParts {
        worker: "host-7".to_owned(),
        clock,
        catalog: Arc::new(Catalog::default()),
        queues: vec![queue],
        readiness: Arc::new(Vec::<NotReady>::new),
        health: Arc::new(Circuits::default()),
        meter: Arc::new(NoStorage),
    })
}

#[test]
fn without_a_worker_the_state_is_starting_and_has_no_queues() {
    let ops_state = ops_state(Arc::new(SystemClock::new()));
    assert_eq!(ops_state.headline().state, HealthState::Starting);
    assert!(
        ops_state.queues().is_empty()
            && ops_state.engine().is_none()
            && ops_state.poisoned().is_none()
    );
}

#[test]
fn reported_jobs_are_found_again() {
    let ops_state = ops_state(Arc::new(SystemClock::new()));
    ops_state.ended(delivered("m1", DeliveryStatus::Done));
    ops_state.changed(&[change(Action::Create), change(Action::Delete)]);
    assert_eq!(
        ops_state.jobs(&JobFilter::default(), 10, 10)[0].message_id,
        "m1"
    );
    assert!(
        ops_state.views(None, 10).is_empty(),
        "only declared views are shown"
    );
}

#[test]
fn messages_poisoned_here_are_counted_at_once() {
    let ops_state = ops_state(Arc::new(SystemClock::new()));
    ops_state.ended(delivered("m1", DeliveryStatus::Poisoned));
    for queue in ["jobs-07", "jobs-recheck", "jobs-of-others"] {
        ops_state.ended(DeliveryReport {
            queue: QueueName::new(queue).unwrap(),
            ..delivered("m2", DeliveryStatus::Poisoned)
        });
    }
    assert_eq!(ops_state.headline().text, "3 poisoned messages");
}

#[tokio::test(start_paused = true)]
async fn poison_is_counted_and_a_missing_queue_counts_as_empty() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let account =
        SimWorld::new(AccountName::main(), Arc::clone(&clock), Arc::new(NoFaults)).account();
    let stores = Stores::new(BTreeMap::from([(AccountName::main(), account.clone())]));
    let ops_state = ops_state(clock);
    let (queue, poison) = (
        ops_state.job_queues()[0].clone(),
        QueueName::new("jobs-poison").unwrap(),
    );
    measuring::count(&ops_state, &stores, &queue).await;
    assert_eq!(ops_state.poisoned(), Some(0));
    account.queues.create_queue(&poison).await.unwrap();
    account
        .queues
        .put(&poison, "x", Duration::ZERO, Ttl::Never)
        .await
        .unwrap();
    measuring::count(&ops_state, &stores, &queue).await;
    assert_eq!(
        (ops_state.poisoned(), ops_state.poisoned_of(&queue.name)),
        (Some(1), Some(1))
    );
    assert_eq!(ops_state.headline().text, "1 poisoned message");
}

#[test]
fn acknowledged_poison_is_the_headline_again_after_one_more_message() {
    let ops_state = ops_state(Arc::new(SystemClock::new()));
    ops_state.ended(delivered("m1", DeliveryStatus::Poisoned));
    let seen = ops_state.headline().acknowledge.unwrap();
    ops_state.ended(delivered("m2", DeliveryStatus::Poisoned));
    assert!(
        !ops_state.acknowledge(&seen),
        "another message was poisoned after the headline was read"
    );
    assert!(!ops_state.acknowledge("poison:7") && !ops_state.acknowledge(""));
    assert!(ops_state.acknowledge(&ops_state.headline().acknowledge.unwrap()));
    assert_eq!(
        ops_state.headline().state,
        HealthState::Starting,
        "nothing is measured in this test"
    );
    assert_eq!(
        (
            ops_state.headline().notes[0].text.as_str(),
            ops_state.poisoned()
        ),
        ("2 poisoned messages, acknowledged", Some(2))
    );
    ops_state.ended(delivered("m3", DeliveryStatus::Poisoned));
    assert_eq!(
        ops_state.headline().text,
        "1 new poisoned message, 3 in all"
    );
}

#[test]
fn drift_of_an_undeclared_view_is_ignored() {
    let ops_state = ops_state(Arc::new(SystemClock::new()));
    let record = evenkeel_engine::AuditRecord {
        view: ViewName::new("by_email").unwrap(),
        drift: 1,
        completed: Timestamp::UNIX_EPOCH,
    };
    ops_state.audited(&[record]);
    assert_eq!(
        ops_state.headline().text,
        "Starting: the queues are being measured"
    );
}
