//! A range or prefix of a property as bounds on the text of its field.

use crate::model::template::{DateFormat, Escaping, Field, KeyFilter, Template, from_inverted_ticks, inverted_ticks};
use crate::model::{EdmDateTime, EdmValue};

use super::prefix::{Prefix, lower_case_spellings};
use super::span::behind;
use super::term::{Term, TermOp};

/// The text of a field: from a text on, before another, beginning with a third.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TextBounds {
    pub(super) from: Option<String>,
    pub(super) before: Option<String>,
    pub(super) prefix: Prefix,
}

/// How the order of values carries over to a field's text.
#[derive(Clone, Copy, PartialEq)]
enum Order<'f> {
    /// Compared as text.
    Text,
    /// Kept, as numbers.
    Number,
    /// Reversed, as moments.
    Reversed,
    /// Kept in whole parts, as moments.
    Parts(&'f DateFormat),
}

/// The bounds that some terms, none of them `=`, set to a field. The error says why there are none.
pub(super) fn bounds(escaping: Escaping, template: &Template, field: &Field, terms: &[&Term]) -> Result<TextBounds, String> {
    let order = order(field)?;
    let mut bounds = TextBounds::default();
    for term in terms {
        let text = |value: &str| text(escaping, template, field, value);
        match (term.op, order) {
            (TermOp::Equal, _) => {}
            (TermOp::Prefix, Order::Text) => bounds.prefix = prefix(escaping, template, field, &term.value)?,
            (TermOp::Prefix, _) => return Err(format!("{term}: a number or date has no prefix; use >= and <")),
            (TermOp::AtLeast, Order::Text | Order::Number) => bounds.from = Some(first_spelling(field, text(&term.value)?)),
            // Where clocks are put back, a later moment may have an earlier text.
            (TermOp::AtLeast, Order::Parts(date)) => bounds.from = texts(date.firsts(moment(&term.value)?), text)?.into_iter().min(),
            (TermOp::Less, Order::Text | Order::Number) => bounds.before = Some(first_spelling(field, text(&term.value)?)),
            (TermOp::Less, Order::Parts(date)) => {
                // The last moment before it lies in the last part that belongs to the range.
                let last = EdmDateTime::from_ticks(moment(&term.value)?.ticks() - 1).map_err(|error| error.to_string())?;
                bounds.before = texts(date.lasts(last), text)?.into_iter().max().and_then(|last| behind(&last));
            }
            // A later moment has a smaller text: at least T is at most its text, and nothing is behind the first moment's.
            (TermOp::AtLeast, Order::Reversed) => bounds.before = behind_ticks(&text(&term.value)?),
            (TermOp::Less, Order::Reversed) => match behind_ticks(&text(&term.value)?) {
                Some(from) => bounds.from = Some(from),
                None => return Err(format!("{term}: there is no moment before it")),
            },
        }
    }
    Ok(bounds)
}

fn moment(text: &str) -> Result<EdmDateTime, String> {
    EdmDateTime::parse(text).map_err(|error| error.to_string())
}

fn texts(moments: Vec<EdmDateTime>, text: impl Fn(&str) -> Result<String, String>) -> Result<Vec<String>, String> {
    moments.into_iter().map(|moment| text(&moment.to_string())).collect()
}

/// The count of inverted ticks behind another; nothing behind the last one.
fn behind_ticks(text: &str) -> Option<String> {
    let moment = from_inverted_ticks(text)?;
    EdmDateTime::from_ticks(moment.ticks() - 1).ok().map(inverted_ticks)
}

/// The text of a field for a value, as it stands in such keys.
pub(super) fn text(escaping: Escaping, template: &Template, field: &Field, value: &str) -> Result<String, String> {
    match template.render_field_as(escaping, field, &EdmValue::from(value)) {
        Ok(Some(text)) => Ok(text),
        Ok(None) => {
            Err(format!("nothing is left of {}={value:?} behind its filters, and rows without a value are in no view", field.property()))
        }
        Err(error) => Err(error.to_string()),
    }
}

/// The start of the texts of a field for values that begin so.
fn prefix(escaping: Escaping, template: &Template, field: &Field, value: &str) -> Result<Prefix, String> {
    let mut spellings = vec![text(escaping, template, field, value)?];
    if escaping == Escaping::WhereForbidden {
        // A value that goes on with a forbidden character is escaped whole.
        spellings.push(text(Escaping::Always, template, field, value)?);
    }
    if is_lower_case(field) {
        spellings = spellings.iter().flat_map(|text| lower_case_spellings(text)).collect();
    }
    Ok(Prefix::of(spellings))
}

/// The first spelling of a bound: those that say the same lie on one side of it.
fn first_spelling(field: &Field, text: String) -> String {
    if is_lower_case(field) { lower_case_spellings(&text).into_iter().next().unwrap_or(text) } else { text }
}

fn is_lower_case(field: &Field) -> bool {
    field.filters().contains(&KeyFilter::Lower)
}

fn order(field: &Field) -> Result<Order<'_>, String> {
    let refuse = |filter: &str| Err(format!("{} is in the key behind {filter}, which keeps no order; give it with =", field.property()));
    let mut order = Order::Text;
    for (at, filter) in field.filters().iter().enumerate() {
        order = match filter {
            KeyFilter::Lower | KeyFilter::Upper | KeyFilter::Trim | KeyFilter::Each(_) => order,
            KeyFilter::Pad(_) if at == 0 => Order::Number,
            KeyFilter::InvertedTicks if at == 0 => Order::Reversed,
            KeyFilter::Date(date) if at == 0 && from_large_to_small(date.format()) => Order::Parts(date),
            KeyFilter::Pad(_) => return refuse("pad after another filter"),
            KeyFilter::InvertedTicks => return refuse("inverted_ticks after another filter"),
            KeyFilter::Date(_) => return refuse("a date whose parts do not go from large to small"),
            KeyFilter::Hash(_) => return refuse("hash"),
            KeyFilter::Bucket(_) => return refuse("bucket"),
            KeyFilter::Slug => return refuse("slug"),
            KeyFilter::After(_) => return refuse("after"),
            KeyFilter::Before(_) => return refuse("before"),
        };
    }
    Ok(order)
}

/// Whether texts of a strftime format sort as their moments: year, month, day, hour, minute and second, as many of them
/// as there are, in this order, with anything fixed in between.
fn from_large_to_small(format: &str) -> bool {
    let expanded = format.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S").replace("%R", "%H:%M");
    let mut wanted = ["Y", "m", "d", "H", "M", "S"].into_iter();
    let mut letters = expanded.split('%').skip(1).peekable();
    letters.peek().is_some() && letters.all(|part| wanted.next().is_some_and(|letter| part.starts_with(letter)))
}
