//! Wide entities: an entity over several rows of its partition, if one row is too small for it.
//!
//! ```text
//!   (pk, rk)      properties…, ek_job, ek_rows = ["token of rk~1","token of rk~2"]     the first row
//!   (pk, rk~1)    properties…, ek_row = "token of rk~1"
//!   (pk, rk~2)    properties…, ek_row = "token of rk~2"
//! ```
//!
//! The whole entity is written in one entity group transaction, and **every write includes the first row**: its ETag is the version of the
//! whole, which footprints, `if_match` and archived copies use. The other rows are written only if they change, each under its own ETag. A
//! property stays in its row as long as it fits.
//!
//! A reader gets the first row, and if that lists further rows, queries them as one range. The two answers may be of two versions. Each
//! write of a row gives it a new token, so matching tokens prove that all rows are of one version. If tokens do not match, the first row is
//! read again: if its ETag is unchanged, nothing was written in between, and a row that was edited by hand is accepted.
//!
//! An entity that fits into one row has none of these marks.

mod layout;
mod read;
mod row_key;
mod rows;

#[cfg(test)]
mod tests;

pub use layout::WideError;
pub use read::{ReadError, read};
pub use row_key::{ReservedRowKey, check_first, is_continuation};
pub use rows::{ROW_PROPERTY, ROWS_PROPERTY, Rows, is_continuation_of_any, whole};
