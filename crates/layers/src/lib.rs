//! The layers between the program and a store: decorators of the ports.

pub mod circuit;
pub mod gather;
pub mod group;
pub mod heat;
pub mod layer;
pub mod namespace;
pub mod observe;
pub mod pace;
pub mod retry;
pub mod spend;
pub mod stack;
#[cfg(test)]
mod testing;
pub mod unreliable;
