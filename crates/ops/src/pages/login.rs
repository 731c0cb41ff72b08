use askama::Template;
use axum::extract::Query;
use axum::http::Uri;
use axum::response::Response;
use serde::Deserialize;

use super::layout::{self, PageContext};
use crate::guard::Visitor;

#[derive(Debug, Default, Deserialize, Template)]
#[template(path = "login.html")]
pub(super) struct LoginQuery {
    #[serde(default)]
    wrong: u8,
}

/// Shows the form. Everyone may see the page, so it does not name the worker.
pub(super) async fn page(uri: Uri, Query(before): Query<LoginQuery>) -> Response {
    let visitor = Visitor {
        signed_in: false,
        can_sign_in: true,
        contents: false,
    };
    layout::page(
        "Sign in",
        None,
        &before,
        &PageContext::new(&uri, visitor, None),
    )
}
