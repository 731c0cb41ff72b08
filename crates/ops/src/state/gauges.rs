//! Exports the measures of the operations state as metrics.

use jiff::Timestamp;
use metrics::gauge;

use super::SLOT;
use super::hot::PartitionLoad;
use super::storage::LimitedScope;
use evenkeel_model::{AccountName, QueueName, ViewName};
use evenkeel_telemetry::names;

#[expect(
    clippy::cast_precision_loss,
    reason = "a queue of 2^53 messages does not exist"
)]
pub(super) fn poison(queue: &QueueName, messages: u64) {
    gauge!(names::POISON_MESSAGES, names::QUEUE => queue.as_str().to_owned()).set(messages as f64);
}

#[expect(
    clippy::cast_precision_loss,
    reason = "2^53 items do not exist, and times are in seconds"
)]
pub(super) fn audit(view: &ViewName, drift: u64, completed: Timestamp) {
    gauge!(names::DRIFT_ITEMS, names::VIEW => view.as_str().to_owned()).set(drift as f64);
    gauge!(names::AUDIT_LAST_COMPLETED_TIMESTAMP, names::VIEW => view.as_str().to_owned())
        .set(completed.as_second() as f64);
}

/// Sets the gauges of each account: the load of its busiest partition in a slot, the number of its throttled scopes,
/// and its request rate limit.
#[expect(clippy::cast_precision_loss, reason = "the requests of ten seconds")]
pub(super) fn accounts(
    accounts: &[AccountName],
    busiest: &[PartitionLoad],
    holds: &[LimitedScope],
    rates: &[(AccountName, f64)],
) {
    for (account, rate) in rates {
        gauge!(names::PACE_REQUESTS, names::ACCOUNT => account.as_str().to_owned()).set(*rate);
    }
    for account in accounts {
        let hottest = busiest
            .iter()
            .filter(|busy| busy.account == *account)
            .map(|busy| busy.entities)
            .max()
            .unwrap_or(0);
        let held = holds
            .iter()
            .filter(|hold| hold.account == account.as_str() && hold.per_second.is_none())
            .count();
        let label = || account.as_str().to_owned();
        gauge!(names::BUSIEST_PARTITION, names::ACCOUNT => label())
            .set(hottest as f64 / SLOT.as_secs_f64());
        gauge!(names::THROTTLED_SCOPES, names::ACCOUNT => label()).set(held as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauges_show_the_result_of_the_last_audit() {
        let recorder = crate::prometheus::recorder().unwrap();
        let view = ViewName::new("by_email").unwrap();
        metrics::with_local_recorder(&recorder, || {
            audit(&view, 7, Timestamp::from_second(1_700_000_000).unwrap());
        });
        let text = recorder.handle().render();
        assert!(
            text.contains("evenkeel_drift_items{view=\"by_email\"} 7"),
            "{text}"
        );
        assert!(
            text.contains(
                "evenkeel_audit_last_completed_timestamp_seconds{view=\"by_email\"} 1700000000"
            ),
            "{text}"
        );
    }

    #[test]
    fn gauges_show_the_busiest_partition_and_throttled_scopes() {
        let busy = |entities| PartitionLoad {
            account: AccountName::main(),
            name: "T".to_owned(),
            partition: None,
            entities,
            requests: 1,
            throttled: 0,
        };
        let hold = LimitedScope {
            account: "main".to_owned(),
            scope: "the queue q".to_owned(),
            partition: None,
            remaining_seconds: 1.0,
            per_second: None,
        };
        let paced = LimitedScope {
            remaining_seconds: 0.0,
            per_second: Some(150.0),
            ..hold.clone()
        };
        let recorder = crate::prometheus::recorder().unwrap();
        metrics::with_local_recorder(&recorder, || {
            accounts(
                &[AccountName::main()],
                &[busy(50), busy(700)],
                &[hold, paced],
                &[(AccountName::main(), 2_000.0)],
            );
        });
        let text = recorder.handle().render();
        assert!(
            text.contains("evenkeel_busiest_partition_entities_per_second{account=\"main\"} 70"),
            "{text}"
        );
        assert!(
            text.contains("evenkeel_throttled_scopes{account=\"main\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("evenkeel_pace_requests_per_second{account=\"main\"} 2000"),
            "{text}"
        );
    }
}
