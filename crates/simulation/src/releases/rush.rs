//! A release in the busiest hour. Clients make most of their changes around the migration. Meanwhile one host cannot
//! reach the record of the catalog, or is slow, and the other hosts are reloaded.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Releases;
use super::timeline::ConfigNotice;
use crate::client::{ClientAction, ClientStep, DEPARTMENTS};
use crate::fault_plan::{Draw, FaultPlan, FaultScope, OutageKind, rng, seconds};
use crate::hosts::{HostSpell, HostTrouble};
use evenkeel_model::catalog::Catalog;

const RECORD: FaultScope = FaultScope::Partition("EvenkeelMigrations", "catalog");
/// Seconds for which clients are busy before and after the migration.
const BUSY: (f64, f64) = (5.0, 90.0);

impl Releases {
    /// Makes clients busy around a migration, usually the last one, and makes one host faulty or slow at that time.
    pub(crate) fn rush(
        &mut self,
        seed: u64,
        (main, abroad): (&mut FaultPlan, &mut FaultPlan),
        steps: &mut [ClientStep],
    ) {
        let rng = rng(seed, 56);
        let draw = Draw(&rng);
        if self.migrates.is_empty() {
            return;
        }
        main.workers = *draw.of(&[2, 3, 3]);
        // Most rushes have no other faults, because a fault could end a run or a worker too early to interfere with
        // others.
        if draw.happens(0.85) {
            main.clear_faults();
            abroad.clear_faults();
        }
        if draw.happens(0.7) {
            main.settings.poll.max = Duration::from_secs(1);
        }
        // The last release is preferred, because a later release would backfill everything again and repair the damage.
        let nth = if draw.happens(0.8) {
            self.migrates.len() - 1
        } else {
            draw.below(self.migrates.len())
        };
        let (at, troubled) = (self.migrates[nth], draw.below(main.workers));
        // A running worker can adopt a catalog that only adds views.
        let grows = grows(&self.catalogs[nth], &self.catalogs[nth + 1]);
        let is_cut = draw.happens(if grows { 0.5 } else { 0.75 });
        if is_cut {
            let refusal = *draw.of(&[
                OutageKind::Refused,
                OutageKind::Failing,
                OutageKind::Busy,
                OutageKind::Silent,
            ]);
            // The fault begins shortly before the migration, so that the host does not see the new record.
            let start = at.saturating_sub(seconds(draw.0.between(1.0, 5.0)));
            let during = start..start + seconds(draw.magnitude(15.0, 300.0));
            main.hosts.push(HostSpell {
                during,
                slot: troubled,
                trouble: HostTrouble::Cut(RECORD, refusal),
            });
            self.reload(troubled, nth, at + seconds(draw.magnitude(10.0, 300.0)));
        } else {
            let start = at.saturating_sub(seconds(draw.magnitude(10.0, 30.0)));
            let during = start..start + seconds(draw.magnitude(60.0, 240.0));
            main.hosts.push(HostSpell::slow(
                during,
                troubled,
                draw.magnitude(1.0, 6.0),
                &draw,
            ));
            let off = seconds(draw.magnitude(0.1, 10.0));
            self.reload(
                troubled,
                nth,
                if grows {
                    at.saturating_sub(off)
                } else {
                    at + off
                },
            );
        }
        abroad.hosts.clone_from(&main.hosts);
        for slot in (0..self.arrives.len()).filter(|slot| *slot != troubled) {
            let off = seconds(draw.magnitude(0.02, 2.0));
            // If the release only adds views, a worker can adopt it before the migration. Otherwise the worker can
            // adopt the release only after the operator has recorded it and the worker has noticed the record.
            self.reload(
                slot,
                nth,
                if grows {
                    at.saturating_sub(off)
                } else {
                    at + seconds(5.0) + off
                },
            );
        }
        crowd(
            &draw,
            (
                at,
                if is_cut {
                    [BUSY, (1.0, 12.0)]
                } else {
                    [BUSY, (30.0, 10.0)]
                },
            ),
            draw.magnitude(0.3, 1.0),
            steps,
        );
        let spells = main.hosts.iter().map(|spell| spell.during.end);
        main.storm = main.storm.max(
            steps
                .iter()
                .map(|step| step.at)
                .chain(spells)
                .max()
                .unwrap_or_default(),
        );
    }

    fn reload(&mut self, slot: usize, nth: usize, at: Duration) {
        let arrives = &mut self.arrives[slot];
        let earlier = nth
            .checked_sub(1)
            .map_or(Duration::ZERO, |nth| arrives[nth].0);
        let at = at.max(earlier);
        arrives[nth] = (at, ConfigNotice::Hangup);
        for (later, _) in &mut arrives[nth + 1..] {
            *later = at.max(*later);
        }
    }
}

fn grows(from: &Catalog, to: &Catalog) -> bool {
    let same_views = from.views.iter().all(|(name, view)| {
        to.views
            .get(name)
            .is_some_and(|other| other.definition() == view.definition())
    });
    same_views && from.tables == to.tables && from.spread == to.spread
}

/// Moves a fraction (`share`) of the client's actions to the time around `at`.
fn crowd(
    draw: &Draw<'_>,
    (at, around): (Duration, [(f64, f64); 2]),
    share: f64,
    steps: &mut [ClientStep],
) {
    // Changes of departments are not moved, because a department's changes and their messages must stay in order.
    let fixed: BTreeSet<usize> = steps
        .iter()
        .filter(|step| is_about_departments(&step.action))
        .map(|step| step.step_group)
        .collect();
    let mut moved: BTreeMap<usize, (Duration, Duration)> = BTreeMap::new();
    for step in steps
        .iter()
        .filter(|step| !fixed.contains(&step.step_group))
    {
        moved.entry(step.step_group).or_insert_with(|| {
            let (from, to) = *draw.of(&around);
            let then = (at + seconds(draw.0.between(0.0, from + to))).saturating_sub(seconds(from));
            (step.at, if draw.happens(share) { then } else { step.at })
        });
    }
    for step in steps.iter_mut() {
        if let Some((from, to)) = moved.get(&step.step_group) {
            step.at = *to + step.at.saturating_sub(*from);
        }
    }
    steps.sort_by_key(|step| step.at);
}

fn is_about_departments(action: &ClientAction) -> bool {
    matches!(
        action,
        ClientAction::Merge(DEPARTMENTS, _) | ClientAction::Remove(DEPARTMENTS, _)
    )
}
