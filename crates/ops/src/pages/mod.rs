//! The dashboard. Pages are rendered on the server: they work without a script, and are live with one.
//!
//! ```text
//!   GET  /  /jobs  /poison  /entity  /views  /storage  /system       pages
//!   GET  /queues/NAME  /hour  /storage/hour                          one queue; one hour as a table
//!   GET  /events                                live parts of `/`, rendered once for all watchers
//!   GET  /charts  /jobs/list  /storage/now      parts that a page reloads
//!   POST /acknowledge  /poison/…  /entity/reconcile  /system/log   changes, with a redirect to the result
//! ```
//!
//! Pages load nothing from other servers: one style sheet and one script are embedded in the program. Templates
//! (`templates/`) are compiled in, and `html::Visible` escapes all data in them; nothing else writes data into a page.
//! The length of a page is bounded for any amount of data.

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

/// The pages behind the guard, for [`Server::bind`](super::Server::bind).
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

/// Routes without a token: the login page and its assets.
pub(super) fn open() -> Router {
    Router::new()
        .route("/login", get(login::page))
        .route("/assets/style.css", get(style))
        .route("/assets/app.js", get(script))
        .route("/assets/icon.svg", get(icon))
}

/// Browsers may cache assets for a while, because they change only with the program.
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
