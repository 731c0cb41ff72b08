//! The record of a line, written before it is appended.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use evenkeel_model::item::{SOURCE_ETAG, source_text};
use evenkeel_model::job::{Primary, Stamp};
use evenkeel_model::stored::{self, FormatError, VERSION_PROPERTY};
use evenkeel_model::{BlobName, EdmValue, Entity, EntityKey, Key, ViewName, limits};

/// The property that names the logged version. It stays when the record is taken back.
pub(crate) const LOGGED: &str = "Logged";
/// The property that lists the earlier places, as JSON.
const FORMER: &str = "Former";
/// The version of a record, and of the places in it.
const VERSION: u32 = 1;

/// Where a line lies, or was to lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) blob: BlobName,
    /// Where the appends begin that the line is part of.
    pub(crate) start: u64,
    /// The line of the last append.
    pub(crate) line: LinePlace,
    /// The lines of appends that were sent for the same start before, and may still be the one that takes it.
    pub(crate) former: Vec<LinePlace>,
}

/// One line of a blob. In a record it is a JSON object of these fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinePlace {
    /// Where it begins.
    pub(crate) position: u64,
    /// How long it is.
    pub(crate) length: u64,
    /// The hash of its bytes.
    pub(crate) sha256: String,
    /// The version of the source that it is of.
    pub(crate) version: String,
}

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableRecord {
    /// A property.
    #[error("its {0} is missing or wrong; if it was edited by hand, delete the row")]
    Property(&'static str),
    /// Its version.
    #[error(transparent)]
    Version(FormatError),
}

/// Which of an hour's blobs an entity's lines go to.
pub(crate) fn lane(primary: &Primary, spread: u32) -> u32 {
    u32::from(hash(primary)[0]) % spread.max(1)
}

fn hash(primary: &Primary) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(primary.key.pk.as_str());
    hash.update([0]);
    hash.update(primary.key.rk.as_str());
    hash.finalize().into()
}

/// Where the record of an entity lies.
pub(crate) fn key(archive: &ViewName, primary: &Primary, lane: u32) -> EntityKey {
    #[expect(
        clippy::expect_used,
        reason = "a name, digits and hex digits, which are short and legal"
    )]
    let key = |text: String| Key::new(text).expect("a key");
    EntityKey {
        pk: key(format!("~log~{archive}~{lane:02}")),
        rk: key(hex::encode(hash(primary))),
    }
}

/// Takes back the word that the version recorded is all there is.
pub(crate) fn take_back(entity: &mut Entity) {
    entity.properties.remove(SOURCE_ETAG);
}

impl Record {
    /// Every line that the append that took the start may have brought.
    pub(crate) fn places(&self) -> impl Iterator<Item = &LinePlace> {
        std::iter::once(&self.line).chain(&self.former)
    }

    /// The same start once more, for this line.
    #[must_use]
    pub(crate) fn again(&self, line: LinePlace) -> Self {
        let mut former: Vec<LinePlace> = self.places().cloned().collect();
        former.retain(|place| *place != line);
        Self {
            line,
            former,
            ..self.clone()
        }
    }

    /// The row that says so.
    pub(crate) fn encode(&self, key: &EntityKey, primary: &Primary, stamp: &Stamp) -> Entity {
        let number = |number: u64| number.cast_signed();
        let mut entity = Entity::new(key.clone())
            .with(VERSION_PROPERTY, VERSION.cast_signed())
            .with("Primary", source_text(primary))
            .with("Blob", self.blob.as_str())
            .with("Start", number(self.start))
            .with("Position", number(self.line.position))
            .with("Length", number(self.line.length))
            .with("Sha256", self.line.sha256.as_str())
            .with(LOGGED, self.line.version.as_str())
            .with(SOURCE_ETAG, self.line.version.as_str());
        if !self.former.is_empty() {
            // Strings and numbers always serialise.
            let former = serde_json::to_string(&self.former).unwrap_or_default();
            entity = entity.with(FORMER, former);
        }
        stamp.on(entity)
    }

    /// Reads the row.
    pub(crate) fn decode(entity: &Entity) -> Result<Self, UnreadableRecord> {
        let thing = || format!("the record {:?}", entity.key);
        stored::check(entity, VERSION, thing).map_err(|error| {
            if error.is_of_version() {
                UnreadableRecord::Version(error)
            } else {
                UnreadableRecord::Property(VERSION_PROPERTY)
            }
        })?;
        let number = |name: &'static str| match entity.get(name) {
            Some(EdmValue::Int64(number)) => Ok(number.cast_unsigned()),
            _ => Err(UnreadableRecord::Property(name)),
        };
        let former = entity
            .text(FORMER)
            .map_or(Ok(Vec::new()), serde_json::from_str);
        let record = Self {
            blob: entity
                .text("Blob")
                .and_then(|name| BlobName::new(name).ok())
                .ok_or(UnreadableRecord::Property("Blob"))?,
            start: number("Start")?,
            line: LinePlace {
                position: number("Position")?,
                length: number("Length")?,
                sha256: entity
                    .text("Sha256")
                    .ok_or(UnreadableRecord::Property("Sha256"))?
                    .to_owned(),
                version: entity.text(LOGGED).unwrap_or_default().to_owned(),
            },
            former: former.map_err(|_| UnreadableRecord::Property(FORMER))?,
        };
        // Nothing longer was ever appended, nor is it read.
        let may_be = |place: &LinePlace| {
            place.length <= limits::APPEND_BYTES as u64
                && place.position.checked_add(place.length).is_some()
        };
        if record.places().all(may_be) {
            Ok(record)
        } else {
            Err(UnreadableRecord::Property("Length"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::TableName;

    #[test]
    fn a_record_survives_in_its_row() {
        let primary = Primary {
            table: TableName::new("Events").unwrap(),
            key: EntityKey::new("web1", "한").unwrap(),
        };
        let archive = ViewName::new("events").unwrap();
        let blob = BlobName::new("logs/2026/11/20/1500/000001.jsonl").unwrap();
        let line = |position, version: &str| LinePlace {
            position,
            length: 5,
            sha256: "00".to_owned(),
            version: version.to_owned(),
        };
        let record = Record {
            blob,
            start: 10,
            line: line(20, "W/\"1\""),
            former: Vec::new(),
        };
        let stamp = Stamp {
            message_id: "m".to_owned(),
            enqueued: "2026-11-20T15:00:00Z".parse().unwrap(),
            job: None,
        };
        let key = key(&archive, &primary, lane(&primary, 4));
        let entity = record.encode(&key, &primary, &stamp);
        assert!(key.pk.as_str().starts_with("~log~events~0"));
        assert_eq!(Record::decode(&entity).unwrap(), record);
        assert_eq!(Stamp::of(&entity).as_ref(), Some(&stamp));
        let again = record.again(line(10, "W/\"2\""));
        assert_eq!(again.former, [line(20, "W/\"1\"")]);
        assert_eq!(
            again.again(line(10, "W/\"2\"")),
            again,
            "the same place is not listed twice"
        );
        assert_eq!(
            Record::decode(&again.encode(&key, &primary, &stamp)).unwrap(),
            again
        );
        let (row, listed) = (
            again.encode(&key, &primary, &stamp),
            r#"[{"position":20,"length":5,"sha256":"00","version":"W/\"1\""}]"#,
        );
        assert_eq!(row.get("Version"), Some(&EdmValue::Int32(1)));
        assert_eq!(row.text(FORMER), Some(listed));
        let newer = Record::decode(&row.with("Version", 2))
            .unwrap_err()
            .to_string();
        assert!(
            newer.contains("the record (\"~log~events~0")
                && newer.contains("has format version 2")
                && newer.contains("Update this program"),
            "{newer}"
        );
        let mut broken = entity;
        broken.properties.remove("Start");
        assert!(
            Record::decode(&broken)
                .unwrap_err()
                .to_string()
                .contains("Start")
        );
    }
}
