//! Stores beside Azure Storage that views and archives are written to: databases, Azure AI Search, webhooks.

pub mod search;
pub mod sql;
pub mod webhook;
