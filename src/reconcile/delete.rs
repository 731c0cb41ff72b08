//! `delete`: deletes a primary if it exists, and what was derived from it.

use jiff::SignedDuration;

use super::commit::{Change, Commit};
use super::engine::Engine;
use super::execute::{Delivery, Failure, Outcome};
use crate::model::job::Primary;
use crate::model::{ETag, Row};
use crate::planted::{Bug, planted};

/// Queues tell times in whole seconds, cut off: what was written within the second of the enqueueing was
/// written before it, as far as anybody can know.
const QUEUE_CLOCK: SignedDuration = SignedDuration::from_secs(1);

pub(super) async fn run(engine: &Engine, primary: &Primary, if_match: Option<&ETag>, delivery: &Delivery) -> Result<Outcome, Failure> {
    let mut pass = engine.pass(primary, delivery)?;
    loop {
        pass.next_round()?;
        let seen = pass.observe().await?;
        let Some(row) = &seen.row else {
            pass.settle_from(&seen).await?;
            return Ok(Outcome::Done(pass.summary));
        };
        if let Some(reason) = unmet(row, if_match, delivery) {
            pass.settle_from(&seen).await?;
            return Ok(Outcome::Skipped { reason, summary: pass.summary });
        }
        match pass.commit(&seen, &Change::Delete(row.entity.key.clone(), row.etag.clone())).await? {
            Commit::Closed => return Ok(Outcome::Done(pass.summary)),
            Commit::Committed => {
                pass.settle().await?;
                return Ok(Outcome::Done(pass.summary));
            }
            Commit::Lost | Commit::Unanswered => {}
        }
    }
}

/// Why the entity is left alone, in words.
fn unmet(row: &Row, if_match: Option<&ETag>, delivery: &Delivery) -> Option<String> {
    if let Some(wanted) = if_match
        && row.etag != *wanted
    {
        return Some(format!("if_match: the entity is at {}, not at {wanted}", row.etag));
    }
    let overtaken = delivery.dequeue_count > 1
        && !planted(Bug::DeleteIgnoresRedelivery)
        && row.timestamp.is_some_and(|written| {
            delivery.stamp.enqueued.saturating_add(QUEUE_CLOCK).is_ok_and(|enqueued| written.timestamp() >= enqueued)
        });
    overtaken.then(|| {
        "the entity was written after this job was enqueued, and an earlier delivery may have deleted the one before it".to_owned()
    })
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
            stamp: Stamp { message_id: "m".to_owned(), enqueued: "2026-11-20T15:00:00Z".parse().unwrap() },
            dequeue_count,
            account: AccountName::main(),
            queue: QueueName::new("jobs").unwrap(),
            recheck_queue: QueueName::new("jobs-recheck").unwrap(),
        }
    }

    #[test]
    fn the_first_delivery_deletes_whatever_is_there() {
        assert_eq!(unmet(&row("2026-11-20T16:00:00Z"), None, &delivery(1)), None);
    }

    #[test]
    fn a_redelivery_leaves_alone_what_was_written_since() {
        assert!(unmet(&row("2026-11-20T15:00:01Z"), None, &delivery(2)).is_some());
        assert_eq!(unmet(&row("2026-11-20T15:00:00.9Z"), None, &delivery(2)), None);
    }

    #[test]
    fn an_etag_that_is_not_current_skips() {
        assert!(unmet(&row("2026-11-20T14:00:00Z"), Some(&ETag::new("e2").unwrap()), &delivery(1)).is_some());
        assert_eq!(unmet(&row("2026-11-20T14:00:00Z"), Some(&ETag::new("e1").unwrap()), &delivery(1)), None);
    }
}
