//! Verdicts as they arrive, and their sums by file and in total.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::find::Mutant;
use crate::suites::Verdict;

pub struct Progress {
    of: usize,
    started: Instant,
    verdicts: Mutex<BTreeMap<usize, Verdict>>,
}

pub struct TestResults<'m>(Vec<(usize, &'m Mutant, Verdict)>);

#[derive(Default, Clone, Copy)]
struct Sums {
    killed: usize,
    survived: usize,
    unreached: usize,
}

impl Progress {
    pub fn of(count: usize) -> Self {
        Self {
            of: count,
            started: Instant::now(),
            verdicts: Mutex::default(),
        }
    }

    pub fn add(&self, number: usize, verdict: Verdict, mutant: &Mutant) {
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let line = match &verdict {
            Verdict::Killed { by, after } => format!(
                "killed    {number:>5} {mutant}: {by}, {:.1} s",
                after.as_secs_f64()
            ),
            Verdict::Unreached => format!("UNREACHED {number:>5} {mutant}"),
            Verdict::Survived { after } => format!(
                "SURVIVED  {number:>5} {mutant}: {:.1} s",
                after.as_secs_f64()
            ),
        };
        verdicts.insert(number, verdict);
        eprintln!(
            "{:>4}/{} {:>5.0} s  {line}",
            verdicts.len(),
            self.of,
            self.started.elapsed().as_secs_f64()
        );
    }

    pub fn finish(self, alive: &BTreeMap<usize, Mutant>) -> TestResults<'_> {
        let verdicts = self
            .verdicts
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        TestResults(
            verdicts
                .into_iter()
                .map(|(number, verdict)| (number, &alive[&number], verdict))
                .collect(),
        )
    }
}

impl Sums {
    fn of<'v>(verdicts: impl Iterator<Item = &'v Verdict>) -> Self {
        let mut sums = Self::default();
        for verdict in verdicts {
            match verdict {
                Verdict::Killed { .. } => sums.killed += 1,
                Verdict::Survived { .. } => sums.survived += 1,
                Verdict::Unreached => sums.unreached += 1,
            }
        }
        sums
    }

    const fn all(self) -> usize {
        self.killed + self.survived + self.unreached
    }

    /// Bounds of the share of killed mutants, in percent, with 95% confidence (Wilson). They express the uncertainty of
    /// a sample; a whole run has none.
    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn bounds(self) -> (f64, f64) {
        const Z: f64 = 1.96;
        let n = self.all().max(1) as f64;
        let share = self.killed as f64 / n;
        let middle = (share + Z * Z / (2.0 * n)) / (1.0 + Z * Z / n);
        let half =
            Z / (1.0 + Z * Z / n) * (share * (1.0 - share) / n + Z * Z / (4.0 * n * n)).sqrt();
        ((middle - half) * 100.0, (middle + half) * 100.0)
    }

    fn json(self) -> Value {
        json!({ "killed": self.killed, "survived": self.survived, "unreached": self.unreached, "all": self.all() })
    }
}

impl TestResults<'_> {
    /// Percentage of killed mutants among the tested ones that count. Unreached mutants are not killed.
    pub fn percentage(&self, counts: impl Fn(&Mutant) -> bool) -> usize {
        let sums = Sums::of(
            self.0
                .iter()
                .filter(|(_, mutant, _)| counts(mutant))
                .map(|(_, _, verdict)| verdict),
        );
        (sums.killed * 100).checked_div(sums.all()).unwrap_or(100)
    }

    /// One line for each mutant that was not killed.
    pub fn survivors(&self) -> Vec<String> {
        let alive = self
            .0
            .iter()
            .filter(|(_, _, verdict)| !matches!(verdict, Verdict::Killed { .. }));
        alive
            .map(|(_, mutant, verdict)| {
                format!(
                    "{mutant}{}",
                    if matches!(verdict, Verdict::Unreached) {
                        " (unreached)"
                    } else {
                        ""
                    }
                )
            })
            .collect()
    }

    pub fn print(&self, took: Duration) {
        eprintln!(
            "\n{:<40} {:>7} {:>9} {:>10} {:>5}",
            "", "killed", "survived", "unreached", "all"
        );
        for (file, sums) in self.files() {
            eprintln!(
                "{file:<40} {:>7} {:>9} {:>10} {:>5}",
                sums.killed,
                sums.survived,
                sums.unreached,
                sums.all()
            );
        }
        let mut by: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, _, verdict) in &self.0 {
            if let Verdict::Killed { by: suite, .. } = verdict {
                *by.entry(suite).or_default() += 1;
            }
        }
        for (suite, killed) in &by {
            eprintln!("  {killed:>5} by {suite}");
        }
        for survivor in self.survivors() {
            eprintln!("not killed: {survivor}");
        }
        let (sums, (low, high)) = (self.sums(), self.sums().bounds());
        eprintln!(
            "{} of {} mutants killed, {} survived, {} unreached: {}% (95% confidence: {low:.1} to {high:.1}) in {:.0} s",
            sums.killed,
            sums.all(),
            sums.survived,
            sums.unreached,
            self.percentage(|_| true),
            took.as_secs_f64()
        );
    }

    pub fn json(&self) -> Value {
        let mutants = self.0.iter().map(|(number, mutant, verdict)| {
            let (verdict, by, after) = match verdict {
                Verdict::Killed { by, after } => ("killed", Some(by), Some(after)),
                Verdict::Survived { after } => ("survived", None, Some(after)),
                Verdict::Unreached => ("unreached", None, None),
            };
            json!({
                "number": number, "file": mutant.file, "line": mutant.line, "function": mutant.function, "does": mutant.does,
                "verdict": verdict, "by": by, "seconds": after.map(Duration::as_secs_f64),
            })
        });
        let files: serde_json::Map<String, Value> = self
            .files()
            .into_iter()
            .map(|(file, sums)| (file.to_owned(), sums.json()))
            .collect();
        let (low, high) = self.sums().bounds();
        json!({ "all": self.sums().json(), "low": low, "high": high, "files": files, "mutants": mutants.collect::<Vec<_>>() })
    }

    fn sums(&self) -> Sums {
        Sums::of(self.0.iter().map(|(_, _, verdict)| verdict))
    }

    fn files(&self) -> BTreeMap<&str, Sums> {
        let files: std::collections::BTreeSet<&str> = self
            .0
            .iter()
            .map(|(_, mutant, _)| mutant.file.as_str())
            .collect();
        let of = |file: &str| {
            Sums::of(
                self.0
                    .iter()
                    .filter(|(_, mutant, _)| mutant.file == file)
                    .map(|(_, _, verdict)| verdict),
            )
        };
        files.into_iter().map(|file| (file, of(file))).collect()
    }
}
