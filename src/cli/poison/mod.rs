//! `evenkeel poison`: the dead letters.
//!
//! `args` says what can be asked for, `show` how a poisoned message looks; `act` carries it out on each declared
//! queue, or on the one that was named.

mod act;
mod args;
mod show;

pub use act::poison;
pub use args::{PoisonAction, PoisonArgs};
