//! `delete`: deletes a primary if it exists, and its derived items.
//!
//! Once: a primary that may have been created since the job was enqueued, or since a delete request of this run went
//! unanswered, is left alone.

use super::change::{Change, Commit};
use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use super::jobs::RunJob;
use super::put::refuse_derived;
use super::since::is_written_since;
use super::spill::judged;
use crate::model::condition::Condition;
use crate::model::job::DeleteJob;
use crate::model::{ETag, Row};
use crate::ports::ClocksApart;

impl RunJob for DeleteJob {
    async fn run(&self, engine: &Engine, delivery: &Delivery) -> Result<Outcome, Failure> {
        engine.refuse_view_tables(&self.primary.table)?;
        let mut reconciler = engine.pass(&self.primary, delivery)?;
        let when = engine.condition_at(reconciler.pass.scope.source, self.when.as_ref(), delivery.stamp.enqueued)?;
        // The version that this run asked to delete without an answer.
        let mut asked: Option<ETag> = None;
        loop {
            reconciler.next_round().await?;
            let seen = reconciler.observe().await?;
            refuse_derived(&seen, &self.primary)?;
            let Some(row) = &seen.row else {
                reconciler.settle_from(&seen).await?;
                return Ok(Outcome::Done(reconciler.take_summary()));
            };
            let apart = engine.clocks_apart(delivery, reconciler.pass.scope.source);
            let judged = judged(&reconciler.pass.scope, row, &when.iter().flat_map(Condition::selected).collect::<Vec<_>>()).await?;
            let wanted = unsatisfied(&judged, when.as_ref());
            if let Some(reason) = unmet(row, (self.if_match.as_ref(), wanted), asked.as_ref(), (delivery, apart))? {
                reconciler.settle_from(&seen).await?;
                return Ok(Outcome::Skipped { reason, summary: reconciler.take_summary() });
            }
            match reconciler.commit(&seen, &Change::Delete(row.entity.key.clone(), row.etag.clone())).await? {
                Commit::Closed => return Ok(Outcome::Done(reconciler.take_summary())),
                Commit::Committed => {
                    reconciler.settle().await?;
                    return Ok(Outcome::Done(reconciler.take_summary()));
                }
                Commit::Unanswered => asked = Some(row.etag.clone()),
                Commit::Lost => {}
            }
        }
    }
}

/// Why an entity is left alone that does not satisfy the condition of its job, in words.
pub(super) fn unsatisfied(row: &Row, when: Option<&Condition>) -> Option<String> {
    when.filter(|when| !when.holds_of(row)).map(|when| format!("when: the entity does not satisfy {when}"))
}

/// Why the entity is left alone, in words; `unsatisfied` where it does not satisfy the condition.
fn unmet(
    row: &Row,
    (if_match, unsatisfied): (Option<&ETag>, Option<String>),
    asked: Option<&ETag>,
    (delivery, apart): (&Delivery, ClocksApart),
) -> Result<Option<String>, Failure> {
    if let Some(wanted) = if_match
        && row.etag != *wanted
    {
        return Ok(Some(format!("if_match: the entity is at {}, not at {wanted}", row.etag)));
    }
    if unsatisfied.is_some() {
        return Ok(unsatisfied);
    }
    // No clock is needed to know that it was written after this run had read another version.
    if asked.is_some_and(|asked| *asked != row.etag) {
        return Ok(Some(
            "the entity was written after a request to delete it went unanswered, which may have deleted the one before it; a new job deletes it"
                .to_owned(),
        ));
    }
    Ok(is_written_since(row, delivery, apart)?.then(|| {
        "the entity was written after this job was enqueued, and an earlier message or delivery of it may have deleted the one before it; a new job deletes it".to_owned()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::job::Stamp;
    use crate::model::{AccountName, EdmDateTime, Entity, EntityKey, QueueName};

    fn row(written: &str) -> Row {
        let entity = Entity::new(EntityKey::new("p", "r").unwrap());
        Row { entity, etag: ETag::new("e1").unwrap(), timestamp: Some(EdmDateTime::parse(written).unwrap()) }
    }

    fn delivery(dequeue_count: u32) -> Delivery {
        Delivery {
            stamp: Stamp { message_id: "m".to_owned(), enqueued: "2026-11-20T15:00:00Z".parse().unwrap(), job: None },
            dequeue_count,
            account: AccountName::main(),
            queue: QueueName::new("jobs").unwrap(),
            sync_queue: QueueName::new("jobs").unwrap(),
            recheck_queue: QueueName::new("jobs-recheck").unwrap(),
            tables: None,
        }
    }

    /// A message may be doubled by its sender, and the double is a first delivery.
    #[test]
    fn no_delivery_deletes_what_was_written_since() {
        for dequeue_count in [1, 2] {
            assert!(
                unmet(&row("2026-11-20T16:00:00Z"), (None, None), None, (&delivery(dequeue_count), ClocksApart::NOT)).unwrap().is_some()
            );
            assert_eq!(
                unmet(&row("2026-11-20T15:00:00.9Z"), (None, None), None, (&delivery(dequeue_count), ClocksApart::NOT)).unwrap(),
                None
            );
        }
        assert!(unmet(&row("2026-11-20T15:00:01Z"), (None, None), None, (&delivery(2), ClocksApart::NOT)).unwrap().is_some());
    }

    #[test]
    fn another_version_than_the_one_asked_for_in_vain_is_left_alone_whatever_the_clocks_say() {
        let (same, other) = (ETag::new("e1").unwrap(), ETag::new("e0").unwrap());
        assert_eq!(unmet(&row("2026-11-20T14:00:00Z"), (None, None), Some(&same), (&delivery(1), ClocksApart::NOT)).unwrap(), None);
        assert!(unmet(&row("2026-11-20T14:00:00Z"), (None, None), Some(&other), (&delivery(1), ClocksApart::NOT)).unwrap().is_some());
    }

    #[test]
    fn an_etag_that_is_not_current_skips() {
        assert!(
            unmet(&row("2026-11-20T14:00:00Z"), (Some(&ETag::new("e2").unwrap()), None), None, (&delivery(1), ClocksApart::NOT))
                .unwrap()
                .is_some()
        );
        assert_eq!(
            unmet(&row("2026-11-20T14:00:00Z"), (Some(&ETag::new("e1").unwrap()), None), None, (&delivery(1), ClocksApart::NOT)).unwrap(),
            None
        );
    }
}
