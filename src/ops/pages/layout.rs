//! The frame of every page.

use askama::Template;
use axum::http::header;
use axum::response::{Html, IntoResponse, Response};

use crate::ops::api::Problem;
use crate::ops::guard::Visitor;

/// The pages that can be gone to from everywhere.
const PLACES: [(&str, &str); 7] = [
    ("/", "Overview"),
    ("/jobs", "Jobs"),
    ("/poison", "Poison"),
    ("/entity", "Entity"),
    ("/views", "Views"),
    ("/storage", "Storage"),
    ("/system", "System"),
];

/// A page with everything around it.
#[derive(Template)]
#[template(path = "frame.html")]
struct Framed<'a, T: Template> {
    title: &'a str,
    place: &'a str,
    body: &'a T,
    visitor: Visitor,
}

/// A page at a place of [`PLACES`].
pub(super) fn page(title: &str, place: &str, body: &impl Template, visitor: Visitor) -> Response {
    let page = Framed { title, place, body, visitor }.to_string();
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
pub(super) fn problem(place: &str, problem: &Problem, visitor: Visitor) -> Response {
    (problem.status(), page("Not done", place, &NotDone { problem, place }, visitor)).into_response()
}
