//! The demonstration, started as in a fresh clone of the repository.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::cli::place::{PROGRAM, says};

fn demo(args: &[&str]) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(PROGRAM)
        .env_clear()
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .args(args)
        .output()
        .unwrap();
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "the demonstration must leave nothing behind"
    );
    output
}

#[test]
fn it_runs_without_a_configuration_and_everything_it_checks_holds() {
    let output = demo(&["demo", "--once"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{told}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    says(
        &told,
        &[
            "Six people are hired",
            "names the owner",
            "undecodable",
            "everything is consistent",
        ],
    );
    assert!(!told.contains("WRONG"));
}

#[test]
fn machines_get_a_line_per_check() {
    let output = demo(&["--json", "demo", "--once"]);
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, checks) = lines.split_last().unwrap();
    assert!(
        checks.len() > 20 && checks.iter().all(|check| check["holds"] == true),
        "{lines:?}"
    );
    assert_eq!(
        (last["checks"].as_u64(), last["consistent"].as_bool()),
        (Some(checks.len() as u64), Some(true))
    );
}

#[test]
fn an_example_of_the_guide_is_its_catalog_its_commands_and_their_output() {
    let told = demo(&["demo", "--guide", "employees-by-email"]);
    let out = String::from_utf8(told.stdout).unwrap();
    assert!(
        told.status.success(),
        "{out}\n{}",
        String::from_utf8_lossy(&told.stderr)
    );
    says(
        &out,
        &[
            "Employees by number and by e-mail address",
            "[views.employees_by_email]",
            "$ evenkeel lookup employees_by_email",
            "1 row: point query",
        ],
    );

    let output = demo(&["--json", "demo", "--guide", "logins-by-day"]);
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, commands) = lines.split_last().unwrap();
    assert!(
        commands.iter().all(|command| command["exit_code"] == 0),
        "{lines:?}"
    );
    assert_eq!(
        (last["example"].as_str(), last["steps"].as_u64()),
        (Some("logins-by-day"), Some(commands.len() as u64))
    );
}

#[test]
fn the_examples_of_the_guide_are_listed_and_an_unknown_one_is_a_usage_error() {
    let listed = demo(&["--json", "demo", "--guide"]);
    let lines = String::from_utf8(listed.stdout).unwrap();
    assert!(
        listed.status.success() && lines.lines().count() > 20,
        "{lines}"
    );
    for line in lines.lines() {
        let example: Value = serde_json::from_str(line).unwrap();
        assert!(
            example["example"].is_string()
                && example["title"]
                    .as_str()
                    .is_some_and(|title| !title.is_empty()),
            "{line}"
        );
    }
    says(
        &String::from_utf8(demo(&["demo", "--guide"]).stdout).unwrap(),
        &["EXAMPLE", "employees-by-email"],
    );
    let unknown = demo(&["demo", "--guide", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
    says(
        &String::from_utf8(unknown.stderr).unwrap(),
        &["nothing", "demo --guide"],
    );
}

/// Starts a demonstration with these arguments, and returns its address.
fn listens(args: &[&str], folder: &std::path::Path) -> String {
    let mut child = Command::new(PROGRAM)
        .env_clear()
        .env("TMPDIR", folder)
        .current_dir(folder)
        .args(args)
        .arg("demo")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let found = lines.find_map(|line| {
        Some(
            line.split_once("Serving http://")?
                .1
                .split('/')
                .next()?
                .to_owned(),
        )
    });
    child.kill().unwrap();
    child.wait().unwrap();
    found.unwrap()
}

#[test]
fn the_demonstration_listens_on_the_configured_address() {
    let folder = tempfile::tempdir().unwrap();
    let free = || {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string()
    };
    let (flag, file) = (free(), free());
    assert_eq!(
        listens(&[&format!("--set=http.listen={flag}")], folder.path()),
        flag
    );
    let config = folder.path().join("mine");
    std::fs::create_dir(&config).unwrap();
    std::fs::write(
        config.join("default.toml"),
        format!("[http]\nlisten = {file:?}\n"),
    )
    .unwrap();
    assert_eq!(
        listens(&["--config", config.to_str().unwrap()], folder.path()),
        file
    );
    let stored = demo(&["--set=accounts.main.path=elsewhere.db", "demo", "--once"]);
    assert_eq!(stored.status.code(), Some(2));
    says(
        &String::from_utf8(stored.stderr).unwrap(),
        &["accounts.main.path", "http.* and worker.*"],
    );
}
