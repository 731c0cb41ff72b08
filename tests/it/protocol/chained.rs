//! Views of views: a pass over a primary also reconciles the primaries that it derives, each in its own pass.

use std::collections::BTreeSet;

use evenkeel_engine::footprint::FOOTPRINTS;
use evenkeel_engine::{FailureClass, ItemChange};
use evenkeel_model::job::Primary;
use evenkeel_model::{Entity, EntityKey, Job, odata};
use evenkeel_storage::{IfMatch, TableOperation};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde_json::json;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, employee, job, sync, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.cards]
kind = "secondary_index"
source = "Employees"
table = "Cards"
partition_key = "cards"
row_key = "{RowKey}"

[views.cards_by_email]
kind = "secondary_index"
source = "Cards"
table = "CardsByEmail"
partition_key = "{Email}"
row_key = ""

[views.desks]
kind = "secondary_index"
source = "Employees"
table = "Desks"
partition_key = "desks"
row_key = "{RowKey}"

[views.desks_by_name]
kind = "secondary_index"
source = "Desks"
table = "DesksByName"
partition_key = "{LastName}"
row_key = "{RowKey}"
"#;

fn lab() -> Lab {
    Lab::with(SMALL, declared(CATALOG))
}

fn delete(rk: &str) -> Job {
    job(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": rk}))
}

async fn desk(lab: &Lab, rk: &str) -> Option<String> {
    let rows = lab.rows("DesksByName").await;
    rows.into_iter()
        .find(|row| row.entity.key.rk.as_str() == rk)
        .map(|row| row.entity.key.pk.to_string())
}

async fn holder(lab: &Lab, email: &str) -> Option<String> {
    let [_, _, rk]: [String; 3] = serde_json::from_str(
        lab.read("CardsByEmail", email, "")
            .await?
            .entity
            .text("ek_source")?,
    )
    .unwrap();
    Some(rk)
}

async fn in_step(lab: &Lab, name: &str, pk: &str, rk: &str) -> bool {
    let primary = Primary {
        table: table(name),
        key: EntityKey::new(pk, rk).unwrap(),
    };
    lab.engine.plan(&primary).await.unwrap().in_step
}

async fn refused(lab: &Lab, job: &Job) {
    let failure = lab.work(job).await.unwrap_err();
    assert!(
        failure.class == FailureClass::Permanent && failure.chain().contains("CardsByEmail"),
        "{}",
        failure.chain()
    );
}

#[tokio::test]
async fn a_derived_primary_that_cannot_be_brought_in_step_stops_no_other() {
    let lab = lab();
    lab.write(employee("1", "info@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab.write(employee("2", "info@contoso.com", "Byron")).await;
    for _ in 0..2 {
        refused(&lab, &sync("Sales", "2")).await;
        assert_eq!(desk(&lab, "2").await.as_deref(), Some("Byron"));
        assert!(
            in_step(&lab, "Desks", "desks", "2").await
                && !in_step(&lab, "Employees", "Sales", "2").await
        );
    }
    lab.write(employee("2", "info@contoso.com", "Gordon")).await;
    refused(&lab, &sync("Sales", "2")).await;
    assert_eq!(desk(&lab, "2").await.as_deref(), Some("Gordon"));

    // When the holder gives up the key, the primaries that wait for the key are synced.
    lab.write(employee("1", "ada@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab.do_queued().await;
    assert_eq!(
        (
            holder(&lab, "info@contoso.com").await.as_deref(),
            holder(&lab, "ada@contoso.com").await.as_deref()
        ),
        (Some("2"), Some("1"))
    );
    assert!(!in_step(&lab, "Employees", "Sales", "2").await);
    lab.work(&job(
        &json!({"op": "audit", "table": "Employees", "repair": true}),
    ))
    .await
    .unwrap();
    assert!(
        in_step(&lab, "Employees", "Sales", "2").await
            && in_step(&lab, "Cards", "cards", "2").await
    );
    for rk in ["1", "2"] {
        lab.work(&delete(rk)).await.unwrap();
    }
    lab.finish().await;
    for name in [
        "Cards",
        "CardsByEmail",
        "Desks",
        "DesksByName",
        "EvenkeelFootprints",
    ] {
        assert!(lab.rows(name).await.is_empty(), "{name} is not empty");
    }
}

/// A primary can take the key at once when the derived row of the former holder already has another key. It does not wait for the holder's job to
/// end.
#[tokio::test]
async fn a_key_that_a_derived_primary_has_given_up_is_taken_by_another() {
    let prepared = async || {
        let lab = lab();
        lab.write(employee("1", "info@contoso.com", "King")).await;
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.write(employee("1", "ada@contoso.com", "King")).await;
        lab.write(employee("2", "info@contoso.com", "Byron")).await;
        lab
    };
    let mut taken = 0;
    for at in 1..=prepared().await.operations_of(&sync("Sales", "1")).await {
        let lab = prepared().await;
        lab.faults.arm(at, Disturbance::Crash);
        assert!(lab.deliver(&sync("Sales", "1"), 1).await.is_none());
        lab.faults.calm();
        let card = lab.read("Cards", "cards", "1").await.unwrap();
        if card.entity.text("Email") == Some("ada@contoso.com") {
            taken += 1;
            lab.work(&sync("Sales", "2"))
                .await
                .unwrap_or_else(|failure| panic!("stopped at operation {at}: {}", failure.chain()));
            assert_eq!(holder(&lab, "info@contoso.com").await.as_deref(), Some("2"));
        }
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.do_queued().await;
        lab.finish().await;
        assert!(
            in_step(&lab, "Cards", "cards", "1").await
                && in_step(&lab, "Cards", "cards", "2").await,
            "stopped at operation {at}"
        );
    }
    assert!(taken > 2, "the card must be ahead of its index in some run");
}

fn put(entity: &Entity) -> Job {
    job(&json!({"op": "put", "table": "Employees", "entity": odata::encode(entity)}))
}

async fn implied(lab: &Lab) -> BTreeSet<String> {
    let mut implied = BTreeSet::new();
    for row in lab.rows("Employees").await {
        let rk = row.entity.key.rk.as_str();
        let [email, name] = ["Email", "LastName"].map(|name| row.entity.text(name).unwrap());
        implied.extend([
            format!("Cards cards {rk} {email} {name}"),
            format!("CardsByEmail {email}  {email} {name}"),
            format!("Mail mail {email} {email} {name}"),
            format!("Desks desks {rk} {email} {name}"),
            format!("DesksByName {name} {rk} {email} {name}"),
            format!("{FOOTPRINTS} Employees~Sales {rk}"),
            format!("{FOOTPRINTS} Cards~cards {rk}"),
            format!("{FOOTPRINTS} CardsByEmail~{email} "),
            format!("{FOOTPRINTS} Desks~desks {rk}"),
        ]);
    }
    implied
}

async fn wrong(lab: &Lab) -> Option<String> {
    lab.faults.calm();
    lab.sim.settle();
    lab.do_queued().await;
    lab.finish().await;
    let mut there = BTreeSet::new();
    for name in ["Cards", "CardsByEmail", "Mail", "Desks", "DesksByName"] {
        for row in lab.rows(name).await {
            let EntityKey { pk, rk } = &row.entity.key;
            let says = ["Email", "LastName"].map(|name| row.entity.text(name).unwrap_or("?"));
            there.insert(format!("{name} {pk} {rk} {}", says.join(" ")));
        }
    }
    for row in lab.rows(FOOTPRINTS).await {
        let EntityKey { pk, rk } = &row.entity.key;
        there.insert(format!("{FOOTPRINTS} {pk} {rk}"));
    }
    let implied = implied(lab).await;
    if there != implied {
        return Some(format!(
            "missing: {:?}, unexpected: {:?}",
            implied.difference(&there).collect::<Vec<_>>(),
            there.difference(&implied).collect::<Vec<_>>()
        ));
    }
    for (name, pk, rk) in [
        ("Employees", "Sales", "1"),
        ("Cards", "cards", "1"),
        ("Desks", "desks", "1"),
        ("CardsByEmail", "info@contoso.com", ""),
        ("CardsByEmail", "ada@contoso.com", ""),
    ] {
        if !in_step(lab, name, pk, rk).await {
            return Some(format!("{name} {pk} {rk} is not settled"));
        }
    }
    None
}

/// A catalog with a chain of four tables: employees, their cards, the cards by e-mail address, and a view of the cards by e-mail address.
fn deep_lab() -> Lab {
    let mail = r#"
[views.mail]
kind = "secondary_index"
source = "CardsByEmail"
table = "Mail"
partition_key = "mail"
row_key = "{Email}"
"#;
    Lab::with(SMALL, declared(&format!("{CATALOG}{mail}")))
}

type Story = (&'static str, fn(Lab) -> BoxFuture<'static, Job>);

async fn synced(lab: &Lab) {
    lab.write(employee("1", "info@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
}

fn stories() -> [Story; 6] {
    [
        ("an employee was created, and is synced", |lab| {
            async move {
                lab.write(employee("1", "info@contoso.com", "King")).await;
                sync("Sales", "1")
            }
            .boxed()
        }),
        ("an employee is put", |_| {
            async move { put(&employee("1", "info@contoso.com", "King")) }.boxed()
        }),
        (
            "an employee was given other names, and is synced",
            move |lab| {
                async move {
                    synced(&lab).await;
                    lab.write(employee("1", "ada@contoso.com", "Byron")).await;
                    sync("Sales", "1")
                }
                .boxed()
            },
        ),
        ("an employee is put with other names", |lab| {
            async move {
                synced(&lab).await;
                put(&employee("1", "ada@contoso.com", "Byron"))
            }
            .boxed()
        }),
        ("an employee is deleted", |lab| {
            async move {
                synced(&lab).await;
                delete("1")
            }
            .boxed()
        }),
        ("an employee was deleted, and is synced", |lab| {
            async move {
                synced(&lab).await;
                lab.remove("Sales", "1").await;
                sync("Sales", "1")
            }
            .boxed()
        }),
    ]
}

/// A pass closes its footprint after the passes over the primaries that it derives. So nothing is forgotten, whenever the worker stops.
#[tokio::test]
async fn whatever_fails_at_every_operation_of_a_chain_it_is_in_step() {
    let mut runs = 0_u32;
    for (story, prepare) in stories() {
        let lab = deep_lab();
        let job = prepare(lab.clone()).await;
        let mut sweep = Sweep::over(lab.operations_of(&job).await);
        assert_eq!(wrong(&lab).await, None, "{story}");
        while let Some(case) = sweep.next() {
            let lab = deep_lab();
            let job = prepare(lab.clone()).await;
            case.arm(&lab.faults);
            assert!(
                lab.deliver_until_done(&job).await.is_some(),
                "{story}, {case}: poisoned"
            );
            sweep.seen(&lab);
            assert_eq!(wrong(&lab).await, None, "{story}, {case}");
        }
        runs += sweep.runs().0;
    }
    assert!(
        runs > 500,
        "only {runs} runs: the sweep must run all stories"
    );
}

/// One derived primary fails permanently. All other primaries follow as if undisturbed, and the next pass includes the failed one again.
#[tokio::test]
async fn a_derived_primary_that_fails_for_good_stops_no_other_whatever_fails_at_every_operation() {
    let prepared = async || {
        let lab = lab();
        lab.write(employee("1", "info@contoso.com", "King")).await;
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.write(employee("2", "info@contoso.com", "Byron")).await;
        lab
    };
    let lab = prepared().await;
    lab.faults.arm(u64::MAX, Disturbance::Crash);
    refused(&lab, &sync("Sales", "2")).await;
    let mut sweep = Sweep::over(lab.faults.counted());
    while let Some(case) = sweep.next() {
        let lab = prepared().await;
        case.arm(&lab.faults);
        lab.deliver_until_done(&sync("Sales", "2")).await;
        sweep.seen(&lab);
        lab.faults.calm();
        lab.finish().await;
        assert_eq!(
            (
                desk(&lab, "2").await.as_deref(),
                holder(&lab, "info@contoso.com").await.as_deref()
            ),
            (Some("Byron"), Some("1")),
            "{case}"
        );
        assert!(!in_step(&lab, "Employees", "Sales", "2").await, "{case}");
        lab.write(employee("1", "ada@contoso.com", "King")).await;
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.do_queued().await;
        assert_eq!(
            holder(&lab, "info@contoso.com").await.as_deref(),
            Some("2"),
            "{case}"
        );
        lab.work(&sync("Sales", "2")).await.unwrap();
        assert!(
            in_step(&lab, "Employees", "Sales", "2").await
                && in_step(&lab, "Cards", "cards", "2").await,
            "{case}"
        );
    }
    assert!(sweep.runs().0 > 100, "only {} runs", sweep.runs().0);
}

/// Sets the list of items in the footprint of a card, to make the footprint unreadable or readable again. Returns the former list.
async fn card_lists(lab: &Lab, rk: &str, items: &str) -> String {
    let before = lab.read(FOOTPRINTS, "Cards~cards", rk).await.unwrap();
    let key = before.entity.key.clone();
    let operation = TableOperation::Merge(Entity::new(key).with("Items", items), IfMatch::Any);
    lab.account
        .tables
        .apply(&table(FOOTPRINTS), &operation)
        .await
        .unwrap();
    before.entity.text("Items").unwrap().to_owned()
}

async fn unreadable(lab: &Lab, job: &Job) {
    let failure = lab.work(job).await.unwrap_err();
    assert!(
        failure.class == FailureClass::Permanent && failure.chain().contains("cannot be read"),
        "{}",
        failure.chain()
    );
}

#[tokio::test]
async fn a_primary_that_is_gone_leaves_no_tombstone_while_what_follows_fails() {
    let lab = lab();
    lab.write(employee("2", "info@contoso.com", "King")).await;
    lab.work(&sync("Sales", "2")).await.unwrap();
    let listed = card_lists(&lab, "2", "?").await;
    lab.remove("Sales", "2").await;
    for _ in 0..2 {
        unreadable(&lab, &sync("Sales", "2")).await;
        lab.finish().await;
        let footprint = lab.read(FOOTPRINTS, "Employees~Sales", "2").await.unwrap();
        assert_eq!(footprint.entity.text("Settled"), None, "{footprint:?}");
        assert_eq!(desk(&lab, "2").await, None);
        assert!(holder(&lab, "info@contoso.com").await.is_some());
    }
    card_lists(&lab, "2", &listed).await;
    lab.work(&sync("Sales", "2")).await.unwrap();
    lab.finish().await;
    assert_eq!(holder(&lab, "info@contoso.com").await, None);
    assert!(lab.rows(FOOTPRINTS).await.is_empty());
}

/// If the card is synced alone, its pass asks the holder a second time, because a late insert might have restored the
/// holder's row.
#[tokio::test]
async fn a_pass_that_follows_another_asks_the_holder_of_a_key_once() {
    let card = job(&json!({"op": "sync", "table": "Cards", "pk": "cards", "rk": "2"}));
    for (asks, job, asked) in [("nested", sync("Sales", "2"), 1), ("alone", card, 2)] {
        let lab = lab();
        lab.write(employee("1", "info@contoso.com", "King")).await;
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.write(employee("2", "ada@contoso.com", "Byron")).await;
        lab.work(&sync("Sales", "2")).await.unwrap();
        lab.delete_row("Cards", "cards", "1").await;
        card_lists(&lab, "1", "?").await;
        lab.write(employee("2", "info@contoso.com", "Byron")).await;
        if asks == "alone" {
            let mut written = lab.read("Cards", "cards", "2").await.unwrap().entity;
            written = written.with("Email", "info@contoso.com");
            lab.account
                .tables
                .apply(&table("Cards"), &TableOperation::InsertOrReplace(written))
                .await
                .unwrap();
        }
        let reads = || lab.faults.reads_of(FOOTPRINTS, "Cards~cards", "1");
        let before = reads();
        refused(&lab, &job).await;
        // One more read adds the primary to the contenders for the key.
        assert_eq!(reads() - before, asked + 1, "{asks}");
    }
}

const DIAMOND: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.badges]
kind = "secondary_index"
source = "Employees"
table = "Badges"
partition_key = "badges"
row_key = "{RowKey}"

[views.cards]
kind = "secondary_index"
source = "Employees"
table = "Cards"
partition_key = "cards"
row_key = "{RowKey}"

[views.badge_of_room]
kind = "denormalize"
source = "Badges"
table = "Rooms"
partition_key = "rooms"
row_key = "{FirstName}"
set = { OnBadge = "{LastName}" }
on_conflict = "reject"

[views.card_of_room]
kind = "denormalize"
source = "Cards"
table = "Rooms"
partition_key = "rooms"
row_key = "{FirstName}"
set = { OnCard = "{LastName}" }
on_conflict = "reject"

[views.doors]
kind = "secondary_index"
source = "Rooms"
table = "Doors"
partition_key = "doors"
row_key = "{RowKey}"
"#;

#[tokio::test]
async fn what_two_derived_primaries_have_written_on_is_followed_after_each() {
    let lab = Lab::with(SMALL, declared(DIAMOND));
    let room = Entity::new(EntityKey::new("rooms", "Ada").unwrap());
    lab.account
        .tables
        .apply(&table("Rooms"), &TableOperation::Insert(room))
        .await
        .unwrap();
    for name in ["King", "Byron"] {
        lab.write(employee("1", "info@contoso.com", name)).await;
        lab.work(&sync("Sales", "1")).await.unwrap();
        let door = lab.read("Doors", "doors", "Ada").await.unwrap().entity;
        assert_eq!(
            (door.text("OnBadge"), door.text("OnCard")),
            (Some(name), Some(name))
        );
    }
}

#[tokio::test]
async fn changes_by_the_passes_that_follow_are_told_of() {
    let views = |changes: &[ItemChange]| -> BTreeSet<String> {
        let views = changes.iter().map(|change| change.view.to_string());
        views.collect()
    };
    let every = ["cards", "cards_by_email", "desks", "desks_by_name"];
    let every = BTreeSet::from(every.map(str::to_owned));
    let lab = lab();
    lab.write(employee("1", "info@contoso.com", "King")).await;
    let (ended, untold) = lab.work_untold(&sync("Sales", "1")).await;
    let outcome = ended.unwrap();
    assert_eq!(views(&outcome.summary().changes), every);
    assert_eq!(
        (outcome.summary().changed(), outcome.summary().others),
        (4, 2)
    );
    assert!(untold.is_empty(), "each must be reported once");

    lab.write(employee("2", "info@contoso.com", "Byron")).await;
    let (ended, untold) = lab.work_untold(&sync("Sales", "2")).await;
    assert!(ended.is_err());
    let made = ["cards", "desks", "desks_by_name"];
    assert_eq!(
        (views(&untold), untold.len()),
        (BTreeSet::from(made.map(str::to_owned)), 3)
    );
}
