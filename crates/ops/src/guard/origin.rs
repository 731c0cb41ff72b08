//! Determines from the headers of a request which kind of page sent it. Pure.

use axum::http::{HeaderMap, Version, header};

use evenkeel_model::local::is_local_host;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestOrigin {
    /// A page of this server.
    Same,
    /// A link on a page of another site, or an address that the user typed. The browser shows the answer, and no page
    /// can read it.
    Link,
    /// A page of another site, or a page whose origin the browser hides.
    Other,
    /// A sender that is no browser, or a browser that does not send the headers.
    Unknown,
}

/// Returns the origin of a request. `Sec-Fetch-Site` has precedence over `Origin`.
pub(super) fn origin(headers: &HeaderMap) -> RequestOrigin {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if headers.contains_key("sec-fetch-site") {
        let is_link = text("sec-fetch-mode") == Some("navigate")
            && text("sec-fetch-dest") == Some("document");
        return match text("sec-fetch-site") {
            Some("same-origin") => RequestOrigin::Same,
            _ if is_link => RequestOrigin::Link,
            _ => RequestOrigin::Other,
        };
    }
    if !headers.contains_key(header::ORIGIN) {
        return RequestOrigin::Unknown;
    }
    let same = text("origin")
        .and_then(|origin| origin.split_once("://"))
        .map(|(_, authority)| authority);
    match (same, text("host")) {
        (Some(origin), Some(host)) if origin.eq_ignore_ascii_case(host) => RequestOrigin::Same,
        _ => RequestOrigin::Other,
    }
}

/// Whether the request's host is a name of this machine. With another name that resolves to this machine (DNS
/// rebinding), a page of another site could read what this server shows on loopback without a token.
///
/// A request without the `Host` header is accepted, because it does not come from a browser. Two such headers, or an
/// invalid host, are rejected.
pub(super) fn names_this_machine(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).into_iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => true,
        (Some(host), None) => host
            .to_str()
            .ok()
            .and_then(without_port)
            .is_some_and(is_local_host),
        (Some(_), Some(_)) => false,
    }
}

/// Returns the name or address of `host` or `host:port`.
fn without_port(host: &str) -> Option<&str> {
    let end = match host.find(']') {
        Some(bracket) if host.starts_with('[') => bracket + 1,
        _ => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(end);
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    is_port.then_some(name)
}

const ADDED_BY_PROXIES: [&str; 7] = [
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-real-ip",
    "via",
];

/// Whether a request came through a proxy. A proxy is recognized by a header that proxies add, or by HTTP/1.0: nginx
/// uses it by default, but browsers and scrapers do not. A proxy that uses HTTP/1.1 and adds no header cannot be
/// recognized.
pub(super) fn is_proxied(version: Version, headers: &HeaderMap) -> bool {
    version < Version::HTTP_11
        || ADDED_BY_PROXIES
            .iter()
            .any(|name| headers.contains_key(*name))
}

/// The client address in a proxy's header. Any sender can forge it.
pub(super) fn forwarded_for(headers: &HeaderMap) -> Option<&str> {
    ["x-forwarded-for", "forwarded", "x-real-ip"]
        .into_iter()
        .find_map(|name| headers.get(name)?.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (
                    axum::http::HeaderName::from_static(name),
                    value.parse().unwrap(),
                )
            })
            .collect()
    }

    #[test]
    fn a_foreign_page_is_distinguished_from_our_own() {
        let of = |pairs: &[(&'static str, &str)]| origin(&headers(pairs));
        assert_eq!(of(&[("host", "h:1")]), RequestOrigin::Unknown);
        assert_eq!(
            of(&[("host", "h:1"), ("origin", "http://h:1")]),
            RequestOrigin::Same
        );
        assert_eq!(
            of(&[
                ("host", "h:1"),
                ("origin", "null"),
                ("sec-fetch-site", "same-origin")
            ]),
            RequestOrigin::Same
        );
        for foreign in [
            &[("host", "h:1"), ("origin", "http://h:2")][..],
            &[("host", "h:1"), ("origin", "null")],
            &[("host", "h:1"), ("origin", "http://evil.example")],
            &[
                ("host", "h:1"),
                ("origin", "http://h:1"),
                ("sec-fetch-site", "cross-site"),
            ],
            &[("host", "h:1"), ("sec-fetch-site", "same-site")],
            &[("host", "h:1"), ("sec-fetch-site", "none")],
            &[
                ("host", "h:1"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "no-cors"),
                ("sec-fetch-dest", "image"),
            ],
            &[
                ("host", "h:1"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "iframe"),
            ],
            &[("origin", "http://h:1")],
        ] {
            assert_eq!(of(foreign), RequestOrigin::Other, "{foreign:?}");
        }
        for site in ["none", "same-site", "cross-site"] {
            let link = [
                ("host", "h:1"),
                ("sec-fetch-site", site),
                ("sec-fetch-mode", "navigate"),
                ("sec-fetch-dest", "document"),
            ];
            assert_eq!(of(&link), RequestOrigin::Link, "{site}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_accepted() {
        for own in [
            "localhost",
            "LOCALHOST:9464",
            "a.localhost",
            "127.0.0.1:9464",
            "127.9.9.9",
            "[::1]:9464",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(names_this_machine(&headers(&[("host", own)])), "{own}");
        }
        let foreign = [
            "evil.example",
            "evil.example:9464",
            "localhost.evil.example",
            "10.0.0.1",
            "[::2]",
            "127.0.0.1.evil.example",
            "",
        ];
        let malformed = [
            "[::1]evil.example",
            "[::1",
            "localhost:x.evil.example",
            "localhost:1:2",
            "localhost@evil.example",
        ];
        for foreign in foreign.into_iter().chain(malformed) {
            assert!(
                !names_this_machine(&headers(&[("host", foreign)])),
                "{foreign}"
            );
        }
        let latin = HeaderMap::from_iter([(
            header::HOST,
            axum::http::HeaderValue::from_bytes(b"\xe9vil").unwrap(),
        )]);
        assert!(
            !names_this_machine(&latin),
            "a host that is not text is rejected"
        );
        let mut two = headers(&[("host", "localhost")]);
        two.append(header::HOST, "evil.example".parse().unwrap());
        assert!(!names_this_machine(&two), "two `Host` headers are rejected");
        assert!(
            names_this_machine(&HeaderMap::new()),
            "a request without a `Host` header is accepted"
        );
    }
}
