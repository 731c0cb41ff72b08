//! The rules of tables and single entities. A store may combine concurrent requests to one partition, but each must get its own answer.

use evenkeel_model::{EdmDateTime, EdmValue, TableName};
use evenkeel_storage::TableOperation::{
    Delete, Insert, InsertOrMerge, InsertOrReplace, Merge, Replace,
};
use evenkeel_storage::{ErrorClass, IfMatch, Query, Resource};
use futures::future::join_all;
use uuid::Uuid;

use super::{NO_CONTAINER, NO_ITEM, World, at, class, entity, key, table_name};

pub async fn a_table_is_created_once(world: &World) {
    let table = table_name();
    assert!(world.account.tables.create_table(&table).await.unwrap());
    assert!(!world.account.tables.create_table(&table).await.unwrap());
}

pub async fn a_table_in_another_case_is_the_same_table(world: &World) {
    let table = world.table().await;
    let shouted = TableName::new(table.as_str().to_ascii_uppercase()).unwrap();
    assert!(!world.account.tables.create_table(&shouted).await.unwrap());
}

pub async fn a_table_is_deleted_once_and_its_entities_with_it(world: &World) {
    let table = world.table().await;
    world.write(&table, Insert(entity("p", "r"))).await;
    assert!(world.account.tables.delete_table(&table).await.unwrap());
    assert!(!world.account.tables.delete_table(&table).await.unwrap());
    assert_eq!(
        class(world.account.tables.get(&table, &key("p", "r"), None).await),
        NO_CONTAINER
    );
}

pub async fn tables_are_listed_in_the_case_they_were_created_in(world: &World) {
    let created = [
        world.table().await,
        world.table().await,
        world.table().await,
    ];
    let mut listed = Vec::new();
    let mut continuation = None;
    loop {
        let page = world
            .account
            .tables
            .list_tables(continuation.as_deref())
            .await
            .unwrap();
        listed.extend(page.tables.iter().map(ToString::to_string));
        continuation = page.continuation;
        if continuation.is_none() {
            break;
        }
    }
    for table in &created {
        assert_eq!(
            listed.iter().filter(|name| *name == table.as_str()).count(),
            1,
            "expected {table} once, found {listed:?}"
        );
    }
}

pub async fn an_absent_table_is_distinguished_from_an_absent_row(world: &World) {
    let absent = table_name();
    let tables = &world.account.tables;
    assert_eq!(
        class(tables.get(&absent, &key("p", "r"), None).await),
        NO_CONTAINER
    );
    assert_eq!(
        class(tables.query(&absent, &Query::default()).await),
        NO_CONTAINER
    );
    for operation in [
        Insert(entity("p", "r")),
        InsertOrReplace(entity("p", "r")),
        InsertOrMerge(entity("p", "r")),
        Replace(entity("p", "r"), IfMatch::Any),
        Merge(entity("p", "r"), IfMatch::Any),
        Delete(key("p", "r"), IfMatch::Any),
    ] {
        assert_eq!(
            world.refused(&absent, operation.clone()).await,
            NO_CONTAINER,
            "{}",
            operation.name()
        );
    }
}

pub async fn every_type_survives(world: &World) {
    let table = world.table().await;
    let written = entity("p", "r")
        .with("Text", "text")
        .with("Yes", true)
        .with("No", false)
        .with("Int32", -5)
        .with("Int64", 5_i64)
        .with("Double", 0.1)
        .with(
            "DateTime",
            EdmDateTime::parse("2026-11-20T15:00:00Z").unwrap(),
        )
        .with(
            "Guid",
            EdmValue::Guid(Uuid::from_u128(0x0123_4567_89ab_cdef_0011_2233_4455_6677)),
        )
        .with("Binary", EdmValue::Binary((0..=255).collect()))
        .with("NoBytes", EdmValue::Binary(Vec::new()));
    world.write(&table, Insert(written.clone())).await;
    assert_eq!(world.row(&table, &written.key).await.entity, written);
    let queried = world.all(&table, &Query::default()).await;
    assert_eq!(
        queried.iter().map(|row| &row.entity).collect::<Vec<_>>(),
        [&written]
    );
}

pub async fn doubles_survive_bit_by_bit(world: &World) {
    let table = world.table().await;
    let numbers = [
        3.0,
        0.0,
        -1.5,
        0.1 + 0.2,
        1e300,
        9_007_199_254_740_993.0,
        f64::MIN_POSITIVE,
        5e-324,
        f64::MAX,
        f64::MIN,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
    ];
    let written = numbers
        .iter()
        .enumerate()
        .fold(entity("p", "r"), |e, (i, number)| {
            e.with(format!("D{i}"), *number)
        });
    world.write(&table, Insert(written.clone())).await;
    assert_eq!(world.row(&table, &written.key).await.entity, written);
    if world.capabilities.sign_of_zero {
        world
            .write(&table, Insert(entity("p", "zero").with("D", -0.0)))
            .await;
        let read = world.row(&table, &key("p", "zero")).await.entity;
        assert!(
            matches!(read.get("D"), Some(EdmValue::Double(zero)) if zero.is_sign_negative()),
            "{read:?}"
        );
    }
}

pub async fn integers_survive_at_their_extremes(world: &World) {
    let table = world.table().await;
    let written = entity("p", "r")
        .with("Min32", i32::MIN)
        .with("Max32", i32::MAX)
        .with("Zero32", 0)
        .with("Min64", i64::MIN)
        .with("Max64", i64::MAX)
        .with("Small64", 1_i64)
        .with("Above53", 9_007_199_254_740_993_i64);
    world.write(&table, Insert(written.clone())).await;
    assert_eq!(world.row(&table, &written.key).await.entity, written);
}

pub async fn dates_survive_to_100_nanoseconds_from_1601_to_9999(world: &World) {
    let table = world.table().await;
    let moments = [
        "1601-01-01T00:00:00Z",
        "1969-12-31T23:59:59.9999999Z",
        "1970-01-01T00:00:00Z",
        "2026-11-20T15:00:00.0000001Z",
        "2026-11-20T15:00:00.1234567Z",
        "2026-11-20T15:00:00.12Z",
        "2024-02-29T12:00:00Z",
        "9999-12-31T23:59:59.9999999Z",
    ];
    let written = moments
        .iter()
        .enumerate()
        .fold(entity("p", "r"), |e, (i, text)| {
            e.with(format!("T{i}"), EdmDateTime::parse(text).unwrap())
        });
    world.write(&table, Insert(written.clone())).await;
    assert_eq!(world.row(&table, &written.key).await.entity, written);
}

pub async fn strings_survive_as_they_are(world: &World) {
    let table = world.table().await;
    let texts = [
        "",
        " ",
        " outer blanks ",
        "line\r\nbreak\ttab\n",
        "\n",
        "O'Brien said \"no\" \\ / # ?",
        "<b>&amp;</b> ]]>",
        "{\"json\": [1, null]}",
        "한글 텍스트",
        "😀👩‍👩‍👧‍👦",
        "e\u{301} is not \u{e9}",
        "\u{feff}mark",
        "\u{202e}right to left",
        "5",
        "true",
        "null",
        "2026-11-20T15:00:00Z",
    ];
    let written = texts
        .iter()
        .enumerate()
        .fold(entity("p", "r"), |e, (i, text)| {
            e.with(format!("S{i}"), *text)
        });
    world.write(&table, Insert(written.clone())).await;
    assert_eq!(world.row(&table, &written.key).await.entity, written);
    let replaced = world
        .write(&table, Replace(written.clone(), IfMatch::Any))
        .await;
    let merged = world
        .write(&table, Merge(written.clone(), at(&replaced)))
        .await;
    let row = world.row(&table, &written.key).await;
    assert_eq!((row.entity, row.etag), (written, merged));
}

pub async fn values_of_maximum_length_survive(world: &World) {
    let most = world.capabilities;
    let table = world.table().await;
    let written = entity("p", "r")
        .with("Ascii", "x".repeat(most.string_utf16_units))
        .with("Hangul", "한".repeat(most.string_utf16_units))
        .with("Emoji", "😀".repeat(most.string_utf16_units / 2))
        .with("Binary", EdmValue::Binary(vec![0xA5; most.binary_bytes]))
        .with("N".repeat(most.property_name_chars), 1);
    let written = (written.properties.len()..most.properties).fold(written, |e, i| {
        e.with(format!("P{i}"), i32::try_from(i).unwrap())
    });
    world.write(&table, Insert(written.clone())).await;
    assert_eq!(world.row(&table, &written.key).await.entity, written);
}

pub async fn keys_with_unusual_characters_address_their_own_row(world: &World) {
    let table = world.table().await;
    let texts = [
        "",
        "O'Brien",
        "''",
        "'",
        "100%",
        "%41",
        "a b",
        "a+b",
        "a&b=c;d,e",
        "한글",
        "😀",
        "(x)",
        "a@b.com",
        "$batch",
        "~",
        "!*",
        "a:b",
        "[1]",
        "{x}",
        "\"q\"",
        "<>",
        "^|`",
        "..",
        ".",
    ];
    for (number, text) in texts.iter().enumerate() {
        // The text is used as each of the two keys. A row at a wrong address would be missing or conflict.
        let number = i32::try_from(number).unwrap();
        for (address, place) in [(key(text, "r"), 0), (key("p", text), 1)] {
            let written =
                evenkeel_model::Entity::new(address.clone()).with("N", number * 2 + place);
            let inserted = world.write(&table, Insert(written.clone())).await;
            assert_eq!(
                world.refused(&table, Insert(written.clone())).await,
                ErrorClass::Conflict,
                "{address}"
            );
            let merged = world
                .write(&table, Merge(written.clone().with("M", 1), at(&inserted)))
                .await;
            let replaced = world
                .write(&table, Replace(written.clone(), at(&merged)))
                .await;
            let upserted = world.write(&table, InsertOrReplace(written.clone())).await;
            let row = world.row(&table, &address).await;
            assert_eq!((&row.entity, &row.etag), (&written, &upserted), "{address}");
            assert_ne!(replaced, upserted);
        }
    }
    assert_eq!(
        world.all(&table, &Query::default()).await.len(),
        texts.len() * 2
    );
    for text in texts {
        for address in [key(text, "r"), key("p", text)] {
            let etag = world.row(&table, &address).await.etag;
            world.apply(&table, Delete(address, at(&etag))).await;
        }
    }
    assert!(world.all(&table, &Query::default()).await.is_empty());
}

pub async fn keys_differ_by_case(world: &World) {
    let table = world.table().await;
    for (number, (pk, rk)) in [("a", "a"), ("A", "a"), ("a", "A"), ("A", "A")]
        .into_iter()
        .enumerate()
    {
        world
            .write(
                &table,
                Insert(entity(pk, rk).with("N", i32::try_from(number).unwrap())),
            )
            .await;
    }
    assert_eq!(
        world.row(&table, &key("a", "A")).await.entity.get("N"),
        Some(&2.into())
    );
}

pub async fn keys_of_maximum_length_work(world: &World) {
    let table = world.table().await;
    for text in ["k".repeat(512), "한".repeat(341), "😀".repeat(256)] {
        let address = key(&text, &text);
        let etag = world
            .write(&table, Insert(evenkeel_model::Entity::new(address.clone())))
            .await;
        assert_eq!(world.row(&table, &address).await.etag, etag);
    }
}

pub async fn an_absent_row_reads_as_none(world: &World) {
    let table = world.table().await;
    assert_eq!(world.find(&table, &key("p", "r")).await, None);
}

pub async fn a_projection_returns_what_it_names(world: &World) {
    let table = world.table().await;
    let written = entity("p", "r")
        .with("A", 1)
        .with("B", 2.0)
        .with("C", "three")
        .with("a", 4);
    let etag = world.write(&table, Insert(written.clone())).await;
    let select = ["A".to_owned(), "C".to_owned(), "Absent".to_owned()];
    let row = world
        .account
        .tables
        .get(&table, &written.key, Some(&select))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(row.entity, entity("p", "r").with("A", 1).with("C", "three"));
    assert_eq!(row.etag, etag);
}

pub async fn an_insert_of_an_existing_entity_is_a_conflict(world: &World) {
    let table = world.table().await;
    let etag = world
        .write(&table, Insert(entity("p", "r").with("A", 1)))
        .await;
    assert_eq!(
        world
            .refused(&table, Insert(entity("p", "r").with("A", 2)))
            .await,
        ErrorClass::Conflict
    );
    let row = world.row(&table, &key("p", "r")).await;
    assert_eq!(
        (row.entity, row.etag),
        (entity("p", "r").with("A", 1), etag)
    );
}

pub async fn an_insert_or_replace_creates_and_replaces(world: &World) {
    let table = world.table().await;
    world
        .write(
            &table,
            InsertOrReplace(entity("p", "r").with("A", 1).with("B", 1)),
        )
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        entity("p", "r").with("A", 1).with("B", 1)
    );
    world
        .write(
            &table,
            InsertOrReplace(entity("p", "r").with("B", 2).with("C", 2)),
        )
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        entity("p", "r").with("B", 2).with("C", 2)
    );
}

pub async fn an_insert_or_merge_creates_and_keeps_what_it_does_not_name(world: &World) {
    let table = world.table().await;
    world
        .write(
            &table,
            InsertOrMerge(entity("p", "r").with("A", 1).with("B", 1)),
        )
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        entity("p", "r").with("A", 1).with("B", 1)
    );
    world
        .write(
            &table,
            InsertOrMerge(entity("p", "r").with("B", 2).with("C", 2)),
        )
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        entity("p", "r").with("A", 1).with("B", 2).with("C", 2)
    );
}

pub async fn a_replace_drops_what_it_does_not_name(world: &World) {
    let table = world.table().await;
    let etag = world
        .write(&table, Insert(entity("p", "r").with("A", 1).with("B", 1)))
        .await;
    world
        .write(&table, Replace(entity("p", "r").with("B", 2), at(&etag)))
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        entity("p", "r").with("B", 2)
    );
    world
        .write(&table, Replace(entity("p", "r"), IfMatch::Any))
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        entity("p", "r")
    );
}

pub async fn a_merge_keeps_what_it_does_not_name(world: &World) {
    let table = world.table().await;
    let all = entity("p", "r")
        .with("A", 1_i64)
        .with("B", 1.0)
        .with("C", EdmValue::Binary(vec![0, 1]));
    let etag = world.write(&table, Insert(all.clone())).await;
    let etag = world
        .write(&table, Merge(entity("p", "r").with("B", 2.0), at(&etag)))
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        all.clone().with("B", 2.0)
    );
    world
        .write(&table, Merge(entity("p", "r"), at(&etag)))
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        all.with("B", 2.0)
    );
}

pub async fn a_merge_may_change_the_type_of_a_property(world: &World) {
    let table = world.table().await;
    world
        .write(&table, Insert(entity("p", "r").with("A", 5)))
        .await;
    for value in [
        EdmValue::from("5"),
        5_i64.into(),
        5.0.into(),
        EdmValue::Binary(vec![5]),
        5.into(),
    ] {
        world
            .write(
                &table,
                Merge(entity("p", "r").with("A", value.clone()), IfMatch::Any),
            )
            .await;
        assert_eq!(
            world.row(&table, &key("p", "r")).await.entity.get("A"),
            Some(&value)
        );
    }
}

pub async fn every_write_changes_the_etag_even_an_identical_one(world: &World) {
    let table = world.table().await;
    let same = entity("p", "r").with("A", 1);
    let mut etags = vec![world.write(&table, Insert(same.clone())).await];
    for operation in [
        Replace(same.clone(), IfMatch::Any),
        Merge(same.clone(), IfMatch::Any),
        InsertOrReplace(same.clone()),
        InsertOrMerge(same.clone()),
        Merge(entity("p", "r"), IfMatch::Any),
    ] {
        let etag = world.write(&table, operation.clone()).await;
        assert!(
            !etags.contains(&etag),
            "{} must change the ETag",
            operation.name()
        );
        etags.push(etag);
    }
}

pub async fn the_etag_of_a_write_is_the_one_read(world: &World) {
    let table = world.table().await;
    let written = world
        .write(&table, Insert(entity("p", "r").with("A", 1)))
        .await;
    assert_eq!(world.row(&table, &key("p", "r")).await.etag, written);
    let written = world
        .write(&table, Merge(entity("p", "r").with("A", 2), at(&written)))
        .await;
    assert_eq!(world.row(&table, &key("p", "r")).await.etag, written);
    assert_eq!(world.all(&table, &Query::default()).await[0].etag, written);
}

pub async fn an_etag_is_never_used_again_after_a_delete(world: &World) {
    let table = world.table().await;
    let mut etags = Vec::new();
    for _ in 0..5 {
        let etag = world.write(&table, Insert(entity("p", "r"))).await;
        assert!(!etags.contains(&etag));
        world.apply(&table, Delete(key("p", "r"), at(&etag))).await;
        etags.push(etag);
    }
    world.write(&table, Insert(entity("p", "r"))).await;
    for etag in &etags {
        assert_eq!(
            world.refused(&table, Delete(key("p", "r"), at(etag))).await,
            ErrorClass::Precondition
        );
    }
}

pub async fn the_timestamp_is_set_by_the_store_and_rises(world: &World) {
    let table = world.table().await;
    world.write(&table, Insert(entity("p", "r"))).await;
    let mut last = world.row(&table, &key("p", "r")).await.timestamp.unwrap();
    for _ in 0..5 {
        world.advance_time(world.capabilities.timestamp_step).await;
        world
            .write(&table, Replace(entity("p", "r"), IfMatch::Any))
            .await;
        let now = world.row(&table, &key("p", "r")).await.timestamp.unwrap();
        assert!(now > last, "expected a timestamp after {last}, found {now}");
        last = now;
    }
}

pub async fn a_write_at_a_stale_etag_changes_nothing(world: &World) {
    let table = world.table().await;
    let stale = world
        .write(&table, Insert(entity("p", "r").with("A", 1)))
        .await;
    let current = world
        .write(&table, Replace(entity("p", "r").with("A", 2), at(&stale)))
        .await;
    for operation in [
        Replace(entity("p", "r").with("A", 3), at(&stale)),
        Merge(entity("p", "r").with("A", 3), at(&stale)),
        Delete(key("p", "r"), at(&stale)),
    ] {
        assert_eq!(
            world.refused(&table, operation.clone()).await,
            ErrorClass::Precondition,
            "{}",
            operation.name()
        );
    }
    let row = world.row(&table, &key("p", "r")).await;
    assert_eq!(
        (row.entity, row.etag),
        (entity("p", "r").with("A", 2), current)
    );
}

pub async fn a_write_at_an_etag_of_an_absent_row_is_not_found(world: &World) {
    let table = world.table().await;
    let etag = world.write(&table, Insert(entity("p", "r"))).await;
    world.apply(&table, Delete(key("p", "r"), at(&etag))).await;
    for operation in [
        Replace(entity("p", "r"), at(&etag)),
        Merge(entity("p", "r"), at(&etag)),
        Delete(key("p", "r"), at(&etag)),
    ] {
        assert_eq!(
            world.refused(&table, operation.clone()).await,
            NO_ITEM,
            "{}",
            operation.name()
        );
    }
    assert_eq!(world.find(&table, &key("p", "r")).await, None);
}

pub async fn a_write_at_any_etag_needs_an_entity(world: &World) {
    let table = world.table().await;
    for operation in [
        Replace(entity("p", "r"), IfMatch::Any),
        Merge(entity("p", "r"), IfMatch::Any),
        Delete(key("p", "r"), IfMatch::Any),
    ] {
        assert_eq!(
            world.refused(&table, operation.clone()).await,
            NO_ITEM,
            "{}",
            operation.name()
        );
    }
    assert_eq!(world.find(&table, &key("p", "r")).await, None);
}

pub async fn a_write_at_any_etag_takes_any_version(world: &World) {
    let table = world.table().await;
    world.write(&table, Insert(entity("p", "r"))).await;
    world
        .write(&table, Replace(entity("p", "r").with("A", 1), IfMatch::Any))
        .await;
    world
        .write(&table, Merge(entity("p", "r").with("B", 1), IfMatch::Any))
        .await;
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity,
        entity("p", "r").with("A", 1).with("B", 1)
    );
    assert_eq!(
        world
            .apply(&table, Delete(key("p", "r"), IfMatch::Any))
            .await,
        None
    );
    assert_eq!(world.find(&table, &key("p", "r")).await, None);
}

pub async fn a_delete_at_the_etag_deletes(world: &World) {
    let table = world.table().await;
    let etag = world.write(&table, Insert(entity("p", "r"))).await;
    assert_eq!(
        world.apply(&table, Delete(key("p", "r"), at(&etag))).await,
        None
    );
    assert_eq!(world.find(&table, &key("p", "r")).await, None);
    assert_eq!(
        world
            .refused(&table, Delete(key("p", "r"), IfMatch::Any))
            .await,
        NO_ITEM
    );
}

pub async fn property_names_are_checked_before_anything_is_written(world: &World) {
    let table = world.table().await;
    let too_long = "N".repeat(world.capabilities.property_name_chars + 1);
    for name in [
        "a-b",
        "1a",
        "",
        "a b",
        "a.b",
        "€",
        "PartitionKey",
        "RowKey",
        "Timestamp",
        too_long.as_str(),
    ] {
        assert_eq!(
            world
                .refused(&table, Insert(entity("p", "r").with(name, 1)))
                .await,
            ErrorClass::Permanent,
            "{name:?}"
        );
        assert_eq!(
            world
                .refused(&table, InsertOrMerge(entity("p", "r").with(name, 1)))
                .await,
            ErrorClass::Permanent,
            "{name:?}"
        );
    }
    assert_eq!(world.find(&table, &key("p", "r")).await, None);
    let named = entity("p", "r")
        .with("Größe", 1)
        .with("이름", "김")
        .with("商品名", true);
    world.write(&table, Insert(named.clone())).await;
    assert_eq!(world.row(&table, &key("p", "r")).await.entity, named);
}

pub async fn the_number_of_properties_is_checked_before_anything_is_written(world: &World) {
    let table = world.table().await;
    let most = (0..world.capabilities.properties)
        .fold(entity("p", "r"), |e, i| e.with(format!("P{i}"), true));
    world.write(&table, Insert(most.clone())).await;
    assert_eq!(
        world
            .refused(&table, InsertOrReplace(most.clone().with("OneMore", true)))
            .await,
        ErrorClass::Permanent
    );
    assert_eq!(world.row(&table, &key("p", "r")).await.entity, most);
}

pub async fn sizes_are_checked_before_anything_is_written(world: &World) {
    let table = world.table().await;
    // `long` has three bytes for each character as JSON. `twice` has one, but Azure counts two bytes for each UTF-16 unit.
    let (long, twice) = ("한".repeat(10_667), "x".repeat(32_000));
    let most = world.capabilities;
    let (fit, fit_twice) = (most.entity_bytes / 32_001, most.entity_bytes / 64_000);
    for too_large in [
        entity("p", "r").with("A", "x".repeat(most.string_utf16_units + 1)),
        entity("p", "r").with("A", "😀".repeat(most.string_utf16_units / 2 + 1)),
        entity("p", "r").with("A", EdmValue::Binary(vec![0; most.binary_bytes + 1])),
        (0..=fit).fold(entity("p", "r"), |e, i| {
            e.with(format!("P{i}"), long.clone())
        }),
        (0..=fit_twice).fold(entity("p", "r"), |e, i| {
            e.with(format!("P{i}"), twice.clone())
        }),
    ] {
        assert_eq!(
            world.refused(&table, Insert(too_large.clone())).await,
            ErrorClass::TooLarge
        );
        assert_eq!(
            world.refused(&table, InsertOrReplace(too_large)).await,
            ErrorClass::TooLarge
        );
    }
    assert_eq!(world.find(&table, &key("p", "r")).await, None);
    let just_fits = (0..fit).fold(entity("p", "r"), |e, i| {
        e.with(format!("P{i}"), long.clone())
    });
    world.write(&table, Insert(just_fits)).await;
}

pub async fn characters_are_checked_before_anything_is_written(world: &World) {
    let table = world.table().await;
    for text in ["a\u{0}b", "a\u{fffe}b", "a\u{ffff}b"] {
        assert_eq!(
            world
                .refused(&table, Insert(entity("p", "r").with("A", text)))
                .await,
            ErrorClass::Permanent,
            "{text:?}"
        );
    }
    assert_eq!(world.find(&table, &key("p", "r")).await, None);
}

pub async fn one_of_concurrent_inserts_wins(world: &World) {
    let table = world.table().await;
    let inserts = (0..8)
        .map(|i| Insert(entity("p", "r").with("Winner", i)))
        .collect::<Vec<_>>();
    let results = join_all(
        inserts
            .iter()
            .map(|insert| world.account.tables.apply(&table, insert)),
    )
    .await;
    let winners = (0..8).filter(|i| results[*i].is_ok()).collect::<Vec<_>>();
    assert_eq!(winners.len(), 1);
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity.get("Winner"),
        Some(&i32::try_from(winners[0]).unwrap().into())
    );
    assert!(
        results
            .into_iter()
            .filter(Result::is_err)
            .all(|result| class(result) == ErrorClass::Conflict)
    );
}

pub async fn one_of_concurrent_replaces_at_one_etag_wins(world: &World) {
    let table = world.table().await;
    let etag = world.write(&table, Insert(entity("p", "r"))).await;
    let replaces = (0..8)
        .map(|i| Replace(entity("p", "r").with("Winner", i), at(&etag)))
        .collect::<Vec<_>>();
    let results = join_all(
        replaces
            .iter()
            .map(|replace| world.account.tables.apply(&table, replace)),
    )
    .await;
    let winners = (0..8).filter(|i| results[*i].is_ok()).collect::<Vec<_>>();
    assert_eq!(winners.len(), 1);
    assert_eq!(
        world.row(&table, &key("p", "r")).await.entity.get("Winner"),
        Some(&i32::try_from(winners[0]).unwrap().into())
    );
    assert!(
        results
            .into_iter()
            .filter(Result::is_err)
            .all(|result| class(result) == ErrorClass::Precondition)
    );
}

pub async fn concurrent_merges_of_different_properties_all_succeed(world: &World) {
    let table = world.table().await;
    let merges = (0..8)
        .map(|i| InsertOrMerge(entity("p", "r").with(format!("P{i}"), i)))
        .collect::<Vec<_>>();
    for result in join_all(
        merges
            .iter()
            .map(|merge| world.account.tables.apply(&table, merge)),
    )
    .await
    {
        result.unwrap();
    }
    let expected = (0..8).fold(entity("p", "r"), |e, i| e.with(format!("P{i}"), i));
    assert_eq!(world.row(&table, &key("p", "r")).await.entity, expected);
}

pub async fn concurrent_writes_each_get_their_own_answer(world: &World) {
    let table = world.table().await;
    let stale = world.write(&table, Insert(entity("p", "old"))).await;
    world
        .write(&table, InsertOrReplace(entity("p", "old")))
        .await;
    let current = world
        .write(&table, Insert(entity("p", "replaced").with("A", 1)))
        .await;
    let merged = world
        .write(&table, Insert(entity("p", "merged").with("A", 1)))
        .await;
    let deleted = world.write(&table, Insert(entity("p", "deleted"))).await;
    let mut operations = vec![
        (Insert(entity("p", "old")), Err(ErrorClass::Conflict)),
        (Replace(entity("p", "nobody"), at(&current)), Err(NO_ITEM)),
        (
            Replace(entity("p", "replaced").with("A", 2), at(&current)),
            Ok(true),
        ),
        (
            Merge(entity("p", "merged").with("B", 2), at(&merged)),
            Ok(true),
        ),
        (Delete(key("p", "deleted"), at(&deleted)), Ok(false)),
        (Delete(key("p", "never"), IfMatch::Any), Err(NO_ITEM)),
        (
            InsertOrMerge(entity("p", "upmerged").with("A", 1)),
            Ok(true),
        ),
        (
            Insert(entity("p", "wrong").with("a-b", 1)),
            Err(ErrorClass::Permanent),
        ),
        (Insert(entity("q", "elsewhere")), Ok(true)),
    ];
    operations.extend(
        ["O'Brien", "100%", "a b+c", "한글", ""]
            .map(|rk| (Insert(entity("p", rk).with("A", 1)), Ok(true))),
    );
    operations
        .extend((0..20).map(|n| (Insert(entity("p", &format!("n{n}")).with("N", n)), Ok(true))));
    // The same row as the first operation.
    operations.push((
        Replace(entity("p", "old"), at(&stale)),
        Err(ErrorClass::Precondition),
    ));
    let results = join_all(
        operations
            .iter()
            .map(|(operation, _)| world.account.tables.apply(&table, operation)),
    )
    .await;
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
                assert_eq!(
                    error.subject.resource,
                    Resource::Entity(table.clone(), operation.key().clone())
                );
            }
            (result, expected) => panic!("{operation:?}: expected {expected:?}, found {result:?}"),
        }
    }
    assert_eq!(
        world.row(&table, &key("p", "merged")).await.entity,
        entity("p", "merged").with("A", 1).with("B", 2)
    );
}

pub async fn concurrent_reads_each_find_their_own_row(world: &World) {
    let table = world.table().await;
    let there = [
        "O'Brien", "100%", "a b+c", "한글", "😀", "\u{ffee}", "", "a", "B", "b", "a.b", "~", "n05",
    ];
    let there: Vec<String> = there
        .map(str::to_owned)
        .into_iter()
        .chain((10..30).map(|n| format!("n{n}")))
        .collect();
    for rk in &there {
        world
            .write(&table, Insert(entity("p", rk).with("Name", rk.as_str())))
            .await;
    }
    // Rows between the requested rows, so that a range over the requested rows contains others, too.
    for n in 0..60 {
        world
            .write(&table, Insert(entity("p", &format!("c{n:02}"))))
            .await;
    }
    let absent = ["A", "b0", "n", "n04", "n31", "zz", "O''Brien"].map(str::to_owned);
    for _ in 0..3 {
        let requested: Vec<_> = there.iter().chain(&absent).map(|rk| key("p", rk)).collect();
        let found = join_all(
            requested
                .iter()
                .map(|key| world.account.tables.get(&table, key, None)),
        )
        .await;
        for (key, row) in requested.iter().zip(found) {
            let row = row.unwrap();
            let expected = there.iter().find(|rk| **rk == key.rk.as_str());
            assert_eq!(
                row.map(|row| row.entity),
                expected.map(|rk| entity("p", rk).with("Name", rk.as_str())),
                "{key}"
            );
        }
    }
}

pub async fn an_absent_table_is_absent_for_concurrent_requests(world: &World) {
    let table = table_name();
    let operations = [
        Insert(entity("p", "a")),
        InsertOrReplace(entity("p", "b")),
        Delete(key("p", "c"), IfMatch::Any),
    ];
    for result in join_all(
        operations
            .iter()
            .map(|operation| world.account.tables.apply(&table, operation)),
    )
    .await
    {
        assert_eq!(class(result), NO_CONTAINER);
    }
    let keys = [key("p", "a"), key("p", "b"), key("p", "c")];
    for result in join_all(
        keys.iter()
            .map(|key| world.account.tables.get(&table, key, None)),
    )
    .await
    {
        assert_eq!(class(result), NO_CONTAINER);
    }
}
