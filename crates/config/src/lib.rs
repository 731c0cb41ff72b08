//! Reads files, the environment and flags into validated settings and a catalog.
//!
//! ```text
//!   built-in defaults ─▶ default.toml ─▶ <profile>.toml ─▶ catalog/*.toml ─▶ EVENKEEL__… ─▶ flags
//!          └──────────────── layers, merged by the `config` crate, later wins ────────────┘
//!                                          │ a tree; every value has its origin
//!                                          ▼
//!         readers: settings, accounts, queues, catalog      all mistakes are collected
//!                                          ▼
//!               Configuration { settings, catalog, origins, warnings }   or   ConfigErrors, all together
//! ```
//!
//! - Tables are merged key by key. Lists and single values are replaced.
//! - The built-in defaults are `config/default.toml` of the source tree. Its example catalog is used only if there is no
//!   configuration folder.
//! - Every mistake names its file and line (or environment variable, or flag), its key and the expected input.
//! - Secrets come from the environment or a file, never from the configuration itself. No message contains one.
//!
//! This crate opens no store, because every mistake has to be reported before anything starts.

mod accounts;
mod address;
mod archives;
mod catalog;
mod clauses;
mod cycles;
mod dated;
mod defaults;
mod duplicate;
mod encryption;
mod events;
mod finding;
mod http;
mod identity;
mod layers;
mod levels;
mod load;
mod origin;
mod queues;
mod report;
mod request;
mod retention;
mod rules;
mod sas;
mod secret;
mod section;
mod settings;
mod sinks;
mod source;
mod spelling;
mod text_file;
mod tree;
mod unread;
mod unsupported_keys;
mod view_keys;
mod view_section;
mod views;

#[cfg(test)]
mod tests;

pub use finding::{ConfigErrors, Finding};
pub use levels::{LevelsError, levels};
pub use load::{Configuration, http, load};
pub use origin::{Layer, Origin};
pub use report::{check_json, check_text, show_json, show_text};
pub use request::{AccountCheck, Folder, Request};
pub use tree::EffectiveValue;
