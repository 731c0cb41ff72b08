//! Handles forms that change something. Each has the effect of a request of the API, and then redirects to a page.

use std::collections::BTreeMap;

use axum::Extension;
use axum::extract::{Form, State};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use url::form_urlencoded;

use super::layout::{self, NavEntry, PageContext};
use super::poison::MessageSelection;
use crate::api::poison::{MessageAction, Selection, change};
use crate::api::{Api, send_in_time, set_acknowledged, set_log, sync_of};
use crate::guard::Actor;
use evenkeel_worker::poison::PoisonCriteria;

#[derive(Debug, Deserialize)]
pub(super) struct EntityForm {
    table: String,
    pk: String,
    rk: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct LogForm {
    level: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct AcknowledgeForm {
    news: String,
}

/// If the news is no longer current, nothing is acknowledged. The page to which the answer redirects then shows the
/// current news.
pub(super) async fn acknowledge(
    State(api): State<Api>,
    Extension(actor): Extension<Actor>,
    Form(AcknowledgeForm { news }): Form<AcknowledgeForm>,
) -> Redirect {
    set_acknowledged(&api, &news, &actor);
    Redirect::to("/")
}

pub(super) async fn requeue(
    State(api): State<Api>,
    Extension(context): Extension<PageContext>,
    Extension(actor): Extension<Actor>,
    form: String,
) -> Response {
    handle(
        &api,
        &context,
        actor,
        MessageSelection::read(form.as_bytes()),
        MessageAction::Requeue,
        "requeued",
    )
    .await
}

pub(super) async fn discard(
    State(api): State<Api>,
    Extension(context): Extension<PageContext>,
    Extension(actor): Extension<Actor>,
    form: String,
) -> Response {
    handle(
        &api,
        &context,
        actor,
        MessageSelection::read(form.as_bytes()),
        MessageAction::Discard,
        "discarded",
    )
    .await
}

async fn handle(
    api: &Api,
    context: &PageContext,
    actor: Actor,
    meant: MessageSelection,
    what: MessageAction,
    verb: &str,
) -> Response {
    let text = |text: String| Some(text).filter(|text| !text.is_empty());
    let MessageSelection {
        queue,
        criteria,
        ids,
        all,
        until,
        ..
    } = meant;
    // The ids alone select the messages. They may come from a list with another queue or reason, so the other criteria
    // are dropped.
    let criteria = if ids.is_empty() {
        criteria
    } else {
        PoisonCriteria::default()
    };
    let selection = Selection {
        queue: text(queue),
        ids,
        all,
        until: text(until),
        criteria,
        unknown: BTreeMap::new(),
    };
    match change(api, selection, what, actor).await {
        Err(problem) => layout::problem(NavEntry::Poison, &problem, context),
        Ok(report) if report.in_progress => Redirect::to("/poison?going_on=1").into_response(),
        Ok(report) => {
            let failed = report.failed.len() + usize::from(report.stopped_by.is_some());
            let mut query = form_urlencoded::Serializer::new(String::new());
            query
                .append_pair(verb, &report.done.len().to_string())
                .append_pair("failed", &failed.to_string());
            for (left, count) in [
                ("hidden", report.hidden),
                ("absent", report.not_found.len() as u64),
                ("came", report.newer),
            ] {
                if count > 0 {
                    query.append_pair(left, &count.to_string());
                }
            }
            Redirect::to(&format!("/poison?{}", query.finish())).into_response()
        }
    }
}

pub(super) async fn reconcile(
    State(api): State<Api>,
    Extension(context): Extension<PageContext>,
    Extension(actor): Extension<Actor>,
    Form(which): Form<EntityForm>,
) -> Response {
    let EntityForm { table, pk, rk } = which;
    let sent = match sync_of(&api, &table, &pk, &rk) {
        Ok(job) => send_in_time(&api, &job, None, actor).await,
        Err(problem) => Err(problem),
    };
    match sent {
        Err(problem) => layout::problem(NavEntry::Entity, &problem, &context),
        Ok(sent) => {
            let fields = [
                ("table", &table),
                ("pk", &pk),
                ("rk", &rk),
                ("queued", &sent.message_id),
            ];
            let query = form_urlencoded::Serializer::new(String::new())
                .extend_pairs(fields)
                .finish();
            Redirect::to(&format!("/entity?{query}")).into_response()
        }
    }
}

pub(super) async fn log(
    State(api): State<Api>,
    Extension(context): Extension<PageContext>,
    Extension(actor): Extension<Actor>,
    Form(LogForm { level }): Form<LogForm>,
) -> Response {
    match set_log(&api, &level, &actor) {
        Err(problem) => layout::problem(NavEntry::System, &problem, &context),
        Ok(()) => Redirect::to("/system?log=1").into_response(),
    }
}
