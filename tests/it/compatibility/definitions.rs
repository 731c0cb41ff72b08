//! The canonical encoding of every kind of view. Migration records and footprints hash it: another text for an old definition would be
//! taken for a changed view, and every footprint of its table would be settled anew.

use std::fmt::Write as _;
use std::path::Path;

use evenkeel::config::{self, Folder, Request};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/compatibility/golden");

#[test]
fn the_canonical_encoding_of_every_kind_of_view_is_the_one_that_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(Path::new(GOLDEN).join("catalog.toml"), folder.path().join("default.toml")).unwrap();
    let environment = [("SEARCH_ADMIN_KEY".to_owned(), "key".to_owned())].into();
    let request = Request { folder: Folder::Named(folder.path().to_owned()), environment, ..Request::default() };
    let catalog = config::load(&request).unwrap_or_else(|errors| panic!("{errors}")).catalog;
    let mut found = String::new();
    for view in catalog.views.values() {
        writeln!(found, "{}", view.definition()).unwrap();
    }
    for view in catalog.dated_views.values() {
        writeln!(found, "{}", view.definition()).unwrap();
    }
    let sources: std::collections::BTreeSet<_> = catalog.views.values().map(|view| &view.source).collect();
    for source in sources {
        writeln!(found, "{source} {}", catalog.fingerprint(source)).unwrap();
    }
    let golden = std::fs::read_to_string(Path::new(GOLDEN).join("definitions.txt")).unwrap_or_default();
    assert_eq!(found, golden, "the definitions of deployed views change:\n{found}");
}
