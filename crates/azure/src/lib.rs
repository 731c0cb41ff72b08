//! Azure Storage: tables, queues and blobs over `azure_data_tables`, `azure_storage_queues` and
//! `azure_storage_blobs` 0.21. No type of theirs leaves this crate.
//!
//! The client library composes every request; the transport signs and sends it. Answers are read here, because its own
//! reading is too strict in some places and too coarse in others: one message it cannot parse fails a whole
//! page of messages, an unneeded header turns a committed write into an error, and Retry-After, error codes
//! and the index of a failed operation are lost.
//!
//! ```text
//!  port call ── check ── client library: builder ── amend ── transport ── sign ── HTTP
//!                                                                       │
//!  StoreError ◀── classify ◀── refusal (code, message, index) ◀─────────┤ 4xx, 5xx, or a fault
//!  value      ◀── read the answer ◀─────────────────────────────────────┘ 2xx
//! ```
//!
//! - [`settings`]: an account, its credential and its endpoints; [`connection_string`] reads one.
//! - `transport`: one pooled HTTP client for the three services; passes the answer around the library.
//! - `keyring`: keys and signatures, and the one in use; `amend`: amendments to requests beyond the library's means; `ascii`: bodies
//!   that an emulator does not destroy.
//! - `refusal`, `classify`, `call`: from an answer or a fault to a [`StoreError`](evenkeel_storage::StoreError).
//! - `tables`, `batch`; `queues`, `messages`; `blobs`, `blob_copy`, `listing`: the ports.
//!
//! Beside them: `account_facts`, kind and replication of an account, by a request of `blob_service`; [`sas`], signatures for
//! applications, and `delegation`, the keys by which an identity signs them; [`identity`], tokens of Entra ID; [`files`], folders that are
//! mounted; [`vault`], key-encryption keys, and `key_vault`, Azure Key Vault behind them. [`http`], [`identity`] and [`keyring`] serve the
//! sinks too.
//!
//! Invariants: nothing is sent twice (retries are a layer's task), but for a request whose token or secret the service refused (401, 403); nothing that breaks a limit is
//! sent at all; no write is unconditional unless the port's operation is; no secret and no signature gets
//! into an error, a `Debug` text or a log line of this crate. The libraries below log more than that at DEBUG:
//! a program that sets up logging must hold [`CHATTY_LOG_TARGETS`] at INFO.
//!
//! It may name `storage` and `model`.

mod account_facts;
mod amend;
mod ascii;
mod batch;
mod blob_copy;
mod blob_headers;
mod blob_service;
mod blobs;
pub mod call;
mod classify;
pub mod cloud;
mod connect;
pub mod connection_string;
mod delegation;
pub mod files;
pub mod http;
mod http_date;
pub mod identity;
mod key_vault;
pub mod keyring;
mod listing;
mod messages;
mod queues;
mod refusal;
pub mod sas;
mod scrub;
pub mod settings;
mod tables;
mod transport;
pub mod vault;
mod xml;

pub use account_facts::account_facts;
pub use connect::{AzureConnectError, CHATTY_LOG_TARGETS, connect};

pub use settings::{
    AzureAccount, Credential, EndpointOverrides, ServiceEndpoints, SettingsError, Timeouts,
};
