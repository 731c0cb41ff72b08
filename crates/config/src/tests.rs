use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use secrecy::ExposeSecret as _;

use super::*;
use evenkeel_model::catalog::{
    ArchiveTarget, OnConflict, RangeRows, SqlTable, TableArchive, ViewKind,
};
use evenkeel_model::settings::{
    AccountKind, AzureAuth, Concurrency, HttpRole, Settings, SinkKind, SqlSettings, SqlTls,
};
use evenkeel_model::template::Template;
use evenkeel_model::{AccountName, ColumnType, TableName, ViewName};

mod accidents;
mod clauses;
mod encryption;
mod events;
mod identities;
mod rules;
mod spread;
mod webhooks;

fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

fn request(folder: &Path) -> Request {
    Request {
        folder: Folder::Named(folder.to_owned()),
        ..Request::default()
    }
}

fn with_environment(mut request: Request, variables: &[(&str, &str)]) -> Request {
    request.environment = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    request
}

fn load_text(text: &str) -> Result<Configuration, ConfigErrors> {
    load(&request(folder(&[("default.toml", text)]).path()))
}

/// Returns the mistakes in one `default.toml` as texts, without the folder.
fn mistakes(text: &str) -> Vec<String> {
    let folder = folder(&[("default.toml", text)]);
    let prefix = format!("{}/", folder.path().display());
    load(&request(folder.path()))
        .unwrap_err()
        .errors
        .iter()
        .map(|error| error.to_string().replace(&prefix, ""))
        .collect()
}

fn warnings(text: &str) -> Vec<String> {
    let folder = folder(&[("default.toml", text)]);
    let prefix = format!("{}/", folder.path().display());
    load(&request(folder.path()))
        .unwrap()
        .warnings
        .iter()
        .map(|error| error.to_string().replace(&prefix, ""))
        .collect()
}

fn without_folder() -> Request {
    Request {
        folder: Folder::Default("/nonexistent/config".into()),
        ..Request::default()
    }
}

fn built_in() -> Configuration {
    load(&without_folder()).unwrap()
}

const VIEW: &str = r#"
[views.v]
kind = "secondary_index"
source = "Employees"
table = "Copies"
partition_key = "{PartitionKey}"
row_key = "{RowKey}"
"#;

// --- The shipped files

#[test]
fn the_shipped_defaults_are_valid_without_warnings() {
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config");
    let loaded = load(&request(Path::new(shipped))).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.catalog.views.len(), 3);
    let archive = &loaded.catalog.archives[&ViewName::new("former_employees").unwrap()];
    assert_eq!(archive.source.table.as_str(), "Employees");
    assert!(
        matches!(&loaded.settings.accounts[0].kind, AccountKind::Embedded { path } if path.ends_with("data/evenkeel.db"))
    );
}

#[test]
fn the_shipped_file_has_the_defaults_of_the_settings() {
    // Secrets cannot be compared, but their debug output shows whether they are set.
    fn shown(settings: &impl std::fmt::Debug) -> String {
        format!("{settings:#?}")
    }
    let Settings {
        accounts,
        worker,
        sinks,
        queues,
        http,
        migrate,
        log,
        traces,
        pace,
        sas,
        encryption,
        events,
    } = built_in().settings;
    let default = Settings::default();
    assert_eq!(worker, default.worker);
    assert_eq!(migrate, default.migrate);
    assert_eq!(log, default.log);
    assert_eq!(pace, default.pace);
    assert_eq!(sas, default.sas);
    assert_eq!(shown(&accounts), shown(&default.accounts));
    assert_eq!(shown(&sinks), shown(&default.sinks));
    assert_eq!(shown(&http), shown(&default.http));
    assert_eq!(shown(&traces), shown(&default.traces));
    assert_eq!(shown(&encryption), shown(&default.encryption));
    assert_eq!(shown(&events), shown(&default.events));
    // Queues have no default; the file declares the queue of the example.
    assert_eq!(queues.len(), 1);
    assert_eq!(queues[0].name.as_str(), "evenkeel-jobs");
    assert_eq!(
        (queues[0].concurrency, queues[0].shards),
        (Concurrency::Auto, 1)
    );
    assert_eq!(
        worker.recheck_after,
        worker.job_timeout + Duration::from_mins(16)
    );
}

#[test]
fn the_waits_in_the_comments_of_default_toml_match_the_formula() {
    let text = "[worker]\nstorage_retry = { min = \"700ms\", base = \"1300ms\", max = \"30s\", attempts = 5 }\nretry_delay = { min = \"3s\", base = \"30s\", max = \"90s\" }";
    let worker = load_text(text).unwrap().settings.worker;
    assert_eq!(waits(&worker.storage_retry), [2.0, 5.0, 10.0, 20.0]);
    assert_eq!(
        [1, 2, 3].map(|n| worker.retry_delay.wait(n, 0.5).as_secs()),
        [33, 90, 90]
    );
    for (policy, expected) in [
        ("{ attempts = 1 }", &[][..]),
        ("[\"2s\", \"2s\", \"2s\"]", &[2.0; 3]),
    ] {
        let retry = load_text(&format!("[worker]\nstorage_retry = {policy}"))
            .unwrap()
            .settings
            .worker
            .storage_retry;
        assert_eq!(waits(&retry), expected, "{policy}");
    }
    for name in ["none", "fixed", "exponential"] {
        let error = load_text(&format!("[worker]\nstorage_retry = {name:?}"))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("worker.storage_retry")
                && error.contains("To disable retries, set { attempts = 1 }"),
            "{error}"
        );
    }
}

fn waits(retry: &evenkeel_model::settings::RetryPolicy) -> Vec<f64> {
    (1..retry.attempts())
        .map(|n| retry.wait(n, 0.5).as_secs_f64().round())
        .collect()
}

#[test]
fn a_list_of_waits_is_read_from_a_file_and_from_the_environment() {
    let listed = "[worker]\nstorage_retry = [\"2s\", \"4s\", \"10s\", \"30s\"]";
    let loaded = load_text(listed).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(
        waits(&loaded.settings.worker.storage_retry),
        [2.0, 4.0, 10.0, 30.0]
    );
    for (text, expected) in [
        ("2s,4s,10s,30s", &[2.0, 4.0, 10.0, 30.0][..]),
        ("[\"2s\", \"4s\"]", &[2.0, 4.0]),
        ("2s", &[2.0]),
    ] {
        let request = with_environment(
            without_folder(),
            &[("EVENKEEL__WORKER__STORAGE_RETRY", text)],
        );
        assert_eq!(
            waits(&load(&request).unwrap().settings.worker.storage_retry),
            expected,
            "{text}"
        );
    }
}

#[test]
fn a_list_of_waits_replaces_the_formula_of_a_layer_below_and_is_shown_as_written() {
    let folder = folder(&[
        (
            "default.toml",
            "[worker]\nstorage_retry = { min = \"1s\", base = \"1s\", max = \"9s\", attempts = 3 }",
        ),
        (
            "steady.toml",
            "[worker]\nstorage_retry = [\"2s\", \"4s\", \"10s\", \"30s\"]",
        ),
    ]);
    let steady = Request {
        profile: Some("steady".to_owned()),
        ..request(folder.path())
    };
    let loaded = load(&steady).unwrap();
    assert_eq!(
        waits(&loaded.settings.worker.storage_retry),
        [2.0, 4.0, 10.0, 30.0]
    );
    let shown = show_text(&loaded);
    let lines: Vec<&str> = shown
        .lines()
        .filter(|line| line.starts_with("worker.storage_retry"))
        .collect();
    assert!(
        matches!(&lines[..], [one] if one.starts_with("worker.storage_retry = [\"2s\", \"4s\", \"10s\", \"30s\"] ") && one.ends_with("steady.toml:2")),
        "{lines:?}"
    );
    let json = show_json(&loaded);
    let entry = json["values"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["key"] == "worker.storage_retry")
        .unwrap();
    assert_eq!(entry["value"], r#"["2s", "4s", "10s", "30s"]"#);

    let named = with_environment(steady, &[("EVENKEEL__WORKER__STORAGE_RETRY", "2s,2s,2s")]);
    assert_eq!(
        waits(&load(&named).unwrap().settings.worker.storage_retry),
        [2.0; 3]
    );
    let part = with_environment(
        request(folder.path()),
        &[("EVENKEEL__WORKER__STORAGE_RETRY__ATTEMPTS", "2")],
    );
    assert_eq!(
        load(&part)
            .unwrap()
            .settings
            .worker
            .storage_retry
            .attempts(),
        2
    );
}

#[test]
fn a_mistake_in_a_list_of_waits_is_reported_with_the_expected_input() {
    for (list, expected) in [
        (
            "[]",
            "expected 1 to 8 waits, found 0. To disable retries, set { attempts = 1 }",
        ),
        (
            "[\"1s\",\"1s\",\"1s\",\"1s\",\"1s\",\"1s\",\"1s\",\"1s\",\"1s\"]",
            "expected 1 to 8 waits, found 9. To disable retries, set { attempts = 1 }",
        ),
        ("[\"2s\", \"6m\"]", "expected 1ms to 5m, found 6m"),
        ("[\"0s\"]", "expected 1ms to 5m, found 0ms"),
        (
            "[2, 4, 10, 30]",
            "expected durations such as \"60s\" in this list, found the number 2 without a unit; did you mean \"2s\"?",
        ),
    ] {
        let found = mistakes(&format!("[worker]\nstorage_retry = {list}"));
        assert_eq!(
            found,
            [format!("default.toml:2: worker.storage_retry: {expected}")],
            "{list}"
        );
    }
    let found = mistakes("[worker]\nstorage_retry = [\"2s\", \"soon\"]");
    assert!(
        matches!(&found[..], [one] if one.contains("worker.storage_retry") && one.contains("soon")),
        "{found:?}"
    );
}

#[test]
fn waits_longer_than_job_timeout_are_a_warning() {
    let loaded = load_text("[worker]\nstorage_retry = [\"5m\", \"5m\"]").unwrap();
    let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
    assert!(
        matches!(&warnings[..], [one] if one.contains("worker.storage_retry") && one.contains("12m") && one.contains("10m")),
        "{warnings:?}"
    );
}

#[test]
fn the_azurite_profile_uses_the_emulator_unless_the_environment_names_another_account() {
    let connection_string = |variables: &[(&str, &str)], folder: Option<&str>| {
        let folder = folder.map_or_else(
            || without_folder().folder,
            |folder| Folder::Named(folder.into()),
        );
        let request = Request {
            profile: Some("azurite".to_owned()),
            folder,
            ..Request::default()
        };
        let loaded = load(&with_environment(request, variables)).unwrap();
        assert_eq!(loaded.warnings, []);
        match &loaded.settings.accounts[0].kind {
            AccountKind::Azure(AzureAuth::ConnectionString(secret)) => {
                secret.text.expose_secret().to_owned()
            }
            other => panic!("{other:?}"),
        }
    };
    for folder in [
        None,
        Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../../config")),
    ] {
        assert_eq!(connection_string(&[], folder), "UseDevelopmentStorage=true");
        let other = "AccountName=contoso;AccountKey=a2V5";
        assert_eq!(
            connection_string(&[("AZURE_STORAGE_CONNECTION_STRING", other)], folder),
            other
        );
    }
}

#[test]
fn the_configurations_that_are_deployed_are_valid() {
    for folder in ["deploy/docker/config", "deploy/kubernetes/common"] {
        let request = request(
            &Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../..")
                .join(folder),
        );
        let variables = [
            (
                "AZURE_STORAGE_CONNECTION_STRING",
                "AccountName=contoso;AccountKey=a2V5",
            ),
            ("EVENKEEL_TOKEN", "sixteen-letters-at-least"),
        ];
        let result = load(&with_environment(
            request,
            &[variables.as_slice(), &identities::WEBHOOK].concat(),
        ));
        assert!(result.is_ok(), "{folder}: {}", check_text(&result));
    }
}

// --- Layers

#[test]
fn later_layers_win_and_tables_are_merged_key_by_key() {
    let folder = folder(&[
        (
            "default.toml",
            "[worker]\nlease = \"20s\"\ndrain = \"1s\"\nretry_delay = { max = \"5m\" }\n[[queues]]\nname = \"jobs-a\"\n[[queues]]\nname = \"jobs-b\"",
        ),
        (
            "test.toml",
            "[worker]\nlease = \"30s\"\ngive_up_after = \"1h\"\nmax_dequeue_count = 7",
        ),
        ("catalog/a.toml", VIEW),
    ]);
    let mut request = with_environment(
        request(folder.path()),
        &[
            ("EVENKEEL__WORKER__GIVE_UP_AFTER", "2h"),
            ("EVENKEEL__WORKER__MAX_DEQUEUE_COUNT", "8"),
            ("EVENKEEL__WORKER__RETRY_DELAY__BASE", "4s"),
            ("EVENKEEL__QUEUES__1__CONCURRENCY", "3"),
            ("EVENKEEL__QUEUES__1__ALLOW", "sync, archive"),
            ("EVENKEEL__MIGRATE__AUTO", "false"),
            ("EVENKEEL__VIEWS__V__SELECT", "[\"A\",\"B\"]"),
            ("EVENKEEL_PROFILE", "ignored-here"),
            ("EVENKEEL_TOKEN", "secret-of-sixteen-letters"),
            ("EVENKEEL__HTTP__LISTEN", ""),
        ],
    );
    request.profile = Some("test".to_owned());
    request.overrides = vec![
        "worker.max_dequeue_count=9".to_owned(),
        "queues[0].concurrency=2".to_owned(),
    ];
    let loaded = load(&request).unwrap();
    let worker = &loaded.settings.worker;
    assert_eq!(worker.lease, Duration::from_secs(30));
    assert_eq!(worker.drain, Duration::from_secs(1));
    assert_eq!(worker.give_up_after, Duration::from_hours(2));
    assert_eq!(worker.max_dequeue_count, 9);
    assert_eq!(
        (
            worker.retry_delay.min,
            worker.retry_delay.base,
            worker.retry_delay.max
        ),
        (
            Duration::from_secs(2),
            Duration::from_secs(4),
            Duration::from_mins(5)
        )
    );
    let queues = &loaded.settings.queues;
    assert_eq!(
        queues
            .iter()
            .map(|queue| (queue.name.as_str(), queue.concurrency))
            .collect::<Vec<_>>(),
        [
            ("jobs-a", Concurrency::Fixed(2)),
            ("jobs-b", Concurrency::Fixed(3))
        ]
    );
    assert_eq!(queues[1].allowed.ops.as_ref().unwrap().len(), 2);
    assert!(!loaded.settings.migrate.auto);
    assert_eq!(
        loaded.settings.http.operator().unwrap().expose_secret(),
        "secret-of-sixteen-letters"
    );
    let ViewKind::SecondaryIndex(index) = &loaded.catalog.views[&ViewName::new("v").unwrap()].kind
    else {
        panic!("no secondary index")
    };
    assert_eq!(
        index.select.as_deref(),
        Some(["A".to_owned(), "B".to_owned()].as_slice())
    );
    let origin = |key: &str| {
        loaded
            .origins
            .iter()
            .find(|value| value.key == key)
            .map(|value| {
                value
                    .origin
                    .replace(&format!("{}/", folder.path().display()), "")
            })
            .unwrap()
    };
    assert_eq!(origin("worker.lease"), "test.toml:2");
    assert_eq!(origin("worker.drain"), "default.toml:3");
    assert_eq!(
        origin("worker.give_up_after"),
        "environment variable EVENKEEL__WORKER__GIVE_UP_AFTER"
    );
    assert_eq!(
        origin("worker.max_dequeue_count"),
        "flag worker.max_dequeue_count"
    );
    assert!(origin("worker.job_timeout").starts_with("built-in default.toml:"));
}

#[test]
fn whole_accounts_come_from_the_environment_and_names_keep_their_case() {
    let folder = folder(&[(
        "default.toml",
        "[accounts.Second]\nkind = \"embedded\"\npath = \"x.db\"",
    )]);
    let request = with_environment(
        request(folder.path()),
        &[
            ("EVENKEEL__ACCOUNTS__MAIN__KIND", "azure"),
            ("EVENKEEL__ACCOUNTS__MAIN__AUTH", "key"),
            ("EVENKEEL__ACCOUNTS__MAIN__NAME", "contoso"),
            ("EVENKEEL__ACCOUNTS__MAIN__KEY_ENV", "CONTOSO_KEY"),
            ("CONTOSO_KEY", "a2V5"),
            (
                "EVENKEEL__ACCOUNTS__MAIN__ENDPOINTS__TABLE",
                "http://127.0.0.1:10002/contoso/",
            ),
            ("EVENKEEL__ACCOUNTS__SECOND__PATH", "y.db"),
        ],
    );
    let loaded = load(&request).unwrap();
    assert_eq!(loaded.warnings, []);
    assert_eq!(loaded.settings.accounts.len(), 2);
    for account in &loaded.settings.accounts {
        match &account.kind {
            AccountKind::Embedded { path } => assert_eq!(
                (account.name.as_str(), path.as_path()),
                ("Second", Path::new("y.db"))
            ),
            AccountKind::Azure(AzureAuth::Key {
                account,
                key,
                endpoints,
            }) => {
                assert_eq!(
                    (account.as_str(), key.text.expose_secret()),
                    ("contoso", "a2V5")
                );
                assert_eq!(
                    endpoints.table.as_deref(),
                    Some("http://127.0.0.1:10002/contoso")
                );
            }
            AccountKind::Azure(other) => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_named_folder_must_exist_and_a_missing_default_folder_means_the_built_in_example() {
    let missing = request(Path::new("/nonexistent/config"));
    assert!(
        load(&missing)
            .unwrap_err()
            .to_string()
            .contains("does not exist")
    );
    assert_eq!(built_in().catalog.views.len(), 3);
    let empty = folder(&[("default.toml", "")]);
    assert!(
        load(&request(empty.path()))
            .unwrap()
            .catalog
            .views
            .is_empty()
    );
    let unknown = Request {
        profile: Some("nightly".to_owned()),
        ..request(empty.path())
    };
    assert!(
        load(&unknown)
            .unwrap_err()
            .to_string()
            .contains("nightly.toml")
    );
    let evil = Request {
        profile: Some("../secrets".to_owned()),
        ..request(empty.path())
    };
    assert!(
        load(&evil)
            .unwrap_err()
            .to_string()
            .contains("is not a profile name")
    );
}

#[test]
fn a_view_in_two_catalog_files_is_a_mistake() {
    let folder = folder(&[
        ("default.toml", ""),
        ("catalog/a.toml", VIEW),
        ("catalog/b.toml", VIEW),
    ]);
    let error = load(&request(folder.path())).unwrap_err();
    assert_eq!(error.errors.len(), 1);
    assert!(
        error
            .to_string()
            .contains("b.toml:2: views.v: already declared in ")
            && error.to_string().ends_with("a.toml:2"),
        "{error}"
    );
}

// --- Mistakes

#[test]
fn everything_wrong_is_reported_at_once_with_file_line_key_and_expectation() {
    let errors = mistakes(
        r#"[worker]
lease = "5s"
drian = "25s"
job_timeout = "soon"
max_dequeue_count = "five"
poll = { min = "10s", max = "5s" }

[[queues]]
name = "Evenkeel"
concurrency = 0
shards = 101
allow = ["sync", "archve"]

[views.by_email]
kind = "secondary_index"
source = "Employees"
table = "EmployeesByEmail"
partition_key = "email_{PartitionKey"
row_key = "{Email|lowr}"
when = "IsManager = true"
select = ["Email", "ek_source"]
on_conflict = "last"
acount = "main"

[views.by_name]
kind = "secondry_index"

[migrate]
auto = "yes"
"#,
    );
    let expected = [
        "default.toml:2: worker.lease: expected 10s to 7d, found 5s",
        "default.toml:3: worker.drian: unknown key; did you mean \"drain\"?",
        "default.toml:4: worker.job_timeout: expected a whole number and a unit (ms, s, m, h, d), such as \"90s\", found \"soon\"",
        "default.toml:5: worker.max_dequeue_count: expected an integer from 1 to 1000, found \"five\"",
        "default.toml:6: worker.poll.max: expected at least min (10s), found 5s",
        "default.toml:9: queues[0].name: \"Evenkeel\" is not a queue name; expected 3 to 63 lower-case letters, digits and single dashes, with no dash at either end",
        "default.toml:10: queues[0].concurrency: expected an integer from 1 to 10000, found 0",
        "default.toml:11: queues[0].shards: expected an integer from 1 to 100, found 101",
        "default.toml:12: queues[0].allow: unknown operation \"archve\"; known are sync, put, delete, erase, archive, restore, move, backfill, audit, propagate, delete_where, archive_where, drop_table; did you mean \"archive\"?",
        "default.toml:18: views.by_email.partition_key: this '{' is not closed; write {{ for a literal brace\n      email_{PartitionKey\n            ^^^^^^^^^^^^^",
        "default.toml:19: views.by_email.row_key: unknown filter \"lowr\"; did you mean \"lower\"?\n      {Email|lowr}\n             ^^^^",
        "default.toml:20: views.by_email.when: write \"==\" to compare\n      IsManager = true\n                ^",
        "default.toml:21: views.by_email.select: \"ek_source\" is one of evenkeel's own properties, which are never copied",
        "default.toml:22: views.by_email.on_conflict: expected \"reject\" or \"last_writer\", found \"last\"",
        "default.toml:23: views.by_email.acount: unknown key; did you mean \"account\"?",
        "default.toml:26: views.by_name.kind: expected \"secondary_index\" or \"index_entity\" or \"denormalize\" or \"aggregate\" or \"large_entity\" or \"search_index\" or \"sql_table\" or \"webhook\", found \"secondry_index\"; did you mean \"secondary_index\"?",
        "default.toml:29: migrate.auto: expected true or false, found \"yes\"",
    ];
    // Only builds for tests have the sample kinds, so these are removed from the messages.
    let reported: Vec<String> = errors
        .iter()
        .map(|error| {
            error
                .replace(", sample_touch", "")
                .replace(" or \"sample_exchanged\"", "")
        })
        .collect();
    assert_eq!(reported, expected);
}

#[test]
fn invalid_toml_is_reported_with_its_line() {
    let errors = mistakes("[worker]\nlease = 60s\n");
    assert!(
        errors[0].starts_with("default.toml:2: not TOML: "),
        "{errors:?}"
    );
    assert_eq!(
        mistakes("\"a[99999999999999]\" = 1"),
        ["default.toml:1: a[99999999999999]: unknown section"]
    );
    assert!(mistakes("worker = 5")[0].contains("expected a table, found an integer"));
    assert!(mistakes("[[worker]]\nlease = \"60s\"")[0].contains("expected a table, found a list"));
    assert!(mistakes("[queues]\nname = \"x\"")[0].contains("expected a list of tables"));
    assert_eq!(
        mistakes("[queues]\nname = \"x\"").len(),
        1,
        "{:#?}",
        mistakes("[queues]\nname = \"x\"")
    );
    assert!(mistakes("queues = []")[0].contains("at least one queue"));
    assert!(mistakes("[wroker]\nlease = \"60s\"")[0].contains("did you mean \"worker\"?"));
    assert!(mistakes("[worker]\nmax_dequeue_count = 99999999999999999999")[0].contains("64 bits"));
    assert!(mistakes(&format!("x = {}1{}", "[".repeat(40), "]".repeat(40)))[0].contains("deep"));
    assert!(mistakes(&format!("{}x = 1", "a.".repeat(100_000)))[0].contains("dots"));
    for deep in [
        format!("{}x = 1", "a.".repeat(1_000)),
        "x = [".to_owned() + &"[".repeat(200_000),
        "x = ".to_owned() + &"{a=".repeat(200_000),
        format!("[a{}]", ".a".repeat(1_000)),
    ] {
        assert!(!mistakes(&deep).is_empty());
    }
}

#[test]
fn the_environment_and_flags_are_named_when_they_are_wrong() {
    let folder = folder(&[("default.toml", "")]);
    let mut request = with_environment(
        request(folder.path()),
        &[
            ("EVENKEEL__WORKER__LEASE", "soon"),
            ("EVENKEEL__WORKER__LAESE", "60s"),
            ("EVENKEEL__QUEUES__ALLOW", "sync"),
        ],
    );
    assert!(
        load(&request)
            .unwrap_err()
            .to_string()
            .contains("environment variable EVENKEEL__QUEUES__ALLOW: expected a number below 1")
    );
    request.environment.remove("EVENKEEL__QUEUES__ALLOW");
    request.overrides = vec!["migrate.auto=maybe".to_owned()];
    let error = load(&request).unwrap_err().to_string();
    assert!(
        error.contains(
            "environment variable EVENKEEL__WORKER__LEASE: worker.lease: expected a whole number"
        ),
        "{error}"
    );
    assert!(error.contains("environment variable EVENKEEL__WORKER__LAESE: worker.laese: unknown key; did you mean \"lease\"?"), "{error}");
    assert!(
        error.contains("flag migrate.auto: migrate.auto: expected true or false"),
        "{error}"
    );
    request.overrides = vec![
        "worker.lease".to_owned(),
        "a b=1".to_owned(),
        "a[99999999999999]=1".to_owned(),
    ];
    assert_eq!(load(&request).unwrap_err().errors.len(), 2);
    request.overrides = vec!["EVENKEEL".to_owned()];
    assert!(
        load(&request)
            .unwrap_err()
            .to_string()
            .contains("has no value")
    );
}

#[test]
fn a_recheck_waits_until_no_late_request_can_arrive() {
    let errors = mistakes("[worker]\njob_timeout = \"20m\"");
    assert_eq!(errors.len(), 1);
    assert!(
        errors[0].contains("recheck_after: expected at least 35m (job_timeout 20m + 15m"),
        "{errors:?}"
    );
    assert!(load_text("[worker]\njob_timeout = \"20m\"\nrecheck_after = \"35m\"").is_ok());
}

#[test]
fn no_two_queues_share_a_name_and_derived_names_are_short_enough() {
    let queues = |names: &[(&str, u32)]| {
        names
            .iter()
            .map(|(name, shards)| format!("[[queues]]\nname = \"{name}\"\nshards = {shards}\n"))
            .collect::<Vec<_>>()
            .concat()
    };
    assert!(mistakes(&queues(&[("jobs", 1), ("jobs", 1)]))[0].contains("declared twice"));
    assert!(
        mistakes(&queues(&[("jobs", 1), ("jobs-poison", 1)]))[0]
            .contains("would share the queue \"jobs-poison\" with queue \"jobs\"")
    );
    assert!(
        mistakes(&queues(&[("jobs-03", 1), ("jobs", 4)]))[0]
            .contains("would share the queue \"jobs-03\"")
    );
    assert!(load_text(&queues(&[("jobs", 1), ("jobs-0", 4)])).is_ok());
    assert!(load_text(&queues(&[(&"a".repeat(55), 1)])).is_ok());
    assert!(mistakes(&queues(&[(&"a".repeat(56), 1)]))[0].contains("at most 55 characters"));
    assert!(mistakes(&queues(&[(&"a".repeat(55), 2)]))[0].contains("at most 52 characters"));
    assert!(
        mistakes("[[queues]]\nname = \"jobs\"\naccount = \"mian\"")[0]
            .contains("unknown account \"mian\"; did you mean \"main\"?")
    );
}

#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    let text = "[http]\nlisten = \"0.0.0.0:9464\"";
    let errors = mistakes(text);
    assert!(
        errors[0].contains("needs a token: set the environment variable EVENKEEL_TOKEN"),
        "{errors:?}"
    );
    let folder = folder(&[("default.toml", text)]);
    assert!(
        load(&with_environment(
            request(folder.path()),
            &[("EVENKEEL_TOKEN", "sixteen-letters-at-least")]
        ))
        .is_ok()
    );
    let scraper = self::folder(&[(
        "default.toml",
        &format!("{text}\n[http.tokens.scraper]\nrole = \"read\"\ntoken_env = \"SCRAPER\""),
    )]);
    assert!(
        load(&with_environment(
            request(scraper.path()),
            &[("SCRAPER", "sixteen-letters-at-least")]
        ))
        .is_ok()
    );
    assert!(
        load(&with_environment(
            request(folder.path()),
            &[("EVENKEEL_TOKEN", "  ")]
        ))
        .is_err()
    );
    assert!(load_text("[http]\nlisten = \"[::1]:0\"").is_ok());
    assert!(mistakes("[http]\nlisten = \"localhost:9464\"")[0].contains("127.0.0.1:9464"));
}

#[test]
fn a_token_that_can_be_guessed_is_refused_where_it_comes_from() {
    let of = |text: &str, variables: &[(&str, &str)]| {
        let folder = folder(&[("default.toml", text)]);
        load(&with_environment(request(folder.path()), variables))
            .map_err(|errors| errors.to_string())
    };
    for (text, variables) in [
        ("", [("EVENKEEL_TOKEN", "a")]),
        ("", [("EVENKEEL_TOKEN", "fifteen-letters")]),
        ("", [("EVENKEEL_TOKEN", "changemechangeme")]),
        ("[http]\ntoken_env = \"MINE\"", [("MINE", "short")]),
    ] {
        let error = of(text, &variables).expect_err("a token that can be guessed must be refused");
        assert!(
            error.contains("can be guessed; expected at least 16 random characters")
                && error.contains("openssl rand"),
            "{error}"
        );
        assert!(!error.contains("fifteen-letters"), "{error}");
        let [(variable, _)] = variables;
        assert!(
            error.contains(&format!("(environment variable {variable})")),
            "{error}"
        );
    }
    let http = of("", &[("EVENKEEL_TOKEN", "sixteen-letters!")])
        .unwrap()
        .settings
        .http;
    let rights: Vec<_> = http
        .tokens
        .iter()
        .map(|token| (token.name.as_str(), token.role, token.contents))
        .collect();
    assert_eq!(rights, [("token", HttpRole::Operate, true)]);
    assert!(
        !of("[http]\nopen_reads = false", &[])
            .unwrap()
            .settings
            .http
            .open_reads
    );
    assert!(mistakes("[http]\nopen_reads = \"proxied\"")[0].contains("expected true or false"));
}

#[test]
fn a_token_has_a_name_a_role_and_no_contents_unless_they_are_allowed() {
    const ALICE: &str =
        "[http.tokens.alice]\nrole = \"operate\"\ncontents = true\ntoken_env = \"ALICE\"\n";
    let of = |text: &str, variables: &[(&str, &str)]| {
        let folder = folder(&[("default.toml", text)]);
        load(&with_environment(request(folder.path()), variables))
    };
    let scraper =
        format!("{ALICE}[http.tokens.scraper]\nrole = \"read\"\ntoken_env = \"SCRAPER\"\n");
    let loaded = of(
        &scraper,
        &[
            ("ALICE", "sixteen-letters!"),
            ("SCRAPER", "sixteen-others!!"),
        ],
    )
    .unwrap();
    let tokens = &loaded.settings.http.tokens;
    let rights: Vec<_> = tokens
        .iter()
        .map(|token| (token.name.as_str(), token.role, token.contents))
        .collect();
    assert_eq!(
        rights,
        [
            ("alice", HttpRole::Operate, true),
            ("scraper", HttpRole::Read, false)
        ]
    );
    let unset = of(ALICE, &[]).unwrap();
    assert!(
        unset.settings.http.tokens.is_empty()
            && unset.warnings[0].to_string().contains("ALICE is not set"),
        "{:?}",
        unset.warnings
    );
    let shared = of(
        &scraper,
        &[
            ("ALICE", "sixteen-letters!"),
            ("SCRAPER", "sixteen-letters!"),
        ],
    )
    .unwrap_err()
    .to_string();
    assert!(
        shared.contains("http.tokens.scraper.token_env: same token as \"alice\""),
        "{shared}"
    );
    for (text, word) in [
        ("[http.tokens.bob]\ntoken_env = \"BOB\"", "role: missing"),
        (
            "[http.tokens.bob]\nrole = \"admin\"\ntoken_env = \"BOB\"",
            "\"read\" or \"operate\"",
        ),
        ("[http.tokens.bob]\nrole = \"read\"", "token_env: missing"),
        (
            "[http.tokens.bob]\nrole = \"read\"\ntoken_env = \"BOB\"\ncontent = true",
            "content",
        ),
        (
            "[http.tokens.token]\nrole = \"read\"\ntoken_env = \"BOB\"",
            "expected another name",
        ),
        (
            "[http.tokens.\"a b\"]\nrole = \"read\"\ntoken_env = \"BOB\"",
            "a b",
        ),
        (
            "[http.tokens.bob]\nrole = \"read\"\ntoken_file = \"/nowhere\"",
            "/nowhere",
        ),
    ] {
        let error = of(text, &[("BOB", "sixteen-letters!")])
            .unwrap_err()
            .to_string();
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_named_folder_without_default_toml_is_a_mistake() {
    let folder = folder(&[
        ("prod.toml", "[worker]\nlease = \"90s\""),
        ("catalog/a.toml", VIEW),
    ]);
    let error = load(&request(folder.path())).unwrap_err().to_string();
    assert!(
        error.contains("has no default.toml")
            && error.contains(&folder.path().display().to_string()),
        "{error}"
    );
    // Only a folder that the user names needs a default.toml.
    let usual = Request {
        folder: Folder::Default(folder.path().to_owned()),
        ..Request::default()
    };
    assert!(load(&usual).is_ok());
}

#[test]
fn an_unread_variable_with_a_similar_name_is_a_warning() {
    let meant = |name: &str| {
        let loaded = load(&with_environment(
            without_folder(),
            &[(name, "a-value-of-16-letters")],
        ))
        .unwrap();
        let prefix = format!("environment variable {name}: is not read; did you mean ");
        let mut warnings = loaded.warnings.iter().map(ToString::to_string);
        warnings.find_map(|warning| {
            Some(
                warning
                    .strip_prefix(&prefix)?
                    .trim_end_matches('?')
                    .to_owned(),
            )
        })
    };
    for (name, read) in [
        ("EVENKEEL_WORKER__LEASE", "EVENKEEL__WORKER__LEASE"),
        (
            "EVENKEEL_WORKER_RECHECK_AFTER",
            "EVENKEEL__WORKER__RECHECK_AFTER",
        ),
        ("EVENKEEL_QUEUES__0__NAME", "EVENKEEL__QUEUES__0__NAME"),
        (
            "EVENKEEL_HTTP__TOKENS__ME__ROLE",
            "EVENKEEL__HTTP__TOKENS__ME__ROLE",
        ),
        (
            "EVENKEEL_SINKS__PEOPLE__KEY_ENV",
            "EVENKEEL__SINKS__PEOPLE__KEY_ENV",
        ),
        ("EVENKEEL_CONFG", "EVENKEEL_CONFIG"),
        ("EVENKEEL_TOKENS", "EVENKEEL_TOKEN"),
    ] {
        assert_eq!(meant(name).as_deref(), Some(read), "{name}");
    }
    for name in [
        "EVENKEEL_CONFIG",
        "EVENKEEL_LOG",
        "EVENKEEL_TOKEN",
        "EVENKEEL_PORT",
        "EVENKEEL_SERVICE_HOST",
        "EVENKEEL_PORT_9464_TCP_ADDR",
    ] {
        assert_eq!(meant(name), None, "{name}");
    }
    for name in [
        "EVENKEEL_SERVICE__HOST",
        "EVENKEEL_MY_BUILD__NUMBER",
        "EVENKEEL_WORKERS__LEASE",
    ] {
        assert_eq!(meant(name), None, "no section has the name of {name}");
    }
}

#[test]
fn a_file_instead_of_the_folder_is_reported() {
    let folder = folder(&[("default.toml", "")]);
    let error = |path: &str| {
        load(&request(&folder.path().join(path)))
            .unwrap_err()
            .to_string()
    };
    assert!(
        error("default.toml")
            .contains("default.toml is a file; expected the folder that contains it"),
        "{}",
        error("default.toml")
    );
    assert!(
        error("nothing").contains("nothing does not exist"),
        "{}",
        error("nothing")
    );
}

#[test]
fn an_archive_cannot_use_the_programs_own_containers() {
    for container in ["evenkeel-staging", "evenkeel-poison"] {
        for kind in ["blob", "append_blob"] {
            let found = mistakes(&format!(
                "[tables.Employees]\n[archives.old]\nsource = \"Employees\"\nto = {{ kind = \"{kind}\", container = \"{container}\" }}"
            ));
            assert!(
                found[0].contains(container) && found[0].contains("is reserved for evenkeel"),
                "{found:?}"
            );
        }
    }
}

#[test]
fn an_endpoint_without_encryption_is_warned_about_unless_it_is_on_this_machine() {
    let warned = |text: &str, secret: &str| {
        let folder = folder(&[("default.toml", text)]);
        let warnings = load(&with_environment(
            request(folder.path()),
            &[("SECRET", secret)],
        ))
        .unwrap()
        .warnings;
        warnings
            .iter()
            .map(ToString::to_string)
            .find(|text| text.contains("unencrypted"))
    };
    let key = |table: &str| {
        let account = "kind = \"azure\"\nauth = \"key\"\nname = \"contoso\"\nkey_env = \"SECRET\"";
        warned(
            &format!("[accounts.main]\n{account}\nendpoints.table = {table:?}"),
            "a2V5",
        )
    };
    let found = key("http://contoso.table.core.windows.net").unwrap();
    assert!(
        found.contains("contoso.table.core.windows.net") && found.contains("endpoints.table"),
        "{found}"
    );
    for quiet in [
        "https://contoso.table.core.windows.net",
        "http://127.0.0.1:10002/devstoreaccount1",
        "http://[::1]:10002",
        "http://localhost:1",
    ] {
        assert_eq!(key(quiet), None, "{quiet}");
    }
    let string = |text: &str| {
        warned(
            "[accounts.main]\nkind = \"azure\"\nconnection_string_env = \"SECRET\"",
            text,
        )
    };
    for plain in [
        "DefaultEndpointsProtocol=http;AccountName=contoso;AccountKey=a2V5;EndpointSuffix=core.windows.net",
        "AccountName=contoso;AccountKey=a2V5;QueueEndpoint=http://azurite:10001/contoso;TableEndpoint=http://127.0.0.1:10002/contoso",
    ] {
        let found = string(plain).unwrap();
        assert!(!found.contains("a2V5"), "{found}");
    }
    for quiet in [
        "UseDevelopmentStorage=true",
        "DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=a2V5",
        "DefaultEndpointsProtocol=http;AccountName=a;AccountKey=a2V5;BlobEndpoint=http://127.0.0.1:1/a;QueueEndpoint=http://127.0.0.1:2/a;TableEndpoint=http://127.0.0.1:3/a",
    ] {
        assert_eq!(string(quiet), None, "{quiet}");
    }
}

#[test]
fn a_misspelt_log_level_is_a_mistake() {
    for misspelt in ["inof", "info,evenkel::worker=debug", "evenkeel=loud", ""] {
        let found = mistakes(&format!("[log]\nlevel = {misspelt:?}"));
        assert!(
            found[0].contains("log.level")
                && found[0].contains("error, warn, info, debug, trace, off"),
            "{misspelt:?}: {found:?}"
        );
    }
    assert!(load_text("[log]\nlevel = \"info,evenkeel_worker=debug\"").is_ok());
}

// --- Accounts and secrets

/// Windows PowerShell writes byte order marks, and shells leave quotes in variables.
#[test]
fn byte_order_marks_line_ends_and_quotes_are_removed_from_a_secret() {
    let folder = folder(&[
        ("cs", "\u{feff}AccountName=contoso;AccountKey=a2V5\r\n"),
        ("key", "\u{feff}\"a2V5\"\r\n"),
    ]);
    let path = |name: &str| folder.path().join(name).display().to_string();
    let azure =
        |rest: &str| load_text(&format!("[accounts.main]\nkind = \"azure\"\n{rest}")).unwrap();
    let loaded = azure(&format!("connection_string_file = {:?}", path("cs")));
    assert!(
        matches!(&loaded.settings.accounts[0].kind, AccountKind::Azure(AzureAuth::ConnectionString(secret)) if secret.text.expose_secret() == "AccountName=contoso;AccountKey=a2V5")
    );
    let loaded = azure(&format!(
        "auth = \"key\"\nname = \"contoso\"\nkey_file = {:?}",
        path("key")
    ));
    assert!(
        matches!(&loaded.settings.accounts[0].kind, AccountKind::Azure(AzureAuth::Key { key, .. }) if key.text.expose_secret() == "a2V5")
    );
}

#[test]
fn a_secret_comes_from_a_file_or_the_environment_and_is_never_printed() {
    let folder = folder(&[("sas", "  ?sv=2024&sig=topsecret\n")]);
    let azure = |rest: &str| format!("[accounts.main]\nkind = \"azure\"\n{rest}");
    let path = folder.path().join("sas");
    let text = azure(&format!(
        "auth = \"sas\"\nname = \"contoso\"\nsas_file = {:?}",
        path.display().to_string()
    ));
    let loaded = load_text(&text).unwrap();
    assert!(
        matches!(&loaded.settings.accounts[0].kind, AccountKind::Azure(AzureAuth::Sas { token, .. }) if token.text.expose_secret() == "?sv=2024&sig=topsecret")
    );
    let everything = format!("{loaded:?} {} {}", show_text(&loaded), show_json(&loaded));
    assert!(!everything.contains("topsecret"), "{everything}");
    for (rest, expected) in [
        (
            "connection_string_env = \"NOWHERE\"",
            "expected a connection string in the environment variable NOWHERE, which is not set",
        ),
        (
            "connection_string_file = \"/nonexistent/topsecret\"",
            "cannot be read",
        ),
        (
            "auth = \"key\"\nname = \"contoso\"",
            "missing; expected an account key in Base64. Set key_env to the name of an environment variable, or key_file to the path of a file",
        ),
        (
            "auth = \"key\"\nkey_env = \"KEY\"",
            "accounts.main.name: missing; expected the storage account's own name",
        ),
        (
            "auth = \"sas\"\nname = \"Contoso!\"\nsas_env = \"SAS\"",
            "3 to 24 lower-case letters and digits",
        ),
        (
            "connection_string = \"AccountName=contoso;AccountKey=topsecret\"",
            "connection_string: expected UseDevelopmentStorage=true",
        ),
        (
            "connection_string = \"topsecret\"",
            "part 1 of the connection string is not Name=Value",
        ),
        (
            "connection_string = \"UseDevelopmentStorage=true\"\nkey_env = \"KEY\"\nauth = \"connection_string\"",
            "accounts.main.key_env: not allowed with auth = \"connection_string\"",
        ),
        (
            "connection_string = \"UseDevelopmentStorage=true\"\npath = \"x\"",
            "accounts.main.path: not allowed with kind = \"azure\"",
        ),
        (
            "connection_string = \"AccountName=a;AccountKey=topsecret;BlobEndpont=https://a/\"",
            "did you mean BlobEndpoint?",
        ),
        (
            "connection_string = \"UseDevelopmentStorage=true;TableEndpoint=http://127.0.0.1:1/a\"",
            "TableEndpoint beside UseDevelopmentStorage=true",
        ),
        (
            "auth = \"key\"\nname = \"contoso\"\nkey_env = \"KEY\"\nendpoints.blob = \"https://contoso.blob.core.windows.net/photos\"",
            "names a container, table or queue",
        ),
        (
            "auth = \"entra\"\nkey_env = \"KEY\"",
            "accounts.main.key_env: not allowed with auth = \"entra\"",
        ),
        (
            "auth = \"key\"\nname = \"contoso\"\nkey_env = \"KEY\"\nendpoints.blob = \"https://contoso.blob.core.windows.net/?sig=topsecret\"",
            "without user, password, query or fragment",
        ),
    ] {
        let errors = mistakes(&azure(rest)).join("\n");
        assert!(errors.contains(expected), "{errors}");
        assert!(
            !errors
                .replace("/nonexistent/topsecret", "")
                .contains("topsecret"),
            "{errors}"
        );
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    let azure = |rest: &str| format!("[accounts.main]\nkind = \"azure\"\n{rest}");
    let sink = |rest: &str| format!("[sinks.s]\n{rest}");
    for (text, key) in [
        ("[traces]\nendpoint = \"http://user:topsecret@example.com:4318\"".to_owned(), "traces.endpoint"),
        ("[traces]\nendpoint = \"https://example.com/?api-key=topsecret\"".to_owned(), "traces.endpoint"),
        ("[traces]\nendpoint = \"topsecret\"".to_owned(), "traces.endpoint"),
        (azure("auth = \"key\"\nname = \"contoso\"\nkey_env = \"KEY\"\nendpoints.blob = \"https://u:topsecret@h\""), "endpoints.blob"),
        (azure("auth = \"key\"\nname = \"contoso\"\nkey = \"topsecret\""), "accounts.main.key: unknown key; secrets cannot be written"),
        (sink("kind = \"search\"\nendpoint = \"https://h\"\nkey = \"topsecret\""), "sinks.s.key: unknown key; secrets cannot be written"),
        (sink("kind = \"webhook\"\nurl = \"https://h\"\nsecret = \"topsecret\""), "sinks.s.secret: unknown key; secrets cannot be written"),
        ("[http]\ntoken = \"topsecret\"".to_owned(), "http.token: unknown key; secrets cannot be written"),
        ("[http.tokens.bob]\nrole = \"read\"\ntoken = \"topsecret\"".to_owned(), "expected token_env or token_file"),
        ("[traces]\nheaders = \"topsecret\"".to_owned(), "expected headers_env or headers_file"),
        ("[encryption]\ncurrent = \"k\"\n[encryption.keys.k]\nkey = \"topsecret\"".to_owned(), "expected key_env or key_file"),
        (azure("connection_string_env = \"AccountName=a;AccountKey=topsecret\""), "connection_string_env"),
        (azure("connection_string_file = \"AccountName=a;AccountKey=topsecret\""), "connection_string_file"),
        (azure("auth = \"key\"\nname = \"contoso\"\nkey_env = \"topsecret\""), "key_env"),
        (azure("auth = \"key\"\nname = \"contoso\"\nkey_file = \"topsecret\""), "key_file"),
        (sink("kind = \"search\"\nendpoint = \"https://u:topsecret@h\"\nkey_env = \"K\""), "sinks.s.endpoint"),
        (sink("kind = \"webhook\"\nurl = \"https://h/?code=topsecret\"\nsecret_env = \"K\""), "sinks.s.url"),
        (sink("kind = \"postgresql\"\nhost = \"postgres://u:topsecret@h/db\"\ndatabase = \"d\"\nuser = \"u\""), "sinks.s.host"),
        ("[http]\nlisten = \"0.0.0.0:80\"\ntoken_env = \"topsecret\"".to_owned(), "http.listen"),
        ("[http.tokens.bob]\nrole = \"read\"\ntoken_file = \"topsecret\"".to_owned(), "token_file"),
        (
            "[encryption]\ncurrent = \"k\"\n[encryption.keys.k]\nvault_key = \"https://u:topsecret@contoso.vault.azure.net/keys/k\""
                .to_owned(),
            "vault_key",
        ),
    ] {
        let errors = mistakes(&text).join("\n");
        assert!(errors.contains(key), "{key}: {errors}");
        assert!(!errors.contains("topsecret"), "{errors}");
    }
    let unset =
        warnings("[encryption]\ncurrent = \"k\"\n[encryption.keys.k]\nkey_env = \"topsecret\"")
            .join("\n");
    assert!(
        unset.contains("the environment variable named here is not set")
            && !unset.contains("topsecret"),
        "{unset}"
    );
}

#[test]
fn the_file_of_a_secret_is_remembered() {
    let folder = folder(&[("key", "topsecret\n")]);
    let azure = |rest: &str| {
        format!("[accounts.main]\nkind = \"azure\"\nname = \"contoso\"\nauth = \"key\"\n{rest}")
    };
    let loaded = load_text(&azure(&format!(
        "key_file = {:?}",
        folder.path().join("key").display().to_string()
    )))
    .unwrap();
    let AccountKind::Azure(AzureAuth::Key { key, .. }) = &loaded.settings.accounts[0].kind else {
        panic!("{loaded:?}")
    };
    assert_eq!(
        (key.setting, key.text.expose_secret()),
        ("key_file", "topsecret")
    );
    let file = key.file.as_ref().unwrap();
    std::fs::write(&file.path, " rotated\n").unwrap();
    assert_eq!((file.read)(&file.path).unwrap().expose_secret(), "rotated");
    std::fs::write(&file.path, "\n").unwrap();
    assert!(
        (file.read)(&file.path)
            .unwrap_err()
            .ends_with("is empty; expected a secret")
    );
    std::fs::remove_file(&file.path).unwrap();
    assert!(
        (file.read)(&file.path)
            .unwrap_err()
            .contains("cannot be read")
    );
}

#[test]
fn an_unsupported_key_is_reported_with_its_replacement() {
    let sink = "[sinks.s]\nkind = \"search\"\nendpoint = \"https://contoso.search.windows.net\"\nkey_env = \"K\"\n";
    let account = |more: &str| {
        format!("[accounts.main]\nkind = \"azure\"\nauth = \"entra\"\nname = \"contoso\"\n{more}")
    };
    let archive = |more: &str| {
        format!(
            "[archives.a]\nsource = \"Employees\"\nto = {{ kind = \"append_blob\", container = \"logs\", {more} }}"
        )
    };
    for (text, expected) in [
        (
            "[freshness]\ngoal = \"5s\"".to_owned(),
            "freshness: unknown key; the goal is 5 s",
        ),
        (
            "[worker.poll]\nidle_cost = \"$1/month\"".to_owned(),
            "worker.poll.idle_cost: unknown key; set poll.max, the longest poll interval",
        ),
        (
            "[http]\nread_token_env = \"T\"".to_owned(),
            "http.read_token_env: unknown key; declare [http.tokens.NAME]",
        ),
        (
            "[http]\nopen_contents = false".to_owned(),
            "http.open_contents: unknown key; set open_reads = false",
        ),
        (
            "[pace]\npartition = 1000".to_owned(),
            "pace.partition: unknown key; the limit is the one that Azure publishes",
        ),
        (
            "[pace]\nstart_percent = 10".to_owned(),
            "pace.start_percent: unknown key; each rate starts at 10 % of its limit",
        ),
        (
            account("second_key_file = \"k\""),
            "accounts.main.second_key_file: unknown key; to rotate a key, write the other key to its file",
        ),
        (
            account("client_secret_env = \"S\""),
            "unknown key; set client_secret_file, or the environment variable AZURE_CLIENT_SECRET",
        ),
        (
            account("federated_token_file = \"t\""),
            "unknown key; set the environment variable AZURE_FEDERATED_TOKEN_FILE",
        ),
        (
            account("authority_host = \"https://login.microsoftonline.us\""),
            "or from the environment variable AZURE_AUTHORITY_HOST",
        ),
        (
            format!("{sink}key_field = \"id\""),
            "sinks.s.key_field: unknown key; the key field of every index is id",
        ),
        (
            format!("{sink}second_key_env = \"K\""),
            "sinks.s.second_key_env: unknown key; to rotate a key, write the other key to its file",
        ),
        (
            archive("roll_at = \"64MiB\""),
            "archives.a.to.roll_at: unknown key; a log starts its next blob at 64 MiB",
        ),
        (
            archive("content_type = \"text/json\""),
            "archives.a.to.content_type: unknown key; documents are always application/json",
        ),
        (
            "[retention.logins]\ntables = \"Logins%Y%m%d\"\nkeep = \"60d\"\nahead = 3".to_owned(),
            "retention.logins.ahead: unknown key; two tables are always created ahead",
        ),
    ] {
        let found = mistakes(&text);
        assert!(
            found.iter().any(|found| found.contains(expected)),
            "{expected}: {found:#?}"
        );
    }
}

#[test]
fn signatures_for_applications_are_declared_and_their_mistakes_found() {
    let text = "[sas.sales]\ntable = \"Employees\"\npk = \"Sales\"\nrk_from = \"a\"\npermissions = \"ur\"\nvalid = \"2h\"\n[sas.stager]\ncontainer = \"evenkeel-staging\"\npermissions = \"c\"\n[sas.sender]\nqueue = \"evenkeel-jobs\"";
    let loaded = load_text(text).unwrap();
    let found: Vec<(&str, &str)> = loaded
        .settings
        .sas
        .iter()
        .map(|grant| (grant.name.as_str(), grant.permissions.as_str()))
        .collect();
    assert_eq!(found, [("sales", "ru"), ("sender", "a"), ("stager", "c")]);
    let warned = |more: &str| warnings(&format!("{text}\n{more}")).join("\n");
    assert!(
        warned("").contains(
            "default.toml:11: sas.sender.queue: queue \"evenkeel-jobs\" accepts every operation"
        ),
        "{}",
        warned("")
    );
    assert_eq!(
        warned("[[queues]]\nname = \"evenkeel-jobs\"\nallow = [\"sync\"]"),
        ""
    );
    assert_eq!(warned("[[queues]]\nname = \"another\""), "");
    for (declared, expected) in [
        (
            "",
            "sas.s.table: expected exactly one of table, container and queue",
        ),
        (
            "table = \"A1b\"\nqueue = \"jobs\"",
            "expected exactly one of table, container and queue",
        ),
        (
            "table = \"Employees\"\npermissions = \"rx\"",
            "sas.s.permissions: expected one or more letters of \"raud\", found \"rx\"",
        ),
        (
            "queue = \"jobs\"\npk = \"Sales\"",
            "sas.s.pk: not allowed with queue",
        ),
        (
            "table = \"Employees\"\npk = \"\"",
            "sas.s.pk: expected a key, found an empty string",
        ),
        (
            "table = \"Employees\"\npk = \"p\"\nrk_from = \"b\"\nrk_to = \"a\"",
            "sas.s.rk_to: expected at least rk_from (\"b\"), found \"a\"",
        ),
        (
            "table = \"evenkeelkeys\"\npermissions = \"rd\"",
            "holds data keys",
        ),
        (
            "table = \"EvenkeelFootprints\"",
            "holds evenkeel's own records",
        ),
        (
            "queue = \"evenkeel-jobs-poison\"",
            "holds evenkeel's own records",
        ),
        (
            "container = \"evenkeel-poison\"",
            "holds evenkeel's own records",
        ),
        (
            "container = \"evenkeel-staging\"",
            "expected permissions = \"c\"",
        ),
        (
            "table = \"Employees\"\naccount = \"man\"",
            "did you mean \"main\"?",
        ),
        ("table = \"Employees\"\nvalid = \"8d\"", "sas.s.valid"),
        (
            "table = \"Employees\"\nvlaid = \"8d\"",
            "did you mean \"valid\"?",
        ),
    ] {
        let errors = mistakes(&format!("[sas.s]\n{declared}")).join("\n");
        assert!(errors.contains(expected), "{declared}: {errors}");
    }
}

#[test]
fn an_account_needs_a_known_kind() {
    assert!(
        mistakes("[accounts.second]\npath = \"x\"")[0]
            .contains("accounts.second.kind: missing; expected \"embedded\" or \"azure\"")
    );
    assert!(mistakes("[accounts.second]\nkind = \"azur\"")[0].contains("did you mean \"azure\"?"));
    assert!(
        mistakes("[accounts.second]\nkind = \"embedded\"")[0]
            .contains("accounts.second.path: missing")
    );
    assert!(
        mistakes("[accounts.\"2nd one\"]\nkind = \"embedded\"\npath = \"x\"")[0]
            .contains("is not an account name")
    );
}

// --- The catalog

#[test]
fn a_catalog_becomes_tables_views_and_archives() {
    let text = r#"
[accounts.second]
kind = "embedded"
path = "second.db"

[tables.employees]
account = "second"

[views.by_email]
kind = "secondary_index"
source = "Employees"
when = "exists(Email)"
table = "ByEmail"
account = "main"
partition_key = "{PartitionKey}"
row_key = "email_{Email|lower}_{RowKey}"
on_conflict = "last_writer"

[archives.former]
source = "EMPLOYEES"
to = { kind = "table", table = "Former", account = "second" }
"#;
    let catalog = load_text(text).unwrap().catalog;
    let table = |name: &str| {
        catalog
            .table(&TableName::new(name).unwrap())
            .unwrap()
            .clone()
    };
    // The table has its first spelling and its declared account.
    assert_eq!(
        (
            table("Employees").table.as_str(),
            table("Employees").account.as_str()
        ),
        ("employees", "second")
    );
    assert_eq!(table("Former").account.as_str(), "second");
    assert_eq!(table("ByEmail").account, AccountName::main());
    let view = &catalog.views[&ViewName::new("by_email").unwrap()];
    assert_eq!(
        (view.source.clone(), view.on_conflict),
        (table("Employees"), OnConflict::LastWriter)
    );
    assert_eq!(view.when.as_ref().unwrap().to_string(), "exists(Email)");
    assert_eq!(
        catalog.archives[&ViewName::new("former").unwrap()].source,
        table("employees")
    );
}

const LIST: &str = "[views.v]\nkind = \"index_entity\"\nsource = \"Employees\"\nstore = \"table\"\ntable = \"Lists\"\n\
    partition_key = \"last_name_{LastName|bucket:16}\"\nrow_key = \"{LastName}\"\nmember = [\"{PartitionKey}\", \"{RowKey}\"]\n\
    property = \"Employees\"\n";

#[test]
fn a_list_in_the_partition_needs_no_table() {
    let near = "[views.v]\nkind = \"index_entity\"\nsource = \"Employees\"\nstore = \"partition\"\nrow_key = \"last_name_{LastName}\"\n\
        member = [\"{RowKey}\"]\nproperty = \"Employees\"\n";
    let loaded = load_text(near).unwrap();
    let view = &loaded.catalog.views[&ViewName::new("v").unwrap()];
    let rows = view.rows().unwrap();
    assert_eq!(
        (rows.target.first(), rows.partition_key.to_string()),
        (view.source.clone(), "{PartitionKey}".to_owned())
    );
    for key in [
        "table = \"Lists\"",
        "partition_key = \"{PartitionKey}\"",
        "account = \"main\"",
    ] {
        assert!(
            mistakes(&format!("{near}{key}\n"))
                .iter()
                .any(|error| error.contains("in the source's own partition; remove this key"))
        );
    }
    assert!(
        mistakes(&near.replace("[\"{RowKey}\"]", "[\"{LastName}\"]"))
            .iter()
            .any(|error| error.contains("\"{RowKey}\" is missing"))
    );
}

#[test]
fn a_list_in_a_blob_has_a_name_and_no_keys() {
    let blob = "[views.v]\nkind = \"index_entity\"\nsource = \"Employees\"\nstore = \"blob\"\ncontainer = \"lists\"\n\
        name = \"by/{LastName|lower}.jsonl\"\nmember = [\"{PartitionKey}\", \"{RowKey}\"]\n";
    let loaded = load_text(blob).unwrap();
    let ViewKind::BlobLists(lists) = &loaded.catalog.views[&ViewName::new("v").unwrap()].kind
    else {
        panic!("no list")
    };
    assert_eq!(
        (
            lists.container.as_str(),
            lists.name.as_str(),
            lists.accounts.to_string()
        ),
        ("lists", "by/{LastName|lower}.jsonl", "main".to_owned())
    );
    for key in [
        "table = \"Lists\"",
        "partition_key = \"p\"",
        "row_key = \"r\"",
        "property = \"Employees\"",
    ] {
        assert!(
            mistakes(&format!("{blob}{key}\n"))
                .iter()
                .any(|error| error.contains("a list is found by container and name")),
            "{key}"
        );
    }
    for (right, wrong, expected) in [
        (
            "container = \"lists\"",
            "container = \"Lists\"",
            "is not a container name",
        ),
        ("container = \"lists\"\n", "", "container: missing"),
        ("by/{", "by//{", "a segment that is empty"),
        (
            "{LastName|lower}",
            "{LastName|lowr}",
            "did you mean \"lower\"?",
        ),
        (
            "\"{RowKey}\"]",
            "\"{RowKey|lower}\"]",
            "\"{RowKey}\" is missing",
        ),
        (
            "store = \"blob\"",
            "store = \"blob\"\naccount = \"mian\"",
            "unknown account",
        ),
    ] {
        let mistakes = mistakes(&blob.replace(right, wrong));
        assert!(
            mistakes.iter().any(|error| error.contains(expected)),
            "{wrong}: {mistakes:?}"
        );
    }
    let again = blob.replace("views.v", "views.w");
    assert!(
        mistakes(&format!("{blob}{again}")).iter().any(
            |error| error.contains("the view v already writes these blobs to container lists")
        )
    );
}

#[test]
fn lists_are_read_and_their_mistakes_are_reported() {
    let loaded = load_text(LIST).unwrap();
    let ViewKind::IndexEntity(index) = &loaded.catalog.views[&ViewName::new("v").unwrap()].kind
    else {
        panic!("no list")
    };
    assert_eq!(
        (index.property.as_str(), index.member.len()),
        ("Employees", 2)
    );
    for (right, wrong, expected) in [
        (
            "member = [\"{PartitionKey}\", \"{RowKey}\"]",
            "member = [\"{RowKey}\"]",
            "\"{PartitionKey}\" is missing",
        ),
        (
            "\"{RowKey}\"]",
            "\"{RowKey|lower}\"]",
            "\"{RowKey}\" is missing",
        ),
        ("\"{RowKey}\"]", "\"{RowKey\"]", "this '{' is not closed"),
        (
            "member = [\"{PartitionKey}\", \"{RowKey}\"]\n",
            "",
            "member: missing; expected a list of templates",
        ),
        (
            "property = \"Employees\"",
            "property = \"ek_list\"",
            "one of evenkeel's own properties",
        ),
        (
            "property = \"Employees\"",
            "property = \"Em ployees\"",
            "is not a property name",
        ),
        (
            "property = \"Employees\"",
            "propertie = \"Employees\"",
            "did you mean \"property\"?",
        ),
        (
            "store = \"table\"",
            "store = \"tabel\"",
            "expected \"table\" or \"partition\" or \"blob\", found \"tabel\"",
        ),
        ("store = \"table\"\n", "", "store: missing; expected"),
        (
            "store = \"table\"",
            "store = \"table\"\non_conflict = \"reject\"",
            "there are no conflicts",
        ),
        (
            "row_key = \"{LastName}\"",
            "row_key = \"{LastName|lowr}\"",
            "did you mean \"lower\"?",
        ),
    ] {
        assert!(LIST.contains(right), "{right}");
        let errors = mistakes(&LIST.replace(right, wrong));
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
}

const SET: &str = "[views.manager]\nkind = \"denormalize\"\nsource = \"Employees\"\nwhen = \"IsManager == true\"\ntable = \"Departments\"\n\
    partition_key = \"{PartitionKey}\"\nrow_key = \"department\"\non_conflict = \"reject\"\n\
    set = { ManagerName = \"{FirstName} / {LastName}\", Salary = \"{Salary}\" }\n";

#[test]
fn denormalized_properties_are_read_and_their_mistakes_are_reported() {
    let loaded = load_text(SET).unwrap();
    let ViewKind::Denormalize(denormalize) =
        &loaded.catalog.views[&ViewName::new("manager").unwrap()].kind
    else {
        panic!("other")
    };
    assert_eq!(
        denormalize.set.keys().collect::<Vec<_>>(),
        ["ManagerName", "Salary"]
    );
    let twice = format!("{SET}{}", SET.replace("views.manager", "views.deputy"));
    let deputy = |row_key: &str| {
        SET.replace("views.manager", "views.deputy")
            .replace("\"department\"", &format!("{row_key:?}"))
    };
    let copies = |source: &str, table: &str, row_key: &str| {
        format!(
            "[views.copies]\nkind = \"secondary_index\"\nsource = \"{source}\"\ntable = \"{table}\"\npartition_key = \"{{PartitionKey}}\"\nrow_key = \"{row_key}\"\n"
        )
    };
    for (text, expected) in [
        (
            SET.replace("views.manager", "views.the-manager"),
            "expected a name without dashes",
        ),
        (SET.replace("set = {", "sets = {"), "did you mean \"set\"?"),
        (
            SET.replace("ManagerName =", "ek_name ="),
            "one of evenkeel's own properties",
        ),
        (
            SET.replace("\"{Salary}\"", "7"),
            "views.manager.set.Salary: expected a string, found",
        ),
        (
            SET.replace("{LastName}", "{LastName|lowr}"),
            "did you mean \"lower\"?",
        ),
        (
            SET.replace("{LastName}", "{LastName"),
            "this '{' is not closed",
        ),
        (
            SET.replace("\"Departments\"", "\"Employees\"")
                .replace("\"department\"", "\"{RowKey}\""),
            "the key of the primary itself",
        ),
        (
            SET.replace("\"Departments\"", "\"Logins%Y%m%d\""),
            "which need a source with the same dates",
        ),
        (
            twice,
            "sets ManagerName on the same entities of Departments",
        ),
    ] {
        let errors = mistakes(&text);
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
    // The values of properties decide whether these declarations write the same rows, so the findings are only warnings.
    let leader = |view: &str| {
        format!(
            "[views.{view}_lead]\nkind = \"denormalize\"\nsource = \"{view}s\"\ntable = \"Places\"\npartition_key = \"teams\"\n\
             row_key = \"{{{view}}}\"\non_conflict = \"reject\"\nset = {{ Leader = \"{{Name}}\" }}\n"
        )
    };
    let on_copies = "views.manager.table: the view copies writes its own rows to Departments";
    for (text, expected) in [
        (
            format!("{}{}", leader("Team"), leader("Branch")),
            "sets Leader on entities of Places too, perhaps on the same entities",
        ),
        (
            format!("{SET}{}", deputy("{Department}")),
            "sets ManagerName on entities of Departments too",
        ),
        (
            format!("{SET}{}", copies("Employees", "Departments", "{RowKey}")),
            on_copies,
        ),
        (
            format!("{}{SET}", copies("Others", "Departments", "{RowKey}")),
            on_copies,
        ),
    ] {
        let warnings = warnings(&text);
        assert!(
            warnings.iter().any(|warning| warning.contains(expected)),
            "{expected}: {warnings:?}"
        );
    }
    for right in [
        deputy("deputy"),
        deputy("deputy_{RowKey}"),
        deputy("department_{RowKey}"),
        copies("Employees", "Departments", "copy_{RowKey}"),
        copies("Departments", "Departments", "{Name}"),
    ] {
        let warnings = warnings(&format!("{SET}{right}"));
        assert!(
            !warnings
                .iter()
                .any(|warning| warning.contains("views.manager") || warning.contains(".set")),
            "{right}: {warnings:?}"
        );
    }
}

#[test]
fn a_range_selects_rows_and_no_other_view_writes_there() {
    const RANGE: &str = "[views.says]\nkind = \"denormalize\"\ntargets = \"range\"\nsource = \"Departments\"\n\
        table = \"Employees\"\npartition_key = \"{PartitionKey}\"\nset = { DepartmentName = \"{Name}\" }\n";
    let rows = |more: &str| {
        let catalog = load_text(&RANGE.replace("set =", &format!("{more}\nset =")))
            .unwrap()
            .catalog;
        format!(
            "{:?}",
            catalog.views[&ViewName::new("says").unwrap()]
                .range()
                .unwrap()
                .rows
        )
    };
    let template = |text| Template::parse(text).unwrap();
    assert_eq!(rows(""), format!("{:?}", RangeRows::All));
    assert_eq!(
        rows("row_key_prefix = \"{Prefix}_\""),
        format!("{:?}", RangeRows::Prefix(template("{Prefix}_")))
    );
    let from = RangeRows::Between {
        from: Some(template("{First}")),
        before: None,
    };
    assert_eq!(rows("row_key_from = \"{First}\""), format!("{from:?}"));
    let view = |name: &str, kind: &str, source: &str, table: &str, more: &str| {
        format!(
            "{RANGE}[views.{name}]\nkind = \"{kind}\"\nsource = \"{source}\"\ntable = \"{table}\"\npartition_key = \"{{PartitionKey}}\"\n{more}\n"
        )
    };
    for (text, word) in [
        (
            RANGE.replace("set =", "row_key = \"x\"\nset ="),
            "row_key_prefix",
        ),
        (
            RANGE.replace(
                "set =",
                "row_key_prefix = \"x\"\nrow_key_from = \"a\"\nset =",
            ),
            "expected either row_key_prefix",
        ),
        (
            RANGE.replace("set =", "on_conflict = \"last_writer\"\nset ="),
            "reject",
        ),
        (RANGE.replace("\"range\"", "\"ranges\""), "range"),
        (
            view(
                "copies",
                "secondary_index",
                "Others",
                "Employees",
                "row_key = \"{RowKey}\"",
            ),
            "writes its own rows to Employees",
        ),
        (
            view(
                "again",
                "denormalize",
                "Others",
                "Employees",
                "targets = \"range\"\nset = { DepartmentName = \"{Name}\" }",
            ),
            "sets DepartmentName on entities of Employees too",
        ),
    ] {
        let errors = mistakes(&text);
        assert!(
            errors.iter().any(|error| error.contains(word)),
            "{word}: {errors:?}"
        );
    }
}

#[test]
fn a_cycle_of_views_is_refused_if_each_reads_what_the_one_before_sets() {
    let views = |many: &str, range: &str, back: &str, more: &str| {
        format!(
            "[views.says]\nkind = \"denormalize\"\ntargets = \"range\"\nsource = \"Departments\"\nwhen = 'RowKey == \"department\"'\n\
             table = \"{many}\"\npartition_key = \"{{PartitionKey}}\"\nset = {{ {range} }}\n\
             [views.manager]\nkind = \"denormalize\"\nsource = \"{many}\"\nwhen = \"IsManager == true\"\ntable = \"Departments\"\n\
             partition_key = \"{{PartitionKey}}\"\nrow_key = \"department\"\nset = {{ {back} }}\n{more}\n"
        )
    };
    let reject = "on_conflict = \"reject\"";
    for many in ["Departments", "Employees"] {
        for (range, back, more) in [
            (
                "DepartmentName = \"{Name}\"",
                "Manager = \"{LastName}\"",
                reject,
            ),
            // The manager's name is copied to the department and then to all employees. No view copies it back.
            (
                "DepartmentName = \"{Name}\", Head = \"{Manager}\"",
                "Manager = \"{LastName}\"",
                reject,
            ),
            (
                "DepartmentName = \"{Name}\"",
                "Manager = \"{DepartmentName} {LastName}\"",
                reject,
            ),
            (
                "DepartmentName = \"{Name}\"",
                "Manager = \"{LastName}\"",
                "on_conflict = \"last_writer\"",
            ),
        ] {
            let text = views(many, range, back, more);
            assert!(
                load_text(&text).is_ok(),
                "{:?}: {text}",
                load_text(&text).err().map(|error| error.to_string())
            );
        }
        for (range, back, more, expected) in [
            (
                "Head = \"{Manager}\"",
                "Manager = \"{Head}!\"",
                reject,
                "views.says.set: the views form a cycle: says sets Head, which manager reads; manager sets Manager, which says reads. Set a property that none of them reads",
            ),
            // With `last_writer`, the view `manager` depends on all properties of its primaries.
            (
                "Head = \"{Manager}\"",
                "Manager = \"{LastName}\"",
                "on_conflict = \"last_writer\"",
                "says sets Head, which manager reads",
            ),
            (
                "IsManager = \"{Manager}\"",
                "Manager = \"{LastName}\"",
                reject,
                "says sets IsManager, which manager reads",
            ),
        ] {
            let errors = mistakes(&views(many, range, back, more)).join("\n");
            assert!(errors.contains(expected), "{expected}: {errors}");
        }
    }
    let itself = mistakes(&views(
        "Departments",
        "Name = \"{Name}\"",
        "Manager = \"{LastName}\"",
        reject,
    ))
    .join("\n");
    assert!(
        itself.contains("a cycle: says sets Name, which says reads. Set a property"),
        "{itself}"
    );
    let copies = "[views.copies]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"Departments\"\npartition_key = \"{PartitionKey}\"\n\
        row_key = \"c_{RowKey}\"\n";
    let copied = mistakes(
        &(views(
            "Employees",
            "DepartmentName = \"{Name}\"",
            "Manager = \"{LastName}\"",
            reject,
        ) + copies),
    )
    .join("\n");
    assert!(copied.contains("says sets DepartmentName, which copies reads; copies writes rows of Departments, which says reads"), "{copied}");
    let near = "[views.near]\nkind = \"secondary_index\"\nsource = \"Departments\"\ntable = \"Departments\"\npartition_key = \"{PartitionKey}\"\n\
        row_key = \"name_{LastName}_{RowKey}\"\n";
    let text = views(
        "Departments",
        "DepartmentName = \"{Name}\"",
        "Manager = \"{LastName}\"",
        reject,
    ) + near;
    assert!(
        load_text(&text).is_ok(),
        "a view may write rows into its source table: {:?}",
        load_text(&text).err().map(|error| error.to_string())
    );
}

#[test]
fn aggregate_functions_are_read_and_their_mistakes_are_reported() {
    let text = "[views.headcount]\nkind = \"aggregate\"\nsource = \"Employees\"\ngroup_table = \"Headcount\"\npartition_key = \"headcount\"\n\
        row_key = \"{PartitionKey}\"\nset = { Headcount = \"count()\", Payroll = \"sum(Salary)\" }\n";
    let loaded = load_text(text).unwrap();
    let ViewKind::Aggregate(aggregate) =
        &loaded.catalog.views[&ViewName::new("headcount").unwrap()].kind
    else {
        panic!("other")
    };
    assert_eq!(
        evenkeel_model::catalog::aggregated_properties(&aggregate.set)
            .into_iter()
            .collect::<Vec<_>>(),
        ["Salary"]
    );
    for (right, wrong, expected) in [
        (
            "sum(Salary)",
            "total(Salary)",
            "\"total(Salary)\" is not an aggregate function: \"total\" is unknown; expected count()",
        ),
        ("count()", "count(Salary)", "count takes no argument"),
        ("group_table", "table", "group_table: missing"),
        (
            "set = {",
            "on_conflict = \"reject\"\nset = {",
            "there are no conflicts",
        ),
        (
            "{ Headcount = \"count()\", Payroll = \"sum(Salary)\" }",
            "{}",
            "expected at least one property",
        ),
    ] {
        assert!(text.contains(right), "{right}");
        let errors = mistakes(&text.replace(right, wrong));
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
}

#[test]
fn large_values_are_read_and_their_mistakes_found() {
    let text = "[views.photos]\nkind = \"large_entity\"\nsource = \"Employees\"\nproperties = [\"Photo\"]\ncontainer = \"employee-large\"\n\
                threshold = \"8KiB\"\n";
    let loaded = load_text(text).unwrap();
    let (name, large) = loaded
        .catalog
        .large_values_of(&loaded.catalog.tables[&TableName::new("Employees").unwrap()])
        .unwrap();
    assert_eq!(
        (name.as_str(), large.container.as_str(), large.threshold),
        ("photos", "employee-large", 8_192)
    );
    assert!(large.properties.contains("Photo"));
    let second = text.replace("photos", "others");
    let archive =
        |to: &str| format!("{text}[archives.a]\nsource = \"Employees\"\nto = {{ {to} }}\n");
    for (wrong, expected) in [
        (text.replace("8KiB", "8KB"), "\"32KiB\""),
        (text.replace("employee-large", "Employee"), "container"),
        (
            text.replace("employee-large", "evenkeel-staging"),
            "is reserved for data",
        ),
        (text.replace("\"Photo\"", "\"ek_x\""), "ek_x"),
        (format!("{text}when = \"exists(A)\"\n"), "stays there"),
        (format!("{text}on_conflict = \"reject\"\n"), "no conflicts"),
        (format!("{text}{second}"), "can have one large_entity view"),
        (
            archive("kind = \"table\", table = \"Former\""),
            "source = \"Former\"",
        ),
        (
            archive("kind = \"append_blob\", container = \"former\""),
            "a log cannot hold large values",
        ),
        (
            "[tables.EvenkeelArchiveA]\n".to_owned(),
            "evenkeel's own records",
        ),
    ] {
        let errors = mistakes(&wrong);
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
    let both = format!(
        "{}{}",
        archive("kind = \"table\", table = \"Former\""),
        text.replace("photos", "former")
            .replace("Employees", "Former")
    );
    assert!(load_text(&both).is_ok());
    let by = |lines: &str| format!("{text}{VIEW}{lines}\n");
    for right in [
        "when = \"exists(Photo)\"",
        "when = 'Photo != \"\"'",
        "select = [\"Photo\"]",
    ] {
        assert!(load_text(&by(right)).is_ok(), "{right}");
    }
    assert!(
        load_text(&format!(
            "{text}[rules.r]\ndelete = \"Employees\"\nwhen = \"exists(Photo)\"\n"
        ))
        .is_ok()
    );
    for (wrong, expected) in [
        (
            by("when = \"Photo != \\\"none\\\"\""),
            "views.v.when: the view photos may move property Photo of Employees to a blob",
        ),
        (
            by("").replace("{RowKey}", "{Photo|hash:8}_{RowKey}"),
            "views.v.row_key: the view photos may move property Photo of Employees to a blob",
        ),
        (
            format!("{text}[rules.r]\ndelete = \"Employees\"\nwhen = 'startsWith(Photo, \"a\")'\n"),
            "rules.r.when: the view photos may move property Photo of Employees to a blob",
        ),
        (
            archive("kind = \"blob\", container = \"former\", metadata = { photo = \"{Photo}\" }"),
            "archives.a.to.metadata: the view photos may move property Photo of Employees to a blob",
        ),
    ] {
        let errors = mistakes(&wrong);
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
    let documents = load_text(&archive("kind = \"blob\", container = \"former\""))
        .unwrap()
        .catalog;
    let archived = documents
        .archived_values_of(&ViewName::new("a").unwrap())
        .unwrap();
    let container = evenkeel_model::ContainerName::new("former").unwrap();
    assert_eq!(
        (archived.view.as_str(), &archived.location),
        (
            "photos",
            &evenkeel_model::catalog::ValueLocation::Blobs {
                account: AccountName::main(),
                container
            }
        )
    );
    assert!(
        documents.has_views(&archived.table) && documents.table(&archived.table.table).is_none()
    );
}

#[test]
fn the_unsupported_key_spill_is_reported_with_its_replacement() {
    let spilling = "[views.readings]\nkind = \"large_entity\"\nsource = \"Meters\"\ncontainer = \"readings\"\nspill = true\n";
    let errors = mistakes(spilling);
    assert!(
        matches!(errors.as_slice(), [error] if error.contains("views.readings.spill: unknown key; rows have at most 252 properties")),
        "{errors:?}"
    );
}

#[test]
fn search_indexes_are_read_and_their_mistakes_found() {
    let sink = "[sinks.catalog]\nkind = \"search\"\nendpoint = \"https://contoso.search.windows.net\"\nkey_env = \"SEARCH\"\n";
    let view = "[views.found]\nkind = \"search_index\"\nsource = \"Employees\"\nwhen = \"exists(Email)\"\nsink = \"catalog\"\nindex = \"people\"\n\
                select = [\"Email\"]\nfields = { name = \"{FirstName} {LastName}\" }\n";
    let text = format!("{sink}{view}");
    let read = |text: &str| {
        load(&with_environment(
            request(folder(&[("default.toml", text)]).path()),
            &[("SEARCH", "top-secret")],
        ))
    };
    let loaded = read(&text).unwrap();
    let ViewKind::SearchIndex(search) =
        &loaded.catalog.views[&ViewName::new("found").unwrap()].kind
    else {
        panic!("no search index")
    };
    let search = &search.0;
    assert_eq!(
        (search.sink.as_str(), search.collection.as_str()),
        ("catalog", "people")
    );
    assert_eq!(search.fields.keys().collect::<Vec<_>>(), ["Email", "name"]);
    assert_eq!(search.fields["Email"].bare_property(), Some("Email"));
    let SinkKind::Search(settings) = &loaded.settings.sinks[0].kind else {
        panic!("no search service")
    };
    assert_eq!(settings.endpoint.scheme(), "https");
    assert!(!format!("{:?}", loaded.settings).contains("top-secret"));
    for (right, wrong, expected) in [
        (
            "sink = \"catalog\"",
            "sink = \"catalogue\"",
            "did you mean \"catalog\"?",
        ),
        (
            "kind = \"search\"",
            "kind = \"solr\"",
            "expected \"search\"",
        ),
        (
            "https://contoso",
            "http://contoso",
            "would send the credential unencrypted",
        ),
        (
            "windows.net\"",
            "windows.net?key=secret\"",
            "without user, password, query or fragment",
        ),
        (
            "key_env = \"SEARCH\"",
            "",
            "an admin key of the search service",
        ),
        (
            "[sinks.catalog]",
            "[sinks.main]",
            "main is already the name of an account",
        ),
        (
            "index = \"people\"",
            "index = \"People\"",
            "is not a collection name",
        ),
        ("[\"Email\"]", "[\"PartitionKey\"]", "cannot be selected"),
        ("{ name =", "{ id =", "is the key field"),
        ("{ name =", "{ Email =", "is in both select and fields"),
        ("{ name =", "{ azureSearchName =", "not with azureSearch"),
        ("{LastName}\" }", "{LastName|nonsense}\" }", "nonsense"),
        (
            "select = [\"Email\"]\nfields = { name = \"{FirstName} {LastName}\" }",
            "",
            "expected select",
        ),
        ("index =", "table = \"T\"\nindex =", "remove this key"),
        (
            "index =",
            "on_conflict = \"reject\"\nindex =",
            "no conflicts",
        ),
    ] {
        assert!(text.contains(right), "{right}");
        let errors: Vec<String> = read(&text.replacen(right, wrong, 1))
            .unwrap_err()
            .errors
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
        assert!(
            !errors.iter().any(|error| error.contains("secret")),
            "{errors:?}"
        );
    }
    let twice = format!("{text}{}", view.replace("found", "sought"));
    let errors: Vec<String> = read(&twice)
        .unwrap_err()
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        errors.iter().any(|error| error.contains(
            "the view found already writes the documents of Employees to the index people"
        )),
        "{errors:?}"
    );
}

#[test]
fn tables_of_databases_are_read_and_their_mistakes_found() {
    let text = "[sinks.reporting]\nkind = \"sqlite\"\npath = \"data/reporting.db\"\n\
                [views.staff]\nkind = \"sql_table\"\nsource = \"Employees\"\nsink = \"reporting\"\ntable = \"employees\"\n\
                columns = { department = \"text {PartitionKey}\", name = \"text(80)  {FirstName} {LastName}\", salary = \"double {Salary}\" }\n";
    let read = |text: &str| load(&request(folder(&[("default.toml", text)]).path()));
    let loaded = read(text).unwrap();
    let ViewKind::SqlTable(SqlTable(table)) =
        &loaded.catalog.views[&ViewName::new("staff").unwrap()].kind
    else {
        panic!("no table")
    };
    assert_eq!(
        (table.sink.as_str(), table.collection.as_str()),
        ("reporting", "employees")
    );
    assert_eq!(table.types["name"], ColumnType::Text(Some(80)));
    assert_eq!(table.fields["name"].to_string(), "{FirstName} {LastName}");
    for (right, wrong, expected) in [
        (
            "kind = \"sqlite\"",
            "",
            "expected \"search\" or \"postgresql\" or \"sqlite\" or \"webhook\"",
        ),
        ("data/reporting.db", " ", "found an empty string"),
        (
            "sink = \"reporting\"",
            "sink = \"reports\"",
            "did you mean \"reporting\"?",
        ),
        (
            "table = \"employees\"",
            "table = \"Employees\"",
            "lower-case",
        ),
        (
            "table = \"employees\"",
            "table = \"evenkeel_x\"",
            "is reserved",
        ),
        ("{ department", "{ ek_key", "is reserved"),
        ("{ department", "{ Department", "lower-case"),
        ("double {Salary}", "money {Salary}", "unknown column type"),
        ("double {Salary}", "double", "is not a type and a template"),
        ("double {Salary}", "double {Salary|lower}", "renders text"),
        ("double {Salary}", "integer {RowKey}", "renders text"),
        ("double {Salary}", "double {Salary", "Salary"),
        (
            "columns = {",
            "fields = {",
            "a type and a template for each column",
        ),
        ("table =", "row_key = \"x\"\ntable =", "remove this key"),
        (
            "table =",
            "on_conflict = \"reject\"\ntable =",
            "no conflicts",
        ),
    ] {
        assert!(text.contains(right), "{right}");
        let errors: Vec<String> = read(&text.replacen(right, wrong, 1))
            .unwrap_err()
            .errors
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
    let server = "kind = \"postgresql\"\nhost = \"db.contoso.com\"\ndatabase = \"reporting\"\nuser = \"app\"\npassword_env = \"DB\"";
    let served = text.replace("kind = \"sqlite\"\npath = \"data/reporting.db\"", server);
    let read_with = |text: &str| {
        load(&with_environment(
            request(folder(&[("default.toml", text)]).path()),
            &[("DB", "top-secret")],
        ))
    };
    let loaded = read_with(&served).unwrap();
    let SinkKind::Sql(SqlSettings::Postgres(settings)) = &loaded.settings.sinks[0].kind else {
        panic!("no server")
    };
    assert_eq!(
        (settings.host.as_str(), settings.port),
        ("db.contoso.com", 5_432)
    );
    assert_eq!(settings.tls, SqlTls::Verify { ca_file: None });
    assert!(!format!("{:?}", loaded.settings).contains("top-secret"));
    let socket = served
        .replace("db.contoso.com", "/run/postgresql")
        .replace("password_env = \"DB\"", "port = 6432");
    let SinkKind::Sql(SqlSettings::Postgres(settings)) =
        &read_with(&socket).unwrap().settings.sinks[0].kind
    else {
        panic!("no server")
    };
    assert_eq!(
        (settings.port, &settings.tls, settings.password.is_none()),
        (6_432, &SqlTls::Off, true)
    );
    for (host, expected) in [
        ("localhost", SqlTls::Off),
        (
            "localhost\"\nca_file = \"ca.pem",
            SqlTls::Verify {
                ca_file: Some("ca.pem".into()),
            },
        ),
    ] {
        let here = served.replace("db.contoso.com", host);
        let SinkKind::Sql(SqlSettings::Postgres(settings)) =
            &read_with(&here).unwrap().settings.sinks[0].kind
        else {
            panic!("no server")
        };
        assert_eq!(settings.tls, expected, "{host}");
    }
    for (right, wrong, expected) in [
        ("host = \"db.contoso.com\"", "", "the name of a server"),
        ("database = \"reporting\"", "", "the name of a database"),
        ("user = \"app\"", "user = \"\"", "found an empty string"),
        (
            "user = \"app\"",
            "user = \"app\"\ntls = \"off\"",
            "TLS is used unless the server is on this machine",
        ),
        ("user = \"app\"", "user = \"app\"\nport = 70000", "65535"),
        (
            "host = \"db.contoso.com\"",
            "host = \"/run/postgresql\"\nca_file = \"ca.pem\"",
            "has no TLS",
        ),
        ("\"DB\"", "\"OTHER\"", "OTHER, which is not set"),
    ] {
        assert!(served.contains(right), "{right}");
        let errors: Vec<String> = read_with(&served.replacen(right, wrong, 1))
            .unwrap_err()
            .errors
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
    let mut another = text
        .replace("views.staff", "views.others")
        .replace("\"Employees\"", "\"Customers\"");
    another.drain(..another.find("[views").unwrap());
    let errors: Vec<String> = read(&format!("{text}{another}"))
        .unwrap_err()
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        errors
            .iter()
            .any(|error| error.contains("expected a table of its own")),
        "{errors:?}"
    );
    let searched = text
        .replace("sql_table", "search_index")
        .replace("table =", "index =")
        .replace("columns", "fields");
    let errors: Vec<String> = read(&searched)
        .unwrap_err()
        .errors
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        errors
            .iter()
            .any(|error| error.contains("is another kind of sink; expected a search service")),
        "{errors:?}"
    );
}

#[test]
fn conflicting_tables_are_refused() {
    let view = |name: &str, source: &str, table: &str, row_key: &str| {
        format!(
            "[views.{name}]\nkind = \"secondary_index\"\nsource = \"{source}\"\ntable = \"{table}\"\npartition_key = \"{{PartitionKey}}\"\nrow_key = \"{row_key}\"\non_conflict = \"reject\"\n"
        )
    };
    let archive = |name: &str, source: &str, table: &str| {
        format!(
            "[archives.{name}]\nsource = \"{source}\"\nto = {{ kind = \"table\", table = \"{table}\" }}\n"
        )
    };
    let second = "[accounts.second]\nkind = \"embedded\"\npath = \"x\"\n";
    for (text, expected) in [
        (
            view("v", "Employees", "employees", "{RowKey}"),
            "this is the key of the primary itself",
        ),
        (
            view("v", "Employees", "EvenkeelFootprints", "{RowKey}"),
            "evenkeel's own records",
        ),
        (
            view("v", "evenkeelaudits", "Copies", "{RowKey}"),
            "evenkeel's own records",
        ),
        (
            "[tables.EvenkeelMigrations]\n".to_owned(),
            "evenkeel's own records",
        ),
        (
            archive("a", "Employees", "EvenkeelMigrations"),
            "evenkeel's own records",
        ),
        (
            archive("a", "Employees", "employees"),
            "is the source of this archive",
        ),
        (
            view("v", "Employees", "Former", "x_{RowKey}") + &archive("a", "Employees", "Former"),
            "is the target of the archive \"a\"",
        ),
        (
            archive("a", "Employees", "Former") + &archive("b", "Customers", "Former"),
            "is already the target of the archive \"a\"",
        ),
        (
            view("v", "Employees", "Copies", "x_{RowKey}")
                + &view("w", "Customers", "copies", "x_{RowKey}"),
            "the view v writes the same keys",
        ),
        (
            second.to_owned()
                + &view("v", "Employees", "Copies", "x_{RowKey}")
                + "account = \"second\"\n[tables.Copies]\naccount = \"main\"",
            "expected the same account everywhere",
        ),
        (
            view("v", "Em", "Copies", "x_{RowKey}"),
            "is not a table name",
        ),
        (
            view("v", "Aaa", "Bbb", "x_{RowKey}")
                + &view("w", "Bbb", "Ccc", "x_{RowKey}")
                + &view("x", "Ccc", "Aaa", "x_{RowKey}"),
            "the views form a cycle",
        ),
        (
            view("v", "Employees", "Copies", "x_{RowKey}") + "[tables.Copies]\nwide = true\n",
            "views cannot write to a wide table",
        ),
        (
            archive("a", "Employees", "Former") + "[tables.Employees]\nwide = true\n",
            "expected wide = true in [tables.Former]",
        ),
        (
            "[tables.Copies]\naccount = \"other\"".to_owned(),
            "unknown account \"other\"; known are main",
        ),
        (
            "[archives.a]\nsource = \"Employees\"".to_owned(),
            "archives.a.to: missing",
        ),
        (
            "[views.v]\nkind = \"secondary_index\"".to_owned(),
            "views.v.source: missing",
        ),
    ] {
        let errors = mistakes(&text).join("\n");
        assert!(errors.contains(expected), "{errors}");
    }
    assert!(
        load_text(
            &(view("v", "Employees", "Copies", "x_{RowKey}")
                + &view("w", "Employees", "Copies", "y_{RowKey}"))
        )
        .is_ok()
    );
    assert!(
        load_text(
            &(view("v", "Aaa", "Bbb", "x_{RowKey}")
                + &view("w", "Bbb", "Ccc", "x_{RowKey}")
                + &view("x", "Aaa", "Aaa", "x_{RowKey}"))
        )
        .is_ok()
    );
}

#[test]
fn tables_may_be_wide() {
    let both = "[tables.Employees]\nwide = true\n[tables.Former]\nwide = true\n[archives.a]\nsource = \"employees\"\nto = { kind = \"table\", table = \"Former\" }\n";
    let catalog = load_text(both).unwrap().catalog;
    assert!(
        catalog.wide.contains(
            catalog
                .table(&TableName::new("EMPLOYEES").unwrap())
                .unwrap()
        )
    );
    assert!(
        load_text("[tables.Employees]\nwide = false\n")
            .unwrap()
            .catalog
            .wide
            .is_empty()
    );
    let found = warnings(&VIEW.replace("[views.v]", "[tables.Employees]\nwide = true\n[views.v]"));
    assert!(
        found
            .iter()
            .any(|warning| warning.contains("to copy in select")),
        "{found:?}"
    );
}

#[test]
fn rows_of_a_table_by_date_may_go_into_files_before_it_is_dropped() {
    let text = |to: &str| {
        format!(
            "[retention.logins]\ntables = \"Logins%Y%m%d\"\nkeep = \"60d\"\narchive_to = {to}\n"
        )
    };
    let loaded = load_text(&text("{ kind = \"blob\", container = \"old-logins\" }")).unwrap();
    let to = loaded.catalog.retentions[&ViewName::new("logins").unwrap()]
        .archive_to
        .clone();
    assert!(
        matches!(to, Some(TableArchive::Blob { container, .. }) if container.as_str() == "old-logins")
    );
    assert!(load_text(&text("{ kind = \"file\", dir = \"/mnt/old\" }")).is_ok());
    for (to, expected) in [
        (
            "{ kind = \"table\", table = \"Old\" }",
            "expected \"blob\" or \"file\"",
        ),
        ("{ kind = \"blob\" }", "the container of the files"),
        ("{ kind = \"file\", dir = \"old\" }", "an absolute path"),
        ("{ container = \"old\" }", "kind"),
        (
            "{ kind = \"blob\", container = \"old\", path = \"x\" }",
            "unknown key",
        ),
    ] {
        let errors = mistakes(&text(to));
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
}

const LOGINS: &str = "[retention.logins]\ntables = \"Logins%Y%m%d\"\nkeep = \"60d\"\n[retention.visits]\ntables = \"Visits%Y%m%d\"\nkeep = \"9d\"\n";
const BY_USER: &str = "[views.by_user]\nkind = \"secondary_index\"\nsource = \"Logins%Y%m%d\"\ntable = \"ByUser%Y%m%d\"\n\
    partition_key = \"{User}\"\nrow_key = \"{PartitionKey}_{RowKey}\"\n";
const COUNTS: &str = "[views.counts]\nkind = \"aggregate\"\nsource = \"Logins%Y%m%d\"\ngroup_table = \"Counts%Y%m%d\"\n\
    partition_key = \"{User}\"\nrow_key = \"all\"\nset = { Logins = \"count()\" }\n";

#[test]
fn a_view_of_tables_by_date_writes_into_tables_of_the_same_dates() {
    let near = BY_USER
        .replace("views.by_user", "views.near")
        .replace("ByUser%Y%m%d", "Logins%Y%m%d")
        .replace("{User}", "user_{User}");
    let catalog = load_text(&format!("{LOGINS}{BY_USER}{COUNTS}{near}"))
        .unwrap()
        .catalog;
    assert!(catalog.views.is_empty() && catalog.dated_views.len() == 3);
    let name = |name: &str| TableName::new(name).unwrap();
    let source = catalog.table(&name("LOGINS20261120")).unwrap().clone();
    let targets: Vec<String> = catalog
        .views_of(&source)
        .map(|view| view.rows().unwrap().target.to_string())
        .collect();
    assert_eq!(
        targets,
        ["ByUser20261120", "Counts20261120", "Logins20261120"]
    );
    assert!(catalog.views_of(&source).all(|view| view.source == source));
    assert_eq!(
        catalog.table(&name("byuser20261120")).unwrap().to_string(),
        "ByUser20261120"
    );
    assert_eq!(
        catalog.footprints_of(&source).unwrap().to_string(),
        "EvenkeelFootprintsLogins20261120"
    );
    for unknown in ["Logins20261131", "ByUser2026", "Logins"] {
        assert!(catalog.table(&name(unknown)).is_none(), "{unknown}");
    }
    assert!(
        catalog.dated_table(&name("ByUser20261120")).is_none(),
        "a derived table is dropped with its source, not by a retention of its own"
    );
    let visits = catalog.table(&name("Visits20261120")).unwrap().clone();
    assert!(
        !catalog.has_views(&visits)
            && catalog
                .followers(catalog.retention_of(&visits.table).unwrap())
                .all()
                .next()
                .is_none()
    );
}

#[test]
fn items_that_could_outlive_their_table_by_date_are_refused() {
    let another = |from: &str, to: &str| {
        format!(
            "{BY_USER}{}",
            BY_USER
                .replace("views.by_user", "views.other")
                .replace(from, to)
        )
    };
    let fixed = "[views.fixed]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"Copies\"\npartition_key = \"{PartitionKey}\"\nrow_key = \"x_{RowKey}\"\n";
    let long = "L".repeat(38);
    for (text, expected) in [
        (
            BY_USER.replace("ByUser%Y%m%d", "ByUser"),
            "\"ByUser\" would remain when a table of the source is dropped",
        ),
        (
            BY_USER.replace("ByUser%Y%m%d", "ByUser%Y%m"),
            "ByUser%Y%m has other dates than the source; expected \"ByUser%Y%m%d\"",
        ),
        (
            BY_USER.replace("ByUser%Y%m%d", "Visits%Y%m%d"),
            "Visits%Y%m%d is managed by [retention.visits]",
        ),
        (
            BY_USER.replace("Logins%Y%m%d", "Sessions%Y%m%d"),
            "no [retention] has the tables Sessions%Y%m%d; expected one of \"Logins%Y%m%d\", \"Visits%Y%m%d\"",
        ),
        (
            BY_USER.replace("Logins%Y%m%d", "LOGINS%Y%m%d"),
            "spells its tables \"Logins%Y%m%d\"",
        ),
        (
            BY_USER.replace("Logins%Y%m%d", "Logins%d"),
            "is not a pattern of dated tables",
        ),
        (
            BY_USER.replace("ByUser%Y%m%d", "EvenkeelFootprintsOf%Y%m%d"),
            "hold evenkeel's own records",
        ),
        (
            format!("{LOGINS}[retention.own]\ntables = \"EvenkeelFootprintsX%Y\"\nkeep = \"9d\"\n")
                .replace(LOGINS, ""),
            "hold evenkeel's own records",
        ),
        (
            another("Logins%Y%m%d", "Visits%Y%m%d"),
            "the view by_user already derives ByUser%Y%m%d from Logins%Y%m%d",
        ),
        (
            another("ByUser%Y%m%d", "BYUSER%Y%m%d"),
            "the view by_user spells these tables \"ByUser%Y%m%d\"",
        ),
        (
            another(
                "partition_key = \"{User}\"",
                "account = \"second\"\npartition_key = \"{User}x\"",
            ),
            "in another account",
        ),
        (
            another("nothing", ""),
            "writes the same keys to the same table ByUser%Y%m%d",
        ),
        (
            another("Logins%Y%m%d", "ByUser%Y%m%d"),
            "ByUser%Y%m%d are written by the view",
        ),
        (
            BY_USER.replace("Logins%Y%m%d", &format!("{long}%Y%m%d"))
                + &format!("[retention.long]\ntables = \"{long}%Y%m%d\"\nkeep = \"9d\"\n"),
            "would exceed 63 characters",
        ),
        (
            BY_USER.replace("ByUser%Y%m%d\"\n", "Logins%Y%m%d\"\naccount = \"second\"\n"),
            "the tables Logins%Y%m%d are in account main",
        ),
        (
            BY_USER.replace("secondary_index", "large_entity"),
            "expected no large_entity view",
        ),
        (
            BY_USER.replace("secondary_index\"", "index_entity\"\nstore = \"blob\""),
            "expected \"table\" or \"partition\"",
        ),
        (
            BY_USER.replace("secondary_index\"", "denormalize\"\ntargets = \"range\""),
            "expected \"one\"",
        ),
        (
            fixed.replace("Employees", "Logins20261120"),
            "Logins20261120 is one of the tables of [retention.logins]",
        ),
        (
            fixed.replace("Copies", "Logins20261120"),
            "Logins20261120 is one of the tables of [retention.logins]",
        ),
        (
            format!("{BY_USER}{}", fixed.replace("Copies", "byuser20261120")),
            "byuser20261120 is dropped together with a table of [retention.logins]",
        ),
        (
            format!("{BY_USER}[tables.ByUser20261120]\n"),
            "is dropped together with a table of [retention.logins]",
        ),
        (
            format!(
                "{BY_USER}[archives.a]\nsource = \"Employees\"\nto = {{ kind = \"table\", table = \"ByUser20261120\" }}\n"
            ),
            "is dropped together with a table of [retention.logins]",
        ),
        (
            fixed.replace("Copies", "EvenkeelFootprintsLogins20261120"),
            "evenkeel's own records",
        ),
    ] {
        let errors = mistakes(&format!(
            "[accounts.second]\nkind = \"embedded\"\npath = \"x\"\n{LOGINS}{text}"
        ));
        assert!(
            errors.iter().any(|error| error.contains(expected)),
            "{expected}: {errors:?}"
        );
    }
}

#[test]
fn archives_may_be_documents() {
    let archive = |to: &str| format!("[archives.a]\nsource = \"Employees\"\nto = {{ {to} }}\n");
    let target = |to: &str| {
        load_text(&archive(to)).unwrap().catalog.archives[&ViewName::new("a").unwrap()]
            .target
            .clone()
    };
    let ArchiveTarget::Blob(blob) = target(r#"kind = "blob", container = "former""#) else {
        panic!("no blob")
    };
    assert_eq!(
        (blob.path.as_str(), blob.metadata.len()),
        ("{PartitionKey}/{RowKey}.json", 0)
    );
    let ArchiveTarget::Blob(blob) = target(
        r#"kind = "blob", container = "former", path = "x/{PartitionKey}/{RowKey}", metadata = { name = "{LastName}", key = "{PartitionKey}/{RowKey}" }"#,
    ) else {
        panic!("no blob")
    };
    assert_eq!(
        (
            blob.path.as_str(),
            blob.metadata["name"].to_string().as_str()
        ),
        ("x/{PartitionKey}/{RowKey}", "{LastName}")
    );
    assert_eq!(
        blob.metadata["key"].to_string(),
        "{PartitionKey}/{RowKey}",
        "unlike a key, metadata allows a literal slash"
    );
    let ArchiveTarget::Log(log) =
        target(r#"kind = "append_blob", container = "events", time = "At", spread = 4"#)
    else {
        panic!("no log")
    };
    assert_eq!(
        (
            log.path.as_str(),
            log.time.as_deref(),
            log.spread,
            log.roll_at
        ),
        ("logs/%Y/%m/%d/%H00", Some("At"), 4, 64 << 20)
    );
    for spelling in ["/mnt/former", "/mnt/former/", "//mnt/./former//"] {
        let ArchiveTarget::File(file) = target(&format!("kind = \"file\", dir = {spelling:?}"))
        else {
            panic!("no file")
        };
        assert_eq!(file.dir, "/mnt/former", "{spelling} is the same folder");
    }
    for (to, expected) in [
        (r#"kind = "blob""#, "archives.a.to.container: missing"),
        (
            r#"kind = "blob", container = "Upper""#,
            "is not a container name",
        ),
        (
            r#"kind = "blob", container = "former", path = "{PartitionKey}""#,
            "does not contain the whole RowKey",
        ),
        (
            r#"kind = "blob", container = "former", path = "{Email}/{PartitionKey}/{RowKey}""#,
            "only PartitionKey and RowKey are allowed",
        ),
        (
            r#"kind = "blob", container = "former", metadata = { "a-b" = "x" }"#,
            "is not a metadata name",
        ),
        (
            r#"kind = "blob", container = "former", metadata = { a = "{Name|wat}" }"#,
            "wat",
        ),
        (
            r#"kind = "blob", container = "former", metadata = { a = 5 }"#,
            "expected a string",
        ),
        (
            r#"kind = "blob", container = "former", metadata = { Name = "{Name}", name = "x" }"#,
            "differ only in case",
        ),
        (
            r#"kind = "blob", container = "former", dir = "x""#,
            "unknown key",
        ),
        (
            r#"kind = "append_blob", container = "events", path = "logs/%Y""#,
            "expected a path with %Y, %m, %d and %H",
        ),
        (
            r#"kind = "append_blob", container = "events", spread = 0"#,
            "expected an integer from 1 to 64",
        ),
        (
            r#"kind = "append_blob", container = "events", time = "a-b""#,
            "expected the name of a property",
        ),
        (r#"kind = "file""#, "archives.a.to.dir: missing"),
        (
            r#"kind = "file", dir = "former""#,
            "expected an absolute path",
        ),
        (
            r#"kind = "file", dir = "/mnt/x/../former""#,
            "expected a path without",
        ),
        (
            r#"kind = "blub", container = "former""#,
            "did you mean \"blob\"?",
        ),
    ] {
        let errors = mistakes(&archive(to)).join("\n");
        assert!(errors.contains(expected), "{to}: {errors}");
    }
    let twice = archive(r#"kind = "blob", container = "former""#);
    let errors = mistakes(&(twice.clone() + &twice.replace("archives.a", "archives.b"))).join("\n");
    assert!(
        errors.contains("is already the target of the archive \"a\""),
        "{errors}"
    );
    let folder =
        archive(r#"kind = "file", dir = "/mnt/former", path = "x/{PartitionKey}/{RowKey}.json""#)
            .replace(".a]", ".b]");
    for same in [
        r#"dir = "/mnt/former/", path = "x/{PartitionKey}/{RowKey}.json""#,
        r#"dir = "/mnt/former/x""#,
    ] {
        let errors = mistakes(&(archive(&format!("kind = \"file\", {same}")) + &folder)).join("\n");
        assert!(
            errors.contains("is already the target of the archive \"a\""),
            "{same}: {errors}"
        );
    }
}

#[test]
fn only_the_users_own_properties_can_be_selected() {
    let select = |list: &str| mistakes(&format!("{VIEW}select = {list}")).join("\n");
    assert!(select("[\"PartitionKey\"]").contains("ek_source"));
    assert!(select("[\"Timestamp\"]").contains("Timestamp"));
    assert!(select("[\"a-b\"]").contains("not a property name"));
    assert!(select("[\"A\", \"A\"]").contains("twice"));
    assert!(select("[5]").contains("expected strings in this list, found an integer"));
    assert!(select("\"A\"").contains("expected a list of strings"));
    assert!(load_text(&format!("{VIEW}select = []")).is_ok());
}

#[test]
fn probable_mistakes_are_warnings() {
    assert_eq!(warnings(VIEW), [] as [String; 0]);
    let row_key =
        |row_key: &str| warnings(&VIEW.replace("\"{RowKey}\"", &format!("{row_key:?}"))).join("\n");
    assert!(
        row_key("{Email|lower}")
            .contains("two entities can get the same key: it does not contain RowKey. Set on_conflict, or add RowKey to a key")
    );
    assert!(row_key("{Email|lower}_{RowKey}").contains(
        "`{Email|lower}_{RowKey}` is ambiguous. Set on_conflict, or write {RowKey|hash:64}"
    ));
    let both = VIEW
        .replace("\"{PartitionKey}\"", "\"{Email}\"")
        .replace("\"{RowKey}\"", "\"{PartitionKey}_{RowKey}\"");
    let idiom = "`{PartitionKey}_{RowKey}` is ambiguous (`a_b`+`c`, `a`+`b_c`). Set on_conflict, or write {PartitionKey|hash:64}";
    assert!(warnings(&both).join("\n").contains(idiom));
    assert_eq!(
        warnings(&both.replace("{PartitionKey}", "{PartitionKey|hash:64}")),
        [] as [String; 0]
    );
    assert_eq!(row_key("{Email|slug}_{RowKey}"), "");
    assert!(
        row_key("{RowKey}{rowkey|pad:3}")
            .contains("\"rowkey\" is a property, not a key; did you mean RowKey?")
    );
    let own_table = |row_key: &str| {
        warnings(
            &VIEW
                .replace("\"Copies\"", "\"Employees\"")
                .replace("\"{RowKey}\"", &format!("{row_key:?}")),
        )
        .join("\n")
    };
    assert!(own_table("{RowKey}_x").contains("Begin with a literal"));
    assert_eq!(own_table("x_{RowKey}"), "");
    let partition = |key: &str| {
        warnings(
            &VIEW
                .replace("\"{PartitionKey}\"", &format!("{key:?}"))
                .replace("\"{RowKey}\"", "\"{PartitionKey|hash:64}{RowKey}\""),
        )
        .join("\n")
    };
    assert!(partition("all").contains("all rows have this partition key"));
    assert!(partition("{Hired|date:%Y%m%d}").contains("it begins with a date (Hired)"));
    assert_eq!(partition("{RowKey|bucket:16}_{Hired|date:%Y%m%d}"), "");
    assert!(row_key("{Hired|date:%d%m%Y}_{RowKey|hash:64}").contains(
        "lookups cannot query a range of this key: the key does not sort by Hired, because of a date"
    ));
    assert!(
        !row_key("{Hired|date:%Y%m%d}_{RowKey|hash:64}").contains("lookups cannot query a range")
    );
    let typo = format!(
        "{VIEW}[archives.a]\nsource = \"Employes\"\nto = {{ kind = \"table\", table = \"Former\" }}\n[tables.Employees]"
    );
    assert!(
        warnings(&typo)
            .join("\n")
            .contains("no other section uses the table Employes; did you mean \"Employees\"?")
    );
}

#[test]
fn memory_has_bounds_and_a_unit() {
    for (text, word) in [
        (
            "[worker]\nmemory = \"63MiB\"",
            "expected 64MiB to 1024GiB, found 63MiB",
        ),
        ("[worker]\nmemory = 5", "did you mean \"5MiB\"?"),
    ] {
        let found = check_text(&load_text(text));
        assert!(found.contains(word), "{text}: {found}");
    }
}

// --- Reports

#[test]
fn checking_reports_mistakes_and_warnings_as_text_and_as_json() {
    let valid = load_text(&VIEW.replace("\"{RowKey}\"", "\"{Email}\""));
    assert!(check_text(&valid).starts_with("warning: "));
    assert!(check_text(&valid).ends_with(
        "the configuration is valid: 1 account, 1 queue, 2 tables, 1 view, 0 archives, 1 warning"
    ));
    assert!(check_text(&valid).contains("use at most 128MiB of memory in total (worker.memory)\n"));
    assert_eq!(check_json(&valid)["memory_bytes"], 128 << 20);
    assert!(check_text(&valid).contains(
        "an idle worker polls each queue every 1500ms: about $0.79 a month (worker.poll)\n"
    ));
    assert_eq!(check_json(&valid)["valid"], true);
    assert_eq!(check_json(&valid)["warnings"][0]["key"], "views.v.row_key");
    let broken = load_text("[worker]\nlease = 5\nx = 1");
    assert!(
        check_text(&broken).contains("error: ")
            && check_text(&broken).ends_with("the configuration has 2 mistakes")
    );
    assert_eq!(check_json(&broken)["errors"][0]["line"], 2);
    assert_eq!(check_json(&broken)["errors"][1]["key"], "worker.x");
}

#[test]
fn config_show_prints_effective_values_and_their_origins() {
    let loaded = load_text("[worker]\nlease = \"90s\"").unwrap();
    let text = show_text(&loaded);
    assert!(
        text.lines()
            .any(|line| line.starts_with("worker.lease = \"90s\" ")
                && line.ends_with("default.toml:2")),
        "{text}"
    );
    assert!(
        text.lines().any(
            |line| line.starts_with("queues[0].name = \"evenkeel-jobs\" ")
                && line.contains("# built-in default.toml:")
        ),
        "{text}"
    );
    let json = show_json(&loaded);
    let lease = json["values"]
        .as_array()
        .unwrap()
        .iter()
        .find(|value| value["key"] == "worker.lease")
        .unwrap();
    assert_eq!(lease["layer"], "file");
    let azurite = load(&Request {
        profile: Some("azurite".to_owned()),
        ..without_folder()
    })
    .unwrap();
    let text = show_text(&azurite);
    assert!(
        text.contains("UseDevelopmentStorage=true") && !text.contains("data/evenkeel.db"),
        "{text}"
    );
}

// --- Arbitrary text

fn tokens() -> impl Strategy<Value = String> {
    let token = prop_oneof![
        Just("[views.v]"),
        Just("[[queues]]"),
        Just("[accounts.main]"),
        Just("[worker]"),
        Just("kind = "),
        Just("name = "),
        Just("lease = "),
        Just("\"secondary_index\""),
        Just("\"{RowKey}\""),
        Just("\"60s\""),
        Just("row_key = "),
        Just("to = {"),
        Just("}"),
        Just("[1, 2]"),
        Just("a.b.c = "),
        Just("5"),
        Just("1e999"),
        Just("-0x1"),
        Just("1979-05-27"),
        Just("\n"),
        Just("\n"),
        Just("'"),
        Just("\"\"\""),
        Just("é"),
        Just("select = "),
        Just("retry_delay = "),
        Just("# "),
        Just("\u{0}"),
        Just("select.\"a[0]\" = "),
    ];
    proptest::collection::vec(token, 0..16).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_files_variables_and_flags_never_panic(text in prop_oneof![any::<String>(), tokens()], catalog in tokens(), name in "[A-Z0-9_.é]{0,20}", value in any::<String>(), flag in "[a-z0-9.\\[\\]=_-]{0,24}") {
        let folder = folder(&[("default.toml", &text), ("catalog/c.toml", &catalog)]);
        let environment = [(format!("EVENKEEL__{name}"), value)].into_iter().collect();
        let request = Request { folder: Folder::Named(folder.path().to_owned()), environment, overrides: vec![flag], ..Request::default() };
        let result = load(&request);
        let _ = (check_text(&result), check_json(&result));
        if let Ok(loaded) = &result {
            let _ = (show_text(loaded), show_json(loaded));
        }
    }
}
