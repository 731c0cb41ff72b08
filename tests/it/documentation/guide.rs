//! Checks the pages about Azure's table design guide. `docs/guide.toml` must list every item of the guide and name existing pages, examples and
//! tests. `docs/guide.md` must be generated from that file.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use evenkeel::cli::demo::{GUIDE_EXAMPLES, GuideExample};
use evenkeel_config::{Folder, Request};
use serde::Deserialize;

use crate::documentation::anchor;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Guide {
    document: Vec<Document>,
    example: Vec<Example>,
    item: Vec<Item>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    id: String,
    name: String,
    url: String,
}

/// The request counts of an example are ignored here. `tests/process/end_to_end/guide.rs` checks them.
#[derive(Deserialize)]
struct Example {
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    Whole,
    Partly,
    Missing,
    Advice,
    NotApplicable,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    id: String,
    name: String,
    documents: Vec<String>,
    at: String,
    state: State,
    lacks: Option<String>,
    page: Option<String>,
    example: Option<String>,
    test: Option<String>,
}

const SECTIONS: [(&str, &[&str]); 6] = [
    (
        "Patterns",
        &[
            "P1", "P2", "P3a", "P3b", "P3c", "P3d", "P3e", "P3f", "P3g", "P3h", "P3i", "P3j",
            "P3k", "P4a", "P4b", "P4c", "P4d", "P4e", "P5a", "P5b", "P5c", "P6", "P7", "P8", "P8b",
            "P9", "P9b", "P10", "P11", "P12", "P13", "P14", "P15",
        ],
    ),
    (
        "Queries",
        &["Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q7", "Q8", "Q9", "Q10"],
    ),
    (
        "Keys",
        &["K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9"],
    ),
    ("Modification", &["M1", "M2", "M3", "M4", "M5"]),
    (
        "Relationships, encryption, access",
        &["R1", "R2", "R3", "R4", "R5", "E1", "S1"],
    ),
    ("Retry and stress", &["T1", "T2", "T3", "T4", "T5"]),
];
const QUESTIONS: usize = 47;

impl State {
    const ALL: [Self; 5] = [
        Self::Whole,
        Self::Partly,
        Self::Missing,
        Self::Advice,
        Self::NotApplicable,
    ];

    const fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Partly => "partly",
            Self::Missing => "missing",
            Self::Advice => "advice",
            Self::NotApplicable => "not applicable",
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn guide() -> Guide {
    toml::from_str(include_str!("../../../docs/guide.toml")).unwrap()
}

fn wrong(item: &Item, guide: &Guide) -> Vec<String> {
    let mut wrong = Vec::new();
    let Item {
        id,
        documents,
        at,
        state,
        lacks,
        page,
        example,
        test,
        ..
    } = item;
    let mut expect = |holds: bool, what: String| {
        if !holds {
            wrong.push(format!("{id}: {what}"));
        }
    };
    let complete = match state {
        State::Whole => page.is_some() && (example.is_some() || test.is_some()) && lacks.is_none(),
        State::Advice => page.is_some() && lacks.is_none(),
        State::Partly => page.is_some() && lacks.is_some(),
        State::Missing | State::NotApplicable => lacks.is_some(),
    };
    expect(
        complete,
        format!(
            "{} needs a page and a test or example, or a list of what is missing",
            state.word()
        ),
    );
    expect(
        !documents.is_empty() && !at.is_empty(),
        "no place in a document".to_owned(),
    );
    for document in documents {
        expect(
            guide.document.iter().any(|known| known.id == *document),
            format!("no document {document}"),
        );
    }
    if let Some(page) = page {
        let (file, heading) = page.split_once('#').unwrap_or((page, ""));
        let text = std::fs::read_to_string(root().join("docs").join(file)).unwrap_or_default();
        let found = text
            .lines()
            .filter(|line| line.starts_with('#'))
            .any(|line| anchor(line.trim_start_matches('#')) == heading);
        expect(
            !text.is_empty() && (heading.is_empty() || found),
            format!("no page {page}"),
        );
    }
    if let Some(example) = example {
        expect(
            guide.example.iter().any(|known| known.name == *example),
            format!("no example {example}"),
        );
    }
    if let Some(test) = test {
        let (file, function) = test.split_once("::").unwrap_or((test, "?"));
        let text = std::fs::read_to_string(root().join(file)).unwrap_or_default();
        expect(
            text.contains(&format!("fn {function}(")),
            format!("no test {test}"),
        );
    }
    wrong
}

#[test]
fn every_item_of_the_guide_has_a_state_and_names_what_exists() {
    let guide = guide();
    let questions = (1..=QUESTIONS).map(|number| format!("C{number}"));
    let wanted: Vec<String> = SECTIONS
        .iter()
        .flat_map(|(_, ids)| ids.iter().map(|id| (*id).to_owned()))
        .chain(questions)
        .collect();
    let found: Vec<String> = guide.item.iter().map(|item| item.id.clone()).collect();
    assert_eq!((found.len(), &found), (69 + QUESTIONS, &wanted));
    let wrong: Vec<String> = guide
        .item
        .iter()
        .flat_map(|item| wrong(item, &guide))
        .collect();
    assert!(wrong.is_empty(), "docs/guide.toml:\n{}", wrong.join("\n"));
}

#[test]
fn every_example_is_compiled_in_counted_and_named_by_an_item() {
    let guide = guide();
    let folders = std::fs::read_dir(root().join("examples/guide")).unwrap();
    let folders: BTreeSet<String> = folders
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let compiled: BTreeSet<String> = GUIDE_EXAMPLES
        .iter()
        .map(|example| example.name.to_owned())
        .collect();
    assert_eq!(
        folders, compiled,
        "examples/guide and the table in src/cli/demo/guide.rs must have the same examples"
    );
    let counted: BTreeSet<String> = guide
        .example
        .iter()
        .map(|example| example.name.clone())
        .collect();
    assert_eq!(counted, compiled, "docs/guide.toml");
    let named: BTreeSet<String> = guide
        .item
        .iter()
        .filter_map(|item| item.example.clone())
        .collect();
    assert_eq!(
        named, compiled,
        "each example must be named by an item of docs/guide.toml"
    );
}

#[test]
fn the_catalog_of_every_example_is_valid_and_warns_of_nothing() {
    for GuideExample { name, catalog, .. } in GUIDE_EXAMPLES {
        let folder = tempfile::tempdir().unwrap();
        let account = "[accounts.main]\nkind = \"embedded\"\npath = \"store.db\"\n";
        std::fs::write(
            folder.path().join("default.toml"),
            format!("{account}{catalog}"),
        )
        .unwrap();
        let request = Request {
            folder: Folder::Named(folder.path().to_owned()),
            ..Request::default()
        };
        let loaded =
            evenkeel_config::load(&request).unwrap_or_else(|errors| panic!("{name}: {errors}"));
        let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert!(warnings.is_empty(), "{name}: {warnings:?}");
    }
}

#[test]
fn the_page_of_the_guide_is_generated_from_its_table() {
    let page = page(&guide());
    let path = root().join("docs/guide.md");
    if std::env::var_os("EVENKEEL_WRITE").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        written == page,
        "docs/guide.md: EVENKEEL_WRITE=1 cargo test --test it documentation"
    );
}

const INTRODUCTION: &str = "# Azure's table design guide, item by item

Each recommendation of Microsoft's guide to Table storage and of its checklist, with its state here, its page and an example to run. `guide.toml` also names its place in these documents, and a test that would fail without it.

```sh
evenkeel demo --guide                          # lists the examples
evenkeel demo --guide employees-by-email       # runs one on an embedded store in a temporary folder
```

An example is a catalog and a script of commands in `examples/guide`. To run one on your configuration, put its `catalog.toml` into `config/catalog/`.

**whole**: done by configuration, command or message, and tested. **partly**, **missing**: with what is lacking. **advice**: explained on a page. The documents:

";

fn page(guide: &Guide) -> String {
    let mut page = String::from(
        "<!-- Generated from guide.toml by `EVENKEEL_WRITE=1 cargo test --test it documentation`. -->\n\n",
    );
    page.push_str(INTRODUCTION);
    for (number, Document { name, url, .. }) in (1..).zip(&guide.document) {
        writeln!(page, "{number}. [{name}]({url})").unwrap();
    }
    page.push_str("\n| | items |");
    for state in State::ALL {
        write!(page, " {} |", state.word()).unwrap();
    }
    page.push_str("\n| --- |");
    page.push_str(&" --- |".repeat(1 + State::ALL.len()));
    let is_question = |item: &&Item| item.id.starts_with('C');
    let (questions, items): (Vec<&Item>, Vec<&Item>) = guide.item.iter().partition(is_question);
    for (part, items) in [
        ("patterns, queries, keys, relationships, retry", &items),
        ("checklist", &questions),
    ] {
        write!(page, "\n| {part} | {} |", items.len()).unwrap();
        for state in State::ALL {
            write!(
                page,
                " {} |",
                items.iter().filter(|item| item.state == state).count()
            )
            .unwrap();
        }
    }
    page.push('\n');
    for (title, ids) in SECTIONS {
        section(
            &mut page,
            title,
            guide
                .item
                .iter()
                .filter(|item| ids.contains(&item.id.as_str())),
        );
    }
    section(&mut page, "Checklist", questions.into_iter());
    page
}

fn section<'g>(page: &mut String, title: &str, items: impl Iterator<Item = &'g Item>) {
    write!(
        page,
        "\n## {title}\n\n| | item | state | page, example |\n| --- | --- | --- | --- |\n"
    )
    .unwrap();
    for Item {
        id,
        name,
        state,
        lacks,
        page: named,
        example,
        ..
    } in items
    {
        let state = lacks.as_ref().map_or_else(
            || state.word().to_owned(),
            |lacks| format!("{}: {lacks}", state.word()),
        );
        let linked = named
            .as_ref()
            .map(|page| format!("[{}]({page})", stem(page)));
        let example = example
            .as_ref()
            .map(|name| format!("[{name}](../examples/guide/{name}/steps.sh)"));
        let links: Vec<String> = linked.into_iter().chain(example).collect();
        writeln!(page, "| {id} | {name} | {state} | {} |", links.join(", ")).unwrap();
    }
}

fn stem(page: &str) -> String {
    let file = page.split('#').next().unwrap_or(page);
    Path::new(file)
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned())
        .unwrap_or_default()
}
