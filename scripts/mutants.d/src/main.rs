//! Mutation testing of the code that decides.
//!
//! ```text
//!   src/ ─▶ find (syn): mutants as text edits ─▶ weave: every mutant behind `crate::mutation::on(N)` ─▶ one build
//!             ▲                                                                                        │
//!             └── compile errors: the mutants at fault are dropped ◀───────────────────────────────────┤
//!                                                                                                      ▼
//!   report ◀── survivors ◀── each mutant: the suites that reach it, the cheapest first, under a timeout
//! ```
//!
//! One build for all mutants: a mutant costs the seconds its first failing test takes, not a compilation.

mod find;
mod suites;
mod tree;
mod weave;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::find::Mutant;
use crate::suites::{Suite, Verdict};

/// Mutation testing of the code that decides.
#[derive(Debug, Parser)]
struct Args {
    /// Tests this many mutants, chosen by `--seed`; all where absent.
    #[arg(long)]
    sample: Option<usize>,
    /// What the sample is drawn by.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Begins no further mutant after so many seconds of testing.
    #[arg(long)]
    seconds: Option<u64>,
    /// Only mutants in files whose path contains this.
    #[arg(long)]
    file: Vec<String>,
    /// Only the mutant with this number.
    #[arg(long)]
    mutant: Option<usize>,
    /// Lists the mutants and ends.
    #[arg(long)]
    list: bool,
    /// Adds the suites that take longer: the contract suites and the unit tests beside the code.
    #[arg(long)]
    thorough: bool,
    /// Fails where fewer than this percentage of the tested mutants is killed.
    #[arg(long, default_value_t = 0)]
    at_least: usize,
    /// Survivors are written to this file, one line each.
    #[arg(long)]
    survivors: Option<PathBuf>,
}

/// The code under mutation, as prefixes of paths.
const SUBJECTS: &[&str] = &[
    "src/reconcile/",
    "src/worker/decide.rs",
    "src/adapters/retry/",
    "src/adapters/group/",
    "src/adapters/embedded/",
];

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let root = tree::root()?;
    let all = find::mutants(&root, SUBJECTS)?;
    if args.list {
        for (number, mutant) in all.iter().enumerate() {
            println!("{number:>5}  {mutant}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let tree = tree::copy(&root)?;
    let built = weave::build(&root, &tree, all, args.thorough)?;
    println!("{} mutants, {} more dropped: they do not compile", built.alive.len(), built.dropped);
    let suites = suites::suites(&tree, &built, args.thorough)?;
    let reached = suites::reached(&suites, &tree)?;

    let chosen = choose(&args, &built.alive);
    let progress = Progress::default();
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(number) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if args.seconds.is_some_and(|most| started.elapsed() >= Duration::from_secs(most)) {
                        return;
                    }
                    let verdict = suites::test(*number, &suites, &reached);
                    progress.add(*number, verdict, &built.alive[number]);
                }
            });
        }
    });
    let tested = progress.report(&built.alive, started.elapsed());
    if let Some(file) = &args.survivors {
        std::fs::write(file, tested.survivors.join("\n") + "\n").with_context(|| file.display().to_string())?;
    }
    let percentage = (tested.killed * 100).checked_div(tested.tested).unwrap_or(100);
    Ok(if percentage >= args.at_least { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The mutants to test, in an order that a seed decides, so that a bound on time leaves a fair sample.
fn choose(args: &Args, alive: &BTreeMap<usize, Mutant>) -> Vec<usize> {
    let wanted = |(number, mutant): &(&usize, &Mutant)| {
        args.mutant.is_none_or(|only| only == **number) && (args.file.is_empty() || args.file.iter().any(|part| mutant.file.contains(part)))
    };
    let mut chosen: Vec<usize> = alive.iter().filter(wanted).map(|(number, _)| *number).collect();
    chosen.sort_by_key(|number| mixed(args.seed, *number));
    chosen.truncate(args.sample.unwrap_or(usize::MAX));
    chosen
}

/// SplitMix64 of a seed and a number.
fn mixed(seed: u64, number: usize) -> u64 {
    let mut z = seed.wrapping_add((number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[derive(Default)]
struct Progress(Mutex<BTreeMap<usize, Verdict>>);

/// Sums of a finished run.
struct Tested {
    tested: usize,
    killed: usize,
    survivors: Vec<String>,
}

impl Progress {
    fn add(&self, number: usize, verdict: Verdict, mutant: &Mutant) {
        match &verdict {
            Verdict::Killed { by, after } => println!("killed    {number:>5} {mutant}: {by}, {:.1} s", after.as_secs_f64()),
            Verdict::Unreached => println!("SURVIVED  {number:>5} {mutant}: reached by no suite"),
            Verdict::Survived { after } => println!("SURVIVED  {number:>5} {mutant}: {:.1} s", after.as_secs_f64()),
        }
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(number, verdict);
    }

    fn report(self, alive: &BTreeMap<usize, Mutant>, took: Duration) -> Tested {
        let verdicts = self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut rooms: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        let mut by: BTreeMap<&str, usize> = BTreeMap::new();
        let mut survivors = Vec::new();
        for (number, verdict) in &verdicts {
            let mutant = &alive[number];
            let room = rooms.entry(mutant.room()).or_default();
            room.0 += 1;
            if let Verdict::Killed { by: suite, .. } = verdict {
                room.1 += 1;
                *by.entry(suite).or_default() += 1;
            } else {
                survivors.push(mutant.to_string());
            }
        }
        println!();
        for (room, (tested, killed)) in &rooms {
            println!("{room:<24} {killed:>5} of {tested:>5} killed: {:>5.1}%", percent(*killed, *tested));
        }
        for (suite, killed) in &by {
            println!("  {killed:>5} by {suite}");
        }
        let (tested, killed) = (verdicts.len(), verdicts.len() - survivors.len());
        println!("{killed} of {tested} mutants killed ({:.1}%) in {:.0} s", percent(killed, tested), took.as_secs_f64());
        Tested { tested, killed, survivors }
    }
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn percent(part: usize, whole: usize) -> f64 {
    if whole == 0 { 100.0 } else { part as f64 * 100.0 / whole as f64 }
}

/// Suites in the order in which they are tried.
fn names(suites: &[Suite]) -> Vec<&str> {
    suites.iter().map(|suite| suite.name.as_str()).collect()
}
