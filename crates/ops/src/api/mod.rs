//! `/api/v1`: the data and actions of the dashboard as JSON.
//!
//! Reads return data of the [operations state](super::state), or send a few storage requests for an entity or the front
//! of a poison queue. Changes send jobs and handle poison messages, and each is logged. The [`Guard`](super::Guard)
//! checks all rights before a handler runs. [`openapi`] lists the operations.

mod acknowledge;
mod config;
mod entity;
mod gather;
mod jobs;
mod log;
pub mod openapi;
pub(super) mod poison;
mod problem;
mod status;
mod submit;
mod under_way;
mod wake;

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use serde_json::Value;
use tokio_util::task::TaskTracker;

pub(crate) use acknowledge::set_acknowledged;
pub(crate) use entity::{EntityReport, look};
pub use gather::GatheredJobs;
pub(crate) use jobs::{ending, shown_jobs};
pub(crate) use log::set_log;
pub(crate) use problem::Problem;
pub(crate) use status::{Status, names, seen, status_of};
pub(crate) use submit::{send_in_time, sync_of};
#[cfg(test)]
pub(crate) use under_way::sent;

use super::board::Board;
use crate::logging::LogControl;
use evenkeel_client::Client;
use evenkeel_model::settings::Settings;
use evenkeel_storage::Stores;

pub struct ApiParts {
    pub board: Arc<Board>,
    /// All settings except the catalog.
    pub settings: Arc<Settings>,
    pub stores: Stores,
    /// The configuration in force, with secrets removed.
    pub config: Arc<ArcSwap<Value>>,
    pub log: LogControl,
    /// Changes in progress. The program waits for them before it ends.
    pub changes: TaskTracker,
    /// Jobs of concurrent callers, waiting to be sent together.
    pub gathered: GatheredJobs,
}

impl ApiParts {
    /// Creates a client, as applications use it.
    pub(super) fn client(&self) -> Client {
        Client::new(
            self.stores.clone(),
            self.board.catalog(),
            self.settings.queues.clone(),
        )
    }

    pub(super) fn config(&self) -> Value {
        Value::clone(&self.config.load())
    }
}

pub type Api = Arc<ApiParts>;

/// The routes of `/api/v1`, for [`Server::bind`](super::Server::bind).
pub fn routes(api: Api) -> Router {
    let v1 = openapi::router().fallback(problem::nowhere).with_state(api);
    Router::new().nest("/api/v1", v1)
}
