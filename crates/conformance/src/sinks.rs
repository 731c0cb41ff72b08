//! The rules of sinks.

use std::any::Any;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use evenkeel_model::{CollectionName, DocumentKey, SinkDocument};
use evenkeel_storage::{DocumentWrite, ErrorClass, Missing, Sink, StoreError};
use futures::future::join_all;
use serde_json::{Value, json};

/// The fields of the collection under test, with the types of a search service.
pub const FIELDS: [(&str, &str); 5] = [
    ("name", "Edm.String"),
    ("salary", "Edm.Int64"),
    ("weight", "Edm.Double"),
    ("manager", "Edm.Boolean"),
    ("since", "Edm.DateTimeOffset"),
];

/// A sink to test. Its collection `people` has [`FIELDS`] and no documents.
pub struct SinkFixture {
    /// The store.
    pub sink: Arc<dyn Sink>,
    /// Lives as long as the store (a folder, a server).
    pub keep: Box<dyn Any + Send + Sync>,
}

fn people() -> CollectionName {
    CollectionName::new("people").unwrap()
}

fn key(key: &str) -> DocumentKey {
    DocumentKey::new(key).unwrap()
}

fn document(name: &str) -> SinkDocument {
    let fields = json!({"name": name, "salary": 9_007_199_254_740_991_i64, "weight": 0.5, "manager": true, "since": "2026-11-20T15:00:00.5000000Z"});
    SinkDocument(serde_json::from_value(fields).unwrap())
}

fn with(mut document: SinkDocument, field: &str, value: Value) -> SinkDocument {
    document.0.insert(field.to_owned(), value);
    document
}

/// Each version is greater than all before it, like those of announcements.
fn next_version() -> i64 {
    static LAST: AtomicI64 = AtomicI64::new(1_800_000_000_000);
    LAST.fetch_add(1, Ordering::Relaxed)
}

fn upload(at: &str, document: SinkDocument) -> DocumentWrite {
    DocumentWrite {
        key: key(at),
        document: Some(document),
        version: next_version(),
        deadline: None,
    }
}

fn delete(at: &str) -> DocumentWrite {
    DocumentWrite {
        key: key(at),
        document: None,
        version: next_version(),
        deadline: None,
    }
}

impl SinkFixture {
    /// Executes writes that must all succeed.
    async fn write(&self, writes: &[DocumentWrite]) {
        let written = self.sink.write(&people(), writes).await.unwrap();
        assert_eq!(written.len(), writes.len());
        for ended in written {
            ended.unwrap();
        }
    }

    async fn get(&self, at: &str) -> Option<SinkDocument> {
        self.sink.get(&people(), &key(at)).await.unwrap()
    }

    async fn check_document(&self, at: &str, wanted: &SinkDocument) {
        let found = self
            .get(at)
            .await
            .unwrap_or_else(|| panic!("document {at} does not exist"));
        assert!(
            wanted.matches(&found),
            "expected {wanted:?}, found {found:?}"
        );
    }
}

pub async fn a_document_is_read_as_it_was_written(fixture: &SinkFixture) {
    assert_eq!(fixture.get("WyJhIl0").await, None);
    fixture
        .write(&[upload("WyJhIl0", document("Ada 한 \"x\""))])
        .await;
    fixture
        .check_document("WyJhIl0", &document("Ada 한 \"x\""))
        .await;
    assert_eq!(
        fixture.get("wyjhil0").await,
        None,
        "keys must be case-sensitive"
    );
}

pub async fn an_existing_document_is_replaced_with_every_field(fixture: &SinkFixture) {
    fixture.write(&[upload("a", document("Ada"))]).await;
    let without = with(document("Ada"), "salary", Value::Null);
    fixture.write(&[upload("a", without.clone())]).await;
    fixture.check_document("a", &without).await;
}

pub async fn the_same_write_again_changes_nothing(fixture: &SinkFixture) {
    for _ in 0..3 {
        fixture.write(&[upload("a", document("Ada"))]).await;
        fixture.check_document("a", &document("Ada")).await;
    }
    for _ in 0..3 {
        fixture.write(&[delete("a")]).await;
        assert_eq!(fixture.get("a").await, None);
    }
}

pub async fn an_answered_write_is_visible_to_the_next(fixture: &SinkFixture) {
    for n in 0..20 {
        fixture
            .write(&[upload("a", document(&n.to_string()))])
            .await;
        fixture.check_document("a", &document(&n.to_string())).await;
        if n % 3 == 0 {
            fixture.write(&[delete("a")]).await;
            assert_eq!(fixture.get("a").await, None);
        }
    }
}

pub async fn many_documents_are_written_at_once(fixture: &SinkFixture) {
    let writes: Vec<DocumentWrite> = (0..1_000)
        .map(|n| upload(&n.to_string(), document(&n.to_string())))
        .collect();
    fixture.write(&writes).await;
    fixture.check_document("0", &document("0")).await;
    fixture.check_document("999", &document("999")).await;
    let halves: Vec<DocumentWrite> = (0..1_000)
        .map(|n| {
            if n % 2 == 0 {
                delete(&n.to_string())
            } else {
                upload(&n.to_string(), document("odd"))
            }
        })
        .collect();
    fixture.write(&halves).await;
    assert_eq!(fixture.get("998").await, None);
    fixture.check_document("999", &document("odd")).await;
}

pub async fn a_failed_document_does_not_affect_the_others(fixture: &SinkFixture) {
    let bad = upload("b", with(document("Bad"), "unknown", json!("x")));
    let outcomes = join_all(
        [
            upload("a", document("Ada")),
            bad,
            upload("c", document("Cy")),
        ]
        .into_iter()
        .map(|write| async move {
            let written = fixture.sink.write(&people(), &[write]).await;
            // A sink may report the failure of a single write for the request or for the document.
            written.and_then(|written| written.into_iter().next().unwrap())
        }),
    )
    .await;
    let class =
        |ended: &Result<(), StoreError>| ended.as_ref().map_err(|error| error.class).copied();
    assert_eq!(
        outcomes.iter().map(class).collect::<Vec<_>>(),
        [Ok(()), Err(ErrorClass::Permanent), Ok(())]
    );
    fixture.check_document("a", &document("Ada")).await;
    assert_eq!(fixture.get("b").await, None);
    fixture.check_document("c", &document("Cy")).await;
}

pub async fn concurrent_writes_each_get_their_own_answer(fixture: &SinkFixture) {
    let writes: Vec<DocumentWrite> = (0..50)
        .map(|n| upload(&format!("k{}", n % 40), document(&format!("k{}", n % 40))))
        .collect();
    for ended in join_all(writes.iter().map(|write| async move {
        fixture
            .sink
            .write(&people(), std::slice::from_ref(write))
            .await
    }))
    .await
    {
        let ended: Vec<_> = ended
            .unwrap()
            .into_iter()
            .map(|ended| ended.map_err(|error| error.class))
            .collect();
        // The older of two writes of one key may arrive last, and a sink that keeps versions refuses it.
        assert!(
            matches!(*ended, [Ok(()) | Err(ErrorClass::Precondition)]),
            "{ended:?}"
        );
    }
    for n in 0..40 {
        fixture
            .check_document(&format!("k{n}"), &document(&format!("k{n}")))
            .await;
    }
}

pub async fn a_collection_lists_its_fields(fixture: &SinkFixture) {
    let found = fixture.sink.fields(&people()).await.unwrap().unwrap();
    let wanted: BTreeSet<String> = FIELDS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let found: BTreeSet<String> = found.into_keys().collect();
    assert!(found.is_superset(&wanted), "{found:?}");
}

pub async fn an_absent_collection_is_distinguished_from_an_absent_document(fixture: &SinkFixture) {
    let nowhere = CollectionName::new("nowhere").unwrap();
    let absent = ErrorClass::NotFound(Missing::Container);
    assert_eq!(fixture.sink.fields(&nowhere).await.unwrap(), None);
    assert_eq!(
        fixture
            .sink
            .get(&nowhere, &key("a"))
            .await
            .unwrap_err()
            .class,
        absent
    );
    assert_eq!(
        fixture
            .sink
            .write(&nowhere, &[upload("a", document("Ada"))])
            .await
            .unwrap_err()
            .class,
        absent
    );
    assert_eq!(
        fixture
            .sink
            .write(&nowhere, &[delete("a")])
            .await
            .unwrap_err()
            .class,
        absent
    );
    assert_eq!(fixture.get("a").await, None);
}
