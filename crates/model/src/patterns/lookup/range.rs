//! Turns ranges and prefixes of a property into bounds on the text of the key field that renders
//! the property.

use crate::template::{
    DateFormat, Escaping, Field, KeyFilter, Template, from_inverted_ticks, inverted_ticks,
    is_decimal,
};
use crate::{EdmDateTime, EdmValue};

use super::moment_bound::MomentBound;
use super::prefix::{Prefix, lower_case_spellings};
use super::span::behind;
use super::spelling;
use super::term::{Meaning, Term, TermOp};

/// Bounds on the text of a field: the first text, the text after the last one, and a prefix.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TextBounds {
    pub(super) from: Option<String>,
    pub(super) before: Option<String>,
    pub(super) prefix: Prefix,
    /// Bounds that are checked for each row that satisfies the other bounds.
    pub(super) moments: Vec<MomentBound>,
}

/// The relation between the order of values and the order of a field's texts.
#[derive(Clone, Copy, PartialEq)]
enum Order<'f> {
    /// Values are compared as texts.
    Text,
    /// Values are compared as numbers, and the texts have the same order.
    Number,
    /// Values are compared as moments, and the texts have the reverse order.
    Reversed,
    /// Values are compared as moments in whole parts, such as days, and the texts have the same
    /// order.
    Parts(&'f DateFormat),
}

/// A field of a template, and how its values are escaped in keys.
#[derive(Clone, Copy)]
pub(super) struct KeyField<'a> {
    pub(super) escaping: Escaping,
    pub(super) template: &'a Template,
    pub(super) field: &'a Field,
}

impl KeyField<'_> {
    /// The bounds that these terms set on the text of the field. Terms with `=` set no bounds. The
    /// error explains why a term cannot set a bound.
    pub(super) fn bounds(self, terms: &[&Term]) -> Result<TextBounds, String> {
        let order = order(self.field)?;
        let mut bounds = TextBounds::default();
        for term in terms {
            match (term.op, order) {
                (TermOp::Equal, _) => {}
                (TermOp::Prefix, Order::Text) => bounds.prefix = self.prefix(term)?,
                (TermOp::Prefix, _) => {
                    return Err(format!(
                        "{term}: a number or date has no prefix; use >= and <"
                    ));
                }
                (TermOp::AtLeast, Order::Text) => {
                    bounds.from = Some(self.text_bound(term, &mut bounds.moments)?);
                }
                (TermOp::AtLeast, Order::Number) => bounds.from = Some(self.first_text(term)?),
                // When clocks are set back, a later moment may have an earlier text. The range
                // begins with the earliest text.
                (TermOp::AtLeast, Order::Parts(date)) => {
                    bounds.from = self.texts(date.firsts(moment(term)?))?.into_iter().min();
                }
                (TermOp::Less, Order::Text) => {
                    bounds.before = Some(self.text_bound(term, &mut bounds.moments)?);
                }
                (TermOp::Less, Order::Number) => bounds.before = Some(self.first_text(term)?),
                (TermOp::Less, Order::Parts(date)) => {
                    // The last moment before the bound belongs to the last part of the range.
                    let last = EdmDateTime::from_ticks(moment(term)?.ticks() - 1)
                        .map_err(|error| error.to_string())?;
                    bounds.before = self
                        .texts(date.lasts(last))?
                        .into_iter()
                        .max()
                        .and_then(|last| behind(&last));
                }
                // A later moment has a smaller text, so "at least T" means at most the text of T.
                // If T is the first moment, its text is the last one, and no bound is needed.
                (TermOp::AtLeast, Order::Reversed) => {
                    bounds.before = behind_ticks(&self.text(&moment(term)?.into())?);
                }
                (TermOp::Less, Order::Reversed) => {
                    match behind_ticks(&self.text(&moment(term)?.into())?) {
                        Some(from) => bounds.from = Some(from),
                        None => return Err(format!("{term}: no moment is before it")),
                    }
                }
            }
        }
        Ok(bounds)
    }

    /// The text of the field in keys for a value.
    pub(super) fn text(self, value: &EdmValue) -> Result<String, String> {
        match self
            .template
            .render_field_as(self.escaping, self.field, value)
        {
            Ok(Some(text)) => Ok(text),
            Ok(None) => Err(self.nothing_left(value)),
            Err(error) => Err(error.to_string()),
        }
    }

    fn nothing_left(self, value: &EdmValue) -> String {
        let (property, text) = (self.field.property(), value.as_str().unwrap_or_default());
        format!(
            "the filters of the key make {property}={text:?} empty, and a view has no rows without a value"
        )
    }

    fn texts(self, moments: Vec<EdmDateTime>) -> Result<Vec<String>, String> {
        moments
            .into_iter()
            .map(|moment| self.text(&moment.into()))
            .collect()
    }

    fn first_text(self, term: &Term) -> Result<String, String> {
        let mut texts = term.values().into_iter().map(|value| self.text(&value));
        let first = texts.next().unwrap_or_else(|| Err(String::new()));
        first.or_else(|problem| texts.find_map(Result::ok).ok_or(problem))
    }

    /// The bound for values that are compared as texts. A moment that is not spelled as keys spell
    /// moments has one bound for texts and another bound for moments. Both bounds are added to
    /// `moments`, and each row is checked.
    fn text_bound(self, term: &Term, moments: &mut Vec<MomentBound>) -> Result<String, String> {
        let text = self.text(&EdmValue::from(term.value.as_str()))?;
        let text = if is_lower_case(self.field) {
            lower_case_spellings(&text)
                .into_iter()
                .next()
                .unwrap_or(text)
        } else {
            text
        };
        if term.is_text() {
            return Ok(text);
        }
        if is_decimal(&term.value) {
            let (name, quoted) = (self.field.property(), as_text(term));
            return Err(format!(
                "{name} sorts as text in its keys, 10 before 9. Give the key a filter such as {{{name}|pad:8}} or {{{name}|sortable}}, or write {quoted} to compare texts"
            ));
        }
        for value in term.values().iter().skip(1) {
            let in_keys = self.text(value)?;
            if in_keys == text {
                continue;
            }
            if !matches!(value, EdmValue::DateTime(_)) {
                return Err(another_spelling(term, &in_keys));
            }
            let bound = MomentBound {
                op: term.op,
                text: text.clone(),
                moment: in_keys,
            };
            let outer = bound.outer().to_owned();
            moments.push(bound);
            return Ok(outer);
        }
        Ok(text)
    }

    fn prefix(self, term: &Term) -> Result<Prefix, String> {
        let beginning =
            Template::beginning(self.field, &term.value).filter(|beginning| !beginning.is_empty());
        let beginning =
            beginning.ok_or_else(|| self.nothing_left(&EdmValue::from(term.value.as_str())))?;
        let escaped = self.escaping.written(beginning.clone());
        for value in term
            .values()
            .iter()
            .skip(1)
            .filter(|value| matches!(value, EdmValue::DateTime(_) | EdmValue::Guid(_)))
        {
            let in_keys = self.text(value)?;
            if !in_keys.starts_with(&escaped) {
                return Err(another_spelling(term, &in_keys));
            }
        }
        let mut spellings = vec![escaped];
        if self.escaping == Escaping::WhereForbidden {
            // A value is escaped as a whole if it contains a forbidden character after the prefix.
            spellings.push(Escaping::Always.written(beginning));
        }
        if is_lower_case(self.field) {
            spellings = spellings
                .iter()
                .flat_map(|text| lower_case_spellings(text))
                .collect();
        }
        Ok(Prefix::of(spellings))
    }
}

fn moment(term: &Term) -> Result<EdmDateTime, String> {
    spelling::moment(&term.value).map_or_else(
        || EdmDateTime::parse(&term.value).map_err(|error| error.to_string()),
        Ok,
    )
}

/// The inverted ticks that follow the given ones; `None` if these are the last ones.
fn behind_ticks(text: &str) -> Option<String> {
    let moment = from_inverted_ticks(text)?;
    EdmDateTime::from_ticks(moment.ticks() - 1)
        .ok()
        .map(inverted_ticks)
}

fn as_text(term: &Term) -> Term {
    Term {
        meaning: Meaning::Text,
        ..term.clone()
    }
}

fn another_spelling(term: &Term, in_keys: &str) -> String {
    format!(
        "the keys contain {in_keys} for this value; use that value, or write {} to compare texts",
        as_text(term)
    )
}

fn is_lower_case(field: &Field) -> bool {
    field.filters().contains(&KeyFilter::Lower)
}

fn order(field: &Field) -> Result<Order<'_>, String> {
    let refuse = |filter: &str| {
        Err(format!(
            "the key does not sort by {}, because of {filter}; give the whole value with =",
            field.property()
        ))
    };
    let mut order = Order::Text;
    for filter in field.filters() {
        order = match filter {
            KeyFilter::Lower
            | KeyFilter::Upper
            | KeyFilter::Trim
            | KeyFilter::Nfc
            | KeyFilter::Each(_) => order,
            // If the filters before this filter keep the order of texts, they also keep the number
            // or moment that a text spells.
            KeyFilter::Pad(_) | KeyFilter::Sortable if order == Order::Text => Order::Number,
            KeyFilter::InvertedTicks if order == Order::Text => Order::Reversed,
            KeyFilter::Date(date) if order == Order::Text && from_large_to_small(date.format()) => {
                Order::Parts(date)
            }
            KeyFilter::Pad(_) => return refuse("pad after another filter"),
            KeyFilter::Sortable => return refuse("sortable after another filter"),
            KeyFilter::InvertedTicks => return refuse("inverted_ticks after another filter"),
            KeyFilter::Date(_) => {
                return refuse("a date with parts that do not go from large to small");
            }
            KeyFilter::Hash(_) => return refuse("hash"),
            KeyFilter::Bucket(_) => return refuse("bucket"),
            KeyFilter::Slug => return refuse("slug"),
            KeyFilter::After(_) => return refuse("after"),
            KeyFilter::Before(_) => return refuse("before"),
            KeyFilter::AfterLast(_) => return refuse("after_last"),
            KeyFilter::BeforeLast(_) => return refuse("before_last"),
        };
    }
    Ok(order)
}

/// A part of a key that is meant for sorting, but does not support range lookups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnorderedKeyPart {
    /// The property.
    pub property: String,
    /// The reason why the part does not support range lookups.
    pub problem: String,
}

/// The first part of a key that is meant for sorting, but does not support range lookups: a date
/// that does not begin with its year, or a filter of numbers or moments after a filter that does
/// not keep the order. A hash, a bucket, or a date that begins with a time of day does not count,
/// because it spreads rows on purpose.
pub fn unordered_key_part(template: &Template) -> Option<UnorderedKeyPart> {
    let is_meant = |field: &&Field| {
        field.filters().iter().any(|filter| match filter {
            KeyFilter::Pad(_) | KeyFilter::Sortable | KeyFilter::InvertedTicks => true,
            KeyFilter::Date(date) => {
                begins_with_day_or_month(date.format())
                    || !field.filters().starts_with(std::slice::from_ref(filter))
            }
            KeyFilter::Lower
            | KeyFilter::Upper
            | KeyFilter::Trim
            | KeyFilter::Nfc
            | KeyFilter::Hash(_)
            | KeyFilter::Bucket(_)
            | KeyFilter::Slug
            | KeyFilter::After(_)
            | KeyFilter::Before(_)
            | KeyFilter::AfterLast(_)
            | KeyFilter::BeforeLast(_)
            | KeyFilter::Each(_) => false,
        })
    };
    let is_spread = |field: &&Field| field.filters().iter().any(KeyFilter::spreads);
    let mut fields = template
        .fields()
        .filter(is_meant)
        .filter(|field| !is_spread(field));
    fields.find_map(|field| {
        Some(UnorderedKeyPart {
            property: field.property().to_owned(),
            problem: order(field).err()?,
        })
    })
}

/// Whether a strftime format begins with a day or month and has a year later. `%D` counts, because
/// it stands for month, day and year.
fn begins_with_day_or_month(format: &str) -> bool {
    let directives: Vec<char> = format
        .split('%')
        .skip(1)
        .filter_map(|part| part.trim_start_matches(['-', '_', '0', '^']).chars().next())
        .collect();
    let has_year = directives
        .iter()
        .any(|directive| matches!(directive, 'Y' | 'y'));
    matches!(directives.first(), Some('D'))
        || has_year && matches!(directives.first(), Some('d' | 'e' | 'm' | 'b' | 'B' | 'h'))
}

/// Whether texts of a strftime format sort like their moments. Such a format consists of the first
/// few of year, month, day, hour, minute and second, in this order, with fixed text in between.
fn from_large_to_small(format: &str) -> bool {
    let expanded = format
        .replace("%F", "%Y-%m-%d")
        .replace("%T", "%H:%M:%S")
        .replace("%R", "%H:%M");
    let mut wanted = ["Y", "m", "d", "H", "M", "S"].into_iter();
    let mut letters = expanded.split('%').skip(1).peekable();
    letters.peek().is_some()
        && letters.all(|part| wanted.next().is_some_and(|letter| part.starts_with(letter)))
}
