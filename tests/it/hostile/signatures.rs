//! Signatures on footprints: a forged footprint lists items that no worker wrote into the footprint of this primary, and gives the true versions of these
//! items.

use std::sync::{Arc, Mutex};

use evenkeel_engine::{FailureClass, footprint};
use evenkeel_model::job::Primary;
use evenkeel_model::{BlobName, EdmValue, Entity};
use evenkeel_storage::BlobUpload;
use serde_json::{Value, json};

use crate::hostile::stage::{Stage, TRUE, container, key, staff};

const BOBS_ROW: [&str; 3] = ["ByEmail", "email_Sales", "bob@contoso.com"];

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn of_this_thread(&self) -> tracing::subscriber::DefaultGuard {
        let written = Arc::clone(&self.0);
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || Written(Arc::clone(&written)))
            .finish();
        tracing::subscriber::set_default(subscriber)
    }

    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn row(view: &str, [table, pk, rk]: [&str; 3]) -> Value {
    json!([view, 1, "main", ["row", table, pk, rk], null, TRUE, 0])
}

fn blob(of: &str, name: &str) -> Value {
    json!(["photos", 1, "main", ["blob", of, name], null, TRUE, 0])
}

fn anns_blob() -> String {
    format!("staff/Sales/7/Photo-{}", "0".repeat(64))
}

async fn put_blob(stage: &Stage, of: &str, name: &str) {
    let content = bytes::Bytes::from_static(b"of another application");
    stage
        .account
        .blobs
        .put(
            &container(of),
            &BlobName::new(name).unwrap(),
            content,
            &BlobUpload::default(),
        )
        .await
        .unwrap();
}

fn has_blob(stage: &Stage, of: &str, name: &str) -> bool {
    stage
        .sim
        .blobs(&container(of))
        .iter()
        .any(|(blob, _)| blob.as_str() == name)
}

async fn is_listed(stage: &Stage, primary: &Primary, text: &str) -> bool {
    stage
        .footprint_of(primary)
        .await
        .is_some_and(|row| row.entity.text("Items").unwrap().contains(text))
}

fn signature_of(footprint: &Entity) -> Option<&EdmValue> {
    footprint.get("Signature")
}

#[tokio::test]
async fn a_forged_footprint_with_true_versions_drops_no_row_and_no_blob_of_another() {
    let stage = Stage::new().await;
    put_blob(&stage, "payroll", &anns_blob()).await;
    stage
        .row(
            "ByEmail",
            Entity::new(key("email_Sales", "of-an-application")),
        )
        .await;
    let photos: Vec<String> = stage
        .sim
        .blobs(&container("photos"))
        .into_iter()
        .map(|(name, _)| name.to_string())
        .collect();
    let bobs = photos
        .iter()
        .find(|name| name.starts_with("staff/Sales/8/"))
        .unwrap();
    let (before, log) = (stage.picture(), Log::default());
    let _here = log.of_this_thread();
    for (item, is_judged_by_its_address) in [
        (row("by_email", BOBS_ROW), false),
        (
            row("near", ["Staff", "Sales", "near_bob@contoso.com"]),
            false,
        ),
        (row("near", ["Staff", "Sales", "8"]), false),
        (
            row("by_email", ["ByEmail", "email_Sales", "of-an-application"]),
            false,
        ),
        (blob("payroll", &anns_blob()), false),
        (blob("photos", bobs), true),
    ] {
        for primary in [staff("7"), staff("no-such")] {
            log.take();
            stage
                .forge_footprint(&primary, &json!([item]))
                .await
                .unwrap_or_else(|failure| panic!("{item}: {}", failure.chain()));
            assert_eq!(stage.picture(), before, "{item} of {primary}");
            assert!(
                has_blob(&stage, "payroll", &anns_blob()),
                "{item} of {primary}"
            );
            // The name of a blob of `photos` begins with its primary, so the worker recognizes a foreign blob by the
            // name alone.
            let said = log.take();
            let lines: Vec<&str> = said
                .lines()
                .filter(|line| line.contains("ignored items in "))
                .collect();
            let reason = if is_judged_by_its_address
                || (primary.key.rk.as_str() != "7" && item[0] == "photos")
            {
                "they cannot belong to this primary"
            } else {
                "another owner"
            };
            assert!(
                lines.len() == 1 && lines[0].contains(reason),
                "{item} of {primary}: {said}"
            );
            let site = item[3]
                .as_array()
                .unwrap()
                .last()
                .unwrap()
                .as_str()
                .unwrap();
            assert!(
                !is_listed(&stage, &primary, site).await,
                "{item} of {primary}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_anywhere_leaves_no_forged_item_under_its_own_signature() {
    let sync = json!({"op": "sync", "table": "Staff", "pk": "Sales", "rk": "7"});
    for item in [
        row("by_email", BOBS_ROW),
        row("near", ["Staff", "Sales", "8"]),
        blob("payroll", &anns_blob()),
    ] {
        for operations in 0.. {
            let stage = Stage::new().await;
            put_blob(&stage, "payroll", &anns_blob()).await;
            let before = stage.picture();
            stage.forge(&staff("7"), &json!([item])).await;
            let stopped = stage.stops_after(operations, &sync).await;
            stage.done(&sync).await;
            assert_eq!(
                stage.picture(),
                before,
                "{item} after {operations} operations"
            );
            assert!(
                has_blob(&stage, "payroll", &anns_blob()),
                "{item} after {operations} operations"
            );
            if !stopped {
                assert!(operations > 5, "the run did nothing");
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_forged_footprint_with_true_versions_has_no_row_of_another_overwritten() {
    let stage = Stage::new().await;
    let before = stage.picture();
    let ann = Entity::new(key("Sales", "7"))
        .with("FirstName", "Ann")
        .with("LastName", "King")
        .with("Email", "bob@contoso.com");
    stage.row("Staff", ann).await;
    let failure = stage
        .forge_footprint(&staff("7"), &json!([row("by_email", BOBS_ROW)]))
        .await
        .unwrap_err();
    assert!(
        failure.class == FailureClass::Permanent
            && failure
                .chain()
                .contains("is taken by Staff(\"Sales\", \"8\")"),
        "{failure:?}"
    );
    assert_eq!(stage.picture(), before);
}

#[tokio::test]
async fn the_signature_of_another_primary_is_invalid() {
    let stage = Stage::new().await;
    let before = stage.picture();
    let mut bobs = stage.footprint_of(&staff("8")).await.unwrap().entity;
    assert!(
        matches!(signature_of(&bobs), Some(EdmValue::Binary(signature)) if signature.len() == 32)
    );
    for rk in ["7", "no-such"] {
        bobs.key = footprint::key(&staff(rk));
        stage.row(footprint::FOOTPRINTS, bobs.clone()).await;
        stage
            .done(&json!({"op": "sync", "table": "Staff", "pk": "Sales", "rk": rk}))
            .await;
        assert_eq!(stage.picture(), before);
        stage.bob_is_listed().await;
    }
}

#[tokio::test]
async fn a_recheck_that_names_a_row_or_a_blob_of_another_drops_neither() {
    let stage = Stage::new().await;
    put_blob(&stage, "payroll", &anns_blob()).await;
    let before = stage.picture();
    let [table, pk, rk] = BOBS_ROW;
    let bobs = json!({"view": "by_email", "account": "main", "table": table, "pk": pk, "rk": rk});
    let somebodys =
        json!({"view": "photos", "account": "main", "container": "payroll", "blob": anns_blob()});
    for primary in [staff("7"), staff("no-such")] {
        stage
            .recheck_of(&primary, &[bobs.clone(), somebodys.clone()])
            .await;
        assert_eq!(stage.picture(), before);
        assert!(has_blob(&stage, "payroll", &anns_blob()));
    }
}

#[tokio::test]
async fn a_footprint_without_a_valid_signature_converges_and_is_signed_by_its_next_write() {
    for signature in [
        None,
        Some(EdmValue::Binary(vec![7; 32])),
        Some("text".into()),
    ] {
        let stage = Stage::new().await;
        let before = stage.picture();
        let unsigned = async || {
            let mut own = stage.footprint_of(&staff("7")).await.unwrap().entity;
            assert!(
                matches!(own.properties.remove("Signature"), Some(EdmValue::Binary(signature)) if signature.len() == 32)
            );
            own.properties.extend(
                signature
                    .clone()
                    .map(|signature| ("Signature".to_owned(), signature)),
            );
            stage.row(footprint::FOOTPRINTS, own).await;
        };
        unsigned().await;
        let sync = json!({"op": "sync", "table": "Staff", "pk": "Sales", "rk": "7"});
        stage.done(&sync).await;
        let log = Log::default();
        let here = log.of_this_thread();
        let ann = json!({"PartitionKey": "Sales", "RowKey": "7", "FirstName": "Ann", "LastName": "King", "Email": "a@contoso.com"});
        stage
            .done(&json!({"op": "put", "table": "Staff", "entity": ann}))
            .await;
        assert!(
            stage
                .read("ByEmail", "email_Sales", "ann@contoso.com")
                .await
                .is_none()
        );
        assert!(
            stage
                .read("ByEmail", "email_Sales", "a@contoso.com")
                .await
                .is_some()
        );
        unsigned().await;
        stage
            .done(&json!({"op": "delete", "table": "Staff", "pk": "Sales", "rk": "7"}))
            .await;
        drop(here);
        assert_eq!(
            log.take(),
            "",
            "an unreadable secret must not count as a forgery"
        );
        let left = |name: &str| {
            stage
                .sim
                .rows(&crate::hostile::stage::table(name))
                .into_iter()
                .filter(|row| row.entity.text("ek_source") == Some(r#"["Staff","Sales","7"]"#))
                .count()
        };
        assert_eq!(["ByEmail", "Staff", "Managers"].map(left), [0; 3]);
        assert_eq!(stage.picture(), before);
    }
}
