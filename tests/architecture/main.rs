//! Holds the direction of dependencies that `docs/ARCHITECTURE.md` describes, by reading `src/`.
//!
//! Code inside `#[cfg(test)]` is left out: a test may reach for anything.

#![expect(clippy::unwrap_used, reason = "a source file that cannot be read is a failed test")]

mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// Every room of `src/` and the rooms that it may name. A new folder or file in `src/` needs a line here.
const ROOMS: [(&str, &[&str]); 24] = [
    ("planted", &[]),
    ("combine", &[]),
    ("model", &[]),
    ("telemetry", &["model"]),
    ("settings", &["model"]),
    ("catalog", &["model"]),
    ("ports", &["model"]),
    ("patterns", &["model", "catalog"]),
    ("shared", &["model", "catalog"]),
    ("wide", &["model", "ports"]),
    ("client", &["model", "settings", "catalog", "ports", "patterns", "shared", "wide"]),
    ("reconcile", &["planted", "combine", "model", "catalog", "ports", "patterns", "shared", "wide"]),
    ("migrations", &["model", "catalog", "settings", "ports", "shared"]),
    ("retention", &["model", "catalog", "settings", "ports"]),
    ("worker", &["planted", "model", "settings", "ports", "reconcile", "telemetry"]),
    ("adapters", &["planted", "combine", "model", "settings", "ports", "telemetry"]),
    ("rollout", &["planted", "model", "settings", "catalog", "ports", "reconcile", "migrations", "worker", "telemetry"]),
    ("config", &["model", "telemetry", "settings", "catalog", "patterns"]),
    ("ops", &["model", "settings", "catalog", "ports", "patterns", "client", "reconcile", "migrations", "worker", "telemetry"]),
    (
        "cli",
        &[
            "model",
            "settings",
            "catalog",
            "ports",
            "patterns",
            "shared",
            "wide",
            "client",
            "reconcile",
            "migrations",
            "worker",
            "telemetry",
            "config",
            "ops",
        ],
    ),
    ("app", &EVERYTHING),
    ("main", &EVERYTHING),
    ("simulation", &["model", "settings", "catalog", "ports", "reconcile", "migrations", "retention", "worker", "rollout", "adapters"]),
    ("bin", &["ports", "adapters", "simulation"]),
];

const EVERYTHING: [&str; 19] = [
    "model",
    "telemetry",
    "settings",
    "catalog",
    "ports",
    "patterns",
    "shared",
    "wide",
    "client",
    "reconcile",
    "migrations",
    "retention",
    "worker",
    "rollout",
    "adapters",
    "config",
    "ops",
    "cli",
    "app",
];

/// Rooms that only turn values into values.
const PURE: [&str; 4] = ["model", "catalog", "patterns", "shared"];

/// What a pure room never names: anything that waits, or reaches outside the process.
const IMPURE: [&str; 9] = ["tokio", "futures", "reqwest", "axum", "rusqlite", "std::fs", "std::net", "std::env", "std::process"];

/// Libraries that one room keeps to itself, so that it alone changes when they do. A name that ends with an
/// underscore is a beginning.
const KEPT: [(&str, &str); 4] = [("azure_", "adapters/azure"), ("rusqlite", "adapters/embedded"), ("axum", "ops"), ("clap", "cli")];

/// Longest file, in lines without its tests.
const LINES: usize = 550;

#[test]
fn every_room_names_only_the_rooms_below_it() {
    let rooms: BTreeMap<_, _> = ROOMS.into_iter().collect();
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let room = room(&path);
        if room == "lib" {
            continue;
        }
        let Some(below) = rooms.get(room.as_str()) else {
            wrong.push(format!("{}: the room {room:?} is not in the table of this test", path.display()));
            continue;
        };
        for (line, named) in source.rooms_named(&module_path(&path)) {
            if named != room && !below.contains(&named.as_str()) {
                wrong.push(format!("src/{}:{line}: {room} may not name {named}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_decides_neither_waits_nor_reaches_outside() {
    let mut wrong = Vec::new();
    for (path, source) in sources().filter(|(path, _)| PURE.contains(&room(path).as_str())) {
        for (line, named) in source.paths_beginning_with(&IMPURE) {
            wrong.push(format!("src/{}:{line}: {named}", path.display()));
        }
        for (line, word) in source.words(&["async", "await"]) {
            wrong.push(format!("src/{}:{line}: {word}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_library_stays_in_its_room() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        for (library, home) in KEPT {
            // What composes the program, and its entry, may hand a library's values through.
            let at_home = path.starts_with(home) || path.starts_with(format!("{home}.rs"));
            if at_home || (library == "clap" && matches!(room(&path).as_str(), "app" | "main" | "bin")) {
                continue;
            }
            for (line, named) in source.paths_beginning_with(&[library]) {
                wrong.push(format!("src/{}:{line}: {named} belongs into {home}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn no_file_outgrows_its_room() {
    let long: Vec<String> = sources()
        .map(|(path, source)| (path, source.lines_without_tests()))
        .filter(|(_, lines)| *lines > LINES)
        .map(|(path, lines)| {
            format!("src/{}: {lines} lines without tests, more than {LINES}: what second thing lives in it?", path.display())
        })
        .collect();
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// The files under `src/`, by their path below it, without those that are only compiled for tests.
fn sources() -> impl Iterator<Item = (PathBuf, Source)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    collect(&root, &mut files);
    assert!(files.len() > 20, "only {} files found under {}", files.len(), root.display());
    let sources: BTreeMap<PathBuf, Source> = files
        .into_iter()
        .map(|file| {
            let text = fs::read_to_string(&file).unwrap();
            (file.strip_prefix(&root).unwrap().to_owned(), Source::read(&text))
        })
        .collect();
    let tests: Vec<PathBuf> = sources
        .iter()
        .flat_map(|(path, source)| source.test_modules().iter().map(|name| folder(path).join(name)).collect::<Vec<_>>())
        .collect();
    sources.into_iter().filter(move |(path, _)| !tests.iter().any(|test| path.starts_with(test) || *path == test.with_extension("rs")))
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The room that a file belongs to: the first part of its path.
fn room(path: &Path) -> String {
    let first = path.iter().next().unwrap();
    Path::new(first).with_extension("").to_string_lossy().into_owned()
}

/// Where the children of a module lie: its folder, named as the file unless that is `mod.rs` or the crate's root.
fn folder(path: &Path) -> PathBuf {
    match path.file_name().and_then(|name| name.to_str()) {
        Some("mod.rs" | "lib.rs" | "main.rs") => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    }
}

/// The module that a file is: `["model", "template"]` for `model/template/mod.rs`.
fn module_path(path: &Path) -> Vec<String> {
    folder(path).iter().map(|part| part.to_string_lossy().into_owned()).collect()
}
