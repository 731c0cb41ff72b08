//! Azure Storage tables, queues and blobs, based on `azure_data_tables`, `azure_storage_queues` and `azure_storage_blobs` 0.21.
//! None of their types is part of this crate's interface.
//!
//! The client library composes requests, and our transport signs and sends them. We read the answers ourselves, because the
//! library is too strict in some places and too coarse in others: one message that it cannot parse fails the whole page, an
//! unneeded header turns a committed write into an error, and it loses Retry-After, error codes and the index of a failed
//! operation.
//!
//! ```text
//!  port call ── check ── client library: builder ── amend ── transport ── sign ── HTTP
//!                                                                       │
//!  StoreError ◀── classify ◀── refusal (code, message, index) ◀─────────┤ 4xx, 5xx, or a fault
//!  value      ◀── parse the answer ◀────────────────────────────────────┘ 2xx
//! ```
//!
//! - [`settings`]: an account, its credential and its endpoints; [`connection_string`] reads one.
//! - `transport`: one pooled HTTP client for the three services; it passes answers around the library.
//! - `keyring`: keys and signatures, and their rotation; `amend`: changes to requests that the library does not support; `ascii`:
//!   bodies that an emulator does not corrupt.
//! - `refusal`, `classify`, `call`: convert an answer or a fault to a [`StoreError`](evenkeel_storage::StoreError).
//! - `tables`, `batch`; `queues`, `messages`; `blobs`, `blob_copy`, `listing`: the ports.
//!
//! Other modules: `account_facts`, the kind and replication of an account, requested through `blob_service`; [`sas`], signatures
//! for applications, and `delegation`, the keys with which an identity signs them; [`identity`], tokens of Entra ID; [`files`],
//! mounted folders; [`vault`], key-encryption keys, and `key_vault`, Azure Key Vault. Sinks use [`http`], [`identity`] and
//! [`keyring`], too.
//!
//! Invariants: nothing is sent twice (retries belong to a layer), except a request whose token or secret the service rejected
//! (401, 403). A request over a limit is not sent. A write is sent unconditionally only if the port's operation is
//! unconditional. No secret or signature appears in an error, a `Debug` text or a log line of this crate. The libraries log
//! more at DEBUG, so a program that sets up logging must hold [`CHATTY_LOG_TARGETS`] at INFO.
//!
//! The crate depends on `storage` and `model` only.

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
