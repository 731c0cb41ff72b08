//! `evenkeel lookup`: finds copies by the values in their keys, with the [client](evenkeel_client) that applications
//! use.

mod act;
mod args;
mod print;

pub use act::lookup;
pub use args::LookupArgs;
pub(super) use print::rows_table;
