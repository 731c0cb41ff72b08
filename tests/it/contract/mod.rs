//! The contract of the ports, with one module per store.

mod azurite;
mod decorated;
mod embedded;
mod files;
mod sim;
mod sinks;
