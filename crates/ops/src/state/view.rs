//! Counts the item changes of each view.

use std::collections::VecDeque;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use super::{RECENT, SLOT};
use evenkeel_engine::Action;

/// The totals since the program started, and the slots of the last minute.
#[derive(Debug, Default)]
pub(super) struct ViewSeries {
    totals: [u64; 3],
    slots: VecDeque<(u64, [u64; 3])>,
    last_error: Option<(Timestamp, String)>,
    /// Number of items that the last audit left wrong, and the time at which the audit ended.
    audited: Option<(u64, Timestamp)>,
}

/// The state of a view.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(title = "view")]
pub struct ViewNow {
    /// Its name.
    pub view: String,
    /// Its kind: `secondary_index`, …
    pub kind: String,
    /// The table of its primaries.
    pub source: String,
    /// Items inserted since the program started.
    pub created: u64,
    /// Items replaced since the program started.
    pub updated: u64,
    /// Items deleted since the program started.
    pub deleted: u64,
    /// Items inserted per second in the last minute.
    pub created_per_second: f64,
    /// Items replaced per second in the last minute.
    pub updated_per_second: f64,
    /// Items deleted per second in the last minute.
    pub deleted_per_second: f64,
    /// Items that the last audit found wrong and that neither it nor a later backfill repaired; null if the view was
    /// never audited.
    pub drift: Option<u64>,
    /// When the last audit was completed (RFC 3339).
    pub audited: Option<String>,
    /// The last error of a job with items of the view, since the program started.
    pub last_error: Option<String>,
    /// When that error occurred (RFC 3339).
    pub last_error_at: Option<String>,
}

impl ViewNow {
    /// Hides the text of the last error, because it may contain stored data.
    #[must_use]
    pub fn without_contents(mut self) -> Self {
        self.last_error = self
            .last_error
            .map(|_| "hidden; shown with a token with contents = true".to_owned());
        self
    }
}

impl ViewSeries {
    pub(super) fn changed(&mut self, number: u64, action: Action) {
        let action = match action {
            Action::Create => 0,
            Action::Update => 1,
            Action::Delete => 2,
        };
        self.totals[action] += 1;
        if self.slots.back().is_none_or(|(last, _)| *last < number) {
            self.slots.push_back((number, [0; 3]));
        }
        while self
            .slots
            .front()
            .is_some_and(|(first, _)| first + RECENT <= number)
        {
            self.slots.pop_front();
        }
        if let Some((_, counts)) = self.slots.back_mut() {
            counts[action] += 1;
        }
    }

    pub(super) fn failed(&mut self, at: Timestamp, error: &str) {
        self.last_error = Some((at, error.to_owned()));
    }

    pub(super) fn drift(&self) -> Option<u64> {
        self.audited.map(|(drift, _)| drift)
    }

    /// Returns the number of items that the last audit left wrong, and the time at which that audit ended; `None` if no
    /// item is wrong.
    pub(super) fn drifted(&self) -> Option<(u64, Timestamp)> {
        self.audited.filter(|(drift, _)| *drift > 0)
    }

    pub(super) const fn audited(&mut self, drift: u64, at: Timestamp) {
        self.audited = Some((drift, at));
    }

    pub(super) fn now(
        &self,
        number: u64,
        running: f64,
        view: String,
        kind: String,
        source: String,
    ) -> ViewNow {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a minute's items, and six slots"
        )]
        let [created_per_second, updated_per_second, deleted_per_second] =
            std::array::from_fn(|action| {
                let recent: u64 = self
                    .slots
                    .iter()
                    .filter(|(slot, _)| slot + RECENT > number)
                    .map(|(_, counts)| counts[action])
                    .sum();
                recent as f64 / running.min(SLOT.as_secs_f64() * RECENT as f64).max(1.0)
            });
        let [created, updated, deleted] = self.totals;
        let (last_error_at, last_error) = self
            .last_error
            .as_ref()
            .map(|(at, error)| (at.to_string(), error.clone()))
            .unzip();
        ViewNow {
            view,
            kind,
            source,
            created,
            updated,
            deleted,
            created_per_second,
            updated_per_second,
            deleted_per_second,
            drift: self.drift(),
            audited: self.audited.map(|(_, at)| at.to_string()),
            last_error,
            last_error_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_kept_and_rates_expire() {
        let mut series = ViewSeries::default();
        for number in 0..6 {
            series.changed(number, Action::Create);
        }
        series.changed(6, Action::Delete);
        let now = |number| {
            series.now(
                number,
                600.0,
                "v".to_owned(),
                "secondary_index".to_owned(),
                "T".to_owned(),
            )
        };
        assert_eq!((now(6).created, now(6).deleted), (6, 1));
        assert!((now(6).created_per_second - 5.0 / 60.0).abs() < 1e-9);
        assert!((now(6).deleted_per_second - 1.0 / 60.0).abs() < 1e-9);
        assert!(now(12).deleted_per_second.abs() < 1e-9);
    }

    #[test]
    fn the_last_error_is_kept() {
        let mut series = ViewSeries::default();
        series.failed(Timestamp::UNIX_EPOCH, "busy");
        series.failed(Timestamp::UNIX_EPOCH, "taken");
        let now = series.now(
            1,
            600.0,
            "v".to_owned(),
            "secondary_index".to_owned(),
            "T".to_owned(),
        );
        assert_eq!(
            (now.last_error.as_deref(), now.drift),
            (Some("taken"), None)
        );
    }

    #[test]
    fn the_last_audit_is_shown() {
        let mut series = ViewSeries::default();
        series.audited(3, Timestamp::UNIX_EPOCH);
        let now = series.now(
            1,
            600.0,
            "v".to_owned(),
            "secondary_index".to_owned(),
            "T".to_owned(),
        );
        assert_eq!(
            (now.drift, now.audited.as_deref()),
            (Some(3), Some("1970-01-01T00:00:00Z"))
        );
    }
}
