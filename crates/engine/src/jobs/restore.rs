//! `restore`: brings an entity back from its archive.
//!
//! An existing source row is not overwritten unless this job has restored it. Any other source row may be live data
//! that was created after the archiving. The source is always written after the archived row was read and before the
//! archived row is deleted:
//!
//! ```text
//!   archive   read source S ─▶ write archived row R ─▶ delete source at S
//!   restore   read archived row R ─▶ write source, now at S' ─▶ delete archived row at R
//! ```
//!
//! If an `archive` and a `restore` of the same entity overlap, one of the two deletions fails, so the entity is never
//! missing from both places.
//!
//! Views of other tables may have set properties on the archived row. These properties are not restored, because they
//! may be outdated: nothing removes outdated ones from an archived row. Properties that come from range overlays are
//! read again once the entity is restored. For the other properties, the job queues thorough syncs of the primaries
//! that set them. These syncs set the properties that still apply.
//!
//! The job's stamp on an entity shows that this job has restored it. If the stamp does not fit into the entity, its
//! content shows this ([`crate::jobs::marks`]).
//!
//! If another primary has taken a unique key of the entity meanwhile, the entity is restored nevertheless and leaves
//! the archive. The job then fails and reports the missing key.

use crate::execute::{Delivery, Failure, FailureClass, Outcome};
use crate::failure::permanent;
use crate::jobs::RunJob;
use crate::jobs::checks::refuse_derived;
use crate::jobs::content::{is_as_left, is_proved, is_same, vouched};
use crate::jobs::context::JobContext;
use crate::jobs::marks;
use crate::jobs::relocation::joined;
use crate::jobs::relocation::target;
use crate::protocol::change::{Change, Commit};
use crate::protocol::observe::Observation;
use crate::protocol::primary;
use crate::protocol::queueing::queue_syncs;
use crate::protocol::run::passes::pass;
use crate::protocol::run::reconciler::Reconciler;
use crate::protocol::scope::Scope;
use evenkeel_model::item::{SOURCE_COPIED, SOURCE_ETAG, SOURCE_JOB};
use evenkeel_model::job::{ItemReads, Primary, RestoreJob, Stamp};
use evenkeel_model::shared;
use evenkeel_model::{ETag, Entity, Row, ViewName};
use evenkeel_storage::wide::Rows;

#[derive(Debug, thiserror::Error)]
#[error(
    "{0} exists and was not restored by this job, or it was changed after the restore. Delete or archive it first, or discard this job"
)]
struct EntityExists(Primary);

#[derive(Debug, thiserror::Error)]
#[error(
    "[archives.{0}] is a log in append blobs and cannot be restored. Read it with `evenkeel logs {0}`"
)]
struct NotRestorable(ViewName);

impl RunJob for RestoreJob {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let archive = cx.env.archive(&self.archive)?;
        let Some(mut kept) = target::restore_source(&cx.env, archive, &self.key, delivery)? else {
            return Err(permanent(
                format!("restoring from archive {}", archive.name),
                NotRestorable(archive.name.clone()),
            ));
        };
        let mut source = pass(
            &cx.env,
            &Primary {
                table: archive.source.table.clone(),
                key: self.key.clone(),
            },
            delivery,
        )?;
        // The version of the archived row that this run read before it wrote the source.
        let mut restored: Option<ETag> = None;
        loop {
            kept.next_round().await?;
            let found = kept.observe().await?;
            let seen = source.observe().await?;
            let mine = seen.row().filter(|row| delivery.stamp.is_on(&row.entity));
            let ended = match found.row() {
                None if mine.is_some() || restored.is_some() => Some(RestoreEnd::Done),
                None => Some(RestoreEnd::Skipped(format!(
                    "{} is not in archive {}",
                    source.scope().primary,
                    archive.name
                ))),
                Some(row)
                    if Stamp::of(&row.entity)
                        .is_some_and(|stamp| stamp.enqueued > delivery.stamp.enqueued) =>
                {
                    Some(RestoreEnd::Skipped(
                        "a later job has archived the entity again".to_owned(),
                    ))
                }
                Some(_) => None,
            };
            if let Some(ended) = ended {
                let settled = source.settle_from(&seen).await;
                kept.settle_from(&found).await?;
                settled?;
                let summary = joined(source, kept.as_mut());
                return Ok(match ended {
                    RestoreEnd::Done => Outcome::Done(summary),
                    RestoreEnd::Skipped(reason) => Outcome::Skipped { reason, summary },
                });
            }
            let Some(row) = found.row() else { continue };
            refuse_derived(&seen, &source.scope().primary)?;
            refuse_derived(
                &found,
                kept.primary().unwrap_or_else(|| &source.scope().primary),
            )?;
            let (own, mut owners) =
                shared::without_view_properties(row.entity.clone()).map_err(|error| {
                    permanent(format!("restoring {}", source.scope().primary), error)
                })?;
            owners.retain(|owner| cx.env.catalog.table(&owner.table).is_some());
            let mut entity = delivery
                .stamp
                .on(Entity {
                    key: self.key.clone(),
                    properties: own.to_user_properties(),
                })
                .with(SOURCE_ETAG, row.etag.as_str());
            if kept.is_written_on()
                && let Some(copied) = row.entity.text(SOURCE_ETAG)
            {
                entity = entity.with(SOURCE_COPIED, copied);
            }
            if let Some(archived_by) = Stamp::of(&row.entity) {
                entity = entity.with(SOURCE_JOB, archived_by.to_string());
            }
            let entity = kept.bring_back(&mut source, entity).await?;
            let change = match source_change(source.scope(), &seen, &entity, row, restored.as_ref())
            {
                SourceChange::Due(change) => {
                    let fits = |change: &Change| {
                        primary::check(source.scope(), &seen.rows, change).is_ok()
                    };
                    Some(marks::fitted(change, &marks::OF_RESTORED, fits))
                }
                SourceChange::Made => None,
                SourceChange::Barred => {
                    // An earlier delivery may have left items of the source or of the archived row unsynced.
                    let settled = source.settle_from(&seen).await;
                    kept.settle_from(&found).await?;
                    settled?;
                    return Err(permanent(
                        format!(
                            "restoring {} from archive {}",
                            source.scope().primary,
                            archive.name
                        ),
                        EntityExists(source.scope().primary.clone()),
                    ));
                }
            };
            let refused = match bring_back(&mut source, &seen, change.as_ref()).await {
                Ok(false) => continue,
                Ok(true) => None,
                // For example, another primary has a unique key of the entity. The source may have been written before
                // this failure. If the source was written, the archived row is deleted below, and then the job fails.
                Err(failure) if failure.class == FailureClass::Permanent => {
                    let seen = source.observe().await?;
                    if !seen
                        .row()
                        .is_some_and(|row| is_back(source.scope(), &row.entity, &entity))
                    {
                        kept.settle_from(&found).await?;
                        return Err(failure);
                    }
                    Some(failure)
                }
                Err(failure) => return Err(failure),
            };
            if change.is_some() {
                restored = Some(row.etag.clone());
            }
            // The archived row names the primaries that set properties on the entity (`owners`). Their syncs are queued
            // before the row is deleted.
            queue_syncs(&cx.env, &owners, ItemReads::All, delivery).await?;
            match kept
                .commit(&found, &Change::Delete(self.key.clone(), row.etag.clone()))
                .await?
            {
                Commit::Closed => {}
                Commit::Committed => kept.settle().await?,
                // `refused` may be dropped, because the next round finds the same key conflict again.
                Commit::Lost | Commit::Unanswered => continue,
            }
            return match refused {
                None => Ok(Outcome::Done(joined(source, kept.as_mut()))),
                Some(failure) => Err(failure),
            };
        }
    }
}

enum RestoreEnd {
    Done,
    Skipped(String),
}

enum SourceChange {
    Due(Change),
    /// This run has already written the source from this version of the archived row.
    Made,
    /// The source exists, and either this job has not restored it, or a client has changed it since this job restored
    /// it.
    Barred,
}

/// Whether this job has restored the `stored` entity. Normally, `stored` has the job's stamp. If the stamp does not fit
/// into `stored`, the content of `stored` must equal the content of `entity`, the entity to restore.
fn is_back(scope: &Scope<'_>, stored: &Entity, entity: &Entity) -> bool {
    let fits = |change: &Change| primary::check(scope, &Rows::default(), change).is_ok();
    let is_stamped = Stamp::of(entity).is_some_and(|stamp| stamp.is_on(stored));
    is_stamped || (is_same(stored, entity) && marks::may_lack(Stamp::PROPERTY, stored, fits))
}

/// Decides what to write to the source. `entity` is the restored entity with the job's stamp.
fn source_change(
    scope: &Scope<'_>,
    seen: &Observation,
    entity: &Entity,
    archived: &Row,
    restored: Option<&ETag>,
) -> SourceChange {
    let Some(stored) = seen.row() else {
        return SourceChange::Due(vouched(Change::Insert(entity.clone())));
    };
    if !is_back(scope, &stored.entity, entity) {
        return SourceChange::Barred;
    }
    if restored == Some(&archived.etag) {
        return SourceChange::Made;
    }
    // An earlier attempt has restored the source. An archive job may have written the archived row since, and may be
    // about to delete the source. If the archived row adds nothing to the source, the source is written again
    // unchanged, so that its ETag changes. The deletion by the archive job then fails, and the archive job reads again.
    let adds_nothing = descends(stored, archived, entity)
        || is_same_version(stored, archived) && is_proved(&archived.entity);
    if adds_nothing {
        return SourceChange::Due(Change::Replace(stored.entity.clone(), stored.etag.clone()));
    }
    if !is_as_left(&stored.entity) {
        return SourceChange::Barred;
    }
    SourceChange::Due(vouched(Change::Replace(
        entity.clone(),
        stored.etag.clone(),
    )))
}

/// Returns `true` if the source already has all content of the archived row. This is so if this job restored the source
/// from this version of the archived row, or if the archived row is a copy of the source that this job restored.
fn descends(source: &Row, archived: &Row, entity: &Entity) -> bool {
    let by_this_job = |by: &Stamp| Stamp::of(entity).is_some_and(|own| own.is_same_job(by));
    let copied_from_it =
        || Stamp::under(SOURCE_JOB, &archived.entity).is_some_and(|by| by_this_job(&by));
    source.entity.text(SOURCE_ETAG) == Some(archived.etag.as_str()) || copied_from_it()
}

/// Whether the archived row is a copy of the same version of the entity as the row from which the source was restored.
/// The ETags of the two rows cannot show this, because views and clients may have written to the archived row since.
fn is_same_version(source: &Row, archived: &Row) -> bool {
    archived
        .entity
        .text(SOURCE_ETAG)
        .is_some_and(|copied| source.entity.text(SOURCE_COPIED) == Some(copied))
}

/// Writes the source, if needed, and syncs its items. Returns whether the source is written.
async fn bring_back(
    source: &mut Reconciler<'_>,
    seen: &Observation,
    change: Option<&Change>,
) -> Result<bool, Failure> {
    let Some(change) = change else {
        source.settle_from(seen).await?;
        return Ok(true);
    };
    match source.commit(seen, change).await? {
        Commit::Closed => Ok(true),
        Commit::Committed => {
            source.settle().await?;
            Ok(true)
        }
        Commit::Lost | Commit::Unanswered => Ok(false),
    }
}
