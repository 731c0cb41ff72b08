//! Helpers to migrate a simulated account, for tests of this crate and of the commands.

#![expect(
    clippy::unwrap_used,
    reason = "a test double: a failure here fails the test"
)]

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Consent, Migrator, PlannedChange};
use evenkeel_account::{FaultPolicy, SimWorld};
use evenkeel_model::catalog::{Catalog, OnConflict, SecondaryIndex, TableRef, View, ViewKind};
use evenkeel_model::settings::{QueueSettings, Settings};
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, QueueName, TableName, ViewName};
use evenkeel_storage::{Clock, Stores};

/// A clock that always shows noon of the same day.
#[derive(Debug)]
pub struct Noon;

impl Clock for Noon {
    fn now(&self) -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
}

pub fn table(name: &str) -> TableRef {
    TableRef {
        account: AccountName::main(),
        table: TableName::new(name).unwrap(),
    }
}

/// A catalog with secondary indexes of Employees, given by name and row key.
pub fn catalog(row_keys: &[(&str, &str)]) -> Arc<Catalog> {
    let mut catalog = Catalog::default();
    for (name, row_key) in row_keys {
        let (name, target) = (ViewName::new(*name).unwrap(), table(&format!("By{name}")));
        let kind = ViewKind::SecondaryIndex(SecondaryIndex {
            target: target.clone().into(),
            partition_key: Template::parse("p").unwrap(),
            row_key: Template::parse(row_key).unwrap(),
            select: None,
        });
        let view = View {
            name: name.clone(),
            source: table("Employees"),
            when: None,
            kind,
            on_conflict: OnConflict::Reject,
        };
        for table in [table("Employees"), target] {
            catalog.tables.insert(table.table.clone(), table);
        }
        catalog.views.insert(name, Arc::new(view));
    }
    Arc::new(catalog)
}

/// A migrator with one queue of two shards.
pub fn migrator(world: &SimWorld, catalog: &Arc<Catalog>) -> Migrator {
    let queue = QueueSettings {
        shards: 2,
        ..QueueSettings::plain(QueueName::new("jobs").unwrap())
    };
    let stores = Stores::new([(AccountName::main(), world.account())].into());
    Migrator::new(
        stores,
        &Settings {
            queues: vec![queue],
            ..Settings::default()
        },
        Arc::clone(catalog),
        Arc::new(Noon),
    )
    .unwrap()
}

pub fn world(faults: Arc<dyn FaultPolicy>) -> SimWorld {
    SimWorld::new(AccountName::main(), Arc::new(Noon), faults)
}

/// Migrates with every consent; returns the changes.
pub async fn up(migrator: &Migrator) -> Vec<PlannedChange> {
    let mut done = Vec::new();
    migrator
        .up(Consent::Replacement, |change| done.push(change.clone()))
        .await
        .unwrap();
    done
}
