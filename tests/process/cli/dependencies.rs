//! The script that checks dependencies, with the advisory database and without access to it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use crate::cli::place::says;

/// Runs the script with a fake `cargo-deny`. `fetched` and `clean` are the results of fetching the advisories, and of
/// the check.
fn check(fetched: bool, clean: bool, args: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("cargo-deny");
    let (fetched, clean) = (i32::from(!fetched), i32::from(!clean));
    let answers = format!(
        "#!/bin/sh\ncase \"$*\" in 'fetch db') exit {fetched};; *' advisories') echo looked; exit {clean};; esac\n"
    );
    std::fs::write(&tool, answers).unwrap();
    std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        folder.path().display(),
        std::env::var("PATH").unwrap()
    );
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new(root.join("scripts/check-dependencies"))
        .args(args)
        .env("PATH", path)
        .current_dir(root)
        .output()
        .unwrap()
}

#[test]
fn advisories_are_checked_and_an_unreachable_database_is_said_loudly() {
    let unreachable = check(false, true, &[]);
    assert!(unreachable.status.success());
    says(
        &String::from_utf8(unreachable.stderr).unwrap(),
        &["ADVISORIES WERE NOT CHECKED", "cannot be reached"],
    );
    assert!(
        !check(false, true, &["--advisories"]).status.success(),
        "with --advisories an unreachable database must fail"
    );

    let clean = check(true, true, &[]);
    assert!(clean.status.success());
    says(&String::from_utf8(clean.stdout).unwrap(), &["looked"]);
    assert!(
        !String::from_utf8(clean.stderr)
            .unwrap()
            .contains("NOT CHECKED")
    );
    assert!(
        !check(true, false, &[]).status.success(),
        "an advisory that is not accepted must fail"
    );
}
