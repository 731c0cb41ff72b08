//! How things stand.

use std::collections::BTreeMap;

use axum::extract::{Query, State};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Problem};
use crate::board::{
    Board, Costs, Freshness, Headline, Hold, HotPartition, PartitionNames, QueueNow, QueueSlot,
    StorageHour, StorageNow, ViewNow, WalkNow,
};
use crate::guard::Visitor;
use evenkeel_model::QueueName;

/// Views on one page.
const VIEWS: usize = 100;
/// Partitions that the status shows.
const HOTTEST: usize = 3;
/// Partitions that are shown by themselves.
const PARTITIONS: usize = 50;

/// How things stand.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "status")]
pub(crate) struct Status {
    /// In words.
    pub(crate) headline: Headline,
    /// The name of the worker that answers, as in poison messages.
    pub(crate) worker: String,
    /// The program's version.
    pub(crate) version: &'static str,
    /// How long it has been running, in seconds.
    pub(crate) running_seconds: u64,
    /// Every queue that is received from.
    pub(crate) queues: Vec<QueueNow>,
    /// Poisoned messages by queue as configured; a queue that was not counted yet is left out.
    pub(crate) poisoned: BTreeMap<String, u64>,
    /// How many views there are.
    pub(crate) view_count: usize,
    /// The first hundred views; `/api/v1/views` has the others.
    pub(crate) views: Vec<ViewNow>,
    /// Backfill and audit jobs that this worker did a part of and that have more to do.
    pub(crate) walks: Vec<WalkNow>,
    /// Every storage service that is used.
    pub(crate) storage: Vec<StorageNow>,
    /// The three partitions or queues that were asked for most in the last hour; `/api/v1/partitions` has more.
    pub(crate) hottest: Vec<HotPartition>,
    /// How long writes took until they could be found.
    pub(crate) freshness: Freshness,
    /// Cost of the requests.
    pub(crate) costs: Costs,
    /// Tasks of the program.
    pub(crate) tasks: Vec<Task>,
}

/// One task of the program.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "task")]
pub(crate) struct Task {
    pub(crate) name: String,
    /// Its present activity.
    pub(crate) state: &'static str,
    /// How long ago it last did its work, in seconds; null where it has not yet, or that is not known.
    pub(crate) last_seconds_ago: Option<f64>,
}

impl Task {
    /// Whether it is as it should be.
    pub(crate) fn is_well(&self) -> bool {
        matches!(self.state, "receiving" | "running" | "serving" | "idle")
    }
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

/// The partitions that a visitor sees the names of.
pub(crate) const fn names(visitor: Visitor) -> PartitionNames {
    if visitor.contents {
        PartitionNames::Whole
    } else {
        PartitionNames::OfPrimaries
    }
}

/// Views as a visitor sees them.
pub(crate) fn seen(views: Vec<ViewNow>, visitor: Visitor) -> Vec<ViewNow> {
    if visitor.contents {
        views
    } else {
        views.into_iter().map(ViewNow::without_contents).collect()
    }
}

/// Puts together how things stand.
pub(crate) fn status_of(board: &Board, names: PartitionNames) -> Status {
    let queues = board.queues();
    let poisoned = board
        .configured()
        .iter()
        .filter_map(|queue| Some((queue.name.to_string(), board.poisoned_of(&queue.name)?)));
    Status {
        headline: board.headline(),
        worker: board.worker().to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        running_seconds: board.running().as_secs(),
        poisoned: poisoned.collect(),
        view_count: board.view_count(),
        views: board.views(None, VIEWS),
        walks: board.walks(),
        storage: board.storage(),
        hottest: board.hottest(HOTTEST, names),
        freshness: board.freshness(),
        costs: board.costs(),
        tasks: tasks(board, &queues),
        queues,
    }
}

/// The tasks of the program. Each shows by its activity that it lives.
fn tasks(board: &Board, queues: &[QueueNow]) -> Vec<Task> {
    let receivers = queues.iter().map(|queue| Task {
        name: format!("receiver of {}", queue.queue),
        state: queue.state,
        last_seconds_ago: queue.last_poll_seconds_ago,
    });
    let measured = queues
        .iter()
        .filter_map(|queue| queue.measured_seconds_ago)
        .reduce(f64::min);
    let (sampled, counted) = board.kept();
    let regular = |name: &str, last: Option<f64>| Task {
        name: name.to_owned(),
        state: if last.is_some() {
            "running"
        } else {
            "starting"
        },
        last_seconds_ago: last,
    };
    let open = board.open_circuits();
    let walks = board.walks().into_iter().map(|walk| Task {
        name: walk.to_string(),
        state: "goes on",
        last_seconds_ago: Some(walk.seconds_ago),
    });
    receivers
        .chain(walks)
        .chain([
            regular("backlog: measures what the queues hold", measured),
            regular(
                "slots: ten seconds of figures at a time",
                sampled.map(|ago| ago.as_secs_f64()),
            ),
            regular(
                "poison: counts the poison queues",
                counted.map(|ago| ago.as_secs_f64()),
            ),
            Task {
                name: "circuit: asks services that refuse whether they answer again".to_owned(),
                state: if open == 0 { "idle" } else { "asking" },
                last_seconds_ago: None,
            },
            Task {
                name: "http: this server".to_owned(),
                state: "serving",
                last_seconds_ago: None,
            },
        ])
        .collect()
}

pub(super) async fn status(
    State(api): State<Api>,
    Extension(visitor): Extension<Visitor>,
) -> Json<Status> {
    let mut status = status_of(&api.board, names(visitor));
    status.views = seen(status.views, visitor);
    Json(status)
}

pub(super) async fn queues(State(api): State<Api>) -> Json<Vec<QueueNow>> {
    Json(api.board.queues())
}

pub(super) async fn hour(
    State(api): State<Api>,
    Query(of): Query<OfQueue>,
) -> Result<Json<Vec<QueueSlot>>, Problem> {
    let queue = of.queue.filter(|queue| !queue.is_empty());
    let queue = queue
        .map(|queue| QueueName::new(queue).map_err(|error| Problem::unusable(error.to_string())))
        .transpose()?;
    if let Some(queue) = &queue
        && !api
            .board
            .queues()
            .iter()
            .any(|known| known.queue == queue.as_str())
    {
        return Err(Problem::unknown(format!(
            "nothing is received from a queue {queue}"
        )));
    }
    Ok(Json(api.board.hour(queue.as_ref())))
}

pub(super) async fn storage(State(api): State<Api>) -> Json<Vec<StorageHour>> {
    Json(api.board.storage_hour())
}

pub(super) async fn views(
    State(api): State<Api>,
    Query(page): Query<After>,
    Extension(visitor): Extension<Visitor>,
) -> Json<Vec<ViewNow>> {
    Json(seen(api.board.views(page.after.as_deref(), VIEWS), visitor))
}

pub(super) async fn partitions(
    State(api): State<Api>,
    Extension(visitor): Extension<Visitor>,
) -> Json<Vec<HotPartition>> {
    Json(api.board.hottest(PARTITIONS, names(visitor)))
}

pub(super) async fn pacing(
    State(api): State<Api>,
    Extension(visitor): Extension<Visitor>,
) -> Json<Vec<Hold>> {
    let mut holds = api.board.holds(names(visitor));
    holds.truncate(PARTITIONS);
    Json(holds)
}

pub(super) async fn costs(State(api): State<Api>) -> Json<Costs> {
    Json(api.board.costs())
}
