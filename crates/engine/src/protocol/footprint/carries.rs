//! Carries. A range overlay sets properties on every entity of a key range. A carry is the job that writes an overlay
//! to the entities of its range. A footprint marks each range whose carry may not have reached all of its entities.
//!
//! ```text
//!   pass over the entity:  announce, with a mark for each range ──▶ write its claim ──▶ queue a carry with the mark ──▶ close
//!   carry:                 visit every entity of the range ──▶ remove the mark from the footprint
//! ```
//!
//! The overlays of an entity are in step when no range is marked. A pass that changes the overlay of a range gives the
//! range a new mark, so an older carry no longer finds its own mark and removes nothing. A mark stays if its carry has
//! skipped entities or is in the poison queue. A thorough sync queues such a carry again.
//!
//! The mark is announced before its carry is queued. A carry that is done before the pass has closed therefore finds
//! the announcement open, and waits for the close. If no close comes, the carry removes its mark nevertheless, which
//! changes the footprint's ETag. That pass, or the next pass, then needs another round, in which it finds the claim
//! announced, writes the claim again, and queues a carry with another mark.
//!
//! The footprint of a deleted entity (its tombstone) stays as long as it has marks. The carry that removes the last
//! mark queues a recheck, which removes the tombstone.

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
use evenkeel_model::carry::{Carry, CarryMark};
use evenkeel_model::claim::{self, Claim, Reach};
use evenkeel_model::job::Primary;
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
    pub(crate) reach: Reach,
}

/// The ranges that still need a carry, each with the mark of that carry. A footprint stores them as a JSON array. The
/// format version of the footprint covers this array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carries(Vec<MarkedRange>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MarkedRange {
    view: ViewName,
    range: Reach,
    mark: String,
}

impl MarkedRange {
    fn is(&self, OverlayRange { view, reach }: &OverlayRange) -> bool {
        self.view == *view && self.range == *reach
    }
}

impl Carries {
    pub(crate) fn mark(&mut self, range: OverlayRange, mark: String) {
        self.0.retain(|marked| !marked.is(&range));
        let OverlayRange { view, reach: range } = range;
        self.0.push(MarkedRange { view, range, mark });
    }

    pub(crate) fn of(&self, range: &OverlayRange) -> Option<&str> {
        self.0
            .iter()
            .find(|marked| marked.is(range))
            .map(|marked| marked.mark.as_str())
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = OverlayRange> {
        self.0.iter().map(|marked| OverlayRange {
            view: marked.view.clone(),
            reach: marked.range.clone(),
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    fn end(&mut self, carry: &Carry, mark: &CarryMark) -> bool {
        let marked = self.0.len();
        self.0.retain(|marked| {
            (&marked.view, &marked.range, &marked.mark) != (&carry.view, &carry.reach, &mark.mark)
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
        // Strings always serialise.
        serde_json::to_string(&self.0).unwrap_or_default()
    }

    pub(crate) fn read(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text).map(Self)
    }
}

pub(crate) fn claim_of(address: &ItemAddress) -> Option<Claim> {
    let Some(Part::Member(member)) = &address.part else {
        return None;
    };
    let is_claim = address
        .site
        .row()
        .is_some_and(|(table, _)| *table == claim::table());
    is_claim.then(|| Claim::of(member).ok()).flatten()
}

pub(crate) fn overlay_range(address: &ItemAddress) -> Option<OverlayRange> {
    claim_of(address).map(|claim| OverlayRange {
        view: address.view.clone(),
        reach: claim.reach,
    })
}

/// The ranges whose overlays these items change, each with its mark in the footprint. If `is_thorough`, all `marked`
/// ranges are included.
pub(crate) fn ranges_to_carry<'a>(
    scope: &Scope<'_>,
    items: impl Iterator<Item = &'a ItemAddress>,
    marked: &Carries,
    is_thorough: bool,
) -> Vec<(OverlayRange, Option<CarryMark>)> {
    let ranges: BTreeSet<OverlayRange> = items
        .filter_map(overlay_range)
        .chain(marked.ranges().filter(|_| is_thorough))
        .collect();
    let mark = |range: &OverlayRange| {
        marked.of(range).map(|mark| CarryMark {
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
    OverlayRange { view, reach }: &OverlayRange,
    mark: Option<&CarryMark>,
    delivery: &Delivery,
) -> Result<(), Failure> {
    let message = Carry::message(view, &scope.primary.key, reach, mark).to_string();
    let what = || format!("queueing a carry of {}", scope.primary);
    queueing::queue(scope.env, &delivery.carry_queue, &message, delivery, what).await
}

/// Removes the mark of a carry that has visited every entity of its range. If this was the last mark, the overlays of
/// the footprint's entity are in step.
pub(crate) async fn carried(env: &Env, carry: &Carry, delivery: &Delivery) -> Result<(), Failure> {
    let Some(mark) = &carry.mark else {
        return Ok(());
    };
    // If the catalog does not declare the table, no reader waits for its footprints.
    let Ok(source) = env.table(&mark.table) else {
        return Ok(());
    };
    let primary = Primary {
        table: source.table.clone(),
        key: carry.one.clone(),
    };
    let scope = Scope::new(env, source, primary, Some(delivery));
    read_secret(env).await;
    let (mut unanswered, mut waited, mut lost) = (UnansweredWrites::default(), 0, 0);
    while lost < ROUNDS {
        let Some((mut footprint, row)) = scope.read_footprint().await? else {
            return Ok(());
        };
        if !footprint.carries.end(carry, mark) {
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
        if footprint.settled == Settled::Absent && footprint.carries.is_empty() {
            // The recheck that was queued with the tombstone does not remove it, because that recheck has found marks,
            // or will find that the tombstone was written after the recheck was queued.
            let request = RecheckRequest::of(Vec::new());
            unanswered.rechecks.queue(&scope, &request, None).await?;
        }
        if store::write(
            &scope,
            &mut unanswered,
            &footprint,
            Some(&row.etag),
            "recording a completed carry in",
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
            "recording a completed carry in the footprint of {}",
            scope.primary
        ),
        ROUNDS,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::carry::CarryCursor;
    use evenkeel_model::{AccountName, EntityKey, Key, TableName};

    fn range(view: &str, from: &str, before: Option<&str>) -> OverlayRange {
        let key = |text: &str| Key::new(text).unwrap();
        let (account, table) = (AccountName::main(), TableName::new("Employees").unwrap());
        OverlayRange {
            view: ViewName::new(view).unwrap(),
            reach: Reach {
                account,
                table,
                pk: key("Sales"),
                from: key(from),
                before: before.map(key),
            },
        }
    }

    fn carry(OverlayRange { view, reach }: OverlayRange, mark: &str) -> (Carry, CarryMark) {
        let mark = CarryMark {
            table: TableName::new("Departments").unwrap(),
            mark: mark.to_owned(),
        };
        let one = EntityKey::new("Sales", "department").unwrap();
        (
            Carry {
                view,
                one,
                reach,
                mark: Some(mark.clone()),
                cursor: CarryCursor::default(),
            },
            mark,
        )
    }

    #[test]
    fn only_the_carry_with_the_last_mark_ends_a_range() {
        let mut carries = Carries::default();
        carries.mark(range("names", "a", None), "1".to_owned());
        carries.mark(range("names", "b", Some("c")), "1".to_owned());
        carries.mark(range("names", "a", None), "2".to_owned());
        assert_eq!(Carries::read(&carries.text()).unwrap(), carries);
        let mut end = |range, mark| {
            let (carry, mark) = carry(range, mark);
            carries.end(&carry, &mark)
        };
        assert!(!end(range("names", "a", None), "1"), "superseded");
        assert!(
            !end(range("other", "a", None), "2") && !end(range("names", "a", Some("c")), "2"),
            "another range"
        );
        assert!(
            end(range("names", "a", None), "2") && !end(range("names", "a", None), "2"),
            "once"
        );
        assert!(end(range("names", "b", Some("c")), "1") && carries.is_empty());
    }

    #[test]
    fn a_marked_range_is_an_object() {
        let mut carries = Carries::default();
        carries.mark(range("names", "", None), "1".to_owned());
        carries.mark(range("names", "b", Some("c")), "2".to_owned());
        let written = r#"[{"view":"names","range":{"account":"main","table":"Employees","pk":"Sales"},"mark":"1"},{"view":"names","range":{"account":"main","table":"Employees","pk":"Sales","from":"b","before":"c"},"mark":"2"}]"#;
        assert_eq!(carries.text(), written);
        assert_eq!(Carries::read(written).unwrap(), carries);
        assert!(Carries::read(&written.replace("\"from\"", "\"after\"")).is_err());
    }

    #[test]
    fn a_footprint_has_room_for_many_ranges_and_for_some_of_the_longest() {
        let of = |count: usize, key: &str| {
            let mut carries = Carries::default();
            (0..count).for_each(|n| {
                carries.mark(
                    range("names", &format!("{n}{key}"), Some(key)),
                    "0".repeat(16),
                );
            });
            carries.fit()
        };
        assert!(of(100, "k") && of(6, &"k".repeat(500)));
        assert!(!of(1_000, "k") && !of(60, &"k".repeat(500)));
        assert!(Carries::read("[1]").is_err() && Carries::read("").is_err());
    }
}
