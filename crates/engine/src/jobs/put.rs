//! `put`: writes a primary, together with the items in its own partition.

use std::cmp::Ordering;

use crate::execute::{Delivery, Failure, FailureClass, Outcome};
use crate::failure::permanent;
use crate::items::value::refuse_foreign;
use crate::jobs::RunJob;
use crate::jobs::checks::refuse_derived;
use crate::jobs::content::vouched;
use crate::jobs::context::JobContext;
use crate::jobs::newer::{IncomparableValues, compared};
use crate::jobs::staging::Staging;
use crate::protocol::change::{Change, Commit};
use crate::protocol::footprint::Settled;
use crate::protocol::observe::Observation;
use crate::protocol::queueing::queue_whole_recheck;
use crate::protocol::run::passes::pass;
use crate::protocol::run::reconciler::Reconciler;
use evenkeel_model::Row;
use evenkeel_model::job::{Primary, Put, PutMode, Stamp};
use evenkeel_model::shared;

impl RunJob for Put {
    async fn run(&self, cx: &JobContext, delivery: &Delivery) -> Result<Outcome, Failure> {
        let mut staging = Staging::new(cx, self)?;
        let outcome = write(cx, self, &mut staging, delivery).await?;
        staging.remove().await?;
        // The run of an earlier delivery may still be active. If another writer has replaced the entity meanwhile, the
        // earlier run writes it again, and may crash before it syncs the items. No delivery follows, because the
        // message is deleted after the present run. So a recheck is queued. If the present run has changed nothing,
        // `execute` queues the recheck.
        if delivery.dequeue_count > 1
            && matches!(&outcome, Outcome::Done(summary) if summary.has_changed_its_own())
        {
            let primary = Primary {
                table: self.table.clone(),
                key: self.entity.key.clone(),
            };
            queue_whole_recheck(pass(&cx.env, &primary, delivery)?.scope(), None).await?;
        }
        Ok(outcome)
    }
}

async fn write(
    cx: &JobContext,
    put: &Put,
    staging: &mut Staging<'_>,
    delivery: &Delivery,
) -> Result<Outcome, Failure> {
    let primary = Primary {
        table: put.table.clone(),
        key: put.entity.key.clone(),
    };
    cx.env.refuse_view_tables(&primary.table)?;
    let mut reconciler = pass(&cx.env, &primary, delivery)?;
    // Whether this job has written the entity with a data key that was erased meanwhile.
    let mut erased = false;
    loop {
        reconciler.next_round().await?;
        let seen = reconciler.observe().await?;
        refuse_derived(&seen, &primary)?;
        if erased
            && !seen
                .row()
                .is_some_and(|row| delivery.stamp.is_on(&row.entity))
        {
            // After this job wrote the entity, another writer has changed or deleted it. That change must stay.
            reconciler.settle_from(&seen).await?;
            return Ok(Outcome::Done(reconciler.take_summary()));
        }
        let change = match decided(staging, seen.row(), delivery).await? {
            Ok(change) => change,
            Err(end) => {
                if let (PutEnd::AlreadyWritten, Some(row)) = (&end, seen.row()) {
                    staging.assume_read().await?;
                    upload_again(&mut reconciler, &seen, row, staging).await?;
                }
                // The items are synced even if nothing is written, because an earlier delivery may have crashed before
                // it synced them.
                let settled = reconciler.settle_from(&seen).await;
                return end.after(settled, &mut reconciler);
            }
        };
        refuse_foreign(reconciler.scope(), change.sent())?;
        let change = match staging.values().await? {
            Ok(values) => vouched(reconciler.take_out(change, values)?),
            Err(gone) => {
                let settled = reconciler.settle_from(&seen).await;
                let never = || PutEnd::Impossible(permanent(format!("putting {primary}"), gone));
                let end = overtaken(seen.row(), delivery).map_or_else(never, PutEnd::Skip);
                return end.after(settled, &mut reconciler);
            }
        };
        let ended = reconciler.commit(&seen, &change).await?;
        if matches!(ended, Commit::Lost | Commit::Unanswered) {
            continue;
        }
        if matches!(change, Change::Insert(_)) && !staging.keeps_data_key().await? {
            erased = true;
            continue;
        }
        if ended == Commit::Committed {
            reconciler.settle().await?;
        }
        return Ok(Outcome::Done(reconciler.take_summary()));
    }
}

#[derive(Debug)]
enum PutEnd {
    AlreadyWritten,
    Skip(String),
    Impossible(Failure),
}

impl PutEnd {
    /// Returns the outcome of the job, given the result of the sync of its items. The job's own failure takes
    /// precedence over the failure of a view.
    fn after(
        self,
        settled: Result<(), Failure>,
        reconciler: &mut Reconciler<'_>,
    ) -> Result<Outcome, Failure> {
        match (self, settled) {
            (Self::Impossible(own), Ok(())) => Err(own),
            (Self::Impossible(own), Err(failure)) if failure.class == FailureClass::Permanent => {
                Err(own.of_views(failure.views))
            }
            (_, Err(failure)) => Err(failure),
            (Self::AlreadyWritten, Ok(())) => Ok(Outcome::Done(reconciler.take_summary())),
            (Self::Skip(reason), Ok(())) => Ok(Outcome::Skipped {
                reason,
                summary: reconciler.take_summary(),
            }),
        }
    }
}

async fn decided(
    staging: &mut Staging<'_>,
    stored: Option<&Row>,
    delivery: &Delivery,
) -> Result<Result<Change, PutEnd>, Failure> {
    if let Some(row) = stored.filter(|row| delivery.stamp.is_on(&row.entity)) {
        return Ok(staging
            .encrypted_again(row)
            .await?
            .ok_or(PutEnd::AlreadyWritten));
    }
    // Conditions that do not need the staged blob are checked before the blob is read. If an earlier delivery has
    // skipped the job for such a condition, it may have deleted the blob.
    if let Ok(Some(reason)) = unmet(staging.as_sent(), stored) {
        return Ok(Err(PutEnd::Skip(reason)));
    }
    let put = match staging.put(stored.map(|row| &row.entity)).await? {
        Ok(put) => put,
        Err(gone) => {
            return Ok(Err(match overtaken(stored, delivery) {
                Some(reason) => PutEnd::Skip(reason),
                None => PutEnd::Impossible(permanent("putting a staged entity", gone)),
            }));
        }
    };
    Ok(decide(&put, stored, &delivery.stamp))
}

/// Returns the reason to skip a job whose staged blob is gone. The job is skipped if it is redelivered and a later job
/// has written the entity, because then an earlier delivery has completed the job.
fn overtaken(stored: Option<&Row>, delivery: &Delivery) -> Option<String> {
    let later = stored
        .and_then(|row| Stamp::of(&row.entity))
        .is_some_and(|written| written.enqueued >= delivery.stamp.enqueued);
    let taken = delivery.dequeue_count > 1 && later;
    taken.then(|| "the staged blob is gone, and a later job has written the entity since, so an earlier delivery has completed this job".to_owned())
}

/// Supplies the large values to the sync again. This job has written the primary, but may have crashed before it synced
/// all items, so some of the values may be missing.
async fn upload_again(
    reconciler: &mut Reconciler<'_>,
    seen: &Observation,
    row: &Row,
    staging: &mut Staging<'_>,
) -> Result<(), Failure> {
    let closed = matches!(&seen.footprint.settled, Settled::At { etag, .. } if *etag == row.etag)
        && !seen.footprint.is_changing();
    if closed
        || reconciler
            .scope()
            .env
            .catalog
            .large_values_of(reconciler.scope().source)
            .is_none()
    {
        return Ok(());
    }
    let change = match staging.put(Some(&row.entity)).await? {
        Ok(put) => {
            let merged = row.entity.clone().merged(&put.entity);
            Change::Merge {
                changes: put.entity.clone(),
                merged,
                etag: row.etag.clone(),
            }
        }
        Err(_) => return Ok(()),
    };
    if let Ok(values) = staging.values().await? {
        reconciler.take_out(change, values)?;
    }
    Ok(())
}

fn decide(put: &Put, stored: Option<&Row>, stamp: &Stamp) -> Result<Change, PutEnd> {
    if stored.is_some_and(|row| stamp.is_on(&row.entity)) {
        return Err(PutEnd::AlreadyWritten);
    }
    let doing = || format!("putting {}{}", put.table, put.entity.key);
    let unmet =
        unmet(put, stored).map_err(|error| PutEnd::Impossible(permanent(doing(), error)))?;
    if let Some(reason) = unmet {
        return Err(PutEnd::Skip(reason));
    }
    let entity = stamp.on(put.entity.clone());
    Ok(match (stored, put.mode) {
        (None, _) => Change::Insert(entity),
        // A replacement keeps the properties that views have set on the entity.
        (Some(row), PutMode::Replace) => {
            let kept = shared::keep_view_properties(&row.entity, entity)
                .map_err(|error| PutEnd::Impossible(permanent(doing(), error)))?;
            Change::Replace(kept, row.etag.clone())
        }
        (Some(row), _) => {
            let merged = row.entity.clone().merged(&entity);
            Change::Merge {
                changes: entity,
                merged,
                etag: row.etag.clone(),
            }
        }
    })
}

fn unmet(put: &Put, stored: Option<&Row>) -> Result<Option<String>, IncomparableValues> {
    let condition = &put.condition;
    if condition.if_absent && stored.is_some() {
        return Ok(Some("if_absent: the entity exists".to_owned()));
    }
    if let Some(expected) = &condition.if_match {
        match stored {
            None => {
                return Ok(Some(format!(
                    "if_match: the entity does not exist, so it is not at {expected}"
                )));
            }
            Some(row) if row.etag != *expected => {
                return Ok(Some(format!(
                    "if_match: the entity is at {}, not at {expected}",
                    row.etag
                )));
            }
            Some(_) => {}
        }
    }
    if let Some(property) = &condition.newer_by
        && let (Some(new), Some(old)) = (
            put.entity.get(property),
            stored.and_then(|row| row.entity.get(property)),
        )
    {
        // `compared` returns `None` for NaN, which is never newer.
        if compared(property, new, old)? != Some(Ordering::Greater) {
            return Ok(Some(format!(
                "newer_by: {property} is not greater than the stored value"
            )));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::job::PutCondition;
    use evenkeel_model::{ETag, Entity, EntityKey, TableName};

    fn put(mode: PutMode, condition: PutCondition) -> Put {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap())
            .with("A", 1)
            .with("V", 5_i64);
        Put {
            table: TableName::new("Employees").unwrap(),
            entity,
            mode,
            condition,
            staged_entity: None,
            staged_values: std::collections::BTreeMap::new(),
        }
    }

    fn row(version: i64) -> Row {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap())
            .with("B", 2)
            .with("V", version);
        Row {
            entity,
            etag: ETag::new("e1").unwrap(),
            timestamp: None,
        }
    }

    fn stamp(id: &str) -> Stamp {
        Stamp {
            message_id: id.to_owned(),
            enqueued: jiff::Timestamp::UNIX_EPOCH,
            job: None,
        }
    }

    #[test]
    fn a_row_with_the_jobs_stamp_counts_as_success() {
        let mut stored = row(9);
        stored.entity = stamp("m").on(stored.entity);
        let condition = PutCondition {
            if_absent: true,
            ..PutCondition::default()
        };
        assert!(matches!(
            decide(
                &put(PutMode::Replace, condition.clone()),
                Some(&stored),
                &stamp("m")
            ),
            Err(PutEnd::AlreadyWritten)
        ));
        assert!(matches!(
            decide(
                &put(PutMode::Replace, condition),
                Some(&stored),
                &stamp("n")
            ),
            Err(PutEnd::Skip(_))
        ));
    }

    #[test]
    fn unmet_conditions_skip_and_met_ones_write() {
        let at = |etag: &str| PutCondition {
            if_match: Some(ETag::new(etag).unwrap()),
            ..PutCondition::default()
        };
        let newer = PutCondition {
            newer_by: Some("V".to_owned()),
            ..PutCondition::default()
        };
        let decide = |condition: &PutCondition, stored: Option<&Row>| {
            decide(
                &put(PutMode::Replace, condition.clone()),
                stored,
                &stamp("m"),
            )
        };
        assert!(matches!(
            decide(&at("e2"), Some(&row(1))),
            Err(PutEnd::Skip(_))
        ));
        assert!(matches!(decide(&at("e1"), None), Err(PutEnd::Skip(_))));
        assert!(matches!(
            decide(&at("e1"), Some(&row(1))),
            Ok(Change::Replace(..))
        ));
        assert!(matches!(
            decide(&newer, Some(&row(5))),
            Err(PutEnd::Skip(_))
        ));
        assert!(matches!(
            decide(&newer, Some(&row(4))),
            Ok(Change::Replace(..))
        ));
        assert!(matches!(decide(&newer, None), Ok(Change::Insert(_))));
    }

    #[test]
    fn values_of_different_types_are_an_error() {
        let mut stored = row(1);
        stored.entity = stored.entity.with("V", "5");
        let newer = PutCondition {
            newer_by: Some("V".to_owned()),
            ..PutCondition::default()
        };
        assert!(matches!(
            decide(&put(PutMode::Replace, newer), Some(&stored), &stamp("m")),
            Err(PutEnd::Impossible(_))
        ));
    }

    #[test]
    fn a_merge_derives_from_the_whole_entity() {
        let Ok(Change::Merge {
            changes, merged, ..
        }) = decide(
            &put(PutMode::Merge, PutCondition::default()),
            Some(&row(1)),
            &stamp("m"),
        )
        else {
            panic!("no merge");
        };
        assert!(!changes.properties.contains_key("B"));
        assert_eq!(merged.get("B"), Some(&2.into()));
        assert_eq!(merged.get("V"), Some(&5_i64.into()));
    }
}
