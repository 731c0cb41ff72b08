//! Checks that the source text that each planted bug in `scripts/mutants.d/planted` replaces still exists. If a change of the program removed the
//! text, the bug would no longer be planted, and nothing would test the rule that it breaks.

#[path = "../../scripts/mutants.d/src/planted.rs"]
mod declared;

use std::collections::BTreeSet;
use std::path::Path;

use declared::{Bug, Caught, declared, find};

fn bugs() -> Vec<Bug> {
    declared(include_str!("../../scripts/mutants.d/planted"))
        .unwrap_or_else(|wrong| panic!("{wrong}"))
}

#[test]
fn the_text_of_each_planted_bug_exists() {
    let bugs = bugs();
    let places = find(Path::new(env!("CARGO_MANIFEST_DIR")), &bugs)
        .unwrap_or_else(|wrong| panic!("{}", wrong.join("\n")));
    let switched = places.iter().filter(|place| place.text.contains("BUG"));
    assert!(switched.count() >= bugs.len());
}

#[test]
fn each_planted_bug_has_a_unique_name_and_a_description() {
    let bugs = bugs();
    let names: BTreeSet<&str> = bugs.iter().map(|bug| bug.name.as_str()).collect();
    assert_eq!(names.len(), bugs.len(), "duplicate name");
    for bug in &bugs {
        let Bug {
            name,
            caught,
            words,
            ..
        } = bug;
        assert!(words.ends_with('.'), "{name}: {words}");
        if let Caught::Unmet(needs) = caught {
            assert!(
                !needs.is_empty(),
                "bug {name} does not state what is needed to catch it"
            );
        }
    }
}

#[test]
fn a_place_is_found_in_its_function_whatever_its_layout() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("crates/some/src/room/deep.rs");
    std::fs::create_dir_all(source.parent().unwrap()).unwrap();
    let program = "fn one() {\n    call(\n        a,\n        b,\n    );\n}\nfn two() { call(a, b); }\nfn three() { x(); x(); }\n";
    std::fs::write(&source, program).unwrap();
    let found = |places: &str| {
        let bugs = declared(&format!("Some, soon: It is wrong.\n{places}")).unwrap();
        find(folder.path(), &bugs)
    };
    let places =
        found("  some::one\n  - call(a, b);\n  + if !BUG {\n  +     call(a, b);\n  + }\n").unwrap();
    assert_eq!(places.len(), 1);
    assert_eq!(
        &program[places[0].range.clone()],
        "call(\n        a,\n        b,\n    );"
    );
    assert_eq!(places[0].text, "if !BUG {\n    call(a, b);\n}");
    assert_eq!(
        (places[0].bug, places[0].file.as_str()),
        (0, "crates/some/src/room/deep.rs")
    );
    for (wrong, why) in [
        ("  some::gone\n  - call(a, b);\n  + BUG", "0 times"),
        ("  some::three\n  - x();\n  + BUG", "2 times"),
        (
            "  some::two\n  - call(a, b);\n  + call(b, a);",
            "no place has a switch",
        ),
        (
            "  some::two\n  - call(a, b);\n  + BUG\n  some::two\n  - (a, b)\n  + BUG",
            "change the same text",
        ),
    ] {
        let wrongs = found(wrong).unwrap_err();
        assert!(
            wrongs
                .iter()
                .any(|wrong| wrong.starts_with("Some") && wrong.contains(why)),
            "{wrongs:?}"
        );
    }
    assert!(declared("  some::two\n").is_err() && declared("Some, never: No.").is_err());
}
