//! Propagations. A range overlay sets properties on every entity of a key range. A `propagate` job writes the overlay
//! to the entities of its range. The owner's footprint has a mark for each range with entities that the job may not
//! have written yet.
//!
//! ```text
//!   pass over the owner:  announce, with a mark for each range ─▶ write the overlay ─▶ queue a job with the mark ─▶ close
//!   the job:              write every entity of the range ─▶ remove the mark from the footprint
//! ```
//!
//! The range overlays of an owner are in step when no range is marked. A pass that changes the overlay of a range gives
//! the range a new mark. An older job then does not find its own mark, and removes nothing. A mark stays if its job has
//! skipped entities or is in the poison queue. A thorough sync queues such a job again.
//!
//! The mark is announced before its job is queued. If the job is done before the pass has closed, the job finds the
//! announcement open, and waits for the close. If the pass does not close in time, the job removes its mark
//! nevertheless, which changes the footprint's ETag. The pass, or the next one, then needs another round. In this round
//! the overlay is still announced, so it is written again, and a job with another mark is queued.
//!
//! The footprint of a deleted owner (its tombstone) stays as long as it has marks. The job that removes the last mark
//! queues a recheck, which removes the tombstone.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::env::Env;
use crate::env::signature::read_secret;
use crate::execute::{Delivery, Failure};
use crate::failure::{ROUNDS, lost_race};
use crate::protocol::footprint::Settled;
use crate::protocol::footprint::store;
use crate::protocol::queueing::{self, RecheckRequest};
use crate::protocol::scope::Scope;
use crate::protocol::unanswered::UnansweredWrites;
use evenkeel_model::job::Primary;
use evenkeel_model::propagation::{Propagation, PropagationMark};
use evenkeel_model::range_overlay::{self, RangeOverlay, TargetRange};
use evenkeel_model::{ItemAddress, Part, ViewName};

/// Upper limit on the UTF-16 units of the list: half of what a property can hold.
pub(crate) const MAX_UNITS: usize = 16_000;
/// The first wait for a pass that is about to close. Each wait is twice as long as the one before.
const FIRST_CLOSE_WAIT: Duration = Duration::from_millis(50);
/// Maximum number of waits for a close, some three seconds in all.
const MAX_CLOSE_WAITS: u32 = 6;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OverlayRange {
    pub(crate) view: ViewName,
    pub(crate) range: TargetRange,
}

/// The ranges with an unfinished `propagate` job, each with the mark of this job. A footprint stores them as a JSON
/// array. The format version of the footprint covers this array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Propagations(Vec<MarkedRange>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkedRange {
    view: ViewName,
    range: TargetRange,
    mark: String,
}

impl MarkedRange {
    fn has_range(&self, OverlayRange { view, range }: &OverlayRange) -> bool {
        self.view == *view && self.range == *range
    }
}

impl Propagations {
    pub(crate) fn mark(&mut self, range: OverlayRange, mark: String) {
        self.0.retain(|marked| !marked.has_range(&range));
        let OverlayRange { view, range } = range;
        self.0.push(MarkedRange { view, range, mark });
    }

    pub(crate) fn mark_of(&self, range: &OverlayRange) -> Option<&str> {
        self.0
            .iter()
            .find(|marked| marked.has_range(range))
            .map(|marked| marked.mark.as_str())
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = OverlayRange> {
        self.0.iter().map(|marked| OverlayRange {
            view: marked.view.clone(),
            range: marked.range.clone(),
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    fn unmark(&mut self, propagation: &Propagation, mark: &PropagationMark) -> bool {
        let marked = self.0.len();
        self.0.retain(|marked| {
            (&marked.view, &marked.range, &marked.mark)
                != (&propagation.view, &propagation.range, &mark.mark)
        });
        self.0.len() < marked
    }

    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn fit(&self) -> bool {
        self.text().encode_utf16().count() <= MAX_UNITS
    }

    pub(crate) fn text(&self) -> String {
        // Serialising fails only for maps whose keys are not strings.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    pub(crate) fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }
}

/// The range overlay that the item stores; `None` if the item is not a readable range overlay.
pub(crate) fn overlay_of(address: &ItemAddress) -> Option<RangeOverlay> {
    let Some(Part::Member(member)) = &address.part else {
        return None;
    };
    let is_overlay = address
        .site
        .row()
        .is_some_and(|(table, _)| *table == range_overlay::table());
    is_overlay
        .then(|| RangeOverlay::from_member(member).ok())
        .flatten()
}

pub(crate) fn overlay_range(address: &ItemAddress) -> Option<OverlayRange> {
    overlay_of(address).map(|overlay| OverlayRange {
        view: address.view.clone(),
        range: overlay.range,
    })
}

/// The ranges whose overlays these items change, each with its mark in the footprint. If `is_thorough`, all `marked`
/// ranges are included.
pub(crate) fn ranges_to_propagate<'a>(
    scope: &Scope<'_>,
    items: impl Iterator<Item = &'a ItemAddress>,
    marked: &Propagations,
    is_thorough: bool,
) -> Vec<(OverlayRange, Option<PropagationMark>)> {
    let ranges: BTreeSet<OverlayRange> = items
        .filter_map(overlay_range)
        .chain(marked.ranges().filter(|_| is_thorough))
        .collect();
    let mark = |range: &OverlayRange| {
        marked.mark_of(range).map(|mark| PropagationMark {
            table: scope.primary.table.clone(),
            mark: mark.to_owned(),
        })
    };
    ranges
        .into_iter()
        .map(|range| {
            let mark = mark(&range);
            (range, mark)
        })
        .collect()
}

pub(crate) async fn queue(
    scope: &Scope<'_>,
    OverlayRange { view, range }: &OverlayRange,
    mark: Option<&PropagationMark>,
    delivery: &Delivery,
) -> Result<(), Failure> {
    let message = Propagation::message(view, &scope.primary.key, range, mark).to_string();
    let what = || format!("queueing a propagate job of {}", scope.primary);
    queueing::queue(
        scope.env,
        &delivery.propagation_queue,
        &message,
        delivery,
        what,
    )
    .await
}

/// Removes the mark of a job that has written every entity of its range. If this was the last mark, the owner's range
/// overlays are in step.
pub(crate) async fn remove_mark(
    env: &Env,
    propagation: &Propagation,
    delivery: &Delivery,
) -> Result<(), Failure> {
    let Some(mark) = &propagation.mark else {
        return Ok(());
    };
    // If the catalog does not declare the table, no reader waits for its footprints.
    let Ok(source) = env.table(&mark.table) else {
        return Ok(());
    };
    let primary = Primary {
        table: source.table.clone(),
        key: propagation.owner.clone(),
    };
    let scope = Scope::new(env, source, primary, Some(delivery));
    read_secret(env).await;
    let (mut unanswered, mut waited, mut lost) = (UnansweredWrites::default(), 0, 0);
    while lost < ROUNDS {
        let Some((mut footprint, row)) = scope.read_footprint().await? else {
            return Ok(());
        };
        if !footprint.propagations.unmark(propagation, mark) {
            return Ok(());
        }
        if footprint.is_changing() && waited < MAX_CLOSE_WAITS {
            tokio::time::sleep(
                FIRST_CLOSE_WAIT
                    .saturating_mul(1 << waited)
                    .mul_f64(0.5 + env.rng.unit()),
            )
            .await;
            waited += 1;
            continue;
        }
        if footprint.settled == Settled::Absent && footprint.propagations.is_empty() {
            // The recheck that was queued with the tombstone does not remove the tombstone. It has found marks, or will
            // find that the tombstone was written after the recheck was queued.
            let request = RecheckRequest::of(Vec::new());
            unanswered.rechecks.queue(&scope, &request, None).await?;
        }
        if store::write(
            &scope,
            &mut unanswered,
            &footprint,
            Some(&row.etag),
            "removing a propagation mark from",
        )
        .await?
        .is_some()
        {
            return Ok(());
        }
        lost += 1;
    }
    Err(lost_race(
        format!(
            "removing a propagation mark from the footprint of {}",
            scope.primary
        ),
        ROUNDS,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::propagation::PropagationCursor;
    use evenkeel_model::{AccountName, EntityKey, Key, TableName};

    fn range(view: &str, from: &str, before: Option<&str>) -> OverlayRange {
        let key = |text: &str| Key::new(text).unwrap();
        let (account, table) = (AccountName::main(), TableName::new("Employees").unwrap());
        OverlayRange {
            view: ViewName::new(view).unwrap(),
            range: TargetRange {
                account,
                table,
                pk: key("Sales"),
                from: key(from),
                before: before.map(key),
            },
        }
    }

    fn propagation(
        OverlayRange { view, range }: OverlayRange,
        mark: &str,
    ) -> (Propagation, PropagationMark) {
        let mark = PropagationMark {
            table: TableName::new("Departments").unwrap(),
            mark: mark.to_owned(),
        };
        let owner = EntityKey::new("Sales", "department").unwrap();
        (
            Propagation {
                view,
                owner,
                range,
                mark: Some(mark.clone()),
                cursor: PropagationCursor::default(),
            },
            mark,
        )
    }

    #[test]
    fn only_the_propagation_with_the_last_mark_removes_it() {
        let mut propagations = Propagations::default();
        propagations.mark(range("names", "a", None), "1".to_owned());
        propagations.mark(range("names", "b", Some("c")), "1".to_owned());
        propagations.mark(range("names", "a", None), "2".to_owned());
        assert_eq!(
            Propagations::read(&propagations.text()).unwrap(),
            propagations
        );
        let mut unmark = |range, mark| {
            let (propagation, mark) = propagation(range, mark);
            propagations.unmark(&propagation, &mark)
        };
        assert!(!unmark(range("names", "a", None), "1"), "superseded");
        assert!(
            !unmark(range("other", "a", None), "2") && !unmark(range("names", "a", Some("c")), "2"),
            "another range"
        );
        assert!(
            unmark(range("names", "a", None), "2") && !unmark(range("names", "a", None), "2"),
            "once"
        );
        assert!(unmark(range("names", "b", Some("c")), "1") && propagations.is_empty());
    }

    #[test]
    fn a_marked_range_is_an_object() {
        let mut propagations = Propagations::default();
        propagations.mark(range("names", "", None), "1".to_owned());
        propagations.mark(range("names", "b", Some("c")), "2".to_owned());
        let written = r#"[{"view":"names","range":{"account":"main","table":"Employees","pk":"Sales"},"mark":"1"},{"view":"names","range":{"account":"main","table":"Employees","pk":"Sales","from":"b","before":"c"},"mark":"2"}]"#;
        assert_eq!(propagations.text(), written);
        assert_eq!(Propagations::read(written).unwrap(), propagations);
        assert!(Propagations::read(&written.replace("\"from\"", "\"after\"")).is_err());
    }

    #[test]
    fn a_footprint_has_room_for_many_ranges_and_for_some_of_the_longest() {
        let of = |count: usize, key: &str| {
            let mut propagations = Propagations::default();
            (0..count).for_each(|n| {
                propagations.mark(
                    range("names", &format!("{n}{key}"), Some(key)),
                    "0".repeat(16),
                );
            });
            propagations.fit()
        };
        assert!(of(100, "k") && of(6, &"k".repeat(500)));
        assert!(!of(1_000, "k") && !of(60, &"k".repeat(500)));
        assert!(Propagations::read("[1]").is_err() && Propagations::read("").is_err());
    }
}
