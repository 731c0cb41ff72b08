//! The simulation as an ordinary test: some hundreds of seeds, some of which run twice, and every seed that has ever
//! found a violation.
//!
//! `cargo run --release -p evenkeel-simulation -- --seeds 10000` runs more seeds, and prints the story of a seed that
//! fails.

use evenkeel_simulation::{
    GroupedRequests, RunLimits, RunRequest, SimulationReport, Tally, World, run,
};

/// Seeds that once found a violation, in the program or in the oracle. If the simulated world changes, a seed produces
/// another story.
const FOUND: [u64; 35] = [
    807, 1_567, 2_140, 2_541, 3_770, 5_705, 6_207, 10_139, 12_494, 12_926, 13_416, 20_809, 21_243,
    23_299, 24_589, 27_755, 29_662, 32_146, 33_908, 35_220, 45_502, 46_303, 48_455, 52_704, 53_459,
    59_006, 223_124, 506_014, 514_556, 615_834, 750_006, 937_542, 1_011_597, 3_044_530, 4_100_810,
];
const FOUND_IN_PATTERNS: [u64; 16] = [
    26, 108, 290, 625, 757, 1_244, 1_269, 1_615, 1_962, 2_237, 2_998, 30_834, 501_700, 502_744,
    3_088_185, 3_093_062,
];
const FOUND_IN_ARCHIVES: [u64; 12] = [
    187, 912, 1_120, 3_191, 5_585, 7_176, 9_397, 12_114, 15_301, 21_084, 22_303, 706_494,
];
const FOUND_IN_RELEASES: [u64; 2] = [121, 4_000_166];
const FOUND_WITHOUT_FAULTS: [u64; 1] = [17_560];
const SEEDS: u64 = 300;

/// Number of seeds without faults, in each of two worlds.
const WITHOUT_FAULTS: u64 = 40;

const PATTERNS: u64 = 60;

const ARCHIVES: u64 = 500;

const RELEASES: u64 = 60;

fn seed(seed: u64) -> SimulationReport {
    run(&RunRequest {
        seed,
        ..RunRequest::default()
    })
}

fn without_faults(world: World, seed: u64) -> SimulationReport {
    run(&RunRequest {
        world,
        seed,
        allowed: RunLimits {
            faults: 0,
            ..RunLimits::default()
        },
        ..RunRequest::default()
    })
}

fn patterns(seed: u64) -> SimulationReport {
    run(&RunRequest {
        world: World::Patterns,
        seed,
        ..RunRequest::default()
    })
}

fn archives(seed: u64) -> SimulationReport {
    run(&RunRequest {
        world: World::Archives,
        seed,
        ..RunRequest::default()
    })
}

fn releases(seed: u64) -> SimulationReport {
    run(&RunRequest {
        world: World::Releases,
        seed,
        ..RunRequest::default()
    })
}

fn all_is_well(report: &SimulationReport) {
    if let Some(violation) = &report.violation {
        panic!(
            "seed {}: {violation}\nrun: cargo run --release -p evenkeel-simulation -- --world {1} --seed {0} --shrink --trace",
            report.seed, report.world
        );
    }
}

#[test]
fn nothing_is_lost_and_all_data_converges_in_the_company() {
    let mut tally = Tally::default();
    for n in 0..SEEDS {
        let report = seed(n);
        all_is_well(&report);
        tally.add(&report);
    }
    assert_eq!(
        tally.never_hit(World::Company),
        [],
        "these kinds of faults never occurred"
    );
    let GroupedRequests {
        writes,
        late,
        reads,
    } = tally.together;
    assert!(
        writes > 0 && late > 0 && reads > 0,
        "jobs of one partition never met in one request: {:?}",
        tally.together
    );
    let median = tally.median();
    assert!(
        median.jobs >= 20 && median.operations >= 200 && median.faults >= 1,
        "the median seed does too little: {median:?}"
    );
}

/// Contention alone, without faults, must leave nothing to a recheck. Otherwise derived data would be stale for half an
/// hour.
#[test]
fn contention_without_faults_leaves_nothing_to_a_recheck() {
    let mut judged = 0;
    for world in [World::Company, World::Patterns] {
        for n in 0..WITHOUT_FAULTS {
            let report = without_faults(world, n);
            all_is_well(&report);
            judged += u64::from(report.redelivered == 0 && report.poisoned == 0);
        }
    }
    assert!(
        judged >= WITHOUT_FAULTS / 2,
        "only {judged} runs were checked before their rechecks"
    );
    for n in FOUND_WITHOUT_FAULTS {
        all_is_well(&without_faults(World::Company, n));
    }
}

#[test]
fn nothing_is_lost_and_all_data_converges_in_the_patterns() {
    let mut tally = Tally::default();
    for n in 0..PATTERNS {
        let report = patterns(n);
        all_is_well(&report);
        tally.add(&report);
    }
    assert_eq!(
        tally.never_seen(World::Patterns),
        [],
        "these rare events never occurred"
    );
    let median = tally.median();
    assert!(
        median.jobs >= 20 && median.operations >= 200 && median.faults >= 1,
        "the median seed does too little: {median:?}"
    );
}

#[test]
fn nothing_is_lost_and_all_data_converges_in_the_archives() {
    let mut tally = Tally::default();
    for n in 0..ARCHIVES {
        let report = archives(n);
        all_is_well(&report);
        tally.add(&report);
    }
    assert_eq!(
        tally.never_seen(World::Archives),
        [],
        "these rare events never occurred"
    );
    let median = tally.median();
    assert!(
        median.jobs >= 20 && median.operations >= 200 && median.faults >= 1,
        "the median seed does too little: {median:?}"
    );
}

#[test]
fn all_data_matches_the_last_catalog_in_the_releases() {
    let mut tally = Tally::default();
    for n in 0..RELEASES {
        let report = releases(n);
        all_is_well(&report);
        tally.add(&report);
    }
    assert_eq!(
        tally.never_seen(World::Releases),
        [],
        "these rare events never occurred"
    );
    let median = tally.median();
    assert!(
        median.jobs >= 20 && median.operations >= 200 && median.faults >= 1,
        "the median seed does too little: {median:?}"
    );
}

#[test]
fn seeds_that_found_a_violation_pass() {
    for n in FOUND {
        all_is_well(&seed(n));
    }
    for n in FOUND_IN_PATTERNS {
        all_is_well(&patterns(n));
    }
    for n in FOUND_IN_ARCHIVES {
        all_is_well(&archives(n));
    }
    for n in FOUND_IN_RELEASES {
        all_is_well(&releases(n));
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for n in 1_000..1_030 {
        let (one, other) = (seed(n), seed(n));
        assert_eq!(
            (one.hash, one.operations, one.virtual_time),
            (other.hash, other.operations, other.virtual_time),
            "seed {n}"
        );
    }
    for n in 1_000..1_010 {
        assert_eq!(
            patterns(n).hash,
            patterns(n).hash,
            "seed {n} of the patterns"
        );
        assert_eq!(
            archives(n).hash,
            archives(n).hash,
            "seed {n} of the archives"
        );
        assert_eq!(
            releases(n).hash,
            releases(n).hash,
            "seed {n} of the releases"
        );
    }
}
