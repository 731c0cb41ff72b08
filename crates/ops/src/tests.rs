//! Tests of the server with the requests of probes, scrapers, unauthorized clients and slow clients.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::{get, post};
use jiff::Timestamp;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::{NotReady, Routes, Server, ServerError, api, prometheus};
use evenkeel_model::settings::{ConfiguredSecret, HttpRole, HttpSettings, HttpToken};
use evenkeel_model::{AccountName, QueueName};
use evenkeel_storage::system::SystemClock;

type Reasons = Arc<Mutex<Vec<NotReady>>>;

struct Running {
    address: SocketAddr,
    reasons: Reasons,
    stop: CancellationToken,
    server: JoinSet<()>,
}

fn routes(reasons: &Reasons) -> Routes {
    let recorder = prometheus::recorder().unwrap();
    metrics::with_local_recorder(&recorder, || {
        metrics::counter!("evenkeel_poisoned_total", "queue" => "q").absolute(7);
    });
    let reasons = reasons.clone();
    let readiness = move || reasons.lock().unwrap().clone();
    Routes {
        readiness: Arc::new(readiness),
        metrics: recorder.handle(),
        clock: Arc::new(SystemClock::new()),
    }
}

fn settings(listen: &str, token: Option<&str>) -> HttpSettings {
    let secret = token.map(|token| ConfiguredSecret::fixed("token", token.into()));
    let token = secret.map(|secret| HttpToken {
        name: "token".to_owned(),
        secret,
        role: HttpRole::Operate,
        contents: true,
    });
    HttpSettings {
        tokens: token.into_iter().collect(),
        ..HttpSettings::open(listen.parse().unwrap())
    }
}

async fn started(settings: HttpSettings, more: Router) -> Running {
    let reasons = Reasons::default();
    let server = Server::bind(&settings, routes(&reasons), more)
        .await
        .unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    let mut running = JoinSet::new();
    running.spawn(server.serve(stop.clone()));
    Running {
        address,
        reasons,
        stop,
        server: running,
    }
}

impl Running {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.address.port()))
            .await
            .unwrap()
    }

    /// Sends one request and returns the whole answer.
    async fn ask(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        rest(&mut stream).await
    }

    async fn get(&self, path: &str, headers: &str) -> String {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{headers}\r\n"
        ))
        .await
    }

    async fn ends(mut self) {
        self.stop.cancel();
        self.server.join_next().await.unwrap().unwrap();
    }
}

async fn rest(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // If a server closes a connection that has unread bytes, the connection is reset, so the read may fail. Only the
    // bytes that were read before matter.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

fn body(answer: &str) -> &str {
    answer.split_once("\r\n\r\n").unwrap().1
}

#[tokio::test]
async fn healthz_answers_ok() {
    let running = started(settings("127.0.0.1:0", None), Router::new()).await;
    assert_eq!(body(&running.get("/healthz", "").await), "ok\n");
    assert_eq!(status(&running.get("/nowhere", "").await), "404");
    running.ends().await;
}

#[tokio::test]
async fn readyz_returns_the_reasons() {
    let running = started(settings("127.0.0.1:0", None), Router::new()).await;
    let ready = running.get("/readyz", "").await;
    assert_eq!(
        (status(&ready), body(&ready)),
        ("200", r#"{"ready":true,"reasons":[]}"#)
    );

    let queue = QueueName::new("evenkeel-jobs").unwrap();
    *running.reasons.lock().unwrap() = vec![
        NotReady::CircuitOpen {
            account: AccountName::main(),
            service: "table",
            since: Timestamp::UNIX_EPOCH,
        },
        NotReady::NoSuccessfulPoll { queue, last: None },
        NotReady::MigrationsPending { pending: 2 },
        NotReady::Draining,
    ];
    let answer = running.get("/readyz", "").await;
    assert_eq!(status(&answer), "503");
    let value: serde_json::Value = serde_json::from_str(body(&answer)).unwrap();
    assert_eq!(value["ready"], false);
    assert_eq!(
        value["reasons"],
        serde_json::json!([
            {"reason": "circuit_open", "account": "main", "service": "table", "since": "1970-01-01T00:00:00Z",
             "message": "the table service of the account main has not answered since 1970-01-01T00:00:00Z"},
            {"reason": "no_successful_poll", "queue": "evenkeel-jobs", "message": "the queue evenkeel-jobs has not answered yet"},
            {"reason": "migrations_pending", "pending": 2, "message": "pending migrations: 2. Run evenkeel migrate up"},
            {"reason": "draining", "message": "stopping: no more messages are received"},
        ])
    );
    running.ends().await;
}

#[tokio::test]
async fn no_answer_changes_the_direction_of_text() {
    let text = "exe\u{202e}gpj.\u{200b}한";
    let routes = Router::new().route("/api/v1/said", get(async move || axum::Json(text)));
    let running = started(settings("127.0.0.1:0", None), routes).await;
    let answer = running.get("/api/v1/said", "").await;
    assert_eq!(body(&answer), r#""exe\u202egpj.\u200b한""#);
    assert_eq!(serde_json::from_str::<String>(body(&answer)).unwrap(), text);
    running.ends().await;
}

#[tokio::test]
async fn metrics_have_the_prometheus_text_format() {
    let running = started(settings("127.0.0.1:0", None), Router::new()).await;
    let answer = running.get("/metrics", "").await;
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{answer}"
    );
    assert!(
        body(&answer).contains("evenkeel_poisoned_total{queue=\"q\"} 7\n"),
        "{answer}"
    );
    running.ends().await;
}

#[tokio::test]
async fn other_machines_need_the_token_except_for_probes() {
    let more = Router::new().route("/api/v1/jobs", post(|| async { "submitted" }));
    let running = started(settings("0.0.0.0:0", Some("s3cret")), more).await;
    for path in ["/healthz", "/readyz"] {
        assert_eq!(status(&running.get(path, "").await), "200", "{path}");
    }
    for path in ["/", "/metrics", "/api/v1/jobs", "/nowhere"] {
        let answer = running.get(path, "").await;
        assert_eq!(status(&answer), "401", "{path}");
        assert!(answer.contains("www-authenticate: Bearer"), "{answer}");
        assert_eq!(
            status(&running.get(path, "Authorization: Bearer s3cre7\r\n").await),
            "401",
            "{path}"
        );
    }
    assert_eq!(
        status(
            &running
                .get("/metrics", "Authorization: Bearer s3cret\r\n")
                .await
        ),
        "200"
    );
    running.ends().await;
}

#[tokio::test]
async fn on_loopback_changes_need_the_token_too() {
    let more = || Router::new().route("/api/v1/jobs", post(|body: String| async move { body }));
    let submit = |authorization: &str, job: &str| {
        format!(
            "POST /api/v1/jobs HTTP/1.1\r\nHost: e\r\nConnection: close\r\n{authorization}Content-Length: {}\r\n\r\n{job}",
            job.len()
        )
    };
    let running = started(settings("127.0.0.1:0", Some("s3cret")), more()).await;
    let refused = running.ask(&submit("", "{}")).await;
    assert_eq!(status(&refused), "401");
    let reported: serde_json::Value = serde_json::from_str(body(&refused)).unwrap();
    assert!(
        reported["error"]
            .as_str()
            .unwrap()
            .starts_with("a valid token is required"),
        "{refused}"
    );
    assert!(
        body(&running.get("/api/v1/jobs", "").await).contains("{\"error\":\"Method Not Allowed\"}")
    );
    assert_eq!(
        body(
            &running
                .ask(&submit("Authorization: Bearer s3cret\r\n", "{}"))
                .await
        ),
        "{}"
    );
    let too_large = submit("Authorization: Bearer s3cret\r\n", &"x".repeat(70_000));
    assert_eq!(status(&running.ask(&too_large).await), "413");
    running.ends().await;
    let running = started(settings("127.0.0.1:0", None), more()).await;
    assert_eq!(status(&running.ask(&submit("", "{}")).await), "403");
    running.ends().await;
}

#[tokio::test]
async fn a_bind_error_names_the_address_and_the_setting() {
    let running = started(settings("127.0.0.1:0", None), Router::new()).await;
    let taken = settings(&running.address.to_string(), None);
    let Err(error) = Server::bind(&taken, routes(&Reasons::default()), Router::new()).await else {
        panic!("bound twice")
    };
    assert!(
        error.to_string().contains(&running.address.to_string())
            && error.to_string().contains("http.listen"),
        "{error}"
    );
    running.ends().await;

    let open = settings("0.0.0.0:0", None);
    let Err(error) = Server::bind(&open, routes(&Reasons::default()), Router::new()).await else {
        panic!("open to all")
    };
    assert!(matches!(error, ServerError::TokenNeeded(_)));
    assert!(error.to_string().contains("http.token_env"), "{error}");
}

#[tokio::test]
async fn any_number_of_idle_connections_lets_a_probe_through() {
    let running = started(settings("127.0.0.1:0", None), Router::new()).await;
    let mut silent = Vec::new();
    for number in 0..600 {
        let mut stream = running.connect().await;
        if number % 2 == 0 {
            // Occasional requests keep the connection alive.
            stream
                .write_all(b"GET /healthz HTTP/1.1\r\nHost: e\r\n\r\n")
                .await
                .unwrap();
        }
        silent.push(stream);
    }
    let probe = tokio::time::timeout(Duration::from_secs(10), running.get("/healthz", "")).await;
    assert_eq!(
        body(&probe.expect("a probe waits for no other connection")),
        "ok\n"
    );
    let first = rest(&mut silent[1]).await;
    assert_eq!(first, "", "the connection that was idle longest was closed");
    running.ends().await;
}

// The following tests pause time, which then advances only when no task can run, so they take almost no real time.

#[tokio::test(start_paused = true)]
async fn a_client_that_never_ends_its_request_is_disconnected() {
    let running = started(settings("127.0.0.1:0", None), Router::new()).await;
    let (start, mut slow) = (Instant::now(), running.connect().await);
    slow.write_all(b"GET /healthz HTTP/1.1\r\nHost: even")
        .await
        .unwrap();
    assert!(!rest(&mut slow).await.contains("200"));
    assert!(
        (30..40).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    running.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_answer_is_disconnected() {
    let large = || async { vec![b'x'; 64 << 20] };
    let running = started(
        settings("127.0.0.1:0", None),
        Router::new().route("/large", get(large)),
    )
    .await;
    let (start, mut greedy) = (Instant::now(), running.connect().await);
    greedy
        .write_all(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert!(
        rest(&mut greedy).await.len() < 64 << 20,
        "only bytes that were already sent arrive"
    );
    assert!(
        start.elapsed() < Duration::from_secs(70),
        "{:?}",
        start.elapsed()
    );
    running.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_answered_with_504() {
    let more = Router::new().route("/slow", post(|body: String| async move { body }));
    let running = started(settings("127.0.0.1:0", Some("s3cret")), more).await;
    let head = "POST /slow HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer s3cret\r\nContent-Length: 100\r\n\r\n{";
    assert_eq!(status(&running.ask(head).await), "504");
    running.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_too_large_is_refused() {
    let running = started(settings("127.0.0.1:0", None), Router::new()).await;
    let answer = running
        .get("/healthz", &format!("X-Filler: {}\r\n", "x".repeat(20_000)))
        .await;
    assert!(matches!(status(&answer), "431" | "none"), "{answer}");
    running.ends().await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_takes_too_long_ends_with_504() {
    let more = Router::new().route("/slow", get(std::future::pending::<&'static str>));
    let running = started(settings("127.0.0.1:0", None), more).await;
    assert_eq!(status(&running.get("/slow", "").await), "504");
    running.ends().await;
}

#[tokio::test(start_paused = true)]
async fn sending_that_takes_too_long_continues_after_a_503() {
    let (changes, is_sent) = (TaskTracker::new(), Arc::new(AtomicBool::new(false)));
    let submit = {
        let (changes, is_sent) = (changes.clone(), Arc::clone(&is_sent));
        move || {
            let (changes, is_sent) = (changes.clone(), Arc::clone(&is_sent));
            async move {
                let sending = async move {
                    tokio::time::sleep(Duration::from_mins(1)).await;
                    is_sent.store(true, Ordering::SeqCst);
                    Ok("sent")
                };
                api::sent(changes.spawn(sending)).await
            }
        }
    };
    let running = started(
        settings("127.0.0.1:0", None),
        Router::new().route("/submit", get(submit)),
    )
    .await;
    let answer = running.get("/submit", "").await;
    assert_eq!(status(&answer), "503");
    assert!(
        body(&answer).contains("may have been sent or will be. Send them again with the same `id`"),
        "{answer}"
    );
    changes.close();
    changes.wait().await;
    assert!(
        is_sent.load(Ordering::SeqCst),
        "sending must continue after its caller has gone"
    );
    running.ends().await;
}

#[tokio::test(start_paused = true)]
async fn on_shutdown_requests_in_progress_are_answered_and_idle_connections_are_closed() {
    let slowly = || async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        "answered"
    };
    let running = started(
        settings("127.0.0.1:0", None),
        Router::new().route("/slow", get(slowly)),
    )
    .await;
    let (mut idle, mut busy) = (running.connect().await, running.connect().await);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: e\r\n\r\n")
        .await
        .unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    busy.write_all(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    let address = running.address;
    let (answer, ()) = futures::future::join(rest(&mut busy), running.ends()).await;
    assert_eq!(body(&answer), "answered");
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
    rest(&mut idle).await;
    assert!(TcpStream::connect(address).await.is_err());
}
