//! A pass compares existing items by value, and writes only the differences: after a total was overwritten, and for a
//! new or renamed view.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use evenkeel_engine::footprint::FOOTPRINTS;
use evenkeel_engine::{FailureClass, audit_records, audited_primaries};
use evenkeel_model::catalog::{Catalog, Source};
use evenkeel_model::job::Primary;
use evenkeel_model::settled::FINGERPRINT;
use evenkeel_model::{AccountName, EdmValue, Entity, EntityKey, Job, ViewName, odata};
use evenkeel_storage::{IfMatch, TableOperation};
use serde_json::json;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job, table};

const ACCOUNT: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Bookings]
"#;
const GROUPS: &str = r#"
[views.covers]
kind = "aggregate"
source = "Bookings"
group_table = "Days"
partition_key = "{PartitionKey}"
row_key = "covers"
set = { Covers = "sum(Covers)", Bookings = "count()" }

[views.last_guest]
kind = "denormalize"
source = "Bookings"
table = "Seats"
partition_key = "{PartitionKey}"
row_key = "{RowKey}"
set = { GuestName = "{Guest}" }
"#;

fn index(view: &str, target: &str) -> String {
    format!(
        r#"
[views.{view}]
kind = "secondary_index"
source = "Bookings"
table = "{target}"
partition_key = "guest_{{Guest}}"
row_key = "{{PartitionKey}}_{{RowKey}}"
"#
    )
}

fn catalog(views: &str) -> Catalog {
    declared(&format!("{ACCOUNT}{views}"))
}

fn booking(rk: &str, guest: &str) -> Entity {
    Entity::new(EntityKey::new("r1", rk).unwrap())
        .with("Guest", guest)
        .with("Covers", 4)
}

fn put(entity: &Entity) -> Job {
    job(&json!({"op": "put", "table": "Bookings", "entity": odata::encode(entity)}))
}

async fn merge(lab: &Lab, name: &str, entity: Entity) {
    lab.account
        .tables
        .apply(&table(name), &TableOperation::Merge(entity, IfMatch::Any))
        .await
        .unwrap();
}

async fn plan_is_empty(lab: &Lab, rk: &str, story: &str) {
    let primary = Primary {
        table: table("Bookings"),
        key: booking(rk, "").key,
    };
    let plan = lab.engine.plan(&primary).await.unwrap();
    assert!(plan.in_step, "{story}: {plan}");
}

#[tokio::test]
async fn a_figure_or_a_property_that_somebody_overwrote_is_found_and_mended() {
    let lab = Lab::with(SMALL, catalog(GROUPS));
    // The application itself creates the entities on which views set properties.
    drop(lab.account.tables.create_table(&table("Seats")).await);
    lab.account
        .tables
        .apply(
            &table("Seats"),
            &TableOperation::Insert(Entity::new(booking("b1", "").key)),
        )
        .await
        .unwrap();
    for rk in ["b1", "b2"] {
        lab.work(&put(&booking(rk, "Ada"))).await.unwrap();
    }
    let covers = EntityKey::new("r1", "covers").unwrap();
    let values = || async {
        let of = |row: Option<evenkeel_model::Row>, name: &str| {
            row.and_then(|row| row.entity.get(name).cloned())
        };
        (
            of(lab.read("Days", "r1", "covers").await, "Covers"),
            of(lab.read("Seats", "r1", "b1").await, "GuestName"),
        )
    };
    let right = || (Some(EdmValue::Int64(8)), Some(EdmValue::from("Ada")));
    assert_eq!(values().await, right());
    let drift = || async {
        let audits = lab.rows("EvenkeelAudits").await;
        let of = |view: &str| {
            audits
                .iter()
                .find(|row| row.entity.key.rk.as_str() == view)
                .and_then(|row| row.entity.get("Drift").cloned())
        };
        (of("covers"), of("last_guest"))
    };
    let overwrite = || async {
        merge(
            &lab,
            "Days",
            Entity::new(covers.clone()).with("Covers", 1_i64),
        )
        .await;
        merge(
            &lab,
            "Seats",
            Entity::new(booking("b1", "").key).with("GuestName", "Mallory"),
        )
        .await;
        assert_ne!(values().await, right());
    };

    // The dashboard and the command line read the results of an audit like this.
    let tables = lab.account.tables.as_ref();
    let recorded = || async {
        let records = audit_records(tables, lab.engine.catalog()).await.unwrap();
        let drift = records
            .iter()
            .map(|record| (record.view.to_string(), record.drift))
            .collect::<Vec<_>>();
        (
            drift,
            audited_primaries(tables, &table("Bookings")).await.unwrap(),
        )
    };
    let of_each = |drift| {
        ["covers", "last_guest"]
            .map(|view| (view.to_owned(), drift))
            .to_vec()
    };
    assert_eq!(recorded().await, (vec![], None), "there was no audit");

    overwrite().await;
    lab.work(&job(&json!({"op": "audit", "table": "Bookings"})))
        .await
        .unwrap();
    // A group with two bookings counts as one wrong item.
    assert_eq!(drift().await, (Some(1_i64.into()), Some(1_i64.into())));
    assert_eq!(recorded().await, (of_each(1), Some(2)));
    for repair in [
        json!({"op": "audit", "table": "Bookings", "repair": true}),
        json!({"op": "backfill", "table": "Bookings"}),
        json!({"op": "sync", "table": "Bookings", "pk": "r1", "rk": "b1", "thorough": true}),
    ] {
        overwrite().await;
        lab.work(&job(&repair)).await.unwrap();
        assert_eq!(values().await, right(), "{repair}");
        lab.work(&job(&json!({"op": "audit", "table": "Bookings"})))
            .await
            .unwrap();
        assert_eq!(
            drift().await,
            (Some(0_i64.into()), Some(0_i64.into())),
            "{repair}"
        );
        assert_eq!(recorded().await, (of_each(0), Some(2)), "{repair}");
    }
}

#[tokio::test]
async fn a_new_view_writes_its_own_rows_and_no_others() {
    const BOOKINGS: u64 = 5;
    let lab = Lab::with(SMALL, catalog(&index("old", "ByGuest")));
    lab.account
        .tables
        .create_table(&table("Other"))
        .await
        .unwrap();
    for n in 0..BOOKINGS {
        lab.work(&put(&booking(&n.to_string(), "Ada")))
            .await
            .unwrap();
    }
    let lab = lab.under(catalog(&format!(
        "{}{}",
        index("old", "ByGuest"),
        index("new", "Other")
    )));
    let before = lab.faults.writes_to("ByGuest");
    lab.work(&job(&json!({"op": "backfill", "table": "Bookings"})))
        .await
        .unwrap();
    assert_eq!(
        (
            lab.faults.writes_to("ByGuest") - before,
            lab.faults.writes_to("Other")
        ),
        (0, BOOKINGS)
    );
    assert_eq!(lab.rows("Other").await.len(), 5);
    for n in 0..BOOKINGS {
        plan_is_empty(&lab, &n.to_string(), "backfilled").await;
    }
    merge(
        &lab,
        "ByGuest",
        Entity::new(EntityKey::new("guest_Ada", "r1_3").unwrap()).with("Guest", "Mallory"),
    )
    .await;
    let before = lab.faults.writes_to("ByGuest");
    lab.work(&job(&json!({"op": "backfill", "table": "Bookings"})))
        .await
        .unwrap();
    assert_eq!(
        (
            lab.faults.writes_to("ByGuest") - before,
            lab.faults.writes_to("Other")
        ),
        (1, BOOKINGS)
    );
    assert_eq!(
        lab.read("ByGuest", "guest_Ada", "r1_3")
            .await
            .unwrap()
            .entity
            .text("Guest"),
        Some("Ada")
    );
}

/// The audit also finds the rows of this primary in the view's table, and reads the unreadable footprint for each of
/// them.
#[tokio::test]
async fn a_primary_whose_footprint_is_unreadable_ends_no_audit() {
    let lab = Lab::with(SMALL, catalog(&index("old", "ByGuest")));
    for rk in ["b1", "b2"] {
        lab.work(&put(&booking(rk, "Ada"))).await.unwrap();
    }
    merge(
        &lab,
        FOOTPRINTS,
        Entity::new(EntityKey::new("Bookings~r1", "b1").unwrap()).with("Items", "?"),
    )
    .await;
    lab.delete_row("ByGuest", "guest_Ada", "r1_b2").await;
    for repair in [false, true] {
        lab.work(&job(
            &json!({"op": "audit", "table": "Bookings", "repair": repair}),
        ))
        .await
        .unwrap();
        let audits = lab.rows("EvenkeelAudits").await;
        let of = |name: &str| audits[0].entity.get(name).cloned();
        assert_eq!(
            of("Drift"),
            Some(i64::from(!repair).into()),
            "the other primary must be checked, repair: {repair}"
        );
        assert!(
            matches!(of("Failed"), Some(EdmValue::Int64(failed)) if failed > 0),
            "{audits:?}"
        );
    }
    assert!(
        lab.read("ByGuest", "guest_Ada", "r1_b2").await.is_some(),
        "the other primary must be repaired"
    );
}

fn on_seat(view: &str, property: &str, value: &str) -> String {
    format!(
        r#"
[views.{view}]
kind = "denormalize"
source = "Bookings"
table = "Seats"
partition_key = "{{PartitionKey}}"
row_key = "{{RowKey}}"
set = {{ {property} = "{{{value}}}" }}
"#
    )
}

/// Several views change one entity in the order of their names.
#[tokio::test]
async fn a_property_that_passes_from_one_view_to_another_stays() {
    let guest = |view: &str| on_seat(view, "GuestName", "Guest");
    let party = |view: &str| on_seat(view, "Party", "Covers");
    for (before, after, gone) in [
        (guest("first"), guest("second"), Some("first")),
        (guest("second"), guest("first"), Some("second")),
        (
            format!("{}{}", guest("first"), party("second")),
            format!("{}{}", party("first"), guest("second")),
            None,
        ),
    ] {
        let lab = Lab::with(SMALL, catalog(&before));
        drop(lab.account.tables.create_table(&table("Seats")).await);
        let seat = Entity::new(booking("b1", "").key).with("Side", "left");
        lab.account
            .tables
            .apply(&table("Seats"), &TableOperation::Insert(seat.clone()))
            .await
            .unwrap();
        lab.work(&put(&booking("b1", "Ada"))).await.unwrap();
        let kept = async |lab: &Lab| {
            let row = lab.read("Seats", "r1", "b1").await.unwrap().entity;
            (
                row.text("GuestName").map(str::to_owned),
                row.get("Party").cloned(),
            )
        };
        let wanted = kept(&lab).await;
        assert_eq!(wanted.0.as_deref(), Some("Ada"), "{before}");

        let mut next = catalog(&after);
        next.generations.current = next.views.keys().map(|view| (view.clone(), 2)).collect();
        if let Some(view) = gone {
            retire(&mut next, view);
        }
        let lab = lab.under(next);
        lab.work(&job(&json!({"op": "backfill", "table": "Bookings"})))
            .await
            .unwrap();
        assert_eq!(kept(&lab).await, wanted, "{after}");
        plan_is_empty(&lab, "b1", &after).await;
        lab.work(&job(
            &json!({"op": "delete", "table": "Bookings", "pk": "r1", "rk": "b1"}),
        ))
        .await
        .unwrap();
        assert_eq!(
            lab.read("Seats", "r1", "b1").await.unwrap().entity,
            seat,
            "{after}"
        );
    }
}

const ON_COPIES: &str = r#"
[views.by_guest]
kind = "secondary_index"
source = "Bookings"
table = "Bookings"
partition_key = "guest"
row_key = "{Guest}"
on_conflict = "reject"

[views.seat]
kind = "denormalize"
source = "Seats"
table = "Bookings"
partition_key = "guest"
row_key = "{Guest|trim}"
set = { Seat = "{RowKey}" }
on_conflict = "reject"
"#;

/// The next write of the whole copy would remove the set properties, and the audits of the two views would undo each
/// other forever.
#[tokio::test]
async fn no_properties_are_set_on_a_copy() {
    let lab = Lab::with(SMALL, catalog(ON_COPIES));
    lab.work(&put(&booking("b1", "Ada"))).await.unwrap();
    let seat = Entity::new(EntityKey::new("r1", "window").unwrap()).with("Guest", "Ada");
    let seat = job(&json!({"op": "put", "table": "Seats", "entity": odata::encode(&seat)}));
    for story in ["not looked at before", "looked at"] {
        let error = lab.work(&seat).await.unwrap_err().chain();
        assert!(error.contains("would be set on a copy"), "{story}: {error}");
        assert_eq!(
            lab.read("Bookings", "guest", "Ada")
                .await
                .unwrap()
                .entity
                .get("Seat"),
            None,
            "{story}"
        );
        plan_is_empty(&lab, "b1", story).await;
    }
    lab.work(&job(
        &json!({"op": "delete", "table": "Bookings", "pk": "r1", "rk": "b1"}),
    ))
    .await
    .unwrap();
    lab.work(&put(&Entity::new(EntityKey::new("guest", "Ada").unwrap())))
        .await
        .unwrap();
    lab.work(&job(
        &json!({"op": "sync", "table": "Seats", "pk": "r1", "rk": "window"}),
    ))
    .await
    .unwrap();
    let guest = lab.read("Bookings", "guest", "Ada").await.unwrap().entity;
    assert_eq!(
        guest.text("Seat"),
        Some("window"),
        "an entity of the application"
    );
}

const NEAR_LIST: &str = r#"
[views.near]
kind = "index_entity"
source = "Bookings"
store = "partition"
row_key = "guest_{Guest}"
member = ["{RowKey}"]
property = "Ids"
"#;
const NEAR_COPY: &str = r#"
[views.near]
kind = "secondary_index"
source = "Bookings"
table = "Bookings"
partition_key = "{PartitionKey}"
row_key = "guest_{Guest}"
select = []
"#;

/// No backfill runs between the change of the view and the put.
#[tokio::test]
async fn a_view_beside_its_primaries_changes_its_kind_with_the_next_put() {
    for (before, after) in [(NEAR_LIST, NEAR_COPY), (NEAR_COPY, NEAR_LIST)] {
        let lab = Lab::with(SMALL, catalog(before));
        lab.work(&put(&booking("b1", "Ada"))).await.unwrap();
        let mut next = catalog(after);
        next.generations.current = next.views.keys().map(|view| (view.clone(), 2)).collect();
        let lab = lab.under(next);
        let is_list = after == NEAR_LIST;
        for guest in ["Ada", "Bea", "Ada"] {
            lab.work(&put(&booking("b1", guest))).await.unwrap();
            let rows = lab
                .rows("Bookings")
                .await
                .into_iter()
                .filter(|row| row.entity.get("ek_view").is_some());
            let near: Vec<_> = rows
                .map(|row| {
                    (
                        row.entity.key.rk.to_string(),
                        row.entity.text("Ids").is_some(),
                    )
                })
                .collect();
            assert_eq!(near, [(format!("guest_{guest}"), is_list)], "{after}");
            plan_is_empty(&lab, "b1", after).await;
        }
        lab.work(&job(
            &json!({"op": "delete", "table": "Bookings", "pk": "r1", "rk": "b1"}),
        ))
        .await
        .unwrap();
        assert!(lab.rows("Bookings").await.is_empty(), "{after}");
    }
}

fn list(view: &str) -> String {
    format!(
        r#"
[views.{view}]
kind = "index_entity"
source = "Bookings"
store = "table"
table = "Guests"
partition_key = "guests"
row_key = "{{Guest}}"
member = ["{{PartitionKey}}", "{{RowKey}}"]
property = "Bookings"
"#
    )
}

const COPIES: &str = r#"
[views.copies]
kind = "secondary_index"
source = "Bookings"
table = "Guests"
partition_key = "guests"
row_key = "{Guest}"
on_conflict = "reject"
"#;

#[tokio::test]
async fn the_error_about_a_list_of_a_former_view_names_it_and_the_remedies() {
    for (next, new) in [
        (list("new_list"), "new_list"),
        (COPIES.to_owned(), "copies"),
    ] {
        let lab = Lab::with(SMALL, catalog(&list("old_list")));
        lab.work(&put(&booking("b1", "Ada"))).await.unwrap();
        let mut next = catalog(&next);
        retire(&mut next, "old_list");
        let lab = lab.under(next);
        let failure = lab.work(&put(&booking("b2", "Ada"))).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Permanent);
        let elsewhere = format!("Give view {new} another target or other keys");
        let held = "is taken by an old list of view old_list";
        let remedy = "docs/operations.md#keys-of-an-old-list";
        for said in [held, elsewhere.as_str(), remedy] {
            assert!(
                failure.chain().contains(said),
                "{said}: {}",
                failure.chain()
            );
        }
        let plan = lab
            .engine
            .plan(&Primary {
                table: table("Bookings"),
                key: booking("b2", "").key,
            })
            .await
            .unwrap();
        assert!(
            plan.taken
                .iter()
                .any(|taken| taken.by == "the list of view old_list"),
            "{plan}"
        );
        // The list is removed when its last former member is deleted or synced.
        lab.work(&job(
            &json!({"op": "delete", "table": "Bookings", "pk": "r1", "rk": "b1"}),
        ))
        .await
        .unwrap();
        lab.work(&job(
            &json!({"op": "sync", "table": "Bookings", "pk": "r1", "rk": "b2"}),
        ))
        .await
        .unwrap();
        let row = lab.read("Guests", "guests", "Ada").await.unwrap();
        assert_eq!(row.entity.text("ek_view"), Some(new));
    }
}

/// The view of the list now has another table or other keys, or only a newer catalog declares it.
#[tokio::test]
async fn the_error_about_a_list_of_a_changed_view_does_not_advise_to_retire_it() {
    let own = "`evenkeel backfill --view old_list`";
    let cases = [
        (
            list("old_list").replace("Guests", "Visitors"),
            "which has another target now",
            true,
        ),
        (
            list("old_list").replace("{Guest}", "g_{Guest}"),
            "If the keys of old_list were changed",
            true,
        ),
        (
            String::new(),
            "which this catalog does not have. Use the catalog that has it",
            false,
        ),
    ];
    for (changed, says, backfills) in cases {
        let lab = Lab::with(SMALL, catalog(&list("old_list")));
        lab.account
            .tables
            .create_table(&table("Visitors"))
            .await
            .unwrap();
        lab.work(&put(&booking("b1", "Ada"))).await.unwrap();
        let mut next = catalog(&format!("{changed}{}", list("new_list")));
        next.generations.current = BTreeMap::from([(ViewName::new("old_list").unwrap(), 2)]);
        let lab = lab.under(next);
        let failure = lab.work(&put(&booking("b2", "Ada"))).await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Permanent);
        let chain = failure.chain();
        assert!(
            chain.contains(says) && chain.contains("list of view old_list"),
            "{chain}"
        );
        assert!(
            chain.contains(own) == backfills && !chain.contains("--retire"),
            "{chain}"
        );
        if backfills {
            for rk in ["b1", "b2"] {
                let sync = job(&json!({"op": "sync", "table": "Bookings", "pk": "r1", "rk": rk}));
                drop(lab.work(&sync).await);
                lab.work(&sync).await.unwrap();
            }
            let row = lab.read("Guests", "guests", "Ada").await.unwrap();
            assert_eq!(row.entity.text("ek_view"), Some("new_list"), "{says}");
        }
    }
}

async fn renamed() -> Lab {
    let lab = Lab::with(SMALL, catalog(&index("old_name", "ByGuest")));
    lab.work(&put(&booking("b1", "Ada"))).await.unwrap();
    let mut next = catalog(&index("new_name", "ByGuest"));
    retire(&mut next, "old_name");
    lab.under(next)
}

fn retire(next: &mut Catalog, view: &str) {
    let source = evenkeel_model::catalog::TableRef {
        account: AccountName::main(),
        table: table("Bookings"),
    };
    next.generations
        .retired
        .insert(ViewName::new(view).unwrap(), (1, Source::Table(source)));
}

async fn row_view(lab: &Lab) -> Option<String> {
    lab.read("ByGuest", "guest_Ada", "r1_b1")
        .await
        .and_then(|row| row.entity.text("ek_view").map(str::to_owned))
}

fn sync() -> Job {
    job(&json!({"op": "sync", "table": "Bookings", "pk": "r1", "rk": "b1"}))
}

#[tokio::test]
async fn the_rows_of_a_view_that_is_renamed_are_there_at_every_moment() {
    let lab = renamed().await;
    let primary = Primary {
        table: table("Bookings"),
        key: booking("b1", "").key,
    };
    let plan = lab.engine.plan(&primary).await.unwrap();
    assert!(
        plan.taken.is_empty() && plan.delete.is_empty() && plan.update.len() == 1,
        "{plan}"
    );

    let looked = Arc::new(AtomicU32::new(0));
    for at in 1.. {
        let lab = renamed().await;
        lab.faults.arm(at, Disturbance::Meddle);
        let (client, seen) = (lab.clone(), Arc::clone(&looked));
        lab.faults.meddle(Box::pin(async move {
            assert!(
                row_view(&client).await.is_some(),
                "before operation {at} the row is missing"
            );
            seen.fetch_add(1, Ordering::SeqCst);
        }));
        lab.deliver(&sync(), 1).await.unwrap().unwrap();
        let operations = lab.faults.counted();
        lab.faults.calm();
        assert_eq!(row_view(&lab).await.as_deref(), Some("new_name"));
        plan_is_empty(&lab, "b1", "renamed").await;
        if at >= operations {
            break;
        }
    }
    assert!(
        looked.load(Ordering::SeqCst) >= 4,
        "some lookup must happen in between"
    );
}

#[tokio::test]
async fn a_rename_that_is_disturbed_converges() {
    let lab = renamed().await;
    let operations = lab.operations_of(&sync()).await;
    let mut sweep = Sweep::over(operations);
    while let Some(case) = sweep.next() {
        let story = case.to_string();
        let lab = renamed().await;
        case.arm(&lab.faults);
        lab.deliver_until_done(&sync()).await.expect(&story);
        sweep.seen(&lab);
        lab.faults.calm();
        lab.finish().await;
        assert_eq!(row_view(&lab).await.as_deref(), Some("new_name"), "{story}");
        plan_is_empty(&lab, "b1", &story).await;
        lab.work(&job(
            &json!({"op": "delete", "table": "Bookings", "pk": "r1", "rk": "b1"}),
        ))
        .await
        .unwrap();
        lab.finish().await;
        assert_eq!(
            row_view(&lab).await,
            None,
            "{story}: the row must be deleted with its booking"
        );
    }
}

/// Keys that contain an escaped slash, or a percent sign in several spellings.
const SIGNED: [&str; 4] = ["R%2FD", "A%", "A%25", "R%252FD"];
const STAFF: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.department_name]
kind = "denormalize"
targets = "range"
source = "Departments"
table = "Staff"
partition_key = "{PartitionKey}"
set = { DepartmentName = "{Name}" }

[views.department_manager]
kind = "denormalize"
source = "Staff"
when = "IsManager == true"
table = "Departments"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}" }
on_conflict = "reject"

[views.mentor]
kind = "denormalize"
source = "Staff"
table = "Mentors"
partition_key = "{MentorKey}"
row_key = "mentor"
set = { MentorOf = "{LastName}" }
on_conflict = "reject"
"#;

#[tokio::test]
async fn properties_lie_on_the_entity_with_the_very_key_whatever_signs_are_in_it() {
    let lab = Lab::with(SMALL, declared(STAFF));
    for (name, rk) in [("Departments", "department"), ("Mentors", "mentor")] {
        drop(lab.account.tables.create_table(&table(name)).await);
        for pk in SIGNED {
            let entity = Entity::new(EntityKey::new(pk, rk).unwrap()).with("Name", pk);
            lab.account
                .tables
                .apply(&table(name), &TableOperation::Insert(entity))
                .await
                .unwrap();
        }
    }
    let sync = |name: &str, pk: &str, rk: &str| {
        job(&json!({"op": "sync", "table": name, "pk": pk, "rk": rk}))
    };
    for pk in SIGNED {
        let entity = json!({"PartitionKey": pk, "RowKey": "7", "LastName": format!("of {pk}"), "IsManager": true, "MentorKey": pk});
        lab.work(&job(
            &json!({"op": "put", "table": "Staff", "entity": entity}),
        ))
        .await
        .unwrap();
        lab.work(&sync("Departments", pk, "department"))
            .await
            .unwrap();
    }
    lab.do_queued().await;
    for pk in SIGNED {
        let of = |row: Option<evenkeel_model::Row>, name: &str| {
            row.and_then(|row| row.entity.text(name).map(str::to_owned))
        };
        let manager = of(
            lab.read("Departments", pk, "department").await,
            "ManagerName",
        );
        let mentor = of(lab.read("Mentors", pk, "mentor").await, "MentorOf");
        assert_eq!(
            (manager, mentor),
            (Some(format!("of {pk}")), Some(format!("of {pk}"))),
            "{pk}"
        );
        assert_eq!(
            of(lab.read("Staff", pk, "7").await, "DepartmentName").as_deref(),
            Some(pk)
        );
        for (name, rk) in [("Staff", "7"), ("Departments", "department")] {
            let plan = lab
                .engine
                .plan(&Primary {
                    table: table(name),
                    key: EntityKey::new(pk, rk).unwrap(),
                })
                .await
                .unwrap();
            assert!(plan.in_step, "{name} {pk}: {plan}");
        }
    }
    lab.work(&job(
        &json!({"op": "delete", "table": "Staff", "pk": "A%", "rk": "7"}),
    ))
    .await
    .unwrap();
    for pk in SIGNED {
        let department = lab
            .read("Departments", pk, "department")
            .await
            .unwrap()
            .entity;
        assert_eq!(department.text("ManagerName").is_some(), pk != "A%", "{pk}");
    }
}

const PERCENT: [(&str, &str, &str); 4] = [
    ("Departments", "A%", "department"),
    ("Departments", "A%25", "department"),
    ("Staff", "A%", "7"),
    ("Staff", "A%25", "8"),
];

/// Data that another version of the program has written with other keys for the same views, as after a change of time
/// zone rules. The items of `A%` are where the items of `A%25` should be.
async fn escaped() -> Lab {
    let lab = Lab::with(
        SMALL,
        declared(&STAFF.replace("\"{PartitionKey}\"", "\"{PartitionKey}25\"")),
    );
    for name in ["Departments", "Mentors"] {
        drop(lab.account.tables.create_table(&table(name)).await);
    }
    for (name, pk, rk) in PERCENT {
        if name == "Departments" {
            let entity = Entity::new(EntityKey::new(pk, rk).unwrap()).with("Name", pk);
            lab.account
                .tables
                .apply(&table(name), &TableOperation::Insert(entity))
                .await
                .unwrap();
        } else {
            let entity = json!({"PartitionKey": pk, "RowKey": rk, "LastName": "King", "IsManager": pk == "A%"});
            lab.work(&job(&json!({"op": "put", "table": name, "entity": entity})))
                .await
                .unwrap();
        }
    }
    lab.work(&job(
        &json!({"op": "sync", "table": "Departments", "pk": "A%", "rk": "department"}),
    ))
    .await
    .unwrap();
    lab.do_queued().await;
    let lab = lab.under(declared(STAFF));
    let catalog = lab.engine.catalog();
    for row in lab.rows(FOOTPRINTS).await {
        let source = if row.entity.key.pk.as_str().starts_with("Staff~") {
            "Staff"
        } else {
            "Departments"
        };
        let today = catalog.fingerprint(catalog.table(&table(source)).unwrap());
        merge(
            &lab,
            FOOTPRINTS,
            Entity::new(row.entity.key).with(FINGERPRINT, today),
        )
        .await;
    }
    lab
}

/// For each of these entities, the properties that another primary has set.
async fn told(lab: &Lab) -> Vec<Option<String>> {
    let mut told = Vec::new();
    for (name, pk, rk) in PERCENT {
        let property = if name == "Staff" {
            "DepartmentName"
        } else {
            "ManagerName"
        };
        told.push(
            lab.read(name, pk, rk)
                .await
                .unwrap()
                .entity
                .text(property)
                .map(str::to_owned),
        );
    }
    told
}

#[tokio::test]
async fn items_under_keys_of_other_rules_are_found_and_repaired() {
    let some = |text: &str| Some(text.to_owned());
    let thorough = |(name, pk, rk): (&str, &str, &str)| json!({"op": "sync", "table": name, "pk": pk, "rk": rk, "thorough": true});
    let repairs = [
        vec![
            json!({"op": "backfill", "table": "Departments"}),
            json!({"op": "backfill", "table": "Staff"}),
        ],
        vec![
            json!({"op": "audit", "table": "Departments", "repair": true}),
            json!({"op": "audit", "table": "Staff", "repair": true}),
        ],
        PERCENT.into_iter().map(thorough).collect(),
    ];
    for repair in repairs {
        let lab = escaped().await;
        assert_eq!(told(&lab).await, [None, some("King"), None, some("A%")]);
        for name in ["Departments", "Staff"] {
            lab.work(&job(&json!({"op": "audit", "table": name})))
                .await
                .unwrap();
        }
        let audits = lab.rows("EvenkeelAudits").await;
        for view in ["department_manager", "department_name"] {
            let audit = audits
                .iter()
                .find(|row| row.entity.key.rk.as_str() == view)
                .unwrap();
            assert!(
                matches!(audit.entity.get("Drift"), Some(EdmValue::Int64(1..))),
                "{view}: {audit:?}"
            );
        }
        for step in &repair {
            lab.work(&job(step)).await.unwrap();
        }
        lab.do_queued().await;
        lab.finish().await;
        assert_eq!(
            told(&lab).await,
            [some("King"), None, some("A%"), some("A%25")],
            "{repair:?}"
        );
        for (name, pk, rk) in PERCENT {
            let plan = lab
                .engine
                .plan(&Primary {
                    table: table(name),
                    key: EntityKey::new(pk, rk).unwrap(),
                })
                .await
                .unwrap();
            assert!(plan.in_step, "{repair:?}, {name} {pk}: {plan}");
        }
    }
}

const TOGETHER: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.department_manager]
kind = "denormalize"
source = "Company"
when = "IsManager == true"
table = "Company"
partition_key = "{PartitionKey}"
row_key = "department"
set = { ManagerName = "{LastName}" }
on_conflict = "reject"
"#;

#[tokio::test]
async fn a_put_commits_with_what_it_sets_in_its_partition_whatever_signs_are_in_its_key() {
    let lab = Lab::with(SMALL, declared(TOGETHER));
    let mut transactions = Vec::new();
    for pk in ["Sales", "R%2FD"] {
        let department = Entity::new(EntityKey::new(pk, "department").unwrap());
        lab.account
            .tables
            .apply(&table("Company"), &TableOperation::Insert(department))
            .await
            .unwrap();
        let before = lab.faults.total("Entity Group Transaction");
        let entity =
            json!({"PartitionKey": pk, "RowKey": "7", "LastName": "King", "IsManager": true});
        lab.work(&job(
            &json!({"op": "put", "table": "Company", "entity": entity}),
        ))
        .await
        .unwrap();
        transactions.push(lab.faults.total("Entity Group Transaction") - before);
        let department = lab.read("Company", pk, "department").await.unwrap().entity;
        assert_eq!(department.text("ManagerName"), Some("King"), "{pk}");
    }
    assert!(
        transactions[0] > 0 && transactions[0] == transactions[1],
        "{transactions:?}"
    );
}
