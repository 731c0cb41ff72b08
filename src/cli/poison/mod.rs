//! `evenkeel poison`: the dead letters.

mod act;
mod args;
mod show;

pub use act::poison;
pub use args::{PoisonAction, PoisonArgs};
