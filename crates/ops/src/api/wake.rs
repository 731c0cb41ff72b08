//! The doorbell (`POST /api/v1/wake`): senders report new messages, so that the receivers of idle queues poll at once.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Problem};
use evenkeel_model::QueueName;

/// The queue with new messages.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(title = "wake")]
#[serde(deny_unknown_fields)]
pub(crate) struct Wake {
    /// The queue as configured, or one of its shards; all queues if absent.
    #[serde(default)]
    pub(crate) queue: Option<String>,
}

/// The receivers that were woken.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(title = "woken")]
pub(crate) struct Woken {
    /// Number of queues and shards that they receive from.
    pub(crate) queues: usize,
}

pub(super) async fn wake(
    State(api): State<Api>,
    body: String,
) -> Result<(StatusCode, Json<Woken>), Problem> {
    let Wake { queue } = if body.trim().is_empty() {
        Wake::default()
    } else {
        serde_json::from_str(&body).map_err(|error| Problem::unusable(error.to_string()))?
    };
    let queue = queue
        .map(|queue| QueueName::new(queue).map_err(|error| Problem::unusable(error.to_string())))
        .transpose()?;
    let queues = api.ops_state.wake(queue.as_ref());
    match queue {
        Some(queue) if queues == 0 => Err(Problem::unknown(format!(
            "this worker does not receive from a queue {queue}"
        ))),
        _ => Ok((StatusCode::ACCEPTED, Json(Woken { queues }))),
    }
}
