//! Whether a rendered key tells a property's value.

use super::escape::escaped_in_key;
use super::filter::{KeyFilter, MAX_HASH};
use super::parse::{Field, Template, TemplatePart};

impl Template {
    /// Whether the rendered key contains each of these properties whole, so that primaries that differ in one
    /// of them never render the same key.
    ///
    /// True only where that is certain: the field has no filter that loses anything (a whole SHA-256, `hash:64`,
    /// counts as losing nothing), and where its text begins and ends can be told from the key. `{LastName}_{RowKey}`
    /// does not cover `RowKey`, since a LastName may contain `_`; `{LastName|slug}_{RowKey}`, `{RowKey}` and
    /// `{Number|pad:8}_{RowKey}` do. Values of different EDM types may still share a text.
    pub fn covers(&self, properties: &[&str]) -> bool {
        properties.iter().all(|property| (0..self.parts.len()).any(|at| self.tells(at, property)))
    }

    /// Whether the part at this place is this property, whole, and can be cut out of the key.
    fn tells(&self, at: usize, property: &str) -> bool {
        let TemplatePart::Field(field) = &self.parts[at] else { return false };
        if field.property != property || !field.filters.iter().all(|filter| *filter == KeyFilter::Hash(MAX_HASH)) {
            return false;
        }
        let begins = (0..at).all(|before| self.ends_visibly(before));
        let ends = self.ends_visibly(at) || (at + 1..self.parts.len()).all(|after| self.has_fixed_width(after));
        begins && ends
    }

    /// Whether a reader that knows the start of this part can find its end.
    fn ends_visibly(&self, at: usize) -> bool {
        if self.has_fixed_width(at) {
            return true;
        }
        match (&self.parts[at], self.parts.get(at + 1)) {
            (TemplatePart::Field(field), Some(TemplatePart::Literal(literal))) => {
                literal.chars().next().is_some_and(|c| field.never_contains(c))
            }
            _ => false,
        }
    }

    fn has_fixed_width(&self, at: usize) -> bool {
        match &self.parts[at] {
            TemplatePart::Literal(_) => true,
            TemplatePart::Field(field) => field.filters.last().is_some_and(|filter| filter.fixed_width().is_some()),
        }
    }
}

impl Field {
    /// Whether no text that this field renders can contain this character. `%` is not one of them: escaping writes it.
    fn never_contains(&self, c: char) -> bool {
        match self.filters.last() {
            Some(KeyFilter::Slug) => c != '-' && !c.is_alphanumeric() && !escaped_in_key(c),
            Some(
                KeyFilter::Lower
                | KeyFilter::Upper
                | KeyFilter::Trim
                | KeyFilter::Pad(_)
                | KeyFilter::Sortable
                | KeyFilter::InvertedTicks
                | KeyFilter::Date(_)
                | KeyFilter::Hash(_)
                | KeyFilter::Bucket(_)
                | KeyFilter::After(_)
                | KeyFilter::Before(_)
                | KeyFilter::Each(_),
            )
            | None => false,
        }
    }
}
