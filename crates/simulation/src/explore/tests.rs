use super::*;

/// Maximum number of executions per search in an ordinary test. `simulate --explore` completes the searches.
const MOST: u64 = 3_000;

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
            "{}, {}: the search reached no end state",
            script.client,
            script.wrong
        );
    }
}

#[test]
fn a_complete_search_visits_every_state_in_any_order() {
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
