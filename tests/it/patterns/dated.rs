//! Views of dated tables: their target tables are created and dropped together with the source table, and nothing remains.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_engine::retention::{Keeper, TurnTime};
use evenkeel_engine::{Execute as _, Outcome, Recheck, Work};
use evenkeel_model::job::Primary;
use evenkeel_model::{AccountName, CatalogOwner, EdmValue, EntityKey, TableName, ViewName};
use evenkeel_storage::system::SystemClock;
use evenkeel_storage::{Clock as _, Query, Stores, all_tables};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[retention.logins]
tables = "Logins§x%Y%m%d"
keep = "60d"

[views.by_user]
kind = "secondary_index"
source = "Logins§x%Y%m%d"
table = "ByUser§x%Y%m%d"
partition_key = "{User}"
row_key = "{PartitionKey}_{RowKey}"

[views.near]
kind = "secondary_index"
source = "Logins§x%Y%m%d"
table = "Logins§x%Y%m%d"
partition_key = "{PartitionKey}"
row_key = "user_{User}_{RowKey}"
select = ["Note"]

[views.lists]
kind = "index_entity"
source = "Logins§x%Y%m%d"
store = "table"
table = "Lists§x%Y%m%d"
partition_key = "user"
row_key = "{User}"
member = ["{PartitionKey}", "{RowKey}", "{Note}"]
property = "Logins"

[views.counts]
kind = "aggregate"
source = "Logins§x%Y%m%d"
group_table = "Counts§x%Y%m%d"
partition_key = "user"
row_key = "{User}"
set = { Logins = "count()", Seconds = "sum(Seconds)" }
"#;

type Logins = BTreeMap<(String, String), (&'static str, i32, String)>;

struct Days {
    today: String,
    before: String,
}

impl Days {
    fn of(site: &Site) -> Self {
        let logins = &site.engine.catalog().retentions[&ViewName::new("logins").unwrap()].tables;
        let now = SystemClock::new().now();
        let before = now
            .saturating_sub(SignedDuration::from_hours(24 * 9))
            .unwrap();
        let date = |name: TableName| name.as_str()[name.as_str().len() - 8..].to_owned();
        Self {
            today: date(logins.name_at(now)),
            before: date(logins.name_at(before)),
        }
    }
}

fn logins(date: &str) -> String {
    format!("Logins§x{date}")
}

/// Maintains the dated tables, as a daemon does every hour.
async fn tend(site: &Site) {
    let stores = Stores::new([(AccountName::main(), site.account.clone())].into());
    let keeper = Keeper::new(
        site.engine.catalog(),
        stores,
        Arc::new(SystemClock::new()),
        &[],
        CatalogOwner::default(),
    );
    keeper.tend(TurnTime::Due).await.unwrap();
}

async fn tables(site: &Site) -> BTreeSet<String> {
    let unique = site.name("§");
    let tables = all_tables(site.account.tables.as_ref()).await.unwrap();
    tables
        .iter()
        .map(ToString::to_string)
        .filter(|table| table.contains(&unique))
        .map(|table| table.replace(&unique, "§"))
        .collect()
}

fn of_date(date: &str) -> BTreeSet<String> {
    [
        "Logins",
        "ByUser",
        "Lists",
        "Counts",
        "EvenkeelFootprintsLogins",
    ]
    .into_iter()
    .map(|name| format!("{name}§x{date}"))
    .collect()
}

fn put(date: &str, (pk, rk): (&str, &str), (user, seconds, note): (&str, i32, &str)) -> Value {
    json!({"op": "put", "table": logins(date), "entity":
        {"PartitionKey": pk, "RowKey": rk, "User": user, "Seconds": seconds, "Note": note}})
}

async fn agrees(site: &Site, date: &str, there: &Logins) {
    let found = site.keys(&format!("ByUser§x{date}"), "Note").await;
    let wanted: BTreeSet<_> = there
        .iter()
        .map(|((pk, rk), (user, _, note))| ((*user).to_owned(), format!("{pk}_{rk}"), note.clone()))
        .collect();
    assert_eq!(found, wanted.into_iter().collect::<Vec<_>>());
    let near = site
        .keys(&logins(date), "ek_view")
        .await
        .into_iter()
        .filter(|(_, _, view)| view == "near");
    let wanted: BTreeSet<_> = there
        .iter()
        .map(|((pk, rk), (user, ..))| (pk.clone(), format!("user_{user}_{rk}")))
        .collect();
    assert_eq!(
        near.map(|(pk, rk, _)| (pk, rk)).collect::<BTreeSet<_>>(),
        wanted
    );
    let users: BTreeSet<&str> = there.values().map(|(user, ..)| *user).collect();
    for (name, count) in [("Lists", "ek_count"), ("Counts", "Logins")] {
        let found: Vec<String> = site
            .keys(&format!("{name}§x{date}"), "")
            .await
            .into_iter()
            .map(|(_, rk, _)| rk)
            .collect();
        assert_eq!(found, users.iter().copied().collect::<Vec<_>>(), "{name}");
        for user in &users {
            let row = site
                .row(&format!("{name}§x{date}"), "user", user)
                .await
                .unwrap()
                .entity;
            let own: Vec<_> = there.values().filter(|(of, ..)| of == user).collect();
            assert_eq!(
                row.get(count),
                Some(&EdmValue::Int64(i64::try_from(own.len()).unwrap())),
                "{name} of {user}"
            );
            if name == "Counts" {
                let seconds: i64 = own.iter().map(|(_, seconds, _)| i64::from(*seconds)).sum();
                assert_eq!(row.get("Seconds"), Some(&EdmValue::Int64(seconds)));
            }
        }
    }
    site.in_step(&logins(date)).await;
}

async fn set(
    site: &Site,
    date: &str,
    there: &mut Logins,
    key: (&str, &str),
    login: (&'static str, i32, &str),
) {
    site.work(put(date, key, login)).await;
    there.insert(
        (key.0.to_owned(), key.1.to_owned()),
        (login.0, login.1, login.2.to_owned()),
    );
}

pub(crate) async fn what_is_derived_from_a_table_by_date_comes_and_goes_with_it(site: &Site) {
    let Days { today, before } = Days::of(site);
    site.account
        .tables
        .create_table(&site.table(&logins(&before)))
        .await
        .unwrap();
    site.account
        .tables
        .create_table(&TableName::new("EvenkeelAudits").unwrap())
        .await
        .unwrap();
    tend(site).await;
    let created = tables(site).await;
    assert!(
        created.is_superset(&of_date(&today)) && created.is_superset(&of_date(&before)),
        "{created:?}"
    );

    // Both days have logins. The same key on different days belongs to different logins.
    let (mut now, mut then) = (Logins::new(), Logins::new());
    set(site, &today, &mut now, ("web", "1"), ("jun", 30, "a")).await;
    set(site, &today, &mut now, ("web", "2"), ("ada", 20, "b")).await;
    set(site, &before, &mut then, ("web", "1"), ("kim", 5, "c")).await;
    set(site, &before, &mut then, ("app", "7"), ("jun", 6, "d")).await;
    agrees(site, &today, &now).await;
    agrees(site, &before, &then).await;
    set(site, &today, &mut now, ("web", "1"), ("ada", 31, "a2")).await;
    site.work(json!({"op": "delete", "table": logins(&before), "pk": "web", "rk": "1"}))
        .await;
    then.remove(&("web".to_owned(), "1".to_owned()));
    agrees(site, &today, &now).await;
    agrees(site, &before, &then).await;
    set(site, &before, &mut then, ("web", "1"), ("ada", 9, "c2")).await;
    agrees(site, &before, &then).await;

    // A lookup finds only the logins of the day that its table names.
    let by_user = ViewName::new("by_user").unwrap();
    let of = |date: &str| site.table(&logins(date));
    let found = site
        .client
        .lookup(&by_user, &["User=ada"])
        .unwrap()
        .table(of(&before))
        .entities()
        .run()
        .await
        .unwrap();
    assert_eq!(
        found
            .rows
            .iter()
            .map(|row| row.entity.key.clone())
            .collect::<Vec<_>>(),
        [EntityKey::new("web", "1").unwrap()]
    );
    let error = site
        .client
        .lookup(&by_user, &["User=ada"])
        .unwrap()
        .run()
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("Name one with --table"),
        "{error}"
    );
    let error = site
        .client
        .lookup(&by_user, &["User=ada"])
        .unwrap()
        .table(site.table("Other§x20261120"))
        .run()
        .await
        .unwrap_err();
    assert!(error.to_string().contains("does not match"), "{error}");

    // An audit finds and repairs a copy that was changed on one day.
    let copy = EntityKey::new("ada", "web_1").unwrap();
    let target = site.table(&format!("ByUser§x{before}"));
    site.account
        .tables
        .apply(
            &target,
            &evenkeel_storage::TableOperation::Delete(copy, evenkeel_storage::IfMatch::Any),
        )
        .await
        .unwrap();
    site.work(json!({"op": "audit", "table": logins(&before), "repair": true}))
        .await;
    agrees(site, &before, &then).await;
    site.work(json!({"op": "backfill", "table": logins(&today)}))
        .await;
    let refused = site
        .refused(json!({"op": "backfill", "view": "by_user"}))
        .await;
    assert!(refused.contains("Name one of them as `table`"), "{refused}");
    agrees(site, &today, &now).await;

    // After the drop, all data of that day is gone, and all data of the other day remains.
    site.work(json!({"op": "drop_table", "table": logins(&before)}))
        .await;
    let left: Vec<String> = tables(site)
        .await
        .into_iter()
        .filter(|table| table.ends_with(&before))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(audits(site, &before).await, 0);
    agrees(site, &today, &now).await;

    let late = json!({"op": "sync", "table": logins(&before), "pk": "web", "rk": "1"});
    for op in ["sync", "delete"] {
        let ended = site
            .attempt(&json!({"op": op, "table": logins(&before), "pk": "web", "rk": "1"}))
            .await;
        assert!(
            matches!(&ended, Ok(Outcome::Skipped { reason, .. }) if reason.contains("does not exist")),
            "{ended:?}"
        );
    }
    for op in ["audit", "backfill", "drop_table"] {
        let ended = site
            .attempt(&json!({"op": op, "table": logins(&before)}))
            .await;
        assert!(
            matches!(&ended, Ok(Outcome::Skipped { .. })),
            "{op}: {ended:?}"
        );
    }
    let recheck = Recheck {
        primary: Primary {
            table: of(&before),
            key: EntityKey::new("web", "1").unwrap(),
        },
        items: Vec::new(),
        chained: 0,
        taken_keys: None,
    };
    let ended = site
        .engine
        .execute(&Work::Recheck(recheck), &site.message(&late).1)
        .await;
    assert!(matches!(ended, Ok(Outcome::Skipped { .. })), "{ended:?}");
    let refused = site
        .refused(put(&before, ("web", "1"), ("jun", 1, "")))
        .await;
    assert!(refused.contains("does not exist"), "{refused}");
    tend(site).await;
    assert!(
        tables(site)
            .await
            .iter()
            .all(|table| !table.ends_with(&before))
    );

    // The next drop also deletes a target table that could not be dropped with its source.
    site.account
        .tables
        .create_table(&site.table(&format!("Counts§x{before}")))
        .await
        .unwrap();
    site.work(json!({"op": "drop_table", "table": logins(&before)}))
        .await;
    assert!(
        tables(site)
            .await
            .iter()
            .all(|table| !table.ends_with(&before))
    );
}

/// Number of views for which an audit of this day's table is recorded.
async fn audits(site: &Site, date: &str) -> usize {
    let rows = site
        .account
        .tables
        .query(
            &TableName::new("EvenkeelAudits").unwrap(),
            &Query::default(),
        )
        .await
        .unwrap()
        .rows;
    rows.iter()
        .filter(|row| row.entity.key.pk.as_str() == site.table(&logins(date)).as_str())
        .count()
}

pub(crate) async fn what_a_table_by_date_costs(site: &Site) {
    let Days { today, .. } = Days::of(site);
    tend(site).await;
    let requests = site
        .requests_of(put(&today, ("web", "1"), ("jun", 30, "a")))
        .await;
    assert_eq!(
        requests, 10,
        "a put: footprint, primary, announcement, the primary with its copy in the partition, two lists read and written, a copy, and the close"
    );
    let again = site
        .requests_of(json!({"op": "sync", "table": logins(&today), "pk": "web", "rk": "1"}))
        .await;
    assert_eq!(again, 2, "a sync without a change");
    let dropping = site
        .requests_of(json!({"op": "drop_table", "table": logins(&today)}))
        .await;
    assert_eq!(
        dropping, 9,
        "a drop: three targets, the footprints, the audit records of four views, and the table"
    );
    assert!(
        tables(site)
            .await
            .iter()
            .all(|table| !table.ends_with(&today))
    );
    // A table that should exist is created soon, so a job that writes to it is retried.
    let (job, delivery) = site.message(&put(&today, ("web", "1"), ("jun", 30, "a")));
    let failure = site.deliver(&job, &delivery).await.unwrap_err();
    assert!(
        failure.chain().contains("is about to create it"),
        "{}",
        failure.chain()
    );
    assert_eq!(
        failure.class,
        evenkeel_engine::FailureClass::Transient { retry_after: None }
    );
}
