//! Documents that many primaries share, and who writes them.

use std::time::Duration;

use evenkeel::ports::{Condition, TableOperation};
use evenkeel::reconcile::{Execute, Work};
use futures::future::join_all;
use futures::poll;

use serde_json::json;

use crate::oracle;
use crate::world::{Disturbance, Lab, employee, job, sync, table};

#[tokio::test]
async fn who_waits_for_a_list_rides_along_in_its_next_write() {
    const PEOPLE: u64 = 40;
    let lab = Lab::new();
    for n in 0..PEOPLE {
        lab.write(employee(&format!("{n}"), "", "King")).await;
    }
    lab.weather.take_turns();
    let jobs: Vec<_> = (0..PEOPLE).map(|n| sync("Sales", &n.to_string())).collect();
    for result in join_all(jobs.iter().map(|job| lab.work(job))).await {
        result.unwrap();
    }
    let writes = lab.weather.writes_to("Lists");
    assert!(writes < PEOPLE / 4, "{writes} writes of one list for {PEOPLE} employees");
    let list = lab.read("Lists", "list_King", "list").await.unwrap();
    assert_eq!(list.entity.get("ek_count"), Some(&40_i64.into()));
    oracle::check(&lab, "forty at once").await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_writer_that_stops_is_served_all_the_same() {
    let mut waited = 0;
    for at in 1.. {
        let lab = Lab::new();
        lab.write(employee("1", "", "King")).await;
        lab.write(employee("2", "", "King")).await;
        lab.weather.arm(at, Disturbance::Crash);
        let (work, delivery) = (Work::Job(sync("Sales", "1")), lab.delivery());
        let mut stops = Box::pin(lab.engine.execute(&work, &delivery));
        tokio::select! {
            biased;
            () = lab.weather.crash() => {}
            done = &mut stops => {
                done.unwrap();
                assert!(waited > 0, "nobody ever waited");
                return;
            }
        }
        lab.weather.calm();
        let job = sync("Sales", "2");
        let mut waits = Box::pin(lab.work(&job));
        if poll!(&mut waits).is_pending() {
            waited += 1;
            drop(stops);
            tokio::time::timeout(Duration::from_mins(1), waits).await.expect("served").unwrap();
        }
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.finish().await;
        oracle::check(&lab, &format!("the writer stops at operation {at}")).await;
    }
}

#[tokio::test]
async fn a_list_that_was_edited_into_nonsense_is_left_alone_and_mended_by_its_members() {
    let lab = Lab::new();
    for n in ["1", "2"] {
        lab.write(employee(n, "", "King")).await;
        lab.work(&sync("Sales", n)).await.unwrap();
    }
    let lists = table("Lists");
    let broken = lab.read("Lists", "list_King", "list").await.unwrap().entity.with("Employees", "1;2");
    lab.account.tables.apply(&lists, &TableOperation::Replace(broken.clone(), Condition::Any)).await.unwrap();

    lab.write(employee("3", "", "King")).await;
    let failure = lab.work(&sync("Sales", "3")).await.unwrap_err();
    let error = failure.chain();
    assert!(error.contains("Lists(\"list_King\", \"list\")") && error.contains("edited by hand"), "{error}");
    assert_eq!(lab.read("Lists", "list_King", "list").await.unwrap().entity.text("Employees"), Some("1;2"));

    lab.account.tables.apply(&lists, &TableOperation::Delete(broken.key, Condition::Any)).await.unwrap();
    for n in ["1", "2", "3"] {
        let thorough = json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": n, "thorough": true});
        lab.work(&job(&thorough)).await.unwrap();
    }
    lab.finish().await;
    oracle::check(&lab, "a list was mended").await;
}

#[tokio::test]
async fn a_thorough_sync_mends_what_somebody_else_deleted_and_writes_nothing_where_all_is_well() {
    let lab = Lab::new();
    lab.write(employee("1", "ada@contoso.com", "King")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    for (name, pk, rk) in [("ByEmail", "email_Sales", "ada@contoso.com"), ("Lists", "list_King", "list")] {
        let key = lab.read(name, pk, rk).await.unwrap().entity.key;
        lab.account.tables.apply(&table(name), &TableOperation::Delete(key, Condition::Any)).await.unwrap();
    }
    let thorough = job(&json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "1", "thorough": true}));
    lab.work(&thorough).await.unwrap();
    oracle::check(&lab, "mended").await;
    let before = lab.read("ByEmail", "email_Sales", "ada@contoso.com").await.unwrap().etag;
    lab.work(&thorough).await.unwrap();
    assert_eq!(lab.read("ByEmail", "email_Sales", "ada@contoso.com").await.unwrap().etag, before);
}
