//! Tokens of several holders: what each token allows, what its holder sees, and how it is rotated.

use serde_json::json;

use crate::cli::api::{Answer, ask_at, put};
use crate::cli::daemon::{Daemon, FREE_PORT, until};
use crate::cli::place::Place;

const TOKENS: &str = r#"
[http]
open_reads = false

[http.tokens.alice]
role = "operate"
contents = true
token_file = "alice"

[http.tokens.night_shift]
role = "operate"
token_file = "night_shift"

[http.tokens.auditor]
role = "read"
contents = true
token_file = "auditor"

[http.tokens.scraper]
role = "read"
token_file = "scraper"
"#;

fn first(name: &str) -> String {
    format!("the first token of {name}")
}

#[test]
fn a_token_has_a_holder_sees_what_it_may_and_is_rotated_by_its_file() {
    let place = Place::new();
    place.add(TOKENS);
    let write = |name: &str, token: &str| std::fs::write(place.folder().join(name), token).unwrap();
    for name in ["alice", "night_shift", "auditor", "scraper"] {
        write(name, &first(name));
    }
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    let ask = |method: &str, path: &str, token: &str, body: &str| -> Answer {
        let bearer = if token.is_empty() {
            String::new()
        } else {
            format!("Authorization: Bearer {token}\r\n")
        };
        ask_at(
            "1.1",
            &address,
            method,
            path,
            &format!("{bearer}Content-Type: application/json\r\n"),
            body,
        )
    };
    until("ready", || ask("GET", "/readyz", "", "").status == 200);
    let entity = put("7", "a@b.c").to_string();
    assert_eq!(
        ask("POST", "/api/v1/submit", &first("night_shift"), &entity).status,
        202
    );
    let line = daemon.await_line("audit: job submitted");
    assert_eq!(
        (&line["by"], &line["peer"]),
        (&json!("night_shift"), &json!("127.0.0.1")),
        "{line}"
    );
    for reader in ["auditor", "scraper"] {
        assert_eq!(
            ask("POST", "/api/v1/submit", &first(reader), &entity).status,
            403,
            "{reader}"
        );
    }

    place.put(
        "jobs",
        r#"{"op":"sync","table":"Employees","note":"a secret in a body"}"#,
    );
    let poison = |token: &str| ask("GET", "/api/v1/poison", token, "");
    until("poisoned", || {
        poison(&first("alice")).json()["messages"][0]["body"]["note"] == "a secret in a body"
    });
    let path = "/api/v1/entities/Employees/Sales/7";
    until("the entity is there", || {
        ask("GET", path, &first("auditor"), "").json()["primary"]["Email"] == "a@b.c"
    });
    for blind in [&first("night_shift"), &first("scraper")] {
        let answer = poison(blind);
        let message = &answer.json()["messages"][0];
        assert_eq!(
            (&message["body"], &message["body_withheld"], &message["op"]),
            (&json!(null), &json!(true), &json!("sync")),
            "{blind}"
        );
        for page in [answer, ask("GET", "/poison", blind, "")] {
            assert!(
                page.status == 200 && !page.body.contains("a secret in a body"),
                "{blind}: {}",
                page.body
            );
        }
        for page in [
            path,
            "/api/v1/entities/Employees?pk=Sales&rk=7",
            "/entity?table=Employees&pk=Sales&rk=7",
        ] {
            let answer = ask("GET", page, blind, "");
            assert!(
                answer.status == 403 && !answer.body.contains("a@b.c"),
                "{blind}: {page}: {}",
                answer.body
            );
        }
    }
    assert!(
        ask(
            "GET",
            "/entity?table=Employees&pk=Sales&rk=7",
            &first("auditor"),
            ""
        )
        .body
        .contains("a@b.c")
    );

    let form = format!("token={}", first("alice").replace(' ', "+"));
    let signed_in = ask_at(
        "1.1",
        &address,
        "POST",
        "/login",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        &form,
    );
    let cookie = signed_in
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(daemon.await_line("audit: signed in")["by"], "alice");
    let by_session = |path: &str| {
        ask_at(
            "1.1",
            &address,
            "GET",
            path,
            &format!("Cookie: {cookie}\r\n"),
            "",
        )
        .status
    };
    assert_eq!(by_session(path), 200);
    write("alice", "the second token of alice");
    until("the new token is taken over", || {
        ask(
            "PUT",
            "/api/v1/log",
            "the second token of alice",
            r#"{"level":"info"}"#,
        )
        .status
            == 200
    });
    assert_eq!(daemon.await_line("audit: log level changed")["by"], "alice");
    let former = ask("PUT", "/api/v1/log", &first("alice"), r#"{"level":"info"}"#).status;
    assert!(matches!(former, 401 | 429), "{former}");
    assert_eq!(by_session(path), 401, "the session must end with its token");
}
