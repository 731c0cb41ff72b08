//! Evaluates a view on a sample of its table's primaries. The result shows the properties of the
//! view that no primary has. It also shows how many items the view and its recorded definition
//! derive.
//!
//! The configuration alone does not reveal a misspelt property, because a view with such a property
//! is valid. The view merely has no items. When a view is added, the result is shown to people. A
//! changed view is recorded only if its sample shows no loss, because items that the view no longer
//! derives are dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::derive;
use crate::catalog::{Catalog, View};
use crate::condition::{Condition, is_comparable};
use crate::nearest::nearest;
use crate::{Entity, ItemAddress, ViewName};

/// Primaries of one table, with the former and the current view of that table.
#[derive(Debug, Clone, Copy)]
pub struct SampledTable<'v> {
    /// The former view. `None` if no items can be lost, because the view is unchanged or has no
    /// items yet.
    pub former: Option<&'v View>,
    /// The current view; `None` if the view is retired.
    pub view: Option<&'v View>,
    /// The primaries.
    pub primaries: &'v [Entity],
}

/// The result of a view's sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ViewSample {
    /// The view.
    pub view: ViewName,
    /// The source of the view, as the configuration spells it.
    pub source: String,
    /// How many primaries were sampled.
    pub primaries: u64,
    /// Whether the sample contains all primaries of the source.
    pub whole: bool,
    /// The properties that the view names and no primary has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing_properties: Vec<MissingProperty>,
    /// The number of items that the recorded definition derives from the sample; absent if the
    /// definition is unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub items_before: Option<u64>,
    /// The number of items that the current definition derives from the sample.
    pub items: u64,
    /// The number of primaries for which the current definition failed to derive items.
    #[serde(skip_serializing_if = "is_none")]
    pub failed: u64,
    /// Whether the change would lose existing items: the view derives fewer than half of the former
    /// items, or a property that the change adds is missing.
    pub loss: bool,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
const fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A property that no primary of a sample has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MissingProperty {
    /// The property.
    pub property: String,
    /// A property of the primaries with a similar name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl ViewSample {
    /// Evaluates a view on these primaries. `whole` is whether they are all primaries of the
    /// source.
    pub fn of(name: &ViewName, source: String, whole: bool, tables: &[SampledTable<'_>]) -> Self {
        let (mut now, mut before) = (DerivedItems::default(), DerivedItems::default());
        let (mut names, mut newly, mut primaries) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut is_compared = false;
        for table in tables {
            primaries += table.primaries.len() as u64;
            if let Some(view) = table.view {
                now.add(view, table.primaries);
                names.extend(view.properties());
            }
            if let Some(former) = table.former {
                is_compared = true;
                before.add(former, table.primaries);
                newly.extend(
                    table
                        .view
                        .into_iter()
                        .flat_map(View::properties)
                        .filter(|name| !former.properties().contains(name)),
                );
            }
        }
        let missing_properties = missing_properties(names, tables);
        let (items, items_before) = (now.items.len() as u64, before.items.len() as u64);
        let is_new = |missing_properties: &MissingProperty| {
            newly.contains(missing_properties.property.as_str())
        };
        let fell = is_compared
            && items_before > 0
            && (items * 2 < items_before || missing_properties.iter().any(is_new));
        let is_retired = tables.iter().all(|table| table.view.is_none());
        Self {
            view: name.clone(),
            source,
            primaries,
            whole,
            loss: !is_retired && fell,
            missing_properties,
            items_before: is_compared.then_some(items_before),
            items,
            failed: now.failed,
        }
    }

    /// Whether a person should check the view.
    pub const fn is_suspect(&self) -> bool {
        self.loss || !self.missing_properties.is_empty()
    }

    fn sample(&self) -> String {
        let all = if self.whole { "the " } else { "" };
        format!("{all}{} {}", with_thousands(self.primaries), self.source)
    }

    /// The numbers of items before and now as text. `None` if there is no former view to compare
    /// with, or if there are no primaries.
    pub fn numbers(&self) -> Option<String> {
        let before = self.items_before.filter(|_| self.primaries > 0)?;
        let failed = if self.failed > 0 {
            format!(
                "; the items of {} could not be derived",
                with_thousands(self.failed)
            )
        } else {
            String::new()
        };
        Some(format!(
            "{0} get {2} items instead of {1}{failed}",
            self.sample(),
            with_thousands(before),
            with_thousands(self.items)
        ))
    }
}

/// Writes the missing properties. The numbers of items are added if there are no missing
/// properties, or if the change would lose items.
impl fmt::Display for ViewSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view {}: ", self.view)?;
        for (
            at,
            MissingProperty {
                property,
                suggestion,
            },
        ) in self.missing_properties.iter().enumerate()
        {
            let comma = if at > 0 { "; " } else { "" };
            write!(f, "{comma}none of {} has `{property}`", self.sample())?;
            if let Some(suggestion) = suggestion {
                write!(f, "; did you mean `{suggestion}`?")?;
            }
        }
        match self.numbers() {
            Some(numbers) if self.missing_properties.is_empty() => f.write_str(&numbers),
            Some(numbers) if self.loss => write!(f, " ({numbers})"),
            Some(_) | None => Ok(()),
        }
    }
}

#[derive(Default)]
struct DerivedItems {
    items: BTreeSet<ItemAddress>,
    failed: u64,
}

impl DerivedItems {
    /// Adds the items of some primaries. Two primaries that derive the same address count as one
    /// item. Two members of one list count as two items.
    fn add(&mut self, view: &View, primaries: &[Entity]) {
        let alone = single_view_catalog(view);
        for primary in primaries {
            match derive(&alone, &view.source, Some(primary)) {
                Ok(derived) => {
                    self.failed += u64::from(!derived.failed.is_empty());
                    self.items.extend(derived.items.into_keys());
                }
                Err(_) => self.failed += 1,
            }
        }
    }
}

/// A catalog that contains only this view.
pub fn single_view_catalog(view: &View) -> Catalog {
    Catalog {
        views: [(view.name.clone(), view.clone().into())].into(),
        ..Catalog::default()
    }
}

fn missing_properties(
    mut names: BTreeSet<&str>,
    tables: &[SampledTable<'_>],
) -> Vec<MissingProperty> {
    let primaries = || tables.iter().flat_map(|table| table.primaries);
    if primaries().next().is_none() {
        return Vec::new();
    }
    let there: BTreeSet<&str> = primaries()
        .flat_map(|primary| primary.properties.keys())
        .map(String::as_str)
        .collect();
    names.retain(|name| {
        !there.contains(name) && !["PartitionKey", "RowKey", "Timestamp"].contains(name)
    });
    let suggestion = |name: &str| nearest(name, there.iter().copied()).map(str::to_owned);
    names
        .into_iter()
        .map(|name| MissingProperty {
            property: name.to_owned(),
            suggestion: suggestion(name),
        })
        .collect()
}

/// Probable mistakes in a condition, found on some primaries of a table: no primary has a property
/// of the condition, or the values of a property have a type that cannot be compared with the
/// values in the condition. Such a comparison is false without an error, and its negation is true.
pub fn unmet(table: &str, condition: &Condition, primaries: &[Entity]) -> Vec<String> {
    let sampled = SampledTable {
        former: None,
        view: None,
        primaries,
    };
    let sample = format!("{} {table}", with_thousands(primaries.len() as u64));
    let mut words: Vec<String> = missing_properties(condition.properties(), &[sampled])
        .into_iter()
        .map(
            |MissingProperty {
                 property,
                 suggestion,
             }| {
                let suggestion = suggestion
                    .map(|suggestion| format!("; did you mean `{suggestion}`?"))
                    .unwrap_or_default();
                format!("none of {sample} has `{property}`{suggestion}")
            },
        )
        .collect();
    let operands = condition.operands();
    for property in operands
        .iter()
        .map(|(property, _)| *property)
        .collect::<BTreeSet<_>>()
    {
        let wanted: Vec<_> = operands
            .iter()
            .filter(|(name, _)| *name == property)
            .map(|(_, value)| value)
            .collect();
        let mut unlike: BTreeMap<&str, u64> = BTreeMap::new();
        let found = primaries.iter().filter_map(|primary| primary.get(property));
        for value in found.filter(|value| !wanted.iter().any(|wanted| is_comparable(value, wanted)))
        {
            *unlike.entry(value.type_name()).or_default() += 1;
        }
        if !unlike.is_empty() {
            let found: Vec<String> = unlike
                .iter()
                .map(|(kind, count)| format!("{kind} in {}", with_thousands(*count)))
                .collect();
            let kinds: BTreeSet<&str> = wanted.iter().map(|value| value.type_name()).collect();
            let kinds = kinds.into_iter().collect::<Vec<_>>().join(" or ");
            words.push(format!(
                "`{property}` is {} of {sample}: it cannot be compared with {kinds}",
                found.join(" and ")
            ));
        }
    }
    words
}

fn with_thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Definition, TableRef};
    use crate::{AccountName, EntityKey, TableName};

    fn orders() -> TableRef {
        TableRef {
            account: AccountName::main(),
            table: TableName::new("Orders").unwrap(),
        }
    }

    fn view(keys: &str) -> View {
        let definition: Definition = serde_json::from_str(keys).unwrap();
        View::recorded(&ViewName::new("by_status").unwrap(), &orders(), &definition).unwrap()
    }

    fn index(partition_key: &str, more: &str) -> View {
        view(&format!(
            r#"{{"kind":"secondary_index","table":"main/index","partition_key":"{partition_key}","row_key":"{{PartitionKey}}_{{RowKey}}"{more}}}"#
        ))
    }

    fn primaries(count: usize) -> Vec<Entity> {
        let order = |n: usize| {
            Entity::new(EntityKey::new("c", format!("{n:04}")).unwrap()).with("Total", 5)
        };
        (0..count)
            .map(|n| order(n).with("Status", if n % 3 == 0 { "open" } else { "done" }))
            .collect()
    }

    fn sample(former: Option<&View>, view: Option<&View>, primaries: &[Entity]) -> ViewSample {
        let name = ViewName::new("by_status").unwrap();
        ViewSample::of(
            &name,
            "Orders".to_owned(),
            false,
            &[SampledTable {
                former,
                view,
                primaries,
            }],
        )
    }

    #[test]
    fn a_misspelt_property_is_reported_wherever_it_is_named() {
        let (primaries, good) = (primaries(1000), index("{Status|slug}", ""));
        let set = r#"{"kind":"denormalize","table":"main/targets","partition_key":"{Status}","row_key":"x","set":{"Of":"{Totla} EUR"}}"#;
        let cases = [
            (
                index("{Satus|slug}", ""),
                "none of 1,000 Orders has `Satus`; did you mean `Status`?",
            ),
            (
                index("{Status|slug}", r#","select":["Totl"]"#),
                "none of 1,000 Orders has `Totl`; did you mean `Total`?",
            ),
            (
                index("{Status|slug}", r#","when":"exists(Colour)""#),
                "none of 1,000 Orders has `Colour`",
            ),
            (
                view(set),
                "none of 1,000 Orders has `Totla`; did you mean `Total`?",
            ),
        ];
        for (wrong, expected) in cases {
            let changed = sample(Some(&good), Some(&wrong), &primaries);
            assert!(
                changed.loss && changed.to_string().contains(expected),
                "{changed}"
            );
            let added = sample(None, Some(&wrong), &primaries);
            assert!(
                !added.loss && added.is_suspect() && added.to_string().contains(expected),
                "{added}"
            );
        }
    }

    #[test]
    fn what_a_condition_never_matches_is_reported() {
        let ended = |n: i64| {
            let entity =
                Entity::new(EntityKey::new("c", format!("{n:02}")).unwrap()).with("Total", 5);
            match n % 4 {
                0 | 1 => entity.with(
                    "Ended",
                    crate::EdmDateTime::parse("2020-01-01T00:00:00Z").unwrap(),
                ),
                2 => entity.with("Ended", "2020-01-01T00:00:00Z"),
                _ => entity.with("Ended", 1_577_836_800_i64),
            }
        };
        let primaries: Vec<Entity> = (0..8).map(ended).collect();
        let reported =
            |text: &str| unmet("Sessions", &Condition::parse(text).unwrap(), &primaries).join("; ");
        assert_eq!(
            reported("Endde < datetime'2021-01-01T00:00:00Z'"),
            "none of 8 Sessions has `Endde`; did you mean `Ended`?"
        );
        let unlike = "`Ended` is Edm.Int64 in 2 and Edm.String in 2 of 8 Sessions: it cannot be compared with Edm.DateTime";
        assert_eq!(
            reported("not (Ended > datetime'2021-01-01T00:00:00Z')"),
            unlike
        );
        assert_eq!(
            reported("Total in [5, 5.5] and exists(Ended) and PartitionKey == \"c\""),
            "",
            "numbers compare, whatever their type"
        );
        assert!(
            reported("startsWith(Total, \"5\")")
                .contains("`Total` is Edm.Int32 in 8 of 8 Sessions")
        );
        assert_eq!(
            unmet("Sessions", &Condition::parse("Endde == 1").unwrap(), &[]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn items_may_fall_by_half_but_no_more() {
        let (primaries, all) = (primaries(999), index("{Status}", ""));
        let open = index("{Status}", r#","when":"Status == \"open\"""#);
        let done = index("{Status}", r#","when":"Status == \"done\"""#);
        let fell = sample(Some(&all), Some(&open), &primaries);
        assert_eq!(
            (fell.items_before, fell.items, fell.loss),
            (Some(999), 333, true)
        );
        assert_eq!(
            fell.to_string(),
            "view by_status: 999 Orders get 333 items instead of 999"
        );
        assert!(!sample(Some(&all), Some(&done), &primaries).loss);
        assert!(!sample(Some(&done), Some(&all), &primaries).loss);
        // The key contains only the status, which has two values, so all primaries together have
        // two items.
        let one = view(
            r#"{"kind":"secondary_index","table":"main/index","partition_key":"all","row_key":"{Status}"}"#,
        );
        assert_eq!(sample(Some(&all), Some(&one), &primaries).items, 2);
        assert!(sample(Some(&all), Some(&one), &primaries).loss);
    }

    #[test]
    fn a_change_is_not_blamed_for_earlier_gaps_or_missing_primaries() {
        let (primaries, sparse) = (primaries(10), index("{Status}", r#","select":["Remark"]"#));
        let changed = sample(
            Some(&sparse),
            Some(&index("{Status|upper}", r#","select":["Remark"]"#)),
            &primaries,
        );
        assert!(
            !changed.loss && changed.is_suspect(),
            "the property was missing before, too: {changed}"
        );
        let empty = index("{Remark}", "");
        assert!(
            !sample(Some(&empty), Some(&index("{Satus}", "")), &primaries).loss,
            "there are no items to lose"
        );
        assert!(
            !sample(Some(&sparse), Some(&index("{Satus}", "")), &[]).is_suspect(),
            "nor primaries"
        );
    }

    #[test]
    fn a_retired_view_is_shown_with_its_item_count() {
        let retired = sample(Some(&index("{Status}", "")), None, &primaries(1200));
        assert_eq!(
            (retired.loss, retired.numbers().unwrap()),
            (
                false,
                "1,200 Orders get 0 items instead of 1,200".to_owned()
            )
        );
    }
}
