//! What earlier versions have stored is read, and counts as what it was.

mod corpus;
mod definitions;
