//! Two of one table who set properties on each other, under disturbance: spouses, each of whom names the other.
//!
//! What one says of the other stays where it is equal, so a write that comes late has nothing but the announcement to stop it. Each story is
//! told undisturbed, disturbed at each of its operations, and with another worker that does whole jobs in between, after which the first
//! one goes on for some operations and stops.

use evenkeel::catalog::Catalog;
use evenkeel::model::job::Primary;
use evenkeel::model::{ETag, Entity, EntityKey, Job, odata};
use evenkeel::planted::{Bug, MutationGuard};
use evenkeel::ports::TableOperation;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, job, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.spouse]
kind = "denormalize"
source = "Employees"
table = "Employees"
partition_key = "{Town}"
row_key = "{Spouse}"
set = { SpouseName = "{Name}", SpouseAge = "{Age|pad:2}" }
on_conflict = "reject"
"#;

fn catalog() -> Catalog {
    declared(CATALOG)
}

/// Where they live: in one partition, or in two.
#[derive(Debug, Clone, Copy)]
struct Towns(&'static str);

impl Towns {
    const ALL: [Self; 2] = [Self("Sales"), Self("Ops")];

    /// Ann lives in Sales, the others here.
    fn of(self, rk: &str) -> &'static str {
        if rk.starts_with("ann") { "Sales" } else { self.0 }
    }

    fn person(self, rk: &str, name: &str, spouse: &str) -> Entity {
        let key = EntityKey::new(self.of(rk), rk).unwrap();
        Entity::new(key).with("Name", name).with("Age", 30).with("Spouse", spouse).with("Town", self.of(spouse))
    }

    fn put(self, rk: &str, name: &str, spouse: &str) -> Job {
        job(&json!({"op": "put", "table": "Employees", "entity": odata::encode(&self.person(rk, name, spouse))}))
    }

    fn sync(self, rk: &str) -> Job {
        job(&json!({"op": "sync", "table": "Employees", "pk": self.of(rk), "rk": rk}))
    }

    fn thorough(self, rk: &str) -> Job {
        job(&json!({"op": "sync", "table": "Employees", "pk": self.of(rk), "rk": rk, "thorough": true}))
    }

    /// A client writes one, and leaves to views what is theirs.
    async fn write(self, lab: &Lab, rk: &str, name: &str, spouse: &str) {
        let operation = TableOperation::InsertOrMerge(self.person(rk, name, spouse));
        lab.account.tables.apply(&table("Employees"), &operation).await.unwrap();
    }

    /// A client writes one, and another worker brings that in step.
    async fn writes(self, lab: &Lab, rk: &str, name: &str, spouse: &str) {
        self.write(lab, rk, name, spouse).await;
        lab.work(&self.sync(rk)).await.unwrap();
    }

    /// The same, with another name and the spouse as it is.
    async fn renames(self, lab: &Lab, rk: &str, name: &str) {
        let spouse = self.spouse(lab, rk).await;
        self.writes(lab, rk, name, &spouse).await;
    }

    async fn spouse(self, lab: &Lab, rk: &str) -> String {
        let row = lab.read("Employees", self.of(rk), rk).await;
        row.and_then(|row| row.entity.text("Spouse").map(str::to_owned)).unwrap_or_default()
    }

    async fn married(self, lab: &Lab) {
        self.writes(lab, "cid", "Cid", "").await;
        self.writes(lab, "ann", "Ann", "bob").await;
        self.writes(lab, "bob", "Bob", "ann").await;
    }
}

type Step = fn(Towns, Lab) -> BoxFuture<'static, ()>;
/// Its name, what goes before, and its job.
type Story = (&'static str, Step, fn(Towns) -> Job);

/// A job, and the state that it meets.
fn stories() -> Vec<Story> {
    let married: Step = |towns, lab| Box::pin(async move { towns.married(&lab).await });
    vec![
        (
            "one is put whom the other names already",
            |towns, lab| Box::pin(async move { towns.writes(&lab, "ann", "Ann", "bob").await }),
            |towns| towns.put("bob", "Bob", "ann"),
        ),
        (
            "both were written, and one is synced",
            |towns, lab| {
                Box::pin(async move {
                    towns.write(&lab, "ann", "Ann", "bob").await;
                    towns.write(&lab, "bob", "Bob", "ann").await;
                    lab.sync_later.lock().unwrap().push(towns.sync("bob"));
                })
            },
            |towns| towns.sync("ann"),
        ),
        (
            "one was renamed and is synced",
            |towns, lab| {
                Box::pin(async move {
                    towns.married(&lab).await;
                    towns.write(&lab, "ann", "Anna", "bob").await;
                })
            },
            |towns| towns.sync("ann"),
        ),
        ("one is put with another name", married, |towns| towns.put("ann", "Anna", "bob")),
        ("one is put as before", married, |towns| towns.put("ann", "Ann", "bob")),
        ("one parts", married, |towns| towns.put("ann", "Ann", "")),
        ("one turns to another", married, |towns| towns.put("ann", "Ann", "cid")),
        ("one goes", married, |towns| job(&json!({"op": "delete", "table": "Employees", "pk": towns.of("ann"), "rk": "ann"}))),
        ("a thorough look", married, |towns| towns.thorough("ann")),
        (
            "three of a ring were renamed, and one is synced",
            |towns, lab| {
                Box::pin(async move {
                    for names in [["Ann", "Bob", "Cid"], ["Anna", "Bobby", "Cyd"]] {
                        for ((rk, name), next) in ["ann", "bob", "cid"].into_iter().zip(names).zip(["bob", "cid", "ann"]) {
                            towns.write(&lab, rk, name, next).await;
                            if name != "Cyd" && name.len() == 3 {
                                lab.work(&towns.sync(rk)).await.unwrap();
                            }
                        }
                    }
                    lab.sync_later.lock().unwrap().extend(["bob", "cid"].map(|rk| towns.sync(rk)));
                })
            },
            |towns| towns.sync("ann"),
        ),
    ]
}

/// What somebody else does in between: a client writes, and another worker does the jobs.
fn meddlers() -> [(&'static str, Step); 8] {
    [
        ("the other is renamed", |towns, lab| Box::pin(async move { towns.renames(&lab, "bob", "Bobby").await })),
        ("the same is renamed", |towns, lab| Box::pin(async move { towns.renames(&lab, "ann", "Annie").await })),
        ("the same has its old name again", |towns, lab| Box::pin(async move { towns.renames(&lab, "ann", "Ann").await })),
        ("the same is renamed, and has its old name again", |towns, lab| {
            Box::pin(async move {
                towns.renames(&lab, "ann", "Annie").await;
                towns.renames(&lab, "ann", "Ann").await;
            })
        }),
        ("of the same nothing can be derived for a while", |towns, lab| {
            Box::pin(async move {
                let spouse = towns.spouse(&lab, "ann").await;
                let odd = towns.person("ann", "Ann", &spouse).with("Age", -1);
                lab.account.tables.apply(&table("Employees"), &TableOperation::InsertOrMerge(odd)).await.unwrap();
                drop(lab.work(&towns.sync("ann")).await);
                towns.writes(&lab, "ann", "Ann", &spouse).await;
            })
        }),
        ("the same parts and comes back", |towns, lab| {
            Box::pin(async move {
                let spouse = towns.spouse(&lab, "ann").await;
                towns.writes(&lab, "ann", "Ann", "").await;
                towns.writes(&lab, "ann", "Ann", &spouse).await;
            })
        }),
        ("the other goes, and is there anew", |towns, lab| {
            Box::pin(async move {
                let spouse = towns.spouse(&lab, "bob").await;
                lab.remove(towns.of("bob"), "bob").await;
                lab.work(&towns.sync("bob")).await.unwrap();
                towns.writes(&lab, "bob", "Bob", &spouse).await;
                // As users are told to, who delete what has properties of others.
                lab.sync_later.lock().unwrap().extend(["ann", "cid"].map(|rk| towns.thorough(rk)));
            })
        }),
        ("both are looked at thoroughly", |towns, lab| {
            Box::pin(async move {
                for rk in ["ann", "bob"] {
                    lab.work(&towns.thorough(rk)).await.unwrap();
                }
            })
        }),
    ]
}

/// Does what is left to do. What is wrong then: somebody does not say what the one says who names them.
async fn wrong(lab: &Lab) -> Option<String> {
    lab.faults.calm();
    lab.sim.settle();
    lab.do_queued().await;
    lab.finish().await;
    let rows = lab.rows("Employees").await;
    for row in &rows {
        let (pk, rk) = (row.entity.key.pk.as_str(), row.entity.key.rk.as_str());
        let naming = rows.iter().find(|one| one.entity.text("Spouse") == Some(rk) && one.entity.text("Town") == Some(pk));
        let name = naming.and_then(|one| one.entity.text("Name"));
        if row.entity.text("SpouseName") != name || row.entity.get("ek_owner_spouse").is_some() != name.is_some() {
            return Some(format!("{rk} should say {name:?}: {:?}", row.entity));
        }
        let primary = Primary { table: table("Employees"), key: row.entity.key.clone() };
        let mut plan = lab.engine.plan(&primary).await.unwrap();
        if !plan.in_step && !plan.waiting.is_empty() {
            // A pass that stopped may leave it announced that it tries again to set what has no entity to lie on. That does no harm, and
            // ends with the next sync, which has to follow anyway once that entity is there.
            lab.work(&job(&json!({"op": "sync", "table": "Employees", "pk": pk, "rk": rk}))).await.unwrap();
            plan = lab.engine.plan(&primary).await.unwrap();
        }
        if !plan.in_step {
            return Some(plan.to_string());
        }
    }
    None
}

async fn prepared(towns: Towns, prepare: Step) -> Lab {
    let lab = Lab::with(SMALL, catalog());
    prepare(towns, lab.clone()).await;
    lab
}

async fn undisturbed(towns: Towns, prepare: Step, job: &Job, story: &str) -> u64 {
    let lab = prepared(towns, prepare).await;
    let operations = lab.operations_of(job).await;
    assert_eq!(wrong(&lab).await, None, "{story}");
    operations
}

#[tokio::test]
async fn each_says_what_the_other_is_whatever_fails_at_every_operation() {
    let mut runs = 0_u32;
    for towns in Towns::ALL {
        for (story, prepare, job) in stories() {
            let job = job(towns);
            let mut sweep = Sweep::over(undisturbed(towns, prepare, &job, story).await);
            while let Some(case) = sweep.next() {
                let lab = prepared(towns, prepare).await;
                case.arm(&lab.faults);
                assert!(lab.deliver_until_done(&job).await.is_some(), "{story}, {case}, {towns:?}: poisoned");
                sweep.seen(&lab);
                assert_eq!(wrong(&lab).await, None, "{story}, {case}, {towns:?}");
            }
            runs += sweep.runs().0;
        }
    }
    assert!(runs > 500, "only {runs} runs: the sweep has lost its stories");
}

/// Every story with another worker in between at every operation, after which the first one stops at once, some operations later, or not at
/// all. The first thing that is wrong, and how many runs there were.
async fn meddled(stories: &[Story]) -> (Option<String>, u32) {
    let mut runs = 0;
    for towns in Towns::ALL {
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
                            return (Some(format!("{story}, {name} before operation {at}, stops {stops:?}, {towns:?}: {wrong}")), runs);
                        }
                    }
                }
            }
        }
    }
    (None, runs)
}

#[tokio::test]
async fn each_says_what_the_other_is_whoever_does_what_in_between_at_every_operation() {
    let (wrong, runs) = meddled(&stories()).await;
    assert_eq!(wrong, None);
    assert!(runs > 1_000, "only {runs} runs: the sweep has lost its stories");
}

/// What stops late writes is tested by doing without it.
#[tokio::test]
async fn a_write_that_is_not_announced_or_keeps_its_token_is_caught() {
    let renamed: Vec<_> = stories().into_iter().filter(|(story, ..)| story.contains("renamed and is synced")).collect();
    for bug in [Bug::PropertiesUnannounced, Bug::PropertyTokensRepeat] {
        let _planting = MutationGuard::of(bug);
        let (wrong, runs) = meddled(&renamed).await;
        assert!(wrong.is_some(), "{bug:?} is not caught in {runs} runs");
    }
}

/// Tokens that tell nothing of the values are those of older versions.
#[tokio::test]
async fn what_an_older_version_has_set_is_written_once_more_with_a_token_that_tells_it() {
    for towns in Towns::ALL {
        let lab = Lab::with(SMALL, catalog());
        towns.married(&lab).await;
        let token = || async {
            let row = lab.read("Employees", towns.of("bob"), "bob").await.unwrap();
            let owner: Value = serde_json::from_str(row.entity.text("ek_owner_spouse").unwrap()).unwrap();
            owner["token"].as_str().unwrap().to_owned()
        };
        let (new, old) = (token().await, ETag::token(7).to_string());
        let places = [("Employees", towns.of("bob"), "bob", "ek_owner_spouse"), ("EvenkeelFootprints", "Employees~Sales", "ann", "Items")];
        for (name, pk, rk, property) in places {
            let row = lab.read(name, pk, rk).await.unwrap().entity;
            let text = row.text(property).unwrap().replace(&new, &old);
            lab.account
                .tables
                .apply(&table(name), &TableOperation::InsertOrMerge(Entity::new(row.key).with(property, text)))
                .await
                .unwrap();
        }
        // Nobody changes anything: it stays as it is.
        for job in [towns.sync("ann"), towns.thorough("bob"), towns.thorough("ann")] {
            lab.work(&job).await.unwrap();
        }
        assert_eq!((token().await, wrong(&lab).await), (old.clone(), None));
        lab.work(&towns.put("ann", "Ann", "bob")).await.unwrap();
        let written = token().await;
        assert!(written != old && written != new);
        lab.work(&towns.put("ann", "Ann", "bob")).await.unwrap();
        assert_eq!((token().await, wrong(&lab).await), (written, None), "once");
    }
}
