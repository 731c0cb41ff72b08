//! Planted bugs, each tried in its suites until one of them notices.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use crate::planted::{self, Bug, BugPlace, Caught};
use crate::suites::{Suite, SuiteEnd, failure};
use crate::{tree, weave};

/// First seed and number of seeds per world. The first range alone must catch the bugs marked `soon`.
const SEEDS: [(u64, u64); 5] = [(0, 40), (40, 120), (160, 340), (500, 500), (1_000, 1_000)];
const WORLDS: [&str; 3] = ["company", "patterns", "releases"];
/// The exhaustive search with races only.
const SEARCH: &str = "--explore --only nothing --executions 20000 --threads 1";

pub struct Bugs {
    /// All bugs; the index is a bug's number.
    all: Vec<Bug>,
    places: Vec<BugPlace>,
    chosen: Vec<usize>,
    /// The first seeds are enough for the chosen bugs.
    few: bool,
}

struct Detection {
    by: String,
    after: f64,
}

/// The bugs with these names; without a name all except unmet ones, or those marked `soon`.
pub fn chosen(root: &Path, soon: bool, names: &[String]) -> Result<Bugs> {
    let file = root.join("scripts/mutants.d/planted");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let all = planted::declared(&text).map_err(anyhow::Error::msg)?;
    let places = match planted::find(root, &all) {
        Ok(places) => places,
        Err(wrong) => bail!("{}", wrong.join("\n")),
    };
    for name in names {
        ensure!(
            all.iter().any(|bug| bug.name == *name),
            "no planted bug is named {name}"
        );
    }
    let is_chosen = |bug: &Bug| match bug.caught {
        _ if !names.is_empty() => names.contains(&bug.name),
        Caught::Soon | Caught::Search => true,
        Caught::Seeds => !soon,
        Caught::Unmet(_) => false,
    };
    let chosen = (0..all.len()).filter(|bug| is_chosen(&all[*bug])).collect();
    Ok(Bugs {
        all,
        places,
        chosen,
        few: soon,
    })
}

impl Bugs {
    pub fn print(&self) {
        for bug in &self.chosen {
            let Bug { name, words, .. } = &self.all[*bug];
            println!("{name}: {words}");
        }
    }

    /// Builds, and tries each bug.
    pub fn hunt(&self, root: &Path, threads: usize) -> Result<ExitCode> {
        let (began, tree) = (Instant::now(), tree::folder_of_planted(root));
        let simulate = weave::build_planted(root, &tree, &self.places, self.few)?;
        let built = began.elapsed().as_secs_f64();
        let records = tree.with_file_name("reached");
        drop(std::fs::remove_dir_all(&records));
        std::fs::create_dir_all(&records)?;
        let mut caught = BTreeMap::new();
        for (number, (suite, is_search)) in suites(&simulate, &tree).iter().enumerate() {
            let open: Vec<usize> = self
                .chosen
                .iter()
                .copied()
                .filter(|bug| !caught.contains_key(bug) && self.meets(*bug, *is_search, number))
                .collect();
            if open.is_empty() {
                continue;
            }
            let baseline = suite
                .baseline(&records.join(number.to_string()))
                .with_context(|| format!("the suite fails without a bug: {}", suite.name))?;
            let reaching: Vec<usize> = open
                .into_iter()
                .filter(|bug| baseline.reached.contains(bug))
                .collect();
            let (next, found) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        while let Some(bug) = reaching.get(next.fetch_add(1, Ordering::Relaxed)) {
                            let started = Instant::now();
                            let by = match suite.with(*bug, &baseline) {
                                (SuiteEnd::Well, _) => continue,
                                (SuiteEnd::Badly, said) => {
                                    failure(&said).unwrap_or("it ends").to_owned()
                                }
                                (SuiteEnd::Never, _) => "it does not terminate".to_owned(),
                            };
                            let by = format!("{}: {by}", suite.name);
                            let after = started.elapsed().as_secs_f64();
                            let mut found = found
                                .lock()
                                .unwrap_or_else(std::sync::PoisonError::into_inner);
                            found.insert(*bug, Detection { by, after });
                        }
                    });
                }
            });
            caught.append(
                &mut found
                    .into_inner()
                    .unwrap_or_else(std::sync::PoisonError::into_inner),
            );
        }
        Ok(self.report(&caught, built, began.elapsed().as_secs_f64() - built))
    }

    /// Whether a bug is tried in a suite.
    fn meets(&self, bug: usize, is_search: bool, number: usize) -> bool {
        match self.all[bug].caught {
            Caught::Search => is_search,
            // The search comes first.
            Caught::Soon => !is_search && number <= WORLDS.len(),
            Caught::Seeds | Caught::Unmet(_) => !is_search,
        }
    }

    fn report(&self, caught: &BTreeMap<usize, Detection>, built: f64, tried: f64) -> ExitCode {
        let mut missed = Vec::new();
        for bug in &self.chosen {
            let Bug { name, words, .. } = &self.all[*bug];
            if let Some(Detection { by, after }) = caught.get(bug) {
                println!("| {name} | {words} | {by:.140} | {after:.1} s |");
            } else {
                println!("| {name} | {words} | NOT CAUGHT | |");
                missed.push(name.as_str());
            }
        }
        for bug in &self.all {
            if let Caught::Unmet(needs) = &bug.caught {
                println!("| {} | {} | unmet: {needs} | |", bug.name, bug.words);
            }
        }
        println!(
            "{} of {} planted bugs caught; built in {built:.0} s, tried in {tried:.0} s",
            self.chosen.len() - missed.len(),
            self.chosen.len()
        );
        if missed.is_empty() {
            return ExitCode::SUCCESS;
        }
        println!("NOT CAUGHT: {}", missed.join(", "));
        ExitCode::FAILURE
    }
}

/// The exhaustive search, then seeds of each world in order. The flag marks the search.
fn suites(simulate: &Path, tree: &Path) -> Vec<(Suite, bool)> {
    let seeds = SEEDS.into_iter().flat_map(|(from, seeds)| {
        WORLDS.map(|world| (Suite::of_seeds(simulate, tree, world, from, seeds), false))
    });
    [(Suite::of_simulate(simulate, tree, SEARCH), true)]
        .into_iter()
        .chain(seeds)
        .collect()
}
