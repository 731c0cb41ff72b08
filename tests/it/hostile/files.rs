//! Files: a forged message or a forged footprint may name any path on the worker's host.

use serde_json::json;

use crate::hostile::stage::{Stage, key, staff, table};
use evenkeel_model::job::Primary;

/// Paths that do not belong to Ann. Each is a folder, and a name relative to that folder.
fn paths(stage: &Stage) -> Vec<(String, String)> {
    let (victim, share) = (stage.victim(), stage.share());
    let (victim, share) = (victim.to_str().unwrap(), share.to_str().unwrap());
    let parent = stage
        .victim()
        .parent()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let sha = "0".repeat(64);
    vec![
        (victim.to_owned(), "canary.txt".to_owned()),
        (parent, "victim/canary.txt".to_owned()),
        (share.to_owned(), "../victim/canary.txt".to_owned()),
        (share.to_owned(), "Sales/9.json".to_owned()),
        (format!("{share}/Sales"), "9.json".to_owned()),
        (share.to_owned(), format!("Sales/7.json%values/Photo-{sha}")),
        (share.to_owned(), format!("Sales/9.json%values/Photo-{sha}")),
    ]
}

#[tokio::test]
async fn a_recheck_deletes_no_file_and_makes_no_folder() {
    let stage = Stage::new().await;
    let before = stage.picture();
    for (dir, file) in paths(&stage) {
        let item = json!({"view": "by_email", "account": "main", "dir": dir, "file": file});
        for primary in [staff("7"), staff("no-such")] {
            stage
                .recheck_of(&primary, std::slice::from_ref(&item))
                .await;
            assert_eq!(stage.picture(), before, "{item} of {primary}");
        }
    }
}

#[tokio::test]
async fn a_forged_footprint_deletes_no_file_and_makes_no_folder() {
    let stage = Stage::new().await;
    let before = stage.picture();
    for (dir, file) in paths(&stage) {
        for changing in [0, 1] {
            let items = json!([[
                "photos",
                1,
                "main",
                ["file", dir, file],
                null,
                "\"1-2-3\"",
                changing
            ]]);
            drop(stage.forge_footprint(&staff("7"), &items).await);
            assert_eq!(stage.picture(), before, "{items}");
        }
    }
}

#[tokio::test]
async fn an_archived_entity_reaches_no_file_beside_another_document() {
    let stage = Stage::new().await;
    let before = stage.picture();
    let table_of_drawer = stage
        .engine
        .catalog()
        .archived_values
        .keys()
        .next()
        .unwrap()
        .clone();
    let values: Vec<String> = before
        .keys()
        .filter(|name| name.contains("9.json%values/Photo-"))
        .cloned()
        .collect();
    let [photo] = values.as_slice() else {
        panic!("Cid's photo must be in the file archive: {before:?}")
    };
    let share = format!("{}/", stage.share().display());
    let name = photo.strip_prefix(&share).unwrap();
    // Three primaries that do not own the photo: another entity of the same archive, an entity that does not exist, and
    // Cid's key in a table without an archive.
    for primary in [
        Primary {
            table: table_of_drawer.clone(),
            key: key("Sales", "7"),
        },
        staff("9"),
        Primary {
            table: table("Payroll"),
            key: key("Sales", "9"),
        },
    ] {
        let item = json!({"view": "photos", "account": "main", "dir": stage.share(), "file": name});
        stage.recheck_of(&primary, &[item]).await;
        assert_eq!(stage.picture(), before, "{primary}");
    }
}

#[tokio::test]
async fn files_of_an_archived_entity_itself_are_dropped_as_ever() {
    let stage = Stage::new().await;
    let values = |stage: &Stage| {
        stage
            .picture()
            .into_keys()
            .filter(|name| name.contains("9.json%values/Photo-"))
            .count()
    };
    assert_eq!(values(&stage), 1);
    stage
        .done(&json!({"op": "restore", "archive": "drawer", "pk": "Sales", "rk": "9"}))
        .await;
    assert_eq!(
        values(&stage),
        0,
        "a restored entity must not leave a value in the file archive"
    );
    assert!(stage.read("Staff", "Sales", "9").await.is_some());
}
