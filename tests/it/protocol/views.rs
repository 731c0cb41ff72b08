//! Several views of one primary. One of them cannot derive its items, and only this view fails.

use evenkeel_engine::FailureClass;
use evenkeel_model::job::Primary;
use evenkeel_model::{EdmValue, Entity, EntityKey, Job, ViewName, odata};
use serde_json::json;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Lab, SMALL, declared, job, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_guest]
kind = "secondary_index"
source = "Bookings"
table = "ByGuest"
partition_key = "guest_{Guest}"
row_key = "{PartitionKey}_{RowKey}"

[views.near]
kind = "secondary_index"
source = "Bookings"
table = "Bookings"
partition_key = "{PartitionKey}"
row_key = "guest_{Guest}_{RowKey}"
select = []

[views.covers]
kind = "aggregate"
source = "Bookings"
group_table = "Days"
partition_key = "{PartitionKey}"
row_key = "covers"
set = { Covers = "sum(Covers)" }

[views.guests]
kind = "index_entity"
source = "Bookings"
store = "table"
table = "Lists"
partition_key = "{PartitionKey}"
row_key = "guests"
member = ["{Guest}", "{PartitionKey}", "{RowKey}"]
property = "Guests"
"#;

fn lab() -> Lab {
    Lab::with(SMALL, declared(CATALOG))
}

fn booking(guest: &str, covers: impl Into<EdmValue>) -> Entity {
    Entity::new(EntityKey::new("r1", "b1").unwrap())
        .with("Guest", guest)
        .with("Covers", covers)
}

fn put(entity: &Entity) -> Job {
    job(&json!({"op": "put", "table": "Bookings", "entity": odata::encode(entity)}))
}

fn on_key(op: &str) -> Job {
    job(&json!({"op": op, "table": "Bookings", "pk": "r1", "rk": "b1"}))
}

/// The guests in each view: in the index in another table, the index in the booking's partition, and the list.
async fn guests(lab: &Lab) -> [Vec<String>; 3] {
    let of = |name: &str, row: &Entity| row.text(name).map(str::to_owned);
    let elsewhere = lab
        .rows("ByGuest")
        .await
        .iter()
        .filter_map(|row| of("Guest", &row.entity))
        .collect();
    let nearby = lab.rows("Bookings").await;
    let nearby = nearby.iter().filter_map(|row| {
        row.entity
            .key
            .rk
            .as_str()
            .strip_prefix("guest_")?
            .strip_suffix("_b1")
            .map(str::to_owned)
    });
    let listed = lab
        .read("Lists", "r1", "guests")
        .await
        .and_then(|row| of("Guests", &row.entity));
    let listed: Vec<(String, String, String)> = listed
        .map(|text| serde_json::from_str(&text).unwrap())
        .unwrap_or_default();
    [
        elsewhere,
        nearby.collect(),
        listed.into_iter().map(|(guest, ..)| guest).collect(),
    ]
}

async fn covers(lab: &Lab) -> Option<EdmValue> {
    lab.read("Days", "r1", "covers")
        .await
        .and_then(|row| row.entity.get("Covers").cloned())
}

fn all_say(guest: &str) -> [Vec<String>; 3] {
    [(); 3].map(|()| vec![guest.to_owned()])
}

async fn in_step(lab: &Lab, story: &str) {
    let primary = Primary {
        table: table("Bookings"),
        key: booking("", 0).key,
    };
    let plan = lab.engine.plan(&primary).await.unwrap();
    assert!(plan.in_step, "{story}: {plan}");
}

async fn refused(lab: &Lab, job: &Job) -> String {
    let failure = lab.work(job).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Permanent);
    assert_eq!(failure.views, [ViewName::new("covers").unwrap()]);
    failure.chain()
}

#[tokio::test]
async fn a_property_that_one_view_cannot_take_stops_no_other_view() {
    let lab = lab();
    lab.account
        .tables
        .apply(
            &table("Bookings"),
            &evenkeel_storage::TableOperation::Insert(booking("Ada", "four")),
        )
        .await
        .unwrap();
    for op in ["sync", "sync"] {
        let error = refused(&lab, &on_key(op)).await;
        assert!(
            error.contains("view covers")
                && error.contains("\"Covers\"")
                && error.contains("all other items are in step"),
            "{error}"
        );
        assert_eq!(guests(&lab).await, all_say("Ada"));
        assert_eq!(covers(&lab).await, None);
    }
    let primary = Primary {
        table: table("Bookings"),
        key: booking("", 0).key,
    };
    let plan = lab.engine.plan(&primary).await.unwrap();
    assert_eq!(
        (
            plan.in_step,
            plan.underived.len(),
            plan.underived[0].view.as_str()
        ),
        (false, 1, "covers"),
        "{plan}"
    );
    lab.work(&put(&booking("Ada", 4))).await.unwrap();
    assert_eq!(
        (guests(&lab).await, covers(&lab).await),
        (all_say("Ada"), Some(4_i64.into()))
    );
    in_step(&lab, "corrected").await;
}

#[tokio::test]
async fn a_put_writes_its_primary_though_one_view_cannot_derive() {
    let lab = lab();
    lab.work(&put(&booking("Ada", 4))).await.unwrap();
    refused(&lab, &put(&booking("Bea", "four"))).await;
    let row = lab
        .read("Bookings", "r1", "b1")
        .await
        .expect("the booking is written")
        .entity;
    assert_eq!(
        (row.text("Guest"), row.text("Covers")),
        (Some("Bea"), Some("four"))
    );
    assert_eq!(guests(&lab).await, all_say("Bea"));
    assert_eq!(covers(&lab).await, Some(4_i64.into()));
    lab.work(&on_key("delete")).await.unwrap();
    assert_eq!(
        (guests(&lab).await, covers(&lab).await),
        ([(); 3].map(|()| Vec::new()), None)
    );
    lab.finish().await;
}

#[tokio::test]
async fn an_audit_mends_what_it_can_beside_a_view_that_cannot_derive() {
    let lab = lab();
    refused(&lab, &put(&booking("Ada", "four"))).await;
    lab.delete_row("ByGuest", "guest_Ada", "r1_b1").await;
    lab.work(&job(
        &json!({"op": "audit", "table": "Bookings", "repair": true}),
    ))
    .await
    .unwrap();
    assert_eq!(guests(&lab).await, all_say("Ada"));
    let audits = lab.rows("EvenkeelAudits").await;
    let drift = |view: &str| {
        audits
            .iter()
            .find(|row| row.entity.key.rk.as_str() == view)
            .and_then(|row| row.entity.get("Drift").cloned())
    };
    assert_eq!(drift("by_guest"), Some(0_i64.into()), "{audits:?}");
}

#[tokio::test]
async fn a_view_that_cannot_derive_is_left_as_it_was_whatever_disturbs_the_job() {
    let mut runs = 0_u32;
    for bad in [put(&booking("Bea", "four")), on_key("sync")] {
        let prepared = || async {
            let lab = lab();
            lab.work(&put(&booking("Ada", 4))).await.unwrap();
            if matches!(bad, Job::Sync { .. }) {
                let written =
                    evenkeel_storage::TableOperation::InsertOrReplace(booking("Bea", "four"));
                lab.account
                    .tables
                    .apply(&table("Bookings"), &written)
                    .await
                    .unwrap();
            }
            lab
        };
        let lab = prepared().await;
        lab.faults
            .arm(u64::MAX, crate::protocol::world::Disturbance::Crash);
        assert!(lab.deliver(&bad, 1).await.unwrap().is_err());
        let operations = lab.faults.counted();
        let mut sweep = Sweep::over(operations);
        while let Some(case) = sweep.next() {
            let story = format!("{bad:?}, {case}");
            let lab = prepared().await;
            case.arm(&lab.faults);
            assert!(
                lab.deliver_until_done(&bad).await.is_none(),
                "{story}: the job must be poisoned"
            );
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            // If an earlier delivery wrote the primary, the next job derives the rest.
            drop(lab.work(&on_key("sync")).await);
            assert_eq!(guests(&lab).await, all_say("Bea"), "{story}");
            assert_eq!(covers(&lab).await, Some(4_i64.into()), "{story}");
            lab.work(&put(&booking("Cleo", 5))).await.unwrap();
            lab.finish().await;
            assert_eq!(
                (guests(&lab).await, covers(&lab).await),
                (all_say("Cleo"), Some(5_i64.into())),
                "{story}"
            );
            in_step(&lab, &story).await;
        }
        runs += sweep.runs().0;
    }
    assert!(runs > 50, "only {runs} runs");
}

const UNIQUE: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_guest]
kind = "secondary_index"
source = "Bookings"
table = "ByGuest"
partition_key = "guest"
row_key = "{Guest}"

[views.by_table]
kind = "secondary_index"
source = "Bookings"
table = "ByTable"
partition_key = "table"
row_key = "{Table}"

[views.covers]
kind = "aggregate"
source = "Bookings"
group_table = "Days"
partition_key = "{PartitionKey}"
row_key = "covers"
set = { Covers = "sum(Covers)" }
"#;

#[tokio::test]
async fn every_key_that_is_not_to_be_had_is_named_and_every_view_that_cannot_derive_beside_it() {
    let lab = Lab::with(SMALL, declared(UNIQUE));
    let booking = |rk: &str, covers: EdmValue| {
        put(&Entity::new(EntityKey::new("r1", rk).unwrap())
            .with("Guest", "Ada")
            .with("Table", 7)
            .with("Covers", covers))
    };
    lab.work(&booking("b1", 2.into())).await.unwrap();
    let failure = lab.work(&booking("b2", "two".into())).await.unwrap_err();
    let (views, error) = (&failure.views, failure.chain());
    assert_eq!(
        views.iter().map(ViewName::as_str).collect::<Vec<_>>(),
        ["by_guest", "by_table", "covers"]
    );
    assert!(
        ["ByGuest", "ByTable", "view covers"]
            .iter()
            .all(|named| error.contains(named)),
        "{error}"
    );
}

async fn swept(prepared: impl AsyncFn() -> Lab, job: &Job, ask: impl AsyncFn(&Lab, &str)) {
    let mut sweep = Sweep::over(prepared().await.operations_of(job).await);
    while let Some(case) = sweep.next() {
        let lab = prepared().await;
        case.arm(&lab.faults);
        lab.deliver_until_done(job).await;
        sweep.seen(&lab);
        lab.faults.calm();
        lab.finish().await;
        ask(&lab, &case.to_string()).await;
        in_step(&lab, &case.to_string()).await;
    }
}

const ELSEWHERE_IN_ITS_TABLE: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.by_guest]
kind = "secondary_index"
source = "Bookings"
table = "Bookings"
partition_key = "guest_{Guest}"
row_key = "{PartitionKey}_{RowKey}"
select = []
"#;

/// A transaction cannot write to two partitions.
#[tokio::test]
async fn a_copy_in_another_partition_of_its_primarys_table_is_no_part_of_the_primarys_transaction()
{
    let copies = async |lab: &Lab| {
        let rows = lab
            .rows("Bookings")
            .await
            .into_iter()
            .filter(|row| row.entity.get("ek_view").is_some());
        rows.map(|row| row.entity.key.pk.to_string())
            .collect::<Vec<_>>()
    };
    let prepared = async || {
        let lab = Lab::with(SMALL, declared(ELSEWHERE_IN_ITS_TABLE));
        lab.work(&put(&booking("Ada", 4))).await.unwrap();
        assert_eq!(copies(&lab).await, ["guest_Ada"]);
        lab
    };
    for (job, expected) in [
        (put(&booking("Bea", 4)), vec!["guest_Bea"]),
        (on_key("delete"), vec![]),
    ] {
        swept(prepared, &job, async |lab, case| {
            assert_eq!(copies(lab).await, expected, "{job:?}, {case}");
        })
        .await;
    }
}

const TWO_IN_ONE_TABLE: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.guest]
kind = "secondary_index"
source = "Bookings"
table = "ByName"
partition_key = "{PartitionKey}"
row_key = "{Guest}"

[views.host]
kind = "secondary_index"
source = "Bookings"
table = "ByName"
partition_key = "{PartitionKey}"
row_key = "{Host}"
"#;

/// Each view needs the key that an item of the other view has, and both items belong to the same primary.
#[tokio::test]
async fn two_views_of_one_primary_exchange_their_keys() {
    let meeting = |guest: &str, host: &str| put(&booking(guest, 4).with("Host", host));
    let prepared = async || {
        let lab = Lab::with(SMALL, declared(TWO_IN_ONE_TABLE));
        lab.work(&meeting("Ada", "Bea")).await.unwrap();
        lab
    };
    swept(prepared, &meeting("Bea", "Ada"), async |lab, case| {
        let rows = lab.rows("ByName").await.into_iter();
        let views: Vec<_> = rows
            .map(|row| {
                (
                    row.entity.key.rk.to_string(),
                    row.entity.text("ek_view").unwrap().to_owned(),
                )
            })
            .collect();
        let expected = [("Ada", "host"), ("Bea", "guest")]
            .map(|(name, view)| (name.to_owned(), view.to_owned()));
        assert_eq!(views, expected, "{case}");
    })
    .await;
}
