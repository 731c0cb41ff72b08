//! Second looks: queued when something was dropped that an old insert might still bring back, or written to a sink over which an
//! old write might still come, and when a primary is gone, because its emptied footprint (a tombstone) stays until no pass can still hold
//! the old state.

use std::time::Duration;

use jiff::Timestamp;

use super::execute::{Failure, Summary};
use super::failure::{permanent, storage};
use super::footprint;
use super::look::Look;
use super::observation::Observation;
use super::pass::{Pass, Round};
use super::recheck::Recheck;
use crate::model::{ETag, ItemAddress, limits};
use crate::planted::{Bug, planted};
use crate::ports::{Condition, TableOperation, Ttl};

/// A recheck message stays well below the limit of a queue message, Base64 included.
const RECHECK_ITEMS_BYTES: usize = limits::QUEUE_BODY_BYTES / 2;
/// How long after its recheck was queued a tombstone may have been written: the close follows the queueing,
/// on another service's clock. The recheck is delayed by as much more.
const SERVED_MARGIN: Duration = Duration::from_mins(1);

impl Pass<'_> {
    /// Queues second looks, visible after `recheck_after` and the margin for the close that follows.
    pub(super) async fn queue_recheck(&self, items: &[ItemAddress]) -> Result<(), Failure> {
        let Some(delivery) = self.delivery.filter(|_| !planted(Bug::NoRecheck)) else { return Ok(()) };
        let account = self.engine.stores.account(&delivery.account);
        let queues = &account.map_err(|error| permanent("finding the account of the recheck queue", error))?.queues;
        let delay = if planted(Bug::RecheckAtOnce) { Duration::ZERO } else { self.engine.recheck_after + SERVED_MARGIN };
        for items in messages(items) {
            let recheck = Recheck { primary: self.primary.clone(), items };
            queues
                .put(&delivery.recheck_queue, &recheck.encode(), delay, Ttl::Never)
                .await
                .map_err(|error| storage(format!("queueing a recheck of {}", self.primary), error))?;
        }
        Ok(())
    }

    /// Queues a second look at the whole, where a late write of the primary would leave anything out of step.
    pub(super) async fn look_again(&self) -> Result<(), Failure> {
        if self.has_views() || self.receives() { self.queue_recheck(&[]).await } else { Ok(()) }
    }

    /// A second look: items dropped while an old insert might still arrive, and tombstones that have
    /// served their time.
    pub(super) async fn recheck(mut self, recheck: &Recheck) -> Result<Summary, Failure> {
        self.touched.extend(recheck.items.iter().cloned());
        if !self.has_views() {
            return self.reconcile().await;
        }
        loop {
            self.next_round()?;
            let mut seen = self.observe().await?;
            if !self.receive(&mut seen).await? {
                continue;
            }
            let nothing_there =
                seen.row.is_none() && seen.looks.values().all(|look| !matches!(look, Look::Ours(_) | Look::Unsure | Look::Says(_)));
            if nothing_there && seen.footprint.items.is_empty() {
                match &seen.etag {
                    None => return Ok(self.summary),
                    Some(etag) if self.has_served(&seen) => {
                        if self.remove_tombstone(etag).await? {
                            return Ok(self.summary);
                        }
                        continue;
                    }
                    // Younger than this recheck: the pass that wrote it has queued one of its own.
                    Some(_) if seen.footprint.settled == footprint::Settled::Absent => return Ok(self.summary),
                    Some(_) => {}
                }
            }
            if self.advance(&seen).await? == Round::Closed {
                return Ok(self.summary);
            }
        }
    }

    /// Whether a tombstone was last written no later than just after this recheck was queued, so that it is
    /// `recheck_after` old by the services' own clocks.
    fn has_served(&self, seen: &Observation) -> bool {
        let (Some(delivery), Some(written)) = (self.delivery, seen.written) else { return false };
        seen.footprint.settled == footprint::Settled::Absent && is_old_enough(delivery.stamp.enqueued, written.timestamp())
    }

    async fn remove_tombstone(&self, etag: &ETag) -> Result<bool, Failure> {
        let operation = TableOperation::Delete(footprint::key(&self.primary), Condition::Matches(etag.clone()));
        match self.tables()?.apply(&self.footprints, &operation).await {
            Ok(_) => Ok(true),
            Err(error) if error.may_have_lost() => Ok(false),
            Err(error) => Err(storage(format!("removing the tombstone of {}", self.primary), error)),
        }
    }
}

/// The items of each recheck message. One message where there are none.
fn messages(items: &[ItemAddress]) -> Vec<Vec<ItemAddress>> {
    let mut messages: Vec<Vec<ItemAddress>> = vec![Vec::new()];
    let mut room = RECHECK_ITEMS_BYTES;
    for address in items {
        let bytes = serde_json::to_vec(address).map_or(0, |json| json.len() + 1);
        if bytes > room && messages.last().is_some_and(|last| !last.is_empty()) {
            messages.push(Vec::new());
            room = RECHECK_ITEMS_BYTES;
        }
        room = room.saturating_sub(bytes);
        if let Some(last) = messages.last_mut() {
            last.push(address.clone());
        }
    }
    messages
}

/// Whether a tombstone that was written then is `recheck_after` old, when the recheck comes that was queued then.
fn is_old_enough(queued: Timestamp, written: Timestamp) -> bool {
    let early = if planted(Bug::TombstoneServesShort) { Duration::from_mins(27) } else { Duration::ZERO };
    queued.saturating_add(SERVED_MARGIN + early).is_ok_and(|latest| written <= latest)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;
    use crate::model::job::Primary;
    use crate::model::{AccountName, BlobName, ContainerName, EntityKey, Member, Part, Site, TableName, ViewName};

    /// Items that take about this many bytes each.
    fn items(sizes: &[usize]) -> Vec<ItemAddress> {
        let item = |bytes: &usize| {
            let container = ContainerName::new("values").unwrap();
            let part = Part::Member(Member(vec!["m".repeat(*bytes)]));
            let site = Site::Blob { container, name: BlobName::new("list").unwrap() };
            let whole = ItemAddress::whole(ViewName::new("listed").unwrap(), AccountName::main(), site);
            ItemAddress { part: Some(part), ..whole }
        };
        sizes.iter().map(item).collect()
    }

    #[test]
    fn every_recheck_message_fits_into_a_queue_whatever_its_items_are() {
        let primary =
            Primary { table: TableName::new("Employees").unwrap(), key: EntityKey::new("p".repeat(500), "r".repeat(500)).unwrap() };
        for sizes in
            [vec![], vec![24_000; 3], vec![24_000; 9], vec![100; 2_000], vec![100, 24_000, 100, 24_000, 24_000, 100], vec![12_000; 7]]
        {
            let items = items(&sizes);
            let messages = messages(&items);
            for message in &messages {
                let recheck = Recheck { primary: primary.clone(), items: message.clone() };
                assert!(recheck.encode().len() <= limits::QUEUE_TEXT_BYTES, "{} items of {sizes:?}", message.len());
            }
            assert_eq!(messages.concat(), items, "nothing is left out");
        }
    }

    #[test]
    fn a_tombstone_is_removed_by_the_recheck_that_was_queued_with_it_and_by_no_earlier_one() {
        let queued: Timestamp = "2026-11-20T15:00:00Z".parse().unwrap();
        let written = |seconds| queued + SignedDuration::from_secs(seconds);
        assert!(is_old_enough(queued, written(-5)), "written before the recheck was queued");
        assert!(is_old_enough(queued, written(60)), "the close that follows the queueing");
        for seconds in [61, 5 * 60, 28 * 60] {
            assert!(!is_old_enough(queued, written(seconds)), "written {seconds} s later: another recheck was queued with it");
        }
    }
}
