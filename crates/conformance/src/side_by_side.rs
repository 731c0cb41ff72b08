//! The rules of requests to one partition that are under way together: whatever a store makes of them, each gets its own
//! answer.

use evenkeel_model::ports::TableOperation::{Delete, Insert, InsertOrMerge, InsertOrReplace, Merge, Replace};
use evenkeel_model::ports::{ErrorClass, IfMatch, What};
use futures::future::join_all;

use super::{NO_CONTAINER, NO_ITEM, World, at, class, entity, key, table_name};

pub async fn writes_side_by_side_each_get_their_own_answer(world: &World) {
    let table = world.table().await;
    let stale = world.write(&table, Insert(entity("p", "old"))).await;
    world.write(&table, InsertOrReplace(entity("p", "old"))).await;
    let current = world.write(&table, Insert(entity("p", "replaced").with("A", 1))).await;
    let merged = world.write(&table, Insert(entity("p", "merged").with("A", 1))).await;
    let deleted = world.write(&table, Insert(entity("p", "deleted"))).await;
    let mut operations = vec![
        (Insert(entity("p", "old")), Err(ErrorClass::Conflict)),
        (Replace(entity("p", "nobody"), at(&current)), Err(NO_ITEM)),
        (Replace(entity("p", "replaced").with("A", 2), at(&current)), Ok(true)),
        (Merge(entity("p", "merged").with("B", 2), at(&merged)), Ok(true)),
        (Delete(key("p", "deleted"), at(&deleted)), Ok(false)),
        (Delete(key("p", "never"), IfMatch::Any), Err(NO_ITEM)),
        (InsertOrMerge(entity("p", "upmerged").with("A", 1)), Ok(true)),
        (Insert(entity("p", "wrong").with("a-b", 1)), Err(ErrorClass::Permanent)),
        (Insert(entity("q", "elsewhere")), Ok(true)),
    ];
    operations.extend(["O'Brien", "100%", "a b+c", "한글", ""].map(|rk| (Insert(entity("p", rk).with("A", 1)), Ok(true))));
    operations.extend((0..20).map(|n| (Insert(entity("p", &format!("n{n}")).with("N", n)), Ok(true))));
    // The last, of a row that is written beside it.
    operations.push((Replace(entity("p", "old"), at(&stale)), Err(ErrorClass::Precondition)));
    let results = join_all(operations.iter().map(|(operation, _)| world.account.tables.apply(&table, operation))).await;
    for ((operation, expected), result) in operations.iter().zip(results) {
        match (result, expected) {
            (Ok(etag), Ok(writes)) => {
                assert_eq!(etag.is_some(), *writes, "{operation:?}");
                let found = world.find(&table, operation.key()).await;
                assert_eq!(found.map(|row| row.etag), etag, "{operation:?}");
            }
            (Err(error), Err(expected)) => {
                assert_eq!(error.class, *expected, "{operation:?}: {error}");
                assert_eq!((error.operation, error.index), (operation.name(), None));
                assert_eq!(error.subject.what, What::Entity(table.clone(), operation.key().clone()));
            }
            (result, expected) => panic!("{operation:?}: got {result:?}, expected {expected:?}"),
        }
    }
    assert_eq!(world.row(&table, &key("p", "merged")).await.entity, entity("p", "merged").with("A", 1).with("B", 2));
}

pub async fn reads_side_by_side_each_find_their_own_row(world: &World) {
    let table = world.table().await;
    let there = ["O'Brien", "100%", "a b+c", "한글", "😀", "\u{ffee}", "", "a", "B", "b", "a.b", "~", "n05"];
    let there: Vec<String> = there.map(str::to_owned).into_iter().chain((10..30).map(|n| format!("n{n}"))).collect();
    for rk in &there {
        world.write(&table, Insert(entity("p", rk).with("Name", rk.as_str()))).await;
    }
    // What lies between, so that a range over them is not all there is to read.
    for n in 0..60 {
        world.write(&table, Insert(entity("p", &format!("c{n:02}")))).await;
    }
    let absent = ["A", "b0", "n", "n04", "n31", "zz", "O''Brien"].map(str::to_owned);
    for _ in 0..3 {
        let asked: Vec<_> = there.iter().chain(&absent).map(|rk| key("p", rk)).collect();
        let found = join_all(asked.iter().map(|key| world.account.tables.get(&table, key, None))).await;
        for (key, row) in asked.iter().zip(found) {
            let row = row.unwrap();
            let expected = there.iter().find(|rk| **rk == key.rk.as_str());
            assert_eq!(row.map(|row| row.entity), expected.map(|rk| entity("p", rk).with("Name", rk.as_str())), "{key}");
        }
    }
}

pub async fn side_by_side_an_absent_table_is_absent_for_all(world: &World) {
    let table = table_name();
    let operations = [Insert(entity("p", "a")), InsertOrReplace(entity("p", "b")), Delete(key("p", "c"), IfMatch::Any)];
    for result in join_all(operations.iter().map(|operation| world.account.tables.apply(&table, operation))).await {
        assert_eq!(class(result), NO_CONTAINER);
    }
    let keys = [key("p", "a"), key("p", "b"), key("p", "c")];
    for result in join_all(keys.iter().map(|key| world.account.tables.get(&table, key, None))).await {
        assert_eq!(class(result), NO_CONTAINER);
    }
}
