//! Mutation testing of the code that decides.
//!
//! ```text
//!   sources ─▶ find (syn): mutants as text edits ─▶ weave: every mutant behind `evenkeel_model::mutation::on(N)` ─▶ one build
//!             ▲                                                                                        │
//!             └── compile errors: the mutants at fault are dropped ◀───────────────────────────────────┤
//!                                                                                                      ▼
//!   report ◀── survivors ◀── each mutant: the suites that reach it, the cheapest first, under a timeout
//! ```
//!
//! With `--planted`, the bugs of `scripts/mutants.d/planted` replace the mutants that syn finds, and each must be caught ([`hunt`]).
//!
//! There is one build for all mutants, so that a mutant costs only the seconds until its first failing test. [`find`] documents which
//! mutants there are, and which classes are excluded and why.

mod find;
mod hunt;
mod planted;
mod report;
mod suites;
mod tree;
mod weave;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;

use crate::find::Mutant;
use crate::report::Progress;
use crate::suites::Extent;

/// Mutation testing of the code that decides.
#[derive(Debug, Parser)]
struct Args {
    /// Tests this many mutants, chosen by `--seed`; all by default.
    #[arg(long)]
    sample: Option<usize>,
    /// Order of the mutants, and thereby the choice of a sample.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Begins no further mutant after this many seconds of testing.
    #[arg(long)]
    seconds: Option<u64>,
    /// Only mutants in files whose path contains this text. Can be repeated.
    #[arg(long)]
    file: Vec<String>,
    /// Builds only the mutants of `--file` and their suites, which is faster.
    #[arg(long, requires = "file")]
    narrow: bool,
    /// Only the mutants with these numbers.
    #[arg(long)]
    mutant: Vec<usize>,
    /// Lists the mutants, or those of the sample, and ends.
    #[arg(long)]
    list: bool,
    /// Suites in which mutants are tested.
    #[arg(long, value_enum, default_value_t = Extent::Sweeps)]
    suites: Extent,
    /// Limits the sweeps per mutant to those that together take this many seconds without it, the shortest first.
    #[arg(long, default_value_t = 60)]
    sweeps: u64,
    /// Builds and ends.
    #[arg(long)]
    build: bool,
    /// Continues with the last build. Neither the sources nor the build may have changed since.
    #[arg(long, conflicts_with = "build")]
    built: bool,
    /// Number of concurrent runs; one per core by default.
    #[arg(long)]
    threads: Option<usize>,
    /// Prints the result as JSON on standard output, in addition to the text on standard error.
    #[arg(long)]
    json: bool,
    /// File with the names of mutants that are known to be killed, one per line without the line number. They are
    /// tested first. Unknown names are skipped.
    #[arg(long)]
    known: Option<PathBuf>,
    /// Fails if less than this percentage of the tested mutants is killed. With `--known`, only those mutants count.
    #[arg(long, default_value_t = 0)]
    at_least: usize,
    /// Writes the survivors to this file, one per line.
    #[arg(long)]
    survivors: Option<PathBuf>,
    /// Tests planted bugs (`scripts/mutants.d/planted`) instead of mutants. Each must be caught.
    #[arg(long)]
    planted: bool,
    /// Only the planted bugs that the first seeds or the exhaustive search catch.
    #[arg(long, requires = "planted")]
    soon: bool,
    /// Only the planted bugs with these names. Can be repeated.
    #[arg(long, requires = "planted")]
    bug: Vec<String>,
}

/// The mutated code, as path prefixes.
const SUBJECTS: &[&str] = &[
    "crates/engine/src/",
    "crates/worker/src/decide.rs",
    "crates/layers/src/retry/",
    "crates/layers/src/group/",
    "crates/sqlite/src/",
];

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    let root = tree::root()?;
    let threads = args
        .threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
    if args.planted {
        let bugs = hunt::chosen(&root, args.soon, &args.bug)?;
        return if args.list {
            bugs.print();
            Ok(ExitCode::SUCCESS)
        } else {
            bugs.hunt(&root, threads)
        };
    }
    let wanted = |mutant: &Mutant| {
        args.file.is_empty() || args.file.iter().any(|part| mutant.file.contains(part))
    };
    let mut all: BTreeMap<usize, Mutant> = find::mutants(&root, SUBJECTS)?
        .into_iter()
        .enumerate()
        .collect();
    if args.narrow {
        all.retain(|_, mutant| wanted(mutant));
    }
    if args.list {
        let mut listed = choose(
            &args,
            all.iter()
                .filter(|(_, mutant)| mutant.does != find::UNCONST && wanted(mutant)),
        );
        listed.sort_unstable();
        for number in listed {
            println!("{number:>5}  {}", all[&number]);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let began = Instant::now();
    let tree = tree::folder(&root);
    let built = if args.built {
        weave::built(&tree, all)?
    } else {
        weave::build(&root, &tree, all, args.suites)?
    };
    eprintln!(
        "{} mutants, {} more dropped, because they do not compile; built in {:.0} s",
        built.alive.len(),
        built.dropped,
        began.elapsed().as_secs_f64()
    );
    if args.build {
        return Ok(ExitCode::SUCCESS);
    }
    let suites = suites::suites(&tree, &built, args.suites)?;
    let reached = suites::reached(&suites, &tree, threads)?;

    let known = match &args.known {
        Some(file) => std::fs::read_to_string(file)
            .with_context(|| file.display().to_string())?
            .lines()
            .map(str::to_owned)
            .collect(),
        None => BTreeSet::new(),
    };
    let mut chosen = choose(
        &args,
        built.alive.iter().filter(|(_, mutant)| wanted(mutant)),
    );
    chosen.sort_by_key(|number| !known.contains(&built.alive[number].name()));
    let progress = Progress::of(chosen.len());
    let started = Instant::now();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(number) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if args
                        .seconds
                        .is_some_and(|most| started.elapsed() >= Duration::from_secs(most))
                    {
                        return;
                    }
                    let verdict =
                        suites::test(*number, &suites, &reached, Duration::from_secs(args.sweeps));
                    progress.add(*number, verdict, &built.alive[number]);
                }
            });
        }
    });
    let tested = progress.finish(&built.alive);
    tested.print(started.elapsed());
    if args.json {
        println!("{:#}", tested.json());
    }
    if let Some(file) = &args.survivors {
        std::fs::write(file, tested.survivors().join("\n") + "\n")
            .with_context(|| file.display().to_string())?;
    }
    let percentage = tested.percentage(|mutant| known.is_empty() || known.contains(&mutant.name()));
    if !known.is_empty() {
        eprintln!("{percentage}% of the mutants known to be killed");
    }
    Ok(if percentage >= args.at_least {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The mutants to test. Their order depends only on the seed and each mutant's name. So a time limit leaves a fair
/// sample, and a change of the code does not change the order of all others.
fn choose<'m>(args: &Args, mutants: impl Iterator<Item = (&'m usize, &'m Mutant)>) -> Vec<usize> {
    let mutants =
        mutants.filter(|(number, _)| args.mutant.is_empty() || args.mutant.contains(number));
    let mut chosen: Vec<(u64, usize)> = mutants
        .map(|(number, mutant)| (mixed(args.seed, mutant), *number))
        .collect();
    chosen.sort_unstable();
    chosen
        .into_iter()
        .map(|(_, number)| number)
        .take(args.sample.unwrap_or(usize::MAX))
        .collect()
}

/// FNV-1a of a mutant's name without its line, then SplitMix64's finish with the seed.
fn mixed(seed: u64, mutant: &Mutant) -> u64 {
    let hash = mutant
        .name()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let mut z = hash.wrapping_add((seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
