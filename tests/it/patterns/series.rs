//! Data series: one entity per day, one property per hour, each written by a job of its own; and one that outgrows its row.

use std::collections::BTreeMap;

use evenkeel::client::Whereabouts;
use evenkeel::model::condition::Condition;
use evenkeel::model::{EdmValue, EntityKey, Row, ViewName};
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

[views.readings]
kind = "large_entity"
source = "Sensors§"
container = "readings-§"
spill = true

[views.sensors_by_room]
kind = "secondary_index"
source = "Sensors§"
table = "SensorsByRoom§"
partition_key = "room_{Room|lower}"
row_key = "{PartitionKey}_{RowKey}"
select = ["M0000"]
on_conflict = "reject"

[archives.old]
source = "Sensors§"
to = { kind = "table", table = "OldSensors§" }

[views.old_readings]
kind = "large_entity"
source = "OldSensors§"
container = "old-readings-§"

[archives.papers]
source = "Sensors§"
to = { kind = "blob", container = "papers-§" }

[archives.files]
source = "Sensors§"
to = { kind = "file", dir = "$SHARE" }
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
    assert!(error.contains("the entity has 253 properties, 1 of them evenkeel's own (ek_…); Azure Table storage allows 252"), "{error}");
    let mut whole = merge(&many(0, 300));
    whole["mode"] = "replace".into();
    assert!(site.refused(whole).await.contains("the entity has 301 properties"));
    let row = site.row("Meters§", "meter-7", "2026-11-20").await.unwrap();
    assert_eq!(row.entity.user_properties().count(), 251, "it is as it was");
    site.in_step("Meters§").await;
}

/// A job that sets some values of a sensor's series.
fn reading(mode: &str, properties: &Value) -> Value {
    let mut job = merge(properties);
    job["table"] = "Sensors§".into();
    job["mode"] = mode.into();
    job
}

fn numbers(range: std::ops::Range<i32>, value: impl Fn(i32) -> i32) -> Value {
    Value::Object(range.map(|n| (format!("M{n:04}"), json!(value(n)))).collect())
}

/// What the series should be, kept by the test itself.
struct Series<'s> {
    site: &'s Site,
    values: BTreeMap<String, EdmValue>,
}

impl Series<'_> {
    /// Sets values by a job, and says how many requests it took.
    async fn set(&mut self, mode: &str, properties: Value) -> u64 {
        if mode == "replace" {
            self.values.clear();
        }
        let said = properties.as_object().unwrap().iter();
        self.values.extend(said.map(|(name, value)| {
            (name.clone(), value.as_i64().map_or_else(|| value.as_str().unwrap().into(), |n| EdmValue::from(i32::try_from(n).unwrap())))
        }));
        self.site.requests_of(reading(mode, &properties)).await
    }

    /// How many properties the row has, once all is as it should be: read as one, it says what the test says.
    async fn holds(&self, container: &str) -> usize {
        let row = self.site.row("Sensors§", "meter-7", "2026-11-20").await.unwrap();
        let key = EntityKey::new("meter-7", "2026-11-20").unwrap();
        let whole = self.site.client.get(&self.site.table("Sensors§"), &key).await.unwrap().unwrap();
        let found: BTreeMap<_, _> = whole.entity.user_properties().map(|(name, value)| (name.clone(), value.clone())).collect();
        assert_eq!(found, self.values);
        assert!(row.entity.get("ek_spilling").is_none() && whole.entity.get("ek_spilled").is_none());
        let blobs = self.site.blobs(container).await;
        match row.entity.text("ek_spilled") {
            None => assert_eq!(blobs, [] as [&str; 0]),
            Some(pointer) => assert!(blobs.len() == 1 && pointer.contains(&blobs[0]), "{pointer}: {blobs:?}"),
        }
        self.site.in_step("Sensors§").await;
        row.entity.user_properties().count()
    }
}

pub(crate) async fn a_series_that_outgrows_its_row_spills_into_a_blob_and_is_read_as_one(site: &Site) {
    let mut series = Series { site, values: BTreeMap::new() };
    series.set("merge", json!({"Room": "Lab", "M0000": 0})).await;
    for from in (1..600).step_by(37) {
        series.set("merge", numbers(from..from + 37, |n| n)).await;
        series.holds("readings-§").await;
    }
    assert!(series.values.len() > 600);
    // What views name has stayed in the row.
    assert_eq!(copies_of(site).await, [key("room_lab", "meter-7_2026-11-20", "sensors_by_room")]);
    // A value that comes late counts, and is taken along later on.
    series.set("merge", numbers(3..5, |n| -n)).await;
    series.holds("readings-§").await;
    series.set("merge", numbers(700..940, |n| n)).await;
    series.holds("readings-§").await;
    // A condition sees what has left the row.
    let mut older = reading("merge", &json!({"M0003": -4}));
    older["newer_by"] = "M0003".into();
    let Ok(evenkeel::reconcile::Outcome::Skipped { .. }) = site.attempt(&older).await else { panic!("not skipped") };
    series.holds("readings-§").await;

    // A condition on the version holds although room is made first, which gives the row another one.
    let room = i32::try_from(245 - series.holds("readings-§").await).unwrap();
    series.set("merge", numbers(2_000..2_000 + room, |n| n)).await;
    assert_eq!(series.holds("readings-§").await, 245);
    let mut job = reading("merge", &json!({"M9999": 9}));
    job["if_match"] = json!(site.row("Sensors§", "meter-7", "2026-11-20").await.unwrap().etag);
    site.work(job).await;
    series.values.insert("M9999".to_owned(), 9.into());
    assert!(series.holds("readings-§").await < 200);

    // The sensor is carried elsewhere; the series goes into archives, comes back, and goes.
    series.set("merge", json!({"Room": "Hall"})).await;
    assert_eq!(copies_of(site).await, [key("room_hall", "meter-7_2026-11-20", "sensors_by_room")]);
    let left = series.holds("readings-§").await;
    for archive in ["old", "papers"] {
        let on = |op: &str| json!({"op": op, "archive": archive, "pk": "meter-7", "rk": "2026-11-20"});
        site.work(on("archive")).await;
        assert_eq!(site.blobs("readings-§").await, [] as [&str; 0]);
        site.work(on("restore")).await;
        assert_eq!(series.holds("readings-§").await, left, "{archive}");
        assert_eq!(site.blobs("old-readings-§").await, [] as [&str; 0]);
        assert_eq!(site.blobs("papers-§").await, [] as [&str; 0]);
    }
    site.work(json!({"op": "move", "table": "Sensors§", "pk": "meter-7", "rk": "2026-11-20", "to_pk": "meter-8", "to_rk": "x"})).await;
    site.work(json!({"op": "move", "table": "Sensors§", "pk": "meter-8", "rk": "x", "to_pk": "meter-7", "to_rk": "2026-11-20"})).await;
    assert_eq!(series.holds("readings-§").await, left);
    series.set("replace", json!({"Room": "Hall", "M0000": 1})).await;
    assert_eq!(series.holds("readings-§").await, 2, "it begins anew");
    // Brought whole, it spills at once; and begins anew again.
    series.set("replace", numbers(0..400, |n| n)).await;
    series.holds("readings-§").await;
    series.set("replace", numbers(0..400, |n| n + 1)).await;
    series.holds("readings-§").await;
    site.work(json!({"op": "delete", "table": "Sensors§", "pk": "meter-7", "rk": "2026-11-20"})).await;
    assert_eq!(site.blobs("readings-§").await, [] as [&str; 0]);
    series.values.clear();
    series.set("merge", numbers(0..3, |n| n)).await;
    assert_eq!(series.holds("readings-§").await, 3);
}

/// Two sensors with a series that has left its row, and two without; the state leaves first by its name.
async fn sensors(site: &Site) {
    for (rk, state, count) in [("1", "old", 300), ("2", "new", 300), ("3", "old", 3), ("4", "new", 3)] {
        let mut entity = numbers(0..count, |n| n);
        let more = json!({"PartitionKey": "hall", "RowKey": rk, "Room": "Hall", "A": state});
        entity.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        site.work(json!({"op": "put", "table": "Sensors§", "mode": "replace", "entity": entity})).await;
        let row = site.row("Sensors§", "hall", rk).await.unwrap();
        assert_eq!((row.entity.get("ek_spilled").is_some(), row.entity.get("A").is_none()), (count > 245, count > 245), "{rk}");
    }
}

/// The RowKeys of rows.
fn rks(rows: &[Row]) -> Vec<&str> {
    rows.iter().map(|row| row.entity.key.rk.as_str()).collect()
}

pub(crate) async fn lookups_see_what_has_left_a_row(site: &Site) {
    sensors(site).await;
    let in_hall = site.client.lookup_table(&site.table("Sensors§"), &["PartitionKey=hall"]).unwrap();
    for (condition, expected) in [
        (r#"A == "old""#, vec!["1", "3"]),
        (r#"A == "new" and M0001 >= 1"#, vec!["2", "4"]),
        ("not exists(A)", vec![]),
        ("exists(M0299)", vec!["1", "2"]),
        ("M0000 == 0", vec!["1", "2", "3", "4"]),
    ] {
        let lookup = in_hall.clone().filtered(Condition::parse(condition).unwrap());
        assert_eq!(rks(&lookup.run().await.unwrap().rows), expected, "{condition}");
        // Rows that are left out when they are whole are made up for.
        let (mut found, mut next) = (Vec::new(), lookup.top(1).select(["M0001"]));
        loop {
            let page = next.run().await.unwrap();
            assert!(page.rows.iter().all(|row| row.entity.properties.keys().eq(["M0001"])), "{condition}: {page:?}");
            found.extend(rks(&page.rows).into_iter().map(str::to_owned));
            let Some(continuation) = page.continuation else { break };
            assert_eq!(page.rows.len(), 1, "{condition}");
            next = next.after(continuation);
        }
        assert_eq!(found, expected, "{condition}");
    }
    let point = site.client.lookup_table(&site.table("Sensors§"), &["PartitionKey=hall", "RowKey=1"]).unwrap();
    let point = point.filtered(Condition::parse(r#"A == "new""#).unwrap()).run().await.unwrap();
    assert!(point.rows.is_empty(), "{point:?}");

    // A blob is read where something in it is asked for: its length, and it.
    let whole = in_hall.clone().run().await.unwrap();
    let counts: Vec<usize> = whole.rows.iter().map(|row| row.entity.user_properties().count()).collect();
    assert_eq!((counts, whole.requests), (vec![302, 302, 5, 5], 1 + 2 * 2));
    assert!(whole.rows.iter().all(|row| row.entity.get("ek_spilled").is_none()));
    assert_eq!(in_hall.clone().select(["M0000"]).run().await.unwrap().requests, 1);
    let by_room = ViewName::new("sensors_by_room").unwrap();
    let entities = site.client.lookup(&by_room, &["Room=Hall"]).unwrap().entities().select(["A"]).run().await.unwrap();
    assert_eq!(entities.rows.iter().map(|row| row.entity.text("A").unwrap()).collect::<Vec<_>>(), ["old", "new", "old", "new"]);
    let joined = in_hall.with(site.name("Sensors§={PartitionKey}/1").parse().unwrap()).run().await.unwrap();
    let first = joined.joined[&site.table("Sensors§")][2].as_ref().unwrap();
    assert_eq!((first.entity.text("A"), first.entity.user_properties().count()), (Some("old"), 302));

    // In archives as in their table.
    let key = EntityKey::new("hall", "1").unwrap();
    for archive in ["old", "papers", "files"] {
        let name = ViewName::new(archive).unwrap();
        let on = |op: &str| json!({"op": op, "archive": archive, "pk": "hall", "rk": "1"});
        for op in ["archive", "restore"] {
            site.work(on(op)).await;
            let found = site.client.find(&name, &key).await.unwrap().unwrap();
            assert_eq!(found.at == Whereabouts::Archive, op == "archive", "{archive}");
            assert_eq!((found.row.entity.text("A"), found.row.entity.user_properties().count()), (Some("old"), 302), "{archive}");
            if op == "archive" {
                let archived = site.client.lookup(&name, &["PartitionKey=hall", "RowKey=1"]).unwrap().run().await.unwrap();
                assert_eq!((archived.rows[0].entity.text("A"), archived.rows.len()), (Some("old"), 1), "{archive}");
            }
        }
    }
    site.work(json!({"op": "archive", "archive": "old", "pk": "hall", "rk": "1"})).await;
    let old = site.client.lookup(&ViewName::new("old").unwrap(), &["PartitionKey=hall"]).unwrap();
    let old = old.filtered(Condition::parse(r#"A == "old""#).unwrap()).run().await.unwrap();
    assert_eq!(rks(&old.rows), ["1"]);
    site.in_step("Sensors§").await;
}

async fn copies_of(site: &Site) -> Vec<(String, String, String)> {
    site.keys("SensorsByRoom§", "ek_view").await
}

pub(crate) async fn what_a_row_cannot_take_at_once_is_told(site: &Site) {
    let mut series = Series { site, values: BTreeMap::new() };
    series.set("merge", numbers(0..200, |n| n)).await;
    let error = site.refused(reading("merge", &numbers(200..460, |n| n))).await;
    assert!(error.contains("its row takes 245 properties") && error.contains("merge them in several jobs"), "{error}");
    assert_eq!(series.holds("readings-§").await, 200, "it is as it was");
    // Somebody deletes the blob by hand: that is told before anything more leaves the row.
    series.set("merge", numbers(200..260, |n| n)).await;
    let name = site.blobs("readings-§").await.remove(0);
    site.delete_blob("readings-§", &name).await;
    site.work(reading("merge", &numbers(260..300, |n| n))).await;
    let error = site.refused(reading("merge", &numbers(300..460, |n| n))).await;
    assert!(error.contains("which does not exist") && error.contains("\"mode\": \"replace\""), "{error}");
    series.set("replace", numbers(0..10, |n| n)).await;
    assert_eq!(series.holds("readings-§").await, 10);
}

pub(crate) async fn spilling_takes_as_many_requests_as_the_documentation_says(site: &Site) {
    let mut series = Series { site, values: BTreeMap::new() };
    series.set("merge", numbers(0..245, |n| n)).await;
    let (mut spills, mut others) = (Vec::new(), Vec::new());
    for n in 245..640 {
        let before = site.blobs("readings-§").await;
        let requests = series.set("merge", numbers(n..n + 1, |n| n)).await;
        if site.blobs("readings-§").await == before { &mut others } else { &mut spills }.push(requests);
    }
    // Footprint, primary, merge, close.
    assert!(others.iter().all(|requests| *requests == 4), "{others:?}");
    // First: both read, announced, the blob, the row, closed; both and the blob read, the row, closed. Later also: the blob before is
    // read, and its end announced and made.
    assert_eq!(spills, [11, 14, 14, 14]);
}
