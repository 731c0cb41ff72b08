use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Problem};
use crate::guard::Actor;
use crate::logging::AUDIT;

/// The log levels in force.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "log")]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or levels by module: `info,evenkeel_worker=trace`.
    pub(crate) level: String,
}

pub(super) async fn level(State(api): State<Api>) -> Json<Log> {
    Json(Log {
        level: api.log.filter(),
    })
}

pub(super) async fn change(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Json(log): Json<Log>,
) -> Result<Json<Log>, Problem> {
    set_log(&api, &log.level, &actor)?;
    Ok(Json(Log {
        level: api.log.filter(),
    }))
}

pub(crate) fn set_log(api: &Api, level: &str, actor: &Actor) -> Result<(), Problem> {
    api.log
        .change(level)
        .map_err(|error| Problem::unusable(error.to_string()))?;
    tracing::warn!(target: AUDIT, level = api.log.filter(), by = actor.by(), peer = %actor.peer, claimed = actor.claimed(), "audit: log level changed");
    Ok(())
}
