//! Entities that a job deletes by condition, with all their items.

use evenkeel_model::{Entity, EntityKey};
use serde_json::json;

use crate::patterns::site::Site;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Plain§]

[tables.Wide§]
wide = true

[views.elsewhere]
kind = "secondary_index"
source = "Viewed§"
table = "ByName§"
partition_key = "{Name}"
row_key = "{PartitionKey}_{RowKey}"

[views.photos]
kind = "large_entity"
source = "Photos§"
properties = ["Photo"]
container = "photos-§"
threshold = "64B"

[archives.album]
source = "Photos§"
to = { kind = "blob", container = "album-§" }
"#;

fn entity(number: u32) -> Entity {
    let name = if number.is_multiple_of(4) {
        "King"
    } else {
        "Byron"
    };
    Entity::new(EntityKey::new("Sales", format!("{number:04}")).unwrap()).with("Name", name)
}

/// Deletes in one partition share transactions of a hundred entities, as `docs/performance.md` describes. Rechecks of entities with views share
/// messages.
pub(crate) async fn deleting_by_condition_takes_few_requests(site: &Site) {
    for (table, most) in [("Plain§", 20), ("Viewed§", 120)] {
        for number in 0..400 {
            site.write(table, entity(number)).await;
        }
        if table == "Viewed§" {
            site.work(json!({"op": "backfill", "table": table})).await;
        }
        let requests =
            site.requests_of(json!({"op": "delete_where", "table": table, "when": "Name == \"Byron\"", "per_second": 10_000})).await;
        assert!(
            requests <= most,
            "{table}: {requests} requests for 300 rows"
        );
        assert_eq!(site.keys(table, "Name").await.len(), 100);
    }
    assert_eq!(site.keys("ByName§", "ek_view").await.len(), 100);
}

pub(crate) async fn blobs_leave_with_their_entities_or_follow_them_into_the_archive(site: &Site) {
    for (rk, kept) in [("1", true), ("2", false), ("3", true)] {
        let photo = json!({"PartitionKey": "Sales", "RowKey": rk, "Kept": kept, "Photo": format!("{rk}{}", "x".repeat(100))});
        site.work(json!({"op": "put", "table": "Photos§", "entity": photo}))
            .await;
    }
    assert_eq!(site.blobs("photos-§").await.len(), 3);
    site.work(json!({"op": "archive_where", "archive": "album", "when": "Kept == true", "range": {"pk": "Sales", "before": "3"}})).await;
    assert!(site.row("Photos§", "Sales", "1").await.is_none());
    assert!(site.blob("album-§", "Sales/1.json").await.is_some());
    site.work(json!({"op": "delete_where", "table": "Photos§", "all": true}))
        .await;
    assert_eq!(site.keys("Photos§", "Kept").await, []);
    let left = site.blobs("photos-§").await;
    assert!(
        left.iter().all(|name| name.contains('1')) && left.len() <= 1,
        "only archived entities may still have a value: {left:?}"
    );
    site.work(json!({"op": "restore", "archive": "album", "pk": "Sales", "rk": "1"}))
        .await;
    assert!(site.row("Photos§", "Sales", "1").await.is_some());
}

pub(crate) async fn conditions_apply_to_whole_wide_entities(site: &Site) {
    for (rk, last) in [("1", "yes"), ("2", "no")] {
        let mut wide = json!({"PartitionKey": "p", "RowKey": rk});
        for number in 0..600 {
            wide[format!("P{number:03}")] = json!("x");
        }
        wide["P599"] = json!(last);
        site.work(json!({"op": "put", "table": "Wide§", "entity": wide}))
            .await;
    }
    site.work(json!({"op": "delete_where", "table": "Wide§", "when": "P599 == \"yes\""}))
        .await;
    let left: Vec<String> = site
        .keys("Wide§", "P599")
        .await
        .into_iter()
        .map(|(_, rk, _)| rk)
        .collect();
    assert!(
        !left.is_empty() && left.iter().all(|rk| rk.starts_with('2')),
        "{left:?}"
    );
}
