//! Long lists. Lists in blobs are disturbed at every operation of every job. Other tests fill lists in rows and in
//! blobs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use evenkeel_engine::footprint::{self, Footprint};
use evenkeel_engine::{Failure, FailureClass, MemoryBudget, MemoryShare};
use evenkeel_model::item::{metadata, shared_source_text};
use evenkeel_model::job::Primary;
use evenkeel_model::settings::DEFAULT_MEMORY;
use evenkeel_model::shared::{BlobList, Edit, PartChange};
use evenkeel_model::{
    AccountName, BlobName, ContainerName, ETag, EdmValue, Entity, EntityKey, ItemAddress, Job,
    Member, Part, Site, ViewName,
};
use evenkeel_storage::{BlobUpload, IfMatch, TableOperation};
use futures::future::{BoxFuture, join_all};
use serde_json::Value;

use crate::protocol::sweep::Sweep;
use crate::protocol::world::{Disturbance, Lab, SMALL, declared, sync, table};

const CATALOG: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.named]
kind = "index_entity"
source = "Employees"
store = "table"
table = "Lists"
partition_key = "list"
row_key = "{LastName}"
member = ["{PartitionKey}", "{RowKey}", "{Note}"]
property = "Employees"

[views.skilled]
kind = "index_entity"
source = "Employees"
store = "blob"
container = "skilled"
name = "{Skill}.jsonl"
member = ["{PartitionKey}", "{RowKey}", "{Note}"]

[views.payroll]
kind = "aggregate"
source = "Employees"
group_table = "Groups"
partition_key = "group"
row_key = "{Group}"
set = { Headcount = "count()", Payroll = "sum(Salary)" }
"#;

/// Number of characters in a note. Each has three bytes in UTF-8, and one unit in UTF-16. Seventeen members with such a
/// note exceed one property of a row, and a blob with them is read in two requests.
const NOTE: usize = 1_900;

async fn lab() -> Lab {
    let lab = Lab::with(SMALL, declared(CATALOG));
    lab.account
        .blobs
        .create_container(&ContainerName::new("skilled").unwrap())
        .await
        .unwrap();
    lab
}

fn person(rk: &str, name: &str, skill: &str) -> Entity {
    let entity = Entity::new(EntityKey::new("Sales", rk).unwrap())
        .with("LastName", name)
        .with("Skill", skill);
    entity
        .with("Group", name)
        .with("Salary", 3)
        .with("Note", "한".repeat(NOTE))
}

async fn come(lab: &Lab, keys: &[String], name: &str, skill: &str) -> Vec<Result<(), Failure>> {
    lab.faults.take_turns();
    for rk in keys {
        lab.write(person(rk, name, skill)).await;
    }
    let jobs: Vec<Job> = keys.iter().map(|rk| sync("Sales", rk)).collect();
    join_all(jobs.iter().map(|job| lab.work(job)))
        .await
        .into_iter()
        .map(|ended| ended.map(drop))
        .collect()
}

async fn people(lab: &Lab, range: std::ops::Range<usize>, name: &str, skill: &str) {
    let keys: Vec<String> = range.map(|n| format!("{n:03}")).collect();
    come(lab, &keys, name, skill)
        .await
        .into_iter()
        .for_each(|ended| ended.unwrap());
}

type Step = fn(Lab) -> BoxFuture<'static, ()>;

struct Scenario {
    name: &'static str,
    prepare: Step,
    rk: &'static str,
}

fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario {
            name: "the first member makes a list in a blob",
            prepare: |lab| Box::pin(async move { lab.write(person("900", "", "Rust")).await }),
            rk: "900",
        },
        Scenario {
            name: "a member changes lists in blobs",
            prepare: |lab| {
                Box::pin(async move {
                    people(&lab, 0..3, "", "Rust").await;
                    people(&lab, 3..4, "", "C").await;
                    lab.write(person("003", "", "Rust")).await;
                })
            },
            rk: "003",
        },
        Scenario {
            name: "a member joins a long list in a blob",
            prepare: |lab| {
                Box::pin(async move {
                    people(&lab, 0..17, "", "Rust").await;
                    lab.write(person("900", "", "Rust")).await;
                })
            },
            rk: "900",
        },
        Scenario {
            name: "the last member leaves a list in a blob",
            prepare: |lab| {
                Box::pin(async move {
                    people(&lab, 0..1, "", "Rust").await;
                    lab.remove("Sales", "000").await;
                })
            },
            rk: "000",
        },
        Scenario {
            name: "a member joins a list of several properties and a group",
            prepare: |lab| {
                Box::pin(async move {
                    people(&lab, 0..17, "King", "").await;
                    lab.write(person("900", "King", "")).await;
                })
            },
            rk: "900",
        },
    ]
}

/// Fills a row until only this many bytes are free.
async fn fill(lab: &Lab, name: &str, key: (&str, &str), room: usize) {
    let mut row = lab.read(name, key.0, key.1).await.unwrap().entity;
    let mut n = 0;
    for size in [32_000, 4_000, 500, 60, 5] {
        loop {
            let larger = row.clone().with(format!("Padding{n:03}"), "x".repeat(size));
            if larger
                .clone()
                .with("Room", "x".repeat(room / 2))
                .check()
                .is_err()
            {
                break;
            }
            (row, n) = (larger, n + 1);
        }
    }
    lab.account
        .tables
        .apply(&table(name), &TableOperation::Replace(row, IfMatch::Any))
        .await
        .unwrap();
}

type Listed = BTreeMap<Vec<String>, String>;

async fn lines(lab: &Lab, story: &str, container: &str, name: &str) -> Listed {
    let (container, name) = (
        ContainerName::new(container).unwrap(),
        BlobName::new(name).unwrap(),
    );
    let blob = lab
        .account
        .blobs
        .get(&container, &name, None)
        .await
        .unwrap();
    let blob = blob.unwrap_or_else(|| panic!("{story}: {container}/{name} does not exist"));
    let text = String::from_utf8(blob.content.to_vec()).unwrap();
    let mut lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let head = lines.next().unwrap();
    let members: Vec<(Vec<String>, String)> = lines
        .map(|line| serde_json::from_value(line).unwrap())
        .collect();
    assert!(
        members.is_sorted_by(|one, next| one.0 < next.0),
        "{story}: {name} is not sorted"
    );
    assert_eq!(head["ek_count"], members.len(), "{story}");
    members.into_iter().collect()
}

fn in_row(story: &str, row: &Entity) -> Listed {
    let property = row.text("ek_list").unwrap();
    let pieces = |property: &str| -> Vec<Value> {
        let names =
            std::iter::once(property.to_owned()).chain((1..).map(|n| format!("{property}_{n}")));
        let texts = names.map_while(|name| row.text(&name).map(ToOwned::to_owned));
        texts
            .flat_map(|text| serde_json::from_str::<Vec<Value>>(&text).unwrap())
            .collect()
    };
    let (members, tokens) = (pieces(property), pieces("ek_tokens"));
    assert_eq!(members.len(), tokens.len(), "{story}");
    members
        .into_iter()
        .zip(tokens)
        .map(|(member, token)| {
            (
                serde_json::from_value(member).unwrap(),
                token.as_str().unwrap().to_owned(),
            )
        })
        .collect()
}

async fn check(lab: &Lab, story: &str) {
    let mut wanted: BTreeMap<(&str, String), BTreeSet<Vec<String>>> = BTreeMap::new();
    let people = lab.rows("Employees").await;
    for row in &people {
        let entity = &row.entity;
        let (pk, rk) = (entity.key.pk.to_string(), entity.key.rk.to_string());
        let (note, text) = (entity.text("Note").unwrap().to_owned(), |name: &str| {
            entity.text(name).unwrap().to_owned()
        });
        for (place, value) in [("Lists", text("LastName")), ("skilled", text("Skill"))] {
            if !value.is_empty() {
                wanted.entry((place, value)).or_default().insert(vec![
                    pk.clone(),
                    rk.clone(),
                    note.clone(),
                ]);
            }
        }
        if !text("Group").is_empty() {
            wanted
                .entry(("Groups", text("Group")))
                .or_default()
                .insert(vec![pk, rk, "Salary=i3".to_owned()]);
        }
    }

    let mut found: BTreeMap<(&str, String), Listed> = BTreeMap::new();
    for place in ["Lists", "Groups"] {
        for row in lab.rows(place).await {
            let listed = in_row(story, &row.entity);
            let count = i64::try_from(listed.len()).unwrap();
            assert_eq!(
                row.entity.get("ek_count"),
                Some(&EdmValue::Int64(count)),
                "{story}: the row has a wrong count of members"
            );
            if place == "Groups" {
                let figures = ["Headcount", "Payroll"].map(|name| row.entity.get(name).cloned());
                assert_eq!(
                    figures,
                    [
                        Some(EdmValue::Int64(count)),
                        Some(EdmValue::Int64(3 * count))
                    ],
                    "{story}"
                );
            }
            found.insert((place, row.entity.key.rk.to_string()), listed);
        }
    }
    let container = ContainerName::new("skilled").unwrap();
    for blob in lab
        .account
        .blobs
        .list(&container, "", None)
        .await
        .unwrap()
        .blobs
    {
        let name = blob
            .name
            .as_str()
            .strip_suffix(".jsonl")
            .unwrap()
            .to_owned();
        found.insert(
            ("skilled", name),
            lines(lab, story, "skilled", blob.name.as_str()).await,
        );
    }
    let members: BTreeMap<_, BTreeSet<_>> = found
        .iter()
        .map(|(place, listed)| (place.clone(), listed.keys().cloned().collect()))
        .collect();
    assert_eq!(members, wanted, "{story}");

    for row in people {
        let primary = Primary {
            table: table("Employees"),
            key: row.entity.key,
        };
        let plan = lab.engine.plan(&primary).await.unwrap();
        assert!(
            plan.in_step,
            "{story}: a second pass would still change something: {plan}"
        );
        let recorded = lab
            .account
            .tables
            .get(&footprint::table(), &footprint::key(&primary), None)
            .await
            .unwrap()
            .unwrap();
        let recorded = Footprint::decode(&primary, &recorded.entity, None).unwrap();
        for (ItemAddress { site, part, .. }, entry) in &recorded.items {
            let place = match site {
                Site::Row { table, key } => (
                    if table.as_str() == "Lists" {
                        "Lists"
                    } else {
                        "Groups"
                    },
                    key.rk.to_string(),
                ),
                Site::Blob { name, .. } => (
                    "skilled",
                    name.as_str().strip_suffix(".jsonl").unwrap().to_owned(),
                ),
                Site::File { .. } | Site::Document { .. } => panic!("{story}: {site} is no list"),
            };
            let Some(Part::Member(member)) = part else {
                panic!("{story}: {part:?} is no member")
            };
            let token = found
                .get(&place)
                .and_then(|listed| listed.get(&member.0))
                .unwrap_or_else(|| panic!("{story}: {place:?} lacks {member}"));
            assert_eq!(
                entry.etag.as_ref().map(evenkeel_model::ETag::as_str),
                Some(token.as_str()),
                "{story}"
            );
        }
    }
}

async fn undisturbed(scenario: &Scenario) -> u64 {
    let lab = lab().await;
    (scenario.prepare)(lab.clone()).await;
    let operations = lab.operations_of(&sync("Sales", scenario.rk)).await;
    lab.finish().await;
    check(&lab, scenario.name).await;
    operations
}

#[tokio::test]
async fn every_change_of_a_list_in_a_blob_disturbed_at_every_operation_converges() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let mut sweep = Sweep::over(undisturbed(&scenario).await);
        while let Some(case) = sweep.next() {
            let lab = lab().await;
            (scenario.prepare)(lab.clone()).await;
            case.arm(&lab.faults);
            lab.deliver_until_done(&sync("Sales", scenario.rk)).await;
            sweep.seen(&lab);
            lab.faults.calm();
            lab.finish().await;
            check(&lab, &format!("{}, {case}", scenario.name)).await;
        }
        runs += sweep.runs().0;
    }
    assert!(
        runs > 100,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

#[tokio::test]
async fn members_are_added_while_they_fit_and_all_can_be_removed() {
    let keys: Vec<String> = (800..808).map(|n| n.to_string()).collect();
    for (place, key, room) in [
        ("Lists", ("list", "King"), 12_000),
        ("Groups", ("group", "King"), 250),
    ] {
        let lab = lab().await;
        people(&lab, 0..1, "King", "").await;
        fill(&lab, place, key, room).await;
        let mut out = Vec::new();
        for (rk, ended) in keys.iter().zip(come(&lab, &keys, "King", "").await) {
            let Err(failure) = ended else { continue };
            assert_eq!(
                failure.class,
                FailureClass::Permanent,
                "{place}: {}",
                failure.chain()
            );
            assert!(
                failure.chain().contains("the list is full")
                    && failure.chain().contains("|bucket:N"),
                "{}",
                failure.chain()
            );
            out.push(rk);
        }
        assert!(
            (2..8).contains(&out.len()),
            "{place}: {out:?} must not fail"
        );
        let members = in_row(place, &lab.read(place, key.0, key.1).await.unwrap().entity).len();
        assert_eq!(members, 9 - out.len(), "{place}");

        // A member that leaves the list makes room for another.
        lab.remove("Sales", "000").await;
        lab.work(&sync("Sales", "000")).await.unwrap();
        lab.work(&sync("Sales", out[0])).await.unwrap();
        for rk in &keys {
            lab.remove("Sales", rk).await;
            lab.work(&sync("Sales", rk)).await.unwrap();
        }
        lab.finish().await;
        assert!(lab.read(place, key.0, key.1).await.is_none(), "{place}");
        check(&lab, place).await;
    }
}

/// A member of a full list becomes longer. It is removed from the list and cannot be added again.
#[tokio::test]
async fn a_member_that_no_longer_fits_is_removed_from_its_list() {
    let lab = lab().await;
    people(&lab, 0..2, "King", "").await;
    let shorter = person("001", "King", "").with("Note", "n");
    lab.account
        .tables
        .apply(
            &table("Employees"),
            &TableOperation::Replace(shorter, IfMatch::Any),
        )
        .await
        .unwrap();
    lab.work(&sync("Sales", "001")).await.unwrap();
    fill(&lab, "Lists", ("list", "King"), 500).await;
    lab.account
        .tables
        .apply(
            &table("Employees"),
            &TableOperation::Replace(person("001", "King", ""), IfMatch::Any),
        )
        .await
        .unwrap();
    let failure = lab.work(&sync("Sales", "001")).await.unwrap_err();
    assert!(
        failure.chain().contains("the list is full"),
        "{}",
        failure.chain()
    );
    let listed = in_row(
        "full",
        &lab.read("Lists", "list", "King").await.unwrap().entity,
    );
    assert_eq!(
        listed
            .keys()
            .map(|member| member[1].as_str())
            .collect::<Vec<_>>(),
        ["000"]
    );
}

/// Writes a list of more than 3 MiB to a blob. Changing it takes three times its size, which is more than half of the
/// memory for lists.
async fn long_list(lab: &Lab, skill: &str) {
    const MEMBERS: u64 = 1_700;
    let (container, name) = (
        ContainerName::new("skilled").unwrap(),
        BlobName::new(format!("{skill}.jsonl")).unwrap(),
    );
    let view = ViewName::new("skilled").unwrap();
    let place = Site::Blob {
        container: container.clone(),
        name: name.clone(),
    };
    let put = |number: u64| {
        let part = Some(Part::Member(Member(vec![
            "Sales".to_owned(),
            format!("x{number}"),
            "x".repeat(NOTE),
        ])));
        let address = ItemAddress {
            view: view.clone(),
            account: AccountName::main(),
            site: place.clone(),
            part,
        };
        PartChange {
            address,
            write: Edit::Put {
                over: None,
                token: ETag::token(number),
            },
            properties: None,
        }
    };
    let list = BlobList::new(view.clone(), table("Employees"))
        .changed(&(0..MEMBERS).map(put).collect::<Vec<_>>())
        .0
        .unwrap();
    let metadata = metadata(&shared_source_text(list.source()), &view);
    let upload = BlobUpload {
        metadata,
        ..BlobUpload::default()
    };
    let content = list.render();
    assert!(content.len() > 3 << 20, "{}", content.len());
    lab.account
        .blobs
        .put(&container, &name, content.into(), &upload)
        .await
        .unwrap();
}

#[tokio::test]
async fn changes_of_long_lists_run_one_at_a_time() {
    let (most, waited) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicUsize::new(0)));
    let (seen, met) = (Arc::clone(&most), Arc::clone(&waited));
    let budget = MemoryBudget::with_listener(
        DEFAULT_MEMORY,
        Box::new(move |share, used| {
            if share == MemoryShare::Documents {
                seen.fetch_max(used.held, Ordering::SeqCst);
                met.fetch_max(used.waiting, Ordering::SeqCst);
            }
        }),
    );
    let lab = lab().await.within(Arc::new(budget));
    for skill in ["C", "Rust", "Ada"] {
        long_list(&lab, skill).await;
        lab.write(person(skill, "", skill)).await;
    }
    lab.faults.take_turns();
    let jobs = ["C", "Rust", "Ada"].map(|rk| sync("Sales", rk));
    for ended in join_all(jobs.iter().map(|job| lab.work(job))).await {
        ended.unwrap();
    }
    assert_eq!(
        waited.load(Ordering::SeqCst),
        2,
        "two must wait for the first"
    );
    let (least, held) = (3 * (3 << 20), most.load(Ordering::SeqCst));
    assert!(
        (least..2 * least).contains(&held),
        "{held} bytes were held at the same time"
    );
}

fn meddlers() -> Vec<(&'static str, Step)> {
    vec![
        ("others join and their syncs", |lab| {
            Box::pin(async move {
                lab.write(person("800", "King", "Rust")).await;
                drop(lab.work(&sync("Sales", "800")).await);
            })
        }),
        ("others leave and their syncs", |lab| {
            Box::pin(async move {
                for rk in ["001", "002"] {
                    lab.remove("Sales", rk).await;
                    drop(lab.work(&sync("Sales", rk)).await);
                }
            })
        }),
        ("its own primary changes and its sync comes later", |lab| {
            Box::pin(async move {
                for rk in ["900", "005", "003"] {
                    if lab.read("Employees", "Sales", rk).await.is_some() {
                        lab.write(person(rk, "Byron", "C")).await;
                        lab.sync_later.lock().unwrap().push(sync("Sales", rk));
                    }
                }
            })
        }),
    ]
}

#[tokio::test]
async fn another_worker_who_changes_the_same_list_at_every_operation_loses_nothing() {
    let mut runs = 0_u32;
    for scenario in scenarios() {
        let operations = undisturbed(&scenario).await;
        for (name, meddle) in meddlers() {
            for at in 1..=operations {
                let lab = lab().await;
                (scenario.prepare)(lab.clone()).await;
                lab.faults.arm(at, Disturbance::Meddle);
                lab.faults.meddle(meddle(lab.of_another_worker()));
                lab.deliver_until_done(&sync("Sales", scenario.rk)).await;
                lab.faults.calm();
                lab.finish().await;
                check(
                    &lab,
                    &format!("{}, {name} before operation {at}", scenario.name),
                )
                .await;
                runs += 1;
            }
        }
    }
    assert!(
        runs > 80,
        "only {runs} runs: the sweep must run all scenarios"
    );
}

const BESIDE: &str = r#"
[accounts.main]
kind = "embedded"
path = "unused.db"

[views.named_near]
kind = "index_entity"
source = "Employees"
store = "partition"
row_key = "name_{LastName}"
member = ["{RowKey}"]
property = "Ids"
"#;

#[tokio::test]
async fn a_list_beside_primaries_whose_partition_key_is_escaped_follows_them() {
    let lab = Lab::with(SMALL, declared(BESIDE));
    let put = |rk: &str, name: &str| {
        let entity = serde_json::json!({"PartitionKey": "100%", "RowKey": rk, "LastName": name});
        crate::protocol::world::job(
            &serde_json::json!({"op": "put", "table": "Employees", "entity": entity}),
        )
    };
    let delete = |rk: &str| {
        crate::protocol::world::job(
            &serde_json::json!({"op": "delete", "table": "Employees", "pk": "100%", "rk": rk}),
        )
    };
    let lives = [
        (put("1", "King"), vec![("name_King", r#"[["1"]]"#)]),
        (put("2", "King"), vec![("name_King", r#"[["1"],["2"]]"#)]),
        (put("1", "King"), vec![("name_King", r#"[["1"],["2"]]"#)]),
        (
            put("1", "Byron"),
            vec![("name_Byron", r#"[["1"]]"#), ("name_King", r#"[["2"]]"#)],
        ),
        (delete("2"), vec![("name_Byron", r#"[["1"]]"#)]),
        (delete("1"), vec![]),
    ];
    for (job, wanted) in lives {
        lab.work(&job).await.unwrap();
        let rows = lab.rows("Employees").await;
        let listed: Vec<(&str, &str)> = rows
            .iter()
            .filter_map(|row| Some((row.entity.key.rk.as_str(), row.entity.text("Ids")?)))
            .collect();
        assert_eq!(listed, wanted, "{job:?}");
        for row in rows.iter().filter(|row| row.entity.text("Ids").is_none()) {
            let primary = Primary {
                table: table("Employees"),
                key: row.entity.key.clone(),
            };
            let plan = lab.engine.plan(&primary).await.unwrap();
            assert!(plan.in_step, "{job:?}: {plan}");
        }
    }
}
