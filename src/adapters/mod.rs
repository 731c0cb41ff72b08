//! The outside world behind the ports (real stores, a simulated one, the machine's clock), and what every port
//! can wear.
//!
//! Nothing but `app` names an adapter: the rest of the program sees ports.

pub mod sim;
pub mod system;
