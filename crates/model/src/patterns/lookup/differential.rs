//! Compares lookups with a plain comparison of typed values. A lookup must find the same rows, or
//! be refused.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use unicode_normalization::UnicodeNormalization as _;
use uuid::Uuid;

use super::tests::{Order, bytewise, finds, view_of};
use super::{Term, TermOp, plan};
use crate::catalog::View;
use crate::condition::compare_by_value;
use crate::key::service_order;
use crate::template::{Escaping, Template, escape};
use crate::{EdmDateTime, EdmValue, Entity, EntityKey};

/// Texts without quotes, each with the value of another type that the text spells.
fn spellings() -> Vec<(String, Option<EdmValue>)> {
    let mut all: Vec<(String, Option<EdmValue>)> = Vec::new();
    let noon = EdmDateTime::parse("2026-11-20T12:00:00Z").unwrap().ticks();
    let (second, hour) = (10_000_000_i64, 36_000_000_000_i64);
    for off in [0, 1, -1, 5_000_000, second, -hour, 13 * hour] {
        let moment = EdmDateTime::from_ticks(noon + off).unwrap();
        let later = EdmDateTime::from_ticks(noon + off + hour)
            .unwrap()
            .to_string();
        let mut texts = vec![
            written(&moment.into()),
            moment.to_string(),
            moment.to_string().replace('Z', "+00:00"),
            later.replace('Z', "+01:00"),
            moment.to_string().replace('Z', ""),
        ];
        if off % 10_000 == 0 {
            texts.push(format!(
                "{}.{:03}Z",
                &moment.to_string()[..19],
                off.rem_euclid(second) / 10_000
            ));
        }
        all.extend(texts.into_iter().map(|text| (text, Some(moment.into()))));
    }
    for number in [
        0x0f8f_ad5b_d9cb_469f_a165_7086_7728_950e_u128,
        1 << 100,
        u128::MAX,
    ] {
        let guid = Uuid::from_u128(number);
        for text in [
            guid.to_string(),
            guid.to_string().to_uppercase(),
            format!("{{{guid}}}"),
            guid.simple().to_string(),
        ] {
            all.push((text, Some(EdmValue::Guid(guid))));
        }
    }
    for (text, truth) in [
        ("true", true),
        ("True", true),
        ("false", false),
        ("FALSE", false),
    ] {
        all.push((text.to_owned(), Some(truth.into())));
    }
    for (text, number) in [
        ("0", 0),
        ("7", 7),
        ("007", 7),
        ("9", 9),
        ("10", 10),
        ("12.0", 12),
        ("+12", 12),
        ("-5", -5),
        ("1e3", 1_000),
    ] {
        all.push((text.to_owned(), Some(EdmValue::Int64(number))));
    }
    for (text, number) in [("9.5", 9.5), ("-5.25", -5.25), ("1e300", 1e300)] {
        all.push((text.to_owned(), Some(EdmValue::Double(number))));
    }
    for text in [
        "Jon",
        "Jon ",
        " Jon Doe",
        "Jonas",
        "jonas",
        "JON DOE",
        "Kim-Lee",
        "a/b",
        "a-b",
        "a%2Fb",
        "é",
        "😀",
        "2026-11",
        "x 9",
        "Straße",
        "José",
        "Jose\u{301}",
    ] {
        all.push((text.to_owned(), None));
    }
    all
}

/// Values of rows: values of every type, and every text as a string.
fn values() -> Vec<EdmValue> {
    let mut all: Vec<EdmValue> = Vec::new();
    for (text, value) in spellings() {
        all.push(text.into());
        all.extend(value.filter(|value| !all.contains(value)));
    }
    all.extend([0, 7, 10, 99, -5].map(EdmValue::Int32));
    all.extend([i64::MAX, i64::MIN, 1 << 53, (1 << 53) + 1].map(EdmValue::Int64));
    all.extend(
        [
            -0.0,
            7.0,
            9.75,
            f64::INFINITY,
            f64::NEG_INFINITY,
            9_007_199_254_740_992.0,
            f64::NAN,
        ]
        .map(EdmValue::Double),
    );
    for end in ["1601-01-01T00:00:00Z", "9999-12-31T23:59:59.9999999Z"] {
        all.push(EdmDateTime::parse(end).unwrap().into());
    }
    // More values of each type, from a fixed seed.
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for _ in 0..5 {
        let number = i64::try_from(random() % 20_000).unwrap() - 10_000;
        all.push(EdmValue::Int64(number));
        all.push(EdmValue::Double(
            f64::from(i32::try_from(number).unwrap()) / 8.0,
        ));
        all.push(
            EdmDateTime::from_ticks(638_000_000_000_000_000 + number * 1_000_003)
                .unwrap()
                .into(),
        );
        all.push(EdmValue::Guid(Uuid::from_u64_pair(random(), random())));
        all.push(number.to_string().into());
    }
    all
}

/// The text of a value in keys. A Double has no such text, so the tests leave doubles out if a text
/// is needed.
fn written(value: &EdmValue) -> String {
    match value {
        EdmValue::String(text) => text.clone(),
        EdmValue::Bool(truth) => truth.to_string(),
        EdmValue::Int32(number) => number.to_string(),
        EdmValue::Int64(number) => number.to_string(),
        EdmValue::Double(number) => format!("{number:e}"),
        EdmValue::Guid(guid) => guid.to_string().to_lowercase(),
        EdmValue::DateTime(moment) => {
            let second = EdmDateTime::from_ticks(moment.ticks() / 10_000_000 * 10_000_000)
                .unwrap()
                .to_string();
            format!("{}.{:07}Z", &second[..19], moment.ticks() % 10_000_000)
        }
        EdmValue::Binary(_) => unreachable!("no row has one"),
    }
}

/// The parts of a term.
struct TestTerm {
    op: TermOp,
    text: String,
    /// The value of another type that the text spells.
    value: Option<EdmValue>,
}

impl TestTerm {
    /// Whether the term accepts a row. `order` is the result of comparing the row's value with the
    /// term's value.
    fn by(&self, order: Ordering) -> bool {
        match self.op {
            TermOp::Equal => order.is_eq(),
            TermOp::AtLeast => order.is_ge(),
            TermOp::Less => order.is_lt(),
            TermOp::Prefix => false,
        }
    }
}

/// A row's value, the text of this value in keys, and a moment: the value itself, or the moment
/// that a string spells.
struct RowValue {
    value: EdmValue,
    text: String,
    moment: Option<EdmDateTime>,
}

impl RowValue {
    fn new(value: &EdmValue) -> Self {
        let moment = match value {
            EdmValue::DateTime(moment) => Some(*moment),
            EdmValue::String(text) => EdmDateTime::parse(text).ok(),
            _ => None,
        };
        Self {
            value: value.clone(),
            text: written(value),
            moment,
        }
    }

    /// The moment, if keys contain it with the same text as the row's value.
    fn in_keys(&self) -> Option<EdmDateTime> {
        self.moment
            .filter(|moment| written(&(*moment).into()) == self.text)
    }
}

/// Whether a row belongs to a lookup by a field that is ordered as text. `make` applies the field's
/// filters to a text. `rest` is the part of the key after the field. The comparison includes this
/// part.
fn by_text(
    row: &RowValue,
    requested: &TestTerm,
    make: &dyn Fn(&str) -> String,
    rest: &str,
) -> bool {
    let (found, wanted) = (make(&row.text), make(&requested.text));
    let as_text = || {
        requested.by(format!("{}{rest}", escape(&found))
            .as_str()
            .cmp(escape(&wanted).as_str()))
    };
    match (requested.op, &requested.value) {
        (TermOp::Equal, spelled) => {
            found == wanted
                || spelled
                    .iter()
                    .any(|spelled| found == make(&written(spelled)))
        }
        // A text that looks like a moment in keys is compared as a moment.
        (_, Some(EdmValue::DateTime(bound))) => row
            .in_keys()
            .map_or_else(as_text, |moment| requested.by(moment.cmp(bound))),
        (_, Some(bound)) => {
            compare_by_value(&row.value, bound).map_or_else(as_text, |order| requested.by(order))
        }
        (_, None) => as_text(),
    }
}

fn composed(text: &str) -> String {
    text.nfc().collect()
}

fn number(value: &EdmValue) -> Option<EdmValue> {
    match value {
        EdmValue::Int32(_) | EdmValue::Int64(_) | EdmValue::Double(_) => Some(value.clone()),
        EdmValue::String(text) => match text.parse::<i64>() {
            Ok(integer) => Some(EdmValue::Int64(integer)),
            Err(_) => text.parse().ok().map(EdmValue::Double),
        },
        _ => None,
    }
}

/// Whether a row belongs to a lookup, determined by plain comparison. `None` if the filters do not
/// keep the order, so that the lookup must be refused.
fn belongs(filters: &str, row: &RowValue, requested: &TestTerm, rest: &str) -> Option<bool> {
    let texts = |make: &dyn Fn(&str) -> String| Some(by_text(row, requested, make, rest));
    let begins = |beginning: &str, make: &dyn Fn(&str) -> String| {
        Some(format!("{}{rest}", escape(&make(&row.text))).starts_with(&escape(&make(beginning))))
    };
    let is_prefix = requested.op == TermOp::Prefix;
    let spelled = || {
        requested
            .value
            .clone()
            .unwrap_or_else(|| requested.text.as_str().into())
    };
    let moments = || row.moment.zip(RowValue::new(&spelled()).moment);
    match filters {
        "" | "each" if is_prefix => begins(&requested.text, &str::to_owned),
        "" | "each" => texts(&str::to_owned),
        "lower" | "each|lower" if is_prefix => begins(&requested.text, &str::to_lowercase),
        "lower" | "each|lower" => texts(&str::to_lowercase),
        "upper" if is_prefix => begins(&requested.text, &str::to_uppercase),
        "upper" => texts(&str::to_uppercase),
        "nfc" if is_prefix => begins(&requested.text, &composed),
        "nfc" => texts(&composed),
        // White space at the start is trimmed from the value and the prefix. White space at the end
        // of the prefix is part of the prefix.
        "trim" | "trim|lower" if is_prefix => {
            let case = |text: &str| {
                if filters == "trim" {
                    text.to_owned()
                } else {
                    text.to_lowercase()
                }
            };
            let whole = format!("{}{rest}", escape(&case(row.text.trim())));
            Some(whole.starts_with(&escape(&case(requested.text.trim_start()))))
        }
        "trim" => texts(&|text| text.trim().to_owned()),
        "trim|lower" => texts(&|text| text.trim().to_lowercase()),
        "pad:4" | "sortable" | "trim|sortable" if !is_prefix => {
            let compared = compare_by_value(&number(&row.value)?, &number(&spelled())?);
            Some(compared.is_some_and(|order| requested.by(order)))
        }
        "inverted_ticks" | "trim|inverted_ticks" if !is_prefix => {
            moments().map(|(found, wanted)| requested.by(found.cmp(&wanted)))
        }
        // Dates are compared by whole days.
        "date:%Y%m%d" if !is_prefix => moments().map(|(found, wanted)| {
            let day = |ticks: i64| ticks / 864_000_000_000;
            match requested.op {
                TermOp::Less => day(found.ticks()) <= day(wanted.ticks() - 1),
                _ => requested.by(day(found.ticks()).cmp(&day(wanted.ticks()))),
            }
        }),
        _ if requested.op != TermOp::Equal => None,
        "date:%d%m%Y" => moments().map(|(found, wanted)| {
            found.ticks() / 864_000_000_000 == wanted.ticks() / 864_000_000_000
        }),
        "hash:64" => texts(&str::to_owned),
        "slug" => texts(&|text| {
            text.to_lowercase()
                .split(|c: char| !c.is_alphanumeric())
                .filter(|part| !part.is_empty())
                .collect::<Vec<_>>()
                .join("-")
        }),
        "after:-" => texts(&|text| {
            text.split_once('-')
                .map_or(String::new(), |(_, after)| after.to_owned())
        }),
        "before:-" => texts(&|text| {
            text.split_once('-')
                .map_or(String::new(), |(before, _)| before.to_owned())
        }),
        "after_last:-" => texts(&|text| {
            text.rsplit_once('-')
                .map_or(String::new(), |(_, after)| after.to_owned())
        }),
        "before_last:-" => texts(&|text| {
            text.rsplit_once('-')
                .map_or(String::new(), |(before, _)| before.to_owned())
        }),
        "pad:4" | "sortable" | "inverted_ticks" => None,
        other => unreachable!("{other}"),
    }
}

struct KeyedView {
    view: View,
    /// For each row: the value, the key, and the part of the key after the field.
    rows: Vec<(RowValue, EntityKey, String)>,
}

impl KeyedView {
    fn of(partition_key: &str, row_key: &str, filters: &str, values: &[EdmValue]) -> Self {
        let view = view_of(
            Template::parse_row_key(partition_key).unwrap(),
            Template::parse_row_key(row_key).unwrap(),
        );
        let rows = view.rows().unwrap();
        let mut found = Vec::new();
        for (at, value) in values.iter().enumerate() {
            // Lists contain only texts, integers and Booleans.
            if filters.starts_with("each")
                && !matches!(
                    value,
                    EdmValue::String(_) | EdmValue::Int64(_) | EdmValue::Bool(_)
                )
            {
                continue;
            }
            let id = format!("{at:03}");
            let entity = Entity::new(EntityKey::new("e", id.as_str()).unwrap());
            let render = |template: &Template| {
                template.render_with_value(Escaping::Always, &entity, "P", value)
            };
            if let (Ok(Some(pk)), Ok(Some(rk))) = (render(rows.partition_key), render(rows.row_key))
            {
                let rest = if row_key.ends_with("_{RowKey}") {
                    format!("_{id}")
                } else {
                    String::new()
                };
                found.push((RowValue::new(value), EntityKey { pk, rk }, rest));
            }
        }
        Self { view, rows: found }
    }
}

const FILTERS: [&str; 21] = [
    "",
    "lower",
    "upper",
    "trim",
    "trim|lower",
    "nfc",
    "each",
    "each|lower",
    "pad:4",
    "sortable",
    "trim|sortable",
    "inverted_ticks",
    "trim|inverted_ticks",
    "date:%Y%m%d",
    "date:%d%m%Y",
    "hash:64",
    "slug",
    "after:-",
    "before:-",
    "after_last:-",
    "before_last:-",
];

fn requested_terms() -> Vec<(TestTerm, String)> {
    let mut all = Vec::new();
    for op in [TermOp::Equal, TermOp::AtLeast, TermOp::Less, TermOp::Prefix] {
        for (text, value) in spellings() {
            if op == TermOp::Prefix {
                for length in [1, 4, text.chars().count()] {
                    let beginning: String = text.chars().take(length).collect();
                    all.push((
                        TestTerm {
                            op,
                            text: beginning.clone(),
                            value: None,
                        },
                        format!("P^={beginning}"),
                    ));
                }
                continue;
            }
            if op != TermOp::Less {
                all.push((
                    TestTerm {
                        op,
                        text: text.clone(),
                        value: None,
                    },
                    format!("P{}{text:?}", op.text()),
                ));
            }
            all.push((
                TestTerm {
                    op,
                    text: text.clone(),
                    value,
                },
                format!("P{}{text}", op.text()),
            ));
        }
    }
    all
}

#[test]
fn a_lookup_matches_a_comparison_of_values_or_is_refused() {
    let (values, requested_terms) = (values(), requested_terms());
    let orders: [Order; 2] = [bytewise, service_order];
    let mut answered: BTreeMap<(&str, TermOp), usize> = BTreeMap::new();
    for filters in FILTERS {
        let field = if filters.is_empty() {
            "{P}".to_owned()
        } else {
            format!("{{P|{filters}}}")
        };
        let keys = [
            ("p", field.clone()),
            ("p", format!("a_{field}_{{RowKey}}")),
            (field.as_str(), "x".to_owned()),
        ];
        // Partition keys behave like row keys, so two of the filters are enough for partition keys.
        let shapes = if matches!(filters, "" | "sortable") {
            3
        } else {
            2
        };
        for (partition_key, row_key) in &keys[..shapes] {
            let keyed = KeyedView::of(partition_key, row_key, filters, &values);
            for (requested, term) in &requested_terms {
                let parsed: Term = term.parse().unwrap();
                let expected: Vec<Option<bool>> = keyed
                    .rows
                    .iter()
                    .map(|(row, _, rest)| belongs(filters, row, requested, rest))
                    .collect();
                match plan(&keyed.view, &[parsed]) {
                    Err(error) => {
                        // Every row must be found by a term with `=`. A quoted text is an
                        // exception, because `pad` may refuse it.
                        let is_missed = requested.op == TermOp::Equal
                            && !term.ends_with('"')
                            && expected.contains(&Some(true));
                        assert!(
                            !is_missed,
                            "{term} in {partition_key} and {row_key}: {error}"
                        );
                    }
                    Ok(plan) => {
                        *answered.entry((filters, requested.op)).or_default() += 1;
                        for ((row, key, _), expected) in keyed.rows.iter().zip(expected) {
                            for order in orders {
                                let count = plan
                                    .ranges
                                    .iter()
                                    .filter(|range| finds(range, key, order))
                                    .count();
                                let wanted = usize::from(expected.unwrap_or_default());
                                assert_eq!(
                                    count, wanted,
                                    "{:?} by {term} in {partition_key} and {row_key}",
                                    row.value
                                );
                            }
                        }
                    }
                }
            }
        }
    }
    for filters in FILTERS {
        let is_ordered = !matches!(
            filters,
            "date:%d%m%Y"
                | "hash:64"
                | "slug"
                | "after:-"
                | "before:-"
                | "after_last:-"
                | "before_last:-"
        );
        let is_text = matches!(
            filters,
            "" | "lower" | "upper" | "trim" | "trim|lower" | "nfc" | "each" | "each|lower"
        );
        for (op, is_answered) in [
            (TermOp::Equal, true),
            (TermOp::AtLeast, is_ordered),
            (TermOp::Less, is_ordered),
            (TermOp::Prefix, is_text),
        ] {
            assert_eq!(
                answered.contains_key(&(filters, op)),
                is_answered,
                "{filters} {}",
                op.text()
            );
        }
    }
}
