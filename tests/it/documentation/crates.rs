//! Checks the pages about the code against the code: crates and their dependencies, names in the glossary, and files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const ARCHITECTURE: &str = include_str!("../../../docs/internals/architecture.md");

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The workspace crates in a manifest's dependencies, without their common prefix.
fn named(manifest: &Path) -> BTreeSet<String> {
    let manifest: toml::Table = std::fs::read_to_string(manifest).unwrap().parse().unwrap();
    let dependencies = manifest["dependencies"].as_table().unwrap();
    dependencies
        .keys()
        .filter_map(|name| name.strip_prefix("evenkeel-"))
        .map(str::to_owned)
        .collect()
}

fn crates() -> BTreeSet<String> {
    std::fs::read_dir(root().join("crates"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

fn section<'t>(page: &'t str, heading: &str) -> &'t str {
    let begin = format!("\n## {heading}\n");
    let rest = page.split(&begin).nth(1).unwrap();
    rest.split("\n## ").next().unwrap()
}

fn rows(section: &str) -> impl Iterator<Item = Vec<String>> {
    let cells = |line: &str| {
        let line = line.replace("\\|", "\u{a6}");
        let line = line.strip_prefix("| ")?.strip_suffix(" |")?;
        Some(line.split(" | ").map(str::to_owned).collect())
    };
    section.lines().filter_map(cells).skip(2)
}

#[test]
fn the_table_of_crates_says_what_the_manifests_say() {
    let mut stated = BTreeMap::new();
    for row in rows(section(ARCHITECTURE, "Crates")) {
        let [name, _, may] = &row[..] else {
            panic!("{row:?}")
        };
        let may = may.replace("(feature `testing`)", "");
        let may: BTreeSet<String> = code(&may).into_iter().map(str::to_owned).collect();
        stated.insert(code(name)[0].to_owned(), may);
    }
    let but = stated.remove("src/").unwrap();
    let program: BTreeSet<String> = crates().difference(&but).cloned().collect();
    assert_eq!(named(&root().join("Cargo.toml")), program);
    let manifests: BTreeMap<String, BTreeSet<String>> = crates()
        .into_iter()
        .map(|name| {
            let named = named(&root().join("crates").join(&name).join("Cargo.toml"));
            (name, named)
        })
        .collect();
    assert_eq!(stated, manifests);
}

fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text.push_str(&sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
    text
}

#[test]
fn each_name_of_the_glossary_is_in_its_crate() {
    let words = |name: String| -> BTreeSet<String> {
        sources(&root().join("crates").join(name).join("src"))
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .map(str::to_owned)
            .collect()
    };
    let words: BTreeMap<String, BTreeSet<String>> = crates()
        .into_iter()
        .map(|name| (name.clone(), words(name)))
        .collect();
    let mut names = 0;
    for row in rows(section(ARCHITECTURE, "Glossary")) {
        for name in code(&row[2]) {
            let mut path = name.split("::");
            let Some(known) = path.next().and_then(|first| words.get(first)) else {
                assert!(
                    !name.contains("::"),
                    "{name} does not begin with the name of a crate"
                );
                continue;
            };
            for part in path {
                assert!(known.contains(part), "{name}: {part} does not exist");
                names += 1;
            }
        }
    }
    assert!(names > 100, "found only {names} names");
}

#[test]
fn each_file_that_a_page_about_the_code_names_is_there() {
    const FOLDERS: [&str; 8] = [
        "config/",
        "crates/",
        "deploy/",
        "docs/",
        "examples/",
        "scripts/",
        "src/",
        "tests/",
    ];
    let is_about_code = |path: &Path| {
        path.starts_with(root().join("docs/internals"))
            || path.ends_with("docs/sinks.md")
            || path.ends_with("CONTRIBUTING.md")
    };
    let mut files = 0;
    for (path, page) in super::pages().unwrap() {
        if !is_about_code(&path) {
            continue;
        }
        for name in code(&page) {
            let is_path = FOLDERS.iter().any(|folder| name.starts_with(folder));
            if !is_path || name.contains([' ', '*', '<']) {
                continue;
            }
            // NAME is a placeholder for a new file. Its folder must exist.
            let known = name.split("NAME").next().unwrap();
            let known = if known == name {
                known
            } else {
                known.rsplit_once('/').unwrap().0
            };
            assert!(
                root().join(known).exists(),
                "{}: {name} does not exist",
                path.display()
            );
            files += 1;
        }
    }
    assert!(files > 150, "found only {files} files");
}

/// A table row of the page names a function as `name` in `path`, or several functions before one path.
#[test]
fn each_function_that_the_page_about_the_engine_names_is_in_its_file() {
    let page = std::fs::read_to_string(root().join("docs/internals/engine.md")).unwrap();
    let mut functions = 0;
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let parts: Vec<&str> = row.split('`').collect();
        let mut names: Vec<&str> = Vec::new();
        for (at, part) in parts.iter().enumerate().filter(|(at, _)| at % 2 == 1) {
            let is_path = Path::new(part).extension().is_some_and(|it| it == "rs");
            if !is_path {
                names.push(part);
                continue;
            }
            if parts[at - 1].ends_with(" in ") {
                let source = std::fs::read_to_string(root().join(part)).unwrap();
                for name in &names {
                    let is_there = ["(", "<"]
                        .iter()
                        .any(|next| source.contains(&format!("fn {name}{next}")));
                    assert!(is_there, "{part} has no function {name}");
                    functions += 1;
                }
            }
            names.clear();
        }
    }
    assert!(functions > 30, "only {functions} functions were found");
}
