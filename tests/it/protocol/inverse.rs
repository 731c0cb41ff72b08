//! An operation and its inverse accept the same entities. Whatever a table can store is archived and restored
//! unchanged, or the job is refused and nothing has changed. The properties that evenkeel adds must not make a legal
//! entity illegal.

use std::time::Duration;

use evenkeel_engine::{Failure, FailureClass, Outcome};
use evenkeel_model::job::Primary;
use evenkeel_model::{
    ContainerName, EdmDateTime, EdmValue, Entity, EntityKey, Job, document, limits, odata,
};
use evenkeel_storage::TableOperation;
use evenkeel_storage::wide;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::protocol::encryption;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job, table};

/// Orders have no derived items. Parts have derived items in their own partition and in another table.
const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Orders]

[tables.Elsewhere]

[tables.Surveys]
wide = true

[archives.orders_as_rows]
source = "Orders"
to = { kind = "table", table = "FormerOrders" }

[archives.orders_as_blobs]
source = "Orders"
to = { kind = "blob", container = "orders" }

[archives.orders_as_files]
source = "Orders"
to = { kind = "file", dir = "/mnt/orders" }

[archives.parts_as_blobs]
source = "Parts"
to = { kind = "blob", container = "parts" }

[archives.surveys_as_blobs]
source = "Surveys"
to = { kind = "blob", container = "surveys" }

[views.near]
kind = "secondary_index"
source = "Parts"
table = "Parts"
partition_key = "{PartitionKey}"
row_key = "made_{Made}_{RowKey|hash:16}"
select = []

[views.far]
kind = "secondary_index"
source = "Parts"
table = "PartsByMaker"
partition_key = "{Made}"
row_key = "{PartitionKey|hash:16}_{RowKey|hash:16}"
select = []
"#;

/// Each archive, its source, and whether it accepts every legal entity.
const ARCHIVES: [(&str, &str, bool); 5] = [
    ("orders_as_blobs", "Orders", true),
    ("orders_as_files", "Orders", true),
    ("parts_as_blobs", "Parts", true),
    ("surveys_as_blobs", "Surveys", true),
    // An archived row needs additional room for the properties that evenkeel adds.
    ("orders_as_rows", "Orders", false),
];

async fn lab() -> Lab {
    let lab = Lab::with(SMALL, declared(CATALOG));
    for container in ["orders", "parts", "surveys"] {
        lab.account
            .blobs
            .create_container(&ContainerName::new(container).unwrap())
            .await
            .unwrap();
    }
    lab
}

fn entity() -> Entity {
    Entity::new(EntityKey::new("p", "r").unwrap())
}

fn many(count: usize) -> Entity {
    (0..count).fold(entity(), |entity, i| entity.with(format!("P{i:03}"), true))
}

/// An entity that is `below` bytes smaller than the maximum. A value of `unit` elements takes `per` bytes per element.
fn large(
    properties: usize,
    below: usize,
    value: fn(usize) -> EdmValue,
    (per, unit): (usize, usize),
) -> Entity {
    let empty = (0..properties).fold(entity(), |entity, i| {
        entity.with(format!("P{i:03}"), value(0))
    });
    let mut left = (limits::ENTITY_BYTES - below - empty.size()) * unit / per;
    let lengths = (0..properties).map(|_| {
        let length = left.min(32_001);
        left -= length;
        length - length % unit
    });
    lengths.enumerate().fold(empty, |entity, (i, length)| {
        entity.with(format!("P{i:03}"), value(length))
    })
}

fn of_texts(properties: usize, below: usize) -> Entity {
    large(properties, below, text, (2, 1))
}

fn of_bytes(properties: usize, below: usize) -> Entity {
    large(properties, below, bytes, (4, 3))
}

fn text(length: usize) -> EdmValue {
    "x".repeat(length).into()
}

fn bytes(length: usize) -> EdmValue {
    EdmValue::Binary(vec![7; length])
}

fn at(pk: &str, rk: &str) -> Entity {
    Entity {
        key: EntityKey::new(pk, rk).unwrap(),
        ..entity().with("Made", "x")
    }
}

/// Entities of 1 MiB, or a little less.
fn large_ones() -> Vec<Entity> {
    let texts = [0, 250, 570, 700]
        .into_iter()
        .map(|below| of_texts(20, below));
    texts.chain([of_texts(252, 0), of_bytes(30, 0)]).collect()
}

fn small_ones() -> Vec<Entity> {
    let mut all: Vec<Entity> = [0, 1, 247, 248, 249, 250, 251, 252]
        .into_iter()
        .map(many)
        .collect();
    all.extend(
        [248, 251]
            .into_iter()
            .map(|count| many(count).with("Made", "x")),
    );
    all.push(entity().with("N".repeat(255), 1).with("_", 2).with("ek", 3));
    let scripts = ["Größe", "이름", "商品名"]
        .into_iter()
        .fold(entity().with("Ω".repeat(255), 1), |entity, name| {
            entity.with(name, name)
        });
    all.extend(Some(scripts).filter(|entity| entity.check().is_ok()));
    let texts = [
        "",
        "\u{1}\t\r\n\u{1f}\u{7f}\u{85}",
        "한 \u{10ffff} ' % ~ é",
        r#"{"$blob":"a/b","bytes":1,"sha256":"x"}"#,
    ];
    all.push(
        texts
            .into_iter()
            .enumerate()
            .fold(entity(), |entity, (i, text)| {
                entity.with(format!("T{i}"), text)
            }),
    );
    let moments = [
        "1601-01-01T00:00:00Z",
        "1969-12-31T23:59:59.9999999Z",
        "9999-12-31T23:59:59.9999999Z",
    ];
    let values = moments
        .map(|moment| EdmValue::DateTime(EdmDateTime::parse(moment).unwrap()))
        .into_iter();
    let values = values.chain(
        [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -0.0,
            5e-324,
            3.0,
        ]
        .map(EdmValue::Double),
    );
    let values = values
        .chain([i64::MIN, i64::MAX].map(EdmValue::Int64))
        .chain([EdmValue::Binary(Vec::new()), i32::MIN.into()]);
    all.push(values.enumerate().fold(entity(), |entity, (i, value)| {
        entity.with(format!("V{i}"), value)
    }));
    let long = ["x", "é", "😀"].map(|c| c.repeat(512 / c.encode_utf16().count()));
    all.extend(long.iter().map(|long| at(long, long)));
    all.extend(
        [
            ("", ""),
            ("", "r"),
            ("p", ""),
            (" . ", ".."),
            ("%25 '~1", "r~1"),
            ("p", "r.json"),
        ]
        .into_iter()
        .map(|(pk, rk)| at(pk, rk)),
    );
    all
}

fn any_value() -> impl Strategy<Value = EdmValue> {
    prop_oneof![
        "[^\u{0}\u{fffe}\u{ffff}]{0,20}".prop_map(EdmValue::String),
        (0..32_768_usize).prop_map(text),
        any::<bool>().prop_map(EdmValue::Bool),
        any::<i32>().prop_map(EdmValue::Int32),
        any::<i64>().prop_map(EdmValue::Int64),
        prop_oneof![any::<f64>(), Just(f64::NAN)].prop_map(EdmValue::Double),
        (504_911_232_000_000_000_i64..=3_155_378_975_999_999_999)
            .prop_map(|t| EdmValue::DateTime(EdmDateTime::from_ticks(t).unwrap())),
        any::<u128>().prop_map(|guid| EdmValue::Guid(uuid::Uuid::from_u128(guid))),
        proptest::collection::vec(any::<u8>(), 0..64).prop_map(EdmValue::Binary),
    ]
}

fn any_entity() -> impl Strategy<Value = Entity> {
    let key = || "[^/\\\\#?\\x00-\\x1f\\x7f-\\x9f\u{fffe}\u{ffff}]{0,12}";
    let properties =
        proptest::collection::btree_map("[A-Za-z_][A-Za-z0-9_]{0,20}", any_value(), 0..12);
    let made = proptest::option::of("[a-z]{1,3}");
    (
        key(),
        key(),
        properties,
        prop_oneof![Just(0_usize), 236..=252_usize],
        made,
    )
        .prop_map(|(pk, rk, properties, more, made)| {
            let mut entity = many(more);
            entity.key = EntityKey::new(pk, rk).unwrap();
            let room = limits::PROPERTIES.saturating_sub(more + 1);
            let is_own = |name: &str| {
                name.starts_with("ek_") || matches!(name, "PartitionKey" | "RowKey" | "Timestamp")
            };
            entity.properties.extend(
                properties
                    .into_iter()
                    .filter(|(name, _)| !is_own(name))
                    .take(room),
            );
            if more < limits::PROPERTIES {
                entity
                    .properties
                    .extend(made.map(|made| ("Made".to_owned(), made.into())));
            }
            entity
        })
        .prop_filter("illegal entity", |entity| entity.check().is_ok())
}

async fn found(lab: &Lab, name: &str, key: &EntityKey) -> Option<Entity> {
    let rows = wide::read(lab.account.tables.as_ref(), &table(name), key, false)
        .await
        .unwrap();
    rows.joined().map(|row| row.entity)
}

fn is(found: Option<&Entity>, expected: &Entity) -> bool {
    let own = |entity: &Entity| {
        entity
            .user_properties()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    found.is_some_and(|found| {
        found.key == expected.key && odata::same_properties(&own(found), &expected.properties)
    })
}

async fn is_in(lab: &Lab, name: &str, expected: &Entity) -> bool {
    is(found(lab, name, &expected.key).await.as_ref(), expected)
}

fn left(lab: &Lab) -> Vec<String> {
    let blobs = ["orders", "parts", "surveys"].into_iter().flat_map(|name| {
        let blobs = lab.sim.blobs(&ContainerName::new(name).unwrap());
        blobs
            .into_iter()
            .map(move |(blob, _)| format!("{name}/{blob}"))
    });
    blobs
        .chain(
            lab.sim
                .places()
                .into_iter()
                .map(|place| place.name.to_string()),
        )
        .collect()
}

fn of(op: &str, field: &str, name: &str, key: &EntityKey) -> Value {
    json!({"op": op, field: name, "pk": key.pk, "rk": key.rk})
}

/// Returns `false` if the job failed permanently.
async fn done(lab: &Lab, message: &Value) -> Result<bool, Failure> {
    match lab.work(&job(message)).await {
        Ok(Outcome::Done(_)) => Ok(true),
        Ok(skipped) => panic!("{message}: {skipped:?}"),
        Err(failure) if failure.class == FailureClass::Permanent => Ok(false),
        Err(failure) => Err(failure),
    }
}

async fn there_and_back(
    lab: &Lab,
    entity: &Entity,
    (archive, source, takes_all): (&str, &str, bool),
) {
    let written = lab
        .account
        .tables
        .apply(&table(source), &TableOperation::Insert(entity.clone()))
        .await;
    written.unwrap_or_else(|error| panic!("{}: {error:?}", told(entity)));
    let key = &entity.key;
    let story = format!("{archive}: {}", told(entity));
    drop(lab.work(&job(&of("sync", "table", source, key))).await);
    if done(lab, &of("archive", "archive", archive, key))
        .await
        .unwrap()
    {
        assert!(
            found(lab, source, key).await.is_none(),
            "{story}: the entity is in both places"
        );
        let back = lab
            .work(&job(&of("restore", "archive", archive, key)))
            .await;
        assert!(
            matches!(back, Ok(Outcome::Done(_))),
            "{story}: {}",
            back.unwrap_err().chain()
        );
    } else {
        assert!(!takes_all, "{story}: the job was refused");
        assert!(
            lab.sim.rows(&table("FormerOrders")).is_empty(),
            "{story}: a copy is left"
        );
    }
    assert!(
        is_in(lab, source, entity).await,
        "{story}: the entity has changed"
    );
    let primary = Primary {
        table: table(source),
        key: key.clone(),
    };
    assert!(lab.engine.plan(&primary).await.unwrap().in_step, "{story}");
    lab.work(&job(&of("delete", "table", source, key)))
        .await
        .unwrap();
    for name in [source, "FormerOrders"] {
        assert!(
            lab.sim.rows(&table(name)).is_empty(),
            "{story}: something is left in {name}"
        );
    }
    assert!(left(lab).is_empty(), "{story}");
}

fn told(entity: &Entity) -> String {
    let names: Vec<&String> = entity.properties.keys().take(5).collect();
    format!(
        "{} of {} properties: {names:?}…",
        entity.key,
        entity.properties.len()
    )
}

/// In a wide table, `~` in a row key marks the further rows of an entity.
fn is_legal_in(source: &str, entity: &Entity) -> bool {
    source != "Surveys" || !entity.key.rk.as_str().contains('~')
}

#[tokio::test]
async fn an_entity_at_a_limit_is_archived_and_restored() {
    let lab = lab().await;
    for entity in small_ones() {
        for archive in ARCHIVES
            .into_iter()
            .filter(|(_, source, _)| is_legal_in(source, &entity))
        {
            there_and_back(&lab, &entity, archive).await;
        }
    }
    for entity in large_ones() {
        for archive in ARCHIVES
            .into_iter()
            .filter(|(archive, ..)| ["orders_as_blobs", "orders_as_rows"].contains(archive))
        {
            there_and_back(&lab, &entity, archive).await;
        }
    }
}

#[test]
fn any_row_is_archived_and_restored() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut runner = TestRunner::new(Config {
        cases: 48,
        failure_persistence: None,
        ..Config::default()
    });
    let lab = runtime.block_on(lab());
    let ran = runner.run(&(any_entity(), 0..ARCHIVES.len()), |(entity, archive)| {
        if is_legal_in(ARCHIVES[archive].1, &entity) {
            runtime.block_on(there_and_back(&lab, &entity, ARCHIVES[archive]));
        }
        Ok(())
    });
    ran.unwrap();
}

#[tokio::test]
async fn a_moved_entity_can_be_moved_back_or_stays_in_place() {
    let lab = lab().await;
    for entity in small_ones().into_iter().chain(large_ones()) {
        let (key, story) = (&entity.key, told(&entity));
        lab.account
            .tables
            .apply(&table("Orders"), &TableOperation::Insert(entity.clone()))
            .await
            .unwrap();
        let mut away = of("move", "table", "Orders", key);
        let mut back = of("move", "table", "Elsewhere", key);
        for (message, to) in [(&mut away, "Elsewhere"), (&mut back, "Orders")] {
            message["to_pk"] = json!(key.pk);
            message["to_rk"] = json!(key.rk);
            message["to_table"] = json!(to);
        }
        let moved = done(&lab, &away).await.unwrap();
        assert_eq!(
            found(&lab, "Elsewhere", key).await.is_some(),
            moved,
            "{story}"
        );
        assert!(
            !moved || done(&lab, &back).await.unwrap(),
            "{story}: the entity was not restored"
        );
        assert!(found(&lab, "Elsewhere", key).await.is_none(), "{story}");
        assert!(is_in(&lab, "Orders", &entity).await, "{story}");
        lab.delete_row("Orders", key.pk.as_str(), key.rk.as_str())
            .await;
    }
}

#[tokio::test]
async fn a_put_entity_can_be_read_or_is_refused() {
    let lab = lab().await;
    for entity in small_ones() {
        for source in ["Orders", "Parts"] {
            let (key, story) = (&entity.key, told(&entity));
            let put = json!({"op": "put", "table": source, "entity": odata::encode(&entity)});
            let put = done(&lab, &put).await.unwrap();
            assert_eq!(found(&lab, source, key).await.is_some(), put, "{story}");
            assert!(!put || is_in(&lab, source, &entity).await, "{story}");
            assert!(
                put || entity
                    .clone()
                    .with("ek_job", "x".repeat(256))
                    .check()
                    .is_err(),
                "{story}: refused for another reason"
            );
            lab.delete_row(source, key.pk.as_str(), key.rk.as_str())
                .await;
        }
    }
}

/// An encrypted value is longer than its plain text, so it may exceed a limit.
#[tokio::test]
async fn an_encrypted_value_can_be_decrypted_or_is_refused() {
    for units in [0, 1, 10_000, 24_000, 32_767, 32_768] {
        let lab = encryption::lab();
        let entity = json!({"PartitionKey": "Sales", "RowKey": "1", "Ssn": "x".repeat(units), "Phone": "\u{1}\u{e9}"});
        let put = done(
            &lab,
            &json!({"op": "put", "table": "Employees", "entity": entity}),
        )
        .await
        .unwrap();
        let key = EntityKey::new("Sales", "1").unwrap();
        let Some(mut before) = found(&lab, "Employees", &key).await else {
            assert!(!put && units > 20_000, "{units}");
            continue;
        };
        before.properties.retain(|name, _| !name.starts_with("ek_"));
        for archive in [
            "former",
            evenkeel_account::company::BLOB_ARCHIVE,
            evenkeel_account::company::FILE_ARCHIVE,
        ] {
            assert!(
                done(&lab, &of("archive", "archive", archive, &key))
                    .await
                    .unwrap(),
                "{units}"
            );
            assert!(
                done(&lab, &of("restore", "archive", archive, &key))
                    .await
                    .unwrap(),
                "{units}"
            );
            assert!(
                is_in(&lab, "Employees", &before).await,
                "{units}, {archive}"
            );
        }
        let row = lab.read("Employees", "Sales", "1").await.unwrap().entity;
        let opened = encryption::decrypted(
            &lab,
            &row,
            &encryption::primary("Employees", "Sales", "1"),
            "Phone",
        )
        .await;
        assert_eq!(opened, "\u{1}\u{e9}".into(), "{units}");
    }
}

/// Other programs can write entities that evenkeel refuses to write.
#[tokio::test]
async fn an_entity_that_could_not_be_restored_is_not_archived() {
    let lab = lab().await;
    // Azure allows the last of these entities, although it is larger than 1 MiB as JSON.
    let heavy = of_bytes(30, 0).with("P029", bytes(32_000));
    for entity in [
        entity().with("A", "a\u{0}b"),
        entity().with("A", "\u{ffff}"),
        entity().with("a-b", 1),
        many(253),
        heavy,
    ] {
        for (archive, source, _) in ARCHIVES
            .into_iter()
            .filter(|(_, source, _)| *source != "Surveys")
        {
            let story = format!("{archive}: {}", told(&entity));
            lab.sim.plant(&table(source), entity.clone());
            let Err(failure) = lab
                .work(&job(&of("archive", "archive", archive, &entity.key)))
                .await
            else {
                panic!("{story}: the entity must not be archived")
            };
            assert_eq!(failure.class, FailureClass::Permanent, "{story}");
            assert!(
                failure.chain().contains("restore"),
                "{story}: {}",
                failure.chain()
            );
            assert!(is_in(&lab, source, &entity).await, "{story}");
            assert!(
                left(&lab).is_empty() && lab.sim.rows(&table("FormerOrders")).is_empty(),
                "{story}: a copy is left"
            );
            lab.delete_row(source, "p", "r").await;
        }
    }
    // A wide entity whose second row would need a key that is too long.
    let entity = Entity {
        key: EntityKey::new("p", "x".repeat(512)).unwrap(),
        ..of_texts(20, 1_100)
    };
    lab.account
        .tables
        .apply(&table("Surveys"), &TableOperation::Insert(entity.clone()))
        .await
        .unwrap();
    assert!(
        !done(
            &lab,
            &of("archive", "archive", "surveys_as_blobs", &entity.key)
        )
        .await
        .unwrap()
    );
    assert!(is_in(&lab, "Surveys", &entity).await);
}

async fn order_of(count: usize) -> Lab {
    let lab = lab().await;
    lab.account
        .tables
        .apply(&table("Orders"), &TableOperation::Insert(many(count)))
        .await
        .unwrap();
    lab
}

async fn full() -> Lab {
    order_of(252).await
}

fn on(op: &str, archive: &str) -> Job {
    job(&of(op, "archive", archive, &entity().key))
}

async fn is_back(lab: &Lab, expected: &Entity, story: &str) {
    assert!(
        is_in(lab, "Orders", expected).await,
        "{story}: the entity has changed"
    );
    assert!(
        left(lab).is_empty() && lab.sim.rows(&table("FormerOrders")).is_empty(),
        "{story}: the entity is still in the archive"
    );
}

const DISTURBANCES: [Disturbance; 4] = [
    Disturbance::Crash,
    Disturbance::Throttle,
    Disturbance::LoseAnswer,
    Disturbance::ArriveLater(2),
];

/// Each entity has the largest number of properties that the archive accepts.
#[tokio::test]
async fn a_full_entity_is_archived_and_restored_whatever_fails_at_every_operation() {
    for (archive, count) in [
        ("orders_as_blobs", 252),
        ("orders_as_files", 252),
        ("orders_as_rows", 247),
    ] {
        for op in ["archive", "restore"] {
            let away = async || {
                let lab = order_of(count).await;
                if op == "restore" {
                    lab.work(&on("archive", archive)).await.unwrap();
                }
                lab
            };
            for at in 1..=away().await.operations_of(&on(op, archive)).await {
                for disturbance in DISTURBANCES {
                    let (lab, story) = (
                        away().await,
                        format!("{op} {archive}, {disturbance:?} at {at}"),
                    );
                    lab.faults.arm(at, disturbance);
                    assert!(
                        lab.deliver_until_done(&on(op, archive)).await.is_some(),
                        "{story}"
                    );
                    lab.faults.calm();
                    lab.sim.settle();
                    if op == "archive" {
                        assert!(
                            found(&lab, "Orders", &entity().key).await.is_none(),
                            "{story}"
                        );
                        lab.wait(Duration::from_mins(1));
                        lab.work(&on("restore", archive)).await.unwrap();
                    }
                    is_back(&lab, &many(count), &story).await;
                }
            }
        }
    }
}

/// A moved entity may have at most 248 properties.
#[tokio::test]
async fn a_full_entity_is_moved_whatever_fails_at_every_operation() {
    let moving = json!({"op": "move", "table": "Orders", "pk": "p", "rk": "r", "to_table": "Elsewhere", "to_pk": "p", "to_rk": "r"});
    let moving = job(&moving);
    for at in 1..=order_of(248).await.operations_of(&moving).await {
        for disturbance in DISTURBANCES {
            let (lab, story) = (order_of(248).await, format!("{disturbance:?} at {at}"));
            lab.faults.arm(at, disturbance);
            assert!(
                matches!(
                    lab.deliver_until_done(&moving).await,
                    Some(Outcome::Done(_))
                ),
                "{story}"
            );
            lab.faults.calm();
            lab.sim.settle();
            assert!(
                is_in(&lab, "Elsewhere", &many(248)).await
                    && lab.sim.rows(&table("Orders")).is_empty(),
                "{story}"
            );
        }
    }
}

#[tokio::test]
async fn an_archive_job_that_comes_again_leaves_alone_what_came_back_without_room_for_marks() {
    let lab = full().await;
    let message = of("archive", "archive", "orders_as_blobs", &entity().key);
    let mut named = message.clone();
    named["id"] = json!("leaver");
    for message in [message, named] {
        lab.wait(Duration::from_mins(1));
        let (mut sent, mut double) = (lab.message(&message), lab.message(&message));
        assert!(matches!(lab.run(&sent).await, Ok(Outcome::Done(_))));
        lab.wait(Duration::from_mins(1));
        lab.work(&on("restore", "orders_as_blobs")).await.unwrap();
        is_back(&lab, &many(252), "restored").await;
        sent.1.dequeue_count = 2;
        // If the job has an id, a duplicate message is recognized by that id on its first delivery.
        double.1.dequeue_count = if message.get("id").is_some() { 1 } else { 2 };
        for again in [sent, double] {
            let ended = lab.run(&again).await;
            assert!(
                matches!(&ended, Ok(Outcome::Skipped { reason, .. }) if reason.contains("does not fit into it")),
                "{ended:?}"
            );
            is_back(&lab, &many(252), "left alone").await;
        }
    }
    // A new job archives the order, even on its second delivery.
    lab.wait(Duration::from_mins(1));
    let (job, mut delivery) =
        lab.message(&of("archive", "archive", "orders_as_blobs", &entity().key));
    delivery.dequeue_count = 2;
    assert!(matches!(
        lab.run(&(job, delivery)).await,
        Ok(Outcome::Done(_))
    ));
}

#[tokio::test]
async fn a_restore_without_room_for_marks_overwrites_nobody() {
    let lab = full().await;
    lab.work(&on("archive", "orders_as_blobs")).await.unwrap();
    let client = many(252).with("P000", false);
    lab.account
        .tables
        .apply(&table("Orders"), &TableOperation::Insert(client.clone()))
        .await
        .unwrap();
    let failure = lab
        .work(&on("restore", "orders_as_blobs"))
        .await
        .unwrap_err();
    assert!(
        failure.chain().contains("was not restored by this job"),
        "{}",
        failure.chain()
    );
    assert!(is_in(&lab, "Orders", &client).await);
    assert_eq!(left(&lab), ["orders/p/r.json"]);
    let name = evenkeel_model::BlobName::new("p/r.json").unwrap();
    let blob = lab
        .account
        .blobs
        .get(&ContainerName::new("orders").unwrap(), &name, None)
        .await
        .unwrap()
        .unwrap();
    assert!(is(
        document::decode(&blob.content, &entity().key).ok().as_ref(),
        &many(252)
    ));
}
