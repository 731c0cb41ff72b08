//! Rows that many primaries share, and races between their writers.

use std::time::Duration;

use evenkeel_engine::{Execute, Work};
use evenkeel_model::{Entity, EntityKey};
use evenkeel_storage::{IfMatch, TableOperation};
use futures::future::join_all;
use futures::poll;

use serde_json::json;

use crate::protocol::oracle;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, employee, job, sync, table};

#[tokio::test]
async fn who_waits_for_a_list_rides_along_in_its_next_write() {
    const PEOPLE: u64 = 40;
    let lab = Lab::new();
    for n in 0..PEOPLE {
        lab.write(employee(&format!("{n}"), "", "King")).await;
    }
    lab.faults.take_turns();
    let jobs: Vec<_> = (0..PEOPLE).map(|n| sync("Sales", &n.to_string())).collect();
    for result in join_all(jobs.iter().map(|job| lab.work(job))).await {
        result.unwrap();
    }
    let writes = lab.faults.writes_to("Lists");
    assert!(
        writes < PEOPLE / 4,
        "{writes} writes of one list for {PEOPLE} employees"
    );
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
        lab.faults.arm(at, Disturbance::Crash);
        let (work, delivery) = (Work::Job(sync("Sales", "1")), lab.delivery());
        let mut stops = Box::pin(lab.engine.execute(&work, &delivery));
        tokio::select! {
            biased;
            () = lab.faults.crash() => {}
            done = &mut stops => {
                done.unwrap();
                assert!(waited > 0, "some job must have waited");
                return;
            }
        }
        lab.faults.calm();
        let job = sync("Sales", "2");
        let mut waits = Box::pin(lab.work(&job));
        if poll!(&mut waits).is_pending() {
            waited += 1;
            drop(stops);
            tokio::time::timeout(Duration::from_mins(1), waits)
                .await
                .expect("served")
                .unwrap();
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
    let broken = lab
        .read("Lists", "list_King", "list")
        .await
        .unwrap()
        .entity
        .with("Employees", "1;2");
    lab.account
        .tables
        .apply(
            &lists,
            &TableOperation::Replace(broken.clone(), IfMatch::Any),
        )
        .await
        .unwrap();

    lab.write(employee("3", "", "King")).await;
    let failure = lab.work(&sync("Sales", "3")).await.unwrap_err();
    let error = failure.chain();
    assert!(
        error.contains("Lists(\"list_King\", \"list\")")
            && error.contains("is not as evenkeel writes it"),
        "{error}"
    );
    assert_eq!(
        lab.read("Lists", "list_King", "list")
            .await
            .unwrap()
            .entity
            .text("Employees"),
        Some("1;2")
    );

    lab.account
        .tables
        .apply(&lists, &TableOperation::Delete(broken.key, IfMatch::Any))
        .await
        .unwrap();
    for n in ["1", "2", "3"] {
        let thorough =
            json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": n, "thorough": true});
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
    for (name, pk, rk) in [
        ("ByEmail", "email_Sales", "ada@contoso.com"),
        ("Lists", "list_King", "list"),
    ] {
        let key = lab.read(name, pk, rk).await.unwrap().entity.key;
        lab.account
            .tables
            .apply(&table(name), &TableOperation::Delete(key, IfMatch::Any))
            .await
            .unwrap();
    }
    let thorough = job(
        &json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "1", "thorough": true}),
    );
    lab.work(&thorough).await.unwrap();
    oracle::check(&lab, "mended").await;
    let before = lab
        .read("ByEmail", "email_Sales", "ada@contoso.com")
        .await
        .unwrap()
        .etag;
    lab.work(&thorough).await.unwrap();
    assert_eq!(
        lab.read("ByEmail", "email_Sales", "ada@contoso.com")
            .await
            .unwrap()
            .etag,
        before
    );
}

const THREE_VIEWS: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Employees]
"#;

async fn a_row_that_is_nearly_full() -> Lab {
    let views = ["Assistant", "Manager", "Deputy"].map(|title| {
        format!(
            r#"
[views.{title}]
kind = "denormalize"
source = "Employees"
when = 'Title == "{title}"'
table = "Departments"
partition_key = "{{PartitionKey}}"
row_key = "full"
set = {{ {title}Name = "{{FirstName}}" }}
"#
        )
    });
    let lab = Lab::with(SMALL, declared(&format!("{THREE_VIEWS}{}", views.concat())));
    // Each property that the view sets takes two of the 252 properties of a row, the second for the mark of its owner.
    let row = (0..247).fold(
        Entity::new(EntityKey::new("Sales", "full").unwrap()),
        |row, n| row.with(format!("Own{n}"), n),
    );
    lab.account
        .tables
        .apply(&table("Departments"), &TableOperation::Insert(row))
        .await
        .unwrap();
    for title in ["Assistant", "Manager", "Deputy"] {
        lab.write(employee(title, "", "King").with("Title", title))
            .await;
    }
    lab
}

#[tokio::test]
async fn a_change_that_breaks_a_limit_fails_alone_of_those_that_travel_with_it() {
    let lab = a_row_that_is_nearly_full().await;
    lab.faults.take_turns();
    let jobs = ["Assistant", "Manager", "Deputy"].map(|title| sync("Sales", title));
    let ended = join_all(jobs.iter().map(|job| lab.work(job))).await;
    let refused: Vec<String> = ended
        .into_iter()
        .filter_map(Result::err)
        .map(|failure| failure.chain())
        .collect();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains("252"), "{refused:?}");
    let row = lab
        .read("Departments", "Sales", "full")
        .await
        .unwrap()
        .entity;
    assert_eq!(
        row.properties
            .keys()
            .filter(|name| name.ends_with("Name"))
            .count(),
        2
    );

    let mut roomy = row;
    roomy.properties.remove("Own0");
    roomy.properties.remove("Own1");
    lab.account
        .tables
        .apply(
            &table("Departments"),
            &TableOperation::Replace(roomy, IfMatch::Any),
        )
        .await
        .unwrap();
    for job in &jobs {
        lab.work(job).await.unwrap();
    }
    let row = lab
        .read("Departments", "Sales", "full")
        .await
        .unwrap()
        .entity;
    assert_eq!(
        row.properties
            .keys()
            .filter(|name| name.ends_with("Name"))
            .count(),
        3
    );
}
