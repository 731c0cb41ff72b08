//! The live parts of the first page, made once for all watchers.
//!
//! ```text
//!   watcher ─┐
//!   watcher ─┼─ every 2 s ─▶ the parts as one event: made by the first to ask, shared by all,
//!   watcher ─┘               and not sent again to a watcher that has them
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
use crate::board::SLOT;

/// Interval between events to a page.
const EVERY: Duration = Duration::from_secs(2);
/// After this many times without news a watcher is sent a comment, so that a connection that is gone is noticed.
const SILENT: u32 = 7;
/// Most pages that are told at once; others can be reloaded.
const WATCHERS: usize = 256;

/// State shared by the watchers.
#[derive(Clone)]
pub(super) struct Live {
    pub(super) api: Api,
    watchers: Arc<Semaphore>,
    made: Arc<Mutex<Made>>,
    charts: Arc<Mutex<Option<Charts>>>,
}

/// Charts, and the slot that they were made in.
type Charts = (u64, Arc<str>);

/// The event made last, and when (since the program started).
#[derive(Default)]
struct Made {
    at: Option<Duration>,
    /// Rises with every event that differs from the one before.
    number: u64,
    event: Bytes,
}

/// One page that watches.
struct Watcher {
    live: Live,
    _place: OwnedSemaphorePermit,
    /// The event that it was sent last.
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

    /// The parts as an event: those made for another watcher, where they are young enough.
    fn parts(&self) -> (u64, Bytes) {
        let now = self.api.board.running();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.at.is_none_or(|at| at + EVERY / 2 <= now) {
            let status = status_of(&self.api.board, NAMES);
            let parts: serde_json::Map<String, serde_json::Value> =
                sections(&self.api.board, &status)
                    .into_iter()
                    .map(|(id, html)| (id.to_owned(), html.into()))
                    .collect();
            // JSON has no line breaks in it: it is one line of an event.
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

    /// The charts of the first page: they change when a slot ends.
    pub(super) fn charts(&self) -> Arc<str> {
        let slot = self.api.board.slot();
        let mut charts = self.charts.lock().unwrap_or_else(PoisonError::into_inner);
        match charts.as_ref() {
            Some((made, html)) if *made == slot => Arc::clone(html),
            _ => {
                let html: Arc<str> = all_charts(&self.api.board).to_string().into();
                // Sampled a moment after the slot began: kept once that has surely happened.
                let fresh = self.api.board.kept().0.is_some_and(|ago| ago < SLOT / 2);
                *charts = fresh.then(|| (slot, Arc::clone(&html)));
                html
            }
        }
    }
}

impl Watcher {
    /// The next event to send; nothing once the program ends.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            if self.has.is_some() {
                sleep(EVERY).await;
            }
            // It ends with the changes: the program is stopping, and nothing more will happen.
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
            "too many pages are watching\n",
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

/// The charts alone.
pub(super) async fn charts(State(live): State<Live>) -> Html<String> {
    Html(live.charts().to_string())
}
