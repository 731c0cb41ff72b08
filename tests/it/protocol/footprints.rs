//! Footprints near their limits: a primary can change from any valid state to any other, although the footprint may be
//! too small for the items of both states.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use evenkeel_engine::Outcome;
use evenkeel_engine::footprint::{FOOTPRINTS, Settled};
use evenkeel_model::{ContainerName, Entity, EntityKey, Job, odata};
use evenkeel_storage::TableOperation;
use serde_json::json;

use crate::protocol::world::{Disturbance, Lab, SMALL, declared, employee, job, sync, table};

const ACCOUNT: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"
"#;
const VALUES: &str = r#"
[tables.Surveys]
wide = true

[views.values]
kind = "large_entity"
source = "Surveys"
container = "large"
threshold = "16B"
properties = [PROPERTIES]
"#;
/// More than half of the maximum number of items of a footprint.
const MANY: usize = 600;
/// Number of views with items of about 2 KiB each. A footprint has room for the items of one state, but not of two.
const VIEWS: usize = 300;

async fn lab(views: &str) -> Lab {
    let catalog = declared(&format!("{ACCOUNT}{views}"));
    let lab = Lab::with(SMALL, catalog);
    lab.account
        .blobs
        .create_container(&ContainerName::new("large").unwrap())
        .await
        .unwrap();
    lab
}

fn put(entity: &Entity) -> Job {
    job(&json!({"op": "put", "table": "Surveys", "entity": odata::encode(entity)}))
}

fn survey() -> Entity {
    Entity::new(EntityKey::new("p", "1").unwrap())
}

#[tokio::test]
async fn an_entity_exchanges_more_than_half_of_the_items_that_it_may_have() {
    let properties: Vec<String> = (0..=1_000).map(|n| format!("\"Q{n}\"")).collect();
    let lab = lab(&VALUES.replace("PROPERTIES", &properties.join(", "))).await;
    let of = |name: &str| {
        (0..MANY).fold(survey(), |entity, n| {
            entity.with(format!("Q{n}"), format!("{name} answer to question {n}"))
        })
    };
    for name in ["the first", "the second", "the first"] {
        lab.work(&put(&of(name))).await.unwrap();
        let blobs = lab
            .account
            .blobs
            .list(&ContainerName::new("large").unwrap(), "", None)
            .await
            .unwrap();
        assert_eq!(blobs.blobs.len(), MANY, "{name}");
    }
    let many = (0..=1_000).fold(survey(), |entity, n| {
        entity.with(format!("Q{n}"), format!("another answer to question {n}"))
    });
    let refused = lab.work(&put(&many)).await.unwrap_err().chain();
    assert!(
        refused.contains("too many items: 1001, at most 1,000"),
        "{refused}"
    );
}

fn views(count: usize) -> String {
    (0..count).fold("[tables.Surveys]\n".to_owned(), |mut text, n| {
        let keys = format!("partition_key = \"{{Name}}{n}\"\nrow_key = \"{{Name}}_{{PartitionKey}}_{{RowKey}}\"");
        write!(text, "[views.view_{n}]\nkind = \"secondary_index\"\nsource = \"Surveys\"\ntable = \"ByName\"\n{keys}\nselect = []\n")
            .unwrap();
        text
    })
}

fn named(name: &str) -> Entity {
    survey().with("Name", name.repeat(500 / name.len()))
}

async fn names(lab: &Lab) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut query = evenkeel_storage::Query::default();
    let mut rows = 0;
    loop {
        let page = lab
            .account
            .tables
            .query(&table("ByName"), &query)
            .await
            .unwrap();
        rows += page.rows.len();
        names.extend(
            page.rows
                .iter()
                .map(|row| row.entity.key.rk.as_str()[..3].to_owned()),
        );
        query.continuation = page.continuation;
        if query.continuation.is_none() {
            break;
        }
    }
    assert_eq!(rows, VIEWS);
    names
}

#[tokio::test]
async fn a_primary_exchanges_items_that_its_footprint_does_not_hold_together() {
    let lab = lab(&views(VIEWS)).await;
    let sync = job(&json!({"op": "sync", "table": "Surveys", "pk": "p", "rk": "1"}));
    let only = |name: &str| BTreeSet::from([name[..3].to_owned()]);
    lab.work(&put(&named("Ada"))).await.unwrap();
    assert_eq!(names(&lab).await, only("Ada"));
    lab.account
        .tables
        .apply(
            &table("Surveys"),
            &TableOperation::InsertOrReplace(named("Bea")),
        )
        .await
        .unwrap();
    lab.work(&sync).await.unwrap();
    assert_eq!(names(&lab).await, only("Bea"));
    lab.work(&put(&named("Cleo"))).await.unwrap();
    assert_eq!(names(&lab).await, only("Cleo"));
}

#[tokio::test]
async fn an_exchange_in_parts_that_stops_is_carried_on() {
    let sync = job(&json!({"op": "sync", "table": "Surveys", "pk": "p", "rk": "1"}));
    // Operation 3 announces the new items, operations 5 and 150 delete the old ones, and operations 310 and 500 are
    // before and within the writes of the new ones.
    for at in [3, 5, 150, 310, 500] {
        let lab = lab(&views(VIEWS)).await;
        lab.work(&put(&named("Ada"))).await.unwrap();
        lab.faults.arm(at, Disturbance::Crash);
        lab.deliver_until_done(&put(&named("Bea"))).await;
        lab.faults.calm();
        lab.finish().await;
        lab.work(&sync).await.unwrap();
        assert_eq!(
            names(&lab).await,
            BTreeSet::from(["Bea".to_owned()]),
            "stopped at operation {at}"
        );
    }
}

#[tokio::test]
async fn a_primary_that_is_gone_is_found_by_its_footprint_whatever_its_partition_key() {
    // The second key looks like a hash. The third key is so long that the footprint contains a hash of it.
    for pk in ["p".to_owned(), "0f".repeat(32), "x".repeat(505)] {
        let lab = lab(&views(2)).await;
        lab.work(&put(&Entity::new(
            EntityKey::new(pk.as_str(), "1").unwrap(),
        )
        .with("Name", "A")))
            .await
            .unwrap();
        assert_eq!(lab.rows("ByName").await.len(), 2, "{pk}");
        lab.delete_row("Surveys", &pk, "1").await;
        lab.work(&job(&json!({"op": "backfill", "table": "Surveys"})))
            .await
            .unwrap();
        assert_eq!(lab.rows("ByName").await, [], "{pk}");
    }
}

/// A client deletes the entity before the message is delivered again, so the sweep does not find the entity in the
/// table.
#[tokio::test]
async fn what_a_stopped_sweep_has_left_is_found_by_its_footprint_whatever_its_partition_key() {
    const ARCHIVE: &str = r#"
[archives.former]
source = "Surveys"
to = { kind = "table", table = "FormerSurveys" }

[views.former_by_name]
kind = "secondary_index"
source = "FormerSurveys"
table = "FormerByName"
partition_key = "former_{Name}"
row_key = "{PartitionKey}_{RowKey}"
select = []
"#;
    let delete = json!({"op": "delete_where", "table": "Surveys", "when": "Name == \"A\""});
    let archive = json!({"op": "archive_where", "archive": "former", "when": "Name == \"A\""});
    for (message, pk) in [
        (&delete, "0f".repeat(32)),
        (&delete, "x".repeat(505)),
        (&archive, "0f".repeat(32)),
        (&archive, "x".repeat(505)),
    ] {
        let sweep = job(message);
        let (mut at, mut left) = (1, 0);
        loop {
            let lab = lab(&format!("{}{ARCHIVE}", views(2))).await;
            let count = async |name: &str| lab.rows(name).await.len();
            lab.work(&put(&Entity::new(
                EntityKey::new(pk.as_str(), "1").unwrap(),
            )
            .with("Name", "A")))
                .await
                .unwrap();
            lab.faults.arm(at, Disturbance::Crash);
            let ended = lab.deliver(&sweep, 1).await;
            lab.faults.calm();
            lab.delete_row("Surveys", &pk, "1").await;
            let copies = count("FormerSurveys")
                .await
                .abs_diff(count("FormerByName").await);
            left += if *message == archive {
                copies
            } else {
                count("ByName").await
            };
            let story = format!("{message} of {pk} stopped at operation {at}");
            let again = lab.deliver(&sweep, 2).await;
            assert!(
                matches!(again, Some(Ok(Outcome::Done(_)))),
                "{story}: {again:?}"
            );
            lab.finish().await;
            assert_eq!(lab.rows("ByName").await, [], "{story}");
            assert_eq!(
                count("FormerSurveys").await,
                count("FormerByName").await,
                "{story}"
            );
            if ended.is_some() {
                break;
            }
            at += 1;
        }
        assert!(left > 0, "{message} of {pk} left nothing");
    }
}

/// A character of these keys has three bytes in JSON, but one UTF-16 unit. As JSON, the items of two states are larger
/// than an entity may be, but by Azure's count they are not.
#[tokio::test]
async fn a_primary_exchanges_items_whose_keys_are_hangul() {
    let lab = lab(&views(VIEWS)).await;
    let of = |name: &str| put(&survey().with("Name", name.repeat(330)));
    for name in ["가", "나"] {
        lab.work(&of(name)).await.unwrap();
        assert_eq!(names(&lab).await, BTreeSet::from([name.to_owned()]));
    }
}

/// Without their ETags the items of this state fit into the footprint. With their ETags they do not fit.
#[tokio::test]
async fn a_state_whose_footprint_could_be_announced_and_not_closed_is_refused_before_anything_is_written()
 {
    const MANY_VIEWS: usize = 487;
    let lab = lab(&views(MANY_VIEWS)).await;
    let refused = lab
        .work(&put(&survey().with("Name", "x".repeat(500))))
        .await
        .unwrap_err()
        .chain();
    assert!(refused.contains("is too large: 487 items"), "{refused}");
    for name in ["Surveys", "ByName", FOOTPRINTS] {
        assert_eq!(lab.rows(name).await, [], "{name}: something was written");
    }
    for name in ["y".repeat(400), "z".repeat(400)] {
        lab.work(&put(&survey().with("Name", name))).await.unwrap();
    }
    lab.work(&job(
        &json!({"op": "delete", "table": "Surveys", "pk": "p", "rk": "1"}),
    ))
    .await
    .unwrap();
    assert_eq!(lab.rows("ByName").await, []);
}

/// An entity was deleted and is back. A pass stops after it has announced copies of the entity. Then a client deletes
/// the entity again, and a reader asks whether the entity is settled. A copy of the stopped pass may exist.
#[tokio::test]
async fn a_tombstone_is_no_answer_to_a_reader_once_a_pass_has_announced_copies_of_an_entity_that_is_back()
 {
    let copies = async |lab: &Lab| lab.rows("ByEmail").await.len();
    let (mut at, mut left) = (1, 0);
    loop {
        let lab = Lab::of(SMALL);
        for there in [true, false, true] {
            if there {
                lab.write(employee("1", "ada@contoso.com", "King")).await;
            } else {
                lab.remove("Sales", "1").await;
            }
            if !there || lab.rows(FOOTPRINTS).await.is_empty() {
                lab.work(&sync("Sales", "1")).await.unwrap();
            }
        }
        lab.faults.arm(at, Disturbance::Crash);
        let ended = lab.deliver(&sync("Sales", "1"), 1).await;
        lab.faults.calm();
        lab.remove("Sales", "1").await;
        if copies(&lab).await > 0 {
            left += 1;
            let footprint = lab.rows(FOOTPRINTS).await.remove(0).entity;
            assert_ne!(
                Settled::read(&footprint),
                Ok((Settled::Absent, false)),
                "stopped at operation {at}"
            );
        }
        if ended.is_some() {
            break;
        }
        at += 1;
    }
    assert!(left > 1, "copies were left {left} times");
}

/// The worker never reads items of views that only a newer catalog declares, so these items cause no further rechecks.
#[tokio::test]
async fn an_unsigned_footprint_with_items_of_a_newer_catalog_is_closed() {
    let index = |view: &str, table: &str| {
        format!(
            "[views.{view}]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"{table}\"\npartition_key = \"all\"\nrow_key = \"{{RowKey}}\"\n"
        )
    };
    let account = "[accounts.main]\nkind = \"embedded\"\npath = \"unused.db\"\n";
    let older = format!("{account}{}", index("cards", "Cards"));
    let newer = format!("{older}{}", index("desks", "Desks"));
    let lab = Lab::with(SMALL, declared(&newer));
    lab.write(employee("1", "ada@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    let footprint = lab.read(FOOTPRINTS, "Employees~Sales", "1").await.unwrap();
    let mut unsigned = footprint.entity;
    assert!(unsigned.properties.remove("Signature").is_some());
    lab.account
        .tables
        .apply(
            &table(FOOTPRINTS),
            &TableOperation::InsertOrReplace(unsigned),
        )
        .await
        .unwrap();
    lab.write(employee("1", "ada@contoso.com", "Byron")).await;
    let lab = lab.under(declared(&older));
    lab.work(&sync("Sales", "1")).await.unwrap();
    for (name, says) in [("Cards", "Byron"), ("Desks", "King")] {
        let row = lab.read(name, "all", "1").await.unwrap().entity;
        assert_eq!(row.text("LastName"), Some(says), "{name}");
    }
}
