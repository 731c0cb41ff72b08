//! Many entities are archived, so that races occur.

use serde_json::Value;

use crate::end_to_end::oracle::assert_archived;
use crate::end_to_end::sdk::python;
use crate::end_to_end::site::{QUEUE, Site};

const ARCHIVE: &str = r#"
[archives.former_employees]
source = "Employees"
to = { kind = "table", table = "FormerEmployees" }
"#;

#[test]
fn three_thousand_archive_jobs_of_the_python_sdk_leave_the_source_empty_and_the_archive_complete_with_every_type()
 {
    let site = Site::azurite(ARCHIVE);
    let ports = site.ports();
    python(
        ports,
        "seed_entities.py",
        &["--table", "Employees", "--count", "3000"],
    );
    let sources = site.rows("Employees");
    assert_eq!(sources.len(), 3_000);
    let as_python_wrote_them = python(
        ports,
        "read_entities.py",
        &["--table", "Employees", "--filter", "RowKey eq '000007'"],
    );

    let enqueue = |first: &str, encoding: &str| {
        let jobs = [
            "--queue",
            QUEUE,
            "--archive",
            "former_employees",
            "--first",
            first,
            "--count",
            "1500",
            "--encoding",
            encoding,
        ];
        python(ports, "enqueue_archive.py", &jobs);
    };
    enqueue("0", "plain");
    enqueue("1500", "base64");
    let summary = site.run_until_idle(&[]);

    assert_eq!(
        (summary.done, summary.skipped, summary.poisoned),
        (3_000, 0, 0)
    );
    site.assert_all_done();
    assert!(
        site.rows("Employees").is_empty(),
        "the source must be empty"
    );
    let archived = site.rows("FormerEmployees");
    assert_eq!(
        archived.keys().collect::<Vec<_>>(),
        sources.keys().collect::<Vec<_>>()
    );
    for (key, row) in &archived {
        assert_archived(row, &sources[key].entity);
    }

    // The SDK must read the entities back with the same types.
    let read = python(
        ports,
        "read_entities.py",
        &[
            "--table",
            "FormerEmployees",
            "--filter",
            "RowKey eq '000007'",
        ],
    );
    let (before, after): (Value, Value) = (
        serde_json::from_str(&as_python_wrote_them).unwrap(),
        serde_json::from_str(&read).unwrap(),
    );
    for (name, value) in before
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| *name != "Timestamp")
    {
        assert_eq!(&after[name], value, "{name}");
    }
    for (name, kind) in [
        ("Badge", "Edm.Int64"),
        ("Score", "Edm.Double"),
        ("Hired", "Edm.DateTime"),
        ("Account", "Edm.Guid"),
        ("Picture", "Edm.Binary"),
        ("Level", "Edm.Int32"),
        ("IsManager", "Edm.Boolean"),
    ] {
        assert_eq!(after[name][0], kind, "{name}");
    }
}
