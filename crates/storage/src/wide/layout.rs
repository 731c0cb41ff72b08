//! Which property lies in which row: a pure function of the entity and of where its properties lie now.

use std::collections::BTreeMap;

use evenkeel_model::entity::{EntityError, RESERVED_PREFIX, stored_bytes};
use evenkeel_model::key::KeyError;
use evenkeel_model::{EdmValue, Entity, limits, odata};

/// The properties of one row.
pub(super) type Properties = BTreeMap<String, EdmValue>;

/// Bytes of a row that are kept for its keys, its Timestamp and the mark of its position: keys of 1,024 bytes each, with
/// characters that JSON may double or Azure count twice, and a token of 11 characters for each of 99 rows.
const ROW_RESERVE: usize = 8_192;
/// Properties of a row beside the one that says which row it is, or how many there are.
const ROW_PROPERTIES: usize = limits::PROPERTIES - 1;

/// Why an entity cannot be laid over rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WideError {
    /// A property that no row can hold.
    #[error(transparent)]
    Property(#[from] EntityError),
    /// Over the capacity of one transaction.
    #[error(
        "the entity takes {rows} rows and about {bytes} bytes; one entity group transaction, which writes all of a wide entity, takes 100 rows and 4,194,304 bytes (4 MiB): move large properties into blobs, or divide the entity"
    )]
    TooLarge {
        /// Rows that it would take.
        rows: usize,
        /// Bytes that they would have as JSON.
        bytes: usize,
    },
    /// The row key leaves no room for the number of a row.
    #[error("the RowKey of a further row is no key")]
    Key(#[from] KeyError),
    /// A row that evenkeel did not write lies where a further row is to go.
    #[error(
        "the row {0:?} is in the way: it is none of this entity's, and its RowKey is that of a further row; delete it"
    )]
    InTheWay(String),
}

/// The share of a row that a property takes: bytes as JSON, and bytes as Azure counts them.
#[derive(Clone, Copy)]
struct Size {
    json: usize,
    stored: usize,
}

impl Size {
    fn of(name: &str, value: &EdmValue) -> Self {
        Self {
            json: odata::property_len(name, value),
            stored: stored_bytes(name, value),
        }
    }
}

/// A row that is being filled.
struct Filling {
    properties: Properties,
    json: usize,
    stored: usize,
}

impl Filling {
    const fn empty() -> Self {
        Self {
            properties: Properties::new(),
            json: ROW_RESERVE,
            stored: ROW_RESERVE,
        }
    }

    fn takes(&self, size: Size) -> bool {
        self.properties.len() < ROW_PROPERTIES
            && self.json + size.json <= limits::ENTITY_BYTES
            && self.stored + size.stored <= limits::ENTITY_BYTES
    }

    fn add(&mut self, name: &str, value: &EdmValue, size: Size) {
        self.properties.insert(name.to_owned(), value.clone());
        self.json += size.json;
        self.stored += size.stored;
    }
}

/// Lays an entity over rows, the first of which is its own. `held` are its rows as they are, without evenkeel's marks.
///
/// An entity that one row can hold lies in one row. Beyond that every property stays in its row, those that do not
/// change before those that do; properties that are new, or do not fit any more, go where there is room first. Rows at
/// the end that are empty go, and an entity that has shrunk to half a row returns into one. Where gaps cost too much,
/// all is laid anew.
pub(super) fn lay(entity: &Entity, held: &[Properties]) -> Result<Vec<Properties>, WideError> {
    entity.check_properties()?;
    match arrange(entity, held) {
        Err(WideError::TooLarge { .. }) if !held.is_empty() => arrange(entity, &[]),
        arranged => arranged,
    }
}

fn arrange(entity: &Entity, held: &[Properties]) -> Result<Vec<Properties>, WideError> {
    let sizes: BTreeMap<&str, Size> = entity
        .properties
        .iter()
        .map(|(name, value)| (name.as_str(), Size::of(name, value)))
        .collect();
    if fits_one(entity, &sizes, held.len() > 1) {
        return Ok(vec![entity.properties.clone()]);
    }
    let home: BTreeMap<&str, usize> = held
        .iter()
        .enumerate()
        .rev()
        .flat_map(|(at, row)| row.keys().map(move |name| (name.as_str(), at)))
        .collect();
    let (own, users): (Vec<_>, Vec<_>) = entity
        .properties
        .iter()
        .partition(|(name, _)| name.starts_with(RESERVED_PREFIX));
    let (at_home, new): (Vec<_>, Vec<_>) = users
        .into_iter()
        .partition(|(name, _)| home.contains_key(name.as_str()));
    let (same, changed): (Vec<_>, Vec<_>) = at_home
        .into_iter()
        .partition(|(name, value)| held[home[name.as_str()]].get(*name) == Some(*value));

    let mut rows: Vec<Filling> = (0..held.len().max(1)).map(|_| Filling::empty()).collect();
    // evenkeel's own properties of the whole are in its first row.
    for (name, value) in own {
        rows[0].add(name, value, sizes[name.as_str()]);
    }
    for (name, value) in same.into_iter().chain(changed).chain(new) {
        let size = sizes[name.as_str()];
        let kept = home
            .get(name.as_str())
            .copied()
            .filter(|at| rows[*at].takes(size));
        let at = kept
            .or_else(|| rows.iter().position(|row| row.takes(size)))
            .unwrap_or_else(|| {
                rows.push(Filling::empty());
                rows.len() - 1
            });
        rows[at].add(name, value, size);
    }
    while rows.len() > 1 && rows.last().is_some_and(|row| row.properties.is_empty()) {
        rows.pop();
    }
    let bytes = rows
        .iter()
        .map(|row| row.json + limits::OPERATION_OVERHEAD_BYTES)
        .sum();
    if rows.len() > limits::TRANSACTION_OPERATIONS || bytes > limits::TRANSACTION_BYTES {
        return Err(WideError::TooLarge {
            rows: rows.len(),
            bytes,
        });
    }
    Ok(rows.into_iter().map(|row| row.properties).collect())
}

/// Whether one row is enough; for an entity that has several, whether half a row is, so that one that grows and shrinks
/// does not move each time.
fn fits_one(entity: &Entity, sizes: &BTreeMap<&str, Size>, returns: bool) -> bool {
    let share = if returns { 2 } else { 1 };
    let total = |bytes: fn(&Size) -> usize| sizes.values().map(bytes).sum::<usize>() + ROW_RESERVE;
    let room = limits::ENTITY_BYTES / share;
    entity.properties.len() <= limits::PROPERTIES / share
        && total(|size| size.json) <= room
        && total(|size| size.stored) <= room
}
