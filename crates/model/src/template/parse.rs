//! Templates and their parser.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use super::each::ListText;
use super::filter::{self, KeyFilter};
use super::zone::DateFormat;
use crate::caret::Caret;
use crate::entity::{PROPERTY_NAME_RULE, valid_property_name};
use crate::event::check_path;
use crate::key::forbidden_in_key;
use crate::limits;
use crate::nearest::nearest;

/// Maximum length of a template, in bytes. A key has at most 1,024.
const MAX_BYTES: usize = 2_048;
/// Maximum number of filters of a field.
const MAX_FILTERS: usize = 8;

/// A parsed key template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    pub(super) text: String,
    pub(super) parts: Vec<TemplatePart>,
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// Text that is the same in every key. A literal is not empty and never next to another literal, and in key templates its characters
    /// are allowed in keys.
    Literal(String),
    /// A value of the primary.
    Field(Field),
}

/// `{Property|filter:arg|…}`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    pub(super) property: String,
    pub(super) filters: Vec<KeyFilter>,
    pub(super) span: Range<usize>,
}

impl Field {
    /// The property's name, which may be `PartitionKey` or `RowKey`.
    pub fn property(&self) -> &str {
        &self.property
    }

    /// The filters of the field, in order.
    pub fn filters(&self) -> &[KeyFilter] {
        &self.filters
    }
}

/// A syntax error in a template, displayed on three lines: the problem, the template, and carets under the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}\n{}", Caret::new(template, span))]
pub struct TemplateError {
    /// The problem, and the expected input.
    pub message: String,
    /// The template.
    pub template: String,
    /// The range of the faulty bytes.
    pub span: Range<usize>,
}

impl Template {
    /// Creates a template that is the value of one property.
    pub fn of_property(name: &str) -> Self {
        let text = format!("{{{name}}}");
        let field = Field {
            property: name.to_owned(),
            filters: Vec::new(),
            span: 0..text.len(),
        };
        Self {
            text,
            parts: vec![TemplatePart::Field(field)],
        }
    }

    /// Parses a key template.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        TemplateParser::new(text, TextKind::Key, check_property).template()
    }

    /// Parses a key template over the fields of an event: `{subject}`, `{data.url}`.
    pub fn parse_key_of_event(text: &str) -> Result<Self, TemplateError> {
        TemplateParser::new(text, TextKind::Key, check_path).template()
    }

    /// Parses a text template over the fields of an event.
    pub fn parse_of_event(text: &str) -> Result<Self, TemplateError> {
        TemplateParser::new(text, TextKind::Text, check_path).template()
    }

    /// Parses a key template of a view's rows, which may use `each`.
    pub fn parse_row_key(text: &str) -> Result<Self, TemplateError> {
        TemplateParser::new(text, TextKind::RowKey, check_property).template()
    }

    /// Parses a text template. Its literals may contain characters that Azure forbids in keys.
    pub fn parse_text(text: &str) -> Result<Self, TemplateError> {
        TemplateParser::new(text, TextKind::Text, check_property).template()
    }

    /// Returns the property, if the template is just one property without filters.
    pub fn bare_property(&self) -> Option<&str> {
        match self.parts.as_slice() {
            [TemplatePart::Field(field)] if field.filters.is_empty() => Some(&field.property),
            _ => None,
        }
    }

    /// The parts, in order. Literals are never adjacent.
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// The fields, in order.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Field(field) => Some(field),
            TemplatePart::Literal(_) => None,
        })
    }

    /// The names of the properties used, including `PartitionKey` and `RowKey`.
    pub fn properties(&self) -> BTreeSet<&str> {
        self.fields().map(Field::property).collect()
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The kind of text that a template renders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextKind {
    Key,
    /// A key of a view's rows. A primary may have several of these keys.
    RowKey,
    Text,
}

struct TemplateParser<'a> {
    text: &'a str,
    at: usize,
    of: TextKind,
    check: fn(&str) -> Result<(), String>,
}

impl<'a> TemplateParser<'a> {
    const fn new(text: &'a str, of: TextKind, check: fn(&str) -> Result<(), String>) -> Self {
        Self {
            text,
            at: 0,
            of,
            check,
        }
    }

    fn error<T>(&self, span: Range<usize>, message: impl Into<String>) -> Result<T, TemplateError> {
        Err(TemplateError {
            message: message.into(),
            template: self.text.to_owned(),
            span,
        })
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn template(mut self) -> Result<Template, TemplateError> {
        if self.text.len() > MAX_BYTES {
            return self.error(
                MAX_BYTES..self.text.len(),
                format!("the template is longer than {MAX_BYTES} bytes"),
            );
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        while let Some(c) = self.rest().chars().next() {
            let start = self.at;
            if self.rest().starts_with("{{") || self.rest().starts_with("}}") {
                literal.push(c);
                self.at += 2;
            } else if c == '{' {
                if !literal.is_empty() {
                    parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
                }
                parts.push(TemplatePart::Field(self.field()?));
            } else if c == '}' {
                return self.error(
                    start..start + 1,
                    "this '}' has no matching '{'; write }} for a literal brace",
                );
            } else if self.of != TextKind::Text && forbidden_in_key(c) {
                return self.error(
                    start..start + c.len_utf8(),
                    format!("Azure Table storage forbids {c:?} in keys"),
                );
            } else {
                literal.push(c);
                self.at += c.len_utf8();
            }
        }
        if !literal.is_empty() {
            parts.push(TemplatePart::Literal(literal));
        }
        let fixed = parts
            .iter()
            .map(|part| {
                if let TemplatePart::Literal(text) = part {
                    text.encode_utf16().count()
                } else {
                    0
                }
            })
            .sum::<usize>();
        if self.of != TextKind::Text && fixed > limits::KEY_UTF16_UNITS {
            return self.error(
                0..self.text.len(),
                format!(
                    "the literal text alone has {fixed} UTF-16 units; a key may have at most {}",
                    limits::KEY_UTF16_UNITS
                ),
            );
        }
        let template = Template {
            text: self.text.to_owned(),
            parts,
        };
        if let Some(each) = template.each() {
            let other = template.fields().find(|field| {
                let same = field.property == each.property && field.list() == each.list();
                !same && (field.property == each.property || field.list().is_some())
            });
            if let Some(other) = other {
                return self
                    .error(other.span.clone(), "a key can use the filter each for one list only; expected the same property with the same each");
            }
        }
        Ok(template)
    }

    /// Parses a field with its braces.
    fn field(&mut self) -> Result<Field, TemplateError> {
        let open = self.at;
        let Some(length) = self.rest().find('}') else {
            return self.error(
                open..self.text.len(),
                "this '{' is not closed; write {{ for a literal brace",
            );
        };
        let close = open + length;
        if let Some(inner) = self.text[open + 1..close].find('{') {
            let inner = open + 1 + inner;
            return self.error(
                inner..inner + 1,
                "'{' inside a field; close the field with '}' first",
            );
        }
        self.at = close + 1;
        let mut start = open + 1;
        let mut segments = self.text[start..close].split('|').map(|segment| {
            let span = start..start + segment.len();
            start = span.end + 1;
            (segment, span)
        });
        let (property, span) = segments.next().unwrap_or(("", open + 1..close));
        (self.check)(property).or_else(|problem| self.error(span, problem))?;
        let mut filters = Vec::new();
        for (segment, span) in segments {
            if filters.len() == MAX_FILTERS {
                return self.error(span, format!("a field has at most {MAX_FILTERS} filters"));
            }
            let filter = self.filter(segment, span.clone())?;
            if matches!(filter, KeyFilter::Each(_)) {
                if self.of != TextKind::RowKey {
                    return self.error(span, "the filter each makes several keys, so it is allowed only in the keys of a view's rows");
                }
                if !filters.is_empty() {
                    return self.error(span, "the filter each must come first");
                }
            }
            filters.push(filter);
        }
        Ok(Field {
            property: property.to_owned(),
            filters,
            span: open..close + 1,
        })
    }

    fn filter(&self, segment: &str, span: Range<usize>) -> Result<KeyFilter, TemplateError> {
        let (name, argument) = match segment.split_once(':') {
            Some((name, argument)) => (name, Some(argument)),
            None => (segment, None),
        };
        let name_span = span.start..span.start + name.len();
        let call = FilterCall {
            parser: self,
            name,
            argument,
            span: if argument.is_some() {
                name_span.end + 1..span.end
            } else {
                span
            },
        };
        if let Some((_, read)) = FILTERS.iter().find(|(known, _)| *known == name) {
            return read(&call);
        }
        let names = filter_names();
        match nearest(name, names) {
            Some(known) => self.error(
                name_span,
                format!("unknown filter {name:?}; did you mean {known:?}?"),
            ),
            None => self.error(
                name_span,
                format!("unknown filter {name:?}; known are {}", names.join(", ")),
            ),
        }
    }
}

/// A filter with its argument, as written in a template.
struct FilterCall<'p, 't> {
    parser: &'p TemplateParser<'t>,
    name: &'p str,
    argument: Option<&'p str>,
    /// The place of the argument, or of the filter if it has none.
    span: Range<usize>,
}

type ReadFilter = fn(&FilterCall<'_, '_>) -> Result<KeyFilter, TemplateError>;

/// All filters by name.
const FILTERS: [(&str, ReadFilter); 16] = [
    ("lower", |call| call.plain(KeyFilter::Lower)),
    ("upper", |call| call.plain(KeyFilter::Upper)),
    ("trim", |call| call.plain(KeyFilter::Trim)),
    ("nfc", |call| call.plain(KeyFilter::Nfc)),
    ("pad", |call| {
        call.width(filter::MAX_PAD, "8").map(KeyFilter::Pad)
    }),
    ("sortable", |call| call.plain(KeyFilter::Sortable)),
    ("inverted_ticks", |call| {
        call.plain(KeyFilter::InvertedTicks)
    }),
    ("date", |call| call.date().map(KeyFilter::Date)),
    ("hash", |call| {
        call.width(filter::MAX_HASH, "3").map(KeyFilter::Hash)
    }),
    ("bucket", |call| {
        call.number(1, filter::MAX_BUCKETS, "16")
            .map(KeyFilter::Bucket)
    }),
    ("slug", |call| call.plain(KeyFilter::Slug)),
    ("after", |call| call.part("/").map(KeyFilter::After)),
    ("before", |call| call.part("/").map(KeyFilter::Before)),
    ("after_last", |call| {
        call.part(".").map(KeyFilter::AfterLast)
    }),
    ("before_last", |call| {
        call.part(".").map(KeyFilter::BeforeLast)
    }),
    ("each", |call| {
        Ok(KeyFilter::Each(match call.argument {
            None => ListText::Json,
            Some(_) => ListText::Separated(call.part(",")?),
        }))
    }),
];

/// The names of all filters.
pub fn filter_names() -> [&'static str; 16] {
    FILTERS.map(|(name, _)| name)
}

impl FilterCall<'_, '_> {
    fn error<T>(&self, problem: impl Into<String>) -> Result<T, TemplateError> {
        self.parser.error(self.span.clone(), problem)
    }

    fn plain(&self, filter: KeyFilter) -> Result<KeyFilter, TemplateError> {
        match self.argument {
            None => Ok(filter),
            Some(_) => self.error(format!("{} takes no argument", self.name)),
        }
    }

    fn number(&self, least: u32, most: u32, example: &str) -> Result<u32, TemplateError> {
        let name = self.name;
        self.argument
            .filter(|text| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|text| text.parse::<u32>().ok())
            .filter(|number| (least..=most).contains(number))
            .map_or_else(
                || {
                    self.error(format!(
                        "{name} requires a number from {least} to {most}, such as {name}:{example}"
                    ))
                },
                Ok,
            )
    }

    fn width(&self, most: usize, example: &str) -> Result<usize, TemplateError> {
        self.number(1, u32::try_from(most).unwrap_or(u32::MAX), example)
            .map(|n| n as usize)
    }

    fn part(&self, example: &str) -> Result<String, TemplateError> {
        let name = self.name;
        match self.argument.filter(|text| !text.is_empty()) {
            Some(text) => Ok(text.to_owned()),
            None => self.error(format!("{name} requires a text, such as {name}:{example}")),
        }
    }

    fn date(&self) -> Result<DateFormat, TemplateError> {
        const EXPECTED: &str = "date requires a strftime format, such as date:%Y%m%d";
        let Some(format) = self.argument.filter(|format| !format.is_empty()) else {
            return self.error(EXPECTED);
        };
        DateFormat::parse(format)
            .and_then(|date| filter::check_date_format(&date).map(|()| date))
            .or_else(|problem| self.error(format!("{EXPECTED}: {problem}")))
    }
}

fn check_property(name: &str) -> Result<(), String> {
    if name == "Timestamp" {
        return Err(
            "Timestamp cannot be used in keys, because every write changes it, also evenkeel's own"
                .to_owned(),
        );
    }
    if matches!(name, "PartitionKey" | "RowKey") || valid_property_name(name) {
        return Ok(());
    }
    if name.is_empty() {
        return Err("expected a property name, such as {Email}".to_owned());
    }
    Err(format!(
        "{name:?} is not a property name; expected {PROPERTY_NAME_RULE}"
    ))
}
