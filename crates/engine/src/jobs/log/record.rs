//! The record of a log line, written before the line is appended.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use evenkeel_model::item::{SOURCE_ETAG, source_text};
use evenkeel_model::job::{Primary, Stamp};
use evenkeel_model::stored::{self, FormatError, VERSION_PROPERTY};
use evenkeel_model::{BlobName, EdmValue, Entity, EntityKey, Key, ViewName, limits};

/// Property with the ETag of the logged version of the source. Unlike `SOURCE_ETAG`, it is kept when the record is
/// reopened.
pub(crate) const LOGGED: &str = "Logged";
const FORMER: &str = "Former";
const VERSION: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LineRecord {
    pub(crate) blob: BlobName,
    /// Offset in the blob at which the append starts, in bytes. An append may contain several lines.
    pub(crate) start: u64,
    pub(crate) line: LinePlace,
    /// Lines of earlier append requests for the same `start`. Any of these requests may still be the one that succeeds.
    pub(crate) former: Vec<LinePlace>,
}

/// Position and hash of a line in a blob. A record stores each `former` line as a JSON object with these fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinePlace {
    /// Offset in the blob, in bytes.
    pub(crate) position: u64,
    /// Length in bytes.
    pub(crate) length: u64,
    pub(crate) sha256: String,
    /// ETag of the logged version of the source.
    pub(crate) version: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum UnreadableRecord {
    #[error(
        "property {0} of the record is missing or invalid. If the row was edited by hand, delete it"
    )]
    Property(&'static str),
    #[error(transparent)]
    Version(FormatError),
}

/// Returns the number of an entity's lane. A lane is a sequence of blobs of the same hour.
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

/// Reopens a record, so that its version no longer counts as archived and a later delivery appends another line.
pub(crate) fn reopen(entity: &mut Entity) {
    entity.properties.remove(SOURCE_ETAG);
}

impl LineRecord {
    /// All lines that may have been written at `start`: the latest line first, then the former ones.
    pub(crate) fn places(&self) -> impl Iterator<Item = &LinePlace> {
        std::iter::once(&self.line).chain(&self.former)
    }

    #[must_use]
    pub(crate) fn with_line(&self, line: LinePlace) -> Self {
        let mut former: Vec<LinePlace> = self.places().cloned().collect();
        former.retain(|place| *place != line);
        Self {
            line,
            former,
            ..self.clone()
        }
    }

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
            // `to_string` cannot fail, because a `LinePlace` has only strings and numbers.
            let former = serde_json::to_string(&self.former).unwrap_or_default();
            entity = entity.with(FORMER, former);
        }
        stamp.on(entity)
    }

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
        // No append is longer than `APPEND_BYTES`, so a longer line was not written by evenkeel. The sum must not
        // overflow, because readers of the record compute the end of the line.
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
    fn a_record_is_decoded_as_it_was_encoded() {
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
        let record = LineRecord {
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
        assert_eq!(LineRecord::decode(&entity).unwrap(), record);
        assert_eq!(Stamp::of(&entity).as_ref(), Some(&stamp));
        let again = record.with_line(line(10, "W/\"2\""));
        assert_eq!(again.former, [line(20, "W/\"1\"")]);
        assert_eq!(
            again.with_line(line(10, "W/\"2\"")),
            again,
            "the same place is not listed twice"
        );
        assert_eq!(
            LineRecord::decode(&again.encode(&key, &primary, &stamp)).unwrap(),
            again
        );
        let (row, listed) = (
            again.encode(&key, &primary, &stamp),
            r#"[{"position":20,"length":5,"sha256":"00","version":"W/\"1\""}]"#,
        );
        assert_eq!(row.get("Version"), Some(&EdmValue::Int32(1)));
        assert_eq!(row.text(FORMER), Some(listed));
        let newer = LineRecord::decode(&row.with("Version", 2))
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
            LineRecord::decode(&broken)
                .unwrap_err()
                .to_string()
                .contains("Start")
        );
    }
}
