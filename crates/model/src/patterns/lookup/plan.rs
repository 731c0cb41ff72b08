//! Plans lookups.

use std::collections::BTreeSet;
use std::fmt;

use super::error::LookupError;
use super::heads::{KeyHead, KeyHeads, Overlap};
use super::moment_bound::MomentBound;
use super::prefix::Prefix;
use super::range::{KeyField, TextBounds};
use super::span::{KeyCheck, KeyRange, Span};
use super::term::{Term, TermOp, Values, with_each};
use crate::catalog::{RowForm, TargetRef, View};
use crate::key::sorts_before_everywhere;
use crate::template::{Escaping, Field, KeyFilter, Template, TemplatePart};
use crate::{AccountName, Key};

/// Maximum number of requests in one lookup.
const MAX_RANGES: usize = 1_000;

/// The key ranges that hold the rows of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LookupPlan {
    /// The table of the rows.
    pub table: TargetRef,
    /// The ranges to query; each takes one or more requests. No two ranges of one account overlap.
    /// A range that may span several partitions appears once for each account.
    pub ranges: Vec<KeyRange>,
    /// The most expensive query class of the ranges.
    pub class: QueryClass,
}

/// The cost class of a query, named as in the table design guide of Azure Storage. The classes are
/// sorted by cost, and the cheapest comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryClass {
    /// The query has both keys and reads one entity.
    Point,
    /// The query reads a range of the rows of one partition.
    Range,
    /// The query reads all rows of one partition.
    PartitionScan,
    /// The query reads more than one partition.
    TableScan,
}

impl fmt::Display for QueryClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Point => "point query",
            Self::Range => "range query",
            Self::PartitionScan => "partition scan",
            Self::TableScan => "table scan",
        })
    }
}

/// Plans a lookup in a view.
pub fn plan(view: &View, terms: &[Term]) -> Result<LookupPlan, LookupError> {
    let what = described(view);
    let Some(rows) = view.rows() else {
        return Err(LookupError::NoRows { what });
    };
    PlannedLookup { what, rows, terms }.plan(false)
}

/// Plans a lookup of a table's rows by their own keys. A lookup without a term for the
/// `PartitionKey` is a table scan, which `scan` must allow.
pub fn plan_by_own_keys(
    what: String,
    table: &TargetRef,
    terms: &[Term],
    scan: bool,
) -> Result<LookupPlan, LookupError> {
    let [partition_key, row_key] = ["PartitionKey", "RowKey"].map(Template::of_property);
    let rows = RowForm {
        target: table,
        partition_key: &partition_key,
        row_key: &row_key,
        escaping: Escaping::Never,
    };
    if !scan && terms.iter().all(|term| term.property == "RowKey") {
        return Err(LookupError::Whole { what });
    }
    PlannedLookup { what, rows, terms }.plan(scan)
}

pub(super) fn described(view: &View) -> String {
    format!("view {}", view.name)
}

struct PlannedLookup<'a> {
    /// The view, archive or table, as text for messages.
    what: String,
    rows: RowForm<'a>,
    terms: &'a [Term],
}

struct KnownKey<'a> {
    /// The known starts of the key: one start, or one for each possible bucket if a bucket is
    /// unknown.
    heads: Vec<String>,
    /// The known start of the key without the unknown buckets.
    bare: String,
    is_bucketed: bool,
    /// The bounds of the text after the known start; `None` if the heads are whole keys.
    rest: Option<TextBounds>,
    /// The field at which the known part ends.
    stopped: Option<&'a Field>,
    /// The properties whose terms are used in the key.
    used: BTreeSet<&'a str>,
}

impl<'a> PlannedLookup<'a> {
    fn plan(self, may_scan: bool) -> Result<LookupPlan, LookupError> {
        self.check_terms()?;
        let mut ranges: Vec<KeyRange> = Vec::new();
        let mut heads = KeyHeads::default();
        for values in self.values()? {
            let partition = self.known(self.rows.partition_key, &values)?;
            let row = self.known(self.rows.row_key, &values)?;
            if !may_scan {
                self.check_partition(&partition)?;
            }
            for term in self.terms {
                if !partition.used.contains(term.property.as_str())
                    && !row.used.contains(term.property.as_str())
                {
                    return Err(self.unused(term, &partition, &row));
                }
            }
            self.add_ranges(&mut ranges, &mut heads, &partition, &row)?;
        }
        let class = ranges.iter().map(class).max().unwrap_or(QueryClass::Point);
        Ok(LookupPlan {
            table: self.rows.target.clone(),
            ranges,
            class,
        })
    }

    /// Adds the ranges for a partition key and a row key. Ranges that are contained in ranges of
    /// other values are left out.
    fn add_ranges(
        &self,
        ranges: &mut Vec<KeyRange>,
        heads: &mut KeyHeads,
        partition: &KnownKey<'_>,
        row: &KnownKey<'_>,
    ) -> Result<(), LookupError> {
        let target = self.rows.target;
        // A partition whose key is fully known is in one account. Other partitions may be in any
        // account.
        let accounts = if partition.rest.is_some() {
            target.accounts.iter().count()
        } else {
            1
        };
        let count = ranges.len() + partition.heads.len() * row.heads.len() * accounts;
        if count > MAX_RANGES {
            return Err(LookupError::TooMany {
                what: self.what.clone(),
                count,
                max: MAX_RANGES,
            });
        }
        let others = heads.0.len();
        for partition_head in &partition.heads {
            for row_head in &row.heads {
                let known = [(partition_head, &partition.rest), (row_head, &row.rest)]
                    .map(|(head, rest)| KeyHead::new(head, rest.as_ref()));
                match heads.overlap(&known, others) {
                    Overlap::Disjoint => {}
                    Overlap::Contained => continue,
                    Overlap::Partial => return Err(self.value(self.across())),
                }
                heads.0.push(known);
                let (partitions, partition_check) = self.span(partition_head, partition)?;
                let (rows, row_check) = self.span(row_head, row)?;
                let holders: Vec<&AccountName> = match &partitions {
                    Span::Exactly(pk) => vec![target.accounts.holder(pk.as_str())],
                    Span::Between { .. } => target.accounts.iter().collect(),
                };
                ranges.extend(holders.into_iter().map(|account| KeyRange {
                    account: account.clone(),
                    partitions: partitions.clone(),
                    rows: rows.clone(),
                    partition_check: partition_check.clone(),
                    row_check: row_check.clone(),
                    is_bucket: partition.is_bucketed || row.is_bucketed,
                }));
            }
        }
        Ok(())
    }

    /// Two terms of one property must have different operators, and a property with an `=` term
    /// must not have another term.
    fn check_terms(&self) -> Result<(), LookupError> {
        for (at, first) in self.terms.iter().enumerate() {
            for second in self.terms[at + 1..]
                .iter()
                .filter(|second| second.property == first.property)
            {
                if first.op == second.op || first.op == TermOp::Equal || second.op == TermOp::Equal
                {
                    return Err(LookupError::Contradiction {
                        first: first.to_string(),
                        second: second.to_string(),
                    });
                }
            }
        }
        Ok(())
    }

    fn fields(&self, property: &str) -> impl Iterator<Item = KeyField<'a>> {
        let escaping = self.rows.escaping;
        let fields = [self.rows.partition_key, self.rows.row_key]
            .into_iter()
            .flat_map(move |template| {
                template.fields().map(move |field| KeyField {
                    escaping,
                    template,
                    field,
                })
            });
        fields.filter(move |field| field.field.property() == property)
    }

    /// All combinations of values for the terms with `=`. The text of a term may stand for values
    /// of several types with different keys. A value without a valid key is left out, because no
    /// row can have it. If several values have the same keys, only one of them is kept.
    fn values(&self) -> Result<Vec<Values<'a>>, LookupError> {
        let mut choices = vec![Values::new()];
        for term in self.terms.iter().filter(|term| term.op == TermOp::Equal) {
            let mut keys: Vec<Vec<String>> = Vec::new();
            let (mut values, mut problem) = (Vec::new(), None);
            for value in term.values() {
                match self
                    .fields(&term.property)
                    .map(|field| field.text(&value))
                    .collect::<Result<Vec<String>, String>>()
                {
                    Ok(texts) if keys.contains(&texts) => {}
                    Ok(texts) => {
                        keys.push(texts);
                        values.push(value);
                    }
                    Err(error) => problem = problem.or(Some(error)),
                }
            }
            if let (true, Some(problem)) = (values.is_empty(), problem) {
                return Err(self.value(problem));
            }
            let count = choices.len() * values.len();
            if count > MAX_RANGES {
                return Err(LookupError::TooMany {
                    what: self.what.clone(),
                    count,
                    max: MAX_RANGES,
                });
            }
            choices = with_each(&choices, &term.property, &values);
        }
        Ok(choices)
    }

    fn known(
        &self,
        template: &'a Template,
        values: &Values<'_>,
    ) -> Result<KnownKey<'a>, LookupError> {
        let mut known = KnownKey {
            heads: vec![String::new()],
            bare: String::new(),
            is_bucketed: false,
            rest: None,
            stopped: None,
            used: BTreeSet::new(),
        };
        for part in template.parts() {
            let field = match part {
                TemplatePart::Literal(literal) => {
                    known
                        .heads
                        .iter_mut()
                        .chain([&mut known.bare])
                        .for_each(|head| head.push_str(literal));
                    continue;
                }
                TemplatePart::Field(field) => field,
            };
            let in_key = KeyField {
                escaping: self.rows.escaping,
                template,
                field,
            };
            if let Some(value) = values.get(field.property()) {
                let text = in_key.text(value).map_err(|problem| self.value(problem))?;
                known
                    .heads
                    .iter_mut()
                    .chain([&mut known.bare])
                    .for_each(|head| head.push_str(&text));
                known.used.insert(field.property());
            } else if let Some(buckets) = field.filters().last().and_then(KeyFilter::buckets) {
                let count = known.heads.len() * buckets.len();
                if count > MAX_RANGES {
                    return Err(LookupError::TooMany {
                        what: self.what.clone(),
                        count,
                        max: MAX_RANGES,
                    });
                }
                known.heads = known
                    .heads
                    .iter()
                    .flat_map(|head| buckets.iter().map(move |bucket| format!("{head}{bucket}")))
                    .collect();
                known.is_bucketed = true;
            } else {
                let terms: Vec<&Term> = self
                    .terms
                    .iter()
                    .filter(|term| term.property == field.property())
                    .collect();
                let bounds = if terms.is_empty() {
                    Ok(TextBounds::default())
                } else {
                    in_key.bounds(&terms)
                };
                // If this field does not keep the order of the property, another field may do so.
                if let Ok(bounds) = bounds {
                    if !terms.is_empty() {
                        known.used.insert(field.property());
                    }
                    known.rest = Some(bounds);
                } else {
                    known.rest = Some(TextBounds::default());
                }
                known.stopped = Some(field);
                return Ok(known);
            }
        }
        Ok(known)
    }

    /// Checks that the partition key is fully known, or narrowed by a range or prefix.
    fn check_partition(&self, partition: &KnownKey<'_>) -> Result<(), LookupError> {
        if partition
            .rest
            .as_ref()
            .is_none_or(|rest| *rest != TextBounds::default())
        {
            return Ok(());
        }
        let given = |property: &str| {
            self.terms
                .iter()
                .any(|term| term.property == property && term.op == TermOp::Equal)
        };
        let bucket = |field: &Field| {
            field
                .filters()
                .last()
                .is_some_and(|filter| filter.buckets().is_some())
        };
        let mut missing: Vec<String> = Vec::new();
        for field in self
            .rows
            .partition_key
            .fields()
            .filter(|field| !bucket(field) && !given(field.property()))
        {
            if !missing.iter().any(|name| name == field.property()) {
                missing.push(field.property().to_owned());
            }
        }
        // The first missing field may not support a range that the terms contain. That problem is
        // then reported instead of the missing properties.
        if let Some(field) = partition.stopped {
            let terms: Vec<&Term> = self
                .terms
                .iter()
                .filter(|term| term.property == field.property())
                .collect();
            let in_key = KeyField {
                escaping: self.rows.escaping,
                template: self.rows.partition_key,
                field,
            };
            if let (Some(term), Err(problem)) = (terms.first(), in_key.bounds(&terms)) {
                return Err(self.unusable(term, problem));
            }
        }
        Err(LookupError::Missing {
            what: self.what.clone(),
            missing,
            template: self.rows.partition_key.to_string(),
        })
    }

    /// The error for a term that is used in neither key, with the reason.
    fn unused(&self, term: &Term, partition: &KnownKey<'_>, row: &KnownKey<'_>) -> LookupError {
        let keys = [
            (self.rows.partition_key, partition),
            (self.rows.row_key, row),
        ];
        for (template, known) in keys {
            let Some(field) = template
                .fields()
                .find(|field| field.property() == term.property)
            else {
                continue;
            };
            if let Some(stopped) = known
                .stopped
                .filter(|stopped| stopped.property() != term.property)
            {
                let problem = format!(
                    "{} comes before it in the key {:?}; give it with =",
                    stopped.property(),
                    template.to_string()
                );
                return self.unusable(term, problem);
            }
            if let Err(problem) = (KeyField {
                escaping: self.rows.escaping,
                template,
                field,
            })
            .bounds(&[term])
            {
                return self.unusable(term, problem);
            }
        }
        let mut names: Vec<&str> = self.rows.partition_key.properties().into_iter().collect();
        names.extend(
            self.rows
                .row_key
                .properties()
                .iter()
                .filter(|name| !self.rows.partition_key.properties().contains(**name)),
        );
        let problem = if names.is_empty() {
            "its keys have no properties".to_owned()
        } else {
            format!("its keys are made of {}", names.join(", "))
        };
        self.unusable(term, problem)
    }

    fn span(&self, head: &str, known: &KnownKey<'_>) -> Result<(Span, KeyCheck), LookupError> {
        let key = |text: String| Key::new(text).map_err(|error| self.value(error.to_string()));
        let bare = || known.bare.clone();
        let check = |prefix, moments: &[MomentBound]| KeyCheck {
            prefix,
            at: head.len(),
            moments: moments.to_vec(),
            bare: bare(),
        };
        let Some(rest) = &known.rest else {
            return Ok((
                Span::Exactly(key(head.to_owned())?),
                check(Prefix::of([head.to_owned()]), &[]),
            ));
        };
        let prefix = rest.prefix.behind_head(head);
        // The empty key sorts first, so a range that begins with it needs no lower bound.
        let from = narrower(
            rest.from.as_ref().map(|from| format!("{head}{from}")),
            prefix.first(),
            sorts_before_everywhere,
        );
        let of_term = rest.before.as_ref().map(|before| format!("{head}{before}"));
        let before = narrower(of_term, prefix.end(), |term, prefix| {
            sorts_before_everywhere(prefix, term)
        });
        // The terms contradict each other only if the range is empty in the order of every store.
        if let (Some(from), Some(before)) = (&from, &before)
            && (from == before || sorts_before_everywhere(before, from))
        {
            let terms: Vec<String> = self
                .terms
                .iter()
                .filter(|term| term.op != TermOp::Equal)
                .map(ToString::to_string)
                .collect();
            let (first, second) = (
                terms.first().cloned().unwrap_or_default(),
                terms.last().cloned().unwrap_or_default(),
            );
            return Err(LookupError::Contradiction { first, second });
        }
        let span = Span::Between {
            from: from.map(key).transpose()?,
            before: before.map(key).transpose()?,
        };
        // The bounds may include keys without the prefix, so each key is checked for the prefix.
        Ok((span, check(prefix, &rest.moments)))
    }

    /// The error for a term whose text stands for several values with overlapping key ranges. For
    /// example, the key of 5 is a prefix of the key of 5.0, and any text may follow.
    fn across(&self) -> String {
        let terms = self
            .terms
            .iter()
            .filter(|term| term.op == TermOp::Equal && term.values().len() > 1);
        let terms: Vec<String> = terms.map(ToString::to_string).collect();
        format!(
            "{} can mean several values, whose key ranges overlap; put the value in double quotes to match its text only",
            terms.join(", ")
        )
    }

    fn unusable(&self, term: &Term, problem: String) -> LookupError {
        LookupError::Unusable {
            what: self.what.clone(),
            term: term.to_string(),
            problem,
        }
    }

    fn value(&self, problem: String) -> LookupError {
        LookupError::Value {
            what: self.what.clone(),
            problem,
        }
    }
}

/// The narrower of the bounds of a term and of a prefix. If stores order the two bounds
/// differently, the term's bound is used, because each row is checked for the prefix anyway.
fn narrower(
    term: Option<String>,
    prefix: Option<String>,
    is_wider: impl Fn(&str, &str) -> bool,
) -> Option<String> {
    match (term, prefix) {
        (Some(term), Some(prefix)) => Some(if is_wider(&term, &prefix) {
            prefix
        } else {
            term
        }),
        (term, prefix) => term.or(prefix),
    }
}

fn class(range: &KeyRange) -> QueryClass {
    match (&range.partitions, &range.rows) {
        (Span::Exactly(_), Span::Exactly(_)) => QueryClass::Point,
        (Span::Exactly(_), rows) if rows.is_all() => QueryClass::PartitionScan,
        (Span::Exactly(_), Span::Between { .. }) => QueryClass::Range,
        (Span::Between { .. }, _) => QueryClass::TableScan,
    }
}
