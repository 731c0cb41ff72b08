use std::collections::BTreeMap;

use axum::extract::{Query, State};
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Problem};
use crate::guard::Visitor;
use crate::state::{
    Costs, Freshness, Headline, HotPartition, LimitedScope, OpsState, PartitionNames, QueueNow,
    QueueSlot, StorageHour, StorageNow, ViewNow, WalkNow,
};
use evenkeel_model::QueueName;

/// Views per page.
const VIEWS: usize = 100;
/// Number of partitions in the answer about the program's state.
const HOTTEST: usize = 3;
/// Number of partitions in the answer that lists partitions.
const PARTITIONS: usize = 50;

/// The state of the program.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "status")]
pub(crate) struct Status {
    /// The state in a few words.
    pub(crate) headline: Headline,
    /// Name of the answering worker, as in poison messages.
    pub(crate) worker: String,
    /// Version of the program.
    pub(crate) version: &'static str,
    /// Time since the program started, in seconds.
    pub(crate) running_seconds: u64,
    /// Every queue that the worker receives from.
    pub(crate) queues: Vec<QueueNow>,
    /// Poisoned messages by configured queue, without queues that have not been counted yet.
    pub(crate) poisoned: BTreeMap<String, u64>,
    /// Number of views.
    pub(crate) view_count: usize,
    /// The first hundred views; see `/api/v1/views` for more.
    pub(crate) views: Vec<ViewNow>,
    /// Unfinished backfill and audit jobs that this worker has run a part of.
    pub(crate) walks: Vec<WalkNow>,
    /// Every storage service in use.
    pub(crate) storage: Vec<StorageNow>,
    /// The three busiest partitions or queues of the last hour; see `/api/v1/partitions` for more.
    pub(crate) hottest: Vec<HotPartition>,
    /// Time from a write of a primary until everything derived from it was in step.
    pub(crate) freshness: Freshness,
    /// Cost of the requests.
    pub(crate) costs: Costs,
    /// Background tasks of the program.
    pub(crate) tasks: Vec<Task>,
}

/// A background task of the program.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "task")]
pub(crate) struct Task {
    pub(crate) name: String,
    /// What it is doing.
    pub(crate) state: &'static str,
    /// Seconds since it last did its work; null if it has not yet, or if unknown.
    pub(crate) last_seconds_ago: Option<f64>,
}

impl Task {
    pub(crate) fn is_well(&self) -> bool {
        matches!(self.state, "receiving" | "running" | "serving" | "idle")
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct QueueQuery {
    queue: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PageQuery {
    after: Option<String>,
}

pub(crate) const fn names(visitor: Visitor) -> PartitionNames {
    if visitor.contents {
        PartitionNames::Whole
    } else {
        PartitionNames::OfPrimaries
    }
}

pub(crate) fn seen(views: Vec<ViewNow>, visitor: Visitor) -> Vec<ViewNow> {
    if visitor.contents {
        views
    } else {
        views.into_iter().map(ViewNow::without_contents).collect()
    }
}

pub(crate) fn status_of(ops_state: &OpsState, names: PartitionNames) -> Status {
    let queues = ops_state.queues();
    let poisoned = ops_state
        .job_queues()
        .iter()
        .filter_map(|queue| Some((queue.name.to_string(), ops_state.poisoned_of(&queue.name)?)));
    Status {
        headline: ops_state.headline(),
        worker: ops_state.worker().to_owned(),
        version: env!("CARGO_PKG_VERSION"),
        running_seconds: ops_state.running().as_secs(),
        poisoned: poisoned.collect(),
        view_count: ops_state.view_count(),
        views: ops_state.views(None, VIEWS),
        walks: ops_state.walks(),
        storage: ops_state.storage(),
        hottest: ops_state.hottest(HOTTEST, names),
        freshness: ops_state.freshness(),
        costs: ops_state.costs(),
        tasks: tasks(ops_state, &queues),
        queues,
    }
}

/// Lists the background tasks. The time at which a task last did something shows whether it still works.
fn tasks(ops_state: &OpsState, queues: &[QueueNow]) -> Vec<Task> {
    let receivers = queues.iter().map(|queue| Task {
        name: format!("receiver of {}", queue.queue),
        state: queue.state,
        last_seconds_ago: queue.last_poll_seconds_ago,
    });
    let measured = queues
        .iter()
        .filter_map(|queue| queue.measured_seconds_ago)
        .reduce(f64::min);
    let (sampled, counted) = ops_state.last_measured();
    let regular = |name: &str, last: Option<f64>| Task {
        name: name.to_owned(),
        state: if last.is_some() {
            "running"
        } else {
            "starting"
        },
        last_seconds_ago: last,
    };
    let open = ops_state.open_circuits();
    let walks = ops_state.walks().into_iter().map(|walk| Task {
        name: walk.to_string(),
        state: "running",
        last_seconds_ago: Some(walk.seconds_ago),
    });
    receivers
        .chain(walks)
        .chain([
            regular("backlog: counts the messages of the queues", measured),
            regular(
                "series: records measurements every ten seconds",
                sampled.map(|ago| ago.as_secs_f64()),
            ),
            regular(
                "poison: counts the poison queues",
                counted.map(|ago| ago.as_secs_f64()),
            ),
            Task {
                name: "circuit: tests services that do not answer".to_owned(),
                state: if open == 0 { "idle" } else { "testing" },
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
    let mut status = status_of(&api.ops_state, names(visitor));
    status.views = seen(status.views, visitor);
    Json(status)
}

pub(super) async fn queues(State(api): State<Api>) -> Json<Vec<QueueNow>> {
    Json(api.ops_state.queues())
}

pub(super) async fn hour(
    State(api): State<Api>,
    Query(of): Query<QueueQuery>,
) -> Result<Json<Vec<QueueSlot>>, Problem> {
    let queue = of.queue.filter(|queue| !queue.is_empty());
    let queue = queue
        .map(|queue| QueueName::new(queue).map_err(|error| Problem::unusable(error.to_string())))
        .transpose()?;
    if let Some(queue) = &queue
        && !api
            .ops_state
            .queues()
            .iter()
            .any(|known| known.queue == queue.as_str())
    {
        return Err(Problem::unknown(format!(
            "this worker does not receive from a queue {queue}"
        )));
    }
    Ok(Json(api.ops_state.hour(queue.as_ref())))
}

pub(super) async fn storage(State(api): State<Api>) -> Json<Vec<StorageHour>> {
    Json(api.ops_state.storage_hour())
}

pub(super) async fn views(
    State(api): State<Api>,
    Query(page): Query<PageQuery>,
    Extension(visitor): Extension<Visitor>,
) -> Json<Vec<ViewNow>> {
    Json(seen(
        api.ops_state.views(page.after.as_deref(), VIEWS),
        visitor,
    ))
}

pub(super) async fn partitions(
    State(api): State<Api>,
    Extension(visitor): Extension<Visitor>,
) -> Json<Vec<HotPartition>> {
    Json(api.ops_state.hottest(PARTITIONS, names(visitor)))
}

pub(super) async fn pacing(
    State(api): State<Api>,
    Extension(visitor): Extension<Visitor>,
) -> Json<Vec<LimitedScope>> {
    let mut holds = api.ops_state.limited_scopes(names(visitor));
    holds.truncate(PARTITIONS);
    Json(holds)
}

pub(super) async fn costs(State(api): State<Api>) -> Json<Costs> {
    Json(api.ops_state.costs())
}
