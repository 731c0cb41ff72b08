//! Documents of a search index, which has no versions, so that the last write wins. Every job is disturbed at every
//! operation, late requests arrive after newer ones, and workers continue long after other workers took over their
//! messages.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use evenkeel_engine::Outcome;
use evenkeel_engine::footprint::{self, Footprint};
use evenkeel_layers::stack::Grouping;
use evenkeel_model::catalog::{Catalog, Source};
use evenkeel_model::job::Primary;
use evenkeel_model::{CollectionName, EdmValue, Entity, EntityKey, Job, TableName};
use evenkeel_storage::{IfMatch, TableOperation};
use futures::future::BoxFuture;
use futures::poll;
use serde_json::{Value, json};
use tokio::task::yield_now;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, RECHECK_AFTER, SMALL, declared, job, sync, table};

/// Each document has a row in the primary's partition. So the worker sends other requests between the announcement and
/// the document.
const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[sinks.catalog]
kind = "search"
endpoint = "http://127.0.0.1:1"
auth = "entra"
credential = "developer_tools"

[views.by_name]
kind = "secondary_index"
source = "Employees"
table = "ByName"
partition_key = "{LastName}"
row_key = "{PartitionKey}_{RowKey}"

[views.found]
kind = "search_index"
source = "Employees"
when = "exists(LastName)"
sink = "catalog"
index = "people"
select = ["Salary"]
fields = { name = "{FirstName} {LastName}" }

[archives.former_people]
source = "Employees"
to = { kind = "table", table = "Former" }
"#;

const PAIRS: [(Disturbance, Disturbance); 5] = [
    (Disturbance::Crash, Disturbance::Crash),
    (Disturbance::LoseAnswer, Disturbance::Crash),
    (Disturbance::ArriveLater(1_000), Disturbance::Crash),
    (Disturbance::ArriveLater(1_000), Disturbance::ArriveLater(4)),
    (
        Disturbance::ArriveLater(1_000),
        Disturbance::ArriveLater(1_000),
    ),
];

fn people() -> CollectionName {
    CollectionName::new("people").unwrap()
}

fn catalog(text: &str) -> Catalog {
    declared(text)
}

fn lab() -> Lab {
    indexed(Lab::with(SMALL, catalog(CATALOG)))
}

fn decorated() -> Lab {
    indexed(Lab::decorated(SMALL, catalog(CATALOG), Grouping::Apart))
}

fn indexed(lab: Lab) -> Lab {
    lab.sim.create_collection(&people(), &["name", "Salary"]);
    lab
}

fn person(rk: &str, name: &str, salary: i32) -> Entity {
    Entity::new(EntityKey::new("Sales", rk).unwrap())
        .with("FirstName", "Ada")
        .with("LastName", name)
        .with("Salary", salary)
}

fn put(rk: &str, name: &str) -> Job {
    let entity = json!({"PartitionKey": "Sales", "RowKey": rk, "FirstName": "Ada", "LastName": name, "Salary": 7});
    job(&json!({"op": "put", "table": "Employees", "entity": entity}))
}

fn expected(lab: &Lab) -> BTreeMap<String, Value> {
    let rows = lab.sim.rows(&table("Employees")).into_iter();
    let named = rows.filter_map(|row| Some((row.entity.text("LastName")?.to_owned(), row)));
    named
        .map(|(name, row)| {
            let key = json!(["employees", row.entity.key.pk, row.entity.key.rk]).to_string();
            let salary = row.entity.get("Salary").map(|salary| {
                if let EdmValue::Int32(salary) = salary {
                    *salary
                } else {
                    panic!("{salary:?}")
                }
            });
            (
                BASE64.encode(key),
                json!({"name": format!("Ada {name}"), "Salary": salary}),
            )
        })
        .collect()
}

async fn check(lab: &Lab, story: &str) {
    let found: BTreeMap<String, Value> = lab
        .sim
        .documents(&people())
        .into_iter()
        .map(|(key, document)| (key.to_string(), json!(document.0)))
        .collect();
    let wanted = expected(lab);
    assert_eq!(found, wanted, "{story}");
    let mut listed = BTreeSet::new();
    for row in lab.sim.rows(&footprint::table()) {
        let key = footprint::owner(&table("Employees"), &row.entity).unwrap();
        let primary = Primary {
            table: table("Employees"),
            key,
        };
        let footprint = Footprint::decode(&primary, &row.entity, None).unwrap();
        assert!(!footprint.is_changing(), "{story}: {footprint:?}");
        listed.extend(
            footprint
                .items
                .keys()
                .filter(|item| !item.site.is_conditional())
                .map(ToString::to_string),
        );
    }
    assert_eq!(listed.len(), wanted.len(), "{story}: {listed:?}");
    for row in lab.sim.rows(&table("Employees")) {
        let primary = Primary {
            table: table("Employees"),
            key: row.entity.key,
        };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(plan.in_step, "{story}: {plan}");
    }
}

type Step = fn(Lab) -> BoxFuture<'static, ()>;

struct Scenario {
    name: &'static str,
    prepare: Step,
    job: fn() -> Job,
}

async fn hired(lab: &Lab) {
    lab.write(person("1", "King", 1)).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
}

fn scenarios() -> Vec<Scenario> {
    let same = || sync("Sales", "1");
    vec![
        Scenario {
            name: "a document appears",
            prepare: |lab| Box::pin(async move { lab.write(person("1", "King", 1)).await }),
            job: same,
        },
        Scenario {
            name: "a document changes",
            prepare: |lab| {
                Box::pin(async move {
                    hired(&lab).await;
                    lab.write(person("1", "King", 2)).await;
                })
            },
            job: same,
        },
        Scenario {
            name: "a document changes, and a row gets another key",
            prepare: |lab| {
                Box::pin(async move {
                    hired(&lab).await;
                    lab.write(person("1", "Byron", 2)).await;
                })
            },
            job: same,
        },
        Scenario {
            name: "a document goes and its primary stays",
            prepare: |lab| {
                Box::pin(async move {
                    hired(&lab).await;
                    lab.write(
                        Entity::new(EntityKey::new("Sales", "1").unwrap()).with("FirstName", "Ada"),
                    )
                    .await;
                })
            },
            job: same,
        },
        Scenario {
            name: "a document goes with its primary",
            prepare: |lab| {
                Box::pin(async move {
                    hired(&lab).await;
                    lab.remove("Sales", "1").await;
                })
            },
            job: same,
        },
        Scenario {
            name: "a put makes one",
            prepare: |_| Box::pin(async {}),
            job: || put("1", "King"),
        },
        Scenario {
            name: "a put changes one",
            prepare: |lab| Box::pin(async move { hired(&lab).await }),
            job: || put("1", "Byron"),
        },
        Scenario {
            name: "a delete",
            prepare: |lab| Box::pin(async move { hired(&lab).await }),
            job: || job(&json!({"op": "delete", "table": "Employees", "pk": "Sales", "rk": "1"})),
        },
        Scenario {
            name: "an archive",
            prepare: |lab| Box::pin(async move { hired(&lab).await }),
            job: || {
                job(&json!({"op": "archive", "archive": "former_people", "pk": "Sales", "rk": "1"}))
            },
        },
        Scenario {
            name: "a move",
            prepare: |lab| Box::pin(async move { hired(&lab).await }),
            job: || {
                job(
                    &json!({"op": "move", "table": "Employees", "pk": "Sales", "rk": "1", "to_pk": "Sales", "to_rk": "2"}),
                )
            },
        },
        Scenario {
            name: "a full sync repairs what somebody else changed",
            prepare: |lab| {
                Box::pin(async move {
                    hired(&lab).await;
                    lab.sim.create_collection(&people(), &["name", "Salary"]);
                })
            },
            job: || {
                job(
                    &json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "1", "thorough": true}),
                )
            },
        },
    ]
}

/// What happens after the job, and before its late requests arrive.
const AFTERWARDS: [(&str, Step); 4] = [
    ("nothing", |_| Box::pin(async {})),
    ("another change", |lab| {
        Box::pin(async move {
            lab.write(person("1", "Lovelace", 3)).await;
            lab.work(&sync("Sales", "1")).await.unwrap();
        })
    }),
    ("its end", |lab| {
        Box::pin(async move {
            lab.remove("Sales", "1").await;
            lab.work(&sync("Sales", "1")).await.unwrap();
        })
    }),
    ("its end and a new beginning", |lab| {
        Box::pin(async move {
            lab.remove("Sales", "1").await;
            lab.work(&sync("Sales", "1")).await.unwrap();
            lab.write(person("1", "Lovelace", 3)).await;
            lab.work(&sync("Sales", "1")).await.unwrap();
        })
    }),
];

async fn undisturbed(scenario: &Scenario) -> u64 {
    let lab = lab();
    (scenario.prepare)(lab.clone()).await;
    let operations = lab.operations_of(&(scenario.job)()).await;
    lab.finish().await;
    check(&lab, scenario.name).await;
    operations
}

#[tokio::test]
async fn documents_survive_a_disturbance_at_every_operation_and_what_comes_after_it() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let mut sweep = Sweep::over(undisturbed(&scenario).await);
        while let Some(case) = sweep.next() {
            // If the late request arrives during the job, what happens after the job hardly matters. So each such run has only
            // one of the events, in turn.
            let turn = sweep.runs().0 as usize;
            let afterwards = AFTERWARDS
                .iter()
                .enumerate()
                .filter(|(n, _)| !case.is_between() || turn % AFTERWARDS.len() == *n);
            for (_, (what, afterwards)) in afterwards {
                let lab = lab();
                (scenario.prepare)(lab.clone()).await;
                case.arm(&lab.faults);
                lab.deliver_until_done(&(scenario.job)()).await;
                sweep.seen(&lab);
                lab.faults.calm();
                afterwards(lab.clone()).await;
                lab.finish().await;
                check(&lab, &format!("{}, {case}, then {what}", scenario.name)).await;
            }
        }
        runs += sweep.runs().0;
    }
    assert!(
        runs > 1_500,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

#[tokio::test]
async fn documents_survive_two_disturbances_at_every_pair_of_operations() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let operations = undisturbed(&scenario).await;
        for (first, second) in PAIRS {
            for at in 1..=operations {
                for gap in 1..=operations {
                    let lab = lab();
                    (scenario.prepare)(lab.clone()).await;
                    lab.faults.arm(at, first);
                    lab.faults.arm(at + gap, second);
                    lab.deliver_until_done(&(scenario.job)()).await;
                    lab.faults.calm();
                    let (what, afterwards) = AFTERWARDS[runs as usize % AFTERWARDS.len()];
                    afterwards(lab.clone()).await;
                    lab.finish().await;
                    check(
                        &lab,
                        &format!(
                            "{}, {first:?} at {at} and {second:?} {gap} later, then {what}",
                            scenario.name
                        ),
                    )
                    .await;
                    runs += 1;
                }
            }
        }
    }
    assert!(
        runs > 2_000,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

/// What a client and another worker do while the first worker waits for an answer.
const MEDDLERS: [(&str, Step); 4] = [
    ("a change", |lab| {
        Box::pin(async move {
            lab.write(person("1", "Meddled", 9)).await;
            lab.work(&sync("Sales", "1")).await.unwrap();
        })
    }),
    ("an end", |lab| {
        Box::pin(async move {
            lab.remove("Sales", "1").await;
            lab.work(&sync("Sales", "1")).await.unwrap();
        })
    }),
    ("a change, a long time and all rechecks", |lab| {
        Box::pin(async move {
            lab.write(person("1", "Meddled", 9)).await;
            lab.work(&sync("Sales", "1")).await.unwrap();
            lab.wait(RECHECK_AFTER * 2);
            lab.finish().await;
        })
    }),
    ("an end, a long time and all rechecks", |lab| {
        Box::pin(async move {
            lab.remove("Sales", "1").await;
            lab.work(&sync("Sales", "1")).await.unwrap();
            lab.wait(RECHECK_AFTER * 2);
            lab.finish().await;
        })
    }),
];

#[tokio::test]
async fn a_worker_that_wakes_up_late_overwrites_nothing() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let operations = undisturbed(&scenario).await;
        for (number, (what, meddle)) in MEDDLERS.into_iter().enumerate() {
            for at in 1..=operations {
                let lab = lab();
                (scenario.prepare)(lab.clone()).await;
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults.meddle(meddle(lab.of_another_worker()));
                lab.deliver_until_done(&(scenario.job)()).await;
                // A request to the index that is in flight for longer than the engine assumes is a known limit, and the program
                // reports it.
                let too_long = number >= 2 && lab.faults.named(at) == Some("Index Documents");
                if too_long {
                    continue;
                }
                lab.faults.calm();
                lab.finish().await;
                check(
                    &lab,
                    &format!("{}, {what} before operation {at}", scenario.name),
                )
                .await;
                runs += 1;
            }
        }
    }
    assert!(
        runs > 200,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

/// Returns a lab with a person whose document will change, and the number of the operation that changes it.
async fn changed() -> (Lab, u64) {
    let prepared = async || {
        let lab = decorated();
        hired(&lab).await;
        lab.write(person("1", "King", 2)).await;
        lab
    };
    let lab = prepared().await;
    let operations = lab.operations_of(&sync("Sales", "1")).await;
    let at = (1..=operations).find(|number| lab.faults.named(*number) == Some("Index Documents"));
    (prepared().await, at.unwrap())
}

/// A job waits before its request to the index until `meddle` is done. Then it sends the request, and its worker stops.
async fn wakes_up(
    lab: &Lab,
    meddle: Step,
    job: impl Future<Output = Option<Outcome>>,
    story: &str,
) {
    lab.faults.calm();
    meddle(lab.of_another_worker()).await;
    lab.faults.arm(2, Disturbance::Crash);
    job.await;
    lab.faults.calm();
    lab.work(&sync("Sales", "2")).await.unwrap();
    lab.finish().await;
    check(lab, story).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_its_repetition_until_it_is_too_late_is_not_sent() {
    for (what, meddle) in &MEDDLERS[2..] {
        let (lab, at) = changed().await;
        lab.faults.arm(at, Disturbance::Throttle);
        let job = sync("Sales", "1");
        let before = lab.faults.total("Index Documents");
        let mut delivered = Box::pin(lab.deliver_until_done(&job));
        while lab.faults.total("Index Documents") == before {
            assert!(poll!(&mut delivered).is_pending());
            yield_now().await;
        }
        wakes_up(
            &lab,
            *meddle,
            delivered,
            &format!("{what} before a repetition"),
        )
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_behind_another_request_until_it_is_too_late_is_not_sent() {
    for (what, meddle) in &MEDDLERS[2..] {
        let (lab, at) = changed().await;
        lab.write(person("2", "Byron", 1)).await;
        lab.work(&sync("Sales", "2")).await.unwrap();
        lab.write(person("2", "Byron", 2)).await;
        lab.faults.arm(at, Disturbance::Crash);
        let message =
            lab.message(&json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "2"}));
        let mut ahead = Box::pin(lab.run(&message));
        tokio::select! {
            biased;
            ended = &mut ahead => panic!("{ended:?}"),
            () = lab.faults.crash() => {}
        }
        assert_eq!(lab.faults.named(at), Some("Index Documents"));
        lab.faults.calm();
        let job = sync("Sales", "1");
        let mut delivered = Box::pin(lab.deliver_until_done(&job));
        for _ in 0..100 {
            assert!(poll!(&mut delivered).is_pending());
            yield_now().await;
        }
        let behind = async {
            drop(ahead);
            delivered.await
        };
        wakes_up(
            &lab,
            *meddle,
            behind,
            &format!("{what} before the end of another request"),
        )
        .await;
    }
}

#[tokio::test]
async fn an_unchanged_document_costs_nothing_and_a_settled_one_is_never_asked_for() {
    let lab = lab();
    hired(&lab).await;
    let before = lab.faults.total("Index Documents");
    lab.write(person("1", "King", 1).with("Note", "x")).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    lab.work(&sync("Sales", "1")).await.unwrap();
    let thorough = job(
        &json!({"op": "sync", "table": "Employees", "pk": "Sales", "rk": "1", "thorough": true}),
    );
    lab.work(&thorough).await.unwrap();
    assert_eq!(lab.faults.total("Index Documents"), before);
    check(&lab, "nothing to write").await;
}

#[tokio::test]
async fn undisturbed_work_queues_no_second_look_for_its_documents() {
    let lab = lab();
    hired(&lab).await;
    lab.write(person("1", "Byron", 2)).await;
    lab.work(&sync("Sales", "1")).await.unwrap();
    let before = lab.faults.total("Index Documents");
    lab.finish().await;
    assert_eq!(lab.faults.total("Index Documents"), before);
}

/// The view is renamed, or removed, and the documents in the index pass to another view that has the same documents.
#[tokio::test]
async fn a_view_that_takes_another_ones_place_keeps_its_documents() {
    for renamed in [false, true] {
        let lab = lab();
        hired(&lab).await;
        let mut next = catalog(&if renamed {
            CATALOG.replace("views.found", "views.sought")
        } else {
            without_found()
        });
        let gone = evenkeel_model::ViewName::new("found").unwrap();
        let source = next
            .table(&TableName::new("Employees").unwrap())
            .unwrap()
            .clone();
        next.generations
            .retired
            .insert(gone, (1, Source::Table(source)));
        let lab = lab.under(next);
        lab.work(&sync("Sales", "1")).await.unwrap();
        lab.finish().await;
        let documents = lab.sim.documents(&people());
        assert_eq!(documents.len(), usize::from(renamed), "renamed: {renamed}");
        let plan = lab
            .engine
            .plan(&Primary {
                table: table("Employees"),
                key: EntityKey::new("Sales", "1").unwrap(),
            })
            .await
            .unwrap();
        assert!(plan.in_step, "{plan}");
    }
}

fn without_found() -> String {
    let from = CATALOG.find("[views.found]").unwrap();
    let to = CATALOG.find("[archives.").unwrap();
    format!("{}{}", &CATALOG[..from], &CATALOG[to..])
}

#[tokio::test]
async fn what_no_document_can_say_is_refused_with_its_field() {
    let lab = lab();
    lab.write(person("1", "King", 1).with("Salary", EdmValue::Binary(vec![1])))
        .await;
    let error = lab.work(&sync("Sales", "1")).await.unwrap_err().chain();
    assert!(
        error.contains("\"Salary\"")
            && error.contains("Edm.Binary")
            && error.contains("(\"Sales\", \"1\")"),
        "{error}"
    );
    let row = lab.sim.rows(&table("Employees")).pop().unwrap();
    lab.account
        .tables
        .apply(
            &table("Employees"),
            &TableOperation::Delete(row.entity.key, IfMatch::Any),
        )
        .await
        .unwrap();
}
