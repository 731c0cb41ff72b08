//! Wide entities: one entity over several rows of its partition, where one row is too small for it.
//!
//! ```text
//!   (pk, rk)      properties…, ek_job, ek_rows = ["token of rk~1","token of rk~2"]     the first row
//!   (pk, rk~1)    properties…, ek_row = "token of rk~1"
//!   (pk, rk~2)    properties…, ek_row = "token of rk~2"
//! ```
//!
//! All of it is written in one entity group transaction, and **the first row goes with every write**: its ETag is the
//! version of the whole, which a footprint settles at, `if_match` names and an archived copy rests on.
//! The other rows are written only where they change, each under its own ETag; a property keeps its row while it fits.
//!
//! A reader asks for the first row, and where that lists further rows for those, by one range. The two answers may be of two
//! versions. A token is new at every write of its row, so that tokens that agree prove one version; where they do not, the
//! first row is read once more: at the ETag it had, nothing was written in between, and a row written by hand is
//! accepted.
//!
//! An entity that one row can hold has no trace of all this.

mod layout;
mod read;
mod row_key;
mod rows;

#[cfg(test)]
mod tests;

pub use layout::WideError;
pub use read::{ReadError, read};
pub use row_key::{NotFirst, check_first, is_continuation};
pub use rows::{ROW_PROPERTY, ROWS_PROPERTY, Rows, is_continuation_of_any, whole};
