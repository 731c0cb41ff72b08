//! One build that contains every mutant, each behind a switch. Mutants that do not compile are found by the compiler's
//! messages and dropped until the rest compiles.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::find::{Mutant, UNCONST};
use crate::planted::BugPlace;
use crate::suites::Extent;
use crate::tree;

pub struct BuildResult {
    /// Mutants in the build, by number.
    pub alive: BTreeMap<usize, Mutant>,
    /// Number of mutants that do not compile.
    pub dropped: usize,
    /// Executables by target name.
    pub executables: BTreeMap<String, PathBuf>,
}

/// The switch, as a module of the crate that all others depend on.
const SWITCH: &str = r#"//! Which mutant is on.
#![allow(missing_docs, unreachable_pub)]

use std::io::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

const UNKNOWN: u32 = u32::MAX;
const RECORDS: u32 = u32::MAX - 1;
const NONE: u32 = u32::MAX - 2;

static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);
static RECORD: LazyLock<Option<std::path::PathBuf>> = LazyLock::new(|| std::env::var_os("EVENKEEL_MUTANTS_REACHED").map(Into::into));
static REACHED: LazyLock<Vec<AtomicBool>> = LazyLock::new(|| (0..100_000).map(|_| AtomicBool::new(false)).collect());

/// Called millions of times in a run of one mutant.
#[inline(always)]
pub fn on(n: u32) -> bool {
    let state = STATE.load(Ordering::Relaxed);
    if state < RECORDS { state == n } else { asks(n, state) }
}

#[cold]
#[inline(never)]
fn asks(n: u32, state: u32) -> bool {
    if state == UNKNOWN {
        let mutant = std::env::var("EVENKEEL_MUTANT").ok().and_then(|n| n.parse().ok());
        STATE.store(mutant.unwrap_or(if RECORD.is_some() { RECORDS } else { NONE }), Ordering::Relaxed);
        return on(n);
    }
    if let Some(file) = &*RECORD
        && let Some(seen) = REACHED.get(n as usize)
        && !seen.swap(true, Ordering::Relaxed)
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(file)
    {
        let _ = file.write_all(format!("{n}\n").as_bytes());
    }
    false
}
"#;

/// A mutant's range in the rewritten text.
struct Region {
    number: usize,
    range: Range<usize>,
}

/// Crates with mutated code. Their unit tests are used for the widest extent.
pub const MUTATED: [&str; 4] = [
    "evenkeel-engine",
    "evenkeel-layers",
    "evenkeel-sqlite",
    "evenkeel-worker",
];

/// The crate that all others depend on, which contains the switch.
const MODEL: &str = "crates/model/src/lib.rs";

/// Weaves the mutants in and builds, until it compiles.
pub fn build(
    root: &Path,
    tree: &Path,
    all: BTreeMap<usize, Mutant>,
    extent: Extent,
) -> Result<BuildResult> {
    let mut alive = all;
    let found = alive.len();
    // Compiling only to find known errors again costs as much as a dozen mutants.
    let known = tree.with_file_name("dropped");
    let mut dropped: BTreeSet<String> = std::fs::read_to_string(&known)
        .unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect();
    let woven: BTreeSet<String> = alive.values().map(|mutant| mutant.file.clone()).collect();
    prepare(root, tree, "mutants", &woven)?;
    let mut arguments = vec![
        "test",
        "--no-run",
        "--package",
        "evenkeel-simulation",
        "--test",
        "simulate",
    ];
    if extent != Extent::Simulation {
        arguments.extend(["--package", "evenkeel", "--test", "it"]);
    }
    if extent == Extent::Unit {
        arguments.extend(MUTATED.iter().flat_map(|name| ["--package", name]));
        arguments.push("--lib");
    }
    alive.retain(|_, mutant| !dropped.contains(&mutant.to_string()));
    loop {
        let regions = weave(root, tree, &woven, &alive)?;
        // The compiler stops at an error before it generates code, so that a separate check would do the work twice.
        let compiled = compile(root, tree, &arguments, None)?;
        match compiled {
            Compiled::Built(executables) => {
                let unconst = alive
                    .values()
                    .filter(|mutant| mutant.does == UNCONST)
                    .count();
                alive.retain(|_, mutant| mutant.does != UNCONST);
                return Ok(BuildResult {
                    dropped: found - unconst - alive.len(),
                    alive,
                    executables,
                });
            }
            Compiled::Failed(messages) => {
                let guilty = guilty(&messages, &regions, &alive);
                if guilty.is_empty() {
                    bail!(
                        "the mutated tree does not compile, and no mutant explains the errors:\n{}",
                        rendered(&messages)
                    );
                }
                eprintln!(
                    "{} errors: {} mutants dropped",
                    messages.len(),
                    guilty.len()
                );
                for message in &messages {
                    eprintln!("  {}", message["message"].as_str().unwrap_or_default());
                }
                dropped.extend(guilty.iter().map(|number| alive[number].to_string()));
                tree::write(
                    &known,
                    dropped
                        .iter()
                        .fold(String::new(), |text, name| text + name + "\n")
                        .as_bytes(),
                )?;
                alive.retain(|number, _| !guilty.contains(number));
            }
        }
    }
}

/// Weaves planted bugs in and builds the simulation. For a few seeds it is not optimized, because that would take
/// longer than these seeds.
pub fn build_planted(root: &Path, tree: &Path, places: &[BugPlace], few: bool) -> Result<PathBuf> {
    let woven: BTreeSet<String> = places.iter().map(|place| place.file.clone()).collect();
    prepare(root, tree, "planted", &woven)?;
    for file in &woven {
        let source = std::fs::read_to_string(root.join(file)).with_context(|| file.clone())?;
        let (mut text, mut copied) = (String::new(), 0);
        for place in places.iter().filter(|place| place.file == *file) {
            let switch = format!("evenkeel_model::mutation::on({})", place.bug);
            text.push_str(&source[copied..place.range.start]);
            text.push_str(&place.text.replace("BUG", &switch));
            copied = place.range.end;
        }
        text.push_str(&source[copied..]);
        tree::write(&tree.join(file), text.as_bytes())?;
    }
    // `--workspace` selects the features with which the dependencies were already compiled for the tests.
    let arguments = ["test", "--no-run", "--workspace", "--test", "simulate"];
    match compile(root, tree, &arguments, few.then_some(UNOPTIMISED))? {
        Compiled::Built(mut executables) => executables
            .remove("simulate")
            .context("the simulation was not built"),
        Compiled::Failed(messages) => bail!(
            "the tree with planted bugs does not compile:\n{}",
            rendered(&messages)
        ),
    }
}

const UNOPTIMISED: (&str, &str) = ("CARGO_PROFILE_DEV_OPT_LEVEL", "0");

fn rendered(messages: &[Value]) -> String {
    let rendered = messages
        .iter()
        .filter_map(|message| message["rendered"].as_str());
    rendered.take(5).collect::<Vec<_>>().join("\n")
}

/// Copies the sources except those that are woven, with the switch and with a separate version of the own crates.
fn prepare(root: &Path, tree: &Path, version: &str, woven: &BTreeSet<String>) -> Result<()> {
    let read =
        |file: &str| std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned());
    let rewritten = BTreeMap::from([
        (
            "Cargo.toml",
            of_the_tree(
                &manifest(&read("Cargo.toml")?),
                "[workspace.package]",
                version,
            ),
        ),
        (
            "Cargo.lock",
            of_the_tree(&read("Cargo.lock")?, "name = \"evenkeel", version),
        ),
        (SIMULATION, simulation(&read(SIMULATION)?)),
        ("crates/model/src/mutation.rs", SWITCH.to_owned()),
        (MODEL, format!("{}\npub mod mutation;\n", read(MODEL)?)),
    ]);
    // A file that is written twice has a new modification time and is compiled again.
    tree::copy(root, tree, |path| {
        !woven.contains(path) && !rewritten.contains_key(path)
    })?;
    for (file, text) in &rewritten {
        tree::write(&tree.join(file), text.as_bytes())?;
    }
    Ok(())
}

/// The result of the last build.
pub fn built(tree: &Path, all: BTreeMap<usize, Mutant>) -> Result<BuildResult> {
    let found = all.values().filter(|mutant| mutant.does != UNCONST).count();
    let dropped = std::fs::read_to_string(tree.with_file_name("dropped")).unwrap_or_default();
    let dropped: BTreeSet<&str> = dropped.lines().collect();
    let mut alive = all;
    alive.retain(|_, mutant| {
        mutant.does != UNCONST && !dropped.contains(mutant.to_string().as_str())
    });
    let mut executables = BTreeMap::new();
    for entry in std::fs::read_dir(tree.with_file_name("bin"))? {
        let path = entry?.path();
        if let Some(name) = path.file_name() {
            executables.insert(name.to_string_lossy().into_owned(), path);
        }
    }
    Ok(BuildResult {
        dropped: found - alive.len(),
        alive,
        executables,
    })
}

/// The manifest of the mutated tree, without the program, which would be built with every integration test.
fn manifest(original: &str) -> String {
    let program = "[[bin]]\nname = \"evenkeel\"\npath = \"src/main.rs\"\n";
    original
        .replace("default-run = \"evenkeel\"\n", "autobins = false\n")
        .replace(program, "")
}

/// Replaces the version of the own crates after these marks. Cargo distinguishes crates of two workspaces only by name
/// and version. With equal ones, a test of the original sources would be linked with mutated crates.
fn of_the_tree(text: &str, mark: &str, tree: &str) -> String {
    let mut is_next = false;
    let lines = text.lines().map(|line| {
        is_next |= line.starts_with(mark);
        match line
            .strip_prefix("version = \"")
            .and_then(|rest| rest.strip_suffix('"'))
        {
            Some(version) if std::mem::take(&mut is_next) => {
                format!("version = \"{version}+{tree}\"\n")
            }
            _ => format!("{line}\n"),
        }
    });
    lines.collect()
}

/// The manifest of the simulation, whose program becomes a test.
const SIMULATION: &str = "crates/simulation/Cargo.toml";

fn simulation(original: &str) -> String {
    let test = "[[test]]\nname = \"simulate\"\npath = \"src/bin/simulate.rs\"\nharness = false\n";
    let program = "[[bin]]\nname = \"simulate\"\npath = \"src/bin/simulate.rs\"\n";
    original
        .replace(program, test)
        .replacen("[package]\n", "[package]\nautobins = false\n", 1)
}

/// Writes the sources with these mutants. Returns the range of each by file.
fn weave(
    root: &Path,
    tree: &Path,
    files: &BTreeSet<String>,
    alive: &BTreeMap<usize, Mutant>,
) -> Result<BTreeMap<String, Vec<Region>>> {
    let mut files: BTreeMap<&str, Vec<usize>> = files
        .iter()
        .map(|file| (file.as_str(), Vec::new()))
        .collect();
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

fn woven(
    source: &str,
    numbers: &[usize],
    alive: &BTreeMap<usize, Mutant>,
) -> (String, Vec<Region>) {
    let mut edits: Vec<(usize, u8, i64, &crate::find::Edit, usize)> = Vec::new();
    for (order, number) in numbers.iter().enumerate() {
        let order = i64::try_from(order).unwrap_or(i64::MAX);
        for edit in &alive[number].edits {
            // At the same place: closing insertions, inner before outer; then replacements; then opening insertions,
            // outer before inner.
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
    (
        text,
        spans
            .into_iter()
            .map(|(number, range)| Region { number, range })
            .collect(),
    )
}

enum Compiled {
    Built(BTreeMap<String, PathBuf>),
    Failed(Vec<Value>),
}

fn compile(
    root: &Path,
    tree: &Path,
    arguments: &[&str],
    setting: Option<(&str, &str)>,
) -> Result<Compiled> {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let mut command = Command::new("cargo");
    command
        .args(arguments)
        .args(["--locked", "--message-format=json"]);
    let output = command
        .current_dir(tree)
        .envs(setting)
        .env("CARGO_TARGET_DIR", &target)
        .env("CARGO_INCREMENTAL", "0")
        .env_remove("CARGO_MANIFEST_DIR")
        .stderr(Stdio::inherit())
        .output()
        .context("cargo")?;
    let mut errors = Vec::new();
    let mut executables = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            continue;
        };
        if message["reason"] == "compiler-message" && message["message"]["level"] == "error" {
            errors.push(message["message"].clone());
        }
        if let (Some(path), Some(name)) = (
            message["executable"].as_str(),
            message["target"]["name"].as_str(),
        ) {
            // The executable is kept in another folder, because the next build of the program writes to the same path.
            let kept = tree.with_file_name("bin").join(name);
            std::fs::create_dir_all(tree.with_file_name("bin"))?;
            // The same modification time is kept if the file is unchanged, because it was measured which mutants it
            // reaches.
            if newer(Path::new(path), &kept) {
                drop(std::fs::remove_file(&kept));
                std::fs::copy(path, &kept).with_context(|| path.to_owned())?;
            }
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

fn newer(built: &Path, kept: &Path) -> bool {
    let modified = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|file| file.modified())
            .ok()
    };
    modified(kept).is_none_or(|kept| modified(built).is_none_or(|built| built > kept))
}

/// The mutants that explain compile errors.
fn guilty(
    messages: &[Value],
    regions: &BTreeMap<String, Vec<Region>>,
    alive: &BTreeMap<usize, Mutant>,
) -> BTreeSet<usize> {
    let mut guilty = BTreeSet::new();
    for message in messages {
        let spans: Vec<&Value> = message["spans"]
            .as_array()
            .map(|spans| spans.iter().collect())
            .unwrap_or_default();
        let of = |primary: bool| {
            spans
                .iter()
                .filter(move |span| span["is_primary"] == primary)
                .filter_map(|span| at(span, regions, alive))
        };
        let mut found: BTreeSet<usize> = of(true).collect();
        if message["code"]["code"] == "E0015"
            && let Some(name) = message["message"]
                .as_str()
                .and_then(|text| text.split('`').nth(1))
            && !name.ends_with("mutation::on")
        {
            let name = name.rsplit("::").next().unwrap_or(name);
            found = alive
                .iter()
                .filter(|(_, mutant)| mutant.does == UNCONST && mutant.function == name)
                .map(|(number, _)| *number)
                .collect();
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

/// The mutant around a span. Of several, one of the operators that are most often at fault, then the smallest.
fn at(
    span: &Value,
    regions: &BTreeMap<String, Vec<Region>>,
    alive: &BTreeMap<usize, Mutant>,
) -> Option<usize> {
    let start = usize::try_from(span["byte_start"].as_u64()?).ok()?;
    let end = usize::try_from(span["byte_end"].as_u64()?).ok()?;
    let around = regions
        .get(span["file_name"].as_str()?)?
        .iter()
        .filter(|region| region.range.start <= start && end <= region.range.end);
    around
        .min_by_key(|region| (fault(&alive[&region.number]), region.range.len()))
        .map(|region| region.number)
}

fn fault(mutant: &Mutant) -> u8 {
    match mutant.does.as_str() {
        does if does.starts_with("returns") => 0,
        does if does.contains("` with ") || does.contains("` answers ") => 1,
        does if does.starts_with("not") => 2,
        UNCONST => 4,
        _ => 3,
    }
}

/// The removed statements within 60 lines of an error: a variable that they would have set, or more likely a guard that
/// `drop` ends.
fn near(
    spans: &[&Value],
    regions: &BTreeMap<String, Vec<Region>>,
    alive: &BTreeMap<usize, Mutant>,
) -> BTreeSet<usize> {
    let (mut found, mut guards) = (BTreeSet::new(), BTreeSet::new());
    for span in spans {
        let (Some(file), Some(line)) = (span["file_name"].as_str(), span["line_start"].as_u64())
        else {
            continue;
        };
        for region in regions.get(file).into_iter().flatten() {
            let mutant = &alive[&region.number];
            if mutant.does.starts_with("without") && (mutant.line as u64).abs_diff(line) < 60 {
                found.insert(region.number);
                if mutant.does.starts_with("without `drop(") {
                    guards.insert(region.number);
                }
            }
        }
    }
    if guards.is_empty() { found } else { guards }
}
