//! Tests of jobs that save their progress in their message.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::poison::Reason;
use crate::testing::{JOBS, World, done, transient};
use evenkeel_engine::{Failure, Outcome, Summary, Work};
use evenkeel_model::Job;
use evenkeel_model::backfill::BackfillCursor;
use evenkeel_model::job;

const BACKFILL: &str = r#"{"op":"backfill","table":"Employees","id":"mine"}"#;

fn cursor(work: &Work) -> BackfillCursor {
    match work {
        Work::Job(Job::Backfill(backfill)) => backfill.cursor.clone(),
        other => panic!("{other:?} is no backfill"),
    }
}

/// The outcome of a run that has done the next part.
#[expect(clippy::unnecessary_wraps, reason = "a script's answer")]
fn advanced(from: &BackfillCursor) -> Result<Outcome, Failure> {
    let cursor = BackfillCursor {
        done: from.done + 1,
        ..from.clone()
    };
    let fields = Map::from_iter([(
        "cursor".to_owned(),
        serde_json::to_value(cursor).unwrap_or(Value::Null),
    )]);
    Ok(Outcome::Advanced {
        fields,
        summary: Summary::default(),
    })
}

#[tokio::test(start_paused = true)]
async fn each_delivery_goes_on_where_the_one_before_ended_and_none_counts() {
    let world = World::new();
    world.queues.seed(JOBS, BACKFILL, None);
    world.script(|number, work, _| {
        let from = cursor(work);
        async move {
            assert_eq!(from.done, number as u64);
            if from.done == 40 {
                done()
            } else {
                advanced(&from)
            }
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.released, report.poisoned), (1, 40, 0));
}

#[tokio::test(start_paused = true)]
async fn the_fields_of_a_part_are_in_its_message_beside_those_that_it_came_with() {
    let world = World::new();
    let id = world.queues.seed(JOBS, BACKFILL, None);
    world.script(|number, work, _| {
        let from = cursor(work);
        async move {
            if number > 0 {
                std::future::pending::<()>().await;
            }
            advanced(&from)
        }
    });
    world.crash_after(Duration::from_secs(1)).await;
    let message = world.queues.messages(JOBS).remove(0);
    let object = job::decode_object(&message.text).unwrap();
    assert_eq!((message.id, &object["id"]), (id, &Value::from("mine")));
    assert_eq!(object["cursor"]["done"], 1, "{object:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_advances_is_not_given_up_for_its_age_and_one_that_stands_still_is() {
    let world = World::new();
    world.queues.seed(JOBS, BACKFILL, None);
    // Each run takes nine minutes, and every other run fails. The first hundred parts take some
    // thirty hours, which exceeds `give_up_after` (6 h), but each failure is followed by progress.
    world.script(|number, work, _| {
        let from = cursor(work);
        async move {
            tokio::time::sleep(Duration::from_mins(9)).await;
            match from.done {
                100 => transient(),
                _ if number % 2 == 0 => transient(),
                _ => advanced(&from),
            }
        }
    });
    let report = world.until_idle().await.unwrap();
    assert_eq!((report.done, report.poisoned), (0, 1));
    let entry = world.poisoned().await.remove(0).message;
    assert_eq!(entry.reason, Reason::Exhausted);
    assert!(entry.error.contains(" failures in 2"), "{}", entry.error);
    assert!(
        entry.body.is_some_and(|body| body.contains("\"done\":100")),
        "the progress is kept"
    );
}
