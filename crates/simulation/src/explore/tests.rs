use super::*;
use evenkeel_model::planted::{Bug, MutationGuard};

/// Executions of each search in an ordinary test: `simulate --explore` goes to their ends.
const MOST: u64 = 3_000;
/// Executions after which a bug counts as not found.
const MOST_WITH_A_BUG: u64 = 20_000;

/// Bugs in what is searched, and the search that finds each.
pub(crate) const FOUND: &[(Bug, &str, &str)] = &[
    (Bug::PrimaryReadFirst, "created, changed", "nothing"),
    (Bug::UnconditionalFootprint, "created, changed", "nothing"),
    (Bug::UnannouncedCreate, "created, changed", "nothing"),
    (Bug::LostRaceIsDone, "created, changed", "nothing"),
    (Bug::NoTombstone, "created, deleted", "nothing"),
];

fn search(client: &str, wrong: &str) -> Script {
    scripts()
        .find(|script| (script.client, script.wrong) == (client, wrong))
        .unwrap()
}

#[test]
fn every_step_keeps_the_invariant_and_every_end_is_right() {
    for script in scripts() {
        let explored = explore(&script, MOST, None);
        assert_eq!(
            explored.violation, None,
            "{}, {}",
            script.client, script.wrong
        );
        assert!(
            explored.ends > 0,
            "{}, {}: no end was reached",
            script.client,
            script.wrong
        );
    }
}

#[test]
fn a_search_to_its_end_sees_every_state_whatever_comes_first() {
    let script = search("created, deleted", "nothing");
    let (one, other) = (
        explore(&script, u64::MAX, None),
        explore(&script, u64::MAX, Some(7)),
    );
    assert_eq!(
        (one.states, one.executions, one.cut),
        (other.states, other.executions, other.cut)
    );
    assert!(
        one.violation.is_none() && one.interleavings > 1e6,
        "{one:?}"
    );
}

#[test]
fn bugs_planted_in_the_protocol_are_found() {
    for (bug, client, wrong) in FOUND {
        let _planting = MutationGuard::of(*bug);
        let explored = explore(&search(client, wrong), MOST_WITH_A_BUG, None);
        let (violation, steps) = explored
            .violation
            .unwrap_or_else(|| panic!("{bug:?} is not found in {MOST_WITH_A_BUG} executions"));
        println!(
            "| {bug:?} | {} | {client}; {wrong}: {violation:.60} | {} steps |",
            explored.executions,
            steps.len()
        );
    }
}
