//! `archive`: the eventually consistent transaction. Copies a primary into its archive, deletes it at
//! the very ETag that was copied, and brings the items of both in step.
//!
//! ```text
//!   read source ──▶ write archive row ──▶ delete source at the ETag read ──▶ reconcile
//!       ▲            (insert, or replace       │ changed since
//!       └──────────── at its own ETag) ◀───────┘ read again
//! ```
//!
//! An update that races is therefore in the archive, never lost. There is no isolation between the steps:
//! a reader may find the entity in both places, and looks in source, archive, source.

use super::commit::{Change, Commit};
use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::observation::Observation;
use super::pass::Pass;
use crate::catalog::{Archive, ArchiveTarget};
use crate::model::item::{SOURCE_PROPERTY, source_text};
use crate::model::job::{Primary, Stamp};
use crate::model::{ETag, EdmDateTime, Entity, EntityKey, Row};

/// The property that says when an entity was archived.
const ARCHIVED_AT: &str = "ek_archived_at";
/// The property that says which version of the source was archived.
const SOURCE_ETAG: &str = "ek_source_etag";

/// What an archive job does about the row it finds in the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Copy {
    /// Nothing there.
    Insert,
    /// An earlier archiving, or an earlier version of the source.
    Replace(ETag),
    /// This job has copied this version already.
    Copied,
    /// The source is not this job's to archive any more.
    Skip(String),
}

/// One run of an archive job.
struct Archiving<'e> {
    engine: &'e Engine,
    key: &'e EntityKey,
    delivery: &'e Delivery,
    source: Pass<'e>,
    kept: Pass<'e>,
    /// This run has copied the source.
    copied: bool,
}

pub(super) async fn run(
    engine: &Engine,
    archive: &Archive,
    key: &EntityKey,
    if_match: Option<&ETag>,
    delivery: &Delivery,
) -> Result<Outcome, Failure> {
    let ArchiveTarget::Table(target) = &archive.target;
    let source = engine.pass(&Primary { table: archive.source.table.clone(), key: key.clone() }, delivery)?;
    let kept = engine.pass(&Primary { table: target.table.clone(), key: key.clone() }, delivery)?;
    let mut archiving = Archiving { engine, key, delivery, source, kept, copied: false };
    let ended = archiving.run(if_match).await;
    if ended.is_err() && archiving.surely_undeleted() {
        // Best effort: without it the next delivery leaves an entity alone that has changed meanwhile.
        drop(archiving.reopen().await);
    }
    let skipped = ended?;
    let summary = joined(archiving.source, archiving.kept);
    Ok(match skipped {
        None => Outcome::Done(summary),
        Some(reason) => Outcome::Skipped { reason, summary },
    })
}

impl Archiving<'_> {
    /// Copies, deletes and reconciles. Says why, where there was nothing to do.
    async fn run(&mut self, if_match: Option<&ETag>) -> Result<Option<String>, Failure> {
        // The first delivery to a table without views expects no archived row and saves the read of it.
        let mut read_archive = self.delivery.dequeue_count > 1 || self.kept.has_views();
        loop {
            self.source.next_round()?;
            let seen = self.source.observe().await?;
            let found = if read_archive { self.kept.observe().await? } else { Observation::blank() };
            let Some(row) = &seen.row else {
                let stamped = found.row.as_ref().and_then(|row| Stamp::of(&row.entity));
                let done = self.copied || stamped.as_ref() == Some(&self.delivery.stamp);
                self.settle(&seen).await?;
                return Ok((!done).then(|| format!("{} does not exist", self.source.primary)));
            };
            let change = match self.decide(row, found.row.as_ref(), if_match) {
                Copy::Insert => Some(Change::Insert(self.archived(row))),
                Copy::Replace(etag) => Some(Change::Replace(self.archived(row), etag)),
                Copy::Copied => None,
                Copy::Skip(reason) => {
                    self.settle(&seen).await?;
                    return Ok(Some(reason));
                }
            };
            read_archive = true;
            match change {
                Some(change) => match self.kept.commit(&found, &change).await? {
                    Commit::Closed => {}
                    Commit::Committed => self.kept.settle().await?,
                    Commit::Lost | Commit::Unanswered => continue,
                },
                // Copied by a try that heard no answer, or crashed before the archived row's own items were there.
                None => self.kept.settle_from(&found).await?,
            }
            self.copied = true;
            match self.source.commit(&seen, &Change::Delete(self.key.clone(), row.etag.clone())).await? {
                Commit::Closed => return Ok(None),
                Commit::Committed => {
                    self.source.settle().await?;
                    return Ok(None);
                }
                Commit::Lost | Commit::Unanswered => {}
            }
        }
    }

    /// This run has copied the source, and no request of it to delete the source can have been executed.
    const fn surely_undeleted(&self) -> bool {
        self.copied && !self.source.may_have_written
    }

    fn decide(&self, row: &Row, found: Option<&Row>, if_match: Option<&ETag>) -> Copy {
        // The condition is judged once: what changes after the copy moves along with it.
        match if_match.filter(|wanted| **wanted != row.etag && !self.copied) {
            Some(wanted) => Copy::Skip(format!("if_match: the entity is at {}, not at {wanted}", row.etag)),
            None => decide(row, found, &self.delivery.stamp, self.surely_undeleted()),
        }
    }

    /// Brings the items of both in step.
    async fn settle(&mut self, seen: &Observation) -> Result<(), Failure> {
        // A source whose key is taken fails for good: an archived row that an earlier delivery wrote must not wait for it.
        let settled = self.source.settle_from(seen).await;
        self.kept.settle().await?;
        settled
    }

    /// Takes back the word that this very version was copied, before a run gives up that knows it has not deleted:
    /// the next delivery could not tell an entity that changed from one created anew, and would leave it alone.
    async fn reopen(&mut self) -> Result<(), Failure> {
        let found = self.kept.observe().await?;
        let Some(row) = found.row.as_ref().filter(|row| Stamp::of(&row.entity).as_ref() == Some(&self.delivery.stamp)) else {
            return Ok(());
        };
        let mut entity = row.entity.clone();
        entity.properties.remove(SOURCE_ETAG);
        self.kept.commit(&found, &Change::Replace(entity, row.etag.clone())).await.map(drop)
    }

    /// The row to keep: every property of the user's, when and from where it came, and which job brought it.
    fn archived(&self, row: &Row) -> Entity {
        let properties = row.entity.user_properties().map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut entity = Entity { key: row.entity.key.clone(), properties }
            .with(SOURCE_PROPERTY, source_text(&self.source.primary))
            .with(SOURCE_ETAG, row.etag.as_str());
        if let Ok(now) = EdmDateTime::from_timestamp(self.engine.clock.now()) {
            entity = entity.with(ARCHIVED_AT, now);
        }
        self.delivery.stamp.on(entity)
    }
}

/// What both passes did.
pub(super) fn joined(source: Pass<'_>, kept: Pass<'_>) -> super::Summary {
    let mut summary = source.summary;
    summary.changes.extend(kept.summary.changes);
    summary.extra_rounds += kept.summary.extra_rounds;
    summary
}

fn decide(source: &Row, archived: Option<&Row>, stamp: &Stamp, surely_undeleted: bool) -> Copy {
    let Some(archived) = archived else { return Copy::Insert };
    match Stamp::of(&archived.entity) {
        Some(written) if written == *stamp => {
            if archived.entity.text(SOURCE_ETAG) == Some(source.etag.as_str()) {
                return Copy::Copied;
            }
            // A run that gave up knew that it had not deleted.
            let reopened = archived.entity.get(SOURCE_ETAG).is_none();
            // Another version than the one copied: an update that raced, or an entity created anew after this
            // job had deleted the old one. What was written before the copy cannot have been created after it.
            let older = source.timestamp.zip(archived.timestamp).is_some_and(|(source, archived)| source < archived);
            if surely_undeleted || reopened || older {
                Copy::Replace(archived.etag.clone())
            } else {
                Copy::Skip("an earlier delivery archived another version of it, and what is there now may have been created since; a new archive job archives it".to_owned())
            }
        }
        Some(written) if written.enqueued > stamp.enqueued => {
            Copy::Skip("a later job has archived it since, and what is there now was created after that".to_owned())
        }
        Some(_) | None => Copy::Replace(archived.etag.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(id: &str, second: i64) -> Stamp {
        Stamp { message_id: id.to_owned(), enqueued: jiff::Timestamp::from_second(second).unwrap() }
    }

    fn row(etag: &str, written: &str) -> Row {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap());
        Row { entity, etag: ETag::new(etag).unwrap(), timestamp: Some(EdmDateTime::parse(written).unwrap()) }
    }

    fn kept(by: &Stamp, source_etag: &str, written: &str) -> Row {
        let mut kept = row("kept", written);
        kept.entity = by.on(kept.entity).with(SOURCE_ETAG, source_etag);
        kept
    }

    const EARLY: &str = "2026-11-20T15:00:00Z";
    const LATE: &str = "2026-11-20T16:00:00Z";

    #[test]
    fn an_archived_row_is_inserted_or_replaced_at_its_own_etag() {
        let job = stamp("m", 100);
        assert_eq!(decide(&row("e1", EARLY), None, &job, false), Copy::Insert);
        assert_eq!(
            decide(&row("e1", EARLY), Some(&kept(&stamp("old", 50), "e0", EARLY)), &job, false),
            Copy::Replace(ETag::new("kept").unwrap())
        );
        assert_eq!(decide(&row("e1", EARLY), Some(&row("kept", EARLY)), &job, false), Copy::Replace(ETag::new("kept").unwrap()));
    }

    #[test]
    fn a_version_that_this_job_has_copied_is_not_copied_again() {
        let job = stamp("m", 100);
        assert_eq!(decide(&row("e1", EARLY), Some(&kept(&job, "e1", LATE)), &job, false), Copy::Copied);
    }

    #[test]
    fn an_update_that_raced_is_copied_over_the_earlier_copy() {
        let job = stamp("m", 100);
        assert_eq!(decide(&row("e2", LATE), Some(&kept(&job, "e1", EARLY)), &job, true), Copy::Replace(ETag::new("kept").unwrap()));
        assert_eq!(decide(&row("e2", EARLY), Some(&kept(&job, "e1", LATE)), &job, false), Copy::Replace(ETag::new("kept").unwrap()));
    }

    #[test]
    fn a_copy_that_was_reopened_is_copied_over() {
        let job = stamp("m", 100);
        let mut reopened = kept(&job, "e1", EARLY);
        reopened.entity.properties.remove(SOURCE_ETAG);
        assert_eq!(decide(&row("e2", LATE), Some(&reopened), &job, false), Copy::Replace(ETag::new("kept").unwrap()));
    }

    #[test]
    fn an_entity_created_anew_is_left_to_a_later_job() {
        let job = stamp("m", 100);
        assert!(matches!(decide(&row("e2", LATE), Some(&kept(&job, "e1", EARLY)), &job, false), Copy::Skip(_)));
        assert!(matches!(decide(&row("e2", LATE), Some(&kept(&stamp("later", 200), "e1", EARLY)), &job, false), Copy::Skip(_)));
    }
}
