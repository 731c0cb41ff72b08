//! The live parts of the first page. They are rendered once for all open pages (watchers).
//!
//! ```text
//!   watcher ─┐
//!   watcher ─┼─ every 2 s ─▶ the parts as one event, rendered for the first watcher that asks and shared by all;
//!   watcher ─┘               an event is sent only if it differs from the last one
//! ```

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use futures::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::hour::all_charts;
use super::layout;
use super::overview::{NAMES, sections};
use crate::api::{Api, status_of};
use crate::state::SLOT;

/// Interval between events to a page.
const EVERY: Duration = Duration::from_secs(2);
/// If this many intervals pass without an event, a comment is sent, so that a lost connection is noticed.
const SILENT: u32 = 7;
/// Maximum number of live pages. Further pages show changes only when they are reloaded.
const WATCHERS: usize = 256;

/// State shared by the watchers.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) api: Api,
    watchers: Arc<Semaphore>,
    made: Arc<Mutex<RenderedParts>>,
    charts: Arc<Mutex<Option<Charts>>>,
}

/// Rendered charts, and the number of the slot in which they were rendered.
type Charts = (u64, Arc<str>);

/// The last event and the time at which it was rendered, measured from the start of the program.
#[derive(Default)]
struct RenderedParts {
    at: Option<Duration>,
    /// Number of the event. It is incremented if an event differs from the one before.
    number: u64,
    event: Bytes,
}

/// An open page that receives events.
struct Watcher {
    live: Live,
    _place: OwnedSemaphorePermit,
    /// Number of the last event that was sent to the page.
    has: Option<u64>,
    silent: u32,
}

impl Live {
    pub(super) fn new(api: Api) -> Self {
        Self {
            api,
            watchers: Arc::new(Semaphore::new(WATCHERS)),
            made: Arc::default(),
            charts: Arc::default(),
        }
    }

    /// Returns the live parts as an event, and the number of the event. If the last event was rendered recently, it is
    /// returned again.
    fn parts(&self) -> (u64, Bytes) {
        let now = self.api.ops_state.running();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.at.is_none_or(|at| at + EVERY / 2 <= now) {
            let status = status_of(&self.api.ops_state, NAMES);
            let parts: serde_json::Map<String, serde_json::Value> =
                sections(&self.api.ops_state, &status)
                    .into_iter()
                    .map(|(id, html)| (id.to_owned(), html.into()))
                    .collect();
            // The JSON contains no line breaks, so it fits into one line of the event.
            let title = layout::title(&status.headline.text, Some(&status.worker));
            let event = format!(
                "event: parts\ndata: {}\n\n",
                serde_json::json!({"title": title, "parts": parts})
            );
            made.at = Some(now);
            if made.event != event {
                made.number += 1;
                made.event = Bytes::from(event);
            }
        }
        (made.number, made.event.clone())
    }

    /// Returns the charts of the first page. They change only when a slot ends.
    pub(super) fn charts(&self) -> Arc<str> {
        let slot = self.api.ops_state.slot();
        let mut charts = self.charts.lock().unwrap_or_else(PoisonError::into_inner);
        match charts.as_ref() {
            Some((made, html)) if *made == slot => Arc::clone(html),
            _ => {
                let html: Arc<str> = all_charts(&self.api.ops_state).to_string().into();
                // Shortly after a slot begins, the slot before it may not have been sampled yet. Charts without this
                // sample are not cached.
                let fresh = self
                    .api
                    .ops_state
                    .last_measured()
                    .0
                    .is_some_and(|ago| ago < SLOT / 2);
                *charts = fresh.then(|| (slot, Arc::clone(&html)));
                html
            }
        }
    }
}

impl Watcher {
    /// Returns the next event; `None` when the program stops.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            if self.has.is_some() {
                sleep(EVERY).await;
            }
            // A closed tracker of changes shows that the program is stopping.
            if self.live.api.changes.is_closed() {
                return None;
            }
            let (number, event) = self.live.parts();
            if self.has != Some(number) {
                (self.has, self.silent) = (Some(number), 0);
                return Some((Ok(event), self));
            }
            self.silent += 1;
            if self.silent >= SILENT {
                self.silent = 0;
                return Some((Ok(Bytes::from_static(b":\n\n")), self));
            }
        }
    }
}

pub(super) async fn events(State(live): State<Live>) -> Response {
    let Ok(place) = Arc::clone(&live.watchers).try_acquire_owned() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many dashboard pages are open; close some of them\n",
        )
            .into_response();
    };
    let watcher = Watcher {
        live,
        _place: place,
        has: None,
        silent: 0,
    };
    let body = Body::from_stream(stream::unfold(watcher, Watcher::next));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

pub(super) async fn charts(State(live): State<Live>) -> Html<String> {
    Html(live.charts().to_string())
}
