//! `evenkeel lookup`: finds copies by the values that their keys are made of, as any application does through the
//! [client](evenkeel_client).

mod act;
mod args;
mod print;

pub use act::lookup;
pub use args::LookupArgs;
pub(super) use print::rows_table;
