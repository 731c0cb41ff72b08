//! The rules of entity group transactions.

use std::collections::BTreeSet;

use evenkeel_model::{ETag, Key};
use evenkeel_storage::TableOperation::{
    Delete, Insert, InsertOrMerge, InsertOrReplace, Merge, Replace,
};
use evenkeel_storage::{ErrorClass, IfMatch, Query, StoreError, TableOperation};
use futures::future::{join, join_all};

use super::{NO_CONTAINER, NO_ITEM, World, at, class, entity, key, table_name};

fn partition() -> Key {
    Key::new("p").unwrap()
}

async fn failure(
    world: &World,
    table: &evenkeel_model::TableName,
    operations: &[TableOperation],
) -> StoreError {
    world
        .account
        .tables
        .transact(table, &partition(), operations)
        .await
        .expect_err("the transaction fails")
}

async fn count(world: &World, table: &evenkeel_model::TableName) -> usize {
    world.all(table, &Query::default()).await.len()
}

pub async fn a_transaction_executes_all_its_operations(world: &World) {
    let table = world.table().await;
    let to_replace = world
        .write(
            &table,
            Insert(entity("p", "replace").with("A", 1).with("B", 1)),
        )
        .await;
    let to_merge = world
        .write(
            &table,
            Insert(entity("p", "merge").with("A", 1).with("B", 1)),
        )
        .await;
    let to_delete = world.write(&table, Insert(entity("p", "delete"))).await;
    let operations = [
        Insert(entity("p", "insert").with("A", 2)),
        InsertOrReplace(entity("p", "upsert").with("A", 2)),
        InsertOrMerge(entity("p", "upmerge").with("A", 2)),
        Replace(entity("p", "replace").with("A", 2), at(&to_replace)),
        Merge(entity("p", "merge").with("A", 2), at(&to_merge)),
        Delete(key("p", "delete"), at(&to_delete)),
    ];
    let etags = world
        .account
        .tables
        .transact(&table, &partition(), &operations)
        .await
        .unwrap();
    assert_eq!(etags.len(), operations.len());
    if world.capabilities.transaction_etags_differ {
        assert_eq!(
            etags
                .iter()
                .flatten()
                .map(ETag::as_str)
                .collect::<BTreeSet<_>>()
                .len(),
            operations.len() - 1
        );
    }
    for (etag, operation) in etags.iter().zip(&operations) {
        let row = world.find(&table, operation.key()).await;
        assert_eq!(row.map(|row| row.etag), *etag, "{}", operation.name());
    }
    assert_eq!(
        world.row(&table, &key("p", "replace")).await.entity,
        entity("p", "replace").with("A", 2)
    );
    assert_eq!(
        world.row(&table, &key("p", "merge")).await.entity,
        entity("p", "merge").with("A", 2).with("B", 1)
    );
    assert_eq!(count(world, &table).await, 5);
}

pub async fn a_delete_in_a_transaction_has_no_etag(world: &World) {
    let table = world.table().await;
    world.write(&table, Insert(entity("p", "a"))).await;
    let operations = [
        Delete(key("p", "a"), IfMatch::Any),
        Insert(entity("p", "b")),
    ];
    let etags = world
        .account
        .tables
        .transact(&table, &partition(), &operations)
        .await
        .unwrap();
    assert!(etags[0].is_none() && etags[1].is_some());
}

pub async fn a_transaction_works_with_unusual_keys(world: &World) {
    let table = world.table().await;
    for pk in ["O'Brien", "100%", "a b+c&d=e", "한글", "😀", ""] {
        let rows = ["O'Brien", "100%", "a b+c&d=e", "한글", "😀", ""];
        let inserts = rows.map(|rk| Insert(entity(pk, rk).with("Text", "<'\"&\r\n한😀>")));
        let etags = world
            .account
            .tables
            .transact(&table, &Key::new(pk).unwrap(), &inserts)
            .await
            .unwrap();
        for (rk, etag) in rows.iter().zip(&etags) {
            let row = world.row(&table, &key(pk, rk)).await;
            assert_eq!(row.entity, entity(pk, rk).with("Text", "<'\"&\r\n한😀>"));
            assert_eq!(Some(&row.etag), etag.as_ref());
        }
        let deletes = etags
            .iter()
            .zip(rows)
            .map(|(etag, rk)| Delete(key(pk, rk), at(etag.as_ref().unwrap())))
            .collect::<Vec<_>>();
        world
            .account
            .tables
            .transact(&table, &Key::new(pk).unwrap(), &deletes)
            .await
            .unwrap();
    }
    assert_eq!(count(world, &table).await, 0);
}

pub async fn a_failed_insert_is_named_by_index_and_class_and_nothing_is_written(world: &World) {
    let table = world.table().await;
    world
        .write(&table, Insert(entity("p", "b").with("A", 1)))
        .await;
    let error = failure(
        world,
        &table,
        &[
            Insert(entity("p", "a")),
            Insert(entity("p", "b")),
            Insert(entity("p", "c")),
        ],
    )
    .await;
    assert_eq!((error.class, error.index), (ErrorClass::Conflict, Some(1)));
    assert_eq!(count(world, &table).await, 1);
    assert_eq!(
        world.row(&table, &key("p", "b")).await.entity,
        entity("p", "b").with("A", 1)
    );
}

pub async fn a_stale_etag_is_named_by_index_and_class_and_nothing_is_written(world: &World) {
    let table = world.table().await;
    let stale = world.write(&table, Insert(entity("p", "c"))).await;
    let current = world
        .write(&table, Replace(entity("p", "c"), IfMatch::Any))
        .await;
    for last in [
        Replace(entity("p", "c").with("A", 1), at(&stale)),
        Merge(entity("p", "c"), at(&stale)),
        Delete(key("p", "c"), at(&stale)),
    ] {
        let error = failure(
            world,
            &table,
            &[
                Insert(entity("p", "a")),
                InsertOrReplace(entity("p", "b")),
                last,
            ],
        )
        .await;
        assert_eq!(
            (error.class, error.index),
            (ErrorClass::Precondition, Some(2))
        );
    }
    assert_eq!(count(world, &table).await, 1);
    assert_eq!(world.row(&table, &key("p", "c")).await.etag, current);
}

pub async fn an_absent_row_is_named_by_index_and_class_and_nothing_is_written(world: &World) {
    let table = world.table().await;
    let gone = world.write(&table, Insert(entity("p", "gone"))).await;
    world
        .apply(&table, Delete(key("p", "gone"), IfMatch::Any))
        .await;
    for second in [
        Replace(entity("p", "gone"), at(&gone)),
        Merge(entity("p", "gone"), IfMatch::Any),
        Delete(key("p", "gone"), at(&gone)),
        Delete(key("p", "gone"), IfMatch::Any),
    ] {
        let error = failure(
            world,
            &table,
            &[Insert(entity("p", "a")), second, Insert(entity("p", "b"))],
        )
        .await;
        assert_eq!((error.class, error.index), (NO_ITEM, Some(1)));
    }
    assert_eq!(count(world, &table).await, 0);
}

pub async fn the_first_and_the_last_operation_may_fail(world: &World) {
    let table = world.table().await;
    world.write(&table, Insert(entity("p", "taken"))).await;
    let others = world.capabilities.transaction_operations - 1;
    let free = |range: std::ops::Range<usize>| range.map(|i| Insert(entity("p", &i.to_string())));
    let first = std::iter::once(Insert(entity("p", "taken")))
        .chain(free(0..others))
        .collect::<Vec<_>>();
    assert_eq!(failure(world, &table, &first).await.index, Some(0));
    let last = free(0..others)
        .chain(std::iter::once(Insert(entity("p", "taken"))))
        .collect::<Vec<_>>();
    assert_eq!(failure(world, &table, &last).await.index, Some(others));
    assert_eq!(
        failure(world, &table, &[Insert(entity("p", "taken"))])
            .await
            .index,
        Some(0)
    );
    assert_eq!(count(world, &table).await, 1);
}

pub async fn an_entity_twice_is_refused(world: &World) {
    let table = world.table().await;
    let operations = [
        InsertOrReplace(entity("p", "a")),
        InsertOrReplace(entity("p", "b")),
        Delete(key("p", "a"), IfMatch::Any),
    ];
    let error = failure(world, &table, &operations).await;
    assert_eq!((error.class, error.index), (ErrorClass::Permanent, Some(2)));
    assert_eq!(count(world, &table).await, 0);
}

pub async fn a_second_partition_is_refused(world: &World) {
    let table = world.table().await;
    let error = failure(
        world,
        &table,
        &[Insert(entity("p", "a")), Insert(entity("q", "a"))],
    )
    .await;
    assert_eq!((error.class, error.index), (ErrorClass::Permanent, Some(1)));
    assert_eq!(count(world, &table).await, 0);
}

pub async fn an_empty_transaction_is_refused(world: &World) {
    let table = world.table().await;
    assert_eq!(
        failure(world, &table, &[]).await.class,
        ErrorClass::Permanent
    );
}

pub async fn the_maximum_number_of_operations_is_accepted_and_one_more_is_refused(world: &World) {
    let table = world.table().await;
    let most = world.capabilities.transaction_operations;
    let operations = (0..=most)
        .map(|i| Insert(entity("p", &i.to_string()).with("A", true)))
        .collect::<Vec<_>>();
    assert_eq!(
        failure(world, &table, &operations).await.class,
        ErrorClass::Permanent
    );
    assert_eq!(count(world, &table).await, 0);
    let etags = world
        .account
        .tables
        .transact(&table, &partition(), &operations[..most])
        .await
        .unwrap();
    assert_eq!((etags.len(), count(world, &table).await), (most, most));
}

pub async fn more_bytes_than_a_transaction_may_have_are_refused(world: &World) {
    let table = world.table().await;
    let text = "한".repeat(10_000);
    let large = |rk: &str| {
        (0..30).fold(entity("p", rk), |e, i| {
            e.with(format!("P{i}"), text.clone())
        })
    };
    // Each entity has 900,000 bytes plus names and headers.
    let fit = world.capabilities.transaction_bytes / 1_000_000;
    let operations = (0..=fit)
        .map(|i| Insert(large(&i.to_string())))
        .collect::<Vec<_>>();
    assert_eq!(
        failure(world, &table, &operations).await.class,
        ErrorClass::TooLarge
    );
    assert_eq!(count(world, &table).await, 0);
    world
        .account
        .tables
        .transact(&table, &partition(), &operations[..fit])
        .await
        .unwrap();
    assert_eq!(count(world, &table).await, fit);
}

pub async fn a_limit_of_one_entity_is_named_by_its_index(world: &World) {
    let table = world.table().await;
    let error = failure(
        world,
        &table,
        &[
            Insert(entity("p", "a")),
            Insert(
                entity("p", "b").with("A", "x".repeat(world.capabilities.string_utf16_units + 1)),
            ),
        ],
    )
    .await;
    assert_eq!((error.class, error.index), (ErrorClass::TooLarge, Some(1)));
    let error = failure(
        world,
        &table,
        &[
            Insert(entity("p", "a").with("a-b", 1)),
            Insert(entity("p", "b")),
        ],
    )
    .await;
    assert_eq!((error.class, error.index), (ErrorClass::Permanent, Some(0)));
    assert_eq!(count(world, &table).await, 0);
}

pub async fn a_transaction_on_an_absent_table_finds_no_container(world: &World) {
    let result = world
        .account
        .tables
        .transact(&table_name(), &partition(), &[Insert(entity("p", "a"))])
        .await;
    assert_eq!(class(result), NO_CONTAINER);
}

pub async fn one_of_concurrent_transactions_at_one_etag_wins(world: &World) {
    let table = world.table().await;
    let etag = world.write(&table, Insert(entity("p", "shared"))).await;
    let transactions = (0..8)
        .map(|i| {
            [
                Insert(entity("p", &format!("own{i}"))),
                Replace(entity("p", "shared").with("Winner", i), at(&etag)),
            ]
        })
        .collect::<Vec<_>>();
    let pk = partition();
    let results = join_all(
        transactions
            .iter()
            .map(|operations| world.account.tables.transact(&table, &pk, operations)),
    )
    .await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    for error in results.into_iter().filter_map(Result::err) {
        assert_eq!(
            (error.class, error.index),
            (ErrorClass::Precondition, Some(1))
        );
    }
    assert_eq!(count(world, &table).await, 2);
}

pub async fn readers_never_see_half_a_transaction(world: &World) {
    let table = world.table().await;
    let rows = ["a", "b", "c", "d", "e"];
    let pk = partition();
    let writer = async {
        for round in 0..20 {
            let mut operations = rows
                .map(|rk| InsertOrReplace(entity("p", rk).with("Round", round)))
                .to_vec();
            world
                .account
                .tables
                .transact(&table, &pk, &operations)
                .await
                .unwrap();
            // A transaction that fails at its last operation must leave no trace.
            operations = rows
                .map(|rk| InsertOrReplace(entity("p", rk).with("Round", -1)))
                .to_vec();
            operations.push(Delete(key("p", "absent"), IfMatch::Any));
            world
                .account
                .tables
                .transact(&table, &pk, &operations)
                .await
                .unwrap_err();
        }
    };
    let reader = async {
        for _ in 0..40 {
            let page = world
                .account
                .tables
                .query(&table, &Query::default())
                .await
                .unwrap();
            // Pages may be short, but all rows of a page have one state.
            let mut rounds = page
                .rows
                .iter()
                .map(|row| row.entity.get("Round").unwrap().clone())
                .collect::<Vec<_>>();
            assert!(!rounds.contains(&(-1).into()));
            rounds.dedup();
            assert!(
                rounds.len() <= 1,
                "one page must have the rows of one round, found {rounds:?}"
            );
        }
    };
    join(writer, reader).await;
}
