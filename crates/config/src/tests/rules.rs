//! `[rules.NAME]`.

use super::*;
use evenkeel_model::sweep::SweepAction;

const ARCHIVE: &str =
    "[archives.past]\nsource = \"Bookings\"\nto = { kind = \"table\", table = \"PastBookings\" }\n";
const VIEW: &str = "[views.by_guest]\nkind = \"secondary_index\"\nsource = \"Bookings\"\ntable = \"ByGuest\"\npartition_key = \"{Guest}\"\nrow_key = \"{RowKey}\"\n";

#[test]
fn a_rule_archives_or_deletes_by_a_condition_every_day() {
    let rules = "[rules.old]\narchive = \"past\"\nwhen = \"At < now - 90d\"\n[rules.gone]\ndelete = \"pastbookings\"\nwhen = \"Timestamp < now - 900d\"\nevery = \"7d\"\n";
    let catalog = load_text(&format!("{ARCHIVE}{rules}")).unwrap().catalog;
    let [gone, old] = ["gone", "old"].map(|name| {
        catalog
            .rules
            .iter()
            .find(|(found, _)| found.as_str() == name)
            .unwrap()
            .1
            .clone()
    });
    assert!(
        matches!(&old.sweep.action, SweepAction::Archive(archive) if archive.as_str() == "past")
    );
    assert_eq!((old.every.as_secs(), old.sweep.per_second), (86_400, 500));
    assert!(
        matches!(&gone.sweep.action, SweepAction::Delete(table) if table.as_str() == "PastBookings"),
        "as declared"
    );
    assert_eq!(
        (gone.every.as_secs(), gone.sweep.per_second),
        (7 * 86_400, 500)
    );
}

#[test]
fn mistakes_in_a_rule_are_named_at_their_keys() {
    for (rule, expected) in [
        (
            "archive = \"past\"",
            "rules.r.when: missing; expected a condition such as \"At < now - 90d\"",
        ),
        (
            "archive = \"past\"\nwhen = \"At < now - 90\"",
            "rules.r.when: expected a whole number and a unit",
        ),
        (
            "archive = \"psat\"\nwhen = \"A == 1\"",
            "rules.r.archive: the catalog has no archive \"psat\"; did you mean past?",
        ),
        (
            "delete = \"Nowhere\"\nwhen = \"A == 1\"",
            "rules.r.delete: the catalog has no table \"Nowhere\"; known are Bookings, ByGuest",
        ),
        (
            "delete = \"ByGuest\"\nwhen = \"A == 1\"",
            "rules.r.delete: table ByGuest holds only rows of views",
        ),
        (
            "when = \"A == 1\"",
            "rules.r: expected either archive = \"ARCHIVE\" or delete = \"TABLE\", found neither",
        ),
        (
            "archive = \"past\"\ndelete = \"Bookings\"\nwhen = \"A == 1\"",
            "found both",
        ),
        (
            "archive = \"past\"\nwhen = \"A == 1\"\nevery = \"5m\"",
            "rules.r.every: expected 1h to 366d",
        ),
        (
            "archive = \"past\"\nwhen = \"A == 1\"\nper_second = 0",
            "rules.r.per_second: unknown key; a rule processes 500 entities a second",
        ),
        (
            "archive = \"past\"\nwhen = \"A == 1\"\nevry = \"5d\"",
            "rules.r.evry",
        ),
    ] {
        let found = mistakes(&format!("{ARCHIVE}{VIEW}[rules.r]\n{rule}\n"));
        assert!(
            found.iter().any(|found| found.contains(expected)),
            "{expected}: {found:#?}"
        );
    }
    let alone = mistakes(&format!(
        "{VIEW}[rules.r]\narchive = \"past\"\nwhen = \"A == 1\"\n"
    ));
    assert!(
        alone
            .iter()
            .any(|found| found.ends_with("the catalog has no archive \"past\"; known are none")),
        "{alone:#?}"
    );
    let views = format!("{VIEW}when = \"At < now - 90d\"\n");
    assert!(
        mistakes(&views)
            .iter()
            .any(|found| found.contains("is allowed only in jobs and rules")),
        "{:#?}",
        mistakes(&views)
    );
}
