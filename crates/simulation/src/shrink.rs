//! Finds the shortest story of a failure, by leaving out parts while the seed still fails in the same way.
//!
//! Every part of a run has its own random numbers, so leaving out one part hardly changes the rest. A run is so short
//! that hundreds can be tried.

use std::collections::BTreeSet;

use super::fault::FaultKind;
use super::run::{RunRequest, SimulationReport, run};
use super::shared_state::RunLimits;

/// Leaves out kinds of faults, workers, steps of the client, and the last faults, while the script still fails. Returns
/// `None` if the script does not fail at all.
pub fn shrink(request: &RunRequest) -> Option<RunLimits> {
    shrink_by(request, run)
}

fn shrink_by(
    request: &RunRequest,
    run: impl Fn(&RunRequest) -> SimulationReport,
) -> Option<RunLimits> {
    let first = run(request);
    let kind = kind(&first)?;
    let fails = |allowed: &RunLimits| {
        let report = run(&RunRequest {
            allowed: allowed.clone(),
            keeps_story: false,
            ..request.clone()
        });
        (self::kind(&report).as_ref() == Some(&kind)).then_some(report)
    };
    let mut allowed = RunLimits {
        step_groups: Some((1..=first.step_groups).collect()),
        ..request.allowed.clone()
    };
    fails(&allowed)?;
    for workers in 1..=2 {
        let fewer = RunLimits {
            workers,
            ..allowed.clone()
        };
        if fails(&fewer).is_some() {
            allowed = fewer;
            break;
        }
    }
    for fault in FaultKind::ALL {
        let mut without = allowed.clone();
        without.without.insert(fault);
        if fails(&without).is_some() {
            allowed = without;
        }
    }
    let mut piece = first.step_groups.div_ceil(2).max(1);
    loop {
        let step_groups: Vec<usize> = allowed.step_groups.iter().flatten().copied().collect();
        for chunk in step_groups.chunks(piece) {
            let mut fewer = allowed.clone();
            if let Some(step_groups) = &mut fewer.step_groups {
                let chunk: BTreeSet<usize> = chunk.iter().copied().collect();
                step_groups.retain(|step_group| !chunk.contains(step_group));
            }
            if fails(&fewer).is_some() {
                allowed = fewer;
            }
        }
        if piece == 1 {
            break;
        }
        piece = piece.div_ceil(2);
    }
    let (mut enough, mut too_few) = (fails(&allowed)?.faults.total(), None::<u64>);
    while too_few.map_or(enough > 0, |few| few + 1 < enough) {
        let faults = too_few.map_or(0, |few| few.midpoint(enough));
        if fails(&RunLimits {
            faults,
            ..allowed.clone()
        })
        .is_some()
        {
            enough = faults;
        } else {
            too_few = Some(faults);
        }
    }
    allowed.faults = enough;
    Some(allowed)
}

/// The kind of a violation: its text up to the first detail, without digits.
fn kind(report: &SimulationReport) -> Option<String> {
    let violation = report.violation.as_ref()?;
    Some(
        violation
            .split([':', ';', '{', '[', '('])
            .next()
            .unwrap_or_default()
            .chars()
            .filter(|c| !c.is_ascii_digit())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::FaultCounts;

    fn fails_with(
        faults: u64,
        step_groups: &'static [usize],
        workers: usize,
        needed: &'static [FaultKind],
    ) -> impl Fn(&RunRequest) -> SimulationReport {
        move |RunRequest { allowed, .. }| {
            let has = |group: &usize| {
                let left = allowed.step_groups.as_ref();
                left.is_none_or(|left| left.contains(group))
            };
            let mut injected = FaultCounts::default();
            (0..allowed.faults.min(9)).for_each(|_| injected.add(FaultKind::ALL[0]));
            let fails = injected.total() >= faults
                && step_groups.iter().all(has)
                && allowed.workers >= workers
                && needed.iter().all(|kind| !allowed.without.contains(kind));
            SimulationReport {
                violation: fails.then(|| format!("lost: {}", injected.total())),
                faults: injected,
                step_groups: 8,
                ..SimulationReport::default()
            }
        }
    }

    #[test]
    fn shrinking_keeps_only_what_the_failure_needs() {
        static NEEDED: [FaultKind; 1] = [FaultKind::ALL[1]];
        let [first, second, ..] = FaultKind::ALL;
        let shrunk = |run: &dyn Fn(&RunRequest) -> SimulationReport| {
            shrink_by(&RunRequest::default(), run).unwrap()
        };
        let needs_all = shrunk(&fails_with(4, &[3, 6], 2, &NEEDED));
        assert_eq!(
            (needs_all.faults, needs_all.workers, needs_all.step_groups),
            (4, 2, Some([3, 6].into()))
        );
        assert!(needs_all.without.contains(&first) && !needs_all.without.contains(&second));

        let needs_nothing = shrunk(&fails_with(0, &[], 0, &[]));
        assert_eq!((needs_nothing.faults, needs_nothing.workers), (0, 1));
        assert_eq!(needs_nothing.step_groups, Some(BTreeSet::new()));
        assert_eq!(needs_nothing.without.len(), FaultKind::ALL.len());
    }

    #[test]
    fn a_run_that_does_not_fail_has_nothing_to_shrink() {
        let run = fails_with(10, &[], 0, &[]);
        assert_eq!(shrink_by(&RunRequest::default(), run), None);
    }
}
