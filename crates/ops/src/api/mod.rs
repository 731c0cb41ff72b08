//! `/api/v1`: the data and actions of the dashboard as JSON.
//!
//! Requests that read return data of the [operations state](super::state), or read an entity or the first messages of a
//! poison queue with a few storage requests. Requests that change something send jobs or handle poison messages, and
//! each change is logged. The [`Guard`](super::Guard) checks all rights before a handler runs. The operations are
//! listed in [`openapi`].

mod acknowledge;
mod background;
mod batching;
mod config;
mod entity;
mod jobs;
mod log;
pub mod openapi;
pub(super) mod poison;
mod problem;
mod status;
mod submit;
mod wake;

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use serde_json::Value;
use tokio_util::task::TaskTracker;

pub(crate) use acknowledge::set_acknowledged;
#[cfg(test)]
pub(crate) use background::sent;
pub use batching::JobBatcher;
pub(crate) use entity::{EntityReport, entity_report};
pub(crate) use jobs::{ending, shown_jobs};
pub(crate) use log::set_log;
pub(crate) use problem::Problem;
pub(crate) use status::{Status, names, seen, status_of};
pub(crate) use submit::{send_in_time, sync_of};

use super::state::OpsState;
use crate::logging::LogControl;
use evenkeel_client::Client;
use evenkeel_model::settings::Settings;
use evenkeel_storage::Stores;

pub struct ApiParts {
    pub ops_state: Arc<OpsState>,
    /// All settings except the catalog.
    pub settings: Arc<Settings>,
    pub stores: Stores,
    /// The present configuration, without secrets.
    pub config: Arc<ArcSwap<Value>>,
    pub log: LogControl,
    /// Changes in progress. The program waits for all of them before it ends.
    pub changes: TaskTracker,
    /// The jobs of concurrent callers that wait to be sent together.
    pub batcher: JobBatcher,
}

impl ApiParts {
    /// Creates a client of the same kind that applications use.
    pub(super) fn client(&self) -> Client {
        Client::new(
            self.stores.clone(),
            self.ops_state.catalog(),
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
    let v1 = openapi::router()
        .fallback(problem::not_found)
        .with_state(api);
    Router::new().nest("/api/v1", v1)
}
