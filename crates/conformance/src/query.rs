//! The rules of queries.

use evenkeel_model::{Comparison, EdmDateTime, EdmValue, Filter, Key, TableName};
use evenkeel_storage::TableOperation::{Delete, Insert, InsertOrReplace};
use evenkeel_storage::{Continuation, ErrorClass, IfMatch, Query};
use uuid::Uuid;

use super::{World, class, entity, key};
use Comparison::{Equal, Greater, GreaterOrEqual, Less, LessOrEqual, NotEqual};

fn filtered(filter: Filter) -> Query {
    Query {
        filter: Some(filter),
        ..Query::default()
    }
}

fn partition(pk: &str) -> Filter {
    Filter::partition(&Key::new(pk).unwrap())
}

/// The row keys that a filter finds, in the order of the pages.
async fn found(world: &World, table: &TableName, filter: Filter) -> Vec<String> {
    world
        .all(table, &filtered(filter))
        .await
        .into_iter()
        .map(|row| row.entity.key.rk.to_string())
        .collect()
}

/// Fills a partition with as few transactions as possible.
async fn fill(world: &World, table: &TableName, pk: &str, rows: u32) {
    let rows = i32::try_from(rows).unwrap();
    let inserts = (0..rows)
        .map(|i| Insert(entity(pk, &format!("{i:05}")).with("N", i)))
        .collect::<Vec<_>>();
    for chunk in inserts.chunks(world.capabilities.transaction_operations) {
        world
            .account
            .tables
            .transact(table, &Key::new(pk).unwrap(), chunk)
            .await
            .unwrap();
    }
}

pub async fn rows_come_in_order_of_partition_key_and_row_key(world: &World) {
    let table = world.table().await;
    let keys = [
        "b", "a", "B", "", "10", "9", "a b", "aa", "A", "é", "한", "~", "😀", "Z", "_",
    ];
    for pk in ["q", "", "Q", "한"] {
        for rk in keys {
            world.write(&table, Insert(entity(pk, rk))).await;
        }
    }
    let rows = world.all(&table, &Query::default()).await;
    let mut sorted = rows
        .iter()
        .map(|row| row.entity.key.clone())
        .collect::<Vec<_>>();
    assert_eq!(sorted.len(), keys.len() * 4);
    sorted.sort();
    assert_eq!(
        rows.into_iter()
            .map(|row| row.entity.key)
            .collect::<Vec<_>>(),
        sorted
    );
}

pub async fn a_query_without_a_filter_reads_each_row_of_many_pages_once(world: &World) {
    let table = world.table().await;
    let page = world.capabilities.page_rows;
    let (a, b) = (page * 13 / 10, page * 12 / 10);
    fill(world, &table, "a", a).await;
    fill(world, &table, "b", b).await;
    let rows = world.all(&table, &Query::default()).await;
    let keys = rows
        .iter()
        .map(|row| row.entity.key.clone())
        .collect::<Vec<_>>();
    let expected = (0..a)
        .map(|i| ("a", i))
        .chain((0..b).map(|i| ("b", i)))
        .map(|(pk, i)| key(pk, &format!("{i:05}")));
    assert!(keys.into_iter().eq(expected));
}

pub async fn a_page_has_at_most_the_requested_rows(world: &World) {
    let table = world.table().await;
    fill(world, &table, "p", 25).await;
    for top in [1, 7, 25, world.capabilities.page_rows] {
        let query = Query {
            top: Some(top),
            ..Query::default()
        };
        let page = world.account.tables.query(&table, &query).await.unwrap();
        assert!(page.rows.len() <= usize::try_from(top).unwrap());
        assert_eq!(
            world.all(&table, &query).await.len(),
            25,
            "top {top} must limit each page, not the whole query"
        );
    }
}

pub async fn a_page_of_no_rows_or_too_many_cannot_be_requested(world: &World) {
    let table = world.table().await;
    for top in [0, world.capabilities.page_rows + 1] {
        let query = Query {
            top: Some(top),
            ..Query::default()
        };
        assert_eq!(
            class(world.account.tables.query(&table, &query).await),
            ErrorClass::Permanent
        );
    }
}

pub async fn a_query_that_finds_nothing_ends(world: &World) {
    let table = world.table().await;
    assert!(world.all(&table, &Query::default()).await.is_empty());
    fill(world, &table, "p", 10).await;
    assert!(
        world
            .all(&table, &filtered(partition("q")))
            .await
            .is_empty()
    );
    assert!(
        world
            .all(&table, &filtered(Filter::compare("N", Equal, 10)))
            .await
            .is_empty()
    );
}

pub async fn a_projection_comes_with_keys_etag_and_timestamp(world: &World) {
    let table = world.table().await;
    let etag = world
        .write(
            &table,
            Insert(
                entity("p", "r")
                    .with("A", 1)
                    .with("B", 2_i64)
                    .with("C", 3.0),
            ),
        )
        .await;
    let query = Query {
        select: Some(vec!["B".to_owned(), "Absent".to_owned()]),
        ..Query::default()
    };
    let rows = world.all(&table, &query).await;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].entity, entity("p", "r").with("B", 2_i64));
    assert_eq!(rows[0].etag, etag);
    assert_eq!(
        rows[0].timestamp,
        world.row(&table, &key("p", "r")).await.timestamp
    );
    assert!(rows[0].timestamp.is_some());
    // A filter may use a property that the projection leaves out.
    let query = Query {
        filter: Some(Filter::compare("A", Equal, 1)),
        ..query
    };
    assert_eq!(world.all(&table, &query).await, rows);
}

pub async fn a_continuation_survives_being_written_down(world: &World) {
    let table = world.table().await;
    fill(world, &table, "한 O'Brien 100%", 30).await;
    let mut query = Query {
        top: Some(7),
        ..Query::default()
    };
    let mut read = 0;
    loop {
        let page = world.account.tables.query(&table, &query).await.unwrap();
        read += page.rows.len();
        let Some(continuation) = page.continuation else {
            break;
        };
        let text = serde_json::to_string(&continuation).unwrap();
        query.continuation = Some(serde_json::from_str::<Continuation>(&text).unwrap());
        // The next page may have another length.
        query.top = query.top.map(|top| top + 1);
    }
    assert_eq!(read, 30);
}

pub async fn a_continuation_survives_deletes_and_inserts(world: &World) {
    let table = world.table().await;
    fill(world, &table, "p", 30).await;
    let mut query = Query {
        top: Some(10),
        ..Query::default()
    };
    let mut read = Vec::new();
    while read.len() < 10 {
        let page = world.account.tables.query(&table, &query).await.unwrap();
        read.extend(page.rows);
        query.continuation = Some(page.continuation.expect("20 rows are left"));
    }
    // Delete the rows at the end of the page, and insert one on each side.
    let last = read.len();
    for row in [last - 1, last, last + 1] {
        world
            .apply(&table, Delete(key("p", &format!("{row:05}")), IfMatch::Any))
            .await;
    }
    world.write(&table, Insert(entity("p", "00000a"))).await;
    world.write(&table, Insert(entity("p", "00025a"))).await;
    let rest = world.all(&table, &query).await;
    assert_eq!(rest.len(), 30 - last - 2 + 1);
    assert!(
        rest.iter()
            .any(|row| row.entity.key.rk.as_str() == "00025a")
    );
}

pub async fn a_partition_is_read_alone(world: &World) {
    let table = world.table().await;
    for pk in ["p", "P", "pp", "", "o", "q"] {
        fill(world, &table, pk, 3).await;
    }
    for pk in ["p", ""] {
        let rows = world.all(&table, &filtered(partition(pk))).await;
        assert_eq!(rows.len(), 3);
        assert!(rows.iter().all(|row| row.entity.key.pk.as_str() == pk));
    }
}

pub async fn a_range_of_row_keys_is_read_with_its_bounds(world: &World) {
    let table = world.table().await;
    for pk in ["o", "p", "q"] {
        for rk in ["a", "b", "c", "d", "e"] {
            world.write(&table, Insert(entity(pk, rk))).await;
        }
    }
    let row_key = |op, text: &str| Filter::compare("RowKey", op, text);
    for (filter, expected) in [
        (
            row_key(GreaterOrEqual, "b").and(row_key(LessOrEqual, "d")),
            "bcd",
        ),
        (row_key(Greater, "b").and(row_key(Less, "d")), "c"),
        (row_key(Greater, "b"), "cde"),
        (row_key(Less, "c"), "ab"),
        (row_key(GreaterOrEqual, "bb"), "cde"),
        (row_key(Greater, "a").and(row_key(Greater, "c")), "de"),
        (row_key(NotEqual, "c"), "abde"),
    ] {
        assert_eq!(
            found(world, &table, partition("p").and(filter.clone()))
                .await
                .concat(),
            expected,
            "{filter}"
        );
        assert_eq!(
            found(world, &table, filter.clone().and(partition("p")))
                .await
                .concat(),
            expected,
            "{filter}"
        );
        assert_eq!(
            found(world, &table, filter.clone()).await.concat(),
            expected.repeat(3),
            "{filter}"
        );
    }
}

pub async fn a_range_of_partition_keys_is_read_with_its_bounds(world: &World) {
    let table = world.table().await;
    for pk in ["a", "b", "c", "d"] {
        for number in 1..3 {
            world
                .write(&table, Insert(entity(pk, &format!("{pk}{number}"))))
                .await;
        }
    }
    let partition_key = |op, text: &str| Filter::compare("PartitionKey", op, text);
    for (filter, expected) in [
        (
            partition_key(GreaterOrEqual, "b").and(partition_key(LessOrEqual, "c")),
            "b1b2c1c2",
        ),
        (
            partition_key(Greater, "b").and(partition_key(Less, "d")),
            "c1c2",
        ),
        (partition_key(Greater, "b"), "c1c2d1d2"),
        (partition_key(LessOrEqual, "b"), "a1a2b1b2"),
        (
            partition_key(Greater, "a")
                .and(partition_key(Less, "d"))
                .and(Filter::compare("RowKey", Less, "c2")),
            "b1b2c1",
        ),
        (
            partition_key(Equal, "a").or(partition_key(Equal, "d")),
            "a1a2d1d2",
        ),
    ] {
        assert_eq!(
            found(world, &table, filter.clone()).await.concat(),
            expected,
            "{filter}"
        );
    }
}

/// Ten kinds of keys. Each text is used alone and with a number appended.
const KINDS_OF_KEYS: [&str; 10] = [
    "", "key", "a b", "O'Brien", "50%", "Müller", "부서", "😀", "a'b %ü", "+&;=,",
];

pub async fn keys_of_every_kind_are_read_by_equality_range_and_page(world: &World) {
    let table = world.table().await;
    let row_key = |op, text: &str| Filter::compare("RowKey", op, text);
    for kind in KINDS_OF_KEYS {
        let rks: Vec<String> = [kind.to_owned()]
            .into_iter()
            .chain((0..6).map(|n| format!("{kind}{n}")))
            .collect();
        let inserts: Vec<_> = rks.iter().map(|rk| Insert(entity(kind, rk))).collect();
        world
            .account
            .tables
            .transact(&table, &Key::new(kind).unwrap(), &inserts)
            .await
            .unwrap();
    }
    for kind in KINDS_OF_KEYS {
        let [from, to] = [1, 4].map(|n| format!("{kind}{n}"));
        let expected: Vec<String> = (1..=4).map(|n| format!("{kind}{n}")).collect();
        assert_eq!(
            found(world, &table, Filter::point(&key(kind, kind))).await,
            [kind],
            "{kind:?}"
        );
        let between = || {
            partition(kind)
                .and(row_key(GreaterOrEqual, &from))
                .and(row_key(LessOrEqual, &to))
        };
        assert_eq!(found(world, &table, between()).await, expected, "{kind:?}");
        let from_the_start = partition(kind)
            .and(row_key(GreaterOrEqual, kind))
            .and(row_key(Less, &from));
        assert_eq!(
            found(world, &table, from_the_start).await,
            [kind.to_owned(), format!("{kind}0")],
            "{kind:?}"
        );
        let paged = world
            .all(
                &table,
                &Query {
                    top: Some(3),
                    ..filtered(between())
                },
            )
            .await;
        assert_eq!(
            paged
                .iter()
                .map(|row| row.entity.key.rk.to_string())
                .collect::<Vec<_>>(),
            expected,
            "{kind:?}"
        );
        let by_partition = Filter::compare("PartitionKey", GreaterOrEqual, kind)
            .and(Filter::compare("PartitionKey", LessOrEqual, kind));
        assert_eq!(
            found(world, &table, by_partition).await.len(),
            7,
            "{kind:?}"
        );
    }
}

pub async fn a_prefix_is_a_range(world: &World) {
    let table = world.table().await;
    for rk in [
        "email_",
        "email_a",
        "email_a@b",
        "email`",
        "emaiL_a",
        "email",
    ] {
        world.write(&table, Insert(entity("p", rk))).await;
    }
    let prefix = Filter::compare("RowKey", GreaterOrEqual, "email_")
        .and(Filter::compare("RowKey", Less, "email`"));
    assert_eq!(
        found(world, &table, partition("p").and(prefix)).await,
        ["email_", "email_a", "email_a@b"]
    );
}

pub async fn contradictory_ranges_are_empty(world: &World) {
    let table = world.table().await;
    fill(world, &table, "p", 5).await;
    for filter in [
        partition("p").and(partition("q")),
        partition("p")
            .and(Filter::compare("RowKey", Greater, "00003"))
            .and(Filter::compare("RowKey", Less, "00002")),
        Filter::compare("PartitionKey", Greater, "p").and(partition("p")),
        Filter::compare("RowKey", Equal, "00001").and(Filter::compare("RowKey", Equal, "00002")),
    ] {
        assert!(
            found(world, &table, filter.clone()).await.is_empty(),
            "{filter}"
        );
    }
}

pub async fn a_point_filter_finds_its_row(world: &World) {
    let table = world.table().await;
    fill(world, &table, "p", 20).await;
    assert_eq!(
        found(world, &table, Filter::point(&key("p", "00007"))).await,
        ["00007"]
    );
    assert!(
        found(world, &table, Filter::point(&key("p", "7")))
            .await
            .is_empty()
    );
}

pub async fn strings_are_filtered(world: &World) {
    let table = world.table().await;
    for (rk, text) in [
        ("1", "apple"),
        ("2", "Apple"),
        ("3", "banana"),
        ("4", ""),
        ("5", "한글"),
    ] {
        world
            .write(&table, Insert(entity("p", rk).with("S", text)))
            .await;
    }
    let text = |op, text: &str| Filter::compare("S", op, text);
    for (filter, expected) in [
        (text(Equal, "apple"), "1"),
        (text(Equal, ""), "4"),
        (text(Equal, "한글"), "5"),
        (text(NotEqual, "apple"), "2345"),
        (text(Less, "apple"), "24"),
        (text(LessOrEqual, "apple"), "124"),
        (text(Greater, "apple"), "35"),
        (text(GreaterOrEqual, "apple"), "135"),
    ] {
        assert_eq!(
            found(world, &table, filter.clone()).await.concat(),
            expected,
            "{filter}"
        );
    }
}

pub async fn booleans_are_filtered(world: &World) {
    let table = world.table().await;
    world
        .write(&table, Insert(entity("p", "1").with("B", true)))
        .await;
    world
        .write(&table, Insert(entity("p", "2").with("B", false)))
        .await;
    assert_eq!(
        found(world, &table, Filter::compare("B", Equal, true))
            .await
            .concat(),
        "1"
    );
    assert_eq!(
        found(world, &table, Filter::compare("B", Equal, false))
            .await
            .concat(),
        "2"
    );
    assert_eq!(
        found(world, &table, Filter::compare("B", NotEqual, true))
            .await
            .concat(),
        "2"
    );
}

/// Inserts three rows in which one property has these values, and checks all six operators over the rows.
async fn three_values(
    world: &World,
    table: &TableName,
    property: &str,
    low: EdmValue,
    middle: EdmValue,
    high: EdmValue,
) {
    for (rk, value) in [("1", &low), ("2", &middle), ("3", &high)] {
        world
            .write(
                table,
                InsertOrReplace(entity(property, rk).with(property, value.clone())),
            )
            .await;
    }
    for (op, value, expected) in [
        (Equal, &middle, "2"),
        (NotEqual, &middle, "13"),
        (Less, &middle, "1"),
        (LessOrEqual, &middle, "12"),
        (Greater, &middle, "3"),
        (GreaterOrEqual, &middle, "23"),
        (Equal, &low, "1"),
        (Greater, &high, ""),
    ] {
        let filter = partition(property).and(Filter::compare(property, op, value.clone()));
        assert_eq!(
            found(world, table, filter.clone()).await.concat(),
            expected,
            "{filter}"
        );
    }
}

pub async fn numbers_are_filtered_by_their_type(world: &World) {
    let table = world.table().await;
    three_values(world, &table, "Int32", (-5).into(), 0.into(), 5.into()).await;
    three_values(
        world,
        &table,
        "Int64",
        (-5_000_000_000_i64).into(),
        0_i64.into(),
        5_000_000_000_i64.into(),
    )
    .await;
    three_values(
        world,
        &table,
        "Double",
        (-5.5).into(),
        0.25.into(),
        1e10.into(),
    )
    .await;
    three_values(
        world,
        &table,
        "Whole",
        (-5.0).into(),
        0.0.into(),
        3.0.into(),
    )
    .await;
}

pub async fn dates_are_filtered(world: &World) {
    let table = world.table().await;
    let date = |text: &str| EdmValue::DateTime(EdmDateTime::parse(text).unwrap());
    let far = [
        "1999-12-31T23:59:59.999Z",
        "2026-11-20T15:00:00Z",
        "9999-12-31T23:59:59.999Z",
    ]
    .map(date);
    let [low, middle, high] = far;
    three_values(world, &table, "Far", low, middle, high).await;
    // Three times, as units of 100 nanoseconds after 14:59:59. The middle one is between two milliseconds.
    let step = world.capabilities.date_comparison.as_nanos() / 100;
    let near = [10_005_000 - step, 10_005_000, 10_005_000 + step].map(|units| {
        let second = ["14:59:59", "15:00:00"][usize::from(units >= 10_000_000)];
        date(&format!("2026-11-20T{second}.{:07}Z", units % 10_000_000))
    });
    let [low, middle, high] = near;
    three_values(world, &table, "Near", low, middle, high).await;
}

pub async fn guids_and_bytes_are_filtered(world: &World) {
    let table = world.table().await;
    for number in 1..4_u8 {
        let row = entity("p", &number.to_string());
        let guid = EdmValue::Guid(Uuid::from_u128(u128::from(number) << 120 | 0xab));
        world
            .write(
                &table,
                Insert(
                    row.with("G", guid)
                        .with("B", EdmValue::Binary(vec![number, 0, 255])),
                ),
            )
            .await;
    }
    let guid = EdmValue::Guid(Uuid::from_u128(2 << 120 | 0xab));
    assert_eq!(
        found(world, &table, Filter::compare("G", Equal, guid.clone()))
            .await
            .concat(),
        "2"
    );
    assert_eq!(
        found(world, &table, Filter::compare("G", NotEqual, guid))
            .await
            .concat(),
        "13"
    );
    let bytes = EdmValue::Binary(vec![2, 0, 255]);
    assert_eq!(
        found(world, &table, Filter::compare("B", Equal, bytes.clone()))
            .await
            .concat(),
        "2"
    );
    assert_eq!(
        found(world, &table, Filter::compare("B", NotEqual, bytes))
            .await
            .concat(),
        "13"
    );
}

pub async fn conditions_combine_with_and_or_not(world: &World) {
    let table = world.table().await;
    for i in 0..8 {
        let row = entity("p", &i.to_string());
        world
            .write(
                &table,
                Insert(
                    row.with("A", i & 1 != 0)
                        .with("B", i & 2 != 0)
                        .with("C", i & 4 != 0),
                ),
            )
            .await;
    }
    let is = |name: &str| Filter::compare(name, Equal, true);
    for (filter, expected) in [
        (is("A").and(is("B")), "37"),
        (is("A").or(is("B")), "123567"),
        (is("A").and(is("B")).or(is("C")), "34567"),
        (is("A").and(is("B").or(is("C"))), "357"),
        (is("A").negated(), "0246"),
        (is("A").and(is("B")).negated(), "012456"),
        (is("A").negated().and(is("B").negated()), "04"),
        (
            partition("p").and(is("A").or(Filter::compare("RowKey", Equal, "4"))),
            "13457",
        ),
    ] {
        assert_eq!(
            found(world, &table, filter.clone()).await.concat(),
            expected,
            "{filter}"
        );
    }
}

pub async fn a_missing_property_matches_nothing(world: &World) {
    let table = world.table().await;
    world
        .write(&table, Insert(entity("p", "1").with("A", 5)))
        .await;
    world
        .write(&table, Insert(entity("p", "2").with("B", 5)))
        .await;
    for (op, expected) in [
        (Equal, "1"),
        (GreaterOrEqual, "1"),
        (LessOrEqual, "1"),
        (NotEqual, ""),
        (Less, ""),
        (Greater, ""),
    ] {
        assert_eq!(
            found(world, &table, Filter::compare("A", op, 5))
                .await
                .concat(),
            expected,
            "{op:?}"
        );
    }
    assert_eq!(
        found(world, &table, Filter::compare("A", NotEqual, 6))
            .await
            .concat(),
        "1"
    );
}

pub async fn literals_may_hold_any_character(world: &World) {
    let table = world.table().await;
    let texts = [
        "O'Brien",
        "''",
        "'",
        "100%",
        "%27",
        "a+b",
        "a&b=c",
        "한글",
        "😀",
        "a#b?c/d\\e",
        "(x) or (y)",
        "\"q\"",
        "a, b; c",
        " ",
    ];
    for (i, text) in texts.iter().enumerate() {
        world
            .write(
                &table,
                Insert(entity("p", &format!("{i:02}")).with("S", *text)),
            )
            .await;
    }
    for (i, text) in texts.iter().enumerate() {
        assert_eq!(
            found(world, &table, Filter::compare("S", Equal, *text)).await,
            [format!("{i:02}")],
            "{text:?}"
        );
    }
    for text in ["O'Brien", "100%", "a+b", "한 글", "😀"] {
        world.write(&table, Insert(entity(text, text))).await;
        assert_eq!(
            found(world, &table, Filter::point(&key(text, text))).await,
            [text]
        );
    }
}

pub async fn a_filtered_query_reads_across_many_pages(world: &World) {
    let table = world.table().await;
    let rows = world.capabilities.page_rows * 6 / 5;
    fill(world, &table, "p", rows).await;
    let rows = i32::try_from(rows).unwrap();
    let last = Query {
        top: Some(5),
        ..filtered(Filter::compare("N", GreaterOrEqual, rows - 10))
    };
    assert_eq!(world.all(&table, &last).await.len(), 10);
    let some = partition("p").and(Filter::compare("N", Less, 100).or(Filter::compare(
        "N",
        Greater,
        rows - 101,
    )));
    assert_eq!(found(world, &table, some).await.len(), 200);
}

pub async fn the_maximum_number_of_comparisons_is_accepted_and_one_more_is_refused(world: &World) {
    let table = world.table().await;
    let most = world.capabilities.comparisons;
    fill(world, &table, "p", u32::try_from(most).unwrap() + 5).await;
    let any_of = |n: usize| {
        (1..n).fold(Filter::compare("N", Equal, 0), |f, i| {
            f.or(Filter::compare("N", Equal, i32::try_from(i).unwrap()))
        })
    };
    assert_eq!(found(world, &table, any_of(most)).await.len(), most);
    assert_eq!(
        class(
            world
                .account
                .tables
                .query(&table, &filtered(any_of(most + 1)))
                .await
        ),
        ErrorClass::Permanent
    );
}
