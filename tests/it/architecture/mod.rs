//! Holds the direction of dependencies that `docs/ARCHITECTURE.md` describes, by reading the sources. Between crates Cargo holds it;
//! here it is the rooms of a crate.
//!
//! Code inside `#[cfg(test)]` is left out: a test may reach for anything.

#![expect(
    clippy::unwrap_used,
    reason = "a source file that cannot be read is a failed test"
)]

mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use source::Source;

/// The crates whose rooms are held apart, and those that are one room. A new crate needs a line here.
const CRATES: [(&str, &str); 6] = [
    ("src", ""),
    ("crates/model/src", ""),
    ("crates/azure/src", "azure"),
    ("crates/client/src", "client"),
    ("crates/config/src", "config"),
    ("crates/simulation/src", "simulation"),
];

/// Crates of tests alone, which `certify` runs.
const TESTS: [&str; 1] = ["crates/conformance"];

/// Every room and the rooms of its crate that it may name. A new folder or file at the top of a crate needs a line here.
const ROOMS: [(&str, &[&str]); 21] = [
    ("planted", &[]),
    ("model", &[]),
    ("settings", &["model"]),
    ("catalog", &["model", "settings"]),
    ("ports", &["model"]),
    ("patterns", &["model", "catalog"]),
    ("shared", &["model", "catalog"]),
    ("wide", &["model", "ports"]),
    ("sealing", &["model", "catalog", "ports"]),
    ("combine", &[]),
    ("telemetry", &["model", "config"]),
    (
        "reconcile",
        &[
            "planted", "combine", "model", "catalog", "ports", "patterns", "shared", "wide",
            "sealing",
        ],
    ),
    (
        "migrations",
        &[
            "model", "catalog", "settings", "ports", "patterns", "shared", "wide",
        ],
    ),
    ("retention", &["model", "catalog", "settings", "ports"]),
    (
        "worker",
        &[
            "planted",
            "model",
            "settings",
            "ports",
            "reconcile",
            "telemetry",
        ],
    ),
    (
        "adapters",
        &[
            "planted",
            "combine",
            "model",
            "settings",
            "ports",
            "telemetry",
        ],
    ),
    (
        "rollout",
        &[
            "planted",
            "model",
            "settings",
            "catalog",
            "ports",
            "reconcile",
            "migrations",
            "worker",
            "telemetry",
        ],
    ),
    (
        "ops",
        &[
            "combine",
            "model",
            "settings",
            "catalog",
            "ports",
            "patterns",
            "client",
            "reconcile",
            "migrations",
            "worker",
            "telemetry",
        ],
    ),
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
            "sealing",
            "client",
            "reconcile",
            "migrations",
            "retention",
            "worker",
            "telemetry",
            "config",
            "ops",
        ],
    ),
    ("app", &EVERYTHING),
    ("main", &EVERYTHING),
];

const EVERYTHING: [&str; 20] = [
    "model",
    "telemetry",
    "settings",
    "catalog",
    "ports",
    "patterns",
    "shared",
    "wide",
    "sealing",
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
const IMPURE: [&str; 10] = [
    "tokio",
    "futures",
    "reqwest",
    "axum",
    "rusqlite",
    "tokio_postgres",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
];

/// Libraries and the rooms that keep them to themselves, so that these alone change when they do. A name that ends with an
/// underscore is a beginning.
const KEPT: [(&str, &[&str]); 4] = [
    ("rusqlite", &["adapters/embedded", "adapters/sql"]),
    ("tokio_postgres", &["adapters/sql"]),
    ("axum", &["ops"]),
    ("clap", &["cli"]),
];

#[test]
fn every_room_names_only_the_rooms_below_it() {
    let rooms: BTreeMap<_, _> = ROOMS.into_iter().collect();
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        let room = room(&path);
        if room == "lib" || CRATES.iter().any(|(_, name)| *name == room) {
            continue;
        }
        let Some(below) = rooms.get(room.as_str()) else {
            wrong.push(format!(
                "{}: the room {room:?} is not in the table of this test",
                path.display()
            ));
            continue;
        };
        for (line, named) in source.rooms_named(&module_path(&path)) {
            if named != room && !below.contains(&named.as_str()) {
                wrong.push(format!(
                    "{}:{line}: {room} may not name {named}",
                    path.display()
                ));
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
            wrong.push(format!("{}:{line}: {named}", path.display()));
        }
        for (line, word) in source.words(&["async", "await"]) {
            wrong.push(format!("{}:{line}: {word}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_library_stays_in_its_room() {
    let mut wrong = Vec::new();
    for (path, source) in sources() {
        for (library, homes) in KEPT {
            // What composes the program, and its entry, may hand a library's values through.
            let at_home = homes
                .iter()
                .any(|home| path.starts_with(home) || path.starts_with(format!("{home}.rs")));
            if at_home
                || (library == "clap"
                    && matches!(room(&path).as_str(), "app" | "main" | "simulation"))
            {
                continue;
            }
            for (line, named) in source.paths_beginning_with(&[library]) {
                wrong.push(format!(
                    "{}:{line}: {named} belongs into {}",
                    path.display(),
                    homes.join(" or ")
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_crate_is_held() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let known: Vec<&str> = CRATES.iter().map(|(folder, _)| *folder).collect();
    for entry in fs::read_dir(root.join("crates")).unwrap() {
        let name = format!("crates/{}", entry.unwrap().file_name().to_string_lossy());
        assert!(
            TESTS.contains(&name.as_str()) || known.contains(&format!("{name}/src").as_str()),
            "{name} is not in the tables of this test"
        );
    }
}

/// The files of the program, by their path below the crate's `src`, after the name of a crate that is one room. Without those that are
/// only compiled for tests.
fn sources() -> impl Iterator<Item = (PathBuf, Source)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = BTreeMap::new();
    for (folder, name) in CRATES {
        let folder = root.join(folder);
        let mut files = Vec::new();
        collect(&folder, &mut files);
        assert!(
            files.len() > 10,
            "only {} files found under {}",
            files.len(),
            folder.display()
        );
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            sources.insert(
                Path::new(name).join(file.strip_prefix(&folder).unwrap()),
                Source::read(&text),
            );
        }
    }
    let tests: Vec<PathBuf> = sources
        .iter()
        .flat_map(|(path, source)| {
            source
                .test_modules()
                .iter()
                .map(|name| folder(path).join(name))
                .collect::<Vec<_>>()
        })
        .collect();
    sources.into_iter().filter(move |(path, _)| {
        !tests
            .iter()
            .any(|test| path.starts_with(test) || *path == test.with_extension("rs"))
    })
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
    Path::new(first)
        .with_extension("")
        .to_string_lossy()
        .into_owned()
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
    folder(path)
        .iter()
        .map(|part| part.to_string_lossy().into_owned())
        .collect()
}
