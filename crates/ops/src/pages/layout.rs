//! The frame of every page.
//!
//! Links, forms and the addresses that the script asks are relative to this server's root, which `<base>` says in terms of the page's own
//! depth. So they hold below any path that a proxy puts before them.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::http::{Uri, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};

use crate::api::Problem;
use crate::guard::Visitor;
use crate::paths::to_root;

/// Declares the entries of the navigation by their names, each with its path relative to the root.
macro_rules! places {
    ($($place:ident = $path:literal,)*) => {
        /// An entry of the navigation. Every page names its own, or none.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Place {
            $($place,)*
        }

        /// Path and name of every entry, in order.
        const PLACES: &[(&str, &str)] = &[$(($path, stringify!($place)),)*];

        impl Place {
            const fn path(self) -> &'static str {
                match self {
                    $(Self::$place => $path,)*
                }
            }
        }
    };
}

places! {
    Overview = "./",
    Jobs = "jobs",
    Poison = "poison",
    Entity = "entity",
    Views = "views",
    Storage = "storage",
    System = "system",
}

/// What a page says beside its own content: who asks, for which address, and which worker answers.
#[derive(Debug, Clone)]
pub(super) struct PageContext {
    pub(super) visitor: Visitor,
    /// The worker's name; nothing for a visitor who has shown no token where one is needed.
    worker: Option<Arc<str>>,
    /// The way from the page to the root.
    root: String,
    /// The page's own address below the root, for links to a part of it: `<base>` would lead them to the first page.
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

/// Says to the handlers of pages what surrounds theirs.
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

/// The title of a page in a browser's tab. Of several workers' pages each says whose it is.
pub(super) fn title(of: &str, worker: Option<&str>) -> String {
    worker.map_or_else(
        || format!("{of} · evenkeel"),
        |worker| format!("{of} · {worker} · evenkeel"),
    )
}

/// A page with everything around it.
#[derive(Template)]
#[template(path = "frame.html")]
struct Framed<'a, T: Template> {
    title: String,
    place: &'a str,
    body: &'a T,
    context: &'a PageContext,
}

/// A page, with the entry of the navigation that it belongs to.
pub(super) fn page(
    title: &str,
    place: Option<Place>,
    body: &impl Template,
    context: &PageContext,
) -> Response {
    let page = Framed {
        title: self::title(title, context.worker.as_deref()),
        place: place.map_or("", Place::path),
        body,
        context,
    }
    .to_string();
    // Unlike everything else, pages say to this server alone where they are: a browser then tells the origin of
    // their forms.
    ([(header::REFERRER_POLICY, "same-origin")], Html(page)).into_response()
}

/// The reason why there is no page.
#[derive(Template)]
#[template(path = "problem.html")]
struct NotDone<'a> {
    problem: &'a Problem,
    place: &'a str,
}

/// A page that says why there is none.
pub(super) fn problem(place: Place, problem: &Problem, context: &PageContext) -> Response {
    (
        problem.status(),
        page(
            "Not done",
            Some(place),
            &NotDone {
                problem,
                place: place.path(),
            },
            context,
        ),
    )
        .into_response()
}
