//! Headers of every answer to browsers: run nothing foreign, show it in no frame, send no referrer, keep nothing. A redirect within this
//! server is relative: it holds below any path that a proxy puts before it.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use super::paths::to_root;

/// Scripts, styles, images and requests: of this server only; nothing inline, no plug-ins, no frames.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'self'; frame-ancestors 'none'";

const ALWAYS: [(HeaderName, HeaderValue); 7] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(POLICY),
    ),
    (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    ),
    (
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    ),
    (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("permissions-policy"),
        HeaderValue::from_static("camera=(), geolocation=(), microphone=()"),
    ),
];

pub(super) async fn add(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let location = headers
        .get(header::LOCATION)
        .and_then(|location| location.to_str().ok()?.strip_prefix('/'));
    if let Some(relative) =
        location.and_then(|rest| HeaderValue::try_from(format!("{}{rest}", to_root(&path))).ok())
    {
        headers.insert(header::LOCATION, relative);
    }
    for (name, value) in ALWAYS {
        // A page may say where its forms come from.
        headers.entry(name).or_insert(value);
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
