//! A client keeps writing entities while they are archived.

use std::collections::BTreeMap;

use evenkeel_model::{EdmValue, Entity, EntityKey, Row, TableName};
use evenkeel_storage::{ErrorClass, IfMatch, TableOperation};
use serde_json::json;

use crate::end_to_end::oracle::assert_index_complete;
use crate::end_to_end::site::{EMPLOYEES, QUEUE, Site};

const JOBS: u32 = 200;

fn key(number: u32) -> EntityKey {
    EntityKey::new("Sales", format!("{number:03}")).unwrap()
}

/// Half of the entities are written only if they exist. The others are also written after they were archived, which
/// creates them again.
fn write(number: u32, version: i32) -> TableOperation {
    let entity = Entity::new(key(number)).with("Version", version);
    if number.is_multiple_of(2) {
        TableOperation::Merge(entity, IfMatch::Any)
    } else {
        TableOperation::InsertOrMerge(entity)
    }
}

#[test]
fn an_update_that_races_with_an_archive_job_is_in_the_archive_or_came_after_it() {
    let site = Site::azurite(EMPLOYEES);
    site.migrate();
    let employees: Vec<Entity> = (0..JOBS)
        .map(|n| {
            Entity::new(key(n))
                .with("Version", 0)
                .with("Email", format!("{n}@contoso.com"))
        })
        .collect();
    site.write("Employees", &employees);
    let archive = |n| json!({"op": "archive", "archive": "former_employees", "pk": "Sales", "rk": key(n).rk.as_str(), "id": n.to_string()});
    site.submit(&(0..JOBS).map(archive).collect::<Vec<_>>());

    let worker = site.worker(&["--set", "queues.0.concurrency=4"]);
    let acknowledged = site.with(async |account| {
        let employees = TableName::new("Employees").unwrap();
        let queue = evenkeel_model::QueueName::new(QUEUE).unwrap();
        let mut acknowledged: BTreeMap<u32, i32> = (0..JOBS).map(|n| (n, 0)).collect();
        let mut gone = std::collections::BTreeSet::new();
        for version in 1_i32.. {
            // The client writes for one more round when the queue is empty.
            let idle = account.queues.approximate_count(&queue).await.unwrap() == 0;
            // Each round writes a twentieth of the entities, because an entity that changes faster than it is copied would
            // never be archived.
            let some = (0..JOBS)
                .filter(|n| (n / 2) % 20 == version.unsigned_abs() % 20 && !gone.contains(n));
            let writes = some.map(|n| {
                let (tables, table) = (&account.tables, &employees);
                async move { (n, tables.apply(table, &write(n, version)).await) }
            });
            for (n, result) in futures::future::join_all(writes).await {
                match result {
                    Ok(_) => drop(acknowledged.insert(n, version)),
                    Err(error) => {
                        assert!(matches!(error.class, ErrorClass::NotFound(_)), "{error:?}");
                        gone.insert(n);
                    }
                }
            }
            if idle {
                break;
            }
        }
        acknowledged
    });
    worker.stop();

    site.assert_all_done();
    let (present, archived) = (site.rows("Employees"), site.rows("FormerEmployees"));
    assert!(
        present.len() <= JOBS as usize / 2,
        "only entities that were written after their archiving may be left"
    );
    let mut raced = 0;
    for (n, version) in acknowledged {
        let key = ("Sales".to_owned(), key(n).rk.as_str().to_owned());
        let version_of = |row: Option<&Row>| row.and_then(|row| row.entity.get("Version").cloned());
        let last = version_of(present.get(&key)).or_else(|| version_of(archived.get(&key)));
        assert_eq!(
            last,
            Some(EdmValue::Int32(version)),
            "the last acknowledged update of {key:?} is lost"
        );
        raced += usize::from(
            version_of(archived.get(&key)).is_some_and(|archived| archived != EdmValue::Int32(0)),
        );
    }
    assert!(raced > 0, "some update must race with its archive job");
    assert_index_complete(&site);
}
