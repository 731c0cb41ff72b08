//! The demonstration, as in a fresh clone.

use serde_json::Value;

use crate::place::{PROGRAM, says};

fn demo(args: &[&str]) -> std::process::Output {
    let folder = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(PROGRAM)
        .env_clear()
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .args(args)
        .output()
        .unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it leaves nothing behind");
    output
}

#[test]
fn it_runs_without_a_configuration_and_everything_it_checks_holds() {
    let output = demo(&["demo", "--once"]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    says(&told, &["Six people are hired", "names the owner", "undecodable", "everything is consistent"]);
    assert!(!told.contains("WRONG"));
}

#[test]
fn machines_get_a_line_per_check() {
    let output = demo(&["--json", "demo", "--once"]);
    let lines: Vec<Value> = String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (last, checks) = lines.split_last().unwrap();
    assert!(checks.len() > 20 && checks.iter().all(|check| check["holds"] == true), "{lines:?}");
    assert_eq!((last["checks"].as_u64(), last["consistent"].as_bool()), (Some(checks.len() as u64), Some(true)));
}
