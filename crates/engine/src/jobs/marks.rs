//! Marks: properties (`ek_job`, `ek_source_…`) by which jobs recognize what they or other jobs have written.
//!
//! Marks count towards the limits of a row. They must not make a legal entity illegal, so marks that do not fit are
//! omitted. The protocol also works if these marks are missing:
//!
//! | mark | shows | if it is missing |
//! | --- | --- | --- |
//! | `ek_source_copied`, `ek_source_etag` of a restored entity | which version was restored | a redelivery restores the entity again; if a client has changed it since the first restore, the job fails |
//! | `ek_job` of a restored entity | this job has restored the entity already | the entity counts as restored if its content equals the archived content |
//! | `ek_source_job` | which job archived or moved the entity before | a redelivered job skips the entity if it was written after the job was enqueued |

use crate::protocol::change::Change;
use evenkeel_model::Entity;
use evenkeel_model::item::{SOURCE_COPIED, SOURCE_ETAG, SOURCE_JOB};
use evenkeel_model::job::Stamp;

/// Marks that a restored entity can do without, in the order in which they are omitted.
pub(crate) const OF_RESTORED: [&str; 4] = [SOURCE_COPIED, SOURCE_ETAG, Stamp::PROPERTY, SOURCE_JOB];
pub(crate) const OF_COPIES: [&str; 1] = [SOURCE_JOB];
/// Upper bound for the length of a mark, in characters.
const LONGEST: usize = 256;

pub(crate) fn fitted(mut change: Change, marks: &[&str], fits: impl Fn(&Change) -> bool) -> Change {
    for mark in marks {
        if fits(&change) {
            break;
        }
        change = change.without(mark);
    }
    change
}

/// Returns `true` if the entity lacks this mark and has no room for it at maximum length, so that the mark may have
/// been omitted.
pub(crate) fn may_lack(mark: &str, entity: &Entity, fits: impl Fn(&Change) -> bool) -> bool {
    entity.get(mark).is_none()
        && !fits(&Change::Insert(
            entity.clone().with(mark, "x".repeat(LONGEST)),
        ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::EntityKey;

    fn marked(own: usize) -> Change {
        let entity = (0..own).fold(
            Entity::new(EntityKey::new("p", "r").unwrap()),
            |entity, i| entity.with(format!("P{i}"), true),
        );
        Change::Insert(OF_RESTORED.into_iter().fold(entity, |entity, mark| {
            entity.with(mark, "m 2026-11-20T15:00:00Z")
        }))
    }

    fn fits(change: &Change) -> bool {
        change.result().is_some_and(|entity| entity.check().is_ok())
    }

    #[test]
    fn marks_are_left_out_until_the_entity_fits() {
        for (own, left) in [(0, 4), (248, 4), (249, 3), (250, 2), (251, 1), (252, 0)] {
            let fitted = fitted(marked(own), &OF_RESTORED, fits);
            assert!(fits(&fitted), "{own}");
            let entity = fitted.result().unwrap();
            let kept: Vec<&str> = OF_RESTORED
                .into_iter()
                .filter(|mark| entity.get(mark).is_some())
                .collect();
            assert_eq!(kept, OF_RESTORED[4 - left..], "{own}");
            assert_eq!(entity.user_properties().count(), own);
            // `may_lack` must report every mark that was omitted.
            assert_eq!(may_lack(SOURCE_JOB, entity, fits), left < 1, "{own}");
            assert_eq!(may_lack(Stamp::PROPERTY, entity, fits), left < 2, "{own}");
        }
        assert!(
            !fits(&fitted(marked(253), &OF_RESTORED, fits)),
            "the entity itself does not fit"
        );
    }
}
