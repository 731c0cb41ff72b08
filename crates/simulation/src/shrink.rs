//! The shortest story of a failure: what can be left out while the seed still fails in the same way.
//!
//! Every part of a run has its own random numbers, so that leaving something out changes as little as may be of the
//! rest; and a run is so short that hundreds can be tried.

use std::collections::BTreeSet;

use super::fault::FaultKind;
use super::run::{RunRequest, SimulationReport, run};
use super::stage::Allowed;

/// Leaves out whatever a failing script can do without: kinds of faults, workers, things that the client
/// does, the last faults. Nothing where the script does not fail.
pub fn shrink(request: &RunRequest) -> Option<Allowed> {
    let first = run(request);
    let kind = kind(&first)?;
    let fails = |allowed: &Allowed| {
        let report = run(&RunRequest {
            allowed: allowed.clone(),
            tells: false,
            ..request.clone()
        });
        (self::kind(&report).as_ref() == Some(&kind)).then_some(report)
    };
    let mut allowed = Allowed {
        step_groups: Some((1..=first.step_groups).collect()),
        ..request.allowed.clone()
    };
    fails(&allowed)?;
    for workers in 1..=2 {
        let fewer = Allowed {
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
        if fails(&Allowed {
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

/// What a violation is called, without its particulars.
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
    use evenkeel_model::planted::{Bug, MutationGuard};

    #[test]
    fn what_goes_wrong_where_nothing_failed_is_shrunk_without_faults() {
        let _planted = MutationGuard::of(Bug::NoSyncOn);
        let faultless = |seed| RunRequest {
            seed,
            allowed: Allowed {
                faults: 0,
                ..Allowed::default()
            },
            ..RunRequest::default()
        };
        // With a fault it would be another violation, or none.
        let is_smooth = |request: &RunRequest| {
            run(request)
                .violation
                .is_some_and(|wrong| wrong.starts_with("left to a recheck"))
        };
        let request = (0..200).map(faultless).find(is_smooth).unwrap();
        assert_eq!(shrink(&request).map(|allowed| allowed.faults), Some(0));
    }
}
