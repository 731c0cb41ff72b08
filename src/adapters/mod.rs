//! The outside world behind the ports (real stores, a simulated one, the machine's clock), and what every port
//! can wear.
//!
//! Nothing but `app` names an adapter: the rest of the program sees ports.

pub mod circuit;
pub mod layer;
pub mod observe;
pub mod pace;
pub mod retry;
#[cfg(test)]
pub(crate) mod scripted;
pub mod sim;
pub mod system;
pub mod wear;

pub use wear::{Worn, wear};
