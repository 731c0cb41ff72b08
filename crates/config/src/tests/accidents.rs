//! Input that probably does not mean what its author intends, or has no effect.

use super::*;

/// Returns the warnings about these files, without the path of their folder.
fn warned(files: &[(&str, &str)]) -> Vec<String> {
    let folder = folder(files);
    let prefix = format!("{}/", folder.path().display());
    load(&request(folder.path()))
        .unwrap()
        .warnings
        .iter()
        .map(|warning| warning.to_string().replace(&prefix, ""))
        .collect()
}

fn has(findings: &[String], parts: &[&str]) {
    assert!(
        findings
            .iter()
            .any(|finding| parts.iter().all(|part| finding.contains(part))),
        "{parts:?} is not in {findings:#?}"
    );
}

#[test]
fn a_date_format_without_a_directive_is_refused_with_the_one_that_was_meant() {
    for (format, meant) in [
        ("yyyy-MM-dd", "date:%Y-%m-%d?"),
        ("yyyyMMddHHmmss", "date:%Y%m%d%H%M%S?"),
        ("today", "\"today\""),
        ("%%", "\"%\""),
    ] {
        let found =
            mistakes(&VIEW.replace("{RowKey}", &format!("{{At|date:{format}}}_{{RowKey}}")));
        has(
            &found,
            &["default.toml:7: views.v.row_key: ", "no directive", meant],
        );
    }
    assert!(load_text(&VIEW.replace("{RowKey}", "{At|date:%S%Y%m%d}_{RowKey}")).is_ok());
}

#[test]
fn a_number_without_a_unit_is_reported_with_the_missing_unit() {
    let lease = mistakes("[worker]\nlease = 60\n");
    assert_eq!(
        lease,
        [
            "default.toml:2: worker.lease: expected a duration such as \"60s\", found the number 60 without a unit; did you mean \"60s\"?"
        ]
    );
    has(
        &mistakes(
            "[worker]\nstorage_retry = { min = 50, base = \"100ms\", max = \"5s\", attempts = 6 }",
        ),
        &["worker.storage_retry.min", "50s"],
    );
}

#[test]
fn a_view_declared_twice_in_one_file_is_one_mistake_that_names_both_places() {
    assert_eq!(
        mistakes(&format!("{VIEW}{VIEW}")),
        ["default.toml:9: views.v: already declared in default.toml:2"]
    );
    let once_more = format!("{VIEW}[worker]\nlease = \"60s\"\nlease = \"70s\"\n{VIEW}");
    assert_eq!(
        mistakes(&once_more),
        [
            "default.toml:10: worker.lease: already declared in default.toml:9",
            "default.toml:12: views.v: already declared in default.toml:2"
        ]
    );
}

#[test]
fn a_view_declared_in_the_default_file_and_in_the_catalog_is_one_mistake_too() {
    let folder = folder(&[("default.toml", VIEW), ("catalog/a.toml", VIEW)]);
    let error = load(&request(folder.path())).unwrap_err();
    assert_eq!(error.errors.len(), 1, "{error}");
    assert!(
        error
            .to_string()
            .contains("a.toml:2: views.v: already declared in ")
            && error.to_string().ends_with("default.toml:2"),
        "{error}"
    );
}

#[test]
fn every_unread_catalog_file_is_reported_with_its_expected_path() {
    let found = warned(&[
        ("default.toml", ""),
        ("bookings.toml", VIEW),
        ("catalogue/guests.toml", "[archives.a]"),
        ("catalog/sub/rooms.toml", "[tables.Rooms]"),
        ("catalog/menus.tml", "[retention.old]\nnot TOML"),
        ("production.toml", "[worker]\nlease = \"90s\""),
        ("catalog/..data/hidden.toml", VIEW),
        ("catalog/.hidden/hidden.toml", VIEW),
        ("dashboard.json", "[views.v]"),
    ]);
    assert_eq!(found.len(), 4, "{found:#?}");
    for (file, place) in [
        (
            "bookings.toml: ",
            "expected it at catalog/bookings.toml (or use --profile bookings",
        ),
        (
            "catalogue/guests.toml: ",
            "expected it at catalog/guests.toml",
        ),
        (
            "catalog/sub/rooms.toml: ",
            "expected it at catalog/rooms.toml",
        ),
        ("catalog/menus.tml: ", "expected it at catalog/menus.toml"),
    ] {
        has(&found, &[file, "is not read and declares [", place]);
    }
}

#[test]
fn a_file_that_is_read_gives_no_warning_but_a_misspelt_default_toml_does() {
    let read = folder(&[
        ("default.toml", ""),
        ("bookings.toml", VIEW),
        ("catalog/a.toml", "[tables.Rooms]"),
    ]);
    let profile = Request {
        profile: Some("bookings".to_owned()),
        ..request(read.path())
    };
    assert_eq!(load(&profile).unwrap().warnings, []);
    let misspelt = folder(&[("default.tml", "[worker]")]);
    let error = load(&request(misspelt.path())).unwrap_err();
    assert!(
        error.errors[0].to_string().contains("has no default.toml"),
        "{error}"
    );
    let warnings: Vec<String> = error.warnings.iter().map(ToString::to_string).collect();
    assert!(
        warnings[0].contains("default.tml: is not read") && warnings[0].ends_with("default.toml"),
        "{warnings:?}"
    );
}

#[test]
fn the_warning_about_ambiguous_keys_names_only_missing_properties() {
    let found = warned(&[(
        "default.toml",
        &VIEW
            .replace("{PartitionKey}", "all")
            .replace("{RowKey}", "{Email}"),
    )]);
    has(
        &found,
        &[
            "it does not contain PartitionKey or RowKey. Set on_conflict, or add PartitionKey and RowKey to a key",
        ],
    );
    let cut = warned(&[(
        "default.toml",
        &VIEW
            .replace("{PartitionKey}", "all")
            .replace("{RowKey}", "{RowKey}_{PartitionKey}"),
    )]);
    has(
        &cut,
        &[
            "`{RowKey}_{PartitionKey}` is ambiguous (`a_b`+`c`, `a`+`b_c`). Set on_conflict, or write {PartitionKey|hash:64}",
        ],
    );
    assert!(
        !cut.iter()
            .any(|warning| warning.contains("to a key") || warning.contains("does not contain")),
        "{cut:#?}"
    );
    let both = warned(&[(
        "default.toml",
        &VIEW
            .replace("{PartitionKey}", "all")
            .replace("{RowKey}", "{RowKey|lower}"),
    )]);
    has(
        &both,
        &[
            "it does not contain PartitionKey. Set on_conflict, or add PartitionKey to a key, and write {RowKey|hash:64}",
        ],
    );
}

#[test]
fn cycles_of_archives_of_any_length_are_refused() {
    let archive = |name: &str, from: &str, to: &str| {
        format!(
            "[archives.{name}]\nsource = \"{from}\"\nto = {{ kind = \"table\", table = \"{to}\" }}\n"
        )
    };
    let two = mistakes(&(archive("out", "Aaa", "Bbb") + &archive("back", "Bbb", "Aaa")));
    assert_eq!(two.len(), 2, "{two:#?}");
    has(
        &two,
        &[
            "archives.out.to.table",
            "entities archived from Aaa come back through \"back\"",
            "restore job",
        ],
    );
    let three = mistakes(
        &(archive("a", "Aaa", "Bbb")
            + &archive("b", "Bbb", "Ccc")
            + &archive("c", "Ccc", "Aaa")
            + &archive("d", "Ddd", "Eee")),
    );
    assert_eq!(three.len(), 3, "{three:#?}");
    has(&three, &["archives.a.to.table", "\"b\", then \"c\""]);
    let chain = load_text(&(archive("a", "Aaa", "Bbb") + &archive("b", "Bbb", "Ccc")));
    assert!(chain.is_ok());
}

#[test]
fn a_view_and_an_archive_with_one_name_are_a_warning() {
    let text = format!(
        "{VIEW}[archives.v]\nsource = \"Employees\"\nto = {{ kind = \"table\", table = \"Former\" }}\n"
    );
    has(
        &warnings(&text),
        &[
            "archives.v: a view has the same name",
            "`evenkeel lookup v`",
        ],
    );
}

#[test]
fn credentials_are_checked_by_the_store_adapter() {
    fn refuse(_: &AccountName, auth: &AzureAuth) -> Result<(), String> {
        match auth {
            AzureAuth::ConnectionString(_) => Err("no key".to_owned()),
            AzureAuth::Key { .. } | AzureAuth::Sas { .. } | AzureAuth::Entra { .. } => Ok(()),
        }
    }
    let folder = folder(&[(
        "default.toml",
        "[accounts.main]\nkind = \"azure\"\nconnection_string_env = \"C\"\n",
    )]);
    let environment = with_environment(request(folder.path()), &[("C", "AccountName=contoso")]);
    assert!(load(&environment).is_ok());
    let error = load(&Request {
        account_check: Some(refuse),
        ..environment
    })
    .unwrap_err()
    .to_string();
    assert!(
        error.contains("default.toml:3: accounts.main.connection_string_env: no key"),
        "{error}"
    );
}
