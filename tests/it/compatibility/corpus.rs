//! An account as version 0.1 left it (commit `02ba06e`): all that its demonstration writes, on the embedded store, with the catalog's
//! record, footprints of every kind of view, rechecks, two poison messages, and six jobs that no worker had begun.
//!
//! Times of retention are out of the question: the corpus keeps its tables by date for ten years.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output};

use evenkeel::model::job::FORMS;
use serde_json::Value;
use tempfile::TempDir;

struct Corpus {
    folder: TempDir,
}

impl Corpus {
    fn unpacked() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/compatibility/corpus");
        let mut store = Vec::new();
        flate2::read::GzDecoder::new(std::fs::File::open(from.join("store.db.gz")).unwrap()).read_to_end(&mut store).unwrap();
        std::fs::write(folder.path().join("contoso.db"), store).unwrap();
        std::fs::create_dir(folder.path().join("share")).unwrap();
        let text = std::fs::read_to_string(from.join("default.toml")).unwrap();
        std::fs::write(folder.path().join("default.toml"), text.replace("@DIR@", folder.path().to_str().unwrap())).unwrap();
        Self { folder }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
        command.args(["--config", self.folder.path().to_str().unwrap(), "-q"]).args(arguments);
        command.env_remove("EVENKEEL_PROFILE").output().unwrap()
    }

    /// What a command prints that ends well.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let text = self.says(&[&["--json"], arguments].concat());
        text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {line}"))).collect()
    }

    /// Every item is what it should be.
    fn agrees(&self, story: &str) {
        let output = self.run(&["audit"]);
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{story}: {said}{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn what_an_earlier_version_has_written_is_in_step_and_its_catalog_is_the_one_that_is_recorded() {
    let corpus = Corpus::unpacked();
    // That version did not read messages about many primaries, and recorded views alone.
    let status = corpus.says(&["migrate", "status"]);
    assert!(status.contains("2 pending:") && status.contains("record that jobs may name archive "), "{status}");
    assert!(status.contains(&format!("record that messages of form {FORMS} may be sent, 1 so far")), "{status}");
    corpus.agrees("as it was left");
    corpus.says(&["migrate", "up"]);
    let status = corpus.says(&["migrate", "status"]);
    assert!(status.contains("up to date: generation 2 of the catalog is recorded"), "{status}");
    corpus.agrees("after what it did not read was recorded");
}

#[test]
fn jobs_that_an_earlier_version_left_are_done_and_what_they_change_is_in_step() {
    let corpus = Corpus::unpacked();
    corpus.says(&["migrate", "up"]);
    let ended = corpus.json(&["run", "--until-idle", "--no-http"]);
    assert!(ended[0]["done"].as_u64() >= Some(6) && ended[0]["poisoned"] == 0 && ended[0]["lost"] == 0, "{ended:?}");
    corpus.agrees("after its jobs were done");

    let kim = corpus.says(&["lookup", "employees_by_email", "Email=kim.abercrombie@contoso.com"]);
    assert!(kim.contains("Abercrombie"), "{kim}");
    let moved = corpus.says(&["get", "Employees", "Sales", "000302"]);
    assert!(moved.contains("Cao"), "{moved}");
    let archived = corpus.says(&["get", "FormerEmployees", "Sales", "000103"]);
    assert!(archived.contains("Larsson"), "{archived}");
    assert!(!corpus.run(&["get", "Employees", "Sales", "000101"]).status.success(), "it was to be deleted");
}

#[test]
fn poison_messages_of_an_earlier_version_are_read_and_requeued() {
    let corpus = Corpus::unpacked();
    let listed = corpus.says(&["poison", "list"]);
    assert!(listed.contains("permanent") && listed.contains("undecodable") && listed.contains("is taken by"), "{listed}");
    assert_eq!(corpus.json(&["poison", "list"]).len(), 2, "{listed}");
    // Whoever had the address is deleted by one of the jobs that wait, so that the one that was poisoned for it has it now.
    corpus.says(&["migrate", "up"]);
    corpus.says(&["run", "--until-idle", "--no-http"]);
    corpus.run(&["poison", "requeue", "--all"]);
    corpus.says(&["run", "--until-idle", "--no-http"]);
    let rows = corpus.says(&["lookup", "employees_by_email", "Email=jun.cao@contoso.com"]);
    assert!(rows.contains("1 row") || rows.contains("Jun"), "{rows}");
    corpus.agrees("after its poison was requeued");
}

#[test]
fn a_backfill_over_what_an_earlier_version_derived_writes_no_item() {
    let corpus = Corpus::unpacked();
    corpus.says(&["migrate", "up"]);
    let tables = corpus.json(&["backfill"]);
    assert!(tables.iter().any(|table| table["table"] == "Employees" && table["primaries"] == 209), "{tables:?}");
    for table in tables {
        let written = ["created", "updated", "deleted", "failed"].map(|count| table[count].as_u64());
        assert_eq!(written, [Some(0); 4], "{table}");
    }
}
