//! Adds security headers to every answer: no scripts of other servers, no frames, no referrer, no caching. Redirects
//! within this server become relative, so that they work below any path prefix of a proxy.

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;

use super::paths::to_root;

/// Allows scripts, styles, images and requests of this server only. Nothing may be inline, and plug-ins and frames are
/// not allowed.
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
        // If the answer has this header already, it is kept: pages have a referrer policy of their own.
        headers.entry(name).or_insert(value);
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}
