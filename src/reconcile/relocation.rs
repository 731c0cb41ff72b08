//! Relocation: the eventually consistent transaction behind `archive` and `move`. Copies a primary to where it is to
//! be, deletes it at the very ETag that was copied, and brings the items of both in step.
//!
//! ```text
//!   read its place, then the source ──▶ write the copy ──▶ delete source at the ETag read ──▶ reconcile
//!       ▲                               (insert, or replace     │ changed since
//!       └─────────────────────────────── at its own ETag) ◀─────┘ read again
//! ```
//!
//! An update that races is therefore in the copy, never lost. There is no isolation between the steps: a reader may
//! find the entity in both places, and looks in the source, then where it goes, then in the source once more.

use jiff::SignedDuration;

use super::change::{Change, Commit};
use super::delete::unsatisfied;
use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::failure::permanent;
use super::kept::Kept;
use super::log::EntityLine;
use super::observation::Observation;
use super::put::refuse_derived;
use super::reconciler::Reconciler;
use super::since::{is_written_since, may_be_since};
use super::value::origin;
use crate::model::condition::Condition;
use crate::model::item::{SOURCE_ETAG, SOURCE_JOB, SOURCE_PROPERTY, source_text};
use crate::model::job::{Primary, Stamp};
use crate::model::large;
use crate::model::{ETag, EdmDateTime, EdmValue, Entity, EntityKey, Row};
use crate::planted::{Bug, planted};
use crate::ports::ClocksApart;
use crate::shared;

/// The property that says when an entity was archived.
const ARCHIVED_AT: &str = "ek_archived_at";
/// How far two messages of one job may be apart: a sender's retries, and what a request may be on its way.
const TWINS_APART: SignedDuration = SignedDuration::from_mins(20);

/// What a job does about what it finds where the copy belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Copy {
    /// Nothing there.
    Insert,
    /// An earlier archiving, or an earlier version of the source.
    Replace(ETag),
    /// This job has copied this version already.
    Copied,
    /// The source is not this job's to move any more.
    Skip(String),
}

/// Somebody else's entity lies where this one is to go.
#[derive(Debug, thiserror::Error)]
#[error("{0} exists and was not brought there by this job: delete it or move it away first, or discard this job")]
struct Occupied(Primary);

/// One run of a job that relocates an entity.
pub(super) struct Relocation<'e> {
    engine: &'e Engine,
    delivery: &'e Delivery,
    source: Reconciler<'e>,
    kept: Kept<'e>,
    /// The key that the copy has.
    to: EntityKey,
    /// Condition that the source satisfies when it is copied first.
    when: Option<Condition>,
    /// The version of the source of which this run has sent a copy and heard that it is there.
    sent: Option<ETag>,
    /// The version of the source that is copied, by this run or as it found it.
    copied: Option<ETag>,
    /// The version that this run has asked to delete without hearing what became of it.
    asked: Option<ETag>,
}

impl<'e> Relocation<'e> {
    /// From a source to where it is to be kept, under this key.
    pub(super) const fn new(engine: &'e Engine, delivery: &'e Delivery, source: Reconciler<'e>, kept: Kept<'e>, to: EntityKey) -> Self {
        Self { engine, delivery, source, kept, to, when: None, sent: None, copied: None, asked: None }
    }

    /// The same, of a source that satisfies a condition. One that this job has copied already goes in any case: its copy would be left over.
    pub(super) fn while_it_satisfies(self, when: Option<Condition>) -> Self {
        Self { when, ..self }
    }

    /// Copies, deletes and reconciles.
    pub(super) async fn run(mut self, if_match: Option<&ETag>) -> Result<Outcome, Failure> {
        let ended = self.go(if_match).await;
        if ended.is_err() && self.surely_undeleted() {
            // Best effort: without it the next delivery leaves an entity alone that has changed meanwhile.
            drop(self.reopen().await);
        }
        let skipped = ended?;
        if skipped.is_none() && self.delivery.dequeue_count > 1 && !self.kept.may_have_written() {
            // An earlier delivery may have reopened the copy, with a request that is on its way still and finds it unchanged.
            self.kept.look_again().await?;
        }
        let summary = joined(self.source, self.kept);
        Ok(match skipped {
            None => Outcome::Done(summary),
            Some(reason) => Outcome::Skipped { reason, summary },
        })
    }

    /// Says why, where there was nothing to do.
    async fn go(&mut self, if_match: Option<&ETag>) -> Result<Option<String>, Failure> {
        // The first delivery to a place without items of its own expects nothing there and saves the reading.
        let mut read_kept = self.delivery.dequeue_count > 1 || self.kept.is_read_first();
        loop {
            self.source.next_round()?;
            // Its place before the source: a version that another job takes there meanwhile is never newer than the source that is read afterwards.
            let found = if read_kept { self.kept.observe().await? } else { Observation::blank() };
            let seen = self.source.observe().await?;
            self.refuse(&seen, &found)?;
            let Some(row) = &seen.row else {
                let is_own = |found: &Observation| found.row.as_ref().is_some_and(|row| self.delivery.stamp.is_on(&row.entity));
                let mut done = self.copied.is_some() || is_own(&found);
                if !done && self.delivery.dequeue_count > 1 {
                    // An earlier delivery that is under way still may have put it there and taken it away between the two reads.
                    done = is_own(&self.kept.observe().await?);
                }
                self.settle(&seen).await?;
                if done && matches!(self.kept, Kept::Log(_)) {
                    self.kept.arrived().await?;
                }
                return Ok((!done).then(|| format!("{} does not exist", self.source.pass.scope.primary)));
            };
            if let Kept::Log(log) = &mut self.kept {
                log.copies(row);
            }
            let copy = self.decide(row, found.row.as_ref(), if_match)?;
            // Also where it is there already: its large values may not be.
            let entity = self.copy_of(row).await?;
            let change = match copy {
                Copy::Insert => Some(Change::Insert(entity)),
                // Skipped on the first delivery, nobody would ever hear that the entity was not moved.
                Copy::Replace(_) | Copy::Skip(_)
                    if self.is_occupied(found.row.as_ref()) && (self.delivery.dequeue_count == 1 || !matches!(copy, Copy::Skip(_))) =>
                {
                    // An earlier delivery may have left the source half-way.
                    self.settle(&seen).await?;
                    return Err(self.occupied());
                }
                Copy::Replace(etag) => Some(Change::Replace(entity, etag)),
                Copy::Copied => None,
                Copy::Skip(reason) => {
                    self.settle(&seen).await?;
                    return Ok(Some(reason));
                }
            };
            read_kept = true;
            if planted(Bug::DeletedBeforeCopied) {
                self.source.commit(&seen, &Change::Delete(self.source.pass.scope.primary.key.clone(), row.etag.clone())).await?;
            }
            match change {
                Some(change) => {
                    match self.kept.commit(&found, &change).await? {
                        Commit::Closed => self.sent = Some(row.etag.clone()),
                        Commit::Committed => {
                            self.sent = Some(row.etag.clone());
                            self.kept.settle().await?;
                        }
                        // The copy that is there then may be that of another delivery, which may have gone on to delete.
                        Commit::Lost | Commit::Unanswered => continue,
                    }
                }
                // Copied by a try that heard no answer, or crashed before the copy's own items were there.
                None => self.kept.keep_up(&found).await?,
            }
            self.copied = Some(row.etag.clone());
            match self.source.commit(&seen, &Change::Delete(self.source.pass.scope.primary.key.clone(), row.etag.clone())).await? {
                Commit::Closed => {}
                Commit::Committed => self.source.settle().await?,
                Commit::Lost => continue,
                Commit::Unanswered => {
                    self.asked = Some(row.etag.clone());
                    continue;
                }
            }
            self.kept.arrived().await?;
            return Ok(None);
        }
    }

    /// Rows that views have made are neither moved nor archived, and not written over.
    fn refuse(&self, seen: &Observation, found: &Observation) -> Result<(), Failure> {
        refuse_derived(seen, &self.source.pass.scope.primary)?;
        refuse_derived(found, self.kept.primary().unwrap_or(&self.source.pass.scope.primary))
    }

    /// Whether somebody else's entity lies where a moved one is to go. (An archive takes the newer in the place of the older.)
    fn is_occupied(&self, found: Option<&Row>) -> bool {
        matches!(self.kept, Kept::Moved(_)) && found.is_some_and(|row| !self.delivery.stamp.is_on(&row.entity))
    }

    fn occupied(&self) -> Failure {
        let target = Primary { key: self.to.clone(), ..self.kept.primary().unwrap_or(&self.source.pass.scope.primary).clone() };
        permanent(format!("moving {} to {target}", self.source.pass.scope.primary), Occupied(target))
    }

    /// This run itself has copied the source and has heard so, and no request to delete the version that it copied can have been executed. (A copy that it
    /// found there was an earlier delivery's, which may have gone on to delete.)
    fn surely_undeleted(&self) -> bool {
        self.copied.is_some()
            && self.copied == self.sent
            && (!self.source.pass.doubt.may_have_written() || planted(Bug::UnansweredDeleteNotExecuted))
    }

    fn decide(&self, row: &Row, found: Option<&Row>, if_match: Option<&ETag>) -> Result<Copy, Failure> {
        // Of the version that goes, always: what has changed since is not what was meant.
        if let Some(wanted) = if_match.filter(|wanted| **wanted != row.etag) {
            return Ok(Copy::Skip(format!("if_match: the entity is at {}, not at {wanted}", row.etag)));
        }
        let is_own = |found: &Row| self.delivery.stamp.is_on(&found.entity);
        if let Some(reason) = unsatisfied(row, self.when.as_ref())
            && self.copied.is_none()
            && !found.is_some_and(is_own)
        {
            return Ok(Copy::Skip(reason));
        }
        // No clock is needed to know that it was written after this run had read another version.
        if self.asked.as_ref().is_some_and(|asked| *asked != row.etag) {
            return Ok(Copy::Skip(
                "the entity was written after a request to delete it went unanswered, which may have deleted the one before it; a new job of the same kind takes it along"
                    .to_owned(),
            ));
        }
        if let Kept::Log(log) = &self.kept {
            if EntityLine::is_logged(row, found) {
                return Ok(Copy::Copied);
            }
            if found.is_none() && log.may_be_anew(row)? {
                return Ok(Copy::Skip(
                    "the entity was written after this job was enqueued, and an earlier delivery may have logged the one before it"
                        .to_owned(),
                ));
            }
        }
        let apart = self.engine.clocks_apart(self.delivery, self.source.pass.scope.source);
        Ok(match (decide(row, found, (self.delivery, apart), self.surely_undeleted())?, found) {
            // What lies in the way of a move is not written over in any case.
            (Copy::Replace(_), Some(kept)) if !matches!(self.kept, Kept::Moved(_)) && may_have_archived(row, kept, (self.delivery, apart)) => Copy::Skip(
                "another job has archived another version of it since this one was enqueued, and an earlier delivery may have archived the one before that; a new job takes it along"
                    .to_owned(),
            ),
            (copy, _) => copy,
        })
    }

    /// Brings the items of both in step.
    async fn settle(&mut self, seen: &Observation) -> Result<(), Failure> {
        // A source whose key is taken fails for good: a copy that an earlier delivery wrote must not wait for it.
        let settled = self.source.settle_from(seen).await;
        self.kept.settle().await?;
        settled
    }

    /// Takes back the word that this very version was copied, before a run gives up that knows it has not deleted:
    /// the next delivery could not tell an entity that changed from one created anew, and would leave it alone.
    async fn reopen(&mut self) -> Result<(), Failure> {
        if let Kept::Log(log) = &mut self.kept {
            return log.reopen().await;
        }
        let found = self.kept.observe().await?;
        let Some(row) = found.row.as_ref().filter(|row| self.delivery.stamp.is_on(&row.entity)) else {
            return Ok(());
        };
        let mut entity = row.entity.clone();
        entity.properties.remove(SOURCE_ETAG);
        match self.kept.commit(&found, &Change::Replace(entity, row.etag.clone())).await? {
            Commit::Closed => Ok(()),
            // There may be no next delivery that sees to its items.
            Commit::Committed | Commit::Lost | Commit::Unanswered => self.kept.look_again().await,
        }
    }

    /// The copy: every property of the user's, from where it came, and which job brought it; in an archive, when.
    async fn copy_of(&mut self, row: &Row) -> Result<Entity, Failure> {
        // What others say to it under its old key is none of its own; an archive keeps it as it was.
        let source = match &self.kept {
            Kept::Moved(target) => {
                let to = (target.pass.scope.source, &self.to);
                let unclaimed = shared::unclaimed(row.entity.clone());
                self.engine.sealed_anew((self.source.pass.scope.source, &row.entity), to, unclaimed).await?
            }
            Kept::Row(_) | Kept::Document(_) | Kept::Log(_) => row.entity.clone(),
        };
        let mut entity = Entity { key: self.to.clone(), properties: large::travelling(&source) }
            .with(SOURCE_PROPERTY, source_text(&self.source.pass.scope.primary))
            .with(SOURCE_ETAG, row.etag.as_str());
        if planted(Bug::ArchiveDropsProperty) {
            entity.properties.remove("FirstName");
        }
        if let Some(job) = row.entity.text(Stamp::PROPERTY) {
            entity = entity.with(SOURCE_JOB, job);
        }
        if self.kept.is_dated()
            && let Ok(now) = EdmDateTime::from_timestamp(self.engine.clock.now())
        {
            entity = entity.with(ARCHIVED_AT, now);
        }
        self.kept.take_in(origin(&self.source.pass.scope).as_ref(), self.delivery.stamp.on(entity)).await
    }
}

/// What both sides did.
pub(super) fn joined(source: Reconciler<'_>, kept: Kept<'_>) -> super::Summary {
    let mut summary = source.pass.summary;
    if let Some(kept) = kept.into_summary() {
        summary.add(kept);
    }
    summary
}

fn decide(
    source: &Row,
    archived: Option<&Row>,
    (delivery, apart): (&Delivery, ClocksApart),
    surely_undeleted: bool,
) -> Result<Copy, Failure> {
    let stamp = &delivery.stamp;
    let Some(archived) = archived else {
        // A later restore or move has brought it back here, after an earlier delivery or message of this job may have taken it away.
        // It says which job had taken it away last: this one, or one that came after it.
        // Of two that were enqueued in the same second nobody knows which came last.
        let came_later = |by: &Stamp| by.enqueued > stamp.enqueued || (by.enqueued == stamp.enqueued && delivery.dequeue_count > 1);
        let brought_back = Stamp::under(SOURCE_JOB, &source.entity).is_some_and(|by| by.is_same_job(stamp) || came_later(&by));
        return Ok(if brought_back { Copy::Skip("a later job has brought it back since".to_owned()) } else { Copy::Insert });
    };
    Ok(match Stamp::of(&archived.entity) {
        Some(written) if written.is_same_job(stamp) => {
            if archived.entity.text(SOURCE_ETAG) == Some(source.etag.as_str()) {
                return Ok(Copy::Copied);
            }
            // A run that gave up knew that it had not deleted.
            let reopened = archived.entity.get(SOURCE_ETAG).is_none();
            // Another version than the one copied: an update that raced, or an entity created anew after this
            // job had deleted the old one. When the copy was written nobody can tell: others may have written it since.
            if surely_undeleted || reopened {
                Copy::Replace(archived.etag.clone())
            } else {
                Copy::Skip("an earlier delivery copied another version of it, and what is there now may have been created since; a new job of the same kind takes it along".to_owned())
            }
        }
        Some(written) if written.enqueued > stamp.enqueued => {
            Copy::Skip("a later job has taken it there since, and what is here now was created after that".to_owned())
        }
        // The message of this job may have been doubled by its sender, and the other one have taken away what was there before.
        Some(written) if stamp.enqueued.duration_since(written.enqueued) <= TWINS_APART && is_written_since(source, delivery, apart)? => {
            Copy::Skip("a job of about the same time has taken it there, and what is here now was written after that; a new job of the same kind takes it along".to_owned())
        }
        Some(_) | None => Copy::Replace(archived.etag.clone()),
    })
}

/// Whether an earlier delivery of this job may have archived another version before that which another job has archived. Of several jobs the
/// archive names the last one only. That this one has not acted is proved by a source, or another's copy, that was there before it was enqueued.
fn may_have_archived(source: &Row, kept: &Row, (delivery, apart): (&Delivery, ClocksApart)) -> bool {
    let is_own = delivery.stamp.is_on(&kept.entity);
    let is_this_version = kept.entity.text(SOURCE_ETAG) == Some(source.etag.as_str());
    let archived_at = match kept.entity.get(ARCHIVED_AT) {
        Some(EdmValue::DateTime(at)) => Some(at.timestamp()),
        _ => None,
    };
    let enqueued = delivery.stamp.enqueued;
    let acted = || may_be_since(source, None, enqueued, apart) && may_be_since(kept, archived_at, enqueued, apart);
    delivery.dequeue_count > 1 && !is_own && !is_this_version && acted()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(id: &str, second: i64) -> Stamp {
        Stamp { message_id: id.to_owned(), enqueued: jiff::Timestamp::from_second(second).unwrap(), job: None }
    }

    fn delivered(job: &Stamp, dequeue_count: u32) -> Delivery {
        Delivery {
            stamp: job.clone(),
            dequeue_count,
            account: crate::model::AccountName::main(),
            queue: crate::model::QueueName::new("jobs").unwrap(),
            sync_queue: crate::model::QueueName::new("jobs").unwrap(),
            recheck_queue: crate::model::QueueName::new("jobs-recheck").unwrap(),
            tables: None,
        }
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
        // Long after the job that had archived it before: no double of that.
        let job = stamp("m", 10_000);
        assert_eq!(decide(&row("e1", EARLY), None, (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(), Copy::Insert);
        assert_eq!(
            decide(&row("e1", EARLY), Some(&kept(&stamp("old", 50), "e0", EARLY)), (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(),
            Copy::Replace(ETag::new("kept").unwrap())
        );
        assert_eq!(
            decide(&row("e1", EARLY), Some(&row("kept", EARLY)), (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(),
            Copy::Replace(ETag::new("kept").unwrap())
        );
    }

    #[test]
    fn a_version_that_this_job_has_copied_is_not_copied_again() {
        let job = stamp("m", 100);
        assert_eq!(
            decide(&row("e1", EARLY), Some(&kept(&job, "e1", LATE)), (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(),
            Copy::Copied
        );
    }

    #[test]
    fn an_update_that_raced_is_copied_over_the_earlier_copy() {
        let job = stamp("m", 100);
        assert_eq!(
            decide(&row("e2", LATE), Some(&kept(&job, "e1", EARLY)), (&delivered(&job, 2), ClocksApart::NOT), true).unwrap(),
            Copy::Replace(ETag::new("kept").unwrap())
        );
    }

    #[test]
    fn a_copy_that_others_have_written_since_does_not_make_what_was_created_anew_an_older_one() {
        // What was created anew is older than the last write of the copy, which a view has put its properties on since.
        let job = stamp("m", 100);
        assert!(matches!(
            decide(&row("e2", EARLY), Some(&kept(&job, "e1", LATE)), (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(),
            Copy::Skip(_)
        ));
    }

    #[test]
    fn what_another_job_has_archived_since_is_no_place_for_a_job_that_may_have_archived_before() {
        let (job, at) =
            (stamp("m", 10_000), |second: i64| EdmDateTime::from_timestamp(jiff::Timestamp::from_second(second).unwrap()).unwrap());
        let source = row("e2", LATE);
        for other in [stamp("same", 10_000), stamp("earlier", 50)] {
            let copied = |second: i64| kept(&other, "e1", &at(second).to_string());
            for (second, deliveries, expected) in [(10_030, 2, true), (9_991, 2, true), (9_950, 2, false), (10_030, 1, false)] {
                assert_eq!(
                    may_have_archived(&source, &copied(second), (&delivered(&job, deliveries), ClocksApart::NOT)),
                    expected,
                    "{other} at {second}"
                );
            }
            assert!(!may_have_archived(&row("e1", LATE), &copied(10_030), (&delivered(&job, 2), ClocksApart::NOT)), "this very version");
            let old = row("e2", &at(9_950).to_string());
            assert!(
                !may_have_archived(&old, &copied(10_030), (&delivered(&job, 2), ClocksApart::NOT)),
                "there all the time since the job was sent"
            );
            // A document has no time of the service's: a worker has dated it, whose clock may be off.
            let filed = |second: Option<i64>| {
                let mut row = Row { timestamp: None, ..copied(0) };
                row.entity = second.into_iter().fold(row.entity, |entity, second| entity.with(ARCHIVED_AT, at(second)));
                row
            };
            for (second, expected) in [(Some(9_100), true), (Some(9_000), false), (None, true)] {
                assert_eq!(
                    may_have_archived(&source, &filed(second), (&delivered(&job, 2), ClocksApart::NOT)),
                    expected,
                    "{other} at {second:?}"
                );
            }
        }
        assert!(!may_have_archived(&source, &kept(&job, "e1", LATE), (&delivered(&job, 2), ClocksApart::NOT)), "its own");
    }

    #[test]
    fn a_copy_that_was_reopened_is_copied_over() {
        let job = stamp("m", 100);
        let mut reopened = kept(&job, "e1", EARLY);
        reopened.entity.properties.remove(SOURCE_ETAG);
        assert_eq!(
            decide(&row("e2", LATE), Some(&reopened), (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(),
            Copy::Replace(ETag::new("kept").unwrap())
        );
    }

    #[test]
    fn an_entity_created_anew_is_left_to_a_later_job() {
        let job = stamp("m", 100);
        assert!(matches!(
            decide(&row("e2", LATE), Some(&kept(&job, "e1", EARLY)), (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(),
            Copy::Skip(_)
        ));
        assert!(matches!(
            decide(&row("e2", LATE), Some(&kept(&stamp("later", 200), "e1", EARLY)), (&delivered(&job, 2), ClocksApart::NOT), false)
                .unwrap(),
            Copy::Skip(_)
        ));
    }

    #[test]
    fn a_doubled_message_leaves_what_the_other_one_has_taken_away_and_what_was_created_since() {
        let (first, double) = (stamp("m", 100), stamp("n", 101));
        let at = |second: i64| EdmDateTime::from_timestamp(jiff::Timestamp::from_second(second).unwrap()).unwrap().to_string();
        for deliveries in [1, 2] {
            let delivered = delivered(&double, deliveries);
            let delivered = (&delivered, ClocksApart::NOT);
            let anew = row("e2", &at(200));
            assert!(matches!(decide(&anew, Some(&kept(&first, "e1", &at(150))), delivered, false).unwrap(), Copy::Skip(_)));
            // What was there when the job was sent is another archiving than the one before.
            let before = row("e2", &at(101));
            assert!(matches!(decide(&before, Some(&kept(&first, "e1", &at(90))), delivered, false).unwrap(), Copy::Replace(_)));
        }
        // With an id it is known whatever the clocks say.
        let job = crate::model::job::JobDigest::of(serde_json::json!({"op": "archive", "id": "x"}).as_object().unwrap());
        let (first, double) = (Stamp { job: job.clone(), ..first }, Stamp { job, ..double });
        let before = row("e2", &at(101));
        assert!(matches!(
            decide(&before, Some(&kept(&first, "e1", &at(90))), (&delivered(&double, 1), ClocksApart::NOT), false).unwrap(),
            Copy::Skip(_)
        ));
        assert_eq!(
            decide(&before, Some(&kept(&first, "e2", &at(90))), (&delivered(&double, 1), ClocksApart::NOT), false).unwrap(),
            Copy::Copied
        );
    }

    #[test]
    fn what_a_later_job_has_brought_back_stays() {
        let job = stamp("m", 100);
        let mut source = row("e2", LATE);
        source.entity = stamp("later", 200).on(source.entity).with(SOURCE_ETAG, "kept").with(SOURCE_JOB, job.to_string());
        // Also a first delivery: the message may have been doubled by its sender.
        for deliveries in [1, 2] {
            assert!(matches!(decide(&source, None, (&delivered(&job, deliveries), ClocksApart::NOT), false).unwrap(), Copy::Skip(_)));
        }
        source.entity = source.entity.with(SOURCE_JOB, stamp("after", 150).to_string());
        assert!(
            matches!(decide(&source, None, (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(), Copy::Skip(_)),
            "another has taken it away since"
        );
    }

    #[test]
    fn what_was_brought_back_before_this_job_and_written_since_is_not_taken_for_brought_back() {
        let job = stamp("m", 100);
        // Archived and restored long ago, then merged into by a put that came after this job, whose first delivery was lost.
        let mut source = row("e2", LATE);
        source.entity = stamp("put", 200).on(source.entity).with(SOURCE_ETAG, "kept").with(SOURCE_JOB, stamp("old", 50).to_string());
        assert_eq!(decide(&source, None, (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(), Copy::Insert);
        // Written by a later job, and never away: an update like any other.
        source.entity.properties.remove(SOURCE_JOB);
        assert_eq!(decide(&source, None, (&delivered(&job, 2), ClocksApart::NOT), false).unwrap(), Copy::Insert);
    }
}
