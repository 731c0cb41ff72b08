//! Views of dated tables, under disturbance. If a drop is interrupted, the next drop completes it. Late writes
//! restore nothing, and tables of other dates are unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::{FailureClass, Outcome};
use evenkeel_model::catalog::{
    Aggregate, AggregateFunction, Catalog, DatedRef, OnConflict, Retention, SecondaryIndex, Source,
    View, ViewKind,
};
use evenkeel_model::dated::DatedTables;
use evenkeel_model::job::Primary;
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, EdmValue, Entity, EntityKey, Job, ViewName};
use evenkeel_storage::{TableOperation, all_tables};
use serde_json::json;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job, table};

/// Two days in the past, so that no worker creates their tables again.
const DAYS: [&str; 2] = ["20200101", "20200102"];
const TABLES: [&str; 4] = ["ByUser", "Counts", "EvenkeelFootprintsLogins", "Logins"];

fn dated(pattern: &str) -> DatedRef {
    DatedRef {
        account: AccountName::main(),
        tables: DatedTables::parse(pattern).unwrap(),
    }
}

fn catalog() -> Catalog {
    let template = |text: &str| Template::parse(text).unwrap();
    let view = |name: &str, kind: ViewKind<DatedRef>| {
        let name = ViewName::new(name).unwrap();
        let view = View {
            name: name.clone(),
            source: dated("Logins%Y%m%d"),
            when: None,
            kind,
            on_conflict: OnConflict::Reject,
        };
        (name, Arc::new(view))
    };
    let index = SecondaryIndex {
        target: dated("ByUser%Y%m%d"),
        partition_key: template("{User}"),
        row_key: template("{PartitionKey}_{RowKey}"),
        select: None,
    };
    let groups = Aggregate {
        target: dated("Counts%Y%m%d"),
        partition_key: template("user"),
        row_key: template("{User}"),
        set: BTreeMap::from([("Logins".to_owned(), AggregateFunction::Count)]),
    };
    let name = ViewName::new("logins").unwrap();
    let retention = Retention {
        name: name.clone(),
        account: AccountName::main(),
        tables: DatedTables::parse("Logins%Y%m%d").unwrap(),
        keep: Duration::from_hours(24),
        ahead: 1,
        archive_to: None,
    };
    Catalog {
        dated_views: [
            view("by_user", ViewKind::SecondaryIndex(index)),
            view("counts", ViewKind::Aggregate(groups)),
        ]
        .into(),
        retentions: [(name, retention.into())].into(),
        ..Catalog::default()
    }
}

fn about(op: &str, rk: &str) -> Job {
    job(&json!({"op": op, "table": format!("Logins{}", DAYS[0]), "pk": "web", "rk": rk}))
}

fn drop_table() -> Job {
    job(&json!({"op": "drop_table", "table": format!("Logins{}", DAYS[0])}))
}

async fn write(lab: &Lab, day: &str, rk: &str, user: &str) {
    let login = Entity::new(EntityKey::new("web", rk).unwrap()).with("User", user);
    lab.account
        .tables
        .apply(
            &table(&format!("Logins{day}")),
            &TableOperation::InsertOrReplace(login),
        )
        .await
        .unwrap();
}

async fn filled() -> Lab {
    let lab = Lab::with(SMALL, catalog());
    for day in DAYS {
        for name in TABLES {
            lab.account
                .tables
                .create_table(&table(&format!("{name}{day}")))
                .await
                .unwrap();
        }
        for (rk, user) in [("1", "jun"), ("2", "ada")] {
            write(&lab, day, rk, user).await;
            let sync =
                job(&json!({"op": "sync", "table": format!("Logins{day}"), "pk": "web", "rk": rk}));
            assert!(matches!(lab.work(&sync).await, Ok(Outcome::Done(_))));
        }
    }
    lab
}

async fn dropped(lab: &Lab, story: &str) {
    lab.faults.calm();
    lab.finish().await;
    let tables: BTreeSet<String> = all_tables(lab.account.tables.as_ref())
        .await
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .filter(|name| name.ends_with(DAYS[0]))
        .collect();
    assert!(tables.is_empty(), "{story}: {tables:?}");
    for (rk, user) in [("1", "jun"), ("2", "ada")] {
        assert!(
            lab.read(&format!("ByUser{}", DAYS[1]), user, &format!("web_{rk}"))
                .await
                .is_some(),
            "{story}"
        );
        let primary = Primary {
            table: table(&format!("Logins{}", DAYS[1])),
            key: EntityKey::new("web", rk).unwrap(),
        };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(plan.in_step, "{story}: {plan}");
    }
}

#[tokio::test]
async fn a_drop_that_stops_anywhere_is_ended_by_the_next() {
    let lab = filled().await;
    lab.faults.arm(u64::MAX, Disturbance::Crash);
    assert!(matches!(
        lab.deliver(&drop_table(), 1).await.unwrap().unwrap(),
        Outcome::Done(_)
    ));
    let operations = lab.faults.counted();
    dropped(&lab, "undisturbed").await;
    assert!(operations >= 4, "only {operations} operations");
    let mut sweep = Sweep::over(operations);
    while let Some(case) = sweep.next() {
        let lab = filled().await;
        case.arm(&lab.faults);
        lab.deliver_until_done(&drop_table()).await;
        sweep.seen(&lab);
        dropped(&lab, &case.to_string()).await;
    }
}

#[tokio::test]
async fn what_is_written_while_a_table_is_dropped_leaves_nothing() {
    for op in ["sync", "delete"] {
        for at in 1..=12 {
            let lab = filled().await;
            let other = lab.of_another_worker();
            lab.faults.arm(at, Disturbance::Meddle);
            lab.faults.meddle(Box::pin(async move {
                if op == "sync" {
                    drop(
                        other
                            .account
                            .tables
                            .apply(&table("Logins20200101"), &changed())
                            .await,
                    );
                }
                // Whichever tables the drop has already deleted, the other job succeeds or is retried.
                match other.work(&about(op, "1")).await {
                    Ok(_) => {}
                    Err(failure) => assert!(
                        matches!(failure.class, FailureClass::Transient { .. }),
                        "{}",
                        failure.chain()
                    ),
                }
            }));
            lab.deliver_until_done(&drop_table()).await;
            dropped(&lab, &format!("a {op} at operation {at} of the drop")).await;
        }
    }
}

fn changed() -> TableOperation {
    let login = Entity::new(EntityKey::new("web", "1").unwrap()).with("User", "kim");
    TableOperation::Replace(login, evenkeel_storage::IfMatch::Any)
}

#[tokio::test]
async fn a_table_that_is_dropped_under_a_job_ends_it() {
    for at in 1..=20 {
        let lab = filled().await;
        write(&lab, DAYS[0], "1", "kim").await;
        let other = lab.of_another_worker();
        lab.faults.arm(at, Disturbance::Meddle);
        lab.faults.meddle(Box::pin(async move {
            assert!(matches!(
                other.work(&drop_table()).await,
                Ok(Outcome::Done(_))
            ));
        }));
        let ended = lab.work(&about("sync", "1")).await;
        assert!(
            ended.is_ok(),
            "dropped at operation {at}: {}",
            ended.unwrap_err().chain()
        );
        lab.faults.calm();
        drop(lab.work(&drop_table()).await);
        dropped(
            &lab,
            &format!("dropped at operation {at} of a sync that ended as {ended:?}"),
        )
        .await;
    }
}

#[tokio::test]
async fn requests_that_arrive_after_the_drop_bring_nothing_back() {
    for at in 1..=20 {
        for later in [1, 6] {
            let lab = filled().await;
            write(&lab, DAYS[0], "1", "kim").await;
            lab.faults.arm(at, Disturbance::ArriveLater(later));
            drop(lab.deliver(&about("sync", "1"), 1).await);
            assert!(lab.work(&drop_table()).await.is_ok());
            let late = lab.work(&about("sync", "1")).await;
            assert!(
                matches!(&late, Ok(Outcome::Skipped { reason, .. }) if reason.contains("does not exist")),
                "{late:?}"
            );
            let put = json!({"op": "put", "table": "Logins20200101", "entity": {"PartitionKey": "web", "RowKey": "1", "User": "kim"}});
            let late = lab.work(&job(&put)).await;
            assert!(
                late.is_err_and(|failure| failure.class == FailureClass::Permanent),
                "what a put carries would be lost"
            );
            dropped(
                &lab,
                &format!("the request at operation {at} arrives {later} later"),
            )
            .await;
        }
    }
}

#[tokio::test]
async fn what_follows_a_table_and_is_not_there_is_waited_for() {
    for missing in ["ByUser", "EvenkeelFootprintsLogins"] {
        let lab = filled().await;
        let name = table(&format!("{missing}{}", DAYS[0]));
        lab.account.tables.delete_table(&name).await.unwrap();
        write(&lab, DAYS[0], "1", "kim").await;
        let failure = lab.work(&about("sync", "1")).await.unwrap_err();
        assert!(
            matches!(failure.class, FailureClass::Transient { .. }),
            "{}",
            failure.chain()
        );
        assert!(
            failure.chain().contains("derived table"),
            "{}",
            failure.chain()
        );
        lab.account.tables.create_table(&name).await.unwrap();
        assert!(matches!(
            lab.work(&about("sync", "1")).await,
            Ok(Outcome::Done(_))
        ));
        assert!(
            lab.read(&format!("ByUser{}", DAYS[0]), "kim", "web_1")
                .await
                .is_some()
        );
    }
}

const COUNTED: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[retention.logins]
tables = "Logins%Y%m%d"
keep = "24h"

[views.counts]
kind = "aggregate"
source = "Logins%Y%m%d"
group_table = "Counts%Y%m%d"
partition_key = "user"
row_key = "{User}"
set = { Logins = "count()" }

[views.beside]
kind = "aggregate"
source = "Logins%Y%m%d"
group_table = "Logins%Y%m%d"
partition_key = "user"
row_key = "{User}"
set = { Logins = "count()" }
"#;
const MANY: usize = 3;

async fn counted() -> Lab {
    let lab = Lab::with(SMALL, declared(COUNTED));
    for day in DAYS {
        for name in ["Counts", "EvenkeelFootprintsLogins", "Logins"] {
            lab.account
                .tables
                .create_table(&table(&format!("{name}{day}")))
                .await
                .unwrap();
        }
        for n in 0..MANY {
            write(&lab, day, &format!("{n:03}"), "jun").await;
            let sync = job(
                &json!({"op": "sync", "table": format!("Logins{day}"), "pk": "web", "rk": format!("{n:03}")}),
            );
            lab.work(&sync).await.unwrap();
        }
    }
    lab
}

async fn count(lab: &Lab, day: &str) -> Option<usize> {
    let row = lab
        .read(&format!("Counts{day}"), "user", "jun")
        .await?
        .entity;
    match row.get("ek_count")? {
        EdmValue::Int64(count) => usize::try_from(*count).ok(),
        other => panic!("{other:?} is not a count"),
    }
}

/// Without the view, the catalog no longer knows that the view's table is a dated table.
#[tokio::test]
async fn members_leave_the_list_of_a_view_that_is_gone_and_the_list_goes_with_its_table() {
    let lab = counted().await;
    let mut next = lab.engine.catalog().as_ref().clone();
    let counts = next
        .dated_views
        .remove(&ViewName::new("counts").unwrap())
        .unwrap();
    next.generations.retired.insert(
        counts.name.clone(),
        (1, Source::Dated(counts.source.clone())),
    );
    next.generations
        .followed
        .push((counts.source.clone(), [dated("Counts%Y%m%d")].into()));
    let lab = lab.under(next);
    for n in 0..MANY {
        lab.work(&about("delete", &format!("{n:03}")))
            .await
            .unwrap();
        assert_eq!(
            count(&lab, DAYS[0]).await,
            Some(MANY - 1 - n).filter(|left| *left > 0)
        );
    }
    lab.work(&job(
        &json!({"op": "delete", "table": format!("Logins{}", DAYS[1]), "pk": "web", "rk": "000"}),
    ))
    .await
    .unwrap();
    lab.work(&drop_table()).await.unwrap();
    assert_eq!(count(&lab, DAYS[1]).await, Some(MANY - 1));
}
