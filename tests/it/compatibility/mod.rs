//! What earlier versions have stored is read, and counts as what it was.

#![expect(clippy::unwrap_used, reason = "a test that meets an unexpected error has failed")]

mod corpus;
mod definitions;
