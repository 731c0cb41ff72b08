//! Relocation: the eventually consistent transaction behind `archive` and `move`. It copies a primary to its target,
//! deletes the primary at exactly the ETag that was copied, and syncs the items of both.
//!
//! ```text
//!   read the target, then the source ──▶ write the copy ──▶ delete source at the ETag read ──▶ reconcile
//!        ▲                               (insert, or replace     │ changed since
//!        └─────────────────────────────── at its own ETag) ◀─────┘ read again
//! ```
//!
//! A concurrent update is never lost: either the update is copied too, or the source stays and the job is skipped. The
//! steps are not isolated, so a reader may find the entity in the source and in the target. A reader that must not miss
//! the entity reads the source, then the target, then the source once more.

mod archive;
mod copy_decision;
mod moving;
pub(crate) mod target;

use crate::execute::{Delivery, Failure, Outcome};
use crate::failure::permanent;
use crate::items::value::origin;
use crate::jobs::checks::{refuse_derived, unsatisfied};
use crate::jobs::content::{is_as_left, vouched};
use crate::jobs::context::JobContext;
use crate::jobs::marks;
use crate::jobs::relocation::copy_decision::{
    ARCHIVED_AT, CopyDecision, decide, is_shared, may_have_archived,
};
use crate::jobs::relocation::target::{EntityStore, RelocationTarget};
use crate::jobs::since::{DatedRow, is_written_since};
use crate::protocol::change::{Change, Commit};
use crate::protocol::observe::Observation;
use crate::protocol::primary;
use crate::protocol::run::reconciler::Reconciler;
use evenkeel_model::condition::Condition;
use evenkeel_model::item::{
    OWNER_PREFIX, SOURCE_ETAG, SOURCE_JOB, SOURCE_PROPERTY, SOURCE_SHARED, source_text,
};
use evenkeel_model::job::{Primary, Stamp};
use evenkeel_model::{ETag, EdmDateTime, Entity, EntityKey, Row, TableName, shared};
use evenkeel_storage::encryption::FirstKey;
use evenkeel_storage::error::Cause;
use evenkeel_storage::wide::Rows;

#[derive(Debug, thiserror::Error)]
#[error(
    "{0} exists and was not moved there by this job, or it was changed after the move. Delete it or move it away first, or discard this job"
)]
struct TargetOccupied(Primary);

#[derive(Debug, thiserror::Error)]
#[error(
    "the entity stays in {table}, because `restore` would reject its copy. Change the entity, or archive it to a log (\"append_blob\")"
)]
struct UnrestorableEntity {
    table: TableName,
    #[source]
    source: Cause,
}

enum Progress {
    Reading,
    Copied(HeldCopy),
    /// A delete request for the copied version got no answer.
    Unanswered(HeldCopy),
}

/// A copy at the target. Without it, the run must not delete the source.
struct HeldCopy {
    version: ETag,
    by: CopiedBy,
}

enum CopiedBy {
    /// This run wrote the copy and got the answer to its write.
    ThisRun {
        /// The copy as it was sent; `None` if the write replaced an existing row.
        inserted: Option<Box<Entity>>,
    },
    /// Another delivery wrote the copy, and may already have sent the delete of the source.
    AnotherDelivery,
}

impl Progress {
    const fn held(&self) -> Option<&HeldCopy> {
        match self {
            Self::Reading => None,
            Self::Copied(held) | Self::Unanswered(held) => Some(held),
        }
    }

    fn is_own_at(&self, version: &ETag) -> bool {
        self.held()
            .is_some_and(|held| held.version == *version && held.is_own())
    }

    /// Records that `version` of the source is copied. `by` is the writer of the copy, or `None` if the copy existed
    /// already. Without `by`, the writer that is already recorded for this version stays. `Unanswered` stays, too.
    fn copied(&mut self, version: ETag, by: Option<CopiedBy>) {
        let before = |held: HeldCopy| (held.version == version).then_some(held.by);
        let (before, is_unanswered) = match std::mem::replace(self, Self::Reading) {
            Self::Reading => (None, false),
            Self::Copied(held) => (before(held), false),
            Self::Unanswered(held) => (before(held), true),
        };
        let by = by.or(before).unwrap_or(CopiedBy::AnotherDelivery);
        let held = HeldCopy { version, by };
        *self = if is_unanswered {
            Self::Unanswered(held)
        } else {
            Self::Copied(held)
        };
    }

    /// Records that the copy was overwritten. The items of the new copy are not synced yet.
    fn overwritten(&mut self) {
        if let Self::Copied(_) = self {
            *self = Self::Reading;
        }
    }

    /// Records that a delete request for the copied version got no answer. This stays recorded, because the run cannot
    /// learn whether the request was executed.
    fn delete_unanswered(&mut self) {
        *self = match std::mem::replace(self, Self::Reading) {
            Self::Reading => Self::Reading,
            Self::Copied(held) | Self::Unanswered(held) => Self::Unanswered(held),
        };
    }

    fn replace_inserted(&mut self, copy: &Entity) {
        if let Self::Copied(held) | Self::Unanswered(held) = self
            && let CopiedBy::ThisRun {
                inserted: Some(inserted),
            } = &mut held.by
        {
            **inserted = copy.clone();
        }
    }
}

impl HeldCopy {
    const fn is_own(&self) -> bool {
        matches!(self.by, CopiedBy::ThisRun { .. })
    }

    fn inserted(&self) -> Option<&Entity> {
        match &self.by {
            CopiedBy::ThisRun { inserted } => inserted.as_deref(),
            CopiedBy::AnotherDelivery => None,
        }
    }
}

struct SourceDemands<'j> {
    if_match: Option<&'j ETag>,
    unsatisfied: Option<String>,
}

pub(crate) struct Relocation<'e> {
    cx: &'e JobContext,
    delivery: &'e Delivery,
    source: Reconciler<'e>,
    target: Box<dyn RelocationTarget + 'e>,
    to: EntityKey,
    /// Condition that the source must satisfy unless this job has copied it already.
    when: Option<Condition>,
    progress: Progress,
    /// The data key that encrypts the last copy. Until `keep_readable` renews it, an erasure that finds no entity at
    /// the target may delete it.
    first_key: Option<FirstKey>,
}

impl<'e> Relocation<'e> {
    pub(crate) fn new(
        cx: &'e JobContext,
        delivery: &'e Delivery,
        source: Reconciler<'e>,
        target: Box<dyn RelocationTarget + 'e>,
        to: EntityKey,
    ) -> Self {
        Self {
            cx,
            delivery,
            source,
            target,
            to,
            when: None,
            progress: Progress::Reading,
            first_key: None,
        }
    }

    /// Adds a condition on the source. A source that this job has already copied is deleted even if it no longer
    /// satisfies the condition, because otherwise its copy would be left over.
    pub(crate) fn while_it_satisfies(self, when: Option<Condition>) -> Self {
        Self { when, ..self }
    }

    pub(crate) async fn run(mut self, if_match: Option<&ETag>) -> Result<Outcome, Failure> {
        let ended = self.relocate(if_match).await;
        if ended.is_err() && self.source_delete_impossible() {
            // A failure to reopen is ignored. If the source has changed, the next delivery then cannot tell whether it
            // was updated or created anew, and skips the job.
            drop(self.target.reopen(&self.delivery.stamp).await);
        }
        let skipped = ended?;
        if skipped.is_none() && self.delivery.dequeue_count > 1 && !self.target.may_have_written() {
            // An earlier delivery may have sent a request to reopen the copy. That request may still arrive, and it
            // succeeds if the copy is unchanged. The recheck syncs the items afterwards.
            self.target.queue_whole_recheck().await?;
        }
        let summary = joined(self.source, self.target.as_mut());
        Ok(match skipped {
            None => Outcome::Done(summary),
            Some(reason) => Outcome::Skipped { reason, summary },
        })
    }

    /// Returns the reason if the source was not relocated. Even then, a copy may stay at the target.
    async fn relocate(&mut self, if_match: Option<&ETag>) -> Result<Option<String>, Failure> {
        // A first delivery expects no copy, so it reads the target only if `is_read_first` demands this.
        let mut read_kept = self.delivery.dequeue_count > 1 || self.target.is_read_first();
        loop {
            self.source.next_round().await?;
            // The target is read before the source. So the source is never older than the version in the copy, even if
            // another job has just written the copy.
            let found = if read_kept {
                self.target.observe().await?
            } else {
                Observation::blank()
            };
            let seen = self.source.observe().await?;
            self.refuse(&seen, &found)?;
            let Some(row) = seen.row() else {
                let is_own = |found: &Observation| {
                    found
                        .row()
                        .is_some_and(|row| self.delivery.stamp.is_on(&row.entity))
                };
                let mut done = self.progress.held().is_some() || is_own(&found);
                if !done && self.delivery.dequeue_count > 1 {
                    // An earlier delivery that still runs may have written the copy and deleted the source between
                    // the two reads.
                    done = is_own(&self.target.observe().await?);
                }
                self.settle(&seen).await?;
                // For a log, the record of the line must still be deleted. Any other target is complete, because
                // `settle` has synced its items.
                if done && self.target.rules().keeps_every_version {
                    self.target.source_deleted().await?;
                }
                return Ok(
                    (!done).then(|| format!("{} does not exist", self.source.scope().primary))
                );
            };
            self.target.set_copied(row);
            let demands = SourceDemands {
                if_match,
                unsatisfied: unsatisfied(row, self.when.as_ref()),
            };
            let copy = self.decide(row, found.row(), demands)?;
            if !matches!(copy, CopyDecision::Skip(_))
                && let Err(failure) = self.check_restorable(row)
            {
                // An earlier delivery may have left items of the source unsynced.
                self.settle(&seen).await?;
                return Err(failure);
            }
            // The copy is built in memory even if it is stored already, because the large values of the stored copy may
            // be missing.
            let entity = self.copy_of(row).await?;
            let copied = copy == CopyDecision::Copied;
            let change = match copy {
                CopyDecision::Insert => Some(self.target.prepare(Change::Insert(entity), &found)?),
                CopyDecision::Replace(_) | CopyDecision::Skip(_)
                    if self.is_rejected(&copy, found.row()) =>
                {
                    self.settle(&seen).await?;
                    return Err(self.occupied());
                }
                CopyDecision::Replace(etag) => {
                    let entity = self.mark_if_same_version(entity, found.row());
                    Some(self.target.prepare(Change::Replace(entity, etag), &found)?)
                }
                CopyDecision::Copied => self
                    .encrypted_again(&entity, &found, &row.etag)
                    .or_else(|| self.mark_shared(found.row(), &row.etag)),
                CopyDecision::Skip(reason) => {
                    if !self.delete_copy(&found).await? {
                        continue;
                    }
                    self.settle(&seen).await?;
                    return Ok(Some(reason));
                }
            };
            read_kept = true;
            let mut by = None;
            match change {
                Some(change) => {
                    let ended = self.target.commit(&found, &change).await?;
                    // If the write was lost or got no answer, the copy is not recorded as this run's. The copy that
                    // exists may be from another delivery, and that delivery may already have sent the delete of the
                    // source.
                    if matches!(ended, Commit::Lost | Commit::Unanswered) {
                        continue;
                    }
                    if !copied {
                        let inserted = change.result().filter(|_| found.row().is_none()).cloned();
                        by = Some(CopiedBy::ThisRun {
                            inserted: inserted.map(Box::new),
                        });
                        self.progress.overwritten();
                    }
                    if ended == Commit::Committed {
                        self.target.settle().await?;
                    }
                }
                // An earlier attempt wrote the copy, but may not have synced its items.
                None => self.target.sync_existing(&found).await?,
            }
            self.progress.copied(row.etag.clone(), by);
            self.keep_readable(row).await?;
            match self
                .source
                .commit(
                    &seen,
                    &Change::Delete(self.source.scope().primary.key.clone(), row.etag.clone()),
                )
                .await?
            {
                Commit::Closed => {}
                Commit::Committed => self.source.settle().await?,
                Commit::Lost => continue,
                Commit::Unanswered => {
                    self.progress.delete_unanswered();
                    continue;
                }
            }
            self.target.source_deleted().await?;
            return Ok(None);
        }
    }

    /// Marks a copy as shared if it replaces another job's copy of the same version. The other job relies on its own
    /// copy, and may be about to delete the source.
    fn mark_if_same_version(&self, copy: Entity, found: Option<&Row>) -> Entity {
        let is_the_same = found.is_some_and(|found| {
            found
                .entity
                .text(SOURCE_ETAG)
                .is_some_and(|version| copy.text(SOURCE_ETAG) == Some(version))
        });
        if is_the_same && !self.target.rules().keeps_every_version {
            copy.with(SOURCE_SHARED, true)
        } else {
            copy
        }
    }

    /// The data key of the copy's values may have been erased since they were written. Returns the change that encrypts
    /// them again, with the present data key. `None` if all values can be decrypted, or if the copy now belongs to
    /// another job.
    fn encrypted_again(
        &self,
        copy: &Entity,
        found: &Observation,
        version: &ETag,
    ) -> Option<Change> {
        let (key, table) = (&self.first_key.as_ref()?.key, self.target.table()?);
        let found = found
            .row()
            .filter(|row| self.delivery.stamp.is_on(&row.entity))?;
        let encrypted =
            self.cx
                .encryption()
                .encrypted_otherwise(table, key, &found.entity, copy)?;
        let encrypted = found.entity.clone().merged(&encrypted);
        // If another run wrote this copy, that run relies on the copy, too, and may be about to delete the source.
        let encrypted = if self.progress.is_own_at(version) {
            encrypted
        } else {
            encrypted.with(SOURCE_SHARED, true)
        };
        let change = Change::Replace(encrypted, found.etag.clone());
        // The digest in the stamp shows that the content is as the job wrote it. So the digest is renewed only if no
        // client has merged into the copy.
        Some(if is_as_left(&found.entity) {
            vouched(change)
        } else {
            change
        })
    }

    /// Ensures that the copy can be decrypted. This is called after the copy was written and before the source is
    /// deleted. An erasure of an earlier entity with the same key may have deleted the data key.
    async fn keep_readable(&mut self, row: &Row) -> Result<(), Failure> {
        loop {
            let (Some(key), Some(table)) = (&self.first_key, self.target.table()) else {
                return Ok(());
            };
            let home = Primary {
                table: table.table.clone(),
                key: self.to.clone(),
            };
            if self
                .cx
                .encryption()
                .keeps_data_key(table, &home, key)
                .await?
            {
                return Ok(());
            }
            let mut ended = Commit::Lost;
            while matches!(ended, Commit::Lost | Commit::Unanswered) {
                self.target.next_round().await?;
                let found = self.target.observe().await?;
                let copy = self.copy_of(row).await?;
                let Some(change) = self.encrypted_again(&copy, &found, &row.etag) else {
                    return Ok(());
                };
                ended = self.target.commit(&found, &change).await?;
                if matches!(ended, Commit::Closed | Commit::Committed)
                    && let Some(copy) = change.result()
                {
                    self.progress.replace_inserted(copy);
                }
            }
        }
    }

    /// Deletes the copy before the job is skipped, if this run inserted the copy, and the source was certainly not
    /// deleted. The copy is kept if the target is a log, or if the copy was changed since.
    ///
    /// The copy is also kept if it has replaced an older copy, because the older copy would be lost. Writing the older
    /// copy back is no solution, because it would get a new ETag. A `restore` that has already read the older copy
    /// would then take the rewritten one for a newer version.
    ///
    /// Returns `false` if the copy could not be deleted and must be read again.
    async fn delete_copy(&mut self, found: &Observation) -> Result<bool, Failure> {
        let own = |entity: &Entity| shared::own(entity.clone());
        let may_delete =
            self.source_delete_impossible() && !self.target.rules().keeps_every_version;
        let sent = self
            .progress
            .held()
            .and_then(HeldCopy::inserted)
            .filter(|_| may_delete);
        let Some(copy) = found
            .row()
            .filter(|row| sent.is_some_and(|sent| own(sent) == own(&row.entity)))
        else {
            return Ok(true);
        };
        let ended = self
            .target
            .commit(found, &Change::Delete(self.to.clone(), copy.etag.clone()))
            .await?;
        Ok(matches!(ended, Commit::Closed | Commit::Committed))
    }

    /// If another run wrote the copy, marks the copy as shared before this run relies on it and deletes the source. The
    /// other run may still be active. If it reads a later version of the source, the mark keeps it from overwriting the
    /// copy. A log needs no mark, because it keeps every version, and the record of the line is deleted after the
    /// source.
    fn mark_shared(&self, found: Option<&Row>, version: &ETag) -> Option<Change> {
        if self.progress.is_own_at(version) || self.target.rules().keeps_every_version {
            return None;
        }
        let copy = found.filter(|copy| !is_shared(&copy.entity))?;
        Some(Change::Replace(
            copy.entity.clone().with(SOURCE_SHARED, true),
            copy.etag.clone(),
        ))
    }

    /// Rejects an entity that `restore` could not write back, so that its source is not deleted. Such entities exist,
    /// because other programs may write what evenkeel rejects.
    fn check_restorable(&self, row: &Row) -> Result<(), Failure> {
        if !self.target.rules().is_restorable {
            return Ok(());
        }
        let scope = self.source.scope();
        let entity = Entity {
            key: scope.primary.key.clone(),
            properties: row.entity.to_user_properties(),
        };
        primary::check(scope, &Rows::default(), &Change::Insert(entity)).map_err(|failure| {
            permanent(
                format!("archiving {}", scope.primary),
                UnrestorableEntity {
                    table: scope.source.table.clone(),
                    source: failure.cause,
                },
            )
        })
    }

    /// Whether an earlier delivery or a duplicate of this job may have relocated the entity, and a `restore` or `move`
    /// may have brought it back. `SOURCE_JOB` would show this. But this mark may be missing, because the entity has no
    /// room for it.
    fn may_be_back(&self, row: &Row) -> Result<bool, Failure> {
        let scope = self.source.scope();
        let fits = |change: &Change| primary::check(scope, &Rows::default(), change).is_ok();
        let may_have_acted = self.delivery.dequeue_count > 1 || self.delivery.stamp.job.is_some();
        Ok(!self.target.rules().keeps_every_version
            && may_have_acted
            && marks::may_lack(SOURCE_JOB, &row.entity, fits)
            && is_written_since(self.dated(row), self.delivery)?)
    }

    /// A row of the source, with the clock difference between its table and the job's queue.
    fn dated<'r>(&self, row: &'r Row) -> DatedRow<'r> {
        DatedRow {
            row,
            skew: self
                .cx
                .env
                .clocks_apart(self.delivery, self.source.scope().source),
        }
    }

    /// Rejects rows derived by views. They are neither moved nor archived nor overwritten.
    fn refuse(&self, seen: &Observation, found: &Observation) -> Result<(), Failure> {
        refuse_derived(seen, &self.source.scope().primary)?;
        refuse_derived(
            found,
            self.target
                .primary()
                .unwrap_or_else(|| &self.source.scope().primary),
        )
    }

    fn is_occupied(&self, found: Option<&Row>) -> bool {
        self.target.rules().rejects_others
            && found.is_some_and(|row| !self.delivery.stamp.is_on(&row.entity))
    }

    /// Whether a client has changed the moved entity since this job wrote it at the target. In that case, not even a
    /// newer version of the source may overwrite it.
    fn is_written_on(&self, found: Option<&Row>) -> bool {
        self.target.rules().rejects_others && found.is_some_and(|row| !is_as_left(&row.entity))
    }

    /// Whether a row at the target of a move makes the job fail. Even if the job could be skipped, the first delivery
    /// fails, because otherwise nobody would learn that the entity was not moved.
    fn is_rejected(&self, copy: &CopyDecision, found: Option<&Row>) -> bool {
        match copy {
            CopyDecision::Replace(_) => self.is_occupied(found) || self.is_written_on(found),
            CopyDecision::Skip(_) => self.is_occupied(found) && self.delivery.dequeue_count == 1,
            CopyDecision::Insert | CopyDecision::Copied => false,
        }
    }

    fn occupied(&self) -> Failure {
        let target = Primary {
            key: self.to.clone(),
            ..self
                .target
                .primary()
                .unwrap_or_else(|| &self.source.scope().primary)
                .clone()
        };
        permanent(
            format!("moving {} to {target}", self.source.scope().primary),
            TargetOccupied(target),
        )
    }

    /// Whether the source was certainly not deleted, provided that the copy is not marked as shared. `true` if this run
    /// wrote the copy and got the answer, and none of its delete requests can have been executed. Other deliveries may
    /// delete the source, too. If this run only found the copy, the delivery that wrote the copy may already have sent
    /// the delete. If another delivery found the copy of this run, it has marked the copy as shared before it sent the
    /// delete.
    fn source_delete_impossible(&self) -> bool {
        self.progress.held().is_some_and(HeldCopy::is_own)
            // The reconciler is checked too, because a commit may fail after its delete was executed, and `progress`
            // does not record that.
            && !self.source.may_have_written()
    }

    fn decide(
        &self,
        row: &Row,
        found: Option<&Row>,
        demands: SourceDemands<'_>,
    ) -> Result<CopyDecision, Failure> {
        // `if_match` is compared with the version that is to be deleted, even if this job has copied an earlier
        // version.
        if let Some(expected) = demands.if_match.filter(|expected| **expected != row.etag) {
            return Ok(CopyDecision::Skip(format!(
                "if_match: the entity is at {}, not at {expected}",
                row.etag
            )));
        }
        let is_own = |found: &Row| self.delivery.stamp.is_on(&found.entity);
        if let Some(reason) = demands.unsatisfied
            && self.progress.held().is_none()
            && !found.is_some_and(is_own)
        {
            return Ok(CopyDecision::Skip(reason));
        }
        // A delete request for another version got no answer, and may have been executed. So the present version may be
        // a new entity, whatever the clocks show.
        if let Progress::Unanswered(unanswered) = &self.progress
            && unanswered.version != row.etag
        {
            return Ok(CopyDecision::Skip(
                "a delete request got no answer, and the entity was written after that request, so it may be another entity. Send a new job to relocate it"
                    .to_owned(),
            ));
        }
        if let Some(copy) = self.target.judge(row, found)? {
            return Ok(copy);
        }
        if found.is_none() && self.may_be_back(row)? {
            return Ok(CopyDecision::Skip(
                "the entity was written after this job was enqueued, and ek_source_job, which identifies earlier deliveries, does not fit into it. Send a new job to relocate it"
                    .to_owned(),
            ));
        }
        // The target may be in another account, with another clock.
        let table = self
            .target
            .table()
            .unwrap_or_else(|| self.source.scope().source);
        let kept_skew = self.cx.env.clocks_apart(self.delivery, table);
        Ok(match (decide(self.dated(row), found, self.delivery, self.source_delete_impossible())?, found) {
            // The target of a move is excluded, because a move never overwrites another job's row.
            (CopyDecision::Replace(_), Some(kept)) if !self.target.rules().rejects_others && may_have_archived(self.dated(row), DatedRow { row: kept, skew: kept_skew }, self.delivery) => CopyDecision::Skip(
                "an earlier delivery of this job may have archived the entity before another job archived another version. Send a new job to archive it"
                    .to_owned(),
            ),
            (copy, _) => copy,
        })
    }

    async fn settle(&mut self, seen: &Observation) -> Result<(), Failure> {
        // The sync of the source may fail permanently, for example because another primary has a unique key of the
        // source. The items of a copy that an earlier delivery wrote are synced nevertheless.
        let settled = self.source.settle_from(seen).await;
        self.target.settle().await?;
        settled
    }

    /// Builds the copy: all user properties, the primary and version of the source, the job that wrote the source, and
    /// for an archive the time of archiving.
    async fn copy_of(&mut self, row: &Row) -> Result<Entity, Failure> {
        let taken = self.target.content_for(self.source.scope(), row).await?;
        self.first_key = taken.first_key;
        let mut entity = Entity {
            key: self.to.clone(),
            properties: taken.entity.to_user_properties(),
        }
        .with(SOURCE_PROPERTY, source_text(&self.source.scope().primary))
        .with(SOURCE_ETAG, row.etag.as_str());
        if let Some(job) = row.entity.text(Stamp::PROPERTY) {
            entity = entity.with(SOURCE_JOB, job);
        }
        if self.target.rules().is_restorable {
            // Owner properties are copied, because they show `restore` which properties were set by views of other
            // tables.
            let owners = row
                .entity
                .properties
                .iter()
                .filter(|(name, _)| name.starts_with(OWNER_PREFIX));
            entity
                .properties
                .extend(owners.map(|(name, value)| (name.clone(), value.clone())));
            if let Ok(now) = EdmDateTime::from_timestamp(self.cx.env.clock.now()) {
                entity = entity.with(ARCHIVED_AT, now);
            }
        }
        self.target
            .take_in(
                origin(self.source.scope()).as_ref(),
                self.delivery.stamp.on(entity),
            )
            .await
    }
}

pub(crate) fn joined(mut source: Reconciler<'_>, other: &mut dyn EntityStore) -> crate::Summary {
    let mut summary = source.take_summary();
    summary.add(other.take_summary());
    summary
}
