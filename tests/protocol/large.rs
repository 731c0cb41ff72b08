//! Large values, disturbed at every operation of every job: no pointer leads nowhere, and no blob belongs to nobody.

use std::collections::BTreeSet;

use evenkeel::config::{self, Folder, Request};
use evenkeel::model::job::Primary;
use evenkeel::model::large::{self, Pointer, STAGING};
use evenkeel::model::{BlobName, ContainerName, Entity, EntityKey, Job, ViewName, odata};
use evenkeel::ports::BlobUpload;
use futures::future::BoxFuture;
use serde_json::json;

use crate::DISTURBANCES;
use crate::world::{Disturbance, Lab, SMALL, job, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.photos]
kind = "large_entity"
source = "Staff"
properties = ["Photo", "Resume"]
container = "large"
threshold = "16B"

[views.by_name]
kind = "secondary_index"
source = "Staff"
table = "Staff"
partition_key = "{PartitionKey}"
row_key = "name_{Name}_{RowKey}"

[archives.former]
source = "Staff"
to = { kind = "table", table = "Former" }

[views.former_photos]
kind = "large_entity"
source = "Former"
container = "former"

[archives.papers]
source = "Staff"
to = { kind = "blob", container = "papers" }
"#;

const FIRST: &str = "the first value, which is large";
const SECOND: &str = "the second value, which is large too";

fn container(name: &str) -> ContainerName {
    ContainerName::new(name).unwrap()
}

async fn lab() -> Lab {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("default.toml"), CATALOG).unwrap();
    let request = Request { folder: Folder::Named(folder.path().to_owned()), ..Request::default() };
    let lab = Lab::with(SMALL, config::load(&request).unwrap().catalog);
    for name in ["large", "former", "papers", STAGING] {
        lab.account.blobs.create_container(&container(name)).await.unwrap();
    }
    lab
}

/// What is staged: more than a block.
fn staged() -> Vec<u8> {
    vec![7; (4 << 20) + 5]
}

fn person(name: &str) -> Entity {
    Entity::new(EntityKey::new("p", "1").unwrap()).with("Name", name)
}

fn put(entity: &Entity, mode: &str) -> Job {
    job(&json!({"op": "put", "table": "Staff", "mode": mode, "entity": odata::encode(entity)}))
}

fn on(op: &str) -> Job {
    match op {
        "archive" | "restore" => job(&json!({"op": op, "archive": "former", "pk": "p", "rk": "1"})),
        "file" => job(&json!({"op": "archive", "archive": "papers", "pk": "p", "rk": "1"})),
        "unfile" => job(&json!({"op": "restore", "archive": "papers", "pk": "p", "rk": "1"})),
        "move" => job(&json!({"op": op, "table": "Staff", "pk": "p", "rk": "1", "to_pk": "q", "to_rk": "2"})),
        _ => job(&json!({"op": op, "table": "Staff", "pk": "p", "rk": "1"})),
    }
}

/// Contents by property.
type Values = Vec<(&'static str, Vec<u8>)>;

/// A job, the jobs before it, and what is there in the end: table, key, and the contents of Photo and Resume.
struct Scenario {
    name: &'static str,
    before: fn() -> Vec<Job>,
    job: fn() -> Job,
    after: Option<(&'static str, (&'static str, &'static str), Values)>,
}

fn settled() -> Vec<Job> {
    vec![put(&person("Ada").with("Photo", FIRST), "replace")]
}

fn scenarios() -> Vec<Scenario> {
    let photo = |content: &str| vec![("Photo", content.as_bytes().to_vec())];
    let here = ("p", "1");
    vec![
        Scenario {
            name: "a new value",
            before: Vec::new,
            job: || put(&person("Ada").with("Photo", FIRST), "replace"),
            after: Some(("Staff", here, photo(FIRST))),
        },
        Scenario {
            name: "another value",
            before: settled,
            job: || put(&person("Countess").with("Photo", SECOND), "replace"),
            after: Some(("Staff", here, photo(SECOND))),
        },
        Scenario {
            name: "the value before the last comes back",
            before: || vec![put(&person("Ada").with("Photo", SECOND), "replace"), put(&person("Ada").with("Photo", FIRST), "replace")],
            job: || put(&person("Ada").with("Photo", SECOND), "replace"),
            after: Some(("Staff", here, photo(SECOND))),
        },
        Scenario {
            name: "one more value by a merge",
            before: settled,
            job: || put(&Entity::new(person("").key).with("Resume", SECOND), "merge"),
            after: Some(("Staff", here, vec![("Photo", FIRST.as_bytes().to_vec()), ("Resume", SECOND.as_bytes().to_vec())])),
        },
        Scenario {
            name: "no value any more",
            before: settled,
            job: || put(&person("Ada"), "replace"),
            after: Some(("Staff", here, Vec::new())),
        },
        Scenario {
            name: "a staged value in place of another",
            before: settled,
            job: || {
                let blobs = json!({"Photo": {"blob": format!("{STAGING}/photo"), "sha256": large::hash(&staged())}});
                job(&json!({"op": "put", "table": "Staff", "entity": odata::encode(&person("Ada")), "blobs": blobs}))
            },
            after: Some(("Staff", here, vec![("Photo", staged())])),
        },
        Scenario { name: "it is deleted", before: settled, job: || on("delete"), after: None },
        Scenario { name: "it is archived", before: settled, job: || on("archive"), after: Some(("Former", here, photo(FIRST))) },
        Scenario {
            name: "it is archived over an earlier archiving",
            before: || {
                vec![
                    put(&person("Old").with("Photo", SECOND), "replace"),
                    on("archive"),
                    put(&person("Ada").with("Photo", FIRST), "replace"),
                ]
            },
            job: || on("archive"),
            after: Some(("Former", here, photo(FIRST))),
        },
        Scenario {
            name: "it is restored",
            before: || vec![put(&person("Ada").with("Photo", FIRST), "replace"), on("archive")],
            job: || on("restore"),
            after: Some(("Staff", here, photo(FIRST))),
        },
        Scenario { name: "it is filed", before: settled, job: || on("file"), after: Some(("Papers", here, photo(FIRST))) },
        Scenario {
            name: "it is filed over an earlier filing",
            before: || {
                vec![
                    put(&person("Old").with("Photo", SECOND), "replace"),
                    on("file"),
                    put(&person("Ada").with("Photo", FIRST).with("Resume", SECOND), "replace"),
                ]
            },
            job: || on("file"),
            after: Some(("Papers", here, vec![("Photo", FIRST.as_bytes().to_vec()), ("Resume", SECOND.as_bytes().to_vec())])),
        },
        Scenario {
            name: "it comes back from the files",
            before: || vec![put(&person("Ada").with("Photo", FIRST), "replace"), on("file")],
            job: || on("unfile"),
            after: Some(("Staff", here, photo(FIRST))),
        },
        Scenario { name: "it moves", before: settled, job: || on("move"), after: Some(("Staff", ("q", "2"), photo(FIRST))) },
    ]
}

async fn prepared(scenario: &Scenario) -> Lab {
    let lab = lab().await;
    for job in (scenario.before)() {
        lab.work(&job).await.unwrap();
    }
    if matches!((scenario.job)(), Job::Put(put) if !put.staged_values.is_empty()) {
        let name = BlobName::new("photo").unwrap();
        lab.account.blobs.put(&container(STAGING), &name, staged().into(), &BlobUpload::default()).await.unwrap();
    }
    lab
}

/// Every entity that is no copy, with its table and its primary: those of the tables, and the documents.
async fn entities(lab: &Lab) -> Vec<(&'static str, Primary, Entity)> {
    let mut entities = Vec::new();
    for name in ["Staff", "Former"] {
        let rows = lab.sim.rows(&table(name)).into_iter().filter(|row| row.entity.get("ek_view").is_none());
        entities.extend(rows.map(|row| (name, Primary { table: table(name), key: row.entity.key.clone() }, row.entity)));
    }
    let filing = lab.engine.catalog().filing_of(&ViewName::new("papers").unwrap()).unwrap().table.table.clone();
    for name in names(lab, "papers").await.into_iter().filter(|name| !name.contains("%values/")) {
        let name = BlobName::new(name.strip_prefix("papers/").unwrap()).unwrap();
        let blob = lab.account.blobs.get(&container("papers"), &name, None).await.unwrap().unwrap();
        let entity = odata::decode(&serde_json::from_slice(&blob.content).unwrap()).unwrap();
        entities.push(("Papers", Primary { table: filing.clone(), key: entity.key.clone() }, entity));
    }
    entities
}

async fn names(lab: &Lab, of: &str) -> Vec<String> {
    let page = lab.account.blobs.list(&container(of), "", None).await.unwrap();
    page.blobs.into_iter().map(|blob| format!("{of}/{}", blob.name)).collect()
}

/// Every pointer leads to a blob with its content, every blob is pointed to, and no plan finds anything to do.
async fn check(lab: &Lab, scenario: &Scenario, story: &str) {
    let mut wanted = BTreeSet::new();
    let mut found = Vec::new();
    for (name, primary, entity) in entities(lab).await {
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(plan.in_step && plan.waiting.is_empty(), "{story}: {plan}");
        let mut values = Vec::new();
        for (property, value) in entity.user_properties() {
            let Some(pointer) = Pointer::of(value) else { continue };
            let blob = lab.account.blobs.get(&pointer.container, &pointer.name, None).await.unwrap();
            let content = blob.unwrap_or_else(|| panic!("{story}: {property} of {primary} leads nowhere")).content;
            assert_eq!(large::hash(&content), pointer.sha256, "{story}");
            wanted.insert(format!("{}/{}", pointer.container, pointer.name));
            values.push((property.clone(), content.to_vec()));
        }
        found.push((name, (primary.key.pk.to_string(), primary.key.rk.to_string()), values));
    }
    let mut there = BTreeSet::new();
    for container in ["large", "former", "papers"] {
        there.extend(names(lab, container).await.into_iter().filter(|name| !name.contains(".json") || name.contains("%values/")));
    }
    assert_eq!(there, wanted, "{story}: blobs that belong to nobody, or are missing");
    assert_eq!(names(lab, STAGING).await, Vec::<String>::new(), "{story}: what was staged is left behind");
    let expected = scenario.after.iter().map(|(table, (pk, rk), values)| {
        let values: Vec<_> = values.iter().map(|(name, content)| ((*name).to_owned(), content.clone())).collect();
        (*table, ((*pk).to_owned(), (*rk).to_owned()), values)
    });
    assert!(found == expected.collect::<Vec<_>>(), "{story}: {:?}", found.iter().map(|(table, key, _)| (table, key)).collect::<Vec<_>>());
}

async fn operations_of(scenario: &Scenario) -> u64 {
    let lab = prepared(scenario).await;
    lab.weather.arm(u64::MAX, Disturbance::Crash);
    lab.deliver_until_done(&(scenario.job)()).await.expect("it succeeds");
    let operations = lab.weather.counted();
    lab.weather.calm();
    lab.finish().await;
    check(&lab, scenario, scenario.name).await;
    operations
}

#[tokio::test]
async fn every_job_disturbed_at_every_operation_leaves_no_value_behind_and_none_out() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let operations = operations_of(&scenario).await;
        for disturbance in DISTURBANCES {
            for at in 1..=operations + 1 {
                let lab = prepared(&scenario).await;
                lab.weather.arm(at, disturbance);
                lab.deliver_until_done(&(scenario.job)()).await;
                lab.weather.calm();
                lab.finish().await;
                check(&lab, &scenario, &format!("{}, {disturbance:?} at operation {at}", scenario.name)).await;
                runs += 1;
            }
        }
    }
    assert!(runs > 500, "only {runs} runs: the sweep has lost its scenarios");
}

type Meddler = fn(Lab, Job) -> BoxFuture<'static, ()>;

/// Somebody else brings everything in step that the job may touch.
fn syncs(other: Lab, _: Job) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let filing = other.engine.catalog().filing_of(&ViewName::new("papers").unwrap()).unwrap().table.table.to_string();
        for (name, pk, rk) in [("Staff", "p", "1"), ("Former", "p", "1"), ("Staff", "q", "2"), (filing.as_str(), "p", "1")] {
            drop(other.work(&job(&json!({"op": "sync", "table": name, "pk": pk, "rk": rk}))).await);
        }
    })
}

/// Somebody else gets the same message, since a lease was lost unnoticed, and does the job.
fn does_the_same(other: Lab, job: Job) -> BoxFuture<'static, ()> {
    Box::pin(async move { drop(other.deliver_until_done(&job).await) })
}

#[tokio::test]
async fn another_worker_in_between_takes_no_value_away_for_good() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let operations = operations_of(&scenario).await;
        for (name, meddler) in [("syncs", syncs as Meddler), ("the same job", does_the_same)] {
            for at in 1..=operations {
                let lab = prepared(&scenario).await;
                lab.weather.arm(at, Disturbance::Meddle);
                lab.weather.meddle(meddler(lab.of_another_worker(), (scenario.job)()));
                lab.deliver_until_done(&(scenario.job)()).await;
                lab.weather.calm();
                lab.finish().await;
                check(&lab, &scenario, &format!("{}, {name} before operation {at}", scenario.name)).await;
                runs += 1;
            }
        }
    }
    assert!(runs > 160, "only {runs} runs: the sweep has lost its scenarios");
}
