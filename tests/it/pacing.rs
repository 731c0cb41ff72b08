//! Pacing on a simulated account with Azure's published limits: a cold start with a backlog, in virtual time.

#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::time::Duration;

use evenkeel_simulation::scale::{HotSpot, ScaleReport, ScaleRequest, ServiceLimits, scale};

/// Simulates a backlog over new tables. Under load the service spreads their partitions over servers. One in ten jobs is for the first of 64
/// partitions. An application uses nearly the whole request limit of that partition, or of a different partition if `apart`.
fn cold_start(apart: bool) -> ScaleReport {
    let limits = ServiceLimits {
        spreads: Some(Duration::from_secs(5)),
        ..ServiceLimits::AZURE
    };
    let hot = Some(HotSpot {
        one_in: 10,
        others: 1_900,
        apart,
    });
    scale(&ScaleRequest {
        primaries: 16_000,
        limits,
        hot,
        ..ScaleRequest::default()
    })
    .unwrap()
}

#[test]
fn a_cold_start_onto_a_backlog_meets_few_503s_and_a_hot_partition_slows_itself_alone() {
    let (calm, hot) = (cold_start(true), cold_start(false));
    for (name, report) in [("calm", &calm), ("hot", &hot)] {
        let ScaleReport { refused, .. } = report;
        let asked: Vec<u64> = report
            .seconds
            .windows(2)
            .map(|pair| pair[1].queue - pair[0].queue)
            .collect();
        assert!(*refused < 0.01, "{name}: {refused}");
        let reached = asked
            .iter()
            .take(60)
            .filter(|messages| **messages >= 1_800)
            .count();
        assert!(
            reached >= 5,
            "{name}: the queue's limit is 2,000 messages per second, and the load was {asked:?}"
        );
    }
    assert!(
        hot.took > hot.cold_took + Duration::from_secs(5),
        "the hot partition took too long: {:?}, {:?}",
        hot.took,
        hot.cold_took
    );
    let speed = calm.cold_took.as_secs_f64() / hot.cold_took.as_secs_f64();
    assert!(
        speed >= 0.95,
        "the other partitions reached only {speed:.3} of their speed"
    );
}
