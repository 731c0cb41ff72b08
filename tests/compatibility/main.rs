//! What earlier versions have stored is read, and counts as what it was.

#![allow(clippy::unwrap_used, reason = "tests")]

mod corpus;
mod definitions;
