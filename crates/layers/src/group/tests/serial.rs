//! Concurrent operations are linearisable: executed one by one in some order, they would have the same results. In this order,
//! each operation takes effect between its call and its answer.
//!
//! Rows are independent, so an order is searched for each row alone. The search tries all orders.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::join_all;
use proptest::prelude::*;
use tokio::time::{sleep, timeout};

use super::stage::{Stage, key, table};
use evenkeel_account::FaultDecision;
use evenkeel_model::{ETag, EdmValue, Entity, Key, Row};
use evenkeel_storage::{ErrorClass, IfMatch, Missing, StoreError, TableOperation};

const ROWS: u8 = 4;

#[derive(Debug, Clone)]
struct CallerOp {
    verb: Verb,
    row: u8,
    version: Version,
    /// Pause before the operation, in milliseconds.
    pause: u64,
    /// Time that its caller waits, in milliseconds.
    timeout: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Insert,
    Upsert,
    Replace,
    Delete,
    Read,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    Any,
    /// The last ETag that this caller knows.
    Known,
}

#[derive(Debug, Clone)]
struct Event {
    verb: Verb,
    at: Option<String>,
    value: i32,
    called: u64,
    /// `None` if it may still take effect.
    answered: Option<u64>,
    outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq)]
enum Outcome {
    Wrote(String),
    Deleted,
    Found(Option<(String, i32)>),
    Refused(ErrorClass),
    /// It may have taken effect, or may still do so.
    Unknown,
    Nothing,
}

fn ops() -> impl Strategy<Value = Vec<Vec<CallerOp>>> {
    let verb = prop_oneof![3 => Just(Verb::Insert), 1 => Just(Verb::Upsert), 3 => Just(Verb::Replace), 2 => Just(Verb::Delete), 3 => Just(Verb::Read)];
    let version = prop_oneof![1 => Just(Version::Any), 3 => Just(Version::Known)];
    let timeout = prop_oneof![9 => Just(60_000_u64), 1 => 0..15_u64];
    let pause = prop_oneof![3 => Just(0_u64), 1 => 0..12_u64];
    let op = (verb, 0..ROWS, version, pause, timeout).prop_map(
        |(verb, row, version, pause, timeout)| CallerOp {
            verb,
            row,
            version,
            pause,
            timeout,
        },
    );
    prop::collection::vec(prop::collection::vec(op, 1..4), 2..8)
}

fn faults() -> impl Strategy<Value = Vec<FaultDecision>> {
    let late = (0..20_u64).prop_map(|ms| FaultDecision::AnswerLate {
        answers: Duration::from_millis(ms),
        timeout: Duration::from_mins(1),
    });
    let slow = (0..20_u64).prop_map(|ms| FaultDecision::Delayed {
        arrives: Duration::from_millis(ms),
        timeout: Duration::from_millis(15),
    });
    let verdict = prop_oneof![
        8 => late,
        2 => slow,
        1 => Just(FaultDecision::LoseAnswer),
        1 => Just(FaultDecision::ArriveLater(2)),
        1 => Just(FaultDecision::Fail(ErrorClass::Throttled { retry_after: None })),
        1 => Just(FaultDecision::Fail(ErrorClass::Refused)),
    ];
    prop::collection::vec(verdict, 1..12)
}

fn value_of(row: &Row) -> i32 {
    match row.entity.get("V") {
        Some(EdmValue::Int32(value)) => *value,
        other => panic!("{other:?}"),
    }
}

fn found(row: Option<&Row>) -> Outcome {
    Outcome::Found(row.map(|row| (row.etag.to_string(), value_of(row))))
}

fn outcome_of<T>(result: Result<T, StoreError>, done: impl FnOnce(T) -> Outcome) -> Outcome {
    match result {
        Ok(value) => done(value),
        Err(error) => match error.class {
            ErrorClass::Ambiguous => Outcome::Unknown,
            ErrorClass::Throttled { .. } | ErrorClass::Refused => Outcome::Nothing,
            class => Outcome::Refused(class),
        },
    }
}

/// Runs callers concurrently. Returns the events of each row, and the size of the largest transaction.
async fn run(
    callers: &[Vec<CallerOp>],
    faults: Vec<FaultDecision>,
) -> (BTreeMap<u8, Vec<Event>>, usize) {
    let turn = AtomicUsize::new(0);
    let stage =
        Stage::with(move |_| faults[turn.fetch_add(1, Ordering::Relaxed) % faults.len()]).await;
    let (tick, values) = (AtomicU64::new(0), AtomicU64::new(0));
    let now = || tick.fetch_add(1, Ordering::Relaxed);
    let events = Mutex::new(BTreeMap::<u8, Vec<Event>>::new());
    let caller = |ops: &[CallerOp]| {
        let (stage, events, now, values, ops) = (&stage, &events, &now, &values, ops.to_vec());
        async move {
            let mut known = BTreeMap::<u8, ETag>::new();
            for op in ops {
                sleep(Duration::from_millis(op.pause)).await;
                let rk = op.row.to_string();
                let value = i32::try_from(values.fetch_add(1, Ordering::Relaxed)).unwrap();
                let entity = Entity::new(key(&rk)).with("V", value);
                let etag = known
                    .get(&op.row)
                    .filter(|_| op.version == Version::Known)
                    .cloned();
                let at = etag
                    .as_ref()
                    .filter(|_| matches!(op.verb, Verb::Replace | Verb::Delete))
                    .map(ToString::to_string);
                let condition = etag.map_or(IfMatch::Any, IfMatch::Matches);
                let operation = match op.verb {
                    Verb::Insert | Verb::Read => TableOperation::Insert(entity),
                    Verb::Upsert => TableOperation::InsertOrReplace(entity),
                    Verb::Replace => TableOperation::Replace(entity, condition),
                    Verb::Delete => TableOperation::Delete(key(&rk), condition),
                };
                let called = now();
                let outcome = timeout(Duration::from_millis(op.timeout), async {
                    if op.verb == Verb::Read {
                        outcome_of(stage.get(&rk).await, |row| found(row.as_ref()))
                    } else {
                        outcome_of(stage.apply(operation).await, |etag| {
                            etag.map_or(Outcome::Deleted, |etag| Outcome::Wrote(etag.to_string()))
                        })
                    }
                });
                let outcome = outcome.await.unwrap_or(Outcome::Unknown);
                if let Outcome::Wrote(etag) | Outcome::Found(Some((etag, _))) = &outcome {
                    known.insert(op.row, ETag::new(etag.as_str()).unwrap());
                }
                let answered = (outcome != Outcome::Unknown).then(now);
                let event = Event {
                    verb: op.verb,
                    at,
                    value,
                    called,
                    answered,
                    outcome,
                };
                events
                    .lock()
                    .unwrap()
                    .entry(op.row)
                    .or_default()
                    .push(event);
            }
        }
    };
    join_all(callers.iter().map(|ops| caller(ops))).await;
    // Late requests arrive before every row is read.
    sleep(Duration::from_mins(2)).await;
    stage.world.settle();
    let rows: BTreeMap<Key, Row> = stage
        .world
        .rows(&table())
        .into_iter()
        .map(|row| (row.entity.key.rk.clone(), row))
        .collect();
    let mut events = events.into_inner().unwrap();
    for (row, events) in &mut events {
        let outcome = found(rows.get(&Key::new(row.to_string()).unwrap()));
        events.push(Event {
            verb: Verb::Read,
            at: None,
            value: 0,
            called: now(),
            answered: Some(now()),
            outcome,
        });
    }
    assert_eq!(stage.tables.queues_in_use(), 0);
    let largest = stage
        .sent()
        .iter()
        .filter_map(|sent| sent.strip_prefix("Transaction of ")?.parse().ok())
        .max();
    (events, largest.unwrap_or(1))
}

/// State of a row: its ETag, or `None` if no caller knows it, and its value.
type State = Option<(Option<String>, i32)>;

/// The state of the row after this event, or `None` if its outcome is impossible in this state.
fn after(event: &Event, state: &State) -> Option<State> {
    let at_etag = |row: &(Option<String>, i32)| match (&event.at, &row.0) {
        // No caller knows the ETag of the row, so no caller can use it.
        (Some(_), None) => false,
        (Some(wanted), Some(etag)) => wanted == etag,
        (None, _) => true,
    };
    let refusal = match (event.verb, state) {
        (Verb::Insert, Some(_)) => Some(ErrorClass::Conflict),
        (Verb::Replace | Verb::Delete, None) => Some(ErrorClass::NotFound(Missing::Item)),
        (Verb::Replace | Verb::Delete, Some(row)) if !at_etag(row) => {
            Some(ErrorClass::Precondition)
        }
        _ => None,
    };
    match (&event.outcome, refusal) {
        (Outcome::Refused(class), refusal) => (refusal == Some(*class)).then(|| state.clone()),
        (_, Some(_)) => None,
        (Outcome::Wrote(etag), None) => Some(Some((Some(etag.clone()), event.value))),
        (Outcome::Deleted, None) => Some(None),
        (Outcome::Found(None), None) => state.is_none().then_some(None),
        (Outcome::Found(Some((etag, value))), None) => match state {
            Some((known, there))
                if there == value && known.as_ref().is_none_or(|known| known == etag) =>
            {
                Some(Some((Some(etag.clone()), *value)))
            }
            _ => None,
        },
        (Outcome::Unknown, None) => Some(match event.verb {
            Verb::Delete => None,
            Verb::Read => state.clone(),
            Verb::Insert | Verb::Upsert | Verb::Replace => Some((None, event.value)),
        }),
        (Outcome::Nothing, None) => Some(state.clone()),
    }
}

/// Whether some order of the remaining events explains them, starting from this state.
fn explained(events: &[Event], done: u64, state: &State) -> bool {
    let left = |at: usize| done & (1 << at) == 0;
    if (0..events.len()).all(|at| !left(at)) {
        return true;
    }
    let may_be_next = |at: usize| {
        (0..events.len())
            .filter(|other| left(*other) && *other != at)
            .all(|other| {
                events[other]
                    .answered
                    .is_none_or(|answered| answered > events[at].called)
            })
    };
    (0..events.len())
        .filter(|at| left(*at) && may_be_next(*at))
        .any(|at| {
            let event = &events[at];
            let now = done | (1 << at);
            let never = matches!(event.outcome, Outcome::Unknown | Outcome::Nothing)
                && explained(events, now, state);
            never
                || (event.outcome != Outcome::Nothing
                    && after(event, state).is_some_and(|state| explained(events, now, &state)))
        })
}

fn in_virtual_time<T>(run: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(run)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn concurrent_operations_are_linearisable(callers in ops(), faults in faults()) {
        let (rows, _) = in_virtual_time(run(&callers, faults));
        for (row, events) in rows {
            prop_assert!(explained(&events, 0, &None), "the row {} cannot have gone through this: {:#?}", row, events);
        }
    }
}

#[test]
fn the_search_rejects_impossible_histories() {
    let event = |verb, value, called, answered, outcome| Event {
        verb,
        at: None,
        value,
        called,
        answered: Some(answered),
        outcome,
    };
    let wrote = |etag: &str| Outcome::Wrote(etag.to_owned());
    let insert = event(Verb::Insert, 1, 0, 3, wrote("1"));
    let side_by_side = event(Verb::Read, 0, 1, 2, Outcome::Found(None));
    let afterwards = event(Verb::Read, 0, 4, 5, Outcome::Found(None));
    assert!(explained(&[insert.clone(), side_by_side], 0, &None));
    assert!(
        !explained(&[insert.clone(), afterwards], 0, &None),
        "a read misses a row whose insert was answered before the read"
    );
    let again = event(Verb::Insert, 2, 4, 5, wrote("2"));
    assert!(
        !explained(&[insert, again], 0, &None),
        "an insert succeeds although the row exists"
    );
}

#[test]
fn concurrent_callers_share_transactions() {
    let insert = |row| {
        vec![CallerOp {
            verb: Verb::Insert,
            row,
            version: Version::Any,
            pause: 0,
            timeout: 60_000,
        }]
    };
    let callers: Vec<_> = (0..ROWS).map(insert).collect();
    let (_, largest) = in_virtual_time(run(&callers, vec![FaultDecision::Execute]));
    assert_eq!(largest, 4);
}
