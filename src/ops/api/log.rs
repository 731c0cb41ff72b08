//! What is logged.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Api, Problem};

/// What is logged.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(title = "log")]
#[serde(deny_unknown_fields)]
pub(crate) struct Log {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or levels by module: `info,evenkeel::worker=trace`.
    pub(crate) level: String,
}

pub(super) async fn level(State(api): State<Api>) -> Json<Log> {
    Json(Log { level: api.log.filter() })
}

pub(super) async fn change(State(api): State<Api>, Json(log): Json<Log>) -> Result<Json<Log>, Problem> {
    set_log(&api, &log.level)?;
    Ok(Json(Log { level: api.log.filter() }))
}

/// Changes what is logged.
pub(crate) fn set_log(api: &Api, level: &str) -> Result<(), Problem> {
    api.log.change(level).map_err(|error| Problem::unusable(error.to_string()))?;
    // Told whatever the level is now: it says why what follows is so long, or so short.
    tracing::warn!(level = api.log.filter(), "audit: log level changed");
    Ok(())
}
