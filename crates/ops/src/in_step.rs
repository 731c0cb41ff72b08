//! Determines whether a poisoned message has become unnecessary: its effect has been reached since, because the cause
//! is gone or another job had the same effect.

use std::time::Duration;

use futures::{StreamExt as _, stream};
use tokio::time::timeout;

use evenkeel_client::Client;
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::{self, Put, PutMode};
use evenkeel_model::{Entity, Job};
use evenkeel_worker::poison::PoisonEntry;

/// Maximum number of messages that are checked. Each check takes two or three requests.
const LIMIT: usize = 100;
/// Maximum number of messages that are checked concurrently.
const CONCURRENCY: usize = 16;
/// Timeout of all checks together. It is short, because the list is needed most when stores are slow.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Checks the jobs of poison messages. The result for a `sync` is whether its primary is in step. The result for a
/// `put` is whether, in addition, the entity has the values that the `put` was to write. The result is `None` for other
/// operations, for a `put` with values in staged blobs, for messages after the first `LIMIT`, and if a store does not
/// answer in time.
pub async fn in_step_now<'e>(
    client: &Client,
    catalog: &Catalog,
    entries: impl Iterator<Item = &'e PoisonEntry>,
) -> Vec<Option<bool>> {
    let (mut bodies, mut count) = (Vec::new(), 0);
    for entry in entries {
        if let Some(body) = entry.message.body.clone().filter(|_| count < LIMIT) {
            bodies.push((count, body));
        }
        count += 1;
    }
    let mut found = vec![None; count];
    let checks = bodies
        .into_iter()
        .map(|(at, body)| async move { (at, has_effect(client, catalog, &body).await) });
    let mut answers = stream::iter(checks).buffer_unordered(CONCURRENCY);
    let collected = async {
        while let Some((at, has_effect)) = answers.next().await {
            found[at] = has_effect;
        }
    };
    // After a timeout, the results that are available are returned.
    drop(timeout(TIMEOUT, collected).await);
    found
}

async fn has_effect(client: &Client, catalog: &Catalog, body: &str) -> Option<bool> {
    let job = job::decode_kept(body).ok()?.job;
    let (table, key) = match &job {
        Job::Sync(sync) => (&sync.primary.table, &sync.primary.key),
        Job::Put(put) if put.staged_entity.is_none() && put.staged_values.is_empty() => {
            (&put.table, &put.entity.key)
        }
        _ => return None,
    };
    let now = client.settled(table, key, None).await.ok()?;
    let Job::Put(put) = job else {
        return Some(now.in_step || now.missing);
    };
    if !now.in_step {
        return Some(false);
    }
    let row = client
        .whole(catalog.table(&put.table)?, &put.entity.key)
        .await
        .ok()?;
    Some(row.is_some_and(|whole| has_written(&put, &whole.row.entity)))
}

/// Whether an entity has the values that a `put` writes, and no other properties if the `put` replaces the entity.
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
    use std::sync::Arc;

    use evenkeel_account::company::{Shape, catalog, table};
    use evenkeel_account::{NoFaults, SimWorld};
    use evenkeel_model::AccountName;
    use evenkeel_storage::Stores;
    use evenkeel_storage::system::SystemClock;

    use super::*;

    #[tokio::test]
    async fn a_put_of_an_entity_that_was_never_written_has_no_effect_and_a_sync_of_it_has() {
        let clock = Arc::new(SystemClock::new());
        let account = SimWorld::new(AccountName::main(), clock, Arc::new(NoFaults)).account();
        for name in ["Employees", "EvenkeelFootprints"] {
            account.tables.create_table(&table(name)).await.unwrap();
        }
        let catalog = Arc::new(catalog(Shape::default()));
        let stores = Stores::new([(AccountName::main(), account)].into());
        let client = Client::new(stores, Arc::clone(&catalog), Vec::new());
        for (body, reached) in [
            (
                r#"{"op":"put","table":"Employees","entity":{"PartitionKey":"Sales","RowKey":"7"}}"#,
                Some(false),
            ),
            (
                r#"{"op":"sync","table":"Employees","pk":"Sales","rk":"7"}"#,
                Some(true),
            ),
        ] {
            assert_eq!(has_effect(&client, &catalog, body).await, reached, "{body}");
        }
    }

    #[test]
    fn a_replacing_put_has_its_effect_if_the_entity_is_equal_and_a_merge_if_it_contains_the_values()
    {
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
