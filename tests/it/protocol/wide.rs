//! Wide entities (entities in several rows), disturbed at every operation of every job. The rows of an entity never mix
//! two versions.

use std::collections::BTreeMap;
use std::time::Duration;

use evenkeel_engine::FailureClass;
use evenkeel_model::job::Primary;
use evenkeel_model::{EdmValue, Entity, EntityKey, Job, odata};
use evenkeel_storage::TableOperation;
use evenkeel_storage::wide;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[tables.Surveys]
wide = true

[tables.FormerSurveys]
wide = true

[views.by_mail]
kind = "secondary_index"
source = "Surveys"
table = "ByMail"
partition_key = "mail"
row_key = "{Mail}"
select = ["Q0299"]
on_conflict = "reject"

[views.near]
kind = "secondary_index"
source = "Surveys"
table = "Surveys"
partition_key = "{PartitionKey}"
row_key = "mail_{Mail}_{RowKey}"
select = []

[archives.former_surveys]
source = "Surveys"
to = { kind = "table", table = "FormerSurveys" }
"#;

fn lab() -> Lab {
    lab_of(CATALOG)
}

fn lab_of(catalog: &str) -> Lab {
    Lab::with(SMALL, declared(catalog))
}

/// A survey in which every answer is the same number, so that a mixture of versions is visible.
fn survey(questions: i32, answer: i32, mail: &str) -> Entity {
    let entity = Entity::new(EntityKey::new("p", "1").unwrap()).with("Mail", mail);
    (0..questions).fold(entity, |entity, n| entity.with(format!("Q{n:04}"), answer))
}

fn put(entity: &Entity, mode: &str) -> Job {
    job(&json!({"op": "put", "table": "Surveys", "mode": mode, "entity": odata::encode(entity)}))
}

fn on(op: &str) -> Job {
    match op {
        "archive" | "restore" => {
            job(&json!({"op": op, "archive": "former_surveys", "pk": "p", "rk": "1"}))
        }
        "move" => job(
            &json!({"op": op, "table": "Surveys", "pk": "p", "rk": "1", "to_pk": "p", "to_rk": "2"}),
        ),
        _ => job(&json!({"op": op, "table": "Surveys", "pk": "p", "rk": "1"})),
    }
}

struct Scenario {
    name: &'static str,
    before: fn() -> Vec<Job>,
    job: fn() -> Job,
    after: fn() -> Option<(&'static str, &'static str, Entity)>,
}

fn settled() -> Vec<Job> {
    vec![put(&survey(300, 1, "ada"), "replace")]
}

fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "a new one",
            before: Vec::new,
            job: || put(&survey(300, 1, "ada"), "replace"),
            after: || Some(("Surveys", "1", survey(300, 1, "ada"))),
        },
        Scenario {
            name: "all answers and the address change",
            before: settled,
            job: || put(&survey(300, 2, "countess"), "replace"),
            after: || Some(("Surveys", "1", survey(300, 2, "countess"))),
        },
        Scenario {
            name: "one answer changes",
            before: settled,
            job: || put(&Entity::new(survey(0, 0, "").key).with("Q0299", 7), "merge"),
            after: || Some(("Surveys", "1", survey(300, 1, "ada").with("Q0299", 7))),
        },
        Scenario {
            name: "it grows",
            before: settled,
            job: || put(&survey(800, 3, "ada"), "replace"),
            after: || Some(("Surveys", "1", survey(800, 3, "ada"))),
        },
        Scenario {
            name: "it shrinks to one row",
            before: settled,
            job: || put(&survey(5, 4, "ada"), "replace"),
            after: || Some(("Surveys", "1", survey(5, 4, "ada"))),
        },
        Scenario {
            name: "it is deleted",
            before: settled,
            job: || on("delete"),
            after: || None,
        },
        Scenario {
            name: "it is archived",
            before: settled,
            job: || on("archive"),
            after: || Some(("FormerSurveys", "1", survey(300, 1, "ada"))),
        },
        Scenario {
            name: "it is restored",
            before: || vec![put(&survey(300, 1, "ada"), "replace"), on("archive")],
            job: || on("restore"),
            after: || Some(("Surveys", "1", survey(300, 1, "ada"))),
        },
        Scenario {
            name: "it moves",
            before: settled,
            job: || on("move"),
            after: || Some(("Surveys", "2", survey(300, 1, "ada"))),
        },
    ]
}

async fn prepared(scenario: &Scenario) -> Lab {
    let lab = lab();
    for job in (scenario.before)() {
        lab.work(&job).await.unwrap();
    }
    lab
}

/// The entities of a table, put together by the test. Checks that all rows of an entity have the same version.
fn entities(lab: &Lab, name: &str, story: &str) -> BTreeMap<String, BTreeMap<String, EdmValue>> {
    let rows: Vec<_> = lab
        .sim
        .rows(&table(name))
        .into_iter()
        .filter(|row| row.entity.get("ek_view").is_none())
        .collect();
    let mut entities = BTreeMap::new();
    let mut seen = 0;
    for first in rows
        .iter()
        .filter(|row| !row.entity.key.rk.as_str().contains('~'))
    {
        let rk = first.entity.key.rk.as_str();
        let tokens: Vec<String> = first
            .entity
            .text("ek_rows")
            .map(|text| serde_json::from_str(text).unwrap())
            .unwrap_or_default();
        let mut all: BTreeMap<_, _> = first
            .entity
            .user_properties()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for (at, token) in tokens.iter().enumerate() {
            let key = format!("{rk}~{}", at + 1);
            let row = rows
                .iter()
                .find(|row| row.entity.key.rk.as_str() == key)
                .unwrap_or_else(|| panic!("{story}: {key} is missing"));
            assert_eq!(row.entity.text("ek_row"), Some(token.as_str()), "{story}");
            all.extend(
                row.entity
                    .user_properties()
                    .map(|(name, value)| (name.clone(), value.clone())),
            );
        }
        seen += 1 + tokens.len();
        entities.insert(rk.to_owned(), all);
    }
    assert_eq!(seen, rows.len(), "{story}: orphaned rows in {name}");
    entities
}

async fn check(lab: &Lab, story: &str) {
    let mut wanted = Vec::new();
    for (rk, survey) in entities(lab, "Surveys", story) {
        let mail = survey["Mail"].as_str().unwrap().to_owned();
        let copy = lab
            .read("ByMail", "mail", &mail)
            .await
            .unwrap_or_else(|| panic!("{story}: no copy for {mail}"));
        assert_eq!(copy.entity.get("Q0299"), survey.get("Q0299"), "{story}");
        assert!(
            lab.read("Surveys", "p", &format!("mail_{mail}_{rk}"))
                .await
                .is_some(),
            "{story}"
        );
        let primary = Primary {
            table: table("Surveys"),
            key: EntityKey::new("p", rk.as_str()).unwrap(),
        };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(plan.in_step, "{story}: {plan}");
        wanted.push(mail);
    }
    assert_eq!(
        lab.sim.rows(&table("ByMail")).len(),
        wanted.len(),
        "{story}"
    );
    let near = lab
        .sim
        .rows(&table("Surveys"))
        .into_iter()
        .filter(|row| row.entity.get("ek_view").is_some())
        .count();
    assert_eq!(near, wanted.len(), "{story}");
}

async fn operations_of(scenario: &Scenario) -> u64 {
    let lab = prepared(scenario).await;
    let operations = lab.operations_of(&(scenario.job)()).await;
    lab.finish().await;
    check(&lab, scenario.name).await;
    operations
}

#[tokio::test]
async fn every_job_disturbed_at_every_operation_leaves_one_whole_entity() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let mut sweep = Sweep::over(operations_of(&scenario).await);
        while let Some(case) = sweep.next() {
            let lab = prepared(&scenario).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&(scenario.job)())
                .await
                .expect("it succeeds");
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            let story = format!("{}, {case}", scenario.name);
            check(&lab, &story).await;
            let mut found: Vec<_> = Vec::new();
            for name in ["Surveys", "FormerSurveys"] {
                found.extend(
                    entities(&lab, name, &story)
                        .into_iter()
                        .map(|(rk, survey)| (name, rk, survey)),
                );
            }
            let expected: Vec<_> = (scenario.after)()
                .into_iter()
                .map(|(name, rk, survey)| (name, rk.to_owned(), survey.properties))
                .collect();
            assert_eq!(found, expected, "{story}");
        }
        runs += sweep.runs().0;
    }
    assert!(
        runs > 300,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

type Step = fn(Lab) -> BoxFuture<'static, ()>;

fn meddlers() -> [(&'static str, Step); 2] {
    [
        ("one answer of the second row", |lab| {
            Box::pin(async move {
                drop(
                    lab.work(&put(
                        &Entity::new(survey(0, 0, "").key).with("Q0298", 99),
                        "merge",
                    ))
                    .await,
                );
            })
        }),
        ("a row more", |lab| {
            Box::pin(async move {
                let more = (300..600).fold(
                    Entity::new(survey(0, 0, "").key).with("Q0298", 99),
                    |entity, n| entity.with(format!("Q{n:04}"), 99),
                );
                drop(lab.work(&put(&more, "merge")).await);
            })
        }),
    ]
}

#[tokio::test]
async fn an_answer_that_another_worker_writes_in_between_is_not_lost() {
    let mut runs = 0_u32;
    for scenario in scenarios().into_iter().filter(|scenario| {
        matches!(
            scenario.name,
            "one answer changes" | "it is archived" | "it moves"
        )
    }) {
        let operations = operations_of(&scenario).await;
        for (name, meddle) in meddlers() {
            for at in 1..=operations {
                let lab = prepared(&scenario).await;
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults.meddle(meddle(lab.of_another_worker()));
                lab.deliver_until_done(&(scenario.job)()).await;
                lab.faults.calm();
                lab.finish().await;
                let story = format!("{}, {name} before operation {at}", scenario.name);
                let kept = ["Surveys", "FormerSurveys"]
                    .into_iter()
                    .flat_map(|name| entities(&lab, name, &story).into_values());
                let kept = kept
                    .filter(|survey| survey.get("Q0298") == Some(&EdmValue::from(99)))
                    .count();
                assert_eq!(kept, 1, "{story}");
                if !entities(&lab, "Surveys", &story)
                    .values()
                    .any(|survey| survey.get("Mail").is_none())
                {
                    check(&lab, &story).await;
                }
                runs += 1;
            }
        }
    }
    assert!(
        runs > 20,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

#[tokio::test]
async fn a_reader_gets_a_single_version() {
    let key = survey(0, 0, "").key;
    for at in 1..=3 {
        let lab = lab();
        lab.work(&put(&survey(600, 1, "ada"), "replace"))
            .await
            .unwrap();
        let meddler = lab.of_another_worker();
        lab.faults.arm(at, Disturbance::Meddle);
        lab.faults.meddle(Box::pin(async move {
            meddler
                .work(&put(&survey(600, 2, "ada"), "replace"))
                .await
                .unwrap();
        }));
        let row = wide::read(lab.account.tables.as_ref(), &table("Surveys"), &key, false)
            .await
            .unwrap()
            .joined()
            .unwrap();
        let answers: Value = row
            .entity
            .user_properties()
            .filter(|(name, _)| name.starts_with('Q'))
            .map(|(_, value)| odata_number(value))
            .collect();
        let first = answers[0].clone();
        assert!(
            answers
                .as_array()
                .unwrap()
                .iter()
                .all(|answer| *answer == first),
            "torn at request {at}"
        );
        assert_eq!(answers.as_array().unwrap().len(), 600);
    }
}

/// Writes of applications that do not know that an entity has further rows.
const CARELESS: [&str; 3] = [
    "the first row deleted",
    "the first row replaced",
    "the first archived row deleted",
];

async fn left_over(how: &str) -> Lab {
    let lab = lab();
    lab.work(&put(&survey(800, 1, "ada"), "replace"))
        .await
        .unwrap();
    match how {
        "the first row replaced" => {
            let alone = TableOperation::InsertOrReplace(survey(3, 1, "ada"));
            lab.account
                .tables
                .apply(&table("Surveys"), &alone)
                .await
                .unwrap();
        }
        "the first archived row deleted" => {
            lab.work(&on("archive")).await.unwrap();
            lab.delete_row("FormerSurveys", "p", "1").await;
        }
        _ => lab.delete_row("Surveys", "p", "1").await,
    }
    lab
}

#[tokio::test]
async fn an_erasure_takes_rows_that_have_lost_their_first() {
    let mut runs = 0_u32;
    for how in CARELESS {
        let mut sweep = Sweep::over(left_over(how).await.operations_of(&on("erase")).await);
        while let Some(case) = sweep.next() {
            let lab = left_over(how).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&on("erase"))
                .await
                .expect("it succeeds");
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            for name in ["Surveys", "FormerSurveys", "ByMail"] {
                let rows = lab.sim.rows(&table(name));
                assert!(
                    rows.is_empty(),
                    "{how}, {case}: {} rows of {name} are left",
                    rows.len()
                );
            }
        }
        runs += sweep.runs().0;
    }
    assert!(runs > 100, "only {runs} runs: the sweep must run all cases");
}

#[tokio::test]
async fn an_entity_that_takes_up_such_rows_amid_an_erasure_is_whole() {
    let anew = || survey(800, 1, "ada");
    let operations = left_over(CARELESS[0])
        .await
        .operations_of(&on("erase"))
        .await;
    for at in 1..=operations {
        let story = format!("put anew before operation {at}");
        let lab = left_over(CARELESS[0]).await;
        let other = lab.of_another_worker();
        lab.faults.arm(at, Disturbance::Meddle);
        lab.faults.meddle(Box::pin(async move {
            other.wait(Duration::from_mins(1));
            other.work(&put(&anew(), "replace")).await.unwrap();
        }));
        lab.deliver_until_done(&on("erase")).await;
        lab.faults.calm();
        lab.finish().await;
        check(&lab, &story).await;
        assert_eq!(
            entities(&lab, "Surveys", &story)["1"],
            anew().properties,
            "{story}"
        );
    }
}

fn odata_number(value: &EdmValue) -> Value {
    match value {
        EdmValue::Int32(number) => json!(number),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_worker_whose_catalog_does_not_know_that_a_table_is_wide_leaves_its_entities_to_others() {
    let wide = lab();
    wide.work(&put(&survey(300, 1, "ada"), "replace"))
        .await
        .unwrap();
    let narrow = lab_of(&CATALOG.replace("wide = true", "wide = false"));
    for row in wide.sim.rows(&table("Surveys")) {
        narrow
            .account
            .tables
            .apply(&table("Surveys"), &TableOperation::Insert(row.entity))
            .await
            .unwrap();
    }
    for job in [
        on("sync"),
        on("delete"),
        put(&survey(3, 2, "ada"), "replace"),
    ] {
        let failure = narrow.work(&job).await.unwrap_err();
        assert!(
            matches!(failure.class, FailureClass::Transient { .. })
                && failure.chain().contains("is not wide"),
            "{}",
            failure.chain()
        );
    }
    assert_eq!(
        narrow.sim.rows(&table("Surveys")).len(),
        wide.sim.rows(&table("Surveys")).len()
    );
}
