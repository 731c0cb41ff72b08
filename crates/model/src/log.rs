//! Logs: the location of an hour's lines, the format of a line, and the times that a blob holds.
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

/// The directives of a path, which distinguish one hour from all others.
const DIRECTIVES: [&str; 4] = ["%Y", "%m", "%d", "%H"];
/// The metadata with the first and the last time in a blob.
const SPAN: [&str; 2] = ["first", "last"];
/// Times in metadata are whole minutes: a busy blob's metadata changes once a minute, not with every line.
const MINUTE: i64 = 60;
/// 0001-01-01T00:00:00Z: a year of four digits, `DateTime.MinValue` of .NET.
const FIRST_SECOND: i64 = -62_135_596_800;
/// 9999-12-30T21:59:00Z: the last whole minute that another one follows.
const LAST_SECOND: i64 = 253_402_207_140;

/// The folder of each hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPath(String);

/// A text that names no folder for each hour.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a path that names each hour with %Y, %m, %d and %H and nothing else of the time, such as \"logs/%Y/%m/%d/%H00\", found {0:?}"
)]
pub struct LogPathError(String);

impl LogPath {
    /// Reads a path.
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

    /// As the catalog spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folder of the hour that a moment lies in, in UTC.
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

    /// Whether a blob lies in the folder of an hour.
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

/// The name of a blob of an hour's folder; `None` where it would be no name.
pub fn name(folder: &str, number: u32) -> Option<BlobName> {
    BlobName::new(format!("{folder}/{number:06}.jsonl")).ok()
}

/// The number of a blob of an hour's folder.
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

/// When an entity happened: its property, where one is named and it has a time; else when it was last written.
pub fn moment(entity: &Entity, property: Option<&str>, written: Timestamp) -> Timestamp {
    match property.and_then(|name| entity.get(name)) {
        Some(EdmValue::DateTime(moment)) => logged(moment.timestamp()),
        Some(EdmValue::String(text)) => time_of(text).unwrap_or(written),
        _ => written,
    }
}

/// The moment of a text: as an `Edm.DateTime` reads, in UTC without an offset; or another form of ISO 8601 with one. The entity and its
/// line are both asked by it, so that a reader looks for a line where it lies.
fn time_of(text: &str) -> Option<Timestamp> {
    EdmDateTime::parse(text)
        .map(EdmDateTime::timestamp)
        .ok()
        .or_else(|| text.parse().ok())
        .map(logged)
}

/// A moment with an hour's folder around it and room for whole minutes: `DateTime.MaxValue` of .NET lies behind the last one that a clock
/// has, and is logged as the last minute.
fn logged(moment: Timestamp) -> Timestamp {
    let at = |second| Timestamp::from_second(second).unwrap_or(moment);
    moment.clamp(at(FIRST_SECOND), at(LAST_SECOND))
}

/// The version of a line.
const VERSION: u32 = 1;

/// The line of an entity, with the time at which it was last written, and the version of the format.
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

/// Refuses a line of another version, or of none: what is asked of it would be guessed.
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

/// When the entity of a line happened.
pub fn moment_of_line(line: &Value, property: Option<&str>) -> Option<Timestamp> {
    let text = |name: &str| line.get(name).and_then(Value::as_str).and_then(time_of);
    property.and_then(text).or_else(|| text("Timestamp"))
}

/// The times that a blob holds: it may hold fewer, and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The first.
    pub first: Timestamp,
    /// The last.
    pub last: Timestamp,
}

impl Bounds {
    /// From one moment to another.
    pub const fn new(first: Timestamp, last: Timestamp) -> Self {
        Self { first, last }
    }

    /// The whole minutes around.
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

    /// Both, and the time between.
    #[must_use]
    pub fn and(self, other: Option<Self>) -> Self {
        other.map_or(self, |other| Self {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        })
    }

    /// Whether the other lies within.
    pub fn covers(&self, other: &Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether both have a moment in common.
    pub fn meets(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Reads a blob's metadata.
    pub fn of(metadata: &BTreeMap<String, String>) -> Option<Self> {
        let time = |name| metadata.get(name)?.parse().ok();
        Some(Self {
            first: time(SPAN[0])?,
            last: time(SPAN[1])?,
        })
    }

    /// Writes it into a blob's metadata.
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
    fn a_blob_of_an_hour_is_told_from_others() {
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
    fn an_entity_and_its_line_tell_one_moment_whatever_the_property_holds() {
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
    fn a_line_is_as_this_version_writes_it_and_a_newer_one_is_refused() {
        let entity = Entity::new(EntityKey::new("web1", "7").unwrap()).with("Text", "a");
        let line = line(&entity, at("2026-11-20T16:00:00Z"));
        let written = r#"{"PartitionKey":"web1","RowKey":"7","Text":"a","Timestamp":"2026-11-20T16:00:00Z","ek_format":1}"#;
        assert_eq!(line, format!("{written}\n"));
        let check = |text: &str| check_line(&serde_json::from_str(text).unwrap());
        assert_eq!(check(written), Ok(()));
        let newer = check(&written.replace("\"ek_format\":1", "\"ek_format\":2")).unwrap_err();
        assert_eq!(
            newer.to_string(),
            "the line of (\"web1\", \"7\") has version 2 of its format, and this program reads version 1: update this program, or let the one that wrote it read it"
        );
        for theirs in [r#"{"RowKey":"7"}"#, "7"] {
            let error = check(theirs).unwrap_err();
            assert!(matches!(error, FormatError::Malformed { .. }), "{error}");
        }
    }

    #[test]
    fn a_line_tells_when_its_entity_happened() {
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
