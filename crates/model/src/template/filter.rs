//! The filters of a field: the input and output of each.

use sha2::{Digest as _, Sha256};
use unicode_normalization::UnicodeNormalization as _;

use super::each::ListText;
use super::number::{Number, SORTABLE_DIGITS, sortable};
use super::ordered;
use super::zone::DateFormat;
use crate::{EdmDateTime, EdmValue};

/// Maximum width of `pad`: one more than the number of digits of the largest Int64.
pub(super) const MAX_PAD: usize = 20;
/// Hex digits of a SHA-256.
pub(super) const MAX_HASH: usize = 64;
/// Maximum number of buckets. A range lookup queries each of them.
pub(super) const MAX_BUCKETS: u32 = 1_000;

/// A filter of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyFilter {
    /// `lower`: Unicode lower case.
    Lower,
    /// `upper`: Unicode upper case.
    Upper,
    /// `trim`: removes white space at both ends.
    Trim,
    /// `nfc`: the composed form of Unicode (NFC), which is the same for all texts that look the same.
    Nfc,
    /// `pad:8`: a number of at most 8 digits, padded with zeros on the left. 1 to 20.
    Pad(usize),
    /// `sortable`: any number as 19 hex digits, which sort by its value.
    Sortable,
    /// `inverted_ticks`: a moment as 19 digits, which sort in reverse order of time.
    InvertedTicks,
    /// `date:%Y%m%d`: a moment by strftime, in UTC; `date:%Y%m%d:Europe/Berlin`: in a time zone.
    Date(DateFormat),
    /// `hash:3`: the first hex digits of the text's SHA-256, in lower case. 1 to 64.
    Hash(usize),
    /// `bucket:16`: the first four bytes (big-endian) of the text's SHA-256 modulo 16, padded with zeros to the width of the last bucket. 1
    /// to 1,000.
    Bucket(u32),
    /// `slug`: lower case, with each run of characters other than letters and digits replaced by one dash, and none at the ends.
    Slug,
    /// `after:/`: the text after the first occurrence of the argument; empty if there is none.
    After(String),
    /// `before:/`: the text before the first occurrence of the argument; empty if there is none.
    Before(String),
    /// `after_last:.`: the text after the last occurrence of the argument; empty if there is none.
    AfterLast(String),
    /// `before_last:.`: the text before the last occurrence of the argument; empty if there is none.
    BeforeLast(String),
    /// `each`, `each:,`: each value of a list. A single value, as in a lookup, stays as it is.
    Each(ListText),
}

/// A value on its way through the filters of a field.
pub(super) enum Value<'a> {
    /// The property's value.
    Typed(&'a EdmValue),
    /// The output of a filter.
    Text(String),
}

impl Value<'_> {
    /// Returns the text of the value, or the reason why the value has none.
    pub(super) fn into_text(self) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Typed(value) => match value {
                EdmValue::String(text) => Ok(text.clone()),
                EdmValue::Bool(truth) => Ok(truth.to_string()),
                EdmValue::Int32(number) => Ok(number.to_string()),
                EdmValue::Int64(number) => Ok(number.to_string()),
                EdmValue::DateTime(moment) => Ok(moment.sorting_text()),
                EdmValue::Guid(guid) => Ok(guid.hyphenated().to_string()),
                EdmValue::Double(_) => {
                    Err("is an Edm.Double, which has no unique text; use the filter sortable, an integer or a string"
                        .to_owned())
                }
                EdmValue::Binary(_) => Err("is an Edm.Binary, which has no text; use a string".to_owned()),
            },
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) | Self::Typed(EdmValue::String(text)) => text.is_empty(),
            Self::Typed(_) => false,
        }
    }

    fn into_number(self) -> Result<Number, String> {
        let text = match self {
            Self::Typed(EdmValue::String(text)) => text.clone(),
            Self::Text(text) => text,
            Self::Typed(value) => {
                return Number::of(value).ok_or_else(|| {
                    format!(
                        "is an {}; sortable expects a number, or the text of one",
                        value.type_name()
                    )
                });
            }
        };
        let expected =
            "sortable expects an Edm.Int64 or Edm.Double, or the text of one, such as -4.5";
        Number::parse(&text).ok_or_else(|| format!("is {:?}; {expected}", shortened(&text)))
    }

    fn into_moment(self, filter: &str) -> Result<EdmDateTime, String> {
        match self {
            Self::Typed(EdmValue::DateTime(moment)) => Ok(*moment),
            Self::Text(text) => parse_moment(&text, filter),
            Self::Typed(EdmValue::String(text)) => parse_moment(text, filter),
            Self::Typed(other) => Err(format!(
                "is an {}; {filter} expects an Edm.DateTime, or text in RFC 3339",
                other.type_name()
            )),
        }
    }

    fn into_digits(self) -> Result<String, String> {
        let type_name = match &self {
            Self::Typed(value) => value.type_name(),
            Self::Text(_) => EdmValue::String(String::new()).type_name(),
        };
        let text = match self {
            Self::Typed(
                EdmValue::Bool(_)
                | EdmValue::Double(_)
                | EdmValue::DateTime(_)
                | EdmValue::Guid(_)
                | EdmValue::Binary(_),
            ) => {
                return Err(format!(
                    "is an {type_name}; pad expects an Edm.Int32, an Edm.Int64, or text of digits"
                ));
            }
            Self::Typed(EdmValue::String(_) | EdmValue::Int32(_) | EdmValue::Int64(_))
            | Self::Text(_) => self.into_text()?,
        };
        if text.starts_with('-') && text[1..].bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!(
                "is {text}; pad refuses negative numbers, because they would not sort by value"
            ));
        }
        if !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(format!(
                "is {:?}; pad expects a number, or text of digits",
                shortened(&text)
            ));
        }
        Ok(text)
    }
}

fn parse_moment(text: &str, filter: &str) -> Result<EdmDateTime, String> {
    EdmDateTime::parse(text).map_err(|_| {
        format!(
            "is {:?}; {filter} expects an Edm.DateTime, or text such as 2026-11-20T15:00:00Z",
            shortened(text)
        )
    })
}

/// The first 40 characters of a text.
pub(super) fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

impl KeyFilter {
    /// Applies the filter. The error describes the problem with the value.
    pub(super) fn apply(&self, value: Value<'_>) -> Result<String, String> {
        match self {
            Self::Lower => Ok(value.into_text()?.to_lowercase()),
            Self::Upper => Ok(value.into_text()?.to_uppercase()),
            Self::Trim => Ok(value.into_text()?.trim().to_owned()),
            Self::Nfc => Ok(value.into_text()?.nfc().collect()),
            Self::Pad(width) => {
                let digits = value.into_digits()?;
                if digits.len() > *width {
                    return Err(format!(
                        "is {}, which does not fit into {width} digits",
                        shortened(&digits)
                    ));
                }
                Ok(format!("{digits:0>width$}"))
            }
            Self::Sortable => sortable(value.into_number()?)
                .ok_or_else(|| "is NaN, which cannot be sorted".to_owned()),
            Self::InvertedTicks => Ok(ordered::inverted_ticks(
                value.into_moment("inverted_ticks")?,
            )),
            Self::Date(format) => {
                let moment = value.into_moment("date")?;
                format.write(moment).map_err(|error| {
                    format!(
                        "is {moment}, which date:{} cannot write: {error}",
                        format.format()
                    )
                })
            }
            Self::Hash(digits) => {
                Ok(hex::encode(Sha256::digest(value.into_text()?))[..*digits].to_owned())
            }
            Self::Bucket(count) => {
                let hash = Sha256::digest(value.into_text()?);
                Ok(bucket_text(
                    u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]]) % count,
                    *count,
                ))
            }
            Self::Slug => Ok(slug(&value.into_text()?)),
            Self::Each(_) => value.into_text(),
            Self::After(part) => Ok(value
                .into_text()?
                .split_once(part)
                .map_or_else(String::new, |(_, after)| after.to_owned())),
            Self::Before(part) => Ok(value
                .into_text()?
                .split_once(part)
                .map_or_else(String::new, |(before, _)| before.to_owned())),
            Self::AfterLast(part) => Ok(value
                .into_text()?
                .rsplit_once(part)
                .map_or_else(String::new, |(_, after)| after.to_owned())),
            Self::BeforeLast(part) => Ok(value
                .into_text()?
                .rsplit_once(part)
                .map_or_else(String::new, |(before, _)| before.to_owned())),
        }
    }

    /// Applies the filter to a prefix, so that the output of a text with that prefix starts with the result. Only leading white space is
    /// trimmed, because the text may continue after the prefix. Returns `None` for filters that do not preserve prefixes.
    pub(super) fn apply_to_beginning(&self, beginning: String) -> Option<String> {
        match self {
            Self::Lower => Some(beginning.to_lowercase()),
            Self::Upper => Some(beginning.to_uppercase()),
            Self::Trim => Some(beginning.trim_start().to_owned()),
            // If a combining mark follows the prefix, the mark changes the last character of the prefix. A text with such a mark does not
            // count as a text with the prefix.
            Self::Nfc => Some(beginning.nfc().collect()),
            Self::Each(_) => Some(beginning),
            Self::Pad(_)
            | Self::Sortable
            | Self::InvertedTicks
            | Self::Date(_)
            | Self::Hash(_)
            | Self::Bucket(_)
            | Self::Slug
            | Self::After(_)
            | Self::Before(_)
            | Self::AfterLast(_)
            | Self::BeforeLast(_) => None,
        }
    }

    /// Whether the filter spreads neighbouring values on purpose.
    pub(crate) const fn spreads(&self) -> bool {
        match self {
            Self::Hash(_) | Self::Bucket(_) => true,
            Self::Lower
            | Self::Upper
            | Self::Trim
            | Self::Nfc
            | Self::Pad(_)
            | Self::Sortable
            | Self::InvertedTicks
            | Self::Date(_)
            | Self::Slug
            | Self::After(_)
            | Self::Before(_)
            | Self::AfterLast(_)
            | Self::BeforeLast(_)
            | Self::Each(_) => false,
        }
    }

    /// The number of characters of every output, if all outputs have the same length.
    pub const fn fixed_width(&self) -> Option<usize> {
        match self {
            Self::Pad(width) | Self::Hash(width) => Some(*width),
            Self::Sortable => Some(SORTABLE_DIGITS),
            Self::InvertedTicks => Some(ordered::INVERTED_TICKS_DIGITS),
            Self::Bucket(count) => Some(bucket_width(*count)),
            Self::Lower
            | Self::Upper
            | Self::Trim
            | Self::Nfc
            | Self::Date(_)
            | Self::Slug
            | Self::After(_)
            | Self::Before(_)
            | Self::AfterLast(_)
            | Self::BeforeLast(_)
            | Self::Each(_) => None,
        }
    }

    /// All outputs of `bucket`, in order; `None` for other filters.
    pub fn buckets(&self) -> Option<Vec<String>> {
        match self {
            Self::Bucket(count) => Some(
                (0..*count)
                    .map(|bucket| bucket_text(bucket, *count))
                    .collect(),
            ),
            Self::Lower
            | Self::Upper
            | Self::Trim
            | Self::Nfc
            | Self::Pad(_)
            | Self::Sortable
            | Self::InvertedTicks
            | Self::Date(_)
            | Self::Hash(_)
            | Self::Slug
            | Self::After(_)
            | Self::Before(_)
            | Self::AfterLast(_)
            | Self::BeforeLast(_)
            | Self::Each(_) => None,
        }
    }
}

const fn bucket_width(count: u32) -> usize {
    match count.saturating_sub(1).checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

fn bucket_text(bucket: u32, count: u32) -> String {
    format!("{bucket:0width$}", width = bucket_width(count))
}

fn slug(text: &str) -> String {
    let mut slug = String::with_capacity(text.len());
    for c in text.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    if slug.ends_with('-') {
        slug.pop();
    }
    slug
}

/// Date patterns of other languages, each with the equivalent directive. Longer patterns come first.
const PATTERNS: [(&str, &str); 8] = [
    ("yyyy", "%Y"),
    ("YYYY", "%Y"),
    ("yy", "%y"),
    ("MM", "%m"),
    ("dd", "%d"),
    ("HH", "%H"),
    ("mm", "%M"),
    ("ss", "%S"),
];

/// Checks a strftime format by writing two dates that differ in all parts. If both have the same text, the format distinguishes no dates.
pub(super) fn check_date_format(date: &DateFormat) -> Result<(), String> {
    let (format, written) = (date.format(), |moment: &str| {
        date.write(EdmDateTime::parse(moment).map_err(|error| error.to_string())?)
    });
    let (one, other) = (
        written("2026-11-20T15:00:00Z")?,
        written("1984-02-05T04:03:02.123Z")?,
    );
    if one != other {
        return Ok(());
    }
    let meant = PATTERNS
        .iter()
        .fold(format.to_owned(), |meant, (pattern, directive)| {
            meant.replace(pattern, directive)
        });
    let hint = if meant == format {
        String::new()
    } else {
        format!("; did you mean date:{meant}?")
    };
    Err(format!(
        "no directive such as %Y distinguishes dates: every value would become {one:?}{hint}"
    ))
}
