//! The contract of the ports, on every store: each module is a world.

mod azurite;
mod decorated;
mod embedded;
mod files;
mod sim;
mod sinks;
