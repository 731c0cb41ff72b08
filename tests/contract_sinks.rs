//! The contract of sinks: on a simulated store, on a search service behind its REST API (a stub on loopback), and on both with
//! the decorator stack of production.
#![expect(clippy::unwrap_used, reason = "a rule that meets an unexpected error has failed")]

use std::sync::Arc;
use std::time::Duration;

use evenkeel::adapters::search;
use evenkeel::adapters::sim::{FaultPolicy, NoFaults, SimWorld};
use evenkeel::adapters::stack::decorate_sink;
use evenkeel::adapters::system::{SeededChance, SystemClock};
use evenkeel::model::{AccountName, CollectionName, DocumentKey, SinkDocument};
use evenkeel::ports::{Chance, Clock, DocumentWrite, ErrorClass, Sink};
use evenkeel::settings::{Backoff, ConfiguredSecret, RetryPolicy, SecretPair, SinkAuth};
use futures::future::join_all;
use secrecy::SecretString;
use serde_json::json;

mod support;

use evenkeel_conformance::sinks::{FIELDS, Shelf};
use support::gusty::Gusty;
use support::search::{SearchStub, Trouble};

fn name() -> AccountName {
    AccountName::new("catalog").unwrap()
}

fn world(faults: impl FaultPolicy + 'static) -> SimWorld {
    let world = SimWorld::new(name(), Arc::new(SystemClock::new()), Arc::new(faults));
    world.create_collection(&CollectionName::new("people").unwrap(), &FIELDS.map(|(name, _)| name));
    world
}

fn stub() -> SearchStub {
    let stub = SearchStub::start();
    stub.create("people", &FIELDS);
    stub
}

/// As the program uses it. Retries wait for nothing, since no test does.
fn decorated(bare: Arc<dyn Sink>) -> Arc<dyn Sink> {
    let at_once = Backoff { min: Duration::ZERO, base: Duration::ZERO, max: Duration::from_mins(1) };
    let chance: Arc<dyn Chance> = Arc::new(SeededChance::new(20_261_120));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    decorate_sink(&name(), bare, RetryPolicy { backoff: at_once, attempts: 40 }, &clock, &chance).sink
}

fn simulated() -> Shelf {
    Shelf { sink: world(NoFaults).sink(), keep: Box::new(()) }
}

fn gusty() -> Shelf {
    Shelf { sink: decorated(world(Gusty).sink()), keep: Box::new(()) }
}

fn searched() -> Shelf {
    let stub = stub();
    Shelf { sink: search::connect(stub.service(&name())).unwrap(), keep: Box::new(stub) }
}

fn searched_worn() -> Shelf {
    let stub = stub();
    Shelf { sink: decorated(search::connect(stub.service(&name())).unwrap()), keep: Box::new(stub) }
}

mod sim {
    evenkeel_conformance::sinks_suite!(crate::simulated());
}

mod sim_decorated {
    evenkeel_conformance::sinks_suite!(crate::gusty());
}

mod service {
    evenkeel_conformance::sinks_suite!(crate::searched());
}

mod service_decorated {
    evenkeel_conformance::sinks_suite!(crate::searched_worn());
}

fn write(key: &str, name: &str) -> DocumentWrite {
    let fields = serde_json::from_value(json!({"name": name})).unwrap();
    DocumentWrite { key: DocumentKey::new(key).unwrap(), document: Some(SinkDocument(fields)) }
}

/// How a write of one document ended.
async fn ends(sink: &dyn Sink, write: DocumentWrite) -> Result<(), (ErrorClass, String)> {
    let people = CollectionName::new("people").unwrap();
    let ended = sink.write(&people, &[write]).await.and_then(|written| written.into_iter().next().unwrap());
    ended.map_err(|error| (error.class, error.to_string()))
}

#[tokio::test]
async fn what_the_service_answers_is_what_may_be_done_about_it() {
    let stub = stub();
    let sink = search::connect(stub.service(&name())).unwrap();
    let throttled = ErrorClass::Throttled { retry_after: Some(Duration::from_secs(7)) };
    let troubles = [
        (Trouble::Refused(503, Some(7)), throttled),
        (Trouble::Refused(429, Some(7)), throttled),
        (Trouble::Refused(403, None), ErrorClass::Unauthorised),
        (Trouble::Refused(500, None), ErrorClass::Ambiguous),
        (Trouble::LoseAnswer, ErrorClass::Ambiguous),
        (Trouble::Document("Ada", 400), ErrorClass::Permanent),
        (Trouble::Document("Ada", 409), ErrorClass::Transient { retry_after: None }),
        (Trouble::Document("Ada", 503), ErrorClass::Throttled { retry_after: None }),
    ];
    for (trouble, wanted) in troubles {
        stub.trouble([trouble.clone()]);
        let (class, text) = ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err();
        assert_eq!(class, wanted, "{trouble:?}: {text}");
        assert!(text.contains("index people") && text.contains("sink catalog"), "{text}");
    }
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
}

#[tokio::test]
async fn a_wrong_key_is_refused_and_told_to_nobody() {
    let stub = stub();
    let mut service = stub.service(&name());
    service.auth = SinkAuth::Key(SecretString::from("not-the-key").into());
    assert!(!format!("{service:?}").contains("not-the-key"));
    let (class, text) = ends(search::connect(service).unwrap().as_ref(), write("a", "Ada")).await.unwrap_err();
    assert_eq!(class, ErrorClass::Unauthorised);
    assert!(text.contains("admin key") && !text.contains("not-the-key"), "{text}");
}

#[tokio::test]
async fn a_refused_admin_key_gives_way_to_the_second_one_which_stays_in_use() {
    let stub = stub();
    let mut service = stub.service(&name());
    let SinkAuth::Key(right) = &service.auth else { unreachable!() };
    let first = ConfiguredSecret::fixed("key", SecretString::from("a-regenerated-key"));
    service.auth = SinkAuth::Key(SecretPair { first, second: Some(Box::new(right.first.clone())) });
    let sink = search::connect(service).unwrap();
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await, Ok(()));
    assert_eq!(ends(sink.as_ref(), write("a", "Byron")).await, Ok(()));
    let keys = stub.requests().iter().map(|request| request.header("api-key") == Some("a-regenerated-key")).collect::<Vec<_>>();
    assert_eq!(keys, [true, false, false]);
}

#[tokio::test]
async fn a_write_without_an_answer_is_not_repeated_and_one_that_was_put_off_is() {
    let stub = stub();
    let sink = decorated(search::connect(stub.service(&name())).unwrap());
    stub.trouble([Trouble::LoseAnswer]);
    assert_eq!(ends(sink.as_ref(), write("a", "Ada")).await.unwrap_err().0, ErrorClass::Ambiguous);
    assert_eq!(stub.requests().len(), 1);
    stub.trouble([Trouble::Refused(503, None), Trouble::Refused(429, None)]);
    assert_eq!(ends(sink.as_ref(), write("a", "Byron")).await, Ok(()));
    assert_eq!(stub.requests().len(), 4);
}

#[tokio::test]
async fn what_is_written_meanwhile_goes_together_and_each_document_once() {
    let stub = stub();
    let sink = decorated(search::connect(stub.service(&name())).unwrap());
    let writes: Vec<DocumentWrite> = (0..100).map(|n| write(&format!("k{n}"), "Ada")).collect();
    for ended in join_all(writes.into_iter().map(|write| ends(sink.as_ref(), write))).await {
        assert_eq!(ended, Ok(()));
    }
    assert_eq!(stub.documents("people").len(), 100);
    assert_eq!(stub.requests().len(), 2, "the first by itself, the others together");
}

#[tokio::test]
async fn who_is_refused_alone_stands_alone_and_a_lost_answer_is_everybodys() {
    let stub = stub();
    let sink = decorated(search::connect(stub.service(&name())).unwrap());
    let bad = SinkDocument(serde_json::from_value(json!({"nonsense": 1})).unwrap());
    let writes = (0..9).map(|n| match n {
        5 => DocumentWrite { key: DocumentKey::new("k5").unwrap(), document: Some(bad.clone()) },
        _ => write(&format!("k{n}"), "Ada"),
    });
    let ended = join_all(writes.map(|write| ends(sink.as_ref(), write))).await;
    for (n, ended) in ended.into_iter().enumerate() {
        assert_eq!(ended.map_err(|(class, _)| class), if n == 5 { Err(ErrorClass::Permanent) } else { Ok(()) }, "{n}");
    }
    assert_eq!(stub.documents("people").len(), 8);

    stub.trouble([Trouble::LoseAnswer, Trouble::LoseAnswer]);
    for ended in join_all((0..3).map(|n| ends(sink.as_ref(), write(&format!("k{n}"), "Byron")))).await {
        assert_eq!(ended.unwrap_err().0, ErrorClass::Ambiguous);
    }
    assert_eq!(stub.documents("people")["k2"]["name"], "Byron");
}
