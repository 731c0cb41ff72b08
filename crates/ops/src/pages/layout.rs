//! The frame of every page.
//!
//! Links, forms and the addresses that the script fetches are relative to this server's root, so they work below any
//! path prefix of a proxy. `<base>` contains the relative path from the page to the root.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{Uri, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use crate::api::Problem;
use crate::guard::Visitor;
use crate::paths::to_root;

/// Declares the entries of the navigation, each with its path relative to the root.
macro_rules! nav_entries {
    ($($place:ident = $path:literal,)*) => {
        /// An entry of the navigation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum NavEntry {
            $($place,)*
        }

        /// The paths and names of all entries in their order.
        const NAV_ENTRIES: &[(&str, &str)] = &[$(($path, stringify!($place)),)*];

        impl NavEntry {
            const fn path(self) -> &'static str {
                match self {
                    $(Self::$place => $path,)*
                }
            }
        }
    };
}

nav_entries! {
    Overview = "./",
    Jobs = "jobs",
    Poison = "poison",
    Entity = "entity",
    Views = "views",
    Storage = "storage",
    System = "system",
}

/// Context of a page: the visitor, the address and the worker.
#[derive(Debug, Clone)]
pub(super) struct PageContext {
    pub(super) visitor: Visitor,
    /// The name of the worker. `None` if a token is required and the visitor has none.
    worker: Option<Arc<str>>,
    /// Relative path from the page to the root.
    root: String,
    /// Address of the page relative to the root. Links to a part of the page begin with it, because `<base>` would
    /// otherwise make them links to the first page.
    here: String,
}

impl PageContext {
    pub(super) fn new(uri: &Uri, visitor: Visitor, worker: Option<Arc<str>>) -> Self {
        let here = uri.path_and_query().map_or("/", |address| address.as_str());
        Self {
            visitor,
            worker,
            root: to_root(uri.path()),
            here: here.trim_start_matches('/').to_owned(),
        }
    }
}

/// Adds the context to requests for pages.
pub(super) async fn surround(
    State(worker): State<Arc<str>>,
    mut request: Request,
    next: Next,
) -> Response {
    if let Some(visitor) = request.extensions().get::<Visitor>().copied() {
        let context = PageContext::new(request.uri(), visitor, Some(worker));
        request.extensions_mut().insert(context);
    }
    next.run(request).await
}

/// Returns the title of a page for the browser's tab. It contains the name of the worker, so that the tabs of several
/// workers can be distinguished.
pub(super) fn title(of: &str, worker: Option<&str>) -> String {
    worker.map_or_else(
        || format!("{of} · evenkeel"),
        |worker| format!("{of} · {worker} · evenkeel"),
    )
}

#[derive(Template)]
#[template(path = "frame.html")]
struct FramedPage<'a, T: Template> {
    title: String,
    place: &'a str,
    body: &'a T,
    context: &'a PageContext,
}

/// Renders a page within the frame.
pub(super) fn page(
    title: &str,
    place: Option<NavEntry>,
    body: &impl Template,
    context: &PageContext,
) -> Response {
    let page = FramedPage {
        title: self::title(title, context.worker.as_deref()),
        place: place.map_or("", NavEntry::path),
        body,
        context,
    }
    .to_string();
    // Browsers must send the origin of a page's forms to this server. They would not send it under the policy of the
    // other answers, which is `no-referrer`.
    ([(header::REFERRER_POLICY, "same-origin")], Html(page)).into_response()
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage<'a> {
    problem: &'a Problem,
    place: &'a str,
}

/// A page that shows a problem.
pub(super) fn problem(place: NavEntry, problem: &Problem, context: &PageContext) -> Response {
    (
        problem.status(),
        page(
            "Error",
            Some(place),
            &ProblemPage {
                problem,
                place: place.path(),
            },
            context,
        ),
    )
        .into_response()
}
