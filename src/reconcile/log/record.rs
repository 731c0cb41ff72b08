//! What is recorded of a line before it is appended.

use sha2::{Digest as _, Sha256};

use crate::model::item::source_text;
use crate::model::job::{Primary, Stamp};
use crate::model::{BlobName, EdmValue, Entity, EntityKey, Key, ViewName};
use crate::reconcile::relocation::SOURCE_ETAG;

/// The property that names the version whose line it is. It stays when the record is taken back.
pub(super) const LOGGED: &str = "Logged";

/// Where a line lies, or was to lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    /// The blob.
    pub(super) blob: BlobName,
    /// Where the append begins that the line is part of.
    pub(super) start: u64,
    /// Where the line begins.
    pub(super) position: u64,
    /// How long it is.
    pub(super) length: u64,
    /// What it is.
    pub(super) sha256: String,
}

/// A record that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("its {0} is missing or wrong; if it was edited by hand, delete the row")]
pub(super) struct Unreadable(&'static str);

/// Which of an hour's blobs an entity's lines go to.
pub(super) fn lane(primary: &Primary, spread: u32) -> u32 {
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
pub(super) fn key(archive: &ViewName, primary: &Primary, lane: u32) -> EntityKey {
    #[expect(clippy::expect_used, reason = "a name, digits and hex digits, which are short and legal")]
    let key = |text: String| Key::new(text).expect("a key");
    EntityKey { pk: key(format!("~log~{archive}~{lane:02}")), rk: key(hex::encode(hash(primary))) }
}

/// Takes back the word that the version recorded is all there is.
pub(super) fn take_back(entity: &mut Entity) {
    entity.properties.remove(SOURCE_ETAG);
}

impl Record {
    /// The row that says so.
    pub(super) fn encode(&self, key: &EntityKey, primary: &Primary, source_etag: &str, stamp: &Stamp) -> Entity {
        let number = |number: u64| number.cast_signed();
        let entity = Entity::new(key.clone())
            .with("Primary", source_text(primary))
            .with("Blob", self.blob.as_str())
            .with("Start", number(self.start))
            .with("Position", number(self.position))
            .with("Length", number(self.length))
            .with("Sha256", self.sha256.as_str())
            .with(LOGGED, source_etag)
            .with(SOURCE_ETAG, source_etag);
        stamp.on(entity)
    }

    /// Reads the row.
    pub(super) fn decode(entity: &Entity) -> Result<Self, Unreadable> {
        let number = |name: &'static str| match entity.get(name) {
            Some(EdmValue::Int64(number)) => Ok(number.cast_unsigned()),
            _ => Err(Unreadable(name)),
        };
        Ok(Self {
            blob: entity.text("Blob").and_then(|name| BlobName::new(name).ok()).ok_or(Unreadable("Blob"))?,
            start: number("Start")?,
            position: number("Position")?,
            length: number("Length")?,
            sha256: entity.text("Sha256").ok_or(Unreadable("Sha256"))?.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TableName;

    #[test]
    fn a_record_survives_in_its_row() {
        let primary = Primary { table: TableName::new("Events").unwrap(), key: EntityKey::new("web1", "한").unwrap() };
        let archive = ViewName::new("events").unwrap();
        let blob = BlobName::new("logs/2026/11/20/1500/000001.jsonl").unwrap();
        let record = Record { blob, start: 10, position: 20, length: 5, sha256: "00".to_owned() };
        let stamp = Stamp { message_id: "m".to_owned(), enqueued: "2026-11-20T15:00:00Z".parse().unwrap(), job: None };
        let key = key(&archive, &primary, lane(&primary, 4));
        let entity = record.encode(&key, &primary, "W/\"1\"", &stamp);
        assert!(key.pk.as_str().starts_with("~log~events~0"));
        assert_eq!(Record::decode(&entity).unwrap(), record);
        assert_eq!(Stamp::of(&entity), Some(stamp));
        let mut broken = entity;
        broken.properties.remove("Start");
        assert!(Record::decode(&broken).unwrap_err().to_string().contains("Start"));
    }
}
