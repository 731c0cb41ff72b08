//! Help texts, and the documentation that is generated from them.

use serde_json::Value;

use crate::cli::place::{Place, says, stdout};

#[test]
fn the_help_of_every_command_has_examples_and_exit_codes() {
    let place = Place::new();
    for command in [
        &["run"][..],
        &["demo"],
        &["submit"],
        &["get"],
        &["lookup"],
        &["logs"],
        &["plan"],
        &["audit"],
        &["backfill"],
        &["poison", "list"],
        &["poison", "show"],
        &["poison", "requeue"],
        &["poison", "discard"],
        &["migrate", "status"],
        &["migrate", "up"],
        &["config", "check"],
        &["config", "show"],
        &["schema"],
        &["completions"],
    ] {
        let help = stdout(&place.run(&[command, &["--help"]].concat()).success());
        says(
            &help,
            &["Examples:\n  evenkeel ", "Exit codes: 0 done", "--profile"],
        );
    }
}

#[test]
fn the_command_line_reference_is_the_program_s_own() {
    let written = include_str!("../../../docs/cli.md");
    let generated = stdout(&Place::new().run(&["docs", "cli"]).success());
    let marker = generated.lines().next().unwrap();
    let start = written.find(marker).expect("docs/cli.md has the marker");
    assert_eq!(
        written[start..],
        generated,
        "run scripts/check-generated --write"
    );
}

#[test]
fn the_openapi_document_is_the_program_s_own() {
    let generated: Value =
        serde_json::from_str(&stdout(&Place::new().run(&["docs", "openapi"]).success())).unwrap();
    let written: Value = serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
    assert_eq!(written, generated, "run scripts/check-generated --write");
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        says(
            &stdout(&Place::new().run(&["completions", shell]).success()),
            &["poison", "until-idle"],
        );
    }
}
