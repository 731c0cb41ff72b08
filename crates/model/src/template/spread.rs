//! Whether the partition keys of a template spread over partitions.

use super::filter::KeyFilter;
use super::parse::Template;

/// Reasons why the rows of a partition key template gather in one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Crowding {
    /// Every row has the same partition key.
    Constant,
    /// The key starts with a value that only increases (or decreases, with `inverted_ticks`), so new rows share the last (first) partition.
    Grows {
        /// The property at the start.
        property: String,
        /// The words for the form in which the property is rendered.
        rendered: &'static str,
    },
}

impl Template {
    /// Returns why this template, as a partition key, sends new rows to one partition. Returns `None` if the template's first field varies,
    /// or if `hash` or `bucket` spreads this field.
    ///
    /// Only the template is considered: a plain `{RowKey}` may be a counter, and one department may have all employees.
    pub fn crowding(&self) -> Option<Crowding> {
        let Some(first) = self.fields().next() else {
            return Some(Crowding::Constant);
        };
        if first.filters().iter().any(KeyFilter::spreads) {
            return None;
        }
        let rendered = first.filters().iter().find_map(|filter| match filter {
            KeyFilter::Date(_) => Some("a date"),
            KeyFilter::InvertedTicks => Some("ticks"),
            KeyFilter::Pad(_) => Some("a padded number"),
            KeyFilter::Sortable => Some("a sortable number"),
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
            | KeyFilter::Each(_) => None,
        })?;
        // A date format that starts with `%S`, as in the seconds prefix, spreads new rows over sixty partitions.
        let spread = first.filters().iter().any(|filter| matches!(filter, KeyFilter::Date(date) if starts_with_a_repeating_part(date.format())));
        (!spread).then(|| Crowding::Grows {
            property: first.property().to_owned(),
            rendered,
        })
    }
}

/// Whether the first directive of a strftime format repeats within an hour: seconds, minutes and fractions.
fn starts_with_a_repeating_part(format: &str) -> bool {
    let first = format.split_once('%').map_or("", |(_, rest)| {
        rest.trim_start_matches(['-', '_', '0', '.'])
    });
    first.starts_with(['S', 'M', 'f', 'N'])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crowding(template: &str) -> Option<Crowding> {
        Template::parse(template).unwrap().crowding()
    }

    #[test]
    fn a_varying_or_hashed_first_field_spreads() {
        for template in [
            "{PartitionKey}",
            "email_{Email|lower}",
            "{LastName|bucket:16}",
            "{Department}_{Hired|date:%Y%m%d}",
            "{Hired|date:%Y%m%d|hash:3}",
            "{Hired|date:%S%Y%m%d}",
            "{Hired|date:%M}",
        ] {
            assert_eq!(crowding(template), None, "{template}");
        }
    }

    #[test]
    fn a_template_without_fields_is_constant() {
        assert_eq!(crowding("all"), Some(Crowding::Constant));
    }

    #[test]
    fn a_date_ticks_or_a_counter_at_the_start_grows() {
        for (template, property, rendered) in [
            ("day_{Hired|date:%Y%m%d}", "Hired", "a date"),
            ("{Hired|date:%Y}_{Department}", "Hired", "a date"),
            ("{Sent|inverted_ticks}", "Sent", "ticks"),
            ("{Number|pad:8}", "Number", "a padded number"),
        ] {
            assert_eq!(
                crowding(template),
                Some(Crowding::Grows {
                    property: property.to_owned(),
                    rendered
                }),
                "{template}"
            );
        }
    }
}
