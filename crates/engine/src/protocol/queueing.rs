//! Messages that a job puts into queues of the account from which the job was received: further jobs, and rechecks.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::env::Env;
use crate::env::recheck_message::Recheck;
use crate::env::recheck_queue::{RECHECK_ITEMS_BYTES, RecheckQueue};
use crate::execute::{Delivery, Failure};
use crate::failure::{permanent, storage};
use crate::protocol::scope::Scope;
use crate::protocol::sent_at::SentAt;
use evenkeel_model::job::{BATCH_KEYS, ItemReads, Packer, Primary};
use evenkeel_model::{ItemAddress, QueueName, body, limits};
use evenkeel_storage::{QueueStore, Ttl};

/// Maximum time from the queueing of a recheck to the write of the tombstone that the recheck removes. The tombstone
/// may be written a round later, and its time comes from the clock of another service. The delay of every recheck is at
/// least `recheck_after` plus this margin, so that the tombstone is old enough when the recheck becomes visible.
pub(crate) const SERVED_MARGIN: Duration = Duration::from_secs(90);
/// Time during which a queued recheck also serves later rounds of the same run.
const RECHECK_REUSE: Duration = Duration::from_secs(30);

/// Maximum number of times that the delay of consecutive rechecks doubles. The longest delay is 32 times the first, but
/// no longer than a queue can hide a message.
const MAX_DOUBLINGS: u32 = 5;

fn delay_of(recheck_after: Duration, chained: u32) -> Duration {
    let delay = (recheck_after + SERVED_MARGIN).saturating_mul(1 << chained.min(MAX_DOUBLINGS));
    delay.min(Duration::from_secs(limits::QUEUE_VISIBILITY_SECONDS))
}

/// Approximate time between the write of a footprint and its recheck.
pub(crate) fn second_look_after(recheck_after: Duration) -> Duration {
    delay_of(recheck_after, 0) + SERVED_MARGIN
}

/// Maximum lifetime of a tombstone that a recheck wrote. The next recheck removes it.
pub(crate) fn tombstone_stays(recheck_after: Duration) -> Duration {
    delay_of(recheck_after, 1) + SERVED_MARGIN
}

/// The delay of a recheck of spared values (`Plan::spared`). The recheck becomes visible after the taint has ended. An
/// earlier recheck would spare the values again, and the next recheck would come only after twice the delay.
fn delay_of_spared(recheck_after: Duration, taint: Duration) -> Duration {
    let delay = delay_of(recheck_after, 0).max(taint + SERVED_MARGIN);
    delay.min(Duration::from_secs(limits::QUEUE_VISIBILITY_SECONDS))
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecheckRequest {
    /// Items to look at, besides those that every pass looks at.
    pub(crate) items: Vec<ItemAddress>,
    pub(crate) not_before: NotBefore,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NotBefore {
    /// The recheck waits until no request that is under way now can arrive any more.
    RecheckAfter,
    /// In addition, the recheck waits until a taint has ended.
    Taint(Timestamp),
}

#[derive(Debug, Default)]
pub(crate) struct RunRechecks {
    queued: Option<(SentAt, BTreeSet<ItemAddress>)>,
    spared: bool,
}

impl RecheckRequest {
    pub(crate) const fn of(items: Vec<ItemAddress>) -> Self {
        Self {
            items,
            not_before: NotBefore::RecheckAfter,
        }
    }
}

impl RunRechecks {
    /// Queues a recheck, unless a recheck of an earlier round suffices. `taken_keys` is the digest of the taken keys
    /// for which the run is about to fail.
    pub(crate) async fn queue(
        &mut self,
        scope: &Scope<'_>,
        request: &RecheckRequest,
        taken_keys: Option<&str>,
    ) -> Result<(), Failure> {
        let items = &request.items;
        if let NotBefore::Taint(until) = request.not_before {
            return self.queue_spared(scope, items, until, taken_keys).await;
        }
        let clock = scope.env.clock.as_ref();
        let serves = |(sent, queued): &(SentAt, BTreeSet<ItemAddress>)| {
            sent.elapsed(clock) <= RECHECK_REUSE && items.iter().all(|item| queued.contains(item))
        };
        if !self.queued.as_ref().is_some_and(serves) {
            let sent = SentAt::now(clock);
            queue_recheck(scope, items, taken_keys).await?;
            self.queued = Some((sent, items.iter().cloned().collect()));
        }
        Ok(())
    }

    async fn queue_spared(
        &mut self,
        scope: &Scope<'_>,
        values: &[ItemAddress],
        until: Timestamp,
        taken_keys: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(delivery) = scope.delivery else {
            return Ok(());
        };
        let taint =
            Duration::try_from(until.duration_since(scope.env.clock.now())).unwrap_or_default();
        let delay = delay_of_spared(scope.env.recheck_after, taint);
        let queue = RecheckQueue {
            queues: recheck_queues(scope, delivery)?,
            name: &delivery.recheck_queue,
            delay,
        };
        for items in messages(values) {
            let recheck = Recheck {
                primary: scope.primary.clone(),
                items,
                chained: scope.chained,
                taken_keys: taken_keys.map(str::to_owned),
            };
            let put = queue.put(&[&recheck]).await;
            put.map_err(|error| {
                storage(format!("queueing a recheck of {}", scope.primary), error)
            })?;
        }
        self.spared = true;
        Ok(())
    }

    pub(crate) const fn are_queued(&self) -> bool {
        self.queued.is_some() || self.spared
    }
}

/// Queues a job, given as JSON text. `what` describes the step in a failure.
pub(crate) async fn queue(
    env: &Env,
    queue: &QueueName,
    job: &str,
    delivery: &Delivery,
    what: impl Fn() -> String + Send,
) -> Result<(), Failure> {
    let account = env.stores.account(&delivery.account);
    let queues = &account
        .map_err(|error| permanent("finding the account of the queue", error))?
        .queues;
    let put = queues
        .put(queue, &body::encode(job), Duration::ZERO, Ttl::Never)
        .await;
    put.map(|_| ()).map_err(|error| storage(what(), error))
}

/// Queues syncs of primaries, in as few messages as possible. If one primary of a message cannot be brought in step,
/// only this primary is moved to the poison queue, with its own reason. It delays no other primary.
pub(crate) async fn queue_syncs(
    env: &Env,
    primaries: &BTreeSet<Primary>,
    reads: ItemReads,
    delivery: &Delivery,
) -> Result<(), Failure> {
    // A message on a recheck queue has at most one `sync`.
    let most = if delivery.sync_queue == delivery.recheck_queue {
        1
    } else {
        BATCH_KEYS
    };
    for (first, message) in sync_messages(primaries, reads, most) {
        queue(env, &delivery.sync_queue, &message, delivery, || {
            format!("queueing a sync of {first}")
        })
        .await?;
    }
    Ok(())
}

/// Packs syncs of primaries into messages with at most `most` syncs each. Returns each message with its first primary.
fn sync_messages(
    primaries: &BTreeSet<Primary>,
    reads: ItemReads,
    most: usize,
) -> Vec<(&Primary, String)> {
    let (mut packer, mut first, mut messages) = (Packer::new(most), None, Vec::new());
    let text = |job| Value::Object(job).to_string();
    for primary in primaries {
        let Primary { table, key } = primary;
        let fields = [
            ("op", json!("sync")),
            ("table", json!(table)),
            ("pk", json!(key.pk)),
            ("rk", json!(key.rk)),
        ];
        let mut job: Map<String, Value> = fields
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        job.insert("thorough".to_owned(), json!(reads == ItemReads::All));
        if let Some(ready) = packer.add(&job).ready {
            messages.extend(first.replace(primary).map(|first| (first, text(ready))));
        }
        first.get_or_insert(primary);
    }
    messages.extend(first.zip(packer.take().map(text)));
    messages
}

fn recheck_queues<'e>(
    scope: &Scope<'e>,
    delivery: &Delivery,
) -> Result<&'e dyn QueueStore, Failure> {
    let account = scope.env.stores.account(&delivery.account);
    account
        .map(|account| account.queues.as_ref())
        .map_err(|error| permanent("finding the account of the recheck queue", error))
}

/// Queues rechecks that become visible after `recheck_after` and `SERVED_MARGIN`. Each consecutive recheck doubles the
/// delay. `taken_keys` is the digest of the taken keys for which the run fails.
pub(crate) async fn queue_recheck(
    scope: &Scope<'_>,
    items: &[ItemAddress],
    taken_keys: Option<&str>,
) -> Result<(), Failure> {
    let Some(delivery) = scope.delivery else {
        return Ok(());
    };
    let (env, chained) = (scope.env, scope.chained);
    let delay = delay_of(env.recheck_after, chained);
    let queue = RecheckQueue {
        queues: recheck_queues(scope, delivery)?,
        name: &delivery.recheck_queue,
        delay,
    };
    let place = (
        delivery.account.clone(),
        delivery.recheck_queue.clone(),
        scope.primary.table.clone(),
        chained,
    );
    for items in messages(items) {
        let recheck = Recheck {
            primary: scope.primary.clone(),
            items,
            chained,
            taken_keys: taken_keys.map(str::to_owned),
        };
        let put = env.rechecks.put(&place, &recheck, &queue).await;
        put.map_err(|error| storage(format!("queueing a recheck of {}", scope.primary), error))?;
    }
    Ok(())
}

/// Queues a recheck without listed items, if the primary has views or range overlays. Any other primary needs none,
/// because a late write of the primary leaves nothing out of step.
pub(crate) async fn queue_whole_recheck(
    scope: &Scope<'_>,
    taken_keys: Option<&str>,
) -> Result<(), Failure> {
    if scope.has_views() || scope.reads_overlays() {
        queue_recheck(scope, &[], taken_keys).await
    } else {
        Ok(())
    }
}

/// Splits items so that each list fits into one recheck message. Without items, there is one empty list.
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

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::{
        AccountName, BlobName, ContainerName, EntityKey, Member, Part, Site, TableName, ViewName,
        limits,
    };

    #[test]
    fn a_recheck_is_never_due_later_than_a_queue_can_hide_it() {
        let hour = Duration::from_hours(1);
        assert_eq!(delay_of(hour, 2), 4 * (hour + SERVED_MARGIN));
        for (recheck_after, chained) in [
            (6 * hour, 5),
            (6 * hour, u32::MAX),
            (167 * hour, 0),
            (167 * hour, 1),
        ] {
            assert!(
                delay_of(recheck_after, chained).as_secs() <= limits::QUEUE_VISIBILITY_SECONDS,
                "{recheck_after:?}, {chained}"
            );
        }
    }

    #[test]
    fn spared_values_are_rechecked_after_their_taint_and_after_the_usual_delay() {
        let (half, minute) = (Duration::from_mins(26), Duration::from_mins(1));
        for taint in [Duration::ZERO, 5 * minute, 30 * minute, 56 * minute] {
            let delay = delay_of_spared(half, taint);
            assert!(
                delay > taint && delay >= delay_of(half, 0) && delay <= 56 * minute + SERVED_MARGIN,
                "{taint:?}: {delay:?}"
            );
        }
        assert!(
            delay_of_spared(167 * 60 * minute, 200 * 60 * minute).as_secs()
                <= limits::QUEUE_VISIBILITY_SECONDS
        );
    }

    fn items(sizes: &[usize]) -> Vec<ItemAddress> {
        let item = |bytes: &usize| {
            let container = ContainerName::new("values").unwrap();
            let part = Part::Member(Member(vec!["m".repeat(*bytes)]));
            let site = Site::Blob {
                container,
                name: BlobName::new("list").unwrap(),
            };
            let whole =
                ItemAddress::whole(ViewName::new("listed").unwrap(), AccountName::main(), site);
            ItemAddress {
                part: Some(part),
                ..whole
            }
        };
        sizes.iter().map(item).collect()
    }

    fn primary(table: &str, pk: &str, rk: &str) -> Primary {
        Primary {
            table: TableName::new(table).unwrap(),
            key: EntityKey::new(pk, rk).unwrap(),
        }
    }

    #[test]
    fn syncs_of_one_table_share_a_message() {
        let primaries = BTreeSet::from([
            primary("Staff", "p", "1"),
            primary("Staff", "p", "2"),
            primary("Teams", "p", "1"),
            primary("Teams", "q", "1"),
        ]);
        let messages = |most| -> Vec<(Primary, Value)> {
            let messages = sync_messages(&primaries, ItemReads::All, most).into_iter();
            messages
                .map(|(first, text)| (first.clone(), serde_json::from_str(&text).unwrap()))
                .collect()
        };
        let staff =
            json!({"op": "sync", "table": "Staff", "pk": "p", "rks": ["1", "2"], "thorough": true});
        let teams = json!({"op": "sync", "table": "Teams", "keys": [["p", "1"], ["q", "1"]], "thorough": true});
        assert_eq!(
            messages(BATCH_KEYS),
            [
                (primary("Staff", "p", "1"), staff),
                (primary("Teams", "p", "1"), teams)
            ]
        );
        let one = json!({"op": "sync", "table": "Staff", "pk": "p", "rk": "2", "thorough": true});
        assert_eq!(
            (messages(1).len(), &messages(1)[1]),
            (4, &(primary("Staff", "p", "2"), one)),
            "one sync per message on a recheck queue"
        );
        assert!(sync_messages(&BTreeSet::new(), ItemReads::Uncertain, 1).is_empty());
    }

    #[test]
    fn many_syncs_of_long_keys_fit_into_their_messages() {
        let long = "\"".repeat(500);
        let primaries: BTreeSet<Primary> = (0..300)
            .map(|n| primary("Staff", &format!("{n}"), &format!("{long}{n}")))
            .collect();
        let messages = sync_messages(&primaries, ItemReads::Uncertain, BATCH_KEYS);
        assert!(
            messages.len() > 5
                && messages
                    .iter()
                    .all(|(_, text)| text.len() <= limits::QUEUE_BODY_BYTES),
            "{}",
            messages.len()
        );
        let named = |text: &String| {
            serde_json::from_str::<Value>(text).unwrap()["keys"]
                .as_array()
                .unwrap()
                .len()
        };
        assert_eq!(
            messages.iter().map(|(_, text)| named(text)).sum::<usize>(),
            300
        );
    }

    #[test]
    fn every_recheck_message_fits_into_a_queue_whatever_its_items_are() {
        let primary = Primary {
            table: TableName::new("Employees").unwrap(),
            key: EntityKey::new("p".repeat(500), "r".repeat(500)).unwrap(),
        };
        for sizes in [
            vec![],
            vec![24_000; 3],
            vec![24_000; 9],
            vec![100; 2_000],
            vec![100, 24_000, 100, 24_000, 24_000, 100],
            vec![12_000; 7],
        ] {
            let items = items(&sizes);
            let messages = messages(&items);
            for message in &messages {
                let recheck = Recheck {
                    primary: primary.clone(),
                    items: message.clone(),
                    chained: 0,
                    taken_keys: None,
                };
                assert!(
                    recheck.encode().len() <= limits::QUEUE_TEXT_BYTES,
                    "{} items of {sizes:?}",
                    message.len()
                );
            }
            assert_eq!(messages.concat(), items, "each item is in one message");
        }
    }
}
