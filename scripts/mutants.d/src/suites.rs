//! The test suites for mutants.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::weave::BuildResult;

/// The executables of unit tests by crate (`weave::MUTATED`).
const UNITS: [&str; 4] = [
    "evenkeel_engine",
    "evenkeel_layers",
    "evenkeel_sqlite",
    "evenkeel_worker",
];

/// Which suites are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Extent {
    /// Only the simulation, which builds fastest.
    Simulation,
    /// Additionally the sweeps and the embedded store's contract.
    Sweeps,
    /// Additionally the unit tests.
    Unit,
}

/// A command that must fail if a mutant is active.
pub struct Suite {
    /// Its name in reports.
    pub name: String,
    executable: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    /// Suites with a lower rank run first.
    rank: u8,
    /// A simulation prints the failing seed. That a few seeds did not meet every kind of fault is not a failure.
    simulates: bool,
}

#[derive(Clone)]
pub enum Verdict {
    Killed {
        by: String,
        after: Duration,
    },
    /// No suite runs its code.
    Unreached,
    /// Every suite passed.
    Survived {
        after: Duration,
    },
}

/// A suite's behavior without a mutant.
pub struct Baseline {
    /// The mutants that it reaches.
    pub reached: BTreeSet<usize>,
    took: Duration,
}

/// Limit of the address space in KiB, because a mutant that loops may also allocate.
const MEMORY: u64 = 4 << 20;

/// Seeds by world and rank. Most mutants do not survive the first dozens, and a survivor must not take minutes.
const SEEDS: [(u8, &str, u64, u64); 6] = [
    (0, "company", 0, 60),
    (1, "patterns", 0, 30),
    (1, "archives", 0, 30),
    (2, "company", 60, 240),
    (2, "patterns", 30, 70),
    (2, "archives", 30, 70),
];

/// The suites of a build: simulations, then each test of the sweeps and of the contract.
pub fn suites(tree: &Path, built: &BuildResult, extent: Extent) -> Result<Vec<Suite>> {
    let executable = |name: &str| {
        built
            .executables
            .get(name)
            .cloned()
            .with_context(|| format!("executable {name} was not built"))
    };
    let mut suites = Vec::new();
    let simulate = executable("simulate")?;
    for (rank, world, from, seeds) in SEEDS {
        suites.push(Suite {
            rank,
            ..Suite::of_seeds(&simulate, tree, world, from, seeds)
        });
    }
    // The library's executable contains the unit tests.
    let mut targets = vec![("it", "protocol::"), ("it", "contract::embedded::")];
    if extent == Extent::Unit {
        targets.extend(UNITS.iter().map(|name| (*name, "")));
    }
    for (target, module) in targets
        .into_iter()
        .filter(|(target, _)| built.executables.contains_key(*target))
    {
        let executable = executable(target)?;
        let listed = Command::new(&executable)
            .arg("--list")
            .current_dir(tree)
            .output()?;
        for test in String::from_utf8_lossy(&listed.stdout)
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .filter(|test| test.starts_with(module))
        {
            suites.push(Suite {
                name: format!("{target} {test}"),
                executable: executable.clone(),
                arguments: vec![
                    "--exact".to_owned(),
                    test.to_owned(),
                    "--test-threads=1".to_owned(),
                ],
                folder: tree.to_owned(),
                rank: 2,
                simulates: false,
            });
        }
    }
    Ok(suites)
}

/// Runs every suite without a mutant, to find which mutants it reaches and how long it takes.
pub fn reached(suites: &[Suite], tree: &Path, threads: usize) -> Result<Vec<Baseline>> {
    let records = tree.with_file_name("reached").join(of_build(suites)?);
    std::fs::create_dir_all(&records)?;
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Result<Baseline>>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, suite)) = Some(next.fetch_add(1, Ordering::Relaxed))
                    .and_then(|n| Some((n, suites.get(n)?)))
                {
                    let record = records.join(number.to_string());
                    let baseline = suite.baseline(&record);
                    done.lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .insert(number, baseline);
                }
            });
        }
    });
    let done = done
        .into_inner()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut baselines = Vec::new();
    for (number, baseline) in done {
        baselines.push(baseline.with_context(|| {
            format!("the suite fails without a mutant: {}", suites[number].name)
        })?);
    }
    let all: BTreeSet<usize> = baselines
        .iter()
        .flat_map(|baseline| baseline.reached.iter().copied())
        .collect();
    let took: Duration = baselines.iter().map(|baseline| baseline.took).sum();
    eprintln!(
        "{} suites reach {} mutants; together they take {:.0} s",
        suites.len(),
        all.len(),
        took.as_secs_f64()
    );
    let mut longest: Vec<(&Suite, &Baseline)> = suites.iter().zip(&baselines).collect();
    longest.sort_by_key(|(_, baseline)| std::cmp::Reverse(baseline.took));
    for (suite, baseline) in longest.iter().take(12) {
        eprintln!("  {:>6.1} s {}", baseline.took.as_secs_f64(), suite.name);
    }
    Ok(baselines)
}

/// A hash of the executables and arguments. Records of another build are not valid.
fn of_build(suites: &[Suite]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for suite in suites {
        let file = std::fs::metadata(&suite.executable)?;
        (&suite.name, file.len(), file.modified()?).hash(&mut hasher);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// The failure in the simulation's output.
pub fn failure(said: &str) -> Option<&str> {
    said.lines().find_map(|line| line.strip_prefix("FAILED: "))
}

impl Baseline {
    fn read(record: &Path, took: Duration) -> Self {
        let reached = std::fs::read_to_string(record).unwrap_or_default();
        Self {
            reached: reached
                .lines()
                .filter_map(|line| line.parse().ok())
                .collect(),
            took,
        }
    }
}

/// Tests one mutant in the suites that reach it: first a few seeds of each world, then the shortest suites, until
/// sweeps have taken `most`.
pub fn test(mutant: usize, suites: &[Suite], baselines: &[Baseline], most: Duration) -> Verdict {
    let started = Instant::now();
    let mut reaching: Vec<(&Suite, &Baseline)> = suites
        .iter()
        .zip(baselines)
        .filter(|(_, baseline)| baseline.reached.contains(&mutant))
        .collect();
    if reaching.is_empty() {
        return Verdict::Unreached;
    }
    reaching.sort_by_key(|(suite, baseline)| (suite.rank, baseline.took));
    let mut swept = Duration::ZERO;
    for (suite, baseline) in reaching {
        if !suite.simulates {
            swept += baseline.took;
            if swept > most {
                continue;
            }
        }
        match suite.with(mutant, baseline).0 {
            SuiteEnd::Well => {}
            SuiteEnd::Badly => {
                return Verdict::Killed {
                    by: suite.name.clone(),
                    after: started.elapsed(),
                };
            }
            SuiteEnd::Never => {
                return Verdict::Killed {
                    by: format!("{} (time)", suite.name),
                    after: started.elapsed(),
                };
            }
        }
    }
    Verdict::Survived {
        after: started.elapsed(),
    }
}

pub enum SuiteEnd {
    Well,
    Badly,
    Never,
}

impl Suite {
    /// Runs seeds of a world up to the first failing one.
    pub fn of_seeds(simulate: &Path, folder: &Path, world: &str, from: u64, seeds: u64) -> Self {
        let arguments = format!("--world {world} --from {from} --seeds {seeds}");
        Self {
            name: format!("simulate {arguments}"),
            ..Self::of_simulate(
                simulate,
                folder,
                &format!("{arguments} --threads 1 --failures 1 --twice 0"),
            )
        }
    }

    pub fn of_simulate(simulate: &Path, folder: &Path, arguments: &str) -> Self {
        Self {
            name: format!("simulate {arguments}"),
            executable: simulate.to_owned(),
            arguments: arguments.split(' ').map(str::to_owned).collect(),
            folder: folder.to_owned(),
            rank: 0,
            simulates: true,
        }
    }

    /// Reads the baseline from the record, if there is one for this build.
    pub fn baseline(&self, record: &Path) -> Result<Baseline> {
        let time = record.with_extension("ms");
        if let Ok(millis) = std::fs::read_to_string(&time) {
            return Ok(Baseline::read(
                record,
                Duration::from_millis(millis.trim().parse()?),
            ));
        }
        let started = Instant::now();
        let (ended, said) = self.run(None, Some(record), Duration::from_mins(30));
        match ended {
            SuiteEnd::Well => {}
            SuiteEnd::Badly => bail!("it fails: {}", failure(&said).unwrap_or_default()),
            SuiteEnd::Never => bail!("it does not terminate"),
        }
        let took = started.elapsed();
        std::fs::write(time, took.as_millis().to_string())?;
        Ok(Baseline::read(record, took))
    }

    /// Runs with a mutant. Returns the output if the suite is a simulation.
    pub fn with(&self, mutant: usize, baseline: &Baseline) -> (SuiteEnd, String) {
        let most = baseline.took * 4 + Duration::from_secs(4);
        self.run(Some(mutant), None, most)
    }

    /// Runs with a limit of processor time, so that a busy machine kills no mutant. A process that waits without
    /// computing is ended by the clock.
    fn run(
        &self,
        mutant: Option<usize>,
        record: Option<&Path>,
        most: Duration,
    ) -> (SuiteEnd, String) {
        let mut command = Command::new("sh");
        let limits = format!(
            "ulimit -v {MEMORY}; ulimit -t {}; exec \"$0\" \"$@\"",
            most.as_secs().max(1)
        );
        command
            .args(["-c", &limits])
            .arg(&self.executable)
            .args(&self.arguments);
        command
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null());
        command.stdout(if self.simulates {
            Stdio::piped()
        } else {
            Stdio::null()
        });
        if let Some(mutant) = mutant {
            command.env("EVENKEEL_MUTANT", mutant.to_string());
        }
        if let Some(record) = record {
            command.env("EVENKEEL_MUTANTS_REACHED", record);
        }
        let Ok(mut child) = command.spawn() else {
            return (SuiteEnd::Badly, String::new());
        };
        let started = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => {
                    let mut said = String::new();
                    if let Some(mut stdout) = child.stdout.take() {
                        drop(stdout.read_to_string(&mut said));
                    }
                    return (self.ended(status, &said), said);
                }
                Ok(None) if started.elapsed() < most * 20 => {
                    std::thread::sleep(Duration::from_millis(5))
                }
                _ => {
                    drop(child.kill());
                    drop(child.wait());
                    return (SuiteEnd::Never, String::new());
                }
            }
        }
    }

    fn ended(&self, status: ExitStatus, said: &str) -> SuiteEnd {
        const OUT_OF_TIME: [i32; 2] = [9, 24]; // SIGKILL, SIGXCPU
        match status.code() {
            Some(0) => SuiteEnd::Well,
            Some(1)
                if self.simulates
                    && !said.lines().any(|line| {
                        line.starts_with("FAILED") || line.starts_with("NOT REPEATABLE")
                    }) =>
            {
                SuiteEnd::Well
            }
            None if status
                .signal()
                .is_some_and(|signal| OUT_OF_TIME.contains(&signal)) =>
            {
                SuiteEnd::Never
            }
            _ => SuiteEnd::Badly,
        }
    }
}
