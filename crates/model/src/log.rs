//! Log archives: the folder of each hour, the format of a line, and the time range of a blob.
//!
//! ```text
//!   logs/2026/11/20/1500/000001.jsonl     the folder of an hour, rendered from `logs/%Y/%m/%d/%H00`, and a number
//! ```

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value};

use super::odata;
use super::stored::{self, FormatError};
use super::{BlobName, EdmDateTime, EdmValue, Entity};

/// Directives of a path. All directives together identify an hour.
const DIRECTIVES: [&str; 4] = ["%Y", "%m", "%d", "%H"];
/// Names of the metadata with the first and the last time in a blob.
const SPAN: [&str; 2] = ["first", "last"];
/// Times in metadata are whole minutes, so that a busy blob's metadata changes once a minute instead of with every line.
const MINUTE: i64 = 60;
/// 0001-01-01T00:00:00Z: the first year with four digits, and `DateTime.MinValue` of .NET.
const FIRST_SECOND: i64 = -62_135_596_800;
/// 9999-12-30T21:59:00Z: the last whole minute that can be rounded up to the next one. The range of timestamps ends one second after 22:00.
const LAST_SECOND: i64 = 253_402_207_140;

/// The template of the folder of each hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPath(String);

/// A text that does not name a folder for each hour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a path with %Y, %m, %d and %H and no other directive, such as \"logs/%Y/%m/%d/%H00\", found {0:?}"
)]
pub struct LogPathError(String);

impl LogPath {
    /// Parses a path.
    pub fn parse(text: &str) -> Result<Self, LogPathError> {
        let path = Self(text.to_owned());
        let rest = DIRECTIVES.iter().fold(text.to_owned(), |rest, directive| {
            rest.replace(directive, "")
        });
        let whole =
            DIRECTIVES.iter().all(|directive| text.contains(directive)) && !rest.contains('%');
        if whole && name(&path.of(Timestamp::UNIX_EPOCH), 1).is_some() {
            Ok(path)
        } else {
            Err(LogPathError(text.to_owned()))
        }
    }

    /// The text from the catalog.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the folder of the hour that contains a moment, in UTC.
    pub fn of(&self, moment: Timestamp) -> String {
        let moment = moment.to_zoned(TimeZone::UTC);
        let values = [
            format!("{:04}", moment.year()),
            format!("{:02}", moment.month()),
            format!("{:02}", moment.day()),
            format!("{:02}", moment.hour()),
        ];
        DIRECTIVES
            .iter()
            .zip(values)
            .fold(self.0.clone(), |path, (directive, value)| {
                path.replace(directive, &value)
            })
    }

    /// Whether a blob is in the folder of an hour.
    pub fn holds(&self, blob: &BlobName) -> bool {
        let digits = [4, 2, 2, 2].map(|digits| "\0".repeat(digits));
        let shape = DIRECTIVES
            .iter()
            .zip(digits)
            .fold(self.0.clone(), |path, (directive, digits)| {
                path.replace(directive, &digits)
            });
        let fits = |folder: &str| {
            let mut pairs = folder.bytes().zip(shape.bytes());
            folder.len() == shape.len()
                && pairs.all(|(is, wanted)| is == wanted || wanted == 0 && is.is_ascii_digit())
        };
        blob.as_str()
            .rsplit_once('/')
            .is_some_and(|(folder, _)| number(folder, blob).is_some() && fits(folder))
    }
}

/// Returns the name of a blob in the folder of an hour, or `None` if the name would be invalid.
pub fn name(folder: &str, number: u32) -> Option<BlobName> {
    BlobName::new(format!("{folder}/{number:06}.jsonl")).ok()
}

/// Returns the number of a blob in the folder of an hour, or `None` if the name has another form.
pub fn number(folder: &str, name: &BlobName) -> Option<u32> {
    let digits = name
        .as_str()
        .strip_prefix(folder)?
        .strip_prefix('/')?
        .strip_suffix(".jsonl")?;
    digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse().ok())
        .flatten()
}

/// The time of an entity: the time in the named property if the property has one, or else the time of the last write.
pub fn moment(entity: &Entity, property: Option<&str>, written: Timestamp) -> Timestamp {
    match property.and_then(|name| entity.get(name)) {
        Some(EdmValue::DateTime(moment)) => logged(moment.timestamp()),
        Some(EdmValue::String(text)) => time_of(text).unwrap_or(written),
        _ => written,
    }
}

/// Parses a time: an `Edm.DateTime`, in UTC if it has no offset, or another form of ISO 8601 with an offset. Entities and lines are parsed
/// alike, so that readers look for a line in the folder in which the line was written.
fn time_of(text: &str) -> Option<Timestamp> {
    EdmDateTime::parse(text)
        .map(EdmDateTime::timestamp)
        .ok()
        .or_else(|| text.parse().ok())
        .map(logged)
}

/// Clamps a time to the range that has folders and can be rounded up to minutes. `DateTime.MaxValue` of .NET, which is beyond the range of
/// the clock, becomes the last minute.
fn logged(moment: Timestamp) -> Timestamp {
    let at = |second| Timestamp::from_second(second).unwrap_or(moment);
    moment.clamp(at(FIRST_SECOND), at(LAST_SECOND))
}

/// Format version of a line.
const VERSION: u32 = 1;

/// Returns the line of an entity, with the time of the last write and the format version.
pub fn line(entity: &Entity, written: Timestamp) -> Bytes {
    let mut json = odata::encode(entity);
    stored::tag(&mut json, VERSION);
    json.insert(
        "Timestamp".to_owned(),
        Value::String(
            EdmDateTime::from_timestamp(written)
                .map_or_else(|_| written.to_string(), |at| at.to_string()),
        ),
    );
    let mut text = Value::Object(json).to_string();
    text.push('\n');
    text.into()
}

/// Refuses a line whose format version is missing or unknown.
pub fn check_line(line: &Value) -> Result<(), FormatError> {
    let none = Map::new();
    let fields = line.as_object().unwrap_or(&none);
    let text = |name: &str| line[name].as_str().unwrap_or_default();
    let thing = || {
        format!(
            "the line of ({:?}, {:?})",
            text("PartitionKey"),
            text("RowKey")
        )
    };
    stored::check_tag(fields, VERSION, thing)
}

/// Returns the time of the entity in a line.
pub fn moment_of_line(line: &Value, property: Option<&str>) -> Option<Timestamp> {
    let text = |name: &str| line.get(name).and_then(Value::as_str).and_then(time_of);
    property.and_then(text).or_else(|| text("Timestamp"))
}

/// The time range of a blob. All times in the blob are within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The earliest time.
    pub first: Timestamp,
    /// The latest time.
    pub last: Timestamp,
}

impl Bounds {
    /// A range of times.
    pub const fn new(first: Timestamp, last: Timestamp) -> Self {
        Self { first, last }
    }

    /// Rounds the range outward to whole minutes.
    #[must_use]
    pub fn rounded(self) -> Self {
        let floor = |moment: Timestamp| {
            Timestamp::from_second(moment.as_second().div_euclid(MINUTE) * MINUTE).unwrap_or(moment)
        };
        let last = self
            .last
            .saturating_add(SignedDuration::from_secs(MINUTE))
            .unwrap_or(self.last);
        Self {
            first: floor(self.first),
            last: floor(last),
        }
    }

    /// Returns the smallest range that contains both ranges.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        })
    }

    /// Whether the range contains another range.
    pub fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether the ranges overlap.
    pub fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Reads the range from a blob's metadata.
    pub fn of(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let time = |name| metadata.get(name)?.parse().ok();
        Some(Self {
            first: time(SPAN[0])?,
            last: time(SPAN[1])?,
        })
    }

    /// Writes the range to a blob's metadata.
    pub fn on(&self, metadata: &mut BTreeMap<String, String>) {
        for (name, time) in SPAN.into_iter().zip([self.first, self.last]) {
            metadata.insert(name.to_owned(), time.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityKey;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_blob_of_an_hour_is_recognised() {
        let path = LogPath::parse("logs/%Y/%m/%d/%H00").unwrap();
        let holds = |name: &str| path.holds(&BlobName::new(name).unwrap());
        assert!(holds("logs/2026/11/20/1500/000001.jsonl"));
        for other in [
            "theirs/2026/11/20/1500/000001.jsonl",
            "logs/2026/11/20/1501/000001.jsonl",
            "logs/2026/11/20/1500/a.jsonl",
            "000001.jsonl",
        ] {
            assert!(!holds(other), "{other}");
        }
    }

    #[test]
    fn an_hour_has_a_folder_and_its_blobs_have_numbers() {
        let path = LogPath::parse("logs/%Y/%m/%d/%H00").unwrap();
        assert_eq!(
            path.of(at("2026-11-20T15:59:59.9Z")),
            "logs/2026/11/20/1500"
        );
        let name = name("logs/2026/11/20/1500", 1).unwrap();
        assert_eq!(name.as_str(), "logs/2026/11/20/1500/000001.jsonl");
        assert_eq!(number("logs/2026/11/20/1500", &name), Some(1));
        for other in [
            "logs/2026/11/20/1500/a.jsonl",
            "logs/2026/11/20/1500/000001.json",
            "logs/2026/11/20/1600/000001.jsonl",
        ] {
            assert_eq!(
                number("logs/2026/11/20/1500", &BlobName::new(other).unwrap()),
                None,
                "{other}"
            );
        }
        for bad in [
            "logs/%Y/%m/%d",
            "logs/%Y/%m/%d/%H/%M",
            "%Y%m%d%H%%",
            "/%Y/%m/%d/%H",
            "한/%Y/%m/%d/%H",
            "",
        ] {
            assert!(LogPath::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_span_is_widened_by_whole_minutes_and_survives_in_metadata() {
        let span = Bounds::new(at("2026-11-20T15:00:30Z"), at("2026-11-20T15:01:00Z")).rounded();
        assert_eq!(
            span,
            Bounds::new(at("2026-11-20T15:00:00Z"), at("2026-11-20T15:02:00Z"))
        );
        let mut metadata = BTreeMap::new();
        span.on(&mut metadata);
        assert_eq!(Bounds::of(&metadata), Some(span));
        let wider = span.and(Some(Bounds::new(
            at("2026-11-20T14:59:00Z"),
            at("2026-11-20T15:01:00Z"),
        )));
        assert!(wider.covers(&span) && !span.covers(&wider) && span.meets(&wider));
        assert!(!span.meets(&Bounds::new(
            at("2026-11-20T16:00:00Z"),
            at("2026-11-20T17:00:00Z")
        )));
        assert_eq!(Bounds::of(&BTreeMap::new()), None);
    }

    #[test]
    fn a_span_at_either_end_of_time_is_covered_by_its_rounding_and_survives() {
        for text in [
            "9999-12-31T23:59:59.9999999Z",
            "0001-01-01T00:00:00Z",
            "1601-01-01T00:00:00Z",
        ] {
            let entity = Entity::new(EntityKey::new("w", "r").unwrap()).with("At", text);
            let moment = moment(&entity, Some("At"), Timestamp::UNIX_EPOCH);
            let span = Bounds::new(moment, moment);
            let mut metadata = BTreeMap::new();
            span.rounded().on(&mut metadata);
            let read = Bounds::of(&metadata).unwrap();
            assert!(read.covers(&span), "{metadata:?} of {span:?}");
        }
    }

    #[test]
    fn an_entity_and_its_line_have_the_same_time_whatever_the_property_contains() {
        let written = at("2026-11-28T17:56:11Z");
        let text = |text: &str| EdmValue::from(text);
        for (value, expected) in [
            (
                EdmDateTime::parse("9999-12-31T23:59:59.9999999Z")
                    .unwrap()
                    .into(),
                "9999-12-30T21:59:00Z",
            ),
            (text("9999-12-31T23:59:59.9999999Z"), "9999-12-30T21:59:00Z"),
            (text("0001-01-01T00:00:00Z"), "0001-01-01T00:00:00Z"),
            (text("-000044-03-15T12:00:00Z"), "0001-01-01T00:00:00Z"),
            (text("2026-11-20T15:13:00+0000"), "2026-11-20T15:13:00Z"),
            (text("2016-12-31T23:59:60Z"), "2016-12-31T23:59:59Z"),
            (text("2026-11-20T15:10:00"), "2026-11-20T15:10:00Z"),
            (text("2026-11-20T16:12:00+01:00"), "2026-11-20T15:12:00Z"),
            (
                text("2026-11-20T15:14:00.123456789Z"),
                "2026-11-20T15:14:00.1234567Z",
            ),
            (text("yesterday"), "2026-11-28T17:56:11Z"),
            (1_763_650_000_i64.into(), "2026-11-28T17:56:11Z"),
        ] {
            let entity = Entity::new(EntityKey::new("w", "r").unwrap()).with("At", value);
            let line: Value = serde_json::from_slice(&line(&entity, written)).unwrap();
            assert_eq!(
                moment(&entity, Some("At"), written),
                at(expected),
                "{entity:?}"
            );
            assert_eq!(
                moment_of_line(&line, Some("At")),
                Some(at(expected)),
                "{line}"
            );
        }
    }

    #[test]
    fn a_line_of_this_version_is_read_and_a_newer_one_is_refused() {
        let entity = Entity::new(EntityKey::new("web1", "7").unwrap()).with("Text", "a");
        let line = line(&entity, at("2026-11-20T16:00:00Z"));
        let written = r#"{"PartitionKey":"web1","RowKey":"7","Text":"a","Timestamp":"2026-11-20T16:00:00Z","ek_format":1}"#;
        assert_eq!(line, format!("{written}\n"));
        let check = |text: &str| check_line(&serde_json::from_str(text).unwrap());
        assert_eq!(check(written), Ok(()));
        let newer = check(&written.replace("\"ek_format\":1", "\"ek_format\":2")).unwrap_err();
        assert_eq!(
            newer.to_string(),
            "the line of (\"web1\", \"7\") has format version 2, but this program reads version 1. Update this program, or use the one that wrote the data"
        );
        for theirs in [r#"{"RowKey":"7"}"#, "7"] {
            let error = check(theirs).unwrap_err();
            assert!(matches!(error, FormatError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn a_line_has_the_time_of_its_entity() {
        let logged = EdmDateTime::parse("2026-11-20T15:00:00Z").unwrap();
        let entity = Entity::new(EntityKey::new("web1", "7").unwrap())
            .with("LoggedAt", logged)
            .with("Text", "a\nb");
        let written = at("2026-11-20T16:00:00Z");
        let line = line(&entity, written);
        assert_eq!(
            line.split(|b| *b == b'\n').count(),
            2,
            "one line, and its end"
        );
        let json: Value = serde_json::from_slice(&line).unwrap();
        for (property, expected) in [
            (Some("LoggedAt"), logged.timestamp()),
            (None, written),
            (Some("Text"), written),
        ] {
            assert_eq!(moment(&entity, property, written), expected);
            assert_eq!(moment_of_line(&json, property), Some(expected));
        }
    }
}
