//! `/api/v1`: the data and actions of the dashboard, as JSON.
//!
//! Reading is plain data from the [board](super::board), or a few storage requests for an entity or the front of a
//! poison queue. Changing sends jobs and handles poison; each change is one line in the log. The [`Guard`](super::Guard)
//! decides on the rights; nothing here asks again. The table in [`openapi`] has the operations.

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

/// Components of the API.
pub struct ApiParts {
    /// The board of the operators.
    pub board: Arc<Board>,
    /// All settings beside the catalog.
    pub settings: Arc<Settings>,
    /// The stores.
    pub stores: Stores,
    /// The configuration in force, secrets hidden.
    pub config: Arc<ArcSwap<Value>>,
    /// Control of the log level.
    pub log: LogControl,
    /// Changes under way: waited for when the program ends.
    pub changes: TaskTracker,
    /// Jobs of concurrent callers that wait to be sent together.
    pub gathered: GatheredJobs,
}

impl ApiParts {
    /// The client that applications use as well.
    pub(super) fn client(&self) -> Client {
        Client::new(
            self.stores.clone(),
            self.board.catalog(),
            self.settings.queues.clone(),
        )
    }

    /// The configuration in force, secrets hidden.
    pub(super) fn config(&self) -> Value {
        Value::clone(&self.config.load())
    }
}

/// The components of the API, shared.
pub type Api = Arc<ApiParts>;

/// The routes of `/api/v1`, for [`Server::bind`](super::Server::bind).
pub fn routes(api: Api) -> Router {
    let v1 = openapi::router().fallback(problem::nowhere).with_state(api);
    Router::new().nest("/api/v1", v1)
}
