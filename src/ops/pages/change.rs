//! Changes from the pages' forms: done as the API does them, then back to the page.

use std::collections::BTreeSet;

use axum::Extension;
use axum::extract::{Form, State};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::html::Query;
use super::layout;
use crate::ops::api::poison::{Change, Selection, change};
use crate::ops::api::{Api, send, sync_of};
use crate::ops::guard::Visitor;

/// Which messages.
#[derive(Debug, Deserialize)]
pub(super) struct Meant {
    #[serde(default)]
    queue: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    id: String,
    #[serde(default)]
    all: bool,
}

/// Which entity.
#[derive(Debug, Deserialize)]
pub(super) struct Which {
    table: String,
    pk: String,
    rk: String,
}

pub(super) async fn requeue(State(api): State<Api>, Extension(visitor): Extension<Visitor>, Form(meant): Form<Meant>) -> Response {
    handle(&api, visitor, meant, Change::Requeue, "requeued").await
}

pub(super) async fn discard(State(api): State<Api>, Extension(visitor): Extension<Visitor>, Form(meant): Form<Meant>) -> Response {
    handle(&api, visitor, meant, Change::Discard, "discarded").await
}

async fn handle(api: &Api, visitor: Visitor, meant: Meant, what: Change, verb: &str) -> Response {
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let Meant { queue, reason, id, all } = meant;
    let ids: BTreeSet<String> = text(id).into_iter().collect();
    match change(api, Selection { queue: text(queue), ids, all, reason: text(reason) }, what).await {
        Err(problem) => layout::problem("/poison", &problem, visitor),
        Ok(report) if report.under_way => Redirect::to("/poison?going_on=1").into_response(),
        Ok(report) => Redirect::to(&format!("/poison?{verb}={}&failed={}", report.done.len(), report.failed.len())).into_response(),
    }
}

pub(super) async fn reconcile(State(api): State<Api>, Extension(visitor): Extension<Visitor>, Form(which): Form<Which>) -> Response {
    let Which { table, pk, rk } = which;
    let sent = match sync_of(&api, &table, &pk, &rk) {
        Ok(job) => send(&api, &job, None).await,
        Err(problem) => Err(problem),
    };
    match sent {
        Err(problem) => layout::problem("/entity", &problem, visitor),
        Ok(_) => Redirect::to(&format!("/entity?table={}&pk={}&rk={}&queued=1", Query(&table), Query(&pk), Query(&rk))).into_response(),
    }
}
