//! `evenkeel certify`: a conforming store passes all rules, chaos loses nothing, the budget of requests is kept, and
//! nothing is left behind.

use evenkeel_model::prices;
use evenkeel_storage::all_tables;
use serde_json::Value;

use crate::end_to_end::site::{CommandResult, EMPLOYEES, Site};

/// Duration of the chaos. Leases and rechecks expire after it.
const CHAOS: &str = "10s";

fn certified(site: &Site, budget: &str, chaos: &str) -> (CommandResult, Value) {
    let before = site.with(async |account| all_tables(account.tables.as_ref()).await.unwrap());
    let report = site.file("report.json");
    let ended = site.command(&[
        "--json",
        "certify",
        "--yes",
        "--budget",
        budget,
        "--chaos",
        chaos,
        "--report",
        report.to_str().unwrap(),
    ]);
    let told: Value =
        serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let written: Value =
        serde_json::from_str(&std::fs::read_to_string(site.file("report.json")).unwrap()).unwrap();
    assert_eq!(told, written);
    assert!(
        told["dollars"].as_f64().unwrap() <= budget.parse().unwrap()
            && told["left"] == Value::Array(Vec::new()),
        "{ended:?}"
    );
    let after = site.with(async |account| all_tables(account.tables.as_ref()).await.unwrap());
    assert_eq!(before, after, "all created objects must be deleted");
    (ended, told)
}

/// The number of requests that were sent, and the number that was announced.
fn said(ended: &CommandResult, told: &Value) -> (f64, f64) {
    let said = ended
        .err
        .split("about ")
        .nth(1)
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .replace(',', "")
        .parse()
        .unwrap();
    (told["requests"].as_f64().unwrap(), said)
}

#[test]
fn every_rule_holds_on_the_embedded_store_and_costs_no_more_than_was_said() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    let (ended, told) = certified(&site, "1", "0s");
    assert_eq!(
        (
            ended.code,
            &told["broken"],
            &told["not_run"],
            &told["chaos"]
        ),
        (0, &0.into(), &0.into(), &Value::Null),
        "{ended:?}"
    );
    assert!(told["holds"].as_u64() > Some(140), "{ended:?}");
    let (sent, said) = said(&ended, &told);
    assert!(sent <= said, "{ended:?}");
}

/// On both stores the chaos loses nothing, and sends no more requests than were announced.
#[test]
fn chaos_loses_nothing_and_costs_no_more_than_was_said() {
    let weathered = |site: &Site| {
        site.migrate();
        let (ended, told) = certified(site, "1", CHAOS);
        let chaos = &told["chaos"];
        assert_eq!(
            (ended.code, &chaos["outcome"]),
            (0, &"holds".into()),
            "{ended:?}"
        );
        for (name, least) in [
            ("jobs", 5),
            ("kills", 1),
            ("faults", 5),
            ("primaries", 1),
            ("items", 3),
        ] {
            assert!(chaos[name].as_u64() > Some(least), "{name}: {ended:?}");
        }
        let (sent, said) = said(&ended, &told);
        assert!(sent <= said, "{ended:?}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| weathered(&Site::embedded(EMPLOYEES)));
        weathered(&Site::azurite(EMPLOYEES));
    });
}

#[test]
fn a_small_budget_is_kept_on_azurite_and_pays_for_cleaning_up() {
    let site = Site::azurite(EMPLOYEES);
    site.migrate();
    let (ended, told) = certified(&site, "0.0002", "10m");
    assert!(
        ended.code == 1 && told["not_run"].as_u64() > Some(0) && told["holds"].as_u64() > Some(0),
        "{ended:?}"
    );
    assert_eq!(
        (&told["broken"], &told["chaos"]["outcome"]),
        (&0.into(), &"not_run".into()),
        "a test that the budget ended must not count as failed: {ended:?}"
    );
    assert!(
        told["dollars"].as_f64().unwrap() > 0.0002 - prices::BLOB_WRITES / 5_000.0,
        "{ended:?}"
    );
}

#[test]
fn nothing_is_sent_where_nobody_can_be_asked() {
    let site = Site::embedded(EMPLOYEES);
    site.migrate();
    for (arguments, words) in [
        (
            &["certify", "--budget", "0.05"][..],
            "the budget is $0.05. Add --yes",
        ),
        (&["certify", "--yes", "--budget", "0"], "0.0001 to 1000"),
        (
            &["certify", "--yes", "--budget", "1", "--account", "second"],
            "second",
        ),
        (
            &["certify", "--yes", "--budget", "1", "--chaos", "2h"],
            "0s to 1h",
        ),
    ] {
        let ended = site.command(arguments);
        assert!(
            ended.code == 2 && ended.err.contains(words),
            "{arguments:?}: {ended:?}"
        );
    }
}
