//! Large values that the official SDKs have staged.

use evenkeel_model::large::Pointer;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::end_to_end::sdk::{node, python};
use crate::end_to_end::site::{QUEUE, Site};

const PHOTOS: &str = r#"
[views.employee_photo]
kind = "large_entity"
source = "Employees"
properties = ["Photo"]
container = "employee-large"
"#;

#[test]
fn what_both_sdks_staged_in_blocks_becomes_a_value_and_comes_out_as_a_file() {
    let site = Site::azurite(PHOTOS);
    let arguments = |row: &'static str, bytes: &'static str| {
        [
            "--queue",
            QUEUE,
            "--table",
            "Employees",
            "--row",
            row,
            "--property",
            "Photo",
            "--bytes",
            bytes,
        ]
    };
    let stage_python = || {
        python(
            site.ports(),
            "stage_put.py",
            &arguments("python", "6000000"),
        )
    };
    let stage_node = |bytes| node(site.ports(), "stage_put.mjs", &arguments("node", bytes));
    let staged = [
        ("python", stage_python(), 6_000_000),
        ("node", stage_node("6000000"), 6_000_000),
    ];
    assert_eq!(site.run_until_idle(&[]).done, 2);
    for (row, said, bytes) in &staged {
        check(&site, row, said, *bytes);
    }
    // A second value replaces the first. Its job is sent after the first value was written, because a queue does not
    // keep order.
    let second = stage_node("5000001");
    assert_eq!(site.run_until_idle(&[]).done, 1);
    check(&site, "node", &second, 5_000_001);
    site.assert_all_done();
}

fn check(site: &Site, row: &str, said: &str, bytes: u64) {
    let said: Value = serde_json::from_str(said).unwrap();
    let rows = site.rows("Employees");
    let entity = &rows[&("Sales".to_owned(), row.to_owned())].entity;
    let pointer = Pointer::of(entity.get("Photo").unwrap()).unwrap();
    assert_eq!(
        (pointer.sha256.as_str(), pointer.bytes),
        (said["sha256"].as_str().unwrap(), bytes)
    );
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("photo.png");
    let ended = site.command(&[
        "get",
        "Employees",
        "Sales",
        row,
        "--property",
        "Photo",
        "--out",
        path.to_str().unwrap(),
    ]);
    assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{}", ended.err);
    assert_eq!(
        hex::encode(Sha256::digest(std::fs::read(&path).unwrap())),
        pointer.sha256
    );
    assert_eq!(std::fs::read_dir(file.path()).unwrap().count(), 1);
    let none = site.command(&[
        "get",
        "Employees",
        "Sales",
        row,
        "--property",
        "Nothing",
        "--out",
        "-",
    ]);
    assert_eq!(none.code, 1);
    assert!(
        none.err.contains("no entity") && none.err.contains("property Nothing"),
        "{}",
        none.err
    );
}
