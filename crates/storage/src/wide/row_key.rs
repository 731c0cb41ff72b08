//! The keys of an entity's rows: `rk`, `rk~1`, `rk~2`, ….

use evenkeel_model::key::KeyError;
use evenkeel_model::{Comparison, EntityKey, Filter, Key, limits};

/// Separator between the row key of an entity and the number of one of its further rows.
const MARK: char = '~';

/// A row key that another entity's further row could have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the RowKey {0:?} ends with ~ and digits, which in a table with wide = true is how the further rows of an entity are named; expected another RowKey"
)]
pub struct NotFirst(pub Key);

/// Whether a row of a wide table is a further row of some entity, and none of its own.
pub fn is_continuation(rk: &Key) -> bool {
    rk.as_str()
        .rsplit_once(MARK)
        .is_some_and(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Checks that an entity of a wide table may have this row key.
pub fn check_first(rk: &Key) -> Result<(), NotFirst> {
    if is_continuation(rk) {
        Err(NotFirst(rk.clone()))
    } else {
        Ok(())
    }
}

/// The key of an entity's `number`th further row.
pub(super) fn further(key: &EntityKey, number: usize) -> Result<EntityKey, KeyError> {
    EntityKey::new(key.pk.as_str(), format!("{}{MARK}{number}", key.rk))
}

/// Which further row of this entity a row is, by its key.
pub(super) fn number(first: &Key, rk: &Key) -> Option<usize> {
    let digits = rk
        .as_str()
        .strip_prefix(first.as_str())?
        .strip_prefix(MARK)?;
    let number: usize = digits.parse().ok()?;
    ((1..limits::TRANSACTION_OPERATIONS).contains(&number) && number.to_string() == digits)
        .then_some(number)
}

/// The range that has all further rows of an entity, and next to nothing else: `~` sorts behind the usual characters of
/// a key, so that a range from `rk` on would have every entity with a row key that begins with this one's.
pub(super) fn range(key: &EntityKey) -> Filter {
    let end = |op, digit: char| Filter::compare("RowKey", op, format!("{}{MARK}{digit}", key.rk));
    Filter::partition(&key.pk)
        .and(end(Comparison::GreaterOrEqual, '1').and(end(Comparison::Less, ':')))
}
