//! The HTTP API of the daemon, with valid and with unauthorized requests.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::cli::daemon::{Daemon, FREE_PORT, until};
use crate::cli::place::{Place, says};

pub(crate) struct Api {
    pub(crate) place: Place,
    pub(crate) address: String,
    daemon: Daemon,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

const TOKEN: &str = "Authorization: Bearer s3cret-token-of-tests\r\n";

impl Api {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    fn start_with(more: &[&str]) -> Self {
        let place = Place::new();
        std::fs::write(place.folder().join("token"), "s3cret-token-of-tests\n").unwrap();
        let token = format!(
            "--set=http.token_file={}",
            place.folder().join("token").display()
        );
        let mut daemon = Daemon::start(&place, &[&[FREE_PORT, &token], more, &["run"]].concat());
        let address = daemon.address();
        let api = Self {
            place,
            address,
            daemon,
        };
        until("ready", || api.get("/readyz").status == 200);
        api
    }

    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> Answer {
        ask_at("1.1", &self.address, method, path, headers, body)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "", "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask(
            "POST",
            path,
            &format!("{TOKEN}Content-Type: application/json\r\n"),
            &body.to_string(),
        )
    }

    pub(crate) fn awaits(&self, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        until(path, || {
            last = self.get(path).json();
            holds(&last)
        });
        last
    }
}

pub(crate) fn ask_at(
    version: &str,
    address: &str,
    method: &str,
    path: &str,
    headers: &str,
    body: &str,
) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let length = body.len();
    // The server may answer and close the connection before it has read all of a large body.
    let _ = write!(
        stream,
        "{method} {path} HTTP/{version}\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer: {answer}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer {
        status,
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

pub(crate) fn put(rk: &str, email: &str) -> Value {
    json!({"op": "put", "id": "mine", "table": "Employees", "entity": {"PartitionKey": "Sales", "RowKey": rk, "Email": email}})
}

#[test]
fn a_job_is_submitted_and_everything_about_it_can_be_read() {
    let api = Api::start();
    let sent = api.post("/api/v1/submit", &put("7", "a@b.c"));
    assert_eq!((sent.status, &sent.json()["op"]), (202, &json!("put")));
    let jobs = api.awaits("/api/v1/jobs?key=sales&outcome=done", |jobs| {
        jobs.as_array().is_some_and(|jobs| !jobs.is_empty())
    });
    let job = &jobs[0];
    assert_eq!(
        (&job["op"], &job["pk"], &job["rk"], &job["id"]),
        (&json!("put"), &json!("Sales"), &json!("7"), &json!("mine"))
    );
    assert_eq!(
        job["changes"],
        json!([{"view": "by_email", "action": "create"}])
    );
    assert_eq!(job["message_id"], sent.json()["message_id"]);
    assert_eq!(api.get("/api/v1/jobs?key=nowhere").json(), json!([]));

    let entity = api.get("/api/v1/entities/employees/Sales/7").json();
    assert_eq!(
        (&entity["table"], &entity["primary"]["Email"]),
        (&json!("Employees"), &json!("a@b.c"))
    );
    assert_eq!(
        (
            &entity["footprint"]["items"][0]["rk"],
            &entity["plan"]["in_step"]
        ),
        (&json!("a@b.c"), &json!(true))
    );
    assert_eq!(
        api.get("/api/v1/entities/Employees?pk=Sales&rk=7").json(),
        entity
    );
    let odd = api
        .get("/api/v1/entities/Employees/a%2Fb%20c/%ED%95%9C")
        .json();
    says(odd["error"].as_str().unwrap(), &["/"]);
    let absent = api
        .get("/api/v1/entities/Employees/Sales/%ED%95%9C%20x")
        .json();
    assert_eq!(
        (
            &absent["primary"],
            &absent["plan"]["present"],
            &absent["rk"]
        ),
        (&Value::Null, &json!(false), &json!("한 x"))
    );
    assert_eq!(
        api.get("/api/v1/entities/EvenkeelMigrations/a/b").status,
        404,
        "only tables of the catalog are allowed"
    );
    assert_eq!(
        api.post("/api/v1/entities/Employees/Sales/7/reconcile", &json!({}))
            .json()["op"],
        "sync"
    );

    let status = api.awaits("/api/v1/status", |status| {
        status["headline"]["state"] == "consistent" && status["queues"][0]["endings"]["done"] == 2
    });
    assert!(
        status["worker"]
            .as_str()
            .is_some_and(|worker| worker.ends_with(&format!("-{}", api.daemon.id()))),
        "{status}"
    );
    assert_eq!(
        (&status["headline"]["text"], &status["views"][0]["created"]),
        (&json!("Consistent"), &json!(1))
    );
    assert_eq!(
        (&status["version"], &status["poisoned"]["jobs"]),
        (&json!(env!("CARGO_PKG_VERSION")), &json!(0))
    );
    assert_eq!(api.get("/api/v1/queues").json()[0]["queue"], "jobs");
    assert!(
        api.get("/api/v1/hour?queue=jobs")
            .json()
            .as_array()
            .unwrap()
            .len()
            < 10,
        "no slot from before the program started"
    );
    assert_eq!(api.get("/api/v1/hour?queue=nowhere").status, 404);
    let config = api.get("/api/v1/config");
    assert!(
        config.status == 200
            && config.body.contains("worker.drain")
            && !config.body.contains("s3cret-token-of-tests"),
        "{}",
        config.body
    );
    let openapi: Value = serde_json::from_str(include_str!("../../../docs/openapi.json")).unwrap();
    let served = api.get("/api/v1/openapi.json").json();
    assert_eq!(served, openapi);
}

#[test]
fn many_jobs_are_submitted_at_once_and_waited_for() {
    let api = Api::start();
    let jobs: Vec<Value> = (0..10)
        .map(|rk| put(&rk.to_string(), &format!("{rk}@b.c")))
        .collect();
    let sent = api.post("/api/v1/submit?pack=4", &json!(jobs));
    assert_eq!(sent.status, 202, "{}", sent.body);
    let of: Vec<_> = sent.json()["sent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sent| (sent["first"].clone(), sent["jobs"].clone()))
        .collect();
    assert_eq!(
        of,
        [
            (json!(0), json!(4)),
            (json!(4), json!(4)),
            (json!(8), json!(2))
        ]
    );
    assert_eq!(sent.json()["refused"], json!([]));
    let settled = |rk: u32, more: &str| {
        api.get(&format!(
            "/api/v1/entities/Employees/Sales/{rk}/settled{more}"
        ))
    };
    for rk in 0..10 {
        assert_eq!(settled(rk, "?wait=20s").json()["in_step"], true, "{rk}");
    }
    let etag = api.get("/api/v1/entities/Employees/Sales/7").json()["primary"]["odata.etag"]
        .as_str()
        .unwrap()
        .to_owned();
    let etag = etag.replace('%', "%25").replace('"', "%22");
    assert_eq!(
        settled(7, &format!("?etag={etag}")).json(),
        json!({"in_step": true, "propagating": false, "missing": false, "requests": 1})
    );
    let later = settled(7, "?etag=W/%22other%22").json();
    assert_eq!(
        later,
        json!({"in_step": true, "propagating": false, "missing": false, "requests": 2}),
        "or a later version"
    );
    assert_eq!(
        settled(77, "").json(),
        json!({"in_step": false, "propagating": false, "missing": true, "requests": 2}),
        "it never was there"
    );
    for (more, words) in [
        ("?wait=1h", "at most 20 s"),
        ("?wait=soon", "wait: "),
        ("?etag=", "etag: "),
        ("?etag=foo", "with all quotes"),
    ] {
        let refused = settled(7, more);
        assert_eq!(refused.status, 400, "{}", refused.body);
        says(&refused.body, &[words]);
    }
    assert_eq!(
        api.get("/api/v1/entities/Nowhere/Sales/7/settled").status,
        404
    );

    let lines = format!(
        "{}\n{}\n\n{}\n",
        put("20", "x@b.c"),
        r#"{"op":"put","table":"Nowhere"}"#,
        put("21", "y@b.c")
    );
    let mixed = api.ask("POST", "/api/v1/submit", TOKEN, &lines);
    assert_eq!(mixed.status, 202, "{}", mixed.body);
    let (sent, refused) = (&mixed.json()["sent"], &mixed.json()["refused"]);
    assert_eq!(
        (
            sent.as_array().unwrap().len(),
            &refused[0]["first"],
            &refused[0]["transient"]
        ),
        (2, &json!(1), &json!(false))
    );
    for (body, words) in [
        ("[]", "no job"),
        ("[{]", "line 1"),
        (r#"[{"op":"explode"}]"#, "job 1: "),
        (
            r#"[{"op":"sync","table":"Employees","pk":"a","rk":"b"},7]"#,
            "neither a JSON object",
        ),
    ] {
        let refused = api.ask("POST", "/api/v1/submit", TOKEN, body);
        assert_eq!(
            refused.status == 202,
            words == "neither a JSON object",
            "{}",
            refused.body
        );
        says(&refused.body, &[words]);
    }
    assert_eq!(
        api.ask("POST", "/api/v1/submit?pack=0", TOKEN, "[{}]")
            .status,
        400
    );

    let two = json!({"op": "sync", "table": "Employees", "pk": "Sales", "rks": ["1", "2"]});
    let sent = api
        .post("/api/v1/submit", &json!([two, put("30", "z@b.c")]))
        .json();
    let of: Vec<_> = sent["sent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|sent| (sent["first"].clone(), sent["jobs"].clone()))
        .collect();
    assert_eq!(
        of,
        [(json!(0), json!(1)), (json!(1), json!(1))],
        "`first` must be the index in the array of the request"
    );
}

#[test]
fn jobs_of_concurrent_callers_have_an_answer_each() {
    const CALLERS: usize = 64;
    let api = Api::start();
    let answers: Vec<Answer> = std::thread::scope(|scope| {
        let ask = |caller: usize| match caller % 16 {
            15 => api.ask(
                "POST",
                "/api/v1/submit",
                TOKEN,
                r#"{"op":"sync","table":"Nowhere","pk":"a","rk":"b"}"#,
            ),
            _ => api.post(
                "/api/v1/submit",
                &put(&caller.to_string(), &format!("{caller}@b.c")),
            ),
        };
        let asking: Vec<_> = (0..CALLERS)
            .map(|caller| scope.spawn(move || ask(caller)))
            .collect();
        asking
            .into_iter()
            .map(|asking| asking.join().unwrap())
            .collect()
    });
    for (caller, answer) in answers.iter().enumerate() {
        if caller % 16 == 15 {
            assert_eq!(answer.status, 400, "{}", answer.body);
            says(&answer.body, &["Nowhere"]);
        } else {
            assert_eq!(
                (answer.status, &answer.json()["op"], &answer.json()["id"]),
                (202, &json!("put"), &json!("mine")),
                "{}",
                answer.body
            );
            assert_eq!(
                api.get(&format!(
                    "/api/v1/entities/Employees/Sales/{caller}/settled?wait=20s"
                ))
                .json()["in_step"],
                true,
                "{caller}"
            );
        }
    }
}

#[test]
fn a_ring_wakes_an_idle_worker_and_a_job_that_is_submitted_rings() {
    let api = Api::start_with(&["--set=worker.poll.max=1h"]);
    let asked = || api.get("/api/v1/status").json()["storage"].to_string();
    // An idle daemon does not poll the queue for a long time.
    let woken = |body: &str, headers: &str| api.ask("POST", "/api/v1/wake", headers, body);
    assert_eq!(woken("", "").status, 401, "{}", asked());
    let answer = woken("", TOKEN);
    assert_eq!((answer.status, answer.json()), (202, json!({"queues": 1})));
    assert_eq!(woken("{\"queue\": \"jobs\"}", TOKEN).status, 202);
    assert_eq!(woken("{\"queue\": \"nowhere\"}", TOKEN).status, 404);
    assert_eq!(woken("{\"quee\": \"jobs\"}", TOKEN).status, 400);
    let listen = format!("--set=http.listen={}", api.address);
    let token = format!(
        "--set=http.token_file={}",
        api.place.folder().join("token").display()
    );
    for number in 0..3 {
        let job = put(&number.to_string(), "a@b.c").to_string();
        api.place.run(&[&listen, &token, "submit", &job]).success();
        api.awaits("/api/v1/jobs", |jobs| {
            jobs.as_array().unwrap().len() == number + 1
        });
    }
    // The key for waking the daemon allows nothing else.
    let key = evenkeel_ops::bell_key(&"s3cret-token-of-tests".into());
    let by_key = format!("Authorization: Bearer {key}\r\n");
    assert_eq!(woken("", &by_key).status, 202);
    assert_eq!(
        api.ask(
            "POST",
            "/api/v1/submit",
            &by_key,
            &put("9", "a@b.c").to_string()
        )
        .status,
        401
    );
}

#[test]
fn poisoned_jobs_are_shown_requeued_and_discarded() {
    let api = Api::start();
    for (rk, id) in [("1", "first"), ("2", "second"), ("3", "third")] {
        api.place.put(
            "jobs",
            &json!({"op": "sync", "id": id, "table": "Nowhere", "pk": "p", "rk": rk}).to_string(),
        );
    }
    api.place.put("jobs", "no job at all");
    let poison = api.awaits("/api/v1/poison", |poison| {
        poison["total"] == 4 && poison["complete"] == true
    });
    assert_eq!(
        (
            poison["messages"].as_array().unwrap().len(),
            &poison["complete"]
        ),
        (4, &json!(true))
    );
    let undecodable = api
        .get("/api/v1/poison?reason=undecodable&queue=jobs")
        .json();
    assert_eq!(
        (
            undecodable["messages"].as_array().unwrap().len(),
            &undecodable["messages"][0]["body"]
        ),
        (1, &json!("no job at all"))
    );
    assert_eq!(api.get("/api/v1/poison?reason=sadness").status, 400);
    let one = api
        .get("/api/v1/poison?table=nowhere&key=p%2F2&since=1h")
        .json()["messages"]
        .clone();
    assert_eq!(
        (one.as_array().unwrap().len(), &one[0]["id"]),
        (1, &json!("second"))
    );
    let of_cause = api
        .get(&format!(
            "/api/v1/poison?cause={}",
            one[0]["cause"].as_str().unwrap()
        ))
        .json();
    assert_eq!(
        of_cause["messages"].as_array().unwrap().len(),
        3,
        "all three have one cause, because their errors differ only in the keys"
    );
    assert_eq!(api.get("/api/v1/poison?queue=nowhere").status, 404);
    api.awaits("/api/v1/status", |status| {
        status["headline"]["text"] == "4 poisoned messages"
    });

    assert_eq!(
        api.post("/api/v1/poison/discard", &json!({})).status,
        400,
        "nothing is meant"
    );
    let unread = api.ask(
        "POST",
        "/api/v1/poison/discard",
        &format!("{TOKEN}Content-Type: application/json\r\n"),
        "{",
    );
    assert!(
        unread.status == 400 && unread.json()["error"].is_string(),
        "{}",
        unread.body
    );
    assert_eq!(
        api.post("/api/v1/poison/discard", &json!({"al": true}))
            .status,
        422,
        "a mistyped selection discards nothing"
    );
    assert_eq!(
        api.post(
            "/api/v1/poison/discard",
            &json!({"all": true, "tabel": "Nowhere"})
        )
        .status,
        422,
        "a mistyped criterion discards nothing"
    );
    let nothing = api
        .post(
            "/api/v1/poison/discard",
            &json!({"all": true, "table": "Nowhere", "key": "p/9"}),
        )
        .json();
    assert_eq!(nothing["done"], json!([]));
    let discarded = api
        .post("/api/v1/poison/discard", &json!({"ids": ["first"]}))
        .json();
    assert_eq!(
        (
            discarded["done"].as_array().unwrap().len(),
            &discarded["failed"]
        ),
        (1, &json!([]))
    );
    let absent = api
        .post("/api/v1/poison/discard", &json!({"ids": ["first"]}))
        .json();
    assert_eq!(
        (&absent["done"], &absent["not_found"], &absent["hidden"]),
        (&json!([]), &json!(["first"]), &json!(0))
    );
    assert_eq!(
        api.post(
            "/api/v1/poison/discard",
            &json!({"all": true, "until": "soon"})
        )
        .status,
        400
    );
    let none = api
        .post(
            "/api/v1/poison/discard",
            &json!({"all": true, "until": "2020-01-01T00:00:00Z"}),
        )
        .json();
    assert_eq!((&none["done"], &none["newer"]), (&json!([]), &json!(3)));
    assert!(
        poison["as_of"]
            .as_str()
            .is_some_and(|moment| moment > "2026"),
        "{poison}"
    );
    let requeued = api
        .post(
            "/api/v1/poison/requeue",
            &json!({"all": true, "reason": "permanent", "queue": "jobs"}),
        )
        .json();
    assert_eq!(requeued["done"].as_array().unwrap().len(), 2);
    // The cause of these failures still exists, so the requeued jobs are poisoned again.
    api.awaits("/api/v1/jobs?outcome=poisoned", |jobs| {
        jobs.as_array().unwrap().len() == 6
    });
    api.awaits("/api/v1/poison", |poison| {
        poison["total"] == 3 && poison["complete"] == true
    });
    assert_eq!(
        api.post("/api/v1/poison/discard", &json!({"all": true}))
            .json()["done"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    // The daemon counts waiting messages only from time to time.
    api.awaits("/api/v1/status", |status| {
        status["poisoned"]["jobs"] == 0 && status["headline"]["text"] == "Consistent"
    });
}

#[test]
fn acknowledged_poison_is_the_headline_again_after_one_more_message() {
    let api = Api::start();
    let news = |text: &str| {
        let status = api.awaits("/api/v1/status", |status| {
            status["headline"]["text"] == text
        });
        assert_eq!(status["headline"]["state"], "attention", "{status}");
        json!({"news": status["headline"]["acknowledge"]})
    };
    api.place.put("jobs", "no job at all");
    let one = news("1 poisoned message");
    assert_eq!(
        api.ask(
            "POST",
            "/api/v1/acknowledge",
            "Content-Type: application/json\r\n",
            &one.to_string()
        )
        .status,
        401
    );
    let foreign =
        format!("{TOKEN}Content-Type: application/json\r\nSec-Fetch-Site: cross-site\r\n");
    assert_eq!(
        api.ask("POST", "/api/v1/acknowledge", &foreign, &one.to_string())
            .status,
        403
    );
    let known = api.post("/api/v1/acknowledge", &one);
    assert_eq!(
        (known.status, &known.json()["notes"][0]["text"]),
        (200, &json!("1 poisoned message, acknowledged")),
        "{}",
        known.body
    );
    api.awaits("/api/v1/status", |status| {
        status["headline"]["text"] == "Nothing new" && status["headline"]["state"] == "acknowledged"
    });
    assert_eq!(
        api.post("/api/v1/acknowledge", &one).status,
        404,
        "the message must not be reported again"
    );
    api.place.put("jobs", "no job either");
    news("1 new poisoned message, 2 in all");
}

#[test]
fn a_stranger_changes_nothing_and_every_answer_is_guarded() {
    let api = Api::start();
    let job = put("7", "a@b.c").to_string();
    let post = |headers: &str| api.ask("POST", "/api/v1/submit", headers, &job).status;
    assert_eq!(post(""), 401);
    assert_eq!(post("Authorization: Bearer wrong\r\n"), 401);
    assert_eq!(
        post(&format!("{TOKEN}Origin: http://evil.example\r\n")),
        403
    );
    assert_eq!(post(&format!("{TOKEN}Sec-Fetch-Site: cross-site\r\n")), 403);
    assert_eq!(
        post(&format!("{TOKEN}Origin: http://{}\r\n", api.address)),
        202
    );
    assert_eq!(api.ask("DELETE", "/api/v1/status", "", "").status, 401);
    for path in [
        "/api/v1/acknowledge",
        "/api/v1/poison/requeue",
        "/api/v1/poison/discard",
        "/api/v1/entities/Employees/a/b/reconcile",
    ] {
        assert_eq!(
            api.ask(
                "POST",
                path,
                "Content-Type: application/json\r\n",
                "{\"all\":true}"
            )
            .status,
            401,
            "{path}"
        );
    }
    let large = "x".repeat(70_000);
    assert_eq!(api.ask("POST", "/api/v1/submit", TOKEN, &large).status, 413);
    assert_eq!(
        api.ask("POST", "/api/v1/submit", TOKEN, "{\"op\":\"explode\"}")
            .status,
        400
    );
    for path in [
        "/api/v1/../../etc/passwd",
        "/api/v1/%2e%2e/%2e%2e/etc/passwd",
        "/api/v1/nowhere",
        "/api/v1/status/x",
    ] {
        assert_eq!(api.get(path).status, 404, "{path}");
    }
    let injected = api.get("/api/v1/jobs?key=%0d%0aX-Evil:%20yes");
    assert!(
        injected.status == 200 && !injected.head.contains("X-Evil"),
        "{}",
        injected.head
    );
    for path in ["/api/v1/status", "/healthz", "/nowhere", "/api/v1/nowhere"] {
        let head = api.get(path).head;
        says(
            &head,
            &[
                "content-security-policy: default-src 'none'",
                "frame-ancestors 'none'",
                "x-content-type-options: nosniff",
            ],
        );
        says(
            &head,
            &["referrer-policy: no-referrer", "cache-control: no-store"],
        );
    }
}

#[test]
fn a_thousand_wrong_tokens_are_slowed_down_and_a_session_needs_a_right_one() {
    let api = Api::start();
    let log_in = |token: &str| {
        api.ask(
            "POST",
            "/login",
            "Content-Type: application/x-www-form-urlencoded\r\n",
            &format!("token={token}"),
        )
    };
    let answer = log_in("s3cret-token-of-tests");
    let cookie = answer
        .head
        .lines()
        .find_map(|line| line.strip_prefix("set-cookie: "))
        .unwrap()
        .to_owned();
    says(&cookie, &["HttpOnly", "SameSite=Strict"]);
    assert!(!cookie.contains("s3cret-token-of-tests"));
    let cookie = cookie.split(';').next().unwrap();
    let submit = |headers: &str| {
        api.ask(
            "POST",
            "/api/v1/submit",
            headers,
            &put("7", "a@b.c").to_string(),
        )
        .status
    };
    let same_origin = format!("Cookie: {cookie}\r\nOrigin: http://{}\r\n", api.address);
    assert_eq!(submit(&same_origin), 202);
    assert_eq!(
        submit(&format!(
            "Cookie: {cookie}\r\nOrigin: http://evil.example\r\n"
        )),
        403
    );
    assert_eq!(
        submit(&format!("Cookie: {cookie}\r\n")),
        403,
        "a browser sends its origin"
    );
    assert_eq!(submit("Cookie: evenkeel_session=guess\r\n"), 401);

    let began = Instant::now();
    let statuses: Vec<u16> = (0..1_000)
        .map(|guess| log_in(&format!("guess{guess}")).status)
        .collect();
    let compared = statuses.iter().filter(|status| **status == 401).count() as u64;
    assert!(
        compared < 12 + began.elapsed().as_secs() / 6,
        "{compared} wrong tokens were compared"
    );
    assert!(statuses.contains(&429));
    assert_eq!(
        log_in("s3cret-token-of-tests").status,
        303,
        "the right token must be accepted"
    );
    assert_eq!(submit(&same_origin), 202, "who is signed in stays so");
    api.ask("POST", "/logout", &same_origin, "");
    assert_eq!(submit(&same_origin), 401);
}

#[test]
fn a_token_for_reading_scrapes_and_looks_and_changes_nothing() {
    let place = Place::new();
    for (name, token) in [
        ("token", "s3cret-token-of-tests"),
        ("read-token", "a-token-that-only-reads"),
    ] {
        std::fs::write(place.folder().join(name), token).unwrap();
    }
    place.add("[http]\nopen_reads = false\ntoken_file = \"token\"\n[http.tokens.scraper]\nrole = \"read\"\ntoken_file = \"read-token\"\n");
    let mut daemon = Daemon::start(&place, &[FREE_PORT, "run"]);
    let address = daemon.address();
    let ask = |method: &str, path: &str, token: &str| {
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
            "{\"level\":\"info\"}",
        )
        .status
    };
    for path in ["/metrics", "/api/v1/status", "/"] {
        assert_eq!(ask("GET", path, ""), 401, "{path}");
        assert_eq!(ask("GET", path, "a-token-that-only-reads"), 200, "{path}");
    }
    assert_eq!(ask("PUT", "/api/v1/log", "a-token-that-only-reads"), 403);
    assert_eq!(ask("PUT", "/api/v1/log", "s3cret-token-of-tests"), 200);
}

#[test]
fn a_misspelt_level_is_refused_and_no_level_silences_the_lines_of_changes() {
    let mut api = Api::start();
    let put = |api: &Api, level: &str, more: &str| {
        let headers = format!("{TOKEN}{more}Content-Type: application/json\r\n");
        api.ask(
            "PUT",
            "/api/v1/log",
            &headers,
            &json!({"level": level}).to_string(),
        )
    };
    let refused = put(&api, "inof", "");
    assert_eq!(refused.status, 400, "{}", refused.body);
    says(
        &refused.body,
        &["inof", "error, warn, info, debug, trace, off"],
    );
    assert_eq!(api.get("/api/v1/log").json()["level"], "info");
    assert_eq!(
        put(&api, "off", "X-Forwarded-For: 203.0.113.7\r\n").status,
        200
    );
    let line = api.daemon.await_line("audit: log level changed");
    assert_eq!(
        (line["peer"].as_str(), line["claimed"].as_str()),
        (Some("127.0.0.1"), Some("203.0.113.7")),
        "{line}"
    );
    assert_eq!(
        api.ask(
            "POST",
            "/api/v1/submit",
            TOKEN,
            &crate::cli::api::put("7", "a@b.c").to_string()
        )
        .status,
        202
    );
    let line = api.daemon.await_line("audit: job submitted");
    assert_eq!(
        (line["peer"].as_str(), line.get("claimed")),
        (Some("127.0.0.1"), None),
        "{line}"
    );
}
