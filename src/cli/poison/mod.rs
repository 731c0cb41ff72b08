//! `evenkeel poison`: the dead letters.
//!
//! `args` has the arguments, `show` the display of a poisoned message; `act` carries commands out on each declared
//! queue, or on the one that was named.

mod act;
mod args;
mod show;

pub use act::poison;
pub use args::{PoisonAction, PoisonArgs};
