//! The way in.

use askama::Template;
use axum::extract::Query;
use axum::response::Response;
use serde::Deserialize;

use super::layout;
use crate::ops::guard::Visitor;

/// The earlier attempt.
#[derive(Debug, Default, Deserialize, Template)]
#[template(path = "login.html")]
pub(super) struct LoginQuery {
    #[serde(default)]
    wrong: u8,
}

pub(super) async fn page(Query(before): Query<LoginQuery>) -> Response {
    layout::page("Sign in", "/login", &before, Visitor { signed_in: false, can_sign_in: true, contents: false })
}
