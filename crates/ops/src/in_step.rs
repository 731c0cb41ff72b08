//! Whether what a poisoned message asked for holds by now: its cause has gone by itself, or another job has done it.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use tokio::time::timeout;

use evenkeel_client::Client;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::{self, Put, PutMode};
use evenkeel_model::{Entity, Job};
use evenkeel_worker::poison::PoisonEntry;

/// Messages that are asked about at most: each costs two or three requests.
const MOST: usize = 100;
/// Messages that are asked about at once.
const AT_ONCE: usize = 16;
/// How long it may take: a list of messages is needed most when stores are slow.
const PATIENCE: Duration = Duration::from_secs(3);

/// Of each message, as far as it was found out, whether its primary is in step now; of a `put`, whether it also has what that was to write.
/// `None` of other operations, of messages beyond the first `MOST`, and if a store does not answer in time.
pub async fn in_step_now<'e>(
    client: &Client,
    catalog: &Catalog,
    entries: impl Iterator<Item = &'e PoisonEntry>,
) -> Vec<Option<bool>> {
    let (mut asked, mut count) = (Vec::new(), 0);
    for entry in entries {
        if let Some(body) = entry.message.body.clone().filter(|_| count < MOST) {
            asked.push((count, body));
        }
        count += 1;
    }
    let mut found = vec![None; count];
    let asking = asked
        .into_iter()
        .map(|(at, body)| async move { (at, holds(client, catalog, &body).await) });
    let mut answers = stream::iter(asking).buffer_unordered(AT_ONCE);
    let collected = async {
        while let Some((at, holds)) = answers.next().await {
            found[at] = holds;
        }
    };
    // What is known by then is told.
    drop(timeout(PATIENCE, collected).await);
    found
}

async fn holds(client: &Client, catalog: &Catalog, body: &str) -> Option<bool> {
    let job = job::decode_kept(body).ok()?.job;
    let (table, key) = match &job {
        Job::Sync(sync) => (&sync.primary.table, &sync.primary.key),
        Job::Put(put) if put.staged_entity.is_none() && put.staged_values.is_empty() => {
            (&put.table, &put.entity.key)
        }
        _ => return None,
    };
    let now = client.settled(table, key, None).await.ok()?;
    match job {
        Job::Put(put) if now.in_step => {
            let row = client
                .whole(catalog.table(&put.table)?, &put.entity.key)
                .await
                .ok()?;
            Some(row.is_some_and(|whole| has_written(&put, &whole.row.entity)))
        }
        _ => Some(now.in_step || now.missing),
    }
}

/// Whether an entity is as a `put` was to leave it.
fn has_written(put: &Put, entity: &Entity) -> bool {
    let is_own = |name: &str| put.entity.properties.contains_key(name) || name.starts_with("ek_");
    put.entity
        .properties
        .iter()
        .all(|(name, value)| entity.get(name) == Some(value))
        && (put.mode == PutMode::Merge || entity.properties.keys().all(|name| is_own(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_put_has_written_what_is_there_with_the_same_values_and_nothing_beside_unless_it_merges() {
        let put = |json: &str| match job::decode(json).unwrap().job {
            Job::Put(put) => *put,
            other => panic!("{other:?}"),
        };
        let replaces =
            put(r#"{"op":"put","table":"Staff","entity":{"PartitionKey":"p","RowKey":"r","A":1}}"#);
        let merges = put(
            r#"{"op":"put","table":"Staff","mode":"merge","entity":{"PartitionKey":"p","RowKey":"r","A":1}}"#,
        );
        let same = Entity::new(replaces.entity.key.clone())
            .with("A", 1)
            .with("ek_x", "y");
        let more = same.clone().with("B", 2);
        let other = Entity::new(replaces.entity.key.clone()).with("A", 2);
        assert!(
            has_written(&replaces, &same)
                && has_written(&merges, &same)
                && has_written(&merges, &more)
        );
        assert!(
            !has_written(&replaces, &more)
                && !has_written(&replaces, &other)
                && !has_written(&merges, &other)
        );
    }
}
