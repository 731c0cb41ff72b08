//! How commands end: exit codes, messages, closed pipes, and secrets that are not printed.

use std::io::Read as _;
use std::process::Stdio;

use crate::cli::place::{Place, json_lines, says, stderr, stdout};

#[test]
fn mistakes_of_the_command_line_are_2() {
    let place = Place::new();
    for args in [
        &["fly"][..],
        &["get", "Employees"],
        &["get", "Employees", "a/b", "c"],
        &["get", "E", "a", "b"],
        &["run", "--rechecks"],
        &["run", "--until-idle=soon"],
        &["plan", "Nowhere", "a", "b"],
        &[
            "wait",
            "Employees",
            "a",
            "b",
            "--etag",
            "W/datetime2026-11-27",
        ],
        &["get", "nowhere:Employees", "a", "b"],
    ] {
        place.run(args).code(2);
    }
    place.run(&["--help"]).success();
    place.run(&["--version"]).success();
}

#[test]
fn mistakes_of_the_configuration_are_2_and_told_all_at_once() {
    let place = Place::new();
    place.add("[worker2]\nlease = 5\n\n[views.bad]\nkind = \"secondary_index\"\nsource = \"Employees\"\ntable = \"X\"\npartition_key = \"{\"\nrow_key = \"r\"");
    let ended = place.run(&["config", "check"]).code(2);
    says(&stdout(&ended), &["worker2", "views.bad", "default.toml:"]);
    let checked = &json_lines(&place.run(&["--json", "config", "check"]).code(2))[0];
    assert!(
        checked["valid"] == false && checked["errors"].as_array().unwrap().len() >= 3,
        "{checked}"
    );
    says(
        &stderr(&place.run(&["run", "--until-idle", "--no-http"]).code(2)),
        &["worker2", "views.bad"],
    );
    assert!(!place.store().exists(), "no program may be started");
}

#[test]
fn a_valid_configuration_is_0_and_shows_where_each_value_came_from() {
    let place = Place::new();
    place.run(&["config", "check"]).success();
    let shown = stdout(
        &place
            .run(&["--set", "worker.lease=90s", "config", "show"])
            .success(),
    );
    says(
        &shown,
        &[
            "worker.lease = \"90s\"",
            "# flag worker.lease",
            "# built-in default.toml",
        ],
    );
}

#[test]
fn a_store_that_cannot_be_reached_is_4_and_says_what_to_look_at() {
    let place = Place::unreachable();
    for args in [
        &["get", "Employees", "a", "b"][..],
        &["migrate", "status"],
        &["poison", "list"],
    ] {
        let ended = place.run(args).code(4);
        says(&stderr(&ended), &["error: ", "hint: ", "[accounts.main]"]);
    }
}

#[test]
fn a_file_that_is_no_store_is_4() {
    let place = Place::new();
    std::fs::write(
        place.store(),
        "this is no database, and long enough to be looked at as one",
    )
    .unwrap();
    let said = stderr(&place.run(&["get", "Employees", "a", "b"]).code(4));
    assert!(
        said.contains("[accounts.main]") && said.matches("not a database").count() == 1,
        "{said}"
    );
}

#[test]
fn a_log_level_that_is_none_is_2_and_told_once() {
    let place = Place::new();
    for (variable, text, problem) in [
        ("EVENKEEL_LOG", "verbose", "is not a log level"),
        ("RUST_LOG", "mine=loud", "error parsing"),
    ] {
        let mut command = place.command(&["config", "check"]);
        command.env(variable, text);
        let said = stderr(&assert_cmd::Command::from_std(command).assert().code(2));
        assert!(
            said.contains(variable) && said.matches(problem).count() == 1,
            "{said}"
        );
    }
}

#[test]
fn a_table_that_is_not_there_yet_is_1_and_says_how_to_create_it() {
    let place = Place::new();
    // A store that does not exist is not reported as a missing table, and a read does not create it.
    place.by_hand(async |_| ());
    says(
        &stderr(&place.run(&["get", "Employees", "a", "b"]).code(1)),
        &["hint: ", "evenkeel migrate up"],
    );
}

#[test]
fn a_misspelt_table_is_2_and_the_one_meant_is_named_but_a_table_of_others_is_read() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let said = |table: &str, code: i32| stderr(&place.run(&["get", table, "a", "b"]).code(code));
    assert_eq!(
        said("Employes", 2).trim(),
        "error: there is no table Employes; did you mean Employees?"
    );
    says(
        &said("Zzz", 2),
        &["there is no table Zzz; the catalog has Employees, EmployeesByEmail, FormerEmployees"],
    );
    let table = evenkeel_model::TableName::new("Zzz").unwrap();
    place.by_hand(async |store| store.tables.create_table(&table).await.unwrap());
    says(&said("Zzz", 1), &["there is no entity Zzz(\"a\", \"b\")"]);
}

#[test]
fn secrets_are_never_printed() {
    let place = Place::unreachable();
    for args in [
        &["-vv", "get", "Employees", "a", "b"][..],
        &["config", "show"],
        &["--json", "config", "show"],
        &["config", "check"],
    ] {
        let ended = place.run(args);
        let said = format!("{}{}", stdout(&ended), stderr(&ended));
        assert!(!said.contains("c2VjcmV0"), "{said}");
    }
}

#[test]
fn a_reader_that_has_read_enough_is_no_error() {
    let place = Place::new();
    for args in [&["schema"][..], &["completions", "bash"], &["docs", "cli"]] {
        let mut child = place
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let mut said = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut said)
            .unwrap();
        assert_eq!(
            (child.wait().unwrap().code(), said.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}

#[test]
fn a_reader_that_has_gone_away_fails_what_changes_or_judges_something() {
    let place = Place::new();
    place.run(&["migrate", "up"]).success();
    let job = r#"{"op":"sync","table":"Employees","pk":"Sales","rk":"7"}"#;
    for (args, code) in [
        (&["audit"][..], 1),
        (&["backfill"], 1),
        (&["submit", job], 1),
        (&["config", "check"], 1),
        (&["doctor"], 1),
        (&["wait", "Employees", "Sales", "7", "--timeout", "0s"], 1),
        (&["migrate", "status"], 0),
        (&["config", "show"], 0),
        (&["plan", "Employees", "Sales", "7"], 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = place
            .command(args)
            .stdout(writer)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
            .wait_with_output()
            .unwrap();
        let said = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(
            (
                ended.status.code(),
                said.contains("error: the reader closed the output")
            ),
            (Some(code), code == 1),
            "{args:?}: {said}"
        );
    }
    assert_eq!(place.work()["done"], 1, "the job must be sent");
}

#[test]
fn output_that_is_no_terminal_has_no_colour() {
    let place = Place::new();
    for args in [
        &["migrate", "status"][..],
        &["--help"],
        &["get", "Employees", "a", "b"],
    ] {
        let ended = place.run(args);
        assert!(
            !format!("{}{}", stdout(&ended), stderr(&ended)).contains('\u{1b}'),
            "{args:?}"
        );
    }
}
