//! Data series: one entity per day with one property per hour. Each property is written by a job of its own. Another
//! series has more than 252 values.

use std::collections::BTreeMap;

use evenkeel_engine::Outcome;
use evenkeel_model::condition::Condition;
use evenkeel_model::{EdmValue, EntityKey};
use serde_json::{Map, Value, json};

use crate::patterns::site::{Site, key};

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.meters_by_room]
kind = "secondary_index"
source = "Meters§"
table = "MetersByRoom§"
partition_key = "room_{Room|lower}"
row_key = "{PartitionKey}_{RowKey}"
select = ["H23"]
on_conflict = "reject"

[tables.Sensors§]
wide = true

[views.sensors_by_room]
kind = "secondary_index"
source = "Sensors§"
table = "SensorsByRoom§"
partition_key = "room_{Room|lower}"
row_key = "{PartitionKey}_{RowKey}"
select = ["M0255"]
on_conflict = "reject"
"#;

fn merge(properties: &Value) -> Value {
    let mut entity = Map::from_iter([
        ("PartitionKey".to_owned(), json!("meter-7")),
        ("RowKey".to_owned(), json!("2026-11-20")),
    ]);
    entity.extend(properties.as_object().unwrap().clone());
    json!({"op": "put", "table": "Meters§", "mode": "merge", "entity": entity})
}

fn hour(hour: usize, value: i32) -> Value {
    merge(&json!({format!("H{hour:02}"): value}))
}

async fn copies(site: &Site) -> Vec<(String, String, String)> {
    site.keys("MetersByRoom§", "ek_view").await
}

pub(crate) async fn a_day_of_24_hours_is_one_entity(site: &Site) {
    site.work(merge(&json!({"Room": "Lab"}))).await;
    for (n, at) in (0..24).rev().chain([3, 17]).enumerate() {
        site.work(hour(at, i32::try_from(at * 10 + n / 24).unwrap()))
            .await;
    }
    let row = site.row("Meters§", "meter-7", "2026-11-20").await.unwrap();
    for at in 0..24 {
        let again = i32::from(at == 3 || at == 17);
        assert_eq!(
            row.entity.get(&format!("H{at:02}")),
            Some(&(at * 10 + again).into()),
            "{at}"
        );
    }
    assert_eq!(row.entity.user_properties().count(), 25);
    assert_eq!(
        copies(site).await,
        [key("room_lab", "meter-7_2026-11-20", "meters_by_room")]
    );

    site.work(merge(&json!({"Room": "Hall"}))).await;
    assert_eq!(
        copies(site).await,
        [key("room_hall", "meter-7_2026-11-20", "meters_by_room")]
    );
    site.work(json!({"op": "delete", "table": "Meters§", "pk": "meter-7", "rk": "2026-11-20"}))
        .await;
    assert_eq!(copies(site).await, []);
    site.work(hour(5, 1)).await;
    assert_eq!(
        copies(site).await,
        [],
        "an entity without a room must have no copy"
    );
    site.work(merge(&json!({"Room": "Hall"}))).await;
    assert_eq!(
        copies(site).await,
        [key("room_hall", "meter-7_2026-11-20", "meters_by_room")]
    );
    site.in_step("Meters§").await;
}

pub(crate) async fn a_series_that_outgrows_its_entity_is_refused(site: &Site) {
    let many = |from: usize, to: usize| {
        Value::Object((from..to).map(|n| (format!("M{n:04}"), json!(n))).collect())
    };
    site.work(merge(&many(0, 251))).await;
    let error = site.refused(merge(&many(251, 252))).await;
    assert!(error.contains("the entity has 253 properties, 1 of them added by evenkeel (ek_…); at most 252 are allowed"), "{error}");
    let mut whole = merge(&many(0, 300));
    whole["mode"] = "replace".into();
    assert!(
        site.refused(whole)
            .await
            .contains("the entity has 301 properties")
    );
    let row = site.row("Meters§", "meter-7", "2026-11-20").await.unwrap();
    assert_eq!(
        row.entity.user_properties().count(),
        251,
        "the entity must be unchanged"
    );
    site.in_step("Meters§").await;
}

fn reading(properties: &Value) -> Value {
    let mut job = merge(properties);
    job["table"] = "Sensors§".into();
    job
}

pub(crate) async fn a_series_of_more_than_252_values_in_a_wide_table_is_read_back_whole(
    site: &Site,
) {
    let table = site.table("Sensors§");
    let key = EntityKey::new("meter-7", "2026-11-20").unwrap();
    let mut values = BTreeMap::from([("Room".to_owned(), EdmValue::from("Lab"))]);
    site.work(reading(&json!({"Room": "Lab"}))).await;
    // Each value has its own job. The values are not in the order of their names, some are written twice, and some are corrected after their row was
    // full.
    let once = (0..256).map(|n| n * 7 % 256);
    for (n, value) in once.map(|n| (n, n)).chain([(17, 17), (3, -3), (255, -255)]) {
        let name = format!("M{n:04}");
        site.work(reading(&json!({name.as_str(): value}))).await;
        values.insert(name, value.into());
    }
    let whole = site.client.get(&table, &key).await.unwrap().unwrap();
    assert_eq!(whole.entity.to_user_properties(), values);
    let rows = site
        .keys("Sensors§", "ek_view")
        .await
        .into_iter()
        .map(|(_, rk, _)| rk);
    assert_eq!(rows.collect::<Vec<_>>(), ["2026-11-20", "2026-11-20~1"]);

    // Conditions and views treat the series as one entity, although its values are in several rows.
    let mut older = reading(&json!({"M0255": -256}));
    older["newer_by"] = "M0255".into();
    let Ok(Outcome::Skipped { .. }) = site.attempt(&older).await else {
        panic!("the job was not skipped")
    };
    let of_meter = site
        .client
        .lookup_table(&table, &["PartitionKey=meter-7"])
        .unwrap();
    for (condition, found) in [
        ("M0003 == -3 and M0255 == -255", 1),
        ("M0003 == 3", 0),
        ("M0150 == 150 and not exists(M0256)", 1),
    ] {
        let lookup = of_meter
            .clone()
            .filtered(Condition::parse(condition).unwrap());
        assert_eq!(lookup.run().await.unwrap().rows.len(), found, "{condition}");
    }
    let copy = site
        .row("SensorsByRoom§", "room_lab", "meter-7_2026-11-20")
        .await
        .unwrap();
    assert_eq!(copy.entity.get("M0255"), Some(&(-255).into()));
    let plan = site.plan("Sensors§", "meter-7", "2026-11-20").await;
    assert!(plan.in_step && plan.present, "{plan}");
    site.work(json!({"op": "delete", "table": "Sensors§", "pk": "meter-7", "rk": "2026-11-20"}))
        .await;
    assert_eq!(
        (
            site.keys("Sensors§", "ek_view").await,
            site.keys("SensorsByRoom§", "ek_view").await
        ),
        (Vec::new(), Vec::new())
    );
}
