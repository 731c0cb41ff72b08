//! Lookups: from a view and some values to the key ranges in which its copies lie.
//!
//! ```text
//!   view employees_by_last_name, partition_key "last_name_{LastName|bucket:16}", row_key "{LastName}"
//!
//!   LastName=Kim      ─▶ 1 point                      the bucket can be computed
//!   LastName^=K       ─▶ 16 ranges, one per bucket    rows K up to L, merged in the order of the key behind the bucket
//! ```
//!
//! Keys are texts and hold no types. So a term stands for its text and for every value that this spells (`=2026-11-20T15:00:00.000Z` is a
//! text, and a moment that keys write with seven digits), and is one key for each; in double quotes it is the text alone. A range of
//! moments is checked row by row where the text of the term is another bound than its moment ([`KeyRange::accepts`]); a range whose term
//! is a number is refused where numbers do not sort as their texts.
//!
//! Values are filtered and escaped exactly as rendering does it, so a lookup finds the rendered values; own keys are the values. There is
//! never an `or` over keys, which the service answers with a scan: several keys are several requests.
//!
//! Ranges and prefixes compare the *text in the key*: behind `lower` without regard to case, behind `pad` as
//! numbers, behind `inverted_ticks` as moments, behind a `date` with parts from large to small as whole
//! parts (its day, say); otherwise in the order of the store's keys, with escaped characters in place of `%`. A literal or field behind the
//! compared one belongs to that text.
//!
//! How a prefix is spelled in a key may depend on the text behind it: `ΠΑΠΑΣ` behind `lower`, with another last letter at the end of a
//! word. Its range has all spellings.
//!
//! A range may hold rows of others: primaries and other views' copies of the same table, which the reader
//! tells by `ek_view`; and rows for which [`KeyRange::accepts`] is false.

mod blob;
mod error;
mod heads;
mod moment_bound;
mod plan;
mod prefix;
mod range;
mod span;
mod spelling;
mod term;

#[cfg(test)]
mod differential;
#[cfg(test)]
mod tests;

pub use blob::blobs;
pub use error::LookupError;
pub use plan::{LookupPlan, QueryClass, plan, plan_by_own_keys};
pub use range::{Unranged, unranged};
pub(super) use span::behind;
pub use span::{KeyRange, Span};
pub use term::{Meaning, Term, TermError, TermOp};
