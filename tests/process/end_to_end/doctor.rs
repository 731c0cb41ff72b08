//! `evenkeel doctor` on Azurite checks the clock, the latency and the permission to write.

use serde_json::Value;

use crate::end_to_end::site::{EMPLOYEES, Site};

#[test]
fn an_account_that_answers_is_well_and_nothing_of_the_tried_writes_is_left() {
    let site = Site::azurite(EMPLOYEES);
    site.migrate();
    let ended = site.command(&["--json", "doctor", "--write"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let lines: Vec<Value> = ended
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |check: &str| {
        lines
            .iter()
            .filter(|line| line["check"] == check)
            .collect::<Vec<_>>()
    };
    assert!(
        of("clock")[0]["severity"] == "ok",
        "the emulator uses this machine's clock: {ended:?}"
    );
    assert!(
        of("latency")[0]["finding"]
            .as_str()
            .unwrap()
            .contains("in 20 reads"),
        "{ended:?}"
    );
    let [account] = &of("account")[..] else {
        panic!("{ended:?}")
    };
    assert_eq!(
        (&account["severity"], &account["finding"]),
        (&"ok".into(), &"StorageV2, Standard_RAGRS".into())
    );
    assert_eq!(of("writes").len(), 3);
    let ended = site.command(&["doctor"]);
    assert!(
        ended.code == 0 && !ended.out.contains("scratch"),
        "{ended:?}"
    );
}
