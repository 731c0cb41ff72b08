//! Requests of strangers that are too large, too many, have a wrong path, or claim to be from somebody else.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;

use crate::cli::api::Api;
use crate::cli::daemon::until;
use crate::cli::place::says;

fn raw(api: &Api, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(&api.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    // The server may answer and close the connection before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_thousand_wrong_tokens_are_refused_and_keep_no_right_one_out() {
    let api = Api::start();
    let ask = |token: &str| {
        api.ask(
            "POST",
            "/api/v1/submit",
            &format!("Authorization: Bearer {token}\r\n"),
            "{}",
        )
        .status
    };
    let mut statuses = std::collections::BTreeMap::new();
    for number in 0..1_000 {
        *statuses.entry(ask(&format!("guess-{number}"))).or_insert(0) += 1;
    }
    assert_eq!(
        statuses.keys().copied().collect::<Vec<_>>(),
        [401, 429],
        "{statuses:?}"
    );
    assert!(statuses[&401] < 100, "{statuses:?}");
    assert_eq!(
        ask("s3cret-token-of-tests"),
        400,
        "the right token must be accepted"
    );
    let form = "Content-Type: application/x-www-form-urlencoded\r\nSec-Fetch-Site: same-origin\r\n";
    assert_eq!(
        api.ask("POST", "/login", form, "token=s3cret-token-of-tests")
            .status,
        303
    );
    assert_eq!(api.get("/").status, 200, "reads must still be answered");
}

#[test]
fn too_much_is_refused_before_it_is_read() {
    let api = Api::start();
    let token = "Authorization: Bearer s3cret-token-of-tests\r\n";
    let large = "x".repeat(1 << 20);
    assert_eq!(api.ask("POST", "/api/v1/submit", token, &large).status, 413);
    let form = format!("{token}Content-Type: application/x-www-form-urlencoded\r\n");
    assert_eq!(
        api.ask("POST", "/poison/requeue", &form, &format!("id={large}"))
            .status,
        413
    );
    let endless = format!(
        "POST /api/v1/submit HTTP/1.1\r\nHost: {}\r\n{token}Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n",
        api.address
    );
    let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
    says(
        &raw(&api, format!("{endless}{}", chunk.repeat(40)).as_bytes()),
        &["413"],
    );
    for head in [
        format!("X-Long: {}\r\n", "x".repeat(100_000)),
        "X-Many: 1\r\n".repeat(5_000),
    ] {
        let answer = raw(
            &api,
            format!("GET / HTTP/1.1\r\nHost: {}\r\n{head}\r\n", api.address).as_bytes(),
        );
        assert!(answer.is_empty() || answer.contains(" 431 "), "{answer}");
    }
    let long = format!(
        "GET /{} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        "a".repeat(100_000),
        api.address
    );
    let answer = raw(&api, long.as_bytes());
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    assert_eq!(api.get("/healthz").status, 200);
}

#[test]
fn paths_lead_nowhere_they_should_not() {
    let api = Api::start();
    std::fs::write(api.place.folder().join("secret.txt"), "s3cret-file").unwrap();
    for path in [
        "/assets/../token",
        "/assets/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/assets/style.css/../../token",
        "/assets/style.css%00.txt",
        "/queues/..%2fjobs",
        "/api/v1/entities/..%2f..%2ftoken/a/b",
        "/api/v1/../../token",
        "/.env",
        "/token",
    ] {
        let answer = api.get(path);
        assert!(
            (400..500).contains(&answer.status),
            "{path}: {}",
            answer.status
        );
        assert!(
            !answer.body.contains("s3cret") && !answer.body.contains("root:"),
            "{path}"
        );
    }
    let absolute = format!(
        "GET http://evil.example/ HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        api.address
    );
    assert!(!raw(&api, absolute.as_bytes()).contains("evil.example"));
}

#[test]
fn nothing_that_is_sent_becomes_a_header() {
    let api = Api::start();
    let evil = "%0d%0aSet-Cookie:%20evil=1%0d%0a%0d%0a<script>";
    for path in [
        "/jobs?key=",
        "/entity?table=Employees&pk=x&rk=",
        "/views?after=",
        "/poison?queue=",
        "/hour?queue=",
        "/login?wrong=",
    ] {
        let answer = api.get(&format!("{path}{evil}"));
        assert!(
            !answer.head.to_lowercase().contains("evil"),
            "{path}: {}",
            answer.head
        );
        assert!(!answer.body.contains("<script>"), "{path}");
    }
    let token = "Authorization: Bearer s3cret-token-of-tests\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    let answer = api.ask(
        "POST",
        "/entity/reconcile",
        token,
        &format!("table=Employees&pk=a&rk={evil}"),
    );
    assert!(
        answer.status == 400 && !answer.head.to_lowercase().contains("evil"),
        "{}",
        answer.head
    );
    for request in [
        "GET / HTTP/1.1\r\n\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "\0\0\0",
        "GET  /  HTTP/1.1\r\n\r\n",
        "POST /login HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
    ] {
        let answer = raw(&api, request.as_bytes());
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1."),
            "{request:?}: {answer}"
        );
    }
    let smuggled = format!(
        "POST /api/v1/submit HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer s3cret-token-of-tests\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n0\r\n\r\nPOST /api/v1/poison/discard HTTP/1.1\r\n\r\n",
        api.address
    );
    let answer = raw(&api, smuggled.as_bytes());
    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
}

#[test]
fn a_form_on_another_site_changes_nothing_whatever_it_claims() {
    let api = Api::start();
    api.place.put("jobs", "no job at all");
    until("it is poisoned", || {
        api.get("/api/v1/poison").json()["total"] == 1
    });
    let token = "Authorization: Bearer s3cret-token-of-tests\r\n";
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for from in [
        "Origin: http://evil.example\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: \r\n",
    ] {
        for path in [
            "/poison/discard",
            "/api/v1/poison/discard",
            "/system/log",
            "/login",
            "/logout",
        ] {
            let status = api
                .ask(
                    "POST",
                    path,
                    &format!("{token}{form}{from}"),
                    "all=true&token=x&level=info",
                )
                .status;
            assert_eq!(status, 403, "{path} {from}");
        }
    }
    // DNS rebinding: a page on another host, whose name leads to this machine, must not read anything.
    let mut stream = TcpStream::connect(&api.address).unwrap();
    write!(
        stream,
        "GET /api/v1/config HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    says(&answer, &["HTTP/1.1 403"]);
    assert_eq!(api.get("/api/v1/poison").json()["total"], json!(1));
}
