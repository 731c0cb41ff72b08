//! Large values, staged by the official SDKs.

use evenkeel::model::large::Pointer;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::sdk::{node, python};
use crate::site::{QUEUE, Site};

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
        ["--queue", QUEUE, "--table", "Employees", "--row", row, "--property", "Photo", "--bytes", bytes]
    };
    let staged = [
        ("python", python(site.ports(), "stage_put.py", &arguments("python", "6000000"))),
        ("node", node(site.ports(), "stage_put.mjs", &arguments("node", "6000000"))),
        // The second value of an entity takes the place of the first.
        ("node", node(site.ports(), "stage_put.mjs", &arguments("node", "5000001"))),
    ];
    assert_eq!(site.run_until_idle(&[]).done, 3);
    site.assert_all_done();
    let rows = site.rows("Employees");
    for (row, said) in &staged[..1] {
        check(&site, &rows[&("Sales".to_owned(), (*row).to_owned())].entity, row, said, 6_000_000);
    }
    let (row, said) = &staged[2];
    check(&site, &rows[&("Sales".to_owned(), (*row).to_owned())].entity, row, said, 5_000_001);
}

/// The entity points to what was staged, and the program writes it into a file.
fn check(site: &Site, entity: &evenkeel::model::Entity, row: &str, said: &str, bytes: u64) {
    let said: Value = serde_json::from_str(said).unwrap();
    let pointer = Pointer::of(entity.get("Photo").unwrap()).unwrap();
    assert_eq!((pointer.sha256.as_str(), pointer.bytes), (said["sha256"].as_str().unwrap(), bytes));
    let file = tempfile::tempdir().unwrap();
    let path = file.path().join("photo.png");
    let ended = site.command(&["get", "Employees", "Sales", row, "--property", "Photo", "--out", path.to_str().unwrap()]);
    assert_eq!((ended.code, ended.out.as_str()), (0, ""), "{}", ended.err);
    assert_eq!(hex::encode(Sha256::digest(std::fs::read(&path).unwrap())), pointer.sha256);
    assert_eq!(std::fs::read_dir(file.path()).unwrap().count(), 1);
    let none = site.command(&["get", "Employees", "Sales", row, "--property", "Nothing", "--out", "-"]);
    assert_eq!(none.code, 1);
    assert!(none.err.contains("no entity") && none.err.contains("property Nothing"), "{}", none.err);
}
