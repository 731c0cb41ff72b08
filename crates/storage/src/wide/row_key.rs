//! The keys of an entity's rows: `rk`, `rk~1`, `rk~2`, ….

use evenkeel_model::key::KeyError;
use evenkeel_model::{Comparison, EntityKey, Filter, Key, limits};

/// Separates the entity's row key from the number of a further row.
const MARK: char = '~';

/// A row key that could also be the key of a further row of another entity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "RowKey {0:?} ends with ~ and digits, which is reserved for further rows in a table with wide = true"
)]
pub struct ReservedRowKey(pub Key);

/// Whether a row of a wide table is a further row of some entity.
pub fn is_continuation(rk: &Key) -> bool {
    rk.as_str()
        .rsplit_once(MARK)
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Checks that an entity of a wide table may have this row key.
pub fn check_first(rk: &Key) -> Result<(), ReservedRowKey> {
    if is_continuation(rk) {
        Err(ReservedRowKey(rk.clone()))
    } else {
        Ok(())
    }
}

/// The key of an entity's `number`th further row.
pub(super) fn further(key: &EntityKey, number: usize) -> Result<EntityKey, KeyError> {
    EntityKey::new(key.pk.as_str(), format!("{}{MARK}{number}", key.rk))
}

/// The number of a further row of this entity.
pub(super) fn number(first: &Key, rk: &Key) -> Option<usize> {
    let digits = rk
        .as_str()
        .strip_prefix(first.as_str())?
        .strip_prefix(MARK)?;
    let number: usize = digits.parse().ok()?;
    ((1..limits::TRANSACTION_OPERATIONS).contains(&number) && number.to_string() == digits)
        .then_some(number)
}

/// The range of all further rows of an entity. It contains hardly any other row, because `~` sorts after the usual characters of keys. A
/// range that started at `rk` would include every entity whose row key starts with `rk`.
pub(super) fn range(key: &EntityKey) -> Filter {
    let end = |op, digit: char| Filter::compare("RowKey", op, format!("{}{MARK}{digit}", key.rk));
    Filter::partition(&key.pk)
        .and(end(Comparison::GreaterOrEqual, '1').and(end(Comparison::Less, ':')))
}
