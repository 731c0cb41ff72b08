//! The page about security names tests that there are.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../docs/security.md");

/// The functions of the sources, by name.
fn functions() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = ["src", "crates", "tests"].map(|folder| root.join(folder)).into();
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                found.extend(text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()).map(str::to_owned));
            }
        }
    }
    found
}

/// The tests that a text names: in backticks, five words at least, perhaps cut short.
fn named(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '_' | '…');
    quoted.filter(move |name| name.chars().all(is_word) && name.matches('_').count() >= 4)
}

#[test]
fn every_test_that_the_page_about_security_names_is_there() {
    let functions = functions();
    let is_there = |name: &str| match name.strip_suffix('…') {
        Some(start) => functions.iter().any(|function| function.starts_with(start)),
        None => functions.contains(name),
    };
    let missing: Vec<&str> = named(PAGE).filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(named(PAGE).count() > 60);
}

#[test]
fn every_threat_has_a_test() {
    let table = PAGE.split("## Threats").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap();
    let rows: Vec<&str> =
        table.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| threat") && !line.starts_with("| ---")).collect();
    assert!(rows.len() >= 12, "{rows:?}");
    for row in rows {
        assert!(named(row).count() > 0, "{row}");
    }
}

#[test]
fn the_service_leaves_no_memory_behind_and_sees_no_other_process() {
    let unit = include_str!("../../deploy/systemd/evenkeel.service");
    for setting in ["LimitCORE=0", "ProtectProc=invisible", "NoNewPrivileges=yes", "UMask=0077"] {
        assert!(unit.lines().any(|line| line == setting), "{setting}");
    }
}
