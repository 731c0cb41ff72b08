//! Search documents: a forged message or a forged footprint may name any index and any document key.

use evenkeel_model::{CollectionName, sink};
use serde_json::json;

use crate::hostile::stage::{Stage, staff};

#[tokio::test]
async fn no_document_of_another_index_or_another_key_is_deleted() {
    let stage = Stage::new().await;
    let before = stage.picture();
    let (own, bobs) = (sink::key(&staff("7")), sink::key(&staff("8")));
    for (index, document) in [
        ("some-other-teams-index", "customer-42"),
        ("some-other-teams-index", own.as_str()),
        ("people", bobs.as_str()),
    ] {
        for view in ["found", "by_email", "gone"] {
            let item =
                json!({"view": view, "account": "catalog", "index": index, "document": document});
            stage
                .recheck_of(&staff("7"), std::slice::from_ref(&item))
                .await;
            for changing in [0, 1] {
                let items = json!([[
                    view,
                    1,
                    "catalog",
                    ["document", index, document],
                    null,
                    "e1",
                    changing
                ]]);
                drop(stage.forge_footprint(&staff("7"), &items).await);
            }
            assert_eq!(stage.picture(), before, "{item}");
        }
    }
}

#[tokio::test]
async fn a_document_of_the_primary_itself_goes_with_it() {
    let stage = Stage::new().await;
    let people = CollectionName::new("people").unwrap();
    assert!(
        stage
            .sim
            .documents(&people)
            .contains_key(&sink::key(&staff("7")))
    );
    stage
        .done(&json!({"op": "delete", "table": "Staff", "pk": "Sales", "rk": "7"}))
        .await;
    assert!(
        !stage
            .sim
            .documents(&people)
            .contains_key(&sink::key(&staff("7")))
    );
    assert!(
        stage
            .sim
            .documents(&people)
            .contains_key(&sink::key(&staff("8")))
    );
}
