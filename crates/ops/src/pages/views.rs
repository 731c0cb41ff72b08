use askama::Template;
use axum::Extension;
use axum::extract::{Query, State};
use axum::response::Response;
use serde::Deserialize;

use super::layout::{self, NavEntry, PageContext};
use crate::api::{Api, seen};
use crate::numbers::{self, Counted as _, Measure as _};
use crate::state::ViewNow;

/// Views per page.
const PAGE: usize = 50;

#[derive(Debug, Default, Deserialize)]
pub(super) struct ViewsQuery {
    #[serde(default)]
    after: String,
}

#[derive(Template)]
#[template(path = "views.html")]
struct ViewsPage {
    after: String,
    /// Whether there are more views than fit on one page.
    many: bool,
    views: Vec<ViewNow>,
    /// The name of the last view on the page; `None` if the page is not full.
    last: Option<String>,
}

pub(super) async fn page(
    State(api): State<Api>,
    Query(which): Query<ViewsQuery>,
    Extension(context): Extension<PageContext>,
) -> Response {
    let views = seen(
        api.ops_state.views(
            Some(which.after.as_str()).filter(|after| !after.is_empty()),
            PAGE,
        ),
        context.visitor,
    );
    let last = views
        .last()
        .filter(|_| views.len() == PAGE)
        .map(|last| last.view.clone());
    let body = ViewsPage {
        after: which.after,
        many: api.ops_state.view_count() > PAGE,
        views,
        last,
    };
    layout::page("Views", Some(NavEntry::Views), &body, &context)
}
