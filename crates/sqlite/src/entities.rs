//! Writes single entities inside the writer's transaction.
//!
//! The caller checks limits and encodes properties before ([`EncodedOperation::prepare`]), so the
//! writer only reads the row, decides and writes.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _};

use evenkeel_model::{ETag, EdmValue, Entity, EntityKey, Row, TableName, limits};
use evenkeel_storage::check::{self, Objection};
use evenkeel_storage::{ErrorClass, IfMatch, Missing, TableOperation};

use super::fault::Fault;
use super::writer::WriteContext;
use super::{codec, stamp};

/// Maximum bytes of properties that are stored beside the key. SQLite reads the whole record to
/// compare a key, and records beyond about 2,000 bytes (a quarter of a page) are not stored on one
/// page.
const INLINE_BYTES: usize = 1_400;

/// Encoded properties below this size are certainly under 1 MiB as JSON: escaping turns one byte
/// into six at most, and a property adds at most 60 bytes to its name and value.
const SURELY_SMALL_BYTES: usize = 150_000;

#[derive(Debug)]
pub(super) struct EncodedOperation {
    key: EntityKey,
    verb: Verb,
}

#[derive(Debug)]
enum Verb {
    Insert(Vec<u8>),
    InsertOrReplace(Vec<u8>),
    InsertOrMerge(BTreeMap<String, EdmValue>, Vec<u8>),
    Replace(Vec<u8>, VersionCondition),
    Merge(BTreeMap<String, EdmValue>, VersionCondition),
    Delete(VersionCondition),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VersionCondition {
    Any,
    /// The version with this stamp. `None` if this store never gives such an ETag; then no row
    /// matches.
    At(Option<i64>),
}

impl From<&IfMatch> for VersionCondition {
    fn from(condition: &IfMatch) -> Self {
        match condition {
            IfMatch::Any => Self::Any,
            IfMatch::Matches(etag) => Self::At(stamp::entity_stamp(etag)),
        }
    }
}

impl EncodedOperation {
    /// Checks the limits of the service, then encodes.
    pub(super) fn prepare(operation: &TableOperation) -> Result<Self, Fault> {
        check::operation(operation)?;
        Ok(Self::encode(operation))
    }

    /// Encodes without checks: the caller has checked the limits.
    pub(super) fn encode(operation: &TableOperation) -> Self {
        let verb = match operation {
            TableOperation::Insert(entity) => Verb::Insert(codec::encode(&entity.properties)),
            TableOperation::InsertOrReplace(entity) => {
                Verb::InsertOrReplace(codec::encode(&entity.properties))
            }
            TableOperation::InsertOrMerge(entity) => {
                Verb::InsertOrMerge(entity.properties.clone(), codec::encode(&entity.properties))
            }
            TableOperation::Replace(entity, condition) => {
                Verb::Replace(codec::encode(&entity.properties), condition.into())
            }
            TableOperation::Merge(entity, condition) => {
                Verb::Merge(entity.properties.clone(), condition.into())
            }
            TableOperation::Delete(_, condition) => Verb::Delete(condition.into()),
        };
        Self {
            key: operation.key().clone(),
            verb,
        }
    }

    /// Returns the new ETag; `None` after a delete.
    pub(super) fn execute(
        self,
        writing: &mut WriteContext<'_>,
        table: i64,
    ) -> Result<Option<ETag>, Fault> {
        let rows = RowAddress {
            connection: writing.connection,
            table,
            key: &self.key,
        };
        match self.verb {
            Verb::Insert(properties) => {
                if rows.stored()?.is_some() {
                    return Err(Fault::new(
                        ErrorClass::Conflict,
                        "the entity already exists",
                    ));
                }
                rows.write(writing.stamp(), &properties, None).map(Some)
            }
            Verb::InsertOrReplace(properties) => {
                let stored = rows.stored()?;
                rows.write(writing.stamp(), &properties, stored).map(Some)
            }
            Verb::InsertOrMerge(changes, properties) => match rows.stored()? {
                None => rows.write(writing.stamp(), &properties, None).map(Some),
                Some(stored) => {
                    let merged = rows.merge(&stored, changes)?;
                    rows.write(writing.stamp(), &merged, Some(stored)).map(Some)
                }
            },
            Verb::Replace(properties, expected) => {
                let stored = rows.expect(expected)?;
                rows.write(writing.stamp(), &properties, Some(stored))
                    .map(Some)
            }
            Verb::Merge(changes, expected) => {
                let stored = rows.expect(expected)?;
                let merged = rows.merge(&stored, changes)?;
                rows.write(writing.stamp(), &merged, Some(stored)).map(Some)
            }
            Verb::Delete(expected) => {
                let stored = rows.expect(expected)?;
                rows.delete(&stored)?;
                Ok(None)
            }
        }
    }
}

struct StoredRow {
    stamp: i64,
    large: bool,
}

struct RowAddress<'a> {
    connection: &'a Connection,
    table: i64,
    key: &'a EntityKey,
}

impl RowAddress<'_> {
    fn address(&self) -> (i64, &str, &str) {
        (self.table, self.key.pk.as_str(), self.key.rk.as_str())
    }

    fn stored(&self) -> Result<Option<StoredRow>, Fault> {
        let sql = "SELECT stamp, properties IS NULL FROM entities WHERE table_id = ?1 AND pk = ?2 AND rk = ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement
            .query_row(self.address(), |row| {
                Ok(StoredRow {
                    stamp: row.get(0)?,
                    large: row.get(1)?,
                })
            })
            .optional()?)
    }

    fn expect(&self, expected: VersionCondition) -> Result<StoredRow, Fault> {
        let stored = self.stored()?.ok_or_else(|| {
            Fault::new(
                ErrorClass::NotFound(Missing::Item),
                "the entity does not exist",
            )
        })?;
        match expected {
            VersionCondition::At(stamp) if stamp != Some(stored.stamp) => Err(Fault::new(
                ErrorClass::Precondition,
                "the entity has another ETag",
            )),
            VersionCondition::Any | VersionCondition::At(_) => Ok(stored),
        }
    }

    /// Merges the changes into the stored properties and encodes them. The result must not exceed
    /// the limits either.
    fn merge(
        &self,
        stored: &StoredRow,
        changes: BTreeMap<String, EdmValue>,
    ) -> Result<Vec<u8>, Fault> {
        let sql = if stored.large {
            "SELECT properties FROM large_entities WHERE stamp = \
             (SELECT stamp FROM entities WHERE table_id = ?1 AND pk = ?2 AND rk = ?3)"
        } else {
            "SELECT properties FROM entities WHERE table_id = ?1 AND pk = ?2 AND rk = ?3"
        };
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut rows = statement.query(self.address())?;
        let row = rows
            .next()?
            .ok_or_else(|| Fault::corrupt("an entity without its properties"))?;
        let bytes = row
            .get_ref(0)?
            .as_blob()
            .map_err(|_| Fault::corrupt("an entity without its properties"))?;
        let mut properties = codec::decode(bytes, |_| true).map_err(Fault::corrupt)?;
        properties.extend(changes);
        let count = properties.len();
        let encoded = codec::encode(&properties);
        if count > limits::PROPERTIES || encoded.len() > SURELY_SMALL_BYTES {
            Entity {
                key: self.key.clone(),
                properties,
            }
            .check()
            .map_err(Objection::from)?;
        }
        Ok(encoded)
    }

    fn write(
        &self,
        stamp: i64,
        properties: &[u8],
        stored: Option<StoredRow>,
    ) -> Result<ETag, Fault> {
        let (table, pk, rk) = self.address();
        let large = properties.len() > INLINE_BYTES;
        let inline = (!large).then_some(properties);
        if stored.is_some() {
            let sql = "UPDATE entities SET stamp = ?4, properties = ?5 WHERE table_id = ?1 AND pk = ?2 AND rk = ?3";
            self.connection
                .prepare_cached(sql)?
                .execute((table, pk, rk, stamp, inline))?;
        } else {
            let sql = "INSERT INTO entities (table_id, pk, rk, stamp, properties) VALUES (?1, ?2, ?3, ?4, ?5)";
            self.connection
                .prepare_cached(sql)?
                .execute((table, pk, rk, stamp, inline))?;
        }
        if let Some(stored) = stored.filter(|stored| stored.large) {
            self.connection
                .prepare_cached("DELETE FROM large_entities WHERE stamp = ?1")?
                .execute([stored.stamp])?;
        }
        if large {
            let sql = "INSERT INTO large_entities (stamp, properties) VALUES (?1, ?2)";
            self.connection
                .prepare_cached(sql)?
                .execute((stamp, properties))?;
        }
        stamp::entity_etag(stamp)
    }

    fn delete(&self, stored: &StoredRow) -> Result<(), Fault> {
        let sql = "DELETE FROM entities WHERE table_id = ?1 AND pk = ?2 AND rk = ?3";
        self.connection
            .prepare_cached(sql)?
            .execute(self.address())?;
        if stored.large {
            self.connection
                .prepare_cached("DELETE FROM large_entities WHERE stamp = ?1")?
                .execute([stored.stamp])?;
        }
        Ok(())
    }
}

pub(super) fn table_id(connection: &Connection, table: &TableName) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached("SELECT id FROM tables WHERE canonical = ?1")?;
    statement
        .query_row([table.canonical()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| Fault::no_container("table"))
}

pub(super) fn read(
    connection: &Connection,
    table: i64,
    key: &EntityKey,
    select: Option<&[String]>,
) -> Result<Option<Row>, Fault> {
    let sql = format!(
        "SELECT stamp, {PROPERTIES} FROM entities AS e WHERE table_id = ?1 AND pk = ?2 AND rk = ?3"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query((table, key.pk.as_str(), key.rk.as_str()))?;
    let Some(row) = rows.next()? else {
        return Ok(None);
    };
    let bytes = row
        .get_ref(1)?
        .as_blob()
        .map_err(|_| Fault::corrupt("an entity without its properties"))?;
    decode(key.clone(), row.get(0)?, bytes, select).map(Some)
}

/// SQL for the properties of the row `e`, which may be in `large_entities`.
pub(super) const PROPERTIES: &str = "coalesce(e.properties, (SELECT l.properties FROM large_entities AS l WHERE l.stamp = e.stamp))";

pub(super) fn decode(
    key: EntityKey,
    stamp: i64,
    bytes: &[u8],
    select: Option<&[String]>,
) -> Result<Row, Fault> {
    let wanted =
        |name: &str| select.is_none_or(|select| select.iter().any(|wanted| wanted == name));
    let properties = codec::decode(bytes, wanted).map_err(Fault::corrupt)?;
    Ok(Row {
        entity: Entity { key, properties },
        etag: stamp::entity_etag(stamp)?,
        timestamp: Some(stamp::timestamp(stamp)?),
    })
}
