//! A propagation is the queued job that sets the properties of a department on the people in its range. These tests have ranges
//! in which a propagation cannot set all properties: two departments with the same people, a person whose row is full, a retired
//! view.

use evenkeel_engine::{Failure, FailureClass, Outcome};
use evenkeel_model::catalog::{Catalog, Source};
use evenkeel_model::job::Primary;
use evenkeel_model::range_overlay::RANGE_OVERLAYS;
use evenkeel_model::{EdmValue, Entity, EntityKey, Job, ViewName};
use evenkeel_storage::{IfMatch, TableOperation};
use serde_json::json;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job, jobs_of, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Employees]

[views.says]
kind = "denormalize"
targets = "range"
source = "Departments"
table = "Employees"
partition_key = "{PartitionKey}"
row_key_prefix = "e"
set = { Department = "{Name}" }

[views.by_department]
kind = "secondary_index"
source = "Employees"
table = "ByDepartment"
partition_key = "{Department}"
row_key = "{PartitionKey}_{RowKey}"
select = []
"#;
/// Maximum number of properties of an entity, without keys and timestamp.
const MOST_PROPERTIES: usize = 252;

fn key(rk: &str) -> EntityKey {
    EntityKey::new("Sales", rk).unwrap()
}

async fn write(lab: &Lab, name: &str, entity: Entity) {
    lab.account
        .tables
        .apply(&table(name), &TableOperation::InsertOrReplace(entity))
        .await
        .unwrap();
}

fn sync(name: &str, rk: &str) -> Job {
    job(&json!({"op": "sync", "table": name, "pk": "Sales", "rk": rk}))
}

fn propagation(of: &str) -> Job {
    propagation_by("says", of)
}

fn propagation_by(view: &str, of: &str) -> Job {
    job(
        &json!({"op": "propagate", "view": view, "owner": {"pk": "Sales", "rk": of}, "table": "Employees", "pk": "Sales", "from": "e", "before": "f"}),
    )
}

async fn staffed(catalog: Catalog) -> Lab {
    let lab = Lab::with(SMALL, catalog);
    for rk in ["e1", "e2", "e3", "x"] {
        write(&lab, "Employees", Entity::new(key(rk)).with("Email", rk)).await;
        lab.work(&sync("Employees", rk)).await.unwrap();
    }
    lab
}

async fn speaks(lab: &Lab, rk: &str) {
    write(lab, "Departments", Entity::new(key(rk)).with("Name", rk)).await;
    lab.work(&sync("Departments", rk)).await.unwrap();
}

async fn falls_silent(lab: &Lab, rk: &str) {
    lab.delete_row("Departments", "Sales", rk).await;
    lab.work(&sync("Departments", rk)).await.unwrap();
}

/// Removes the queued propagations, because the test runs them itself.
async fn without_queued(lab: &Lab) {
    let queue = lab.delivery().propagation_queue;
    for message in lab
        .account
        .queues
        .get(&queue, 32, std::time::Duration::from_mins(1))
        .await
        .unwrap()
    {
        lab.account
            .queues
            .delete(&queue, &message.id, &message.pop_receipt)
            .await
            .unwrap();
    }
}

/// Checks that everybody in the range has this department's name, that the index has the copies, and that no plan finds anything to do.
async fn all_say(lab: &Lab, department: Option<&str>, story: &str) {
    let people = lab.rows("Employees").await;
    for row in &people {
        let (rk, said) = (row.entity.key.rk.as_str(), row.entity.text("Department"));
        assert_eq!(
            said,
            department.filter(|_| rk.starts_with('e')),
            "{story}: {rk}"
        );
        assert_eq!(
            row.entity.text("Email"),
            Some(rk),
            "{story}: properties of others must remain"
        );
        let plan = lab
            .engine
            .plan(&Primary {
                table: table("Employees"),
                key: row.entity.key.clone(),
            })
            .await
            .unwrap();
        assert!(plan.in_step, "{story}: {plan}");
    }
    let filed: Vec<_> = lab
        .rows("ByDepartment")
        .await
        .iter()
        .map(|row| row.entity.key.pk.to_string())
        .collect();
    let expected = people
        .iter()
        .filter(|row| row.entity.key.rk.as_str().starts_with('e'))
        .filter_map(|_| department);
    assert_eq!(filed, expected.collect::<Vec<_>>(), "{story}");
}

async fn both_speak() -> Lab {
    let lab = staffed(declared(CATALOG)).await;
    speaks(&lab, "a").await;
    lab.do_queued().await;
    speaks(&lab, "b").await;
    without_queued(&lab).await;
    lab
}

#[tokio::test]
async fn the_error_of_a_second_department_names_the_first() {
    let lab = both_speak().await;
    let failure = lab.work(&propagation("b")).await.unwrap_err();
    assert_eq!(failure.class, FailureClass::Permanent);
    let error = failure.chain();
    assert!(
        error.contains("3 entities of") && error.contains(r#"Departments("Sales", "a")"#),
        "{error}"
    );
    assert!(error.contains(r#"Departments("Sales", "b")"#), "{error}");
    all_say(&lab, Some("a"), "the first keeps them").await;
    lab.work(&propagation("a")).await.unwrap();
    falls_silent(&lab, "a").await;
    lab.do_queued().await;
    all_say(&lab, Some("b"), "the second gets what the first has left").await;
    lab.work(&propagation("b")).await.unwrap();
}

fn lists(row: &Entity) -> Vec<(String, Vec<serde_json::Value>)> {
    let texts = row.properties.iter().filter_map(|(name, value)| {
        if let EdmValue::String(text) = value {
            Some((name, text))
        } else {
            None
        }
    });
    texts
        .filter_map(|(name, text)| Some((name.clone(), serde_json::from_str(text).ok()?)))
        .filter(|(name, _)| name != "ek_source")
        .collect()
}

/// A delayed worker writes a former overlay of a department again, after another worker has removed that overlay. So the row lists both overlays, and
/// the department's footprint lists only the present one.
#[tokio::test]
async fn a_range_overlay_that_its_footprint_does_not_list_is_ignored() {
    let lab = staffed(declared(CATALOG)).await;
    let mut said = Vec::new();
    for name in ["Blue", "Red"] {
        write(
            &lab,
            "Departments",
            Entity::new(key("d")).with("Name", name),
        )
        .await;
        lab.work(&sync("Departments", "d")).await.unwrap();
        lab.do_queued().await;
        said.push(lab.rows(RANGE_OVERLAYS).await.remove(0).entity);
    }
    all_say(&lab, Some("Red"), "what it says now").await;
    let [before, mut both]: [Entity; 2] = said.try_into().unwrap();
    for ((name, before), (_, now)) in lists(&before).into_iter().zip(lists(&both)) {
        both = both.with(&name, json!([before, now].concat()).to_string());
    }
    write(&lab, RANGE_OVERLAYS, both.with("ek_count", 2_i64)).await;
    lab.work(&propagation("d")).await.unwrap();
    all_say(&lab, Some("Red"), "it was propagated again").await;
    write(
        &lab,
        "Employees",
        Entity::new(key("e4")).with("Email", "e4"),
    )
    .await;
    lab.work(&sync("Employees", "e4")).await.unwrap();
    all_say(&lab, Some("Red"), "somebody has come").await;
}

/// The transaction of a propagation gets no answer, and then the row of one person is full. The transaction may still arrive, and no other job would
/// check the row after that.
#[tokio::test]
async fn a_full_row_with_an_unanswered_write_is_rechecked() {
    let spoken = async || {
        let lab = staffed(declared(CATALOG)).await;
        speaks(&lab, "d").await;
        without_queued(&lab).await;
        lab
    };
    let lab = spoken().await;
    let operations = lab.operations_of(&propagation("d")).await;
    let transaction = (1..=operations)
        .find(|number| lab.faults.named(*number) == Some("Entity Group Transaction"))
        .unwrap();
    let lab = spoken().await;
    lab.faults.arm(transaction, Disturbance::LoseAnswer);
    lab.faults.arm(transaction + 1, Disturbance::Meddle);
    let other = lab.of_another_worker();
    lab.faults.meddle(Box::pin(async move {
        let full = (0..MOST_PROPERTIES).fold(Entity::new(key("e1")), |full, number| {
            full.with(format!("P{number}"), 1)
        });
        write(&other, "Employees", full).await;
    }));
    lab.work(&propagation("d")).await.unwrap();
    lab.faults.calm();
    let again = lab.rechecks().await;
    assert!(
        again.iter().any(|recheck| recheck.primary.key == key("e1")),
        "{again:?}"
    );
}

#[tokio::test]
async fn deleting_a_department_does_not_disturb_the_propagation_of_another() {
    let operations = {
        let lab = both_speak().await;
        lab.faults.arm(u64::MAX, Disturbance::Crash);
        assert!(lab.deliver(&propagation("b"), 1).await.unwrap().is_err());
        lab.faults.counted()
    };
    for silent in ["a", "b"] {
        for at in 1..=operations {
            let lab = both_speak().await;
            lab.faults.arm(at, Disturbance::Meddle);
            let other = lab.of_another_worker();
            lab.faults
                .meddle(Box::pin(async move { falls_silent(&other, silent).await }));
            let story = format!("{silent} is deleted before operation {at}");
            let ended = lab
                .work(&propagation("b"))
                .await
                .map_err(|failure: Failure| failure.chain());
            assert!(ended.is_ok(), "{story}: {ended:?}");
            lab.faults.calm();
            lab.do_queued().await;
            lab.finish().await;
            all_say(&lab, Some(if silent == "a" { "b" } else { "a" }), &story).await;
        }
    }
}

async fn retired() -> Lab {
    let lab = staffed(declared(CATALOG)).await;
    speaks(&lab, "a").await;
    lab.do_queued().await;
    all_say(&lab, Some("a"), "it was heard").await;
    let mut next = declared(CATALOG);
    let says = next.views.remove(&ViewName::new("says").unwrap()).unwrap();
    next.generations
        .retired
        .insert(says.name.clone(), (1, Source::Table(says.source.clone())));
    lab.under(next)
}

#[tokio::test]
async fn properties_of_a_retired_view_are_cleared_despite_any_disturbance() {
    let lab = retired().await;
    let mut sweep = Sweep::over(lab.operations_of(&propagation("a")).await);
    all_say(&lab, None, "undisturbed").await;
    while let Some(case) = sweep.next() {
        let lab = retired().await;
        case.arm(&lab.faults);
        lab.deliver_until_done(&propagation("a")).await;
        sweep.seen(&lab);
        lab.faults.calm();
        lab.do_queued().await;
        lab.finish().await;
        all_say(&lab, None, &case.to_string()).await;
    }
    assert!(sweep.runs().0 > 50, "only {} runs", sweep.runs().0);
}

/// A new view replaces a retired view with the same properties. The propagation of the new view may run before or after the propagation of the
/// retired one.
#[tokio::test]
async fn properties_of_a_renamed_view_stay_in_any_order_of_propagations() {
    for name in ["names", "tells"] {
        for last in ["says", name] {
            let before = staffed(declared(CATALOG)).await;
            speaks(&before, "a").await;
            before.do_queued().await;
            let mut next = declared(&CATALOG.replace("[views.says]", &format!("[views.{name}]")));
            let source = next.views[&ViewName::new(name).unwrap()].source.clone();
            next.generations
                .retired
                .insert(ViewName::new("says").unwrap(), (1, Source::Table(source)));
            let lab = before.under(next);
            lab.work(&sync("Departments", "a")).await.unwrap();
            without_queued(&lab).await;
            let first = if last == name { "says" } else { name };
            for view in [first, last] {
                lab.work(&propagation_by(view, "a")).await.unwrap();
            }
            let story = format!("{last} is propagated after {first}");
            all_say(&lab, Some("a"), &story).await;
            for row in lab.rows("Employees").await {
                assert_eq!(
                    row.entity.get("ek_owner_says"),
                    None,
                    "{story}: {}",
                    row.entity.key
                );
            }
        }
    }
}

#[tokio::test]
async fn a_range_whose_table_is_gone_has_nothing_to_clear_once_its_view_is_gone() {
    let lab = retired().await;
    lab.account
        .tables
        .delete_table(&table("Employees"))
        .await
        .unwrap();
    assert!(matches!(
        lab.work(&propagation("a")).await,
        Ok(Outcome::Done(_))
    ));
    let lab = staffed(declared(CATALOG)).await;
    speaks(&lab, "a").await;
    lab.account
        .tables
        .delete_table(&table("Employees"))
        .await
        .unwrap();
    assert!(lab.deliver(&propagation("a"), 1).await.unwrap().is_err());
}

/// The catalog does not mention the range's table once the view is removed.
#[tokio::test]
async fn what_a_retired_view_has_set_is_cleared_in_a_table_that_only_an_earlier_catalog_has_named()
{
    let (said, _) = CATALOG.split_once("[views.by_department]").unwrap();
    let said = said.replace("[tables.Employees]\n", "");
    let before = staffed(declared(&said)).await;
    speaks(&before, "a").await;
    before.do_queued().await;
    let mut next = declared(&said);
    let says = next.views.remove(&ViewName::new("says").unwrap()).unwrap();
    next.tables.remove(&table("Employees"));
    next.generations
        .retired
        .insert(says.name.clone(), (1, Source::Table(says.source.clone())));
    // The job is refused. Otherwise a forged message could start a walk over any table.
    let strange = before
        .under(next.clone())
        .work(&propagation("a"))
        .await
        .unwrap_err();
    assert!(
        strange.class == FailureClass::Permanent && strange.chain().contains("Employees"),
        "{}",
        strange.chain()
    );
    next.generations.names = before.engine.catalog().names();
    let lab = before.under(next);
    assert!(matches!(
        lab.work(&propagation("a")).await,
        Ok(Outcome::Done(_))
    ));
    for row in lab.rows("Employees").await {
        let expected =
            Entity::new(row.entity.key.clone()).with("Email", row.entity.key.rk.as_str());
        assert_eq!(
            row.entity, expected,
            "a property of the retired view is left"
        );
    }
}

/// The person changes before every write of the propagation. Only a propagation clears the properties of a retired view, so a later delivery has to
/// do that.
#[tokio::test]
async fn a_person_who_changes_all_the_time_is_cleared_by_a_later_delivery() {
    let lab = retired().await;
    for rk in ["e2", "e3"] {
        lab.delete_row("Employees", "Sales", rk).await;
        lab.work(&sync("Employees", rk)).await.unwrap();
    }
    // The propagation writes the last person with the page, and then in five rounds.
    for round in 1..=5 {
        lab.faults.arm(1 + 2 * round, Disturbance::Meddle);
        let client = lab.clone();
        lab.faults.meddle(Box::pin(async move {
            let changed =
                TableOperation::Merge(Entity::new(key("e1")).with("Email", "e1"), IfMatch::Any);
            client
                .account
                .tables
                .apply(&table("Employees"), &changed)
                .await
                .unwrap();
        }));
    }
    let ended = lab.deliver(&propagation("a"), 1).await.unwrap();
    assert!(
        ended.is_err_and(|failure| matches!(failure.class, FailureClass::Transient { .. })),
        "the message must be delivered again"
    );
    lab.faults.calm();
    lab.deliver_until_done(&propagation("a")).await.unwrap();
    lab.do_queued().await;
    lab.finish().await;
    all_say(&lab, None, "the later delivery").await;
}

/// An entity with corrupt property marks cannot be cleared. The propagation clears all other entities and then fails.
#[tokio::test]
async fn a_row_that_cannot_be_cleared_fails_the_propagation_after_all_others() {
    let lab = retired().await;
    let nonsense = TableOperation::Merge(
        Entity::new(key("e2")).with("ek_owner_says", "?"),
        IfMatch::Any,
    );
    lab.account
        .tables
        .apply(&table("Employees"), &nonsense)
        .await
        .unwrap();
    let failure = lab.work(&propagation("a")).await.unwrap_err();
    assert!(
        failure.class == FailureClass::Permanent && failure.chain().contains("1 entities of"),
        "{}",
        failure.chain()
    );
    for (rk, said) in [("e1", None), ("e2", Some("a")), ("e3", None)] {
        let person = lab.read("Employees", "Sales", rk).await.unwrap().entity;
        assert_eq!(person.text("Department"), said, "{rk}");
    }
}

/// Two departments exchange their ranges, and a propagation of one department runs in between.
#[tokio::test]
async fn departments_that_exchange_their_ranges_do_not_disturb_each_other() {
    let of = |rk: &str, prefix: &str| Entity::new(key(rk)).with("Name", rk).with("Prefix", prefix);
    let prepared = async || {
        let lab = staffed(declared(
            &CATALOG.replace("row_key_prefix = \"e\"", "row_key_prefix = \"{Prefix}\""),
        ))
        .await;
        for (rk, prefix) in [("a", "e"), ("b", "x")] {
            write(&lab, "Departments", of(rk, prefix)).await;
            lab.work(&sync("Departments", rk)).await.unwrap();
        }
        lab.do_queued().await;
        write(&lab, "Departments", of("a", "x")).await;
        lab.work(&sync("Departments", "a")).await.unwrap();
        without_queued(&lab).await;
        lab
    };
    let to = |from: &str, before: &str| {
        job(
            &json!({"op": "propagate", "view": "says", "owner": {"pk": "Sales", "rk": "a"}, "table": "Employees", "pk": "Sales", "from": from, "before": before}),
        )
    };
    let mut at = 0;
    loop {
        at += 1;
        let lab = prepared().await;
        lab.faults.arm(at, Disturbance::Meddle);
        let other = lab.of_another_worker();
        lab.faults.meddle(Box::pin(async move {
            write(&other, "Departments", of("b", "e")).await;
            other.work(&sync("Departments", "b")).await.unwrap();
        }));
        let ended = lab
            .work(&to("x", "y"))
            .await
            .map_err(|failure: Failure| failure.chain());
        let met = lab.faults.counted() >= at;
        assert!(
            ended.is_ok() || !met,
            "department b changes before operation {at} of the propagation of department a: {ended:?}"
        );
        lab.faults.calm();
        if !met {
            break;
        }
        lab.work(&to("e", "f")).await.unwrap();
        lab.do_queued().await;
        for (rk, said) in [("e1", "b"), ("e2", "b"), ("e3", "b"), ("x", "a")] {
            let person = lab.read("Employees", "Sales", rk).await.unwrap().entity;
            assert_eq!(
                person.text("Department"),
                Some(said),
                "department b changes before operation {at} of the propagation of department a: {rk}"
            );
        }
    }
    assert!(at > 3, "only {at} operations");
}

async fn one_is_full() -> Lab {
    let lab = staffed(declared(CATALOG)).await;
    let full = Entity::new(key("e2")).with("Email", "e2");
    let full = (full.properties.len()..MOST_PROPERTIES)
        .fold(full, |entity, n| entity.with(format!("Own{n}"), true));
    write(&lab, "Employees", full).await;
    lab.work(&sync("Employees", "e2")).await.unwrap();
    speaks(&lab, "a").await;
    without_queued(&lab).await;
    lab
}

#[tokio::test]
async fn a_person_whose_row_is_full_holds_up_no_other_and_is_named_by_a_job_of_its_own() {
    let mut sweep = Sweep::at_once(one_is_full().await.operations_of(&propagation("a")).await);
    while let Some(case) = sweep.next() {
        let story = case.to_string();
        let lab = one_is_full().await;
        case.arm(&lab.faults);
        lab.deliver_until_done(&propagation("a"))
            .await
            .unwrap_or_else(|| panic!("{story}: the propagation is given up"));
        sweep.seen(&lab);
        lab.faults.calm();
        for (rk, said) in [("e1", Some("a")), ("e2", None), ("e3", Some("a"))] {
            let person = lab.read("Employees", "Sales", rk).await.unwrap().entity;
            assert_eq!(person.text("Department"), said, "{story}: {rk}");
        }
        let queued = lab.sim.messages(&lab.delivery().propagation_queue);
        let queued: Vec<Job> = queued
            .iter()
            .flat_map(|message| jobs_of(&message.text))
            .collect();
        assert!(
            queued.iter().any(|job| job.key() == Some(&key("e2"))),
            "{story}: {queued:?}"
        );
        let failure = lab.work(&sync("Employees", "e2")).await.unwrap_err();
        assert!(
            failure.class == FailureClass::Permanent && failure.chain().contains("252"),
            "{story}: {}",
            failure.chain()
        );
        let roomy =
            TableOperation::Replace(Entity::new(key("e2")).with("Email", "e2"), IfMatch::Any);
        lab.account
            .tables
            .apply(&table("Employees"), &roomy)
            .await
            .unwrap();
        lab.work(&sync("Employees", "e2")).await.unwrap();
        without_queued(&lab).await;
        lab.finish().await;
        all_say(&lab, Some("a"), &story).await;
    }
}
