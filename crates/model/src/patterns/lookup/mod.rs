//! Lookups: compute the key ranges that hold the rows of a view for given values.
//!
//! ```text
//!   view employees_by_last_name, partition_key "last_name_{LastName|bucket:16}", row_key "{LastName}"
//!
//!   LastName=Kim  ─▶  1 point                    the bucket can be computed
//!   LastName^=K   ─▶  16 ranges, one per bucket  rows K up to L, merged by the key after the bucket
//! ```
//!
//! Keys are texts without types. Therefore a term (`LastName=Kim`) stands for its text and for
//! every value that the text spells, and each of these has its own key: `=2026-11-20T15:00:00.000Z`
//! stands for this text, and for a moment that keys write with seven decimal digits. A term in
//! double quotes stands only for its text. If a bound is spelled differently as a text and as a
//! moment, each row of the range is checked ([`KeyRange::accepts`]). A range of numbers is refused
//! if the key's texts do not sort like the numbers.
//!
//! A lookup filters and escapes values exactly as the rendering of keys does, so that it finds the
//! rendered keys. A lookup by a table's own keys uses the values unchanged. The query filter never
//! has an `or` over keys, because the service would answer with a scan. Several keys are read with
//! several requests.
//!
//! Ranges and prefixes compare the *text in the key*. The comparison ignores case if the field has
//! the filter `lower`. It compares numbers after `pad`, moments after `inverted_ticks`, and whole
//! parts, such as days, after a `date` whose parts go from large to small. All other comparisons
//! use the order of the store's keys, in which escaped characters sort like `%`. A literal or field
//! that follows the compared field in the key is part of the compared text.
//!
//! The spelling of a prefix in a key may depend on the text that follows it: with the filter
//! `lower`, the last letter of `ΠΑΠΑΣ` differs between the end of a word and its middle. The range
//! of a prefix covers all spellings.
//!
//! A range may also contain other rows of the table: primaries, and copies of other views, which
//! readers recognize by `ek_view`. It may also contain rows that [`KeyRange::accepts`] rejects.

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
pub use range::{UnorderedKeyPart, unordered_key_part};
pub(super) use span::behind;
pub use span::{KeyRange, Span};
pub use term::{Meaning, Term, TermError, TermOp};
