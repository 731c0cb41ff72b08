//! The layout of a wide entity: which property is in which row, as a pure function of the entity and its present rows.

use std::collections::BTreeMap;

use evenkeel_model::entity::{EntityError, RESERVED_PREFIX, stored_bytes};
use evenkeel_model::key::KeyError;
use evenkeel_model::{EdmValue, Entity, limits, odata};

pub(super) type Properties = BTreeMap<String, EdmValue>;

/// Bytes reserved in each row for its keys, its Timestamp and its mark. A key may have 1,024 bytes. As JSON, or as Azure counts bytes, it
/// may have twice as many. The mark of the first row contains up to 99 tokens of 11 characters, one for each further row.
const ROW_RESERVE: usize = 8_192;
/// Maximum properties of a row without its mark (its token, or the tokens of the further rows).
const ROW_PROPERTIES: usize = limits::PROPERTIES - 1;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WideError {
    /// A property is invalid in any row.
    #[error(transparent)]
    Property(#[from] EntityError),
    /// The entity exceeds one transaction.
    #[error(
        "the wide entity takes {rows} rows and about {bytes} bytes; at most 100 rows and 4,194,304 bytes (4 MiB) are allowed. Move large properties to blobs, or split it"
    )]
    TooLarge {
        rows: usize,
        /// Their bytes as JSON.
        bytes: usize,
    },
    /// The row key is too long for the number of a further row.
    #[error("invalid RowKey of a further row")]
    Key(#[from] KeyError),
    /// A row that evenkeel did not write has the key of a further row.
    #[error(
        "row {0:?} does not belong to this entity, but has the RowKey of one of its further rows; delete it"
    )]
    InTheWay(String),
}

/// The size of a property in bytes: its length as JSON (`json`), and its size in storage, as Azure counts it (`stored`).
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
struct RowBuilder {
    properties: Properties,
    json: usize,
    stored: usize,
}

impl RowBuilder {
    const fn empty() -> Self {
        Self {
            properties: Properties::new(),
            json: ROW_RESERVE,
            stored: ROW_RESERVE,
        }
    }

    fn fits(&self, size: Size) -> bool {
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

/// Lays an entity out over rows. The first row has the entity's own key. `held` contains the present rows of the entity, without evenkeel's
/// marks.
///
/// An entity that fits into one row gets one row. Otherwise each property stays in its row, and unchanged properties take precedence over
/// changed ones. A property that is new, or no longer fits into its row, goes to the first row with room. Empty rows at the end are
/// dropped, and an entity that has shrunk to half a row returns to one row. If gaps in the rows make the entity exceed a transaction, all
/// properties are laid out anew.
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

    let mut rows: Vec<RowBuilder> = (0..held.len().max(1))
        .map(|_| RowBuilder::empty())
        .collect();
    // evenkeel's own properties are always in the first row.
    for (name, value) in own {
        rows[0].add(name, value, sizes[name.as_str()]);
    }
    for (name, value) in same.into_iter().chain(changed).chain(new) {
        let size = sizes[name.as_str()];
        let kept = home
            .get(name.as_str())
            .copied()
            .filter(|at| rows[*at].fits(size));
        let at = kept
            .or_else(|| rows.iter().position(|row| row.fits(size)))
            .unwrap_or_else(|| {
                rows.push(RowBuilder::empty());
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

/// Whether one row is enough. An entity with several rows returns to one row only if it fits into half a row. Otherwise an entity that
/// grows and shrinks again and again would move each time.
fn fits_one(entity: &Entity, sizes: &BTreeMap<&str, Size>, returns: bool) -> bool {
    let share = if returns { 2 } else { 1 };
    let total = |bytes: fn(&Size) -> usize| sizes.values().map(bytes).sum::<usize>() + ROW_RESERVE;
    let room = limits::ENTITY_BYTES / share;
    entity.properties.len() <= limits::PROPERTIES / share
        && total(|size| size.json) <= room
        && total(|size| size.stored) <= room
}
