//! Acknowledges a piece of news, which then disappears from the headline of this worker.

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Api, Problem};
use crate::guard::Actor;
use crate::logging::AUDIT;
use crate::state::Headline;

/// The news to acknowledge.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "acknowledgement")]
#[serde(deny_unknown_fields)]
pub(crate) struct Acknowledgement {
    /// The value of `acknowledge` in the headline or in a note.
    pub(crate) news: String,
}

pub(super) async fn acknowledge(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Json(acknowledgement): Json<Acknowledgement>,
) -> Result<Json<Headline>, Problem> {
    if !set_acknowledged(&api, &acknowledgement.news, &actor) {
        return Err(Problem::unknown(format!(
            "neither the headline nor a note has the news {:?} now. Read them again",
            acknowledgement.news
        )));
    }
    Ok(Json(api.ops_state.headline()))
}

/// Acknowledges a piece of news. Returns false if the news is no longer current.
pub(crate) fn set_acknowledged(api: &Api, news: &str, actor: &Actor) -> bool {
    let known = api.ops_state.acknowledge(news);
    if known {
        tracing::info!(target: AUDIT, news, by = actor.by(), peer = %actor.peer, claimed = actor.claimed(), "audit: news acknowledged");
    }
    known
}
