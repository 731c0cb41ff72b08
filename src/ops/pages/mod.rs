//! The dashboard: pages made on the server, which work without a script and are live with one.
//!
//! ```text
//!   GET  /  /queues/NAME  /hour  /jobs  /entity  /poison  /config     pages
//!   GET  /events                      the live parts of `/`, made once for all who watch
//!   POST /poison/…  /entity/reconcile  changes, then a redirect to what they changed
//! ```
//!
//! Everything a page needs comes from this server: one style sheet and one script, embedded. Whatever comes from data
//! goes through `html::Text`: nothing else puts text into a page.

mod change;
mod chart;
mod entity;
mod hour;
mod html;
mod jobs;
mod layout;
mod live;
mod login;
mod overview;
mod poison;
mod words;

#[cfg(test)]
mod tests;

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::{get, post};

use super::api::Api;

/// The pages that show something, for [`Server::bind`](super::Server::bind).
pub fn routes(api: Api) -> Router {
    let live = live::Live::new(api.clone());
    Router::new()
        .route("/", get(overview::page))
        .route("/queues/{queue}", get(hour::queue))
        .route("/hour", get(hour::table))
        .route("/charts", get(hour::charts))
        .route("/jobs", get(jobs::page))
        .route("/entity", get(entity::page))
        .route("/entity/reconcile", post(change::reconcile))
        .route("/poison", get(poison::page))
        .route("/poison/ask", get(poison::ask))
        .route("/poison/requeue", post(change::requeue))
        .route("/poison/discard", post(change::discard))
        .with_state(api)
        .merge(Router::new().route("/events", get(live::events)).with_state(live))
}

/// What everybody may see before showing a token: the way in, and what it looks like.
pub(super) fn open() -> Router {
    Router::new()
        .route("/login", get(login::page))
        .route("/assets/style.css", get(style))
        .route("/assets/app.js", get(script))
        .route("/assets/icon.svg", get(icon))
}

/// A browser may keep them for a while: they change with the program only.
const KEPT: &str = "public, max-age=300";

async fn style() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8"), (header::CACHE_CONTROL, KEPT)], include_str!("assets/style.css"))
}

async fn script() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8"), (header::CACHE_CONTROL, KEPT)], include_str!("assets/app.js"))
}

async fn icon() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "image/svg+xml"), (header::CACHE_CONTROL, KEPT)], include_str!("assets/icon.svg"))
}
