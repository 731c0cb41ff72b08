//! Search indexes: the documents are in a search service, which is a stub on loopback.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use evenkeel_engine::{AuditFinding, FailureClass, Mismatch};
use evenkeel_model::{EdmValue, Entity, EntityKey, Job, TableName, ViewName};
use serde_json::{Value, json};

use crate::patterns::site::Site;
use crate::support::search::Trouble;

pub(crate) const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[sinks.catalog]
kind = "search"
endpoint = "$SEARCH"
auth = "entra"
credential = "developer_tools"

[views.found]
kind = "search_index"
source = "Staff§"
when = "not (Hidden == true)"
sink = "catalog"
index = "people"
select = ["Salary", "Weight", "Manager", "Since", "Badge"]
fields = { name = "{FirstName} {LastName}", department = "{PartitionKey}", title = "{Title}" }

[archives.former]
source = "Staff§"
to = { kind = "table", table = "Former§" }
"#;

const FIELDS: [(&str, &str); 8] = [
    ("Salary", "Edm.Int64"),
    ("Weight", "Edm.Double"),
    ("Manager", "Edm.Boolean"),
    ("Since", "Edm.DateTimeOffset"),
    ("Badge", "Edm.String"),
    ("name", "Edm.String"),
    ("department", "Edm.String"),
    ("title", "Edm.String"),
];

fn person(pk: &str, rk: &str, last: &str) -> Value {
    json!({
        "PartitionKey": pk, "RowKey": rk, "FirstName": "Ada", "LastName": last,
        "Salary@odata.type": "Edm.Int64", "Salary": "9007199254740991", "Weight": 61.5, "Manager": false,
        "Since@odata.type": "Edm.DateTime", "Since": "2026-11-20T15:00:00.1234567Z",
        "Badge@odata.type": "Edm.Guid", "Badge": "c9da6455-213d-42c9-9a79-3e9149a57833",
    })
}

fn put(entity: &Value) -> Value {
    json!({"op": "put", "table": "Staff§", "entity": entity})
}

fn sync(pk: &str, rk: &str) -> Value {
    json!({"op": "sync", "table": "Staff§", "pk": pk, "rk": rk})
}

/// The key of a document, computed as an application computes it.
fn key(site: &Site, pk: &str, rk: &str) -> String {
    BASE64.encode(json!([site.name("Staff§").to_lowercase(), pk, rk]).to_string())
}

async fn agrees(site: &Site) {
    let mut wanted = BTreeMap::new();
    for (pk, rk, _) in site.keys("Staff§", "LastName").await {
        let row = site.row("Staff§", &pk, &rk).await.unwrap().entity;
        if row.get("Hidden") == Some(&EdmValue::Bool(true)) {
            continue;
        }
        let text = |name: &str| row.text(name).map(str::to_owned);
        let value = |name: &str| match row.get(name) {
            None => Value::Null,
            Some(EdmValue::Int64(number)) => json!(number),
            Some(EdmValue::Double(number)) => json!(number),
            Some(EdmValue::Bool(truth)) => json!(truth),
            Some(EdmValue::DateTime(moment)) => json!(moment.to_string()),
            Some(EdmValue::Guid(guid)) => json!(guid.to_string()),
            Some(other) => panic!("{other:?}"),
        };
        let name = text("FirstName")
            .zip(text("LastName"))
            .map(|(first, last)| format!("{first} {last}"));
        let document = json!({
            "id": key(site, &pk, &rk), "Salary": value("Salary"), "Weight": value("Weight"), "Manager": value("Manager"),
            "Since": value("Since"), "Badge": value("Badge"), "name": name, "department": pk, "title": text("Title"),
        });
        wanted.insert(key(site, &pk, &rk), document.as_object().unwrap().clone());
    }
    assert_eq!(site.search().documents("people"), wanted);
    site.in_step("Staff§").await;
    assert_eq!(audit(site, false).await, []);
}

async fn audit(site: &Site, repair: bool) -> Vec<AuditFinding> {
    site.account
        .tables
        .create_table(&TableName::new("EvenkeelAudits").unwrap())
        .await
        .unwrap();
    let (Job::Audit(audit), delivery) =
        site.message(&json!({"op": "audit", "table": "Staff§", "repair": repair}))
    else {
        panic!("no audit")
    };
    site.engine
        .audit(&audit, &delivery)
        .await
        .unwrap()
        .unwrap()
        .findings
}

pub(crate) async fn a_document_follows_its_primary_through_its_life(site: &Site) {
    site.search().create("people", &FIELDS);
    // A search index does not accept these keys without encoding, and one is too long even with encoding.
    for (pk, rk) in [
        ("Sales", "1"),
        ("Sales", "한 \"quoted\" 'key'"),
        ("Ops", ""),
        (&*"x".repeat(500), &*"y".repeat(500)),
    ] {
        site.work(put(&person(pk, rk, "King"))).await;
    }
    assert_eq!(site.search().documents("people").len(), 4);
    site.work(
        json!({"op": "delete", "table": "Staff§", "pk": "x".repeat(500), "rk": "y".repeat(500)}),
    )
    .await;
    agrees(site).await;

    site.work(put(&person("Sales", "1", "Lovelace"))).await;
    agrees(site).await;
    let bare = Entity::new(EntityKey::new("Sales", "1").unwrap())
        .with("FirstName", "Ada")
        .with("Title", "Countess");
    site.write("Staff§", bare.clone()).await;
    site.work(sync("Sales", "1")).await;
    agrees(site).await;
    site.write("Staff§", bare.with("Hidden", true)).await;
    site.work(sync("Sales", "1")).await;
    assert!(
        !site
            .search()
            .documents("people")
            .contains_key(&key(site, "Sales", "1"))
    );
    agrees(site).await;

    site.work(json!({"op": "delete", "table": "Staff§", "pk": "Sales", "rk": "1"}))
        .await;
    agrees(site).await;
    site.work(put(&person("Sales", "1", "Byron"))).await;
    agrees(site).await;
    site.work(json!({"op": "archive", "archive": "former", "pk": "Ops", "rk": ""}))
        .await;
    agrees(site).await;
    site.work(json!({"op": "restore", "archive": "former", "pk": "Ops", "rk": ""}))
        .await;
    agrees(site).await;
    site.work(json!({"op": "move", "table": "Staff§", "pk": "Sales", "rk": "1", "to_pk": "Ops", "to_rk": "1"})).await;
    agrees(site).await;
    assert_eq!(site.search().documents("people").len(), 3);
}

pub(crate) async fn documents_are_audited_mended_looked_up_and_made_anew(site: &Site) {
    site.search().create("people", &FIELDS);
    for rk in ["1", "2", "3"] {
        site.work(put(&person("Sales", rk, "King"))).await;
    }
    agrees(site).await;
    site.search()
        .tamper("people", &key(site, "Sales", "1"), None);
    let mut other = site.search().documents("people")[&key(site, "Sales", "2")].clone();
    other.insert("name".to_owned(), "Somebody Else".into());
    site.search().tamper(
        "people",
        &key(site, "Sales", "2"),
        Some(Value::Object(other)),
    );
    let mut found: Vec<(String, Mismatch)> = audit(site, false)
        .await
        .into_iter()
        .map(|finding| (finding.of, finding.problem))
        .collect();
    found.sort_by(|one, other| one.0.cmp(&other.0));
    let of = |rk: &str| format!("{}(\"Sales\", \"{rk}\")", site.name("Staff§"));
    assert_eq!(
        found,
        [(of("1"), Mismatch::Missing), (of("2"), Mismatch::Different)]
    );
    assert!(
        audit(site, true)
            .await
            .iter()
            .all(|finding| finding.repaired)
    );
    agrees(site).await;

    let view = ViewName::new("found").unwrap();
    let found = site
        .client
        .lookup(&view, &["PartitionKey=Sales", "RowKey=2"])
        .unwrap()
        .run()
        .await
        .unwrap();
    assert_eq!(
        (found.requests, found.rows[0].entity.text("name")),
        (1, Some("Ada King"))
    );
    assert_eq!(
        found.rows[0].entity.get("Salary"),
        Some(&EdmValue::Int64(9_007_199_254_740_991))
    );
    let absent = site
        .client
        .lookup(&view, &["PartitionKey=Sales", "RowKey=9"])
        .unwrap()
        .run()
        .await
        .unwrap();
    assert_eq!(absent.rows.len(), 0);
    let error = site
        .client
        .lookup(&view, &["LastName=King"])
        .unwrap()
        .run()
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("PartitionKey=") && error.contains("RowKey="),
        "{error}"
    );

    // The index is deleted and created again, which is necessary if its fields change.
    site.search().create("people", &FIELDS);
    site.work(json!({"op": "backfill", "table": "Staff§"}))
        .await;
    agrees(site).await;
}

pub(crate) async fn what_the_index_refuses_is_told_with_its_entity(site: &Site) {
    let error = site.refused(put(&person("Sales", "1", "King"))).await;
    let entity = format!("{}(\"Sales\", \"1\")", site.name("Staff§"));
    assert!(
        error.contains("index people")
            && error.contains("the index does not exist")
            && error.contains(&entity),
        "{error}"
    );

    site.search().create("people", &FIELDS[1..]);
    let error = site.refused(sync("Sales", "1")).await;
    assert!(
        error.contains(&entity) && error.contains("does not exist on type"),
        "{error}"
    );

    site.search().create("people", &FIELDS);
    site.search().trouble([Trouble::Document("Ada King", 400)]);
    let error = site.refused(sync("Sales", "1")).await;
    assert!(
        error.contains(&entity) && error.contains("trouble") && error.contains("400"),
        "{error}"
    );

    let mut entity = person("Sales", "2", "King");
    entity["Salary"] = "9007199254740992".into();
    let error = site.refused(put(&entity)).await;
    assert!(
        error.contains("\"Salary\"") && error.contains("9007199254740992"),
        "{error}"
    );
    // A view that cannot derive its item fails alone, and the primary is still written.
    assert!(site.row("Staff§", "Sales", "2").await.is_some());
    site.work(put(&person("Sales", "2", "King"))).await;

    site.work(sync("Sales", "1")).await;
    agrees(site).await;
}

pub(crate) async fn a_service_that_is_busy_or_falls_silent_puts_jobs_off_and_poisons_none(
    site: &Site,
) {
    site.search().create("people", &FIELDS);
    let (job, delivery) = site.message(&put(&person("Sales", "1", "King")));
    // The service refuses the key as after a rotation. This failure is temporary, so the job is not poisoned.
    site.search().trouble([Trouble::Refused(403, None)]);
    let failure = site.deliver(&job, &delivery).await.unwrap_err();
    assert_eq!(
        failure.class,
        FailureClass::Transient { retry_after: None },
        "{}",
        failure.chain()
    );
    site.work(sync("Sales", "1")).await;
    agrees(site).await;
    // A write without an answer is repeated at once. A recheck follows when the first request can no longer be in flight.
    site.search().trouble([Trouble::LoseAnswer]);
    site.work(put(&person("Sales", "1", "Byron"))).await;
    agrees(site).await;
    let (job, delivery) = site.message(&put(&person("Sales", "1", "Lovelace")));
    site.search().trouble([Trouble::Refused(503, Some(7))]);
    let failure = site.deliver(&job, &delivery).await.unwrap_err();
    let wait = FailureClass::Transient {
        retry_after: Some(std::time::Duration::from_secs(7)),
    };
    assert_eq!(failure.class, wait, "{}", failure.chain());
}
