//! Conflicts between declarations of any kinds.

use super::*;
use crate::view_section::DraftSection;
use evenkeel_model::catalog::declared_kinds;

const SINKS: &str = "[sinks.search]\nkind = \"search\"\nendpoint = \"https://contoso.search.windows.net\"\nkey_env = \"KEY\"\n\
    [sinks.sql]\nkind = \"sqlite\"\npath = \"data/reporting.db\"\n\
    [sinks.hooks]\nkind = \"webhook\"\nurl = \"https://example.com/hooks\"\nsecret_env = \"HOOK\"\n\
    [accounts.b]\nkind = \"embedded\"\npath = \"b.db\"\n\
    [encryption]\ncurrent = \"k\"\n[encryption.keys.k]\nkey_env = \"SEAL\"\n";
const ENVIRONMENT: [(&str, &str); 3] = [
    ("KEY", "secret"),
    ("HOOK", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    ("SEAL", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
];
const ROWS: &str = "partition_key = \"p\"\nrow_key = \"{Email}\"\n";

/// Sections of every kind and form of view. Each of them uses `Email`.
const SECTIONS: [(&str, &str); 12] = [
    ("secondary_index", "table = \"Target\"\nROWS"),
    (
        "index_entity",
        "store = \"table\"\ntable = \"Target\"\nmember = [\"{PartitionKey}\", \"{RowKey}\"]\nproperty = \"Of\"\nROWS",
    ),
    (
        "index_entity",
        "store = \"partition\"\nrow_key = \"e_{Email}\"\nmember = [\"{RowKey}\"]\nproperty = \"Of\"\n",
    ),
    (
        "index_entity",
        "store = \"blob\"\ncontainer = \"lists\"\nname = \"{Email}.jsonl\"\nmember = [\"{PartitionKey}\", \"{RowKey}\"]\n",
    ),
    (
        "denormalize",
        "table = \"Target\"\nset = { Name = \"{Email}\" }\nROWS",
    ),
    (
        "denormalize",
        "targets = \"range\"\ntable = \"Target\"\npartition_key = \"{Email}\"\nset = { Name = \"{Email}\" }\n",
    ),
    (
        "aggregate",
        "group_table = \"Target\"\nset = { Headcount = \"count()\" }\nROWS",
    ),
    (
        "large_entity",
        "container = \"large\"\nproperties = [\"Photo\"]\n",
    ),
    (
        "search_index",
        "sink = \"search\"\nindex = \"staff\"\nfields = { name = \"{Email}!\" }\n",
    ),
    (
        "sql_table",
        "sink = \"sql\"\ntable = \"staff\"\ncolumns = { name = \"text {Email}!\" }\n",
    ),
    (
        "webhook",
        "sink = \"hooks\"\ntopic = \"staff\"\nfields = { name = \"{Email}!\" }\n",
    ),
    ("sample_exchanged", "table = \"Target\"\n"),
];

/// Returns the sections of the kinds that this build has, as views with this name.
fn sections(name: &str) -> Vec<(&'static str, String)> {
    let declared = declared_kinds::<DraftSection<'_, '_, TableName>>();
    for (kind, _) in &declared {
        assert!(
            SECTIONS.iter().any(|(known, _)| known == kind),
            "SECTIONS has no section of the kind {kind}; add one, so that the kind is tested against all others"
        );
    }
    let is_declared = |kind: &str| declared.iter().any(|(known, _)| *known == kind);
    let sections = SECTIONS.into_iter().filter(|(kind, _)| is_declared(kind));
    let section = |(kind, keys): (&'static str, &str)| {
        let keys = keys.replace("ROWS", ROWS);
        (
            kind,
            format!("[views.{name}]\nkind = {kind:?}\nsource = \"Employees\"\n{keys}"),
        )
    };
    sections.map(section).collect()
}

/// Returns the mistakes in these sections.
fn found(text: &str) -> Vec<String> {
    let folder = folder(&[("default.toml", &format!("{SINKS}{text}"))]);
    let loaded = load(&with_environment(request(folder.path()), &ENVIRONMENT));
    let errors = loaded.err().map(|error| error.errors).unwrap_or_default();
    errors
        .iter()
        .map(|error| format!("{}: {}", error.key, error.message))
        .collect()
}

fn refuses(text: &str, by: &str, parts: &[&str]) {
    let found = found(text);
    let is_it = |mistake: &String| {
        mistake.starts_with(by) && parts.iter().all(|part| mistake.contains(part))
    };
    assert!(
        found.iter().any(is_it),
        "no mistake at {by} contains {parts:?}\n{found:#?}\n{text}"
    );
}

#[test]
fn every_kind_is_right_by_itself() {
    for (_, section) in sections("one") {
        assert_eq!(found(&section), [] as [String; 0], "{section}");
    }
}

#[test]
fn two_views_of_one_kind_that_own_the_same_thing_are_refused() {
    for ((_, one), (_, two)) in sections("one").into_iter().zip(sections("two")) {
        refuses(&format!("{one}{two}"), "views.two.", &["the view one"]);
    }
}

#[test]
fn two_views_of_any_kinds_that_write_the_same_row_are_refused() {
    let writes =
        |(_, section): &(&str, String)| section.contains(ROWS) && section.contains("Target");
    for (_, one) in sections("one").iter().filter(|one| writes(one)) {
        for (_, two) in sections("two").iter().filter(|two| writes(two)) {
            let found = found(&format!("{one}{two}"));
            let named = |mistake: &String| {
                (mistake.starts_with("views.two.") && mistake.contains("the view one"))
                    || (mistake.starts_with("views.one.") && mistake.contains("the view two"))
            };
            assert!(found.iter().any(named), "{one}{two}{found:#?}");
        }
    }
}

#[test]
fn every_kind_refuses_a_target_with_another_role() {
    let facts = [
        (
            "[archives.old]\nsource = \"Others\"\nto = { kind = \"table\", table = \"Target\" }\n",
            "the archive \"old\"",
        ),
        ("[tables.Target]\nwide = true\n", "Target is wide"),
        (
            "[retention.days]\ntables = \"Target%Y%m%d\"\nkeep = \"9d\"\n",
            "Target20261120 is one of the tables of [retention.days]",
        ),
        (
            "[retention.days]\ntables = \"Logins%Y%m%d\"\nkeep = \"9d\"\n[views.follows]\nkind = \"secondary_index\"\nsource = \"Logins%Y%m%d\"\ntable = \"Target%Y%m%d\"\npartition_key = \"{User}\"\nrow_key = \"{RowKey}\"\n",
            "Target20261120 is dropped together with a table of [retention.days]",
        ),
    ];
    for (_, section) in sections("one")
        .iter()
        .filter(|(_, one)| one.contains("Target"))
    {
        for (fact, named) in facts {
            let dated = named.starts_with("Target2026");
            let section = if dated {
                section.replace("Target", "Target20261120")
            } else {
                section.clone()
            };
            let key = if section.contains("group_table") {
                "views.one.group_table"
            } else {
                "views.one.table"
            };
            refuses(&format!("{section}{fact}"), key, &[named]);
        }
    }
}

#[test]
fn every_kind_refuses_a_source_with_another_role() {
    for (_, section) in sections("one") {
        let spread = "[tables.Employees]\naccounts = [\"main\", \"b\"]\n";
        refuses(
            &format!("{section}{spread}"),
            "views.one.source",
            &["Employees is spread over several accounts"],
        );
        let dated = section.replace("Employees", "Logins20261120");
        let retention = "[retention.days]\ntables = \"Logins%Y%m%d\"\nkeep = \"9d\"\n";
        refuses(
            &format!("{dated}{retention}"),
            "views.one.source",
            &["Logins20261120 is one of the tables of [retention.days]"],
        );
    }
}

#[test]
fn every_kind_refuses_an_encrypted_or_large_property_at_its_key() {
    for (_, section) in sections("one")
        .iter()
        .filter(|(_, one)| one.contains("{Email}"))
    {
        let encrypted = "[tables.Employees]\nencrypt = [\"Email\"]\n";
        refuses(
            &format!("{section}{encrypted}"),
            "views.one.",
            &["property Email is encrypted in Employees"],
        );
        let large = "[views.values]\nkind = \"large_entity\"\nsource = \"Employees\"\ncontainer = \"large\"\nproperties = [\"Email\"]\n";
        refuses(
            &format!("{section}{large}"),
            "views.one.",
            &["the view values may move property Email of Employees to a blob"],
        );
    }
}

#[test]
fn the_target_of_an_archive_must_accept_the_rows_of_its_source() {
    let archive =
        "[archives.old]\nsource = \"Employees\"\nto = { kind = \"table\", table = \"Old\" }\n";
    for (has, part) in [
        (
            "[tables.Employees]\nwide = true\n",
            "expected wide = true in [tables.Old]",
        ),
        (
            "[views.values]\nkind = \"large_entity\"\nsource = \"Employees\"\ncontainer = \"large\"\nproperties = [\"Photo\"]\n",
            "the view values stores large values of Employees in blobs; expected a large_entity view",
        ),
        (
            "[tables.Employees]\nencrypt = [\"Ssn\"]\n[tables.Old]\nencrypt = [\"Ssn\"]\n",
            "Old has its own encrypted properties and also receives encrypted rows of Employees",
        ),
        (
            "[tables.Old]\naccounts = [\"main\", \"b\"]\n",
            "Old is spread over several accounts",
        ),
        (
            "[archives.older]\nsource = \"Others\"\nto = { kind = \"table\", table = \"Old\" }\n",
            "",
        ),
    ] {
        if part.is_empty() {
            refuses(
                &format!("{archive}{has}"),
                "archives.older.to.table",
                &["Old is already the target of the archive \"old\""],
            );
        } else {
            refuses(&format!("{archive}{has}"), "archives.old.to.table", &[part]);
        }
    }
    let dated = archive.replace("\"Old\"", "\"Old2026\"");
    refuses(
        &format!("{dated}[retention.years]\ntables = \"Old%Y\"\nkeep = \"9d\"\n"),
        "archives.old.to.table",
        &["Old2026 is one of the tables of [retention.years]"],
    );
}
