//! Whether the value of a property can be recovered from rendered keys.

use super::escape::escaped_in_key;
use super::filter::{KeyFilter, MAX_HASH};
use super::parse::{Field, Template, TemplatePart};

/// Which values count as different.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distinction {
    /// Different texts are different values.
    Texts,
    /// Spellings of a value are the same value: upper and lower case, white space at the ends, forms of Unicode, and leading zeros of a
    /// number.
    Spellings,
}

/// Whether a property's value can be recovered from the keys, so that two values never have the same keys. `beginning` is a known prefix of
/// all texts of the property.
///
/// Returns true only if that is certain. Two conditions must hold:
///
/// - The keys contain the property. Either one key contains the whole property, with filters that lose nothing (`hash:64`, a whole SHA-256,
///   counts as lossless). Or the keys contain parts that together restore the property: `before:/` and `after:/`, `before_last:.` and
///   `after_last:.`, or the rest behind a known prefix.
/// - A reader can see where the text of the property, or of each part, starts and ends. `{LastName}_{RowKey}` does not determine `RowKey`,
///   because a LastName may contain `_`. `{LastName|slug}_{RowKey}`, `{RowKey}` and `{Number|pad:8}_{RowKey}` do.
///
/// Values of different EDM types may still have the same text.
pub fn keys_determine(
    keys: &[&Template],
    property: &str,
    apart: Distinction,
    beginning: Option<&str>,
) -> bool {
    let visible = keys
        .iter()
        .flat_map(|key| key.visible(property))
        .map(Field::filters)
        .collect();
    KeyOccurrences { visible, apart }.is_determined(&mut Vec::new(), beginning)
}

/// The filters of each field of a property, for all fields whose text can be cut out of a key.
struct KeyOccurrences<'k> {
    visible: Vec<&'k [KeyFilter]>,
    apart: Distinction,
}

impl<'k> KeyOccurrences<'k> {
    /// Whether the output of the filters in `behind` can be recovered.
    fn is_determined(&self, behind: &mut Vec<&'k KeyFilter>, beginning: Option<&str>) -> bool {
        let goes_on = |filters: &&[KeyFilter]| {
            filters.len() >= behind.len()
                && filters
                    .iter()
                    .zip(&*behind)
                    .all(|(one, other)| one == *other)
        };
        let here: Vec<&'k [KeyFilter]> = self.visible.iter().copied().filter(goes_on).collect();
        if here.iter().any(|filters| filters.len() == behind.len()) {
            return true;
        }
        // Several fields may have the same next filter. It is tried only once.
        let mut tried: Vec<&KeyFilter> = Vec::new();
        here.iter().any(|filters| {
            let next = &filters[behind.len()];
            if tried.contains(&next) {
                return false;
            }
            tried.push(next);
            let counterpart = match next {
                KeyFilter::Before(part) => KeyFilter::After(part.clone()),
                KeyFilter::After(part) => {
                    match beginning.and_then(|beginning| beginning.split_once(part.as_str())) {
                        // All texts start with the part that the filter cuts off, so no information is lost.
                        Some((_, rest)) => {
                            return self.is_determined_behind(behind, next, Some(rest));
                        }
                        None => KeyFilter::Before(part.clone()),
                    }
                }
                KeyFilter::BeforeLast(part) => KeyFilter::AfterLast(part.clone()),
                KeyFilter::AfterLast(part) => KeyFilter::BeforeLast(part.clone()),
                _ => {
                    return self.loses_nothing(next)
                        && self.is_determined_behind(behind, next, None);
                }
            };
            let counterpart = here
                .iter()
                .filter_map(|filters| filters.get(behind.len()))
                .find(|filter| **filter == counterpart);
            self.is_determined_behind(behind, next, None)
                && counterpart
                    .is_some_and(|counterpart| self.is_determined_behind(behind, counterpart, None))
        })
    }

    fn is_determined_behind(
        &self,
        behind: &mut Vec<&'k KeyFilter>,
        next: &'k KeyFilter,
        beginning: Option<&str>,
    ) -> bool {
        behind.push(next);
        let is_determined = self.is_determined(behind, beginning);
        behind.pop();
        is_determined
    }

    fn loses_nothing(&self, filter: &KeyFilter) -> bool {
        match filter {
            KeyFilter::Hash(digits) => *digits == MAX_HASH,
            KeyFilter::Lower
            | KeyFilter::Upper
            | KeyFilter::Trim
            | KeyFilter::Nfc
            | KeyFilter::Pad(_)
            | KeyFilter::Sortable
            | KeyFilter::InvertedTicks => self.apart == Distinction::Spellings,
            KeyFilter::Date(_)
            | KeyFilter::Bucket(_)
            | KeyFilter::Slug
            | KeyFilter::After(_)
            | KeyFilter::Before(_)
            | KeyFilter::AfterLast(_)
            | KeyFilter::BeforeLast(_)
            | KeyFilter::Each(_) => false,
        }
    }
}

impl Template {
    /// Whether the rendered text alone determines each of these properties, as in [`keys_determine`]. Fields with cutting filters do not
    /// count, because a value may lack the text at which a filter cuts. Such a value has no key, but it does have a document, and all such
    /// values would share this document.
    pub fn covers(&self, properties: &[&str]) -> bool {
        let is_whole = |field: &Field| {
            field
                .filters()
                .iter()
                .all(|filter| *filter == KeyFilter::Hash(MAX_HASH))
        };
        properties
            .iter()
            .all(|property| self.visible(property).any(is_whole))
    }

    /// Returns the fields of a property whose text can be cut out of the key.
    fn visible(&self, property: &str) -> impl Iterator<Item = &Field> {
        self.parts
            .iter()
            .enumerate()
            .filter_map(move |(at, part)| match part {
                TemplatePart::Field(field) if field.property == property && self.is_visible(at) => {
                    Some(field)
                }
                _ => None,
            })
    }

    fn is_visible(&self, at: usize) -> bool {
        let begins = (0..at).all(|before| self.ends_visibly(before));
        begins
            && (self.ends_visibly(at)
                || (at + 1..self.parts.len()).all(|after| self.has_fixed_width(after)))
    }

    /// Whether a reader that knows where a part starts can find where the part ends.
    fn ends_visibly(&self, at: usize) -> bool {
        if self.has_fixed_width(at) {
            return true;
        }
        match (&self.parts[at], self.parts.get(at + 1)) {
            (TemplatePart::Field(field), Some(TemplatePart::Literal(literal))) => literal
                .chars()
                .next()
                .is_some_and(|c| field.never_contains(c)),
            _ => false,
        }
    }

    fn has_fixed_width(&self, at: usize) -> bool {
        match &self.parts[at] {
            TemplatePart::Literal(_) => true,
            TemplatePart::Field(field) => field
                .filters
                .last()
                .is_some_and(|filter| filter.fixed_width().is_some()),
        }
    }
}

impl Field {
    /// Whether the field never renders this character. Always false for `%`, because escaping writes it.
    fn never_contains(&self, c: char) -> bool {
        match self.filters.last() {
            Some(KeyFilter::Slug) => c != '-' && !c.is_alphanumeric() && !escaped_in_key(c),
            // Escaping also writes hexadecimal digits.
            Some(KeyFilter::Before(part) | KeyFilter::AfterLast(part)) => {
                part.chars().eq([c]) && !c.is_ascii_hexdigit() && !escaped_in_key(c)
            }
            Some(
                KeyFilter::Lower
                | KeyFilter::Upper
                | KeyFilter::Trim
                | KeyFilter::Nfc
                | KeyFilter::Pad(_)
                | KeyFilter::Sortable
                | KeyFilter::InvertedTicks
                | KeyFilter::Date(_)
                | KeyFilter::Hash(_)
                | KeyFilter::Bucket(_)
                | KeyFilter::After(_)
                | KeyFilter::BeforeLast(_)
                | KeyFilter::Each(_),
            )
            | None => false,
        }
    }
}
