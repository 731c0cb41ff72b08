//! Scripts. A script is a seed with cuts. From the time of a cut, the random numbers of the run come from another seed.
//!
//! ```text
//!   seed 17 ──────────────┐ 12.345 s: seed 4 ──────┐ 61.020 s: seed 9 ───────▶
//!   the run of the seed   │ other faults, waits, orders, clients   │ once more
//! ```
//!
//! Before a cut, the run is the same as without the cut, operation for operation. After the cut, every random number comes from the other
//! seed. This changes the fault and the duration of each operation, the restarts and panics of workers, the jitter of the program itself,
//! and the outages that begin later.
//!
//! Some cuts have further effects: a few kinds of faults are frequent for some seconds, all fault rates come from the other seed, or the
//! client sends its remaining steps earlier. After most cuts, clients and faults end soon, so that no later jobs repair the damage. The
//! catalog, the settings, the entities and the number of workers remain those of the first seed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::archives::PRESENT;
use super::client::{ClientAction, ClientStep, DEPARTMENTS};
use super::fault::FaultKind;
use super::fault_plan::{Draw, FaultPlan, rng, seconds};
use super::shared_state::SharedState;
use evenkeel_storage::Rng;
use evenkeel_storage::system::SeededRng;

/// Number of the random sequence that decides what a cut changes.
const PART: u64 = 19;
/// Duration of a period of frequent faults, in seconds.
const SPELL: Range<f64> = 0.02..20.0;
const SPELLS: [FaultKind; 10] = [
    FaultKind::ErrorBefore,
    FaultKind::RequestLost,
    FaultKind::AnswerLost,
    FaultKind::LateArrival,
    FaultKind::LateArrival,
    FaultKind::SlowRequest,
    FaultKind::SlowAnswer,
    FaultKind::CrashBefore,
    FaultKind::CrashAfter,
    FaultKind::CrashInFlight,
];
/// Time from a cut to the end of clients and faults, in seconds.
const ENDS: Range<f64> = 0.5..120.0;
/// A cut may move a later step group of the client to an earlier time. Time from the cut to the new start of this
/// group, in seconds.
const SOON: Range<f64> = 0.001..60.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cut {
    /// Virtual time since the start, in whole milliseconds.
    pub at: Duration,
    pub seed: u64,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:03}:{}",
            self.at.as_secs(),
            self.at.subsec_millis(),
            self.seed
        )
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid cut {0:?}: expected seconds, a colon and a seed, as in 12.345:77")]
pub struct InvalidCut(String);

impl FromStr for Cut {
    type Err = InvalidCut;

    fn from_str(text: &str) -> Result<Self, InvalidCut> {
        let parsed = || {
            let (at, seed) = text.split_once(':')?;
            let (whole, fraction) = at.split_once('.').unwrap_or((at, ""));
            let digits = fraction.len() <= 3 && fraction.bytes().all(|byte| byte.is_ascii_digit());
            let millis = if digits {
                format!("{fraction:0<3}").parse().ok()?
            } else {
                return None;
            };
            Some(Self {
                at: Duration::from_secs(whole.parse().ok()?) + Duration::from_millis(millis),
                seed: seed.parse().ok()?,
            })
        };
        parsed().ok_or_else(|| InvalidCut(text.to_owned()))
    }
}

/// The random numbers of one part of a run. They come from the run's seed, and after each cut from the seed of the cut.
pub(super) struct CutChance {
    shared_state: Arc<SharedState>,
    own: SeededRng,
    cuts: Vec<(Duration, SeededRng)>,
}

impl CutChance {
    pub(super) fn new(shared_state: Arc<SharedState>, seed: u64, cuts: &[Cut], part: u64) -> Self {
        Self {
            shared_state,
            own: rng(seed, part),
            cuts: cuts
                .iter()
                .map(|cut| (cut.at, rng(cut.seed, part)))
                .collect(),
        }
    }
}

impl Rng for CutChance {
    fn next_u64(&self) -> u64 {
        if self.cuts.is_empty() {
            return self.own.next_u64();
        }
        let now = self.shared_state.elapsed();
        self.cuts
            .iter()
            .rfind(|(at, _)| *at <= now)
            .map_or(&self.own, |(_, rng)| rng)
            .next_u64()
    }
}

struct CutChanges {
    rates: bool,
    steps: bool,
    spell: Option<(Duration, Vec<(FaultKind, f64)>)>,
    /// Time from the cut to the end of clients and faults. Without this end, later jobs would repair the damage.
    ends: Option<Duration>,
}

impl CutChanges {
    fn of(cut: Cut) -> (Self, SeededRng) {
        let rng = rng(cut.seed, PART);
        let draw = Draw(&rng);
        let (rates, steps) = (draw.happens(0.3), draw.happens(0.5));
        let kinds = || {
            (0..=draw.below(3))
                .map(|_| (*draw.of(&SPELLS), draw.magnitude(0.05, 0.9)))
                .collect()
        };
        let spell = draw
            .happens(0.7)
            .then(|| (seconds(draw.magnitude(SPELL.start, SPELL.end)), kinds()));
        let ends = draw
            .happens(0.7)
            .then(|| seconds(draw.magnitude(ENDS.start, ENDS.end)));
        (
            Self {
                rates,
                steps,
                spell,
                ends,
            },
            rng,
        )
    }
}

pub(super) fn cut_plan(plan: &mut FaultPlan, other: &FaultPlan, cut: Cut) {
    fn cut_off<T: Clone>(own: &mut Vec<T>, other: &[T], begins: impl Fn(&T) -> bool) {
        own.retain(|spell| !begins(spell));
        own.extend(other.iter().filter(|spell| begins(spell)).cloned());
    }
    cut_off(&mut plan.bursts, &other.bursts, |burst| {
        burst.during.start >= cut.at
    });
    cut_off(&mut plan.outages, &other.outages, |outage| {
        outage.during.start >= cut.at
    });
    cut_off(
        &mut plan.hazards.lost_polls,
        &other.hazards.lost_polls,
        |lost_polls| lost_polls.during.start >= cut.at,
    );
    cut_off(
        &mut plan.hazards.gateways,
        &other.hazards.gateways,
        |during| during.start >= cut.at,
    );
    cut_off(&mut plan.hosts, &other.hosts, |spell| {
        spell.during.start >= cut.at
    });
    cut_off(&mut plan.terms, &other.terms, |(at, _)| *at >= cut.at);
    cut_off(&mut plan.shows, &other.shows, |at| *at >= cut.at);
    cut_off(&mut plan.clocks, &other.clocks, |(at, ..)| *at >= cut.at);
    let (
        CutChanges {
            rates, spell, ends, ..
        },
        _,
    ) = CutChanges::of(cut);
    // The storm must not end before the first worker starts.
    plan.storm = ends.map_or(plan.storm, |ends| {
        plan.storm.min(cut.at.max(plan.hazards.backlog) + ends)
    });
    let before = plan
        .later
        .iter()
        .rfind(|(from, _)| *from <= cut.at)
        .map_or(plan.rates, |(_, rates)| *rates);
    let after = if rates { other.rates } else { before };
    plan.later.retain(|(from, _)| *from < cut.at);
    if let Some((lasts, kinds)) = spell {
        let mut often = after;
        for (kind, rate) in kinds {
            often[kind as usize] = rate;
        }
        plan.later.push((cut.at, often));
        plan.later.push((cut.at + lasts, after));
    } else {
        plan.later.push((cut.at, after));
    }
}

pub(super) fn cut_steps(steps: &mut Vec<ClientStep>, cut: Cut) {
    let (
        CutChanges {
            steps: changes,
            ends,
            ..
        },
        rng,
    ) = CutChanges::of(cut);
    if changes {
        advance_steps(steps, cut, &Draw(&rng));
    }
    if let Some(ends) = ends {
        let late: BTreeSet<usize> = steps
            .iter()
            .filter(|step| step.at > cut.at + ends)
            .map(|step| step.step_group)
            .collect();
        let early: BTreeSet<usize> = steps
            .iter()
            .filter(|step| step.at < cut.at)
            .map(|step| step.step_group)
            .collect();
        // If a step group began before the cut, the rest of the group is kept. Otherwise no message would follow the
        // change of the client.
        steps.retain(|step| early.contains(&step.step_group) || !late.contains(&step.step_group));
    }
}

fn advance_steps(steps: &mut Vec<ClientStep>, cut: Cut, draw: &Draw<'_>) {
    let mut begins: BTreeMap<usize, Duration> = BTreeMap::new();
    let mut fixed = BTreeSet::new();
    for step in steps.iter() {
        let begin = begins.entry(step.step_group).or_insert(step.at);
        *begin = step.at.min(*begin);
        if is_fixed(&step.action) {
            fixed.insert(step.step_group);
        }
    }
    let moved: BTreeMap<usize, Option<Duration>> = begins
        .into_iter()
        .filter(|(step_group, begin)| *begin >= cut.at && !fixed.contains(step_group))
        .filter_map(|(step_group, begin)| {
            let soon =
                seconds(draw.magnitude(SOON.start, SOON.end)).min(begin.saturating_sub(cut.at));
            let earlier = begin.saturating_sub(cut.at + soon);
            match draw.below(8) {
                0 => Some((step_group, None)),
                1..5 => Some((step_group, Some(earlier))),
                _ => None,
            }
        })
        .collect();
    steps.retain(|step| moved.get(&step.step_group) != Some(&None));
    for step in steps.iter_mut() {
        if let Some(Some(earlier)) = moved.get(&step.step_group) {
            step.at = step.at.saturating_sub(*earlier);
        }
    }
    steps.sort_by_key(|step| step.at);
}

/// Whether an action must not be moved, because it depends on earlier actions. Such an action writes an entity on which
/// views set properties, or a row of the table of the present hour. Workers create this table.
fn is_fixed(action: &ClientAction) -> bool {
    match action {
        ClientAction::Write(table, _)
        | ClientAction::Merge(table, _)
        | ClientAction::Remove(table, _) => [DEPARTMENTS, PRESENT].contains(table),
        ClientAction::Send(_)
        | ClientAction::Note(..)
        | ClientAction::SaveRows(_)
        | ClientAction::Forge { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunRequest, World, run};

    #[test]
    fn a_cut_is_parsed_as_it_is_displayed() {
        for text in ["0.000:0", "12.345:77", "3600.040:18446744073709551615"] {
            assert_eq!(text.parse::<Cut>().unwrap().to_string(), text);
        }
        assert_eq!(
            "7:1".parse(),
            Ok(Cut {
                at: Duration::from_secs(7),
                seed: 1
            })
        );
        assert_eq!(
            "7.5:1".parse(),
            Ok(Cut {
                at: Duration::from_millis(7_500),
                seed: 1
            })
        );
        for text in ["", "7", "7:", ":7", "7.1234:1", "-1:1", "7.-1:1", "7.+1:1"] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_script_is_repeatable_and_differs_from_its_seed() {
        for world in World::ALL {
            for seed in 0..4 {
                let cuts = vec![
                    Cut {
                        at: Duration::from_secs(5),
                        seed: 77,
                    },
                    Cut {
                        at: Duration::from_secs(20),
                        seed: 78 + seed,
                    },
                ];
                let request = RunRequest {
                    world,
                    seed,
                    cuts,
                    ..RunRequest::default()
                };
                let (one, other) = (run(&request), run(&request));
                assert_eq!(
                    (one.hash, one.operations),
                    (other.hash, other.operations),
                    "{world} {seed}"
                );
                assert_ne!(
                    one.hash,
                    run(&RunRequest {
                        world,
                        seed,
                        ..RunRequest::default()
                    })
                    .hash,
                    "{world} {seed}"
                );
            }
        }
    }

    #[test]
    fn a_script_equals_its_seed_before_the_cut() {
        for world in World::ALL {
            for (seed, at) in (0..6).zip([1, 3, 10, 20, 40, 50]) {
                let story = |cuts: Vec<Cut>| -> Vec<String> {
                    let report = run(&RunRequest {
                        world,
                        seed,
                        cuts,
                        keeps_story: true,
                        ..RunRequest::default()
                    });
                    // The first line is skipped. It prints the fault plan, which differs after the cut.
                    let until = format!("00:00:{at:02}");
                    report
                        .story
                        .into_iter()
                        .skip(1)
                        .take_while(|line| *line < until)
                        .collect()
                };
                let (own, cut) = (
                    story(Vec::new()),
                    story(vec![Cut {
                        at: Duration::from_secs(at),
                        seed: 1_000 + seed,
                    }]),
                );
                assert!(!own.is_empty(), "{world} {seed}");
                assert_eq!(own, cut, "{world} {seed}");
            }
        }
    }
}
