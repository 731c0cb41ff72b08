//! The tests that mutants meet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::weave::Built;

/// One command that must fail where a mutant is on.
pub struct Suite {
    /// Its name in reports.
    pub name: String,
    executable: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
}

/// How a mutant did.
pub enum Verdict {
    /// A suite failed.
    Killed {
        /// Which.
        by: String,
        /// After how long.
        after: Duration,
    },
    /// No suite runs its code.
    Unreached,
    /// Every suite passed.
    Survived {
        /// What that took.
        after: Duration,
    },
}

/// What a suite is like without a mutant.
pub struct Baseline {
    reached: BTreeSet<usize>,
    took: Duration,
}

/// A mutant that loops may also allocate: kibibytes of address space.
const MEMORY: u64 = 4 << 20;

/// The suites of a build: simulations, then every test of the sweeps and of the contract by itself.
pub fn suites(tree: &Path, built: &Built, thorough: bool) -> Result<Vec<Suite>> {
    let executable = |name: &str| built.executables.get(name).cloned().with_context(|| format!("no executable {name} was built"));
    let mut suites = Vec::new();
    let simulate = executable("simulate")?;
    for (world, seeds) in [("company", 2_000), ("patterns", 600), ("archives", 600)] {
        let arguments = ["--world", world, "--seeds", &seeds.to_string(), "--threads", "1", "--failures", "1", "--twice", "0"];
        let suite = Suite {
            name: format!("simulate --world {world}"),
            executable: simulate.clone(),
            arguments: arguments.map(str::to_owned).to_vec(),
            folder: tree.to_owned(),
        };
        // Worlds come and go with the program.
        if suite.probe() {
            suites.push(suite);
        }
    }
    let mut targets = vec!["protocol", "contract_embedded"];
    if thorough {
        targets.push("evenkeel");
    }
    for target in targets {
        let executable = executable(target)?;
        let listed = Command::new(&executable).arg("--list").current_dir(tree).output()?;
        for test in String::from_utf8_lossy(&listed.stdout).lines().filter_map(|line| line.strip_suffix(": test")) {
            suites.push(Suite {
                name: format!("{target} {test}"),
                executable: executable.clone(),
                arguments: vec!["--exact".to_owned(), test.to_owned(), "--test-threads=1".to_owned()],
                folder: tree.to_owned(),
            });
        }
    }
    Ok(suites)
}

/// Runs every suite without a mutant: what each reaches, and how long it takes.
pub fn reached(suites: &[Suite], tree: &Path) -> Result<Vec<Baseline>> {
    let records = tree.with_file_name("reached");
    drop(std::fs::remove_dir_all(&records));
    std::fs::create_dir_all(&records)?;
    let next = AtomicUsize::new(0);
    let done: Mutex<BTreeMap<usize, Result<Baseline>>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some((number, suite)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|n| Some((n, suites.get(n)?))) {
                    let record = records.join(number.to_string());
                    let baseline = suite.baseline(&record);
                    done.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(number, baseline);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let names = crate::names(suites);
    let mut baselines = Vec::new();
    for (number, baseline) in done {
        baselines.push(baseline.with_context(|| format!("without a mutant: {}", names[number]))?);
    }
    let all: BTreeSet<usize> = baselines.iter().flat_map(|baseline| baseline.reached.iter().copied()).collect();
    let took: Duration = baselines.iter().map(|baseline| baseline.took).sum();
    println!("{} suites reach {} mutants; together they take {:.0} s", suites.len(), all.len(), took.as_secs_f64());
    Ok(baselines)
}

/// Tests one mutant: the suites that reach it, the simulations first and then the shortest.
pub fn test(mutant: usize, suites: &[Suite], baselines: &[Baseline]) -> Verdict {
    let started = Instant::now();
    let mut reaching: Vec<(&Suite, &Baseline)> =
        suites.iter().zip(baselines).filter(|(_, baseline)| baseline.reached.contains(&mutant)).collect();
    if reaching.is_empty() {
        return Verdict::Unreached;
    }
    // A simulation ends with its first failure: most mutants do not live longer than a second there.
    reaching.sort_by_key(|(suite, baseline)| (!suite.name.starts_with("simulate"), baseline.took));
    for (suite, baseline) in reaching {
        match suite.run(Some(mutant), None, baseline.took * 5 + Duration::from_secs(20)) {
            Ended::Well => {}
            Ended::Badly => return Verdict::Killed { by: suite.name.clone(), after: started.elapsed() },
            Ended::Never => return Verdict::Killed { by: format!("{} (time)", suite.name), after: started.elapsed() },
        }
    }
    Verdict::Survived { after: started.elapsed() }
}

enum Ended {
    Well,
    Badly,
    Never,
}

impl Suite {
    /// Whether the program knows this world.
    fn probe(&self) -> bool {
        let mut arguments = self.arguments.clone();
        if let Some(seeds) = arguments.iter_mut().skip_while(|argument| *argument != "--seeds").nth(1) {
            "0".clone_into(seeds);
        }
        let status = Command::new(&self.executable).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
        // Without seeds no fault is met, which is exit code 1; an unknown world is a wrong usage.
        status.is_ok_and(|status| status.code() != Some(2))
    }

    fn baseline(&self, record: &Path) -> Result<Baseline> {
        let started = Instant::now();
        match self.run(None, Some(record), Duration::from_mins(30)) {
            Ended::Well => {}
            Ended::Badly => bail!("it fails"),
            Ended::Never => bail!("it does not end"),
        }
        let reached = std::fs::read_to_string(record).unwrap_or_default();
        Ok(Baseline { reached: reached.lines().filter_map(|line| line.parse().ok()).collect(), took: started.elapsed() })
    }

    fn run(&self, mutant: Option<usize>, record: Option<&Path>, most: Duration) -> Ended {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$0\" \"$@\"")]).arg(&self.executable).args(&self.arguments);
        command.current_dir(&self.folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(mutant) = mutant {
            command.env("EVENKEEL_MUTANT", mutant.to_string());
        }
        if let Some(record) = record {
            command.env("EVENKEEL_MUTANTS_REACHED", record);
        }
        let Ok(mut child) = command.spawn() else { return Ended::Badly };
        let started = Instant::now();
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return if status.success() { Ended::Well } else { Ended::Badly },
                Ok(None) if started.elapsed() < most => std::thread::sleep(Duration::from_millis(20)),
                _ => {
                    drop(child.kill());
                    drop(child.wait());
                    return Ended::Never;
                }
            }
        }
    }
}
