//! `evenkeel stress` reports about two keys and leaves nothing behind, on both stores.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use evenkeel_model::{Entity, EntityKey};
use evenkeel_storage::all_tables;
use serde_json::Value;

use crate::end_to_end::site::{EMPLOYEES, Site};

fn staff(site: &Site) {
    let entity = |at: usize| {
        let department = ["Sales", "Sales", "Sales", "Legal"][at % 4];
        Entity::new(EntityKey::new("all", format!("{at:03}")).unwrap())
            .with("Department", department)
    };
    site.migrate();
    site.write("Employees", &(0..100).map(entity).collect::<Vec<_>>());
}

fn scratch_tables(site: &Site) -> usize {
    let tables = site.with(async |account| all_tables(account.tables.as_ref()).await.unwrap());
    tables
        .iter()
        .filter(|table| table.as_str().starts_with("EvenkeelScratch"))
        .count()
}

fn two_keys_are_compared(site: &Site) {
    staff(site);
    let chart = site.file("stress.svg");
    let keys = [
        "--key",
        "{Department}",
        "--key",
        "{Department}_{RowKey|bucket:8}",
    ];
    let bounds = [
        "--yes",
        "--requests",
        "400",
        "--concurrency",
        "8",
        "--peak",
        "6000",
        "--chart",
        chart.to_str().unwrap(),
    ];
    let ended = site.command(
        &[
            &["--json", "stress", "--table", "Employees"],
            &keys[..],
            &bounds,
        ]
        .concat(),
    );
    assert_eq!(ended.code, 0, "{ended:?}");
    let told: Value = serde_json::from_str(&ended.out).unwrap();
    let [coarse, fine] = told["loads"].as_array().unwrap().as_slice() else {
        panic!("{told}")
    };
    assert_eq!(
        (
            &coarse["load"],
            &coarse["partitions"],
            &coarse["hottest_share"]
        ),
        (&"{Department}".into(), &2.into(), &0.75.into())
    );
    assert_eq!(
        (&coarse["verdict"], &fine["verdict"]),
        (&"too_coarse".into(), &"fits".into()),
        "of 6,000 a second: {told}"
    );
    assert_eq!(
        (&coarse["done"], &fine["done"]),
        (&400.into(), &400.into()),
        "{told}"
    );
    let sent = told["requests"].as_u64().unwrap();
    assert!(
        (800..900).contains(&sent) && told["dollars"].as_f64().unwrap() < 0.001,
        "the loads, and transactions to fill the table: {told}"
    );
    let svg = std::fs::read_to_string(chart).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.contains("{Department}_{RowKey|bucket:8}: "),
        "{svg}"
    );
    assert_eq!(scratch_tables(site), 0);
}

#[test]
fn two_keys_are_compared_on_the_embedded_store() {
    two_keys_are_compared(&Site::embedded(EMPLOYEES));
}

#[test]
fn two_keys_are_compared_on_azurite() {
    two_keys_are_compared(&Site::azurite(EMPLOYEES));
}

#[test]
fn nothing_is_sent_where_nobody_can_be_asked_and_nonsense_is_refused() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    for (arguments, words) in [
        (
            &["stress"][..],
            "at most 202,002 transactions, $0.0073 at list prices. Add --yes",
        ),
        (
            &["stress", "--yes", "--key", "{Department}"],
            "--table TABLE or --sample FILE",
        ),
        (
            &["stress", "--yes", "--table", "Employees"],
            "the sample has no entities",
        ),
        (&["stress", "--yes", "--account", "second"], "second"),
        (&["stress", "--yes", "--size", "1MiB"], "1B to 64KiB"),
    ] {
        let ended = site.command(arguments);
        assert!(
            ended.code == 2 && ended.err.contains(words) && ended.out.is_empty(),
            "{arguments:?}: {ended:?}"
        );
    }
    std::fs::write(
        site.file("staff.jsonl"),
        "{\"PartitionKey\":\"p\",\"RowKey\":\"r\"}\nno entity\n",
    )
    .unwrap();
    let ended = site.command(&[
        "stress",
        "--yes",
        "--sample",
        site.file("staff.jsonl").to_str().unwrap(),
    ]);
    assert!(ended.code == 2 && ended.err.contains("line 2"), "{ended:?}");
    assert_eq!(scratch_tables(&site), 0);
}

#[test]
fn an_interrupted_test_leaves_no_table() {
    let site = Site::azurite(EMPLOYEES);
    let mut program = site.program(&["stress", "--yes", "--duration", "10m"]);
    let mut child = program
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut aside = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    aside.read_line(&mut text).unwrap();
    assert!(
        text.contains("Loading the scratch table EvenkeelScratch"),
        "{text}"
    );
    assert!(
        Command::new("sh")
            .args(["-c", &format!("kill -INT {}", child.id())])
            .status()
            .unwrap()
            .success()
    );
    aside.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    assert!(
        text.contains("there is no result. The scratch table is deleted."),
        "{text}"
    );
    assert_eq!(scratch_tables(&site), 0);
}
