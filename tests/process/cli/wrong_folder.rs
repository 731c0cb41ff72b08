//! Commands in folders without a configuration, and accounts without valid credentials.

use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cli::place::{PROGRAM, Place, json_lines, says, stderr, stdout};

const NEEDING: [&[&str]; 12] = [
    &["get", "Employees", "a", "b"],
    &["lookup", "by_email", "Email=b"],
    &["plan", "Employees", "a", "b"],
    &["audit"],
    &["audit", "--submit"],
    &["poison", "list"],
    &["poison", "requeue", "--all"],
    &["poison", "discard", "--all", "--yes"],
    &[
        "submit",
        r#"{"op":"sync","table":"Employees","pk":"a","rk":"b"}"#,
    ],
    &["migrate", "status"],
    &["backfill"],
    &["backfill", "--submit"],
];

#[test]
fn commands_other_than_run_demo_and_migrate_up_say_in_a_wrong_folder_that_it_is_one_and_create_nothing()
 {
    let folder = tempfile::tempdir().unwrap();
    for args in NEEDING {
        let mut command = Command::new(PROGRAM);
        command
            .env_clear()
            .current_dir(folder.path())
            .args(args)
            .stdin(Stdio::null());
        let ended = assert_cmd::Command::from_std(command).assert().code(2);
        says(
            &stderr(&ended),
            &[
                "neither the configuration folder",
                "nothing was created",
                "--config",
            ],
        );
        assert_eq!(stdout(&ended), "");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn creating_a_store_reports_the_configuration_used() {
    let folder = tempfile::tempdir().unwrap();
    let said = |args: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command
            .env_clear()
            .current_dir(folder.path())
            .args(args)
            .stdin(Stdio::null());
        stderr(&assert_cmd::Command::from_std(command).assert().success())
    };
    says(
        &said(&["migrate", "up"]),
        &[
            "There is no configuration folder ",
            "config. Using the built-in configuration.",
        ],
    );
    let run = ["run", "--until-idle=0.1", "--no-http"];
    says(
        &said(&run),
        &[
            "\"configuration loaded\"",
            "the built-in configuration: there is no folder ",
        ],
    );
    let place = Place::new();
    let log = stderr(&place.run(&run).success());
    says(
        &log,
        &[
            "\"configuration loaded\"",
            &format!("the folder {}", place.folder().display()),
        ],
    );
    assert!(!stderr(&place.run(&["migrate", "up"]).success()).contains("configuration folder"));
}

#[test]
fn a_missing_store_is_reported_and_not_created() {
    let place = Place::new();
    for args in NEEDING {
        let said = stderr(&place.run(args).code(2));
        says(
            &said,
            &[
                "[accounts.main] does not exist; nothing was created",
                "`evenkeel migrate up` creates",
                "a starting worker",
            ],
        );
        assert!(!place.store().exists(), "{args:?}");
    }
    place.run(&["migrate", "up"]).success();
    says(
        &stderr(&place.run(&["poison", "list"]).success()),
        &["No poisoned messages."],
    );
}

#[test]
fn an_account_that_nothing_opens_is_refused_before_anything_is_asked() {
    let place = Place::new();
    for (account, problem) in [
        (
            "connection_string_env = \"SECRET\"\n",
            "AccountKey or SharedAccessSignature is missing",
        ),
        (
            "auth = \"key\"\nname = \"contoso\"\nkey_env = \"SECRET\"\n",
            "the account key is not Base64",
        ),
        (
            "auth = \"sas\"\nname = \"contoso\"\nsas_env = \"SECRET\"\n",
            "not a query string with a sig= in it",
        ),
    ] {
        place.configure(&format!("[accounts.main]\nkind = \"azure\"\n{account}"));
        for args in [
            &["config", "check"][..],
            &["run", "--no-http"],
            &["migrate", "status"],
        ] {
            let mut command = place.command(args);
            command.env("SECRET", "AccountName=s3cret");
            let ended = assert_cmd::Command::from_std(command).assert().code(2);
            let said = format!("{}{}", stdout(&ended), stderr(&ended));
            says(&said, &["default.toml:", "accounts.main.", problem]);
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}

#[test]
fn a_catalog_file_that_is_not_read_is_named_by_check_and_by_run() {
    let place = Place::new();
    std::fs::create_dir(place.folder().join("catalogue")).unwrap();
    std::fs::write(
        place.folder().join("catalogue/guests.toml"),
        "[tables.Guests]\n",
    )
    .unwrap();
    says(
        &stdout(&place.run(&["config", "check"]).success()),
        &[
            "warning: ",
            "catalogue/guests.toml: is not read",
            "catalog/guests.toml",
            "warnings",
        ],
    );
    let checked = &json_lines(&place.run(&["--json", "config", "check"]).success())[0];
    assert!(
        checked["warnings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|warning| warning["file"]
                .as_str()
                .unwrap()
                .ends_with("catalogue/guests.toml")),
        "{checked}"
    );
    let log = stderr(
        &place
            .run(&["run", "--until-idle=0.1", "--no-http"])
            .success(),
    );
    let lines: Vec<Value> = log
        .lines()
        .map(|line| {
            serde_json::from_str(line).unwrap_or_else(|_| panic!("no line of a log: {line}"))
        })
        .collect();
    let warned = lines
        .iter()
        .filter(|line| line["level"] == "WARN")
        .map(|line| line["message"].to_string());
    assert!(
        warned
            .collect::<String>()
            .contains("catalogue/guests.toml: is not read"),
        "{log}"
    );
}

#[test]
fn a_restore_from_a_log_is_refused_before_it_is_sent() {
    let place = Place::new();
    place.add("[archives.the_log]\nsource = \"Employees\"\nto = { kind = \"append_blob\", container = \"logs\" }\n");
    place.run(&["migrate", "up"]).success();
    let restore = r#"{"op":"restore","archive":"the_log","pk":"Sales","rk":"7"}"#;
    says(
        &stderr(&place.run(&["submit", restore]).code(1)),
        &[
            "cannot restore from log archive the_log",
            "`evenkeel logs the_log`",
        ],
    );
    assert_eq!(place.work()["poisoned"], 0);
}
