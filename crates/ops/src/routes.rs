use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use metrics::gauge;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use serde_json::json;

use super::guard::{self, Guard};
use super::{NotReady, Readiness, headers, process};
use evenkeel_model::unprintable::{escape_bidi_json, is_unprintable};
use evenkeel_storage::Clock;
use evenkeel_telemetry::names;

/// Prometheus text exposition format.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Maximum size of a request body: one queue message.
const BODY_BYTES: usize = 65_536;
/// Maximum time to produce an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Routes {
    pub readiness: Arc<dyn Readiness>,
    pub metrics: PrometheusHandle,
    pub clock: Arc<dyn Clock>,
}

impl Routes {
    /// Returns the router. `more` contains further routes, which the guard also protects.
    pub(super) fn router(self, guard: Guard, more: Router) -> Router {
        let readiness = Arc::clone(&self.readiness);
        let open = Router::new()
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .with_state(readiness);
        let door = Router::new()
            .route("/login", post(guard::log_in))
            .route("/logout", post(guard::log_out))
            .with_state(guard.clone());
        let guarded = Router::new()
            .route(
                "/metrics",
                get(metrics).with_state((self.metrics, Arc::clone(&self.readiness))),
            )
            .merge(more)
            .fallback(not_found)
            // A `layer` also applies to unknown paths, unlike a `route_layer`, so a client without a token cannot find
            // out which paths exist.
            .layer(middleware::from_fn_with_state(guard, guard::check));
        #[cfg(feature = "dashboard")]
        let open = open.merge(crate::pages::open());
        open.merge(door)
            .merge(guarded)
            .layer(middleware::from_fn(with_timeout))
            .layer(middleware::from_fn(error_as_json))
            .layer(middleware::from_fn(escape_hidden))
            .layer(middleware::from_fn(headers::add))
            .layer(DefaultBodyLimit::max(BODY_BYTES))
    }
}

/// Returns the routes of the HTTP API, and of the dashboard if it is built in.
pub fn api_and_pages(api: crate::api::Api) -> Router {
    let routes = crate::api::routes(api.clone());
    #[cfg(feature = "dashboard")]
    let routes = routes.merge(crate::pages::routes(api));
    routes
}

async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "not found\n")
}

async fn healthz() -> &'static str {
    "ok\n"
}

#[derive(Serialize)]
struct ReadyBody {
    ready: bool,
    reasons: Vec<ReasonBody>,
}

#[derive(Serialize)]
struct ReasonBody {
    #[serde(flatten)]
    reason: NotReady,
    message: String,
}

async fn readyz(State(readiness): State<Arc<dyn Readiness>>) -> Response {
    let reasons: Vec<_> = readiness
        .reasons()
        .into_iter()
        .map(|reason| ReasonBody {
            message: reason.to_string(),
            reason,
        })
        .collect();
    let status = if reasons.is_empty() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        [(header::CACHE_CONTROL, "no-store")],
        Json(ReadyBody {
            ready: reasons.is_empty(),
            reasons,
        }),
    )
        .into_response()
}

async fn metrics(
    State((handle, readiness)): State<(PrometheusHandle, Arc<dyn Readiness>)>,
) -> Response {
    process::measure();
    gauge!(names::READY).set(if readiness.reasons().is_empty() {
        1.0
    } else {
        0.0
    });
    ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], handle.render()).into_response()
}

async fn with_timeout(request: Request, next: Next) -> Response {
    match tokio::time::timeout(ANSWER_TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (
            StatusCode::GATEWAY_TIMEOUT,
            "timeout: no answer within 30 s\n",
        )
            .into_response(),
    }
}

/// Escapes invisible characters and characters that change the direction of text, so that a terminal shows the
/// characters of the JSON in their order.
async fn escape_hidden(request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    if !is_json(&answer) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let Ok(bytes) = to_bytes(body, usize::MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    match std::str::from_utf8(&bytes) {
        Ok(text) if text.contains(is_unprintable) => {
            head.headers.remove(header::CONTENT_LENGTH);
            (head, escape_bidi_json(text)).into_response()
        }
        Ok(_) | Err(_) => (head, bytes).into_response(),
    }
}

fn is_json(answer: &Response) -> bool {
    answer
        .headers()
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "application/json")
}

/// Converts plain-text errors of the guard, the router and the body extractors into the API's error format.
async fn error_as_json(request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let answer = next.run(request).await;
    let is_error = answer.status().is_client_error() || answer.status().is_server_error();
    if !is_api || !is_error || is_json(&answer) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    head.headers.remove(header::CONTENT_TYPE);
    head.headers.remove(header::CONTENT_LENGTH);
    let text = to_bytes(body, BODY_BYTES).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let error = if text.is_empty() {
        head.status.canonical_reason().unwrap_or_default()
    } else {
        text.trim_end()
    };
    let body = Json(json!({"error": error}));
    (head, body).into_response()
}
