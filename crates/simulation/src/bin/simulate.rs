//! `simulate`: runs the daemon's own code in a simulated world, seed by seed, and reports violations.
//!
//! ```text
//! simulate --seeds 10000             seeds 0 to 9999, on every core
//! simulate --seed 4711 --trace       one seed, with its story
//! simulate --seed 4711 --shrink      one failing seed, with the shortest story that can be found
//! simulate --world patterns          another world: `patterns`, `archives` or `releases`
//! simulate --faultless               no faults, so nothing may be left to a recheck
//! simulate --explore                 every interleaving of a tiny world, and no seeds
//! simulate --seed 4711 --cut 12.345:77   a script: after 12.345 s the random numbers come from seed 77
//! simulate --seed 4711 --cut 12.345:0 --tails 200   200 scripts: possible continuations of the seed after 12.345 s
//! simulate --scale                   primaries per second, within Azure's published limits
//! simulate --scale --workers 1,4 --shards 4 --batch 100   the throughput with these combinations
//! simulate --scale --workers 1 --arrivals 333   time from a write to the end of its job, while a worker is busy
//! ```
//!
//! Exit codes: 0 no violation; 1 a seed failed or was not repeatable, or a kind of fault or a rare event never occurred.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line program"
)]

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clap::Parser;
use evenkeel_simulation::explore::{Script, SearchReport, explore, scripts};
use evenkeel_simulation::scale::{HotSpot, ScaleReport, ScaleRequest, scale};
use evenkeel_simulation::{
    Cut, FaultKind, GroupedRequests, Median, RareEvent, RunLimits, RunRequest, SimulationReport,
    Tally, World, run, shrink,
};
use evenkeel_storage::Clock as _;
use evenkeel_storage::system::SystemClock;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Runs the daemon's own code in a simulated world, seed by seed.
#[derive(Debug, Parser)]
#[command(name = "simulate")]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
struct Args {
    /// The world: company (rows), patterns (blobs, wide entities, ranges, moves, audits), archives (logs, documents,
    /// files, dated tables, a search index) or releases (successive catalogs, several accounts).
    #[arg(long, default_value_t)]
    world: World,
    /// Number of seeds.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// First seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Runs only this seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints the whole story of the seed.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Finds the shortest story of the seed's failure.
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// Changes the seed of the random numbers at a time of the run: `12.345:77` uses seed 77 after 12.345 seconds.
    /// Several cuts may be given, separated by commas.
    #[arg(long, requires = "seed", value_delimiter = ',')]
    cut: Vec<Cut>,
    /// Runs the seed with this many different ends, on one thread. The seed of the last cut is incremented each time.
    #[arg(long, requires = "cut", conflicts_with_all = ["trace", "shrink"])]
    tails: Option<u64>,
    /// Searches every interleaving of a tiny world, until one fails.
    #[arg(long, conflicts_with = "seed")]
    explore: bool,
    /// Ends each search after this many executions.
    #[arg(long, requires = "explore")]
    executions: Option<u64>,
    /// Runs only the searches whose description contains this text, such as `a crash`.
    #[arg(long, requires = "explore", default_value = "")]
    only: String,
    /// Measures the throughput of workers within Azure's published limits, from a backlog, in virtual time.
    #[arg(long, conflicts_with_all = ["seed", "explore"])]
    scale: bool,
    /// Measurement: numbers of workers.
    #[arg(long, requires = "scale", value_delimiter = ',')]
    workers: Vec<usize>,
    /// Measurement: numbers of queues that share the jobs.
    #[arg(long, requires = "scale", value_delimiter = ',')]
    shards: Vec<u32>,
    /// Measurement: numbers of primaries per message.
    #[arg(long, requires = "scale", value_delimiter = ',')]
    batch: Vec<usize>,
    /// Measurement: number of primaries. The default takes about 20 seconds of virtual time.
    #[arg(long, requires = "scale")]
    primaries: Option<usize>,
    /// Measurement: number of partitions of the primaries' table.
    #[arg(long, requires = "scale", default_value_t = 64)]
    partitions: usize,
    /// Measurement: one partition is hot. It receives a tenth of the jobs, and an application reads 1,900 entities per
    /// second from its footprints.
    #[arg(long, requires = "scale")]
    hot: bool,
    /// Measurement: an application writes this many primaries per second while workers are busy, each with its own
    /// message.
    #[arg(long, requires = "scale", conflicts_with = "batch")]
    arrivals: Option<f64>,
    /// Measurement: workers do not pace themselves.
    #[arg(long, requires = "scale")]
    unpaced: bool,
    /// Number of threads; one per core by default.
    #[arg(long)]
    threads: Option<NonZero<usize>>,
    /// Injects no faults, so that only the workers affect each other.
    #[arg(long)]
    faultless: bool,
    /// In the world `releases`, one account refuses everything for a long time. Without this option, this happens in a
    /// quarter of the seeds.
    #[arg(long)]
    away: bool,
    /// Runs one in this many seeds twice, and compares the hashes.
    #[arg(long, default_value_t = 100)]
    twice: u64,
    /// Ends after this many failing seeds.
    #[arg(long, default_value_t = 10)]
    failures: usize,
}

fn run_request(args: &Args, seed: u64) -> RunRequest {
    let allowed = RunLimits {
        faults: if args.faultless { 0 } else { u64::MAX },
        ..RunLimits::default()
    };
    RunRequest {
        world: args.world,
        seed,
        away: args.away,
        allowed,
        ..RunRequest::default()
    }
}

/// Returns the options that reproduce a run, in addition to its world and seed.
fn flags(request: &RunRequest) -> String {
    let given = [
        (request.away, " --away"),
        (request.allowed.faults == 0, " --faultless"),
    ];
    given
        .into_iter()
        .filter_map(|(is_given, flag)| is_given.then_some(flag))
        .collect()
}

fn main() -> ExitCode {
    let args = Args::parse();
    let well = match args.seed {
        Some(seed) => {
            let request = RunRequest {
                cuts: args.cut.clone(),
                keeps_story: args.trace,
                ..run_request(&args, seed)
            };
            match args.tails {
                Some(tails) => run_tails(&request, tails, args.failures),
                None if args.shrink => run_shrunk(&request),
                None => run_seed(&request),
            }
        }
        None if args.scale => measure_all(&args),
        None if args.explore => run_searches(&args, args.executions.unwrap_or(u64::MAX)),
        None => run_seeds(&args),
    };
    if well {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn run_seed(request: &RunRequest) -> bool {
    let report = run(request);
    for line in &report.story {
        println!("{line}");
    }
    let SimulationReport {
        seed,
        hash,
        operations,
        polls,
        jobs,
        virtual_time,
        ..
    } = &report;
    println!(
        "seed {seed}: hash {hash:016x}, {jobs} jobs, {} operations and {polls} empty polls in {virtual_time:.1?}",
        operations - polls
    );
    for fault in FaultKind::ALL
        .into_iter()
        .filter(|fault| report.faults.of(*fault) > 0)
    {
        println!("  {:>6} × {fault}", report.faults.of(fault));
    }
    match &report.violation {
        None => println!("no violation"),
        Some(violation) => println!("FAILED: {violation}"),
    }
    report.violation.is_none()
}

fn run_tails(request: &RunRequest, tails: u64, most: usize) -> bool {
    let (mut ran, mut failed) = (0, 0);
    let Some((last, earlier)) = request.cuts.split_last() else {
        return true;
    };
    for tail in 0..tails {
        let cuts: Vec<Cut> = earlier
            .iter()
            .copied()
            .chain([Cut {
                seed: last.seed.wrapping_add(tail),
                ..*last
            }])
            .collect();
        let report = run(&RunRequest {
            cuts: cuts.clone(),
            ..request.clone()
        });
        ran += 1;
        if let Some(violation) = report.violation {
            failed += 1;
            let cuts: Vec<String> = cuts.iter().map(|cut| format!(" --cut {cut}")).collect();
            println!("FAILED: {violation:.300}");
            println!(
                "  simulate --world {}{} --seed {}{} --shrink --trace",
                request.world,
                flags(request),
                request.seed,
                cuts.concat()
            );
        }
        if failed >= most {
            break;
        }
    }
    println!("{ran} scripts, {failed} failed");
    failed == 0
}

/// Shrinks a failing seed, and runs the result.
fn run_shrunk(request: &RunRequest) -> bool {
    let Some(allowed) = shrink(request) else {
        println!(
            "seed {} does not fail, so there is nothing to shrink",
            request.seed
        );
        return true;
    };
    let RunLimits {
        without,
        faults,
        step_groups,
        workers,
    } = &allowed;
    let step_groups = step_groups
        .as_ref()
        .map_or(0, std::collections::BTreeSet::len);
    let workers = if *workers == usize::MAX {
        "all".to_owned()
    } else {
        workers.to_string()
    };
    println!(
        "the seed still fails with {workers} workers, {faults} faults and {step_groups} steps of the client, without:"
    );
    for fault in without {
        println!("  {fault}");
    }
    run_seed(&RunRequest {
        allowed,
        ..request.clone()
    })
}

/// The default combinations: workers, shards, primaries per message, primaries.
const MEASURED: [(usize, u32, usize, usize); 14] = [
    (1, 1, 1, 20_000),
    (4, 1, 1, 20_000),
    (1, 4, 1, 40_000),
    (4, 4, 1, 60_000),
    (4, 8, 1, 80_000),
    (8, 8, 1, 80_000),
    (16, 16, 1, 80_000),
    (64, 16, 1, 80_000),
    (1, 1, 10, 40_000),
    (4, 4, 10, 100_000),
    (1, 1, 100, 60_000),
    (4, 1, 100, 150_000),
    (16, 4, 100, 200_000),
    (4, 1, 1_000, 200_000),
];

fn measure_all(args: &Args) -> bool {
    let usual = args.workers.is_empty() && args.shards.is_empty() && args.batch.is_empty();
    let or_one = |given: &[usize]| {
        if given.is_empty() {
            vec![1]
        } else {
            given.to_vec()
        }
    };
    let shards = if args.shards.is_empty() {
        vec![1]
    } else {
        args.shards.clone()
    };
    let (workers, batches) = (or_one(&args.workers), or_one(&args.batch));
    let chosen = workers.iter().flat_map(|workers| {
        shards.iter().flat_map(|shards| {
            batches
                .iter()
                .map(|batch| (*workers, *shards, *batch, 20_000))
        })
    });
    let measured: Vec<_> = if usual {
        MEASURED.to_vec()
    } else {
        chosen.collect()
    };
    println!(
        "| workers | queues | batch | primaries/s | requests each | to queues | 503 | queue | partition | account | fairness (workers, partitions) | limited by |"
    );
    println!("| --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --: | --- |");
    for (workers, shards, batch, primaries) in measured {
        let hot = args.hot.then_some(HotSpot {
            one_in: 10,
            others: 1_900,
            apart: false,
        });
        let primaries = args.primaries.unwrap_or(primaries);
        let request = ScaleRequest {
            workers,
            shards,
            batch,
            primaries,
            partitions: args.partitions,
            hot,
            paced: !args.unpaced,
            arrivals: args.arrivals,
            ..ScaleRequest::default()
        };
        let report = match scale(&request) {
            Ok(report) => report,
            Err(error) => {
                println!("FAILED: {request:?}: {error:#}");
                return false;
            }
        };
        let ScaleReport {
            primaries_per_second,
            requests_each,
            queue_requests_each,
            refused,
            load,
            fair_workers,
            fair_partitions,
            ..
        } = &report;
        let percent = |share: f64| format!("{:.0}%", share * 100.0);
        println!(
            "| {workers} | {shards} | {batch} | {primaries_per_second:.0} | {requests_each:.2} | {queue_requests_each:.2} | {:.2}% | {} | {} | {} | {fair_workers:.2}, {fair_partitions:.2} | {} |",
            refused * 100.0,
            percent(load.queue),
            percent(load.partition),
            percent(load.account),
            load.wall()
        );
        if let Some((half, most)) = report.found_within {
            println!(
                "from write to the end of the job: {half:.0?} for half of the primaries, {most:.0?} for 99%"
            );
        }
    }
    true
}

fn threads(args: &Args) -> usize {
    args.threads
        .or_else(|| std::thread::available_parallelism().ok())
        .map_or(1, NonZero::get)
}

#[expect(clippy::cast_precision_loss, reason = "printed for people")]
fn run_searches(args: &Args, most: u64) -> bool {
    let threads = threads(args);
    let is_asked =
        |Script { client, wrong, .. }: &Script| format!("{client}; {wrong}").contains(&args.only);
    let searches: Vec<Script> = scripts().filter(is_asked).collect();
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, script)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|n| Some((n, searches.get(n)?)))
                {
                    let explored = explore(script, most, None);
                    if explored.violation.is_some() {
                        next.store(searches.len(), Ordering::Relaxed);
                    }
                    let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                    done.push((number, explored));
                    eprint!("\r{} of {} searches ", done.len(), searches.len());
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_unstable_by_key(|(number, _)| *number);
    let took = clock.monotonic().as_secs_f64().max(0.001);
    eprintln!("\r{:60}", "");
    println!(
        "{:>11} {:>10} {:>9} {:>5} {:>8}  interleavings  client; faults",
        "executions", "states", "cut", "ends", "points"
    );
    let mut executions = 0;
    for (number, explored) in &done {
        executions += explored.executions;
        let SearchReport {
            executions,
            states,
            cut,
            ends,
            points,
            interleavings,
            complete,
            ..
        } = explored;
        let stopped = if *complete { "" } else { " (incomplete)" };
        let Script { client, wrong, .. } = searches[*number];
        println!(
            "{executions:>11} {states:>10} {cut:>9} {ends:>5} {points:>8}  {interleavings:>13.1e}  {client}; {wrong}{stopped}"
        );
    }
    println!(
        "{executions} executions in {took:.1} s on {threads} threads: {:.0} executions/s",
        executions as f64 / took
    );
    let mut well = true;
    for (number, explored) in &done {
        if let Some((violation, steps)) = &explored.violation {
            well = false;
            println!(
                "FAILED: {}; {}: {violation}",
                searches[*number].client, searches[*number].wrong
            );
            for step in steps {
                println!("  {step}");
            }
        }
    }
    well
}

fn run_seeds(args: &Args) -> bool {
    let threads = threads(args);
    let (next, end) = (
        AtomicU64::new(args.from),
        args.from.saturating_add(args.seeds),
    );
    let (all, unrepeatable) = (Mutex::new(Tally::default()), Mutex::new(Vec::new()));
    let clock = SystemClock::new();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = Tally::default();
                let mut flushed = clock.monotonic();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let flush = !own.failed.is_empty()
                        || clock.monotonic().saturating_sub(flushed) >= Duration::from_secs(1);
                    if seed >= end || flush {
                        flushed = clock.monotonic();
                        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                        all.absorb(std::mem::take(&mut own));
                        if seed >= end || all.failed.len() >= args.failures {
                            return;
                        }
                        eprint!(
                            "\r{} of {} seeds, {} failed ",
                            all.seeds,
                            args.seeds,
                            all.failed.len()
                        );
                    }
                    let request = run_request(args, seed);
                    let report = run(&request);
                    if args.twice > 0 && seed % args.twice == 0 && run(&request).hash != report.hash
                    {
                        unrepeatable
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(seed);
                    }
                    own.add(&report);
                }
            });
        }
    });
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    let unrepeatable = unrepeatable
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    eprintln!("\r{:60}", "");
    print_summary(&all, clock.monotonic(), threads);
    for seed in &unrepeatable {
        println!("NOT REPEATABLE: seed {seed} gave two hashes");
    }
    for (seed, violation) in &all.failed {
        println!(
            "FAILED: seed {seed}: {violation:.300}\n  simulate --world {}{} --seed {seed} --shrink --trace",
            args.world,
            flags(&run_request(args, *seed))
        );
    }
    let unseen = all.never_seen(args.world);
    for rare_event in &unseen {
        println!("NEVER SEEN: {rare_event}; these seeds do not test it");
    }
    let never = all.never_hit(args.world);
    for fault in &never {
        println!("NEVER MET: {fault}; these seeds do not test it");
    }
    all.failed.is_empty() && unrepeatable.is_empty() && never.is_empty() && unseen.is_empty()
}

#[expect(clippy::cast_precision_loss, reason = "printed for people")]
fn print_summary(all: &Tally, took: Duration, threads: usize) {
    let Median {
        jobs,
        operations,
        faults,
    } = all.median();
    let real = took.as_secs_f64().max(0.001);
    let days = all.virtual_time.as_secs_f64() / 86_400.0;
    println!(
        "{} seeds in {real:.1} s on {threads} threads: {:.0} seeds/s",
        all.seeds,
        all.seeds as f64 / real
    );
    println!(
        "{days:.1} days of virtual time, {:.0} × real time",
        all.virtual_time.as_secs_f64() / real
    );
    println!(
        "{} jobs of clients and {} of workers, {} done (including {} rechecks), {} poisoned, {} redeliveries",
        all.jobs, all.sent_on, all.done, all.rechecks, all.poisoned, all.redelivered
    );
    println!(
        "{} operations, not counting {} empty polls",
        all.operations - all.polls,
        all.polls
    );
    let GroupedRequests {
        writes,
        late,
        reads,
    } = all.together;
    for rare_event in RareEvent::ALL
        .into_iter()
        .filter(|rare_event| all.rare_events.of(*rare_event) > 0)
    {
        println!("  {:>9} × {rare_event}", all.rare_events.of(rare_event));
    }
    println!(
        "{writes} transactions of several rows, {late} of them late, and {reads} range queries"
    );
    println!("the median seed: {jobs} jobs, {operations} operations, {faults} faults");
    println!(
        "the backlog was drained {:.1?} after the last fault in half of the seeds, {:.1?} in 99%",
        all.drained_after(0.5),
        all.drained_after(0.99)
    );
    println!("{} faults:", all.faults.total());
    for fault in FaultKind::ALL {
        println!("  {:>9} × {fault}", all.faults.of(fault));
    }
    println!(
        "known limit met: {} × a late insert restored a deleted entity",
        all.resurrections
    );
}
