//! Adapters: what the ports look like from the inside of a real (or simulated) store.

pub mod sim;
