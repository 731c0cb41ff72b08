//! Lookups: from a view and some values to the key ranges that hold its copies.
//!
//! ```text
//!   view employees_by_last_name, partition_key "last_name_{LastName|bucket:16}", row_key "{LastName}"
//!
//!   LastName=Kim      ─▶ 1 point                      the bucket can be computed   LastName^=K
//! ─▶ 16 ranges, one per bucket    rows K up to L, merged in the order of the key behind the bucket
//! ```
//!
//! Keys are texts without types. A term therefore stands for its text and for every value that the
//! text spells, with a key for each: `=2026-11-20T15:00:00.000Z` is a text, and a moment that keys
//! write with seven digits. In double quotes it is the text only. If a bound has one text as a text
//! and another as a moment, the range is checked row by row ([`KeyRange::accepts`]). A range with a
//! number is refused if numbers do not sort like their texts.
//!
//! Values are filtered and escaped exactly as in rendering, so a lookup finds the rendered values;
//! a table's own keys are the values themselves. A lookup never has an `or` over keys, which the
//! service answers with a scan: several keys are several requests.
//!
//! Ranges and prefixes compare the *text in the key*. Behind `lower` that ignores case. Behind
//! `pad` it compares numbers, behind `inverted_ticks` moments, and behind a `date` with parts from
//! large to small whole parts, such as days. Otherwise the order is that of the store's keys, in
//! which escaped characters sort as `%`. A literal or field behind the compared field belongs to
//! its text.
//!
//! How a prefix is spelled in a key may depend on the text behind it: `ΠΑΠΑΣ` behind `lower` has
//! another last letter at the end of a word. Its range covers all spellings.
//!
//! A range may contain rows of others: primaries, and copies of other views in the same table,
//! which readers recognize by `ek_view`. It may also contain rows that [`KeyRange::accepts`]
//! rejects.

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
