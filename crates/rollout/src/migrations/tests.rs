use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;

use super::testing::{catalog, migrator, table, up, world};
use super::{Consent, PlannedChange, ViewAction, rows};
use evenkeel_account::{FaultDecision, FaultPolicy, NoFaults, OperationInfo};
use evenkeel_model::catalog::{
    Archive, ArchiveTarget, Catalog, DatedRef, OnConflict, Retention, Rule, SecondaryIndex, Source,
    View, ViewKind,
};
use evenkeel_model::condition::TimedCondition;
use evenkeel_model::dated::DatedTables;
use evenkeel_model::sweep::{Sweep, SweepAction};
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, Entity, EntityKey, TableName, ViewName};
use evenkeel_storage::{ErrorClass, IfMatch, TableOperation};

#[tokio::test(start_paused = true)]
async fn the_first_migration_creates_all_and_the_second_finds_nothing_to_do() {
    let world = world(Arc::new(NoFaults));
    let migrator = migrator(&world, &catalog(&[("name", "{Name}")]));
    let pending = migrator.status().await.unwrap().pending;
    assert_eq!(up(&migrator).await, pending);
    let texts: Vec<String> = pending.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "create table EvenkeelMigrations (account main)",
            "apply 0001 control_tables: footprints: which derived items each primary owns; audits: what the last comparison of each table found (account main)",
            "create table Byname (account main)",
            "create table Employees (account main)",
            "create queue jobs-00 (account main)",
            "create queue jobs-01 (account main)",
            "create queue jobs-poison (account main)",
            "create queue jobs-recheck (account main)",
            "record view name of Employees, generation 1",
        ]
    );
    assert_eq!(up(&migrator).await, []);
    let status = migrator.status().await.unwrap();
    assert_eq!(
        (status.generation, status.applied.len(), status.pending),
        (1, 1, vec![])
    );
    assert!(
        world
            .account()
            .tables
            .create_table(&TableName::new("EvenkeelFootprints").unwrap())
            .await
            .is_ok_and(|created| !created)
    );
}

#[tokio::test(start_paused = true)]
async fn a_control_table_that_was_deleted_is_created_again() {
    let world = world(Arc::new(NoFaults));
    let migrator = migrator(&world, &catalog(&[("name", "{Name}")]));
    up(&migrator).await;
    let footprints = TableName::new("EvenkeelFootprints").unwrap();
    world
        .account()
        .tables
        .delete_table(&footprints)
        .await
        .unwrap();
    let done = up(&migrator).await;
    assert!(
        matches!(done.as_slice(), [PlannedChange::Apply { .. }]),
        "{done:?}"
    );
    assert!(
        world
            .account()
            .tables
            .create_table(&footprints)
            .await
            .is_ok_and(|created| !created)
    );
    assert_eq!(up(&migrator).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_changed_catalog_raises_its_number_once_and_each_view_by_its_own() {
    let world = world(Arc::new(NoFaults));
    up(&migrator(
        &world,
        &catalog(&[("name", "{Name}"), ("mail", "{Email}")]),
    ))
    .await;
    let changed = catalog(&[("name", "{Name|lower}")]);
    let done = up(&migrator(&world, &changed)).await;
    let actions: Vec<_> = done
        .iter()
        .filter_map(|change| match change {
            PlannedChange::RecordView(view) => {
                Some((view.view.as_str(), view.generation, view.action))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        actions,
        [
            ("name", 2, ViewAction::Changed),
            ("mail", 1, ViewAction::Retired)
        ]
    );
    let record = migrator(&world, &changed).catalog_record().await.unwrap();
    assert_eq!(record.generation, 2);
    let generations = record.generations(&changed);
    assert_eq!(generations.of(&ViewName::new("name").unwrap()), 2);
    assert_eq!(
        generations.retired.get(&ViewName::new("mail").unwrap()),
        Some(&(1, Source::Table(table("Employees"))))
    );
}

#[tokio::test(start_paused = true)]
async fn retiring_or_replacing_a_view_needs_consent() {
    let world = world(Arc::new(NoFaults));
    up(&migrator(
        &world,
        &catalog(&[("name", "{Name}"), ("mail", "{Email}")]),
    ))
    .await;
    for stale in [
        catalog(&[("name", "{Name}")]),
        catalog(&[
            ("name", "{Name|lower}"),
            ("mail", "{Email}"),
            ("phone", "{Phone}"),
        ]),
    ] {
        let stale = migrator(&world, &stale);
        for consent in [Consent::Additions, Consent::Recovery] {
            let refused = stale
                .up(consent, |change| panic!("{change} was done"))
                .await
                .unwrap_err();
            assert!(
                matches!(&refused, super::MigrationError::NeedsConsent(changes) if changes.len() == 1),
                "{refused}"
            );
        }
        assert!(
            !stale
                .is_recorded(&stale.catalog_record().await.unwrap())
                .unwrap()
        );
    }
    let mut done = 0;
    let grown = migrator(
        &world,
        &catalog(&[
            ("name", "{Name}"),
            ("mail", "{Email}"),
            ("phone", "{Phone}"),
        ]),
    );
    grown.up(Consent::Additions, |_| done += 1).await.unwrap();
    assert_eq!(done, 2, "a table and its view");
    assert!(
        grown
            .is_recorded(&grown.catalog_record().await.unwrap())
            .unwrap()
    );
}

#[tokio::test(start_paused = true)]
async fn added_archives_and_tables_stay_recorded_under_an_older_catalog() {
    let world = world(Arc::new(NoFaults));
    let older = catalog(&[("name", "{Name}")]);
    up(&migrator(&world, &older)).await;
    let mut grown = dated_catalog(&["Logins%Y%m%d"], &[]);
    (grown.tables, grown.views) = (older.tables.clone(), older.views.clone());
    let (name, former) = (ViewName::new("former").unwrap(), table("FormerEmployees"));
    let archive = Archive {
        name: name.clone(),
        source: table("Employees"),
        target: ArchiveTarget::Table(former.clone()),
    };
    grown.tables.insert(former.table.clone(), former);
    grown.archives.insert(name, Arc::new(archive));
    let grown = Arc::new(grown);
    let texts: Vec<String> = up(&migrator(&world, &grown))
        .await
        .iter()
        .map(ToString::to_string)
        .collect();
    let names = "record names: archive former, table FormerEmployees, table Logins%Y%m%d";
    assert_eq!(
        texts,
        ["create table FormerEmployees (account main)", names]
    );
    let older = migrator(&world, &older);
    assert_eq!(older.pending(Consent::Additions).await.unwrap(), []);
    let record = older.catalog_record().await.unwrap();
    assert_eq!(
        (record.generation, record.names.is_superset(&grown.names())),
        (2, true),
        "the number rises, so other workers read the record: {:?}",
        record.names
    );
    assert!(
        older.is_recorded(&record).unwrap(),
        "the record still fits the older catalog"
    );
    // An operator now records the removal. Jobs may still contain the names.
    let texts: Vec<String> = up(&older).await.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        ["record archive former as removed, retention logins as removed"]
    );
    assert_eq!(older.catalog_record().await.unwrap().names, record.names);
}

/// A catalog with a rule of this condition, or without a rule if there is no condition.
fn ruled(when: Option<&str>) -> Arc<Catalog> {
    let mut catalog = Catalog::clone(&catalog(&[("name", "{Name}")]));
    if let Some(when) = when {
        let action = SweepAction::Delete(TableName::new("Employees").unwrap());
        let sweep = Sweep::new(
            action,
            None,
            Some(TimedCondition::parse(when).unwrap()),
            false,
            500,
        )
        .unwrap();
        let rule = Rule {
            name: ViewName::new("gone").unwrap(),
            sweep,
            every: Duration::from_hours(24),
        };
        catalog.rules.insert(rule.name.clone(), Arc::new(rule));
    }
    Arc::new(catalog)
}

#[tokio::test(start_paused = true)]
async fn an_operator_records_rules_and_a_catalog_with_other_rules_is_refused() {
    let world = world(Arc::new(NoFaults));
    let of = |when: Option<&str>| migrator(&world, &ruled(when));
    let refused = async |when: Option<&str>| match of(when).refuse_other_declarations().await {
        Ok(()) => String::new(),
        Err(error) => error.to_string(),
    };
    up(&of(None)).await;
    // The row of the declarations is deleted, or edited by hand.
    let key = EntityKey::new("catalog", "declared~default").unwrap();
    let bare =
        TableOperation::InsertOrReplace(Entity::new(key.clone()).with("Note", "edited by hand"));
    for without in [bare, TableOperation::Delete(key, IfMatch::Any)] {
        world
            .account()
            .tables
            .apply(&rows::table().unwrap(), &without)
            .await
            .unwrap();
        assert_eq!(
            refused(Some("Left < now - 30d")).await,
            "",
            "without recorded declarations, nothing is refused: {without:?}"
        );
        assert!(of(None).catalog_record().await.is_ok(), "{without:?}");
    }

    let texts: Vec<String> = up(&of(Some("Left < now - 90d")))
        .await
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(texts, ["record rule gone"]);
    assert_eq!(up(&of(Some("Left < now - 90d"))).await, []);
    assert_eq!(refused(Some("Left < now - 90d")).await, "");
    for (old, problem) in [
        (Some("Left < now - 30d"), "differs from its record"),
        (None, "recorded, but not configured"),
    ] {
        let refused = refused(old).await;
        assert!(
            refused.contains("rule gone ")
                && refused.contains(problem)
                && refused.contains("`evenkeel migrate up`"),
            "{refused}"
        );
    }
    // Workers with either catalog keep running, and restore nothing in the record.
    let other = of(Some("Left < now - 30d"));
    assert!(
        other
            .is_recorded(&other.catalog_record().await.unwrap())
            .unwrap()
    );
    assert_eq!(other.pending(Consent::Additions).await.unwrap(), []);

    let texts: Vec<String> = up(&of(None))
        .await
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(texts, ["record rule gone as removed"]);
    assert_eq!(refused(None).await, "");
    assert!(
        refused(Some("Left < now - 90d"))
            .await
            .contains("rule gone is configured, but recorded as removed")
    );
}

#[tokio::test(start_paused = true)]
async fn a_record_of_another_version_is_refused() {
    let world = world(Arc::new(NoFaults));
    let ours = migrator(&world, &catalog(&[("name", "{Name}")]));
    up(&ours).await;
    let row = Entity::new(rows::generation_key().unwrap()).with("Version", 2);
    world
        .account()
        .tables
        .apply(&rows::table().unwrap(), &TableOperation::InsertOrMerge(row))
        .await
        .unwrap();
    let refused = ours.catalog_record().await.unwrap_err().to_string();
    assert!(
        refused.contains("has format version 2, but this program reads version 1"),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_record_continues_beyond_reported_generations_and_workers_keep_running() {
    let world = world(Arc::new(NoFaults));
    let ours = migrator(&world, &catalog(&[("name", "{Name}")]));
    up(&ours).await;
    let name = ViewName::new("name").unwrap();
    assert!(ours.record_later_generation(&name, 3).await.unwrap());
    assert!(
        !ours.record_later_generation(&name, 2).await.unwrap(),
        "a later generation is recorded already"
    );
    assert_eq!(
        ours.pending(Consent::Additions).await.unwrap(),
        [],
        "a worker does not raise generations by itself"
    );
    ours.up(Consent::Recovery, |_| {}).await.unwrap();
    let record = ours.catalog_record().await.unwrap();
    assert_eq!((record.generation, record.views[&name].generation), (2, 4));
    assert!(!ours.record_later_generation(&name, 3).await.unwrap());
    assert_eq!(up(&ours).await, []);
}

#[tokio::test(start_paused = true)]
async fn only_the_first_catalog_of_an_account_has_no_older_workers() {
    let world = world(Arc::new(NoFaults));
    let ours = migrator(&world, &catalog(&[("name", "{Name}")]));
    up(&ours).await;
    assert_eq!(
        ours.time_until_older_workers_end().await.unwrap(),
        Duration::ZERO
    );
    let grown = migrator(&world, &catalog(&[("name", "{Name}"), ("mail", "{Email}")]));
    up(&grown).await;
    // The simulated service's clock advances only a little with each write.
    let just_recorded =
        super::LEASE_DURATION.saturating_sub(Duration::from_millis(1))..=super::LEASE_DURATION;
    assert!(just_recorded.contains(&grown.time_until_older_workers_end().await.unwrap()));

    let bare = self::world(Arc::new(NoFaults));
    up(&migrator(&bare, &catalog(&[]))).await;
    let late = migrator(&bare, &catalog(&[("name", "{Name}")]));
    up(&late).await;
    assert!(
        just_recorded.contains(&late.time_until_older_workers_end().await.unwrap()),
        "workers without views may have used the account before"
    );
}

#[tokio::test(start_paused = true)]
async fn a_first_catalog_that_takes_several_transactions_has_no_older_workers_either() {
    let world = world(Arc::new(NoFaults));
    let names: Vec<String> = (0..150).map(|number| format!("view{number}")).collect();
    let views: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "{Name}")).collect();
    let ours = migrator(&world, &catalog(&views));
    up(&ours).await;
    let record = ours.catalog_record().await.unwrap();
    assert!(
        record.generation > 1 && record.first,
        "generation {}",
        record.generation
    );
    assert_eq!(
        ours.time_until_older_workers_end().await.unwrap(),
        Duration::ZERO
    );
}

/// Pauses one migration before its n-th operation, while another migration runs from beginning to
/// end.
struct Between {
    at: u64,
    reached: Notify,
    go_on: Notify,
    passed: AtomicBool,
}

#[async_trait]
impl FaultPolicy for Between {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        if operation.number == self.at && !self.passed.swap(true, Ordering::SeqCst) {
            self.reached.notify_one();
            self.go_on.notified().await;
        }
        FaultDecision::Execute
    }
}

/// Runs one migration, and a second one before the n-th operation of the first. Returns `None` if
/// the first has fewer operations.
async fn interleave(
    at: u64,
    one: &Arc<Catalog>,
    other: &Arc<Catalog>,
) -> Option<super::CatalogRecord> {
    let faults = Arc::new(Between {
        at,
        reached: Notify::new(),
        go_on: Notify::new(),
        passed: AtomicBool::new(false),
    });
    let world = world(Arc::<Between>::clone(&faults));
    let second = async {
        faults.reached.notified().await;
        up(&migrator(&world, other)).await;
        faults.go_on.notify_one();
    };
    let first = migrator(&world, one);
    tokio::select! {
        biased;
        ((), _) = async { tokio::join!(second, up(&first)) } => {}
        // The first migration ended before its n-th operation.
        () = tokio::time::sleep(Duration::from_secs(1)) => return None,
    }
    assert_eq!(first.status().await.unwrap().pending, []);
    Some(first.catalog_record().await.unwrap())
}

#[tokio::test(start_paused = true)]
async fn concurrent_migrations_run_one_after_the_other() {
    let (one, other) = (
        catalog(&[("name", "{Name}")]),
        catalog(&[("name", "{Name|lower}")]),
    );
    let mut at = 1;
    while let Some(record) = interleave(at, &one, &one).await {
        assert_eq!(record.generation, 1, "operation {at}");
        let record = interleave(at, &one, &other).await.unwrap();
        // The second migration recorded its catalog first. The first one found that record and
        // recorded its own catalog after it.
        assert_eq!(record.generation, 2, "operation {at}");
        assert_eq!(record.views[&ViewName::new("name").unwrap()].generation, 2);
        at += 1;
    }
    assert!(at > 15, "only {at} operations were interleaved");
}

/// Loses the answer to the next transaction.
struct LostAnswer {
    armed: AtomicBool,
}

#[async_trait]
impl FaultPolicy for LostAnswer {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        let is_lost = !operation.rows.is_empty() && self.armed.swap(false, Ordering::SeqCst);
        if is_lost {
            FaultDecision::LoseAnswer
        } else {
            FaultDecision::Execute
        }
    }
}

#[tokio::test(start_paused = true)]
async fn views_that_were_recorded_without_an_answer_are_reported() {
    let faults = Arc::new(LostAnswer {
        armed: AtomicBool::new(false),
    });
    let world = world(Arc::<LostAnswer>::clone(&faults));
    up(&migrator(
        &world,
        &catalog(&[("name", "{Name}"), ("mail", "{Email}")]),
    ))
    .await;
    faults.armed.store(true, Ordering::SeqCst);
    let changed = migrator(&world, &catalog(&[("name", "{Name|lower}")]));
    let done: Vec<String> = up(&changed).await.iter().map(ToString::to_string).collect();
    assert!(!faults.armed.load(Ordering::SeqCst), "an answer was lost");
    assert_eq!(
        done,
        [
            "record view name of Employees as changed, generation 2",
            "retire view mail of Employees, last generation 1"
        ],
        "each once"
    );
    assert_eq!(changed.catalog_record().await.unwrap().generation, 2);
}

#[tokio::test(start_paused = true)]
async fn views_that_another_catalog_recorded_differently_are_not_reported() {
    let world = world(Arc::new(NoFaults));
    up(&migrator(&world, &catalog(&[("name", "{Name}")]))).await;
    let record = migrator(&world, &catalog(&[]))
        .catalog_record()
        .await
        .unwrap();
    let of = |row_key: &str| {
        let changes = super::plan::view_changes(
            &record,
            &catalog(&[("name", row_key)]),
            &evenkeel_model::CatalogOwner::default(),
        );
        changes.unwrap().remove(0)
    };
    let (ours, theirs) = (of("{Name|lower}"), of("{Name|upper}"));
    up(&migrator(&world, &catalog(&[("name", "{Name|upper}")]))).await;
    let record = migrator(&world, &catalog(&[]))
        .catalog_record()
        .await
        .unwrap();
    assert_eq!(
        (record.has_change(&ours), record.has_change(&theirs)),
        (false, true)
    );
}

/// For a while, the service still deletes tables, queues and containers of the same names.
struct BeingDeleted {
    left: AtomicU32,
}

#[async_trait]
impl FaultPolicy for BeingDeleted {
    async fn before(&self, operation: &OperationInfo) -> FaultDecision {
        let creates = operation.name.starts_with("Create");
        if creates
            && self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok()
        {
            return FaultDecision::Fail(ErrorClass::Transient {
                retry_after: Some(Duration::from_secs(40)),
            });
        }
        FaultDecision::Execute
    }
}

#[tokio::test(start_paused = true)]
async fn a_migration_waits_for_a_name_that_is_still_being_deleted() {
    let faults = Arc::new(BeingDeleted {
        left: AtomicU32::new(3),
    });
    let world = world(Arc::<BeingDeleted>::clone(&faults));
    let migrator = migrator(&world, &catalog(&[("name", "{Name}")]));
    let began = tokio::time::Instant::now();
    let done = up(&migrator).await;
    assert_eq!(began.elapsed(), Duration::from_mins(2));
    assert_eq!(
        (done.len(), migrator.status().await.unwrap().pending),
        (9, vec![])
    );
}

fn by_date(target: &str) -> Arc<Catalog> {
    Arc::new(dated_catalog(
        &["Logins%Y%m%d"],
        &[("byuser", "Logins%Y%m%d", target)],
    ))
}

#[tokio::test(start_paused = true)]
async fn a_view_of_tables_by_date_is_recorded_by_pattern_and_gets_tables_for_existing_dates() {
    let world = world(Arc::new(NoFaults));
    for table in ["Logins20261119", "logins20261120", "LoginsOfOld20261120"] {
        world
            .account()
            .tables
            .create_table(&TableName::new(table).unwrap())
            .await
            .unwrap();
    }
    let texts = |done: &[PlannedChange]| -> Vec<String> {
        done.iter()
            .map(ToString::to_string)
            .filter(|texts| texts.contains("20261") || texts.contains('%'))
            .collect()
    };
    let done = up(&migrator(&world, &by_date("ByUser%Y%m%d"))).await;
    assert_eq!(
        texts(&done),
        [
            "create table ByUser20261119 (account main)",
            "create table EvenkeelFootprintsLogins20261119 (account main)",
            "create table ByUser20261120 (account main)",
            "create table EvenkeelFootprintsLogins20261120 (account main)",
            "record view byuser of Logins%Y%m%d, generation 1",
        ]
    );
    // A table may be missing because it is being dropped, so only a changed view creates it again.
    world
        .account()
        .tables
        .delete_table(&TableName::new("ByUser20261119").unwrap())
        .await
        .unwrap();
    assert_eq!(up(&migrator(&world, &by_date("ByUser%Y%m%d"))).await, []);

    let moved = by_date("OfUser%Y%m%d");
    assert_eq!(
        texts(&up(&migrator(&world, &moved)).await),
        [
            "create table OfUser20261119 (account main)",
            "create table OfUser20261120 (account main)",
            "record view byuser of Logins%Y%m%d as changed, generation 2",
        ]
    );
    let gone = Arc::new(dated_catalog(&["Logins%Y%m%d"], &[]));
    assert_eq!(
        texts(&up(&migrator(&world, &gone)).await),
        ["retire view byuser of Logins%Y%m%d, last generation 2"]
    );
    let record = migrator(&world, &gone).catalog_record().await.unwrap();
    let mut catalog = Catalog::clone(&gone);
    catalog.generations = record.generations(&catalog);
    let retention = catalog.retentions.values().next().unwrap();
    let followers = catalog.followers(retention);
    assert_eq!(
        followers.former,
        ["ByUser%Y%m%d", "OfUser%Y%m%d"].map(dated).into(),
        "the tables of both definitions are dropped with the source tables"
    );
    assert_eq!(
        followers.footprints,
        Some(dated("EvenkeelFootprintsLogins%Y%m%d")),
        "the tables of footprints are dropped with the source tables"
    );
}

#[tokio::test(start_paused = true)]
async fn tables_by_date_keep_their_spelling_and_a_view_its_source() {
    let world = world(Arc::new(NoFaults));
    up(&migrator(&world, &by_date("ByUser%Y%m%d"))).await;
    let respelled = Arc::new(dated_catalog(
        &["LOGINS%Y%m%d"],
        &[("byuser", "LOGINS%Y%m%d", "ByUser%Y%m%d")],
    ));
    let error = migrator(&world, &respelled).status().await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("the table Logins%Y%m%d is now spelled LOGINS%Y%m%d"),
        "{error}"
    );
    let error = migrator(&world, &catalog(&[("byuser", "{Email}")]))
        .status()
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("had the source Logins%Y%m%d and now has Employees"),
        "{error}"
    );
}

fn dated(pattern: &str) -> DatedRef {
    DatedRef {
        account: AccountName::main(),
        tables: DatedTables::parse(pattern).unwrap(),
    }
}

/// A catalog with retentions of these tables, and with views given by name, source and target.
pub(crate) fn dated_catalog(retentions: &[&str], views: &[(&str, &str, &str)]) -> Catalog {
    let mut catalog = Catalog::default();
    for tables in retentions {
        let DatedRef { account, tables } = dated(tables);
        let name = ViewName::new(tables.prefix().to_ascii_lowercase()).unwrap();
        let retention = Retention {
            name: name.clone(),
            account,
            tables,
            keep: Duration::from_hours(24),
            ahead: 1,
            archive_to: None,
        };
        catalog.retentions.insert(name, Arc::new(retention));
    }
    for (name, source, target) in views {
        let template = |text| Template::parse(text).unwrap();
        let kind = ViewKind::SecondaryIndex(SecondaryIndex {
            target: dated(target),
            partition_key: template("{User}"),
            row_key: template("{PartitionKey}_{RowKey}"),
            select: None,
        });
        let name = ViewName::new(*name).unwrap();
        let view = View {
            name: name.clone(),
            source: dated(source),
            when: None,
            kind,
            on_conflict: OnConflict::Reject,
        };
        catalog.dated_views.insert(name, Arc::new(view));
    }
    catalog
}
