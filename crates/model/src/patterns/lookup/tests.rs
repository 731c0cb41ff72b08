use std::cmp::Ordering;
use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::catalog::{Denormalize, OnConflict, SecondaryIndex, TableRef, View, ViewKind};
use crate::key::service_order;
use crate::template::Template;
use crate::{AccountName, EdmDateTime, Entity, EntityKey, Key, TableName, ViewName};

fn view(partition_key: &str, row_key: &str) -> View {
    view_of(
        Template::parse(partition_key).unwrap(),
        Template::parse(row_key).unwrap(),
    )
}

pub(super) fn view_of(partition_key: Template, row_key: Template) -> View {
    let table = |name: &str| TableRef {
        account: AccountName::main(),
        table: TableName::new(name).unwrap(),
    };
    View {
        name: ViewName::new("by_x").unwrap(),
        source: table("Employees"),
        when: None,
        kind: ViewKind::SecondaryIndex(SecondaryIndex {
            target: table("Copies").into(),
            partition_key,
            row_key,
            select: None,
        }),
        on_conflict: OnConflict::Reject,
    }
}

fn terms(texts: &[&str]) -> Vec<Term> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn planned(partition_key: &str, row_key: &str, texts: &[&str]) -> (QueryClass, Vec<String>) {
    let plan = plan(&view(partition_key, row_key), &terms(texts)).unwrap();
    (
        plan.class,
        plan.ranges
            .iter()
            .map(|range| {
                range
                    .filter()
                    .map(|filter| filter.to_string())
                    .unwrap_or_default()
            })
            .collect(),
    )
}

fn one(partition_key: &str, row_key: &str, texts: &[&str]) -> (QueryClass, String) {
    let (class, mut filters) = planned(partition_key, row_key, texts);
    assert_eq!(filters.len(), 1);
    (class, filters.remove(0))
}

fn refused(partition_key: &str, row_key: &str, texts: &[&str]) -> String {
    plan(&view(partition_key, row_key), &terms(texts))
        .unwrap_err()
        .to_string()
}

#[test]
fn whole_keys_are_points_filtered_and_escaped_as_they_are_rendered() {
    let plan = plan(
        &view("email_{PartitionKey}", "{Email|trim|lower}"),
        &terms(&["PartitionKey=R&D/Lab", "Email= Kim@Contoso.com"]),
    )
    .unwrap();
    assert_eq!(plan.class, QueryClass::Point);
    assert_eq!(
        plan.ranges[0].point(),
        Some(EntityKey::new("email_R&D%2FLab", "kim@contoso.com").unwrap())
    );
}

#[test]
fn a_leading_part_of_a_compound_key_is_a_range_of_rows() {
    let by_name = |texts: &[&str]| {
        one(
            "{PartitionKey}",
            "last_name_{LastName|lower}_{RowKey}",
            texts,
        )
    };
    assert_eq!(
        by_name(&["PartitionKey=Sales"]),
        (
            QueryClass::Range,
            "(PartitionKey eq 'Sales' and (RowKey ge 'last_name_' and RowKey lt 'last_name`'))"
                .to_owned()
        )
    );
    assert_eq!(
        by_name(&["PartitionKey=Sales", "LastName=Kim"]).1,
        "(PartitionKey eq 'Sales' and (RowKey ge 'last_name_kim_' and RowKey lt 'last_name_kim`'))"
    );
    assert_eq!(
        by_name(&["PartitionKey=Sales", "LastName^=K"]).1,
        "(PartitionKey eq 'Sales' and (RowKey ge 'last_name_k' and RowKey lt 'last_name_l'))"
    );
    assert_eq!(
        by_name(&["PartitionKey=Sales", "LastName>=K", "LastName<M"]).1,
        "(PartitionKey eq 'Sales' and (RowKey ge 'last_name_k' and RowKey lt 'last_name_m'))"
    );
    assert_eq!(
        by_name(&["PartitionKey=Sales", "LastName=Kim", "RowKey=7"]),
        (
            QueryClass::Point,
            "(PartitionKey eq 'Sales' and RowKey eq 'last_name_kim_7')".to_owned()
        )
    );
}

#[test]
fn a_partition_alone_is_a_partition_scan_and_a_range_of_partitions_a_table_scan() {
    assert_eq!(
        one("{PartitionKey}", "{Email}", &["PartitionKey=Sales"]),
        (
            QueryClass::PartitionScan,
            "PartitionKey eq 'Sales'".to_owned()
        )
    );
    assert_eq!(
        one("all", "{Email}", &[]),
        (
            QueryClass::PartitionScan,
            "PartitionKey eq 'all'".to_owned()
        )
    );
    assert_eq!(
        one("{Email}", "{RowKey}", &["Email^=a", "RowKey=7"]),
        (
            QueryClass::TableScan,
            "((PartitionKey ge 'a' and PartitionKey lt 'b') and RowKey eq '7')".to_owned()
        )
    );
}

#[test]
fn an_unknown_bucket_is_one_range_each_and_a_known_one_is_computed() {
    let (class, filters) = planned(
        "last_name_{LastName|bucket:16}",
        "{LastName}",
        &["LastName^=K"],
    );
    assert_eq!((class, filters.len()), (QueryClass::Range, 16));
    assert_eq!(
        filters[15],
        "(PartitionKey eq 'last_name_15' and (RowKey ge 'K' and RowKey lt 'L'))"
    );
    assert_eq!(
        one(
            "last_name_{LastName|bucket:16}",
            "{LastName}",
            &["LastName=Kim"]
        )
        .0,
        QueryClass::Point
    );
    assert_eq!(
        planned(
            "{RowKey|bucket:4}",
            "{RowKey|bucket:4}_{Email}",
            &["Email=a"]
        )
        .1
        .len(),
        16
    );
    assert!(refused("{A|bucket:100}", "{B|bucket:100}", &[]).contains("needs 10000 requests"));
    // No query of a lookup contains an "or", because the service would answer such a query with a
    // scan.
    assert!(filters.iter().all(|filter| !filter.contains(" or ")));
}

#[test]
fn ranges_of_buckets_are_merged_by_what_follows_the_bucket() {
    let plan = plan(
        &view("p", "{LastName|bucket:2}-{LastName}"),
        &terms(&["LastName^=K"]),
    )
    .unwrap();
    let key = |rk: &str| EntityKey::new("p", rk).unwrap();
    assert_eq!(plan.ranges[0].merge_key(&key("0-Kim")), ("", "im"));
    assert_eq!(plan.ranges[1].merge_key(&key("1-Kelly")), ("", "elly"));
    assert!(plan.ranges[1].accepts(&key("1-Kelly")) && !plan.ranges[1].accepts(&key("0-Kelly")));
}

#[test]
fn numbers_and_moments_are_compared_by_value() {
    let rows = |row_key: &str, texts: &[&str]| one("p", row_key, texts).1;
    assert_eq!(
        rows("{Age|pad:3}", &["Age>=9", "Age<10"]),
        "(PartitionKey eq 'p' and (RowKey ge '009' and RowKey lt '010'))"
    );
    // The latest moment has the first text, so "at least T" ends at the text of T.
    assert_eq!(
        rows(
            "{Hired|inverted_ticks}",
            &["Hired>=9999-12-31T23:59:59.9999999Z"]
        ),
        "(PartitionKey eq 'p' and RowKey lt '0000000000000000001')"
    );
    assert_eq!(
        rows(
            "{Hired|inverted_ticks}",
            &["Hired<9999-12-31T23:59:59.9999999Z"]
        ),
        "(PartitionKey eq 'p' and RowKey ge '0000000000000000001')"
    );
    assert_eq!(
        rows(
            "{Hired|date:%Y%m%d}",
            &["Hired>=2026-11-01T00:00:00Z", "Hired<2026-12-01T00:00:00Z"]
        ),
        "(PartitionKey eq 'p' and (RowKey ge '20261101' and RowKey lt '20261131'))"
    );
}

#[test]
fn a_term_is_a_key_for_each_value_that_its_text_spells() {
    let rows = |texts: &[&str]| planned("p", "{At}_{RowKey}", texts).1;
    let range = |text: &str| {
        format!("(PartitionKey eq 'p' and (RowKey ge '{text}_' and RowKey lt '{text}`'))")
    };
    assert_eq!(
        rows(&["At=2026-11-20T16:00+01:00"]),
        [
            range("2026-11-20T16:00+01:00"),
            range("2026-11-20T15:00:00.0000000Z")
        ]
    );
    assert_eq!(
        rows(&["At=2026-11-20T15:00:00.0000000Z"]),
        [range("2026-11-20T15:00:00.0000000Z")]
    );
    assert_eq!(
        rows(&["At=\"2026-11-20T15:00:00Z\""]),
        [range("2026-11-20T15:00:00Z")]
    );
    // Both keys are rendered from the same value.
    assert_eq!(
        planned("{At}", "{At}", &["At=TRUE"]).1,
        ["TRUE", "true"].map(|text| format!("(PartitionKey eq '{text}' and RowKey eq '{text}')"))
    );
    // The keys of primaries are always texts, so each term has one reading.
    assert_eq!(
        planned(
            "{PartitionKey}",
            "{RowKey}",
            &["PartitionKey=TRUE", "RowKey>=007"]
        )
        .1
        .len(),
        1
    );
    // If a filter gives several spellings the same text, there is one key.
    assert_eq!(
        planned("p", "{No|pad:3}", &["No=7.0"]).1,
        ["(PartitionKey eq 'p' and RowKey eq '007')"]
    );
    assert_eq!(
        planned(
            "p",
            "{Id|lower}",
            &["Id=0F8FAD5B-D9CB-469F-A165-70867728950E"]
        )
        .1
        .len(),
        1
    );
}

#[test]
fn a_key_part_made_to_be_sorted_that_cannot_be_is_reported() {
    let unordered_key_part = |template: &str| {
        unordered_key_part(&Template::parse(template).unwrap()).map(|part| part.property)
    };
    for template in [
        "{At|date:%d%m%Y}",
        "{At|date:%d.%m.%Y %H:%M}",
        "{At|date:%D}",
        "x_{At|after:=|pad:4}",
        "{At|slug|date:%F}",
        "{At|pad:4|pad:8}",
    ] {
        assert_eq!(
            unordered_key_part(template).as_deref(),
            Some("At"),
            "{template}"
        );
    }
    for template in [
        "{At}",
        "{At|hash:3}",
        "{At|date:%F}",
        "{At|date:%S%Y%m%d}",
        "{At|date:%m-%d}",
        "{At|date:%d%m%Y|hash:2}",
        "{At|trim|pad:8}",
        "{At|slug}",
    ] {
        assert_eq!(unordered_key_part(template), None, "{template}");
    }
}

#[test]
fn errors_name_missing_and_unusable_terms() {
    for (partition_key, row_key, texts, expected) in [
        (
            "email_{PartitionKey}",
            "{Email}",
            &["Email=a"][..],
            "view by_x also needs PartitionKey: its partition_key is \"email_{PartitionKey}\"",
        ),
        ("{A}_{B}", "{C}", &["C=1"], "also needs A and B"),
        (
            "{PartitionKey}",
            "{LastName}_{FirstName}",
            &["PartitionKey=S", "FirstName=Kim"],
            "cannot use FirstName=Kim: LastName comes before it in the key \"{LastName}_{FirstName}\"; give it with =",
        ),
        (
            "{PartitionKey}",
            "{LastName}",
            &["PartitionKey=S", "Age=5"],
            "cannot use Age=5: its keys are made of PartitionKey, LastName",
        ),
        (
            "p",
            "{Name|hash:8}",
            &["Name^=K"],
            "cannot use Name^=K: the key does not sort by Name, because of hash; give the whole value with =",
        ),
        (
            "{Name|slug}",
            "{RowKey}",
            &["Name>=K"],
            "the key does not sort by Name, because of slug",
        ),
        (
            "p",
            "{Name|bucket:4}",
            &["Name>=K"],
            "the key does not sort by Name, because of bucket",
        ),
        (
            "p",
            "{T|date:%d%m%Y}",
            &["T>=2026-11-01T00:00:00Z"],
            "do not go from large to small",
        ),
        ("p", "{Age|pad:3}", &["Age^=1"], "has no prefix"),
        ("p", "{Age|pad:3}", &["Age=old"], "expects a number"),
        ("p", "{Age|pad:3}", &["Age>=old"], "expects a number"),
        (
            "p",
            "{T|inverted_ticks}",
            &["T<1601-01-01T00:00:00Z"],
            "no moment is before it",
        ),
        (
            "p",
            "{Name|trim}",
            &["Name= "],
            "a view has no rows without a value",
        ),
        (
            "p",
            "{No}_{RowKey}",
            &["No>=9"],
            "No sorts as text in its keys, 10 before 9. Give the key a filter such as {No|pad:8} or {No|sortable}, or write No>=\"9\"",
        ),
        (
            "p",
            "{No|trim}_{RowKey}",
            &["No<-1.5"],
            "or write No<\"-1.5\" to compare texts",
        ),
        ("p", "{No|sortable}", &["No=many"], "sortable expects"),
        (
            "p",
            "{No|after:-|pad:3}",
            &["No<9"],
            "because of after; give",
        ),
        (
            "p",
            "{Id}",
            &["Id>={0F8FAD5B-D9CB-469F-A165-70867728950E}"],
            "the keys contain 0f8fad5b-d9cb-469f-a165-70867728950e for this value; use that value, or write Id>=\"{0F8F",
        ),
        (
            "p",
            "{At}",
            &["At^=2026-11-20T15:00:00Z"],
            "the keys contain 2026-11-20T15:00:00.0000000Z for this value",
        ),
        (
            "p",
            "{Name|trim}",
            &["Name^= "],
            "a view has no rows without a value",
        ),
        (
            "p",
            "{No}{Name}",
            &["No=5.0"],
            "put the value in double quotes to match its text only",
        ),
        (
            "p",
            "{Name}",
            &["Name=a", "Name^=a"],
            "Name=a and Name^=a contradict each other",
        ),
        (
            "p",
            "{Name}",
            &["Name>=m", "Name<c"],
            "Name>=m and Name<c contradict each other",
        ),
    ] {
        let error = refused(partition_key, row_key, texts);
        assert!(error.contains(expected), "{error}");
    }
    let long = format!("Name={}", "x".repeat(600));
    assert!(refused("p", "{Name}", &[&long]).contains("600"));
}

#[test]
fn terms_are_read_with_their_operators() {
    for (text, op, value) in [
        ("A=b", TermOp::Equal, "b"),
        ("A>=b", TermOp::AtLeast, "b"),
        ("A<b", TermOp::Less, "b"),
        ("A^=b=c", TermOp::Prefix, "b=c"),
        ("A==b", TermOp::Equal, "=b"),
        ("A=\"b\"", TermOp::Equal, "b"),
        ("A>=\"9\\\"\"", TermOp::AtLeast, "9\""),
        ("A=b\"", TermOp::Equal, "b\""),
    ] {
        let term: Term = text.parse().unwrap();
        assert_eq!(
            (
                term.property.as_str(),
                term.op,
                term.value.as_str(),
                term.to_string().as_str()
            ),
            ("A", op, value, text)
        );
    }
    for text in [
        "",
        "A",
        "=b",
        "A=",
        "A>b",
        "A<=b",
        "a-b=c",
        "Timestamp=x",
        "A~b",
        "€=x",
        "A=\"\"",
        "A=\"b",
        "A=\"b\"c",
    ] {
        assert!(
            text.parse::<Term>()
                .unwrap_err()
                .to_string()
                .contains("Property=value"),
            "{text}"
        );
    }
}

#[test]
fn the_end_of_a_prefix_is_legal_in_keys_and_right_in_both_orders() {
    use super::span::behind;
    for (prefix, end) in [
        ("a", Some("b")),
        ("a.", Some("a0")),
        ("a~", Some("a\u{a0}")),
        ("", None),
        ("😀", None),
        ("a\u{fffd}", Some("b")),
        ("[", Some("]")),
    ] {
        assert_eq!(behind(prefix).as_deref(), end);
    }
}

fn employee(name: &str, age: i32, hired: i64) -> Entity {
    Entity::new(EntityKey::new("Sales", "7").unwrap())
        .with("Name", name)
        .with("Age", age)
        .with("Hired", EdmDateTime::from_ticks(hired).unwrap())
}

pub(super) type Order = fn(&str, &str) -> Ordering;

/// Compares keys in the order of the embedded store.
pub(super) fn bytewise(one: &str, other: &str) -> Ordering {
    one.cmp(other)
}

/// Whether a range contains a row in a store with this order of keys, and accepts the row's key.
pub(super) fn finds(range: &KeyRange, key: &EntityKey, order: Order) -> bool {
    let within = |span: &Span, key: &Key| match span {
        Span::Exactly(only) => key == only,
        Span::Between { from, before } => {
            from.as_ref()
                .is_none_or(|from| order(key.as_str(), from.as_str()).is_ge())
                && before
                    .as_ref()
                    .is_none_or(|before| order(key.as_str(), before.as_str()).is_lt())
        }
    };
    within(&range.partitions, &key.pk) && within(&range.rows, &key.rk) && range.accepts(key)
}

fn holding(view: &View, texts: &[String], entity: &Entity) -> Option<usize> {
    holding_in(bytewise, view, texts, entity)
}

fn holding_in(order: Order, view: &View, texts: &[String], entity: &Entity) -> Option<usize> {
    let terms: Vec<Term> = texts.iter().map(|text| text.parse().unwrap()).collect();
    let rows = view.rows().unwrap();
    let [pk, rk] = [rows.partition_key, rows.row_key]
        .map(|template| template.render_as(rows.escaping, entity).unwrap());
    let key = EntityKey { pk: pk?, rk: rk? };
    let plan = plan(view, &terms).ok()?;
    Some(
        plan.ranges
            .iter()
            .filter(|range| finds(range, &key, order))
            .count(),
    )
}

#[test]
fn adjacent_ranges_find_each_item_once_in_any_store_order() {
    let texts = [
        "A",
        "A\u{20bb7}",
        "\u{d7a3}",
        "\u{20bb7}",
        "\u{20bb7}b",
        "\u{e000}",
        "\u{ff21}",
        "\u{ff21}\u{20bb7}",
    ];
    let orders: [Order; 2] = [bytewise, service_order];
    for view in [view("p", "{Name}"), view("x_{Name}", "{RowKey}")] {
        for order in orders {
            for name in texts {
                for one in texts {
                    for other in texts {
                        is_found_where_it_is(order, &view, name, (one, other));
                    }
                }
            }
        }
    }
}

fn is_found_where_it_is(order: Order, view: &View, name: &str, (one, other): (&str, &str)) {
    let (from, less) = (format!("Name>={one}"), format!("Name<{one}"));
    let (before, prefix) = (format!("Name<{other}"), format!("Name^={other}"));
    let at_least = order(name, one).is_ge();
    for (terms, expected) in [
        (vec![from.clone()], at_least),
        (vec![less.clone()], !at_least),
        (
            vec![from.clone(), before],
            at_least && order(name, other).is_lt(),
        ),
        (
            vec![from, prefix.clone()],
            at_least && name.starts_with(other),
        ),
        (vec![less, prefix], !at_least && name.starts_with(other)),
    ] {
        let found = holding_in(order, view, &terms, &employee(name, 1, FIRST)).unwrap_or_default();
        assert_eq!(found, usize::from(expected), "{name:?} by {terms:?}");
    }
}

#[test]
fn a_sigma_at_the_end_of_a_prefix_is_found_in_every_spelling() {
    let view = view("p", "{Name|lower}");
    let orders: [Order; 2] = [bytewise, service_order];
    let found = |order: Order, term: String, name: &str| {
        holding_in(order, &view, &[term], &employee(name, 1, FIRST)).unwrap()
    };
    for order in orders {
        for name in [
            "ΠΑΠΑΣΟΓΛΟΥ",
            "ΠΑΠΑΣ",
            "Παπάς",
            "Παπας Κ",
            "ΠΑΠΑΓΟΣ",
            "ΠΑΠΑ",
            "ΠΑΠΑΤ",
        ] {
            for prefix in ["ΠΑΠΑΣ", "παπας", "παπασ"] {
                let expected = usize::from(name.to_uppercase().starts_with("ΠΑΠΑΣ"));
                assert_eq!(
                    found(order, format!("Name^={prefix}"), name),
                    expected,
                    "{name} by {prefix}"
                );
                let sides = found(order, format!("Name>={prefix}"), name)
                    + found(order, format!("Name<{prefix}"), name);
                assert_eq!(sides, 1, "{name} by {prefix}");
            }
        }
        for (name, expected) in [("ΑΣ'Α", 1), ("ας'", 1), ("ΑΣ(", 0), ("ΑΣ", 0)] {
            assert_eq!(
                found(order, "Name^=ΑΣ'".to_owned(), name),
                expected,
                "{name}"
            );
        }
        assert_eq!(found(order, "Name>=παπασ".to_owned(), "ΠΑΠΑΣ"), 1);
    }
}

const DAY: i64 = 864_000_000_000;
const FIRST: i64 = 638_000_000_000_000_000;

proptest! {
    #[test]
    fn only_keys_with_the_prefix_are_found_and_each_once(name in "[a-c/%.~😀]{1,4}", prefix in "[a-c/%.~😀]{1,3}") {
        for view in [view("p", "{Name}"), view("b{Name|bucket:3}", "x_{Name}_{RowKey}"), view("{Name}", "{RowKey}")] {
            let found = holding(&view, &[format!("Name^={prefix}")], &employee(&name, 1, FIRST));
            prop_assert_eq!(found, Some(usize::from(name.starts_with(&prefix))));
        }
    }

    #[test]
    fn properties_on_foreign_entities_are_found_by_value_and_prefix(name in "[a-c/%25]{1,4}", length in 1..5_usize) {
        let copies = view("p", "{Name}");
        let target = TableRef { account: AccountName::main(), table: TableName::new("Others").unwrap() }.into();
        let [partition_key, row_key] = ["p", "{Name}"].map(|text| Template::parse(text).unwrap());
        let kind = ViewKind::Denormalize(Denormalize { target, partition_key, row_key, set: BTreeMap::new() });
        let view = View { kind, ..copies };
        let beginning: String = name.chars().take(length).collect();
        for term in [format!("Name={name}"), format!("Name^={beginning}")] {
            prop_assert_eq!(holding(&view, &[term], &employee(&name, 1, FIRST)), Some(1));
        }
        if !name.contains('/') {
            let key = EntityKey::new("p", name.clone()).unwrap();
            let plan = plan(&view, &[format!("Name={name}").parse().unwrap()]).unwrap();
            prop_assert_eq!(plan.ranges[0].point(), Some(key), "the very key");
        }
    }

    #[test]
    fn numbers_are_found_by_their_ranges(age in 0..2_000, from in 0..2_000, length in 1..2_000) {
        let before = from + length;
        let texts = [format!("Age>={from}"), format!("Age<{before}")];
        let found = holding(&view("p", "{Age|pad:4}_{RowKey}"), &texts, &employee("n", age, FIRST));
        prop_assert_eq!(found, Some(usize::from((from..before).contains(&age))));
    }

    #[test]
    fn moments_are_found_by_their_ranges(hired in 0..DAY * 90, from in 0..DAY * 90, length in 1..DAY * 60) {
        let before = from + length;
        let text = |ticks: i64| EdmDateTime::from_ticks(FIRST + ticks).unwrap().to_string();
        let texts = [format!("Hired>={}", text(from)), format!("Hired<{}", text(before))];
        let entity = employee("n", 1, FIRST + hired);
        let inside = (from..before).contains(&hired);
        prop_assert_eq!(holding(&view("p", "{Hired|inverted_ticks}"), &texts, &entity), Some(usize::from(inside)));
        // Whole days are compared: no row is missed, and additional rows belong to the first or
        // last day.
        let day = |ticks: i64| (FIRST + ticks) / DAY;
        let found = holding(&view("p", "{Hired|date:%Y-%m-%d}_{RowKey}"), &texts, &entity).unwrap();
        prop_assert_eq!(found, usize::from((day(from)..=day(before - 1)).contains(&day(hired))));
        prop_assert!(!inside || found == 1);
    }

    #[test]
    fn rendered_keys_are_found_by_their_values(name in any::<String>(), age in 0..i32::MAX) {
        prop_assume!(!name.is_empty() && name.len() < 80);
        let view = view("{Name|slug}_{Name|bucket:5}", "{Name|trim|upper}-{Age|pad:10}-{Name|hash:6}");
        let quoted = format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""));
        let value = if name.starts_with('"') { quoted } else { name.clone() };
        let found = holding(&view, &[format!("Name={value}"), format!("Age={age}")], &employee(&name, age, FIRST));
        prop_assert!(found.is_none_or(|found| found == 1));
    }

    #[test]
    fn every_legal_key_is_found_by_itself_and_by_its_prefixes(pk in "[a-c/%.~ 2Fé😀]{1,4}", rk in "[a-c/%.~ 2Fé😀]{1,4}", length in 1..5_usize) {
        let target = TableRef { account: AccountName::main(), table: TableName::new("Employees").unwrap() }.into();
        let beginning: String = rk.chars().take(length).collect();
        for row in [format!("RowKey={rk}"), format!("RowKey^={beginning}"), format!("RowKey>={rk}")] {
            let plan = plan_by_own_keys("the table".to_owned(), &target, &terms(&[&format!("PartitionKey={pk}"), &row]), false);
            match EntityKey::new(pk.clone(), rk.clone()) {
                Ok(key) => prop_assert_eq!(plan.unwrap().ranges.iter().filter(|range| finds(range, &key, bytewise)).count(), 1),
                Err(error) if !row.contains('^') => prop_assert!(plan.unwrap_err().to_string().contains(&error.to_string())),
                Err(_) => {}
            }
        }
    }

    #[test]
    fn arbitrary_terms_never_panic(text in any::<String>(), value in any::<String>(), op in "=|>=|<|\\^=") {
        let _ = text.parse::<Term>();
        for row_key in ["{Name}", "{Name|pad:5}", "{Name|inverted_ticks}", "{Name|date:%Y%m}", "{Name|lower}{Name|bucket:3}", "{Name|trim|date:%F}"] {
            if let Ok(term) = format!("Name{op}{value}").parse::<Term>() {
                let _ = plan(&view("p", row_key), &[term]).map_err(|error| error.to_string());
            }
        }
    }
}
