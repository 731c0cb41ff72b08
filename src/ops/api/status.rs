//! How things stand.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Query, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Problem};
use crate::model::QueueName;
use crate::ops::board::{Board, Headline, QueueNow, QueueSlot, StorageHour, StorageNow, ViewNow};

/// Views on one page.
const VIEWS: usize = 100;

/// How things stand.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "status")]
pub(crate) struct Status {
    /// In words.
    pub(crate) headline: Headline,
    /// The program's version.
    pub(crate) version: &'static str,
    /// How long it has been running, in seconds.
    pub(crate) running_seconds: u64,
    /// Every queue that is received from.
    pub(crate) queues: Vec<QueueNow>,
    /// Poisoned messages by queue as configured; a queue that was not counted yet is left out.
    pub(crate) poisoned: BTreeMap<String, u64>,
    /// The first hundred views; `/api/v1/views` has the others.
    pub(crate) views: Vec<ViewNow>,
    /// Every storage service that is used.
    pub(crate) storage: Vec<StorageNow>,
    /// What the program runs.
    pub(crate) tasks: Vec<Task>,
}

/// One task of the program.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "task")]
pub(crate) struct Task {
    /// Its name.
    pub(crate) name: String,
    /// What it does now.
    pub(crate) state: &'static str,
}

/// Which queue.
#[derive(Debug, Deserialize)]
pub(super) struct OfQueue {
    queue: Option<String>,
}

/// Where a page begins.
#[derive(Debug, Deserialize)]
pub(super) struct After {
    after: Option<String>,
}

/// Puts together how things stand.
pub(crate) fn status_of(board: &Board) -> Status {
    let queues = board.queues();
    let receivers = queues.iter().map(|queue| Task { name: format!("receiver of {}", queue.queue), state: queue.state });
    let http = Task { name: "http".to_owned(), state: "serving" };
    let tasks = receivers.chain([http]).collect();
    let poisoned = board.configured().iter().filter_map(|queue| Some((queue.name.to_string(), board.poisoned_of(&queue.name)?)));
    Status {
        headline: board.headline(),
        version: env!("CARGO_PKG_VERSION"),
        running_seconds: board.running().as_secs(),
        poisoned: poisoned.collect(),
        views: board.views(None, VIEWS),
        storage: board.storage(),
        queues,
        tasks,
    }
}

pub(super) async fn status(State(api): State<Api>) -> Json<Status> {
    Json(status_of(&api.board))
}

pub(super) async fn queues(State(api): State<Api>) -> Json<Vec<QueueNow>> {
    Json(api.board.queues())
}

pub(super) async fn hour(State(api): State<Api>, Query(of): Query<OfQueue>) -> Result<Json<Vec<QueueSlot>>, Problem> {
    let queue = of.queue.filter(|queue| !queue.is_empty());
    let queue = queue.map(|queue| QueueName::new(queue).map_err(|error| Problem::unusable(error.to_string()))).transpose()?;
    if let Some(queue) = &queue
        && !api.board.queues().iter().any(|known| known.queue == queue.as_str())
    {
        return Err(Problem::unknown(format!("nothing is received from a queue {queue}")));
    }
    Ok(Json(api.board.hour(queue.as_ref())))
}

pub(super) async fn storage(State(api): State<Api>) -> Json<Vec<StorageHour>> {
    Json(api.board.storage_hour())
}

pub(super) async fn views(State(api): State<Api>, Query(page): Query<After>) -> Json<Vec<ViewNow>> {
    Json(api.board.views(page.after.as_deref(), VIEWS))
}
