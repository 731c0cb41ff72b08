//! One build that holds every mutant, each behind a switch. Mutants that do not compile are found by the compiler's own
//! messages and dropped, until what is left does.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::find::{Mutant, UNCONST};
use crate::tree;

/// What was built.
pub struct Built {
    /// Mutants in the build, by their numbers.
    pub alive: BTreeMap<usize, Mutant>,
    /// Mutants that do not compile.
    pub dropped: usize,
    /// Executables by target name.
    pub executables: BTreeMap<String, PathBuf>,
}

/// The switch, as a module of the mutated library.
const SWITCH: &str = r#"//! Which mutant is on.
#![allow(missing_docs, unreachable_pub)]

use std::io::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

static ON: LazyLock<u32> = LazyLock::new(|| std::env::var("EVENKEEL_MUTANT").ok().and_then(|n| n.parse().ok()).unwrap_or(u32::MAX));
static RECORD: LazyLock<Option<std::path::PathBuf>> = LazyLock::new(|| std::env::var_os("EVENKEEL_MUTANTS_REACHED").map(Into::into));
static REACHED: LazyLock<Vec<AtomicBool>> = LazyLock::new(|| (0..100_000).map(|_| AtomicBool::new(false)).collect());

pub fn on(n: u32) -> bool {
    if let Some(file) = &*RECORD
        && let Some(seen) = REACHED.get(n as usize)
        && !seen.swap(true, Ordering::Relaxed)
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(file)
    {
        let _ = file.write_all(format!("{n}\n").as_bytes());
    }
    *ON == n
}
"#;

/// A mutant's place in the rewritten text.
struct Region {
    number: usize,
    range: Range<usize>,
}

/// Weaves the mutants in and builds, until it compiles.
pub fn build(root: &Path, tree: &Path, all: Vec<Mutant>, thorough: bool) -> Result<Built> {
    let mut alive: BTreeMap<usize, Mutant> = all.into_iter().enumerate().collect();
    let found = alive.len();
    tree::write(&tree.join("src/mutation.rs"), SWITCH.as_bytes())?;
    let library = std::fs::read_to_string(root.join("src/lib.rs"))?;
    tree::write(&tree.join("src/lib.rs"), format!("{library}\npub mod mutation;\n").as_bytes())?;
    let manifest = std::fs::read_to_string(root.join("Cargo.toml"))?;
    let manifest = format!("{manifest}\n[profile.dev.package.evenkeel]\nopt-level = 1\n");
    tree::write(&tree.join("Cargo.toml"), manifest.as_bytes())?;
    loop {
        let regions = weave(root, tree, &alive)?;
        // What does not compile is found without generating code for what does.
        let compiled = match compile(root, tree, &["check", "--lib"])? {
            Compiled::Built(_) => {
                let unit_tests: &[&str] = if thorough { &["--lib"] } else { &[] };
                compile(root, tree, &[BUILD, unit_tests].concat())?
            }
            failed @ Compiled::Failed(_) => failed,
        };
        match compiled {
            Compiled::Built(executables) => {
                let unconst = alive.values().filter(|mutant| mutant.does == UNCONST).count();
                alive.retain(|_, mutant| mutant.does != UNCONST);
                return Ok(Built { dropped: found - unconst - alive.len(), alive, executables });
            }
            Compiled::Failed(messages) => {
                let guilty = guilty(&messages, &regions, &alive);
                if guilty.is_empty() {
                    let rendered: Vec<&str> = messages.iter().filter_map(|message| message["rendered"].as_str()).take(5).collect();
                    bail!("the mutated tree does not compile, for a reason that no mutant explains:\n{}", rendered.join("\n"));
                }
                eprintln!("{} errors: {} mutants dropped", messages.len(), guilty.len());
                alive.retain(|number, _| !guilty.contains(number));
            }
        }
    }
}

/// Writes the sources with these mutants; where each came to lie, by file.
fn weave(root: &Path, tree: &Path, alive: &BTreeMap<usize, Mutant>) -> Result<BTreeMap<String, Vec<Region>>> {
    let mut files: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (number, mutant) in alive {
        files.entry(&mutant.file).or_default().push(*number);
    }
    let mut regions = BTreeMap::new();
    for (file, numbers) in files {
        let source = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
        let (text, placed) = woven(&source, &numbers, alive);
        tree::write(&tree.join(file), text.as_bytes())?;
        regions.insert(file.to_owned(), placed);
    }
    Ok(regions)
}

fn woven(source: &str, numbers: &[usize], alive: &BTreeMap<usize, Mutant>) -> (String, Vec<Region>) {
    let mut edits: Vec<(usize, u8, i64, &crate::find::Edit, usize)> = Vec::new();
    for (order, number) in numbers.iter().enumerate() {
        let order = i64::try_from(order).unwrap_or(i64::MAX);
        for edit in &alive[number].edits {
            // At one place: what closes, inner before outer; then replacements; then what opens, outer before inner.
            let (rank, order) = match (edit.closes, edit.range.is_empty()) {
                (true, _) => (0, -order),
                (false, false) => (2, order),
                (false, true) => (1, order),
            };
            edits.push((edit.range.start, rank, order, edit, *number));
        }
    }
    edits.sort_by_key(|(at, rank, order, ..)| (*at, *rank, *order));
    let mut text = String::with_capacity(source.len() * 2);
    let mut copied = 0;
    let mut spans: BTreeMap<usize, Range<usize>> = BTreeMap::new();
    for (at, _, _, edit, number) in edits {
        text.push_str(&source[copied..at]);
        let start = text.len();
        text.push_str(&edit.text.replace("{}", &number.to_string()));
        copied = edit.range.end.max(at);
        let span = spans.entry(number).or_insert(start..start);
        span.start = span.start.min(start);
        span.end = span.end.max(text.len());
    }
    text.push_str(&source[copied..]);
    (text, spans.into_iter().map(|(number, range)| Region { number, range }).collect())
}

enum Compiled {
    Built(BTreeMap<String, PathBuf>),
    Failed(Vec<Value>),
}

/// What mutants meet.
const BUILD: &[&str] = &["test", "--no-run", "--test", "protocol", "--test", "contract_embedded"];

fn compile(root: &Path, tree: &Path, arguments: &[&str]) -> Result<Compiled> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new("cargo");
    command.args(arguments).args(["--locked", "--message-format=json"]);
    let output = command
        .current_dir(tree)
        .env("CARGO_TARGET_DIR", &target)
        .env_remove("CARGO_MANIFEST_DIR")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    let mut errors = Vec::new();
    let mut executables = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            errors.push(message["message"].clone());
        }
        if let (Some(path), Some(name)) = (message["executable"].as_str(), message["target"]["name"].as_str()) {
            // Elsewhere: the next build of the program itself takes the same place.
            let kept = tree.with_file_name("bin").join(name);
            std::fs::create_dir_all(tree.with_file_name("bin"))?;
            drop(std::fs::remove_file(&kept));
            std::fs::copy(path, &kept).with_context(|| path.to_owned())?;
            executables.insert(name.to_owned(), kept);
        }
    }
    if output.status.success() {
        return Ok(Compiled::Built(executables));
    }
    if errors.is_empty() {
        bail!("cargo could not build the mutated tree");
    }
    Ok(Compiled::Failed(errors))
}

/// The mutants that explain compile errors.
fn guilty(messages: &[Value], regions: &BTreeMap<String, Vec<Region>>, alive: &BTreeMap<usize, Mutant>) -> BTreeSet<usize> {
    let mut guilty = BTreeSet::new();
    for message in messages {
        let spans: Vec<&Value> = message["spans"].as_array().map(|spans| spans.iter().collect()).unwrap_or_default();
        let of = |primary: bool| spans.iter().filter(move |span| span["is_primary"] == primary).filter_map(|span| at(span, regions, alive));
        let mut found: BTreeSet<usize> = of(true).collect();
        if message["code"]["code"] == "E0015"
            && let Some(name) = message["message"].as_str().and_then(|text| text.split('`').nth(1))
            && !name.ends_with("mutation::on")
        {
            let name = name.rsplit("::").next().unwrap_or(name);
            found = alive.iter().filter(|(_, mutant)| mutant.does == UNCONST && mutant.function == name).map(|(number, _)| *number).collect();
        }
        if found.is_empty() {
            found = of(false).collect();
        }
        if found.is_empty() {
            found = near(&spans, regions, alive);
        }
        guilty.extend(found);
    }
    guilty
}

/// The mutant around a span: of several, one of the operators that are most often at fault, then the smallest.
fn at(span: &Value, regions: &BTreeMap<String, Vec<Region>>, alive: &BTreeMap<usize, Mutant>) -> Option<usize> {
    let start = usize::try_from(span["byte_start"].as_u64()?).ok()?;
    let end = usize::try_from(span["byte_end"].as_u64()?).ok()?;
    let around = regions.get(span["file_name"].as_str()?)?.iter().filter(|region| region.range.start <= start && end <= region.range.end);
    around.min_by_key(|region| (fault(&alive[&region.number]), region.range.len())).map(|region| region.number)
}

fn fault(mutant: &Mutant) -> u8 {
    match mutant.does.as_str() {
        does if does.starts_with("returns") => 0,
        does if does.contains("` with ") => 1,
        does if does.starts_with("not") => 2,
        UNCONST => 4,
        _ => 3,
    }
}

/// The statements left out within 60 lines of an error: a variable that they would have set.
fn near(spans: &[&Value], regions: &BTreeMap<String, Vec<Region>>, alive: &BTreeMap<usize, Mutant>) -> BTreeSet<usize> {
    let mut found = BTreeSet::new();
    for span in spans {
        let (Some(file), Some(line)) = (span["file_name"].as_str(), span["line_start"].as_u64()) else { continue };
        for region in regions.get(file).into_iter().flatten() {
            let mutant = &alive[&region.number];
            if mutant.does.starts_with("without") && (mutant.line as u64).abs_diff(line) < 60 {
                found.insert(region.number);
            }
        }
    }
    found
}
