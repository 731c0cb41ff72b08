//! Checks that the claims of the page about security name existing tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../docs/security.md");
const CLAIMS: &str = include_str!("../../../docs/security.tests.toml");
const OTHERS: [&str; 2] = [
    include_str!("../../../docs/encryption.md"),
    include_str!("../../../docs/jobs.md"),
];

/// The names of all tests. If a macro runs tests on several stores, the macro call lists one name per line.
fn tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders: Vec<PathBuf> = ["src", "crates", "tests"]
        .map(|folder| root.join(folder))
        .into();
    let mut found = BTreeSet::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("node_modules") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.extend(tests_of(&std::fs::read_to_string(path).unwrap()));
            }
        }
    }
    found
}

fn tests_of(source: &str) -> Vec<String> {
    let (mut is_test, mut found) = (false, Vec::new());
    for line in source.lines().map(str::trim) {
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        if let Some((before, rest)) = line.split_once("fn ")
            && (before.is_empty() || before.ends_with(' '))
        {
            let name = rest.split(['(', '<']).next().unwrap_or_default();
            found.extend(is_test.then(|| name.to_owned()));
            is_test = false;
        } else if is_name(line.trim_end_matches(',')) {
            found.push(line.trim_end_matches(',').to_owned());
        }
    }
    found
}

/// A test name has at least five words.
fn is_name(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && text.matches('_').count() >= 4
}

fn named(text: &str) -> impl Iterator<Item = &str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|quoted| is_name(quoted.trim_end_matches('…')))
}

#[test]
fn every_test_that_a_claim_about_security_names_is_there() {
    let tests = tests();
    // If a test runs on several stores, its name ends with the name of the store.
    let is_there = |name: &str| {
        let cut = name
            .strip_suffix('…')
            .map_or_else(|| format!("{name}_"), str::to_owned);
        tests.contains(name) || tests.iter().any(|test| test.starts_with(&cut))
    };
    let of_claims: Vec<String> = claims().into_values().flatten().collect();
    assert!(of_claims.len() > 100);
    let missing: Vec<String> = OTHERS
        .into_iter()
        .chain([PAGE])
        .flat_map(named)
        .map(str::to_owned)
        .chain(of_claims)
        .filter(|name| !is_there(name))
        .collect();
    assert!(missing.is_empty(), "missing tests: {missing:?}");
    assert!(
        !is_there("a_function_that_is_no_test_at_all") && !is_there("every_test_that_a_claim_ab"),
        "a truncated list must be marked"
    );
}

fn section(name: &str) -> &'static str {
    PAGE.split(&format!("\n## {name}\n"))
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next())
        .unwrap()
}

fn claims() -> BTreeMap<String, Vec<String>> {
    toml::from_str(CLAIMS).unwrap()
}

#[test]
fn every_claim_has_a_test() {
    let lines = section("What holds").lines();
    let shown: BTreeSet<&str> = lines.filter_map(|line| line.strip_prefix("- ")).collect();
    assert!(shown.len() >= 50, "{}", shown.len());
    let claims = claims();
    let tested: BTreeSet<&str> = claims
        .iter()
        .filter(|(_, tests)| !tests.is_empty())
        .map(|(claim, _)| claim.as_str())
        .collect();
    assert_eq!(shown, tested);
    assert!(named(section("Files")).count() > 1);
}

#[test]
fn the_service_leaves_no_memory_behind_and_sees_no_other_process() {
    let unit = include_str!("../../../deploy/systemd/evenkeel.service");
    for setting in [
        "LimitCORE=0",
        "ProtectProc=invisible",
        "NoNewPrivileges=yes",
        "UMask=0077",
    ] {
        assert!(unit.lines().any(|line| line == setting), "{setting}");
    }
}
