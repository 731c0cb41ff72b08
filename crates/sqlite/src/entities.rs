//! Writes of single entities, inside the writer's transaction.
//!
//! Decisions that need no store are made by the caller ([`Encoded::prepare`]): limits are checked and properties
//! encoded there, so that the writer only looks at the row, decides and writes.

use std::collections::BTreeMap;

use rusqlite::{Connection, OptionalExtension as _};

use evenkeel_model::{ETag, EdmValue, Entity, EntityKey, Row, TableName, limits};
use evenkeel_storage::{ErrorClass, IfMatch, Missing, TableOperation};

use super::fault::Fault;
use super::writer::Writing;
use super::{codec, stamp};

/// Most bytes of properties that lie beside the key. SQLite reads the whole record to compare a key, and records
/// beyond about 2,000 bytes (a quarter of a page) do not lie on one page.
const INLINE_BYTES: usize = 1_400;

/// Encoded properties below this are under 1 MiB as JSON, for any content: escaping makes one byte six, and
/// a property has at most 60 bytes around its name and value.
const SURELY_SMALL_BYTES: usize = 150_000;

/// An operation, checked and encoded.
#[derive(Debug)]
pub(super) struct Encoded {
    key: EntityKey,
    verb: Verb,
}

#[derive(Debug)]
enum Verb {
    Insert(Vec<u8>),
    InsertOrReplace(Vec<u8>),
    InsertOrMerge(BTreeMap<String, EdmValue>, Vec<u8>),
    Replace(Vec<u8>, Expected),
    Merge(BTreeMap<String, EdmValue>, Expected),
    Delete(Expected),
}

/// Which version an operation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Any,
    /// This stamp; none where the ETag is none that this store gives, which no row matches.
    At(Option<i64>),
}

impl From<&IfMatch> for Expected {
    fn from(condition: &IfMatch) -> Self {
        match condition {
            IfMatch::Any => Self::Any,
            IfMatch::Matches(etag) => Self::At(stamp::entity_stamp(etag)),
        }
    }
}

impl Encoded {
    /// Checks the limits of the service and encodes.
    pub(super) fn prepare(operation: &TableOperation) -> Result<Self, Fault> {
        if let Some(entity) = operation.entity() {
            entity.check()?;
        }
        Ok(Self::encode(operation))
    }

    /// Encodes an operation with checked limits.
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

    /// Executes it. Returns the new ETag; nothing after a delete.
    pub(super) fn execute(
        self,
        writing: &mut Writing<'_>,
        table: i64,
    ) -> Result<Option<ETag>, Fault> {
        let rows = RowPlace {
            connection: writing.connection,
            table,
            key: &self.key,
        };
        match self.verb {
            Verb::Insert(properties) => {
                if rows.stored()?.is_some() {
                    return Err(Fault::new(
                        ErrorClass::Conflict,
                        "the entity exists already",
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

/// A row as it lies in the table.
struct Stored {
    stamp: i64,
    large: bool,
}

/// The place of one row.
struct RowPlace<'a> {
    connection: &'a Connection,
    table: i64,
    key: &'a EntityKey,
}

impl RowPlace<'_> {
    fn address(&self) -> (i64, &str, &str) {
        (self.table, self.key.pk.as_str(), self.key.rk.as_str())
    }

    fn stored(&self) -> Result<Option<Stored>, Fault> {
        let sql = "SELECT stamp, properties IS NULL FROM entities WHERE table_id = ?1 AND pk = ?2 AND rk = ?3";
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement
            .query_row(self.address(), |row| {
                Ok(Stored {
                    stamp: row.get(0)?,
                    large: row.get(1)?,
                })
            })
            .optional()?)
    }

    fn expect(&self, expected: Expected) -> Result<Stored, Fault> {
        let stored = self.stored()?.ok_or_else(|| {
            Fault::new(
                ErrorClass::NotFound(Missing::Item),
                "the entity does not exist",
            )
        })?;
        match expected {
            Expected::At(stamp) if stamp != Some(stored.stamp) => Err(Fault::new(
                ErrorClass::Precondition,
                "the entity is at another ETag",
            )),
            Expected::Any | Expected::At(_) => Ok(stored),
        }
    }

    /// The stored properties with the changes, encoded. The result of a merge must keep the limits too.
    fn merge(
        &self,
        stored: &Stored,
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
            .check()?;
        }
        Ok(encoded)
    }

    fn write(&self, stamp: i64, properties: &[u8], stored: Option<Stored>) -> Result<ETag, Fault> {
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

    fn delete(&self, stored: &Stored) -> Result<(), Fault> {
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

/// The number of a table.
pub(super) fn table_id(connection: &Connection, table: &TableName) -> Result<i64, Fault> {
    let mut statement = connection.prepare_cached("SELECT id FROM tables WHERE canonical = ?1")?;
    statement
        .query_row([table.canonical()], |row| row.get(0))
        .optional()?
        .ok_or_else(|| Fault::no_container("table"))
}

/// Reads one row.
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

/// The properties of the row `e`, wherever they lie.
pub(super) const PROPERTIES: &str = "coalesce(e.properties, (SELECT l.properties FROM large_entities AS l WHERE l.stamp = e.stamp))";

/// A row from its parts.
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
