//! The contract of sinks on a simulated store, on a search service behind its REST API (a stub on loopback), on
//! databases, and on all of them with the decorators of production.
#![expect(clippy::unwrap_used, reason = "an unexpected error fails the rule")]

mod postgresql;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_account::{FaultPolicy, NoFaults, SimWorld};
use evenkeel_layers::stack::{DecoratedSink, decorate_sink};
use evenkeel_model::settings::{
    Backoff, ConfiguredSecret, RetryPolicy, SinkAuth, SinkKind, SqlSettings,
};
use evenkeel_model::{AccountName, CollectionName, ColumnType, DocumentKey, SinkDocument};
use evenkeel_sinks::search;
use evenkeel_storage::system::{SeededRng, SystemClock};
use evenkeel_storage::{Clock, DocumentWrite, ErrorClass, Rng, Sink, StoreHealth as _};
use futures::future::{Either, join_all, select};
use secrecy::SecretString;
use serde_json::json;

use crate::support::gusty::Gusty;
use crate::support::search::{SearchStub, Trouble};
use evenkeel_conformance::sinks::{FIELDS, SinkFixture};

fn name() -> AccountName {
    AccountName::new("catalog").unwrap()
}

fn world(faults: impl FaultPolicy + 'static) -> SimWorld {
    let world = SimWorld::new(name(), Arc::new(SystemClock::new()), Arc::new(faults));
    world.create_collection(
        &CollectionName::new("people").unwrap(),
        &FIELDS.map(|(name, _)| name),
    );
    world
}

fn stub() -> SearchStub {
    let stub = SearchStub::start();
    stub.create("people", &FIELDS);
    stub
}

fn open_database(settings: SqlSettings) -> Arc<dyn Sink> {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let opened = evenkeel_sinks::open(&name(), SinkKind::Sql(settings), &clock);
    opened.unwrap().sink
}

/// A sink with the decorators of production. Retries do not wait.
fn decorated(bare: Arc<dyn Sink>) -> Arc<dyn Sink> {
    let at_once = Backoff {
        min: Duration::ZERO,
        base: Duration::ZERO,
        max: Duration::from_mins(1),
    };
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(20_261_120));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    decorate_sink(
        &name(),
        bare,
        RetryPolicy::growing(at_once, 40),
        &clock,
        &rng,
    )
    .sink
}

fn simulated() -> SinkFixture {
    SinkFixture {
        sink: world(NoFaults).sink(),
        keep: Box::new(()),
    }
}

fn gusty() -> SinkFixture {
    SinkFixture {
        sink: decorated(world(Gusty).sink()),
        keep: Box::new(()),
    }
}

fn searched() -> SinkFixture {
    let stub = stub();
    SinkFixture {
        sink: search::connect(stub.service(&name())).unwrap(),
        keep: Box::new(stub),
    }
}

fn searched_worn() -> SinkFixture {
    let stub = stub();
    SinkFixture {
        sink: decorated(search::connect(stub.service(&name())).unwrap()),
        keep: Box::new(stub),
    }
}

fn columns() -> BTreeMap<String, ColumnType> {
    let kinds = [
        ColumnType::Text(None),
        ColumnType::Integer,
        ColumnType::Double,
        ColumnType::Boolean,
        ColumnType::Timestamp,
    ];
    FIELDS
        .iter()
        .zip(kinds)
        .map(|((name, _), kind)| ((*name).to_owned(), kind))
        .collect()
}

async fn tabled(settings: SqlSettings, keep: Box<dyn std::any::Any + Send + Sync>) -> SinkFixture {
    let sink = open_database(settings);
    sink.define(&people(), &columns()).await.unwrap();
    SinkFixture { sink, keep }
}

async fn sqlite() -> SinkFixture {
    let folder = tempfile::tempdir().unwrap();
    tabled(
        SqlSettings::Sqlite {
            path: folder.path().join("new/reporting.db"),
        },
        Box::new(folder),
    )
    .await
}

async fn sqlite_worn() -> SinkFixture {
    let SinkFixture { sink, keep } = sqlite().await;
    SinkFixture {
        sink: decorated(sink),
        keep,
    }
}

fn fresh(what: &str) -> String {
    format!("{what}_{}", uuid::Uuid::new_v4().simple())
}

async fn postgres() -> SinkFixture {
    tabled(
        crate::support::postgres::shared().database(&fresh("contract")),
        Box::new(()),
    )
    .await
}

async fn postgres_worn() -> SinkFixture {
    let SinkFixture { sink, keep } = postgres().await;
    SinkFixture {
        sink: decorated(sink),
        keep,
    }
}

mod postgres {
    evenkeel_conformance::sinks_suite!(crate::contract::sinks::postgres().await);
}

mod postgres_decorated {
    evenkeel_conformance::sinks_suite!(crate::contract::sinks::postgres_worn().await);
}

mod sqlite {
    evenkeel_conformance::sinks_suite!(crate::contract::sinks::sqlite().await);
}

mod sqlite_decorated {
    evenkeel_conformance::sinks_suite!(crate::contract::sinks::sqlite_worn().await);
}

mod sim {
    evenkeel_conformance::sinks_suite!(crate::contract::sinks::simulated());
}

mod sim_decorated {
    evenkeel_conformance::sinks_suite!(crate::contract::sinks::gusty());
}

mod service {
    evenkeel_conformance::sinks_suite!(crate::contract::sinks::searched());
}

mod service_decorated {
    evenkeel_conformance::sinks_suite!(crate::contract::sinks::searched_worn());
}

fn people() -> CollectionName {
    CollectionName::new("people").unwrap()
}

fn write(key: &str, name: &str) -> DocumentWrite {
    let fields = serde_json::from_value(json!({"name": name})).unwrap();
    DocumentWrite {
        key: DocumentKey::new(key).unwrap(),
        document: Some(SinkDocument(fields)),
        version: 1,
        deadline: None,
    }
}

async fn ends(sink: &dyn Sink, write: DocumentWrite) -> Result<(), (ErrorClass, String)> {
    let ended = sink
        .write(&people(), &[write])
        .await
        .and_then(|written| written.into_iter().next().unwrap());
    ended.map_err(|error| (error.class, error.to_string()))
}

#[tokio::test]
async fn answers_of_the_service_are_classified() {
    let stub = stub();
    let sink = search::connect(stub.service(&name())).unwrap();
    let throttled = ErrorClass::Throttled {
        retry_after: Some(Duration::from_secs(7)),
    };
    let troubles = [
        (Trouble::Refused(503, Some(7)), throttled),
        (Trouble::Refused(429, Some(7)), throttled),
        (Trouble::Refused(403, None), ErrorClass::Unauthorised),
        (Trouble::Refused(500, None), ErrorClass::Ambiguous),
        (Trouble::Gateway(404), ErrorClass::Ambiguous),
        (Trouble::Gateway(503), ErrorClass::Ambiguous),
        (Trouble::LoseAnswer, ErrorClass::Ambiguous),
        (Trouble::Document("Ada", 400), ErrorClass::Permanent),
        (
            Trouble::Document("Ada", 409),
            ErrorClass::Transient { retry_after: None },
        ),
        (
            Trouble::Document("Ada", 503),
            ErrorClass::Throttled { retry_after: None },
        ),
    ];
    for (trouble, wanted) in troubles {
        stub.trouble([trouble.clone()]);
        let (class, text) = ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err();
        assert_eq!(class, wanted, "{trouble:?}: {text}");
        assert!(
            text.contains("index people") && text.contains("sink catalog"),
            "{text}"
        );
    }
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
}

#[tokio::test]
async fn a_404_of_a_gateway_does_not_prove_absence_in_a_search_service() {
    let stub = stub();
    let sink = search::connect(stub.service(&name())).unwrap();
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
    let doubt = |error: evenkeel_storage::StoreError| {
        assert_eq!(error.class, ErrorClass::Transient { retry_after: None });
        assert!(error.message.contains("gateway"), "{error}");
    };
    stub.trouble([Trouble::Gateway(404), Trouble::Gateway(404)]);
    doubt(
        sink.get(&people(), &DocumentKey::new("a").unwrap())
            .await
            .unwrap_err(),
    );
    doubt(sink.fields(&people()).await.unwrap_err());
    assert!(
        sink.get(&people(), &DocumentKey::new("a").unwrap())
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(
        sink.get(&people(), &DocumentKey::new("b").unwrap())
            .await
            .unwrap(),
        None
    );
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_told_to_nobody() {
    let stub = stub();
    let mut service = stub.service(&name());
    service.auth = SinkAuth::Key(SecretString::from("not-the-key").into());
    assert!(!format!("{service:?}").contains("not-the-key"));
    let (class, text) = ends(
        search::connect(service).unwrap().as_ref(),
        write("a", "Ada"),
    )
    .await
    .unwrap_err();
    assert_eq!(class, ErrorClass::Unauthorised);
    assert!(
        text.contains("admin key") && !text.contains("not-the-key"),
        "{text}"
    );
}

#[tokio::test]
async fn a_write_without_an_answer_is_not_repeated_and_one_that_was_put_off_is() {
    let stub = stub();
    let sink = decorated(search::connect(stub.service(&name())).unwrap());
    stub.trouble([Trouble::LoseAnswer]);
    assert_eq!(
        ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err().0,
        ErrorClass::Ambiguous
    );
    assert_eq!(stub.requests().len(), 1);
    stub.trouble([Trouble::Refused(503, None), Trouble::Refused(429, None)]);
    assert_eq!(ends(sink.as_ref(), write("a", "Byron")).await, Ok(()));
    assert_eq!(stub.requests().len(), 4);
}

#[tokio::test]
async fn documents_written_during_a_request_share_the_next_one() {
    let stub = stub();
    let sink = decorated(search::connect(stub.service(&name())).unwrap());
    let writes: Vec<DocumentWrite> = (0..100).map(|n| write(&format!("k{n}"), "Ada")).collect();
    for ended in join_all(writes.into_iter().map(|write| ends(sink.as_ref(), write))).await {
        assert_eq!(ended, Ok(()));
    }
    assert_eq!(stub.documents("people").len(), 100);
    assert_eq!(
        stub.requests().len(),
        2,
        "the first document must be sent alone, and the others together"
    );
}

#[tokio::test]
async fn a_refusal_affects_one_document_and_a_lost_answer_all() {
    let stub = stub();
    let sink = decorated(search::connect(stub.service(&name())).unwrap());
    let bad = SinkDocument(serde_json::from_value(json!({"nonsense": 1})).unwrap());
    let writes = (0..9).map(|n| match n {
        5 => DocumentWrite {
            document: Some(bad.clone()),
            ..write("k5", "Ada")
        },
        _ => write(&format!("k{n}"), "Ada"),
    });
    let ended = join_all(writes.map(|write| ends(sink.as_ref(), write))).await;
    for (n, ended) in ended.into_iter().enumerate() {
        assert_eq!(
            ended.map_err(|(class, _)| class),
            if n == 5 {
                Err(ErrorClass::Permanent)
            } else {
                Ok(())
            },
            "{n}"
        );
    }
    assert_eq!(stub.documents("people").len(), 8);

    stub.trouble([Trouble::LoseAnswer, Trouble::LoseAnswer]);
    for ended in
        join_all((0..3).map(|n| ends(sink.as_ref(), write(&format!("k{n}"), "Byron")))).await
    {
        assert_eq!(ended.unwrap_err().0, ErrorClass::Ambiguous);
    }
    assert_eq!(stub.documents("people")["k2"]["name"], "Byron");
}

async fn versions_order_writes_whatever_order_they_arrive_in(fixture: &SinkFixture) {
    const DAY: i64 = 86_400_000;
    let sink = fixture.sink.as_ref();
    let now = 1_800_000_000_000;
    let at = |version, name: Option<&str>| DocumentWrite {
        version,
        document: name.and_then(|name| write("a", name).document),
        ..write("a", "")
    };
    let stale = |ended: Result<(), (ErrorClass, String)>| {
        let (class, text) = ended.unwrap_err();
        assert!(
            class == ErrorClass::Precondition && text.contains("newer version"),
            "{class:?}: {text}"
        );
    };
    let says = async |wanted: Option<&str>| {
        let found = sink
            .get(&people(), &DocumentKey::new("a").unwrap())
            .await
            .unwrap();
        assert_eq!(
            found.as_ref().map(|found| &found.0["name"]),
            wanted.map(|name| json!(name)).as_ref()
        );
    };
    assert_eq!(ends(sink, at(now + 2, Some("two"))).await, Ok(()));
    stale(ends(sink, at(now + 1, Some("one"))).await);
    stale(ends(sink, at(now + 1, None)).await);
    says(Some("two")).await;
    assert_eq!(
        ends(sink, at(now + 2, Some("two again"))).await,
        Ok(()),
        "both writes must have the same version"
    );
    assert_eq!(ends(sink, at(now + 4, None)).await, Ok(()));
    says(None).await;
    stale(ends(sink, at(now + 3, Some("three"))).await);
    says(None).await;
    assert_eq!(ends(sink, at(now + 5, Some("five"))).await, Ok(()));
    stale(ends(sink, at(now + 4, None)).await);
    says(Some("five")).await;
    // A late delete of a row that a newer delete has removed succeeds. A late write of that row is stale.
    assert_eq!(ends(sink, at(now + 7, None)).await, Ok(()));
    assert_eq!(ends(sink, at(now + 6, None)).await, Ok(()));
    stale(ends(sink, at(now + 6, Some("six"))).await);
    // A stored version more than a day ahead of the pending version cannot be genuine, so the pending version overwrites it.
    assert_eq!(ends(sink, at(now + 10 * DAY, Some("forged"))).await, Ok(()));
    assert_eq!(ends(sink, at(now + 8, Some("eight"))).await, Ok(()));
    says(Some("eight")).await;
    // Only the stale document of a batch fails.
    let batch = [
        DocumentWrite {
            version: now + 9,
            ..write("b", "Ada")
        },
        at(now + 1, Some("late")),
        at_key("c", now + 1),
    ];
    let ended = sink.write(&people(), &batch).await.unwrap();
    assert_eq!(
        ended
            .into_iter()
            .map(|ended| ended.map_err(|error| error.class))
            .collect::<Vec<_>>(),
        [Ok(()), Err(ErrorClass::Precondition), Ok(())]
    );
}

fn at_key(key: &str, version: i64) -> DocumentWrite {
    DocumentWrite {
        version,
        document: None,
        ..write(key, "")
    }
}

/// Concurrent writers write each version of a few keys once, in any order. The highest version must remain.
async fn concurrent_writers_leave_the_newest_version(fixture: &SinkFixture) {
    let now = 1_800_000_000_000;
    let writes = (0..40_i64).map(|n| async move {
        let batch: Vec<DocumentWrite> = (0..20_i64)
            .map(|key| {
                let version = (n * 7 + key) % 40;
                let write = write(&format!("k{key}"), &version.to_string());
                DocumentWrite {
                    version: now + version,
                    document: write.document.filter(|_| (version + key) % 3 != 0),
                    ..write
                }
            })
            .collect();
        for ended in fixture.sink.write(&people(), &batch).await.unwrap() {
            assert!(
                ended
                    .as_ref()
                    .is_err_and(|error| error.class == ErrorClass::Precondition)
                    || ended.is_ok(),
                "{ended:?}"
            );
        }
    });
    join_all(writes).await;
    for key in 0..20 {
        let found = fixture
            .sink
            .get(&people(), &DocumentKey::new(format!("k{key}")).unwrap())
            .await
            .unwrap();
        let wanted = (key % 3 != 0).then(|| json!("39"));
        assert_eq!(found.map(|found| found.0["name"].clone()), wanted, "k{key}");
    }
}

async fn a_table_gets_the_columns_that_it_lacks_and_keeps_all_others(fixture: &SinkFixture) {
    let sink = fixture.sink.as_ref();
    assert_eq!(ends(sink, write("a", "Ada")).await, Ok(()));
    let more = BTreeMap::from([
        ("title".to_owned(), ColumnType::Text(Some(80))),
        ("badge".to_owned(), ColumnType::Uuid),
    ]);
    let titled = || {
        let mut titled = write("a", "Ada");
        titled
            .document
            .as_mut()
            .unwrap()
            .0
            .insert("title".to_owned(), json!("Countess"));
        DocumentWrite {
            version: 2,
            ..titled
        }
    };
    let (class, text) = ends(sink, titled()).await.unwrap_err();
    assert!(
        class == ErrorClass::Permanent && text.contains("no column title"),
        "{text}"
    );
    for _ in 0..2 {
        sink.define(&people(), &more).await.unwrap();
    }
    let found = sink.fields(&people()).await.unwrap().unwrap();
    for (name, kind) in columns().iter().chain(&more) {
        assert_eq!(found[name], kind.to_string(), "{name}");
    }
    assert_eq!(ends(sink, titled()).await, Ok(()));
    let found = sink
        .get(&people(), &DocumentKey::new("a").unwrap())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (&found.0["title"], &found.0["badge"], &found.0["name"]),
        (&json!("Countess"), &json!(null), &json!("Ada"))
    );
}

macro_rules! databases {
    ($($database:ident: $fixture:expr;)*) => {$(
        mod $database {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn versions() {
                versions_order_writes_whatever_order_they_arrive_in(&$fixture).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn side_by_side() {
                concurrent_writers_leave_the_newest_version(&$fixture).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn columns() {
                a_table_gets_the_columns_that_it_lacks_and_keeps_all_others(&$fixture).await;
            }
        }
    )*};
}

databases! {
    in_postgres: super::postgres().await;
    in_sqlite: super::sqlite().await;
}

const WEBHOOK_KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn receiver(stub: &crate::support::stub::Stub, timeout: Duration) -> Arc<dyn Sink> {
    receiver_by(stub, SecretString::from(WEBHOOK_KEY).into(), timeout)
}

fn receiver_by(
    stub: &crate::support::stub::Stub,
    secret: ConfiguredSecret,
    timeout: Duration,
) -> Arc<dyn Sink> {
    receiver_at(stub.port(), secret, timeout)
}

fn receiver_at(port: u16, secret: ConfiguredSecret, timeout: Duration) -> Arc<dyn Sink> {
    let url = format!("http://127.0.0.1:{port}/hook").parse().unwrap();
    let settings = evenkeel_model::settings::WebhookSettings {
        url,
        secret,
        timeout,
    };
    evenkeel_sinks::webhook::open(&name(), settings, Arc::new(SystemClock::new())).unwrap()
}

#[tokio::test]
async fn answers_of_a_receiver_are_classified() {
    use crate::support::stub::{Reply, Stub};
    let answers = Stub::start(|request| match request.number {
        0 => Reply::status(204).into(),
        1 => Reply::status(429).header("Retry-After", "7").into(),
        2 => Reply::status(302)
            .header("Location", "http://127.0.0.1:1/elsewhere")
            .into(),
        3 => Reply::status(410)
            .body("gone for good, whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
            .into(),
        4 => Reply::status(422).body("x".repeat(100_000)).into(),
        5 => Reply::Reset,
        // The receiver stops in the middle of the body. The sink must not wait for the body of an accepted event.
        _ => Reply::status(200)
            .body("x".repeat(100_000))
            .cut_after(10)
            .into(),
    });
    let sink = receiver(&answers, Duration::from_secs(10));
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
    let busy = ErrorClass::Throttled {
        retry_after: Some(Duration::from_secs(7)),
    };
    assert_eq!(
        ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err().0,
        busy
    );
    for said in ["redirects are not followed", "is not shown", "xxx"] {
        let (class, text) = ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err();
        assert!(
            class == ErrorClass::Permanent
                && text.contains(said)
                && text.len() < 1_000
                && !text.contains("whsec_"),
            "{text}"
        );
    }
    assert_eq!(
        ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err().0,
        ErrorClass::Ambiguous
    );
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
    assert_eq!(answers.requests().len(), 7);

    let silent = Stub::start(|_| Reply::Silence);
    let sink = receiver(&silent, Duration::from_millis(100));
    let (class, text) = ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err();
    assert!(
        class == ErrorClass::Ambiguous && text.contains("before the timeout"),
        "{text}"
    );
    assert_eq!(
        sink.get(&people(), &DocumentKey::new("a").unwrap())
            .await
            .unwrap(),
        Some(SinkDocument::default())
    );
}

/// A sink with the decorators of production, but without retries.
fn decorated_once(bare: Arc<dyn Sink>) -> DecoratedSink {
    let once = RetryPolicy::growing(
        Backoff {
            min: Duration::ZERO,
            base: Duration::ZERO,
            max: Duration::ZERO,
        },
        1,
    );
    let rng: Arc<dyn Rng> = Arc::new(SeededRng::new(20_261_120));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    decorate_sink(&name(), bare, once, &clock, &rng)
}

#[tokio::test]
async fn what_is_answered_without_asking_a_receiver_closes_no_circuit_and_is_no_request() {
    let decorated = decorated_once(receiver_at(
        1,
        SecretString::from(WEBHOOK_KEY).into(),
        Duration::from_secs(10),
    ));
    for _ in 0..8 {
        assert_eq!(
            ends(decorated.sink.as_ref(), write("a", "Ada"))
                .await
                .unwrap_err()
                .0,
            ErrorClass::Refused
        );
    }
    // A full audit and a migration send the reads below. These reads must not count as requests or close the circuit.
    assert_eq!(
        decorated
            .sink
            .get(&people(), &DocumentKey::new("a").unwrap())
            .await
            .unwrap(),
        Some(SinkDocument::default())
    );
    assert!(decorated.sink.fields(&people()).await.unwrap().is_some());
    decorated.circuit.probe().await;
    assert_eq!(decorated.circuit.open_circuits().len(), 1);
    assert_eq!(decorated.counts.snapshot().transactions(), 8);
}

#[tokio::test]
async fn an_event_waits_for_no_answer_but_its_own() {
    use crate::support::stub::{Reply, Stub};
    let stub = Stub::start(|request| match request.header("webhook-id") {
        Some(id) if id.contains("/slow/") => Reply::Silence,
        Some(id) if id.contains("/k7/") => Reply::status(410).into(),
        _ => Reply::status(204).into(),
    });
    let decorated = decorated_once(receiver(&stub, Duration::from_secs(10)));
    let sink = decorated.sink.as_ref();
    let slow = pin!(ends(sink, write("slow", "Ada")));
    let others = pin!(join_all(
        (0..20).map(|n| ends(sink, write(&format!("k{n}"), "Ada")))
    ));
    let Either::Right((ended, _)) = select(slow, others).await else {
        panic!("other documents waited for the slow one")
    };
    for (n, ended) in ended.into_iter().enumerate() {
        assert_eq!(
            ended.map_err(|(class, _)| class),
            if n == 7 {
                Err(ErrorClass::Permanent)
            } else {
                Ok(())
            },
            "{n}"
        );
    }
}

#[tokio::test]
async fn a_topic_whose_events_are_not_answered_holds_up_no_other() {
    use crate::support::stub::{Reply, Stub};
    let stub = Stub::start(|request| match request.header("webhook-id") {
        Some(id) if id.starts_with("people/") => Reply::Silence,
        _ => Reply::status(204).into(),
    });
    let decorated = decorated_once(receiver(&stub, Duration::from_secs(10)));
    let silent = pin!(join_all(
        (0..20).map(|n| ends(decorated.sink.as_ref(), write(&format!("k{n}"), "Ada")))
    ));
    let (other, event) = (CollectionName::new("other").unwrap(), [write("a", "Ada")]);
    let Either::Right((written, _)) = select(silent, decorated.sink.write(&other, &event)).await
    else {
        panic!("other documents must end first")
    };
    assert_eq!(written.unwrap().len(), 1);
}

#[tokio::test]
async fn a_receiver_that_hangs_gets_eight_events_at_once_until_its_circuit_opens() {
    use crate::support::stub::{Reply, Stub};
    let silent = Stub::start(|_| Reply::Silence);
    // The timeout is longer than one second, because a circuit opens only if failures last that long. Eight events are
    // sent at once, and the circuit opens when the next eight have failed too.
    let decorated = decorated_once(receiver(&silent, Duration::from_millis(1_100)));
    let ended =
        join_all((0..20).map(|n| ends(decorated.sink.as_ref(), write(&format!("k{n}"), "Ada"))))
            .await;
    let unanswered = ended.iter().filter(|ended| {
        ended
            .as_ref()
            .is_err_and(|(class, _)| *class == ErrorClass::Ambiguous)
    });
    assert_eq!(
        (unanswered.count(), silent.requests().len()),
        (16, 16),
        "{ended:?}"
    );
    assert_eq!(decorated.circuit.open_circuits().len(), 1);
    let withheld = decorated
        .sink
        .write(&people(), &[write("k", "Ada")])
        .await
        .unwrap_err();
    assert_eq!(
        withheld.withheld,
        Some(evenkeel_storage::Withheld::CircuitOpen),
        "{withheld}"
    );
}

#[tokio::test]
async fn a_receiver_that_is_busy_gets_no_more_than_the_events_under_way() {
    use crate::support::stub::{Reply, Stub};
    let busy = Stub::start(|_| Reply::status(503).header("Retry-After", "7").into());
    let decorated = decorated_once(receiver(&busy, Duration::from_secs(10)));
    for ended in
        join_all((0..20).map(|n| ends(decorated.sink.as_ref(), write(&format!("k{n}"), "Ada"))))
            .await
    {
        let (class, text) = ended.unwrap_err();
        assert!(
            matches!(
                class,
                ErrorClass::Throttled {
                    retry_after: Some(_)
                }
            ),
            "{class:?} {text}"
        );
    }
    assert!(
        (1..=8).contains(&busy.requests().len()),
        "{}",
        busy.requests().len()
    );
}

#[tokio::test]
async fn several_events_of_one_write_each_have_their_own_answer() {
    use crate::support::stub::{Reply, Stub};
    let stub = Stub::start(|request| match request.header("webhook-id") {
        Some(id) if id.contains("/k1/") => Reply::status(503).into(),
        _ => Reply::status(204).into(),
    });
    let events = [0, 1, 2].map(|n| write(&format!("k{n}"), "Ada"));
    let bare = receiver(&stub, Duration::from_secs(10));
    for sink in [Arc::clone(&bare), decorated_once(bare).sink] {
        let ended = sink
            .write(&people(), &events)
            .await
            .unwrap()
            .into_iter()
            .map(|ended| ended.map_err(|error| error.class));
        assert_eq!(
            ended.collect::<Vec<_>>(),
            [
                Ok(()),
                Err(ErrorClass::Throttled { retry_after: None }),
                Ok(())
            ]
        );
    }
}

#[tokio::test]
async fn an_event_that_the_receiver_did_not_wait_for_may_be_repeated_and_has_its_id() {
    use crate::support::stub::{Reply, Stub};
    let impatient = Stub::start(|request| match request.number {
        0 => Reply::status(408).into(),
        1 => Reply::status(425).header("Retry-After", "7").into(),
        _ => Reply::status(204).into(),
    });
    let sink = receiver(&impatient, Duration::from_secs(10));
    for retry_after in [None, Some(Duration::from_secs(7))] {
        assert_eq!(
            ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err().0,
            ErrorClass::Transient { retry_after }
        );
    }
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
    let sent: Vec<_> = impatient
        .requests()
        .iter()
        .map(|request| {
            (
                request.header("webhook-id").unwrap().to_owned(),
                request.body.clone(),
            )
        })
        .collect();
    assert!(
        sent.len() == 3 && sent.iter().all(|one| *one == sent[0]),
        "ids must differ, because a receiver drops repeated ids: {sent:?}"
    );
}

/// The signature that a receiver expects, computed from the published scheme only (HMAC: RFC 2104).
fn signature(key: &str, request: &crate::support::stub::Request) -> String {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use sha2::{Digest as _, Sha256};
    let mut key = STANDARD
        .decode(key.strip_prefix("whsec_").unwrap())
        .unwrap();
    key.resize(64, 0);
    let padded = |with: u8| key.iter().map(|byte| byte ^ with).collect::<Vec<u8>>();
    let head = format!(
        "{}.{}.",
        request.header("webhook-id").unwrap(),
        request.header("webhook-timestamp").unwrap()
    );
    let inner = Sha256::digest([&padded(0x36)[..], head.as_bytes(), &request.body].concat());
    format!(
        "v1,{}",
        STANDARD.encode(Sha256::digest([&padded(0x5c)[..], &inner[..]].concat()))
    )
}

#[tokio::test]
async fn a_secret_file_that_is_replaced_signs_the_next_event_and_one_without_a_key_sends_none() {
    use crate::support::stub::{Reply, Stub};
    const NEXT: &str = "whsec_bmV4dG5leHRuZXh0bmV4dG5leHRuZXh0";
    let stub = Stub::start(|_| Reply::status(204).into());
    let folder = tempfile::tempdir().unwrap();
    let read: evenkeel_model::settings::ReadSecret = |path| {
        std::fs::read_to_string(path)
            .map(SecretString::from)
            .map_err(|error| format!("the file {} cannot be read: {error}", path.display()))
    };
    let path = folder.path().join("secret");
    let replace = |text: &str| std::fs::write(&path, text).unwrap();
    replace(WEBHOOK_KEY);
    let file = Some(evenkeel_model::settings::SecretFile {
        path: path.clone(),
        read,
    });
    let secret = ConfiguredSecret {
        file,
        ..ConfiguredSecret::fixed("secret_file", SecretString::from(WEBHOOK_KEY))
    };
    let sink = receiver_by(&stub, secret, Duration::from_secs(10));
    let sent = async |key: &str| {
        assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
        let requests = stub.requests();
        let request = requests.last().unwrap();
        assert_eq!(
            request.header("webhook-signature"),
            Some(signature(key, request).as_str())
        );
    };
    sent(WEBHOOK_KEY).await;
    replace(NEXT);
    sent(NEXT).await;

    // With an invalid key nothing is sent. The error is not permanent, because an operator can fix the file, so no job is poisoned.
    let before = stub.requests().len();
    for (text, expected) in [
        ("whsec_topsecret", "expected whsec_ and the Base64"),
        ("", "expected whsec_ and the Base64"),
    ] {
        replace(text);
        let (class, message) = ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err();
        assert!(
            class == ErrorClass::Unauthorised
                && message.contains("secret_file: ")
                && message.contains(expected),
            "{message}"
        );
        assert!(!message.contains("topsecret"), "{message}");
    }
    std::fs::remove_file(&path).unwrap();
    let (class, message) = ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err();
    assert!(
        class == ErrorClass::Unauthorised && message.contains("cannot be read"),
        "{message}"
    );
    assert_eq!(stub.requests().len(), before);
    replace(WEBHOOK_KEY);
    sent(WEBHOOK_KEY).await;
}
