//! Operations: health, metrics, the HTTP API, the dashboard, and notifications to the supervisor.
//!
//! | Path | Answers | Token |
//! | --- | --- | --- |
//! | `/healthz` | 200 while the process answers at all | never |
//! | `/readyz` | 200, or 503 with the reasons as JSON | never |
//! | `/metrics` | Prometheus text | on any address but loopback |
//! | `/api/v1/…` | state, jobs, poison, entities ([`api`]) | on any address but loopback, and for every change |
//! | `/` and its pages | the dashboard ([`pages`]) | on any address but loopback, and for every change |
//!
//! Probes have no token, so `/healthz` and `/readyz` must not reveal anything secret. Everything else, and every
//! request that changes something, passes the [`Guard`].
//!
//! The server does not depend on a running worker, because it gets readiness from [`Readiness`] and metrics from the
//! recorder. It limits the connections (`connections`), request heads, bodies and time that a slow or hostile client
//! can use.
//!
//! This crate may depend on every crate except adapters, layers and `rollout`.

#![cfg_attr(
    not(feature = "dashboard"),
    allow(dead_code, unused_imports, reason = "used only by the pages")
)]

pub mod api;
mod connections;
mod escape_bidi;
mod guard;
mod headers;
pub mod in_step;
pub mod logging;
pub mod numbers;
#[cfg(feature = "dashboard")]
pub mod pages;
mod paths;
mod process;
mod prometheus;
mod readiness;
mod routes;
mod server;
pub mod state;
pub mod systemd;
mod write_timeout;

#[cfg(test)]
mod tests;

pub use guard::{Guard, bell_key};
pub use prometheus::{InstallError, install};
pub use readiness::{NotReady, Readiness};
pub use routes::{Routes, api_and_pages};
pub use server::{Server, ServerError};
