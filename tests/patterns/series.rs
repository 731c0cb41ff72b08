//! Data series: one entity per day, one property per hour, each written by a job of its own.

use serde_json::{Map, Value, json};

use crate::site::{Site, key};

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
"#;

fn merge(properties: &Value) -> Value {
    let mut entity = Map::from_iter([("PartitionKey".to_owned(), json!("meter-7")), ("RowKey".to_owned(), json!("2026-11-20"))]);
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
    // In any order, some of them twice.
    for (n, at) in (0..24).rev().chain([3, 17]).enumerate() {
        site.work(hour(at, i32::try_from(at * 10 + n / 24).unwrap())).await;
    }
    let row = site.row("Meters§", "meter-7", "2026-11-20").await.unwrap();
    for at in 0..24 {
        let again = i32::from(at == 3 || at == 17);
        assert_eq!(row.entity.get(&format!("H{at:02}")), Some(&(at * 10 + again).into()), "{at}");
    }
    assert_eq!(row.entity.user_properties().count(), 25);
    assert_eq!(copies(site).await, [key("room_lab", "meter-7_2026-11-20", "meters_by_room")]);

    // The meter is carried to another room, read out, removed and set up anew.
    site.work(merge(&json!({"Room": "Hall"}))).await;
    assert_eq!(copies(site).await, [key("room_hall", "meter-7_2026-11-20", "meters_by_room")]);
    site.work(json!({"op": "delete", "table": "Meters§", "pk": "meter-7", "rk": "2026-11-20"})).await;
    assert_eq!(copies(site).await, []);
    site.work(hour(5, 1)).await;
    assert_eq!(copies(site).await, [], "without a room it has no copy");
    site.work(merge(&json!({"Room": "Hall"}))).await;
    assert_eq!(copies(site).await, [key("room_hall", "meter-7_2026-11-20", "meters_by_room")]);
    site.in_step("Meters§").await;
}

pub(crate) async fn a_series_that_outgrows_its_entity_is_told(site: &Site) {
    let many = |from: usize, to: usize| Value::Object((from..to).map(|n| (format!("M{n:04}"), json!(n))).collect());
    site.work(merge(&many(0, 251))).await;
    let error = site.refused(merge(&many(251, 252))).await;
    assert!(error.contains("the entity has 253 properties; Azure Table storage allows 252"), "{error}");
    let mut whole = merge(&many(0, 300));
    whole["mode"] = "replace".into();
    assert!(site.refused(whole).await.contains("the entity has 301 properties"));
    let row = site.row("Meters§", "meter-7", "2026-11-20").await.unwrap();
    assert_eq!(row.entity.user_properties().count(), 251, "it is as it was");
    site.in_step("Meters§").await;
}
