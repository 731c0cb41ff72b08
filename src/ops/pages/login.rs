//! The way in.

use axum::extract::Query;
use axum::response::Response;
use serde::Deserialize;

use super::layout::Page;
use crate::ops::guard::Visitor;

/// The earlier attempt.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Before {
    #[serde(default)]
    wrong: u8,
}

pub(super) async fn page(Query(before): Query<Before>) -> Response {
    let wrong = if before.wrong > 0 { "<p class=\"note bad\" role=\"alert\">That is not the token.</p>" } else { "" };
    let body = format!(
        "<div class=\"narrow card\"><h1>Sign in</h1>{wrong}<form method=\"post\" action=\"/login\" class=\"login\"><label>Token \
         <input type=\"password\" name=\"token\" autocomplete=\"current-password\" required autofocus></label><button class=\"main\">Sign in</button></form>\
         <p class=\"hint\">The token that <code>http.token_env</code> or <code>http.token_file</code> names. A session lasts twelve hours, or until the program ends.</p></div>"
    );
    Page { title: "Sign in".to_owned(), place: "/login", body }.answer(Visitor { signed_in: false, can_sign_in: true })
}
