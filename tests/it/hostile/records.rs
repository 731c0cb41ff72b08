//! Stored records of the catalog and of log lines: a forged record must not drop a table that does not belong to the retired view, or write to
//! another log.

use evenkeel_engine::footprint;
use evenkeel_model::{BlobName, Entity};
use evenkeel_storage::TableOperation;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::hostile::stage::{ORDERS, OTHER_LOG, Stage, container, key, table};

/// A row of the recorded catalog, for a retired view of `source`. `followers` are the dated tables that are dropped together with the tables of the
/// source.
pub(crate) fn gone(name: &str, source: &str, followers: &Value) -> Entity {
    let target = if source.contains('%') {
        "main/Gone%Y%m%d"
    } else {
        "main/Gone"
    };
    let definition = json!({"kind": "secondary_index", "table": target, "partition_key": "p", "row_key": "{RowKey}"});
    Entity::new(key("catalog", &format!("view~{name}")))
        .with("Version", 1)
        .with("Generation", 1_i64)
        .with("SourceAccount", "main")
        .with("SourceTable", source)
        .with("Retired", true)
        .with("Owner", "default")
        .with("Definition0", definition.to_string())
        .with("Followers", followers.to_string())
}

pub(crate) fn number(generation: i64) -> Entity {
    Entity::new(key("catalog", "generation"))
        .with("Version", 1)
        .with("Generation", generation)
}

pub(crate) fn line(blob: &str, start: i64, position: i64, length: i64, former: &Value) -> Entity {
    let hash = hex::encode(Sha256::digest("Sales\x007"));
    Entity::new(key("~log~trail~00", &hash))
        .with("Version", 1)
        .with("Blob", blob)
        .with("Start", start)
        .with("Position", position)
        .with("Length", length)
        .with("Sha256", hex::encode(Sha256::digest("{}\n")))
        .with("Logged", "W/\"1\"")
        .with("Former", former.to_string())
}

impl Stage {
    pub(crate) async fn forge_line(&self, row: &Entity) {
        self.row(
            "Events",
            Entity::new(key("Sales", "7")).with("Text", "an event"),
        )
        .await;
        self.row(footprint::FOOTPRINTS, row.clone()).await;
        self.attempt_raw(&json!({"op": "archive", "archive": "trail", "pk": "Sales", "rk": "7"}))
            .await;
    }

    async fn holds(&self, name: &str, row: Entity) {
        self.account
            .tables
            .create_table(&table(name))
            .await
            .unwrap();
        self.account
            .tables
            .apply(&table(name), &TableOperation::Insert(row))
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_forged_record_of_a_view_drops_no_table_that_its_primaries_did_not_fill() {
    let mut stage = Stage::new().await;
    let before = stage.picture();
    let derived = |of: &str| {
        Entity::new(key("p", "r"))
            .with("ek_view", "by_device")
            .with("ek_source", json!([of, "p", "r"]).to_string())
    };
    stage
        .holds("Visits20200101", Entity::new(key("p", "r")))
        .await;
    stage
        .holds("VisitsByDevice20200101", derived("Visits20200101"))
        .await;
    stage
        .holds("OrdersByCity20200101", derived("Orders20200101"))
        .await;
    let followers = json!([
        {"account": "main", "tables": "Orders%Y%m%d"},
        {"account": "main", "tables": "OrdersByCity%Y%m%d"},
        {"account": "main", "tables": "VisitsByDevice%Y%m%d"}
    ]);
    stage
        .record(&[number(1), gone("by_device", "Visits%Y%m%d", &followers)])
        .await;
    stage
        .attempt_raw(&json!({"op": "drop_table", "table": "Visits20200101"}))
        .await;
    let there = evenkeel_storage::all_tables(stage.account.tables.as_ref())
        .await
        .unwrap();
    for (name, stays) in [
        ("Visits20200101", false),
        ("VisitsByDevice20200101", false),
        ("OrdersByCity20200101", true),
        (ORDERS, true),
    ] {
        assert_eq!(there.contains(&table(name)), stays, "{name}");
    }
    assert_eq!(stage.picture(), before);
}

#[tokio::test]
async fn a_forged_record_of_a_line_adds_nothing_to_another_log() {
    for (position, length) in [
        (3, 5),
        (0, 3),
        (0, i64::MAX),
        (-1, 5),
        (-1, -1),
        (i64::MIN, i64::MIN),
    ] {
        let stage = Stage::new().await;
        let before = stage.picture();
        stage
            .forge_line(&line(OTHER_LOG, 3, position, length, &json!([])))
            .await;
        stage
            .forge_line(&line(
                OTHER_LOG,
                3,
                3,
                5,
                &json!([[position.cast_unsigned(), length.cast_unsigned(), "00", "1"]]),
            ))
            .await;
        assert_eq!(stage.picture(), before, "{position} {length}");
        let other = stage
            .account
            .blobs
            .get(&container("logs"), &BlobName::new(OTHER_LOG).unwrap(), None)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&other.content[..], b"{}\n");
    }
}
