//! `evenkeel poison`: lists, shows, requeues and discards poisoned messages.

mod act;
mod args;
mod show;

pub use act::poison;
pub use args::{PoisonAction, PoisonArgs};
