//! Acknowledging news: somebody knows of it, and it is no headline of this worker any more.

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Api, Problem};
use crate::board::Headline;
use crate::guard::Actor;
use crate::logging::AUDIT;

/// The news that somebody knows of.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(title = "acknowledgement")]
#[serde(deny_unknown_fields)]
pub(crate) struct Acknowledgement {
    /// `acknowledge` of the headline or of a note, as it was read.
    pub(crate) news: String,
}

pub(super) async fn acknowledge(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Json(acknowledgement): Json<Acknowledgement>,
) -> Result<Json<Headline>, Problem> {
    if !set_acknowledged(&api, &acknowledgement.news, &actor) {
        return Err(Problem::unknown(
            "this is no news at the moment: read the headline again",
        ));
    }
    Ok(Json(api.board.headline()))
}

/// Acknowledges a piece of news; whether it was news.
pub(crate) fn set_acknowledged(api: &Api, news: &str, actor: &Actor) -> bool {
    let known = api.board.acknowledge(news);
    if known {
        tracing::info!(target: AUDIT, news, by = actor.by(), peer = %actor.peer, claimed = actor.claimed(), "audit: news acknowledged");
    }
    known
}
