//! Entities of one table that set properties on other entities of the same table, under disturbance. Each person names
//! a deputy, and the view sets the person's name on the deputy's entity.
//!
//! The engine does not rewrite set properties that are already equal, so only the announcement stops a late write. Each
//! story runs undisturbed and disturbed at each of its operations. Each story also runs with another worker, which does
//! whole jobs before one operation of the first worker. After that the first worker continues for some operations, and
//! stops.

use evenkeel_engine::FailureClass;
use evenkeel_engine::footprint::{FOOTPRINTS, Footprint};
use evenkeel_model::catalog::Catalog;
use evenkeel_model::job::Primary;
use evenkeel_model::{Entity, EntityKey, Job, odata};
use evenkeel_storage::TableOperation;
use futures::future::BoxFuture;
use serde_json::json;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.deputy]
kind = "denormalize"
source = "Employees"
table = "Employees"
partition_key = "{Town}"
row_key = "{Deputy}"
set = { ForName = "{Name}", ForAge = "{Age|pad:2}" }
on_conflict = "reject"
"#;

fn catalog() -> Catalog {
    declared(CATALOG)
}

/// The partition of the second person: the same as the first person's, or another one.
#[derive(Debug, Clone, Copy)]
struct Partitions(&'static str);

impl Partitions {
    const ALL: [Self; 2] = [Self("Sales"), Self("Ops")];

    fn of(self, rk: &str) -> &'static str {
        if rk.starts_with("ann") {
            "Sales"
        } else {
            self.0
        }
    }

    fn person(self, rk: &str, name: &str, deputy: &str) -> Entity {
        let key = EntityKey::new(self.of(rk), rk).unwrap();
        Entity::new(key)
            .with("Name", name)
            .with("Age", 30)
            .with("Deputy", deputy)
            .with("Town", self.of(deputy))
    }

    fn put(self, rk: &str, name: &str, deputy: &str) -> Job {
        job(
            &json!({"op": "put", "table": "Employees", "entity": odata::encode(&self.person(rk, name, deputy))}),
        )
    }

    fn sync(self, rk: &str) -> Job {
        job(&json!({"op": "sync", "table": "Employees", "pk": self.of(rk), "rk": rk}))
    }

    fn thorough(self, rk: &str) -> Job {
        job(
            &json!({"op": "sync", "table": "Employees", "pk": self.of(rk), "rk": rk, "thorough": true}),
        )
    }

    /// A client writes a person without the properties that the view sets. The write is a merge, so these properties
    /// stay.
    async fn write(self, lab: &Lab, rk: &str, name: &str, deputy: &str) {
        let operation = TableOperation::InsertOrMerge(self.person(rk, name, deputy));
        lab.account
            .tables
            .apply(&table("Employees"), &operation)
            .await
            .unwrap();
    }

    async fn writes(self, lab: &Lab, rk: &str, name: &str, deputy: &str) {
        self.write(lab, rk, name, deputy).await;
        lab.work(&self.sync(rk)).await.unwrap();
    }

    async fn renames(self, lab: &Lab, rk: &str, name: &str) {
        let deputy = self.deputy(lab, rk).await;
        self.writes(lab, rk, name, &deputy).await;
    }

    async fn deputy(self, lab: &Lab, rk: &str) -> String {
        let row = lab.read("Employees", self.of(rk), rk).await;
        row.and_then(|row| row.entity.text("Deputy").map(str::to_owned))
            .unwrap_or_default()
    }

    async fn lined_up(self, lab: &Lab) {
        for (rk, name, deputy) in [
            ("dan", "Dan", ""),
            ("cid", "Cid", ""),
            ("bob", "Bob", "cid"),
            ("ann", "Ann", "bob"),
        ] {
            self.writes(lab, rk, name, deputy).await;
        }
    }
}

type Step = fn(Partitions, Lab) -> BoxFuture<'static, ()>;
type Story = (&'static str, Step, fn(Partitions) -> Job);

fn stories() -> Vec<Story> {
    let lined_up: Step = |towns, lab| Box::pin(async move { towns.lined_up(&lab).await });
    vec![
        (
            "a person is put whom another person already names as deputy",
            |towns, lab| {
                Box::pin(async move {
                    towns.writes(&lab, "cid", "Cid", "").await;
                    towns.writes(&lab, "ann", "Ann", "bob").await;
                    lab.sync_later.lock().unwrap().push(towns.sync("ann"));
                })
            },
            |towns| towns.put("bob", "Bob", "cid"),
        ),
        (
            "all were written, and the first is synced",
            |towns, lab| {
                Box::pin(async move {
                    for (rk, name, deputy) in [
                        ("ann", "Ann", "bob"),
                        ("bob", "Bob", "cid"),
                        ("cid", "Cid", ""),
                    ] {
                        towns.write(&lab, rk, name, deputy).await;
                    }
                    lab.sync_later
                        .lock()
                        .unwrap()
                        .extend(["bob", "cid"].map(|rk| towns.sync(rk)));
                })
            },
            |towns| towns.sync("ann"),
        ),
        (
            "one was renamed and is synced",
            |towns, lab| {
                Box::pin(async move {
                    towns.lined_up(&lab).await;
                    towns.write(&lab, "ann", "Anna", "bob").await;
                })
            },
            |towns| towns.sync("ann"),
        ),
        ("one is put with another name", lined_up, |towns| {
            towns.put("ann", "Anna", "bob")
        }),
        ("one is put as before", lined_up, |towns| {
            towns.put("ann", "Ann", "bob")
        }),
        ("Ann has no deputy any more", lined_up, |towns| {
            towns.put("ann", "Ann", "")
        }),
        ("Ann names another deputy", lined_up, |towns| {
            towns.put("ann", "Ann", "dan")
        }),
        ("Ann is deleted", lined_up, |towns| {
            job(&json!({"op": "delete", "table": "Employees", "pk": towns.of("ann"), "rk": "ann"}))
        }),
        ("full sync of Ann", lined_up, |towns| towns.thorough("ann")),
        (
            "all in a chain were renamed, and the first is synced",
            |towns, lab| {
                Box::pin(async move {
                    towns.lined_up(&lab).await;
                    for (rk, name, deputy) in [
                        ("ann", "Anna", "bob"),
                        ("bob", "Bobby", "cid"),
                        ("cid", "Cyd", ""),
                    ] {
                        towns.write(&lab, rk, name, deputy).await;
                    }
                    lab.sync_later
                        .lock()
                        .unwrap()
                        .extend(["bob", "cid"].map(|rk| towns.sync(rk)));
                })
            },
            |towns| towns.sync("ann"),
        ),
    ]
}

/// What others do between two operations: a client writes, and another worker runs the jobs.
fn meddlers() -> [(&'static str, Step); 8] {
    [
        ("Bob is renamed", |towns, lab| {
            Box::pin(async move { towns.renames(&lab, "bob", "Bobby").await })
        }),
        ("Ann is renamed", |towns, lab| {
            Box::pin(async move { towns.renames(&lab, "ann", "Annie").await })
        }),
        ("Ann has her old name again", |towns, lab| {
            Box::pin(async move { towns.renames(&lab, "ann", "Ann").await })
        }),
        (
            "Ann is renamed, and then has her old name again",
            |towns, lab| {
                Box::pin(async move {
                    towns.renames(&lab, "ann", "Annie").await;
                    towns.renames(&lab, "ann", "Ann").await;
                })
            },
        ),
        (
            "for a while nothing can be derived from Ann",
            |towns, lab| {
                Box::pin(async move {
                    let deputy = towns.deputy(&lab, "ann").await;
                    let odd = towns.person("ann", "Ann", &deputy).with("Age", -1);
                    lab.account
                        .tables
                        .apply(&table("Employees"), &TableOperation::InsertOrMerge(odd))
                        .await
                        .unwrap();
                    drop(lab.work(&towns.sync("ann")).await);
                    towns.writes(&lab, "ann", "Ann", &deputy).await;
                })
            },
        ),
        ("Ann has no deputy for a while", |towns, lab| {
            Box::pin(async move {
                let deputy = towns.deputy(&lab, "ann").await;
                towns.writes(&lab, "ann", "Ann", "").await;
                towns.writes(&lab, "ann", "Ann", &deputy).await;
            })
        }),
        ("Bob is deleted, and created again", |towns, lab| {
            Box::pin(async move {
                let deputy = towns.deputy(&lab, "bob").await;
                lab.remove(towns.of("bob"), "bob").await;
                lab.work(&towns.sync("bob")).await.unwrap();
                towns.writes(&lab, "bob", "Bob", &deputy).await;
                // After deleting an entity that had properties of others, these syncs are required by the
                // documentation.
                lab.sync_later
                    .lock()
                    .unwrap()
                    .extend(["ann", "cid"].map(|rk| towns.thorough(rk)));
            })
        }),
        ("Ann and Bob get a full sync", |towns, lab| {
            Box::pin(async move {
                for rk in ["ann", "bob"] {
                    lab.work(&towns.thorough(rk)).await.unwrap();
                }
            })
        }),
    ]
}

/// Runs everything that is left. Returns a description of the first deviation, such as a deputy without the properties
/// of the person who names it.
async fn wrong(lab: &Lab) -> Option<String> {
    lab.faults.calm();
    lab.sim.settle();
    lab.do_queued().await;
    lab.finish().await;
    let rows = lab.rows("Employees").await;
    for row in &rows {
        let (pk, rk) = (row.entity.key.pk.as_str(), row.entity.key.rk.as_str());
        let naming = rows.iter().find(|one| {
            one.entity.text("Deputy") == Some(rk) && one.entity.text("Town") == Some(pk)
        });
        let name = naming.and_then(|one| one.entity.text("Name"));
        if row.entity.text("ForName") != name
            || row.entity.get("ek_owner_deputy").is_some() != name.is_some()
        {
            return Some(format!("{rk} needs ForName {name:?}: {:?}", row.entity));
        }
        let primary = Primary {
            table: table("Employees"),
            key: row.entity.key.clone(),
        };
        let mut plan = lab.engine.plan(&primary).await.unwrap();
        if !plan.in_step && !plan.waiting.is_empty() {
            // A pass that stopped may have announced a change on an entity that does not exist. This does no harm. The
            // announcement ends with the next sync of that entity, which is needed anyway when the entity is created.
            lab.work(&job(
                &json!({"op": "sync", "table": "Employees", "pk": pk, "rk": rk}),
            ))
            .await
            .unwrap();
            plan = lab.engine.plan(&primary).await.unwrap();
        }
        if !plan.in_step {
            return Some(plan.to_string());
        }
    }
    None
}

async fn prepared(towns: Partitions, prepare: Step) -> Lab {
    let lab = Lab::with(SMALL, catalog());
    prepare(towns, lab.clone()).await;
    lab
}

async fn undisturbed(towns: Partitions, prepare: Step, job: &Job, story: &str) -> u64 {
    let lab = prepared(towns, prepare).await;
    let operations = lab.operations_of(job).await;
    assert_eq!(wrong(&lab).await, None, "{story}");
    operations
}

#[tokio::test]
async fn deputies_have_each_others_properties_despite_a_fault_at_any_operation() {
    let mut runs = 0_u32;
    for towns in Partitions::ALL {
        for (story, prepare, job) in stories() {
            let job = job(towns);
            let mut sweep = Sweep::over(undisturbed(towns, prepare, &job, story).await);
            while let Some(case) = sweep.next() {
                let lab = prepared(towns, prepare).await;
                case.arm(&lab.faults);
                assert!(
                    lab.deliver_until_done(&job).await.is_some(),
                    "{story}, {case}, {towns:?}: poisoned"
                );
                sweep.seen(&lab);
                assert_eq!(wrong(&lab).await, None, "{story}, {case}, {towns:?}");
            }
            runs += sweep.runs().0;
        }
    }
    assert!(
        runs > 500,
        "only {runs} runs: the sweep must run all stories"
    );
}

/// Runs every story with another worker before every operation. After that the first worker stops at once, some
/// operations later, or not at all. Returns the first deviation, and the number of runs.
async fn meddled(stories: &[Story]) -> (Option<String>, u32) {
    let mut runs = 0;
    for towns in Partitions::ALL {
        for (story, prepare, job) in stories {
            let job = job(towns);
            let operations = undisturbed(towns, *prepare, &job, story).await;
            for (name, meddle) in meddlers() {
                for at in 1..=operations {
                    for stops in [None, Some(2 + at % 4 % 3 * 2)] {
                        let lab = prepared(towns, *prepare).await;
                        lab.faults.arm(at, Disturbance::Meddle);
                        if let Some(later) = stops {
                            lab.faults.arm(at + later, Disturbance::Crash);
                        }
                        lab.faults.meddle(meddle(towns, lab.of_another_worker()));
                        lab.deliver_until_done(&job).await;
                        runs += 1;
                        if let Some(wrong) = wrong(&lab).await {
                            return (
                                Some(format!(
                                    "{story}, {name} before operation {at}, stops {stops:?}, {towns:?}: {wrong}"
                                )),
                                runs,
                            );
                        }
                    }
                }
            }
        }
    }
    (None, runs)
}

#[tokio::test]
async fn deputies_have_each_others_properties_despite_other_workers() {
    let (wrong, runs) = meddled(&stories()).await;
    assert_eq!(wrong, None);
    assert!(
        runs > 1_000,
        "only {runs} runs: the sweep must run all stories"
    );
}

/// Two people are each other's deputies. The job that closes this ring is poisoned, and then the ring can be resolved
/// at once.
#[tokio::test]
async fn a_ring_is_reported_and_harmless_despite_a_fault_at_any_operation() {
    let alone: Step =
        |towns, lab| Box::pin(async move { towns.writes(&lab, "ann", "Ann", "bob").await });
    let mut runs = 0_u32;
    for towns in Partitions::ALL {
        let job = towns.put("bob", "Bob", "ann");
        let lab = prepared(towns, alone).await;
        lab.faults.arm(u64::MAX, Disturbance::Crash);
        let failure = lab.deliver(&job, 1).await.unwrap().unwrap_err();
        let [ann, bob] = ["ann", "bob"].map(|rk| {
            let primary = Primary {
                table: table("Employees"),
                key: EntityKey::new(towns.of(rk), rk).unwrap(),
            };
            primary.to_string()
        });
        let told = format!("a cycle of entities, {bob} -> {ann} -> {bob}, ");
        assert!(
            failure.class == FailureClass::Permanent && failure.chain().contains(&told),
            "{}",
            failure.chain()
        );
        let mut sweep = Sweep::over(lab.faults.counted());
        while let Some(case) = sweep.next() {
            let lab = prepared(towns, alone).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&job).await;
            sweep.seen(&lab);
            lab.faults.calm();
            lab.sim.settle();
            for (rk, name, deputy) in [("ann", "Ann", "bob"), ("bob", "Bob", "ann")] {
                let row = lab
                    .read("Employees", towns.of(rk), rk)
                    .await
                    .unwrap()
                    .entity;
                let own = towns.person(rk, name, deputy).properties;
                assert!(
                    own.iter().all(|(name, value)| row.get(name) == Some(value)),
                    "{case}, {towns:?}: {row:?}"
                );
            }
            lab.work(&towns.put("ann", "Ann", ""))
                .await
                .unwrap_or_else(|failure| panic!("{case}, {towns:?}: {}", failure.chain()));
            assert_eq!(wrong(&lab).await, None, "{case}, {towns:?}");
        }
        runs += sweep.runs().0;
    }
    assert!(
        runs > 50,
        "only {runs} runs: the sweep must cover all operations"
    );
}

/// A chain of people, each the deputy of the one before, is longer than the limit of nested passes. The passes before
/// the limit close, and a sync of each further person continues the chain.
#[tokio::test]
async fn a_chain_that_is_too_long_is_followed_up_to_the_nesting_limit() {
    let line: Vec<String> = (0..10).map(|n| format!("p{n}")).collect();
    for towns in Partitions::ALL {
        let lab = Lab::with(SMALL, catalog());
        for (n, rk) in line.iter().enumerate() {
            let deputy = line.get(n + 1).map_or("", String::as_str);
            towns.write(&lab, rk, rk, deputy).await;
        }
        let failure = lab.work(&towns.sync("p0")).await.unwrap_err();
        assert!(
            failure.class == FailureClass::Permanent
                && failure.chain().contains("chained more than 8 deep"),
            "{}",
            failure.chain()
        );
        for pair in line.windows(2) {
            let row = lab.read("Employees", towns.of(&pair[1]), &pair[1]).await;
            assert_eq!(
                row.unwrap().entity.text("ForName"),
                Some(pair[0].as_str()),
                "{towns:?}"
            );
        }
        let footprints = lab.rows(FOOTPRINTS).await;
        assert_eq!(footprints.len(), 9, "{towns:?}: {footprints:?}");
        for row in footprints {
            let primary = Primary {
                table: table("Employees"),
                key: EntityKey::new(towns.of("p0"), row.entity.key.rk.as_str()).unwrap(),
            };
            let footprint = Footprint::decode(&primary, &row.entity, None).unwrap();
            assert!(
                !footprint.is_changing(),
                "{towns:?}: {primary} is announced"
            );
        }
        for rk in line.iter().rev() {
            lab.work(&towns.sync(rk)).await.unwrap();
        }
        assert_eq!(wrong(&lab).await, None, "{towns:?}");
    }
}
