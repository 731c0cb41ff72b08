//! The dashboard. The server renders its pages. They work without a script, and update themselves with one.
//!
//! ```text
//!   GET  /  /jobs  /poison  /entity  /views  /storage  /system       pages
//!   GET  /queues/NAME  /hour  /storage/hour                          one queue; one hour as a table
//!   GET  /events                                live parts of `/`, rendered once for all watchers
//!   GET  /charts  /jobs/list  /storage/now      parts that a page reloads
//!   POST /acknowledge  /poison/…  /entity/reconcile  /system/log   changes, with a redirect to the result
//! ```
//!
//! Pages load nothing from other servers: the program contains their style sheet and their script. Templates
//! (`templates/`) are compiled into the program. Data is written into a page only by templates, and `html::Visible`
//! escapes all of it. The length of a page is limited, no matter how much data there is.

mod change;
mod chart;
mod entity;
mod hour;
pub mod html;
mod jobs;
mod layout;
mod live;
mod login;
mod overview;
mod poison;
mod storage;
mod system;
mod views;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::header;
use axum::middleware;
use axum::response::IntoResponse;
use axum::routing::{get, post};

use super::api::Api;

/// Returns the pages that the guard protects, for [`Server::bind`](super::Server::bind).
pub fn routes(api: Api) -> Router {
    let live = live::Live::new(api.clone());
    let worker = std::sync::Arc::<str>::from(api.ops_state.worker());
    let shared = Router::new()
        .route("/", get(overview::page))
        .route("/events", get(live::events))
        .route("/charts", get(live::charts))
        .with_state(live);
    Router::new()
        .route("/charts/{queue}", get(hour::charts))
        .route("/queues/{queue}", get(hour::queue))
        .route("/hour", get(hour::table))
        .route("/jobs", get(jobs::page))
        .route("/jobs/list", get(jobs::part))
        .route("/views", get(views::page))
        .route("/storage", get(storage::page))
        .route("/storage/now", get(storage::part))
        .route("/storage/hour", get(hour::storage))
        .route("/system", get(system::page))
        .route("/system/log", post(change::log))
        .route("/entity", get(entity::page))
        .route("/acknowledge", post(change::acknowledge))
        .route("/entity/reconcile", post(change::reconcile))
        .route("/poison", get(poison::page))
        .route("/poison/confirm", get(poison::confirm))
        .route("/poison/requeue", post(change::requeue))
        .route("/poison/discard", post(change::discard))
        .with_state(api)
        .merge(shared)
        .layer(middleware::from_fn_with_state(worker, layout::surround))
}

/// Returns the routes that need no token: the login page and its assets.
pub(super) fn open() -> Router {
    Router::new()
        .route("/login", get(login::page))
        .route("/assets/style.css", get(style))
        .route("/assets/app.js", get(script))
        .route("/assets/icon.svg", get(icon))
}

/// Browsers may cache assets for five minutes, because assets change only with the program.
const KEPT: &str = "public, max-age=300";

async fn style() -> impl IntoResponse {
    (
        [
            (header::CONTENT_TYPE, "text/css; charset=utf-8"),
            (header::CACHE_CONTROL, KEPT),
        ],
        include_str!("assets/style.css"),
    )
}

async fn script() -> impl IntoResponse {
    (
        [
            (header::CONTENT_TYPE, "text/javascript; charset=utf-8"),
            (header::CACHE_CONTROL, KEPT),
        ],
        include_str!("assets/app.js"),
    )
}

async fn icon() -> impl IntoResponse {
    (
        [
            (header::CONTENT_TYPE, "image/svg+xml"),
            (header::CACHE_CONTROL, KEPT),
        ],
        include_str!("assets/icon.svg"),
    )
}
