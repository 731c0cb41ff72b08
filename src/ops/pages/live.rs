//! The live parts of the first page, made once for all who watch.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use super::overview::sections;
use crate::ops::api::{Api, status_of};

/// How often the page is told.
const EVERY: Duration = Duration::from_secs(2);
/// Most pages that are told at once; others can be reloaded.
const WATCHERS: usize = 256;

/// What the watchers share.
#[derive(Clone)]
pub(super) struct Live {
    api: Api,
    watchers: Arc<Semaphore>,
    made: Arc<Mutex<Made>>,
}

/// What was made last, and when (since the program started).
#[derive(Default)]
struct Made {
    at: Option<Duration>,
    event: Arc<str>,
}

impl Live {
    pub(super) fn new(api: Api) -> Self {
        Self { api, watchers: Arc::new(Semaphore::new(WATCHERS)), made: Arc::default() }
    }

    /// The parts as JSON: those made for another watcher, where they are young enough.
    fn parts(&self) -> Arc<str> {
        let now = self.api.board.running();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if made.at.is_none_or(|at| at + EVERY / 2 <= now) {
            let status = status_of(&self.api.board);
            let parts: serde_json::Map<String, serde_json::Value> =
                sections(&status).into_iter().map(|(id, html)| (id.to_owned(), html.into())).collect();
            let parts = serde_json::json!({"title": status.headline.text, "parts": parts});
            *made = Made { at: Some(now), event: parts.to_string().into() };
        }
        Arc::clone(&made.event)
    }
}

pub(super) async fn events(State(live): State<Live>) -> Response {
    let Ok(place) = Arc::clone(&live.watchers).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are watching\n").into_response();
    };
    let events = stream::unfold((live, place, false), |(live, place, again): (Live, OwnedSemaphorePermit, bool)| async move {
        if again {
            sleep(EVERY).await;
        }
        // It ends with the changes: the program is stopping, and nothing more will happen.
        if live.api.changes.is_closed() {
            return None;
        }
        let event = Event::default().event("parts").data(live.parts());
        Some((Ok::<_, Infallible>(event), (live, place, true)))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}
