//! Conditions: which primaries a view applies to (`when = "IsManager == true"`).
//!
//! ```text
//!   condition   = and { "or" and }                and = not { "and" not }
//!   not         = "not" not | "(" condition ")" | test
//!   test        = Property ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) value
//!               | Property "in" "[" value { "," value } "]"
//!               | "exists" "(" Property ")"
//!               | "startsWith" "(" Property "," string ")"
//!   value       = "text" | 42 | 4.2 | true | false | datetime'2026-11-20T15:00:00Z' | guid'…'
//!               | "now" [ ( "-" | "+" ) duration ]      in jobs and rules, see [`TimedCondition`]
//! ```
//!
//! Properties are those of the entity, and `PartitionKey` and `RowKey`. Strings are written in double quotes, with `\"`, `\\`, `\n`, `\r`,
//! `\t` and `\u{…}`. Strings compare bytewise and case-sensitively.
//!
//! Int32, Int64 and Double compare by value with any number. A comparison is false, even with `!=`, if the property is missing or the types
//! do not compare (a string with a number, anything with NaN). `not (X == 1)` is then true. `exists(P)` is true for an empty string too.
//!
//! Length and depth are bounded, and no text causes a panic.

mod evaluate;
mod lex;
mod masked;
mod parse;
mod prefilter;
mod timed;
mod tree;

#[cfg(test)]
mod tests;

pub use evaluate::{Found, compare_by_value, is_comparable};
pub(crate) use lex::quoted_text;
pub use parse::ConditionError;
pub use timed::TimedCondition;
pub use tree::Condition;
