//! Tracks the progress of unfinished jobs about whole tables.
//!
//! Only jobs of which this worker has run a part are known. Any worker may receive the next part. A job of which this
//! worker runs no part for a while is forgotten, because another worker continues it or has finished it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::grouped;
use evenkeel_model::job::WalkProgress;
use evenkeel_worker::{DeliveryReport, DeliveryStatus};

/// Maximum number of jobs that are remembered.
const MOST: usize = 64;
/// How long a job is remembered after this worker has finished a part of it.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(15);

/// An unfinished job about a whole table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "walk")]
pub struct WalkNow {
    /// `backfill`, `audit`, `delete_where` or `archive_where`.
    pub op: &'static str,
    /// Description of its scope.
    pub scope: String,
    /// Primaries processed so far: brought in step, compared, or checked against a condition.
    pub primaries: u64,
    /// Primaries that failed; a sync job is queued for each of them. A backfill also counts items whose keys are taken
    /// by rows that evenkeel did not write.
    pub failed: u64,
    /// Items found wrong and not repaired so far; null for a backfill.
    pub wrong: Option<u64>,
    /// The queue of its message.
    pub queue: String,
    /// Id of its message.
    pub message_id: String,
    /// When this worker last finished a part of it (RFC 3339).
    pub at: String,
    /// Seconds since then.
    pub seconds_ago: f64,
}

impl fmt::Display for WalkNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            op,
            scope,
            primaries,
            failed,
            wrong,
            ..
        } = self;
        write!(
            f,
            "{op} of {scope}: {} primaries so far",
            grouped(*primaries)
        )?;
        match wrong {
            Some(0) | None => {}
            Some(wrong) => write!(f, ", {} items wrong", grouped(*wrong))?,
        }
        if *failed > 0 {
            write!(f, ", {} failed", grouped(*failed))
        } else {
            Ok(())
        }
    }
}

struct RecordedWalk {
    op: &'static str,
    queue: String,
    walked: WalkProgress,
    at: Timestamp,
}

/// The known jobs by the ids of their messages.
#[derive(Default)]
pub(super) struct Walks(BTreeMap<String, RecordedWalk>);

impl Walks {
    pub(super) fn ended(&mut self, delivery: &DeliveryReport) {
        match (&delivery.walked, delivery.ending) {
            (Some(walked), _) => {
                let (queue, walked) = (delivery.queue.to_string(), walked.clone());
                self.0.insert(
                    delivery.message_id.clone(),
                    RecordedWalk {
                        op: delivery.op,
                        queue,
                        walked,
                        at: delivery.at,
                    },
                );
                while self.0.len() > MOST {
                    let oldest = self
                        .0
                        .iter()
                        .min_by_key(|(_, walk)| walk.at)
                        .map(|(id, _)| id.clone());
                    oldest.and_then(|oldest| self.0.remove(&oldest));
                }
            }
            // This delivery made no progress. The message will be delivered again, so the job stays in the list.
            (None, DeliveryStatus::Retried) => {}
            (
                None,
                DeliveryStatus::Done
                | DeliveryStatus::Skipped
                | DeliveryStatus::Poisoned
                | DeliveryStatus::Lost,
            ) => {
                drop(self.0.remove(&delivery.message_id));
            }
        }
    }

    pub(super) fn now(&self, now: Timestamp) -> Vec<WalkNow> {
        let recent = |walk: &RecordedWalk| {
            Duration::try_from(now.duration_since(walk.at)).unwrap_or_default() < FORGOTTEN_AFTER
        };
        let mut walks: Vec<(&String, &RecordedWalk)> =
            self.0.iter().filter(|(_, walk)| recent(walk)).collect();
        walks.sort_by(|(_, a), (_, b)| (&a.walked.of, a.op).cmp(&(&b.walked.of, b.op)));
        let shown = |(
            id,
            RecordedWalk {
                op,
                queue,
                walked,
                at,
            },
        ): (&String, &RecordedWalk)| WalkNow {
            op,
            scope: walked.of.clone(),
            primaries: walked.primaries,
            failed: walked.failed,
            wrong: walked.wrong,
            queue: queue.clone(),
            message_id: id.clone(),
            at: at.to_string(),
            seconds_ago: Duration::try_from(now.duration_since(*at))
                .unwrap_or_default()
                .as_secs_f64(),
        };
        walks.into_iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::delivered;
    use super::*;

    fn advanced(id: &str, primaries: u64) -> DeliveryReport {
        let walked = WalkProgress {
            of: "the table Employees".to_owned(),
            primaries,
            failed: 1,
            wrong: None,
        };
        DeliveryReport {
            op: "backfill",
            walked: Some(walked),
            ..delivered(id, DeliveryStatus::Retried)
        }
    }

    #[test]
    fn a_walk_shows_its_progress_from_its_first_part_to_its_end() {
        let mut walks = Walks::default();
        let now = Timestamp::UNIX_EPOCH;
        walks.ended(&delivered("other", DeliveryStatus::Done));
        assert_eq!(walks.now(now), []);
        walks.ended(&advanced("m", 100));
        walks.ended(&advanced("m", 250));
        let shown = walks.now(now);
        assert_eq!(
            (
                shown.len(),
                shown[0].op,
                shown[0].primaries,
                shown[0].failed
            ),
            (1, "backfill", 250, 1)
        );
        assert_eq!(
            shown[0].to_string(),
            "backfill of the table Employees: 250 primaries so far, 1 failed"
        );
        walks.ended(&delivered("m", DeliveryStatus::Retried));
        assert_eq!(walks.now(now).len(), 1, "the job will be delivered again");
        walks.ended(&delivered("m", DeliveryStatus::Done));
        assert_eq!(walks.now(now), []);
    }

    #[test]
    fn a_walk_that_continues_elsewhere_is_forgotten() {
        let mut walks = Walks::default();
        for number in 0..100 {
            walks.ended(&advanced(&format!("m{number}"), number));
        }
        assert_eq!(walks.now(Timestamp::UNIX_EPOCH).len(), MOST);
        assert_eq!(walks.now(Timestamp::UNIX_EPOCH + FORGOTTEN_AFTER), []);
    }
}
